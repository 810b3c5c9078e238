#pragma once

// TENFOLD_ASAN and TENFOLD_TSAN: 1 with AddressSanitizer or ThreadSanitizer, else 0. g++ defines a
// macro, clang has a feature.
#if defined(__SANITIZE_ADDRESS__)
#define TENFOLD_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TENFOLD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENFOLD_ASAN 1
#elif __has_feature(thread_sanitizer)
#define TENFOLD_TSAN 1
#endif
#endif

#ifndef TENFOLD_ASAN
#define TENFOLD_ASAN 0
#endif
#ifndef TENFOLD_TSAN
#define TENFOLD_TSAN 0
#endif

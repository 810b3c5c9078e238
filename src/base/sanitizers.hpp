#pragma once

// TENFOLD_ASAN is 1 with AddressSanitizer, TENFOLD_TSAN is 1 with ThreadSanitizer; otherwise 0. g++
// defines a macro for each sanitizer; clang reports it through __has_feature.
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

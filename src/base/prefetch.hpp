#pragma once

namespace tenfold::base {

/// Has the cache line of `address`, which may be any address, fetched.
inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  // GCC counts a prefetch as no effect, and drops calls of functions that have no other one.
  asm volatile("");
}

}  // namespace tenfold::base

#pragma once

#include <cstddef>
#include <cstdint>

namespace tenfold::base {

/// XXH3 compiled for one instruction set. `state` points to an XXH3_state_t, whose layout does
/// not depend on the instruction set.
struct Xxh3Kernel {
  std::uint64_t (*hash)(const void* data, std::size_t size_bytes);
  void (*update)(void* state, const void* data, std::size_t size_bytes);
  std::uint64_t (*digest)(const void* state);
};

extern const Xxh3Kernel kXxh3Baseline;
extern const Xxh3Kernel kXxh3Avx2;  // x86-64 only

}  // namespace tenfold::base

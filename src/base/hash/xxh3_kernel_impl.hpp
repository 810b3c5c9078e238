#pragma once

// The body of one Xxh3Kernel, included once by each file that is compiled for an instruction set.
// Include only headers of C (also as <cstddef> etc.) here. The linker keeps one copy of an inline
// function of the C++ standard library for the whole program, and this could be the copy that was
// compiled with -mavx2.

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include "base/hash/xxh3_kernel.hpp"

namespace tenfold::base {
namespace {

std::uint64_t kernel_hash(const void* data, std::size_t size_bytes) {
  return XXH3_64bits(data, size_bytes);
}

void kernel_update(void* state, const void* data, std::size_t size_bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size_bytes);
}

std::uint64_t kernel_digest(const void* state) {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
}

}  // namespace
}  // namespace tenfold::base

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <tenfold/leaf.hpp>

#include "core/tree/leaf_source.hpp"

namespace tenfold {

/// Hands out the row-major bytes [begin, end) of a leaf in pieces of at most `scratch.size()`
/// bytes, in order: without a copy where the tensor is contiguous in memory, through `scratch`
/// where it is strided or on disk (pread). `begin` and `end` are multiples of the itemsize.
void for_each_piece(const Leaf& leaf, std::uint64_t begin, std::uint64_t end,
                    std::span<std::byte> scratch,
                    const std::function<void(std::span<const std::byte>)>& use);

/// Tells that two leaves hold the same stored bytes; without any value if that is not known, or
/// they are shared with nobody.
using SharedBytes = LeafSource::Identity;
struct SharedBytesHash {
  std::size_t operator()(const SharedBytes& key) const noexcept;
};
/// Equal for contiguous tensors over the same memory range and for leaves stored once on disk.
/// Zero-element leaves share with nobody.
SharedBytes shared_bytes(const Leaf& leaf);

}  // namespace tenfold

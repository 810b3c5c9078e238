#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <tenfold/leaf.hpp>

namespace tenfold {

/// Hands out the row-major bytes [begin, end) of a leaf in pieces of at most `scratch.size()`
/// bytes, in order: without a copy where the tensor is contiguous in memory, through `scratch`
/// where it is strided or on disk (pread). `begin` and `end` are multiples of the itemsize.
void for_each_piece(const Leaf& leaf, std::uint64_t begin, std::uint64_t end,
                    std::span<std::byte> scratch,
                    const std::function<void(std::span<const std::byte>)>& use);

/// What tells that two leaves hold the same stored bytes; {0, 0} if unknown or shared with nobody.
struct SharedBytes {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  bool operator==(const SharedBytes&) const = default;
};
struct SharedBytesHash {
  std::size_t operator()(const SharedBytes& key) const noexcept {
    return static_cast<std::size_t>(key.a * 0x9E3779B97F4A7C15 ^ key.b * 0xC2B2AE3D27D4EB4F);
  }
};
/// Equal for contiguous tensors over the same memory range and for leaves stored once on disk.
/// Zero-element leaves share with nobody.
SharedBytes shared_bytes(const Leaf& leaf);

}  // namespace tenfold

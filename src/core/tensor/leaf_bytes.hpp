#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <tenfold/leaf.hpp>

#include "core/tree/leaf_source.hpp"

namespace tenfold {

/// Passes the bytes [begin, end) of a leaf, in row-major order, to `use` in consecutive pieces of
/// at most `scratch.size()` bytes. A tensor that is contiguous in memory is not copied; the bytes
/// of other leaves are copied to `scratch`. Throws Error(invalid_argument) unless `begin` and `end`
/// are multiples of the itemsize within the leaf, and `scratch` has room for one element.
void for_each_piece(const Leaf& leaf, std::uint64_t begin, std::uint64_t end,
                    std::span<std::byte> scratch,
                    const std::function<void(std::span<const std::byte>)>& use);

/// The identity of the bytes of a leaf. Equal for contiguous tensors over the same memory range,
/// and for leaves that are stored in the same range of a file. StoredRange{} for strided tensors in
/// memory, nested leaves, leaves without elements, and leaves whose source does not know the range.
StoredRange stored_range(const Leaf& leaf);

}  // namespace tenfold

#include "core/tensor/leaf_bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "core/tensor/strided_copy.hpp"

namespace tenfold {

void for_each_piece(const Leaf& leaf, std::uint64_t begin, std::uint64_t end,
                    std::span<std::byte> scratch,
                    const std::function<void(std::span<const std::byte>)>& use) {
  const std::uint64_t item_bytes = itemsize(leaf.dtype());
  if (end < begin || begin % item_bytes != 0 || end % item_bytes != 0 ||
      !base::range_fits(begin, end - begin, leaf.nbytes()) || scratch.size() < item_bytes) {
    throw base::invalid_argument()
        .part("tensor")
        .problem("bytes [", begin, ", ", end, ") cannot be read in pieces")
        .expected("whole elements within ", leaf.nbytes(),
                  " bytes, and scratch memory of at least ", item_bytes, " bytes");
  }
  const std::uint64_t piece_bytes = scratch.size() / item_bytes * item_bytes;
  const Tensor* tensor = nullptr;
  Tensor in_memory;
  if (leaf.in_memory()) {
    in_memory = leaf.tensor();
    tensor = &in_memory;
  }
  const bool direct = tensor != nullptr && tensor->is_contiguous();
  for (std::uint64_t at = begin; at < end;) {
    const std::size_t size = std::min(piece_bytes, end - at);
    if (direct) {
      use({tensor->raw_data() + at, size});
    } else {
      if (tensor != nullptr) {
        copy_to_contiguous(*tensor, static_cast<std::int64_t>(at / item_bytes),
                           static_cast<std::int64_t>((at + size) / item_bytes), scratch.data());
      } else {
        source_of(leaf)->read(leaf, at, scratch.first(size));
      }
      use(scratch.first(size));
    }
    at += size;
  }
}

StoredRange stored_range(const Leaf& leaf) {
  // Two nested tensors may share their values but have different sizes.
  if (leaf.is_nested()) return {};
  if (!leaf.in_memory()) {
    if (std::ranges::find(leaf.shape(), 0) != leaf.shape().end()) return {};
    return source_of(leaf)->identity(leaf);
  }
  const Tensor tensor = leaf.tensor();
  if (tensor.numel() == 0 || !tensor.is_contiguous()) return {};
  StoredRange range{.device = StoredRange::kThisProcess, .size_bytes = tensor.nbytes()};
  range.offset_bytes = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
  return range;
}

}  // namespace tenfold

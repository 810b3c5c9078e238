#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tenfold/tensor.hpp>

#include "formats/folder/files.hpp"

namespace tenfold::detail::formats::folder {

/// True if both files begin with the same `size_bytes` bytes; bounded memory. Throws as read_at.
bool same_content(const StoredFile& a, const StoredFile& b, std::uint64_t size_bytes);

/// True if the file begins with `bytes`.
bool same_content(const StoredFile& file, std::span<const std::byte> bytes);

/// The elements of a nested tensor of these sizes (int64 `[n, k]`): the sum of the rows' products;
/// nothing if a length is negative or it does not fit 63 bits.
std::optional<std::uint64_t> nested_numel(const Tensor& sizes);

}  // namespace tenfold::detail::formats::folder

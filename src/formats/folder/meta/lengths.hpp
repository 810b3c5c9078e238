#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats::folder {

/// The length of a tensor's first dimension.
struct LeafLength {
  std::string key;
  std::uint64_t length = 0;
};

/// Updates the lengths of tensors, and the batch size, in the meta.json of `folder`, atomically and
/// durably. Writes nothing if they are up to date. Throws Error(corrupt) if the entry of a tensor
/// is not found, because another tool has written the file since.
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

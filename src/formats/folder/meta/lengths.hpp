#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats::folder {

/// How long the first dimension of one tensor is.
struct LeafLength {
  std::string key;
  std::uint64_t length = 0;
};

/// Writes into the meta.json of `folder` how long its tensors are (and its batch) by now, in one
/// step and durably; nothing is written if it says so already. Throws Error(corrupt) for a length
/// that has no place there any more, as another tool wrote the file since.
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

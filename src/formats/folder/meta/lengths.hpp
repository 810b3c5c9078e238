#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats::folder {

/// The length of a tensor's first dimension.
struct LeafLength {
  std::string key;
  std::uint64_t length = 0;
};

/// Returns the text of a meta.json in which the first dimension of these tensors is changed to
/// these lengths, and that of the batch size to `batch`, if given. `where` names the file. Throws
/// Error(corrupt) if another tool has changed the file: if it is not JSON, if it lacks a tensor, or
/// if the shape of a tensor, or the batch size with `batch`, has no dimensions.
std::string with_lengths(std::string_view text, const std::string& where,
                         std::span<const LeafLength> lengths, std::optional<std::uint64_t> batch);

/// Applies with_lengths() to the meta.json of `folder`, atomically and durably. Writes nothing if
/// the text stays the same.
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

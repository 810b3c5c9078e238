#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats::folder {

/// The key of a tensor, and the length of its first dimension.
struct LeafLength {
  std::string key;
  std::uint64_t length = 0;
};

/// Sets the first length of the shape of each tensor in `lengths` to its LeafLength::length and, if
/// `batch` is given, the first length of the batch size to `batch`. Returns the new text of the
/// meta.json. `where` names the file. Throws Error(corrupt) if the text is not JSON, if it lacks a
/// tensor of `lengths`, or if a shape to be changed is missing or empty: another tool has changed
/// the file.
std::string with_lengths(std::string_view text, const std::string& where,
                         std::span<const LeafLength> lengths, std::optional<std::uint64_t> batch);

/// Replaces the meta.json of `folder` by the result of with_lengths(), atomically and durably.
/// Writes nothing if the text stays the same. Throws like with_lengths(), and Error(io).
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

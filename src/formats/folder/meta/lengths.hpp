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

/// Returns the text of a meta.json with these lengths of tensors. `batch`, if given, becomes the
/// first length of the batch size. `where` names the file. Throws Error(corrupt) if the text is not
/// JSON, if a tensor has no entry, or if its shape or the batch size has no first length: another
/// tool has written the file since it was opened.
std::string with_lengths(std::string_view text, const std::string& where,
                         std::span<const LeafLength> lengths, std::optional<std::uint64_t> batch);

/// Applies with_lengths() to the meta.json of `folder`, atomically and durably. Writes nothing if
/// the text stays the same.
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

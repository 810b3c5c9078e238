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

/// Returns the text of a meta.json with new lengths of the first dimension: of each tensor in
/// `lengths` and, if `batch` is given, of the batch size. `where` names the file. Throws
/// Error(corrupt) if another tool has changed the file: if it is not JSON, if it lacks a tensor, or
/// if the shape of a tensor, or with `batch` the batch size, has no dimensions.
std::string with_lengths(std::string_view text, const std::string& where,
                         std::span<const LeafLength> lengths, std::optional<std::uint64_t> batch);

/// Replaces the meta.json of `folder` by the result of with_lengths(), atomically and durably.
/// Writes nothing if the text stays the same. Throws like with_lengths(), and Error(io).
void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch);

}  // namespace tenfold::detail::formats::folder

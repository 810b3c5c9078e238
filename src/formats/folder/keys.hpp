#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenfold::detail::formats::folder {

/// The longest name of a folder's entry.
inline constexpr std::size_t kMaxNameBytes = 255;

inline constexpr std::string_view kLeafSuffix = ".memmap";
inline constexpr std::string_view kSizesSuffix = ".shape.memmap";
inline constexpr std::string_view kMetaName = "meta.json";
inline constexpr std::string_view kNotesName = "%notes.json";
inline constexpr std::string_view kValuesName = "%values";
/// In the root of a data set: what could not be ingested.
inline constexpr std::string_view kBadRowsName = "bad_rows.jsonl";
inline constexpr std::string_view kInnerName = "_tensordict";
inline constexpr std::string_view kPickleName = "other.pickle";

/// The folder's entry for a key, as tensordict names it: a node's folder as it is, a leaf's file
/// with ".memmap" behind it. Always one path component, whatever the key.
std::string encode_key(std::string_view key);

/// The key that encode_key() makes `component` of, or nothing if there is none.
std::optional<std::string> decode_key(std::string_view component);

/// True if a key may be tried as it stands as a name, as versions before 0.14 wrote them: it
/// stays below its folder on every system.
bool is_safe_raw_leaf(std::string_view key) noexcept;
bool is_safe_raw_node(std::string_view key) noexcept;

/// "%clash-<n>": the name of an entry whose own name another entry has.
std::string clash_name(std::uint64_t number);

/// True for names that the notes may give to an entry: of the form of clash_name().
bool is_clash_name(std::string_view name) noexcept;

/// True for the path of a file below a saved tree that holds metadata rather than a tensor.
bool is_metadata(std::string_view path) noexcept;

}  // namespace tenfold::detail::formats::folder

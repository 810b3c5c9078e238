#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold::detail::formats::folder {

inline constexpr std::string_view kLeafSuffix = ".memmap";
inline constexpr std::string_view kSizesSuffix = ".shape.memmap";
inline constexpr std::string_view kMetaName = "meta.json";
inline constexpr std::string_view kNotesName = "%notes.json";
inline constexpr std::string_view kValuesName = "%values";
/// The file with the rows that could not be ingested, in the root of a data set.
inline constexpr std::string_view kBadRowsName = "bad_rows.jsonl";

/// The sub-folder with the tensors of a tensorclass.
inline constexpr std::string_view kInnerName = "_tensordict";
/// The file in which tensordict pickles values that are not JSON. tenfold never reads it.
inline constexpr std::string_view kPickleName = "other.pickle";

/// Returns the encoded key, as in tensordict: the name of a node's folder, or the name of a leaf's
/// file without ".memmap". The result is one path component for every key.
std::string encode_key(std::string_view key);

/// Returns the key that encodes to `component`, or nullopt if there is none.
std::optional<std::string> decode_key(std::string_view component);

/// True if the unencoded key is safe in the name of a leaf's file: the name does not lead out of
/// the folder on any operating system. tensordict uses unencoded keys before 0.14, and with
/// robust_key=False.
bool is_safe_raw_leaf(std::string_view key) noexcept;
/// Like is_safe_raw_leaf(), for a node's folder, whose name has no suffix: also false for "", "."
/// and "..".
bool is_safe_raw_node(std::string_view key) noexcept;

/// Returns the name of a node's folder, or the name of a leaf's files without the suffix: the
/// encoded key if `robust`, otherwise the key. Throws Error(invalid_argument) if `robust` is false
/// and the key is not a safe name. `parent` is the path of the node that has the key, as in notes
/// (core/notes/notes.hpp), for the message.
std::string entry_name(std::string_view key, bool is_leaf, bool robust, std::string_view parent);

/// Returns the name of the file with the sizes of a nested tensor. tensordict replaces the suffix
/// ".memmap" of the data file by ".shape.memmap". If the unencoded key is empty, the data file is
/// ".memmap". Python regards that name as one without a suffix, so tensordict appends
/// ".shape.memmap" to it.
std::string sizes_name(const std::string& stem);

/// Returns the name of a node's folder, or the names of a tensor's files: the data file and, for a
/// nested tensor, the file with the sizes. The last name is the longest. `stem` is the encoded or
/// unencoded key.
std::vector<std::string> file_names(const std::string& stem, bool is_node, bool is_nested);

/// Returns "%clash-<number>", the name of an entry whose usual name is already taken in its folder.
std::string clash_name(std::uint64_t number);

bool is_clash_name(std::string_view name) noexcept;

/// Returns `key "a"` for messages about the entry with that key or note path.
std::string key_part(std::string_view key);

/// True if the last component of `path` is the name of a tensor's file.
bool is_leaf_file(std::string_view path) noexcept;

/// True if `path`, relative to the root of a saved tree, is a meta.json or the `%notes.json`.
bool is_metadata(std::string_view path) noexcept;

}  // namespace tenfold::detail::formats::folder

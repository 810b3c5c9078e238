#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"

namespace tenfold::detail::formats::bundle {

/// Maximum number of bundles inside each other, including the outermost. There can be several:
/// transformers' Trainer puts DeepSpeed's folder into its own.
inline constexpr std::size_t kMaxLevels = 3;

/// How an entry can be read.
struct Reading {
  enum class Way : std::uint8_t { format, json, pickle, refused };
  Way way = Way::refused;
  const Format* format = nullptr;  ///< not null for Way::format
  std::string problem{};           ///< if refused, the reason: "<what>: expected ..., found ..."
};

/// Determines how an entry can be read. A file "*.json" is JSON, unless it is an index
/// ("*.index.json"). For other files and for folders, calls format_of_content() (io/registry.hpp).
/// If that finds no format, an index is read as JSON, and a file "*.pkl" as a pickle if it begins
/// like one. Refuses all other entries, special files, and symbolic links except those that
/// is_cache_link() accepts. Throws Error(file_not_found) if the entry was removed, and what
/// Folder::path_of() and format_of_content() throw, except Error(unsupported).
Reading reading_of(const Folder& folder, const std::string& name);

/// Opens the folder as a tree: a dict whose entries are read at their first access. `level` is 0
/// for the bundle that the user opened, 1 for a bundle inside the bundle of level 0, and so on.
/// Throws Error(unsupported) if `level` is kMaxLevels or more, and what the constructor of Folder
/// and list_entries() throw.
TensorDict open_folder(const Path& path, const OpenRequest& request, std::size_t level);

/// Reads the entry `name` as `reading`, the result of reading_of(), says: as a file or folder of a
/// known format, as JSON, or as a pickle, which is parsed but not executed. Returns a node of kind
/// opaque (NodeInfo::is_refused()) for any other entry, and for data that is not supported. `level`
/// is that of the bundle that contains the entry. Throws Error(corrupt) for damaged data.
TensorDict::Item read_entry(const std::shared_ptr<const Folder>& folder, const std::string& name,
                            const Reading& reading, const OpenRequest& request, std::size_t level);

}  // namespace tenfold::detail::formats::bundle

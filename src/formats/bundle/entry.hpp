#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"

namespace tenfold::detail::formats::bundle {

/// Folders of trainers lie in folders of trainers (DeepSpeed's in transformers'), to this depth.
inline constexpr std::size_t kMostLevels = 3;

/// How an entry can be read.
struct Reading {
  enum class Way : std::uint8_t { format, json, pickle, refused };
  Way way = Way::refused;
  const Format* format = nullptr;
  std::string problem{};  ///< refused: why, "<what>: expected ..., found ..."
};

/// Looks at the first bytes of the entry. Throws Error(file_not_found) if it has vanished.
Reading reading_of(const Folder& folder, const std::string& name);

/// The tree of the folder, `level` folders of bundles below the one that was opened.
TensorDict open_folder(const Path& path, const OpenRequest& request, std::size_t level);

/// Reads an entry: a file or folder of a format, a JSON file, a pickle, which is not executed. What
/// is none of them is a node of kind opaque, NodeInfo::is_refused(). Throws Error(corrupt) for what
/// is damaged.
TensorDict::Item read_entry(const std::shared_ptr<const Folder>& folder, const std::string& name,
                            const Reading& reading, const OpenRequest& request, std::size_t level);

}  // namespace tenfold::detail::formats::bundle

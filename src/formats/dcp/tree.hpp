#pragma once

#include <memory>
#include <string>

#include <tenfold/tensordict.hpp>

#include "formats/dcp/metadata.hpp"
#include "formats/dcp/source.hpp"
#include "formats/shared/dcp_manifest.hpp"

namespace tenfold::detail::formats::dcp {

/// The tree that the metadata stands for: dicts and lists as their paths tell, tensors put together
/// from their chunks, objects read when they are asked for. What has no tensor below is one JSON
/// value where all its objects are. An item that a list lacks is null, as for torch. `where` names
/// the folder. Throws Error(corrupt), naming the key, for chunks that do not make up their tensor
/// and for paths that contradict each other.
TensorDict build_tree(Metadata metadata, const std::shared_ptr<Files>& files,
                      const std::string& where);

/// The tree that the manifest describes, its tensors put together as the metadata says. Throws
/// Error(corrupt) where they contradict each other.
TensorDict build_tree(Metadata metadata, const Manifest& manifest,
                      const std::shared_ptr<Files>& files, const std::string& where);

}  // namespace tenfold::detail::formats::dcp

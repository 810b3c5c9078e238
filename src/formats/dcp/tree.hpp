#pragma once

#include <memory>
#include <string>

#include <tenfold/tensordict.hpp>

#include "formats/dcp/leaf_source.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/shared/dcp_manifest.hpp"

namespace tenfold::detail::formats::dcp {

/// Builds the tree of the metadata: dicts and lists according to the paths, tensors assembled from
/// their chunks, objects read at their first access. A subtree without tensors, except the root,
/// becomes one JSON value if all its objects are JSON. A missing item of a list is null, as in
/// torch. `where` names the folder. Throws like AssembledSource::assemble(), and Error(corrupt) for
/// paths that contradict each other, naming the key, and for too many missing items in all lists,
/// naming a list.
TensorDict build_tree(Metadata metadata, const std::shared_ptr<Files>& files,
                      const std::string& where);

/// Builds the tree that the manifest describes. The metadata determines how tensors are assembled.
/// Throws like manifest_tree() and AssembledSource::assemble(), and Error(corrupt) if the manifest
/// and the metadata contradict each other.
TensorDict build_tree(Metadata metadata, const Manifest& manifest,
                      const std::shared_ptr<Files>& files, const std::string& where);

}  // namespace tenfold::detail::formats::dcp

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
/// torch. `where` names the folder. Throws like AssembledSource::assemble(). Throws Error(corrupt)
/// if paths contradict each other, or if more than 65,536 items are missing in all lists together.
TensorDict build_tree(Metadata metadata, const std::shared_ptr<Files>& files,
                      const std::string& where);

/// Builds the tree that the manifest describes, with tensors assembled from the chunks in the
/// metadata. Throws like manifest_tree() and AssembledSource::assemble(), and Error(corrupt) if a
/// tensor of the manifest is missing in the metadata or has another dtype or shape there.
TensorDict build_tree(Metadata metadata, const Manifest& manifest,
                      const std::shared_ptr<Files>& files, const std::string& where);

}  // namespace tenfold::detail::formats::dcp

#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

#include "formats/folder/meta/meta.hpp"
#include "formats/folder/reader.hpp"

namespace tenfold::detail::formats::folder {

/// The node that a meta.json of a TensorDict describes, with what the notes add: hidden entries,
/// unbatched leaves, the container it was. `class_name` not empty: a tensorclass.
TensorDict build_tensordict(const NodePlace& place, NodeMeta meta, const std::string& class_name);

/// The stack of the folders "0", "1", ... until the first that is missing: their number is written
/// nowhere.
TensorDict build_lazy_stack(const NodePlace& place, const NodeMeta& meta,
                            const std::string& class_name);

/// Throws Error(corrupt) unless `device` is empty or has the syntax of a device.
void require_device(const NodePlace& place, const std::string& device);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/folder/files.hpp"
#include "formats/folder/store.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// A node of an opened tree: its folder, and its path in `%notes.json`.
struct NodePlace {
  std::shared_ptr<Store> store;
  std::shared_ptr<Folder> folder;
  std::string note_path;
};

/// Returns the path of the node's meta.json, for messages.
std::string meta_where(const NodePlace& place);

/// Reads the meta.json of one folder: a node with lazy sub-folders, or a JSON value. Reads no
/// tensor and lists no folder. `class_name` is set for an element of a stack of tensorclasses,
/// because only the folder of the stack stores the class.
TensorDict::Item read_node(const NodePlace& place, const std::string& class_name = {});

/// Opens the tree with the root `folder`: reads its meta.json and `%notes.json`. If `problems` is
/// given, Store::report_ignored() appends to it, during the whole lifetime of the tree, instead of
/// warning.
TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode,
                     std::vector<Problem>* problems = nullptr);

/// Opens the folder at `path`; replacing the path does not affect the tree. If `folder` holds the
/// lock of mode write_through, it is held as long as any part of the tree is alive.
TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems = nullptr);

}  // namespace tenfold::detail::formats::folder

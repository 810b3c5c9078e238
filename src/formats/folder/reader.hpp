#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/folder/files.hpp"
#include "formats/folder/store.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// A node of an opened tree: its folder, and its path in the notes.
struct NodePlace {
  std::shared_ptr<Store> store;
  std::shared_ptr<Folder> folder;
  std::string note_path;
};

/// The path of the node's meta.json, for messages.
std::string meta_where(const NodePlace& place);

/// Reads the meta.json of one folder: a node with lazy sub-folders, or a JSON value. Reads no
/// tensor and lists no folder. If `class_name` is not empty, the node is an element of a stack of
/// that tensorclass, whose folder stores the class once.
TensorDict::Item read_node(const NodePlace& place, const std::string& class_name = {});

/// Opens the tree with the root `folder`: reads its meta.json and `%notes.json`. If `problems` is
/// given, warnings are added to it instead, during the lifetime of the tree.
TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode,
                     std::vector<Problem>* problems = nullptr);

/// Opens the folder at `path`; replacing the path does not affect it. In mode write_through, it
/// stays locked against replacement as long as any part of the tree is alive, if `folder` holds
/// that lock.
TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems = nullptr);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/folder/files.hpp"
#include "formats/folder/store.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// A node of an opened tree: its folder, and its path as the notes write it.
struct NodePlace {
  std::shared_ptr<Store> store;
  std::shared_ptr<Folder> folder;
  std::string note_path;
};

/// The path of the node's meta.json, for messages.
std::string meta_where(const NodePlace& place);

/// Reads the meta.json of one folder: a node whose sub-folders are lazy, or a JSON value. No tensor
/// byte is read and no folder is listed. `class_name` not empty: the node is an element of a stack
/// of that tensorclass, whose folder says it once.
TensorDict::Item read_node(const NodePlace& place, const std::string& class_name = {});

/// Opens the tree whose root `folder` is: reads its meta.json and `%notes.json`. With `problems`
/// what would be a warning is added to it, as long as the tree lives.
TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode,
                     std::vector<Problem>* problems = nullptr);

/// Opens the folder at `path`, which stays the one that was opened whatever happens to the name.
/// For write_through it stays locked against being replaced as long as any part of the tree lives,
/// if `folder` holds that lock.
TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems = nullptr);

}  // namespace tenfold::detail::formats::folder

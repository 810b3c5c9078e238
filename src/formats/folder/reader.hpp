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

/// Reads the node or JSON value in one folder: the meta.json of the folder and of its sub-folders
/// `%values` and `_tensordict`. Child nodes are read at their first access, except the first
/// element of a stack with a `stack_dim` above 0, and the items of a NonTensorStack that are
/// folders. Lists no folder. Reads no tensor, except one row offset of a sparse matrix to which
/// rows are being added. `class_name` is the name of the tensorclass if a folder above stores it,
/// as for a folder `_tensordict` and for the elements of a stack of tensorclasses; otherwise it is
/// empty. Throws Error(corrupt) for invalid metadata, Error(unsupported) for values in pickles and
/// for views, and Error(io), also (ESTALE) if the tree was replaced.
TensorDict::Item read_node(const NodePlace& place, const std::string& class_name = {});

/// Opens the tree with the root `folder`: reads its `%notes.json`, its `%commit` and the root node
/// (read_node()). If `problems` is given, adds a problem for ignored data to it instead of warning,
/// also when the tree is accessed later: `problems` must outlive the tree. Throws like read_node(),
/// and Error(unsupported) if the root is a JSON value.
TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode,
                     std::vector<Problem>* problems = nullptr);

/// Opens the tree in `folder`, which was opened at `path`. If the path is replaced, the tree never
/// reads the new folder; entries that were not read before may throw Error(io) (ESTALE). If
/// `folder` holds the lock of mode write_through, the lock is held as long as a node or leaf of the
/// tree is alive.
TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems = nullptr);

}  // namespace tenfold::detail::formats::folder

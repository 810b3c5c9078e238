#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold::detail::formats::folder {

/// Every folder and file that a tree becomes, before any of them exists: what cannot be written is
/// found out while nothing has happened yet.
struct Plan {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  struct Folder {
    std::size_t parent = kNone;  ///< of a smaller number; kNone: the root, which is number 0
    std::string name;
  };
  /// A file whose bytes are here, or those of a leaf.
  struct File {
    std::size_t folder = 0;
    std::string name;
    bool is_leaf = false;
    bool is_sizes = false;  ///< sizes of a nested tensor, written even where zeros are asked
    std::string text;
    Leaf leaf = Leaf(Tensor());
    std::uint64_t size_bytes = 0;
    std::size_t same_as = kNone;  ///< the number of the file that holds the same bytes already
  };

  std::vector<Folder> folders;         ///< parents before children, depth first
  std::vector<File> files;             ///< a file's `same_as` is of a smaller number
  std::uint64_t leaf_bytes = 0;        ///< that will be written
  std::string unloadable_by_upstream;  ///< the path of a leaf of such a dtype; empty: none

  /// "model/encoder.weight.memmap": the path within the tree, as checksums name it.
  std::string path_of(const File& file) const;
};

/// What goes to `%notes.json`.
enum class NotesUse : std::uint8_t {
  all,     ///< whatever the folder cannot say, ties between tensors too
  needed,  ///< only what tensordict's own files would lose: a key, a kind of node, integer keys
  none,    ///< nothing: a tree that needs them is Error(unsupported)
};

struct PlanOptions {
  NotesUse notes = NotesUse::all;
  bool robust_names = true;  ///< false: keys as they are, as tensordict before 0.14 wrote them
};

/// Plans a tree. Throws Error(invalid_argument) for keys that make no file name. Enters every node,
/// reads no tensor.
Plan plan_tree(const TensorDict& tree, const PlanOptions& options = {});

}  // namespace tenfold::detail::formats::folder

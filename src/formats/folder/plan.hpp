#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {

/// All folders and files for a tree, determined before any of them is created, so that entries that
/// cannot be stored are found before anything is written.
struct Plan {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  struct Folder {
    std::size_t parent = kNone;  ///< a smaller index; kNone for the root, which has index 0
    std::string name;
  };
  /// A file that contains `text` or, if `is_leaf`, the bytes of `leaf`.
  struct File {
    std::size_t folder = 0;
    std::string name;
    bool is_leaf = false;
    bool is_sizes = false;  ///< sizes of a nested tensor, written even if zeros are requested
    std::string text;
    Leaf leaf = Leaf(Tensor());
    std::string note_path;  ///< note path of `leaf` (core/notes/notes.hpp)
    std::uint64_t size_bytes = 0;
    std::size_t same_as = kNone;  ///< index of an earlier file of which this file is an alias
  };

  std::vector<Folder> folders;         ///< parents before children, depth first
  std::vector<File> files;             ///< in the order of a depth-first walk
  std::uint64_t leaf_bytes = 0;        ///< total size of the leaves, without aliases
  std::string unloadable_by_upstream;  ///< path of a leaf whose dtype tensordict cannot load, or ""

  /// Returns the path of the file relative to the root folder, as in `%checksums`:
  /// "model/encoder.weight.memmap".
  std::string path_of(const File& file) const;
};

/// The content of `%notes.json`.
enum class NotesUse : std::uint8_t {
  all,     ///< everything that the folder cannot express, including shared storage
  needed,  ///< only what tensordict's own files would lose: keys and their types, kinds of nodes,
           ///< unbatched tensors, the schema, metadata
  none,    ///< no notes: plan_tree() throws Error(unsupported) for a tree that needs them
};

struct PlanOptions {
  NotesUse notes = NotesUse::all;
  bool robust_names = true;  ///< false: unencoded keys, as tensordict before 0.14 wrote them
  std::uint64_t max_meta_bytes = kMaxMetaBytes;  ///< of each meta.json and of `%notes.json`
};

/// Plans the folders and files of a tree. Visits every node. Reads no tensor except the sizes of
/// nested tensors and, to compare their bytes, aliases that are stored in separate files. Throws
/// Error(unsupported) for entries that cannot be stored. Throws Error(invalid_argument) for
/// malformed stacks, keys that are not UTF-8, file names that are too long and, without
/// `robust_names`, keys that need encoding. Also throws like require_valid_info().
Plan plan_tree(const TensorDict& tree, const PlanOptions& options = {});

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

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
    std::string note_path;  ///< of `leaf`
    std::uint64_t size_bytes = 0;
    std::size_t same_as = kNone;  ///< index of the file that already has the same bytes
  };

  std::vector<Folder> folders;         ///< parents before children, depth first
  std::vector<File> files;             ///< `same_as` is a smaller index
  std::uint64_t leaf_bytes = 0;        ///< total size of the leaves, without aliases
  std::string unloadable_by_upstream;  ///< path of a leaf whose dtype tensordict cannot load, or ""

  /// Returns the path of the file relative to the root folder, as in `%checksums`:
  /// "model/encoder.weight.memmap".
  std::string path_of(const File& file) const;
};

/// The content of `%notes.json`.
enum class NotesUse : std::uint8_t {
  all,     ///< everything that the folder cannot express, including shared storage
  needed,  ///< only what tensordict's own files would lose: a key, its type, a kind of node, an
           ///< unbatched tensor, the schema, metadata
  none,    ///< nothing: throws Error(unsupported) for a tree that needs notes
};

struct PlanOptions {
  NotesUse notes = NotesUse::all;
  bool robust_names = true;  ///< false: unencoded keys, as tensordict before 0.14 wrote them
};

/// Plans a tree. Throws Error(invalid_argument) for keys that are not UTF-8 or whose file names are
/// too long or need encoding (without `robust_names`), for malformed stacks, and like
/// require_valid_info(). Throws Error(unsupported) for entries that cannot be stored. Visits every
/// node. Reads no tensor except the sizes of nested tensors and, to compare their bytes, aliases
/// that are stored in separate files.
Plan plan_tree(const TensorDict& tree, const PlanOptions& options = {});

}  // namespace tenfold::detail::formats::folder

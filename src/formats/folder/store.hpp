#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/arena.hpp"
#include "formats/folder/files.hpp"

namespace tenfold::detail::formats::folder {

class FolderSource;

/// The notes about the entries of one node.
struct NodeNotes {
  std::vector<std::pair<std::string, Notes::LeafNote>> leaves;  ///< tensors that meta.json cannot
                                                                ///< list, by key
  std::vector<std::pair<std::string, std::string>> files;       ///< key -> name of file or folder
  std::vector<std::string> unbatched;                           ///< keys of tensors in `%values`
};

/// Leaves that the notes list as aliases of one tensor. If their files are hard links of one file,
/// the leaves share one mapping. In a copy of the tree, the files may be separate: then the leaves
/// share a mapping if the bytes are equal and the mode is not write_through.
struct AliasGroup {
  std::mutex mutex;
  bool started = false;                ///< a leaf represents the group
  StoredInfo info;                     ///< of the file of the representing leaf
  std::weak_ptr<FolderSource> source;  ///< of the representing leaf
  std::uint64_t position = 0;          ///< of the representing leaf
  Buffer buffer;                       ///< the bytes of the group, once mapped
};

/// State shared by all nodes of one opened tree. After the root is read, only the caches and the
/// list of problems change. From then on, all functions that readers call are thread-safe, except
/// report_ignored() if collect_problems() has set a list.
class Store {
 public:
  Store(Mode mode, Notes notes, base::Where notes_where);

  Mode mode() const noexcept { return mode_; }
  const Notes& notes() const noexcept { return notes_; }
  /// The file of the notes, for messages.
  const base::Where& notes_where() const noexcept { return notes_where_; }
  Arena& arena() noexcept { return arena_; }

  /// Number of rows of the root in `%commit` at opening; empty if the number in meta.json applies.
  const std::optional<std::int64_t>& live_rows() const noexcept { return live_rows_; }
  void set_live_rows(std::int64_t rows) noexcept { live_rows_ = rows; }
  /// Number of rows of the root, and of all nodes below it that have a batch size. Set when the
  /// root's meta.json is read, if grows() is true and the root has a batch size; otherwise empty.
  const std::optional<std::int64_t>& root_rows() const noexcept { return root_rows_; }
  void set_root_rows(std::int64_t rows) noexcept { root_rows_ = rows; }
  /// True if the root has a `%commit`: a writer is appending rows or has crashed, or the tree is a
  /// circular buffer.
  bool grows() const noexcept { return grows_; }
  void set_grows() noexcept { grows_ = true; }

  /// Returns the notes of the node at the note path `path` (core/notes/notes.hpp), or null.
  const NodeNotes* node_notes(const std::string& path) const;

  /// Reports data in the folder that is ignored: appends to the list of collect_problems() if there
  /// is one, and warns otherwise. `path` is the file, `part` the part of it, `what` the fault.
  void report_ignored(const std::string& path, const std::string& part, const std::string& what);
  /// Makes report_ignored() append to `problems`, which must outlive this object; null: warn.
  void collect_problems(std::vector<Problem>* problems) noexcept { problems_ = problems; }

  bool has_aliases() const noexcept { return !groups_.empty(); }
  /// Returns the alias group of the leaf at the note path `path`, or null.
  AliasGroup* alias_group(const std::string& path) const;

  /// Returns the mapped bytes of `range` in a file with several hard links. Calls `make` to map the
  /// bytes, unless they were mapped by an earlier call for this range. Throws what `make` throws.
  template <class Make>
  Buffer linked(const StoredRange& range, const Make& make) {
    const std::lock_guard lock(links_mutex_);
    const auto [found, is_new] = links_.try_emplace(range);
    if (is_new) {
      try {
        found->second = make();
      } catch (...) {
        links_.erase(found);
        throw;
      }
    }
    return found->second;
  }

 private:
  void index_notes();

  Mode mode_;
  std::vector<Problem>* problems_ = nullptr;
  Notes notes_;
  base::Where notes_where_;
  std::unordered_map<std::string, NodeNotes> node_notes_;
  std::unordered_map<std::string, std::shared_ptr<AliasGroup>> groups_;
  Arena arena_;
  std::optional<std::int64_t> live_rows_;
  std::optional<std::int64_t> root_rows_;
  bool grows_ = false;
  std::mutex links_mutex_;
  std::unordered_map<StoredRange, Buffer> links_;
};

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/folder/append/commit_file.hpp"
#include "os/fs/directory.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::folder {

class LeafSums;

/// A tensor of a folder to which rows are added.
struct GrowingLeaf {
  std::string key;
  std::string file;    ///< name of its file in `folder`
  std::string folder;  ///< path relative to the root: "", "camera/lens", "%values" if unbatched
  bool is_unbatched = false;     ///< elements of ragged rows, whose end offsets are in another
                                 ///< tensor
  bool counts_itself = false;    ///< part of a sparse matrix: its length is not the number of rows
  std::uint64_t row_bytes = 0;   ///< size of one row of this tensor
  std::uint64_t size_bytes = 0;  ///< committed size of the file
};

/// Adds rows to the tensors of a folder, including nested nodes, while other processes read it.
///
/// append(): writes the bytes after the committed end of every leaf (pwrite), then one commit
/// record. After a crash in between, the previous rows are valid, and the next append overwrites
/// the uncommitted bytes. A circular buffer instead marks the slots to overwrite as busy, writes
/// them, and commits.
///
/// flush(): makes durable, in this order: the leaves; the durable record of a circular buffer, or
/// `%checksums`; the meta.json of `%values` and of the nodes; and the meta.json of the root.
/// Replaces `%checksums` and each meta.json atomically. After a power failure, the rows of the last
/// complete flush are valid, or those of the flush that was in progress. The meta.json of a node
/// may then count more rows than that of the root; while there is a `%commit`, readers ignore rows
/// beyond those of the root.
///
/// Not thread-safe.
class GrowingFolder {
 public:
  /// Takes over `commit`, and with it the lock. `leaves` must have as many rows as `commit` counts.
  GrowingFolder(const Path& path, os::Directory root, CommitFile commit,
                std::vector<GrowingLeaf> leaves);
  GrowingFolder(const GrowingFolder&) = delete;
  GrowingFolder& operator=(const GrowingFolder&) = delete;
  ~GrowingFolder();

  /// Opens the files. Call this once, before any other function. If it throws, this object still
  /// holds the lock. Throws Error(unsupported) if two tensors share a file, Error(corrupt) if a
  /// file is shorter than its committed size, Error(io), and what refuse_shared_files() throws.
  void start();
  /// Makes close() replace the text of `%notes.json` by edit(text).
  void edit_notes(std::function<std::string(const std::string&)> edit) {
    edit_notes_ = std::move(edit);
  }

  const CommitState& state() const noexcept { return commit_.state(); }
  /// Capacity of a circular buffer in rows; 0 for any other folder.
  std::uint64_t capacity() const noexcept { return commit_.capacity(); }
  /// Committed size of the leaf at this index.
  std::uint64_t size_bytes(std::size_t leaf) const { return leaves_[leaf].leaf.size_bytes; }

  /// Throws unless rows can be added: Error(unsupported) in a forked child and after close();
  /// Error(io) if this process has lost its lock, because another writer took over (EBUSY), or
  /// because the folder was moved or deleted (ESTALE).
  void check_here() const;
  /// False in a forked child of the process that created this object.
  bool is_here() const noexcept { return process_.is_here(); }
  /// Throws Error(invalid_argument) if there would be more than kMaxRows rows after the addition of
  /// `num_rows` rows.
  void require_countable(std::uint64_t num_rows) const;
  /// Appends `num_rows` rows. `bytes` has the new bytes of each leaf, in the order of the leaves.
  /// Throws Error(io), and like check_here() and require_countable(); then no row is appended.
  void append(std::uint64_t num_rows, std::span<const std::span<const std::byte>> bytes);
  /// Writes `num_rows` rows, as in append(), to the next slots of a circular buffer. If there are
  /// more than capacity() rows, writes only the last capacity() of them. Throws Error(io), and like
  /// check_here() and require_countable(). If a write fails, the rows in the slots to overwrite are
  /// lost.
  void write_ring(std::uint64_t num_rows, std::span<const std::span<const std::byte>> bytes);
  /// Makes all rows durable (see the class comment). Does nothing if no rows were added since the
  /// last flush. Except for a circular buffer, the first call also covers rows that a writer may
  /// have added before it crashed. Throws Error(io), also (ESTALE) if the folder was moved or
  /// deleted, and like check_here().
  void flush();
  /// Calls flush(), replaces the notes (edit_notes()), restores the checksums of metadata, removes
  /// `%commit` (except that of a circular buffer), and releases the lock. If close() throws only
  /// because the removal of `%commit` could not be made durable, the lock is released: then
  /// append(), write_ring() and flush() throw Error(unsupported), and another close() only repeats
  /// the sync.
  void close();

 private:
  struct OpenLeaf {
    GrowingLeaf leaf;
    os::File file;
    std::unique_ptr<LeafSums> sums;  ///< null: its checksums are not maintained
    bool is_dirty = false;           ///< written since the last flush
  };

  /// Throws Error(io) (ESTALE) unless the path still names the opened folder. The functions that
  /// replace metadata use the path, and must not write to another folder.
  void check_in_place() const;
  void require_free_space(std::span<const std::span<const std::byte>> bytes) const;
  void open_files();
  void truncate_uncommitted() noexcept;
  void reserve_durably(std::uint64_t num_rows);
  void write_slots(OpenLeaf& leaf, std::uint64_t first_row, std::uint64_t num_rows,
                   std::span<const std::byte> bytes);
  void begin_checksums();
  std::vector<std::string> metadata_names() const;
  void write_checksums(bool with_metadata);
  os::Directory open_folder(const std::string& folder) const;
  /// Paths of the folders of the leaves and of all folders above these, parents first. Excludes the
  /// root.
  std::vector<std::string> folders_below() const;
  void write_meta(const std::string& folder);
  void write_notes();
  void finish();
  std::string path_of(const GrowingLeaf& leaf) const;

  Path path_;
  os::Directory root_;
  CommitFile commit_;
  std::vector<OpenLeaf> leaves_;
  os::OwnProcess process_;
  std::function<std::string(const std::string&)> edit_notes_;
  bool files_are_new_ = false;  ///< files were created, and their folders are not synced yet
  /// Rows were added since the last flush or, except for a circular buffer, may have been added by
  /// a writer that crashed.
  bool is_dirty_ = false;
  bool has_checksums_ = false;   ///< `%checksums` exists, is valid and is maintained
  bool metadata_waits_ = false;  ///< checksums of metadata were removed, and close() restores them
  bool is_closed_ = false;       ///< only close() may be called
};

}  // namespace tenfold::detail::formats::folder

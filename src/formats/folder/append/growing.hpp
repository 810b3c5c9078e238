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

namespace tenfold::detail::formats::folder {

class LeafSums;

/// One tensor of a folder that rows are added to.
struct GrowingLeaf {
  std::string key;
  std::string file;    ///< its name, in `folder`
  std::string folder;  ///< of the node, below the root: "", "camera/lens", "%values" if unbatched
  bool is_unbatched = false;     ///< rows of unequal length, counted by another tensor
  bool counts_itself = false;    ///< its length is no number of rows, as those of unbatched ones
  std::uint64_t row_bytes = 0;   ///< of one index of its first dimension
  std::uint64_t size_bytes = 0;  ///< committed
};

/// Adds rows to the tensors of a folder, and of the nodes in it, while others read it.
///
/// append(): the bytes go behind what is committed of every leaf (pwrite), then one slot of
/// `%commit` says so. A kill before that leaves the rows there were; what lies behind them is
/// written over by the next append. A ring instead marks the slots that it is about to write over
/// as busy, writes them and moves on.
///
/// flush(): leaves to the device, `%checksums`, meta.json of `%values` and of the nodes, and last
/// that of the root, each in one step: after a power loss the rows of the last flush are there, or
/// of the one under way. Nodes may count more rows than the root then, which are ignored as long as
/// there is a `%commit`.
///
/// Thread safety: none; one thread at a time.
class GrowingFolder {
 public:
  /// Holds the lock of `commit`, whose rows `leaves` have.
  GrowingFolder(const Path& path, os::Directory root, CommitFile commit,
                std::vector<GrowingLeaf> leaves);
  GrowingFolder(const GrowingFolder&) = delete;
  GrowingFolder& operator=(const GrowingFolder&) = delete;
  ~GrowingFolder();

  /// close() makes of the notes what `edit` makes of their text.
  void edit_notes(std::function<std::string(const std::string&)> edit) {
    edit_notes_ = std::move(edit);
  }

  const CommitState& state() const noexcept { return commit_.state(); }
  std::uint64_t capacity() const noexcept { return commit_.capacity(); }
  std::uint64_t size_bytes(std::size_t leaf) const { return leaves_[leaf].leaf.size_bytes; }

  /// One run of bytes a leaf, in their order; `num_rows` rows. Throws Error(io) with nothing
  /// appended, before anything is written if it cannot fit on the disk.
  void append(std::uint64_t num_rows, std::span<const std::span<const std::byte>> bytes);
  /// The same into the next slots of a ring; of more than `capacity` rows the last ones. After an
  /// error the slots that it was about to write over are gone.
  void write_ring(std::uint64_t num_rows, std::span<const std::span<const std::byte>> bytes);
  void flush();
  /// flush(), and the folder is as if it had been saved with these rows: no `%commit` (but a
  /// ring's), metadata vouched for again.
  void close();

 private:
  struct OpenLeaf {
    GrowingLeaf leaf;
    os::File file;
    std::unique_ptr<LeafSums> sums;  ///< null: no checksum vouches for it
    bool is_dirty = false;           ///< written since the last flush
  };

  void check_here() const;
  /// Throws Error(io) (ESTALE) unless the path still names the folder that was opened: metadata is
  /// replaced by path, and must not land in another one.
  void check_in_place() const;
  void require_free_space(std::span<const std::span<const std::byte>> bytes) const;
  void open_files();
  void give_back_uncommitted() noexcept;
  void reserve_durably(std::uint64_t num_rows);
  void write_slots(OpenLeaf& leaf, std::uint64_t first_row, std::uint64_t num_rows,
                   std::span<const std::byte> bytes);
  void begin_checksums();
  std::vector<std::string> metadata_names() const;
  void write_checksums(bool with_metadata);
  os::Directory open_folder(const std::string& folder) const;
  /// Those below the root that have tensors or nodes, each before the ones in it.
  std::vector<std::string> folders_below() const;
  void write_meta(const std::string& folder);
  void write_notes();
  std::string path_of(const GrowingLeaf& leaf) const;

  Path path_;
  os::Directory root_;
  CommitFile commit_;
  std::vector<OpenLeaf> leaves_;
  std::uint64_t process_;
  std::function<std::string(const std::string&)> edit_notes_;
  bool files_are_new_ = false;   ///< entries of folders wait for a sync
  bool is_dirty_ = false;        ///< rows were added since the last flush
  bool has_checksums_ = false;   ///< `%checksums` is there and whole
  bool metadata_waits_ = false;  ///< its lines were taken out and come back with close()
};

}  // namespace tenfold::detail::formats::folder

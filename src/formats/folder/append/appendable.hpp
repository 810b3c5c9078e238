#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/leaf.hpp>

#include "formats/folder/append/growing.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/lock.hpp"

namespace tenfold::detail::formats::folder {

// The interface of this format to folders to which rows are added: data sets, dictionaries and
// sparse matrices.

/// Returns the folder of a leaf of a saved folder in the file system. Returns null for leaves in
/// memory, in archives and in other formats.
std::shared_ptr<FolderHandle> folder_of(const Leaf& leaf);
/// Returns the name of the leaf's file in that folder, or, if there is no file, the name for it.
std::string file_of(const Leaf& leaf);

/// A data set, dictionary or sparse matrix at a path, opened for reading or appending. Rows can be
/// appended if the path is a folder of this format that was opened in mode write_through, after
/// lock() and start().
///
/// Thread safety: none; one thread at a time.
class AppendableFolder {
 public:
  /// `content` is what the path contains, for messages: "a data set". The string must outlive this
  /// object.
  AppendableFolder(const Path& path, Mode mode, std::string_view content);

  const Path& path() const noexcept { return path_; }  ///< absolute
  Mode mode() const noexcept { return mode_; }
  bool is_closed() const noexcept { return is_closed_; }
  /// True if the path is open for writing.
  bool is_writable() const noexcept { return mode_ == Mode::write_through && !is_closed_; }
  /// Locks the folder, which must be opened for writing, so that no save replaces it until close().
  void lock() { lock_ = lock_for_writing_through(path_); }
  /// The folder; invalid before lock() and after close().
  const os::Directory& directory() const noexcept { return lock_.folder; }

  /// Throws Error(unsupported) naming `call`, unless the path is open in mode write_through.
  void require_writable(const char* call) const;
  /// Throws Error(unsupported) if lock() was not called, because the path is of another format.
  void require_folder() const;

  /// Null before start() and after close().
  GrowingFolder* writer() const noexcept { return writer_.get(); }
  /// Takes the lock against other writers, calls `leaves` to get the tensors to append to, and
  /// creates the writer. `is_exact` is true if the folder had no `%commit`, as after a save or
  /// close(): then meta.json counts no elements after the last row.
  void start(const std::function<std::vector<GrowingLeaf>(bool is_exact)>& leaves);
  void flush();
  /// Closes the writer, which releases its lock against other writers. Calls `reopen`, which opens
  /// the rows for reading, and releases the lock of lock(), also if `reopen` throws: afterwards,
  /// saves may replace the folder. If the folder was moved or deleted, does all this, then throws
  /// Error(io) (ESTALE): the rows are committed, but the metadata may not have been written. If
  /// closing the writer fails with any other error, everything stays open. If the writer has then
  /// already released its lock, as GrowingFolder::close() describes, only close() may be called
  /// again.
  void close(const std::function<void()>& reopen);
  /// For a forked child, if a thread of the parent was using this object at the fork: drops the
  /// lock and the writer, without destroying them. A folder that was open for writing is closed.
  void abandon() noexcept;

 private:
  Path path_;
  Mode mode_;
  std::string_view content_;
  WriteThroughLock lock_;
  std::unique_ptr<GrowingFolder> writer_;
  bool is_closed_ = false;
};

}  // namespace tenfold::detail::formats::folder

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

/// Returns the folder that contains the file of a leaf. Returns null for a leaf that is not in a
/// folder of this format: in memory, in an archive or in another format.
std::shared_ptr<FolderHandle> folder_of(const Leaf& leaf);
/// Returns the name of the leaf's file in folder_of(leaf), which must not be null. If there is no
/// file, returns the name that it would have.
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
  /// Locks the folder, so that no save replaces it until close(). The mode must be write_through.
  /// Throws like lock_for_writing_through().
  void lock() { lock_ = lock_for_writing_through(path_); }
  /// The folder; invalid before lock() and after close().
  const os::Directory& directory() const noexcept { return lock_.folder; }

  /// Throws Error(unsupported) naming `call`, unless the path is open in mode write_through.
  void require_writable(const char* call) const;
  /// Throws Error(unsupported) if lock() was not called, because the path is of another format.
  void require_folder() const;

  /// The writer; null before start() and after close().
  GrowingFolder* writer() const noexcept { return writer_.get(); }
  /// Takes the lock against other writers, calls `leaves` to get the tensors to append to, and
  /// creates the writer. `is_exact` is true if the folder had no `%commit`, as after a save or
  /// close(): then the lengths in meta.json are exact, and no file has elements after the last row.
  /// Throws like require_folder(), the constructor of CommitFile, `leaves` and
  /// GrowingFolder::start().
  void start(const std::function<std::vector<GrowingLeaf>(bool is_exact)>& leaves);
  /// Calls GrowingFolder::flush() if there is a writer.
  void flush();
  /// Closes the writer, which releases its lock against other writers. Then calls `reopen`, which
  /// opens the rows for reading, and releases the lock of lock(), even if `reopen` throws: after
  /// that, saves may replace the folder. If the folder was moved or deleted, does all this, then
  /// throws Error(io) (ESTALE): the rows are committed, but the metadata may not have been written.
  /// If closing the writer fails with any other error, nothing else is closed, and close() may be
  /// called again (see GrowingFolder::close()).
  void close(const std::function<void()>& reopen);
  /// For a forked child, if a thread of the parent was using this object at the fork: forgets the
  /// lock and the writer without destroying them. Afterwards, a folder that was open for writing
  /// counts as closed.
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

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
#include "formats/folder/write_through_lock.hpp"

namespace tenfold::detail::formats::folder {

// Data sets, dictionaries and sparse matrices use these functions to add rows to folders of this
// format.

/// Returns the folder that contains the file of a leaf. Returns null for a leaf in memory, in an
/// archive or in a file of another format.
std::shared_ptr<FolderHandle> folder_of(const Leaf& leaf);
/// Returns the name of the leaf's file in folder_of(leaf), which must not be null. A leaf of 0
/// bytes has no file: returns the name that its file would have.
std::string file_of(const Leaf& leaf);

/// A data set, dictionary or sparse matrix at a path, opened for reading or appending. To append,
/// open a folder of this format in mode write_through, and call lock() and start(). Not
/// thread-safe.
class AppendableFolder {
 public:
  /// `content` is what the path contains, for messages: "a data set". The string must outlive this
  /// object.
  AppendableFolder(const Path& path, Mode mode, std::string_view content);

  const Path& path() const noexcept { return path_; }  ///< absolute
  Mode mode() const noexcept { return mode_; }
  bool is_closed() const noexcept { return is_closed_; }
  bool is_writable() const noexcept { return mode_ == Mode::write_through && !is_closed_; }
  /// Locks the folder, so that no save replaces it until close(). The mode must be write_through.
  /// Throws like lock_for_writing_through().
  void lock() { lock_ = lock_for_writing_through(path_); }
  /// The folder; invalid before lock() and after close().
  const os::Directory& directory() const noexcept { return lock_.folder; }

  /// Throws Error(unsupported) naming `call`, unless the path is open in mode write_through.
  void require_writable(const char* call) const;
  /// Throws Error(unsupported) unless lock() was called. Callers call lock() only for folders of
  /// this format.
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
  /// Closes the writer, calls `reopen` to open the rows for reading, and releases the lock of
  /// lock(), even if `reopen` throws. If the folder was moved or deleted, throws Error(io) (ESTALE)
  /// at the end: the rows are committed, but their metadata may not have been written. If the
  /// writer cannot be closed for another reason, throws before calling `reopen`, and close() may be
  /// called again (see GrowingFolder::close()).
  void close(const std::function<void()>& reopen);
  /// Forgets the lock and the writer without destroying them. Afterwards, is_closed() is true in
  /// mode write_through. Call this in a forked child if a thread of the parent process was using
  /// this object at the fork.
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

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/io.hpp>

#include "formats/folder/append/commit_page.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats::folder {

/// The commit page of a folder to which this process adds rows. Locked against other writers from
/// the constructor to release() or the destructor. Each record is changed by a single write of 64
/// bytes.
class CommitFile {
 public:
  /// Locks the file; creates it atomically and durably if it is missing. Recovers what a crashed
  /// writer committed if the boot ID is the same. After a reboot, commits may have been lost: the
  /// number of rows is then that of meta.json, or that of the durable record of a circular buffer.
  /// Throws Error(io) (EBUSY) if another writer, in this process or another, holds the lock,
  /// Error(corrupt) for an invalid page, and Error(invalid_argument) if meta.json has no number of
  /// rows (rows_counted()).
  CommitFile(const Path& path, const os::Directory& root);

  const CommitState& state() const noexcept { return page_.live; }
  /// Circular buffers only: the state that is valid after a power failure.
  const CommitState& durable() const noexcept { return *page_.durable; }
  std::uint64_t capacity() const noexcept { return page_.capacity; }

  /// False after release(), or if another process took over the lock. A lock can be taken over only
  /// on file systems without flock, where it is a lease.
  bool is_locked() const { return lock_ && lock_->is_held(); }
  /// Publishes `next` to all readers, with the next sequence number and the current boot ID. Throws
  /// Error(io).
  void publish(CommitState next);
  /// If a write to a circular buffer was not finished, marks it as failed, by making the sequence
  /// number even.
  void rest();
  /// Circular buffers only: makes `next` the state that is valid after a power failure. Syncs the
  /// file.
  void publish_durable(CommitState next);
  /// True if a process has called announce_writes_in_place() since the page was created.
  bool was_written_in_place() const;
  /// Releases the lock. The object cannot be used afterwards.
  void release() noexcept {
    lock_.reset();
    file_.close();
  }

 private:
  void take_over(std::uint64_t num_rows);

  os::File file_;
  std::optional<os::WriterLock> lock_;
  CommitPage page_;
};

/// Creates the commit page of an empty circular buffer, in a folder that is not published yet.
void create_ring_page(os::Directory& folder, std::uint64_t capacity);

/// Call this before overwriting rows in place. Sets a flag in the commit page, so that the process
/// that adds rows removes the checksums of the tensors when it next writes `%checksums`. Returns
/// false if the folder has no commit page.
bool announce_writes_in_place(const os::Directory& folder);

/// True while a CommitFile of this process or another has locked the folder's commit page.
bool has_writer(const os::Directory& folder);

/// Throws Error(unsupported) if the folder has a `%commit`. Functions that change or copy metadata
/// call this, because they would ignore the rows that only `%commit` counts. Throws Error(corrupt)
/// if `%commit` is damaged.
void refuse_growing(const os::Directory& folder);

}  // namespace tenfold::detail::formats::folder

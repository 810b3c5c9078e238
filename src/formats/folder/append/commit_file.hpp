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

/// The `%commit` of a data set whose rows this process adds to: locked against other writers until
/// this object goes, and changed by one write of 64 bytes at a time.
class CommitFile {
 public:
  /// Locks the file; makes it (durably, whole at once) if there is none. What a killed writer of
  /// this boot committed is taken over; what one of another boot did is not, as it may have been
  /// lost: the rows are those of meta.json. Throws Error(io) (EBUSY) naming the process that holds
  /// the lock.
  CommitFile(const Path& path, const os::Directory& root);

  const CommitState& state() const noexcept { return page_.live; }
  /// Of a ring: what is found after a power loss now.
  const CommitState& durable() const noexcept { return *page_.durable; }
  std::uint64_t capacity() const noexcept { return page_.capacity; }
  const std::string& display() const noexcept { return file_.display(); }

  /// From now on `next` holds for every reader; its sequence and boot are set here.
  void publish(CommitState next);
  /// Of a ring: nothing is being written, whatever was begun; makes the sequence even.
  void rest();
  /// Of a ring: from now on `next` is what is found after a power loss.
  void publish_durable(CommitState next);
  /// True once somebody has written into rows in place.
  bool was_written_in_place() const;
  /// Releases the lock. The end.
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

/// A ring's page in a folder that nobody knows yet: no rows.
void create_ring_page(os::Directory& folder, std::uint64_t capacity);

/// Tells whoever adds rows and checksums to this folder, if there is such a one, that rows are
/// about to be written in place.
void announce_writes_in_place(const os::Directory& folder);

/// True while the lock of a CommitFile is held, here or elsewhere.
bool has_writer(const os::Directory& folder);

/// Throws Error(unsupported) for a folder that has a `%commit`: whoever changes its metadata must
/// know of the rows behind it.
void refuse_growing(const os::Directory& folder);

}  // namespace tenfold::detail::formats::folder

#include "formats/folder/write_through_lock.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/keys.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Maximum number of attempts while the folder is replaced concurrently.
constexpr int kMaxLockAttempts = 100;

/// The parent folder, if it is a node of a tree and can be opened.
std::optional<os::Directory> node_above(const os::Directory& folder) {
  try {
    os::Directory parent = folder.open_parent();
    if (parent.info().same_file(folder.info())) return std::nullopt;  // the root of the file system
    const auto meta = parent.entry_info(std::string(kMetaName));
    if (meta && meta->is_regular) return parent;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io && error.code() != ErrorCode::file_not_found) throw;
  }
  return std::nullopt;
}

}  // namespace

void WriteThroughLock::release() noexcept {
  if (process.is_here()) {
    if (folder.valid()) folder.unlock();
    for (os::Directory& node : above) node.unlock();
  }
  folder = {};
  above.clear();
}

WriteThroughLock lock_for_writing_through(const Path& path) {
  for (int attempt = 0; attempt < kMaxLockAttempts; ++attempt) {
    WriteThroughLock lock{os::Directory::open(path), {}, {}};
    // If the file system has no locks, a concurrent replacement is not detected.
    bool locked = lock.folder.try_lock_shared() != os::LockResult::held;
    for (auto node = node_above(lock.folder); locked && node; node = node_above(*node)) {
      locked = node->try_lock_shared() != os::LockResult::held;
      lock.above.push_back(node->duplicate());
    }
    if (!locked) break;
    // If the folder or a parent was replaced between open and lock, the lock is on the old folder:
    // try again.
    if (os::exists(path) && os::file_info(path).same_file(lock.folder.info())) return lock;
  }
  throw Error::io(EBUSY, path.string())
      .problem("the folder is being replaced")
      .expected("no save under way")
      .remedy("open it again");
}

}  // namespace tenfold::detail::formats::folder

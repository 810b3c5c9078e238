#include "formats/folder/checksums.hpp"

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr int kMaxEditAttempts = 10'000;
constexpr std::chrono::milliseconds kPause{1};

/// Throws unless the path still names the folder: files of another one must not be replaced.
void require_at(const os::Directory& folder, const os::Path& path) {
  if (folder.is_at(path)) return;
  throw Error::io(ESTALE, path.string())
      .expected("the folder that was opened")
      .found("none or another one")
      .remedy("open it where it is now");
}

/// Removes the lines of tensors whose path starts with `prefix` from the folder's `%checksums`.
void drop_lines(const os::Directory& folder, const os::Path& path, const std::string& prefix) {
  ChecksumsEdit edit(folder, path);
  if (!edit.is_whole()) return;
  std::vector<ChecksumLine> lines = edit.lines();
  const auto is_concerned = [&](const ChecksumLine& line) {
    return line.path.starts_with(prefix) && !is_metadata(line.path);
  };
  if (std::erase_if(lines, is_concerned) == 0) return;
  edit.publish(lines);
}

}  // namespace

ChecksumsEdit::ChecksumsEdit(const os::Directory& folder, const os::Path& path)
    : folder_(folder.duplicate()), path_(path) {
  const std::string name(kChecksumsName);
  for (int attempt = 0; attempt < kMaxEditAttempts; ++attempt) {
    os::File file = os::File::try_open_read_at(folder, name);
    if (!file.valid()) return;
    auto lock = os::WriterLock::try_acquire_current(folder, name, file);
    if (!lock) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    try {
      lines_ = parse_checksums(file.read_all(kMaxChecksumsBytes), file.display());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      return;
    }
    file_ = std::move(file);
    lock_ = std::move(lock);
    return;
  }
  throw Error::io(EBUSY, (path_ / kChecksumsName).string())
      .problem("another process holds its lock")
      .expected("at most 10 seconds")
      .found("longer");
}

void ChecksumsEdit::publish(const std::vector<ChecksumLine>& lines) {
  require_at(folder_, path_);
  replace_file(path_ / kChecksumsName, checksums_text(lines), true);
  close();
}

void drop_leaf_checksums(const os::Directory& folder, const os::Path& path) {
  require_at(folder, path);
  refuse_shared_files(folder);
  announce_writes_in_place(folder);
  drop_lines(folder, path, "");
  // If the folder is a node below the root of a saved tree, the root's `%checksums` has its lines.
  os::Path node = os::canonical(path);
  std::string prefix;
  while (node.has_relative_path()) {
    prefix = node.filename().string() + "/" + prefix;
    node = node.parent_path();
    if (!os::exists(node / kMetaName)) return;
    drop_lines(os::Directory::open(node), node, prefix);
  }
}

}  // namespace tenfold::detail::formats::folder

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

/// Throws unless the path still names the folder, so that no file of another folder is replaced.
void require_at(const os::Directory& folder, const os::Path& path) {
  if (folder.is_at(path)) return;
  throw Error::io(ESTALE, path.string())
      .expected("the folder that was opened")
      .found("none or another one")
      .remedy("if the folder was moved, open it at its new path");
}

/// Removes lines from the folder's `%checksums`: those of files whose path begins with `prefix`, if
/// `concerns` returns true for the rest of the path.
void drop_lines(const os::Directory& folder, const os::Path& path, std::string_view prefix,
                const ConcernsFile& concerns) {
  ChecksumsEdit edit(folder, path);
  if (!edit.is_whole()) return;
  std::vector<ChecksumLine> lines = edit.lines();
  const auto is_concerned = [&](const ChecksumLine& line) {
    const std::string_view file = line.path;
    return file.starts_with(prefix) && concerns(file.substr(prefix.size()));
  };
  if (std::erase_if(lines, is_concerned) == 0) return;
  edit.publish(lines);
}

/// Removes lines from the `%checksums` of the saved trees that contain the folder as a node: those
/// of the folder's files for which `concerns` returns true.
void drop_lines_above(const os::Path& path, const ConcernsFile& concerns) {
  os::Path node = os::canonical(path);
  std::string prefix;
  while (node.has_relative_path()) {
    prefix = node.filename().string() + "/" + prefix;
    node = node.parent_path();
    if (!os::exists(node / kMetaName)) return;
    drop_lines(os::Directory::open(node), node, prefix, concerns);
  }
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
      .problem("another writer has locked it for 10 seconds")
      .expected("one writer at a time")
      .remedy("try again");
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
  const auto is_tensor = [](std::string_view file) { return !is_metadata(file); };
  drop_checksums(folder, path, is_tensor);
  // A process that began to add rows after the first announcement may have written the lines again.
  if (announce_writes_in_place(folder)) drop_lines(folder, path, "", is_tensor);
}

void drop_checksums(const os::Directory& folder, const os::Path& path,
                    const ConcernsFile& concerns) {
  drop_lines(folder, path, "", concerns);
  drop_lines_above(path, concerns);
}

void drop_checksums_above(const os::Path& path) {
  drop_lines_above(path, [](std::string_view) { return true; });
}

void publish_folder(FolderReplacement& replacement, bool durable) {
  const bool may_be_node = replacement.parent().entry_info(std::string(kMetaName)).has_value();
  if (may_be_node) drop_checksums_above(replacement.path());
  replacement.publish(durable);
}

}  // namespace tenfold::detail::formats::folder

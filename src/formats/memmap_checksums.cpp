#include "formats/memmap_checksums.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/commit.hpp"
#include "formats/folder_checksums.hpp"
#include "formats/memmap_keys.hpp"
#include "os/file.hpp"

namespace tenfold::memmap_folder {
namespace {

/// Removes the lines of the tensors whose path begins with `prefix` from the folder's file.
void drop_lines(const os::Directory& folder, const os::Path& path, const std::string& prefix) {
  const std::string name(kChecksumsName);
  const os::File file = os::File::try_open_read_at(folder, name);
  if (!file.valid()) return;
  std::vector<ChecksumLine> lines;
  try {
    lines = parse_checksums(file.read_all(kMaxChecksumsBytes), file.display());
  } catch (const Error& error) {
    // Left for verify to report: nothing in it vouches for anything.
    if (error.code() != ErrorCode::corrupt) throw;
    return;
  }
  const auto is_concerned = [&](const ChecksumLine& line) {
    return line.path.starts_with(prefix) && !is_metadata(line.path);
  };
  if (std::erase_if(lines, is_concerned) == 0) return;
  const std::string text = checksums_text(lines);
  FileReplacement replacement(path / name);
  replacement.file().write_at(0, std::as_bytes(std::span(text)));
  replacement.publish(true);
}

}  // namespace

void drop_leaf_checksums(const os::Directory& folder, const os::Path& path) {
  drop_lines(folder, path, "");
  // A node below the root of what was saved: the root's file vouches for it, too.
  os::Path node = std::filesystem::canonical(path);
  std::string prefix;
  while (node.has_relative_path()) {
    prefix = node.filename().string() + "/" + prefix;
    node = node.parent_path();
    if (!os::exists(node / kMetaName)) return;
    drop_lines(os::Directory::open(node), node, prefix);
  }
}

}  // namespace tenfold::memmap_folder

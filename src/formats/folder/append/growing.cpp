#include "formats/folder/append/growing.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "formats/folder/append/growing_sums.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/folder/meta/lengths.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "os/fs/free_space.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Before durable rows of a circular buffer are overwritten, their slots are marked as busy in the
/// durable record. Each mark costs a sync, so a mark includes 1/16 of all slots in addition to the
/// slots of the current write.
constexpr std::uint64_t kReservedParts = 16;

const std::string kMetaFile(kMetaName);

std::string path_in(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

/// Returns the sizes in bytes of the tensors according to meta.json, by key.
std::unordered_map<std::string, std::uint64_t> counted_bytes(const os::Directory& folder) {
  std::unordered_map<std::string, std::uint64_t> sizes;
  const os::File file = os::File::try_open_read_at(folder, kMetaFile);
  if (!file.valid()) return sizes;
  for (const MetaEntry& entry : parse_meta(file.read_all(kMaxMetaBytes), file.display()).entries) {
    sizes.emplace(entry.key, entry.size_bytes);
  }
  return sizes;
}

}  // namespace

GrowingFolder::GrowingFolder(const Path& path, os::Directory root, CommitFile commit,
                             std::vector<GrowingLeaf> leaves)
    : path_(path), root_(std::move(root)), commit_(std::move(commit)) {
  for (GrowingLeaf& leaf : leaves) leaves_.push_back({std::move(leaf), {}, nullptr, false});
}

GrowingFolder::~GrowingFolder() = default;

void GrowingFolder::start() {
  open_files();
  begin_checksums();
  // A writer that crashed may have left committed rows that are not durable and that meta.json does
  // not count. Before close() removes the commit page, flush() must write their number to
  // meta.json. A circular buffer keeps its page.
  if (capacity() > 0) return;
  is_dirty_ = true;
  for (OpenLeaf& open : leaves_) open.is_dirty = open.file.valid();
}

void GrowingFolder::check_here() const {
  process_.require_here(path_.string());
  if (is_closed_) {
    throw base::unsupported(path_.string())
        .problem("it was closed, but the close may not be durable yet")
        .remedy("close it again");
  }
  if (commit_.is_locked()) return;
  check_in_place();  // the lock is also lost if the folder was removed
  throw Error::io(EBUSY, path_.string())
      .expected("this process to be the writer")
      .found("another process, which took over while this one was stopped for too long")
      .remedy("open it again");
}

void GrowingFolder::check_in_place() const {
  if (root_.is_at(path_)) return;
  throw Error::io(ESTALE, path_.string())
      .expected("the folder that was opened")
      .found("none or another one")
      .remedy("if the folder was moved, open it at its new path: its rows are committed");
}

void GrowingFolder::require_countable(std::uint64_t num_rows) const {
  const std::uint64_t before = capacity() > 0 ? state().written : state().num_rows;
  if (num_rows <= kMaxRows - before) return;
  throw base::invalid_argument(path_.string())
      .part("rows in all")
      .expected("fewer than 2^63")
      .found(before, " and ", num_rows, " more");
}

std::string GrowingFolder::path_of(const GrowingLeaf& leaf) const {
  return path_in(leaf.folder, leaf.file);
}

os::Directory GrowingFolder::open_folder(const std::string& folder) const {
  os::Directory opened = root_.duplicate();
  for (std::size_t begin = 0; begin < folder.size();) {
    const std::size_t end = std::min(folder.find('/', begin), folder.size());
    opened = os::Directory::open_at(opened, folder.substr(begin, end - begin));
    begin = end + 1;
  }
  return opened;
}

std::vector<std::string> GrowingFolder::folders_below() const {
  std::set<std::string> folders;
  for (const OpenLeaf& open : leaves_) {
    const std::string& folder = open.leaf.folder;
    for (std::size_t end = 0; end < folder.size();) {
      end = std::min(folder.find('/', end + 1), folder.size());
      folders.insert(folder.substr(0, end));
    }
  }
  return {folders.begin(), folders.end()};
}

void GrowingFolder::open_files() {
  refuse_shared_files(root_);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> opened;  // by device and inode
  for (OpenLeaf& open : leaves_) {
    if (open.leaf.row_bytes == 0) continue;
    const os::Directory folder = open_folder(open.leaf.folder);
    if (folder.entry_info(open.leaf.file)) {
      open.file = os::File::open_read_write_at(folder, open.leaf.file);
    } else {
      // A tensor without elements has no file.
      open.file = os::File::create_at(folder, open.leaf.file);
      files_are_new_ = true;
    }
    const os::FileInfo info = open.file.info();
    const auto [other, is_new] = opened.try_emplace({info.device, info.inode}, path_of(open.leaf));
    if (!is_new) {
      throw base::unsupported(open.file.display())
          .problem("rows cannot be added to tensors that share storage")
          .expected("a file of its own")
          .found("that of ", base::quote(other->second))
          .remedy("save a copy of the data set without shared storage");
    }
    const std::uint64_t found = info.size_bytes;
    if (found >= open.leaf.size_bytes) continue;
    throw base::corrupt(open.file.display())
        .problem("the file is too short")
        .expected(open.leaf.size_bytes, " bytes")
        .found(found)
        .remedy("it may be truncated");
  }
}

void GrowingFolder::require_free_space(std::span<const std::span<const std::byte>> bytes) const {
  std::uint64_t new_bytes = 0;
  for (const auto& run : bytes) new_bytes += run.size();
  if (new_bytes <= os::kUncheckedBytes) return;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].file.valid()) continue;
    // The new rows overwrite the bytes that a crashed append left after the committed end.
    new_bytes -= std::min<std::uint64_t>(bytes[i].size(),
                                         leaves_[i].file.size_bytes() - leaves_[i].leaf.size_bytes);
  }
  os::require_free_space(root_.fd(), path_.string(), new_bytes);
}

void GrowingFolder::append(std::uint64_t num_rows,
                           std::span<const std::span<const std::byte>> bytes) {
  check_here();
  require_countable(num_rows);
  require_free_space(bytes);
  try {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (bytes[i].empty()) continue;
      leaves_[i].is_dirty = true;
      leaves_[i].file.write_at(leaves_[i].leaf.size_bytes, bytes[i]);
    }
    CommitState next = state();
    next.num_rows += num_rows;
    next.written = next.num_rows;
    is_dirty_ = true;
    commit_.publish(next);
  } catch (const Error&) {
    truncate_uncommitted();
    throw;
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i].leaf.size_bytes += bytes[i].size();
    if (leaves_[i].sums) leaves_[i].sums->add(bytes[i]);
  }
}

/// Truncates the files to the committed size, to free the space of the failed append.
void GrowingFolder::truncate_uncommitted() noexcept {
  for (OpenLeaf& open : leaves_) {
    try {
      if (open.file.valid() && open.file.size_bytes() > open.leaf.size_bytes) {
        open.file.truncate(open.leaf.size_bytes);
      }
    } catch (const Error&) {
      continue;  // close() tries again
    }
  }
}

void GrowingFolder::reserve_durably(std::uint64_t num_rows) {
  const CommitState& durable = commit_.durable();
  const std::uint64_t end = state().written + num_rows;
  // Slots that never had a row need not be marked as busy in the durable record, nor do slots that
  // it marks already.
  if (end <= capacity() || end <= durable.written + durable.busy_rows) return;
  CommitState next = durable;
  next.busy_begin = durable.written % capacity();
  const std::uint64_t wanted = end - durable.written + capacity() / kReservedParts;
  next.busy_rows = std::min(capacity(), wanted);
  if (next.busy_rows == durable.busy_rows) return;
  commit_.publish_durable(next);
}

void GrowingFolder::write_slots(OpenLeaf& open, std::uint64_t first_row, std::uint64_t num_rows,
                                std::span<const std::byte> bytes) {
  const std::uint64_t row_bytes = open.leaf.row_bytes;
  if (row_bytes == 0) return;
  open.is_dirty = true;
  const std::uint64_t slot = first_row % capacity();
  const std::uint64_t until_end = std::min(num_rows, capacity() - slot);
  const auto first_part = static_cast<std::size_t>(until_end * row_bytes);
  open.file.write_at(slot * row_bytes, bytes.first(first_part));
  open.file.write_at(0, bytes.subspan(first_part));
}

void GrowingFolder::write_ring(std::uint64_t num_rows,
                               std::span<const std::span<const std::byte>> bytes) {
  check_here();
  if (num_rows == 0) return;
  require_countable(num_rows);
  // Rows that later rows of this call overwrite are counted but not written.
  const std::uint64_t kept = std::min(num_rows, capacity());
  const std::uint64_t num_ignored = num_rows - kept;
  const std::uint64_t first = state().written + num_ignored;
  commit_.rest();
  reserve_durably(num_rows);
  CommitState next = state();
  // Rows that a crash or a failed write left incomplete start at the slot `written`, where this
  // call writes unless it ignores rows.
  const std::uint64_t torn = next.busy_rows;
  if (num_ignored > 0) {
    next.busy_begin = 0;
    next.busy_rows = capacity();
  } else {
    next.busy_begin = first % capacity();
    next.busy_rows = std::max(torn, kept);
  }
  is_dirty_ = true;
  commit_.publish(next);
  try {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const std::uint64_t skipped = num_ignored * leaves_[i].leaf.row_bytes;
      write_slots(leaves_[i], first, kept, bytes[i].subspan(static_cast<std::size_t>(skipped)));
    }
  } catch (const Error&) {
    commit_.rest();
    throw;
  }
  next.written += num_rows;
  next.num_rows = std::min(next.written, capacity());
  next.busy_rows = torn > num_rows ? torn - num_rows : 0;
  next.busy_begin = next.written % capacity();
  commit_.publish(next);
}

void GrowingFolder::begin_checksums() {
  // In saved trees that contain this folder as a node, the checksums of its leaves and metadata
  // become stale.
  drop_checksums_above(path_);
  if (capacity() > 0) return;
  ChecksumsEdit edit(root_, path_);
  if (!edit.is_whole()) return;
  has_checksums_ = true;
  // If rows may have been written in place, only the checksums of metadata are maintained.
  if (commit_.was_written_in_place()) return;
  std::unordered_map<std::string, std::unordered_map<std::string, std::uint64_t>> counted;
  for (const OpenLeaf& open : leaves_) {
    const auto [found, is_new] = counted.try_emplace(open.leaf.folder);
    if (is_new) found->second = counted_bytes(open_folder(open.leaf.folder));
  }
  std::unordered_map<std::string, std::vector<ChecksumLine>> lines;
  for (const ChecksumLine& line : edit.lines()) lines[line.path].push_back(line);
  bool exceeds_file = false;
  for (OpenLeaf& open : leaves_) {
    const GrowingLeaf& leaf = open.leaf;
    if (leaf.row_bytes == 0) continue;
    const auto& sizes = counted[leaf.folder];
    const auto size = sizes.find(leaf.key);
    const auto covered = covered_bytes(lines[path_of(leaf)]);
    if (size == sizes.end() || !covered || *covered < size->second) continue;
    open.sums = std::make_unique<LeafSums>(*covered, leaf.size_bytes, open.file);
    // Checksums beyond the committed size are those of lost rows: their flush wrote the checksums,
    // but not meta.json. They are removed below, before the bytes are overwritten.
    exceeds_file |= *covered > leaf.size_bytes;
  }
  edit.close();
  if (exceeds_file) write_checksums(false);
}

/// The paths, relative to the root, of the metadata files that flush() and close() replace.
std::vector<std::string> GrowingFolder::metadata_names() const {
  std::vector<std::string> names = {kMetaFile};
  for (const std::string& folder : folders_below()) names.push_back(path_in(folder, kMetaFile));
  if (edit_notes_) names.emplace_back(kNotesName);
  return names;
}

void GrowingFolder::write_checksums(bool with_metadata) {
  ChecksumsEdit edit(root_, path_);
  if (!edit.is_whole()) {
    has_checksums_ = false;
    return;
  }
  if (commit_.was_written_in_place()) {
    for (OpenLeaf& open : leaves_) open.sums.reset();
  }
  std::unordered_map<std::string, std::vector<ChecksumLine>> of_leaves;
  for (const OpenLeaf& open : leaves_) of_leaves[path_of(open.leaf)];
  const std::vector<std::string> metas = metadata_names();
  const auto is_meta = [&](const std::string& name) {
    return std::find(metas.begin(), metas.end(), name) != metas.end();
  };
  std::vector<ChecksumLine> kept;
  for (const ChecksumLine& line : edit.lines()) {
    const auto leaf = of_leaves.find(line.path);
    if (leaf != of_leaves.end()) {
      leaf->second.push_back(line);
    } else if (!is_meta(line.path)) {
      kept.push_back(line);
    }
  }
  for (OpenLeaf& open : leaves_) {
    if (!open.sums) continue;
    const std::string path = path_of(open.leaf);
    // Checksums that another process has removed must stay removed.
    if (!open.sums->add_lines(path, of_leaves[path], kept)) open.sums.reset();
  }
  if (with_metadata) {
    for (const std::string& name : metas) {
      const auto slash = name.rfind('/');
      const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash);
      const os::File file = os::File::open_read_at(open_folder(folder),
                                                   folder.empty() ? name : name.substr(slash + 1));
      add_lines_of(file, name, kept);
    }
  }
  edit.publish(kept);
  for (OpenLeaf& open : leaves_) {
    if (open.sums) open.sums->published();
  }
}

void GrowingFolder::write_meta(const std::string& folder) {
  std::vector<LeafLength> lengths;
  for (const OpenLeaf& open : leaves_) {
    const GrowingLeaf& leaf = open.leaf;
    if (leaf.folder != folder) continue;
    const bool counts_rows = !leaf.is_unbatched && !leaf.counts_itself;
    lengths.push_back(
        {leaf.key, counts_rows ? state().num_rows : leaf.size_bytes / leaf.row_bytes});
  }
  // A sparse matrix has no batch size.
  const bool has_batch =
      std::ranges::none_of(leaves_, [](const OpenLeaf& open) { return open.leaf.counts_itself; });
  std::optional<std::uint64_t> batch;
  if (folder != kValuesName && has_batch) batch = state().num_rows;
  set_meta_lengths(path_ / folder, lengths, batch);
}

void GrowingFolder::flush() {
  check_here();
  if (!is_dirty_) return;
  for (OpenLeaf& open : leaves_) {
    if (!open.is_dirty) continue;
    open.file.sync();
    open.is_dirty = false;
  }
  check_in_place();
  const std::vector<std::string> folders = folders_below();
  if (files_are_new_) {
    for (const std::string& folder : folders) open_folder(folder).sync();
    root_.sync();
    files_are_new_ = false;
  }
  if (capacity() > 0) commit_.publish_durable(state());
  if (has_checksums_) {
    write_checksums(false);
    metadata_waits_ = true;
  }
  // After a crash between these writes, nodes may count more rows than the root. Readers accept
  // this because of `%commit`, which is durable from the start.
  for (const std::string& folder : folders) write_meta(folder);
  write_meta("");
  is_dirty_ = false;
}

void GrowingFolder::write_notes() {
  if (!edit_notes_) return;
  const os::File file = os::File::open_read_at(root_, std::string(kNotesName));
  const std::string before = file.read_all(kMaxMetaBytes);
  const std::string text = edit_notes_(before);
  if (text == before) return;
  if (has_checksums_ && !metadata_waits_) {
    write_checksums(false);
    metadata_waits_ = true;
  }
  replace_file(path_ / std::string(kNotesName), text, true);
}

void GrowingFolder::close() {
  if (!is_closed_) finish();
  if (capacity() == 0) root_.sync();
}

/// Does everything that close() does, except for making the removal of `%commit` durable.
void GrowingFolder::finish() {
  flush();
  check_here();  // during flush(), the process may have been stopped until its lease expired
  check_in_place();
  write_notes();
  if (capacity() == 0) {
    for (OpenLeaf& open : leaves_) {
      // Remove the leftovers of an append that failed or crashed.
      if (open.file.valid() && open.file.size_bytes() > open.leaf.size_bytes) {
        open.file.truncate(open.leaf.size_bytes);
        open.file.sync();
      }
    }
    if (metadata_waits_) write_checksums(true);
    root_.remove_file(std::string(kCommitName));
  }
  is_closed_ = true;
  commit_.release();
}

}  // namespace tenfold::detail::formats::folder

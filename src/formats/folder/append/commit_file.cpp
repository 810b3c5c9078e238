#include "formats/folder/append/commit_file.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/row_count.hpp"
#include "formats/shared/commit.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr int kMaxRenameAttempts = 1000;
constexpr int kBusyAttempts = 20;
constexpr std::chrono::milliseconds kRetryPause{1};

const std::string kCommitFile(kCommitName);

CommitPage read_page(const os::File& file) {
  check_commit_size(file.size_bytes(), file.display());
  CommitBytes bytes{};
  const std::size_t size = file.read_some_at(0, bytes);
  return parse_commit_page(std::span(bytes).first(size), file.display());
}

[[noreturn]] void throw_busy(const os::File& file, const Path& path) {
  std::array<std::byte, 8> bytes{};
  static_cast<void>(file.read_some_at(kProcessOffset, bytes));
  std::uint64_t process = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    process = process << 8U | std::to_integer<std::uint64_t>(bytes[i - 1]);
  }
  throw Error::io(EBUSY, path.string())
      .problem("rows are being added by process ", process)
      .expected("one writer at a time")
      .remedy("close it in that process first");
}

std::uint64_t rows_in_meta(const os::File& meta) {
  const NodeMeta node = parse_meta(meta.read_all(kMaxMetaBytes), meta.display());
  if (const auto rows = rows_counted(node)) return static_cast<std::uint64_t>(*rows);
  throw base::invalid_argument(meta.display())
      .part("batch_size")
      .expected("[N], where N is the number of rows")
      .found("[]");
}

/// Creates the commit page, if it is missing, under the lock of meta.json. If another process holds
/// that lock, waits for kRetryPause and returns; the caller then tries again.
void create_page(const Path& path, const os::Directory& root) {
  os::File meta = os::File::open_read_at(root, std::string(kMetaName));
  const auto lock = os::WriterLock::try_acquire_current(root, std::string(kMetaName), meta);
  if (!lock) {
    std::this_thread::sleep_for(kRetryPause);
    return;
  }
  if (root.entry_info(kCommitFile)) return;
  const std::uint64_t num_rows = rows_in_meta(meta);
  CommitPage page;
  page.process = os::process_id();
  page.live = {.sequence = 1, .boot = os::boot_id(), .num_rows = num_rows, .written = num_rows};
  // Make the page durable from the start, so that a power failure cannot leave half a page.
  FileReplacement replacement(path / kCommitFile, kCommitPageBytes);
  replacement.file().write_at(0, encode_page(page));
  replacement.publish(true);
}

}  // namespace

CommitFile::CommitFile(const Path& path, const os::Directory& root) {
  for (int attempt = 0; attempt < kMaxRenameAttempts; ++attempt) {
    os::File file = os::File::try_open_read_write_at(root, kCommitFile);
    if (!file.valid()) {
      create_page(path, root);
      continue;
    }
    auto lock = os::WriterLock::try_acquire(root, kCommitFile, file);
    if (!lock) {
      // The holder may be a reader that checks for a writer: it holds the lock only for a moment.
      if (attempt >= kBusyAttempts) throw_busy(file, path);
      std::this_thread::sleep_for(kRetryPause);
      continue;
    }
    // Between open and lock, the previous writer may have closed the folder and so removed this
    // file.
    const auto now = root.entry_info(kCommitFile);
    if (!now || !now->same_file(file.info())) continue;
    file_ = std::move(file);
    lock_ = std::move(lock);
    page_ = read_page(file_);
    take_over(rows_in_meta(os::File::open_read_at(root, std::string(kMetaName))));
    return;
  }
  throw Error::io(EBUSY, path.string())
      .problem("other writers keep opening the folder")
      .expected("one writer at a time");
}

void CommitFile::take_over(std::uint64_t num_rows) {
  CommitState state = page_.live;
  if (const CommitState* now = state_now(page_)) {
    state = *now;
  } else {
    state.num_rows = state.written = num_rows;
  }
  // If meta.json counts more rows than the last commit, another tool has replaced meta.json: use
  // its number.
  if (page_.capacity == 0 && state.num_rows < num_rows) state.num_rows = state.written = num_rows;
  const std::array<std::uint64_t, 1> process = {os::process_id()};
  file_.write_at(kProcessOffset, std::as_bytes(std::span(process)));
  if (page_.capacity == 0 || page_.live.boot != os::boot_id()) publish(state);
  rest();
}

void CommitFile::rest() {
  if (page_.capacity > 0 && page_.live.sequence % 2 == 1) publish(page_.live);
}

void CommitFile::publish(CommitState next) {
  next.sequence = page_.live.sequence + 1;
  next.boot = os::boot_id();
  file_.write_at(next.sequence % 2 * kSlotBytes, encode_slot(next));
  page_.live = next;
}

void CommitFile::publish_durable(CommitState next) {
  next.sequence = page_.durable->sequence + 1;
  next.boot = os::boot_id();
  file_.write_at(kDurableOffset + next.sequence % 2 * kSlotBytes, encode_slot(next));
  file_.sync();
  page_.durable = next;
}

bool CommitFile::was_written_in_place() const {
  std::byte flag{};
  return file_.read_some_at(kInPlaceOffset, {&flag, 1}) == 1 && flag != std::byte{0};
}

void create_ring_page(os::Directory& folder, std::uint64_t capacity) {
  CommitPage page;
  page.capacity = capacity;
  page.live = {.sequence = 2, .boot = os::boot_id()};
  page.durable = page.live;
  os::File file = os::File::create_at(folder, kCommitFile);
  file.write_at(0, encode_page(page));
  file.sync();
}

bool announce_writes_in_place(const os::Directory& folder) {
  os::File file = os::File::try_open_read_write_at(folder, kCommitFile);
  if (!file.valid()) return false;
  const std::array<std::uint64_t, 1> flag = {1};
  file.write_at(kInPlaceOffset, std::as_bytes(std::span(flag)));
  return true;
}

bool has_writer(const os::Directory& folder) {
  os::File file = os::File::try_open_read_at(folder, kCommitFile);
  return file.valid() && os::WriterLock::is_locked(folder, kCommitFile, file);
}

void refuse_growing(const os::Directory& folder) {
  const os::File file = os::File::try_open_read_at(folder, kCommitFile);
  if (!file.valid()) return;
  // Closing the writer of a circular buffer keeps the file; closing any other writer removes it.
  const bool is_ring = read_page(file).capacity > 0;
  throw base::unsupported(folder.display())
      .problem(is_ring ? "a circular buffer" : "a data set that grows")
      .expected(is_ring ? "another kind of data set" : "a closed data set")
      .found("a \"", kCommitFile, "\" file")
      .remedy(is_ring ? "save its rows to another path"
                      : "open it in mode \"r+\" with the class that wrote it, add any rows there, "
                        "and close it");
}

}  // namespace tenfold::detail::formats::folder

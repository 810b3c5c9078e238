#include "dataset/ring_guard.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "dataset/dataset_state.hpp"
#include "formats/folder/append/appendable.hpp"
#include "formats/folder/append/commit_file.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

namespace {

/// wait() first yields kYields times, then makes kShortPauses short pauses, then long pauses. A
/// write of a few rows takes microseconds; if it takes longer, readers poll less often.
constexpr int kYields = 64;
constexpr int kShortPauses = 1000;
constexpr std::chrono::microseconds kShortPause{20};
constexpr std::chrono::milliseconds kLongPause{1};
constexpr int kPollsPerLockCheck = 64;

/// The number of waits before RingWait::wait() throws. The long pauses take about 10 s in total.
std::atomic<int> ring_patience{kYields + kShortPauses + 10'000};

/// True if a write is in progress, or if a writer crashed in a write since the machine booted.
bool is_writing(const folder::CommitState& state) {
  return state.sequence % 2 == 1 && state.boot == os::boot_id();
}

/// True if `slot` is one of `count` slots from `begin`, modulo capacity.
bool is_among(std::uint64_t slot, std::uint64_t begin, std::uint64_t count,
              std::uint64_t capacity) {
  const std::uint64_t from_begin = slot >= begin ? slot - begin : slot + (capacity - begin);
  return from_begin < count;
}

folder::CommitPage page_of(const os::File& file) {
  folder::CommitBytes bytes{};
  const std::size_t size = file.read_some_at(0, bytes);
  return folder::parse_commit_page(std::span(bytes).first(size), file.display());
}

/// The folder that contains the batched tensors of the root of `tree`; null if there are none.
std::shared_ptr<folder::FolderHandle> folder_of(const TensorDict& tree) {
  std::shared_ptr<folder::FolderHandle> found;
  tree.for_each([&](const std::string&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (found != nullptr || leaf == nullptr || leaf->is_unbatched()) return;
    found = folder::folder_of(*leaf);
  });
  return found;
}

}  // namespace

void RingWait::wait() {
  if (++num_waits_ > ring_patience.load(std::memory_order_relaxed)) {
    throw Error::io(EAGAIN, where_)
        .problem("rows are being overwritten all the time")
        .expected("a writer that does not change the rows while they are copied")
        .found("a writer that is stopped, or faster than the copy")
        .remedy("read again, or create the buffer with a larger capacity");
  }
  // First yield the core, which the writer may need.
  if (num_waits_ <= kYields) return std::this_thread::yield();
  if (num_waits_ <= kYields + kShortPauses) return std::this_thread::sleep_for(kShortPause);
  std::this_thread::sleep_for(kLongPause);
}

int set_ring_patience(int num_waits) noexcept { return ring_patience.exchange(num_waits); }

std::array<SlotRange, 2> settled_slots(const folder::CommitState& state, std::uint64_t capacity,
                                       std::int64_t num_rows) {
  const auto rows = static_cast<std::uint64_t>(num_rows);
  const auto range = [&](std::uint64_t begin, std::uint64_t end) {
    end = std::min(end, rows);
    begin = std::min(begin, end);
    return SlotRange{static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
  };
  const std::uint64_t busy_end = state.busy_begin + state.busy_rows;
  return {range(busy_end > capacity ? busy_end - capacity : 0, state.busy_begin),
          range(busy_end, capacity)};
}

std::shared_ptr<const RingGuard> RingGuard::of(const TensorDict& tree) {
  const auto handle = folder_of(tree);
  if (handle == nullptr || !handle->may_grow()) return nullptr;
  const auto directory = handle->directory();
  os::File file = os::File::try_open_read_at(*directory, std::string(folder::kCommitName));
  if (!file.valid()) return nullptr;
  const std::uint64_t capacity = page_of(file).capacity;
  if (capacity == 0) return nullptr;
  return std::shared_ptr<const RingGuard>(
      new RingGuard(directory->duplicate(), std::move(file), capacity));
}

folder::CommitState RingGuard::now() const { return *folder::state_now(page_of(file_)); }

bool RingGuard::has_writer() const { return folder::has_writer(folder_); }

folder::CommitState RingGuard::settled() const {
  RingWait writing(where());
  for (int polls = 1;; ++polls) {
    const folder::CommitState state = now();
    if (!is_writing(state) || (polls % kPollsPerLockCheck == 0 && !has_writer())) return state;
    writing.wait();
  }
}

RowOrderPtr RingGuard::order(std::int64_t num_rows) const {
  const folder::CommitState state = settled();
  if (state.busy_rows == 0) return row_range(0, num_rows);
  std::vector<RowOrderPtr> parts;
  std::int64_t left = 0;
  for (const SlotRange& range : settled_slots(state, capacity_, num_rows)) {
    if (range.begin == range.end) continue;
    parts.push_back(row_range(range.begin, range.end - range.begin));
    left += range.end - range.begin;
  }
  if (left < num_rows) {
    warn(where() + ": " + std::to_string(num_rows - left) +
         " rows were being overwritten when a write failed, a writer crashed or the power "
         "failed; they are omitted until they are written again");
  }
  if (parts.empty()) return row_range(0, 0);
  return parts.size() == 1 ? parts[0] : joined_order(std::move(parts));
}

RingWatch::RingWatch(const DatasetState& state, std::span<const std::int64_t> rows) {
  for (const DatasetPart& part : state.parts) {
    const RingGuard* guard = part.is_open() ? part.table->ring().get() : nullptr;
    if (guard == nullptr) continue;
    Part watched{guard, {}, guard->now()};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t local = rows[i] - part.first_row;
      if (local < 0 || local >= part.num_rows()) continue;
      watched.slots.emplace_back(static_cast<std::uint64_t>(local), i);
    }
    if (!watched.slots.empty()) parts_.push_back(std::move(watched));
  }
}

std::vector<std::size_t> RingWatch::torn() const {
  std::vector<std::size_t> places;
  for (const Part& part : parts_) {
    const folder::CommitState& before = part.before;
    const folder::CommitState after = part.guard->now();
    if (after.sequence == before.sequence && before.busy_rows == 0) continue;
    const std::uint64_t capacity = part.guard->capacity();
    const std::uint64_t touched = after.written - before.written + after.busy_rows;
    std::optional<std::uint64_t> gone;
    for (const auto& [slot, place] : part.slots) {
      const bool was_busy = is_among(slot, before.busy_begin, before.busy_rows, capacity);
      if (!was_busy && !is_among(slot, before.written % capacity, touched, capacity)) continue;
      places.push_back(place);
      if (is_among(slot, after.busy_begin, after.busy_rows, capacity)) gone = slot;
    }
    if (!gone || (is_writing(after) && part.guard->has_writer())) continue;
    throw base::key_not_found(part.guard->where())
        .part("slot ", *gone)
        .problem("its row is lost, because its write failed or its writer crashed")
        .expected("a row")
        .found("a part of a row")
        .remedy("call refresh(), which omits the row");
  }
  return places;
}

}  // namespace tenfold

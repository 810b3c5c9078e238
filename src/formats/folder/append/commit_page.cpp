#include "formats/folder/append/commit_page.hpp"

#include <algorithm>
#include <cstring>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::string_view kMagic = "tenfold%commit 1";
constexpr std::uint64_t kSlotSeed = 0x0064'6c6f'666e'6574;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kHeaderBytes = 32;

/// Returns an error for a page of the wrong size or with an invalid header. It is not known whether
/// the page is that of a circular buffer.
Error fail(const std::string& where) {
  return base::corrupt(where).remedy(
      "to go back to the rows of the last flush, remove the file, unless it is the file of a "
      "circular buffer");
}

/// Returns an error for a page with a valid header. If the page of a circular buffer is removed,
/// the slots that meta.json counted at the last flush become the rows, in the order of the slots.
Error fail(const std::string& where, std::uint64_t capacity) {
  return base::corrupt(where).remedy(
      capacity == 0 ? "to go back to the rows of the last flush, remove the file"
                    : "to read the slots of the last flush as rows of an ordinary data set, "
                      "remove the file");
}

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

void put(std::span<std::byte> bytes, std::size_t offset, std::uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

bool is_whole(std::span<const std::byte> record) {
  const auto content = record.first(record.size() - kChecksumBytes);
  return base::xxh3_seeded(content, kSlotSeed) == number_at(record, content.size());
}

void seal(std::span<std::byte> record) {
  const auto content = record.first(record.size() - kChecksumBytes);
  put(record, content.size(), base::xxh3_seeded(content, kSlotSeed));
}

/// Parses a commit record. Returns nullopt if its checksum is wrong: it was never written, its
/// writer did not finish it, or it is damaged.
std::optional<CommitState> parse_slot(std::span<const std::byte> page, std::size_t offset) {
  const auto slot = page.subspan(offset, kSlotBytes);
  if (!is_whole(slot)) return std::nullopt;
  CommitState state;
  state.sequence = number_at(slot, 0);
  std::copy_n(slot.begin() + 8, state.boot.size(), state.boot.begin());
  state.num_rows = number_at(slot, 24);
  state.written = number_at(slot, 32);
  state.busy_begin = number_at(slot, 40);
  state.busy_rows = number_at(slot, 48);
  return state;
}

/// Returns the newest valid record of the two commit records at `offset`; nullopt if both are
/// invalid.
std::optional<CommitState> newest(std::span<const std::byte> page, std::size_t offset) {
  const auto first = parse_slot(page, offset);
  const auto second = parse_slot(page, offset + kSlotBytes);
  if (!first || !second) return first ? first : second;
  return first->sequence > second->sequence ? first : second;
}

void check_state(const CommitState& state, std::uint64_t capacity, const std::string& where) {
  if (state.num_rows > kMaxRows || state.written > kMaxRows) {
    throw fail(where, capacity)
        .part("rows")
        .expected("fewer than 2^63")
        .found(state.num_rows, ", and ", state.written, " written in all");
  }
  if (capacity == 0) {
    if (state.busy_rows == 0) return;
    throw fail(where, capacity)
        .part("busy rows")
        .expected("none outside a circular buffer")
        .found(state.busy_rows);
  }
  if (state.num_rows != std::min(state.written, capacity)) {
    throw fail(where, capacity)
        .part("rows of a circular buffer")
        .expected(std::min(state.written, capacity))
        .found(state.num_rows);
  }
  if (state.busy_rows > capacity || state.busy_begin >= capacity) {
    throw fail(where, capacity)
        .part("busy rows")
        .expected("at most ", capacity, " slots, the first below ", capacity)
        .found(state.busy_rows, " from slot ", state.busy_begin);
  }
}

}  // namespace

std::array<std::byte, kSlotBytes> encode_slot(const CommitState& state) {
  std::array<std::byte, kSlotBytes> slot{};
  put(slot, 0, state.sequence);
  std::copy(state.boot.begin(), state.boot.end(), slot.begin() + 8);
  put(slot, 24, state.num_rows);
  put(slot, 32, state.written);
  put(slot, 40, state.busy_begin);
  put(slot, 48, state.busy_rows);
  seal(slot);
  return slot;
}

CommitBytes encode_page(const CommitPage& page) {
  CommitBytes bytes{};
  const auto place = [&](std::size_t offset, const CommitState& state) {
    const auto slot = encode_slot(state);
    std::copy(
        slot.begin(), slot.end(),
        bytes.begin() + static_cast<std::ptrdiff_t>(offset + state.sequence % 2 * kSlotBytes));
  };
  place(0, page.live);
  if (page.durable) place(kDurableOffset, *page.durable);
  const auto header = std::span(bytes).subspan(kHeaderOffset, kHeaderBytes);
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  put(header, kMagic.size(), page.capacity);
  seal(header);
  put(bytes, kProcessOffset, page.process);
  put(bytes, kInPlaceOffset, page.in_place ? 1 : 0);
  return bytes;
}

void check_commit_size(std::uint64_t size_bytes, const std::string& where) {
  if (size_bytes == kCommitPageBytes) return;
  throw fail(where).part("size").expected(kCommitPageBytes, " bytes").found(size_bytes);
}

CommitPage parse_commit_page(std::span<const std::byte> bytes, const std::string& where) {
  check_commit_size(bytes.size(), where);
  const auto header = bytes.subspan(kHeaderOffset, kHeaderBytes);
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0 || !is_whole(header)) {
    throw fail(where)
        .part("header")
        .expected("\"tenfold%commit 1\" with its checksum")
        .found("something else");
  }
  CommitPage page;
  page.capacity = number_at(header, kMagic.size());
  if (page.capacity > kMaxRows) {
    throw fail(where).part("capacity").expected("fewer than 2^63 rows").found(page.capacity);
  }
  page.process = number_at(bytes, kProcessOffset);
  page.in_place = number_at(bytes, kInPlaceOffset) != 0;
  const auto live = newest(bytes, 0);
  if (!live) {
    throw fail(where, page.capacity)
        .part("commit records")
        .expected("at least one valid")
        .found("none");
  }
  check_state(*live, page.capacity, where);
  page.live = *live;
  if (page.capacity == 0) return page;
  page.durable = newest(bytes, kDurableOffset);
  if (!page.durable) {
    throw fail(where, page.capacity)
        .part("durable records")
        .expected("at least one valid")
        .found("none");
  }
  check_state(*page.durable, page.capacity, where);
  return page;
}

std::optional<CommitPage> read_commit_page(Folder& folder) {
  const auto file = folder.try_open(std::string(kCommitName), false);
  if (!file) return std::nullopt;
  check_commit_size(file->info().size_bytes, file->display());
  CommitBytes bytes{};
  const std::size_t size = file->read_some_at(0, bytes);
  return parse_commit_page(std::span(bytes).first(size), file->display());
}

const CommitState* state_now(const CommitPage& page) {
  if (page.live.boot == os::boot_id()) return &page.live;
  return page.durable ? &*page.durable : nullptr;
}

std::optional<std::int64_t> committed_rows(Folder& folder) {
  const auto page = read_commit_page(folder);
  const CommitState* now = page ? state_now(*page) : nullptr;
  if (now == nullptr) return std::nullopt;
  return static_cast<std::int64_t>(now->num_rows);
}

}  // namespace tenfold::detail::formats::folder

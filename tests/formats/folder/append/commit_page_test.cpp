#include "formats/folder/append/commit_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include <tenfold/error.hpp>

namespace tenfold::detail::formats::folder {
namespace {

using testing::HasSubstr;

CommitPage page_of_rows(std::uint64_t num_rows) {
  CommitPage page;
  page.process = 42;
  page.live = {.sequence = 7, .boot = os::boot_id(), .num_rows = num_rows, .written = num_rows};
  return page;
}

CommitPage ring(std::uint64_t capacity, std::uint64_t written) {
  CommitPage page;
  page.capacity = capacity;
  page.live = {.sequence = 4,
               .boot = os::boot_id(),
               .num_rows = std::min(written, capacity),
               .written = written};
  page.durable = page.live;
  page.durable->sequence = 1;
  return page;
}

void expect_refused(std::span<const std::byte> bytes, const char* part,
                    const char* remedy = "remove the file") {
  try {
    parse_commit_page(bytes, "data/%commit");
    FAIL() << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("data/%commit: "));
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr(remedy));
  }
}

/// Returns the page with a valid record of `state` in place of the record at `offset`.
CommitBytes with_slot(CommitBytes bytes, std::size_t offset, const CommitState& state) {
  const auto slot = encode_slot(state);
  std::copy(slot.begin(), slot.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  return bytes;
}

TEST(CommitPage, RoundTrips) {
  const CommitPage page = parse_commit_page(encode_page(page_of_rows(1000)), "p");
  EXPECT_EQ(page.live.num_rows, 1000U);
  EXPECT_EQ(page.live.sequence, 7U);
  EXPECT_EQ(page.process, 42U);
  EXPECT_EQ(page.capacity, 0U);
  EXPECT_FALSE(page.durable);
  const CommitPage read = parse_commit_page(encode_page(ring(10, 25)), "p");
  EXPECT_EQ(read.live.num_rows, 10U);
  EXPECT_EQ(read.live.written, 25U);
  EXPECT_EQ(read.durable->sequence, 1U);
}

TEST(CommitPage, HasTheOlderStateIfTheNewerRecordIsTorn) {
  // Two records alternate: sequence 7 is in the second one, and 8 in the first one.
  CommitBytes bytes = encode_page(page_of_rows(1000));
  CommitState next = page_of_rows(1500).live;
  next.sequence = 8;
  const auto slot = encode_slot(next);
  for (std::size_t written = 0; written <= slot.size(); ++written) {
    std::copy_n(slot.begin(), written, bytes.begin());
    const std::uint64_t found = parse_commit_page(bytes, "p").live.num_rows;
    // The checksum depends on the boot ID, so its last bytes may equal those of the old checksum by
    // chance. Then the record is complete before all of its bytes are written.
    const bool is_whole = std::equal(slot.begin(), slot.end(), bytes.begin());
    EXPECT_EQ(found, is_whole ? 1500U : 1000U) << written;
  }
}

TEST(CommitPage, KeepsOnlyTheDurableStateOfACircularBufferAfterAReboot) {
  CommitPage rows = page_of_rows(1000);
  EXPECT_EQ(state_now(rows), &rows.live);
  rows.live.boot[0] ^= std::byte{1};
  EXPECT_EQ(state_now(rows), nullptr);
  CommitPage buffer = ring(10, 25);
  buffer.live.boot[3] ^= std::byte{1};
  EXPECT_EQ(state_now(buffer), &*buffer.durable);
}

TEST(CommitPage, IsRefusedWithoutAValidRecord) {
  const CommitBytes good = encode_page(page_of_rows(5));
  expect_refused(std::span(good).first(100), "size: expected 4096 bytes, found 100");
  expect_refused({}, "size: expected 4096 bytes, found 0");
  CommitBytes bad = good;
  bad[kHeaderOffset] ^= std::byte{1};
  expect_refused(bad, "header");
  bad = good;
  bad[kHeaderOffset + 17] ^= std::byte{1};
  expect_refused(bad, "header");
  bad = good;
  bad[kSlotBytes + 24] ^= std::byte{1};
  expect_refused(bad, "commit records: expected at least one valid, found none");
  bad = encode_page(ring(10, 3));
  bad[kDurableOffset + kSlotBytes + 1] ^= std::byte{1};
  expect_refused(bad, "durable records");
}

TEST(CommitPage, HasAnotherRemedyForACircularBuffer) {
  CommitBytes bad = encode_page(page_of_rows(5));
  bad[kSlotBytes + 24] ^= std::byte{1};
  expect_refused(bad, "commit records",
                 "to go back to the rows of the last flush, remove the file");
  bad = encode_page(ring(10, 3));
  bad[24] ^= std::byte{1};
  expect_refused(bad, "commit records",
                 "to read the slots of the last flush as rows of an ordinary data set");
}

TEST(CommitPage, IsRefusedIfItsContentIsInconsistent) {
  const CommitBytes rows = encode_page(page_of_rows(5));
  CommitState state = page_of_rows(5).live;
  state.sequence = 9;
  state.num_rows = std::numeric_limits<std::uint64_t>::max();
  expect_refused(with_slot(rows, 0, state), "rows: expected fewer than 2^63");
  state.num_rows = 5;
  state.busy_rows = 1;
  expect_refused(with_slot(rows, 0, state), "busy rows: expected none");

  const CommitBytes buffer = encode_page(ring(10, 25));
  CommitState slot = ring(10, 25).live;
  slot.sequence = 9;
  slot.num_rows = 11;
  expect_refused(with_slot(buffer, 0, slot), "rows of a circular buffer: expected 10, found 11");
  slot.num_rows = 10;
  slot.busy_begin = 10;
  expect_refused(with_slot(buffer, 0, slot), "busy rows: expected at most 10");
  slot.busy_begin = 0;
  slot.busy_rows = 11;
  expect_refused(with_slot(buffer, kDurableOffset, slot), "found 11 from slot 0");
  expect_refused(encode_page(ring(std::uint64_t{1} << 63, 0)), "capacity");
}

TEST(CommitPage, WithOneByteChangedIsRefusedOrReturnsOneOfItsRecords) {
  const CommitBytes good = encode_page(ring(10, 25));
  for (std::size_t at = 0; at < kProcessOffset; ++at) {
    CommitBytes bad = good;
    bad[at] ^= std::byte{0x40};
    try {
      const CommitPage page = parse_commit_page(bad, "p");
      EXPECT_EQ(page.live.written, 25U) << at;
      EXPECT_EQ(page.durable->written, 25U) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << at;
    }
  }
}

}  // namespace
}  // namespace tenfold::detail::formats::folder

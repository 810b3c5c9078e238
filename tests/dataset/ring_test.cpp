#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/memmap.hpp>

#include "dataset/growing_of.hpp"
#include "dataset/ring_guard.hpp"
#include "dataset/table_of.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "os/fs/change_observer.hpp"
#include "os/fs/directory.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {
namespace {

using test::ids_of;
using test::NextBoot;
using test::numbers_at;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CircularBuffer, ContainsTheLastRowsInTheOrderOfItsSlots) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "ring", {.capacity = 5});
  EXPECT_EQ(ds.size(), 0);
  EXPECT_EQ(ds.capacity(), 5);
  EXPECT_EQ(ds.append(test::numbers(3)), 3);
  EXPECT_EQ(ds.cursor(), 3);
  EXPECT_EQ(ds.append(test::numbers(4, 3)), 5);
  EXPECT_EQ(ds.cursor(), 2);
  EXPECT_THAT(ids_of(ds), ElementsAre(5, 6, 2, 3, 4));
  EXPECT_THAT(ids_of(Dataset(folder / "ring")), ElementsAre(5, 6, 2, 3, 4));
  EXPECT_EQ(ds.append(test::numbers(12, 7)), 5);  // of rows 7 to 18, 14 to 18 remain
  EXPECT_THAT(ids_of(ds), ElementsAre(15, 16, 17, 18, 14));
  EXPECT_EQ(ds.cursor(), 4);
  EXPECT_EQ(open_memmap(folder / "ring", Mode::read).batch_size(), Shape{5});
  ds.close();
  Dataset again(folder / "ring", Mode::write_through);
  again.append(test::numbers(1, 19));
  EXPECT_THAT(ids_of(again), ElementsAre(15, 16, 17, 18, 19));
  EXPECT_TRUE(verify(folder / "ring").ok());
}

TEST(CircularBuffer, ShowsOverwritesOfSmallLeavesWithoutARefresh) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "ring", {.capacity = 4});
  ds.append(test::numbers(4));
  const Dataset reader(folder / "ring");
  ds.append(test::numbers(1, 4));
  EXPECT_THAT(ids_of(reader), ElementsAre(4, 1, 2, 3));
}

TEST(CircularBuffer, HidesTornRowsUntilTheyAreOverwritten) {
  const test::TemporaryFolder folder;
  const Path path = folder / "ring";
  {
    Dataset ds = numbers_at(path, {.capacity = 6});
    ds.append(test::numbers(6));
    ds.append(test::numbers(1, 6));  // writes the durable mark
    // The next append marks rows as busy and writes one column. Its third change fails.
    const test::AtChange refuse(
        2, [](const os::Change&) { throw Error::io(ENOSPC, "injected", "no space"); });
    EXPECT_THROW(ds.append(test::numbers(2, 7)), Error);
    EXPECT_EQ(ds.size(), 4);
  }
  test::Warnings warnings;
  {
    const Dataset reader(path);
    EXPECT_THAT(ids_of(reader), ElementsAre(6, 3, 4, 5));
    EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("2 rows were being overwritten")));
    EXPECT_THAT(ids_of(reader.range(1, 3)), ElementsAre(3, 4));
  }
  Dataset ds(path, Mode::write_through);
  EXPECT_EQ(ds.append(test::numbers(1, 20)), 5);
  EXPECT_THAT(ids_of(Dataset(path)), ElementsAre(6, 20, 3, 4, 5));
  EXPECT_EQ(ds.append(test::numbers(2, 21)), 6);
  EXPECT_THAT(ids_of(Dataset(path)), ElementsAre(6, 20, 21, 22, 4, 5));
}

TEST(CircularBuffer, AnAppendBeforeTornRowsReadsNothingAfterItsCommit) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "ring", {.capacity = 6});
  ds.append(test::numbers(6));
  ds.append(test::numbers(1, 6));  // writes the durable mark
  {
    const test::AtChange refuse(
        2, [](const os::Change&) { throw Error::io(ENOSPC, "injected", "no space"); });
    EXPECT_THROW(ds.append(test::numbers(3, 7)), Error);
  }
  EXPECT_EQ(ds.size(), 3);
  const test::BeforeLookup refuse("meta.json", 1,
                                  [] { throw Error::io(EMFILE, "injected", "too many files"); });
  EXPECT_EQ(ds.append(test::numbers(1, 20)), 4);
  EXPECT_FALSE(refuse.has_acted());
}

TEST(CircularBuffer, RefusesMoreRowsThanItCounts) {
  const test::TemporaryFolder folder;
  const Batch rows = test::rows_without_bytes(DType::uint8, std::int64_t{1} << 62);
  Dataset ds = create(folder / "ring", test::schema_of(rows), {.capacity = 3});
  EXPECT_EQ(ds.append(rows), 3);
  test::expect_error(ErrorCode::invalid_argument, "rows in all: expected fewer than 2^63",
                     [&] { ds.append(rows); });
  EXPECT_EQ(Dataset(folder / "ring").size(), 3);
}

TEST(CircularBuffer, RefusesColumnsWithRowsOfDifferentSizes) {
  const test::TemporaryFolder folder;
  numbers_at(folder / "ring", {.capacity = 6}).close();
  Dataset ragged = create(folder / "ragged", test::schema_of(test::ragged()));
  ragged.append(test::ragged());
  ragged.close();
  std::filesystem::copy(folder / "ring/%commit", folder / "ragged/%commit");
  test::expect_error(ErrorCode::corrupt, "all slots of a circular buffer have the same size",
                     [&] { Dataset{folder / "ragged"}; });
}

TEST(CircularBuffer, ReadersGiveUpOnRowsWhoseLiveWriterDoesNotFinish) {
  const test::TemporaryFolder folder;
  const Path path = folder / "ring";
  Dataset ds = numbers_at(path, {.capacity = 6});
  ds.append(test::numbers(6));
  ds.append(test::numbers(1, 6));  // writes the durable mark
  const Dataset reader(path);
  // The next append marks rows as busy and writes one column, and stops before its third change.
  const test::AtChange stopped(2, [&](const os::Change&) {
    const int before = set_ring_patience(100);
    for (const auto& read :
         std::vector<std::function<void()>>{[&] { reader.rows(0, 6); }, [&] { Dataset{path}; }}) {
      test::expect_error(ErrorCode::io, "ring/%commit: rows are being overwritten all the time",
                         read);
    }
    EXPECT_EQ(reader.rows(3, 6).num_rows(), 3);
    set_ring_patience(before);
  });
  ds.append(test::numbers(2, 7));
  ASSERT_TRUE(stopped.was_reached());
  EXPECT_THAT(ids_of(reader), ElementsAre(6, 7, 8, 3, 4, 5));
}

TEST(CircularBuffer, ALiveWriterIsDetectedWithAndWithoutLocks) {
  for (const int lock_errno : {0, EBADF, ENOSYS, ENOLCK}) {
    SCOPED_TRACE("flock fails with " + std::to_string(lock_errno));
    const test::FailLocks fail(lock_errno);
    const test::TemporaryFolder folder;
    const Path path = folder / "ring";
    Dataset ds = numbers_at(path, {.capacity = 6});
    ds.append(test::numbers(1));
    const os::Directory directory = os::Directory::open(path);
    EXPECT_TRUE(detail::formats::folder::has_writer(directory));
    Dataset other(path, Mode::write_through);
    test::expect_error(ErrorCode::io, "expected one writer at a time",
                       [&] { other.append(test::numbers(1)); });
    ds.close();
    EXPECT_FALSE(detail::formats::folder::has_writer(directory));
    EXPECT_EQ(other.append(test::numbers(1)), 2);
  }
}

TEST(CircularBuffer, AfterAPowerFailureHasTheFlushedRowsThatWereNotOverwritten) {
  const test::TemporaryFolder folder;
  const Path path = folder / "ring";
  Dataset ds = numbers_at(path, {.capacity = 32});
  ds.append(test::numbers(32));
  ds.flush();
  ds.append(test::numbers(4, 32));
  {
    const NextBoot boot;
    test::Warnings warnings;
    const Dataset reader(path);
    // Four rows were overwritten, and two more were marked as busy in advance.
    EXPECT_EQ(reader.size(), 26);
    EXPECT_EQ(ids_of(reader).front(), 6);
    EXPECT_EQ(ids_of(reader).back(), 31);
    EXPECT_EQ(reader.cursor(), 0);
  }
  ds.flush();
  const NextBoot boot;
  EXPECT_EQ(Dataset(path).size(), 32);
  EXPECT_EQ(Dataset(path).cursor(), 4);
}

}  // namespace
}  // namespace tenfold

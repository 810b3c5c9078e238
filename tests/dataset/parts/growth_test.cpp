#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "dataset/parts/growth.hpp"
#include "dataset/parts/parts_of.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "os/fs/file.hpp"
#include "support/message_of.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
namespace formats = detail::formats;

class PartsGrowthTest : public ::testing::Test {
 protected:
  ~PartsGrowthTest() override { set_part_bytes(std::uint64_t{1} << 30); }

  static Batch rows(std::int64_t begin, std::int64_t end) {
    return Dataset(rows_of_all_kinds(begin, end)).rows(0, end - begin);
  }
  static void expect_rows(const Dataset& ds, std::int64_t count) {
    ASSERT_EQ(ds.size(), count);
    expect_same(ds.rows(0, count), rows(0, count));
  }
  std::vector<formats::PartEntry> parts() const {
    return formats::read_parts_manifest(os::Directory::open(path_)).parts;
  }
  Dataset make() const { return create_parts(path_, Schema::of(rows_of_all_kinds(0, 1))); }

  TemporaryFolder folder_;
  Path path_ = folder_ / "ds";
};

TEST_F(PartsGrowthTest, ANewDataSetHasNoRowsAndItsColumns) {
  Dataset ds = make();
  EXPECT_EQ(ds.size(), 0);
  EXPECT_EQ(ds.rows(0, 0).columns().size(), 5U);
  EXPECT_EQ(ds.column("id").shape(), Shape{0});
  EXPECT_EQ(Dataset(path_).rows(0, 0).num_rows(), 0);
  EXPECT_TRUE(verify(path_).ok());
  EXPECT_EQ(load(path_).batch_size(), Shape{0});
  BatchLoader loader(ds, {.batch_size = 2});
  EXPECT_EQ(loader.size(), 0);
  expect_error(ErrorCode::io, "found a file or folder", [&] { make(); });
  expect_error(ErrorCode::invalid_argument, "at least one column",
               [&] { create_parts(folder_ / "none", Schema()); });
}

TEST_F(PartsGrowthTest, RefusesMoreRowsInAllPartsThanReadersCount) {
  set_part_bytes(0);  // a part for each append
  constexpr std::int64_t kRows = std::int64_t{1} << 62;
  const Batch added = rows_without_bytes(DType::uint8, kRows);
  Dataset ds = create_parts(path_, schema_of(added));
  EXPECT_EQ(ds.append(added), kRows);
  expect_error(ErrorCode::invalid_argument, "rows in all: expected fewer than 2^63",
               [&] { ds.append(added); });
  EXPECT_EQ(ds.size(), kRows);
  ds.close();
  EXPECT_EQ(Dataset(path_).size(), kRows);
}

TEST_F(PartsGrowthTest, RefreshRefusesADataSetWithOtherColumns) {
  make();
  Dataset ds(path_, Mode::write_through);
  fs::rename(path_, folder_ / "old");
  create_parts(path_, Schema::of(numbers(1)));
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::io, "ds: the data set was replaced", [&] { ds.refresh(); });
    expect_error(ErrorCode::io, "open it again", [&] { ds.rows(0, 0); });
  }
}

#if !TENFOLD_TSAN
TEST_F(PartsGrowthTest, CloseInAForkedChildKeepsTheLockOfTheParent) {
  Dataset ds = make();
  const pid_t child = ::fork();
  if (child == 0) {
    ds.close();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  expect_error(ErrorCode::io, "in use", [&] { save(numbers(1), path_, {.overwrite = true}); });
}
#endif

TEST_F(PartsGrowthTest, MissingFoldersAboveANewDataSetAreCreatedAndSynced) {
  std::set<std::uint64_t> synced;
  {
    const WatchChanges watch([&](const os::Change& change) {
      if (change.kind == os::Change::Kind::sync_directory) synced.insert(change.inode);
    });
    create_parts(folder_ / "a" / "b" / "ds", Schema::of(rows_of_all_kinds(0, 1)));
  }
  for (const Path& path : {folder_.path(), folder_ / "a", folder_ / "a" / "b"}) {
    EXPECT_TRUE(synced.contains(os::file_info(path).inode)) << path;
  }
}

TEST_F(PartsGrowthTest, ADataSetBelowAFileIsRefused) {
  std::ofstream(folder_ / "file") << "text";
  const Schema schema = Schema::of(rows_of_all_kinds(0, 1));
  expect_error(ErrorCode::io, "file", [&] { create_parts(folder_ / "file" / "ds", schema); });
}

TEST_F(PartsGrowthTest, RowsGoToTheLastPartUntilItIsLargeEnough) {
  Dataset ds = make();
  EXPECT_EQ(ds.append(rows(0, 3)), 3);
  expect_rows(ds, 3);
  expect_rows(Dataset(path_), 3);
  EXPECT_TRUE(parts().back().is_open);
  EXPECT_EQ(ds.append(rows(3, 4)), 4);
  EXPECT_EQ(parts().size(), 1U);
  set_part_bytes(1);
  EXPECT_EQ(ds.append(rows(4, 9)), 9);
  ASSERT_EQ(parts().size(), 2U);
  EXPECT_FALSE(parts()[0].is_open);
  EXPECT_EQ(parts()[0].num_rows, 4);
  expect_rows(ds, 9);
  EXPECT_TRUE(verify(path_).ok());
  ds.close();
  EXPECT_FALSE(parts()[1].is_open);
  EXPECT_TRUE(parts()[1].checksum.has_value());
  expect_rows(ds, 9);
  EXPECT_TRUE(verify(path_).ok());
  expect_error(ErrorCode::unsupported, "it was closed", [&] { ds.append(rows(9, 10)); });
}

TEST_F(PartsGrowthTest, AFullPartIsClosedOnDiskIfTheNextOneCannotBeCreated) {
  Dataset ds = make();
  ds.append(rows(0, 3));
  set_part_bytes(1);
  {
    const WatchChanges full([](const os::Change& change) {
      if (change.kind == os::Change::Kind::create_directory) throw Error::io(ENOSPC, "");
    });
    EXPECT_THROW(ds.append(rows(3, 4)), Error);
  }
  ds.close();
  ASSERT_EQ(parts().size(), 1U);
  EXPECT_FALSE(parts()[0].is_open);
  EXPECT_TRUE(parts()[0].checksum.has_value());
  expect_rows(Dataset(path_), 3);
}

TEST_F(PartsGrowthTest, AClosedPartIsReopenedForAppends) {
  make_parts(path_, {2, 3});
  Dataset ds(path_, Mode::write_through);
  EXPECT_EQ(ds.append(rows(5, 7)), 7);
  ASSERT_EQ(parts().size(), 2U);
  EXPECT_TRUE(parts()[1].is_open);
  ds.close();
  expect_rows(Dataset(path_), 7);
  EXPECT_EQ(parts()[1].num_rows, 5);
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(PartsGrowthTest, ReadersSeeRowsAfterRefresh) {
  Dataset ds = make();
  Dataset reader(path_);
  ds.append(rows(0, 2));
  EXPECT_EQ(reader.size(), 0);
  reader.refresh();
  expect_rows(reader, 2);
}

TEST_F(PartsGrowthTest, OneProcessAppendsAtATime) {
  Dataset ds = make();
  ds.append(rows(0, 2));
  Dataset other(path_, Mode::write_through);
  expect_error(ErrorCode::io, "its parts are being changed by process",
               [&] { other.append(rows(2, 3)); });
  expect_error(ErrorCode::io, "its parts are being changed by process",
               [&] { commit_parts(path_); });
  ds.close();
  EXPECT_EQ(other.append(rows(2, 3)), 3);
  expect_rows(other, 3);
}

TEST_F(PartsGrowthTest, AnOpenDataSetIsNotReplaced) {
  Dataset ds = make();
  expect_error(ErrorCode::io, "", [&] { compact(path_); });
  expect_error(ErrorCode::io, "", [&] { save(numbers(1), path_); });
  ds.append(rows(0, 2));
  ds.close();
  expect_rows(compact(path_), 2);
}

TEST_F(PartsGrowthTest, MismatchedRowsChangeNothing) {
  Dataset ds = make();
  ds.append(rows(0, 2));
  EXPECT_THROW(ds.append(Dataset(numbers(2)).rows(0, 2)), Error);
  EXPECT_THROW(ds.append(ds.select({"id"}).rows(0, 2)), Error);
  EXPECT_EQ(ds.append(rows(2, 2)), 2);
  expect_rows(ds, 2);
  expect_error(ErrorCode::unsupported, "found a data set of parts",
               [&] { ds.update(std::vector<std::int64_t>{0}, rows(0, 1)); });
  Dataset reader(path_);
  expect_error(ErrorCode::unsupported, "found one opened to read",
               [&] { reader.append(rows(2, 3)); });
}

TEST_F(PartsGrowthTest, CommittedPartsFollowAppendedParts) {
  {
    Dataset ds = make();
    ds.append(rows(0, 2));
    ds.flush();
    // Without close(), the part stays open, as after a crash of the writer.
  }
  EXPECT_TRUE(parts().back().is_open);
  save(rows_of_all_kinds(2, 5), path_ / "more");
  expect_rows(commit_parts(path_), 5);
  EXPECT_FALSE(parts()[0].is_open);
  Dataset ds(path_, Mode::write_through);
  EXPECT_EQ(ds.append(rows(5, 6)), 6);
  ds.close();
  expect_rows(Dataset(path_), 6);
}

TEST_F(PartsGrowthTest, APartMissingFromTheManifestIsIgnored) {
  Dataset ds = make();
  // A writer that crashes after it created a part leaves a part that the manifest does not contain.
  create(path_ / "append-00000001", Schema::of(rows_of_all_kinds(0, 1)));
  EXPECT_EQ(Dataset(path_).size(), 0);
  EXPECT_EQ(ds.append(rows(0, 2)), 2);
  expect_rows(Dataset(path_), 2);
  EXPECT_EQ(parts().back().path, "append-00000001");
}

TEST_F(PartsGrowthTest, AppendsKeepFoldersThatAreNotCommitted) {
  Dataset ds = make();
  save(rows_of_all_kinds(2, 4), path_ / "append-00000001");
  fs::create_directory(path_ / "append-00000002");
  write_bytes(path_ / "append-00000002/note", "1");
  EXPECT_EQ(ds.append(rows(0, 2)), 2);
  ds.close();
  expect_rows(Dataset(path_), 2);
  EXPECT_EQ(parts().back().path, "append-00000003");
  EXPECT_TRUE(fs::exists(path_ / "append-00000002/note"));
  expect_rows(commit_parts(path_, {.parts = {"append-00000001"}}), 4);
}

TEST_F(PartsGrowthTest, APartMayHaveTheGreatestNumber) {
  save(rows_of_all_kinds(0, 2), path_ / "append-9223372036854775807");
  expect_rows(commit_parts(path_), 2);
  set_part_bytes(1);
  Dataset ds(path_, Mode::write_through);
  EXPECT_EQ(ds.append(rows(2, 3)), 3);
  EXPECT_EQ(parts().back().path, "append-00000001");
}

}  // namespace
}  // namespace tenfold::test

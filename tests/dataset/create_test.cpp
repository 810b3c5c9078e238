#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "dataset/growing_of.hpp"
#include "dataset/table_of.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {
namespace {

using test::expect_error;
using test::ids_of;
using test::numbers_at;
using test::schema_of;
using testing::ElementsAre;

TEST(Create, CreatesZerosThatAreWrittenInPlace) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows", {.num_rows = 8});
  EXPECT_EQ(ds.size(), 8);
  EXPECT_EQ(ids_of(ds), std::vector<std::int64_t>(8, 0));
  Dataset other(folder / "rows", Mode::write_through);
  other.update(std::array<std::int64_t, 2>{7, 1}, Dataset(test::numbers(2, 3)).rows(0, 2));
  EXPECT_THAT(ids_of(ds), ElementsAre(0, 4, 0, 0, 0, 0, 0, 3));
  EXPECT_TRUE(verify(folder / "rows").ok());
  EXPECT_EQ(ds.append(test::numbers(1, 50)), 9);
}

/// The space is reserved because a write to a hole through a mapping raises SIGBUS on a full disk.
TEST(Create, ReservesTheSpaceOfItsRows) {
  const test::TemporaryFolder folder;
  numbers_at(folder / "rows", {.num_rows = 100'000});
  for (const char* name : {"id.memmap", "x.memmap"}) {
    struct stat status{};
    ASSERT_EQ(::stat((folder / "rows" / name).c_str(), &status), 0);
    EXPECT_GE(status.st_blocks * 512, status.st_size) << name;
  }
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Create, RefusesAColumnNamedLikeTheValidityOfAnother) {
  const test::TemporaryFolder folder;
  Column a{.path = {"r", "a"}, .dtype = DType::int64};
  const std::array<Column, 3> others{
      Column{.path = {"r", "a.valid"}, .dtype = DType::int64},
      Column{.path = {"r", "a.valid", "x"}, .dtype = DType::int64},
      Column{.path = {"r", "a.valid", "x"}, .dtype = DType::bool_},
  };
  for (const Column& other : others) {
    a.nullable = true;
    expect_error(
        ErrorCode::invalid_argument,
        "column \"r.a\": the validity of its rows is named \"r.a.valid\": expected no other "
        "column of that name, found one; rename \"r.a\" or \"r.a.valid\"",
        [&] { create(folder / "rows", Schema({a, other})); });
    EXPECT_FALSE(std::filesystem::exists(folder / "rows"));
    a.nullable = false;
    EXPECT_EQ(create(folder / "rows", Schema({a, other})).size(), 0);
    std::filesystem::remove_all(folder / "rows");
  }
}

TEST(Create, RefusesColumnsOfTheSameDottedName) {
  const test::TemporaryFolder folder;
  const Column flat{.path = {"a.b"}, .dtype = DType::int64};
  for (const KeyPath& path : {KeyPath{"a", "b"}, KeyPath{"a", "b", "c"}}) {
    const Column nested{.path = path, .dtype = DType::int64};
    expect_error(ErrorCode::invalid_argument,
                 "column \"a.b\": expected one column or record of this dotted name, found two: "
                 "the keys are joined by dots; rename one of them",
                 [&] { create(folder / "rows", Schema({flat, nested})); });
  }
}

/// Rows that state the validity of a column, and views that select it, have such a column.
TEST(Create, AcceptsBoolsNamedLikeTheValidityOfAColumn) {
  const test::TemporaryFolder folder;
  const Column a{.path = {"a"}, .dtype = DType::int64, .nullable = true};
  const Column valid{.path = {"a.valid"}, .dtype = DType::bool_};
  EXPECT_EQ(create(folder / "rows", Schema({a, valid})).schema().size(), 2U);
}

TEST(Create, StoresColumnsOfAnyName) {
  const test::TemporaryFolder folder;
  std::vector<Column> columns;
  for (const char* name : {"shape", "device", "_type", "a/b", "..", "x", "X", "x.end", ""}) {
    Column column;
    column.path = {name};
    column.dtype = DType::int64;
    columns.push_back(column);
  }
  // The end offsets of the string column "x" would be named "x.end", like another column.
  columns[5].kind = ColumnKind::string;
  columns[5].dtype = DType::uint8;
  columns[5].nullable = true;
  Dataset ds = create(folder / "rows", Schema(columns));
  std::vector<BatchColumn> rows;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    BatchColumn row;
    row.column = columns[i];
    row.values = test::ints({static_cast<std::int64_t>(i)});
    if (i == 5) {
      row.values = test::bytes_tensor("text");
      row.offsets = test::ints({0, 4});
    }
    rows.push_back(row);
  }
  ds.append(Batch(1, rows));
  ds.append(Batch(1, rows));
  ds.close();
  const Batch read = Dataset(folder / "rows").rows(1, 2);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i == 5) continue;
    EXPECT_EQ(read.columns()[i].values.data<std::int64_t>()[0], static_cast<int>(i));
  }
  EXPECT_EQ(read.text("x", 0), "text");
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Create, DoesNotReplaceADataSetThatWasCreatedConcurrently) {
  const test::TemporaryFolder folder;
  bool is_created = false;
  const test::WatchChanges watch([&](const os::Change& change) {
    if (is_created || change.kind != os::Change::Kind::rename || change.other != "rows") return;
    is_created = true;
    numbers_at(folder / "rows", {.num_rows = 3});
  });
  expect_error(ErrorCode::io, "expected nothing there",
               [&] { numbers_at(folder / "rows", {.num_rows = 8}); });
  EXPECT_TRUE(is_created);
  EXPECT_EQ(Dataset(folder / "rows").size(), 3);
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);  // no hidden folder is left
}

TEST(Create, RefusesInvalidArguments) {
  const test::TemporaryFolder folder;
  numbers_at(folder / "rows");
  expect_error(ErrorCode::io, "expected nothing there", [&] { numbers_at(folder / "rows"); });
  expect_error(ErrorCode::invalid_argument, "found both",
               [&] { numbers_at(folder / "a", {.num_rows = 1, .capacity = 1}); });
  expect_error(ErrorCode::invalid_argument, "found -1",
               [&] { numbers_at(folder / "a", {.num_rows = -1}); });
  expect_error(ErrorCode::invalid_argument, "at least one column",
               [&] { create(folder / "a", Schema()); });
  expect_error(ErrorCode::unsupported,
               "column \"tokens\": all slots of a circular buffer have the same size",
               [&] { create(folder / "a", schema_of(test::ragged()), {.capacity = 4}); });
  expect_error(ErrorCode::unsupported, "column \"x\": elements of 0 bytes cannot be counted", [&] {
    create(folder / "a", Schema({{.path = {"x"}, .shape = {0}, .ragged = true}}));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

}  // namespace
}  // namespace tenfold

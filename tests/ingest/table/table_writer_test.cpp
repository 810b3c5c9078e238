#include "ingest/table/table_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "support/file_limit.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Column column(const char* name, DType dtype, Shape shape = {}) {
  Column made;
  made.path = {name};
  made.dtype = dtype;
  made.shape = std::move(shape);
  return made;
}

Column text_column(const char* name, bool ragged = false) {
  Column made = column(name, DType::uint8);
  made.kind = ColumnKind::string;
  made.ragged = ragged;
  return made;
}

template <class T>
ColumnBuilder fixed(std::vector<T> values, std::int64_t num_rows) {
  ColumnBuilder chunk;
  chunk.num_rows = num_rows;
  chunk.values.resize(values.size() * sizeof(T));
  std::memcpy(chunk.values.data(), values.data(), chunk.values.size());
  return chunk;
}

ColumnBuilder texts(const std::vector<std::string>& values) {
  ColumnBuilder chunk;
  chunk.num_rows = static_cast<std::int64_t>(values.size());
  for (const std::string& value : values) {
    for (const char c : value) *chunk.values.extend(1) = static_cast<std::byte>(c);
    chunk.ends.push_back(static_cast<std::int64_t>(chunk.values.size()));
  }
  return chunk;
}

/// Returns a column of lists of strings, with the end offsets of the items and of the rows.
ColumnBuilder lists(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> items;
  ColumnBuilder made;
  for (const auto& row : rows) {
    items.insert(items.end(), row.begin(), row.end());
    made.ends.push_back(static_cast<std::int64_t>(items.size()));
  }
  ColumnBuilder flat = texts(items);
  made.num_rows = static_cast<std::int64_t>(rows.size());
  made.item_ends = std::move(flat.ends);
  made.values = std::move(flat.values);
  return made;
}

ColumnBuilder tokens(const std::vector<std::vector<std::int32_t>>& rows) {
  std::vector<std::int32_t> all;
  std::vector<std::int64_t> ends;
  for (const auto& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    ends.push_back(static_cast<std::int64_t>(all.size()));
  }
  ColumnBuilder chunk = fixed(all, static_cast<std::int64_t>(rows.size()));
  chunk.ends = std::move(ends);
  return chunk;
}

void append(TableWriter& writer, const std::vector<ColumnBuilder>& chunks) {
  std::vector<ColumnChunk> views;
  for (const ColumnBuilder& chunk : chunks) views.push_back(chunk.view());
  writer.append(views);
}

/// Five rows in two appends.
void write_five(const fs::path& path, bool durable = true) {
  Column age = column("age", DType::int64);
  age.nullable = true;
  Column ragged = column("tokens", DType::int32);
  ragged.ragged = true;
  TableWriter writer(path,
                     Schema({column("x", DType::float32, {2}), ragged, text_column("name"),
                             text_column("tags", true), age}),
                     {.durable = durable});
  ColumnBuilder ages = fixed<std::int64_t>({30, 0}, 2);
  ages.valid = {1, 0};
  append(writer, {fixed<float>({0, 1, 2, 3}, 2), tokens({{1, 2}, {}}), texts({"Ann", "Bob"}),
                  lists({{"red", "green"}, {}}), ages});
  append(writer, {fixed<float>({4, 5, 6, 7, 8, 9}, 3), tokens({{3}, {4, 5, 6}, {7}}),
                  texts({"", "Zo\xC3\xAB", "Di"}), lists({{"blue"}, {}, {"a", ""}}),
                  fixed<std::int64_t>({50, 60, 70}, 3)});
  EXPECT_EQ(writer.num_rows(), 5);
  writer.commit();
}

std::vector<std::int64_t> ints(const Tensor& tensor) {
  const auto values = tensor.span<std::int64_t>();
  return {values.begin(), values.end()};
}

TEST(TableWriter, WritesEveryKindOfColumn) {
  const test::TemporaryFolder folder;
  write_five(folder / "rows");
  const Dataset ds(folder / "rows");
  ASSERT_EQ(ds.size(), 5);
  const Batch batch = ds.rows(0, 5);
  EXPECT_EQ(batch.at("x").shape(), (Shape{5, 2}));
  EXPECT_EQ(batch.at("x").span<float>()[9], 9.0F);
  EXPECT_THAT(ints(batch.column("tokens").offsets), ElementsAre(0, 2, 2, 3, 6, 7));
  EXPECT_EQ(batch.at("tokens").span<std::int32_t>()[5], 6);
  EXPECT_EQ(batch.text("name", 0), "Ann");
  EXPECT_EQ(batch.text("name", 2), "");
  EXPECT_EQ(batch.text("name", 3), "Zo\xC3\xAB");
  EXPECT_THAT(ints(batch.column("tags").offsets), ElementsAre(0, 2, 2, 3, 3, 5));
  EXPECT_THAT(ints(batch.column("tags").item_offsets), ElementsAre(0, 3, 8, 12, 13, 13));
  EXPECT_THAT(ints(batch.at("age")), ElementsAre(30, 0, 50, 60, 70));
  const std::byte* valid = batch.column("age").valid.raw_data();
  EXPECT_THAT(std::vector<std::byte>(valid, valid + 5),
              ElementsAre(std::byte{1}, std::byte{0}, std::byte{1}, std::byte{1}, std::byte{1}));
}

TEST(TableWriter, WritesAChecksumForEveryFile) {
  const test::TemporaryFolder folder;
  write_five(folder / "rows");
  const VerifyReport report = verify(folder / "rows");
  EXPECT_TRUE(report.ok());
  // Checksums exist for x, tokens, tokens.end, name, name.end, tags, tags.end, tags.item_end, age,
  // age.valid, two meta.json and %notes.json. The only other file is %checksums.
  EXPECT_EQ(report.num_checksums, 13U);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "rows")) {
    files += entry.is_regular_file() ? 1U : 0U;
  }
  EXPECT_EQ(files, 14U);
  std::fstream(folder / "rows" / "x.memmap", std::ios::in | std::ios::out | std::ios::binary)
      .put('!');
  EXPECT_FALSE(verify(folder / "rows").ok());
}

TEST(TableWriter, ChecksumsFilesOfSeveralBlocks) {
  const test::TemporaryFolder folder;
  const std::size_t per_append = base::kChecksumBlockBytes / 8 / 3 + 1;
  {
    TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}), {.durable = false});
    std::vector<std::int64_t> values(per_append);
    for (int i = 0; i < 7; ++i) {
      std::iota(values.begin(), values.end(), static_cast<std::int64_t>(per_append) * i);
      append(writer, {fixed(values, static_cast<std::int64_t>(per_append))});
    }
    writer.commit();
  }
  const VerifyReport report = verify(folder / "rows");
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, 3U + 2U);
  const Tensor n = Dataset(folder / "rows").column("n");
  for (std::int64_t i = 0; i < n.numel(); i += 1001) ASSERT_EQ(n.data<std::int64_t>()[i], i);
}

TEST(TableWriter, WritesMoreColumnsThanFilesMayBeOpen) {
  const test::TemporaryFolder folder;
  std::vector<Column> columns;
  for (int i = 0; i < 700; ++i) columns.push_back(column(std::to_string(i).c_str(), DType::int8));
  {
    const test::FileLimit limit(350);
    TableWriter writer(folder / "rows", Schema(columns), {.durable = false});
    for (std::int8_t row = 0; row < 3; ++row) {
      append(writer, std::vector<ColumnBuilder>(700, fixed<std::int8_t>({row}, 1)));
    }
    writer.commit();
  }
  EXPECT_EQ(Dataset(folder / "rows").column("699").data<std::int8_t>()[2], 2);
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(TableWriter, KeepsColumnsNamedLikePartsOfOthers) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows",
                     Schema({text_column("x"), column("x.end", DType::int64),
                             column("shape", DType::int64), column("a/b", DType::int64)}));
  append(writer, {texts({"one", "three"}), fixed<std::int64_t>({7, 8}, 2),
                  fixed<std::int64_t>({1, 2}, 2), fixed<std::int64_t>({3, 4}, 2)});
  writer.commit();
  const Dataset ds(folder / "rows");
  const Batch batch = ds.rows(0, 2);
  EXPECT_EQ(batch.text("x", 1), "three");
  EXPECT_THAT(ints(batch.at("x.end")), ElementsAre(7, 8));
  EXPECT_THAT(ints(batch.at("shape")), ElementsAre(1, 2));
  EXPECT_THAT(ints(batch.at("a/b")), ElementsAre(3, 4));
}

TEST(TableWriter, AnAddedColumnIsNullInEarlierRows) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}));
  append(writer, {fixed<std::int64_t>({1, 2}, 2)});
  EXPECT_THROW(writer.add_columns({column("late", DType::float64)}), Error) << "not nullable";
  EXPECT_THROW(writer.add_columns({column("n", DType::float64)}), Error);
  Column late = column("late", DType::float64);
  late.nullable = true;
  writer.add_columns({late});
  Column name = text_column("name");
  name.nullable = true;
  writer.add_columns({name});
  append(writer, {fixed<std::int64_t>({3}, 1), fixed<double>({0.5}, 1), texts({"Ann"})});
  writer.commit();
  const Batch batch = Dataset(folder / "rows").rows(0, 3);
  const auto values = batch.at("late").span<double>();
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_EQ(values[2], 0.5);
  EXPECT_EQ(batch.text("name", 1), "");
  EXPECT_EQ(batch.text("name", 2), "Ann");
  EXPECT_EQ(batch.column("name").valid.raw_data()[1], std::byte{0});
}

TEST(TableWriter, MakesAColumnNullableWithoutRewritingIt) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}));
  append(writer, {fixed<std::int64_t>({1, 2}, 2)});
  ColumnBuilder missing = fixed<std::int64_t>({0}, 1);
  missing.valid = {0};
  EXPECT_THROW(append(writer, {missing}), Error);
  writer.make_nullable(0);
  append(writer, {missing});
  writer.commit();
  const Batch batch = Dataset(folder / "rows").rows(0, 3);
  EXPECT_THAT(ints(batch.at("n")), ElementsAre(1, 2, 0));
  EXPECT_EQ(batch.column("n").valid.raw_data()[1], std::byte{1});
  EXPECT_EQ(batch.column("n").valid.raw_data()[2], std::byte{0});
}

TEST(TableWriter, ConvertsAColumnBlockByBlock) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("n", DType::int64), text_column("s")}));
  constexpr std::int64_t kRows = 150'000;
  std::vector<std::int64_t> values(kRows);
  std::iota(values.begin(), values.end(), 0);
  append(writer, {fixed(values, kRows),
                  texts(std::vector<std::string>(static_cast<std::size_t>(kRows), "ab"))});
  int blocks = 0;
  writer.change_column(0, text_column("n"), [&](const ColumnChunk& block) {
    ++blocks;
    std::vector<std::string> made;
    for (std::int64_t row = 0; row < block.num_rows; ++row) {
      std::int64_t value = 0;
      std::memcpy(&value, block.values.data() + row * 8, 8);
      made.push_back(std::to_string(value));
    }
    return texts(made);
  });
  EXPECT_GT(blocks, 1);
  std::int64_t seen = 0;
  writer.change_column(1, column("s", DType::int64), [&](const ColumnChunk& block) {
    EXPECT_EQ(block.ends.back(), 2 * block.num_rows);
    EXPECT_EQ(block.values.size(), 2 * static_cast<std::size_t>(block.num_rows));
    std::vector<std::int64_t> made(static_cast<std::size_t>(block.num_rows));
    std::iota(made.begin(), made.end(), seen);
    seen += block.num_rows;
    return fixed(made, block.num_rows);
  });
  writer.commit();
  const Dataset ds(folder / "rows");
  const Batch batch = ds.rows(kRows - 1, kRows);
  EXPECT_EQ(batch.text("n", 0), "149999");
  EXPECT_THAT(ints(batch.at("s")), ElementsAre(149'999));
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(TableWriter, ConvertsRaggedStringsToBytes) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({text_column("tags", true)}));
  append(writer, {lists({{"red", ""}, {}, {"blue"}})});
  append(writer, {lists({{"x"}, {"yy", "zzz"}})});
  Column bytes = text_column("tags", true);
  bytes.kind = ColumnKind::bytes;
  writer.change_column(0, bytes, [](const ColumnChunk& block) {
    ColumnBuilder same;
    same.num_rows = block.num_rows;
    same.values.append(block.values);
    same.ends.assign(block.ends.begin(), block.ends.end());
    same.item_ends.assign(block.item_ends.begin(), block.item_ends.end());
    return same;
  });
  writer.commit();
  const Batch batch = Dataset(folder / "rows").rows(0, 5);
  EXPECT_THAT(ints(batch.column("tags").offsets), ElementsAre(0, 2, 2, 3, 4, 6));
  EXPECT_THAT(ints(batch.column("tags").item_offsets), ElementsAre(0, 3, 3, 7, 8, 10, 13));
}

TEST(TableWriter, ConvertsLongRaggedStringsInBlocksOfAFewMiB) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({text_column("docs", true)}));
  std::vector<std::vector<std::string>> rows;
  for (const char letter : {'a', 'b', 'c'}) {
    rows.push_back({std::string(kMiB, letter), std::string(kMiB, letter)});
    rows.emplace_back();
  }
  rows.push_back({std::string(5 * kMiB, 'd')});
  rows.push_back({"e"});
  append(writer, {lists(rows)});
  std::vector<std::size_t> sizes;
  writer.change_column(0, text_column("docs"), [&](const ColumnChunk& block) {
    sizes.push_back(block.values.size());
    std::vector<std::string> firsts;
    std::int64_t begin = 0;
    for (const std::int64_t end : block.ends) {
      const std::int64_t at = begin == 0 ? 0 : block.item_ends[static_cast<std::size_t>(begin - 1)];
      firsts.emplace_back(
          begin == end
              ? "-"
              : std::string(1, static_cast<char>(block.values[static_cast<std::size_t>(at)])));
      begin = end;
    }
    return texts(firsts);
  });
  EXPECT_THAT(sizes, ElementsAre(4 * kMiB, 2 * kMiB, 5 * kMiB, 1U));
  writer.commit();
  const Batch batch = Dataset(folder / "rows").rows(0, 8);
  std::string all;
  for (std::int64_t row = 0; row < 8; ++row) all += batch.text("docs", row);
  EXPECT_EQ(all, "a-b-c-de");
}

TEST(TableWriter, TheBuffersOfAddedColumnsShareTheMemoryOfTheFirst) {
  constexpr std::size_t kColumns = 200;
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({text_column("c0")}), {.durable = false});
  std::vector<Column> more;
  for (std::size_t i = 1; i < kColumns; ++i) {
    more.push_back(text_column(("c" + std::to_string(i)).c_str()));
    more.back().nullable = true;
  }
  writer.append(0, texts({std::string(kBytes, 'x')}).view());
  writer.add_columns(more);
  const ColumnBuilder rows = texts({std::string(kBytes, 'x')});
  for (std::size_t i = 0; i < kColumns; ++i) writer.append(i, rows.view());
  std::uintmax_t written = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) written += entry.file_size();
  }
  EXPECT_GE(written, (kColumns + 1) * kBytes - (std::size_t{16} << 20));
  writer.commit();
  EXPECT_EQ(Dataset(folder / "rows").rows(1, 2).text("c0", 0), std::string(kBytes, 'x'));
}

TEST(TableWriter, AppendsToOneColumnAfterAnother) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("n", DType::int64), text_column("s"),
                                              column("x", DType::int64)}));
  writer.append(0, fixed<std::int64_t>({1, 2}, 2).view());
  writer.append(0, fixed<std::int64_t>({3}, 1).view());
  EXPECT_EQ(writer.num_rows(), 3);
  writer.make_nullable(2);
  writer.append(1, texts({"a", "bc", ""}).view());
  ColumnBuilder holes = fixed<std::int64_t>({7, 0, 9}, 3);
  holes.valid = {1, 0, 1};
  writer.append(2, holes.view());
  writer.commit();
  const Dataset ds(folder / "rows");
  const Batch batch = ds.rows(0, 3);
  EXPECT_THAT(ints(batch.at("n")), ElementsAre(1, 2, 3));
  EXPECT_EQ(batch.text("s", 1), "bc");
  EXPECT_THAT(batch.column("x").valid.span<bool>(), ElementsAre(true, false, true));
}

TEST(TableWriter, RefusesToCommitColumnsOfDifferentLength) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows",
                     Schema({column("n", DType::int64), column("x", DType::int64)}));
  writer.append(0, fixed<std::int64_t>({1, 2}, 2).view());
  writer.append(1, fixed<std::int64_t>({1}, 1).view());
  try {
    writer.commit();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "column \"x\": rows: expected 2, as in other columns, found 1");
  }
  EXPECT_FALSE(fs::exists(folder / "rows"));
}

TEST(TableWriter, WritesTablesWithoutRowsOrColumns) {
  const test::TemporaryFolder folder;
  TableWriter(folder / "columns", Schema({column("x", DType::float32), text_column("s")})).commit();
  EXPECT_EQ(Dataset(folder / "columns").size(), 0);
  EXPECT_EQ(Dataset(folder / "columns").schema().size(), 2U);
  TableWriter(folder / "nothing", Schema()).commit();
  EXPECT_EQ(Dataset(folder / "nothing").size(), 0);
}

TEST(TableWriter, WritesNothingUnlessCommitted) {
  const test::TemporaryFolder folder;
  {
    TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}));
    append(writer, {fixed<std::int64_t>({1, 2}, 2)});
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(TableWriter, RefusesInconsistentChunks) {
  const test::TemporaryFolder folder;
  Column ragged = column("r", DType::int32);
  ragged.ragged = true;
  TableWriter writer(folder / "rows",
                     Schema({column("n", DType::int64), ragged, text_column("t", true)}));
  const ColumnBuilder n = fixed<std::int64_t>({1, 2}, 2);
  const ColumnBuilder r = tokens({{1}, {2, 3}});
  const ColumnBuilder t = lists({{"a"}, {"b", "c"}});
  const auto refused = [&](std::vector<ColumnBuilder> chunks) {
    EXPECT_THROW(append(writer, chunks), Error);
  };
  refused({n, r});
  refused({fixed<std::int64_t>({1}, 2), r, t});
  refused({fixed<std::int64_t>({1}, 1), r, t});
  ColumnBuilder bad = r;
  bad.ends = {2, 1};
  refused({n, bad, t});
  bad.ends = {1, 4};
  refused({n, bad, t});
  bad = t;
  bad.ends = {1, 2};
  refused({n, r, bad});
  bad = t;
  bad.item_ends.back() = 9;
  refused({n, r, bad});
  EXPECT_EQ(writer.num_rows(), 0);
  append(writer, {n, r, t});
  writer.commit();
  EXPECT_EQ(Dataset(folder / "rows").size(), 2);
}

void expect_exists_error(const fs::path& path, const TableWriterOptions& options,
                         const char* part) {
  try {
    TableWriter writer(path, Schema(), options);
    ADD_FAILURE() << "expected an error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.system_errno(), EEXIST);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(TableWriter, ReplacesOnlyTreesOfTenfold) {
  const test::TemporaryFolder folder;
  write_five(folder / "rows");
  expect_exists_error(folder / "rows", {.overwrite = false},
                      "to replace it, use the option overwrite");
  write_five(folder / "rows");
  std::ofstream(folder / "rows" / "mine.txt") << "mine";
  expect_exists_error(folder / "rows", {}, "\"mine.txt\"");
  std::ofstream(folder / "file") << "mine";
  expect_exists_error(folder / "file", {}, "found a file");
}

TEST(TableWriter, KeepsATextFileNextToTheColumns) {
  const test::TemporaryFolder folder;
  // The second data set replaces the first one, including its text file.
  for (int round = 0; round < 2; ++round) {
    TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}));
    append(writer, {fixed<std::int64_t>({1}, 1)});
    writer.append_text("bad_rows.jsonl", "{\"line\": 1}\n");
    writer.append_text("bad_rows.jsonl", "{\"line\": 2}\n");
    writer.commit();
  }
  std::ifstream text(folder / "rows" / "bad_rows.jsonl");
  std::string first;
  std::string second;
  std::getline(text, first);
  std::getline(text, second);
  EXPECT_EQ(first + second, "{\"line\": 1}{\"line\": 2}");
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(TableWriter, RefusesToCommitAfterAnAppendThatFailed) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("n", DType::int64)}));
  const ColumnBuilder rows = fixed(std::vector<std::int64_t>(1 << 19), 1 << 19);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(append(writer, {rows}), Error);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THROW(append(writer, {rows}), Error);
  try {
    writer.commit();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), (folder / "rows").string() +
                                ": expected no call after a failed write, found one; "
                                "start a new data set");
  }
  EXPECT_FALSE(fs::exists(folder / "rows"));
}

TEST(TableWriter, RefusesACommitWithAColumnAndARecordOfOneName) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema({column("a", DType::int64)}));
  Column added = column("a", DType::int64);
  added.path = {"a", "b"};
  writer.add_columns({added});
  EXPECT_THROW(writer.schema(), Error);
  EXPECT_THROW(writer.commit(), Error);
  EXPECT_FALSE(fs::exists(folder / "rows"));
}

TEST(TableWriter, RefusesASecondCommit) {
  const test::TemporaryFolder folder;
  TableWriter writer(folder / "rows", Schema());
  writer.commit();
  EXPECT_THROW(writer.commit(), Error);
}

}  // namespace
}  // namespace tenfold

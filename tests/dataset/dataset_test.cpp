#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

#include "core/tensor/cast.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/table_of.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> values_of(const Tensor& tensor) {
  const auto values = tensor.span<std::int64_t>();
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> ids_of(const Dataset& ds) {
  const Batch batch = ds.rows(0, ds.size());
  return values_of(batch.at("id"));
}

TEST(Dataset, GathersRowsOfEveryColumnInTheRequestedOrder) {
  const Dataset ds(test::numbers(10));
  const Batch batch = ds.rows(std::array<std::int64_t, 4>{7, 0, 7, 9});
  EXPECT_EQ(batch.num_rows(), 4);
  EXPECT_THAT(values_of(batch.at("id")), ElementsAre(7, 0, 7, 9));
  const auto x = batch.at("x").span<float>();
  EXPECT_THAT(std::vector<float>(x.begin() + 9, x.end()), ElementsAre(90, 91, 92));
  EXPECT_EQ(batch.at("x").shape(), (Shape{4, 3}));
}

TEST(Dataset, GathersRowsOfEverySize) {
  for (const std::int64_t width : {1, 2, 3, 4, 8, 15, 16, 31, 32, 64, 65, 300, 5000}) {
    constexpr std::int64_t kRows = 97;
    NodeInfo info;
    info.batch_size = {kRows};
    TensorDict tree(info);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kRows * width));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>(i * 31 % 251);
    tree.set("x", Tensor::from(std::span<const std::uint8_t>(bytes), {kRows, width}));
    std::vector<std::int64_t> rows(200);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<std::int64_t>(i * 37 % kRows);
    const Batch batch = Dataset(tree).rows(rows);
    const auto found = batch.at("x").span<std::uint8_t>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::int64_t k = 0; k < width; ++k) {
        ASSERT_EQ(found[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(k)],
                  bytes[static_cast<std::size_t>(rows[i] * width + k)]);
      }
    }
  }
}

/// The number of threads of this process. Those of the pool are kept until its end.
std::ptrdiff_t num_threads_now() {
  return std::ranges::distance(std::filesystem::directory_iterator("/proc/self/task"));
}

TEST(Dataset, ZeroThreadsAreTheDefaultNumber) {
  constexpr std::int64_t kRows = 200'000;
  const Dataset ds(test::numbers(kRows));
  ::setenv("TENFOLD_NUM_THREADS", "8", 1);
  static_cast<void>(ds.rows(0, kRows));
  EXPECT_LT(num_threads_now(), 8);
  const Batch batch = ds.rows(0, kRows, {.num_threads = 0});
  ::unsetenv("TENFOLD_NUM_THREADS");
  EXPECT_GE(num_threads_now(), 8);
  EXPECT_EQ(values_of(batch.at("id"))[kRows - 1], kRows - 1);
}

TEST(Dataset, GathersTheSameOnSeveralThreads) {
  const Dataset ds(test::numbers(60'000));
  std::vector<std::int64_t> rows(60'000);
  Permutation(60'000, 1).fill(0, rows);
  BatchOptions options;
  options.num_threads = 4;
  const Batch several = ds.rows(rows, options);
  EXPECT_EQ(values_of(several.at("id")), rows);
  EXPECT_EQ(several.at("x").span<float>()[3], static_cast<float>(rows[1] * 10));
}

TEST(Dataset, ReadsRaggedRows) {
  const Dataset ds(test::ragged());
  const Batch batch = ds.rows(std::array<std::int64_t, 3>{2, 1, 0});
  const auto tokens = batch.at("tokens").span<std::int32_t>();
  EXPECT_THAT(std::vector<std::int32_t>(tokens.begin(), tokens.end()), ElementsAre(3, 4, 5, 1, 2));
  EXPECT_THAT(values_of(batch.column("tokens").offsets), ElementsAre(0, 3, 3, 5));
  EXPECT_EQ(batch.text("name", 0), "");
  EXPECT_EQ(batch.text("name", 1), "Bobby");
  EXPECT_EQ(batch.text("name", 2), "Ann");
  EXPECT_THAT(values_of(batch.column("tags").offsets), ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(values_of(batch.column("tags").item_offsets), ElementsAre(0, 0, 3, 8));
  EXPECT_THAT(values_of(batch.at("age")), ElementsAre(50, 0, 30));
  EXPECT_EQ(batch.column("age").valid.raw_data()[1], std::byte{0});
  EXPECT_EQ(batch.column("age").valid.raw_data()[2], std::byte{1});
}

TEST(Dataset, RefusesTextOfOtherColumnsAndOfMissingRows) {
  const Batch batch = Dataset(test::ragged()).rows(0, 4);
  const auto message = [&](const char* column, std::int64_t row) -> std::string {
    try {
      static_cast<void>(batch.text(column, row));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("tags", 0),
            "batch: column \"tags\": expected one string or one bytes value for each row, found "
            "string, ragged");
  EXPECT_EQ(message("name", 4), "batch: column \"name\": expected a row in [0, 4), found 4");
}

TEST(Dataset, ReadsRaggedRowsOfStridedTensors) {
  const TensorDict tree = test::ragged();
  TensorDict strided(tree.info());
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto& leaf = std::get<Leaf>(item);
    Leaf apart(test::strided(leaf.tensor()));
    if (leaf.is_unbatched()) apart.mark_unbatched();
    strided.set(key, TensorDict::Item(std::move(apart)));
  });
  const Batch batch = Dataset(strided).rows(std::array<std::int64_t, 3>{2, 1, 0});
  EXPECT_THAT(batch.at("tokens").span<std::int32_t>(), ElementsAre(3, 4, 5, 1, 2));
  EXPECT_EQ(batch.text("name", 1), "Bobby");
  EXPECT_EQ(batch.text("name", 2), "Ann");
  EXPECT_THAT(values_of(batch.column("tags").item_offsets), ElementsAre(0, 0, 3, 8));
  EXPECT_EQ(test::text_of(batch.at("tags")), "redgreen");
  EXPECT_THAT(values_of(batch.at("age")), ElementsAre(50, 0, 30));
}

TEST(Dataset, DistinguishesMissingRaggedRowsFromEmptyOnes) {
  const test::TemporaryFolder folder;
  Column column;
  column.path = {"v"};
  column.dtype = DType::float32;
  column.ragged = column.nullable = true;
  Dataset ds = create(folder / "ds", Schema({column}), {});
  BatchColumn rows;
  rows.column = column;
  rows.values = Tensor::zeros(DType::float32, {2});
  rows.offsets = test::ints({0, 0, 0, 2});
  rows.valid = Tensor::zeros(DType::bool_, {3});
  rows.valid.mutable_raw_data()[1] = rows.valid.mutable_raw_data()[2] = std::byte{1};
  ds.append(Batch(3, {rows}));
  const Tensor valid = ds.rows(0, 3).column("v").valid;
  ASSERT_EQ(valid.dtype(), DType::bool_);
  EXPECT_EQ(valid.raw_data()[0], std::byte{0});
  EXPECT_EQ(valid.raw_data()[1], std::byte{1});
}

TEST(Dataset, NaNMarksAMissingFloatOfAnyWidth) {
  const test::TemporaryFolder folder;
  for (const DType dtype :
       {DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::float8_e5m2}) {
    Column column;
    column.path = {"x"};
    column.dtype = dtype;
    column.nullable = true;
    Dataset ds = create(folder / to_string(dtype), Schema({column}), {});
    BatchColumn rows;
    rows.column = column;
    rows.values = Tensor::zeros(dtype, {2});
    const double numbers[] = {std::nan(""), 1};
    cast_elements(DType::float64, reinterpret_cast<const std::byte*>(numbers), dtype,
                  rows.values.mutable_raw_data(), 2);
    ds.append(Batch(2, {rows}));
    EXPECT_EQ(ds.column("x.valid").raw_data()[0], std::byte{0}) << to_string(dtype);
    EXPECT_EQ(ds.column("x.valid").raw_data()[1], std::byte{1}) << to_string(dtype);
  }
}

TEST(Dataset, ShowsValidityAsABoolColumn) {
  const Dataset ds(test::ragged());
  const auto bits = [](const Tensor& tensor) {
    EXPECT_EQ(tensor.dtype(), DType::bool_);
    const std::byte* begin = tensor.raw_data();
    std::vector<int> made;
    for (std::int64_t i = 0; i < tensor.numel(); ++i)
      made.push_back(std::to_integer<int>(begin[i]));
    return made;
  };
  EXPECT_THAT(bits(ds.column("age.valid")), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(bits(ds.range(1, 3).column("age.valid")), ElementsAre(0, 1));
  const Dataset taken = ds.take(test::ints({2, 1, 2}));
  EXPECT_THAT(bits(taken.column("age.valid")), ElementsAre(1, 0, 1));
  const Dataset both[] = {taken, ds};
  EXPECT_THAT(bits(Dataset::concat(both).column("age.valid")), ElementsAre(1, 0, 1, 1, 0, 1, 0));
  const Dataset selected = ds.select({"age.valid", "age"});
  EXPECT_EQ(selected.schema().columns()[0].dtype, DType::bool_);
  EXPECT_FALSE(selected.schema().columns()[0].nullable);
  EXPECT_THAT(bits(selected.rows(0, 2).at("age.valid")), ElementsAre(1, 0));
  EXPECT_THAT(bits(selected.column("age.valid")), ElementsAre(1, 0, 1, 0));
  try {
    static_cast<void>(ds.column("name.valid"));
    FAIL() << "a column that misses no values";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
  }
}

TEST(Dataset, APadOfAColumnThatIsNotRaggedIsAnError) {
  const Dataset ds(test::ragged());
  for (const char* name : {"tokns", "name"}) {
    const BatchOptions options{.pad = {{name, std::int64_t{0}}}};
    try {
      static_cast<void>(ds.rows({0, 2}, options));
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::key_not_found);
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string("pad: column \"") + name + "\""));
      EXPECT_THAT(error.what(), testing::HasSubstr("ragged columns of numbers (\"tokens\""));
    }
    EXPECT_THROW(ds.rows(0, 2, options), Error);
    EXPECT_THROW(BatchLoader(ds, {.batch = options}), Error);
  }
}

TEST(Dataset, PadsToTheLongestRowOfTheBatch) {
  const Dataset ds(test::ragged());
  BatchOptions options;
  options.pad.emplace("tokens", std::int64_t{-100});
  const Batch batch = ds.rows(0, 4, options);
  const BatchColumn& tokens = batch.column("tokens");
  EXPECT_TRUE(tokens.is_padded);
  EXPECT_EQ(tokens.values.shape(), (Shape{4, 3}));
  const auto values = tokens.values.span<std::int32_t>();
  EXPECT_THAT(std::vector<std::int32_t>(values.begin(), values.end()),
              ElementsAre(1, 2, -100, -100, -100, -100, 3, 4, 5, 6, -100, -100));
  EXPECT_THAT(values_of(tokens.lengths), ElementsAre(2, 0, 3, 1));
  options.pad["tokens"] = std::int64_t{1} << 40;
  EXPECT_THROW(ds.rows(0, 4, options), Error) << "int32 does not hold it";
  options.pad["tokens"] = 1e-9;
  try {
    static_cast<void>(ds.rows(0, 4, options));
    FAIL() << "int32 does not hold it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "pad: column \"tokens\": expected a value that int32 can represent, found 1e-09");
  }
}

TEST(Dataset, RefusesANegativePaddingValueForUint64) {
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(R"({"columns": {"x": {"dtype": "uint64", "ragged": true}}})", "test");
  TensorDict tree(info);
  tree.set("x", TensorDict::Item(test::unbatched(Tensor::zeros(DType::uint64, {1}))));
  tree.set("x.end", test::ints({0, 1}));
  const Dataset ds(tree);
  BatchOptions options;
  options.pad_all = std::int64_t{-1};
  try {
    static_cast<void>(ds.rows(0, 2, options));
    FAIL() << "uint64 does not hold it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "pad: column \"x\": expected a value that uint64 can represent, found -1");
  }
  options.pad_all = std::int64_t{7};
  const Batch padded = ds.rows(0, 2, options);
  EXPECT_THAT(padded.at("x").span<std::uint64_t>(), ElementsAre(7, 0));
}

TEST(Dataset, PadsComplexNumbers) {
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(R"({"columns": {"z": {"dtype": "complex64", "ragged": true}}})", "test");
  TensorDict tree(info);
  const std::complex<float> one(1, 2);
  tree.set("z", TensorDict::Item(test::unbatched(Tensor::from(std::span(&one, 1)))));
  tree.set("z.end", test::ints({1, 1}));
  BatchOptions options;
  options.pad_all = std::int64_t{-3};
  const Batch batch = Dataset(tree).rows(0, 2, options);
  const auto padded = batch.at("z").span<std::complex<float>>();
  EXPECT_THAT(std::vector(padded.begin(), padded.end()), ElementsAre(one, std::complex<float>(-3)));
}

TEST(Dataset, RefusesInvalidEndOffsets) {
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{2, 1, 5, 6}, {-1, 2, 5, 6}, {2, 2, 5, 7}, {2, 2, INT64_MAX, 6}}) {
    TensorDict tree = test::ragged();
    tree.set("tokens.end", test::ints(ends));
    EXPECT_THROW(Dataset(tree).rows(0, 4), Error);
    TensorDict items = test::ragged();
    items.set("tags.item_end", TensorDict::Item(test::unbatched(test::ints({3, 2, 99, -4}))));
    EXPECT_THROW(Dataset(items).rows(0, 4), Error);
  }
}

TEST(Dataset, RefusesOffsetsWhoseSumOverflows) {
  constexpr std::int64_t kMany = std::int64_t{1} << 62;
  NodeInfo info;
  info.batch_size = {1};
  info.schema =
      from_json(R"({"columns": {"x": {"dtype": "uint8", "shape": [0], "ragged": true}}})", "test");
  TensorDict tree(info);
  tree.set("x", TensorDict::Item(test::unbatched(Tensor(DType::uint8, {kMany, 0}, Buffer()))));
  tree.set("x.end", test::ints({kMany}));
  const Dataset ds(tree);
  EXPECT_EQ(ds.rows(0, 1).at("x").shape(), (Shape{kMany, 0}));
  test::expect_error(ErrorCode::corrupt, "column \"x\": ends: the data set is damaged",
                     [&] { ds.rows(std::array<std::int64_t, 4>{0, 0, 0, 0}); });
}

TEST(Dataset, ComposesViews) {
  const Dataset ds(test::numbers(100));
  EXPECT_THAT(ids_of(ds.range(10, 14)), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(ids_of(ds.range(95, 1000)), ElementsAre(95, 96, 97, 98, 99));
  EXPECT_THAT(ids_of(ds.range(50, 20)), testing::IsEmpty());
  EXPECT_THAT(ids_of(ds.range(10, 20).take(test::ints({3, 3, 0})).range(1, 3)),
              ElementsAre(13, 10));
  Tensor mask = Tensor::zeros(DType::bool_, {5});
  mask.mutable_raw_data()[1] = mask.mutable_raw_data()[4] = std::byte{1};
  EXPECT_THAT(ids_of(ds.range(20, 25).filter(mask)), ElementsAre(21, 24));
  const Dataset one = ds.select({"id"});
  EXPECT_EQ(one.schema().size(), 1U);
  EXPECT_THAT(ids_of(one.range(1, 3)), ElementsAre(1, 2));
}

TEST(Dataset, TakesAnyNumberOfRowsInAnyOrder) {
  constexpr std::int64_t kRows = 1300;
  std::vector<std::int64_t> positions(kRows);
  for (std::int64_t i = 0; i < kRows; ++i) {
    positions[static_cast<std::size_t>(i)] = i * 611 % kRows;
  }
  const Dataset taken = Dataset(test::numbers(kRows)).take(test::ints(positions));
  EXPECT_EQ(ids_of(taken), positions);
}

TEST(Dataset, SplitsIntoPartsThatContainEveryRowOnce) {
  const Dataset ds(test::numbers(100));
  for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>{}, {3}}) {
    std::vector<std::int64_t> all;
    for (const Dataset& part : ds.split({70, 30, 0}, seed)) {
      for (const std::int64_t id : ids_of(part)) all.push_back(id);
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
  EXPECT_EQ(ids_of(ds.split({70, 30}, 3)[1])[0], Permutation(100, 3)[70]);
  EXPECT_THROW(ds.split({70, 31}), Error);
  EXPECT_THROW(ds.split({-1, 101}), Error);
}

TEST(Dataset, ShardsDifferByOneRowAtMost) {
  const Dataset ds(test::numbers(11));
  EXPECT_THAT(ids_of(ds.shard(0, 3)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids_of(ds.shard(1, 3)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ids_of(ds.shard(2, 3)), ElementsAre(8, 9, 10));
  EXPECT_THROW(ds.shard(3, 3), Error);
}

TEST(Dataset, JoinsDataSetsInOrder) {
  const std::array<Dataset, 3> parts = {Dataset(test::numbers(5)), Dataset(test::numbers(0)),
                                        Dataset(test::numbers(4, 100)).range(1, 4)};
  const Dataset joined = Dataset::concat(parts);
  EXPECT_THAT(ids_of(joined), ElementsAre(0, 1, 2, 3, 4, 101, 102, 103));
  const Batch batch = joined.rows(std::array<std::int64_t, 3>{7, 0, 5});
  EXPECT_THAT(values_of(batch.at("id")), ElementsAre(103, 0, 101));
  const std::array<Dataset, 2> twice = {joined, joined};
  EXPECT_EQ(Dataset::concat(twice).size(), 16);
  EXPECT_THAT(ids_of(Dataset::concat(twice).range(7, 10)), ElementsAre(103, 0, 1));
}

TEST(Dataset, ContainsEachTableOnceAfterRepeatedJoins) {
  const std::array<Dataset, 2> parts = {Dataset(test::numbers(2)), Dataset(test::numbers(2, 4))};
  Dataset joined = Dataset::concat(parts);
  for (int i = 0; i < 40; ++i) {
    const std::array<Dataset, 2> turned = {joined.range(2, 4), joined.range(0, 2)};
    joined = Dataset::concat(turned);
    ASSERT_EQ(state_of(joined)->parts.size(), 2U);
  }
  EXPECT_THAT(ids_of(joined), ElementsAre(0, 1, 4, 5));
  const std::array<Dataset, 3> mixed = {parts[1], joined, parts[0]};
  EXPECT_THAT(ids_of(Dataset::concat(mixed)), ElementsAre(4, 5, 0, 1, 4, 5, 0, 1));
}

TEST(Dataset, JoinsConsecutiveRangesToARange) {
  const Dataset ds(test::numbers(10));
  const Dataset around[] = {ds.range(2, 5), ds.range(7, 7), ds.range(5, 9), ds.range(0, 0)};
  const Dataset joined = Dataset::concat(around);
  EXPECT_THAT(ids_of(joined), ElementsAre(2, 3, 4, 5, 6, 7, 8));
  // The column of the joined data set is a view, like the column of a range.
  EXPECT_EQ(joined.column("id").raw_data(), ds.range(2, 9).column("id").raw_data());
  const Dataset turned[] = {ds.range(5, 9), ds.range(2, 5)};
  EXPECT_THAT(ids_of(Dataset::concat(turned)), ElementsAre(5, 6, 7, 8, 2, 3, 4));
  const Dataset nothing[] = {ds.range(3, 3), ds.range(0, 0)};
  EXPECT_EQ(Dataset::concat(nothing).size(), 0);
  const Dataset two[] = {ds, Dataset(test::numbers(3, 10))};
  EXPECT_THAT(ids_of(Dataset::concat(two).range(8, 12)), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(values_of(Dataset::concat(two).column("id")),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
}

TEST(Dataset, JoinsOnlyDataSetsWithTheSameColumns) {
  TensorDict other = test::numbers(3);
  other.set("id", Tensor::zeros(DType::int32, {3}));
  const std::array<Dataset, 2> parts = {Dataset(test::numbers(3)), Dataset(other)};
  try {
    Dataset::concat(parts);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("column \"id\": expected int64 [] in every data set, "
                                   "found int32 []"));
  }
}

TEST(Dataset, ADottedNameIsNotTheColumnOfARecordInAJoin) {
  TensorDict record = test::numbers(2);
  TensorDict both(record.info());
  both.set("a", record);
  const Dataset one(both);
  both.set("a.id", test::ints({7, 8}));
  const Dataset two(both);
  const auto message = [](const std::array<Dataset, 2>& parts) -> std::string {
    try {
      Dataset::concat(parts);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({one, two}), testing::HasSubstr("found the column in some of them only"));
  EXPECT_THAT(message({two, one}), testing::HasSubstr("column \"a.id\": expected int64 [] in every "
                                                      "data set, found none"));
}

/// One row of an int64 column "t" of that unit.
Dataset times_in(const std::string& unit) {
  NodeInfo info;
  info.batch_size = {1};
  info.schema = from_json(R"({"columns": {"t": {"dtype": "int64", "unit": ")" + unit + "\"}}}", "");
  TensorDict tree(info);
  tree.set("t", test::ints({0}));
  return Dataset(tree);
}

TEST(Dataset, NamesTheUnitsOfColumnsThatCannotBeJoined) {
  const std::array<Dataset, 2> parts = {times_in("us"), times_in("ms")};
  try {
    Dataset::concat(parts);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("expected int64 [], unit \"us\" in every data set, "
                                   "found int64 [], unit \"ms\""));
  }
}

TEST(Dataset, InterleavesSourcesUntilOneIsExhausted) {
  const std::array<Dataset, 2> sources = {Dataset(test::numbers(100)),
                                          Dataset(test::numbers(3, 100))};
  const Dataset mixed = Dataset::mix(sources, std::array<double, 2>{0.75, 0.25});
  const std::vector<std::int64_t> ids = ids_of(mixed);
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (const std::int64_t id : ids) (id < 100 ? first : second).push_back(id);
  EXPECT_THAT(second, ElementsAre(100, 101, 102));
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_GE(first.size(), 9U);
  EXPECT_LE(first.size(), 13U);
}

TEST(Dataset, ReadsSavedFoldersAndSafetensorsFiles) {
  const test::TemporaryFolder folder;
  for (const char* name : {"rows", "rows.safetensors"}) {
    save(test::numbers(50), folder / name);
    const Dataset ds(folder / name);
    EXPECT_EQ(ds.size(), 50);
    EXPECT_THAT(values_of(ds.rows(std::array<std::int64_t, 2>{49, 3}).at("id")),
                ElementsAre(49, 3));
    EXPECT_EQ(ds.column("id").data<std::int64_t>()[9], 9);
  }
  save(test::ragged(), folder / "ragged");
  EXPECT_EQ(Dataset(folder / "ragged").rows(0, 4).text("name", 3), "Zo\xC3\xAB");
}

TEST(Dataset, RefusesMissingRowsAndColumns) {
  const Dataset ds(test::numbers(10));
  EXPECT_THROW(ds.rows(std::array<std::int64_t, 1>{10}), Error);
  EXPECT_THROW(ds.rows(std::array<std::int64_t, 1>{-1}), Error);
  EXPECT_THROW(ds.rows(5, 11), Error);
  EXPECT_THROW(ds.take(test::ints({10})), Error);
  EXPECT_THROW(ds.filter(Tensor::zeros(DType::bool_, {9})), Error);
  try {
    ds.select({"y"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
    EXPECT_THAT(error.what(), testing::HasSubstr("expected one of \"x\", \"id\", \"flag\""));
  }
  EXPECT_THROW(Dataset(test::ragged()).column("tokens"), Error);
}

/// Joins ranges, selections and splits of two data sets with a data set that was itself joined.
TEST(Dataset, JoinsViewsOfTheSameAndOfOtherDataSets) {
  const Dataset a(test::numbers(50));
  const Dataset b(test::numbers(30, 1000));
  const Dataset both = Dataset::concat(std::array{a.range(10, 20), b});
  const std::vector<Dataset> parts = {a.range(5, 9),
                                      b.range(3, 6),
                                      a.take(test::ints({49, 0, 49})),
                                      both.range(8, 13),
                                      b,
                                      a.split({25, 25}, 3)[1],
                                      both,
                                      a};
  std::vector<std::int64_t> expected;
  for (const Dataset& part : parts) {
    const auto ids = ids_of(part);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  const Dataset joined = Dataset::concat(parts);
  EXPECT_EQ(ids_of(joined), expected);
  // The same rows in shuffled order.
  const Permutation order(joined.size(), 4);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(joined.size()));
  order.fill(0, positions);
  const Batch batch = joined.rows(positions);
  const auto ids = values_of(batch.at("id"));
  const auto x = batch.at("x").span<float>();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(ids[i], expected[static_cast<std::size_t>(positions[i])]);
    EXPECT_EQ(x[3 * i + 2], static_cast<float>(ids[i] * 10 + 2));
  }
  const Dataset mixed =
      Dataset::mix(std::array{a.range(0, 10), both, a.range(40, 50)}, std::array{1.0, 1.0, 1.0});
  EXPECT_EQ(mixed.size(), 30);
  for (const std::int64_t id : ids_of(mixed.range(0, 30))) {
    EXPECT_TRUE(id < 50 || id >= 1000);
  }
}

TEST(Dataset, ARecordHasNoSingleTensor) {
  const Dataset ds =
      Dataset(test::numbers(3)).rename({{"id", {"r", "id"}}, {"flag", {"r", "flag"}}});
  EXPECT_EQ(ds.column("r.id").numel(), 3);
  try {
    static_cast<void>(ds.column("r"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.expected(), "one column with rows of fixed size");
    EXPECT_EQ(error.found(), "2 columns");
  }
}

TEST(Dataset, SelectsRecordsByTheirWholeName) {
  const Dataset ds =
      Dataset(test::numbers(3)).rename({{"id", {"a.b", "id"}}, {"flag", {"a", "b", "flag"}}});
  EXPECT_EQ(ds.select({"a.b"}).schema().size(), 2U);
  EXPECT_EQ(ds.select({"a"}).schema().columns()[0].path, (KeyPath{"a", "b", "flag"}));
  EXPECT_EQ(ds.select({"a"}).schema().size(), 1U);
  try {
    static_cast<void>(ds.rename({{"a.b.flag", {"flag"}}}).select({"a"}));
    FAIL() << "there is no record \"a\"";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
  }
}

TEST(Dataset, RenamedColumnsAndRecordsKeepTheirRows) {
  const Dataset ds =
      Dataset(test::ragged()).rename({{"age", {"years"}}, {"name", {"who", "name"}}});
  EXPECT_EQ(ds.schema().columns()[3].path, (KeyPath{"years"}));
  EXPECT_EQ(ds.rows(0, 1).text("who.name", 0), "Ann");
  EXPECT_EQ(ds.select({"years.valid"}).rows(0, 4).columns()[0].values.numel(), 4);
  EXPECT_EQ(ds.rename({{"who", {"x"}}}).rows(0, 1).text("x.name", 0), "Ann");
  EXPECT_THROW(ds.rename({{"nobody", {"x"}}}), Error);
  try {
    static_cast<void>(ds.rename({{"years", {}}}));
    FAIL() << "an empty path";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
    EXPECT_STREQ(error.what(),
                 "data set: rename: new path of \"years\": expected at least one key, found none");
  }
  EXPECT_THROW(ds.rename({{"years", {"tokens"}}}), Error);
}

}  // namespace
}  // namespace tenfold

#include <tenfold/mapped_dict.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <tenfold/error.hpp>

#include "dataset/table_of.hpp"
#include "dict/dict_of.hpp"
#include "dict/index.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"
#include "support/warnings.hpp"

namespace tenfold {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using test::Words;

/// The columns x float32 [3], name string, tokens ragged int32.
Schema value_schema() {
  return Schema::from_json(
      R"({"columns": {"x": {"dtype": "float32", "shape": [3]}, "name": {"dtype": "string"},
                      "tokens": {"dtype": "int32", "ragged": true}}})",
      "test");
}

/// Returns rows [first, first + n) of the columns of value_schema(). In row i, x[k] is i * 10 + k,
/// name is "n<i>", and tokens contains the number i, repeated i % 3 times.
Batch values_of(std::int64_t first, std::int64_t n) {
  const Schema schema = value_schema();
  std::vector<float> x;
  std::string names;
  std::vector<std::int64_t> name_offsets = {0};
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> token_offsets = {0};
  for (std::int64_t i = first; i < first + n; ++i) {
    for (int k = 0; k < 3; ++k) x.push_back(static_cast<float>(i * 10 + k));
    names += "n" + std::to_string(i);
    name_offsets.push_back(static_cast<std::int64_t>(names.size()));
    tokens.insert(tokens.end(), static_cast<std::size_t>(i % 3), static_cast<std::int32_t>(i));
    token_offsets.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  std::vector<BatchColumn> columns(3);
  for (std::size_t i = 0; i < 3; ++i) columns[i].column = schema.columns()[i];
  columns[0].values = Tensor::from(std::span<const float>(x), {n, 3});
  columns[1].values = test::bytes_tensor(names);
  columns[1].offsets = test::ints(name_offsets);
  columns[2].values = Tensor::from(std::span<const std::int32_t>(tokens));
  columns[2].offsets = test::ints(token_offsets);
  return {n, std::move(columns)};
}

void build(const Path& path, std::int64_t n) {
  MappedDictBuilder builder(path, DictKeyType::string, value_schema());
  for (std::int64_t first = 0; first < n; first += 1000) {
    const std::int64_t count = std::min<std::int64_t>(1000, n - first);
    builder.append(Words(count, first).keys(), values_of(first, count));
  }
  builder.commit();
}

TEST(MappedDict, FindsEveryKeyAndNoOther) {
  const TemporaryFolder folder;
  constexpr std::int64_t kSize = 20'000;
  build(folder / "d", kSize);
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.size(), kSize);
  EXPECT_EQ(dict.key_type(), DictKeyType::string);
  EXPECT_EQ(dict.value_form(), DictValueForm::columns);
  const std::vector<std::int64_t> rows = dict.rows(Words(kSize + 500).keys());
  for (std::int64_t i = 0; i < kSize + 500; ++i) {
    ASSERT_EQ(rows[static_cast<std::size_t>(i)], i < kSize ? i : -1);
  }
  EXPECT_TRUE(dict.contains("key7"));
  EXPECT_FALSE(dict.contains("key"));
  EXPECT_FALSE(dict.contains(std::int64_t{7}));
  EXPECT_TRUE(dict.check().empty());
  EXPECT_TRUE(verify(folder / "d").ok());
}

TEST(MappedDict, ReturnsTheValuesOfAKey) {
  const TemporaryFolder folder;
  build(folder / "d", 100);
  const MappedDict dict(folder / "d");
  const Batch value = dict.at("key42");
  EXPECT_EQ(value.at("x").shape(), (Shape{1, 3}));
  EXPECT_EQ(value.at("x").data<float>()[2], 422.0F);
  EXPECT_EQ(value.text("name", 0), "n42");
  EXPECT_EQ(value.at("tokens").numel(), 0);
  expect_error(ErrorCode::key_not_found, "no key \"nobody\"", [&] { dict.at("nobody"); });
}

TEST(MappedDict, ReturnsZerosOrNothingForMissingKeys) {
  const TemporaryFolder folder;
  build(folder / "d", 100);
  const MappedDict dict(folder / "d");
  const std::array<std::string_view, 4> keys = {"key5", "none", "key2", "key5"};
  const DictValues got = dict.get_many(std::span<const std::string_view>(keys));
  EXPECT_EQ(got.found.raw_data()[1], std::byte{0});
  EXPECT_EQ(got.found.raw_data()[3], std::byte{1});
  const auto x = test::values<float>(got.values.at("x"));
  EXPECT_EQ(x[0], 50.0F);
  EXPECT_EQ(x[3], 0.0F);
  EXPECT_EQ(x[6], 20.0F);
  EXPECT_EQ(x[11], 52.0F);
  EXPECT_EQ(got.values.text("name", 0), "n5");
  EXPECT_EQ(got.values.text("name", 1), "");
  EXPECT_EQ(got.values.text("name", 3), "n5");
  EXPECT_EQ(got.values.column("tokens").offsets.span<std::int64_t>()[4], 6);
}

TEST(MappedDict, FindsTheSameRowsOnSeveralThreads) {
  const TemporaryFolder folder;
  constexpr std::int64_t kSize = 3'000;
  constexpr std::size_t kLookups = 40'000;
  build(folder / "d", kSize);
  const MappedDict dict(folder / "d");
  const Words words(kSize + 10);
  std::vector<std::string_view> keys;
  for (std::size_t i = 0; i < kLookups; ++i)
    keys.push_back(words.views[i * 7 % words.views.size()]);
  ::setenv("TENFOLD_NUM_THREADS", "4", 1);
  const DictValues got = dict.get_many(std::span<const std::string_view>(keys));
  ::unsetenv("TENFOLD_NUM_THREADS");
  const auto x = test::values<float>(got.values.at("x"));
  for (std::size_t i = 0; i < kLookups; ++i) {
    const std::size_t place = i * 7 % words.views.size();
    const bool is_there = place < static_cast<std::size_t>(kSize);
    ASSERT_EQ(got.found.raw_data()[i], static_cast<std::byte>(is_there ? 1 : 0)) << i;
    ASSERT_EQ(x[3 * i + 1], is_there ? static_cast<float>(place) * 10 + 1 : 0) << i;
    ASSERT_EQ(got.values.text("name", static_cast<std::int64_t>(i)),
              is_there ? "n" + std::to_string(place) : "");
  }
}

/// Checks get_many() of `num_asked` keys in a dictionary with key0 to key<size - 1>, made by
/// build_pairs(). The requested keys are every seventh of key0 to key<size + 4>, repeated
/// cyclically, so some of them do not exist.
void expect_pairs(const MappedDict& dict, std::int64_t size, std::size_t num_asked) {
  const Words words(size + 5);
  std::vector<std::string_view> keys;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < num_asked; ++i) {
    places.push_back(i * 7 % words.views.size());
    keys.push_back(words.views[places.back()]);
  }
  const DictValues got = dict.get_many(std::span<const std::string_view>(keys));
  ASSERT_EQ(got.values.num_rows(), static_cast<std::int64_t>(num_asked));
  const auto pairs = test::values<float>(got.values.at("value"));
  for (std::size_t i = 0; i < num_asked; ++i) {
    const bool is_there = places[i] < static_cast<std::size_t>(size);
    ASSERT_EQ(got.found.raw_data()[i], static_cast<std::byte>(is_there ? 1 : 0)) << i;
    const auto value = is_there ? static_cast<float>(places[i]) : 0.0F;
    ASSERT_EQ(pairs[2 * i], value) << i;
    ASSERT_EQ(pairs[2 * i + 1], -value) << i;
  }
}

TEST(MappedDict, ReturnsShortValuesInConsecutiveBatchesOfAnySize) {
  const TemporaryFolder folder;
  for (const std::int64_t size : {3, 2000}) {
    const Path path = folder / std::to_string(size);
    test::build_pairs(path, size);
    const MappedDict dict(path);
    for (const std::size_t num_asked : {0U, 1U, 2U, 63U, 64U, 65U, 128U, 129U, 256U, 1000U}) {
      for (int round = 0; round < 30; ++round) expect_pairs(dict, size, num_asked);
    }
    ::setenv("TENFOLD_NUM_THREADS", "4", 1);
    expect_pairs(dict, size, 40'000);
    ::unsetenv("TENFOLD_NUM_THREADS");
  }
}

TEST(MappedDict, ReturnsValuesToConcurrentThreads) {
  const TemporaryFolder folder;
  test::build_pairs(folder / "d", 1000);
  const MappedDict dict(folder / "d");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) expect_pairs(dict, 1000, 256);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MappedDict, ReturnsNullableShortValues) {
  const TemporaryFolder folder;
  const Schema schema = Schema::from_json(
      R"({"columns": {"n": {"dtype": "int32", "nullable": true}, "x": {"dtype": "float64"}}})",
      "test");
  std::vector<BatchColumn> columns(2);
  for (std::size_t i = 0; i < 2; ++i) columns[i].column = schema.columns()[i];
  const std::array<std::int32_t, 3> numbers = {7, 0, 9};
  const std::array<double, 3> x = {0.5, 1.5, 2.5};
  columns[0].values = Tensor::from(std::span<const std::int32_t>(numbers));
  columns[0].valid = Tensor::zeros(DType::bool_, {3});
  columns[0].valid.mutable_raw_data()[0] = columns[0].valid.mutable_raw_data()[2] = std::byte{1};
  columns[1].values = Tensor::from(std::span<const double>(x));
  MappedDictBuilder builder(folder / "d", DictKeyType::int64, schema);
  const std::array<std::int64_t, 3> keys = {10, 20, 30};
  builder.append(std::span<const std::int64_t>(keys), Batch(3, std::move(columns)));
  builder.commit();
  const std::array<std::int64_t, 5> asked = {30, 11, 12, 20, 10};
  const DictValues got = MappedDict(folder / "d").get_many(std::span<const std::int64_t>(asked));
  const BatchColumn& n = got.values.column("n");
  const std::vector<std::byte> valid(n.valid.raw_data(), n.valid.raw_data() + 5);
  constexpr std::byte kNo{0};
  constexpr std::byte kYes{1};
  EXPECT_EQ(valid, (std::vector{kYes, kNo, kNo, kNo, kYes}));
  EXPECT_EQ(n.values.span<std::int32_t>()[0], 9);
  EXPECT_EQ(n.values.span<std::int32_t>()[1], 0);
  EXPECT_EQ(n.values.span<std::int32_t>()[4], 7);
  const auto got_x = test::values<double>(got.values.at("x"));
  EXPECT_EQ(std::vector(got_x.begin(), got_x.end()), (std::vector{2.5, 0.0, 0.0, 1.5, 0.5}));
}

TEST(MappedDict, AcceptsIntegerAndBytesKeys) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> ints = {5, -1, std::numeric_limits<std::int64_t>::min(), 0};
  {
    MappedDictBuilder builder(folder / "i", DictKeyType::int64, test::pair_schema(), {},
                              DictValueForm::tensor);
    builder.append(std::span<const std::int64_t>(ints), test::pairs(0, 4));
    builder.commit();
  }
  const MappedDict numbers(folder / "i");
  EXPECT_EQ(numbers.rows(std::span<const std::int64_t>(ints)),
            (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_FALSE(numbers.contains(std::int64_t{7}));
  EXPECT_FALSE(numbers.contains("5"));
  EXPECT_EQ(numbers.at(-1).at("value").data<float>()[1], -1.0F);
  const std::array<std::string_view, 2> bytes = {std::string_view("\0\xff", 2), ""};
  {
    MappedDictBuilder builder(folder / "b", DictKeyType::bytes, test::pair_schema());
    builder.append(std::span<const std::string_view>(bytes), test::pairs(0, 2));
    builder.commit();
  }
  const MappedDict raw(folder / "b");
  EXPECT_TRUE(raw.contains(std::string_view("\0\xff", 2)));
  EXPECT_TRUE(raw.contains(""));
  EXPECT_FALSE(raw.contains(std::string_view("\0", 1)));
}

TEST(MappedDict, RefusesKeysOfAnotherType) {
  const TemporaryFolder folder;
  MappedDictBuilder strings(folder / "s", DictKeyType::string, test::pair_schema());
  expect_error(ErrorCode::invalid_argument,
               "key \"\\xff\": expected a string in UTF-8, found other bytes; build a dictionary",
               [&] { strings.append({std::string_view("\xff")}, test::pairs(0, 1)); });
  expect_error(ErrorCode::invalid_argument, "keys: expected str, found int64",
               [&] { strings.append({std::int64_t{1}}, test::pairs(0, 1)); });
  MappedDictBuilder numbers(folder / "n", DictKeyType::int64, test::pair_schema());
  expect_error(ErrorCode::invalid_argument, "keys: expected int, found str or bytes",
               [&] { numbers.append({std::string_view("a")}, test::pairs(0, 1)); });
}

TEST(MappedDict, RefusesColumnsThatDoNotFitTheFormOfTheValues) {
  const TemporaryFolder folder;
  const auto refuses = [&](const char* columns, const std::string& found) {
    const Schema schema = Schema::from_json(columns, "test");
    expect_error(
        ErrorCode::invalid_argument,
        "schema: expected one column \"value\" for values that are not dicts, found " + found, [&] {
          MappedDictBuilder(folder / "d", DictKeyType::string, schema, {}, DictValueForm::tensor);
        });
  };
  refuses(R"({"columns": {"x": {"dtype": "int64"}}})", "\"x\"");
  refuses(R"({"columns": {"x": {"dtype": "int64"}, "value": {"dtype": "int64"}}})", "2 columns");
  TensorDict tree = test::numbers(3);
  tree.info().schema = from_json(R"({"columns": {"key": {"dtype": "int64", "leaf": "id"},
      "x": {"dtype": "float32", "shape": [3]}},
      "mapped_dict": {"version": 1, "index": "id", "values": "tensor"}})",
                                 "test");
  expect_error(ErrorCode::corrupt,
               "schema: expected the one column \"value\" besides the keys, found \"x\"",
               [&] { MappedDict dict(tree); });
}

TEST(MappedDict, StoresTheFormOfItsValues) {
  const TemporaryFolder folder;
  const Schema numbers = Schema::from_json(R"({"columns": {"value": {"dtype": "int64"}}})", "test");
  for (const auto& [form, text] : {std::pair(DictValueForm::scalar, "scalar"),
                                   {DictValueForm::tensor, "tensor"},
                                   {DictValueForm::columns, "columns"}}) {
    const Path path = folder / text;
    MappedDictBuilder(path, DictKeyType::int64, numbers, {}, form).commit();
    EXPECT_EQ(MappedDict(path).value_form(), form);
    const TensorDict tree = load(path);
    const auto& schema = std::get<Value::Object>(tree.info().schema->data());
    EXPECT_EQ(to_json(*schema.find("mapped_dict")),
              R"({"version": 1, "index": "key.index", "values": ")" + std::string(text) + "\"}");
  }
}

TEST(MappedDict, MayBeEmpty) {
  const TemporaryFolder folder;
  build(folder / "d", 0);
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.size(), 0);
  EXPECT_FALSE(dict.contains(""));
  EXPECT_EQ(dict.get_many(Words(3).keys()).values.num_rows(), 3);
  EXPECT_TRUE(dict.check().empty());
}

TEST(MappedDict, RefusesDuplicateKeys) {
  const TemporaryFolder folder;
  MappedDictBuilder builder(folder / "d", DictKeyType::string, test::pair_schema());
  builder.append(Words(5).keys(), test::pairs(0, 5));
  builder.append(Words(1, 3).keys(), test::pairs(9, 1));
  expect_error(ErrorCode::invalid_argument,
               "key \"key3\": expected every key once, found it in "
               "rows 3 and 5",
               [&] { builder.commit(); });
  EXPECT_FALSE(std::filesystem::exists(folder / "d"));
}

TEST(MappedDict, KeepsTheLastValueOfAKey) {
  const TemporaryFolder folder;
  {
    MappedDictBuilder builder(folder / "d", DictKeyType::string, test::pair_schema(),
                              {.duplicates = DuplicateKeys::last});
    builder.append(Words(5).keys(), test::pairs(0, 5));
    builder.append(Words(2, 3).keys(), test::pairs(8, 2));
    builder.commit();
  }
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.size(), 5);
  EXPECT_EQ(dict.at("key3").at("value").data<float>()[0], 8.0F);
  EXPECT_EQ(dict.ordered_rows(), (std::vector<std::int64_t>{0, 1, 2, 5, 6}));
  EXPECT_FALSE(dict.is_dense());
  EXPECT_TRUE(dict.check().empty());
}

TEST(MappedDict, IsBuiltFromADataSet) {
  const TemporaryFolder folder;
  save(test::numbers(1000), folder / "t");
  build_mapped_dict(folder / "d", Dataset(folder / "t").shard(1, 2), "id");
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.size(), 500);
  EXPECT_EQ(dict.key_type(), DictKeyType::int64);
  EXPECT_FALSE(dict.contains(std::int64_t{499}));
  EXPECT_EQ(dict.at(500).at("x").data<float>()[1], 5001.0F);
  EXPECT_EQ(dict.dataset().schema().find("key")->dtype, DType::int64);
  expect_error(ErrorCode::invalid_argument, "column \"x\": expected keys",
               [&] { build_mapped_dict(folder / "e", Dataset(folder / "t"), "x"); });
}

TEST(MappedDict, OpensFromOneFile) {
  const TemporaryFolder folder;
  build(folder / "d", 300);
  convert(folder / "d", folder / "d.safetensors");
  convert(folder / "d", folder / "d.tdz");
  for (const char* file : {"d.safetensors", "d.tdz"}) {
    const MappedDict dict(folder / file);
    EXPECT_EQ(dict.at("key42").text("name", 0), "n42") << file;
    EXPECT_TRUE(dict.check().empty()) << file;
  }
}

TEST(MappedDict, FindsStridedKeysOfATreeInMemory) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> keys = {5, -1, 7};
  {
    MappedDictBuilder builder(folder / "d", DictKeyType::int64, test::pair_schema(), {},
                              DictValueForm::tensor);
    builder.append(keys, test::pairs(0, 3));
    builder.commit();
  }
  TensorDict tree = load(folder / "d");
  const TensorDict::Item item = tree.get("key");
  tree.set("key", test::strided(std::get<Leaf>(item).tensor()));
  const MappedDict dict(tree);
  EXPECT_EQ(dict.rows(keys), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(dict.at(7).at("value").data<float>()[0], 2.0F);
  EXPECT_TRUE(dict.check().empty());
}

TEST(MappedDict, ReadsAnIndexThatIsNotAligned) {
  const TemporaryFolder folder;
  test::build_pairs(folder / "d", 20);
  TensorDict tree = load(folder / "d");
  const TensorDict::Item item = tree.get("key.index");
  const Tensor index = std::get<Leaf>(item).tensor();
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(index.nbytes()) + 4);
  std::memcpy(bytes.mutable_data() + 4, index.raw_data(), static_cast<std::size_t>(index.nbytes()));
  Leaf shifted(Tensor(DType::int64, index.shape(), index.strides(), bytes, 4));
  shifted.mark_unbatched();
  tree.set("key.index", TensorDict::Item(shifted));
  const MappedDict dict(tree);
  EXPECT_EQ(test::pair_at(dict, "key19"), 19);
  EXPECT_FALSE(dict.contains("key20"));
  EXPECT_TRUE(dict.check().empty());
}

TEST(MappedDict, RefusesADataSetWithoutAnIndex) {
  const TemporaryFolder folder;
  save(test::numbers(10), folder / "t");
  expect_error(ErrorCode::invalid_argument,
               "expected a dictionary, found a data set without an index",
               [&] { MappedDict dict(folder / "t"); });
}

// --- damage ---

Path index_file(const Path& dict) { return dict / "%values" / "key.index.memmap"; }

std::vector<std::uint64_t> words_of(const Path& file) {
  std::vector<std::uint64_t> words(std::filesystem::file_size(file) / 8);
  std::ifstream(file, std::ios::binary)
      .read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * 8));
  return words;
}

void write_words(const Path& file, const std::vector<std::uint64_t>& words) {
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * 8));
}

TEST(MappedDict, NeverReturnsAnotherKeysRowWithADamagedIndex) {
  const TemporaryFolder folder;
  constexpr std::int64_t kSize = 500;
  build(folder / "d", kSize);
  const auto good = words_of(index_file(folder / "d"));
  std::mt19937_64 random(1);
  const Words words(kSize + 50);
  for (int round = 0; round < 20; ++round) {
    auto bad = good;
    for (std::size_t i = 0; i + 8 < bad.size(); ++i) {
      if (round % 4 == 0) {
        bad[i] = random();  // a random fingerprint and a random row
      } else if (round % 4 == 1) {
        bad[i] = (bad[i] & ~std::uint64_t{0xFFFF}) | (random() % 1000);
      } else if (round % 4 == 2) {
        bad[i] |= (std::uint64_t{1} << 40U) - 1;  // a row that is far too large
      } else if (random() % 2 == 0) {
        std::swap(bad[i], bad[random() % (bad.size() - 8)]);
      }
    }
    write_words(index_file(folder / "d"), bad);
    const MappedDict dict(folder / "d");
    const std::vector<std::int64_t> rows = dict.rows(words.keys());
    for (std::int64_t i = 0; i < kSize + 50; ++i) {
      const std::int64_t row = rows[static_cast<std::size_t>(i)];
      ASSERT_TRUE(row == -1 || (row == i && i < kSize)) << row << " for " << i;
    }
    EXPECT_FALSE(dict.check().empty()) << round;
  }
}

TEST(MappedDict, RefusesAnIndexThatDoesNotMatch) {
  const TemporaryFolder folder;
  build(folder / "d", 500);
  const Path file = index_file(folder / "d");
  const auto good = words_of(file);
  const auto refuses = [&](const std::vector<std::uint64_t>& words, const std::string& text) {
    write_words(file, words);
    expect_error(ErrorCode::corrupt, text, [&] { MappedDict dict(folder / "d"); });
  };
  const std::size_t header = good.size() - 8;
  auto bad = good;
  bad[header] ^= 1;
  refuses(bad, "checksum");
  bad = good;
  bad[header + 6] += 1;
  refuses(bad, "buckets: expected");
  bad = good;
  bad.resize(8);
  refuses(bad, "size: expected");
  bad = good;
  bad.push_back(0);
  refuses(bad, "size: expected");
  refuses({}, "");
}

TEST(MappedDict, ReportsAWrongNumberOfSupersededRows) {
  const TemporaryFolder folder;
  build(folder / "d", 500);
  const Path file = index_file(folder / "d");
  auto words = words_of(file);
  words[words.size() - kDictSlots + static_cast<std::size_t>(DictWord::dead_a)] = 2;
  write_words(file, words);
  const std::vector<Problem> problems = MappedDict(folder / "d").check();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].part, "index of the keys: number of keys");
  EXPECT_EQ(problems[0].what, "expected 500, found 498");
}

TEST(MappedDictBuilder, RefusesRowsAfterTheCommit) {
  const TemporaryFolder folder;
  MappedDictBuilder builder(folder / "d", DictKeyType::string, test::pair_schema(), {},
                            DictValueForm::tensor);
  builder.append(test::Words(2).keys(), test::pairs(0, 2));
  builder.commit();
  test::expect_error(ErrorCode::invalid_argument, "found a call after commit()",
                     [&] { builder.append(test::Words(1, 2).keys(), test::pairs(2, 1)); });
  EXPECT_EQ(MappedDict(folder / "d").size(), 2);
}

TEST(MappedDictBuilder, StoresNaNInFloatRowsDeclaredAsMissing) {
  const TemporaryFolder folder;
  const Schema schema = Schema::from_json(
      R"({"columns": {"value": {"dtype": "float32", "nullable": true}}})", "test");
  BatchColumn column;
  column.column = schema.columns()[0];
  column.values = Tensor::from(std::vector<float>{1, 2});
  column.valid = Tensor::zeros(DType::bool_, {2});
  column.valid.mutable_raw_data()[0] = std::byte{1};
  MappedDictBuilder builder(folder / "d", DictKeyType::int64, schema);
  builder.append({5, 6}, Batch(2, {column}));
  builder.commit();
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.at(5).at("value").data<float>()[0], 1.0F);
  EXPECT_TRUE(std::isnan(dict.at(6).at("value").data<float>()[0]));
}

TEST(MappedDictBuilder, RefusesScalarsOfAnotherShape) {
  const TemporaryFolder folder;
  test::expect_error(ErrorCode::invalid_argument, "of shape [] and not ragged", [&] {
    MappedDictBuilder(folder / "d", DictKeyType::string, test::pair_schema(), {},
                      DictValueForm::scalar);
  });
}

TEST(MappedDict, RebuildsTheIndexIfItsWriterLeftItWithoutTheNumberOfRows) {
  const TemporaryFolder folder;
  test::build_pairs(folder / "d", 50);
  const Path file = index_file(folder / "d");
  auto words = words_of(file);
  const std::size_t header = words.size() - kDictSlots;
  words[header + static_cast<std::size_t>(DictWord::writer)] = dict_boot();
  words[header + static_cast<std::size_t>(DictWord::num_rows_a)] = 49;
  write_words(file, words);
  const test::Warnings warnings;
  const MappedDict dict(folder / "d");
  EXPECT_EQ(dict.size(), 50);
  EXPECT_EQ(test::pair_at(dict, "key49"), 49);
  ASSERT_EQ(warnings.all().size(), 1U);
  EXPECT_NE(warnings.all()[0].find("the index of the keys does not fit the rows"),
            std::string::npos);
}

TEST(MappedDict, ReportsInvalidEndOffsetsOfItsKeys) {
  const TemporaryFolder folder;
  build(folder / "d", 500);
  const Path file = folder / "d" / "key.end.memmap";
  auto ends = words_of(file);
  for (const std::uint64_t bad : {std::uint64_t{1} << 63U, std::uint64_t{1} << 40U}) {
    auto damaged = ends;
    damaged[77] = bad;
    write_words(file, damaged);
    const MappedDict dict(folder / "d");
    expect_error(ErrorCode::corrupt, "key of row 7", [&] { dict.rows(Words(500).keys()); });
    ASSERT_FALSE(dict.check().empty());
  }
}

TEST(MappedDict, RefusesAnInvalidMappedDictMember) {
  const TemporaryFolder folder;
  const auto opened = [&](const char* member) {
    TensorDict tree = test::numbers(3);
    tree.info().schema = from_json(std::string(R"({"columns": {"key": {"dtype": "int64",
      "leaf": "id"}, "value": {"dtype": "float32", "shape": [3], "leaf": "x"}}, "mapped_dict": )") +
                                       member + "}",
                                   "test");
    return MappedDict(tree);
  };
  expect_error(ErrorCode::corrupt, "expected an object", [&] { opened("3"); });
  expect_error(ErrorCode::corrupt, "\"version\"", [&] { opened(R"({"index": "x"})"); });
  expect_error(ErrorCode::unsupported, "expected 1 at most, found 2",
               [&] { opened(R"({"version": 2, "index": "x", "values": "tensor"})"); });
  expect_error(ErrorCode::corrupt, "found none",
               [&] { opened(R"({"version": 1, "index": "there", "values": "tensor"})"); });
  expect_error(ErrorCode::corrupt, "size: expected",
               [&] { opened(R"({"version": 1, "index": "id", "values": "tensor"})"); });
  expect_error(ErrorCode::corrupt, "expected an unbatched int64 tensor, found float32",
               [&] { opened(R"({"version": 1, "index": "x", "values": "tensor"})"); });
  expect_error(ErrorCode::corrupt, "\"values\"",
               [&] { opened(R"({"version": 1, "index": "id", "values": "rows"})"); });
}

TEST(MappedDict, RefusesADictionaryWithoutAColumnOfKeys) {
  TensorDict tree = test::numbers(3);
  tree.info().schema = from_json(R"({"columns": {"id": {"dtype": "int64"},
      "x": {"dtype": "float32", "shape": [3]}},
      "mapped_dict": {"version": 1, "index": "id", "values": "columns"}})",
                                 "test");
  expect_error(ErrorCode::corrupt,
               "dictionary: column \"key\": expected the keys of the dictionary, found none",
               [&] { MappedDict dict(tree); });
}

TEST(MappedDict, AcceptsKeysOfEveryStringType) {
  const TemporaryFolder folder;
  build(folder / "d", 100);
  const MappedDict dict(folder / "d");
  const std::vector<std::string> strings = {"key5", "none"};
  const std::array<std::string_view, 2> views = {"key5", "none"};
  const DictKeys kept = {"key5", "none"};
  const std::vector<std::int64_t> rows = dict.rows({"key5", "none"});
  EXPECT_EQ(rows[1], -1);
  EXPECT_EQ(dict.rows(strings), rows);
  EXPECT_EQ(dict.rows(views), rows);
  EXPECT_EQ(dict.rows(kept), rows);
  EXPECT_EQ(dict.rows({5, 7}), (std::vector<std::int64_t>{-1, -1})) << "keys of the other type";
  const DictValues got = dict.get_many(strings);
  EXPECT_TRUE(got.found.at<bool>(0));
  EXPECT_FALSE(got.found.at<bool>(1));
  EXPECT_EQ(dict.at_rows({rows[0], -1}).num_rows(), 2);
}

}  // namespace
}  // namespace tenfold

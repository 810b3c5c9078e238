#include "dict/builder.hpp"

#include <tenfold/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

StoredKeys keys_of(const std::vector<std::int64_t>& numbers) {
  StoredKeys keys;
  keys.type = DictKeyType::int64;
  keys.values = reinterpret_cast<const std::byte*>(numbers.data());
  keys.num_bytes = numbers.size() * sizeof(std::int64_t);
  keys.num_rows = static_cast<std::int64_t>(numbers.size());
  keys.where = "keys";
  return keys;
}

DictIndex built(const StoredKeys& keys, const DictBuildOptions& options, std::uint64_t num_dead) {
  std::vector<std::byte> made;
  EXPECT_EQ(build_dict_index(keys, options,
                             [&](std::uint64_t offset_bytes, auto bytes) {
                               made.resize(static_cast<std::size_t>(offset_bytes));
                               made.insert(made.end(), bytes.begin(), bytes.end());
                             }),
            num_dead);
  Buffer buffer = Buffer::allocate(made.size());
  std::memcpy(buffer.mutable_data(), made.data(), made.size());
  return {buffer, "index"};
}

/// The last call of report().
struct LastReport : Monitor {
  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view) override {
    done = done_bytes;
    total = total_bytes;
  }
  bool stop() override { return false; }

  std::uint64_t done = 0;
  std::uint64_t total = 0;
};

std::optional<std::uint64_t> row_of(const DictIndex& index, const StoredKeys& keys,
                                    std::int64_t key) {
  DictIndex::Cursor cursor = index.find(dict_hash(key, index.seed()));
  while (const auto row = index.next(cursor)) {
    if (keys.is(static_cast<std::int64_t>(*row), key)) return row;
  }
  return std::nullopt;
}

TEST(DictBuilder, ReportsItsCompletion) {
  std::vector<std::int64_t> numbers(50'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  LastReport monitor;
  built(keys_of(numbers), {.monitor = &monitor}, 0);
  EXPECT_GT(monitor.total, numbers.size());
  EXPECT_EQ(monitor.done, monitor.total);
}

TEST(DictBuilder, FindsEveryKeyIfFewFitIntoMemory) {
  const test::TemporaryFolder folder;
  os::Directory spill = os::Directory::open(folder.path());
  std::vector<std::int64_t> numbers(20'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(i % 15'000) * 7;
  }
  const StoredKeys keys = keys_of(numbers);
  for (const std::size_t most : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
    const DictBuildOptions options{
        .duplicates = DuplicateKeys::last, .spill = &spill, .most_in_memory = most};
    const DictIndex index = built(keys, options, 5000);
    for (std::uint64_t i = 5000; i < numbers.size(); ++i) {
      ASSERT_EQ(row_of(index, keys, numbers[static_cast<std::size_t>(i)]), i) << most;
    }
    EXPECT_EQ(row_of(index, keys, 1), std::nullopt);
    EXPECT_TRUE(spill.list().empty());
  }
}

TEST(DictBuilder, NamesADuplicateKey) {
  const test::TemporaryFolder folder;
  os::Directory spill = os::Directory::open(folder.path());
  std::vector<std::int64_t> numbers(1000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
  numbers[900] = 77;
  const StoredKeys keys = keys_of(numbers);
  try {
    build_dict_index(keys, {.spill = &spill, .most_in_memory = 10},
                     [](std::uint64_t, std::span<const std::byte>) {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("key 77: expected every key once, found it in "
                                                   "rows 77 and 900"));
  }
  EXPECT_TRUE(spill.list().empty());
}

}  // namespace
}  // namespace tenfold

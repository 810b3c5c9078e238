#include "dataset/loader/residency.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/permutation.hpp>

#include "base/sanitizers.hpp"
#include "dataset/table_of.hpp"
#include "os/memory/advice.hpp"
#include "os/memory/mapping.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kRows = 200'000;

class ResidencyTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("TENFOLD_RESIDENCY"); }

  /// Returns a data set that is not in the page cache; empty if the file system cannot drop pages.
  std::optional<Dataset> cold() {
    const Path path = folder_ / "rows";
    if (!std::filesystem::exists(path)) save(test::numbers(kRows), path);
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (!os::drop_from_page_cache(os::File::open_read(entry.path()))) return std::nullopt;
    }
    return Dataset(path);
  }

  static std::string way_after_an_epoch(const Dataset& dataset) {
    BatchLoader loader(dataset, {.batch_size = 1000, .shuffle = true, .seed = 3});
    std::vector<std::int64_t> expected(kRows);
    Permutation(kRows, 3, 0).fill(0, expected);
    std::size_t next = 0;
    for (const Batch& batch : loader) {
      for (const std::int64_t id : batch.at("id").span<std::int64_t>()) {
        EXPECT_EQ(id, expected[next++]);
      }
    }
    EXPECT_EQ(next, expected.size());
    return loader.stats().residency;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ResidencyTest, PrefetchesNothingIfEverythingIsCached) {
  const Dataset dataset(test::numbers(kRows));
  EXPECT_EQ(way_after_an_epoch(dataset), "resident");
}

TEST_F(ResidencyTest, UsesMadviseUnlessOverridden) {
  auto dataset = cold();
  if (!dataset) GTEST_SKIP() << "the file system is in memory";
  EXPECT_EQ(way_after_an_epoch(*dataset), "willneed");
  for (const std::string way : {"pread", "none", "willneed"}) {
    ::setenv("TENFOLD_RESIDENCY", way.c_str(), 1);
    dataset = {};
    dataset = cold();
    ASSERT_TRUE(dataset);
    EXPECT_EQ(way_after_an_epoch(*dataset), way);
  }
}

#if !TENFOLD_TSAN
TEST_F(ResidencyTest, AForkedChildHasNoReaderThreads) {
  auto dataset = cold();
  if (!dataset) GTEST_SKIP() << "the file system is in memory";
  ::setenv("TENFOLD_RESIDENCY", "pread", 1);
  BatchLoader loader(*dataset, {.batch_size = 100, .shuffle = true, .num_threads = 1});
  auto stream = loader.start();
  for (int i = 0; i < 10; ++i) {
    const std::int64_t expected = loader.next(*stream)->at("id").span<std::int64_t>()[0];
    const std::int64_t next = Permutation(kRows, 0, 0)[(i + 1) * 100];
    ASSERT_EQ(expected, Permutation(kRows, 0, 0)[i * 100]);
    const pid_t child = ::fork();
    if (child == 0) {
      // The child has no thread that prefetches, and must not wait for one: the kernel reads the
      // pages on access.
      const bool same = loader.next(*stream)->at("id").span<std::int64_t>()[0] == next;
      stream.reset();
      ::_exit(same ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}
#endif

TEST_F(ResidencyTest, RefusesAnUnknownStrategy) {
  ::setenv("TENFOLD_RESIDENCY", "magic", 1);
  BatchLoader loader(Dataset(test::numbers(10)), {.batch_size = 2});
  try {
    loader.start();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "TENFOLD_RESIDENCY: expected willneed, pread or none, found \"magic\"");
  }
}

/// A quarter of the data set is not in the page cache.
TEST_F(ResidencyTest, FindsMissingPagesWithFurtherSamples) {
  auto dataset = cold();
  if (!dataset) GTEST_SKIP() << "the file system is in memory";
  const auto state = state_of(*dataset);
  for (const StoredColumn* column : state->parts[0].columns) {
    volatile std::byte sum{};
    const auto bytes = static_cast<std::size_t>(column->values.nbytes());
    os::expect_random_access({column->values.raw_data(), bytes}, true);  // without readahead
    for (std::size_t at = 0; at < bytes / 4 * 3; at += 1024) {
      sum = column->values.raw_data()[at];
    }
    static_cast<void>(sum);
  }
  Residency residency(*state, false);
  while (residency.sample_more()) {
  }
  EXPECT_TRUE(residency.is_needed());
}

void touch_all(const DatasetState& state) {
  volatile std::byte sum{};
  for (const StoredColumn* column : state.parts[0].columns) {
    for (std::size_t at = 0; at < column->values.nbytes(); at += 1024) {
      sum = column->values.raw_data()[at];
    }
  }
  static_cast<void>(sum);
}

TEST_F(ResidencyTest, StopsPrefetchingOnceEverythingIsCached) {
  auto dataset = cold();
  if (!dataset) GTEST_SKIP() << "the file system is in memory";
  const auto state = state_of(*dataset);
  Residency residency(*state, true);
  ASSERT_TRUE(residency.is_needed());
  std::vector<std::int64_t> rows(256);
  const Permutation order(kRows, 5, 0);
  const auto reconsider_often = [&] {
    for (std::int64_t batch = 0; batch < 200; ++batch) {
      order.fill(batch * 256, rows);
      residency.reconsider(rows, 0);
    }
  };
  // Nothing was prefetched yet.
  reconsider_often();
  EXPECT_TRUE(residency.is_needed());
  touch_all(*state);
  reconsider_often();
  EXPECT_FALSE(residency.is_needed());
  EXPECT_EQ(residency.strategy(), "willneed");
}

TEST_F(ResidencyTest, ResumesPrefetchingAfterMajorPageFaults) {
  const Path path = folder_ / "rows";
  save(test::numbers(kRows), path);
  const Dataset dataset(path);
  touch_all(*state_of(dataset));
  Residency residency(*state_of(dataset), true);
  ASSERT_FALSE(residency.is_needed());
  residency.note_waits(0, 256);
  EXPECT_FALSE(residency.is_needed());
  residency.note_waits(1, 100'000);
  EXPECT_FALSE(residency.is_needed());
  residency.note_waits(200, 256);
  EXPECT_TRUE(residency.is_needed());
}

/// Ragged columns: tokens int32 [1200] per row; tags, three strings of 2,000 bytes per row.
TensorDict unequal(std::int64_t rows) {
  NodeInfo info;
  info.batch_size = {rows};
  info.schema = from_json(
      R"({"columns": {"tokens": {"dtype": "int32", "ragged": true},
                      "tags": {"dtype": "string", "ragged": true}}})",
      "test");
  TensorDict tree(info);
  const auto ends = [](std::int64_t count, std::int64_t each) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 1; i <= count; ++i) values.push_back(i * each);
    return test::ints(values);
  };
  const auto set = [&](const char* key, Tensor tensor) {
    tree.set(key, TensorDict::Item(test::unbatched(std::move(tensor))));
  };
  set("tokens", Tensor::zeros(DType::int32, {rows * 1200}));
  tree.set("tokens.end", ends(rows, 1200));
  set("tags", Tensor::zeros(DType::uint8, {rows * 6000}));
  set("tags.item_end", ends(rows * 3, 2000));
  tree.set("tags.end", ends(rows, 3));
  return tree;
}

/// Drops the files below a folder from the page cache. Returns false if the file system cannot.
bool drop_all(const Path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (!os::drop_from_page_cache(os::File::open_read(entry.path()))) return false;
  }
  return true;
}

/// Waits up to 5 s for pages that are being prefetched.
bool becomes_resident(std::span<const std::byte> bytes) {
  for (int i = 0; i < 500 && !os::is_resident(bytes); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return os::is_resident(bytes);
}

TEST_F(ResidencyTest, PrefetchesNothingOfADataSetInMemoryAfterOtherPageFaults) {
  const Dataset dataset(unequal(100));
  Residency residency(*state_of(dataset), true);
  residency.note_waits(1'000'000, 10);
  EXPECT_FALSE(residency.is_needed());
  const std::vector<std::int64_t> rows = {7, 50};
  residency.prefetch(rows, 0);
  residency.reconsider(rows, 0);
}

TEST_F(ResidencyTest, PrefetchesRaggedRowsByTheirEndOffsets) {
  const Path path = folder_ / "unequal";
  save(unequal(2000), path);
  if (!drop_all(path)) GTEST_SKIP() << "the file system is in memory";
  const Dataset dataset(path);
  const auto state = state_of(dataset);
  const auto bytes_of = [&](std::size_t column, std::size_t row, std::size_t row_bytes) {
    const Tensor& values = state->parts[0].columns[column]->values;
    return std::span<const std::byte>(values.raw_data() + row * row_bytes, row_bytes);
  };
  Residency residency(*state, true);
  ASSERT_TRUE(residency.is_needed());
  ASSERT_EQ(residency.num_stages(), 3);
  const std::vector<std::int64_t> rows = {7, 1500};
  residency.prefetch(rows, 0);
  residency.prefetch(rows, 1);
  EXPECT_TRUE(becomes_resident(bytes_of(0, 7, 4800)));
  EXPECT_TRUE(becomes_resident(bytes_of(0, 1500, 4800)));
  EXPECT_FALSE(os::is_resident(bytes_of(1, 7, 6000)));
  residency.prefetch(rows, 2);
  EXPECT_TRUE(becomes_resident(bytes_of(1, 7, 6000)));
  EXPECT_TRUE(becomes_resident(bytes_of(1, 1500, 6000)));
  // Nothing else was prefetched.
  EXPECT_FALSE(os::is_resident(bytes_of(0, 1000, 4800)));
  EXPECT_FALSE(os::is_resident(bytes_of(1, 1000, 6000)));
}

TEST_F(ResidencyTest, IgnoresInvalidEndOffsetsWhenPrefetching) {
  TensorDict tree = unequal(2000);
  const Tensor offsets = std::get<Leaf>(tree.get("tokens.end")).tensor();
  auto* ends = offsets.mutable_data<std::int64_t>();
  ends[7] = std::int64_t{1} << 60;
  ends[8] = -5;
  const Path path = folder_ / "damaged";
  save(tree, path);
  for (const std::string way : {"pread", "willneed"}) {
    ::setenv("TENFOLD_RESIDENCY", way.c_str(), 1);
    const bool is_cold = drop_all(path);  // otherwise no strategy is chosen
    const Dataset dataset(path);
    Residency residency(*state_of(dataset), true);
    if (is_cold) {
      EXPECT_EQ(residency.strategy(), way);
    }
    const std::vector<std::int64_t> rows = {6, 7, 8, 9};
    for (int stage = 0; stage < residency.num_stages(); ++stage) residency.prefetch(rows, stage);
    EXPECT_THROW(dataset.rows(rows), Error);
  }
}

}  // namespace
}  // namespace tenfold

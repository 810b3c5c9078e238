#include "stores/residency.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/permutation.hpp>

#include "os/page_cache.hpp"
#include "os/paging.hpp"
#include "stores/table_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kRows = 200'000;

class ResidencyTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("TENFOLD_RESIDENCY"); }

  /// A data set of which nothing is in memory; nothing where the file system cannot forget.
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

TEST_F(ResidencyTest, AsksForNothingIfAllIsInMemory) {
  const Dataset dataset(test::numbers(kRows));
  EXPECT_EQ(way_after_an_epoch(dataset), "resident");
}

TEST_F(ResidencyTest, AdvisesTheKernelUnlessItIsToldAnotherWay) {
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

#if !defined(__SANITIZE_THREAD__)
TEST_F(ResidencyTest, LeavesTheThreadsThatReadToTheParentOfAFork) {
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
      // What is not read ahead comes when it is touched; nobody is waited for.
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

TEST_F(ResidencyTest, RefusesAWayThatIsNone) {
  ::setenv("TENFOLD_RESIDENCY", "magic", 1);
  BatchLoader loader(Dataset(test::numbers(10)), {.batch_size = 2});
  try {
    loader.start();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "batch loader: TENFOLD_RESIDENCY: expected willneed, pread or none, found "
                 "\"magic\"");
  }
}

/// A quarter is not there.
TEST_F(ResidencyTest, FindsWhatIsMissingByAFurtherLookAtTheLatest) {
  auto dataset = cold();
  if (!dataset) GTEST_SKIP() << "the file system is in memory";
  const auto state = dataset->state();
  for (const StoredColumn* column : state->parts[0].columns) {
    volatile std::byte sum{};
    const auto bytes = static_cast<std::size_t>(column->values.nbytes());
    os::expect_random_access({column->values.raw_data(), bytes}, true);  // and nothing beside them
    for (std::size_t at = 0; at < bytes / 4 * 3; at += 1024) {
      sum = column->values.raw_data()[at];
    }
    static_cast<void>(sum);
  }
  Residency residency(*state, false);
  residency.look_closer();
  EXPECT_TRUE(residency.is_needed());
}

}  // namespace
}  // namespace tenfold

#include "io/read_ahead.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include <tenfold/io.hpp>

#include "os/memory/advice.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kLargeNumel = std::int64_t{5} << 20;

/// A tree of 2 x 20 MiB, and a small leaf.
TensorDict large_tree() {
  TensorDict tree;
  for (const char* key : {"a", "b"}) {
    Tensor tensor(DType::int32, {kLargeNumel}, Buffer::allocate(kLargeNumel * 4));
    std::memset(tensor.mutable_raw_data(), key[0], kLargeNumel * 4);
    tree.set(key, tensor);
  }
  tree.set("small", Tensor(DType::uint8, {3}, Buffer::allocate(3)));
  return tree;
}

void forget_cached(const Path& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const os::File file = os::File::open_read(entry.path());
    EXPECT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }
}

bool eventually_resident(const Tensor& tensor) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!os::is_resident(tensor.buffer().bytes())) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class ReadAheadTest : public ::testing::TestWithParam<const char*> {
 protected:
  test::TemporaryFolder folder_;
};

TEST_P(ReadAheadTest, LoadPrefetchesWithoutAccesses) {
  const Path path = folder_ / GetParam();
  save(large_tree(), path);
  forget_cached(folder_.path());
  const TensorDict loaded = load(path);
  for (const char* key : {"a", "b"}) {
    const Tensor tensor = loaded.at(key);
    EXPECT_TRUE(eventually_resident(tensor));
    EXPECT_EQ(tensor.raw_data()[tensor.nbytes() - 1], static_cast<std::byte>(key[0]));
  }
}

TEST_P(ReadAheadTest, ATreeMayBeDestroyedDuringPrefetch) {
  const Path path = folder_ / GetParam();
  save(large_tree(), path);
  for (int i = 0; i < 20; ++i) {
    forget_cached(folder_.path());
    load(path);
  }
}

TEST_P(ReadAheadTest, AFileMayBeTruncatedDuringPrefetch) {
  const Path path = folder_ / GetParam();
  save(large_tree(), path);
  forget_cached(folder_.path());
  const TensorDict loaded = load(path);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 100);
  }
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(loaded.keys().size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Formats, ReadAheadTest, testing::Values("folder", "one.safetensors"));

TEST(ReadAhead, IsUsedForLargeDataThatFitsIntoMemoryExceptInModeWriteThrough) {
  const std::uint64_t much = std::uint64_t{64} << 20;
  EXPECT_TRUE(ReadAhead::is_worthwhile(much, Mode::read));
  EXPECT_TRUE(ReadAhead::is_worthwhile(much, Mode::copy_on_write));
  EXPECT_FALSE(ReadAhead::is_worthwhile(much, Mode::write_through));
  EXPECT_FALSE(ReadAhead::is_worthwhile(1000, Mode::read));
  EXPECT_FALSE(ReadAhead::is_worthwhile(std::uint64_t{1} << 60, Mode::read));
}

}  // namespace
}  // namespace tenfold

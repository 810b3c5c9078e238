#include "formats/shared/leaf_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "os/fs/directory.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

constexpr std::uint64_t kBlock = base::kChecksumBlockBytes;

Tensor counting(std::int64_t num_elements) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(num_elements));
  std::iota(values.begin(), values.end(), 7);
  return Tensor::from(std::span<const std::int32_t>(values));
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.buffer().data(), static_cast<std::size_t>(tensor.numel()) * 4};
}

/// A test that writes leaves consecutively to one file, from byte 13 on, so that no leaf is
/// aligned.
class LeafWriterTest : public ::testing::Test {
 protected:
  std::vector<LeafWrite> write(const std::vector<Leaf>& leaves, BlockChecksum checksum,
                               int num_threads) {
    std::vector<LeafWrite> writes;
    std::uint64_t offset = 13;
    for (const Leaf& leaf : leaves) {
      writes.push_back({&leaf, &file_, offset, leaf.nbytes(), {}});
      offset += leaf.nbytes();
    }
    Progress progress(nullptr, offset - 13, "saving");
    write_leaves(writes, checksum, num_threads, progress);
    EXPECT_EQ(progress.done_bytes(), offset - 13);
    return writes;
  }
  std::vector<std::byte> read(const LeafWrite& write) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(write.size_bytes));
    file_.read_at(write.file_offset_bytes, bytes);
    return bytes;
  }

  TemporaryFolder folder_;
  os::Directory directory_ = os::Directory::open(folder_.path());
  os::File file_ = os::File::create_at(directory_, "x");
};

TEST_F(LeafWriterTest, WritesEveryByteAndTheChecksumOfEveryBlock) {
  // The sizes in bytes are just below, at and above the limits in leaf_writer.cpp: 512 KiB for
  // writes that are not combined with others, 2 MiB for one write, and 16 MiB for a block with a
  // checksum. There are also empty leaves, many small ones, and one of three blocks (36 MB).
  std::vector<Leaf> leaves;
  for (const std::int64_t n :
       {0, 1, 131071, 131072, 131073, 524287, 524288, 524289, 4194303, 4194304, 4194305, 9000000}) {
    leaves.emplace_back(counting(n));
  }
  for (int i = 0; i < 300; ++i) leaves.emplace_back(counting(i));
  for (const int threads : {1, 2, 5}) {
    const std::vector<LeafWrite> writes = write(leaves, BlockChecksum::xxh3, threads);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const auto expected = bytes_of(leaves[i].tensor());
      const auto found = read(writes[i]);
      ASSERT_EQ(found.size(), expected.size()) << "leaf " << i;
      if (!found.empty()) {
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size()), 0) << "leaf " << i;
      }
      const std::size_t num_blocks = (expected.size() + kBlock - 1) / kBlock;
      ASSERT_EQ(writes[i].block_checksums.size(), num_blocks);
      for (std::size_t b = 0; b < num_blocks; ++b) {
        const std::size_t begin = b * kBlock;
        const auto block = expected.subspan(begin, std::min(kBlock, expected.size() - begin));
        EXPECT_EQ(writes[i].block_checksums[b], base::xxh3(block));
      }
    }
  }
}

TEST_F(LeafWriterTest, WritesAStridedTensorAsItsContiguousCopy) {
  const Tensor base = counting(3000 * 1000);
  const Leaf transposed(Tensor(DType::int32, {1000, 3000}, {1, 1000}, base.buffer(), 0));
  const auto writes = write({transposed}, BlockChecksum::xxh3, 2);
  const auto found = read(writes[0]);
  const auto* values = reinterpret_cast<const std::int32_t*>(found.data());
  for (const std::size_t row : {0U, 1U, 999U}) {
    for (const std::size_t column : {0U, 1U, 2999U}) {
      ASSERT_EQ(values[row * 3000 + column], static_cast<std::int32_t>(column * 1000 + row + 7));
    }
  }
  EXPECT_EQ(writes[0].block_checksums[0], base::xxh3(std::span(found).first(found.size())));
}

TEST_F(LeafWriterTest, DisabledChecksumsAreNotComputed) {
  EXPECT_TRUE(write({Leaf(counting(10))}, BlockChecksum::none, 1)[0].block_checksums.empty());
}

TEST_F(LeafWriterTest, ChecksumOfReadsTheRange) {
  const Leaf leaf(counting(9'000'000));
  const auto writes = write({leaf}, BlockChecksum::none, 2);
  const auto expected = bytes_of(leaf.tensor());
  EXPECT_EQ(checksum_of(file_, 13, leaf.nbytes(), nullptr), base::xxh3(expected));
  EXPECT_EQ(checksum_of(file_, 17, 1000, nullptr), base::xxh3(expected.subspan(4, 1000)));
  EXPECT_EQ(checksum_of(file_, 13, 0, nullptr), base::xxh3({}));
}

TEST_F(LeafWriterTest, CheckBlocksReportsDifferencesInTheOrderOfTheBlocks) {
  const Leaf leaf(counting(5'000'000));
  const auto writes = write({leaf}, BlockChecksum::xxh3, 2);
  std::vector<BlockCheck> blocks;
  for (std::uint64_t begin = 0; begin < leaf.nbytes(); begin += kBlock) {
    blocks.push_back({&file_, 13 + begin, std::min(kBlock, leaf.nbytes() - begin),
                      writes[0].block_checksums[static_cast<std::size_t>(begin / kBlock)],
                      "tensor \"w\""});
  }
  blocks.push_back({&file_, 13, 40'000'000, 0, "tensor \"far\""});
  const std::byte flipped[] = {std::byte{0xff}};
  file_.write_at(13 + kBlock, flipped);
  Progress progress(nullptr, leaf.nbytes(), "verifying");
  const auto problems = check_blocks(blocks, 2, progress);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].path, (folder_ / "x").string());
  EXPECT_EQ(problems[0].part, "tensor \"w\"");
  EXPECT_THAT(problems[0].what, HasSubstr("the checksum of 3222784 bytes at offset 16777229 "
                                          "differs: expected "));
  EXPECT_EQ(problems[1].part, "tensor \"far\"");
  EXPECT_EQ(problems[1].what,
            "the file is too short: expected at least 40000013 bytes, found 20000013; it may be "
            "truncated");
}

class CountingMonitor : public Monitor {
 public:
  explicit CountingMonitor(int stop_after) : stop_after_(stop_after) {}
  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view) override {
    EXPECT_EQ(std::this_thread::get_id(), caller_);
    EXPECT_GE(done_bytes, last_bytes_);
    EXPECT_LE(done_bytes, total_bytes);
    last_bytes_ = done_bytes;
    ++num_reports;
  }
  bool stop() override { return num_reports > stop_after_; }
  int num_reports = 0;

 private:
  std::thread::id caller_ = std::this_thread::get_id();
  int stop_after_;
  std::uint64_t last_bytes_ = 0;
};

TEST_F(LeafWriterTest, StopsWhenTheMonitorCancels) {
  CountingMonitor monitor(0);
  const Leaf leaf(counting(1000));
  std::vector<LeafWrite> writes = {{&leaf, &file_, 0, leaf.nbytes(), {}}};
  Progress progress(&monitor, leaf.nbytes(), "saving x");
  try {
    write_leaves(writes, BlockChecksum::xxh3, 2, progress);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.system_errno(), ECANCELED);
    EXPECT_THAT(error.what(), HasSubstr("saving x: stopped by the caller"));
  }
}

/// Cancels as soon as a part of the bytes is written.
class ImpatientMonitor : public Monitor {
 public:
  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view) override {
    is_halfway_ = done_bytes > 0 && done_bytes < total_bytes;
  }
  bool stop() override { return is_halfway_; }

 private:
  bool is_halfway_ = false;
};

TEST_F(LeafWriterTest, StopsWithinOneLargeFile) {
  ImpatientMonitor monitor;
  const Leaf leaf(counting(std::int64_t{12} << 20));
  std::vector<LeafWrite> writes = {{&leaf, &file_, 0, leaf.nbytes(), {}}};
  Progress progress(&monitor, leaf.nbytes(), "saving x");
  EXPECT_THROW(write_leaves(writes, BlockChecksum::xxh3, 1, progress), Error);
  EXPECT_LT(file_.size_bytes(), leaf.nbytes());
}

TEST(ProgressTest, ReportsAtMostEvery50MillisecondsAndTheEnd) {
  CountingMonitor monitor(1000);
  Progress progress(&monitor, 1000, "saving");
  const auto begin = std::chrono::steady_clock::now();
  while (monitor.num_reports < 3) progress.poll();
  progress.add(1000);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(monitor.num_reports, 1 + took / std::chrono::milliseconds(50));
  const int before = monitor.num_reports;
  progress.finish();
  EXPECT_EQ(monitor.num_reports, before + 1);
}

TEST(ProgressTest, ATotalThatWasEstimatedTooSmallGrows) {
  CountingMonitor monitor(1000);
  Progress progress(&monitor, 10, "saving");
  progress.add(1000);
  progress.poll();
  progress.finish();
  EXPECT_EQ(monitor.num_reports, 2);
}

}  // namespace
}  // namespace tenfold

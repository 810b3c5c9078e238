#include "dict/index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

constexpr std::uint64_t kMaxFingerprint = (std::uint64_t{1} << kDictFingerprintBits) - 1;

DictIndex empty_index(std::uint64_t num_home) {
  const std::uint64_t num_buckets = num_home + kDictTailBuckets + 1;
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(num_buckets) * kDictBucketBytes);
  auto* const words = reinterpret_cast<std::uint64_t*>(bytes.mutable_data());
  write_dict_header(DictBucket(words + (num_buckets - 1) * kDictSlots, kDictSlots), 7, num_home, 0,
                    0);
  return DictIndex(std::move(bytes), "test");
}

std::vector<std::uint64_t> rows_of(const DictIndex& index, std::uint64_t hash) {
  std::vector<std::uint64_t> rows;
  DictIndex::Cursor cursor = index.find(hash);
  while (const auto row = index.next(cursor)) rows.push_back(*row);
  return rows;
}

#if defined(__SSE2__)
TEST(DictIndex, MatchesSlotsWithSse2AsWithScalarCode) {
  std::mt19937_64 random(1);
  const std::array<std::uint64_t, 6> fingerprints = {
      0, 1, kMaxFingerprint, kMaxFingerprint >> 1U, (kMaxFingerprint >> 1U) + 1, 0x800001};
  for (int round = 0; round < 20'000; ++round) {
    std::array<std::uint64_t, kDictSlots> slots{};
    for (std::uint64_t& slot : slots) {
      const std::uint64_t fingerprint =
          random() % 4 == 0 ? random() : fingerprints[random() % fingerprints.size()];
      slot = random() % 8 == 0 ? 0 : dict_slot(fingerprint, random() % kDictMaxRows);
    }
    for (const std::uint64_t wanted : fingerprints) {
      ASSERT_EQ(dict_matches_sse2(slots.data(), wanted), dict_matches_scalar(slots.data(), wanted));
    }
    const std::uint64_t wanted = random() & kMaxFingerprint;
    ASSERT_EQ(dict_matches_sse2(slots.data(), wanted), dict_matches_scalar(slots.data(), wanted));
  }
}
#endif

TEST(DictIndex, HasABucketForEachEightKeysAtFullLoad) {
  EXPECT_EQ(dict_home_buckets(0, 0.5), 1U);
  EXPECT_EQ(dict_home_buckets(8, 1), 1U);
  EXPECT_EQ(dict_home_buckets(9, 1), 2U);
  EXPECT_EQ(dict_home_buckets(80, 0.5), 20U);
  EXPECT_EQ(dict_home_buckets(kDictMaxRows, 1), (kDictMaxRows + 7) / 8);
  try {
    dict_home_buckets(kDictMaxRows + 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.what(), "dictionary: expected at most " + std::to_string(kDictMaxRows) +
                                " rows, found " + std::to_string(kDictMaxRows + 1));
  }
}

TEST(DictIndex, FindsTheSlotOfARowAndAFreeOneInTheProbedBucketsOnly) {
  constexpr std::uint64_t kHash = 0x123456;  // of the first home bucket
  DictIndex index = empty_index(2);
  for (std::uint64_t row = 0; row < kDictTailBuckets * kDictSlots; ++row) {
    ASSERT_EQ(index.free_position(kHash), row);
    index.store(row, dict_slot(kHash, row));
  }
  EXPECT_EQ(index.free_position(kHash), std::nullopt) << "the index is too full";
  EXPECT_EQ(index.position_of(kHash, 9), 9U);
  EXPECT_EQ(index.position_of(kHash, kDictTailBuckets * kDictSlots), std::nullopt);
  EXPECT_EQ(index.position_of(kHash + 1, 9), std::nullopt) << "another key";
}

/// A writer assigns new rows to the keys of a full bucket, and gives one slot alternately to two
/// keys, while other threads look the keys up. Tests the lookup that this build uses, which is the
/// scalar one under TSan.
TEST(DictIndex, FindsKeysWhoseSlotsAreWrittenConcurrently) {
  static constexpr std::uint64_t kKeys = 7;
  constexpr std::uint64_t kStores = 300'000;
  DictIndex index = empty_index(1);
  // All keys have the same home bucket. Keys 0 to kKeys - 1 have a slot each. The other two
  // keys alternate in the last slot of the bucket.
  const auto hash_of = [](std::uint64_t key) { return 0x123456 + key * 0x0101; };
  for (std::uint64_t key = 0; key <= kKeys; ++key) index.store(key, dict_slot(hash_of(key), key));
  std::atomic<bool> is_done{false};
  std::atomic<std::uint64_t> num_wrong{0};
  // Row r belongs to key r % 16.
  const auto read = [&] {
    for (std::uint64_t i = 0; !is_done.load(std::memory_order_relaxed); ++i) {
      const std::uint64_t key = i % (kKeys + 2);
      const auto rows = rows_of(index, hash_of(key));
      const bool has_own_slot = key < kKeys;
      const bool is_right =
          has_own_slot ? rows.size() == 1 && rows[0] % 16 == key
                       : std::ranges::all_of(rows, [](auto row) { return row % 16 >= kKeys; });
      if (!is_right) ++num_wrong;
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read);
  for (std::uint64_t i = 1; i <= kStores; ++i) {
    const std::uint64_t slot = i % (kKeys + 1);
    const std::uint64_t key = slot < kKeys ? slot : kKeys + i / (kKeys + 1) % 2;
    index.store(slot, dict_slot(hash_of(key), i * 16 % kDictMaxRows + key));
  }
  is_done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(num_wrong, 0U);
}

}  // namespace
}  // namespace tenfold

#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "base/prefetch.hpp"
#include "base/sanitizers.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tenfold {

/// The index of a MappedDict: an unbatched int64 tensor [num_buckets + 1, 8]. Most lookups read one
/// cache line of it.
///
/// Each row of the tensor is a bucket of eight slots. A slot is 0 (free), or has row + 1 in the low
/// 40 bits and the fingerprint (the low 24 bits of the key's hash) in the high bits. The number of
/// a key's home bucket is the high half of the 128-bit product `hash * num_home`. If the home
/// bucket is full, the next buckets are used. This is linear probing (Knuth, The Art of Computer
/// Programming, vol. 3, 6.4) by buckets, with fingerprints as in "Cuckoo Filter: Practically Better
/// Than Bloom" (Fan et al., 2014) and Abseil's Swiss tables. kDictTailBuckets more buckets follow
/// the `num_home` home buckets, so that probing never wraps around. The hash is XXH3 with a random
/// seed for each file, so that nobody can choose colliding keys in advance.
///
/// The last row is the header; DictWord names its words. A slot may point to a row that is not
/// committed yet: readers ignore such a row. Because fingerprints may collide, readers always
/// compare the stored key.
inline constexpr std::size_t kDictSlots = 8;
inline constexpr std::size_t kDictBucketBytes = kDictSlots * sizeof(std::uint64_t);
/// Number of buckets after the home buckets. Every key is less than this many buckets from its
/// home bucket.
inline constexpr std::uint64_t kDictTailBuckets = 64;
inline constexpr unsigned kDictRowBits = 40;
inline constexpr unsigned kDictFingerprintBits = 64 - kDictRowBits;
inline constexpr std::uint64_t kDictMaxRows = (std::uint64_t{1} << kDictRowBits) - 2;
/// Load factor of an index that is built from existing rows, so that the index is small.
inline constexpr double kDictBuiltLoad = 0.85;
/// Load factor of an index that is enlarged for new keys, so that later keys also have room.
inline constexpr double kDictGrownLoad = 0.6;
/// The load factor above which the index is enlarged.
inline constexpr double kDictMaxLoad = 0.92;

/// Words of the header.
enum class DictWord : std::uint8_t {
  seed,  ///< of the hash function
  /// 0: the index is complete, and no writer has begun to change it. kDictReplaced: another index
  /// has replaced it. Other values: a writer has begun to change the index and has not closed it;
  /// the value is the hash of the writer's boot ID (dict_boot()).
  writer,
  /// If num_rows_a rows are committed, the index covers all of them, and `dead_a` of them are
  /// superseded.
  num_rows_a,
  dead_a,
  /// A second pair with the same meaning. One pair describes the committed rows. The other pair is
  /// not set (kDictNever), or describes the rows after the next commit, or the rows before the last
  /// commit. While it describes the rows before the last commit, some slots may not point to the
  /// rows of the last commit yet.
  num_rows_b,
  dead_b,
  num_home,  ///< number of home buckets
  checksum,  ///< XXH3 of seed and num_home, which never change
};
/// Value of `writer` in an index that another index has replaced. Readers must open the file again.
inline constexpr std::uint64_t kDictReplaced = ~std::uint64_t{0};
/// Value of num_rows_a or num_rows_b in a pair that is not set.
inline constexpr std::uint64_t kDictNever = ~std::uint64_t{0};

using DictBucket = std::span<std::uint64_t, kDictSlots>;

/// Number of home buckets for `num_keys` keys at the load factor `load`. Throws
/// Error(invalid_argument) for more than kDictMaxRows keys.
std::uint64_t dict_home_buckets(std::uint64_t num_keys, double load);
/// Writes the header, which is the last row of an index.
void write_dict_header(DictBucket header, std::uint64_t seed, std::uint64_t num_home,
                       std::uint64_t num_rows, std::uint64_t num_dead);
/// Draws a random seed.
std::uint64_t random_dict_seed();
/// The hash of the boot ID; never 0 or kDictReplaced.
std::uint64_t dict_boot();

inline std::uint64_t dict_slot(std::uint64_t hash, std::uint64_t row) {
  return (hash << kDictRowBits) | (row + 1);
}
/// The row that a nonzero slot points to. May be any number in a damaged index.
inline std::uint64_t dict_row(std::uint64_t slot) {
  return (slot & ((std::uint64_t{1} << kDictRowBits) - 1)) - 1;
}
inline std::uint64_t dict_home(std::uint64_t hash, std::uint64_t num_home) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * num_home) >> 64U);
}

inline std::uint64_t load_dict_slot(const std::uint64_t* slot) noexcept {
  return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

/// Bit k is set if slot k of the bucket has this fingerprint. Slots may change concurrently.
inline std::uint32_t dict_matches_scalar(const std::uint64_t* slots,
                                         std::uint64_t fingerprint) noexcept {
  std::uint32_t matches = 0;
  for (std::size_t k = 0; k < kDictSlots; ++k) {
    const bool is_same = load_dict_slot(slots + k) >> kDictRowBits == fingerprint;
    matches |= static_cast<std::uint32_t>(is_same) << k;
  }
  return matches;
}

#if defined(__SSE2__)
/// Returns the result of dict_matches_scalar(), computed with SSE2. As in dict_matches_scalar(),
/// each slot is read whole, by a single load, and the caller reads matching slots again. Not used
/// under TSan, which cannot detect that these reads are atomic.
inline std::uint32_t dict_matches_sse2(const std::uint64_t* slots,
                                       std::uint64_t fingerprint) noexcept {
  static_assert(kDictFingerprintBits == 24 && kDictSlots == 8);
  const auto* pairs = reinterpret_cast<const __m128i*>(slots);
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(fingerprint));
  const auto matches_of_four = [&](int first) {
    const __m128 two = _mm_castsi128_ps(_mm_loadu_si128(pairs + first));
    const __m128 others = _mm_castsi128_ps(_mm_loadu_si128(pairs + first + 1));
    const __m128i high = _mm_castps_si128(_mm_shuffle_ps(two, others, _MM_SHUFFLE(3, 1, 3, 1)));
    const __m128i same = _mm_cmpeq_epi32(_mm_srli_epi32(high, 8), wanted);
    return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(same)));
  };
  return matches_of_four(0) | matches_of_four(2) << 4U;
}
#endif

/// An index in memory or in a mapped file, whose size has been checked. Every slot can be read
/// safely, but the row in a slot is only a candidate: compare the key stored in that row.
///
/// Thread safety: any number of readers and one writer, also in several processes.
class DictIndex {
 public:
  /// Throws Error(corrupt), naming `where`, if the size is invalid or contradicts the header, or if
  /// the checksum of the header is wrong.
  DictIndex(Buffer bytes, const base::Where& where);

  std::uint64_t seed() const noexcept { return seed_; }
  std::uint64_t num_home() const noexcept { return num_home_; }
  std::uint64_t num_slots() const noexcept { return num_home_ * kDictSlots; }
  std::span<const std::byte> bytes() const noexcept { return bytes_.bytes(); }
  const Buffer& buffer() const noexcept { return bytes_; }
  std::span<const std::byte> header_bytes() const noexcept {
    return bytes_.bytes().last(kDictBucketBytes);
  }

  std::uint64_t word(DictWord which) const noexcept {
    return load(buckets() * kDictSlots + static_cast<std::size_t>(which));
  }
  /// True if the index covers exactly the first `num_rows` rows, apart from slots of rows that are
  /// not committed yet.
  bool knows(std::uint64_t num_rows) const noexcept;
  /// The number of superseded rows among the first `num_rows`; meaningless unless knows(num_rows).
  std::uint64_t num_dead(std::uint64_t num_rows) const noexcept;
  /// The number of leading rows, among `num_rows` committed rows, whose slots are certainly up to
  /// date. The remaining rows are those of the last commit. Slots of their keys may still point to
  /// earlier rows, because the writer changes these slots after the commit, or crashed before it
  /// did.
  std::uint64_t num_settled(std::uint64_t num_rows) const noexcept;

  /// The position of a search for a key; it starts in the home bucket.
  struct Cursor {
    std::uint64_t fingerprint;  ///< the low 24 bits of the hash
    std::uint64_t bucket;
    std::uint64_t last;     ///< the last bucket to search
    std::uint32_t matches;  ///< bit k: slot k of the bucket is still to be tried
  };
  /// Prefetches the home bucket of a key and the next bucket. In an index that was built with the
  /// load factor kDictBuiltLoad, a fifth of all keys are in the next bucket. Without the second
  /// prefetch, a lookup of such a key would wait for memory, and so would all lookups after it.
  void prefetch(std::uint64_t hash) const noexcept {
    const std::uint64_t* home = slots_ + dict_home(hash, num_home_) * kDictSlots;
    base::prefetch(home);
    base::prefetch(home + kDictSlots);
  }
  std::span<const std::byte> home_bytes(std::uint64_t hash) const noexcept {
    return bytes().subspan(static_cast<std::size_t>(dict_home(hash, num_home_)) * kDictBucketBytes,
                           kDictBucketBytes);
  }
  Cursor find(std::uint64_t hash) const noexcept {
    const std::uint64_t home = dict_home(hash, num_home_);
    const std::uint64_t fingerprint = hash & ((std::uint64_t{1} << kDictFingerprintBits) - 1);
    return {fingerprint, home, home + kDictTailBuckets, matches_in(home, fingerprint)};
  }
  /// The next candidate row; nullopt if there is none.
  std::optional<std::uint64_t> next(Cursor& cursor) const noexcept {
    while (true) {
      while (cursor.matches == 0) {
        if (cursor.bucket == cursor.last || has_room(cursor.bucket)) return std::nullopt;
        cursor.matches = matches_in(++cursor.bucket, cursor.fingerprint);
      }
      const auto k = static_cast<std::uint64_t>(std::countr_zero(cursor.matches));
      cursor.matches &= cursor.matches - 1;
      // The slot may have changed since it matched, and then points to a newer row, or to the row
      // of another key. Skip a free slot, which matches fingerprint 0.
      const std::uint64_t row =
          load(position(cursor, k)) & ((std::uint64_t{1} << kDictRowBits) - 1);
      if (row != 0) return row - 1;
    }
  }
  /// The position of a slot in the cursor's bucket.
  static std::uint64_t position(const Cursor& cursor, std::uint64_t slot_in_bucket) noexcept {
    return cursor.bucket * kDictSlots + slot_in_bucket;
  }

  std::uint64_t load(std::uint64_t position) const noexcept {
    return load_dict_slot(slots_ + position);
  }
  std::uint64_t num_positions() const noexcept { return buckets() * kDictSlots; }

  // For the single writer only: store() and set_word() need an index that is mapped read-write.

  void store(std::uint64_t position, std::uint64_t slot) noexcept {
    __atomic_store_n(slots_ + position, slot, __ATOMIC_RELEASE);
  }
  void set_word(DictWord which, std::uint64_t value) noexcept {
    store(buckets() * kDictSlots + static_cast<std::size_t>(which), value);
  }
  /// The position of a free slot for a key with this hash; nullopt if the kDictTailBuckets buckets
  /// from the home bucket on are full.
  std::optional<std::uint64_t> free_position(std::uint64_t hash) const noexcept;
  /// The position of the slot with this hash and row; nullopt if there is none.
  std::optional<std::uint64_t> position_of(std::uint64_t hash, std::uint64_t row) const noexcept;

 private:
  std::uint64_t buckets() const noexcept { return num_home_ + kDictTailBuckets; }
  // Functions of a lookup are inline, because a lookup in cached memory takes only about 50 ns.
  std::uint32_t matches_in(std::uint64_t bucket, std::uint64_t fingerprint) const noexcept {
    const std::uint64_t* const slots = slots_ + bucket * kDictSlots;
#if defined(__SSE2__) && !TENFOLD_TSAN
    return dict_matches_sse2(slots, fingerprint);
#else
    return dict_matches_scalar(slots, fingerprint);
#endif
  }
  bool has_room(std::uint64_t bucket) const noexcept {
    for (std::size_t k = 0; k < kDictSlots; ++k) {
      if (load(bucket * kDictSlots + k) == 0) return true;
    }
    return false;
  }

  Buffer bytes_;
  std::uint64_t* slots_;
  std::uint64_t seed_;
  std::uint64_t num_home_;
};

}  // namespace tenfold

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

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tenfold {

/// The index of a MappedDict: an unbatched int64 tensor [num_buckets + 1, 8], which finds the row
/// of a key in one cache line, nearly always.
///
/// A row is a bucket of eight slots, a slot 0 (free) or 40 bits of row + 1 below 24 bits of the
/// key's hash. A key belongs into the bucket that the high half of `hash * num_home` names, or into
/// the next ones while those are full: linear probing (Knuth, The Art of Computer Programming, vol.
/// 3, 6.4) by buckets, with fingerprints as in "Cuckoo Filter: Practically Better Than Bloom" (Fan
/// et al., 2014) and Abseil's Swiss tables. Behind the `num_home` buckets lie kTailBuckets more, so
/// that nothing wraps around. The hash is XXH3 with a seed of the file's own: nobody can choose
/// keys that collide in advance.
///
/// The last row is the header, whose words are named below. A slot may name rows that are not
/// committed yet; whoever reads ignores those, and always compares the stored key itself.
inline constexpr std::size_t kDictSlots = 8;
inline constexpr std::size_t kDictBucketBytes = kDictSlots * sizeof(std::uint64_t);
/// No key is further from home than so many buckets.
inline constexpr std::uint64_t kDictTailBuckets = 64;
inline constexpr unsigned kDictRowBits = 40;
inline constexpr unsigned kDictFingerprintBits = 64 - kDictRowBits;
inline constexpr std::uint64_t kDictMaxRows = (std::uint64_t{1} << kDictRowBits) - 2;
/// Slots that are taken when an index is made: what is built once is small, what grows has room.
inline constexpr double kDictBuiltLoad = 0.85;
inline constexpr double kDictGrownLoad = 0.6;
inline constexpr double kDictMaxLoad = 0.92;

/// Words of the header.
enum class DictWord : std::uint8_t {
  seed,  ///< of the hash
  /// 0: whole and on the device. Otherwise the hash of the boot in which slots were changed last,
  /// without close(); or kDictReplaced.
  writer,
  /// When there are so many rows, the index knows them all and `dead_a` of them are the earlier
  /// ones of keys that were assigned anew.
  num_rows_a,
  dead_a,
  /// The same: one of the pairs is of the rows there are. The other is of those to come or, while
  /// slots of rows that were committed are still to be changed, of those before; or of none.
  num_rows_b,
  dead_b,
  num_home,
  checksum,  ///< XXH3 of seed and num_home, which never change
};
/// In the header of an index whose place another one has taken: open it again.
inline constexpr std::uint64_t kDictReplaced = ~std::uint64_t{0};
/// In num_rows_a: nobody has written this pair.
inline constexpr std::uint64_t kDictNever = ~std::uint64_t{0};

using DictBucket = std::span<std::uint64_t, kDictSlots>;

/// The home buckets for so many keys at that load. Throws Error(invalid_argument) for too many.
std::uint64_t dict_home_buckets(std::uint64_t num_keys, double load);
/// The last row of an index.
void write_dict_header(DictBucket header, std::uint64_t seed, std::uint64_t num_home,
                       std::uint64_t num_rows, std::uint64_t num_dead);
/// A number that no other index has.
std::uint64_t random_dict_seed();
/// Never 0 nor kDictReplaced.
std::uint64_t dict_boot();

inline std::uint64_t dict_slot(std::uint64_t hash, std::uint64_t row) {
  return (hash << kDictRowBits) | (row + 1);
}
/// The row that a slot, which is not 0, names. Of a damaged one it may be any number.
inline std::uint64_t dict_row(std::uint64_t slot) {
  return (slot & ((std::uint64_t{1} << kDictRowBits) - 1)) - 1;
}
inline std::uint64_t dict_home(std::uint64_t hash, std::uint64_t num_home) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * num_home) >> 64U);
}

inline std::uint64_t load_dict_slot(const std::uint64_t* slot) noexcept {
  return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

/// Bit k: slot k of a bucket has that fingerprint. The slots may change meanwhile.
inline std::uint32_t dict_matches_one_by_one(const std::uint64_t* slots,
                                             std::uint64_t fingerprint) noexcept {
  std::uint32_t matches = 0;
  for (std::size_t k = 0; k < kDictSlots; ++k) {
    const bool is_same = load_dict_slot(slots + k) >> kDictRowBits == fingerprint;
    matches |= static_cast<std::uint32_t>(is_same) << k;
  }
  return matches;
}

#if defined(__SSE2__)
/// The same. Each slot is read at once also this way, and those that match are read again; TSan,
/// which sees no atomic reads, is given the other one.
inline std::uint32_t dict_matches_at_once(const std::uint64_t* slots,
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

/// An index in memory or mapped, its size checked. Reading a slot is always safe; what it says is
/// to be compared with the key that is stored.
///
/// Thread safety: any number of readers, one writer, also of several processes.
class DictIndex {
 public:
  /// Throws Error(corrupt), naming `where`, unless size and header belong together.
  DictIndex(Buffer bytes, const base::Where& where);

  std::uint64_t seed() const noexcept { return seed_; }
  std::uint64_t num_home() const noexcept { return num_home_; }
  std::uint64_t num_slots() const noexcept { return num_home_ * kDictSlots; }
  std::span<std::byte> bytes() const noexcept { return bytes_.bytes(); }
  const Buffer& buffer() const noexcept { return bytes_; }
  std::span<const std::byte> header_bytes() const noexcept {
    return bytes_.bytes().last(kDictBucketBytes);
  }

  std::uint64_t word(DictWord which) const noexcept {
    return load(buckets() * kDictSlots + static_cast<std::size_t>(which));
  }
  /// True if slots were made for exactly so many rows, beside those of rows to come.
  bool knows(std::uint64_t num_rows) const noexcept;
  /// How many of `num_rows` rows, which it knows, are of no use any more.
  std::uint64_t num_dead(std::uint64_t num_rows) const noexcept;
  /// So many of `num_rows` committed rows surely have their slots. The others were committed
  /// together, last: slots of keys that they assign may name the rows before, until the writer,
  /// which may have been killed there, comes to them.
  std::uint64_t num_settled(std::uint64_t num_rows) const noexcept;

  /// Where the search for a key stands: first in its home.
  struct Cursor {
    std::uint64_t fingerprint;  ///< as a slot has it above its row
    std::uint64_t bucket;
    std::uint64_t last;     ///< the last bucket to be looked at
    std::uint32_t matches;  ///< bit k: slot k of the bucket is still to be looked at
  };
  /// With the bucket after its home, where a fifth of the keys of a full index lie: one that is
  /// found there would otherwise wait for memory, and all that come after it.
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
  /// The next row whose key may be the one that is looked for, or nothing.
  std::optional<std::uint64_t> next(Cursor& cursor) const noexcept {
    while (true) {
      while (cursor.matches == 0) {
        if (cursor.bucket == cursor.last || has_room(cursor.bucket)) return std::nullopt;
        cursor.matches = matches_in(++cursor.bucket, cursor.fingerprint);
      }
      const auto k = static_cast<std::uint64_t>(std::countr_zero(cursor.matches));
      cursor.matches &= cursor.matches - 1;
      // It may have been changed since; then it names the newer row, or another key's. A free slot
      // looks like one of fingerprint 0.
      const std::uint64_t row =
          load(position(cursor, k)) & ((std::uint64_t{1} << kDictRowBits) - 1);
      if (row != 0) return row - 1;
    }
  }
  /// The position of the slot that next() has returned last.
  static std::uint64_t position(const Cursor& cursor, std::uint64_t slot_in_bucket) noexcept {
    return cursor.bucket * kDictSlots + slot_in_bucket;
  }

  std::uint64_t load(std::uint64_t position) const noexcept {
    return load_dict_slot(slots_ + position);
  }
  std::uint64_t num_positions() const noexcept { return buckets() * kDictSlots; }

  // For the one writer, over memory that can be written.

  void store(std::uint64_t position, std::uint64_t slot) noexcept {
    __atomic_store_n(slots_ + position, slot, __ATOMIC_RELEASE);
  }
  void set_word(DictWord which, std::uint64_t value) noexcept {
    store(buckets() * kDictSlots + static_cast<std::size_t>(which), value);
  }
  /// Where a key of that hash can be put, or nothing: the index is too full there.
  std::optional<std::uint64_t> free_position(std::uint64_t hash) const noexcept;
  /// Where the slot of a key of that hash and row is, or nothing.
  std::optional<std::uint64_t> position_of(std::uint64_t hash, std::uint64_t row) const noexcept;

 private:
  std::uint64_t buckets() const noexcept { return num_home_ + kDictTailBuckets; }
  // All of this is inline, as a lookup in memory takes some 50 ns.
  std::uint32_t matches_in(std::uint64_t bucket, std::uint64_t fingerprint) const noexcept {
    const std::uint64_t* const slots = slots_ + bucket * kDictSlots;
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
    return dict_matches_at_once(slots, fingerprint);
#else
    return dict_matches_one_by_one(slots, fingerprint);
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

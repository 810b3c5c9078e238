#include "dict/index.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "os/process.hpp"

namespace tenfold {
namespace {

/// Seed of the header's checksum and of the boot ID's hash, so that they differ from other hashes
/// of the same bytes.
constexpr std::uint64_t kHeaderSeed = 0x64696374'696e6478;

std::uint64_t header_checksum(std::uint64_t seed, std::uint64_t num_home) {
  const std::array<std::uint64_t, 2> words = {seed, num_home};
  return base::xxh3_seeded(std::as_bytes(std::span(words)), kHeaderSeed);
}

}  // namespace

std::uint64_t dict_home_buckets(std::uint64_t num_keys, double load) {
  if (num_keys > kDictMaxRows) {
    throw base::invalid_argument()
        .part("dictionary")
        .expected("at most ", kDictMaxRows, " rows")
        .found(num_keys);
  }
  const double buckets = std::ceil(static_cast<double>(num_keys) / (load * kDictSlots));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(buckets));
}

void write_dict_header(DictBucket header, std::uint64_t seed, std::uint64_t num_home,
                       std::uint64_t num_rows, std::uint64_t num_dead) {
  const auto set = [&](DictWord which, std::uint64_t value) {
    header[static_cast<std::size_t>(which)] = value;
  };
  set(DictWord::seed, seed);
  set(DictWord::writer, 0);
  set(DictWord::num_rows_a, num_rows);
  set(DictWord::dead_a, num_dead);
  set(DictWord::num_rows_b, kDictNever);
  set(DictWord::dead_b, 0);
  set(DictWord::num_home, num_home);
  set(DictWord::checksum, header_checksum(seed, num_home));
}

std::uint64_t random_dict_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

std::uint64_t dict_boot() {
  const os::BootId boot = os::boot_id();
  const std::uint64_t hash = base::xxh3_seeded(boot, kHeaderSeed);
  return hash == 0 || hash == kDictReplaced ? 1 : hash;
}

DictIndex::DictIndex(Buffer bytes, const base::Where& where) : bytes_(std::move(bytes)) {
  const auto corrupt = [&] { return base::corrupt(where).part("index of the keys"); };
  const std::uint64_t size = bytes_.size_bytes();
  constexpr std::uint64_t kLeast = (kDictTailBuckets + 2) * kDictBucketBytes;
  if (size < kLeast || size % kDictBucketBytes != 0) {
    throw corrupt()
        .part("size")
        .expected("a multiple of ", kDictBucketBytes, " bytes, at least ", kLeast)
        .found(size);
  }
  // The const_cast is safe: only writers change slots, and they map the index read-write.
  slots_ = const_cast<std::uint64_t*>(reinterpret_cast<const std::uint64_t*>(bytes_.data()));
  num_home_ = size / kDictBucketBytes - 1 - kDictTailBuckets;
  seed_ = word(DictWord::seed);
  if (word(DictWord::num_home) != num_home_) {
    throw corrupt()
        .part("buckets")
        .expected(num_home_, ", according to the size of the index")
        .found(word(DictWord::num_home));
  }
  if (word(DictWord::checksum) != header_checksum(seed_, num_home_)) {
    throw corrupt()
        .part("header")
        .expected("the checksum of its words")
        .found("another checksum")
        .remedy("the index is damaged");
  }
}

bool DictIndex::knows(std::uint64_t num_rows) const noexcept {
  return word(DictWord::num_rows_a) == num_rows || word(DictWord::num_rows_b) == num_rows;
}

std::uint64_t DictIndex::num_dead(std::uint64_t num_rows) const noexcept {
  const bool is_b = word(DictWord::num_rows_b) == num_rows;
  return std::min(num_rows, word(is_b ? DictWord::dead_b : DictWord::dead_a));
}

std::uint64_t DictIndex::num_settled(std::uint64_t num_rows) const noexcept {
  if (word(DictWord::writer) == 0) return num_rows;
  const std::uint64_t a = word(DictWord::num_rows_a);
  const std::uint64_t b = word(DictWord::num_rows_b);
  if (a != num_rows && b != num_rows) return num_rows;  // later commits have replaced both pairs
  return std::min({a, b, num_rows});
}

std::optional<std::uint64_t> DictIndex::free_position(std::uint64_t hash) const noexcept {
  const std::uint64_t first = dict_home(hash, num_home_) * kDictSlots;
  const std::uint64_t end = first + kDictTailBuckets * kDictSlots;
  for (std::uint64_t i = first; i < end; ++i) {
    if (load(i) == 0) return i;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> DictIndex::position_of(std::uint64_t hash,
                                                    std::uint64_t row) const noexcept {
  const std::uint64_t first = dict_home(hash, num_home_) * kDictSlots;
  const std::uint64_t end = first + (kDictTailBuckets + 1) * kDictSlots;
  for (std::uint64_t i = first; i < end; ++i) {
    if (load(i) == dict_slot(hash, row)) return i;
  }
  return std::nullopt;
}

}  // namespace tenfold

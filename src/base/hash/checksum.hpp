#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenfold::base {

/// XXH3, 64 bits, seed 0 (https://github.com/Cyan4973/xxHash), with AVX2 where the CPU has it.
std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

/// XXH3 with a seed, for short inputs: keys of hash tables, records and headers. Does not dispatch
/// to AVX2.
std::uint64_t xxh3_seeded(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;

/// A random seed for hash tables whose keys come from files. Constant within a process; a child
/// that is forked after the first call inherits it.
std::uint64_t hash_seed() noexcept;

/// Streaming XXH3: equals xxh3() of the concatenated pieces.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;

  void reset() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  std::uint64_t digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Formats `value` as 16 lower-case hexadecimal digits.
std::string hex16(std::uint64_t value);

/// Size of a block. Formats with XXH3 checksums of files or tensors store one checksum for each
/// block; the last block may be shorter. For a tensor that several processes write, the formats
/// store one checksum for each box (a rectangular part of the tensor, of at most this size)
/// instead.
inline constexpr std::uint64_t kChecksumBlockBytes = std::uint64_t{16} << 20;

/// The number of blocks of a file or tensor of this size.
constexpr std::uint64_t num_checksum_blocks(std::uint64_t size_bytes) noexcept {
  return size_bytes / kChecksumBlockBytes + (size_bytes % kChecksumBlockBytes != 0 ? 1 : 0);
}

/// The XXH3 of each block of a sequence of bytes that is added piece by piece.
class BlockSums {
 public:
  void add(std::span<const std::byte> bytes);
  /// The size of the added bytes, without dropped blocks.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The checksums of the blocks in order, without dropped blocks. The last block may be partial.
  std::vector<std::uint64_t> checksums() const;
  /// Drops all whole blocks, and returns their total size in bytes. The last, partial block is
  /// kept.
  std::uint64_t drop_whole_blocks() noexcept;

 private:
  std::vector<std::uint64_t> whole_;
  std::uint64_t size_bytes_ = 0;
  Xxh3Stream last_;
};

}  // namespace tenfold::base

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.hpp"

namespace tenfold::codecs {

/// Where a zip archive's bytes come from.
struct ZipInput {
  base::Where where;  ///< names the archive in messages
  std::uint64_t size_bytes = 0;
  /// Fills `into` with the bytes from `offset` on. Is asked for bytes inside size_bytes only, and
  /// throws what it likes.
  std::function<void(std::uint64_t offset, std::span<std::byte> into)> read;
};

/// Over bytes in memory, which must outlive the input.
ZipInput zip_input(base::Where where, std::span<const std::byte> bytes);

/// What an archive may cost its reader. Deflate cannot do better than 1032 to 1.
struct ZipLimits {
  std::uint64_t max_entries = 1'000'000;
  std::uint64_t max_directory_bytes = 256U << 20U;
  /// Of all deflated entries together. Stored ones cost nothing that the file does not hold. Who
  /// inflates an entry when it is asked for looks at its size then, and needs no limit of all.
  std::uint64_t max_inflated_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ratio = 1100;  ///< inflated to deflated bytes, of any one entry
  /// False: a local header may tell another CRC-32 than the directory, which is what a kill between
  /// the patches of both leaves.
  bool same_crc32s = true;
};

enum class ZipMethod : std::uint8_t { stored, deflated };

/// One entry, checked: its bytes lie inside the archive and overlap no other entry's.
struct ZipEntry {
  std::string name;  ///< relative, UTF-8, "/" between its parts, none of them "." or ".."
  ZipMethod method = ZipMethod::stored;
  std::uint16_t flags = 0;  ///< general purpose bits, as the directory tells them
  std::uint32_t crc32 = 0;
  std::uint64_t stored_bytes = 0;    ///< what it takes in the archive
  std::uint64_t size_bytes = 0;      ///< what it holds
  std::uint64_t header_offset = 0;   ///< of its local header
  std::uint64_t data_offset = 0;     ///< of its bytes
  std::uint64_t central_offset = 0;  ///< of its header in the directory
  std::uint32_t local_crc32 = 0;     ///< as its local header tells it
  bool has_descriptor = false;       ///< after its bytes, with a CRC-32 of its own
  std::string comment{};             ///< in the directory
};

struct ZipDirectory {
  std::vector<ZipEntry> entries;  ///< in the directory's order
  std::uint64_t offset = 0;       ///< where the directory begins: no entry reaches further
  std::string comment;
  /// A hash table of the names: a part of the hash, and the position in `entries` or kNone.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> names;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  /// The entry of that name, or null.
  const ZipEntry* find(std::string_view name) const;
};

/// Reads the directory and every local header. Both must tell the same of each entry, so that two
/// readers cannot see two archives. Throws Error(corrupt) for damage, and Error(unsupported) for
/// what is valid and refused: encryption, several disks, other methods, names that leave the
/// archive, more than `limits` allow.
ZipDirectory read_zip_directory(const ZipInput& input, const ZipLimits& limits);

/// The same in two steps, for those who have something to do with names and sizes meanwhile, on
/// another thread: first all but data_offset and local_crc32, then those. Until the second step has
/// returned an archive may be damaged.
ZipDirectory read_zip_central_headers(const ZipInput& input, const ZipLimits& limits);
void read_zip_local_headers(const ZipInput& input, const ZipLimits& limits,
                            ZipDirectory& directory);
/// One entry of the first step, with what its own local header tells.
ZipEntry with_local_header(const ZipInput& input, const ZipDirectory& directory, ZipEntry entry);

/// The entry's bytes, inflated; their CRC-32 is checked. Throws Error(corrupt).
std::vector<std::byte> read_zip_entry(const ZipInput& input, const ZipEntry& entry);

/// The same into memory of the caller's, of the entry's size.
void read_zip_entry(const ZipInput& input, const ZipEntry& entry, std::span<std::byte> into);
/// As read_zip_entry, but for the CRC-32: for those who look at damaged archives, too.
std::vector<std::byte> read_zip_entry_unchecked(const ZipInput& input, const ZipEntry& entry);

/// Throws Error(corrupt) if the entry's bytes do not have its CRC-32. Needs 2 MiB at most, 64 MiB
/// for a deflated entry. `use` gets the bytes piece by piece, before it is known whether they are
/// right.
using UsePiece = std::function<void(std::span<const std::byte>)>;
void check_zip_entry(const ZipInput& input, const ZipEntry& entry, const UsePiece& use = {});

/// What is wrong with a name of an entry ("is empty", "leaves the archive"): read_zip_directory
/// refuses it. Nothing for a good one.
std::optional<std::string_view> zip_name_fault(std::string_view name) noexcept;

/// CRC-32 (zip's, gzip's) of `bytes` after those whose CRC-32 is `before`.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// CRC-32 of two runs of bytes, one after the other, from that of each and the size of the second.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second,
                            std::uint64_t second_bytes) noexcept;

/// CRC-32 of so many zeros.
std::uint32_t crc32_of_zeros(std::uint64_t size_bytes) noexcept;

}  // namespace tenfold::codecs

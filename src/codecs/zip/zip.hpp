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

/// The source of a zip archive's bytes.
struct ZipInput {
  base::Where where;  ///< names the archive in messages
  std::uint64_t size_bytes = 0;
  /// Fills `into` with the bytes from `offset`. Called only for ranges within size_bytes. May throw
  /// any exception.
  std::function<void(std::uint64_t offset, std::span<std::byte> into)> read;
};

/// Returns a ZipInput that reads from memory. `bytes` must outlive it.
ZipInput zip_input(base::Where where, std::span<const std::byte> bytes);

/// Limits of the cost of reading an archive. Deflate's maximum ratio is 1032 to 1.
struct ZipLimits {
  std::uint64_t max_entries = 1'000'000;
  std::uint64_t max_directory_bytes = 256U << 20U;
  /// Maximum total inflated size of all deflated entries. Stored entries need no limit, because
  /// they cannot exceed the size of the file. Unlimited by default, for callers that inflate single
  /// entries and check the size of each.
  std::uint64_t max_inflated_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ratio = 1100;  ///< maximum ratio of inflated to deflated bytes of one entry
  /// If false, the two CRC-32s of an entry (in its local header and in the directory) may differ,
  /// as after a crash between the updates of the two.
  bool same_crc32s = true;
};

enum class ZipMethod : std::uint8_t { stored, deflated };

/// One entry. If it is from read_zip_directory(), its bytes are inside the archive and do not
/// overlap those of other entries.
struct ZipEntry {
  /// Relative, in UTF-8; components separated by "/", none of them empty, "." or "..". Names of
  /// folders end with "/".
  std::string name;
  ZipMethod method = ZipMethod::stored;
  std::uint16_t flags = 0;  ///< general purpose bits in the directory
  std::uint32_t crc32 = 0;
  std::uint64_t stored_bytes = 0;    ///< size in the archive
  std::uint64_t size_bytes = 0;      ///< uncompressed size
  std::uint64_t header_offset = 0;   ///< offset of its local header
  std::uint64_t data_offset = 0;     ///< offset of its bytes
  std::uint64_t central_offset = 0;  ///< offset of its header in the directory
  std::uint32_t local_crc32 = 0;     ///< CRC-32 in the local header
  bool has_descriptor = false;       ///< a data descriptor with another copy of the CRC-32 follows
                                     ///< its bytes
  std::string comment{};             ///< in the directory
};

struct ZipDirectory {
  std::vector<ZipEntry> entries;  ///< in the directory's order
  std::uint64_t offset = 0;       ///< offset of the directory; all entries lie before it
  std::string comment;            ///< the archive comment
  /// Hash table of the names. Each slot holds a part of a name's hash and an index in `entries`, or
  /// kNone.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> names;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  /// Returns the entry of that name, or null.
  const ZipEntry* find(std::string_view name) const;
};

/// Reads the directory and every local header. The local and the central header of each entry must
/// agree, so that no two readers see different archives. Throws Error(corrupt) for damage and
/// duplicate names. Throws Error(unsupported) for valid archives that are refused: encrypted, with
/// patches, on several disks, with methods other than stored and deflated, with names that
/// zip_name_fault() refuses, or beyond `limits`.
ZipDirectory read_zip_directory(const ZipInput& input, const ZipLimits& limits);

/// Like read_zip_directory(), but in two steps, so that the caller can use names and sizes before
/// or while the second step runs. The first step sets all members of the entries except data_offset
/// and local_crc32, which the second step sets. Only the second step detects damaged local headers
/// and overlapping entries.
ZipDirectory read_zip_central_headers(const ZipInput& input, const ZipLimits& limits);
void read_zip_local_headers(const ZipInput& input, const ZipLimits& limits,
                            ZipDirectory& directory);
/// Returns `entry`, which is from read_zip_central_headers(), with data_offset and local_crc32 from
/// its local header. Throws Error(corrupt) if the two headers of the entry contradict each other.
/// Checks neither its data descriptor nor whether it overlaps other entries.
ZipEntry with_local_header(const ZipInput& input, const ZipDirectory& directory, ZipEntry entry);

/// Reads and inflates the entry's bytes. Throws Error(corrupt) if they cannot be inflated or do not
/// match the entry's size and CRC-32.
std::vector<std::byte> read_zip_entry(const ZipInput& input, const ZipEntry& entry);

/// Like the overload above, but stores the bytes in `into`, which must have the entry's size.
void read_zip_entry(const ZipInput& input, const ZipEntry& entry, std::span<std::byte> into);
/// Like read_zip_entry(), but does not check the CRC-32, so that damaged archives can be inspected.
std::vector<std::byte> read_zip_entry_unchecked(const ZipInput& input, const ZipEntry& entry);

/// Receives the bytes of an entry in pieces, possibly before they are verified.
using UsePiece = std::function<void(std::span<const std::byte>)>;

/// Throws Error(corrupt) if the entry's bytes cannot be inflated or do not match its CRC-32. Passes
/// the uncompressed bytes to `use`, if given. Needs at most about 2 MiB of memory, except for a
/// deflated entry whose stored and inflated sizes are at most 64 MiB each, which is read and
/// inflated as a whole.
void check_zip_entry(const ZipInput& input, const ZipEntry& entry, const UsePiece& use = {});

/// Describes why read_zip_directory() refuses a name: "is empty", "has a backslash". Returns
/// nullopt for a valid name.
std::optional<std::string_view> zip_name_fault(std::string_view name) noexcept;

/// Returns the CRC-32 (as in zip and gzip) of `bytes`. To compute it piece by piece, pass the
/// CRC-32 of the preceding pieces as `before`.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// Returns the CRC-32 of two consecutive runs of bytes, from the CRC-32 of each and the size of the
/// second.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second,
                            std::uint64_t second_bytes) noexcept;

/// Returns the CRC-32 of `size_bytes` zeros.
std::uint32_t crc32_of_zeros(std::uint64_t size_bytes) noexcept;

}  // namespace tenfold::codecs

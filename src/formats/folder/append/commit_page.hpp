#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/folder/files.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::folder {

/// The file name of the commit page, which has the current number of rows of a folder to which rows
/// are added. After a reboot, the number at the last flush is valid instead: the one in meta.json,
/// or in the durable record of a circular buffer.
inline constexpr std::string_view kCommitName = "%commit";

/// One page, written in place. All numbers are little-endian, 64 bits:
///
///   0, 64     two commit records, written alternately, so that one is valid after a crash:
///             sequence, boot ID (16 bytes), num_rows, written, busy_begin, busy_rows, and the XXH3
///             of these, seeded with "tenfold"
///   128, 192  circular buffers: two more records, written alternately and synced: the durable
///             state
///   256       "tenfold%commit 1", capacity, and the XXH3 of these, with the same seed
///   512       the writer's process ID, for messages
///   520       not 0 once a process may have written to rows in place: then the checksums of all
///             tensors are invalid
inline constexpr std::size_t kCommitPageBytes = 4096;
using CommitBytes = std::array<std::byte, kCommitPageBytes>;
inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::size_t kDurableOffset = 128;
inline constexpr std::size_t kHeaderOffset = 256;
inline constexpr std::size_t kProcessOffset = 512;
inline constexpr std::size_t kInPlaceOffset = 520;
/// Maximum of CommitState::num_rows and CommitState::written.
inline constexpr std::uint64_t kMaxRows = std::numeric_limits<std::int64_t>::max();

/// The content of a commit record.
struct CommitState {
  /// In the first two records of a circular buffer: a seqlock, odd during a write. If it is even,
  /// the busy rows are lost, because their write failed or their writer crashed. In all other
  /// records: a count that each new record increases by 1. It starts at 1, or at 2 in the durable
  /// records of a circular buffer.
  std::uint64_t sequence = 0;
  os::BootId boot{};
  std::uint64_t num_rows = 0;  ///< committed rows; at most the capacity of a circular buffer
  /// Rows written since creation. In a circular buffer, the next row goes to slot `written %
  /// capacity`.
  std::uint64_t written = 0;
  /// Circular buffers: slots [busy_begin, busy_begin + busy_rows), modulo capacity, that are being
  /// overwritten, or whose overwriting failed or was interrupted by a crash. Readers skip them. In
  /// durable records: slots that may have been overwritten after the flush.
  std::uint64_t busy_begin = 0;
  std::uint64_t busy_rows = 0;
  bool operator==(const CommitState&) const = default;
};

/// The content of a commit page.
struct CommitPage {
  std::uint64_t capacity = 0;          ///< in rows; 0: no circular buffer
  std::uint64_t process = 0;           ///< ID of the writer's process
  bool in_place = false;               ///< rows may have been written in place
  CommitState live;                    ///< the newest valid commit record
  std::optional<CommitState> durable;  ///< circular buffers only
};

/// Encodes a commit record with its checksum.
std::array<std::byte, kSlotBytes> encode_slot(const CommitState& state);
/// Encodes a whole page. Circular buffers need `durable`.
CommitBytes encode_page(const CommitPage& page);

/// Throws Error(corrupt), naming `where`, unless the size is kCommitPageBytes.
void check_commit_size(std::uint64_t size_bytes, const std::string& where);

/// Parses and validates a page. Throws Error(corrupt), naming `where`, for an invalid size or
/// header. Also throws it if both commit records or, in a circular buffer, both durable records are
/// invalid, or if the newer valid one of the two has impossible numbers. In a circular buffer,
/// num_rows must be min(written, capacity), busy_begin must be below the capacity, and busy_rows
/// must be at most the capacity.
CommitPage parse_commit_page(std::span<const std::byte> bytes, const std::string& where);

/// Reads the commit page of a folder. Returns nullopt if there is none. Throws like
/// parse_commit_page().
std::optional<CommitPage> read_commit_page(Folder& folder);

/// Returns the state in `page` that is valid now: the live record if it was written during this
/// boot, else the durable record of a circular buffer. Returns null if there is neither: then the
/// number of rows in meta.json is valid.
const CommitState* state_now(const CommitPage& page);

/// Returns the number of committed rows in the folder's `%commit`. Returns nullopt if the number in
/// meta.json is valid: there is no `%commit`, or state_now() returns null. Throws like
/// read_commit_page().
std::optional<std::int64_t> committed_rows(Folder& folder);

}  // namespace tenfold::detail::formats::folder

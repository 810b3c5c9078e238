#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/folder/files.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::folder {

/// The file of a data set that grows: how many rows there are now. meta.json says how many there
/// were when the data set was last flushed, and is what counts after a power loss.
inline constexpr std::string_view kCommitName = "%commit";

/// One page, written in place. All numbers are little-endian, 64 bits:
///
///   0, 64     two slots, written in turn, so that one is whole whenever a writer is killed:
///             sequence, boot id (16 bytes), num_rows, written, busy_begin, busy_rows, and the XXH3
///             of these, seeded with "tenfold"
///   128, 192  of a ring: two slots of the same form, written in turn and synced: the durable state
///   256       "tenfold%commit 1", capacity, and the XXH3 of these, seeded alike
///   512       the writer's process id, for messages; 520: not 0 once somebody has written into
///             rows in place, for which no checksum vouches any more
inline constexpr std::size_t kCommitPageBytes = 4096;
using CommitBytes = std::array<std::byte, kCommitPageBytes>;
inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::size_t kDurableOffset = 128;
inline constexpr std::size_t kHeaderOffset = 256;
inline constexpr std::size_t kProcessOffset = 512;
inline constexpr std::size_t kInPlaceOffset = 520;

/// What one slot says.
struct CommitState {
  /// Of a ring: odd while its writer is at work. Busy rows of an even one are gone for good: their
  /// writer was killed.
  std::uint64_t sequence = 0;
  os::BootId boot{};
  std::uint64_t num_rows = 0;
  /// Rows written since it was made. The next one of a ring goes to slot `written % capacity`.
  std::uint64_t written = 0;
  /// Of a ring: slots [busy_begin, busy_begin + busy_rows), going round, that are being written or
  /// were when their writer was killed. Never read.
  std::uint64_t busy_begin = 0;
  std::uint64_t busy_rows = 0;
  bool operator==(const CommitState&) const = default;
};

struct CommitPage {
  std::uint64_t capacity = 0;  ///< 0: no ring
  std::uint64_t process = 0;
  bool in_place = false;
  CommitState live;                    ///< of the newest whole slot
  std::optional<CommitState> durable;  ///< of a ring
};

std::array<std::byte, kSlotBytes> encode_slot(const CommitState& state);
/// A whole page. `durable` for rings.
CommitBytes encode_page(const CommitPage& page);

/// Checks everything; afterwards a ring has num_rows == min(written, capacity) and a busy range
/// inside it. Throws Error(corrupt), naming `where`, if neither slot is whole.
CommitPage parse_commit_page(std::span<const std::byte> bytes, const std::string& where);

/// The page of a folder, or nothing if it has none. Throws as parse_commit_page().
std::optional<CommitPage> read_commit_page(Folder& folder);

/// What holds now: the live state if it is of this boot, else a ring's durable one, else nothing:
/// then meta.json does.
const CommitState* state_now(const CommitPage& page);

/// The rows that are committed now, or nothing where meta.json counts them.
std::optional<std::int64_t> committed_rows(Folder& folder);

}  // namespace tenfold::detail::formats::folder

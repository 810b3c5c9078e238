#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

// Archives (`.tdz`): a memory-mapped folder in one zip file, as tensordict packs it. open(),
// load(), save(), convert() and verify() take them as any other format; here is what else
// tensordict offers.

struct ArchiveOptions {
  bool durable = false;      ///< on the device when the call returns
  bool robust_names = true;  ///< false: keys as file names as they stand
  bool zeros = false;      ///< zeros (holes) instead of the tensors' bytes; JSON values are copied
  bool all_notes = false;  ///< what the files lose on purpose, too: ties, tuples
  int deflate_level = 0;   ///< 0: stored; 1 to 12: deflated where that makes a tensor smaller
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// True for a file that is a zip archive with a meta.json at its top.
TENFOLD_API bool is_memmap_archive(const Path& path);

/// Writes the files that tensordict's `memmap` writes, into one archive; what is at `path` is
/// replaced. As write_memmap(): notes only of what the files would lose.
/// Throws Error(unsupported) where they cannot hold the tree, Error(io, EBUSY) if somebody writes
/// through the archive that is there.
TENFOLD_API void write_memmap_archive(const TensorDict& tree, const Path& path,
                                      const ArchiveOptions& options = {});

/// Packs a folder into one archive, its files as they are: checksums, notes, and whatever else lies
/// in it. Throws Error(invalid_argument) if it has no meta.json or if the archive would lie in it,
/// Error(unsupported) for links.
TENFOLD_API void pack_memmap(const Path& folder, const Path& archive,
                             const ArchiveOptions& options = {});

/// Unpacks an archive into a folder, which is replaced whole. Throws Error(corrupt) if a CRC-32 is
/// wrong, Error(invalid_argument) if entries that no metadata names would go with the old folder;
/// then nothing has changed.
TENFOLD_API void unpack_memmap(const Path& archive, const Path& folder,
                               const ArchiveOptions& options = {});

/// Makes the CRC-32s of all stored entries right, which programs that write through an archive
/// leave behind. Only what changed is written. tenfold does this itself on flush() and when the
/// last tensor of a tree opened write_through is gone. Holes are not read. If the archive comment
/// holds the checksum of the structure, that is computed again, too. Throws
/// Error(io) with errno ECANCELED if the monitor stops it: then nothing has changed.
TENFOLD_API void refresh_archive_checksums(const Path& path, Monitor* monitor = nullptr);

}  // namespace tenfold

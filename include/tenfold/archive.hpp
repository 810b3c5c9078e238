#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

// Archives (`.tdz`): a memory-mapped folder in one zip file, as tensordict packs it. open(),
// load(), save(), convert() and verify() support archives like any other format. This header
// declares further functions for archives.

/// Options of write_memmap_archive(), pack_memmap() and unpack_memmap(). pack_memmap() ignores
/// `robust_names`, `zeros` and `all_notes`. unpack_memmap() ignores these three and
/// `deflate_level`.
struct ArchiveOptions {
  bool durable = false;      ///< fsync the files before the call returns
  bool robust_names = true;  ///< encode keys as file names; false: use keys unchanged
  /// Write zeros (holes) instead of the tensors' bytes; JSON values are copied.
  bool zeros = false;
  /// Also record shared storage, and Python types such as tuples, in the metadata sidecar
  /// (`%notes.json`).
  bool all_notes = false;
  int deflate_level = 0;       ///< 0: stored; 1 to 12: deflated where that makes a tensor smaller
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// True for a file that is a zip archive with a meta.json at its top.
TENFOLD_API bool is_memmap_archive(const Path& path);

/// Saves a tree as an archive of the files that tensordict's `memmap` writes, and replaces `path`.
/// Without `all_notes`, the metadata sidecar records only what tensordict's own files would lose,
/// as in memmap(). Throws Error(unsupported) if the files cannot hold the tree,
/// Error(invalid_argument) for keys that cannot be file names, and Error(io) (EBUSY) if another
/// handle has the existing archive open "r+".
TENFOLD_API void write_memmap_archive(const TensorDict& tree, const Path& path,
                                      const ArchiveOptions& options = {});

/// Packs a folder into one archive with all of its files unchanged, including the checksums and the
/// metadata sidecar. Temporary files of saves are omitted. Throws Error(invalid_argument) if the
/// folder has no meta.json or would contain the archive. Throws Error(unsupported) if the folder is
/// a data set that can grow (it has a `%commit`), contains symbolic links or special files, or is
/// nested deeper than 512 folders.
TENFOLD_API void pack_memmap(const Path& folder, const Path& archive,
                             const ArchiveOptions& options = {});

/// Unpacks an archive into a folder, which is replaced atomically. Throws Error(corrupt) if a
/// CRC-32 is wrong, and Error(invalid_argument) if an existing folder has entries that no metadata
/// names. If it throws either error, the existing folder is unchanged.
TENFOLD_API void unpack_memmap(const Path& archive, const Path& folder,
                               const ArchiveOptions& options = {});

/// Recomputes the CRC-32s of all stored (uncompressed) entries without data descriptors. These
/// CRC-32s become stale when a shared mapping is written. tenfold itself updates them on flush(),
/// and when a tree opened with Mode::write_through and all of its tensors are released. If the
/// archive comment contains a checksum of the structure, that checksum is recomputed, too. Throws
/// Error(io) with errno ECANCELED if the monitor stops the call: then nothing has changed.
TENFOLD_API void refresh_archive_checksums(const Path& path, Monitor* monitor = nullptr);

}  // namespace tenfold

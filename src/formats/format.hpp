#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/shared/earlier_version.hpp"
#include "formats/shared/file_head.hpp"
#include "formats/shared/verify_filter.hpp"

namespace tenfold::detail::formats {

/// Options for writing a format.
struct WriteRequest {
  bool durable = true;
  bool checksums = true;
  bool notes = true;     ///< false: omit the notes document (the metadata sidecar)
  bool zeros = false;    ///< store zeros as holes instead of the bytes of the leaves
  bool reserve = false;  ///< with `zeros`: allocate disk space for them, if the file system can
  int num_threads = 0;   ///< as SaveOptions::num_threads
  std::uint64_t shard_size_bytes = 0;  ///< as ConvertOptions::shard_size_bytes
  Monitor* monitor = nullptr;          ///< null: progress is not reported
  /// An earlier version of the saved data; null if there is none. If the checksums of a new file
  /// equal those of a file of the earlier version, the save creates a hard link to the old file
  /// instead. Ignored if `checksums` is false, and by formats that cannot compute checksums before
  /// writing.
  const EarlierVersion* earlier = nullptr;
};

/// Options for opening a format.
struct OpenRequest {
  Mode mode = Mode::read;
};

/// Options for verifying stored data.
struct VerifyRequest {
  int num_threads = 0;                   ///< as VerifyOptions::num_threads
  Monitor* monitor = nullptr;            ///< null: progress is not reported
  const VerifyFilter* filter = nullptr;  ///< check only what is loaded; null: everything

  /// True if the filter excludes the bytes at `where` (in the form of LeafSource::where()).
  bool skips(const std::string& where) const { return filter != nullptr && filter->skips(where); }
  /// True if the filter excludes the bytes [begin, end) of the leaf at `where`.
  bool skips(const std::string& where, std::uint64_t begin, std::uint64_t end) const {
    return filter != nullptr && filter->skips(where, begin, end);
  }
  /// Returns a function of `begin` and `end` that calls skips(where, begin, end). Returns an empty
  /// function if there is no filter. The filter must outlive the result.
  std::function<bool(std::uint64_t, std::uint64_t)> skips_of(const std::string& where) const {
    if (filter == nullptr) return {};
    return [chosen = filter, where](std::uint64_t begin, std::uint64_t end) {
      return chosen->skips(where, begin, end);
    };
  }
};

/// The kinds of roots that a format can store. A bare root (NodeInfo::is_bare) is a single tensor
/// or value. none: no bare roots; some: bare roots and other trees; all: only bare roots.
enum class BareRoots : std::uint8_t { none, some, all };

/// A format: its properties and functions.
struct Format {
  std::string_view name;  ///< as returned by tenfold::probe()
  std::string_view noun;  ///< for messages, with its article: "a safetensors file"
  std::span<const std::string_view>
      suffixes;               ///< a save to a path with one of them uses this format
  bool holds_sparse = false;  ///< a save accepts nodes of kind sparse
  BareRoots bare_roots = BareRoots::none;
  bool is_writable_in_place = false;  ///< supports Mode::write_through
  bool holds_zeros = false;           ///< supports WriteRequest::zeros

  /// Returns true if the file or folder has this format. Checks the content of a file, or only the
  /// suffix for an index of torch.save files. Checks the names of the files in a folder and, for
  /// some formats, the content of a small metadata file.
  bool (*probe)(const FileHead& head);
  /// Implements open(), which first checks the mode. May take the open file or folder from `head`.
  TensorDict (*open_tree)(const FileHead& head, const OpenRequest& request);
  /// Implement check() and write(). Both are null if the format can only be read.
  void (*check_tree)(const TensorDict& tree);
  void (*write_tree)(const TensorDict& tree, const Path& path, const WriteRequest& request);
  /// Checks the structure and the checksums. Returns damage as problems of the report. Throws
  /// Error(io) for failed system calls that do not indicate damage (is_problem_of_files()).
  VerifyReport (*verify)(const Path& path, const VerifyRequest& request);

  /// Opens the tree lazily: reads metadata only. Throws Error(unsupported) if the mode is
  /// write_through and the format does not support it, Error(corrupt) and Error(io).
  TensorDict open(const FileHead& head, const OpenRequest& request) const;
  /// Throws Error(unsupported) or Error(invalid_argument), naming the key, for an entry that this
  /// format cannot store, and Error(unsupported) if the format can only be read. write() checks the
  /// same before it writes anything.
  void check(const TensorDict& tree) const;
  /// Replaces `path` by the tree, as FileReplacement and FolderReplacement do: atomically, except
  /// that a folder is replaced by two renames if the file system cannot exchange two names. Throws
  /// like check(), and Error(unsupported) if the request asks for zeros and the format does not
  /// support them.
  void write(const TensorDict& tree, const Path& path, const WriteRequest& request) const;
};

/// All formats, in the order of detection.
std::span<const Format* const> all() noexcept;
/// Returns the quoted names of all formats, separated by ", ", for messages. If `are_written`,
/// omits formats that can only be read.
std::string names(bool are_written = false);

namespace bundle {
extern const Format kFormat;
extern const Format kStepFormat;  // of CheckpointManager, in checkpoint/; named "bundle"
}  // namespace bundle
namespace consolidated {
extern const Format kFormat;
}
namespace dcp {
extern const Format kFormat;
}
namespace folder {
extern const Format kFormat;
extern const Format kArchiveFormat;  // "tdz"
}  // namespace folder
namespace numpy {
extern const Format kNpy;
extern const Format kNpz;
}  // namespace numpy
namespace safetensors {
extern const Format kFormat;
extern const Format kShardedFormat;  // named "safetensors"
extern const Format kDcpFormat;      // named "dcp"
}  // namespace safetensors
namespace snapshot {
extern const Format kFormat;
}
namespace torch_file {
extern const Format kFormat;
extern const Format kShardedFormat;  // named "pt"
}  // namespace torch_file

}  // namespace tenfold::detail::formats

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
  bool notes = true;     ///< false: omit tenfold's notes on what the format itself cannot express
  bool zeros = false;    ///< write sparse zeros, not the leaves' bytes (memmap_like, new data sets)
  bool reserve = false;  ///< with zeros: allocate their space, if the file system can
  int num_threads = 0;
  std::uint64_t shard_size_bytes = 0;
  Monitor* monitor = nullptr;
  /// An earlier version of the saved data. Instead of a file whose checksums equal those of a file
  /// of the earlier version, a hard link to that file is created. Ignored without `checksums`, and
  /// by formats that cannot compare before writing: they write everything.
  const EarlierVersion* earlier = nullptr;
};

/// Options for opening a format.
struct OpenRequest {
  Mode mode = Mode::read;
};

/// Options for verifying stored data.
struct VerifyRequest {
  int num_threads = 0;
  Monitor* monitor = nullptr;
  const VerifyFilter* filter = nullptr;  ///< check only what is loaded; null: everything

  /// True if the filter excludes the bytes at `where` (in the form of LeafSource::where()).
  bool skips(const std::string& where) const { return filter != nullptr && filter->skips(where); }
  /// True if the filter excludes the bytes [begin, end) of the leaf at `where`.
  bool skips(const std::string& where, std::uint64_t begin, std::uint64_t end) const {
    return filter != nullptr && filter->skips(where, begin, end);
  }
  /// Returns skips() for the leaf at `where` as a function of `begin` and `end`, or an empty
  /// function if there is no filter.
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
  std::span<const std::string_view> suffixes;  ///< suffixes of file names that select the format
  bool holds_sparse = false;                   ///< supports nodes of kind sparse; otherwise they
                                               ///< are refused
  BareRoots bare_roots = BareRoots::none;
  bool is_writable_in_place = false;  ///< supports Mode::write_through
  bool holds_zeros = false;           ///< supports WriteRequest::zeros

  /// Returns true if the file or folder has this format. Checks the content of a file, or only the
  /// suffix for an index of torch.save files. Checks the names of the files in a folder and, for
  /// some formats, a small document.
  bool (*probe)(const FileHead& head);
  TensorDict (*open_tree)(const FileHead& head, const OpenRequest& request);
  /// Null if the format can only be read. Then write_tree is null, too.
  void (*check_tree)(const TensorDict& tree);
  void (*write_tree)(const TensorDict& tree, const Path& path, const WriteRequest& request);
  VerifyReport (*verify)(const Path& path, const VerifyRequest& request);

  /// Opens the tree. Throws Error(unsupported) if the request asks for write_through and the format
  /// does not support it.
  TensorDict open(const FileHead& head, const OpenRequest& request) const;
  /// Throws Error(unsupported) or Error(invalid_argument), naming the key, for an entry that this
  /// format cannot store, and Error(unsupported) if the format can only be read. write() checks the
  /// same before it writes anything.
  void check(const TensorDict& tree) const;
  /// Replaces `path` atomically, as FileReplacement and FolderReplacement do. If the file system
  /// cannot exchange two names, replacing a folder takes two renames. Throws like check(), and
  /// Error(unsupported) if the request asks for zeros and the format does not support them.
  void write(const TensorDict& tree, const Path& path, const WriteRequest& request) const;
};

/// All formats, in the order of detection.
std::span<const Format* const> all() noexcept;
/// Returns the quoted names of all formats, or only of those that can be written, for messages.
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

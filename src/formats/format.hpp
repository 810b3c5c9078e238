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
  /// An earlier version: files that are equal by their checksums become hard links to its files.
  /// Needs `checksums`. Formats that cannot compare before writing ignore it and write everything.
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

  /// True if the bytes at `where` (in the form of LeafSource::where()) are not loaded.
  bool skips(const std::string& where) const { return filter != nullptr && filter->skips(where); }
  /// True if the bytes [begin, end) of the leaf at `where` are not loaded.
  bool skips(const std::string& where, std::uint64_t begin, std::uint64_t end) const {
    return filter != nullptr && filter->skips(where, begin, end);
  }
  /// skips() for the bytes of one leaf; empty without a filter.
  std::function<bool(std::uint64_t, std::uint64_t)> skips_of(const std::string& where) const {
    if (filter == nullptr) return {};
    return [chosen = filter, where](std::uint64_t begin, std::uint64_t end) {
      return chosen->skips(where, begin, end);
    };
  }
};

/// Whether a format can store a bare root (NodeInfo::is_bare), a single tensor or value. some: bare
/// roots and other trees; all: only bare roots.
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

  /// True if the path has this format. Checks the content; in a folder, the names of files, and in
  /// some formats also a small document; for an index of files of torch.save, only the suffix.
  bool (*probe)(const FileHead& head);
  TensorDict (*open_tree)(const FileHead& head, const OpenRequest& request);
  /// Null, like write_tree, for a format that can only be read.
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
  /// Replaces `path`, as FileReplacement and FolderReplacement do: atomically, but a folder with
  /// two renames if the file system cannot exchange names. Throws like check(), and
  /// Error(unsupported) if the request asks for zeros and the format does not support them.
  void write(const TensorDict& tree, const Path& path, const WriteRequest& request) const;
};

/// All formats, in the order of detection.
std::span<const Format* const> all() noexcept;
/// The names of all formats, or only of those that are written, quoted: for messages.
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

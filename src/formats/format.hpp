#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/shared/file_head.hpp"
#include "formats/shared/verify_filter.hpp"

namespace tenfold::detail::formats {

/// How a format is asked to write.
struct WriteRequest {
  bool durable = true;
  bool checksums = true;
  bool notes = true;     ///< false: exactly what the format's own tool writes (memmap*)
  bool zeros = false;    ///< memmap_like: sparse zeros instead of the leaves' bytes
  bool reserve = false;  ///< with zeros: their space is taken at once, where that can be done
  int num_threads = 0;
  std::uint64_t shard_size_bytes = 0;
  Monitor* monitor = nullptr;
};

/// How a format is asked to open.
struct OpenRequest {
  Mode mode = Mode::read;
};

/// How a format is asked to check what is stored.
struct VerifyRequest {
  int num_threads = 0;
  Monitor* monitor = nullptr;
  const VerifyFilter* filter = nullptr;  ///< of what is loaded; null: everything is checked

  /// True if nobody asked for the bytes there; `where` as LeafSource::where() names them.
  bool skips(const std::string& where) const { return filter != nullptr && filter->skips(where); }
};

/// Whether a format holds a value by itself, which is a bare root (NodeInfo::is_bare).
enum class BareRoots : std::uint8_t { none, some, all };

/// A format is a row of this table (io/registry.cpp lists all rows).
struct Format {
  std::string_view name;  ///< as probe() returns it
  std::string_view noun;  ///< what messages call it, with its article: "a safetensors file"
  std::span<const std::string_view> suffixes;  ///< of file names it is saved under
  bool holds_sparse = false;                   ///< nodes of kind sparse; others refuse them by key
  BareRoots bare_roots = BareRoots::none;
  bool is_writable_in_place = false;  ///< opens in Mode::write_through
  bool holds_zeros = false;           ///< WriteRequest::zeros makes it

  /// True if what is there is of this format. Looks at content, cheaply.
  bool (*probe)(const FileHead& head);
  TensorDict (*open_tree)(const FileHead& head, const OpenRequest& request);
  /// Null, as write_tree is, for a format that is read only.
  void (*check_tree)(const TensorDict& tree);
  void (*write_tree)(const TensorDict& tree, const Path& path, const WriteRequest& request);
  VerifyReport (*verify)(const Path& path, const VerifyRequest& request);

  /// Opens the tree. Throws Error(unsupported) if the format is not writable in place and that is
  /// what the request asks for.
  TensorDict open(const FileHead& head, const OpenRequest& request) const;
  /// Throws Error(unsupported), naming the key, for what this format cannot hold. write() does the
  /// same before it writes anything; this is for those who want to know before they begin.
  void check(const TensorDict& tree) const;
  /// Replaces what is at `path`, atomically.
  void write(const TensorDict& tree, const Path& path, const WriteRequest& request) const;
};

namespace bundle {
extern const Format kFormat;
extern const Format kStepFormat;  // of CheckpointManager, in checkpoint/; probe() calls it "bundle"
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
extern const Format kShardedFormat;  // probe() calls it "safetensors"
extern const Format kDcpFormat;      // probe() calls it "dcp"
}  // namespace safetensors
namespace snapshot {
extern const Format kFormat;
}
namespace torch_file {
extern const Format kFormat;
extern const Format kShardedFormat;  // probe() calls it "pt"
}  // namespace torch_file

}  // namespace tenfold::detail::formats

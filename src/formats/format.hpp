#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

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

/// A format is a row of this table (io/registry.cpp lists all rows).
struct Format {
  std::string_view name;                       ///< as probe() returns it
  std::span<const std::string_view> suffixes;  ///< of file names it is saved under
  /// True if what is at `path` (which exists) is of this format. Looks at content, cheaply.
  bool (*probe)(const Path& path);
  TensorDict (*open)(const Path& path, const OpenRequest& request);
  /// Throws Error(unsupported), naming the key, for what this format cannot hold. write() does the
  /// same before it writes anything; this is for those who want to know before they begin.
  void (*check)(const TensorDict& tree);
  /// Replaces what is at `path`, atomically.
  void (*write)(const TensorDict& tree, const Path& path, const WriteRequest& request);
  VerifyReport (*verify)(const Path& path, const VerifyRequest& request);
  bool holds_sparse = false;  ///< nodes of kind sparse; others refuse them by key
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

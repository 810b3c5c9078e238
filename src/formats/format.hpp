#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/shared/verify_filter.hpp"

namespace tenfold {

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

extern const Format kConsolidated;        // consolidated.cpp
extern const Format kDcp;                 // dcp.cpp
extern const Format kMemmapArchive;       // memmap_archive_format.cpp: "tdz"
extern const Format kMemmapFolder;        // memmap_folder.cpp
extern const Format kNpy;                 // npy.cpp
extern const Format kNpz;                 // npz.cpp
extern const Format kSafetensors;         // safetensors.cpp
extern const Format kSafetensorsDcp;      // safetensors_dcp.cpp: probe() calls it "dcp"
extern const Format kSafetensorsSharded;  // safetensors_sharded.cpp: probe() calls it "safetensors"
extern const Format kSnapshot;            // snapshot.cpp
extern const Format kTorchFile;           // torch_file.cpp
extern const Format kTorchSharded;        // torch_sharded.cpp: probe() calls it "pt"

}  // namespace tenfold

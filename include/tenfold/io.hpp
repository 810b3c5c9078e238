#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

using Path = std::filesystem::path;

/// How mapped tensors behave, as in NumPy.
enum class Mode : std::uint8_t {
  read,           ///< "r": the file never changes; pages are private
  copy_on_write,  ///< "c": the same, and the program means to write into its copy
  write_through,  ///< "r+": writes reach the file
};

/// Watches a long call. Both members are called by the calling thread only, at most every 50 ms.
class TENFOLD_API Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                      std::string_view what) = 0;
  /// True to abandon the call: it cleans up and throws Error(io) with errno ECANCELED.
  virtual bool stop() = 0;
};

// Members have initializers so that {.keys = ...} warns of none that is left out.

struct OpenOptions {
  Mode mode = Mode::read;
  std::string format{};  ///< empty: by content
};

struct LoadOptions {
  Mode mode = Mode::read;
  std::string format{};         ///< empty: by content
  std::vector<KeyPath> keys{};  ///< empty: all; else as select() in inspect.hpp takes them
  bool only_keys = false;       ///< empty `keys`: nothing
  std::vector<KeyPath> exclude{};
  bool verify = false;  ///< check the checksums of what is loaded
  bool aliases = true;  ///< tensors that shared bytes share them again
  /// Objects of classes that are not read become nodes of kind opaque; false: Error(unsupported)
  /// naming key and class. Nothing is imported or called either way.
  bool allow_opaque = false;
  Monitor* monitor = nullptr;
};

struct SaveOptions {
  std::string format{};   ///< empty: by suffix; no suffix or an unknown one is a folder
  bool durable = true;    ///< on the device when the call returns
  bool checksums = true;  ///< write them beside the data
  int num_threads = 0;    ///< 0: min(8, cores)
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  Monitor* monitor = nullptr;
};

/// Opens any format lazily: reads metadata, no tensor byte.
/// Throws Error: file_not_found, corrupt, unsupported, io.
TENFOLD_API TensorDict open(const Path& path, const OpenOptions& options = {});

/// Opens, maps and checks every leaf; bytes are paged in on use.
TENFOLD_API TensorDict load(const Path& path, const LoadOptions& options = {});

/// Saves a tree so that `path` holds, at every moment, the old version or the new, whole.
/// Returns the path. Throws before writing anything if the format cannot hold the tree.
TENFOLD_API Path save(const TensorDict& tree, const Path& path, const SaveOptions& options = {});

/// The files that tensordict's `memmap` writes: no checksums, notes only of what its files would
/// lose, not durable, but published by one rename; opened "r+". memmap.hpp has all its options.
TENFOLD_API TensorDict memmap(const TensorDict& tree, const Path& path, int num_threads = 0);

/// The same folder with zeros instead of the tensors' bytes (sparse files), opened "r+".
/// Only dtypes and shapes of the tensors are looked at; JSON values are copied.
TENFOLD_API TensorDict memmap_like(const TensorDict& tree, const Path& path);

/// The name of the format that `path` is in: "memmap", "safetensors", ...
/// Throws Error: file_not_found, unsupported if it is none.
TENFOLD_API std::string probe(const Path& path);

struct Problem {
  std::string path;  ///< the file
  std::string part;  ///< which part of it, as errors name it
  std::string what;  ///< what is wrong: expected, found, remedy
};

struct VerifyReport {
  std::vector<Problem> problems;
  std::uint64_t num_leaves = 0;
  std::uint64_t num_bytes = 0;
  std::uint64_t num_checksums = 0;
  /// Of a bundle: keys of the entries that store no checksums, of which the structure alone was
  /// checked, or that are not read.
  std::vector<std::string> unchecked{};
  bool ok() const noexcept { return problems.empty(); }
};

struct VerifyOptions {
  std::string format{};
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// Checks the whole structure and every checksum, in parallel, in bounded memory.
/// Damage is reported, not thrown. Throws Error(file_not_found), Error(io).
TENFOLD_API VerifyReport verify(const Path& path, const VerifyOptions& options = {});

/// Renames the dotted path of a leaf; return it unchanged to leave it.
using RenameFunction = std::function<std::string(const std::string& dotted_path)>;

struct ConvertOptions {
  std::string from{};           ///< format of the source; empty: by content
  std::string format{};         ///< of the target; empty: by suffix
  std::vector<KeyPath> keys{};  ///< as LoadOptions::keys
  bool only_keys = false;       ///< as LoadOptions::only_keys
  std::vector<KeyPath> exclude{};
  /// A key that changes as a whole stays one key, dots and all; where more than one changes, dots
  /// make nodes.
  RenameFunction rename{};
  std::vector<std::string> renamed{};  ///< dotted names that `rename` must find in the source
  std::optional<DType> dtype{};        ///< casts floating-point leaves
  bool durable = true;
  bool checksums = true;
  int num_threads = 0;
  std::uint64_t shard_size_bytes = 0;  ///< greatest bytes a shard; 0: 5 GB
  Monitor* monitor = nullptr;
};

struct ConvertReport {
  std::uint64_t num_leaves = 0;
  std::uint64_t num_bytes = 0;
};

/// Streams `source` into `target` in another format, in bounded memory; `target` is replaced as
/// save() does. What the target cannot hold is refused by key before anything is written, and so is
/// a target inside the source's folder, and a shard size for what has no shards. Sparse tensors
/// whose indices are not sound are Error(corrupt), as load() has it.
TENFOLD_API ConvertReport convert(const Path& source, const Path& target,
                                  const ConvertOptions& options = {});

/// What load_into() did, by dotted name.
struct LoadReport {
  struct Mismatch {
    std::string name;
    std::string expected;     ///< the target's dtype and shape: "float32 [3, 4]"
    std::string found;        ///< the source's
    bool cast_helps = false;  ///< LoadIntoOptions::cast would load it
  };
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     ///< in the target, not in the source
  std::vector<std::string> unexpected;  ///< in the source, not in the target
  std::vector<Mismatch> mismatched;
  /// In the source, without meaning in the target and without effect on any result: options of
  /// Python's optimizers that LibTorch does not have, and "param_groups.<i>" for a group of an
  /// optimizer that keeps its options, as no saved group has the same parameters. They do not count
  /// as differences.
  std::vector<std::string> ignored{};
  bool ok() const noexcept { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

struct LoadIntoOptions {
  bool strict = true;       ///< throw Error(invalid_argument) listing everything, changing nothing
  bool cast = false;        ///< convert dtypes
  bool dry_run = false;     ///< compare and report (or throw) only; no tensor is read or written
  RenameFunction rename{};  ///< from the source's names to the target's
  std::vector<std::string> renamed{};  ///< dotted names that `rename` must find in the source
  std::vector<KeyPath> keys{};         ///< of the source, as LoadOptions::keys
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// Copies tensors straight from the file into the tensors of `target` (in memory, or mapped "r+"),
/// matched by dotted name, without a second copy in memory. JSON values are left alone. With
/// `keys`, a tensor of the target counts as missing only if they name it. Where tensors of the
/// target share memory (tied parameters) the last in its order is what stays, as in Python.
TENFOLD_API LoadReport load_into(const TensorDict& target, const TensorDict& source,
                                 const LoadIntoOptions& options = {});
TENFOLD_API LoadReport load_into(const TensorDict& target, const Path& source,
                                 const LoadIntoOptions& options = {});

/// What a strict load_into() does with its report: throws Error(invalid_argument) that lists all
/// differences, names a prefix that explains them, and calls the source by that name.
TENFOLD_API void require_ok(const LoadReport& report, const std::string& source);

}  // namespace tenfold

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
  copy_on_write,  ///< "c": the same, for programs that write into their private copy
  write_through,  ///< "r+": a shared mapping; writes reach the file
};

/// Observes a long call. Only the calling thread calls its members, at most every 50 ms.
class TENFOLD_API Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                      std::string_view what) = 0;
  /// True to abandon the call: it cleans up and throws Error(io) with errno ECANCELED.
  virtual bool stop() = 0;
};

// Members have initializers so that {.keys = ...} gives no warning about omitted ones.

struct OpenOptions {
  Mode mode = Mode::read;
  std::string format{};  ///< empty: by content
};

struct LoadOptions {
  Mode mode = Mode::read;
  std::string format{};         ///< empty: by content
  std::vector<KeyPath> keys{};  ///< empty: all; else as for select() in inspect.hpp
  bool only_keys = false;       ///< empty `keys`: nothing
  std::vector<KeyPath> exclude{};
  bool verify = false;  ///< compare the checksums of the loaded entries
  bool aliases = true;  ///< restore shared storage
  /// Returns objects of unsupported classes as nodes of kind opaque; false: Error(unsupported)
  /// naming key and class. Nothing is imported or called either way.
  bool allow_opaque = false;
  Monitor* monitor = nullptr;
};

struct SaveOptions {
  std::string format{};   ///< empty: by suffix; no suffix or an unknown one is a folder
  bool durable = true;    ///< fsynced when the call returns
  bool checksums = true;  ///< store them with the data
  int num_threads = 0;    ///< 0: min(8, cores)
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  Monitor* monitor = nullptr;
};

/// Opens any format lazily: reads metadata only.
/// Throws Error: file_not_found, corrupt, unsupported, io.
TENFOLD_API TensorDict open(const Path& path, const OpenOptions& options = {});

/// Opens, maps and checks every leaf; bytes are paged in on use. A bare root has no keys to select:
/// LoadOptions::keys is Error(key_not_found).
TENFOLD_API TensorDict load(const Path& path, const LoadOptions& options = {});

/// Returns what load() does; for a bare root its value: the tensor of "x.npy", the tensor or JSON
/// value of a file of torch.save without a container.
TENFOLD_API TensorDict::Item load_value(const Path& path, const LoadOptions& options = {});

/// Saves a tree and replaces `path` atomically: a crash leaves the old version or the new one.
/// Returns the path. Throws before writing anything if the format cannot hold the tree.
TENFOLD_API Path save(const TensorDict& tree, const Path& path, const SaveOptions& options = {});

/// Saves a single tensor or JSON value, which load_value() returns; saves a node like save().
/// Throws Error(unsupported) for a format that holds containers only.
TENFOLD_API Path save_value(const TensorDict::Item& value, const Path& path,
                            const SaveOptions& options = {});

/// Writes the files of tensordict's `memmap` and opens them "r+": no checksums, notes only for what
/// its files cannot express, not durable, but published by one rename. memmap.hpp has all options.
TENFOLD_API TensorDict memmap(const TensorDict& tree, const Path& path, int num_threads = 0);

/// Writes the same folder with zeros (sparse files) instead of the tensors' bytes, and opens it
/// "r+". Reads only dtypes and shapes of the tensors; copies JSON values.
TENFOLD_API TensorDict memmap_like(const TensorDict& tree, const Path& path);

/// Returns the name of the format of `path`: "memmap", "safetensors", ...
/// Throws Error: file_not_found, unsupported for other files.
TENFOLD_API std::string probe(const Path& path);

struct Problem {
  std::string path;  ///< the file
  std::string part;  ///< the part of it, as in error messages
  std::string what;  ///< what is wrong: expected, found, remedy; as Error::message()
  // What `what` is made of, as the fields of Error; empty if it lacks them.
  std::string problem{};
  std::string expected{};
  std::string found{};
  std::string remedy{};
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

/// Returns the new dotted path of a leaf, or the same one to keep it.
using RenameFunction = std::function<std::string(const std::string& dotted_path)>;

struct ConvertOptions {
  std::string from{};           ///< format of the source; empty: by content
  std::string format{};         ///< of the target; empty: by suffix
  std::vector<KeyPath> keys{};  ///< as LoadOptions::keys
  bool only_keys = false;       ///< as LoadOptions::only_keys
  std::vector<KeyPath> exclude{};
  /// A key that is renamed as a whole stays one key, dots included. If several keys of a path
  /// change, dots create nodes.
  RenameFunction rename{};
  std::vector<std::string> renamed{};  ///< dotted names that `rename` must find in the source
  std::optional<DType> dtype{};        ///< casts floating-point leaves
  bool durable = true;
  bool checksums = true;
  int num_threads = 0;
  std::uint64_t shard_size_bytes = 0;  ///< greatest size of a shard; 0: 5 GB
  Monitor* monitor = nullptr;
};

struct ConvertReport {
  std::uint64_t num_leaves = 0;
  std::uint64_t num_bytes = 0;
};

/// Streams `source` into `target` in another format, in bounded memory, and replaces `target` as
/// save() does. A NumPy file holds the only tensor that is left; a bare root whose key "value" is
/// renamed becomes a dict. Before anything is written it refuses, by key, entries that the target
/// cannot hold, a target inside the source's folder, and a shard size for a format without shards.
/// Sparse tensors with invalid indices are Error(corrupt), as in load().
TENFOLD_API ConvertReport convert(const Path& source, const Path& target,
                                  const ConvertOptions& options = {});

/// The result of load_into(), by dotted name.
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
  /// Entries of the source that have no meaning in the target and no effect on results: options of
  /// Python's optimizers that LibTorch does not have, and "param_groups.<i>" for a group of an
  /// optimizer that keeps its options, because no saved group has the same parameters. They do not
  /// count as differences.
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

/// Copies tensors from the file directly into the tensors of `target` (in memory, or mapped "r+"),
/// matched by dotted name, without a second copy in memory. JSON values are not changed. With
/// `keys`, a tensor of the target counts as missing only if they name it. If tensors of the target
/// share storage (tied parameters), the last one in order wins, as in Python.
TENFOLD_API LoadReport load_into(const TensorDict& target, const TensorDict& source,
                                 const LoadIntoOptions& options = {});
TENFOLD_API LoadReport load_into(const TensorDict& target, const Path& source,
                                 const LoadIntoOptions& options = {});

/// Throws the error of a strict load_into(): Error(invalid_argument) that lists all differences of
/// the report, names a prefix that explains them, and calls the source `source`.
TENFOLD_API void require_ok(const LoadReport& report, const std::string& source);

}  // namespace tenfold

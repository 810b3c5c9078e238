#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// A path of the file system.
using Path = std::filesystem::path;

/// The mode of a mapping. The names are those of numpy.memmap, but there "r" is read-only.
enum class Mode : std::uint8_t {
  read,  ///< "r": a private mapping; tensors can be written, files never change
  /// "c": a private mapping, as for `read`, for programs that write to the tensors. If load()
  /// returned a leaf, save() and Leaf::read() use the written bytes. If open() returned it, they
  /// may use the stored bytes, depending on the format; to save written tensors, set() them in a
  /// tree.
  copy_on_write,
  write_through,  ///< "r+": a shared mapping; writes reach the file
};

/// Observes a long call. Only the calling thread calls its members, about every 50 ms. Most calls
/// also report their completion. If a member throws, the call fails with that exception.
class TENFOLD_API Monitor {
 public:
  virtual ~Monitor() = default;
  /// Reports progress. `total_bytes` may be an estimate; 0: not known yet. `what`: the current
  /// work.
  virtual void report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                      std::string_view what) = 0;
  /// Returns true to cancel the call: it cleans up and throws Error(io) with errno ECANCELED.
  virtual bool stop() = 0;
};

// The members of all options have initializers, so that {.keys = ...} gives no warning about
// omitted ones.

/// A selection of entries, as select() in inspect.hpp describes it: names ({"model.*"}), paths
/// ({{"model", "encoder.weight"}}), or no selection, which is the default.
class Keys {
 public:
  /// Makes no selection: the option `keys` then selects everything, and `exclude` excludes nothing.
  Keys() = default;
  /// A selection of these paths; it may be empty. A path of one key is a name or a glob.
  Keys(std::vector<KeyPath> paths) : paths_(std::move(paths)) {}
  /// A selection of these paths.
  Keys(std::initializer_list<KeyPath> paths) : paths_(paths) {}
  /// A selection of these names and globs.
  Keys(std::initializer_list<const char*> names) : paths_(paths_of(names)) {}
  /// A selection of these names and globs.
  Keys(const std::vector<std::string>& names) : paths_(paths_of(names)) {}
  /// A selection of these names and globs, strings of any type: {prefix + ".*", "epoch"}.
  template <class... Names>
    requires(sizeof...(Names) > 0 && (std::convertible_to<const Names&, std::string_view> && ...))
  Keys(const Names&... names) : paths_(paths_of({std::string_view(names)...})) {}

  /// True if there is a selection, even an empty one.
  bool given() const noexcept { return paths_.has_value(); }
  /// The paths; empty without a selection.
  const std::vector<KeyPath>& paths() const& noexcept TENFOLD_LIFETIMEBOUND {
    static const std::vector<KeyPath> none;
    return paths_ ? *paths_ : none;
  }
  /// Overload for temporaries: returns the paths by value.
  std::vector<KeyPath> paths() && { return std::as_const(*this).paths(); }

 private:
  template <class Names = std::initializer_list<std::string_view>>
  static std::vector<KeyPath> paths_of(const Names& names) {
    std::vector<KeyPath> paths;
    for (const auto& name : names) paths.push_back({std::string(name)});
    return paths;
  }

  std::optional<std::vector<KeyPath>> paths_;
};

/// Options of open().
struct OpenOptions {
  Mode mode = Mode::read;  ///< the mode of mappings
  std::string format{};    ///< a name as probe() returns it; empty: detected from the content
};

/// Options of load().
struct LoadOptions {
  Mode mode = Mode::read;  ///< the mode of mappings
  std::string format{};    ///< a name as probe() returns it; empty: detected from the content
  Keys keys{};             ///< entries to load; default: all
  Keys exclude{};          ///< entries of `keys` to omit
  bool verify = false;     ///< compare the checksums of the loaded entries
  /// true: tensors that were saved with shared storage share it again; false: each is a copy.
  /// Mode::write_through needs true.
  bool aliases = true;
  /// Returns objects of unsupported classes as nodes of kind opaque; false: throws
  /// Error(unsupported). Nothing is imported or called either way.
  bool allow_opaque = false;
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Options of save().
struct SaveOptions {
  /// The name of a format; empty: determined by the suffix of the path. No suffix or an unknown one
  /// means a memory-mapped folder; ".pkl" throws Error(unsupported).
  std::string format{};
  bool durable = true;         ///< fsync the files before the call returns
  bool checksums = true;       ///< store checksums with the data
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  bool overwrite = true;       ///< false: Error(io) with errno EEXIST if `path` exists
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Opens a file or folder of any format lazily: reads metadata only. In Mode::write_through,
/// removes the checksums of the tensors of a folder or an archive, which writes would invalidate.
/// Throws Error: file_not_found, corrupt, unsupported, io; invalid_argument for an unknown format
/// name.
TENFOLD_API TensorDict open(const Path& path, const OpenOptions& options = {});

/// Opens a path and maps every leaf; mapping checks the size of the leaf's file. Bytes are paged in
/// on use, or prefetched by other threads. Throws what open() and select() throw. Throws
/// Error(corrupt) for a file that is too short, for invalid indices of a sparse tensor, and, with
/// LoadOptions::verify, for any damage of the loaded entries. Throws Error(invalid_argument) for
/// Mode::write_through if LoadOptions::aliases is false.
TENFOLD_API TensorDict load(const Path& path, const LoadOptions& options = {});

/// Like load(), but if the tree is a bare root (NodeInfo::is_bare), returns its value instead of
/// the tree. The value is the tensor of a file "x.npy", or a tensor or JSON value that save_value()
/// or torch.save saved without a container.
TENFOLD_API TensorDict::Item load_value(const Path& path, const LoadOptions& options = {});

/// Saves a tree and replaces `path`: a crash leaves the old version or the new one, never a part of
/// one. Where the file system lacks RENAME_EXCHANGE, a folder is replaced by two renames: `path` is
/// absent between them, and after a crash there, the next open(), load() or save() restores the old
/// version. Returns the path. Before anything is written, throws Error(unsupported) for an entry
/// and Error(invalid_argument) for a key that the format cannot hold. Throws Error(io) if a system
/// call fails; with EBUSY if another save to `path` is running, or a handle has `path` open in
/// Mode::write_through.
TENFOLD_API Path save(const TensorDict& tree, const Path& path, const SaveOptions& options = {});

/// Saves a single tensor or JSON value, which load_value() returns; saves a node like save().
/// Throws Error(unsupported) for a format that holds containers only.
TENFOLD_API Path save_value(const TensorDict::Item& value, const Path& path,
                            const SaveOptions& options = {});

/// Returns the name of the format of `path`: "memmap", "safetensors", ...
/// Throws Error: file_not_found, unsupported for a path of no known format, corrupt for a path that
/// is neither a file nor a folder, io.
TENFOLD_API std::string probe(const Path& path);

/// A fault that verify() has found.
struct Problem {
  std::string path;  ///< the file
  std::string part;  ///< the part of the file, as Error::part()
  std::string what;  ///< the fault: expected, found, remedy; as Error::message()
  // The parts of `what`; empty if it lacks them.
  std::string problem{};   ///< as Error::problem()
  std::string expected{};  ///< as Error::expected()
  std::string found{};     ///< as Error::found()
  std::string remedy{};    ///< as Error::remedy()
};

/// The result of verify().
struct VerifyReport {
  std::vector<Problem> problems;  ///< the faults

  std::uint64_t num_leaves = 0;     ///< number of tensors
  std::uint64_t num_bytes = 0;      ///< bytes of the tensors
  std::uint64_t num_checksums = 0;  ///< number of checksums compared
  /// Bundles only (a bundle is a folder of a trainer, opened as one tree of its files): the keys of
  /// entries that have no checksums or whose bytes were not read.
  std::vector<std::string> unchecked{};
  /// True if there are no problems.
  bool ok() const noexcept { return problems.empty(); }
};

/// Options of verify().
struct VerifyOptions {
  std::string format{};        ///< a name as probe() returns it; empty: detected from the content
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Checks the whole structure and every checksum, in parallel, in bounded memory.
/// Damage is reported, not thrown: `if (!verify(path).ok()) ...`. Throws Error(file_not_found),
/// Error(io), Error(corrupt) for a path that is neither a file nor a folder, Error(unsupported) for
/// a path of no known format, and Error(invalid_argument) for an unknown format name.
TENFOLD_API VerifyReport verify(const Path& path, const VerifyOptions& options = {});

/// A function that returns the new dotted path of a tensor or JSON value, or the unchanged path.
/// If it throws, the call that uses it fails with that exception.
using RenameFunction = std::function<std::string(const std::string& dotted_path)>;

/// Options of convert().
struct ConvertOptions {
  std::string from{};    ///< format of the source; empty: detected from the content
  std::string format{};  ///< format of the target; empty: by suffix, as for save()
  Keys keys{};           ///< entries to convert; default: all
  Keys exclude{};        ///< entries of `keys` to omit
  /// Returns the new dotted name of an entry. If only one key of the path changes, its new name is
  /// one key, even if it contains dots. Otherwise, each dot of the changed part separates two keys.
  /// If the root has no child nodes, the whole new name is one key. convert() throws
  /// Error(invalid_argument) if two entries get the same new name.
  RenameFunction rename{};
  /// Dotted names that the source must have: Error(key_not_found) if one is missing. Used only for
  /// this check.
  std::vector<std::string> renamed{};
  /// Floating-point leaves are cast to this dtype; nullopt: no leaf is cast. For a dtype that is
  /// not floating-point, convert() throws Error(invalid_argument).
  std::optional<DType> dtype{};
  bool verify = false;    ///< compare the checksums of the converted entries first
  bool durable = true;    ///< fsync the files before the call returns
  bool checksums = true;  ///< store checksums with the data
  int num_threads = 0;    ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  /// Greatest total size of the tensors of a shard, unless a single tensor is larger; 0: 5 GB.
  std::uint64_t shard_size_bytes = 0;
  Monitor* monitor = nullptr;  ///< observes the call
};

/// The result of convert().
struct ConvertReport {
  std::uint64_t num_leaves = 0;  ///< number of tensors
  std::uint64_t num_bytes = 0;   ///< bytes of these tensors
};

/// Streams `source` into `target`, usually in another format, in bounded memory, and replaces
/// `target` as save() does. A .npy target needs exactly one tensor; `keys` can select it. A bare
/// root (NodeInfo::is_bare) whose key "value" is renamed becomes a dict. Before anything is
/// written, throws an Error naming the key of an entry that the target cannot hold. A column
/// of a data set is omitted or renamed with all its leaves. If a column is cast, or loses a part of
/// its leaves, the target has no schema. Throws
/// Error(invalid_argument) for a target inside the source's folder, and for a shard size with a
/// format without shards. Throws Error(corrupt) for sparse tensors with invalid indices, as load()
/// does. The checksums of `target` are computed from the bytes that are read. So without
/// ConvertOptions::verify, verify() of `target` does not find damage of `source`.
TENFOLD_API ConvertReport convert(const Path& source, const Path& target,
                                  const ConvertOptions& options = {});

/// The result of load_into(), by dotted name.
struct LoadReport {
  /// A tensor that is in target and source, but of another dtype or shape.
  struct Mismatch {
    std::string name;         ///< dotted name
    std::string expected;     ///< the target's dtype and shape: "float32 [3, 4]"
    std::string found;        ///< the source's dtype and shape
    bool cast_helps = false;  ///< true if LoadIntoOptions::cast would load the tensor
  };
  /// Names in both trees that were loaded (with `dry_run`: would be loaded).
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     ///< names in the target, but not in the source
  std::vector<std::string> unexpected;  ///< names in the source, but not in the target
  std::vector<Mismatch> mismatched;     ///< in both, but of another dtype or shape
  /// Entries of the source that the target does not use, and that do not count as differences.
  /// Examples are options of Python's optimizers that LibTorch lacks and that have no effect. Also
  /// "param_groups.<i>" for a group of an optimizer that keeps its options, because no saved group
  /// has the same parameters.
  std::vector<std::string> ignored{};
  /// True if there are no differences.
  bool ok() const noexcept { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

/// Options of load_into().
struct LoadIntoOptions {
  bool strict = true;       ///< if anything differs, change nothing and throw an Error with a list
  bool cast = false;        ///< convert the values to the dtypes of the target
  bool dry_run = false;     ///< compare and report (or throw) only; no tensor is read or written
  RenameFunction rename{};  ///< maps the source's names to the target's
  /// Dotted names that the source must have: Error(key_not_found) if one is missing. Used only for
  /// this check.
  std::vector<std::string> renamed{};
  Keys keys{};                 ///< entries of the source to load; default: all
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Copies tensors of `source` into the tensors of `target` (in memory, or mapped "r+") with the
/// same dotted names. Bytes on disk are read directly to their destination; casts and strided
/// tensors need buffers of at most 2 MiB per thread. JSON values are not changed. With `keys`, a
/// tensor of the target counts as missing only if the keys name it. If tensors of the target share
/// storage (tied parameters), all get the values of the last of these tensors. Throws
/// Error(invalid_argument) for differences if `strict` is set, for a read-only or expanded tensor
/// of the target, and for two tensors with the same name. Also throws what Leaf::read() throws.
TENFOLD_API LoadReport load_into(const TensorDict& target, const TensorDict& source,
                                 const LoadIntoOptions& options = {});
/// Calls load_into() with the tree open(source).
TENFOLD_API LoadReport load_into(const TensorDict& target, const Path& source,
                                 const LoadIntoOptions& options = {});

/// Checks a report as a strict load_into() does: unless report.ok(), throws
/// Error(invalid_argument), which lists up to 20 differences of each kind. If at least
/// half of the names match after a prefix is removed or added, the message proposes this rename.
/// `source`: the name of the source in the message.
TENFOLD_API void require_ok(const LoadReport& report, const std::string& source);

}  // namespace tenfold

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

// tensordict's `memmap` functions, for folders whose contents change. For data that does not
// change, use save(), which also writes checksums, and open(), which locks a folder while it is
// mapped "r+".

/// Options of memmap().
struct MemmapOptions {
  int num_threads = 0;  ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  /// Write zeros (sparse files) instead of the tensors' bytes, as tensordict's memmap_like does.
  /// Tensors are not read, except the sizes of nested ones; JSON values are copied. With
  /// `in_place`, existing files keep their bytes.
  bool zeros = false;
  bool durable = false;  ///< fsync the files before the call returns
  /// Overwrite existing files, as tensordict does. A file that several tensors share by hard links
  /// is replaced instead.
  bool in_place = false;
  bool existing_ok = true;     ///< false: Error(io, EEXIST) if a tensor's file exists
  bool robust_names = true;    ///< encode keys as file names; false: use keys unchanged
  Monitor* monitor = nullptr;  ///< observes the call
  /// Paths, relative to the folder, of files from which tensors of the tree are already mapped.
  /// These files are kept. The other tensors and the metadata are written to new files, which
  /// replace existing ones; with `in_place`, the other tensors are written to their existing files.
  std::vector<std::string> already_mapped{};
};

/// Writes the files of tensordict's `memmap` and opens them as open_memmap() does. Writes no
/// checksums. The metadata sidecar (`%notes.json`) records only what tensordict's own files would
/// lose. An existing folder is replaced atomically, unless `in_place` or `already_mapped` is set.
/// Shared storage is not kept. Before anything is written, throws Error(unsupported) if a folder
/// cannot hold the tree, or, with `in_place` or `already_mapped`, if the existing folder is a data
/// set that can grow (it has a `%commit`). Throws Error(invalid_argument) if the existing folder is
/// to be replaced and has entries that no metadata names.
///
///     tenfold::TensorDict buffer = tenfold::memmap(tree, "buffer");
///     buffer.at("x").mutable_data<float>()[0] = 1;       // written to the file
///     tenfold::TensorDict zeros = tenfold::memmap(tree, "zeros", {.zeros = true});
TENFOLD_API TensorDict memmap(const TensorDict& tree, const Path& path,
                              const MemmapOptions& options = {});

/// Opens a folder without locking it. If the folder is replaced, mapped tensors keep the old files;
/// access to entries that were not read yet throws Error(io) (ESTALE). Mode::write_through removes
/// the checksums of the tensors, as in open().
TENFOLD_API TensorDict open_memmap(const Path& path, Mode mode = Mode::write_through);

/// Copies the tensors to `file`, which must exist, and returns the same tree over one mapping of
/// this file. The file gets the size that the tensors need. To share memory between processes, pass
/// the path of an unnamed file, such as "/proc/self/fd/5" of a memfd. Only the options `zeros`,
/// `num_threads` and `monitor` have an effect; `zeros` sets the size of the file and copies
/// nothing. Throws Error(file_not_found), and Error(io), for example with ENOSPC.
TENFOLD_API TensorDict memmap_into(const TensorDict& tree, const Path& file,
                                   const MemmapOptions& options = {});

/// A new tensor of a saved node.
struct NewLeaf {
  std::string key{};             ///< the key
  DType dtype = DType::float32;  ///< the dtype
  Shape shape{};                 ///< the shape; nested tensor: the shape [n, k] of `sizes`
  /// Nested tensor: int64 [n, k], the shapes of its components; null for other tensors.
  const Tensor* sizes = nullptr;
  bool existing_ok = false;  ///< use an existing file, extended if too short
  bool robust_names = true;  ///< encode the key as a file name; false: use it unchanged
};

/// Adds a tensor of zeros to the node in `folder`. Returns the path of the tensor's file, which is
/// not created if the tensor has no elements. Throws Error(invalid_argument) if `folder` is not the
/// folder of a TensorDict, if the key exists or is reserved, if its file name is in use or not
/// allowed, or if the node would have no tensor whose shape begins with its batch size. Throws
/// Error(unsupported) if the folder is a data set that can grow (it has a `%commit`). Throws
/// Error(io): EEXIST if the file exists and NewLeaf::existing_ok is not set, EBUSY while a save
/// replaces the folder or if other callers change it for 10 seconds.
TENFOLD_API Path add_memmap_leaf(const Path& folder, const NewLeaf& leaf);

/// Adds an empty node to the node in `folder` and returns its folder, which may already exist.
/// Throws the same errors as add_memmap_leaf(), but Error(io) (EEXIST) only if a file has the name
/// of the new node's folder.
TENFOLD_API Path add_memmap_node(const Path& folder, std::string_view key, const Shape& batch_size,
                                 bool robust_names = true);

/// Replaces the JSON value (NonTensorData, NonTensorStack) that the node in `folder` has at `key`.
/// Throws Error(invalid_argument) if the entry is not a JSON value. The metadata sidecar
/// (`%notes.json`) is not rewritten. It records the Python types of the old value that JSON lacks:
/// tuples, OrderedDicts, and dict keys that were not strings. If it records none, tuples are stored
/// as lists, and OrderedDicts as dicts. Throws Error(unsupported):
///
/// - if the sidecar records such types for the old value, and those of the new value differ,
/// - if it records none, and the new value has dict keys that are not strings, and
/// - for an extended scalar (Value::Special).
TENFOLD_API void write_memmap_value(const Path& folder, std::string_view key,
                                    const NonTensor& value);

/// Appends rows along dimension 0 of every tensor; keys, dtypes and other dimensions must be those
/// of the saved tree. JSON values and unbatched tensors, which all rows share, stay as they are;
/// `rows` may lack unbatched tensors. Tensors are written first, then each meta.json is replaced,
/// the root's last. So concurrent readers see complete rows only, but a child node may have more
/// rows than the root during the call or after a crash: the next call overwrites these rows.
/// Removes the checksums of the folder, also those in an enclosing saved tree. Before anything is
/// written, throws:
///
/// - Error(invalid_argument) if the rows do not fit, the saved tree has no batch size, a node or
///   JSON value is a stack, or a tensor is nested,
/// - Error(unsupported) if the folder has a `%commit`, strings or ragged rows of a data set, or a
///   tensor with the key "shape", "device" or "_type", whose length is not in meta.json,
/// - Error(corrupt) for a damaged tree, and
/// - Error(io): EBUSY while another call appends or a save replaces the folder, EACCES if a file
///   has hard links outside of the tree.
TENFOLD_API void append_memmap(const Path& path, const TensorDict& rows);

}  // namespace tenfold

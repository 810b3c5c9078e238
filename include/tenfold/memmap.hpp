#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

// Folders that live and change: tensordict's `memmap` family. What is saved whole and never changes
// is better saved with save(), which adds notes, checksums and a lock.

struct MemmapOptions {
  int num_threads = 0;
  bool zeros = false;        ///< memmap_like: sparse zeros; JSON values are copied
  bool durable = false;      ///< on the device when the call returns
  bool in_place = false;     ///< write over the files that are there, as tensordict does
  bool existing_ok = true;   ///< false: Error(io, EEXIST) if a tensor's file exists
  bool robust_names = true;  ///< false: keys as file names as they stand
  Monitor* monitor = nullptr;
  /// Tensors in memory that are mapped from this very folder: their files stay as they are. Then
  /// only new tensors and metadata are written, each by replacing one file.
  std::vector<std::string> mapped_there{};
  bool replace_foreign = false;  ///< the caller looked at foreign_entries() himself
};

/// Writes the files that tensordict's `memmap` writes: no checksums, and notes only of what its
/// files would lose. A folder that exists is replaced whole by one rename, unless `in_place` or
/// `mapped_there` say otherwise. Ties between tensors are not kept. Throws Error(unsupported) where
/// a folder cannot hold the tree, Error(invalid_argument) if entries that no metadata names would
/// go with the old folder; both before anything is written.
TENFOLD_API void write_memmap(const TensorDict& tree, const Path& path,
                              const MemmapOptions& options = {});

/// Opens a folder without holding it locked against being replaced: then a handle keeps the old
/// files. write_through drops the checksums of its tensors, as open() does.
TENFOLD_API TensorDict open_memmap(const Path& path, Mode mode = Mode::write_through);

/// Entries of a folder, at any depth, that no metadata in it names: somebody else's files.
TENFOLD_API std::vector<std::string> foreign_entries(const Path& path);

/// The same tree over one mapping of `file`, which is made as long as it must be.
/// For memory that processes share: `file` is best one without a name.
TENFOLD_API TensorDict memmap_into(const TensorDict& tree, const Path& file,
                                   const MemmapOptions& options = {});

/// The tensor of a new entry of a saved node: `shape` of a nested tensor is that of its sizes.
struct NewLeaf {
  std::string key;
  DType dtype = DType::float32;
  Shape shape;
  const Tensor* sizes = nullptr;  ///< int64 [n, k] of a strided nested tensor
  bool existing_ok = false;       ///< an existing file is taken as it is, and grown if too short
  bool robust_names = true;
};

/// Adds a tensor of zeros to the node in `folder` and returns its file (there is none if it has no
/// elements). Throws Error(invalid_argument) if the key exists or needs the notes, Error(io,
/// EEXIST) if the file exists.
TENFOLD_API Path add_memmap_leaf(const Path& folder, const NewLeaf& leaf);

/// Adds an empty node to the node in `folder` and returns its folder.
TENFOLD_API Path add_memmap_node(const Path& folder, std::string_view key, const Shape& batch_size,
                                 bool robust_names = true);

/// Replaces the JSON value (NonTensorData, NonTensorStack) that is stored in `folder`.
TENFOLD_API void write_memmap_value(const Path& folder, const NonTensor& value);

/// Adds rows at the end of dimension 0 of every tensor: keys, dtypes and further dimensions are
/// those of the saved tree. Tensors are written first, then each meta.json is replaced, the root's
/// before its children's: readers that open meanwhile see whole rows. Throws
/// Error(invalid_argument) before anything is written if the rows do not fit, or if a node is a
/// stack.
TENFOLD_API void append_memmap(const Path& path, const TensorDict& rows);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/tensor.hpp>

namespace tenfold::detail::formats::dcp {

// The content of `.metadata` or `__<rank>.metadata` in a folder of torch.distributed.checkpoint:
// the tensors and objects, the chunks of each tensor, and the location of each item.
// parse_metadata() does not check that the chunks cover their tensors, that the paths are
// consistent, or anything that requires reading the other files.

/// A byte range in a file of the folder. It contains a complete file of torch.save, possibly
/// compressed.
struct Item {
  std::uint32_t file = 0;  ///< index in Metadata::files
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  /// For a Zstandard stream, its maximum decompressed size; 0 if the item is not compressed.
  std::uint64_t most_bytes = 0;
  bool is_compressed() const noexcept { return most_bytes != 0; }
};

/// A rectangular part of a tensor. parse_metadata() omits parts without elements.
struct Chunk {
  Shape offsets;
  Shape sizes;
  Item item;
};

/// A tensor, assembled from its chunks.
struct TensorEntry {
  DType dtype = DType::float32;
  Shape shape;
  std::vector<Chunk> chunks;
};

/// A component of a path in the saved state dict: a key of a dict, or an index of a list.
struct Key {
  std::string text;  ///< for an index, decimal digits
  bool is_index = false;
  bool operator==(const Key&) const = default;
};

/// An entry of the saved state dict.
struct Entry {
  std::string name;       ///< torch's flattened name, such as "model.w"
  std::vector<Key> path;  ///< from the root of the state dict to the entry; not empty
  std::variant<TensorEntry, Item> what;  ///< a tensor or an object
};

/// The metadata of a checkpoint, or of one rank.
struct Metadata {
  std::vector<std::string> files;  ///< names of files in the folder
  std::vector<Entry> entries;
};

/// Parses the pickle of a Metadata object as data: nothing is imported or called. `where` names the
/// file. Throws Error(corrupt) for invalid metadata. Throws Error(unsupported) for an object of
/// another class, an extension other than Zstandard, a layout other than strided, or a dtype that
/// tenfold does not support. The error names the entry if it concerns one.
Metadata parse_metadata(std::string_view pickle, const std::string& where);

/// Merges the metadata that each rank wrote separately (`__<rank>.metadata`).
class Merger {
 public:
  /// Merges the metadata of another rank. An object or chunk that several ranks saved is kept once.
  /// Throws Error(corrupt), naming `where`, if the ranks disagree on the dtype, shape or path of an
  /// entry, or on whether it is a tensor or an object.
  void add(Metadata other, const std::string& where);
  /// Returns the merged metadata. Call it last.
  Metadata take() { return std::move(merged_); }

 private:
  Metadata merged_;
  std::unordered_map<std::string, std::size_t> positions_;  ///< index of an entry, by name
  std::unordered_set<std::string> chunks_;                  ///< name and box of each chunk
};

}  // namespace tenfold::detail::formats::dcp

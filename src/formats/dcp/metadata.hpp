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

/// What `.metadata` tells of a folder of torch.distributed.checkpoint: which tensors and objects
/// there are, how tensors are cut, and where each piece lies. All of it is checked but for what
/// only the files can tell.

/// A run of bytes in a file of the folder: a whole file of torch.save, maybe compressed.
struct Item {
  std::uint32_t file = 0;  ///< position in DcpMetadata::files
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  /// Of a Zstandard stream: the most bytes that it may hold. 0: it is stored as it is.
  std::uint64_t most_bytes = 0;
  bool is_compressed() const noexcept { return most_bytes != 0; }
};

/// A box of a tensor. Boxes without elements are left out.
struct Chunk {
  Shape offsets;
  Shape sizes;
  Item item;
};

struct TensorEntry {
  DType dtype = DType::float32;
  Shape shape;
  std::vector<Chunk> chunks;
};

/// A key of the state dict that was saved, or a position in a list of it.
struct Key {
  std::string text;  ///< the number in decimal
  bool is_index = false;
  bool operator==(const Key&) const = default;
};

struct Entry {
  std::string name;
  std::vector<Key> path;                 ///< at least one
  std::variant<TensorEntry, Item> what;  ///< a tensor or an object
};

struct Metadata {
  std::vector<std::string> files;  ///< each the name of a file in the folder
  std::vector<Entry> entries;
};

/// Reads the pickle of a Metadata object as data: nothing is imported or
/// called. `where` names the file. Throws Error(corrupt) and Error(unsupported), naming the entry.
Metadata parse_metadata(std::string_view pickle, const std::string& where);

/// Puts together what the ranks wrote down each on its own (`__<rank>.metadata`).
class Merger {
 public:
  /// Objects and chunks that are there already are the same ones, saved by each rank. Throws
  /// Error(corrupt), naming `where`, where ranks tell different dtypes, shapes, paths or kinds.
  void add(Metadata other, const std::string& where);
  Metadata take() { return std::move(merged_); }

 private:
  Metadata merged_;
  std::unordered_map<std::string, std::size_t> positions_;  ///< of entries, by name
  std::unordered_set<std::string> chunks_;                  ///< name and box of each
};

}  // namespace tenfold::detail::formats::dcp

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::snapshot {

/// The data files of a snapshot, opened at their first use. At most 256 of them stay open; any
/// other file is opened for each use. Thread-safe.
class Files {
 public:
  explicit Files(os::Directory root) : root_(std::move(root)) {}

  struct File {
    std::string location;
    std::uint64_t number = 0;  ///< different for each file
    std::mutex mutex;          ///< guards the members below
    /// Null before the first open(), and always if the file does not stay open.
    std::shared_ptr<const os::File> opened;
    Buffer mapping;  ///< of the whole file; empty before map()
    std::map<std::pair<std::uint64_t, std::size_t>, Buffer> copies;  ///< by offset and size
  };
  /// Returns the file at `location`, and does not open it yet. is_plain_location() must be true for
  /// the location. The reference is valid as long as this object exists.
  File& at(const std::string& location);

  /// Returns the open file. Throws Error(corrupt) if it is missing, or if a component of its path
  /// is a symbolic link.
  std::shared_ptr<const os::File> open(File& file);
  /// Returns the mapping of the whole file, which the first call creates.
  Buffer map(File& file);
  /// Returns a copy of a range of the file in memory. All calls for a range return the same memory,
  /// because leaves over the same range are aliases.
  Buffer copy(File& file, std::uint64_t offset, std::size_t size_bytes);

  const os::Directory& root() const noexcept { return root_; }

 private:
  std::shared_ptr<const os::File> open_locked(File& file);

  os::Directory root_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<File>> files_;
  std::size_t num_open_ = 0;
};

/// Tensors whose bytes are stored raw in the files of a snapshot. map() maps a tensor, except in
/// two cases, in which it copies the tensor into memory: the tensor is at an unaligned offset
/// (torchsnapshot packs tensors without padding), or it is the whole content of a small file.
/// Thread-safe once all leaves are created.
class RawSource final : public LeafSource {
 public:
  explicit RawSource(std::shared_ptr<Files> files) : files_(std::move(files)) {}

  /// Returns a leaf at `offset` of the file at `location`. Without an offset, the leaf is the whole
  /// file.
  static Leaf leaf(const std::shared_ptr<RawSource>& self, DType dtype, Shape shape,
                   const std::string& location, std::optional<std::uint64_t> offset);

  /// Throws Error(corrupt) if the leaf has bytes, and its file is missing or does not have the
  /// right size: exactly the size of the leaf if the leaf is the whole file, otherwise at least the
  /// end of its byte range.
  void check(const Leaf& leaf);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  StoredRange identity(const Leaf& leaf) override;
  base::Where where(const Leaf& leaf) const override;

 private:
  struct Range {
    Files::File* file = nullptr;
    std::uint64_t offset = 0;
    bool is_whole_file = false;
  };
  const Range& range_of(const Leaf& leaf) const {
    return ranges_[static_cast<std::size_t>(position_of(leaf))];
  }
  void check_size(const Leaf& leaf, const os::File& file) const;

  std::shared_ptr<Files> files_;
  std::vector<Range> ranges_;
};

}  // namespace tenfold::detail::formats::snapshot

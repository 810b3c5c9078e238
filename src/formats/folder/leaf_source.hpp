#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/store.hpp"

namespace tenfold::detail::formats::folder {

/// The leaves of one folder. Each has one file (a nested tensor has two, a tensor of 0 bytes none).
/// The first map() of a leaf opens its file, checks the size, reads or maps the bytes, and closes
/// the file. Thread-safe once all leaves are added.
class FolderSource final : public LeafSource, public std::enable_shared_from_this<FolderSource> {
 public:
  FolderSource(std::shared_ptr<Store> store, std::shared_ptr<Folder> folder, std::string note_path);

  /// Adds a tensor, and returns its position for stored_leaf(). `file_name` is the name in the
  /// notes; if it is empty, the name is derived from the key.
  std::uint64_t add(const MetaEntry& entry, const std::string& file_name);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  Tensor nested_sizes(const Leaf& leaf) override;
  bool is_one_mapping() const noexcept override { return folder_->is_one_mapping(); }
  StoredRange identity(const Leaf& leaf) override;
  base::Where where(const Leaf& leaf) const override;
  void flush(Monitor* monitor) override;

  /// Opens the leaf's file and checks its size, without mapping it; a leaf of 0 bytes has no file.
  /// Returns the size of the leaf's data. Throws Error(corrupt) if the file is missing or too
  /// short, and Error(io).
  std::uint64_t check(const Leaf& leaf);

  const std::shared_ptr<Folder>& folder() const noexcept { return folder_; }
  /// Returns the name of the leaf's file, or the name that it would have if there is no file.
  std::string file_of(const Leaf& leaf);

 private:
  struct Record {
    std::string key;
    std::uint64_t size_bytes = 0;  ///< of the data file or, of a nested leaf, the file of sizes
    AliasGroup* group = nullptr;
    /// The leaf represents `group`, or has the same file or bytes as the leaf that represents it.
    bool in_group = false;
    /// The leaf has other bytes than the leaf that represents `group` or, in mode write_through,
    /// another file.
    bool left_group = false;
  };
  struct NestedSizes {
    Tensor sizes;
    std::uint64_t data_bytes = 0;
  };

  /// Returns the name in the notes, or the encoded key. Does not append a suffix.
  std::string file_name(std::uint64_t position) const;
  std::string data_file_name(std::uint64_t position) const;
  std::string file_path(std::uint64_t position) const;
  std::string part(std::uint64_t position) const;
  /// Opens the leaf's data file or, if `suffix` is kSizesSuffix, its file of sizes. Tries
  /// file_name() first, then the unencoded key if may_use_raw_name(). Throws if there is no file.
  std::unique_ptr<StoredFile> open_file(std::uint64_t position, std::string_view suffix,
                                        bool for_writing);
  std::unique_ptr<StoredFile> try_open(const std::string& name, bool for_writing) const;
  std::optional<StoredInfo> info_of(const std::string& name) const;
  bool may_use_raw_name(const std::string& key);
  void check_size(const StoredFile& file, std::uint64_t found_bytes, std::uint64_t position,
                  std::uint64_t size_bytes) const;

  std::uint64_t data_bytes(const Leaf& leaf);
  const NestedSizes& read_sizes(const Leaf& leaf);
  NestedSizes load_sizes(const Leaf& leaf);
  Buffer load(const Leaf& leaf, std::uint64_t size_bytes);
  bool joins_group(Record& record, std::uint64_t position, const StoredFile& file,
                   std::uint64_t size_bytes);
  Buffer cached(std::uint64_t position) const;
  bool may_share_bytes(std::uint64_t position) const;

  std::shared_ptr<Store> store_;
  std::shared_ptr<Folder> folder_;
  std::string note_path_;
  std::vector<Record> records_;
  std::unordered_map<std::uint64_t, std::string> file_names_;  ///< names assigned by the notes

  mutable std::mutex mutex_;  ///< guards the members below
  std::vector<Buffer> buffers_;
  std::unordered_map<std::uint64_t, std::unique_ptr<const NestedSizes>> nested_;
  std::unordered_set<std::string_view> keys_;  ///< those of records_; filled at the first use
};

}  // namespace tenfold::detail::formats::folder

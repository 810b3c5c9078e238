#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/shared/file_part.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::dcp {

/// The data files of a folder, each opened at its first use. Only files in use and the kMaxOpen
/// most recently opened files are open, so that a checkpoint of any number of ranks needs few
/// descriptors. Thread-safe.
class Files : public std::enable_shared_from_this<Files> {
 public:
  static constexpr std::size_t kMaxOpen = 64;
  /// Number of decompressed items that are cached, so that an item that is read in several pieces
  /// is usually decompressed only once.
  static constexpr std::size_t kMaxDecompressed = 8;

  /// `names`: Metadata::files.
  Files(os::Directory folder, std::vector<std::string> names);

  /// Opens the file of an item, and checks that it contains the item. Throws Error(corrupt) if the
  /// file is missing or too short, and Error(io) if it was replaced after it was first opened.
  std::shared_ptr<const os::File> open(const Item& item);

  /// Returns the location of an item that is not compressed. FilePart::file opens the file, and
  /// throws like open(). For a compressed item, decompresses it and returns the location of the
  /// copy in memory. In this case, throws like open() and zstd_decoder(), and Error(corrupt) if the
  /// stream is too large or truncated.
  FilePart place(const Item& item);
  /// Names an item in messages: "ckpt/__0_0.distcp: item at byte 43".
  base::Where where(const Item& item) const;

 private:
  struct File {
    std::mutex mutex;
    std::weak_ptr<const os::File> file;
    std::optional<os::FileInfo> info;  ///< when the file was first opened
  };
  std::shared_ptr<const os::File> opened(std::uint32_t number);
  std::shared_ptr<const os::File> decompressed(const Item& item);
  os::File decompress(const Item& item);

  /// Keeps the most recently opened files open.
  class Recent {
   public:
    explicit Recent(std::size_t most) : most_(most) {}
    void add(std::shared_ptr<const os::File> file);

   private:
    const std::size_t most_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<const os::File>> files_;  ///< a circular buffer
    std::size_t next_ = 0;                                ///< index of the oldest file once full
  };

  os::Directory folder_;
  std::vector<std::string> names_;
  std::vector<File> files_;
  Recent recent_{kMaxOpen};
  std::mutex streams_mutex_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, File> streams_;  ///< by file and offset
  Recent recent_streams_{kMaxDecompressed};
};

/// Creates and reads the leaves for the chunks of the tensors in one folder. Each chunk is one
/// item.
class Source final : public LeafSource {
 public:
  explicit Source(std::shared_ptr<Files> files) : files_(std::move(files)) {}

  /// Returns a leaf for an item; `name` is the name of its tensor, for messages. Leaves of one item
  /// share storage. Access to the leaf throws Error(corrupt) if the item does not contain a tensor
  /// of this dtype and shape. Create all leaves of `source` before any of them is accessed.
  static Leaf add(const std::shared_ptr<Source>& source, DType dtype, Shape shape, const Item& item,
                  const std::string& name);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  StoredRange identity(const Leaf& leaf) override;
  base::Where where(const Leaf& leaf) const override;

 private:
  struct Stored {
    Item item;
    std::string name;
    std::once_flag looked;
    std::optional<Leaf> leaf;  ///< the tensor in the item; empty if the item has none
    std::string found;         ///< describes the object in the item if it is not a tensor
    std::mutex mutex;          ///< guards `copy`
    Buffer copy;               ///< made by map() if it cannot return a mapping
  };
  Stored& stored(const Leaf& leaf) const {
    return *stored_[static_cast<std::size_t>(position_of(leaf))];
  }
  const Leaf& find(const Leaf& leaf);

  std::shared_ptr<Files> files_;
  std::vector<std::unique_ptr<Stored>> stored_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> positions_;  ///< by file and
                                                                              ///< offset
};

}  // namespace tenfold::detail::formats::dcp

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>

#include "codecs/zip/zip.hpp"
#include "formats/shared/file_part.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats {

/// A zip archive in a file: one mapping of the archive, and copies in memory of entries that cannot
/// be mapped. Callers identify an entry by a number of their choice, such as its index.
/// Thread-safe.
class MappedZip {
 public:
  /// Alignment that is sufficient for every dtype.
  static constexpr std::size_t kAlignment = 16;
  /// Returns the bytes of an entry, read or inflated into memory.
  using MakeCopy = std::function<Buffer()>;

  explicit MappedZip(FilePart part, os::MapKind kind = os::MapKind::private_copy)
      : part_(std::move(part)), kind_(kind) {}

  const FilePart& part() const noexcept { return part_; }
  /// A ZipInput that reads the archive. This object must outlive the ZipInput.
  codecs::ZipInput input() const { return zip_input(part_); }

  /// True if the entry is stored (not compressed), and its byte at `offset_bytes` is aligned to
  /// `alignment` in the mapping.
  bool can_map(const codecs::ZipEntry& entry, std::uint64_t offset_bytes = 0,
               std::size_t alignment = kAlignment) const noexcept;
  /// Returns a mapped range of the archive. `offset_bytes` counts from the start of the archive.
  Buffer map(std::uint64_t offset_bytes, std::uint64_t size_bytes);

  /// Returns a copy of an entry in memory. Calls `make` if there is no copy yet. All calls for an
  /// entry return the same memory.
  Buffer copy(std::size_t entry, const MakeCopy& make);
  /// Fills `into` with the bytes from `offset_bytes` of a copy of an entry on. Calls `make` if
  /// there is no copy. Most callers read all bytes of an entry once, on several threads in any
  /// order. So a copy is kept for further reads, and freed when the number of bytes read reaches
  /// its size, unless copy() has returned it. Of the partly read copies, only the most recently
  /// read ones are kept: three more than the default number of threads, or than the largest
  /// number of concurrent calls so far if that is larger.
  void read_copy(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into,
                 const MakeCopy& make);

 private:
  struct Copy {
    explicit Copy(std::size_t number) : entry(number) {}
    const std::size_t entry;
    std::mutex mutex;  ///< guards the members below
    Buffer bytes;      ///< empty until it is made
    std::uint64_t num_read = 0;
  };
  /// Counts a running call of read_copy() in num_readers_.
  class Reader {
   public:
    explicit Reader(MappedZip& zip);
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();

   private:
    MappedZip& zip_;
  };
  std::shared_ptr<Copy> copy_of(std::size_t entry, bool keep);

  FilePart part_;
  os::MapKind kind_;
  std::once_flag mapped_;
  Buffer mapping_;
  std::mutex mutex_;  ///< guards the members below
  std::unordered_map<std::size_t, std::shared_ptr<Copy>> kept_;
  std::vector<std::shared_ptr<Copy>> partly_read_;  ///< the most recently read one is last
  std::size_t num_readers_ = 0;
  std::size_t most_readers_ = 0;  ///< maximum of num_readers_ so far
};

}  // namespace tenfold::detail::formats

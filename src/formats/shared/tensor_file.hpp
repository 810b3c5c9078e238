#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include <tenfold/buffer.hpp>

#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// The bytes of the tensors in a file: one private mapping of a range of the file, and copies of
/// tensors whose offsets are not aligned. All offsets count from the start of the file.
/// Thread-safe.
class TensorFile {
 public:
  /// [begin, begin + size_bytes) is the range to map. It contains all tensors that map() returns.
  TensorFile(os::File file, std::uint64_t begin, std::uint64_t size_bytes)
      : file_(std::move(file)), begin_(begin), size_bytes_(size_bytes) {}

  const os::File& file() const noexcept { return file_; }

  /// Returns the bytes of a tensor: mapped if `offset_bytes` is a multiple of `itemsize`, else
  /// copied. All calls with the same arguments return the same memory.
  Buffer map(std::uint64_t offset_bytes, std::uint64_t size_bytes, std::size_t itemsize);
  /// Returns a copy of the range in memory. All calls with the same arguments return the same
  /// memory.
  Buffer copy(std::uint64_t offset_bytes, std::uint64_t size_bytes);

 private:
  os::File file_;
  std::uint64_t begin_;
  std::uint64_t size_bytes_;
  std::once_flag mapped_;
  Buffer mapping_;
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Buffer> copies_;  ///< by offset and size
};

}  // namespace tenfold::detail::formats

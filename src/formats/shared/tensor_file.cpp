#include "formats/shared/tensor_file.hpp"

#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats {

Buffer TensorFile::map(std::uint64_t offset_bytes, std::uint64_t size_bytes, std::size_t itemsize) {
  if (size_bytes == 0) return {};
  // The mapping starts at a page boundary of the file, so an unaligned offset has an unaligned
  // address.
  if (offset_bytes % itemsize != 0) return copy(offset_bytes, size_bytes);
  std::call_once(mapped_, [this] {
    // The mapping is private even for reading: torch cannot mark tensors read-only, and a write to
    // a tensor must not change the file.
    mapping_ = os::map_file(file_, begin_, size_bytes_, os::MapKind::private_copy);
  });
  return mapping_.slice(static_cast<std::size_t>(offset_bytes - begin_),
                        static_cast<std::size_t>(size_bytes));
}

Buffer TensorFile::copy(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  Buffer& copy = copies_[{offset_bytes, size_bytes}];
  if (copy.size_bytes() != size_bytes) {
    Buffer filled = Buffer::allocate(static_cast<std::size_t>(size_bytes));
    file_.read_at(offset_bytes, filled.mutable_bytes());
    copy = std::move(filled);
  }
  return copy;
}

}  // namespace tenfold::detail::formats

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include <tenfold/buffer.hpp>
#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kAlignmentBytes = 64;

struct Free {
  void operator()(void* block) const noexcept { std::free(block); }
};

}  // namespace

Buffer::Buffer(std::span<std::byte> bytes, std::shared_ptr<const void> owner)
    : bytes_(bytes), owner_(std::move(owner)) {}

Buffer Buffer::read_only(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  // The const_cast is safe: the bytes are never written, because mutable_bytes() throws.
  Buffer made({const_cast<std::byte*>(bytes.data()), bytes.size()}, std::move(owner));
  made.writable_ = false;
  return made;
}

Buffer Buffer::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  // For large blocks, calloc returns pages that the kernel has already zeroed. With aligned_alloc,
  // all bytes would need a memset.
  const auto padded = base::checked_add(size_bytes, kAlignmentBytes);
  if (!padded) throw std::bad_alloc();
  void* block = std::calloc(1, *padded);
  if (block == nullptr) throw std::bad_alloc();
  std::shared_ptr<void> owner(block, Free{});
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  auto* first =
      static_cast<std::byte*>(block) + (base::align_up(address, kAlignmentBytes) - address);
  return {std::span(first, size_bytes), std::move(owner)};
}

Buffer Buffer::slice(std::size_t offset_bytes, std::size_t size_bytes) const {
  if (!base::range_fits(offset_bytes, size_bytes, bytes_.size())) {
    throw base::invalid_argument()
        .part("buffer")
        .problem("slice of ", size_bytes, " bytes at offset ", offset_bytes, " does not fit")
        .expected("an end within ", bytes_.size(), " bytes");
  }
  Buffer made = *this;
  made.bytes_ = bytes_.subspan(offset_bytes, size_bytes);
  return made;
}

void Buffer::throw_read_only() {
  throw base::invalid_argument().part("buffer").problem("bytes are read-only");
}

}  // namespace tenfold

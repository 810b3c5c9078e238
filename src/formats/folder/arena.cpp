#include "formats/folder/arena.hpp"

#include <algorithm>
#include <new>

#include "base/checked.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::size_t kAlignment = 64;
// The first block is small, so that opening a few leaves touches little memory.
constexpr std::size_t kFirstBlockBytes = std::size_t{16} << 10;
constexpr std::size_t kLastBlockBytes = std::size_t{1} << 20;

std::shared_ptr<std::byte> new_block(std::size_t size_bytes) {
  constexpr auto alignment = std::align_val_t(kAlignment);
  auto* bytes = static_cast<std::byte*>(::operator new(size_bytes, alignment));
  return {bytes, [](std::byte* p) { ::operator delete(p, alignment); }};
}

}  // namespace

Buffer Arena::allocate(std::size_t size_bytes) {
  const auto needed = static_cast<std::size_t>(base::align_up(size_bytes, kAlignment));
  const std::lock_guard lock(mutex_);
  if (needed > block_bytes_ - used_bytes_) {
    const std::size_t next = std::clamp(block_bytes_ * 2, kFirstBlockBytes, kLastBlockBytes);
    const std::size_t size = std::max(next, needed);
    block_ = new_block(size);
    block_bytes_ = size;
    used_bytes_ = 0;
  }
  const std::span<std::byte> piece(block_.get() + used_bytes_, size_bytes);
  used_bytes_ += needed;
  return Buffer(piece, block_);
}

}  // namespace tenfold::detail::formats::folder

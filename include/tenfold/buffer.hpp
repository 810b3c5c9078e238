#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <tenfold/export.hpp>

/// Marks functions that return references into their object, for clang's warning.
#if defined(__clang__)
#define TENFOLD_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define TENFOLD_LIFETIMEBOUND
#endif

namespace tenfold {

/// A run of bytes and its owner: a file mapping, a heap block, or an object of another library.
/// Copying a Buffer copies neither bytes nor mapping; destroying the last copy releases the owner.
///
///     std::vector<std::byte> memory(4096);
///     tenfold::Buffer buffer(memory, nullptr);           // the vector outlives it
///     tenfold::Buffer half = buffer.slice(0, 2048);      // the same bytes
///
/// Thread safety: copies may be used from any thread. The bytes are not synchronised.
class TENFOLD_API Buffer {
 public:
  /// No bytes, no owner.
  Buffer() = default;

  /// If `writable` is false, the pages are mapped read-only; a write raises SIGSEGV.
  Buffer(std::span<std::byte> bytes, std::shared_ptr<const void> owner, bool writable = true);

  /// `size_bytes` zeroed bytes on the heap, aligned to 64.
  static Buffer allocate(std::size_t size_bytes);

  /// The first byte; write only if writable().
  std::byte* data() const noexcept TENFOLD_LIFETIMEBOUND { return bytes_.data(); }
  /// The number of bytes.
  std::size_t size_bytes() const noexcept { return bytes_.size(); }
  /// All bytes; write only if writable().
  std::span<std::byte> bytes() const noexcept TENFOLD_LIFETIMEBOUND { return bytes_; }

  /// False for read-only pages (see the constructor).
  bool writable() const noexcept { return writable_; }

  /// What keeps the bytes alive; null if nothing does.
  const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

  /// The sub-range [offset_bytes, offset_bytes + size_bytes), sharing this owner.
  /// Throws Error(invalid_argument) if the range does not fit.
  Buffer slice(std::size_t offset_bytes, std::size_t size_bytes) const;

 private:
  std::span<std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  bool writable_ = true;
};

}  // namespace tenfold

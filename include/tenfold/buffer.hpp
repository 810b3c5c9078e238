#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/export.hpp>

namespace tenfold {

/// A run of bytes and its owner: a file mapping, a heap block, or an object of another library.
/// Copies and slices share bytes and owner. Destroying the last of them releases the owner.
///
///     std::vector<std::byte> memory(4096);
///     tenfold::Buffer buffer(memory, nullptr);           // the vector outlives it
///     tenfold::Buffer half = buffer.slice(0, 2048);      // the same bytes
///
/// Thread safety: copies may be used from any thread. The bytes are not synchronised.
class TENFOLD_API Buffer {
 public:
  /// Creates a buffer without bytes and without an owner.
  Buffer() noexcept = default;
  /// Shares the bytes and the owner.
  Buffer(const Buffer&) noexcept = default;
  /// Moves the bytes and the owner; `other` becomes a default buffer.
  Buffer(Buffer&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})),
        owner_(std::move(other.owner_)),
        writable_(std::exchange(other.writable_, true)) {}
  /// Assigns a copy of a buffer, or a moved one.
  Buffer& operator=(Buffer other) noexcept {
    bytes_ = other.bytes_;
    owner_.swap(other.owner_);
    writable_ = other.writable_;
    return *this;
  }
  /// Releases the owner if this is the last buffer over its bytes.
  ~Buffer() = default;

  /// Creates a buffer over bytes that may be written, such as heap memory or private pages. If
  /// `owner` is null, the caller keeps the bytes alive.
  Buffer(std::span<std::byte> bytes, std::shared_ptr<const void> owner);

  /// Creates a buffer over bytes that must not be written, such as pages that are mapped read-only.
  /// If `owner` is null, the caller keeps the bytes alive.
  static Buffer read_only(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  /// Allocates `size_bytes` zeroed bytes on the heap, aligned to 64 bytes. Throws std::bad_alloc.
  static Buffer allocate(std::size_t size_bytes);

  /// The first byte.
  const std::byte* data() const noexcept TENFOLD_LIFETIMEBOUND { return bytes_.data(); }
  /// The number of bytes.
  std::size_t size_bytes() const noexcept { return bytes_.size(); }
  /// All bytes.
  std::span<const std::byte> bytes() const noexcept TENFOLD_LIFETIMEBOUND { return bytes_; }

  /// As data(), for writing. Throws Error(invalid_argument) unless writable().
  std::byte* mutable_data() const TENFOLD_LIFETIMEBOUND { return mutable_bytes().data(); }
  /// As bytes(), for writing. Throws Error(invalid_argument) unless writable().
  std::span<std::byte> mutable_bytes() const TENFOLD_LIFETIMEBOUND {
    if (!writable_) throw_read_only();
    return bytes_;
  }

  /// True if the bytes may be written; false for a buffer of read_only().
  bool writable() const noexcept { return writable_; }

  /// The owner of the bytes; null if there is none.
  const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

  /// The sub-range [offset_bytes, offset_bytes + size_bytes), sharing this owner.
  /// Throws Error(invalid_argument) if the range does not fit.
  Buffer slice(std::size_t offset_bytes, std::size_t size_bytes) const;

 private:
  [[noreturn]] static void throw_read_only();

  std::span<std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  bool writable_ = true;
};

}  // namespace tenfold

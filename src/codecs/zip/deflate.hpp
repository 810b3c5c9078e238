#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tenfold::codecs {

struct Deflated {
  std::unique_ptr<std::byte[]> memory;
  std::size_t size_bytes = 0;
  std::span<const std::byte> bytes() const noexcept { return {memory.get(), size_bytes}; }
};

inline constexpr int kMaxDeflateLevel = 12;

/// Deflates `bytes` (RFC 1951) at `level`, which is clamped to 1 ... kMaxDeflateLevel. Returns
/// size_bytes 0 if the result would not be smaller than `bytes`. Allocates one byte less than
/// `bytes` has, and the memory of the compressor.
Deflated deflate(std::span<const std::byte> bytes, int level);

}  // namespace tenfold::codecs

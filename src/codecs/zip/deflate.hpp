#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tenfold::codecs {

/// The result of deflate().
struct Deflated {
  std::unique_ptr<std::byte[]> memory;
  std::size_t size_bytes = 0;
  std::span<const std::byte> bytes() const noexcept { return {memory.get(), size_bytes}; }
};

inline constexpr int kMaxDeflateLevel = 12;

/// Deflates `bytes` (RFC 1951) at `level`, which is clamped to 1 ... kMaxDeflateLevel. If that
/// would not make `bytes` smaller, returns a result whose size_bytes is 0. Allocates
/// about the size of `bytes`, and the memory of the compressor.
Deflated deflate(std::span<const std::byte> bytes, int level);

}  // namespace tenfold::codecs

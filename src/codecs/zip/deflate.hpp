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

/// Deflates `bytes` (RFC 1951) at a level of 1 to kMaxDeflateLevel. Returns size_bytes 0 if the
/// result would not be smaller than `bytes`. Allocates as much memory as `bytes` have.
Deflated deflate(std::span<const std::byte> bytes, int level);

}  // namespace tenfold::codecs

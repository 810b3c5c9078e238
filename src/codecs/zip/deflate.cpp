#include "codecs/zip/deflate.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <new>

namespace tenfold::codecs {

Deflated deflate(std::span<const std::byte> bytes, int level) {
  if (bytes.size() < 2) return {};
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> machine(
      libdeflate_alloc_compressor(std::clamp(level, 1, kMaxDeflateLevel)),
      libdeflate_free_compressor);
  if (machine == nullptr) throw std::bad_alloc();
  Deflated made;
  const std::size_t limit = bytes.size() - 1;
  made.memory = std::make_unique_for_overwrite<std::byte[]>(limit);
  made.size_bytes = libdeflate_deflate_compress(machine.get(), bytes.data(), bytes.size(),
                                                made.memory.get(), limit);
  return made;
}

}  // namespace tenfold::codecs

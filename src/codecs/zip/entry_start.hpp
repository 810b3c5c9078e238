#pragma once

#include <cstddef>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

inline constexpr std::size_t kMaxZipStartBytes = std::size_t{64} << 10U;

/// Returns the first `max_bytes` bytes of the entry, or all bytes if there are fewer, but at most
/// kMaxZipStartBytes. Reads only the start of a large entry. Does not check the CRC-32. Throws
/// Error(corrupt) if these bytes cannot be inflated, or show that the entry has another size than
/// declared.
std::vector<std::byte> read_zip_entry_start(const ZipInput& input, const ZipEntry& entry,
                                            std::size_t max_bytes);

}  // namespace tenfold::codecs

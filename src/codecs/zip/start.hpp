#pragma once

#include <cstddef>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

inline constexpr std::size_t kMaxZipStartBytes = std::size_t{64} << 10U;

/// The first `max_bytes` of the entry's bytes, or all of them if there are fewer; at most
/// kMaxZipStartBytes. Of a deflated one what lies further on is not looked at, and no CRC-32 is
/// checked. Throws Error(corrupt).
std::vector<std::byte> read_zip_entry_start(const ZipInput& input, const ZipEntry& entry,
                                            std::size_t max_bytes);

}  // namespace tenfold::codecs

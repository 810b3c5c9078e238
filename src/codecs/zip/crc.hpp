#pragma once

#include <cstdint>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

/// Throws the error of check_zip_entry() if `found` is not the entry's CRC-32. For callers that
/// compute the CRC-32 themselves, piece by piece.
void require_crc32(const ZipInput& input, const ZipEntry& entry, std::uint32_t found);

}  // namespace tenfold::codecs

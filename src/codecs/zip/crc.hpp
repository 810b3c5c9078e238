#pragma once

#include <cstdint>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

/// Throws the error of check_zip_entry() if `found` is not the entry's CRC-32. For callers that
/// computed it themselves, in parts.
void require_crc32(const ZipInput& input, const ZipEntry& entry, std::uint32_t found);

}  // namespace tenfold::codecs

#pragma once

#include <cstdint>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

/// What check_zip_entry() throws if `found` is not the entry's CRC-32: for those who have computed
/// it themselves, of parts.
void require_crc32(const ZipInput& input, const ZipEntry& entry, std::uint32_t found);

}  // namespace tenfold::codecs

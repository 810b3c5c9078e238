#pragma once

#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats {

/// Reads one entry into memory. The sizes of a large deflated entry, deflated and inflated, are
/// first compared with the available memory, because a small file can expand a lot. If such an
/// entry does not fit, throws Error(unsupported) with `where`, which names the entry, and `remedy`.
/// Throws Error(corrupt) if a deflated entry is damaged. The CRC-32 of a stored entry is not
/// checked.
Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy);

}  // namespace tenfold::detail::formats

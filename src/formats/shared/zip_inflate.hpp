#pragma once

#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats {

/// Returns the uncompressed bytes of one entry. A small file can expand a lot: if a deflated entry
/// needs more than 64 MiB (deflated and inflated bytes) and more than the available memory, throws
/// Error(unsupported) with `where`, which names the entry, and `remedy`. Throws Error(corrupt) if a
/// deflated entry is damaged. Does not check the CRC-32 of a stored entry.
Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy);

}  // namespace tenfold::detail::formats

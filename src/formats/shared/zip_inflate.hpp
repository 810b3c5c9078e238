#pragma once

#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats {

/// Reads one entry into memory. The size of a large deflated entry is first compared with the
/// available memory, because a small file can expand a lot. `where` names the entry in messages;
/// `remedy` is for an entry that does not fit. Throws Error(corrupt), Error(unsupported).
Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy);

}  // namespace tenfold::detail::formats

#pragma once

#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats {

/// Reads one entry into memory. The size of a large deflated entry is first compared with the
/// available memory, because a small file can expand a lot. `subject` names it in messages, and
/// `remedy` says what to do if it does not fit. Throws Error(corrupt), Error(unsupported).
Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy);

}  // namespace tenfold::detail::formats

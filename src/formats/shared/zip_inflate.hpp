#pragma once

#include <string>

#include <tenfold/buffer.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats {

/// What one entry holds, in memory. A large deflated one is first compared with the memory that is
/// free, since a small file can hold much. `subject` names it in messages, and `remedy` says what
/// to do with one that does not fit. Throws Error(corrupt), Error(unsupported).
Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy);

}  // namespace tenfold::detail::formats

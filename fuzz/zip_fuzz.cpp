// Arbitrary bytes as a zip archive. They are refused with an Error, or every entry is inside the
// archive, and is read or refused as corrupt. The directory must find its last entry by name.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  codecs::ZipInput input = codecs::zip_input("input", std::as_bytes(std::span(data, size)));
  const auto read = input.read;
  input.read = [&](std::uint64_t offset, std::span<std::byte> into) {
    if (!base::range_fits(offset, into.size(), size)) std::abort();
    read(offset, into);
  };
  codecs::ZipLimits limits;
  limits.max_inflated_bytes = 1U << 20U;
  try {
    const codecs::ZipDirectory directory = codecs::read_zip_directory(input, limits);
    if (!directory.entries.empty()) {
      if (directory.find(directory.entries.back().name) == nullptr) std::abort();
    }
    static_cast<void>(codecs::zip_structure_checksum(input, directory));
    if (const auto comment = codecs::corrected_zip_comment(input, directory)) {
      if (comment->size() != directory.comment.size()) std::abort();
    }
    for (const codecs::ZipEntry& entry : directory.entries) {
      if (!base::range_fits(entry.data_offset, entry.stored_bytes, size)) std::abort();
      try {
        codecs::check_zip_entry(input, entry);
        if (codecs::read_zip_entry(input, entry).size() != entry.size_bytes) std::abort();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt) std::abort();
      }
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
  }
  return 0;
}

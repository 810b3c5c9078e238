#include "formats/shared/zip_inflate.hpp"

#include <cstddef>
#include <cstdint>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold::detail::formats {
namespace {

/// Smaller entries are inflated without checking the available memory.
constexpr std::uint64_t kMuchInflatedBytes = std::uint64_t{64} << 20;

}  // namespace

Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy) {
  if (entry.method == codecs::ZipMethod::deflated && entry.size_bytes > kMuchInflatedBytes) {
    const std::uint64_t free_bytes = os::available_memory_bytes();
    if (entry.size_bytes > free_bytes) {
      throw base::unsupported(where)
          .problem("does not fit in memory when inflated")
          .expected("at most ", free_bytes, " bytes")
          .found(entry.size_bytes)
          .remedy(remedy);
    }
  }
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(entry.size_bytes));
  if (entry.method == codecs::ZipMethod::stored) {
    input.read(entry.data_offset, bytes.mutable_bytes());
  } else {
    codecs::read_zip_entry(input, entry, bytes.mutable_bytes());
  }
  return bytes;
}

}  // namespace tenfold::detail::formats

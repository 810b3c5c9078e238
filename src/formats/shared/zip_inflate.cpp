#include "formats/shared/zip_inflate.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold::detail::formats {
namespace {

/// Entries that need at most this much memory are inflated without checking the available memory.
constexpr std::uint64_t kMuchInflatedBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::uint64_t>::max();

}  // namespace

Buffer read_entry_into_memory(const codecs::ZipInput& input, const codecs::ZipEntry& entry,
                              const base::Where& where, const std::string& remedy) {
  // A deflated entry is read completely before it is inflated.
  const std::uint64_t needed_bytes =
      base::checked_add(entry.size_bytes, entry.stored_bytes).value_or(kMaxBytes);
  if (entry.method == codecs::ZipMethod::deflated && needed_bytes > kMuchInflatedBytes) {
    const std::uint64_t free_bytes = os::available_memory_bytes();
    if (needed_bytes > free_bytes) {
      throw base::unsupported(where)
          .problem("does not fit in memory when inflated")
          .expected("at most ", free_bytes, " bytes for the deflated and the inflated entry")
          .found(needed_bytes)
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

#include "os/memory/page_cache.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>

#include "os/memory/mapping.hpp"

namespace tenfold::os {

bool drop_from_page_cache(const File& file) {
  const std::uint64_t size_bytes = file.size_bytes();
  if (size_bytes == 0) return true;
  if (::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED) != 0) return false;
  const Buffer mapped = map_file(file, 0, size_bytes, MapKind::read_only);
  // One cached page is enough to tell that the advice had no effect. The end of the file is sampled
  // too, because the pages that were written last stay longest.
  constexpr std::uint64_t kPageBytes = 4096;
  for (const std::uint64_t at : {std::uint64_t{0}, size_bytes / 2, size_bytes - 1}) {
    const std::uint64_t begin = at / kPageBytes * kPageBytes;
    const std::uint64_t count = std::min(kPageBytes, size_bytes - begin);
    if (is_resident(mapped.bytes().subspan(static_cast<std::size_t>(begin),
                                           static_cast<std::size_t>(count)))) {
      return false;
    }
  }
  return true;
}

}  // namespace tenfold::os

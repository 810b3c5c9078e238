#pragma once

#include <cstddef>
#include <memory>

namespace tenfold::os {

/// Allocates zeroed, page-aligned memory, with huge pages where available. For large buffers that
/// are reused, where each small page would cost a fault and a TLB entry. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes);

}  // namespace tenfold::os

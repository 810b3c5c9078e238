#pragma once

#include <cstddef>
#include <memory>

namespace tenfold::os {

/// Zeroed memory, aligned to a page, of huge pages where the system has some: for large buffers
/// that are used again and again, of which each small page would cost a fault and a place in the
/// TLB. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes);

}  // namespace tenfold::os

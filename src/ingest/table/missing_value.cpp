#include "ingest/table/missing_value.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/tensor/cast.hpp"

namespace tenfold {

void fill_missing(DType dtype, std::span<std::byte> elements) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  std::array<std::byte, 16> element{};
  const std::size_t size = itemsize(dtype);
  if (is_floating_point(dtype) && can_cast(DType::float64, dtype)) {
    cast_elements(DType::float64, reinterpret_cast<const std::byte*>(&kNaN), dtype, element.data(),
                  1);
  }
  if (elements.empty()) return;
  // Copy one element, then double the filled part each time: a call per element would take longer
  // than copying the bytes.
  std::size_t filled = std::min(size, elements.size());
  std::memcpy(elements.data(), element.data(), filled);
  while (filled < elements.size()) {
    const std::size_t count = std::min(filled, elements.size() - filled);
    std::memcpy(elements.data() + filled, elements.data(), count);
    filled += count;
  }
}

}  // namespace tenfold

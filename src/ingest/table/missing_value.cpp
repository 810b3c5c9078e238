#include "ingest/table/missing_value.hpp"

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
  for (std::size_t at = 0; at < elements.size(); at += size) {
    std::memcpy(elements.data() + at, element.data(), size);
  }
}

}  // namespace tenfold

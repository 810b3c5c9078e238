#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// The value of one half of a float4_e2m1fn_x2: 1 sign, 2 exponent and 1 mantissa bits.
double float4_value(unsigned nibble) noexcept;

/// Contiguous elements as strings that parse to the same value, as element_texts() of inspect.hpp
/// describes them. The bytes need no alignment.
std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> bytes);

/// One element as such a string.
std::string element_text(DType dtype, const std::byte* bytes);

}  // namespace tenfold

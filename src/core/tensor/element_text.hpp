#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// The value of one half of a float4_e2m1fn_x2: 1 sign bit, 2 exponent bits and 1 mantissa bit.
double float4_value(unsigned nibble) noexcept;

/// Formats contiguous elements as documented at element_texts() of <tenfold/inspect.hpp>. The bytes
/// need no alignment.
std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> bytes);

/// Formats one element as element_texts() does.
std::string element_text(DType dtype, const std::byte* bytes);

}  // namespace tenfold

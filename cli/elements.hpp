#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::cli {

/// Converts an element from element_texts() to JSON: a number with all its digits, a bool, NaN, or
/// a string for infinities, complex numbers and pairs of 4-bit numbers.
Value json_element(DType dtype, const std::string& text);

/// Converts the elements of `texts` from index `at` on to nested lists. The nesting has one level
/// for each dimension of `shape` from `level` on. Advances `at`. If one dimension is 0, returns a
/// single empty list, because the other dimensions may be huge.
Value nested_json(DType dtype, const Shape& shape, std::size_t level,
                  const std::vector<std::string>& texts, std::size_t& at);

/// For display, rounds a real number that is written with a point or an exponent to six significant
/// digits; --json prints all digits.
std::string readable(const std::string& element);

}  // namespace tenfold::cli

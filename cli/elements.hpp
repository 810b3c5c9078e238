#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::cli {

/// An element as element_texts() gives it, as JSON: a number of all its digits, a bool, or a text.
Value json_element(DType dtype, const std::string& text);

/// The elements of `texts` from `at` on as nested lists of that shape, from its dimension `level`.
Value nested_json(DType dtype, const Shape& shape, std::size_t level,
                  const std::vector<std::string>& texts, std::size_t& at);

/// Six significant digits are enough to look at; --json tells them all.
std::string readable(const std::string& element);

}  // namespace tenfold::cli

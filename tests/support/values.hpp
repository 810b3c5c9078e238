#pragma once

#include <tenfold/tensor.hpp>

#include <vector>

namespace tenfold::test {

/// Returns a copy of the elements of a contiguous tensor, which may be a temporary object.
template <class T>
std::vector<T> values(const Tensor& tensor) {
  const auto span = tensor.span<T>();
  return {span.begin(), span.end()};
}

}  // namespace tenfold::test

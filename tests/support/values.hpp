#pragma once

#include <tenfold/tensor.hpp>

#include <vector>

namespace tenfold::test {

/// A copy of the elements of a tensor, which may be a temporary one.
template <class T>
std::vector<T> values(const Tensor& tensor) {
  const auto span = tensor.span<T>();
  return {span.begin(), span.end()};
}

}  // namespace tenfold::test

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold::test {

/// A table of the rows `first` to `first + n - 1`: x float32 [n, 3] is row * 10 + column; id int64
/// [n] is the row; flag bool [n] is true in every second row.
inline TensorDict numbers(std::int64_t n, std::int64_t first = 0) {
  NodeInfo info;
  info.batch_size = {n};
  TensorDict tree(info);
  std::vector<float> x;
  std::vector<std::int64_t> id;
  Tensor flag = Tensor::zeros(DType::bool_, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) x.push_back(static_cast<float>((first + i) * 10 + k));
    id.push_back(first + i);
    flag.mutable_raw_data()[i] = static_cast<std::byte>(i % 2);
  }
  tree.set("x", Tensor::from(std::span<const float>(x), {n, 3}));
  tree.set("id", Tensor::from(std::span<const std::int64_t>(id)));
  tree.set("flag", flag);
  return tree;
}

inline Leaf unbatched(Tensor tensor) {
  Leaf leaf(std::move(tensor));
  leaf.mark_unbatched();
  return leaf;
}

inline Tensor bytes_tensor(std::string_view text) {
  return Tensor::from(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

inline std::string text_of(const Tensor& bytes) {
  const auto elements = bytes.span<std::uint8_t>();
  return {elements.begin(), elements.end()};
}

/// The elements of a tensor of one dimension, with a gap after each.
inline Tensor strided(const Tensor& tensor) {
  const std::size_t size = tensor.itemsize();
  const Tensor apart = Tensor::zeros(tensor.dtype(), {2 * tensor.numel()});
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.numel()); ++i) {
    std::memcpy(apart.mutable_raw_data() + 2 * i * size, tensor.raw_data() + i * size, size);
  }
  return Tensor(tensor.dtype(), tensor.shape(), {2}, apart.buffer(), 0);
}

inline Tensor ints(const std::vector<std::int64_t>& values) {
  return Tensor::from(std::span<const std::int64_t>(values));
}

/// Four rows: tokens int32, ragged; name, a string; tags, a list of strings; age int64, nullable.
inline TensorDict ragged() {
  NodeInfo info;
  info.batch_size = {4};
  info.schema = from_json(
      R"({"columns": {"tokens": {"dtype": "int32", "ragged": true},
                      "name": {"dtype": "string"},
                      "tags": {"dtype": "string", "ragged": true},
                      "age": {"dtype": "int64", "nullable": true}}})",
      "test");
  TensorDict tree(info);
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6};
  tree.set("tokens",
           TensorDict::Item(unbatched(Tensor::from(std::span<const std::int32_t>(tokens)))));
  tree.set("tokens.end", ints({2, 2, 5, 6}));
  tree.set("name", TensorDict::Item(unbatched(bytes_tensor("AnnBobbyZo\xC3\xAB"))));
  tree.set("name.end", ints({3, 8, 8, 12}));
  tree.set("tags", TensorDict::Item(unbatched(bytes_tensor("redgreenblue"))));
  tree.set("tags.item_end", TensorDict::Item(unbatched(ints({3, 8, 8, 12}))));
  tree.set("tags.end", ints({2, 2, 3, 4}));
  tree.set("age", ints({30, 0, 50, 0}));
  Tensor valid = Tensor::zeros(DType::bool_, {4});
  valid.mutable_raw_data()[0] = valid.mutable_raw_data()[2] = std::byte{1};
  tree.set("age.valid", valid);
  return tree;
}

}  // namespace tenfold::test

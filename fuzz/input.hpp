#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <tenfold/tensor.hpp>

namespace tenfold::fuzz {

/// Reads numbers and shapes from bytes. After the end of the bytes, each byte is 0.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  /// A small number, or the minimum or maximum of int64.
  std::int64_t number() {
    const std::uint8_t value = byte();
    if (value == 0x80) return std::numeric_limits<std::int64_t>::max();
    if (value == 0x81) return std::numeric_limits<std::int64_t>::min();
    return static_cast<std::int8_t>(value);
  }
  Shape shape() {
    Shape lengths(byte() % 5U);
    for (std::int64_t& length : lengths) length = byte() % 6;
    return lengths;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// Returns a tensor of int64 or int32 numbers from `input`.
inline Tensor index_tensor(Input& input, bool is_wide, Shape shape) {
  Tensor tensor = Tensor::zeros(is_wide ? DType::int64 : DType::int32, std::move(shape));
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::int64_t value = input.number();
    if (is_wide) {
      tensor.mutable_data<std::int64_t>()[i] = value;
    } else {
      tensor.mutable_data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
    }
  }
  return tensor;
}

}  // namespace tenfold::fuzz

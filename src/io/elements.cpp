#include "io/elements.hpp"

#include <fmt/format.h>
#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/checked.hpp"
#include "core/tensor/cast.hpp"
#include "io/holdable.hpp"

namespace tenfold {
namespace {

/// 1 sign, 2 exponent and 1 mantissa bits.
double float4_value(unsigned nibble) noexcept {
  constexpr std::array<double, 8> kMagnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kMagnitudes[nibble & 7U];
  return (nibble & 8U) != 0 ? -magnitude : magnitude;
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t position) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + position * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::string float_text(T value) {
  if (std::isnan(value)) return "nan";  // with either sign
  return fmt::format("{}", value);
}

template <class T>
std::string complex_text(std::complex<T> value) {
  const std::string imaginary = float_text(value.imag());
  const bool has_sign = imaginary.starts_with('-');
  return float_text(value.real()) + (has_sign ? "" : "+") + imaginary + "j";
}

template <class T>
std::vector<std::string> integer_texts(std::span<const std::byte> bytes) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    texts.push_back(std::to_string(value_at<T>(bytes, i)));
  }
  return texts;
}

/// Formats the elements, cast to T.
template <class T, class Text>
std::vector<std::string> cast_texts(DType dtype, std::span<const std::byte> bytes,
                                    const Text& text) {
  std::vector<T> values(bytes.size() / itemsize(dtype));
  cast_elements(dtype, bytes.data(), dtype_of<T>(), reinterpret_cast<std::byte*>(values.data()),
                values.size());
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(text(value));
  return texts;
}

std::vector<std::string> texts_of(DType dtype, std::span<const std::byte> bytes) {
  std::vector<std::string> texts;
  switch (dtype) {
    case DType::bool_:
      for (const std::byte byte : bytes) texts.emplace_back(byte == std::byte{} ? "false" : "true");
      return texts;
    case DType::float4_e2m1fn_x2:
      for (const std::byte byte : bytes) {
        const auto pair = std::to_integer<unsigned>(byte);
        texts.push_back(float_text(float4_value(pair & 15U)) + "," +
                        float_text(float4_value(pair >> 4)));
      }
      return texts;
    case DType::uint8:
      return integer_texts<std::uint8_t>(bytes);
    case DType::uint16:
      return integer_texts<std::uint16_t>(bytes);
    case DType::uint32:
      return integer_texts<std::uint32_t>(bytes);
    case DType::uint64:
      return integer_texts<std::uint64_t>(bytes);
    case DType::int8:
      return integer_texts<std::int8_t>(bytes);
    case DType::int16:
      return integer_texts<std::int16_t>(bytes);
    case DType::int32:
      return integer_texts<std::int32_t>(bytes);
    case DType::int64:
      return integer_texts<std::int64_t>(bytes);
    case DType::float64:
      return cast_texts<double>(dtype, bytes, float_text<double>);
    case DType::complex32:
    case DType::complex64:
      return cast_texts<std::complex<float>>(dtype, bytes, complex_text<float>);
    case DType::complex128:
      return cast_texts<std::complex<double>>(dtype, bytes, complex_text<double>);
    default:
      return cast_texts<float>(dtype, bytes, float_text<float>);
  }
}

}  // namespace

std::size_t doubles_per_element(DType dtype) noexcept {
  return dtype == DType::float4_e2m1fn_x2 ? 2 : 1;
}

std::span<double> to_doubles(DType dtype, std::span<const std::byte> bytes,
                             std::span<double> values) {
  const std::size_t count = bytes.size() / itemsize(dtype);
  if (dtype == DType::float4_e2m1fn_x2) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto pair = std::to_integer<unsigned>(bytes[i]);
      values[2 * i] = float4_value(pair & 15U);
      values[2 * i + 1] = float4_value(pair >> 4);
    }
  } else if (is_complex(dtype)) {
    std::vector<std::complex<double>> numbers(count);
    cast_elements(dtype, bytes.data(), DType::complex128,
                  reinterpret_cast<std::byte*>(numbers.data()), count);
    for (std::size_t i = 0; i < count; ++i) {
      // std::abs(NaN + inf j) is infinite, but a number with a NaN part is formatted as nan.
      const bool nan = std::isnan(numbers[i].real()) || std::isnan(numbers[i].imag());
      values[i] = nan ? std::nan("") : std::abs(numbers[i]);
    }
  } else {
    cast_elements(dtype, bytes.data(), DType::float64, reinterpret_cast<std::byte*>(values.data()),
                  count);
  }
  return values.first(count * doubles_per_element(dtype));
}

std::vector<std::string> element_texts(const Leaf& leaf, std::uint64_t begin, std::uint64_t end) {
  const std::size_t item = itemsize(leaf.dtype());
  const std::uint64_t num_elements = leaf.nbytes() / item;
  if (begin > end || end > num_elements) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("elements: out of range: expected 0 <= begin <= end <= {}, found {} "
                            "and {}",
                            num_elements, begin, end));
  }
  require_whole(leaf);
  std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * item));
  leaf.read(begin * item, bytes);
  return texts_of(leaf.dtype(), bytes);
}

}  // namespace tenfold

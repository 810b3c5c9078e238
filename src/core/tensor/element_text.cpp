#include "core/tensor/element_text.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>

#include <tenfold/tensor.hpp>

#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/integer_type.hpp"

namespace tenfold {
namespace {

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t position) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + position * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::string float_text(T value) {
  if (std::isnan(value)) return "nan";  // not "-nan"
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

/// Casts the elements to T and formats each with `text`.
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

/// A tensor of at most this many elements is written completely.
constexpr std::int64_t kWholeNumel = 100;
/// Maximum number of elements that are written of a larger tensor.
constexpr std::int64_t kMaxWritten = 1000;
/// The number of indices that are written at each end of a dimension of a larger tensor.
constexpr std::int64_t kEdge = 3;

class TensorWriter {
 public:
  TensorWriter(std::ostream& out, bool whole) : out_(out), whole_(whole) {}

  void write(const Tensor& tensor, std::size_t indent) {
    if (tensor.ndim() == 0) {
      ++written_;
      out_ << element_text(tensor.dtype(), tensor.raw_data());
      return;
    }
    const std::int64_t length = tensor.numel() == 0 ? 0 : tensor.shape()[0];
    out_ << '[';
    for (std::int64_t i = 0; i < length; ++i) {
      if (i > 0) separate(tensor, indent);
      const bool is_omitted = !whole_ && i == kEdge && length > 2 * kEdge;
      if (is_omitted || written_ >= kMaxWritten) {
        out_ << "...";
        if (!is_omitted) break;
        i = length - kEdge - 1;
        continue;
      }
      write(tensor.select(i), indent + 1);
    }
    out_ << ']';
  }

 private:
  void separate(const Tensor& tensor, std::size_t indent) {
    if (tensor.ndim() == 1) {
      out_ << ", ";
    } else {
      out_ << ",\n" << std::string(indent + 1, ' ');
    }
  }

  std::ostream& out_;
  bool whole_;
  std::int64_t written_ = 0;
};

}  // namespace

double float4_value(unsigned nibble) noexcept {
  constexpr std::array<double, 8> kMagnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kMagnitudes[nibble & 7U];
  return (nibble & 8U) != 0 ? -magnitude : magnitude;
}

std::string element_text(DType dtype, const std::byte* bytes) {
  return element_texts(dtype, {bytes, itemsize(dtype)}).front();
}

std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> bytes) {
  if (is_integer(dtype)) {
    return with_integer_type(dtype, [&]<class T>(T) { return integer_texts<T>(bytes); });
  }
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

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  constexpr std::string_view kOpen = "tensor(";
  out << kOpen;
  TensorWriter(out, tensor.numel() <= kWholeNumel).write(tensor, kOpen.size());
  return out << ", " << to_string(tensor.dtype()) << ' ' << base::list_text(tensor.shape()) << ')';
}

}  // namespace tenfold

#include "core/tensor/cast.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/tensor/integer_type.hpp"
#include "core/tensor/small_float.hpp"

namespace tenfold {
namespace {

// The number of elements that are converted at a time. Floats of 8 and 16 bits are converted
// through float32, as in torch, so that only pairs of the eleven types in Table need code. The
// float32 values of this many elements fit into the L1 cache.
constexpr std::size_t kPieceElements = 1024;

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof(T));
}

/// A stored bool: any byte but 0 is true. (Reading such a byte as a `bool` object would be
/// undefined behaviour.)
enum class StoredBool : std::uint8_t {};

/// Converts as x86's cvtt instructions do: the lowest integer for NaN and for values out of range.
template <class Int, class Float>
Int truncated(Float value) noexcept {
  constexpr auto kLimit = static_cast<Float>(std::uint64_t{1} << (sizeof(Int) * 8 - 1));
  // The bounds are powers of two, which every float type represents exactly. A value between
  // -limit - 1 and -limit truncates to the lowest integer, which is also the result out of range.
  const bool fits = value >= -kLimit && value < kLimit;
  return fits ? static_cast<Int>(value) : std::numeric_limits<Int>::min();
}

template <class To, class From>
To convert(From value) noexcept {
  if constexpr (std::is_same_v<From, StoredBool>) {
    const bool truth = value != StoredBool{0};
    if constexpr (std::is_same_v<To, StoredBool>) {
      return static_cast<StoredBool>(truth ? 1 : 0);
    } else {
      return static_cast<To>(truth ? 1 : 0);
    }
  } else if constexpr (std::is_same_v<To, StoredBool>) {
    return static_cast<StoredBool>(value != From{0} ? 1 : 0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if constexpr (std::is_same_v<To, std::uint64_t>) {
      constexpr auto kHalf = static_cast<From>(std::uint64_t{1} << 63);
      const bool upper = value >= kHalf;
      const auto rest =
          static_cast<std::uint64_t>(truncated<std::int64_t>(upper ? value - kHalf : value));
      return upper ? rest ^ (std::uint64_t{1} << 63) : rest;
    } else if constexpr (std::is_same_v<To, std::uint32_t> || std::is_same_v<To, std::uint8_t>) {
      return static_cast<To>(truncated<std::int64_t>(value));
    } else if constexpr (sizeof(To) < 4) {
      return static_cast<To>(truncated<std::int32_t>(value));
    } else {
      return truncated<To>(value);
    }
  } else {
    return static_cast<To>(value);
  }
}

using Convert = void (*)(const std::byte* from, std::byte* to, std::size_t count);

template <class From, class To>
void convert_all(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(to + i * sizeof(To), convert<To>(load<From>(from + i * sizeof(From))));
  }
}

template <class Small>
void widen_all(const std::byte* from, std::byte* to, std::size_t count) {
  using Bits = typename Small::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    store(to + i * sizeof(float), Small::to_float(load<Bits>(from + i * sizeof(Bits))));
  }
}

template <class Small>
void narrow_all(const std::byte* from, std::byte* to, std::size_t count) {
  using Bits = typename Small::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    store(to + i * sizeof(Bits), Small::from_float(load<float>(from + i * sizeof(float))));
  }
}

template <class From, class... To>
constexpr std::array<Convert, sizeof...(To)> row_of() {
  return {&convert_all<From, To>...};
}

template <class... T>
struct Natives {
  static constexpr std::array<std::array<Convert, sizeof...(T)>, sizeof...(T)> kTable = {
      row_of<T, T...>()...};
};
using Table = Natives<StoredBool, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t,
                      std::int8_t, std::int16_t, std::int32_t, std::int64_t, float, double>;

constexpr int kFloat32 = 9;

/// How a dtype is converted: by its row in Table or, if it is a narrow float, through float32.
struct Real {
  int native = kFloat32;     ///< -1 for complex dtypes and float4
  Convert widen = nullptr;   ///< from a narrow float to float
  Convert narrow = nullptr;  ///< from float to a narrow float
};

template <class Small>
constexpr Real small() {
  return {kFloat32, &widen_all<Small>, &narrow_all<Small>};
}

Real real_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::bool_:
      return {0};
    case DType::uint8:
      return {1};
    case DType::uint16:
      return {2};
    case DType::uint32:
      return {3};
    case DType::uint64:
      return {4};
    case DType::int8:
      return {5};
    case DType::int16:
      return {6};
    case DType::int32:
      return {7};
    case DType::int64:
      return {8};
    case DType::float32:
      return {kFloat32};
    case DType::float64:
      return {10};
    case DType::float16:
      return small<small_float::Float16>();
    case DType::bfloat16:
      return small<small_float::Bfloat16>();
    case DType::float8_e4m3fn:
      return small<small_float::Float8E4m3fn>();
    case DType::float8_e4m3fnuz:
      return small<small_float::Float8E4m3fnuz>();
    case DType::float8_e5m2:
      return small<small_float::Float8E5m2>();
    case DType::float8_e5m2fnuz:
      return small<small_float::Float8E5m2fnuz>();
    case DType::float8_e8m0fnu:
      return small<small_float::Float8E8m0fnu>();
    case DType::complex32:
    case DType::complex64:
    case DType::complex128:
    case DType::float4_e2m1fn_x2:
      return {-1};
  }
  return {-1};
}

/// The dtype of the real and imaginary parts of a complex dtype. Returns a real dtype unchanged.
DType part_of(DType dtype) noexcept {
  if (dtype == DType::complex32) return DType::float16;
  if (dtype == DType::complex64) return DType::float32;
  return dtype == DType::complex128 ? DType::float64 : dtype;
}

void cast_piece(DType from, const std::byte* source, DType to, std::byte* target,
                std::size_t count) {
  const Real in = real_of(from);
  const Real out = real_of(to);
  std::array<float, kPieceElements> wide;
  std::array<float, kPieceElements> narrow;
  const std::byte* native = source;
  if (in.widen != nullptr) {
    in.widen(source, reinterpret_cast<std::byte*>(wide.data()), count);
    native = reinterpret_cast<const std::byte*>(wide.data());
  }
  const Convert convert_native =
      Table::kTable[static_cast<std::size_t>(in.native)][static_cast<std::size_t>(out.native)];
  if (out.narrow == nullptr) {
    convert_native(native, target, count);
    return;
  }
  if (in.native != kFloat32) {
    convert_native(native, reinterpret_cast<std::byte*>(narrow.data()), count);
    native = reinterpret_cast<const std::byte*>(narrow.data());
  }
  out.narrow(native, target, count);
}

void cast_reals(DType from, const std::byte* source, DType to, std::byte* target,
                std::size_t count) {
  for (std::size_t done = 0; done < count; done += kPieceElements) {
    cast_piece(from, source + done * itemsize(from), to, target + done * itemsize(to),
               std::min(kPieceElements, count - done));
  }
}

void cast_real_to_complex(DType from, const std::byte* source, DType to, std::byte* target,
                          std::size_t count) {
  const DType part = part_of(to);
  const std::size_t part_bytes = itemsize(part);
  std::array<std::byte, kPieceElements * sizeof(double)> parts;
  std::memset(target, 0, count * 2 * part_bytes);
  for (std::size_t done = 0; done < count; done += kPieceElements) {
    const std::size_t piece = std::min(kPieceElements, count - done);
    cast_reals(from, source + done * itemsize(from), part, parts.data(), piece);
    for (std::size_t i = 0; i < piece; ++i) {
      std::memcpy(target + (done + i) * 2 * part_bytes, parts.data() + i * part_bytes, part_bytes);
    }
  }
}

/// The range of an integer type, both ends inclusive.
struct Range {
  std::int64_t least;
  std::uint64_t most;
};

Range range_of(DType dtype) {
  const auto bits = static_cast<unsigned>(itemsize(dtype) * 8);
  if (dtype == DType::bool_) return {0, 1};
  if (dtype < DType::int8) return {0, std::numeric_limits<std::uint64_t>::max() >> (64 - bits)};
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() >> (65 - bits);
  return {-static_cast<std::int64_t>(most) - 1, most};
}

/// Index of the first integer that is outside `range`; `count` if there is none.
template <class T>
std::int64_t beyond(const std::byte* elements, Range range, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = load<T>(elements + static_cast<std::size_t>(i) * sizeof(T));
    if constexpr (std::is_signed_v<T>) {
      if (value < range.least) return i;
      if (value > 0 && static_cast<std::uint64_t>(value) > range.most) return i;
    } else {
      if (value > range.most) return i;
    }
  }
  return count;
}

std::int64_t integer_beyond(DType from, const std::byte* elements, Range range,
                            std::int64_t count) {
  return with_integer_type(from, [&]<class T>(T) { return beyond<T>(elements, range, count); });
}

/// Index of the first element for which `fits(double)` is false; `count` if there is none.
template <class Fits>
std::int64_t float_not_fitting(DType from, const std::byte* elements, std::int64_t count,
                               const Fits& fits) {
  for (std::int64_t i = 0; i < count; ++i) {
    double value = 0;
    if (from == DType::float64) {
      value = load<double>(elements + static_cast<std::size_t>(i) * sizeof(double));
    } else {
      cast_elements(from, elements + static_cast<std::size_t>(i) * itemsize(from), DType::float64,
                    reinterpret_cast<std::byte*>(&value), 1);
    }
    if (!fits(value)) return i;
  }
  return count;
}

/// True if `value` is out of the range of the float dtype `to`: a conversion does not round it, but
/// returns infinity, NaN or the maximum of the dtype. False if `value` is NaN.
bool is_out_of_range(double value, DType to) {
  if (std::isnan(value)) return false;
  if (to == DType::float8_e8m0fnu && !(value > 0)) return true;  // it has neither sign nor 0
  // The conversion saturates at the maximum, 448. Values up to 464 are rounded to 448.
  if (to == DType::float8_e4m3fn) return std::abs(value) > 464;
  double back = 0;
  std::byte stored[16];
  cast_elements(DType::float64, reinterpret_cast<const std::byte*>(&value), to, stored, 1);
  cast_elements(to, stored, DType::float64, reinterpret_cast<std::byte*>(&back), 1);
  return std::isinf(value) ? back != value : !std::isfinite(back);
}

}  // namespace

bool can_cast(DType from, DType to) noexcept {
  if (from == to) return true;
  if (from == DType::float4_e2m1fn_x2 || to == DType::float4_e2m1fn_x2) return false;
  return is_complex(to) || !is_complex(from);
}

void cast_elements(DType from, const std::byte* source, DType to, std::byte* target,
                   std::size_t count) {
  if (!can_cast(from, to)) {
    throw base::unsupported().part("dtype").problem("no conversion from ", to_string(from), " to ",
                                                    to_string(to));
  }
  if (count == 0) return;
  if (from == to) {
    std::memcpy(target, source, count * itemsize(from));
  } else if (is_complex(from)) {
    cast_reals(part_of(from), source, part_of(to), target, count * 2);
  } else if (is_complex(to)) {
    cast_real_to_complex(from, source, to, target, count);
  } else {
    cast_reals(from, source, to, target, count);
  }
}

std::int64_t first_not_fitting(DType from, const std::byte* elements, DType to,
                               std::int64_t count) {
  if (from == to) return count;
  if (!can_cast(from, to)) return 0;
  if (from == DType::bool_ && to != DType::float8_e8m0fnu) return count;
  if (is_integer(to) || to == DType::bool_) {
    const Range range = range_of(to);
    if (is_integer(from)) return integer_beyond(from, elements, range, count);
    const auto least = static_cast<double>(range.least);
    // The first integer above the range is a power of two, which a double represents exactly.
    const double end =
        range.most == 1 ? 2.0 : std::ldexp(1.0, static_cast<int>(std::bit_width(range.most)));
    return float_not_fitting(from, elements, count, [&](double value) {
      return value >= least && value < end && value == std::trunc(value);
    });
  }
  if (is_complex(to)) {
    const std::int64_t parts = is_complex(from) ? 2 : 1;
    return first_not_fitting(part_of(from), elements, part_of(to), parts * count) / parts;
  }
  if (!is_floating_point(to)) return count;
  if (is_integer(from) && (to == DType::float32 || to == DType::bfloat16)) return count;
  if (to == DType::float64 || (to == DType::float32 && itemsize(from) < 4)) return count;
  if (to == DType::float32 && from == DType::float64) {
    return float_not_fitting(from, elements, count, [](double value) {
      return !std::isfinite(value) || std::isfinite(static_cast<float>(value));
    });
  }
  return float_not_fitting(from, elements, count,
                           [&](double value) { return !is_out_of_range(value, to); });
}

}  // namespace tenfold

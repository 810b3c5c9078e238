#include <tenfold/dtype.hpp>

#include <ostream>
#include <string>

#include "core/tensor/small_float.hpp"

namespace tenfold {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t itemsize;
};

constexpr std::array<Row, kNumDTypes> kRows = {{
    {DType::bool_, "bool", 1},
    {DType::uint8, "uint8", 1},
    {DType::uint16, "uint16", 2},
    {DType::uint32, "uint32", 4},
    {DType::uint64, "uint64", 8},
    {DType::int8, "int8", 1},
    {DType::int16, "int16", 2},
    {DType::int32, "int32", 4},
    {DType::int64, "int64", 8},
    {DType::float16, "float16", 2},
    {DType::bfloat16, "bfloat16", 2},
    {DType::float32, "float32", 4},
    {DType::float64, "float64", 8},
    {DType::complex32, "complex32", 4},
    {DType::complex64, "complex64", 8},
    {DType::complex128, "complex128", 16},
    {DType::float8_e4m3fn, "float8_e4m3fn", 1},
    {DType::float8_e4m3fnuz, "float8_e4m3fnuz", 1},
    {DType::float8_e5m2, "float8_e5m2", 1},
    {DType::float8_e5m2fnuz, "float8_e5m2fnuz", 1},
    {DType::float8_e8m0fnu, "float8_e8m0fnu", 1},
    {DType::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1},
}};

constexpr bool rows_match_enumeration() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_match_enumeration());

constexpr std::array<DType, kNumDTypes> all_of_them() {
  std::array<DType, kNumDTypes> all{};
  for (std::size_t i = 0; i < kRows.size(); ++i) all[i] = kRows[i].dtype;
  return all;
}
constexpr std::array<DType, kNumDTypes> kAll = all_of_them();

}  // namespace

const std::array<DType, kNumDTypes>& all_dtypes() noexcept { return kAll; }

std::size_t itemsize(DType dtype) noexcept {
  return kRows[static_cast<std::size_t>(dtype)].itemsize;
}

std::string to_string(DType dtype) {
  return std::string(kRows[static_cast<std::size_t>(dtype)].name);
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

namespace detail {
namespace {

/// Calls `use` with an object of the class in small_float that converts `dtype`.
template <class Use>
auto with_small_float(DType dtype, const Use& use) noexcept {
  switch (dtype) {
    case DType::float16:
      return use(small_float::Float16());
    case DType::float8_e4m3fn:
      return use(small_float::Float8E4m3fn());
    case DType::float8_e4m3fnuz:
      return use(small_float::Float8E4m3fnuz());
    case DType::float8_e5m2:
      return use(small_float::Float8E5m2());
    case DType::float8_e5m2fnuz:
      return use(small_float::Float8E5m2fnuz());
    case DType::float8_e8m0fnu:
      return use(small_float::Float8E8m0fnu());
    default:
      return use(small_float::Bfloat16());
  }
}

}  // namespace

float float_of_bits(DType dtype, std::uint16_t bits) noexcept {
  return with_small_float(dtype, [&](auto format) {
    return decltype(format)::to_float(static_cast<typename decltype(format)::Bits>(bits));
  });
}

std::uint16_t bits_of_float(DType dtype, float value) noexcept {
  return with_small_float(
      dtype, [&](auto format) -> std::uint16_t { return decltype(format)::from_float(value); });
}

}  // namespace detail

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace tenfold

#include "core/tensor/cast.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

template <class To, class From>
To cast_one(DType from, From value, DType to) {
  To out{};
  EXPECT_EQ(sizeof(From), itemsize(from));
  EXPECT_EQ(sizeof(To), itemsize(to));
  cast_elements(from, reinterpret_cast<const std::byte*>(&value), to,
                reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

/// A float and the bits that torch 2.13 converts it to in a narrow type. For NaN as bfloat16, these
/// are the bits of torch's scalar conversion; its vectorized one gives 0xFFFF, also a NaN.
struct Row {
  DType dtype;
  float value;
  unsigned bits;
};

class NarrowFloats : public testing::TestWithParam<Row> {};

TEST_P(NarrowFloats, AreConvertedAsInTorch) {
  const Row& row = GetParam();
  const unsigned found = itemsize(row.dtype) == 2
                             ? cast_one<std::uint16_t>(DType::float32, row.value, row.dtype)
                             : cast_one<std::uint8_t>(DType::float32, row.value, row.dtype);
  EXPECT_EQ(found, row.bits) << to_string(row.dtype) << " of " << row.value;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, NarrowFloats,
    testing::Values(
        Row{DType::float16, 1.0F, 0x3C00}, Row{DType::float16, -0.0F, 0x8000},
        Row{DType::float16, 65504.0F, 0x7BFF}, Row{DType::float16, 65519.0F, 0x7BFF},
        Row{DType::float16, 65520.0F, 0x7C00}, Row{DType::float16, -kInfinity, 0xFC00},
        Row{DType::float16, 2049.0F, 0x6800}, Row{DType::float16, 2051.0F, 0x6802},
        Row{DType::float16, 0x1p-24F, 0x0001}, Row{DType::float16, 0x1p-25F, 0x0000},
        Row{DType::float16, 0x1.8p-25F, 0x0001}, Row{DType::float16, kNaN, 0x7E00},
        Row{DType::bfloat16, 1.0F, 0x3F80}, Row{DType::bfloat16, 0x1.01p0F, 0x3F80},
        Row{DType::bfloat16, 0x1.03p0F, 0x3F82}, Row{DType::bfloat16, 3.4e38F, 0x7F80},
        Row{DType::bfloat16, kNaN, 0x7FC0}, Row{DType::float8_e4m3fn, 1.0F, 0x38},
        Row{DType::float8_e4m3fn, 448.0F, 0x7E}, Row{DType::float8_e4m3fn, 470.0F, 0x7E},
        Row{DType::float8_e4m3fn, kInfinity, 0x7E}, Row{DType::float8_e4m3fn, -1e9F, 0xFE},
        Row{DType::float8_e4m3fn, kNaN, 0x7F}, Row{DType::float8_e4m3fn, 0x1p-9F, 0x01},
        Row{DType::float8_e4m3fn, 0x1p-10F, 0x00}, Row{DType::float8_e4m3fnuz, 1.0F, 0x40},
        Row{DType::float8_e4m3fnuz, -0.0F, 0x00}, Row{DType::float8_e4m3fnuz, 240.0F, 0x7F},
        Row{DType::float8_e4m3fnuz, 248.0F, 0x80}, Row{DType::float8_e4m3fnuz, kInfinity, 0x80},
        Row{DType::float8_e5m2, 1.0F, 0x3C}, Row{DType::float8_e5m2, 57344.0F, 0x7B},
        Row{DType::float8_e5m2, 61440.0F, 0x7C}, Row{DType::float8_e5m2, kInfinity, 0x7C},
        Row{DType::float8_e5m2, kNaN, 0x7F}, Row{DType::float8_e5m2fnuz, 1.0F, 0x40},
        Row{DType::float8_e5m2fnuz, 61440.0F, 0x80}, Row{DType::float8_e5m2fnuz, kNaN, 0x80},
        Row{DType::float8_e8m0fnu, 1.0F, 0x7F}, Row{DType::float8_e8m0fnu, 1.5F, 0x80},
        Row{DType::float8_e8m0fnu, 1.25F, 0x7F}, Row{DType::float8_e8m0fnu, 0.0F, 0x00},
        Row{DType::float8_e8m0fnu, kInfinity, 0xFF}));

class EveryNarrowFloat : public testing::TestWithParam<DType> {};

TEST_P(EveryNarrowFloat, EveryBitPatternExceptNanRoundTripsThroughFloat) {
  const DType dtype = GetParam();
  const std::uint32_t patterns = itemsize(dtype) == 2 ? 0x10000 : 0x100;
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    float value = 0;
    std::uint32_t back = 0;
    cast_elements(dtype, reinterpret_cast<const std::byte*>(&bits), DType::float32,
                  reinterpret_cast<std::byte*>(&value), 1);
    if (std::isnan(value)) continue;
    cast_elements(DType::float32, reinterpret_cast<const std::byte*>(&value), dtype,
                  reinterpret_cast<std::byte*>(&back), 1);
    // In float8_e8m0fnu, the bits 0 are 2^-127. This is a subnormal float, but must be converted
    // back to the bits 0.
    ASSERT_EQ(back, bits) << to_string(dtype) << " " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryNarrowFloat,
                         testing::Values(DType::float16, DType::bfloat16, DType::float8_e4m3fn,
                                         DType::float8_e4m3fnuz, DType::float8_e5m2,
                                         DType::float8_e5m2fnuz, DType::float8_e8m0fnu),
                         [](const auto& row) { return to_string(row.param); });

TEST(Cast, TruncatesFloatsTowardZero) {
  EXPECT_EQ((cast_one<std::int32_t>(DType::float32, -2.9F, DType::int32)), -2);
  EXPECT_EQ((cast_one<std::uint64_t>(DType::float64, 0x1.8p63, DType::uint64)), 3ULL << 62);
  EXPECT_EQ((cast_one<std::int64_t>(DType::float64, -0x1p63, DType::int64)), INT64_MIN);
  EXPECT_EQ((cast_one<std::int8_t>(DType::float32, -128.5F, DType::int8)), -128);
  EXPECT_EQ((cast_one<std::uint8_t>(DType::float32, -1.0F, DType::uint8)), 255);
}

TEST(Cast, IntegersWrapAsInC) {
  EXPECT_EQ((cast_one<std::uint8_t>(DType::int32, 257, DType::uint8)), 1);
  EXPECT_EQ((cast_one<std::int64_t>(DType::uint64, ~std::uint64_t{0}, DType::int64)), -1);
}

TEST(Cast, EveryNonzeroValueIsTrue) {
  EXPECT_EQ((cast_one<std::uint8_t>(DType::float32, -0.0F, DType::bool_)), 0);
  EXPECT_EQ((cast_one<std::uint8_t>(DType::float32, kNaN, DType::bool_)), 1);
  EXPECT_EQ((cast_one<std::uint8_t>(DType::float64, 0x1p-1074, DType::bool_)), 1);
  EXPECT_EQ((cast_one<std::uint8_t>(DType::int64, std::int64_t{256}, DType::bool_)), 1);
  // A bool in a file may be a byte other than 0 and 1.
  EXPECT_EQ((cast_one<float>(DType::bool_, std::uint8_t{7}, DType::float32)), 1.0F);
}

TEST(Cast, Float64GoesToNarrowFloatsThroughFloat32AsInTorch) {
  // The number is slightly above the middle of two float16 values. As in torch, the conversion to
  // float32 gives the middle, which is then rounded to the even neighbour.
  EXPECT_EQ((cast_one<std::uint16_t>(DType::float64, 2049.0 + 0x1p-30, DType::float16)), 0x6800);
}

TEST(Cast, ConvertsLongRunsThatAreNotAligned) {
  constexpr std::size_t kCount = 3001;
  std::vector<std::byte> from(kCount * 8 + 1);
  std::vector<std::byte> to(kCount * 2 + 1);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto value = static_cast<std::int64_t>(i % 2048);
    std::memcpy(from.data() + 1 + i * 8, &value, 8);
  }
  cast_elements(DType::int64, from.data() + 1, DType::float16, to.data() + 1, kCount);
  std::vector<float> back(kCount);
  cast_elements(DType::float16, to.data() + 1, DType::float32,
                reinterpret_cast<std::byte*>(back.data()), kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(back[i], static_cast<float>(i % 2048));
}

TEST(Cast, ComplexPartsAreConvertedSeparately) {
  using Double = std::complex<double>;
  using Float = std::complex<float>;
  EXPECT_EQ((cast_one<Float>(DType::complex128, Double(1.5, -2), DType::complex64)),
            Float(1.5F, -2));
  EXPECT_EQ((cast_one<std::uint32_t>(DType::complex128, Double(1, -2), DType::complex32)),
            0xC0003C00U);
  EXPECT_EQ((cast_one<Double>(DType::int32, -3, DType::complex128)), Double(-3, 0));
}

TEST(Cast, ToTheSameTypeCopiesTheBits) {
  EXPECT_EQ((cast_one<std::uint16_t>(DType::float16, std::uint16_t{0x7C01}, DType::float16)),
            0x7C01);
  EXPECT_EQ((cast_one<std::uint8_t>(DType::float4_e2m1fn_x2, std::uint8_t{0x9A},
                                    DType::float4_e2m1fn_x2)),
            0x9A);
}

TEST(Cast, MeaninglessCastsAreUnsupported) {
  std::byte bytes[16] = {};
  try {
    cast_elements(DType::complex64, bytes, DType::float32, bytes + 8, 1);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "dtype: no conversion from complex64 to float32");
  }
  EXPECT_THROW(cast_elements(DType::float4_e2m1fn_x2, bytes, DType::float32, bytes + 8, 1), Error);
  EXPECT_THROW(cast_elements(DType::float32, bytes, DType::float4_e2m1fn_x2, bytes + 8, 1), Error);
}

TEST(Cast, EveryPairIsSupportedOrRefused) {
  std::vector<std::byte> from(16 * 5, std::byte{0});
  std::vector<std::byte> to(16 * 5);
  for (const DType a : all_dtypes()) {
    for (const DType b : all_dtypes()) {
      if (can_cast(a, b)) {
        EXPECT_NO_THROW(cast_elements(a, from.data(), b, to.data(), 5))
            << to_string(a) << to_string(b);
      } else {
        EXPECT_THROW(cast_elements(a, from.data(), b, to.data(), 5), Error)
            << to_string(a) << to_string(b);
      }
    }
  }
}

template <class T>
bool fits(T value, DType to) {
  return first_not_fitting(dtype_of<T>(), reinterpret_cast<const std::byte*>(&value), to, 1) == 1;
}

TEST(FirstNotFitting, IntegersFitTheirRange) {
  EXPECT_TRUE(fits<std::int64_t>(255, DType::uint8));
  EXPECT_FALSE(fits<std::int64_t>(256, DType::uint8));
  EXPECT_FALSE(fits<std::int64_t>(-1, DType::uint64));
  EXPECT_TRUE(fits<std::int64_t>(-128, DType::int8));
  EXPECT_FALSE(fits<std::int64_t>(-129, DType::int8));
  EXPECT_FALSE(fits<std::uint64_t>(std::uint64_t{1} << 63, DType::int64));
  EXPECT_TRUE(fits<std::uint64_t>((std::uint64_t{1} << 63) - 1, DType::int64));
  EXPECT_TRUE(fits<std::int64_t>(1, DType::bool_));
  EXPECT_FALSE(fits<std::int64_t>(2, DType::bool_));
}

TEST(FirstNotFitting, FloatsFitIntegersIfTheyAreIntegers) {
  EXPECT_TRUE(fits(2.0, DType::int32));
  EXPECT_FALSE(fits(2.5, DType::int32));
  EXPECT_FALSE(fits(std::nan(""), DType::int64));
  EXPECT_FALSE(fits(0x1p63, DType::int64));
  EXPECT_TRUE(fits(-0x1p63, DType::int64));
  EXPECT_FALSE(fits(0x1p64, DType::uint64));
  EXPECT_FALSE(fits(-1.0, DType::uint8));
}

TEST(FirstNotFitting, FloatsFitNarrowerOnesUnlessTheyBecomeInfinite) {
  EXPECT_TRUE(fits(0.1, DType::float32));
  EXPECT_FALSE(fits(1e39, DType::float32));
  EXPECT_TRUE(fits(std::numeric_limits<double>::infinity(), DType::float32));
  EXPECT_FALSE(fits(1e6F, DType::float16));
  EXPECT_TRUE(fits(1e6F, DType::bfloat16));
  EXPECT_FALSE(fits(1e6F, DType::complex32));
  EXPECT_TRUE(fits(std::nan(""), DType::float16));
}

TEST(FirstNotFitting, IntegersFitFloatsUnlessTheyBecomeInfinite) {
  EXPECT_TRUE(fits<std::int64_t>(65'504, DType::float16));
  EXPECT_FALSE(fits<std::int64_t>(70'000, DType::float16));
  EXPECT_FALSE(fits<std::uint64_t>(~std::uint64_t{0}, DType::float16));
  EXPECT_TRUE(fits<std::uint64_t>(~std::uint64_t{0}, DType::bfloat16));
  EXPECT_TRUE(fits<std::uint64_t>(~std::uint64_t{0}, DType::float32));
}

TEST(FirstNotFitting, NumbersOutsideTheRangeOfAFloat8DoNotFit) {
  EXPECT_TRUE(fits(-464.0, DType::float8_e4m3fn));
  EXPECT_FALSE(fits(465.0F, DType::float8_e4m3fn));
  EXPECT_FALSE(fits(std::numeric_limits<double>::infinity(), DType::float8_e4m3fnuz));
  EXPECT_FALSE(fits<std::int64_t>(0, DType::float8_e8m0fnu));
  EXPECT_FALSE(fits(-2.0, DType::float8_e8m0fnu));
  EXPECT_TRUE(fits(std::nan(""), DType::float8_e8m0fnu));
}

TEST(FirstNotFitting, BoolsFitAllDtypesThatHave0And1) {
  const std::byte bools[] = {std::byte{1}, std::byte{0}};
  for (const DType to : {DType::int8, DType::float16, DType::float8_e4m3fn, DType::complex32}) {
    EXPECT_EQ(first_not_fitting(DType::bool_, bools, to, 2), 2);
  }
  EXPECT_EQ(first_not_fitting(DType::bool_, bools, DType::float8_e8m0fnu, 2), 1);
  EXPECT_EQ(first_not_fitting(DType::bool_, bools, DType::float4_e2m1fn_x2, 2), 0);
}

TEST(FirstNotFitting, ComplexNumbersFitNarrowerOnesUnlessAPartBecomesInfinite) {
  const std::complex<double> numbers[] = {{1, 2}, {3, 1e39}, {1e300, 0}};
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers);
  EXPECT_EQ(first_not_fitting(DType::complex128, bytes, DType::complex64, 3), 1);
  EXPECT_EQ(first_not_fitting(DType::complex128, bytes, DType::complex128, 3), 3);
  EXPECT_FALSE(fits(1e39, DType::complex64));
  EXPECT_TRUE(fits(1e38, DType::complex64));
}

}  // namespace
}  // namespace tenfold

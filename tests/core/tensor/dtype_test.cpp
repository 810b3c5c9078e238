#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>

#include <tenfold/dtype.hpp>

namespace tenfold {
namespace {

TEST(DType, EveryNameRoundTrips) {
  std::set<std::string> names;
  for (const DType dtype : all_dtypes()) {
    EXPECT_EQ(dtype_from_name(to_string(dtype)), dtype);
    names.insert(to_string(dtype));
  }
  EXPECT_EQ(names.size(), kNumDTypes);
}

TEST(DType, NamesMatchTorch) {
  EXPECT_EQ(to_string(DType::bool_), "bool");
  EXPECT_EQ(to_string(DType::bfloat16), "bfloat16");
  EXPECT_EQ(to_string(DType::float4_e2m1fn_x2), "float4_e2m1fn_x2");
  EXPECT_EQ(dtype_from_name("torch.float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, HasAtMostOneCategory) {
  std::set<std::string> of_none;
  for (const DType dtype : all_dtypes()) {
    const int kinds = is_integer(dtype) + is_complex(dtype) + is_floating_point(dtype);
    EXPECT_LE(kinds, 1) << to_string(dtype);
    if (kinds == 0) of_none.insert(to_string(dtype));
    const bool named_float = to_string(dtype).starts_with("float") || dtype == DType::bfloat16;
    EXPECT_EQ(is_floating_point(dtype), named_float && dtype != DType::float4_e2m1fn_x2);
    EXPECT_EQ(is_integer(dtype), to_string(dtype).find("int") != std::string_view::npos);
    EXPECT_EQ(is_complex(dtype), to_string(dtype).starts_with("complex"));
  }
  EXPECT_EQ(of_none, (std::set<std::string>{"bool", "float4_e2m1fn_x2"}));
}

// With GNU extensions, std::is_integral is true for __int128, which no dtype represents.
__extension__ using Int128 = __int128;
static_assert(!Element<Int128> && !Element<char> && !Element<const bool> && Element<long long> &&
              Element<std::size_t>);

TEST(DType, ItemsizesMatchTheCppTypes) {
  EXPECT_EQ(itemsize(dtype_of<bool>()), sizeof(bool));
  EXPECT_EQ(itemsize(dtype_of<std::int16_t>()), 2U);
  EXPECT_EQ(itemsize(dtype_of<float>()), 4U);
  EXPECT_EQ(itemsize(dtype_of<std::uint64_t>()), 8U);
  EXPECT_EQ(itemsize(dtype_of<std::complex<double>>()), 16U);
  EXPECT_EQ(itemsize(DType::complex32), 4U);
  EXPECT_EQ(itemsize(DType::float16), 2U);
  EXPECT_EQ(itemsize(DType::float8_e8m0fnu), 1U);
  EXPECT_EQ(itemsize(DType::float4_e2m1fn_x2), 1U);
}

}  // namespace
}  // namespace tenfold

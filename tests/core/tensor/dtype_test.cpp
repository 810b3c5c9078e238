#include <gtest/gtest.h>

#include <set>
#include <string>

#include <tenfold/dtype.hpp>

namespace tenfold {
namespace {

TEST(DType, EveryNameLeadsBackToItsDType) {
  std::set<std::string_view> names;
  for (const DType dtype : all_dtypes()) {
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    names.insert(name(dtype));
  }
  EXPECT_EQ(names.size(), kNumDTypes);
}

TEST(DType, NamesEqualTorchs) {
  EXPECT_EQ(name(DType::bool_), "bool");
  EXPECT_EQ(name(DType::bfloat16), "bfloat16");
  EXPECT_EQ(name(DType::float4_e2m1fn_x2), "float4_e2m1fn_x2");
  EXPECT_EQ(dtype_from_name("torch.float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, EachIsOfOneKindAtMost) {
  std::set<std::string_view> of_none;
  for (const DType dtype : all_dtypes()) {
    const int kinds = is_integer(dtype) + is_complex(dtype) + is_floating_point(dtype);
    EXPECT_LE(kinds, 1) << name(dtype);
    if (kinds == 0) of_none.insert(name(dtype));
    const bool named_float = name(dtype).starts_with("float") || dtype == DType::bfloat16;
    EXPECT_EQ(is_floating_point(dtype), named_float && dtype != DType::float4_e2m1fn_x2);
    EXPECT_EQ(is_integer(dtype), name(dtype).find("int") != std::string_view::npos);
    EXPECT_EQ(is_complex(dtype), name(dtype).starts_with("complex"));
  }
  EXPECT_EQ(of_none, (std::set<std::string_view>{"bool", "float4_e2m1fn_x2"}));
}

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

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/cast.hpp"
#include "io/sample_trees.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

template <class T>
Leaf leaf_of(const std::vector<T>& values) {
  return Tensor::from(std::span<const T>(values));
}

/// float32 values, cast to another dtype.
Leaf cast_leaf(const std::vector<float>& values, DType dtype) {
  Tensor tensor = Tensor::zeros(dtype, {static_cast<std::int64_t>(values.size())});
  cast_elements(DType::float32, reinterpret_cast<const std::byte*>(values.data()), dtype,
                tensor.mutable_raw_data(), values.size());
  return tensor;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Statistics, ExcludeNanAndInfinities) {
  const Statistics figures = statistics(leaf_of<float>({1, kNan, 3, kInf, 0, -kInf, -2}));
  EXPECT_EQ(figures.count, 4U);
  EXPECT_EQ(figures.min, -2);
  EXPECT_EQ(figures.max, 3);
  EXPECT_EQ(figures.mean, 0.5);
  EXPECT_DOUBLE_EQ(figures.std, std::sqrt(3.25));
  EXPECT_EQ(figures.zeros, 1U);
  EXPECT_EQ(figures.nan, 1U);
  EXPECT_EQ(figures.inf, 2U);
}

TEST(Statistics, AreNanForNoValues) {
  const Statistics figures = statistics(leaf_of<float>({}));
  EXPECT_EQ(figures.count, 0U);
  for (const double figure : {figures.min, figures.max, figures.mean, figures.std}) {
    EXPECT_TRUE(std::isnan(figure));
  }
}

TEST(Statistics, SupportEveryDtype) {
  for (const DType dtype : all_dtypes()) {
    if (dtype == DType::float4_e2m1fn_x2 || dtype == DType::float8_e8m0fnu) continue;
    const bool is_bool = dtype == DType::bool_;
    const Statistics figures = statistics(cast_leaf({1, 0, 1, is_bool ? 1.0F : 2.0F}, dtype));
    EXPECT_EQ(figures.min, 0) << to_string(dtype);
    EXPECT_EQ(figures.max, is_bool ? 1 : 2) << to_string(dtype);
    EXPECT_EQ(figures.mean, is_bool ? 0.75 : 1) << to_string(dtype);
    EXPECT_EQ(figures.zeros, 1U) << to_string(dtype);
  }
  EXPECT_EQ(statistics(cast_leaf({0.5, 4}, DType::float8_e8m0fnu)).mean, 2.25);
}

TEST(Statistics, CountBothNumbersOfAFloat4Pair) {
  Tensor pairs = Tensor::zeros(DType::float4_e2m1fn_x2, {1});
  pairs.mutable_raw_data()[0] = std::byte{0xF1};  // 0.5 and -6
  const Statistics figures = statistics(Leaf(pairs));
  EXPECT_EQ(figures.count, 2U);
  EXPECT_EQ(figures.min, -6);
  EXPECT_EQ(figures.max, 0.5);
}

TEST(Statistics, UseTheMagnitudeOfComplexNumbers) {
  const Statistics figures = statistics(leaf_of<std::complex<float>>({{3, 4}, {0, 0}}));
  EXPECT_EQ(figures.max, 5);
  EXPECT_EQ(figures.zeros, 1U);
}

TEST(Statistics, DoNotOverflowOrUnderflow) {
  const Statistics equal = statistics(leaf_of<double>({1e308, 1e308, 1e308}));
  EXPECT_EQ(equal.mean, 1e308);
  EXPECT_EQ(equal.std, 0);
  const Statistics tiny = statistics(leaf_of<double>({1e-200, 3e-200}));
  EXPECT_DOUBLE_EQ(tiny.mean, 2e-200);
  EXPECT_DOUBLE_EQ(tiny.std, 1e-200);
  std::vector<double> values(100'000, 1.7e308);  // enough for several partial sums
  std::fill(values.begin(), values.begin() + 50'000, -1.7e308);
  const Statistics opposite = statistics(leaf_of(values));
  EXPECT_NEAR(opposite.mean, 0, 1e298);
  EXPECT_DOUBLE_EQ(opposite.std, 1.7e308);
}

TEST(Statistics, AreTheSameForOneAndTwoThreads) {
  std::vector<double> values(3'000'001);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1e6 + std::sin(static_cast<double>(i));
    sum += values[i];
  }
  const Statistics one = statistics(leaf_of(values), 1);
  const Statistics two = statistics(leaf_of(values), 2);
  EXPECT_EQ(one.mean, two.mean);
  EXPECT_EQ(one.std, two.std);
  EXPECT_NEAR(one.mean, sum / static_cast<double>(values.size()), 1e-6);
  EXPECT_NEAR(one.std, std::sqrt(0.5), 1e-6);
}

TEST(Statistics, ReportCompletion) {
  class Last final : public Monitor {
   public:
    void report(std::uint64_t done, std::uint64_t total, std::string_view) override {
      ++reports;
      done_bytes = done;
      total_bytes = total;
    }
    bool stop() override { return false; }
    std::uint64_t done_bytes = 0;
    std::uint64_t total_bytes = 0;
    int reports = 0;
  } last;
  statistics(leaf_of<float>({}), 1, &last);
  EXPECT_EQ(last.reports, 1);  // one at the end, although an empty leaf has no task
  statistics(leaf_of<float>({1, 2, 3}), 1, &last);
  EXPECT_EQ(last.done_bytes, 12U);
  EXPECT_EQ(last.total_bytes, 12U);
}

TEST(Statistics, CountTheElementsOfExpandedTensors) {
  const Tensor tensor = Tensor::from(std::vector<float>{0, 3, kNan});
  constexpr std::int64_t kRows = std::int64_t{1} << 58;
  const Statistics figures =
      statistics(Tensor(DType::float32, {kRows, 3}, {0, 1}, tensor.buffer(), 0));
  EXPECT_EQ(figures.count, 2U * kRows);
  EXPECT_EQ(figures.zeros, std::uint64_t{kRows});
  EXPECT_EQ(figures.nan, std::uint64_t{kRows});
  EXPECT_EQ(figures.mean, 1.5);
  EXPECT_EQ(figures.std, 1.5);
  EXPECT_EQ(figures.max, 3);
}

TEST(ElementTexts, AreTheShortestThatParseToTheSameValue) {
  EXPECT_THAT(element_texts(leaf_of<float>({0.1F, -2, kNan, -kInf, 1e20F}), 0, 5),
              ElementsAre("0.1", "-2", "nan", "-inf", "1e+20"));
  EXPECT_THAT(element_texts(leaf_of<double>({0.1, 1.0 / 3}), 0, 2),
              ElementsAre("0.1", "0.3333333333333333"));
  EXPECT_THAT(element_texts(leaf_of<std::int64_t>({-9223372036854775807LL - 1, 7}), 0, 2),
              ElementsAre("-9223372036854775808", "7"));
  EXPECT_THAT(element_texts(leaf_of<std::uint64_t>({18446744073709551615ULL}), 0, 1),
              ElementsAre("18446744073709551615"));
  EXPECT_THAT(element_texts(leaf_of<std::complex<float>>({{1, -2}, {0, 0.5F}}), 0, 2),
              ElementsAre("1-2j", "0+0.5j"));
  EXPECT_THAT(element_texts(cast_leaf({0, 1}, DType::bool_), 0, 2), ElementsAre("false", "true"));
  EXPECT_THAT(element_texts(cast_leaf({0.5, 448}, DType::float8_e4m3fn), 0, 2),
              ElementsAre("0.5", "448"));
}

TEST(ElementTexts, RefuseARangeOutsideTheTensor) {
  EXPECT_EQ(test::thrown_by([] { element_texts(leaf_of<float>({1}), 0, 2); }).code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace tenfold

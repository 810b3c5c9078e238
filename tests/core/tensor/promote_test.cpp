#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include <tenfold/error.hpp>

#include "core/tensor/promote.hpp"

namespace tenfold {
namespace {

/// Expected values are results of torch.promote_types.
TEST(Promote, MatchesTorch) {
  constexpr std::array kCases = {
      std::tuple(DType::int64, DType::float16, DType::float16),
      std::tuple(DType::int64, DType::float64, DType::float64),
      std::tuple(DType::bool_, DType::uint8, DType::uint8),
      std::tuple(DType::uint8, DType::int8, DType::int16),
      std::tuple(DType::uint8, DType::int32, DType::int32),
      std::tuple(DType::int16, DType::int64, DType::int64),
      std::tuple(DType::float16, DType::bfloat16, DType::float32),
      std::tuple(DType::float16, DType::float32, DType::float32),
      std::tuple(DType::uint64, DType::float32, DType::float32),
      std::tuple(DType::complex64, DType::int64, DType::complex64),
      std::tuple(DType::complex64, DType::float64, DType::complex128),
      std::tuple(DType::bfloat16, DType::complex32, DType::complex64),
      std::tuple(DType::int64, DType::complex32, DType::complex32),
      std::tuple(DType::float8_e5m2, DType::float8_e5m2, DType::float8_e5m2),
  };
  for (const auto& [left, right, expected] : kCases) {
    EXPECT_EQ(promoted(left, right), expected) << to_string(left) << " " << to_string(right);
    EXPECT_EQ(promoted(right, left), expected) << to_string(right) << " " << to_string(left);
  }
}

TEST(Promote, RefusesPairsThatTorchRefuses) {
  for (const auto& [left, right] :
       {std::pair(DType::uint16, DType::int32), std::pair(DType::uint16, DType::bool_),
        std::pair(DType::uint8, DType::uint64), std::pair(DType::float8_e5m2, DType::float32)}) {
    EXPECT_THROW(promoted(left, right), Error) << to_string(left) << " " << to_string(right);
    EXPECT_THROW(promoted(right, left), Error) << to_string(right) << " " << to_string(left);
  }
}

}  // namespace
}  // namespace tenfold

#include "ingest/promotion.hpp"

namespace tenfold {

using namespace scalar_kind;

ScalarKinds kinds_of(std::uint64_t value) noexcept {
  if (value >> 63 == 0) {
    return static_cast<ScalarKinds>(kinds_of(static_cast<std::int64_t>(value)) | kBig);
  }
  const auto rounded = static_cast<double>(value);
  const bool exact = rounded < 0x1p64 && static_cast<std::uint64_t>(rounded) == value;
  return static_cast<ScalarKinds>(kInteger | kBig | (exact ? 0 : kInexact));
}

ScalarKinds kinds_of(const NumberText& number) noexcept {
  if (!number.is_integer) return kFloat;
  ScalarKinds kinds = kInteger;
  std::uint64_t value = 0;
  const IntegerSize size = to_integer(number, value);
  if (size == IntegerSize::uint64) kinds |= kBig;
  if (size == IntegerSize::huge) kinds |= kHuge;
  if (number.negative && value != 0) kinds |= kNegative;
  if (!is_exact_in_double(number)) kinds |= kInexact;
  return kinds;
}

std::optional<ScalarType> type_of(ScalarKinds kinds) noexcept {
  constexpr ScalarType kText = {ColumnKind::string, DType::uint8};
  if ((kinds & kString) != 0) return kText;
  if ((kinds & kFloat) != 0) {
    return (kinds & (kInexact | kHuge)) != 0 ? kText
                                             : ScalarType{ColumnKind::number, DType::float64};
  }
  if ((kinds & kHuge) != 0) return kText;
  if ((kinds & kBig) != 0) {
    return (kinds & kNegative) != 0 ? kText : ScalarType{ColumnKind::number, DType::uint64};
  }
  if ((kinds & kInteger) != 0) return ScalarType{ColumnKind::number, DType::int64};
  if ((kinds & kBool) != 0) return ScalarType{ColumnKind::number, DType::bool_};
  return std::nullopt;
}

std::optional<ScalarType> growing_type_of(ScalarKinds kinds) noexcept {
  constexpr ScalarKinds kBothEnds = kNegative | kBig;
  return type_of((kinds & kBothEnds) == kBothEnds ? static_cast<ScalarKinds>(kinds | kFloat)
                                                  : kinds);
}

}  // namespace tenfold

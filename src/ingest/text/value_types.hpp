#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tenfold/ingest.hpp>

#include "ingest/promotion.hpp"
#include "ingest/row_type.hpp"
#include "ingest/text/record_blocks.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// The types of all values under one name; for the root, the types of the records themselves. They
/// suffice to choose the type of the column. The size of this object depends on the number of
/// names, not on the number of records.
struct ValueTypes {
  enum class Kind : std::uint8_t { none, scalar, list, object };

  Kind kind = Kind::none;         ///< kind of the first value that is not null; rows with another
                                  ///< kind are bad
  std::uint64_t num_present = 0;  ///< number of occurrences of the name
  bool has_null = false;
  ScalarKinds scalars = 0;
  ScalarKinds first_scalar = 0;
  ListTypes lists;
  std::optional<ListTypes> first_list;
  std::uint64_t num_objects = 0;
  struct Member;
  std::vector<Member> members;  ///< members of objects, in order of appearance
  TextMap<std::size_t> by_name;

  ValueTypes& member(std::string_view name);
  void add_null();
  void add_scalar(ScalarKinds kinds);
  /// Merges the types of `later` records.
  void merge(const ValueTypes& later);
};

struct ValueTypes::Member {
  std::string name;
  ValueTypes types;
};

/// Infers the types of the records of `block`. Ignores records that are not valid JSON objects, and
/// malformed records of CSV.
ValueTypes types_in(const Block& block);

/// Returns the plan for all rows. Sets `promotions` to the columns whose type is wider than that of
/// their first value, and to all columns of lists that are stored as JSON.
RowPlan plan_of(const ValueTypes& rows, std::vector<Promotion>& promotions);

}  // namespace tenfold

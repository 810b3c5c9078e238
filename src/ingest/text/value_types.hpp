#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tenfold/ingest.hpp>

#include "ingest/promotion.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// The lists seen at one location.
struct ListTypes {
  struct Lengths {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = -1;
  };
  std::vector<Lengths> levels;  ///< lengths of lists, of lists in lists, ...
  ScalarKinds items = 0;
  std::size_t depth_of_items = 0;  ///< nesting depth of items, from 1; 0: no item was seen
  bool is_uneven = false;          ///< there are objects, or scalars at different depths

  void add_length(std::size_t level, std::int64_t length);
  void add_item(std::size_t depth, ScalarKinds kinds);
  void merge(const ListTypes& later);
};

/// The types of the values under one name; for the root, of the rows. They suffice to choose the
/// type of the column. The size depends on the number of names, not on the number of rows.
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

/// Returns the plan for all rows. Sets `promotions` to the columns whose type was widened.
RowPlan plan_of(const ValueTypes& rows, std::vector<Promotion>& promotions);

}  // namespace tenfold

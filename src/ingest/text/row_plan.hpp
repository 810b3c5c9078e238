#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tenfold/schema.hpp>

namespace tenfold {

/// How the text of a value becomes what a column stores.
enum class Form : std::uint8_t {
  scalar,     ///< a number or a bool
  list,       ///< numbers or bools, nested as deep as the shape and `ragged` say
  text,       ///< a string, or what else there is as it is written
  text_list,  ///< a list of such
  json,       ///< a list or an object, as it is written
};

/// A column that is to be filled.
struct Target {
  Column column;
  Form form = Form::scalar;
  /// False: nothing but nulls and empty lists were seen so far, so that its type is a guess.
  bool is_typed = true;
  /// A text column that takes lists and objects as they are written, too.
  bool takes_json = false;
};

/// For maps that are asked for a part of a text.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// A name in records, with what lies under it: a column, or a record in the record.
struct Field {
  static constexpr std::size_t kRecord = ~std::size_t{0};

  std::string name;
  std::string quoted;                 ///< as JSON usually writes it: "name" in quotes
  std::uint64_t head = 0;             ///< its first eight bytes, in memory's order
  std::uint64_t head_mask = 0;        ///< of these, those that there are
  std::size_t target = kRecord;       ///< of RowPlan::targets
  std::size_t number = 0;             ///< among all fields of the plan
  std::vector<Field> fields;          ///< of a record
  TextMap<std::size_t> by_name;       ///< the number in `fields`
  std::vector<std::size_t> required;  ///< targets below, or itself, that need a value in every row
  std::vector<std::size_t> required_fields;  ///< numbers in `fields` of those that have such
};

/// What rows of text become.
struct RowPlan {
  std::vector<Target> targets;
  Field root;
  std::size_t num_fields = 0;
  /// Names that the plan does not have are passed over; otherwise they call for another plan.
  bool ignores_others = false;
  /// Another plan would not help: what does not fit is the row's fault.
  bool is_final = false;
  /// The user's own: integers are rounded to what the column holds.
  bool is_given = false;

  Schema schema() const;
};

/// The plan for a schema that somebody wrote.
RowPlan plan_of(const Schema& schema);

/// Sets `root` and what else follows from the targets.
void index_fields(RowPlan& plan);

}  // namespace tenfold

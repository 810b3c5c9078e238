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

/// The fault of a row without a column that a given schema requires. The name may be misspelled.
inline constexpr const char* kLacksColumn =
    "expected a value, found none; correct the name, or make the column nullable in the schema";

/// How the text of a value is converted to elements of a column.
enum class Form : std::uint8_t {
  scalar,     ///< a number or a bool
  list,       ///< numbers or bools, nested according to the shape and `ragged`
  text,       ///< a string, or the source text of another scalar (any value if takes_json)
  text_list,  ///< a list of strings, or of the source text of other scalars except null
  json,       ///< the source text of a list or object
};

/// A column to fill.
struct Target {
  Column column;
  Form form = Form::scalar;
  /// False if the types come from the first rows only, and these rows have only nulls, empty lists
  /// and lists of nulls in the column. Then the type is a guess.
  bool is_typed = true;
  /// True for a column of numbers that also accepts bools: the user gave the schema, or a bool
  /// determined the type.
  bool takes_bools = false;
  /// True for a string column that also accepts lists and objects, as their source text.
  bool takes_json = false;
};

/// Hash for maps that are looked up by string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// A name in records: a column, or a nested record.
struct Field {
  static constexpr std::size_t kRecord = ~std::size_t{0};

  std::string name;
  std::string quoted;                 ///< the key as JSON usually writes it, in quotes
  std::uint64_t head = 0;             ///< the first eight bytes of `quoted`, in memory order
  std::uint64_t head_mask = 0;        ///< mask of the bytes of `head` that `quoted` has
  std::size_t target = kRecord;       ///< index in RowPlan::targets
  std::size_t number = 0;             ///< index among all fields of the plan
  std::vector<Field> fields;          ///< the fields of a record
  TextMap<std::size_t> by_name;       ///< index in `fields`
  std::vector<std::size_t> required;  ///< targets of this field, or below it, that require a value
                                      ///< in every row
  std::vector<std::size_t> required_fields;  ///< indices in `fields` of those that contain such
                                             ///< targets
  std::string full_name;                     ///< dotted, for messages; empty for the root
};

/// The conversion of rows of text to columns.
struct RowPlan {
  std::vector<Target> targets;
  /// Nested records that have no column, because all their objects are empty. As for other nested
  /// records, a value that is neither an object nor null is an error of the row.
  std::vector<KeyPath> empty_records;
  Field root;
  std::size_t num_fields = 0;
  /// If true, names that are not in the plan are skipped. If false, and if is_final is false too,
  /// such a name requires another plan.
  bool ignores_new_columns = false;
  /// True if no other plan will be tried: a value that does not fit is an error of the row.
  bool is_final = false;
  /// True if the user gave the schema. Then a null in a column that is not nullable is an error of
  /// the row, and numbers are converted as put_number() describes. For example, integers may be
  /// rounded to a float dtype.
  bool is_given = false;

  std::vector<Column> columns() const;
  Schema schema() const { return Schema(columns()); }
};

/// The plan for a schema given by the user.
RowPlan plan_of(const Schema& schema);

/// Sets `root` and `num_fields` from the targets and empty records.
void index_fields(RowPlan& plan);

}  // namespace tenfold

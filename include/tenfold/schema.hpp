#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// What the values of a column are to a program.
enum class ColumnKind : std::uint8_t {
  number,  ///< elements of a dtype
  string,  ///< UTF-8, stored as uint8
  bytes,   ///< stored as uint8
};

/// One column of a data set, and where in the tree its parts are stored.
///
///   fixed rows   `leaf` [N, *shape]
///   ragged       `end_leaf` int64 [N]; row i is rows [end[i - 1], end[i]) of the unbatched `leaf`
///                [M, *shape]; end[-1] is 0
///   text         the same over uint8 bytes
///   ragged text  `end_leaf` ends rows in items, the unbatched `item_end_leaf` items in bytes
///   nullable     and `valid_leaf` bool [N]
struct TENFOLD_API Column {
  KeyPath path;  ///< {"x"}; of a nested record {"a", "b"}
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::float32;  ///< of the stored elements: uint8 for text
  Shape shape;                   ///< of a row's value; of a ragged column: of each of its elements
  bool ragged = false;           ///< of text: a list of texts in every row
  bool nullable = false;
  std::string unit;  ///< "ns", "days", ...; empty for none

  KeyPath leaf;
  KeyPath end_leaf;
  KeyPath item_end_leaf;
  KeyPath valid_leaf;

  /// "a.b"
  std::string name() const { return dotted(path); }
  bool is_text() const noexcept { return kind != ColumnKind::number; }
  /// Rows are of unequal length, so their ends are stored.
  bool has_ends() const noexcept { return ragged || is_text(); }
  /// "float32", "string", "bytes": as the schema document and Python spell it.
  std::string_view dtype_name() const noexcept;

  bool operator==(const Column&) const = default;
};

/// The columns of a data set, in order. In a file it is a JSON document in the notes:
///
///   {"columns": {"x": {"dtype": "float32", "shape": [3]},
///                "name": {"dtype": "string", "nullable": true},
///                "tokens": {"dtype": "int32", "ragged": true},
///                "camera": {"columns": {"gain": {"dtype": "float64"}}}}}
///
/// A column whose parts are not stored under its own name says where they are: `"leaf"`,
/// `"end_leaf"`, `"item_end_leaf"`, `"valid_leaf"`.
class TENFOLD_API Schema {
 public:
  Schema() = default;
  /// Throws Error(invalid_argument) for a name that comes twice.
  explicit Schema(std::vector<Column> columns);

  /// The schema of a tree: what its notes say, or else a column of numbers for each tensor.
  /// Throws Error(invalid_argument) if the tree is no table (its batch_size is [], or its tensors
  /// differ in their first dimension), Error(corrupt) if the notes and the tensors contradict each
  /// other.
  static Schema of(const TensorDict& tree);

  const std::vector<Column>& columns() const noexcept { return columns_; }
  std::size_t size() const noexcept { return columns_.size(); }
  /// The column of that path, or null. A single key may be a dotted path.
  const Column* find(const KeyPath& path) const noexcept;
  const Column* find(std::string_view name) const noexcept {
    return find(KeyPath{std::string(name)});
  }

  std::string to_json() const;
  Value to_value() const;
  /// Throws Error(corrupt) for what is no schema; `where` names the source in the message.
  static Schema from_json(std::string_view text, std::string_view where);
  static Schema from_value(const Value& value, std::string_view where);

  bool operator==(const Schema&) const = default;

 private:
  std::vector<Column> columns_;
};

/// Names the parts of `column` after it, as a new data set does: "x", "x.end", "x.valid".
TENFOLD_API void name_leaves(Column& column);

}  // namespace tenfold

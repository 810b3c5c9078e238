#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// The kind of the values of a column.
enum class ColumnKind : std::uint8_t {
  number,  ///< elements of a dtype
  string,  ///< UTF-8, stored as uint8
  bytes,   ///< stored as uint8
};

/// One column of a data set, and the paths of its leaves in the tree.
///
///   fixed rows   `leaf` [N, *shape]
///   ragged       `end_leaf` int64 [N]; row i is elements [end[i - 1], end[i]) of the unbatched
///                `leaf` [M, *shape]; end[-1] is 0
///   string       the same over uint8 bytes
///   ragged string  `end_leaf`: end offsets of rows in items, the unbatched `item_end_leaf`: end
///                offsets of items in bytes
///   nullable     and `valid_leaf` bool [N]
struct TENFOLD_API Column {
  KeyPath path;  ///< {"x"}; of a nested record {"a", "b"}
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::float32;  ///< of the stored elements: uint8 for strings
  Shape shape;                   ///< of a row's value; of each element of a ragged column
  bool ragged = false;           ///< strings: a list of strings in every row
  bool nullable = false;
  std::string unit;  ///< "ns", "days", ...; empty for none

  KeyPath leaf;
  KeyPath end_leaf;
  KeyPath item_end_leaf;
  KeyPath valid_leaf;

  /// "a.b"
  std::string name() const { return dotted(path); }
  bool is_text() const noexcept { return kind != ColumnKind::number; }
  /// True if rows have end offsets because their lengths vary.
  bool has_ends() const noexcept { return ragged || is_text(); }
  /// "float32", "string", "bytes": the name in the schema document and in Python.
  std::string_view dtype_name() const noexcept;

  bool operator==(const Column&) const = default;
};

/// The columns of a data set, in order. Files store it as JSON in the notes document:
///
///   {"columns": {"x": {"dtype": "float32", "shape": [3]},
///                "name": {"dtype": "string", "nullable": true},
///                "tokens": {"dtype": "int32", "ragged": true},
///                "camera": {"columns": {"gain": {"dtype": "float64"}}}}}
///
/// A column whose leaves have other names lists them: `"leaf"`, `"end_leaf"`, `"item_end_leaf"`,
/// `"valid_leaf"`.
class TENFOLD_API Schema {
 public:
  Schema() = default;
  /// Throws Error(invalid_argument) for a duplicate name.
  explicit Schema(std::vector<Column> columns);

  /// The schema of a tree: that of its notes, otherwise a column of numbers for each tensor.
  /// Throws Error(invalid_argument) if the tree is not a table (its batch_size is [], or its
  /// tensors differ in their first dimension), Error(corrupt) if the notes and the tensors
  /// contradict each other.
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
  /// Throws Error(corrupt) for an invalid schema; `where` names the source in the message.
  static Schema from_json(std::string_view text, std::string_view where);
  static Schema from_value(const Value& value, std::string_view where);

  bool operator==(const Schema&) const = default;

 private:
  std::vector<Column> columns_;
};

/// Sets the leaf names of `column` to those of a new data set: "x", "x.end", "x.valid".
TENFOLD_API void name_leaves(Column& column);

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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
///     fixed rows   `leaf` [N, *shape]
///     ragged       `end_leaf` int64 [N]; row i is elements [end[i - 1], end[i]) of the unbatched
///                  `leaf` [M, *shape]; end[-1] is 0
///     string       as ragged; `leaf` is uint8 [M], the bytes of all strings
///     ragged string  `end_leaf`: end offsets of rows in items, the unbatched `item_end_leaf`: end
///                  offsets of items in bytes
///     nullable     in addition `valid_leaf` bool [N]
struct TENFOLD_API Column {
  KeyPath path{};                        ///< {"x"}; in a nested record {"a", "b"}
  ColumnKind kind = ColumnKind::number;  ///< the kind of its values
  DType dtype = DType::float32;  ///< dtype of the stored elements: uint8 for strings and bytes
  Shape shape{};                 ///< shape of a row's value; in a ragged column, of each element
  bool ragged = false;    ///< rows vary in length; with strings, each row is a list of strings
  bool nullable = false;  ///< rows may have no value
  std::string unit{};     ///< "ns", "days", ...; empty for none

  // Functions that write data sets choose these paths, and ignore the caller's.
  KeyPath leaf{};           ///< path of the elements
  KeyPath end_leaf{};       ///< path of the end offsets of rows
  KeyPath item_end_leaf{};  ///< path of the end offsets of items
  KeyPath valid_leaf{};     ///< path of the validity

  /// The path as a dotted name: "a.b".
  std::string name() const { return dotted(path); }
  /// True for strings and bytes.
  bool is_text() const noexcept { return kind != ColumnKind::number; }
  /// True if rows have end offsets because their lengths vary.
  bool has_ends() const noexcept { return ragged || is_text(); }
  /// The name of the type in the stored schema and in Python: "float32", "string", "bytes".
  std::string dtype_name() const;

  /// Compares all members.
  bool operator==(const Column&) const = default;
};

/// An ordered list of the columns of a data set. Files store the schema as JSON in the metadata
/// sidecar (`%notes.json` in a folder):
///
///     {"columns": {"x": {"dtype": "float32", "shape": [3]},
///                  "name": {"dtype": "string", "nullable": true},
///                  "tokens": {"dtype": "int32", "ragged": true},
///                  "camera": {"columns": {"gain": {"dtype": "float64"}}}}}
///
/// By default, the leaves of a column are entries of the root. If Column::name() is "x"
/// ("camera.gain" for a column in a record), their keys are "x" (elements), "x.end" (end offsets of
/// rows), "x.item_end" (end offsets of items) and "x.valid" (validity). If a leaf has another path,
/// the column has the member `"leaf"`, `"end_leaf"`, `"item_end_leaf"` or `"valid_leaf"`. Its value
/// is the key of the leaf as a string, or the keys from the root to the leaf as a list of strings.
class TENFOLD_API Schema {
 public:
  /// Creates a schema without columns.
  Schema() = default;
  /// Creates a schema of these columns, and sets the dtype of string and bytes columns to uint8.
  /// Throws Error(invalid_argument) for an empty path, for a shape with a negative length, for
  /// strings or bytes with a shape, and for a column in more than 64 nested records. Also throws it
  /// for two columns with the same path, and for a column whose path is also the path of a record.
  /// {"a.b"} and {"a", "b"} are different paths, although their name() is the same.
  explicit Schema(std::vector<Column> columns);

  /// Returns the schema of a tree: NodeInfo::schema of the root; if this is not set, a column of
  /// numbers for each tensor except unbatched leaves. Throws Error(corrupt) if NodeInfo::schema and
  /// the tensors contradict each other. Throws Error(invalid_argument) if the tree is not a table,
  /// because
  ///
  /// - it is neither a TensorDict, a tensorclass nor a dict,
  /// - its batch_size is [],
  /// - it is a dict without tensors, or whose tensors have no common first dimension, or
  /// - a tensor is nested, jagged or sparse.
  static Schema of(const TensorDict& tree);

  /// All columns.
  const std::vector<Column>& columns() const& noexcept TENFOLD_LIFETIMEBOUND { return columns_; }
  /// Overload for temporaries, as in `for (auto& c : infer_schema({"a.csv"}).columns())`: returns
  /// the columns by value.
  std::vector<Column> columns() && { return std::move(columns_); }
  /// The number of columns.
  std::size_t size() const noexcept { return columns_.size(); }
  /// The column at `path`, or null. A path of a single key may also be a dotted name. If this key
  /// is the path of one column and the dotted name of another, returns the column with this path.
  const Column* find(const KeyPath& path) const TENFOLD_LIFETIMEBOUND;
  /// The column of that dotted name, or null.
  const Column* find(std::string_view name) const TENFOLD_LIFETIMEBOUND {
    return find(KeyPath{std::string(name)});
  }

  /// The JSON text that files store.
  std::string to_json() const;
  /// The result of to_json() as a Value.
  Value to_value() const;
  /// Parses the JSON of to_json(). Throws Error(corrupt) for an invalid schema; `where` names the
  /// source in the message.
  static Schema from_json(std::string_view text, std::string_view where);
  /// Converts the result of to_value(). Throws what from_json() throws.
  static Schema from_value(const Value& value, std::string_view where);

  /// Compares the columns.
  bool operator==(const Schema&) const = default;

 private:
  std::vector<Column> columns_;
};

}  // namespace tenfold

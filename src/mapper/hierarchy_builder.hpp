#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "mapper/hierarchy.hpp"

namespace tenfold {

/// Numbers of a JSON value in row-major order.
struct JsonNumbers {
  DType dtype = DType::bool_;  ///< bool_, int64 or float64
  bool has_large = false;      ///< there are integers that only uint64 can represent
  bool has_negative = false;   ///< there are negative integers
  Shape shape;
  std::vector<std::int64_t> integers;  ///< one for each number: 0 for a float, the bits of a uint64
  std::vector<double> floats;          ///< one for each number
};

/// Converts a number, a bool, or nested lists or tuples of numbers or of bools that have equal
/// lengths on each level. Returns nullopt for other JSON, also for numbers mixed with bools, and
/// for an integer that neither int64 nor uint64 can represent.
std::optional<JsonNumbers> json_numbers(const Value& value);

/// The name of the class of hierarchies in files.
inline constexpr std::string_view kHierarchyClass = "tenfold.HierarchicalStateMapper";

/// Flattens nested levels. For each level, call begin_level(), add its entries, and call
/// end_level(). The constructor begins the root, which needs no end_level().
///
/// Throws an error, with the code and the Where given to the constructor, for a key (also
/// default_key) that is empty or contains "/", for a level with the default key, and for more than
/// kMaxDepth levels.
class HierarchyBuilder {
 public:
  /// `where`: the file or object that errors name; `code`: the code of these errors.
  HierarchyBuilder(std::string default_key, base::Where where, ErrorCode code);

  void begin_level(std::string_view key);
  void end_level();
  /// Adds a value. A value that json_numbers() converts becomes a row of a table, except if it has
  /// no numbers or has an integer beyond int64. Any other value is stored as a JSON string.
  void add(std::string_view key, const Value& value);
  void add(std::string_view key, Tensor tensor);
  /// Adds a value that is already formatted as JSON.
  void add_json(std::string_view key, std::string_view text);
  /// Adds another mapper, whose tree the caller stores.
  void add_mapper(std::string_view key);
  /// Adds a tensor of numbers from JSON. Throws if a number is out of the range of an integer
  /// `dtype`. The caller must check that the numbers fit `shape`.
  void add(std::string_view key, const JsonNumbers& numbers, DType dtype, const Shape& shape);

  /// The path of an entry of the current level.
  std::string path_of(std::string_view key) const { return prefix_ + std::string(key); }
  /// The current level, for messages: `root`, `level "a/b"`.
  std::string level_text() const;
  Error fail(ErrorCode code) const { return base::fail(code, where_); }
  /// An error about an entry of the current level.
  Error fail_at(std::string_view key) const;

  /// Returns the config and the tree of everything that was added, except the trees of mappers.
  /// Call it once, when all levels have ended.
  std::pair<Value, TensorDict> build();

 private:
  using GroupKey = std::tuple<ValueOrigin, DType, Shape>;
  /// Rows of one table: bytes of numbers, or tensors.
  struct Group {
    GroupKey key;
    std::int64_t count = 0;
    std::vector<std::byte> bytes;
    std::vector<Tensor> tensors;
  };

  void add_node(std::string_view key, const StatePlace& place, bool is_level);
  StatePlace add_row(ValueOrigin origin, DType dtype, const JsonNumbers& numbers,
                     std::string_view key);
  Group& group_of(ValueOrigin origin, DType dtype, const Shape& shape);
  void inherit();
  TensorDict tables();

  std::string default_key_;
  base::Where where_;
  ErrorCode code_;
  std::string prefix_;             ///< path of the current level with a "/" at its end; root: empty
  std::vector<std::size_t> open_;  ///< the nodes of the current level and of those above it
  std::vector<std::string> paths_;
  std::vector<std::int64_t> tables_;
  std::vector<std::int64_t> rows_;
  std::vector<std::uint8_t> levels_;
  std::vector<std::size_t> parents_;
  std::map<std::size_t, std::size_t> defaults_;  ///< level -> node of its own default
  std::map<GroupKey, std::size_t> group_numbers_;
  std::vector<Group> groups_;
  std::string texts_;
  std::vector<std::int64_t> text_ends_;
  std::vector<std::string> mapper_paths_;
};

}  // namespace tenfold

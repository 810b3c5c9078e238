#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "mapper/saved_mapper.hpp"
#include "mapper/state_paths.hpp"

namespace tenfold {

/// The type that the values of a table had in the program that made the hierarchy.
enum class ValueOrigin : std::uint8_t { number, list, tensor };
std::string_view to_string(ValueOrigin origin) noexcept;

/// A state (see StateMapper) as a path in a hierarchy. `text` consists of its leading components
/// that can be keys, joined by "/". If further components follow (goes_on), only a mapper among the
/// values can interpret them.
struct StatePath {
  StatePath() = default;
  /// `path`: all components, joined by "/".
  explicit StatePath(std::string path);

  /// Counts a component and, unless goes_on is set, appends it to `text`. If the component is empty
  /// or contains "/", only counts it and returns false.
  bool add(std::string_view key);
  /// Counts a component that cannot be a key, and sets goes_on.
  void add_other();

  std::string text;
  bool goes_on = false;
  std::size_t num_parts = 0;  ///< number of all components, also those that are not in `text`
};

/// Values of a batch that are rows of one table, or that one mapper returns.
struct PlaceGroup {
  std::int64_t table = 0;              ///< as in StatePlace
  std::int64_t mapper = 0;             ///< number of the mapper if `table` is kMapperTable, else 0
  std::vector<std::size_t> positions;  ///< positions of the values in the batch
  std::vector<std::int64_t> rows;      ///< StatePlace::row of each value
};
/// Groups the values of a batch, sorted by table and mapper. So the order of the groups, in which
/// callers promote the dtypes, does not depend on the order of the values in the batch.
std::vector<PlaceGroup> groups_of(std::span<const StatePlace> places);

/// Values of one dtype and shape.
struct HierarchyTable {
  ValueOrigin origin = ValueOrigin::number;
  Tensor values;  ///< [n, *shape], contiguous
};

/// Flattened levels of values: each path leads to a row of a table, to JSON that is stored as a
/// string, or to a mapper. As a tree:
///
///     {"paths": see StatePaths, "tables": [tensor [n, *shape], ...],
///      "texts": uint8, "text_ends": int64: concatenated JSON strings and their end offsets,
///      "mappers": [the trees of mappers among the values]}
///
/// Entries of this tree without content may be missing, except "paths".
///
/// Thread safety: all members may be called from any thread.
class Hierarchy {
 public:
  /// Opens a tree of this form. `head` contains its config. Throws Error(corrupt) if the tree and
  /// the config contradict each other.
  Hierarchy(const MapperHead& head, const TensorDict& tensors);

  const std::string& default_key() const noexcept { return default_key_; }
  const std::vector<HierarchyTable>& tables() const noexcept { return tables_; }
  const std::vector<std::string>& mapper_paths() const noexcept { return mapper_paths_; }
  /// The number of nodes, not counting the root.
  std::int64_t size() const { return paths_.size() - 1; }
  /// The result for an empty batch of states: [0, *shape] with the dtype of the table if one table
  /// holds all values, otherwise float64 [0].
  Tensor no_rows() const;

  /// The place of each state's value. Throws Error(key_not_found) if a state has no value,
  /// Error(invalid_argument) for the root and for a missing path with an empty component, and
  /// Error(corrupt) if the stored place does not exist. `names`: for messages.
  std::vector<StatePlace> find(std::span<const std::string_view> paths,
                               const StateNames& names) const;
  std::vector<StatePlace> find(std::span<const StatePath> states, const StateNames& names) const;
  /// The number of leading components of `state` that are not passed to the mapper `number`. These
  /// are the components of the mapper's path or, if the mapper is the default of a level above
  /// `state`, the components of the level. Throws Error(key_not_found) if no component is left for
  /// the mapper. `position`: index of the state in the call.
  std::size_t num_above(const StatePath& state, std::int64_t number, std::size_t position,
                        const StateNames& names) const;

  /// The value at a place that find() returned, as JSON: a number, a bool, nested lists or other
  /// JSON. The place must not be that of a mapper. Throws Error(unsupported) for a tensor of more
  /// than 512 dimensions, and Error(corrupt) if the stored JSON is damaged.
  Value value(const StatePlace& place) const;
  /// Calls `use` for all nodes except the root, and for a level before the entries of the level.
  /// Throws Error(corrupt) if the level above a node, or the value of a node that is not a level,
  /// is missing.
  void for_each(const std::function<void(const StatePaths::Node&)>& use) const;

 private:
  void read_tables(const TensorDict& tensors);
  void read_texts(const TensorDict& tensors);
  void read_mappers(const TensorDict& tensors);
  void check(const StatePlace& place) const;
  void require_value(const StatePlace& place, std::string_view path, std::size_t position,
                     const StateNames& names) const;
  Value text(std::int64_t row) const;

  MapperHead head_;
  std::string default_key_;
  StatePaths paths_;
  std::vector<HierarchyTable> tables_;
  Tensor text_bytes_ = Tensor::zeros(DType::uint8, {0});
  Tensor text_ends_ = Tensor::zeros(DType::int64, {0});
  std::vector<std::string> mapper_paths_;
};

}  // namespace tenfold

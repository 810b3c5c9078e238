#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/mapped_dict.hpp>

namespace tenfold {

/// The location of a value in a hierarchy: a row of a table.
struct StatePlace {
  std::int64_t table = 0;  ///< number of the table, or one of the constants below
  std::int64_t row = 0;
};
inline constexpr std::int64_t kNoTable = -1;      ///< a level without a default
inline constexpr std::int64_t kTextTable = -2;    ///< other JSON than numbers: `row` is its index
                                                  ///< among the JSON strings
inline constexpr std::int64_t kMapperTable = -3;  ///< another mapper: `row` is its number

/// The error for a state that is not a path.
Error not_a_path(const std::string& state);

/// The nodes of a hierarchy, levels and values, by path ("level/value"; the root is ""): a
/// dictionary from path to table, row, and whether the node is a level. A level has the location of
/// its default, which it may inherit from a level above. So a missing path has the location of the
/// deepest level or mapper above it. To find that node takes at most one lookup more than the path
/// has components.
///
/// Thread safety: all members may be called from any thread.
class StatePaths {
 public:
  /// Throws Error(corrupt) if the node is not such a dictionary, or lacks the root.
  explicit StatePaths(const TensorDict& node);

  /// Builds the node. The first path must be the root, "". Throws Error(invalid_argument) for
  /// duplicate paths and for spans of different lengths.
  static TensorDict make(std::span<const std::string_view> paths,
                         std::span<const std::int64_t> tables, std::span<const std::int64_t> rows,
                         std::span<const std::uint8_t> is_level);

  std::int64_t size() const { return dict_.size(); }

  /// The location of each path's value; its table is kNoTable if the path has no value. Throws
  /// Error(invalid_argument) for the root, and for a missing path with an empty component.
  std::vector<StatePlace> find(std::span<const std::string_view> paths) const;
  /// The location for a state that consists of `path` and further components, which cannot be keys:
  /// the location of the deepest level or mapper on `path`.
  StatePlace find_below(std::string_view path) const;
  /// The deepest existing level on `path`; "" for the root.
  std::string nearest_level(std::string_view path) const;

  struct Node {
    std::string_view path;
    StatePlace place;
    bool is_level;

    /// The path of the level that contains this node; "" for the root.
    std::string_view parent() const {
      return path.substr(0, key_begin() == 0 ? 0 : key_begin() - 1);
    }
    std::string_view key() const { return path.substr(key_begin()); }
    /// The offset of the key in `path`.
    std::size_t key_begin() const { return path.rfind('/') + 1; }  // npos + 1 is 0
  };
  /// Calls `use` for all nodes but the root, in the order in which they were saved: levels before
  /// their entries, unless the file is damaged.
  void for_each(const std::function<void(const Node&)>& use) const;

 private:
  /// A path that is still searched, and the prefix to look up next.
  struct Search {
    std::size_t position;
    std::string_view part;
  };
  void climb(std::vector<Search> searches, std::span<StatePlace> places) const;
  StatePlace place_at(std::int64_t row) const;
  bool is_level(std::int64_t row) const { return levels_[static_cast<std::size_t>(row)] != 0; }

  MappedDict dict_;
  Tensor tables_tensor_;
  Tensor rows_tensor_;
  Tensor levels_tensor_;
  std::span<const std::int64_t> tables_;
  std::span<const std::int64_t> rows_;
  const std::uint8_t* levels_;
};

}  // namespace tenfold

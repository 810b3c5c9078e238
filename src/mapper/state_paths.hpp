#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/mapped_dict.hpp>

namespace tenfold {

/// Where a value of a hierarchy is: a row of a table.
struct StatePlace {
  std::int64_t table = 0;  ///< or one of the numbers below
  std::int64_t row = 0;
};
inline constexpr std::int64_t kNoTable = -1;      ///< a level without a default
inline constexpr std::int64_t kTextTable = -2;    ///< JSON that is no number: a row of the texts
inline constexpr std::int64_t kMapperTable = -3;  ///< another mapper: its number

/// The nodes of a hierarchy, levels and values, by their paths ("level/value"; the root is ""): a
/// dictionary of path to table, row and whether it is a level. The place of a level is that of the
/// default that holds in it, so that the deepest node of a path that is there tells all: at most as
/// many look-ups as the path has components and one.
///
/// Thread safety: all members may be called from any thread.
class StatePaths {
 public:
  /// Throws Error(corrupt) if the node is no such dictionary, or has no root.
  explicit StatePaths(TensorDict node);

  /// Such a node: the root first, with the path "". Throws Error(invalid_argument) for paths that
  /// come twice, and unless all have as many.
  static TensorDict make(std::span<const std::string_view> paths,
                         std::span<const std::int64_t> tables, std::span<const std::int64_t> rows,
                         std::span<const std::uint8_t> is_level);

  std::int64_t size() const { return dict_.size(); }

  /// The place of each path's value. Throws Error(invalid_argument) for a path that has an empty
  /// component and is not there.
  std::vector<StatePlace> find(std::span<const std::string_view> paths) const;
  /// The place of a path of which `path` is the part that keys can be.
  StatePlace find_below(std::string_view path) const;
  /// The deepest level that `path` goes through; "" for the root.
  std::string nearest_level(std::string_view path) const;

  struct Node {
    std::string_view path;
    StatePlace place;
    bool is_level;
  };
  /// Calls `use` for all nodes but the root, levels before what is in them.
  void for_each(const std::function<void(const Node&)>& use) const;

 private:
  /// A path of which nothing is known yet, and the part of it that is looked for next.
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

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/sparse_matrix.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

namespace detail {
struct SavedMapper;
}  // namespace detail

/// The kind of a saved mapper, by its class.
enum class MapperKind : std::uint8_t {
  sparse,        ///< Python's SparseStateMapper: rows of a sparse matrix by key
  hierarchical,  ///< Python's HierarchicalStateMapper: values by path
  module,        ///< Python's ModuleStateMapper: a factory's name and parameters
  other,         ///< a user-defined class
};

/// A state mapper: a map from states of an environment to rows of numbers, as in Python.
///
///     auto rooms = tenfold::StateMapper::hierarchical(tenfold::TensorDict::dict(
///         {{"default", 0.0}, {"hall", tenfold::TensorDict::dict({{"door", 1.0}})}}));
///     rooms.save("rooms.json");                            // or "rooms", a folder
///
///     auto mapper = tenfold::StateMapper::open("features");
///     Tensor row = mapper.at(Value::Tuple{{3, 4}});                        // [dim]
///     Tensor rows = mapper.rows({"room/door", "room/x"});  // [2, dim]
///
///     auto net = tenfold::StateMapper::open("policy");    // a module:
///     MyNet module(width_from(net.config()));             // net.factory() names its class
///     tenfold::load_into(*module, net.parameters());      // with LibTorch
///
/// A state is an int, a float other than NaN, a string, null, or a tuple of these; a bool counts as
/// an int. For a hierarchy, a state is a path: a string with "/", an int or a tuple. Rows are read
/// on demand; a hierarchy in a JSON file is parsed completely.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API StateMapper {
 public:
  /// Opens a path. Throws what tenfold::open() throws, Error(unsupported) if the tree is not a
  /// state mapper, Error(corrupt) if its entries contradict each other.
  static StateMapper open(const Path& path);
  /// A mapper inside a tree.
  explicit StateMapper(const TensorDict& tree);
  /// Nested levels: nodes and JSON objects, of tensors, numbers, lists of numbers and other JSON.
  /// If a path has no value, its value is the entry `default_key` of the deepest level on the path
  /// that has such an entry. Throws Error(invalid_argument) for a key that is empty or contains
  /// "/", and for a default that is a level; Error(unsupported) for nodes of other kinds.
  static StateMapper hierarchical(const TensorDict& levels,
                                  std::string_view default_key = "default");
  /// The rows of a sparse matrix, in the order of `states`. Unknown states have the row `fallback`
  /// if it is given, [num_cols] of the matrix's dtype. Throws Error(invalid_argument) for a
  /// duplicate state, for more states than rows, and for a fallback of another dtype or shape.
  static StateMapper sparse(std::span<const Value> states, const SparseMatrix& matrix,
                            const std::optional<Tensor>& fallback = std::nullopt);

  /// The tree that save() writes.
  TensorDict tree() const;
  /// Saves the mapper as tenfold::save() saves a tree. If `path` ends in ".json", saves a hierarchy
  /// as one JSON file that people can read and edit. Returns the path. Throws what tenfold::save()
  /// throws, Error(unsupported) for a value that such a file cannot hold.
  Path save(const Path& path, const SaveOptions& options = {}) const;

  /// The kind of the mapper.
  MapperKind kind() const noexcept;
  /// "tenfold.SparseStateMapper", or the name that the class was registered under.
  const std::string& class_name() const noexcept;
  /// The constructor arguments of the mapper: an object. For a module, the arguments of its
  /// factory.
  const Value& config() const noexcept;

  /// The row of one state: [dim]. Throws Error(key_not_found) naming an unknown state,
  /// Error(unsupported) if the value in a hierarchy is other JSON, or if only a program can compute
  /// rows: a module, a user-defined class. Throws Error(invalid_argument) for an invalid state.
  Tensor at(const Value& state) const;
  /// The rows of several states, copied: [n, dim]. Throws as at(), and Error(invalid_argument) if
  /// values of a hierarchy differ in shape.
  Tensor rows(std::span<const Value> states) const;
  /// rows({"room/door", "room/x"}).
  Tensor rows(std::initializer_list<Value> states) const {
    return rows(std::span<const Value>(states.begin(), states.size()));
  }
  /// Hierarchies: any value as JSON, such as a string; tensors become numbers and lists. Throws
  /// Error(key_not_found) naming an unknown state, Error(unsupported) for other kinds.
  Value value(const Value& state) const;

  /// Hierarchies: the paths of values that are mappers.
  std::vector<std::string> mapper_paths() const;
  /// The mapper at one of mapper_paths(). Throws Error(key_not_found).
  StateMapper mapper(std::string_view path) const;

  /// Modules: the name of the factory. Throws Error(unsupported) for other kinds.
  const std::string& factory() const;
  /// The tensors. For a module, its parameters and buffers by name.
  TensorDict parameters() const;

 private:
  explicit StateMapper(std::shared_ptr<const detail::SavedMapper> saved)
      : saved_(std::move(saved)) {}

  std::shared_ptr<const detail::SavedMapper> saved_;
};

}  // namespace tenfold

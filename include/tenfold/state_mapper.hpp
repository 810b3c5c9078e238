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

/// The counterpart of Python's state mappers: maps states of an environment to rows of numbers.
///
///     auto rooms = tenfold::StateMapper::hierarchical(tenfold::TensorDict::dict(
///         {{"default", 0.0}, {"hall", tenfold::TensorDict::dict({{"door", 1.0}})}}));
///     rooms.save("rooms.json");                            // or "rooms", a folder
///
///     auto mapper = tenfold::StateMapper::open("features");
///     tenfold::Tensor row = mapper.at(tenfold::Value::Tuple{{3, 4}});  // [dim]
///     tenfold::Tensor rows = mapper.rows({"room/door", "room/x"});     // [2, dim]
///
///     auto net = tenfold::StateMapper::open("policy");    // a module:
///     MyNet module(width_from(net.config()));             // net.factory() names its class
///     tenfold::load_into(*module, net.parameters());      // with LibTorch
///
/// A state is an int, a float other than NaN, a bool, a string, null, or a tuple of these; 1, 1.0
/// and true are one state. For a hierarchy, a state is a path: a string whose components are
/// separated by "/", an int, or a tuple of strings and ints. If it begins with the path of a mapper
/// in the hierarchy, the remaining components are a state of this mapper, of any of the types
/// above. Rows are read on demand; a hierarchy in a JSON file is parsed completely.
///
/// A moved-from StateMapper can only be assigned or destroyed.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API StateMapper {
 public:
  /// Opens a path. Throws what tenfold::open() throws, Error(unsupported) if the tree is not a
  /// state mapper or was written by a newer version, Error(corrupt) if its entries are invalid or
  /// contradict each other.
  static StateMapper open(const Path& path);
  /// Opens the mapper that was saved as `tree`: a root or other node with an entry "state_mapper".
  /// Throws Error(unsupported) and Error(corrupt) in the same cases as open().
  explicit StateMapper(const TensorDict& tree);
  /// Creates a hierarchy. Its levels are nodes and JSON objects; its values are tensors, numbers,
  /// lists of numbers and other JSON values. A path without a value of its own has the value of the
  /// entry `default_key` in the deepest level on the path that has such an entry. Throws
  /// Error(invalid_argument) if a key or `default_key` is empty or contains "/", if a default is a
  /// level, or if levels are nested deeper than 512; Error(unsupported) for nodes below the root
  /// of other kinds than dict, ordered_dict and tensordict, and for nested tensors.
  static StateMapper hierarchical(const TensorDict& levels,
                                  std::string_view default_key = "default");
  /// Creates a mapper that maps states[i] to row i of `matrix`. If `fallback` is given, it is the
  /// row of all other states: a tensor of shape [num_cols] and the dtype of `matrix`. Throws
  /// Error(invalid_argument) for an invalid or duplicate state, for more states than rows, and for
  /// a fallback of another dtype or shape.
  static StateMapper sparse(std::span<const Value> states, const SparseMatrix& matrix,
                            const std::optional<Tensor>& fallback = std::nullopt);

  /// The tree that save() writes, unless save() writes a JSON file.
  TensorDict tree() const;
  /// Saves the mapper as tenfold::save() saves a tree. If `path` ends in ".json" (but not in
  /// ".safetensors.index.json") and no format is given, saves a hierarchy as one JSON file that
  /// people can read and edit. Returns the path. Throws what tenfold::save() throws. For a JSON
  /// file, throws Error(unsupported) if a value is a mapper, or a tensor that is complex, float4 or
  /// larger than 65,536 elements.
  Path save(const Path& path, const SaveOptions& options = {}) const;

  /// The kind of the mapper.
  MapperKind kind() const noexcept;
  /// The name of the class: "tenfold.SparseStateMapper", "tenfold.HierarchicalStateMapper",
  /// "tenfold.ModuleStateMapper", or the name under which a user-defined class was registered.
  const std::string& class_name() const noexcept TENFOLD_LIFETIMEBOUND;
  /// The result of config() of the Python class, as a JSON object; in a user-defined class, usually
  /// the constructor arguments. For a module, the arguments of its factory.
  const Value& config() const& noexcept TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries: returns the value by value.
  Value config() && { return std::as_const(*this).config(); }

  /// Returns the row of one state: [dim], or in a hierarchy the value, of any shape. Throws
  /// Error(key_not_found) naming the state if it is unknown and the mapper has no fallback or
  /// default for it. Throws Error(invalid_argument) for an invalid state. Throws Error(unsupported)
  /// for mappers whose rows only a program can compute: modules and user-defined classes. In a
  /// hierarchy, also throws it for JSON values that are not numbers, bools, or nonempty rectangular
  /// lists of only numbers or only bools, and for integers beyond int64.
  Tensor at(const Value& state) const;
  /// Copies the rows of n states: [n, dim], or in a hierarchy [n, *shape of a value]. Values of a
  /// hierarchy are cast to their promoted dtype. Throws what at() throws, Error(invalid_argument)
  /// if values of a hierarchy differ in shape, and Error(unsupported) if their dtypes have no
  /// common dtype.
  Tensor rows(std::span<const Value> states) const;
  /// Overload for a list in braces: rows({"room/door", "room/x"}).
  Tensor rows(std::initializer_list<Value> states) const {
    return rows(std::span<const Value>(states.begin(), states.size()));
  }
  /// Returns a value of a hierarchy as JSON, for example a string; tensors become numbers and
  /// lists. Throws Error(key_not_found) and Error(invalid_argument) in the same cases as at().
  /// Throws Error(unsupported) for other kinds of mappers, for tensors of complex or float4
  /// numbers, and for tensors of more than 512 dimensions.
  Value value(const Value& state) const;

  /// The paths of the values of a hierarchy that are mappers; empty for other kinds.
  std::vector<std::string> mapper_paths() const;
  /// The mapper at one of mapper_paths(). Throws Error(key_not_found) for other paths.
  StateMapper mapper(std::string_view path) const;

  /// The name of a module's factory. Throws Error(unsupported) for other kinds.
  const std::string& factory() const TENFOLD_LIFETIMEBOUND;
  /// The tensors that the mapper was saved with. For a module, its parameters and buffers by name.
  TensorDict parameters() const;

 private:
  explicit StateMapper(std::shared_ptr<const detail::SavedMapper> saved)
      : saved_(std::move(saved)) {}

  std::shared_ptr<const detail::SavedMapper> saved_;
};

}  // namespace tenfold

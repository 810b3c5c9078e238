#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

struct SavedMapper;

/// What the class of a saved mapper means here.
enum class MapperKind : std::uint8_t {
  sparse,        ///< Python's SparseStateMapper: rows of a sparse matrix by key
  hierarchical,  ///< Python's HierarchicalStateMapper: values by path
  module,        ///< Python's ModuleStateMapper: a factory's name and parameters
  other,         ///< a class of somebody's program
};

/// A state mapper that Python saved: what turns the states of an environment into rows of numbers.
///
///   auto mapper = tenfold::StateMapper::open("features");
///   Tensor row = mapper.at(Value::Tuple{{3, 4}});                        // [dim]
///   Tensor rows = mapper.rows(std::vector<Value>{"room/door", "room/x"});  // [2, dim]
///
///   auto net = tenfold::StateMapper::open("policy");    // of a module:
///   MyNet module(width_from(net.config()));             // net.factory() names its class
///   tenfold::load_into(*module, net.parameters());      // with LibTorch
///
/// A state is an integer, a text or a tuple of them; of a hierarchy, a path: a text with "/" or a
/// tuple. Nothing is read but what is asked for; a hierarchy in a JSON file is parsed whole.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API StateMapper {
 public:
  /// Throws what tenfold::open() throws, Error(unsupported) if it is no state mapper,
  /// Error(corrupt) if its parts contradict each other.
  static StateMapper open(const Path& path);
  /// A mapper that is a part of a tree.
  explicit StateMapper(const TensorDict& tree);

  MapperKind kind() const noexcept;
  /// "tenfold.SparseStateMapper", or the name that the class was registered under.
  const std::string& class_name() const noexcept;
  /// What it was made with: an object. Of a module, the arguments of its factory.
  const Value& config() const noexcept;

  /// The row of one state: [dim]. Throws Error(key_not_found) naming a state that is not known,
  /// Error(unsupported) if rows are made by a program: a module, a class of somebody's own.
  Tensor at(const Value& state) const;
  /// The rows of several states, copied: [n, dim]. Throws as at(), and Error(invalid_argument) if
  /// values of a hierarchy differ in shape.
  Tensor rows(std::span<const Value> states) const;
  /// Of a hierarchy: a value that is no tensor, such as a text; of numbers, numbers and lists.
  Value value(const Value& state) const;

  /// Of a hierarchy: where its values are mappers themselves, and those.
  std::vector<std::string> mapper_paths() const;
  StateMapper mapper(std::string_view path) const;

  /// Of a module: the name of its factory. Throws Error(unsupported) of others.
  const std::string& factory() const;
  /// The tensors: of a module its parameters and buffers, by their names in the module.
  TensorDict parameters() const;

 private:
  explicit StateMapper(std::shared_ptr<const SavedMapper> saved) : saved_(std::move(saved)) {}

  std::shared_ptr<const SavedMapper> saved_;
};

}  // namespace tenfold

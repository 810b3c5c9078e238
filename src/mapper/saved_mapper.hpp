#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/state_mapper.hpp>

#include "base/fail.hpp"
#include "mapper/state_index.hpp"

namespace tenfold {

/// The header of a saved mapper.
struct MapperHead {
  std::string class_name;
  Value config;
  base::Where where;  ///< for messages

  /// A member of `config`, or null.
  const Value* find(std::string_view key) const;
  /// A string in `config`. Throws Error(corrupt) if it is missing or not a string.
  const std::string& text(std::string_view key) const;
  Error corrupt(std::string_view part) const { return base::corrupt(where).part(part); }
};

/// For messages: formats the name of a mapper and the states of a call.
struct StateNames {
  std::function<base::Where()> mapper;
  ShownKey state;  ///< by position in the call
};

namespace detail {

/// The object to which StateMapper, a handle, refers.
struct SavedMapper {
  SavedMapper(MapperHead saved_head, MapperKind what, TensorDict parts)
      : head(std::move(saved_head)), kind(what), tensors(std::move(parts)) {}
  virtual ~SavedMapper() = default;

  /// Implement StateMapper::rows() and value(). Throw Error(unsupported) unless overridden.
  virtual Tensor rows(std::span<const Value> states) const;
  virtual Value value(const Value& state) const;
  virtual void save(const Path& path, const SaveOptions& options) const;
  /// The tree that save() writes, unless it writes a hierarchy as one JSON file.
  TensorDict tree() const;
  StateNames names_of(std::span<const Value> states) const;

  MapperHead head;
  MapperKind kind;
  TensorDict tensors;
  std::string factory;                    ///< module mappers only
  Value arguments;                        ///< module mappers only
  std::vector<std::string> mapper_paths;  ///< hierarchies only: paths of the mappers
  std::vector<StateMapper> mappers;       ///< one for each of `mapper_paths`
};

}  // namespace detail

using detail::SavedMapper;

/// Opens a saved hierarchy. Throws Error(corrupt) if `tensors` and the config contradict each
/// other.
std::shared_ptr<const SavedMapper> saved_hierarchy(MapperHead head, TensorDict tensors);
/// Implements StateMapper::hierarchical().
std::shared_ptr<const SavedMapper> made_hierarchy(const TensorDict& levels,
                                                  std::string_view default_key);

/// The head of a saved mapper. Throws Error(unsupported) if `tree` is not a mapper or was written
/// by a newer version, Error(corrupt) for a damaged head. `where`: for messages.
MapperHead head_of(const TensorDict& tree, base::Where where);
/// The node "tensors" of `tree`; an empty node if `tree` has none.
TensorDict tensors_of(const MapperHead& head, const TensorDict& tree);

/// Formats a state for messages, as JSON of at most 80 bytes: "room/door", [3, 4] for a tuple.
std::string shown_state(const Value& state);

/// The node or tensor `key` of `tensors`. Throws Error(corrupt) naming the key if the entry is
/// missing or of another kind.
TensorDict node_of(const MapperHead& head, const TensorDict& tensors, std::string_view key);
Tensor tensor_of(const MapperHead& head, const TensorDict& tensors, std::string_view key);

/// Copies rows of `values` [n, *shape] to a new tensor [rows.size(), *shape]. Throws Error(corrupt)
/// if a row is not from 0 to n - 1.
Tensor take_rows(const MapperHead& head, const Tensor& values, std::span<const std::int64_t> rows);

}  // namespace tenfold

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/promote.hpp"
#include "mapper/hierarchy.hpp"
#include "mapper/hierarchy_builder.hpp"
#include "mapper/hierarchy_json.hpp"
#include "mapper/saved_mapper.hpp"

namespace tenfold {
namespace {

std::optional<std::string> component_of(const Value& part) {
  if (const auto* text = part.get_if<std::string>()) return *text;
  if (const auto* number = part.get_if<std::int64_t>()) return std::to_string(*number);
  if (const auto* big = part.get_if<Value::BigInt>()) return big->digits;
  return std::nullopt;
}

std::vector<Value> split(const std::string& text) {
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (std::size_t slash = 0; slash != std::string::npos; begin = slash + 1) {
    slash = text.find('/', begin);
    parts.emplace_back(text.substr(begin, slash - begin));
  }
  return parts;
}

StatePath path_of(const Value& state) {
  if (const auto* text = state.get_if<std::string>()) return StatePath(*text);
  const auto* tuple = state.get_if<Value::Tuple>();
  const auto parts = tuple == nullptr ? std::span(&state, 1) : std::span(tuple->items);
  StatePath path;
  bool is_path = !parts.empty();
  for (const Value& part : parts) {
    if (const auto component = component_of(part)) {
      is_path = path.add(*component) && is_path;
    } else {
      path.add_other();
      is_path = is_path && tuple != nullptr;
    }
  }
  if (is_path) return path;
  throw not_a_path("state " + shown_state(state));
}

/// The components after the first `num_above` ones, as a state for a mapper.
Value rest_of(const Value& state, std::size_t num_above) {
  const auto* text = state.get_if<std::string>();
  const auto* tuple = state.get_if<Value::Tuple>();
  std::vector<Value> rest = text != nullptr    ? split(*text)
                            : tuple != nullptr ? tuple->items
                                               : std::vector<Value>{state};
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(num_above));
  return rest.size() == 1 ? rest[0] : Value(Value::Tuple{std::move(rest)});
}

/// A saved HierarchicalStateMapper: values by path.
struct SavedHierarchy final : SavedMapper {
  SavedHierarchy(MapperHead saved_head, TensorDict parts)
      : SavedMapper(std::move(saved_head), MapperKind::hierarchical, std::move(parts)),
        hierarchy(head, tensors) {
    mapper_paths = hierarchy.mapper_paths();
    if (mapper_paths.empty()) return;
    const TensorDict node = node_of(head, tensors, "mappers");
    for (std::size_t i = 0; i < mapper_paths.size(); ++i) {
      mappers.emplace_back(node_of(head, node, std::to_string(i)));
    }
  }

  void save(const Path& path, const SaveOptions& options) const override {
    const bool is_json = path.extension() == ".json" && !is_shard_index(path);
    if (!options.format.empty() || !is_json) return SavedMapper::save(path, options);
    save_hierarchy_json(hierarchy, path, options.durable, options.overwrite);
  }

  /// The values of one group of a batch.
  Tensor rows_of(const PlaceGroup& group, std::span<const Value> states,
                 std::span<const StatePath> paths, const StateNames& names) const {
    if (group.table == kTextTable) {
      throw base::unsupported(head.where)
          .part("state ", names.state(group.positions[0]))
          .expected("a number or a tensor")
          .found("other JSON")
          .remedy("value() returns it");
    }
    if (group.table != kMapperTable) {
      return take_rows(head, hierarchy.tables()[static_cast<std::size_t>(group.table)].values,
                       group.rows);
    }
    std::vector<Value> rests;
    for (const std::size_t i : group.positions) {
      rests.push_back(rest_of(states[i], hierarchy.num_above(paths[i], group.mapper, i, names)));
    }
    return mappers[static_cast<std::size_t>(group.mapper)].rows(rests);
  }

  Tensor rows(std::span<const Value> states) const override {
    std::vector<StatePath> paths;
    paths.reserve(states.size());
    for (const Value& state : states) paths.push_back(path_of(state));
    const StateNames names = names_of(states);
    const std::vector<PlaceGroup> groups = groups_of(hierarchy.find(paths, names));
    if (groups.empty()) return hierarchy.no_rows();
    std::vector<Tensor> values;
    for (const PlaceGroup& group : groups) values.push_back(rows_of(group, states, paths, names));
    return values.size() == 1 ? values[0] : joined(values, groups, names, states.size());
  }

  Tensor joined(std::span<const Tensor> values, std::span<const PlaceGroup> groups,
                const StateNames& names, std::size_t num_states) const {
    DType dtype = values[0].dtype();
    const Shape row(values[0].shape().begin() + 1, values[0].shape().end());
    for (std::size_t i = 1; i < values.size(); ++i) {
      const Shape found(values[i].shape().begin() + 1, values[i].shape().end());
      if (found != row) {
        throw base::invalid_argument(head.where)
            .part("states ", names.state(groups[0].positions[0]), " and ",
                  names.state(groups[i].positions[0]))
            .problem("their values differ in shape")
            .expected(base::list_text(row))
            .found(base::list_text(found));
      }
      dtype = promoted(dtype, values[i].dtype());
    }
    Shape shape = row;
    shape.insert(shape.begin(), static_cast<std::int64_t>(num_states));
    Tensor made = Tensor::zeros(dtype, shape);
    const auto row_count = static_cast<std::size_t>(numel_of(row));
    const std::size_t row_bytes = row_count * itemsize(dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t from_bytes = row_count * values[i].itemsize();
      for (std::size_t k = 0; k < groups[i].positions.size() && row_count > 0; ++k) {
        cast_elements(values[i].dtype(), values[i].raw_data() + k * from_bytes, dtype,
                      made.mutable_raw_data() + groups[i].positions[k] * row_bytes, row_count);
      }
    }
    return made;
  }

  Value value(const Value& state) const override {
    const StatePath path = path_of(state);
    const StateNames names = names_of(std::span(&state, 1));
    const StatePlace place = hierarchy.find(std::span(&path, 1), names)[0];
    if (place.table != kMapperTable) return hierarchy.value(place);
    return mappers[static_cast<std::size_t>(place.row)].value(
        rest_of(state, hierarchy.num_above(path, place.row, 0, names)));
  }

  Hierarchy hierarchy;
};

/// Adds the levels of a tree to a builder.
class TreeLevels {
 public:
  explicit TreeLevels(HierarchyBuilder& builder) : builder_(builder) {}

  void add(const TensorDict& level) {
    level.for_each([&](const std::string& key, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) {
        if (leaf->is_nested()) throw refuse(key, "a nested tensor");
        builder_.add(key, leaf->tensor());
      } else if (const auto* json = std::get_if<NonTensor>(&item)) {
        add(key, json->value);
      } else {
        const TensorDict& node = std::get<TensorDict>(item);
        const NodeKind kind = node.kind();
        if (kind != NodeKind::dict && kind != NodeKind::ordered_dict &&
            kind != NodeKind::tensordict) {
          throw refuse(key, "a " + to_string(kind));
        }
        builder_.begin_level(key);
        add(node);
        builder_.end_level();
      }
    });
  }

 private:
  /// Adds a JSON value. An object becomes a level, whose members are added recursively.
  void add(const std::string& key, const Value& value) {
    const auto* object = value.get_if<Value::Object>();
    if (object == nullptr) return builder_.add(key, value);
    builder_.begin_level(key);
    for (const auto& [name, member] : object->members) add(name, member);
    builder_.end_level();
  }

  Error refuse(const std::string& key, const std::string& found) const {
    return builder_.fail(ErrorCode::unsupported)
        .part(base::quote(builder_.path_of(key)))
        .expected("a number, a tensor, JSON or a level")
        .found(found);
  }

  HierarchyBuilder& builder_;
};

}  // namespace

std::shared_ptr<const SavedMapper> saved_hierarchy(MapperHead head, TensorDict tensors) {
  return std::make_shared<SavedHierarchy>(std::move(head), std::move(tensors));
}

std::shared_ptr<const SavedMapper> made_hierarchy(const TensorDict& levels,
                                                  std::string_view default_key) {
  HierarchyBuilder builder(std::string(default_key), base::Where("", "hierarchy"),
                           ErrorCode::invalid_argument);
  TreeLevels(builder).add(levels);
  auto [config, tensors] = builder.build();
  MapperHead head;
  head.where = base::Where("", "hierarchy");
  head.class_name = kHierarchyClass;
  head.config = std::move(config);
  return saved_hierarchy(std::move(head), std::move(tensors));
}

}  // namespace tenfold

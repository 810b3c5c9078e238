#include <map>
#include <optional>
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

/// A state as a path and as components. If a mapper is among the values on the path, it gets the
/// remaining components.
struct PathParts {
  StatePath path;
  std::vector<Value> parts;
  std::size_t num_known = 0;
};

std::optional<std::string> component_of(const Value& part) {
  if (const auto* text = part.get_if<std::string>()) return *text;
  if (const auto* number = part.get_if<std::int64_t>()) return std::to_string(*number);
  if (const auto* big = part.get_if<Value::BigInt>()) return big->digits;
  return std::nullopt;
}

[[noreturn]] void refuse_path(const Value& state, const char* found) {
  throw base::invalid_argument()
      .part("state ", shown_state(state))
      .expected("a path of components that are not empty, without \"/\"")
      .found(found);
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

PathParts parts_of(const Value& state) {
  PathParts made;
  if (const auto* text = state.get_if<std::string>()) {
    made.parts = split(*text);
  } else if (const auto* tuple = state.get_if<Value::Tuple>()) {
    made.parts = tuple->items;
  } else if (component_of(state)) {
    made.parts = {state};
  } else {
    refuse_path(state, "something else");
  }
  if (made.parts.empty()) refuse_path(state, "an empty one");
  for (const Value& part : made.parts) {
    if (const auto* text = part.get_if<std::string>();
        text != nullptr && (text->empty() || text->find('/') != std::string::npos)) {
      refuse_path(state, "another component");
    }
  }
  for (const Value& part : made.parts) {
    const auto component = component_of(part);
    if (!component) break;
    if (made.num_known > 0) made.path.text += '/';
    made.path.text += *component;
    ++made.num_known;
  }
  made.path.goes_on = made.num_known < made.parts.size();
  return made;
}

/// Rows of one table, or states of one mapper, and their positions in the batch.
struct Group {
  std::vector<std::size_t> places;
  std::vector<std::int64_t> rows;
  std::vector<Value> states;  ///< the states to pass to a mapper
};

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
    if (!options.format.empty() || path.extension() != ".json") {
      return SavedMapper::save(path, options);
    }
    save_hierarchy_json(hierarchy, path, options.durable, options.overwrite);
  }

  [[noreturn]] void refuse_unknown(const Value& state, const PathParts& parts) const {
    const std::string level = hierarchy.nearest_level(parts.path.text);
    throw base::key_not_found(head.where)
        .problem("no state ", shown_state(state))
        .expected("an existing path or a level with a default above it")
        .found("neither")
        .remedy("the nearest level that exists is ",
                (level.empty() ? "the root" : base::quote(level)));
  }

  /// The part of a state below the mapper `number`, or below the level whose default is the mapper.
  Value rest_of(const Value& state, const PathParts& path, std::int64_t number) const {
    const std::vector<Value> above = split(mapper_paths[static_cast<std::size_t>(number)]);
    const auto is_above = [&] {
      if (path.num_known < above.size()) return false;
      for (std::size_t i = 0; i < above.size(); ++i) {
        if (component_of(path.parts[i]) != component_of(above[i])) return false;
      }
      return true;
    };
    const std::size_t begin = is_above() ? above.size() : above.size() - 1;
    if (begin >= path.parts.size()) {
      throw base::key_not_found(head.where)
          .part("state ", shown_state(state))
          .problem("it ends at a mapper, without a state for that mapper")
          .expected("a longer path");
    }
    std::vector<Value> rest(path.parts.begin() + static_cast<std::ptrdiff_t>(begin),
                            path.parts.end());
    return rest.size() == 1 ? rest[0] : Value(Value::Tuple{std::move(rest)});
  }

  std::map<std::pair<std::int64_t, std::int64_t>, Group> groups_of(
      std::span<const Value> states, std::span<const PathParts> parts) const {
    std::map<std::pair<std::int64_t, std::int64_t>, Group> groups;
    std::vector<StatePath> paths;
    for (const PathParts& one : parts) paths.push_back(one.path);
    const std::vector<StatePlace> places = hierarchy.find(paths);
    for (std::size_t i = 0; i < states.size(); ++i) {
      const StatePlace place = places[i];
      if (place.table == kNoTable) refuse_unknown(states[i], parts[i]);
      const bool is_mapper = place.table == kMapperTable;
      Group& group = groups[{place.table, is_mapper ? place.row : 0}];
      group.places.push_back(i);
      group.rows.push_back(place.row);
      if (is_mapper) group.states.push_back(rest_of(states[i], parts[i], place.row));
    }
    return groups;
  }

  Tensor rows(std::span<const Value> states) const override {
    std::vector<PathParts> parts;
    parts.reserve(states.size());
    for (const Value& state : states) parts.push_back(parts_of(state));
    std::vector<Tensor> values;
    std::vector<const Group*> owners;
    const auto groups = groups_of(states, parts);
    for (const auto& [place, group] : groups) {
      if (place.first == kTextTable) {
        throw base::unsupported(head.where)
            .part("state ", shown_state(states[group.places[0]]))
            .expected("a number or a tensor")
            .found("other JSON")
            .remedy("value() returns it");
      }
      values.push_back(
          place.first == kMapperTable
              ? mappers[static_cast<std::size_t>(place.second)].rows(group.states)
              : take_rows(head, hierarchy.tables()[static_cast<std::size_t>(place.first)].values,
                          group.rows));
      owners.push_back(&group);
    }
    if (values.size() == 1) return values[0];
    if (values.empty()) {
      const auto& tables = hierarchy.tables();
      const bool is_one = tables.size() == 1 && hierarchy.num_texts() == 0 && mappers.empty();
      return is_one ? tables[0].values.narrow(0, 0) : Tensor::zeros(DType::float64, {0});
    }
    return joined(states, values, owners);
  }

  Tensor joined(std::span<const Value> states, std::span<const Tensor> values,
                std::span<const Group* const> owners) const {
    DType dtype = values[0].dtype();
    const Shape row(values[0].shape().begin() + 1, values[0].shape().end());
    for (std::size_t i = 1; i < values.size(); ++i) {
      const Shape found(values[i].shape().begin() + 1, values[i].shape().end());
      if (found != row) {
        throw base::invalid_argument(head.where)
            .part("states ", shown_state(states[owners[0]->places[0]]), " and ",
                  shown_state(states[owners[i]->places[0]]))
            .problem("their values differ in shape")
            .expected(base::list_text(row))
            .found(base::list_text(found));
      }
      dtype = promoted(dtype, values[i].dtype());
    }
    Shape shape = row;
    shape.insert(shape.begin(), static_cast<std::int64_t>(states.size()));
    Tensor made = Tensor::zeros(dtype, shape);
    const auto row_count = static_cast<std::size_t>(numel_of(row));
    const std::size_t row_bytes = row_count * itemsize(dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t from_bytes = row_count * values[i].itemsize();
      for (std::size_t k = 0; k < owners[i]->places.size() && row_count > 0; ++k) {
        cast_elements(values[i].dtype(), values[i].raw_data() + k * from_bytes, dtype,
                      made.mutable_raw_data() + owners[i]->places[k] * row_bytes, row_count);
      }
    }
    return made;
  }

  Value value(const Value& state) const override {
    const PathParts parts = parts_of(state);
    const StatePlace place = hierarchy.find(std::span(&parts.path, 1))[0];
    if (place.table == kNoTable) refuse_unknown(state, parts);
    if (place.table != kMapperTable) return hierarchy.value(place);
    return mappers[static_cast<std::size_t>(place.row)].value(rest_of(state, parts, place.row));
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
  /// Adds a JSON value, which may be a whole subtree without tensors.
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

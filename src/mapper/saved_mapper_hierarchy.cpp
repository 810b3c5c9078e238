#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/promote.hpp"
#include "core/value/value_json.hpp"
#include "mapper/saved_mapper.hpp"
#include "mapper/state_paths.hpp"

namespace tenfold {
namespace {

/// A state as a path: the prefix that can be looked up, and the rest, which a nested mapper
/// interprets.
struct PathParts {
  std::string text;
  std::vector<Value> parts;
  std::size_t num_known = 0;
  bool goes_on() const noexcept { return num_known < parts.size(); }
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
      .expected("a path, a text with \"/\" or a tuple of components that are not empty")
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
    if (made.num_known > 0) made.text += '/';
    made.text += *component;
    ++made.num_known;
  }
  return made;
}

/// A list of JSON strings, stored contiguously.
class Texts {
 public:
  Texts() = default;
  Texts(const MapperHead& head, Tensor bytes, Tensor ends)
      : bytes_(bytes.contiguous()), ends_(ends.contiguous()) {
    if (bytes_.dtype() != DType::uint8 || bytes_.ndim() != 1 || ends_.dtype() != DType::int64 ||
        ends_.ndim() != 1) {
      throw head.corrupt("texts")
          .expected("uint8 bytes and int64 ends of one dimension")
          .found("others");
    }
  }

  Value at(const MapperHead& head, std::int64_t row) const {
    const std::int64_t count = ends_.numel();
    if (row < 0 || row >= count) {
      throw head.corrupt("texts").part("row").expected("one of ", count).found(row);
    }
    const auto* ends = ends_.data<std::int64_t>();
    const std::int64_t begin = row == 0 ? 0 : ends[row - 1];
    const std::int64_t end = ends[row];
    if (begin < 0 || end < begin || end > bytes_.numel()) {
      throw head.corrupt("texts")
          .part("ends")
          .expected("ends that rise to ", bytes_.numel())
          .found(begin, " before ", end);
    }
    const auto* text = reinterpret_cast<const char*>(bytes_.raw_data());
    return parse_value({text + begin, static_cast<std::size_t>(end - begin)}, head.where);
  }

 private:
  Tensor bytes_ = Tensor::zeros(DType::uint8, {0});
  Tensor ends_ = Tensor::zeros(DType::int64, {0});
};

/// Rows of one table, or states of one mapper, and their positions in the batch.
struct Group {
  std::vector<std::size_t> places;
  std::vector<std::int64_t> rows;
  std::vector<Value> states;  ///< the states to pass to a mapper
};

/// Values by path.
struct SavedHierarchy final : SavedMapper {
  SavedHierarchy(MapperHead saved_head, TensorDict parts)
      : SavedMapper(std::move(saved_head), MapperKind::hierarchical, std::move(parts)),
        paths(node_of(head, tensors, "paths")) {
    read_tables();
    if (tensors.contains("texts")) {
      texts = Texts(head, tensor_of(head, tensors, "texts"), tensor_of(head, tensors, "text_ends"));
    }
    read_mappers();
  }

  void read_tables() {
    if (!tensors.contains("tables")) return;
    const TensorDict node = node_of(head, tensors, "tables");
    for (const std::string& key : node.keys()) {
      Tensor table = tensor_of(head, node, key).contiguous();
      if (table.ndim() == 0) {
        throw head.corrupt("tables").part(key).expected("rows").found("a tensor of 0-d");
      }
      tables.push_back(std::move(table));
    }
  }

  void read_mappers() {
    const Value* saved_head = head.find("mappers");
    const auto* list = saved_head == nullptr ? nullptr : saved_head->get_if<Value::List>();
    if (list == nullptr) {
      throw head.corrupt("config").part("mappers").expected("a list of paths").found("none");
    }
    if (list->items.empty()) return;
    const TensorDict node = node_of(head, tensors, "mappers");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      const auto* path = list->items[i].get_if<std::string>();
      if (path == nullptr) {
        throw head.corrupt("config").part("mappers").expected("a list of paths").found("another");
      }
      mapper_paths.push_back(*path);
      mappers.emplace_back(node_of(head, node, std::to_string(i)));
    }
  }

  std::vector<StatePlace> find(std::span<const PathParts> all) const {
    std::vector<std::string_view> whole;
    std::vector<std::size_t> positions;
    std::vector<StatePlace> places(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].goes_on()) {
        places[i] = paths.find_below(all[i].text);
      } else {
        whole.push_back(all[i].text);
        positions.push_back(i);
      }
    }
    const std::vector<StatePlace> found = paths.find(whole);
    for (std::size_t i = 0; i < positions.size(); ++i) places[positions[i]] = found[i];
    return places;
  }

  [[noreturn]] void refuse_unknown(const Value& state, const PathParts& parts) const {
    const std::string level = paths.nearest_level(parts.text);
    throw base::key_not_found(head.where)
        .problem("no state ", shown_state(state))
        .expected("an existing path or a level with a default above it")
        .found("neither")
        .remedy("the nearest level that exists is ",
                (level.empty() ? "the root" : base::quote(level)));
  }

  /// The part of a path below a mapper, or below the level whose default is the mapper.
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
          .problem("it ends at a mapper and has no state for it")
          .expected("a longer path");
    }
    std::vector<Value> rest(path.parts.begin() + static_cast<std::ptrdiff_t>(begin),
                            path.parts.end());
    return rest.size() == 1 ? rest[0] : Value(Value::Tuple{std::move(rest)});
  }

  std::map<std::pair<std::int64_t, std::int64_t>, Group> groups_of(
      std::span<const Value> states, std::span<const PathParts> parts) const {
    std::map<std::pair<std::int64_t, std::int64_t>, Group> groups;
    const std::vector<StatePlace> places = find(parts);
    for (std::size_t i = 0; i < states.size(); ++i) {
      const StatePlace place = places[i];
      if (place.table == kNoTable) refuse_unknown(states[i], parts[i]);
      check(place);
      const bool is_mapper = place.table == kMapperTable;
      Group& group = groups[{place.table, is_mapper ? place.row : 0}];
      group.places.push_back(i);
      group.rows.push_back(place.row);
      if (is_mapper) group.states.push_back(rest_of(states[i], parts[i], place.row));
    }
    return groups;
  }

  void check(const StatePlace& place) const {
    const bool fits = place.table >= 0 ? place.table < static_cast<std::int64_t>(tables.size())
                      : place.table == kMapperTable
                          ? place.row >= 0 && place.row < static_cast<std::int64_t>(mappers.size())
                          : place.table == kTextTable;
    if (!fits) {
      throw head.corrupt("paths")
          .part("table")
          .expected("one of ", tables.size(), " or a mapper")
          .found(place.table);
    }
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
              : take_rows(head, tables[static_cast<std::size_t>(place.first)], group.rows));
      owners.push_back(&group);
    }
    if (values.size() == 1) return values[0];
    if (values.empty())
      return tables.size() == 1 ? tables[0].narrow(0, 0) : Tensor::zeros(DType::float64, {0});
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
            .problem("the values of a batch have one shape")
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
    const StatePlace place = find(std::span(&parts, 1))[0];
    if (place.table == kNoTable) refuse_unknown(state, parts);
    check(place);
    if (place.table == kTextTable) return texts.at(head, place.row);
    if (place.table == kMapperTable) {
      return mappers[static_cast<std::size_t>(place.row)].value(rest_of(state, parts, place.row));
    }
    return to_value(
        take_rows(head, tables[static_cast<std::size_t>(place.table)], std::span(&place.row, 1))
            .select(0));
  }

  /// Converts to JSON: a 0-d tensor is a number, others are nested lists.
  Value to_value(const Tensor& tensor) const {
    if (tensor.ndim() > 0) {
      Value::List list;
      for (std::int64_t i = 0; i < tensor.shape()[0]; ++i) {
        list.items.push_back(to_value(tensor.select(i)));
      }
      return list;
    }
    if (tensor.dtype() == DType::bool_) return *tensor.data<bool>();
    if (is_integer(tensor.dtype())) {
      std::int64_t number = 0;
      cast_elements(tensor.dtype(), tensor.raw_data(), DType::int64,
                    reinterpret_cast<std::byte*>(&number), 1);
      return number;
    }
    double number = 0;
    cast_elements(tensor.dtype(), tensor.raw_data(), DType::float64,
                  reinterpret_cast<std::byte*>(&number), 1);
    return number;
  }

  StatePaths paths;
  std::vector<Tensor> tables;
  Texts texts;
};

}  // namespace

std::shared_ptr<const SavedMapper> saved_hierarchy(MapperHead head, TensorDict tensors) {
  return std::make_shared<SavedHierarchy>(std::move(head), std::move(tensors));
}

}  // namespace tenfold

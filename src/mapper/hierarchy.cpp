#include "mapper/hierarchy.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

constexpr std::array<std::string_view, 3> kOrigins = {"number", "list", "tensor"};

ValueOrigin origin_of(const MapperHead& head, const Value& name) {
  const auto* text = name.get_if<std::string>();
  for (std::size_t i = 0; text != nullptr && i < kOrigins.size(); ++i) {
    if (*text == kOrigins[i]) return static_cast<ValueOrigin>(i);
  }
  throw head.corrupt("config")
      .part("tables")
      .expected("a list of \"number\", \"list\" and \"tensor\"")
      .found("another name");
}

/// The list `key` in the config of a hierarchy. Throws Error(corrupt) if it is missing or not a
/// list.
const std::vector<Value>& config_list(const MapperHead& head, std::string_view key) {
  const Value* value = head.find(key);
  const auto* list = value == nullptr ? nullptr : value->get_if<Value::List>();
  if (list != nullptr) return list->items;
  throw head.corrupt("config").part(key).expected("a list").found("no list");
}

/// True if nested lists of this shape would contain very many empty lists.
bool has_many_empty_lists(const Shape& shape) {
  constexpr std::int64_t kMaxEmptyLists = std::int64_t{1} << 16;
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (length == 0) return false;
    if (length > kMaxEmptyLists / count) break;
    count *= length;
  }
  return std::ranges::find(shape, 0) != shape.end();
}

/// Converts a tensor to a number or nested lists of numbers. A tensor with very many rows without
/// elements becomes one empty list, because a file of a few bytes may contain a tensor with 2^40
/// such rows.
Value value_of_tensor(const Tensor& tensor) {
  if (has_many_empty_lists(tensor.shape())) return Value::List{};
  if (tensor.ndim() > 0) {
    Value::List list;
    for (std::int64_t i = 0; i < tensor.shape()[0]; ++i) {
      list.items.push_back(value_of_tensor(tensor.select(i)));
    }
    return list;
  }
  if (tensor.dtype() == DType::bool_) return tensor.item<bool>();
  if (tensor.dtype() == DType::uint64) return tensor.item<std::uint64_t>();
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

}  // namespace

std::string_view to_string(ValueOrigin origin) noexcept {
  return kOrigins[static_cast<std::size_t>(origin)];
}

StatePath::StatePath(std::string path)
    : text(std::move(path)),
      num_parts(static_cast<std::size_t>(std::ranges::count(text, '/')) + 1) {}

bool StatePath::add(std::string_view key) {
  ++num_parts;
  if (key.empty() || key.find('/') != std::string_view::npos) return false;
  if (goes_on) return true;
  if (num_parts > 1) text += '/';
  text += key;
  return true;
}

void StatePath::add_other() {
  ++num_parts;
  goes_on = true;
}

std::vector<PlaceGroup> groups_of(std::span<const StatePlace> places) {
  std::map<std::pair<std::int64_t, std::int64_t>, PlaceGroup> groups;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const StatePlace& place = places[i];
    const std::int64_t mapper = place.table == kMapperTable ? place.row : 0;
    PlaceGroup& group = groups[{place.table, mapper}];
    group.positions.push_back(i);
    group.rows.push_back(place.row);
  }
  std::vector<PlaceGroup> sorted;
  for (auto& [key, group] : groups) {
    std::tie(group.table, group.mapper) = key;
    sorted.push_back(std::move(group));
  }
  return sorted;
}

Hierarchy::Hierarchy(const MapperHead& head, const TensorDict& tensors)
    : head_(head), default_key_(head.text("default_key")), paths_(node_of(head, tensors, "paths")) {
  read_tables(tensors);
  read_texts(tensors);
  read_mappers(tensors);
}

void Hierarchy::read_tables(const TensorDict& tensors) {
  const std::vector<Value>& origins = config_list(head_, "tables");
  std::vector<std::string> keys;
  TensorDict node;
  if (!origins.empty() || tensors.contains("tables")) {
    node = node_of(head_, tensors, "tables");
    keys = node.keys();
  }
  if (keys.size() != origins.size()) {
    throw head_.corrupt("tables").expected(origins.size(), " tensors").found(keys.size());
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ValueOrigin origin = origin_of(head_, origins[i]);
    Tensor values = contiguous_of_file(tensor_of(head_, node, keys[i]), head_.where);
    if (values.ndim() == 0) {
      throw head_.corrupt("tables")
          .part(keys[i])
          .expected("a tensor of rows")
          .found("a 0-d tensor");
    }
    tables_.push_back({origin, std::move(values)});
  }
}

void Hierarchy::read_texts(const TensorDict& tensors) {
  if (!tensors.contains("texts")) return;
  text_bytes_ = contiguous_of_file(tensor_of(head_, tensors, "texts"), head_.where);
  text_ends_ = contiguous_of_file(tensor_of(head_, tensors, "text_ends"), head_.where);
  if (text_bytes_.dtype() != DType::uint8 || text_bytes_.ndim() != 1 ||
      text_ends_.dtype() != DType::int64 || text_ends_.ndim() != 1) {
    throw head_.corrupt("texts")
        .expected("uint8 bytes and int64 end offsets of one dimension")
        .found("other tensors");
  }
}

void Hierarchy::read_mappers(const TensorDict& tensors) {
  for (const Value& path : config_list(head_, "mappers")) {
    const auto* text = path.get_if<std::string>();
    if (text == nullptr) {
      throw head_.corrupt("config").part("mappers").expected("a list of paths").found("no path");
    }
    mapper_paths_.push_back(*text);
  }
  std::size_t num_trees = 0;
  if (!mapper_paths_.empty() || tensors.contains("mappers")) {
    num_trees = node_of(head_, tensors, "mappers").size();
  }
  if (num_trees != mapper_paths_.size()) {
    throw head_.corrupt("mappers").expected(mapper_paths_.size(), " trees").found(num_trees);
  }
}

Tensor Hierarchy::no_rows() const {
  const bool is_one = tables_.size() == 1 && text_ends_.numel() == 0 && mapper_paths_.empty();
  return is_one ? tables_[0].values.narrow(0, 0) : Tensor::zeros(DType::float64, {0});
}

std::vector<StatePlace> Hierarchy::find(std::span<const std::string_view> paths,
                                        const StateNames& names) const {
  std::vector<StatePlace> places = paths_.find(paths);
  for (std::size_t i = 0; i < places.size(); ++i) require_value(places[i], paths[i], i, names);
  return places;
}

std::vector<StatePlace> Hierarchy::find(std::span<const StatePath> states,
                                        const StateNames& names) const {
  std::vector<std::string_view> whole;
  std::vector<std::size_t> positions;
  std::vector<StatePlace> places(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].goes_on) {
      places[i] = paths_.find_below(states[i].text);
    } else {
      whole.push_back(states[i].text);
      positions.push_back(i);
    }
  }
  const std::vector<StatePlace> found = paths_.find(whole);
  for (std::size_t i = 0; i < positions.size(); ++i) places[positions[i]] = found[i];
  for (std::size_t i = 0; i < places.size(); ++i) {
    require_value(places[i], states[i].text, i, names);
  }
  return places;
}

void Hierarchy::require_value(const StatePlace& place, std::string_view path, std::size_t position,
                              const StateNames& names) const {
  if (place.table != kNoTable) return check(place);
  const std::string level = paths_.nearest_level(path);
  throw base::key_not_found(names.mapper())
      .problem("no state ", names.state(position))
      .expected("an existing path or a level with a ", base::quote(default_key_), " above it")
      .found("neither")
      .remedy("the nearest level that exists is ", level.empty() ? "the root" : base::quote(level));
}

std::size_t Hierarchy::num_above(const StatePath& state, std::int64_t number, std::size_t position,
                                 const StateNames& names) const {
  const std::string& above = mapper_paths_[static_cast<std::size_t>(number)];
  const bool is_below = (state.text + '/').starts_with(above + '/');
  const auto num_slashes = static_cast<std::size_t>(std::ranges::count(above, '/'));
  const std::size_t num_above = num_slashes + (is_below ? 1 : 0);
  if (num_above < state.num_parts) return num_above;
  throw base::key_not_found(names.mapper())
      .part("state ", names.state(position))
      .problem("it ends at a mapper")
      .expected("a longer path, which ends with a state of the mapper")
      .found(state.num_parts, state.num_parts == 1 ? " component" : " components");
}

void Hierarchy::check(const StatePlace& place) const {
  std::int64_t num_rows = 0;
  if (place.table == kTextTable) {
    num_rows = text_ends_.numel();
  } else if (place.table == kMapperTable) {
    num_rows = static_cast<std::int64_t>(mapper_paths_.size());
  } else if (place.table >= 0 && place.table < static_cast<std::int64_t>(tables_.size())) {
    num_rows = tables_[static_cast<std::size_t>(place.table)].values.shape()[0];
  }
  if (place.row >= 0 && place.row < num_rows) return;
  throw head_.corrupt("paths")
      .expected("the row of a value")
      .found("row ", place.row, " of table ", place.table);
}

Value Hierarchy::value(const StatePlace& place) const {
  if (place.table == kTextTable) return text(place.row);
  const HierarchyTable& table = tables_[static_cast<std::size_t>(place.table)];
  const Tensor row = table.values.select(place.row);
  if (row.shape().size() > kMaxDepth) {
    throw base::unsupported(head_.where)
        .problem("a tensor has too many dimensions for nested lists")
        .expected("at most ", kMaxDepth)
        .found(row.ndim());
  }
  return value_of_tensor(row);
}

Value Hierarchy::text(std::int64_t row) const {
  const std::span<const std::int64_t> ends = text_ends_.span<std::int64_t>();
  const std::int64_t begin = row == 0 ? 0 : ends[static_cast<std::size_t>(row - 1)];
  const std::int64_t end = ends[static_cast<std::size_t>(row)];
  if (begin < 0 || end < begin || end > text_bytes_.numel()) {
    throw head_.corrupt("texts")
        .part("ends")
        .expected("nondecreasing end offsets up to ", text_bytes_.numel())
        .found(begin, " before ", end);
  }
  const auto* bytes = reinterpret_cast<const char*>(text_bytes_.raw_data());
  return parse_value({bytes + begin, static_cast<std::size_t>(end - begin)}, head_.where);
}

void Hierarchy::for_each(const std::function<void(const StatePaths::Node&)>& use) const {
  std::unordered_set<std::string> levels = {""};
  paths_.for_each([&](const StatePaths::Node& node) {
    if (!levels.contains(std::string(node.parent()))) {
      throw head_.corrupt("paths")
          .expected("the level of ", base::quote(node.path), " before the entry")
          .found("none");
    }
    if (node.is_level) {
      levels.emplace(node.path);
    } else if (node.place.table == kNoTable) {
      throw head_.corrupt("paths").part(base::quote(node.path)).expected("a value").found("none");
    } else {
      check(node.place);
    }
    use(node);
  });
}

}  // namespace tenfold

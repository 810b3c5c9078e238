#include "mapper/hierarchy.hpp"

#include <array>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"
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

/// A list in the config of a hierarchy.
const std::vector<Value>& config_list(const MapperHead& head, std::string_view key) {
  const Value* value = head.find(key);
  const auto* list = value == nullptr ? nullptr : value->get_if<Value::List>();
  if (list != nullptr) return list->items;
  throw head.corrupt("config").part(key).expected("a list").found("no list");
}

/// Converts a tensor to a number or nested lists of numbers. A tensor without elements becomes one
/// empty list: a file of a few bytes may give it 2^40 rows.
Value value_of_tensor(const Tensor& tensor) {
  if (tensor.numel() == 0) return Value::List{};
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
        .expected("uint8 bytes and int64 ends of one dimension")
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

std::vector<StatePlace> Hierarchy::find(std::span<const std::string_view> paths) const {
  std::vector<StatePlace> places = paths_.find(paths);
  for (const StatePlace& place : places) check(place);
  return places;
}

std::vector<StatePlace> Hierarchy::find(std::span<const StatePath> states) const {
  std::vector<std::string_view> whole;
  std::vector<std::size_t> positions;
  std::vector<StatePlace> places(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].goes_on) {
      places[i] = paths_.find_below(states[i].text);
      check(places[i]);
    } else {
      whole.push_back(states[i].text);
      positions.push_back(i);
    }
  }
  const std::vector<StatePlace> found = find(whole);
  for (std::size_t i = 0; i < positions.size(); ++i) places[positions[i]] = found[i];
  return places;
}

void Hierarchy::check(const StatePlace& place) const {
  if (place.table == kNoTable) return;
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
  return value_of_tensor(table.values.select(place.row));
}

Value Hierarchy::text(std::int64_t row) const {
  const std::span<const std::int64_t> ends = text_ends_.span<std::int64_t>();
  const std::int64_t begin = row == 0 ? 0 : ends[static_cast<std::size_t>(row - 1)];
  const std::int64_t end = ends[static_cast<std::size_t>(row)];
  if (begin < 0 || end < begin || end > text_bytes_.numel()) {
    throw head_.corrupt("texts")
        .part("ends")
        .expected("nondecreasing ends up to ", text_bytes_.numel())
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

// A hierarchy in one JSON file, flattened in the same way as a tree.
// python/tenfold/mappers/_hierarchy_json.py documents the format.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tree/node.hpp"
#include "mapper/saved_mapper.hpp"
#include "mapper/state_paths.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kJsonHead = "%state_mapper";
constexpr std::string_view kTensor = "%tensor";

/// Numbers of a JSON value in row-major order.
struct Numbers {
  DType dtype = DType::bool_;  ///< bool_, int64 or float64
  Shape shape;
  std::vector<std::int64_t> integers;
  std::vector<double> floats;
};

/// Appends one number. Returns false if `value` is not a number, or of another kind than the
/// others.
bool add_number(const Value& value, Numbers& numbers, bool is_first) {
  if (const auto* truth = value.get_if<bool>()) {
    if (!is_first && numbers.dtype != DType::bool_) return false;
    numbers.integers.push_back(*truth ? 1 : 0);
    numbers.floats.push_back(*truth ? 1.0 : 0.0);
    return true;
  }
  if (!is_first && numbers.dtype == DType::bool_) return false;
  if (is_first) numbers.dtype = DType::int64;
  if (const auto* integer = value.get_if<std::int64_t>()) {
    numbers.integers.push_back(*integer);
    numbers.floats.push_back(static_cast<double>(*integer));
    return true;
  }
  const auto* number = value.get_if<double>();
  if (number == nullptr) return false;
  numbers.dtype = DType::float64;
  numbers.integers.push_back(0);
  numbers.floats.push_back(*number);
  return true;
}

/// Converts a number, or nested lists of equal lengths; empty for other JSON.
std::optional<Numbers> numbers_of(const Value& value) {
  Numbers numbers;
  std::vector<const Value*> flat = {&value};
  while (!flat.empty() && flat[0]->is<Value::List>()) {
    const std::size_t length = flat[0]->get_if<Value::List>()->items.size();
    std::vector<const Value*> next;
    for (const Value* item : flat) {
      const auto* list = item->get_if<Value::List>();
      if (list == nullptr || list->items.size() != length) return std::nullopt;
      for (const Value& inner : list->items) next.push_back(&inner);
    }
    numbers.shape.push_back(static_cast<std::int64_t>(length));
    flat = std::move(next);
  }
  for (const Value* item : flat) {
    if (!add_number(*item, numbers, item == flat[0])) return std::nullopt;
  }
  return numbers;
}

/// Rows with the same dtype and shape.
struct Rows {
  std::int64_t number = 0;  ///< number of the table
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
};

bool same_integers(const Numbers& numbers, DType dtype, const std::byte* stored) {
  std::vector<std::int64_t> back(numbers.integers.size());
  cast_elements(dtype, stored, DType::int64, reinterpret_cast<std::byte*>(back.data()),
                back.size());
  return back == numbers.integers;
}

class Flattener {
 public:
  Flattener(std::string where, std::string default_key, bool is_escaped)
      : where_(std::move(where)), default_key_(std::move(default_key)), is_escaped_(is_escaped) {}

  /// Visits levels before their entries. `from_json` limits the depth.
  void walk(const Value::Object& level, std::size_t node, const std::string& prefix) {
    std::vector<std::tuple<const Value::Object*, std::size_t, std::string>> below;
    for (const auto& [stored_key, value] : level.members) {
      if (is_escaped_ && prefix.empty() && stored_key == kJsonHead) continue;
      const std::string key = key_of(stored_key, prefix);
      const std::string path = prefix + key;
      const auto* object = value.get_if<Value::Object>();
      const bool is_level = object != nullptr && !(is_escaped_ && object->find(kTensor) != nullptr);
      const std::size_t child = paths_.size();
      add(path, is_level ? StatePlace{kNoTable, 0} : place_of(value, path), is_level, node);
      if (key == default_key_) {
        if (is_level) {
          throw fail(path)
              .problem("the default of a level is a value")
              .expected("one")
              .found("a level");
        }
        defaults_[node] = child;
      }
      if (is_level) below.emplace_back(object, child, path + "/");
    }
    for (const auto& [object, child, path] : below) walk(*object, child, path);
  }

  TensorDict tensors() {
    inherit();
    const std::vector<std::string_view> views(paths_.begin(), paths_.end());
    TensorDict made;
    made.set("paths", StatePaths::make(views, tables_, rows_, levels_));
    if (!groups_.empty()) made.set("tables", tables());
    if (!text_ends_.empty()) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(texts_.data());
      made.set("texts", Tensor::from(std::span(bytes, texts_.size())));
      made.set("text_ends", Tensor::from(std::span<const std::int64_t>(text_ends_)));
    }
    return made;
  }

  void add(const std::string& path, const StatePlace& place, bool is_level, std::size_t parent) {
    paths_.push_back(path);
    tables_.push_back(place.table);
    rows_.push_back(place.row);
    levels_.push_back(is_level ? 1 : 0);
    parents_.push_back(parent);
  }

 private:
  Error fail(const std::string& path) const {
    return base::corrupt(where_).part(base::quote(path));
  }

  std::string key_of(std::string_view stored_key, const std::string& prefix) const {
    if (is_escaped_ && stored_key.starts_with('%')) {
      stored_key.remove_prefix(1);
      if (!stored_key.starts_with('%')) {
        throw fail(prefix + std::string(stored_key))
            .expected("\"%%\" for a \"%\" at the beginning of a key");
      }
    }
    if (stored_key.empty() || stored_key.find('/') != std::string_view::npos) {
      throw fail(prefix + std::string(stored_key))
          .expected("a key that is not empty, without \"/\"");
    }
    return std::string(stored_key);
  }

  StatePlace place_of(const Value& value, const std::string& path) {
    if (const auto* object = value.get_if<Value::Object>()) return tensor_place(*object, path);
    const std::optional<Numbers> numbers = numbers_of(value);
    if (!numbers || numbers->floats.empty()) {
      texts_ += to_json(value);
      text_ends_.push_back(static_cast<std::int64_t>(texts_.size()));
      return {kTextTable, static_cast<std::int64_t>(text_ends_.size()) - 1};
    }
    const bool is_number = numbers->shape.empty();
    return row_of(is_number ? "number" : "list", *numbers, numbers->dtype, numbers->shape);
  }

  StatePlace tensor_place(const Value::Object& object, const std::string& path) {
    const auto* name = object.find(kTensor)->get_if<std::string>();
    const auto dtype = name == nullptr ? std::nullopt : dtype_from_name(*name);
    if (!dtype || is_complex(*dtype) || *dtype == DType::float4_e2m1fn_x2) {
      throw fail(path).part("dtype").expected("one of numbers").found("another");
    }
    const Value* values = object.find("values");
    const Value* lengths = object.find("shape");
    const auto* list = lengths == nullptr ? nullptr : lengths->get_if<Value::List>();
    if (values == nullptr || list == nullptr) {
      throw fail(path).expected("shape and values").found("none");
    }
    Shape shape;
    for (const Value& length : list->items) {
      const auto* number = length.get_if<std::int64_t>();
      if (number == nullptr || *number < 0) {
        throw fail(path).part("shape").expected("lengths").found("another");
      }
      shape.push_back(*number);
    }
    const std::optional<Numbers> numbers = numbers_of(*values);
    // The nested lists do not show the dimensions after one of length 0.
    const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (!numbers || (is_empty ? !numbers->floats.empty() : numbers->shape != shape)) {
      throw fail(path)
          .part("values")
          .expected("numbers of shape ", base::list_text(shape))
          .found("others");
    }
    if (is_integer(*dtype) && numbers->dtype == DType::float64) {
      throw fail(path).part("values").expected("integers").found("others");
    }
    return row_of("tensor", *numbers, *dtype, shape);
  }

  StatePlace row_of(const char* origin, const Numbers& numbers, DType dtype, const Shape& shape) {
    const auto [found, is_new] = groups_.try_emplace({origin, dtype, shape});
    Rows& rows = found->second;
    if (is_new) {
      rows.number = static_cast<std::int64_t>(order_.size());
      order_.push_back(found->first);
    }
    const std::size_t begin = rows.bytes.size();
    rows.bytes.resize(begin + numbers.floats.size() * itemsize(dtype));
    const bool is_float = numbers.dtype == DType::float64;
    const void* source = is_float ? static_cast<const void*>(numbers.floats.data())
                                  : static_cast<const void*>(numbers.integers.data());
    cast_elements(is_float ? DType::float64 : DType::int64, static_cast<const std::byte*>(source),
                  dtype, rows.bytes.data() + begin, numbers.floats.size());
    if (is_integer(dtype) && !same_integers(numbers, dtype, rows.bytes.data() + begin)) {
      throw base::corrupt(where_)
          .part("values")
          .expected(to_string(dtype))
          .found("a number out of its range");
    }
    return {rows.number, rows.count++};
  }

  /// Levels without a default inherit that of the level above, which precedes them.
  void inherit() {
    for (std::size_t node = 0; node < paths_.size(); ++node) {
      if (levels_[node] == 0) continue;
      const auto own = defaults_.find(node);
      if (own == defaults_.end() && node == 0) continue;
      const std::size_t source = own == defaults_.end() ? parents_[node] : own->second;
      tables_[node] = tables_[source];
      rows_[node] = rows_[source];
    }
  }

  TensorDict tables() const {
    NodeInfo info;
    info.kind = NodeKind::list;
    TensorDict node(info);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const auto& [origin, dtype, row_shape] = order_[i];
      const Rows& rows = groups_.at(order_[i]);
      Shape shape = row_shape;
      shape.insert(shape.begin(), rows.count);
      Buffer bytes = Buffer::allocate(rows.bytes.size());
      if (!rows.bytes.empty())
        std::memcpy(bytes.mutable_data(), rows.bytes.data(), rows.bytes.size());
      node.set(std::to_string(i), Tensor(dtype, std::move(shape), std::move(bytes)));
    }
    return node;
  }

  using Group = std::tuple<std::string, DType, Shape>;

  std::string where_;
  std::string default_key_;
  bool is_escaped_;
  std::vector<std::string> paths_;
  std::vector<std::int64_t> tables_;
  std::vector<std::int64_t> rows_;
  std::vector<std::uint8_t> levels_;
  std::vector<std::size_t> parents_;
  std::map<std::size_t, std::size_t> defaults_;  ///< level -> node of its own default
  std::map<Group, Rows> groups_;
  std::vector<Group> order_;
  std::string texts_;
  std::vector<std::int64_t> text_ends_;
};

/// The default key that the header of the file names; empty if it has no header.
std::optional<std::string> default_key_of(const Value::Object& root, const std::string& where) {
  const Value* head = root.find(kJsonHead);
  if (head == nullptr) return std::nullopt;
  const auto* object = head->get_if<Value::Object>();
  const Value* version = object == nullptr ? nullptr : object->find("version");
  const auto* number = version == nullptr ? nullptr : version->get_if<std::int64_t>();
  const Value* key = object == nullptr ? nullptr : object->find("default_key");
  const auto* text = key == nullptr ? nullptr : key->get_if<std::string>();
  if (number == nullptr || text == nullptr) {
    throw base::corrupt(where)
        .part("%state_mapper")
        .expected("a version and a default_key")
        .found("others");
  }
  if (*number != 1) {
    throw base::unsupported(where)
        .part("%state_mapper: version")
        .expected("1")
        .found(*number)
        .remedy("a newer tenfold reads it");
  }
  return *text;
}

}  // namespace

std::shared_ptr<const SavedMapper> json_hierarchy(std::string_view text, const std::string& where) {
  const Value document = from_json(text, where);
  const auto* root = document.get_if<Value::Object>();
  if (root == nullptr) {
    throw base::corrupt(where).part("JSON").expected("an object").found("a ", document.type_name());
  }
  const std::optional<std::string> default_key = default_key_of(*root, where);
  MapperHead head;
  head.where = where;
  head.class_name = "tenfold.HierarchicalStateMapper";
  Value::Object config;
  config.members.emplace_back("default_key", Value(default_key.value_or("default")));
  config.members.emplace_back("mappers", Value(Value::List()));
  head.config = std::move(config);
  Flattener flattener(where, default_key.value_or("default"), default_key.has_value());
  flattener.add("", {kNoTable, 0}, true, 0);
  flattener.walk(*root, 0, "");
  return saved_hierarchy(std::move(head), flattener.tensors());
}

}  // namespace tenfold

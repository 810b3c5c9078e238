#include "mapper/hierarchy_builder.hpp"

#include <cstring>
#include <span>

#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tree/node.hpp"
#include "mapper/state_paths.hpp"

namespace tenfold {
namespace {

/// Appends one number or bool. Returns false if `value` is neither, if it is a bool after numbers
/// or a number after bools, or if it is an integer that neither int64 nor uint64 can represent.
bool add_number(const Value& value, JsonNumbers& numbers, bool is_first) {
  if (const auto* truth = value.get_if<bool>()) {
    if (!is_first && numbers.dtype != DType::bool_) return false;
    numbers.integers.push_back(*truth ? 1 : 0);
    numbers.floats.push_back(*truth ? 1.0 : 0.0);
    return true;
  }
  if (!is_first && numbers.dtype == DType::bool_) return false;
  if (is_first) numbers.dtype = DType::int64;
  if (const auto* integer = value.get_if<std::int64_t>()) {
    numbers.has_negative = numbers.has_negative || *integer < 0;
    numbers.integers.push_back(*integer);
    numbers.floats.push_back(static_cast<double>(*integer));
    return true;
  }
  if (const auto* number = value.get_if<double>()) {
    numbers.dtype = DType::float64;
    numbers.integers.push_back(0);
    numbers.floats.push_back(*number);
    return true;
  }
  if (!value.is<Value::BigInt>()) return false;
  try {
    const auto large = value.as<std::uint64_t>();
    numbers.has_large = true;
    numbers.integers.push_back(static_cast<std::int64_t>(large));
    numbers.floats.push_back(static_cast<double>(large));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// uint64 if there are integers beyond int64, else int64.
DType wide_type(const JsonNumbers& numbers) {
  return numbers.has_large ? DType::uint64 : DType::int64;
}

/// True if the integers were stored as `dtype` without loss.
bool same_integers(const JsonNumbers& numbers, DType dtype, const std::byte* stored) {
  const bool is_unsigned = dtype == DType::uint64;
  // The comparison of bits below cannot tell a negative int64 from a large uint64.
  if (numbers.has_large && !is_unsigned) return false;
  if (is_unsigned && numbers.has_negative) return false;
  std::vector<std::int64_t> back(numbers.integers.size());
  cast_elements(dtype, stored, wide_type(numbers), reinterpret_cast<std::byte*>(back.data()),
                back.size());
  return back == numbers.integers;
}

/// The items of a list or tuple; null for other values.
const std::vector<Value>* items_of(const Value& value) {
  if (const auto* list = value.get_if<Value::List>()) return &list->items;
  const auto* tuple = value.get_if<Value::Tuple>();
  return tuple == nullptr ? nullptr : &tuple->items;
}

}  // namespace

std::optional<JsonNumbers> json_numbers(const Value& value) {
  JsonNumbers numbers;
  std::vector<const Value*> flat = {&value};
  while (!flat.empty() && items_of(*flat[0]) != nullptr) {
    const std::size_t length = items_of(*flat[0])->size();
    std::vector<const Value*> next;
    for (const Value* item : flat) {
      const auto* items = items_of(*item);
      if (items == nullptr || items->size() != length) return std::nullopt;
      for (const Value& inner : *items) next.push_back(&inner);
    }
    numbers.shape.push_back(static_cast<std::int64_t>(length));
    flat = std::move(next);
  }
  for (const Value* item : flat) {
    if (!add_number(*item, numbers, item == flat[0])) return std::nullopt;
  }
  return numbers;
}

HierarchyBuilder::HierarchyBuilder(std::string default_key, base::Where where, ErrorCode code)
    : default_key_(std::move(default_key)), where_(std::move(where)), code_(code) {
  if (default_key_.empty() || default_key_.find('/') != std::string::npos) {
    throw fail(code_)
        .part("default_key")
        .expected("a key that is not empty, without \"/\"")
        .found(base::quote(default_key_));
  }
  paths_.emplace_back();
  tables_.push_back(kNoTable);
  rows_.push_back(kNoTable);
  levels_.push_back(1);
  parents_.push_back(0);
  open_.push_back(0);
}

std::string HierarchyBuilder::level_text() const {
  return prefix_.empty() ? "root" : "level " + base::quote(prefix_.substr(0, prefix_.size() - 1));
}

Error HierarchyBuilder::fail_at(std::string_view key) const {
  return fail(code_).part(base::quote(path_of(key)));
}

void HierarchyBuilder::add_node(std::string_view key, const StatePlace& place, bool is_level) {
  if (key.empty() || key.find('/') != std::string_view::npos) {
    throw fail(code_)
        .part(level_text())
        .part("key ", base::quote(key))
        .expected(
            "a key that is not empty, without \"/\", which separates the components of a path");
  }
  const std::size_t node = paths_.size();
  if (key == default_key_) {
    if (is_level) {
      throw fail_at(key)
          .problem("the default of a level is a value")
          .expected("a number, text, list or tensor")
          .found("a level");
    }
    defaults_[open_.back()] = node;
  }
  paths_.push_back(path_of(key));
  tables_.push_back(place.table);
  rows_.push_back(place.row);
  levels_.push_back(is_level ? 1 : 0);
  parents_.push_back(open_.back());
}

void HierarchyBuilder::begin_level(std::string_view key) {
  if (open_.size() >= kMaxDepth) {
    throw fail(code_)
        .part(base::quote(path_of(key), 80))
        .expected("at most ", kMaxDepth, " levels")
        .found("more")
        .remedy("is a level inside itself?");
  }
  add_node(key, {kNoTable, kNoTable}, true);
  open_.push_back(paths_.size() - 1);
  prefix_ += key;
  prefix_ += '/';
}

void HierarchyBuilder::end_level() {
  open_.pop_back();
  prefix_ = paths_[open_.back()];
  if (!prefix_.empty()) prefix_ += '/';
}

HierarchyBuilder::Group& HierarchyBuilder::group_of(ValueOrigin origin, DType dtype,
                                                    const Shape& shape) {
  GroupKey key{origin, dtype, shape};
  const auto [found, is_new] = group_numbers_.try_emplace(key, groups_.size());
  if (is_new) groups_.push_back({std::move(key), 0, {}, {}});
  return groups_[found->second];
}

StatePlace HierarchyBuilder::add_row(ValueOrigin origin, DType dtype, const JsonNumbers& numbers,
                                     std::string_view key) {
  Group& group = group_of(origin, dtype, numbers.shape);
  const std::size_t begin = group.bytes.size();
  group.bytes.resize(begin + numbers.floats.size() * itemsize(dtype));
  const bool is_float =
      numbers.dtype == DType::float64 || (numbers.has_large && !is_integer(dtype));
  const DType from = is_float ? DType::float64 : wide_type(numbers);
  const void* source = is_float ? static_cast<const void*>(numbers.floats.data())
                                : static_cast<const void*>(numbers.integers.data());
  cast_elements(from, static_cast<const std::byte*>(source), dtype, group.bytes.data() + begin,
                numbers.floats.size());
  if (is_integer(dtype) && !same_integers(numbers, dtype, group.bytes.data() + begin)) {
    throw fail_at(key).part("values").expected(to_string(dtype)).found("a number out of its range");
  }
  return {static_cast<std::int64_t>(group_numbers_.at(group.key)), group.count++};
}

void HierarchyBuilder::add(std::string_view key, const Value& value) {
  std::optional<JsonNumbers> numbers = json_numbers(value);
  if (!numbers || numbers->floats.empty() || numbers->has_large) {
    add_json(key, to_json(value));
    return;
  }
  const ValueOrigin origin = numbers->shape.empty() ? ValueOrigin::number : ValueOrigin::list;
  add_node(key, add_row(origin, numbers->dtype, *numbers, key), false);
}

void HierarchyBuilder::add(std::string_view key, const JsonNumbers& numbers, DType dtype,
                           const Shape& shape) {
  JsonNumbers shaped = numbers;
  shaped.shape = shape;
  add_node(key, add_row(ValueOrigin::tensor, dtype, shaped, key), false);
}

void HierarchyBuilder::add(std::string_view key, Tensor tensor) {
  Group& group = group_of(ValueOrigin::tensor, tensor.dtype(), tensor.shape());
  group.tensors.push_back(std::move(tensor));
  add_node(key, {static_cast<std::int64_t>(group_numbers_.at(group.key)), group.count++}, false);
}

void HierarchyBuilder::add_json(std::string_view key, std::string_view text) {
  texts_ += text;
  text_ends_.push_back(static_cast<std::int64_t>(texts_.size()));
  add_node(key, {kTextTable, static_cast<std::int64_t>(text_ends_.size()) - 1}, false);
}

void HierarchyBuilder::add_mapper(std::string_view key) {
  mapper_paths_.push_back(path_of(key));
  add_node(key, {kMapperTable, static_cast<std::int64_t>(mapper_paths_.size()) - 1}, false);
}

/// Gives each level the place of its own default or, if it has none, the place of the level above,
/// which precedes it in the list of nodes.
void HierarchyBuilder::inherit() {
  for (std::size_t node = 0; node < paths_.size(); ++node) {
    if (levels_[node] == 0) continue;
    const auto own = defaults_.find(node);
    if (own == defaults_.end() && node == 0) continue;
    const std::size_t source = own == defaults_.end() ? parents_[node] : own->second;
    tables_[node] = tables_[source];
    rows_[node] = rows_[source];
  }
}

TensorDict HierarchyBuilder::tables() {
  NodeInfo info;
  info.kind = NodeKind::list;
  TensorDict node(info);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    const auto& [origin, dtype, row_shape] = group.key;
    Shape shape = row_shape;
    shape.insert(shape.begin(), group.count);
    const std::uint64_t row_bytes = nbytes_of(dtype, row_shape);
    Tensor values;
    // If the group has only one tensor, which is contiguous and writable, the tensor is not copied.
    if (group.tensors.size() == 1 && group.tensors[0].is_contiguous() &&
        group.tensors[0].buffer().writable()) {
      const Tensor& only = group.tensors[0];
      values = Tensor(dtype, shape, contiguous_strides(shape), only.buffer(), only.offset_bytes());
    } else {
      Buffer bytes = Buffer::allocate(
          static_cast<std::size_t>(row_bytes * static_cast<std::uint64_t>(group.count)));
      std::byte* into = bytes.mutable_data();
      if (!group.bytes.empty()) std::memcpy(into, group.bytes.data(), group.bytes.size());
      for (const Tensor& tensor : group.tensors) {
        const Tensor row = tensor.contiguous();
        if (row_bytes > 0) std::memcpy(into, row.raw_data(), row_bytes);
        into += row_bytes;
      }
      values = Tensor(dtype, std::move(shape), std::move(bytes));
    }
    node.set(std::to_string(i), std::move(values));
  }
  return node;
}

std::pair<Value, TensorDict> HierarchyBuilder::build() {
  inherit();
  const std::vector<std::string_view> views(paths_.begin(), paths_.end());
  TensorDict made = TensorDict::dict();
  made.set("paths", StatePaths::make(views, tables_, rows_, levels_));
  Value::List origins;
  for (const Group& group : groups_) origins.items.emplace_back(to_string(std::get<0>(group.key)));
  if (!groups_.empty()) made.set("tables", tables());
  if (!text_ends_.empty()) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(texts_.data());
    made.set("texts", Tensor::from(std::span(bytes, texts_.size())));
    made.set("text_ends", Tensor::from(std::span<const std::int64_t>(text_ends_)));
  }
  Value::List mappers;
  for (const std::string& path : mapper_paths_) mappers.items.emplace_back(path);
  Value::Object config;
  config.members.emplace_back("default_key", Value(default_key_));
  config.members.emplace_back("tables", Value(std::move(origins)));
  config.members.emplace_back("mappers", Value(std::move(mappers)));
  return {Value(std::move(config)), std::move(made)};
}

}  // namespace tenfold

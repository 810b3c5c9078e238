#include "formats/consolidated/value_stacks.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fail.hpp"
#include "core/value/value_json.hpp"

namespace tenfold::detail::formats::consolidated {
namespace {

using List = Value::List;

/// Approximate size of a value in memory.
std::uint64_t size_bytes_of(const Value& value) {
  std::uint64_t bytes = sizeof(Value);
  if (const auto* text = value.get_if<std::string>()) bytes += text->size();
  if (const auto* integer = value.get_if<Value::BigInt>()) bytes += integer->digits.size();
  if (const auto* special = value.get_if<Value::Special>()) bytes += special->text.size();
  if (const auto* object = value.get_if<Value::Object>()) {
    for (const auto& member : object->members) bytes += sizeof(member) + member.first.size();
  }
  for_each_child(value, [&](const Value& child) { bytes += size_bytes_of(child); });
  return bytes;
}

/// Replaces each value below `depth` levels of lists by a list of `count` copies of the value, and
/// subtracts the size of the copies from `budget_bytes`. Returns false if the copies need more than
/// the budget.
bool repeat(Value& value, std::size_t depth, std::uint64_t count, std::uint64_t& budget_bytes) {
  if (depth > 0) {
    auto& items = std::get<List>(value.data()).items;
    return std::ranges::all_of(
        items, [&](Value& item) { return repeat(item, depth - 1, count, budget_bytes); });
  }
  const std::uint64_t size_bytes = size_bytes_of(value);
  if (count > budget_bytes / size_bytes) return false;
  budget_bytes -= count * size_bytes;
  value = List{std::vector<Value>(static_cast<std::size_t>(count), value)};
  return true;
}

/// Repeats shared values until `stacked` has at least `depth` levels of lists. Returns an error
/// like stack_values(), or nullopt.
std::optional<Error> deepen(StackedValues& stacked, std::size_t depth,
                            std::uint64_t& budget_bytes) {
  while (stacked.depth < depth) {
    if (stacked.shared.empty()) {
      return base::corrupt()
          .problem("an entry of a stack of values does not fit")
          .expected("at least ", depth, " batch dimensions")
          .found(stacked.depth);
    }
    const std::int64_t count = stacked.shared.front();
    if (!repeat(stacked.value, stacked.depth, static_cast<std::uint64_t>(count), budget_bytes)) {
      return base::unsupported()
          .problem("an entry of a stack of values is repeated too often")
          .expected("at most ", kMaxRepeatedBytes, " bytes in all copies of values")
          .found("a dimension of length ", count);
    }
    stacked.shared.erase(stacked.shared.begin());
    ++stacked.depth;
  }
  return std::nullopt;
}

/// Stacks nested lists, which have `dim` levels or more, along dimension `dim`. Returns an error
/// like stack_values(), or nullopt.
std::optional<Error> stack_lists(std::vector<Value>& elements, std::size_t dim, List& result) {
  if (dim == 0 || elements.empty()) {
    result.items = std::move(elements);
    return std::nullopt;
  }
  std::vector<std::vector<Value>*> lists;
  for (Value& element : elements) {
    lists.push_back(&std::get<List>(element.data()).items);
    if (lists.back()->size() == lists.front()->size()) continue;
    return base::corrupt()
        .problem("the entries of a stack of values differ in their batch size")
        .expected("a dimension of length ", lists.front()->size())
        .found(lists.back()->size());
  }
  for (std::size_t i = 0; i < lists.front()->size(); ++i) {
    std::vector<Value> row;
    for (auto* list : lists) row.push_back(std::move((*list)[i]));
    List stacked;
    if (auto error = stack_lists(row, dim - 1, stacked)) return error;
    result.items.emplace_back(std::move(stacked));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> stack_values(std::vector<StackedValues> elements, std::size_t dim,
                                  std::uint64_t& budget_bytes, StackedValues& result) {
  std::size_t most = dim;  // maximum number of levels of lists, at least `dim`
  std::size_t common =
      std::numeric_limits<std::size_t>::max();  // dimensions that all elements have
  for (const StackedValues& element : elements) {
    most = std::max(most, element.depth);
    common = std::min(common, element.depth + element.shared.size());
  }
  const std::size_t depth = std::max(dim, std::min(most, common));
  std::vector<Value> values;
  for (StackedValues& element : elements) {
    if (auto error = deepen(element, depth, budget_bytes)) return error;
    values.push_back(std::move(element.value));
  }
  result.depth = elements.empty() ? 1 : depth + 1;
  result.shared = elements.empty() || depth < most ? Shape{} : elements.front().shared;
  result.value = List{};
  return stack_lists(values, dim, std::get<List>(result.value.data()));
}

std::size_t num_stack_levels(const Value& value) {
  std::size_t levels = 0;
  std::vector<const Value*> level = {&value};
  while (!level.empty()) {
    const auto* first = level.front()->get_if<List>();
    std::vector<const Value*> below;
    for (const Value* item : level) {
      const auto* list = item->get_if<List>();
      if (list == nullptr || list->items.size() != first->items.size()) return levels;
      for (const Value& child : list->items) below.push_back(&child);
    }
    level = std::move(below);
    ++levels;
  }
  return std::numeric_limits<std::size_t>::max();
}

std::optional<std::vector<Value>> unstack_values(const Value& value, std::size_t dim) {
  const auto* list = value.get_if<List>();
  if (list == nullptr) return std::nullopt;
  if (dim == 0) return list->items;
  std::vector<Value> elements;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    auto inner = unstack_values(list->items[i], dim - 1);
    if (!inner || (i > 0 && inner->size() != elements.size())) return std::nullopt;
    if (i == 0) elements.assign(inner->size(), List{});
    for (std::size_t j = 0; j < elements.size(); ++j) {
      std::get<List>(elements[j].data()).items.push_back(std::move((*inner)[j]));
    }
  }
  // Without elements, the number of lists would be lost.
  if (elements.empty() && !list->items.empty()) return std::nullopt;
  return elements;
}

}  // namespace tenfold::detail::formats::consolidated

#include "formats/consolidated/tree.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/value/value_json.hpp"
#include "formats/consolidated/value_stacks.hpp"

namespace tenfold::detail::formats::consolidated {
namespace {

using Object = Value::Object;
using List = Value::List;

class TreeBuilder {
 public:
  TreeBuilder(std::uint64_t data_bytes, const std::shared_ptr<Leaves>& leaves,
              const std::string& where)
      : data_bytes_(data_bytes), leaves_(leaves), where_(where) {}

  TensorDict root(const Value& document) {
    const Object& object = as<Object>(document, "", "the document", "an object");
    const std::string& cls = member<std::string>(object, "", "cls", "a string");
    if (cls == "NonTensorStack") {
      throw fail_unsupported("")
          .problem("a stack of values cannot be opened as the root")
          .expected("a TensorDict, tensorclass or lazy stack")
          .found("\"NonTensorStack\"");
    }
    if (const Value* size = object.find("size")) extra_ = read_sidecar(*size, where_);
    unbatched_.insert(extra_.notes.unbatched.begin(), extra_.notes.unbatched.end());
    TensorDict tree = node(object, "", cls);
    locked_ = is_locked(object);
    return tree;
  }

  Sidecar take_extra() { return std::move(extra_); }
  bool locked() const noexcept { return locked_; }

  /// Throws if two ranges overlap, unless they are equal (shared storage).
  void check_overlaps() const {
    std::vector<const TensorRange*> order;
    for (const TensorRange& range : leaves_->ranges) {
      if (range.begin != range.stop) order.push_back(&range);
    }
    std::ranges::sort(order, {}, [](const auto* r) { return std::pair(r->begin, r->stop); });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const TensorRange& before = *order[i - 1];
      const TensorRange& range = *order[i];
      const bool same = range.begin == before.begin && range.stop == before.stop;
      if (same || range.begin >= before.stop) continue;
      throw base::corrupt(where_)
          .part("leaves")
          .problem("two tensors overlap")
          .expected("one that begins at byte ", before.stop, " or later")
          .found("one at byte ", range.begin);
    }
  }

 private:
  Error fail(const std::string& path) const {
    return base::corrupt(where_).part("node ", base::quote(path));
  }
  Error fail_unsupported(const std::string& path) const {
    return base::unsupported(where_).part("node ", base::quote(path));
  }

  template <class T>
  const T& as(const Value& value, const std::string& path, const std::string& subject,
              const char* expected) const {
    if (const T* typed = value.get_if<T>()) return *typed;
    throw fail(path)
        .problem(subject, " has the wrong type")
        .expected(expected)
        .found(value.type_name());
  }

  template <class T>
  const T& member(const Object& object, const std::string& path, const std::string& key,
                  const char* expected) const {
    const Value* value = object.find(key);
    if (value == nullptr) {
      throw fail(path).problem(base::quote(key), " is missing").expected(expected).found("none");
    }
    return as<T>(*value, path, base::quote(key), expected);
  }

  std::int64_t natural(const Value& value, const std::string& path,
                       const std::string& subject) const {
    const std::int64_t number = as<std::int64_t>(value, path, subject, "an integer from 0");
    if (number < 0) {
      throw fail(path).problem(subject, " is negative").expected("an integer from 0").found(number);
    }
    return number;
  }

  Shape shape(const List& list, const std::string& path, const std::string& subject) const {
    Shape lengths;
    for (const Value& item : list.items) lengths.push_back(natural(item, path, subject));
    return lengths;
  }

  /// Returns a string member, or nullopt if the member is null or missing.
  std::optional<std::string> optional_text(const Object& object, const std::string& path,
                                           const std::string& key) const {
    const Value* value = object.find(key);
    if (value == nullptr || value->is_null()) return std::nullopt;
    return as<std::string>(*value, path, base::quote(key), "a string or null");
  }

  std::shared_ptr<Node> new_node(const std::string& path) const {
    auto node = std::make_shared<Node>();
    node->where = path.empty() ? where_ : where_ + "/" + path;
    return node;
  }

  TensorDict node(const Object& object, const std::string& path, const std::string& cls) {
    if (cls == "LazyStackedTensorDict") return lazy_stack(object, path);
    if (cls != "TensorDict" && !is_tensorclass(cls)) {
      throw fail_unsupported(path)
          .problem("unknown class")
          .expected(
              "\"TensorDict\", \"LazyStackedTensorDict\", \"NonTensorStack\" or a tensorclass")
          .found(base::quote(cls));
    }
    const Object& about = member<Object>(object, path, "cls_metadata", "an object");
    if (is_tensorclass(cls) && about.find("batch_size") == nullptr &&
        about.find("stack_dim") != nullptr) {
      // tensordict 0.15.3 writes a tensorclass around a lazy stack, but cannot read it.
      throw fail_unsupported(path)
          .problem("a tensorclass around a lazy stack cannot be opened")
          .expected("\"batch_size\"")
          .found("\"stack_dim\"");
    }
    auto result = new_node(path);
    set_info(object, path, result->info);
    if (is_tensorclass(cls)) {
      result->info.kind = NodeKind::tensorclass;
      result->info.class_name = cls;
    }
    add_values(object, path, *result);
    add_leaves(object, path, *result);
    for (const auto& [key, value] : object.members) {
      if (!is_reserved_member(key)) add(*result, path, key, child(value, path, key));
    }
    apply_extra(extra_, path, *result);
    return tensordict_of(std::move(result));
  }

  bool is_locked(const Object& root) const {
    const Object& about = member<Object>(root, "", "cls_metadata", "an object");
    const Value* locked = about.find("is_locked");
    return locked != nullptr && as<bool>(*locked, "", "\"is_locked\"", "a bool");
  }

  void set_info(const Object& object, const std::string& path, NodeInfo& info) const {
    const Object& about = member<Object>(object, path, "cls_metadata", "an object");
    info.batch_size =
        shape(member<List>(about, path, "batch_size", "an array"), path, "\"batch_size\"");
    info.device = optional_text(about, path, "device").value_or("");
    if (!info.device.empty() && !is_torch_device(info.device)) {
      throw fail(path)
          .part("\"device\"")
          .expected("a type and optionally an index of at most 127, as in \"cuda:0\"")
          .found(base::quote(info.device));
    }
    const Value* names = about.find("names");
    if (names == nullptr || names->is_null()) return;
    bool named = false;
    for (const Value& name : as<List>(*names, path, "\"names\"", "an array or null").items) {
      info.names.emplace_back();
      if (name.is_null()) continue;
      info.names.back() = as<std::string>(name, path, "\"names\"", "strings or null");
      named = true;
    }
    if (info.names.size() != info.batch_size.size() && !info.names.empty()) {
      throw fail(path)
          .problem("\"names\" does not fit the batch_size")
          .expected(info.batch_size.size(), " names")
          .found(info.names.size());
    }
    if (!named) info.names.clear();  // all None means that there are no names
  }

  void add(Node& node, const std::string& path, const std::string& key, Node::Slot slot) const {
    const auto position = static_cast<std::uint32_t>(node.entries.size());
    node.entries.push_back({key, std::move(slot)});
    const auto key_at = [&](std::uint32_t i) -> std::string_view { return node.entries[i].key; };
    if (node.index.insert(key, position, key_at) != KeyIndex::kNone) {
      throw fail(note_path_child(path, key))
          .problem("the key is duplicated")
          .expected("it once")
          .found("two");
    }
  }

  /// Returns the data of a member of "non_tensors": the first of its three items.
  const Value& data_of(const Value& item, const std::string& path) const {
    const List& list = as<List>(item, path, "its item", "an array");
    if (list.items.size() != 3) {
      throw fail(path)
          .problem("its array has the wrong length")
          .expected("data, batch_size and device")
          .found(list.items.size(), " items");
    }
    return list.items[0];
  }

  void add_values(const Object& object, const std::string& path, Node& node) const {
    for (const auto& [key, item] :
         member<Object>(object, path, "non_tensors", "an object").members) {
      add(node, path, key, NonTensor{data_of(item, note_path_child(path, key))});
    }
  }

  void add_leaves(const Object& object, const std::string& path, Node& node) {
    std::optional<Jagged> jagged;  // a jagged tensor whose offsets are not read yet
    for (const auto& [key, item] : member<Object>(object, path, "leaves", "an object").members) {
      const std::string inner = note_path_child(path, key);
      if (key.starts_with("<NJT")) {
        add_part(key, item, inner, jagged);
        if (!jagged->offsets) continue;
        const std::string name = note_path_child(path, jagged->key);
        add(node, path, jagged->key, jagged_node(*jagged, name, node.info.batch_size));
        jagged.reset();
      } else {
        if (jagged) fail_incomplete(*jagged, inner, base::quote(key));
        const List& items = leaf_items(item, inner, 5);
        Leaf made = leaf(items, inner, unbatched_.contains(inner));
        if (!made.is_unbatched()) check_batch(made.shape(), node.info.batch_size, inner);
        add(node, path, key, std::move(made));
      }
    }
    if (jagged) fail_incomplete(*jagged, path, "the end of \"leaves\"");
  }

  /// The components of a jagged tensor, collected in order.
  struct Jagged {
    std::string key;
    Leaf values;
    std::optional<Leaf> lengths, offsets;
    std::int64_t ragged_dim = 1;
  };

  [[noreturn]] void fail_incomplete(const Jagged& jagged, const std::string& path,
                                    const std::string& found) const {
    throw fail(path)
        .problem("a jagged tensor is not complete")
        .expected(base::quote(std::string(kJaggedOffsets) + jagged.key))
        .found(found);
  }

  void add_part(const std::string& key, const Value& item, const std::string& path,
                std::optional<Jagged>& jagged) {
    const auto is_next = [&](std::string_view prefix) {
      return jagged && key.starts_with(prefix) && key.substr(prefix.size()) == jagged->key;
    };
    if (!jagged && key.starts_with(kJaggedValues)) {
      jagged =
          Jagged{key.substr(kJaggedValues.size()), leaf(leaf_items(item, path, 5), path), {}, {}};
    } else if (is_next(kJaggedLengths) && !jagged->lengths) {
      jagged->lengths = leaf(leaf_items(item, path, 5), path);
    } else if (is_next(kJaggedOffsets)) {
      const List& items = leaf_items(item, path, 6);
      jagged->offsets = leaf(items, path);
      if (items.items.size() == 6) jagged->ragged_dim = natural(items.items[5], path, "ragged_idx");
    } else {
      throw fail(path)
          .problem("it is not a valid part of a jagged tensor")
          .expected("consecutive values, lengths and offsets of one key")
          .found(base::quote(key));
    }
  }

  /// Builds the node that represents a jagged tensor (core/tree/sparse.hpp).
  TensorDict jagged_node(const Jagged& jagged, const std::string& path, const Shape& batch_size) {
    const Shape& values = jagged.values.shape();
    const Shape& offsets = jagged.offsets->shape();
    const auto dim = static_cast<std::uint64_t>(jagged.ragged_dim);
    if (offsets.size() != 1 || offsets[0] < 1) {
      throw fail(path)
          .part("offsets of a jagged tensor")
          .expected("one dimension with a length of at least 1")
          .found(base::list_text(offsets));
    }
    if (dim < 1 || dim > values.size()) {
      throw fail(path).part("ragged dimension").expected("1 to ", values.size()).found(dim);
    }
    auto made = new_node(path);
    made->info.kind = NodeKind::sparse;
    made->info.layout = kJagged;
    Shape& shape = made->info.dense_shape;
    shape = {offsets[0] - 1};
    shape.insert(shape.end(), values.begin(), values.end());
    shape[static_cast<std::size_t>(dim)] = -1;
    check_batch(shape, batch_size, path);
    add(*made, path, "values", jagged.values);
    add(*made, path, "offsets", *jagged.offsets);
    if (jagged.lengths) add(*made, path, "lengths", *jagged.lengths);
    return tensordict_of(std::move(made));
  }

  void check_batch(const Shape& lengths, const Shape& batch_size, const std::string& path) const {
    if (starts_with(lengths, batch_size)) return;
    throw fail(path)
        .problem("the shape does not fit")
        .expected("it to start with the batch_size ", base::list_text(batch_size))
        .found(base::list_text(lengths));
  }

  const List& leaf_items(const Value& item, const std::string& path, std::size_t most) const {
    const List& list = as<List>(item, path, "its item", "an array");
    if (list.items.size() == 5 || list.items.size() == most) return list;
    throw fail(path)
        .problem("its array has the wrong length")
        .expected("dtype, shape, start, stop and padding",
                  (most > 5 ? ", optionally ragged_idx" : ""))
        .found(list.items.size(), " items");
  }

  Leaf leaf(const List& list, const std::string& path, bool unbatched = false) {
    const std::vector<Value>& items = list.items;
    const std::string& dtype_text = as<std::string>(items[0], path, "dtype", "a string");
    const auto dtype = dtype_text.starts_with("torch.")
                           ? dtype_from_name(std::string_view(dtype_text).substr(6))
                           : std::nullopt;
    if (!dtype) {
      throw fail_unsupported(path)
          .problem("unknown dtype")
          .expected("one that torch has")
          .found(base::quote(dtype_text));
    }
    Shape lengths = shape(as<List>(items[1], path, "shape", "an array"), path, "shape");
    TensorRange range;
    range.dtype = *dtype;
    range.begin = static_cast<std::uint64_t>(natural(items[2], path, "start"));
    range.stop = static_cast<std::uint64_t>(natural(items[3], path, "stop"));
    const auto padding = static_cast<std::uint64_t>(natural(items[4], path, "padding"));
    try {
      range.size_bytes = nbytes_of(*dtype, lengths);
    } catch (const Error&) {
      throw fail(path)
          .problem("shape is too large")
          .expected("at most 2^63 - 1 bytes")
          .found(base::list_text(lengths));
    }
    check_range(range, padding, path);
    leaves_->ranges.push_back(range);
    Leaf made = stored_leaf(*dtype, std::move(lengths), leaves_, leaves_->ranges.size() - 1);
    made.mark_unbatched(unbatched);
    return made;
  }

  void check_range(const TensorRange& range, std::uint64_t padding, const std::string& path) const {
    if (range.stop > data_bytes_) {
      throw fail(path)
          .problem("data reaches into the document")
          .expected("an end at byte ", data_bytes_, " or before")
          .found("byte ", range.stop);
    }
    if (range.begin > range.stop) {
      throw fail(path)
          .problem("stop is before start")
          .expected("a stop of at least ", range.begin)
          .found(range.stop);
    }
    const std::uint64_t stored = range.stop - range.begin;
    if (padding > stored || stored - padding != range.size_bytes) {
      throw fail(path)
          .problem("start, stop and padding do not fit the shape")
          .expected("a range of ", range.size_bytes, " bytes of data and ", padding, " of padding")
          .found("one of ", stored, " bytes");
    }
  }

  Node::Slot child(const Value& value, const std::string& path, const std::string& key) {
    const std::string inner = note_path_child(path, key);
    const Object& object = as<Object>(value, inner, "its value", "an object");
    const std::string& cls = member<std::string>(object, inner, "cls", "a string");
    if (cls != "NonTensorStack") return node(object, inner, cls);
    NonTensor stack;
    stack.is_stack = true;
    stack.stack_dim = stack_dim(object, inner);
    stack.value = std::move(stacked_values(object, inner).value);
    return stack;
  }

  std::int64_t stack_dim(const Object& object, const std::string& path) const {
    const Object& about = member<Object>(object, path, "cls_metadata", "an object");
    member<std::int64_t>(about, path, "stack_dim", "an integer");
    const std::int64_t found = natural(*about.find("stack_dim"), path, "\"stack_dim\"");
    if (found <= kMaxStackDim) return found;
    throw fail(path).part("\"stack_dim\"").expected("at most ", kMaxStackDim).found(found);
  }

  void check_position(const std::string& path, const std::string& key, std::size_t position) const {
    if (key == std::to_string(position)) return;
    throw fail(path)
        .problem("an entry of a stack is missing")
        .expected("key \"", position, "\"")
        .found(base::quote(key));
  }

  /// Returns an entry of a NonTensorStack that is one value, which all rows of the entry's batch
  /// share.
  StackedValues shared_value(const Value& item, const std::string& path) const {
    const Value& data = data_of(item, path);
    const Value& batch_size = as<List>(item, path, "its item", "an array").items[1];
    return {data, 0,
            shape(as<List>(batch_size, path, "batch_size", "an array"), path, "batch_size")};
  }

  /// Returns the values of a NonTensorStack. Its entries are values and stacks of values. The
  /// document lists the values before the stacks; the key of an entry is its position in the
  /// NonTensorStack.
  StackedValues stacked_values(const Object& object, const std::string& path) {
    std::vector<std::pair<std::string, const Value*>> values;
    std::vector<std::pair<std::string, const Value*>> stacks;
    for (const auto& [key, item] :
         member<Object>(object, path, "non_tensors", "an object").members) {
      values.emplace_back(key, &item);
    }
    if (!member<Object>(object, path, "leaves", "an object").members.empty()) {
      throw fail(path).part("\"leaves\" of a stack").expected("none").found("some");
    }
    for (const auto& [key, value] : object.members) {
      if (!is_reserved_member(key)) stacks.emplace_back(key, &value);
    }
    std::vector<StackedValues> elements;
    for (auto value = values.begin(), stack = stacks.begin();
         value != values.end() || stack != stacks.end();) {
      const std::string next = std::to_string(elements.size());
      const bool is_value =
          value != values.end() && (stack == stacks.end() || value->first == next);
      const auto& [key, item] = is_value ? *value++ : *stack++;
      check_position(path, key, elements.size());
      const std::string inner = note_path_child(path, key);
      elements.push_back(is_value ? shared_value(*item, inner) : inner_stack(*item, inner));
    }
    StackedValues result;
    const auto dim = static_cast<std::size_t>(stack_dim(object, path));
    if (const auto fault = stack_values(std::move(elements), dim, repeated_bytes_, result)) {
      throw Error(*fault).path(where_).part("node ", base::quote(path));
    }
    return result;
  }

  StackedValues inner_stack(const Value& value, const std::string& path) {
    const Object& object = as<Object>(value, path, "its value", "an object");
    const std::string& cls = member<std::string>(object, path, "cls", "a string");
    if (cls == "NonTensorStack") return stacked_values(object, path);
    throw fail(path)
        .problem("an entry of a NonTensorStack has the wrong class")
        .expected("\"NonTensorStack\"")
        .found(base::quote(cls));
  }

  TensorDict lazy_stack(const Object& object, const std::string& path) {
    auto result = new_node(path);
    result->info.kind = NodeKind::lazy_stack;
    result->info.stack_dim = stack_dim(object, path);
    result->info.stack_dim_name = optional_text(
        member<Object>(object, path, "cls_metadata", "an object"), path, "stack_dim_name");
    for (const char* key : {"leaves", "non_tensors"}) {
      if (member<Object>(object, path, key, "an object").members.empty()) continue;
      throw fail(path).part(base::quote(key), " of a lazy stack").expected("none").found("some");
    }
    for (const auto& [key, value] : object.members) {
      if (is_reserved_member(key)) continue;
      check_position(path, key, result->entries.size());
      Node::Slot slot = child(value, path, key);
      if (!std::holds_alternative<TensorDict>(slot)) {
        throw fail(note_path_child(path, key))
            .problem("an entry of a lazy stack has the wrong class")
            .expected("a TensorDict, tensorclass or lazy stack")
            .found("\"NonTensorStack\"");
      }
      if (const auto fault =
              stack_dim_fault(result->info.stack_dim, key, std::get<TensorDict>(slot))) {
        throw Error(*fault).path(where_).part("node ", base::quote(path)).part("\"stack_dim\"");
      }
      add(*result, path, key, std::move(slot));
    }
    apply_extra(extra_, path, *result);
    return tensordict_of(std::move(result));
  }

  std::uint64_t data_bytes_;
  const std::shared_ptr<Leaves>& leaves_;
  const std::string& where_;
  Sidecar extra_;
  bool locked_ = false;
  std::unordered_set<std::string> unbatched_;
  std::uint64_t repeated_bytes_ = kMaxRepeatedBytes;  ///< remaining for the whole document
};

}  // namespace

bool is_reserved_member(std::string_view key) noexcept {
  return key == "cls" || key == "non_tensors" || key == "leaves" || key == "cls_metadata" ||
         key == "size";
}

bool is_tensorclass(std::string_view cls) noexcept {
  return cls.starts_with("<class '") && cls.ends_with("'>");
}

Tree build_tree(std::string_view json, std::uint64_t data_bytes,
                const std::shared_ptr<Leaves>& leaves, const std::string& where) {
  const Value document = parse_value(json, {where, "document"});
  TreeBuilder builder(data_bytes, leaves, where);
  TensorDict tree = builder.root(document);
  builder.check_overlaps();
  return {std::move(tree), builder.take_extra(), builder.locked()};
}

}  // namespace tenfold::detail::formats::consolidated

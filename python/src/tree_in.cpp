#include "tree_in.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "array_in.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "call.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"
#include "python_objects.hpp"

namespace tenfold::python {
namespace {

/// Maximum nesting depth of containers and of tuples in keys, as for JSON documents.
constexpr std::size_t kMaxDepth = 512;

std::string class_name(nb::handle object) {
  const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const std::string module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  const std::string name = nb::cast<std::string>(nb::str(type.attr("__qualname__")));
  return module == "builtins" ? name : module + "." + name;
}

nb::handle ordered_dict_type() {
  static PyObject* type =
      nb::object(nb::module_::import_("collections").attr("OrderedDict")).release().ptr();
  return type;
}

/// The str() of an integer; empty if it has more digits than Python converts.
std::optional<std::string> short_digits_of(nb::handle object) {
  const nb::object digits = nb::steal(PyObject_Str(object.ptr()));
  if (digits.is_valid()) return utf8(digits);
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw nb::python_error();
  PyErr_Clear();
  return std::nullopt;
}

/// Converts an int. Empty if the int has more digits than Python converts.
std::optional<Value> integer(nb::handle object) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return Value(static_cast<std::int64_t>(small));
  std::optional<std::string> digits = short_digits_of(object);
  if (!digits) return std::nullopt;
  return Value(Value::BigInt{*std::move(digits)});
}

}  // namespace

/// The entries of a container while it is converted.
struct TreeBuilder::Children {
  std::vector<std::pair<std::string, Converted>> entries;
  bool any_tensor = false;
};

/// Marks a container as being converted, so that a container that contains itself is an error
/// instead of an infinite recursion. During this time, force_node_ is false, because only the root
/// has to be a node.
class TreeBuilder::Entered {
 public:
  Entered(TreeBuilder& builder, nb::handle container)
      : builder_(builder), forced_(std::exchange(builder.force_node_, false)) {
    auto& open = builder.open_containers_;
    if (std::find(open.begin(), open.end(), container.ptr()) != open.end()) {
      throw builder.refuse(ErrorCode::invalid_argument)
          .problem("it contains itself")
          .expected("a tree")
          .found("a cycle");
    }
    if (open.size() >= kMaxDepth) {
      throw builder.refuse(ErrorCode::invalid_argument)
          .problem("nested too deeply")
          .expected("at most 512 levels");
    }
    open.push_back(container.ptr());
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() {
    builder_.open_containers_.pop_back();
    builder_.force_node_ = forced_;
  }

 private:
  TreeBuilder& builder_;
  bool forced_;
};

TreeBuilder::TreeBuilder(std::string path) : path_(std::move(path)) {}

base::Where TreeBuilder::where() const {
  return {path_, keys_.empty() ? "root" : "key " + base::quote(dotted(keys_))};
}

TensorDict TreeBuilder::root(nb::handle object, bool bare) {
  force_node_ = true;
  Converted converted = convert(object);
  auto* plain = std::get_if<Value>(&converted);
  TensorDict::Item item = plain != nullptr
                              ? TensorDict::Item(NonTensor{std::move(*plain), false, 0})
                              : std::get<TensorDict::Item>(std::move(converted));
  if (bare || std::holds_alternative<TensorDict>(item)) return bare_tree(std::move(item));
  throw refuse(ErrorCode::invalid_argument)
      .problem("the root must be a container")
      .expected("a dict, list, tuple, TensorDict or an object with state_dict()")
      .found(class_name(object))
      .remedy("give it a name, {\"name\": ...}");
}

TreeBuilder::Converted TreeBuilder::convert(nb::handle object) {
  PyObject* const raw = object.ptr();
  if (auto tensor = tensor_of_torch(object); tensor && !exceeds_storage(object, *tensor)) {
    Leaf leaf(std::move(*tensor));
    leaf.mark_grad(grad_of_torch(object));
    return TensorDict::Item(std::move(leaf));
  }
  if (PyUnicode_CheckExact(raw)) return Value(utf8(object));
  if (PyLong_CheckExact(raw)) {
    if (std::optional<Value> made = integer(object)) return *std::move(made);
    throw refuse(ErrorCode::unsupported).problem(long_integer(std::nullopt));
  }
  if (PyFloat_CheckExact(raw)) return Value(float_value(raw));
  if (PyBool_Check(raw)) return Value(raw == Py_True);
  if (raw == Py_None) return Value();
  if (PyDict_CheckExact(raw)) return convert_dict(object, false);
  if (PyList_CheckExact(raw)) return convert_sequence(object, false);
  if (PyTuple_CheckExact(raw)) return convert_sequence(object, true);
  if (object.type().is(ordered_dict_type())) return convert_dict(object, true);
  return convert_other(object);
}

TreeBuilder::Converted TreeBuilder::convert_other(nb::handle object) {
  const nb::tuple answer = nb::cast<nb::tuple>(
      nb::module_::import_("tenfold._interop.objects").attr("simplify")(object, memo_));
  const auto kind = nb::cast<std::string>(answer[0]);
  if (kind == "again") {
    // Without this check, the recursion would be infinite if state_dict() returns an object that
    // contains this object.
    const bool forced = force_node_;
    const Entered entered(*this, object);
    force_node_ = forced;
    return convert(answer[1]);
  }
  if (kind == "special") {
    const Entered entered(*this, object);
    return special(answer[1], answer[2], answer[3]);
  }
  if (kind == "value") {
    const Entered entered(*this, object);
    return TensorDict::Item(NonTensor{value(answer[1]), false, 0});
  }
  if (kind == "stack") {
    const Entered entered(*this, object);
    return TensorDict::Item(NonTensor{value(answer[1]), true, nb::cast<std::int64_t>(answer[2]),
                                      utf8(nb::cast<nb::str>(answer[3]))});
  }
  if (kind == "node") return TensorDict::Item(node(object, answer[1], answer[2], answer[3]));
  if (kind == "native") return TensorDict::Item(native(object, answer[1], answer[2]));
  if (kind == "refused") {
    throw refuse(ErrorCode::unsupported)
        .problem("it cannot be stored")
        .expected(utf8(answer[1]))
        .found(utf8(answer[2]))
        .remedy(utf8(answer[3]));
  }
  if (kind == "item") return nb::cast<ItemHandle&>(answer[1]).item;
  if (kind == "nested") return TensorDict::Item(nested(answer[1], answer[2]));
  if (kind == "unbatched") {
    Leaf unbatched = leaf(answer[1]);
    unbatched.mark_unbatched();
    return TensorDict::Item(std::move(unbatched));
  }
  std::optional<Tensor> tensor;
  if (kind == "tensor") tensor = tensor_of_torch(answer[1]);
  if (kind == "capsule") tensor = tensor_of_capsule(answer[1]);
  if (kind == "memory") {
    tensor = tensor_of_memory(nb::cast<std::uintptr_t>(answer[1]),
                              dtype_from(nb::cast<std::string>(answer[2])), shape_from(answer[3]),
                              shape_from(answer[4]), nb::cast<bool>(answer[5]), answer[6]);
  }
  if (!tensor) {
    throw refuse(ErrorCode::unsupported)
        .problem("its bytes are not accessible")
        .expected("a dense array in main memory")
        .found(class_name(object));
  }
  Leaf made(std::move(*tensor));
  if (is_torch_tensor(object)) made.mark_grad(grad_of_torch(object));
  return TensorDict::Item(std::move(made));
}

std::optional<Tensor> tensor_of_any_torch(nb::handle object) {
  auto shared = tensor_of_torch(object);
  if (shared && !exceeds_storage(object, *shared)) return shared;
  if (!is_torch_tensor(object)) return std::nullopt;
  nb::list holder;
  holder.append(object);
  const TensorDict::Item item = TreeBuilder("").root(holder, false).get("0");
  const auto* leaf = std::get_if<Leaf>(&item);
  if (leaf == nullptr || leaf->is_nested()) return std::nullopt;
  return leaf->tensor();
}

void TreeBuilder::add(Children& children, std::string key, nb::handle object) {
  keys_.push_back(std::move(key));
  Converted converted = convert(object);
  children.any_tensor |= std::holds_alternative<TensorDict::Item>(converted);
  children.entries.emplace_back(std::move(keys_.back()), std::move(converted));
  keys_.pop_back();
}

std::optional<Value> typed_key(nb::handle key, std::size_t depth) {
  PyObject* const raw = key.ptr();
  if (raw == Py_None) return Value();
  if (PyBool_Check(raw)) return Value(raw == Py_True);
  if (PyLong_CheckExact(raw)) {
    if (std::optional<Value> made = integer(key)) return made;
    throw base::unsupported().part("key").problem(long_integer(std::nullopt));
  }
  if (PyFloat_CheckExact(raw)) return Value(float_value(raw));
  if (!PyTuple_CheckExact(raw)) return std::nullopt;
  if (depth >= kMaxDepth) {
    throw base::invalid_argument()
        .part("key")
        .problem("nested too deeply")
        .expected("at most 512 levels");
  }
  Value::Tuple tuple;
  for (const nb::handle part : nb::borrow<nb::tuple>(key)) {
    std::optional<Value> made =
        PyUnicode_CheckExact(part.ptr()) ? Value(utf8(part)) : typed_key(part, depth + 1);
    if (!made) return std::nullopt;
    tuple.items.push_back(*std::move(made));
  }
  return Value(std::move(tuple));
}

/// Converts a key to a string, and records its type in `keys`.
std::string TreeBuilder::key_of(nb::handle key, KeyTypes& keys) const {
  PyObject* const raw = key.ptr();
  if (PyUnicode_Check(raw)) {
    keys.add_text();
    return utf8(key);
  }
  if (PyLong_CheckExact(raw)) {
    keys.add_int();
    if (std::optional<std::string> digits = short_digits_of(key)) return *std::move(digits);
    throw refuse(ErrorCode::unsupported).part("key").problem(long_integer(std::nullopt));
  }
  std::optional<Value> typed;
  try {
    typed = typed_key(key);
  } catch (const Error& error) {
    throw Error(error).within(where().part).path(path_);
  }
  if (!typed) {
    throw refuse(ErrorCode::invalid_argument)
        .problem("its keys cannot be stored")
        .expected("str, int, float, bool, None or tuples of these")
        .found(utf8(nb::repr(key)), " of type ", class_name(key));
  }
  std::string made = key_text(*typed);
  keys.add(made, *std::move(typed));
  return made;
}

/// Sets the key types of `info`. Throws if two keys are equal, or if two different keys have the
/// same string.
void TreeBuilder::set_keys(const Children& children, KeyTypes keys, NodeInfo& info) const {
  const auto text_at = [&](std::size_t i) -> const std::string& {
    return children.entries[i].first;
  };
  const bool are_different = std::move(keys).finish(info, text_at);
  if (are_different && info.typed_keys.empty()) return;
  std::unordered_set<std::string_view> seen;
  for (const auto& [text, converted] : children.entries) {
    if (seen.insert(text).second) continue;
    throw refuse(ErrorCode::invalid_argument)
        .problem("two of its keys are ", base::quote(text), " as a str, and keys are stored as str")
        .expected("keys with different str()");
  }
  if (!are_different)
    throw refuse(ErrorCode::invalid_argument).problem("two of its keys are equal");
}

TreeBuilder::Converted TreeBuilder::convert_dict(nb::handle dict, bool ordered) {
  NodeInfo info;
  info.kind = ordered ? NodeKind::ordered_dict : NodeKind::dict;
  Children children;
  {
    const Entered entered(*this, dict);
    // Iterate over a copy, because conversion may run Python code that changes the dict.
    const nb::object items = nb::steal(PyMapping_Items(dict.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    KeyTypes keys;
    for (const nb::handle item : items) {
      const nb::object key = item[0];
      std::string name = key_of(key, keys);
      add(children, std::move(name), item[1]);
    }
    set_keys(children, std::move(keys), info);
    if (ordered) info.module_versions = module_versions(dict);
  }
  return finish(std::move(children), std::move(info));
}

/// The versions of modules, which Module.state_dict() attaches to its result as `_metadata`.
std::optional<Value> TreeBuilder::module_versions(nb::handle dict) {
  const nb::object attached = nb::getattr(dict, "_metadata", nb::none());
  if (!PyDict_Check(attached.ptr())) return std::nullopt;
  Value versions = value(attached);
  auto* object = std::get_if<Value::Object>(&versions.data());
  if (object == nullptr) return std::nullopt;
  object->ordered = false;
  return versions;
}

TreeBuilder::Converted TreeBuilder::convert_sequence(nb::handle sequence, bool is_tuple) {
  NodeInfo info;
  info.kind = is_tuple ? NodeKind::tuple : NodeKind::list;
  Children children;
  {
    const Entered entered(*this, sequence);
    const nb::object items = nb::steal(PySequence_Tuple(sequence.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    std::size_t position = 0;
    for (const nb::handle item : items) add(children, std::to_string(position++), item);
  }
  return finish(std::move(children), std::move(info));
}

void TreeBuilder::put_all(TensorDict& node, Children& children) {
  node_of(node)->entries.reserve(children.entries.size());
  for (auto& [key, converted] : children.entries) put(node, std::move(key), std::move(converted));
}

// Appends to the list of entries directly: the keys of a container are unique, and looking up each
// key would take most of the time for a large dict.
void TreeBuilder::put(TensorDict& node, std::string key, Converted converted) {
  Node::Slot slot = NonTensor{};
  if (auto* plain = std::get_if<Value>(&converted)) {
    slot = NonTensor{std::move(*plain), false, 0};
  } else {
    std::visit([&slot](auto& held) { slot = std::move(held); },
               std::get<TensorDict::Item>(converted));
  }
  node_of(node)->entries.push_back({std::move(key), std::move(slot)});
}

TreeBuilder::Converted TreeBuilder::finish(Children children, NodeInfo info) {
  if (children.any_tensor || force_node_ || info.module_versions) {
    TensorDict made(std::move(info));
    put_all(made, children);
    return TensorDict::Item(std::move(made));
  }
  if (info.kind == NodeKind::dict || info.kind == NodeKind::ordered_dict) {
    Value::Object object;
    object.int_keys = info.int_keys;
    object.typed_keys = std::move(info.typed_keys);
    object.ordered = info.kind == NodeKind::ordered_dict;
    for (auto& [key, converted] : children.entries) {
      object.members.emplace_back(std::move(key), std::get<Value>(std::move(converted)));
    }
    return Value(std::move(object));
  }
  std::vector<Value> items;
  for (auto& [key, converted] : children.entries) {
    items.push_back(std::get<Value>(std::move(converted)));
  }
  if (info.kind == NodeKind::tuple) return Value(Value::Tuple{std::move(items)});
  return Value(Value::List{std::move(items)});
}

TensorDict TreeBuilder::node(nb::handle object, nb::handle info, nb::handle keys,
                             nb::handle values) {
  const Entered entered(*this, object);
  TensorDict made(node_info_from(info));
  Children children;
  const nb::tuple objects = nb::tuple(nb::borrow(values));
  std::size_t position = 0;
  for (const nb::handle key : keys) add(children, utf8(key), objects[position++]);
  put_all(made, children);
  // Entries may have been added or removed since `info` was read.
  fit_int_keys(made.info(), made.keys());
  std::erase_if(made.info().typed_keys,
                [&](const auto& typed) { return !has_key(made, typed.first); });
  return made;
}

TensorDict TreeBuilder::native(nb::handle object, nb::handle handle, nb::handle overrides) {
  const Entered entered(*this, object);
  const TensorDict& source = nb::cast<NodeHandle&>(handle).node;
  const nb::dict replaced = nb::cast<nb::dict>(overrides);
  if (replaced.size() == 0) return source;
  TensorDict made(source.info());
  for (const std::string& key : without_gil([&] { return source.keys(); })) {
    const nb::str name = text(key);
    if (!replaced.contains(name)) {
      Converted kept = without_gil([&] { return item_at_key(source, key); });
      put(made, key, std::move(kept));
      continue;
    }
    Children children;
    add(children, key, replaced[name]);
    put(made, key, std::move(children.entries.front().second));
  }
  return made;
}

Leaf TreeBuilder::leaf(nb::handle object) {
  Converted converted = convert(object);
  if (auto* item = std::get_if<TensorDict::Item>(&converted)) {
    if (auto* found = std::get_if<Leaf>(item)) return std::move(*found);
  }
  throw refuse(ErrorCode::invalid_argument).expected("a tensor").found(class_name(object));
}

Leaf TreeBuilder::nested(nb::handle values, nb::handle sizes) {
  return Leaf::nested(leaf(values).tensor().contiguous(), leaf(sizes).tensor().contiguous());
}

Value TreeBuilder::special(nb::handle name, nb::handle description, nb::handle items) {
  Value::Special made;
  made.type = *special_type_from_name(utf8(name));
  made.text = PyBytes_Check(description.ptr())
                  ? std::string(nb::cast<nb::bytes>(description).c_str(),
                                nb::cast<nb::bytes>(description).size())
                  : utf8(description);
  for (const nb::handle item : items) made.items.push_back(value(item));
  return made;
}

Value TreeBuilder::value(nb::handle object) {
  Converted converted = convert(object);
  if (auto* plain = std::get_if<Value>(&converted)) return std::move(*plain);
  throw refuse(ErrorCode::unsupported)
      .problem("it cannot be stored as JSON")
      .expected("a value without tensors")
      .found(class_name(object));
}

}  // namespace tenfold::python

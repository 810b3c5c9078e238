#include "formats/safetensors/tree.hpp"

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/safetensors/stack.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

/// The structure document, which tensordict's `to_safetensors` stores in
/// `__metadata__["tensordict"]`:
///
///   {"version": 1, "root": LEVEL}
///   LEVEL = {"batch_size": [...], "names": [...] or null, "stack_dim"?: int, "class"?: str,
///            "keys": {key: {"tensor": name, "unbatched"?: true} | {"non_tensor": json}
///                          | {"td": LEVEL}}}
///
/// A level with "stack_dim" is a lazy stack, whose tensors are stored stacked (stack.hpp). The
/// levels below it that have the same "stack_dim" are nodes of its entries.
/// tensordict ignores unknown members. tenfold adds three: "device" (in a level), "lazy_stack"
/// {"stack_dim", "name"} (in a level whose keys "0", "1", ... are the entries of a lazy stack that
/// tensordict cannot save), "stack_dim" (next to "non_tensor": a NonTensorStack).
struct StructureLevel {
  struct Entry {
    std::string key;
    /// The tensor's name, a JSON value, or a level; monostate until one is parsed.
    std::variant<std::monostate, std::string, NonTensor, std::unique_ptr<StructureLevel>> what;
    bool unbatched = false;
    std::optional<std::int64_t> stack_dim;
  };
  Shape batch_size;
  DimNames names;
  std::optional<std::int64_t> stack_dim;
  std::string class_name;
  std::string device;
  bool is_lazy_stack = false;  ///< has "lazy_stack": the keys are the entries of a lazy stack
  std::int64_t lazy_stack_dim = 0;
  std::optional<std::string> lazy_stack_name;
  std::vector<Entry> entries;
  bool has_batch_size = false;
  bool has_keys = false;
};

constexpr std::int64_t kVersion = 1;

/// The meaning of the next value in the document.
enum class Target : std::uint8_t {
  document,
  version,
  root,
  batch_size,
  names,
  stack_dim,
  class_name,
  device,
  lazy_stack,
  lazy_stack_dim,
  lazy_stack_name,
  keys,
  entry,
  tensor,
  unbatched,
  non_tensor,
  non_tensor_stack_dim,
  td,
  length,  ///< an item of batch_size
  name,    ///< an item of names
  skip,
};

std::string_view member_of(Target target) noexcept {
  switch (target) {
    case Target::document:
      return "the document";
    case Target::version:
      return "\"version\"";
    case Target::root:
      return "\"root\"";
    case Target::batch_size:
      return "\"batch_size\"";
    case Target::names:
      return "\"names\"";
    case Target::stack_dim:
    case Target::lazy_stack_dim:
    case Target::non_tensor_stack_dim:
      return "\"stack_dim\"";
    case Target::class_name:
      return "\"class\"";
    case Target::device:
      return "\"device\"";
    case Target::lazy_stack:
      return "\"lazy_stack\"";
    case Target::lazy_stack_name:
      return "\"name\"";
    case Target::keys:
      return "\"keys\"";
    case Target::entry:
      return "an entry";
    case Target::tensor:
      return "\"tensor\"";
    case Target::unbatched:
      return "\"unbatched\"";
    case Target::non_tensor:
      return "\"non_tensor\"";
    case Target::td:
      return "\"td\"";
    case Target::length:
      return "an item of \"batch_size\"";
    case Target::name:
      return "an item of \"names\"";
    case Target::skip:
      break;
  }
  return "a member";
}

std::string_view type_of(Target target) noexcept {
  switch (target) {
    case Target::stack_dim:
      return "an integer from 0 to 63, or null";
    case Target::lazy_stack_dim:
    case Target::non_tensor_stack_dim:
      return "an integer from 0 to 63";
    case Target::version:
    case Target::length:
      return "an integer from 0";
    case Target::batch_size:
      return "an array";
    case Target::names:
      return "an array or null";
    case Target::device:
    case Target::tensor:
      return "a string";
    case Target::class_name:
    case Target::lazy_stack_name:
    case Target::name:
      return "a string or null";
    case Target::unbatched:
      return "a boolean";
    default:
      return "an object";
  }
}

class StructureHandler final : public codecs::JsonHandler {
 public:
  explicit StructureHandler(const base::Where& where) : where_(where), builder_(where_) {}

  std::unique_ptr<StructureLevel> take() {
    if (!root_) fail("\"root\" is missing", "an object", "none");
    if (!has_version_) fail("\"version\" is missing", "1", "none");
    return std::move(root_);
  }

  void null() override {
    if (build([&] { builder_.null(); }) || skipped()) return;
    switch (target_) {
      case Target::names:
      case Target::stack_dim:
      case Target::class_name:
      case Target::lazy_stack_name:
        return;
      case Target::name:
        level().names.emplace_back(std::nullopt);
        return;
      default:
        wrong_type("null");
    }
  }
  void boolean(bool value) override {
    if (build([&] { builder_.boolean(value); }) || skipped()) return;
    if (target_ != Target::unbatched) wrong_type(value ? "true" : "false");
    entry().unbatched = value;
  }
  void integer(std::int64_t value) override {
    if (build([&] { builder_.integer(value); }) || skipped()) return;
    set_integer(value);
  }
  void big_integer(std::string_view digits) override {
    if (build([&] { builder_.big_integer(digits); }) || skipped()) return;
    wrong_type(digits);
  }
  void number(double value) override {
    if (build([&] { builder_.number(value); }) || skipped()) return;
    wrong_type("a floating-point number");
  }
  void string(std::string_view value) override {
    if (build([&] { builder_.string(value); }) || skipped()) return;
    switch (target_) {
      case Target::class_name:
        level().class_name = value;
        return;
      case Target::device:
        level().device = value;
        return;
      case Target::lazy_stack_name:
        level().lazy_stack_name = std::string(value);
        return;
      case Target::name:
        level().names.emplace_back(std::string(value));
        return;
      case Target::tensor:
        set_what(std::string(value));
        return;
      default:
        wrong_type("a string");
    }
  }
  void begin_object() override {
    if (build([&] { builder_.begin_object(); }) || enter_skipped()) return;
    switch (target_) {
      case Target::document:
      case Target::lazy_stack:
      case Target::keys:
        if (target_ == Target::keys) {
          if (level().has_keys) fail("\"keys\" is duplicated", "it once", "two");
          level().has_keys = true;
        }
        if (target_ == Target::lazy_stack) level().is_lazy_stack = true;
        containers_.push_back(target_);
        return;
      case Target::root:
        root_ = std::make_unique<StructureLevel>();
        begin_level(*root_);
        return;
      case Target::entry:
        level().entries.push_back({std::move(key_), {}, false, {}});
        containers_.push_back(target_);
        return;
      case Target::td: {
        auto next = std::make_unique<StructureLevel>();
        StructureLevel& inner = *next;
        set_what(std::move(next));
        begin_level(inner);
        return;
      }
      default:
        wrong_type("an object");
    }
  }
  void key(std::string_view value) override {
    if (build([&] { builder_.key(value); }) || skip_depth_ > 0) return;
    switch (containers_.back()) {
      case Target::document:
        target_ = value == "version" ? Target::version
                  : value == "root"  ? Target::root
                                     : Target::skip;
        if (target_ == Target::root && root_) fail("\"root\" is duplicated", "it once", "two");
        return;
      case Target::td:
        target_ = level_member(value);
        return;
      case Target::keys:
        key_ = value;
        target_ = Target::entry;
        return;
      case Target::entry:
        target_ = entry_member(value);
        return;
      default:
        target_ = value == "stack_dim" ? Target::lazy_stack_dim
                  : value == "name"    ? Target::lazy_stack_name
                                       : Target::skip;
    }
  }
  void end_object() override {
    if (build([&] { builder_.end_object(); }) || leave_skipped()) return;
    if (containers_.back() == Target::entry) end_entry();
    if (containers_.back() == Target::td) end_level();
    containers_.pop_back();
  }
  void begin_array() override {
    if (build([&] { builder_.begin_array(); }) || enter_skipped()) return;
    if (target_ == Target::batch_size) {
      if (level().has_batch_size) fail("\"batch_size\" is duplicated", "it once", "two");
      level().has_batch_size = true;
      target_ = Target::length;
    } else if (target_ == Target::names) {
      level().names.clear();
      target_ = Target::name;
    } else {
      wrong_type("an array");
    }
  }
  void end_array() override {
    if (build([&] { builder_.end_array(); })) return;
    leave_skipped();
  }

 private:
  StructureLevel& level() { return *levels_.back(); }
  StructureLevel::Entry& entry() { return level().entries.back(); }

  /// Passes the event to the JSON value that is being built; returns false if there is none.
  template <class Event>
  bool build(const Event& event) {
    if (target_ != Target::non_tensor) return false;
    event();
    if (builder_.done()) {
      set_what(NonTensor{builder_.take()});
      target_ = Target::skip;
    }
    return true;
  }

  bool skipped() const { return target_ == Target::skip; }
  bool enter_skipped() {
    if (target_ != Target::skip) return false;
    ++skip_depth_;
    return true;
  }
  bool leave_skipped() {
    if (skip_depth_ == 0) return false;
    --skip_depth_;
    return true;
  }

  void begin_level(StructureLevel& next) {
    levels_.push_back(&next);
    containers_.push_back(Target::td);
  }

  static Target level_member(std::string_view key) {
    if (key == "keys") return Target::keys;
    if (key == "batch_size") return Target::batch_size;
    if (key == "names") return Target::names;
    if (key == "stack_dim") return Target::stack_dim;
    if (key == "class") return Target::class_name;
    if (key == "device") return Target::device;
    if (key == "lazy_stack") return Target::lazy_stack;
    return Target::skip;
  }

  static Target entry_member(std::string_view key) {
    if (key == "tensor") return Target::tensor;
    if (key == "td") return Target::td;
    if (key == "non_tensor") return Target::non_tensor;
    if (key == "unbatched") return Target::unbatched;
    if (key == "stack_dim") return Target::non_tensor_stack_dim;
    return Target::skip;
  }

  void set_integer(std::int64_t value) {
    if (target_ == Target::version) {
      if (value != kVersion) {
        throw base::unsupported(where_).problem("unknown version").expected(kVersion).found(value);
      }
      has_version_ = true;
      return;
    }
    const bool is_stack_dim = target_ == Target::stack_dim || target_ == Target::lazy_stack_dim ||
                              target_ == Target::non_tensor_stack_dim;
    if ((is_stack_dim || target_ == Target::length) &&
        (value < 0 || (is_stack_dim && value > kMaxStackDim))) {
      fail(std::string(member_of(target_)) + " is out of range", type_of(target_),
           std::to_string(value));
    }
    switch (target_) {
      case Target::length:
        level().batch_size.push_back(value);
        return;
      case Target::stack_dim:
        level().stack_dim = value;
        return;
      case Target::lazy_stack_dim:
        level().lazy_stack_dim = value;
        return;
      case Target::non_tensor_stack_dim:
        entry().stack_dim = value;
        return;
      default:
        wrong_type("an integer");
    }
  }

  template <class What>
  void set_what(What what) {
    if (!std::holds_alternative<std::monostate>(entry().what)) {
      fail("has more than one content", "one of \"tensor\", \"non_tensor\" and \"td\"", "two");
    }
    entry().what = std::move(what);
  }

  void end_entry() {
    if (std::holds_alternative<std::monostate>(entry().what)) {
      fail("has no content", "one of \"tensor\", \"non_tensor\" and \"td\"", "none");
    }
    if (auto* value = std::get_if<NonTensor>(&entry().what); value && entry().stack_dim) {
      value->is_stack = true;
      value->stack_dim = *entry().stack_dim;
    }
  }

  void end_level() {
    if (!level().has_batch_size) fail("\"batch_size\" is missing", "an array", "none");
    if (!level().has_keys) fail("\"keys\" is missing", "an object", "none");
    if (!level().names.empty() && level().names.size() != level().batch_size.size()) {
      fail("\"names\" does not fit",
           "one for each of the " + std::to_string(level().batch_size.size()) + " batch dimensions",
           std::to_string(level().names.size()));
    }
    if (level().stack_dim &&
        static_cast<std::uint64_t>(*level().stack_dim) >= level().batch_size.size()) {
      fail("\"stack_dim\" does not fit",
           "a dimension of batch_size " + base::list_text(level().batch_size),
           std::to_string(*level().stack_dim));
    }
    levels_.pop_back();
  }

  [[noreturn]] void wrong_type(std::string_view found) {
    fail(std::string(member_of(target_)) + " has the wrong type", type_of(target_), found);
  }

  [[noreturn]] void fail(std::string_view what, std::string_view expected, std::string_view found) {
    std::string path;
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      path = note_path_child(path, levels_[i]->entries.back().key);
    }
    if (!containers_.empty() && containers_.back() == Target::entry) {
      path = note_path_child(path, entry().key);
    } else if (target_ == Target::entry) {
      path = note_path_child(path, key_);
    }
    throw base::corrupt(where_)
        .part("node ", base::quote(path))
        .problem(what)
        .expected(expected)
        .found(found);
  }

  base::Where where_;
  ValueBuilder builder_;
  Target target_ = Target::document;
  std::vector<Target> containers_;  ///< open containers; td for every level, including the root
  std::vector<StructureLevel*> levels_;
  std::unique_ptr<StructureLevel> root_;
  std::string key_;
  std::size_t skip_depth_ = 0;
  bool has_version_ = false;
};

/// Parses the document. Throws Error(corrupt) if it is invalid, and Error(unsupported) for an
/// unknown version. `where` names the file and the member of `__metadata__`.
std::unique_ptr<StructureLevel> parse_structure(std::string_view text, const base::Where& where) {
  StructureHandler handler(where);
  codecs::parse_json(text, where, handler);
  return handler.take();
}

}  // namespace

bool is_reserved_member(std::string_view key) noexcept {
  return key == kStructureMember || key == kNotesMember || key == kChecksumsMember ||
         key == kBoxesMember || key == kOrderMember || key == kFormatMember ||
         key == kTotalSizeMember;
}

std::uint32_t TensorEntries::find(std::string_view wanted) const {
  return index.find(wanted, [this](std::uint32_t row) { return name(row); });
}

Leaf TensorEntries::leaf(std::size_t row) const {
  const File& file = files[rows[row].file];
  const std::uint32_t entry = rows[row].entry;
  const auto shape = file.header->shape(entry);
  return stored_leaf(file.header->entries[entry].dtype, Shape(shape.begin(), shape.end()),
                     file.source, entry);
}

namespace {

constexpr std::uint64_t kBytesPerStackItem = 1024;
/// Memory that one dimension needs in the shapes, names and strides of a node or tensor, in bytes.
constexpr std::uint64_t kBytesPerDim = 64;

std::uint64_t memory_of(const Value& value) noexcept {
  std::uint64_t bytes = sizeof(Value);
  if (const auto* text = value.get_if<std::string>()) bytes += text->size();
  if (const auto* number = value.get_if<Value::BigInt>()) bytes += number->digits.size();
  if (const auto* list = value.get_if<Value::List>()) {
    for (const Value& item : list->items) bytes += memory_of(item);
  }
  if (const auto* object = value.get_if<Value::Object>()) {
    for (const auto& [key, item] : object->members) {
      bytes += sizeof(std::string) + key.size() + memory_of(item);
    }
  }
  return bytes;
}

std::vector<std::string> keys_of(const Node& node) {
  std::vector<std::string> keys;
  keys.reserve(node.entries.size());
  for (const Node::Entry& entry : node.entries) keys.push_back(entry.key);
  return keys;
}

void apply_notes_to(const Notes& notes, std::string_view path, Node& node,
                    const base::Where& notes_where) {
  if (notes.nodes.empty()) return;
  apply_node_note(notes, path, keys_of(node), node.info, notes_where);
}

/// Parses "2 0 1" as a permutation of [0, count). Returns nullopt if the text is not a permutation.
std::optional<std::vector<std::size_t>> parse_order(std::string_view text, std::size_t count) {
  std::vector<std::size_t> order;
  std::vector<bool> seen(count);
  order.reserve(count);
  while (!text.empty()) {
    std::size_t position = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
    if (error != std::errc() || position >= count || seen[position]) return std::nullopt;
    seen[position] = true;
    order.push_back(position);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && text.front() != ' ') return std::nullopt;
    if (!text.empty()) text.remove_prefix(1);
  }
  if (order.size() != count) return std::nullopt;
  return order;
}

/// True if a metadata member of a flat file describes an alias, as safetensors' save_model writes
/// it: the tensor with the name `key` is stored under the name `text`.
bool is_alias(const TensorEntries& tensors, std::string_view key, std::string_view text) {
  return !is_reserved_member(key) && tensors.find(text) != KeyIndex::kNone &&
         tensors.find(key) == KeyIndex::kNone;
}

/// Builds the tree of a file without structure document: a flat dict with the names of the tensors
/// and aliases as keys.
TensorDict build_flat(TensorEntries tensors, const Metadata& metadata, const Notes& notes,
                      const base::Where& notes_where, const std::string& where) {
  auto node = std::make_shared<Node>();
  node->where = where;
  node->entries.reserve(tensors.rows.size());
  for (std::size_t row = 0; row < tensors.rows.size(); ++row) {
    node->entries.push_back({std::string(tensors.name(row)), tensors.leaf(row)});
  }
  for (const auto& [dropped, kept] : metadata) {
    if (!is_alias(tensors, dropped, kept)) continue;
    node->entries.push_back({dropped, tensors.leaf(tensors.find(kept))});
  }
  const bool plain = node->entries.size() == tensors.rows.size();
  const auto order_text = metadata.find(kOrderMember);
  if (order_text != metadata.end()) {
    const auto order = parse_order(order_text->second, node->entries.size());
    if (order) {
      std::vector<Node::Entry> ordered;
      ordered.reserve(order->size());
      for (const std::size_t position : *order) {
        ordered.push_back(std::move(node->entries[position]));
      }
      node->entries = std::move(ordered);
    } else {
      warn(where + ": __metadata__ \"tenfold_order\": ignored: expected each of " +
           std::to_string(node->entries.size()) +
           " positions once, found others; another tool may have changed the file");
    }
  } else if (plain) {
    node->index = std::move(tensors.index);
  }
  apply_notes_to(notes, "", *node, notes_where);
  if (node->info.kind == NodeKind::tensordict) node->info.kind = NodeKind::dict;
  return tensordict_of(std::move(node));
}

/// Builds nodes according to a structure document.
class TreeBuilder {
 public:
  TreeBuilder(const TensorEntries& tensors, const Notes& notes, const base::Where& notes_where,
              const std::string& file, const base::Where& where)
      : tensors_(tensors),
        notes_(notes),
        notes_where_(notes_where),
        file_(file),
        where_(where),
        used_(tensors.rows.size()) {}

  TensorDict root(StructureLevel& level) {
    TensorDict tree = node(level, "", {});
    add_unused(*node_of(tree));
    return tree;
  }

 private:
  TensorDict node(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    if (level.stack_dim) {
      for (const auto& [dim, index] : fixed) {
        // If an enclosing lazy stack has fixed this dimension, the level is a node of one entry.
        if (dim == *level.stack_dim) return dense(level, path, fixed);
      }
      return stack(level, path, fixed);
    }
    return dense(level, path, fixed);
  }

  TensorDict stack(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    const auto dim = static_cast<std::size_t>(*level.stack_dim);
    auto result = new_node(path);
    result->info.kind = NodeKind::lazy_stack;
    result->info.stack_dim = *level.stack_dim;
    for (const auto& item : fixed) {
      if (item.first < *level.stack_dim) --result->info.stack_dim;
    }
    if (!level.names.empty()) result->info.stack_dim_name = level.names[dim];
    const auto num_parts = static_cast<std::uint64_t>(level.batch_size[dim]);
    count(path, num_parts);
    for (std::uint64_t i = 0; i < num_parts; ++i) {
      FixedDims inner = fixed;
      auto at = inner.begin();
      while (at != inner.end() && at->first < *level.stack_dim) ++at;
      inner.insert(at, {*level.stack_dim, static_cast<std::int64_t>(i)});
      const std::string key = std::to_string(i);
      result->entries.push_back({key, dense(level, note_path_child(path, key), inner)});
    }
    return tensordict_of(std::move(result));
  }

  TensorDict dense(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    if (!fixed.empty()) {
      count(path, extra_stack_items(path_bytes_, level.batch_size.size(), level.names,
                                    level.class_name, level.device));
    }
    auto result = new_node(path);
    set_info(level, path, fixed, result->info);
    result->entries.reserve(level.entries.size());
    const std::uint64_t path_bytes = path_bytes_;
    for (StructureLevel::Entry& entry : level.entries) {
      if (!fixed.empty()) count(path, items_of(entry));
      path_bytes_ = child_path_bytes(path_bytes, entry.key);
      const std::string child = note_path_child(path, entry.key);
      if (!append(*result, entry.key, slot(level, entry, child, fixed))) {
        throw fail(child).problem("the key is duplicated").expected("it once").found("two");
      }
    }
    path_bytes_ = path_bytes;
    if (level.is_lazy_stack) check_entries(*result, path);
    apply_notes_to(notes_, path, *result, notes_where_);
    return tensordict_of(std::move(result));
  }

  /// Adds items to the count that kMaxStackItems limits, before the items are made.
  void count(const std::string& path, std::uint64_t num_items) {
    if (num_items > kMaxStackItems - num_stack_items_) too_many(path);
    num_stack_items_ += num_items;
  }

  std::uint64_t items_of(const StructureLevel::Entry& entry) const {
    std::size_t rank = 0;
    if (const auto* name = std::get_if<std::string>(&entry.what)) {
      const std::uint32_t row = tensors_.find(*name);
      if (row != KeyIndex::kNone) {
        rank = tensors_.header(row).shape(tensors_.rows[row].entry).size();
      }
    }
    const auto* value = std::get_if<NonTensor>(&entry.what);
    return stack_items(entry.key, rank, value == nullptr ? nullptr : &value->value);
  }

  void check_entries(Node& stack, const std::string& path) const {
    for (std::size_t i = 0; i < stack.entries.size(); ++i) {
      const std::string& key = stack.entries[i].key;
      const auto fault = stack_dim_fault(stack.info.stack_dim, key, stack.item(i));
      if (!fault) continue;
      throw Error(*fault)
          .path(where_.path)
          .part(where_.part)
          .part("node ", base::quote(path))
          .part("\"stack_dim\"");
    }
  }

  void set_info(const StructureLevel& level, const std::string& path, const FixedDims& fixed,
                NodeInfo& info) const {
    info.batch_size = level.batch_size;
    info.names = level.names;
    info.device = level.device;
    if (!info.device.empty() && !is_torch_device(info.device)) {
      throw fail(path)
          .part("\"device\"")
          .expected("a type and optionally an index of at most 127, as in \"cuda:0\"")
          .found(base::quote(info.device));
    }
    for (auto item = fixed.rbegin(); item != fixed.rend(); ++item) {
      const auto dim = static_cast<std::size_t>(item->first);
      if (dim >= info.batch_size.size()) continue;
      if (info.batch_size[dim] <= item->second) {
        throw fail(path)
            .problem("batch_size does not fit the stack")
            .expected("more than ", item->second, " in dimension ", dim)
            .found(info.batch_size[dim]);
      }
      info.batch_size.erase(info.batch_size.begin() + item->first);
      if (!info.names.empty()) info.names.erase(info.names.begin() + item->first);
    }
    // All None means that there are no names.
    bool named = false;
    for (const auto& name : info.names) named = named || name.has_value();
    if (!named) info.names.clear();
    if (level.is_lazy_stack) {
      info = NodeInfo{};
      info.kind = NodeKind::lazy_stack;
      info.stack_dim = level.lazy_stack_dim;
      info.stack_dim_name = level.lazy_stack_name;
    } else if (!level.class_name.empty()) {  // for a stack, the class of each entry
      info.kind = NodeKind::tensorclass;
      info.class_name = level.class_name;
    }
  }

  Node::Slot slot(const StructureLevel& level, StructureLevel::Entry& entry,
                  const std::string& path, const FixedDims& fixed) {
    if (const auto* name = std::get_if<std::string>(&entry.what)) {
      return leaf(level, entry, *name, path, fixed);
    }
    if (const auto* value = std::get_if<NonTensor>(&entry.what)) {
      NonTensor copy = *value;
      apply_value_note(notes_, path, copy.value, notes_where_);
      return copy;
    }
    StructureLevel& inner = *std::get<std::unique_ptr<StructureLevel>>(entry.what);
    TensorDict child = node(inner, path, fixed);
    if (level.is_lazy_stack && child.kind() != NodeKind::tensordict &&
        child.kind() != NodeKind::tensorclass && child.kind() != NodeKind::lazy_stack) {
      throw fail(path)
          .problem("an entry of a lazy stack has the wrong kind")
          .expected("\"tensordict\", \"tensorclass\" or \"lazy_stack\"")
          .found(base::quote(tenfold::to_string(child.kind())));
    }
    return child;
  }

  Leaf leaf(const StructureLevel& level, const StructureLevel::Entry& entry,
            const std::string& name, const std::string& path, const FixedDims& fixed) {
    const std::uint32_t row = tensors_.find(name);
    if (row == KeyIndex::kNone) {
      throw fail(path)
          .problem("no such tensor")
          .expected("a tensor of the file")
          .found(base::quote(name));
    }
    used_[row] = true;
    Leaf leaf = tensors_.leaf(row);
    if (entry.unbatched) {
      leaf.mark_unbatched();
      return leaf;
    }
    const Shape& shape = leaf.shape();
    if (!starts_with(shape, level.batch_size)) {
      throw fail(path)
          .problem("the shape of tensor ", base::quote(name), " does not fit")
          .expected("it to start with the batch_size ", base::list_text(level.batch_size))
          .found(base::list_text(shape));
    }
    if (fixed.empty()) return leaf;
    for (const auto& [dim, index] : fixed) {
      if (static_cast<std::size_t>(dim) >= shape.size() ||
          shape[static_cast<std::size_t>(dim)] <= index) {
        throw fail(path)
            .problem("the shape of tensor ", base::quote(name), " does not fit the stack")
            .expected("more than ", index, " in dimension ", dim)
            .found(base::list_text(shape));
      }
    }
    return slice_leaf(leaf, fixed);
  }

  /// Adds to the root the tensors that are in the file, but not in the structure document, because
  /// another tool added them, and warns. A lazy stack as the root has no place for them: then this
  /// function adds none, and only warns.
  void add_unused(Node& node) {
    const bool is_stack = node.info.kind == NodeKind::lazy_stack;
    std::string first;
    std::size_t count = 0;
    for (std::size_t row = 0; row < used_.size(); ++row) {
      if (used_[row]) continue;
      const std::string name(tensors_.name(row));
      if (count++ == 0) first = name;
      if (is_stack) continue;
      Leaf leaf = tensors_.leaf(row);
      if (!starts_with(leaf.shape(), node.info.batch_size)) leaf.mark_unbatched();
      if (!append(node, name, std::move(leaf))) {
        throw base::corrupt(file_)
            .part("tensor ", base::quote(name))
            .problem("not in the structure, and its name is taken")
            .expected("another name")
            .found("a key of the root");
      }
    }
    if (count == 0) return;
    const bool several = count > 1;
    const std::string names =
        base::quote(first) + (several ? " and " + std::to_string(count - 1) + " more" : "");
    const std::string outcome =
        is_stack ? "ignored, because the root is a lazy stack"
                 : "added at the root under " + std::string(several ? "their names" : "its name");
    warn(file_ + ": tensor " + names + ": not in __metadata__ \"tensordict\": " + outcome +
         "; another tool may have changed the file");
  }

  /// Appends an entry to a node whose index is complete. Returns false if the node already had an
  /// entry with this key.
  static bool append(Node& node, const std::string& key, Node::Slot item) {
    node.entries.push_back({key, std::move(item)});
    const auto position = static_cast<std::uint32_t>(node.entries.size() - 1);
    const auto key_at = [&](std::uint32_t i) -> std::string_view { return node.entries[i].key; };
    return node.index.insert(key, position, key_at) == KeyIndex::kNone;
  }

  static bool starts_with(const Shape& shape, const Shape& batch_size) {
    return shape.size() >= batch_size.size() &&
           std::equal(batch_size.begin(), batch_size.end(), shape.begin());
  }

  std::shared_ptr<Node> new_node(const std::string& path) const {
    auto node = std::make_shared<Node>();
    node->where = path.empty() ? file_ : file_ + "/" + path;
    return node;
  }

  Error fail(const std::string& path) const {
    return base::corrupt(where_).part("node ", base::quote(path));
  }
  [[noreturn]] void too_many(const std::string& path) const {
    throw base::unsupported(where_)
        .part("node ", base::quote(path))
        .problem("the lazy stacks are too large")
        .expected("at most ", kMaxStackItems, " entries in all")
        .found("more");
  }

  const TensorEntries& tensors_;
  const Notes& notes_;
  const base::Where& notes_where_;
  const std::string& file_;
  const base::Where& where_;
  std::vector<bool> used_;
  std::uint64_t num_stack_items_ = 0;
  std::uint64_t path_bytes_ = 0;  ///< of the node that is being built
};

}  // namespace

std::uint64_t extra_stack_items(std::uint64_t path_bytes, std::size_t rank, const DimNames& names,
                                std::string_view class_name, std::string_view device) noexcept {
  std::uint64_t bytes = path_bytes + rank * kBytesPerDim + class_name.size() + device.size();
  for (const auto& name : names) bytes += name ? name->size() : 0;
  return bytes / kBytesPerStackItem;
}

std::uint64_t stack_items(std::string_view key, std::size_t rank, const Value* value) noexcept {
  const std::uint64_t bytes =
      key.size() + rank * kBytesPerDim + (value == nullptr ? 0 : memory_of(*value));
  return 1 + bytes / kBytesPerStackItem;
}

TensorDict build_tree(TensorEntries tensors, const Metadata& metadata, const std::string& where) {
  Notes notes;
  const base::Where notes_where(where, "__metadata__ \"tenfold\"");
  if (const auto text = metadata.find(kNotesMember); text != metadata.end()) {
    notes = Notes::from_json(text->second, notes_where);
  }
  const auto structure = metadata.find(kStructureMember);
  std::map<std::string, std::string> of_user;
  for (const auto& [key, text] : metadata) {
    const bool names_tensor = structure == metadata.end() && is_alias(tensors, key, text);
    if (!is_reserved_member(key) && !names_tensor) of_user.emplace(key, text);
  }
  TensorDict tree;
  if (structure == metadata.end()) {
    tree = build_flat(std::move(tensors), metadata, notes, notes_where, where);
  } else {
    const base::Where structure_where(where, "__metadata__ \"tensordict\"");
    const auto level = parse_structure(structure->second, structure_where);
    tree = TreeBuilder(tensors, notes, notes_where, where, structure_where).root(*level);
  }
  tree.info().schema = notes.schema;
  tree.info().metadata = std::move(of_user);
  return tree;
}

}  // namespace tenfold::detail::formats::safetensors

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/diff.hpp>
#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/bare.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "io/diff/diff_values.hpp"
#include "io/tree.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kMaxTextBytes = 200;

/// Truncates an ASCII string, which can be cut at any byte.
std::string shortened(std::string text) {
  if (text.size() > kMaxTextBytes) text.replace(kMaxTextBytes - 3, std::string::npos, "...");
  return text;
}

/// At most 200 characters of a value's JSON.
std::string truncated_json(const Value& value) { return shortened(to_json(value)); }

/// Replaces OrderedDicts by dicts.
Value unordered(Value value) {
  if (auto* object = std::get_if<Value::Object>(&value.data())) object->ordered = false;
  for_each_child(value, [](Value& child) { child = unordered(std::move(child)); });
  return value;
}

/// Descriptions of the difference of two values.
struct JsonDifference {
  std::string a;
  std::string b;
};

std::string typed(const Value& value) {
  const auto* object = value.get_if<Value::Object>();
  if (object == nullptr) return std::string(value.type_name());
  std::string text = "dict";
  if (object->int_keys) text += " of int keys";
  for (const auto& [key, typed_key] : object->typed_keys) {
    text += (&key == &object->typed_keys.front().first ? " of keys " : ", ") + key + " (" +
            std::string(typed_key.type_name()) + ")";
  }
  return text;
}

/// The items of a list or tuple; null for another value.
const std::vector<Value>* items_of(const Value& value) {
  if (const auto* list = value.get_if<Value::List>()) return &list->items;
  if (const auto* tuple = value.get_if<Value::Tuple>()) return &tuple->items;
  return nullptr;
}

class Descent {
 public:
  JsonDifference compare(const Value& a, const Value& b) {
    if (a.data().index() == b.data().index()) {
      if (const auto* items = items_of(a)) return compare_items(a, b, *items, *items_of(b));
      if (a.is<Value::Object>() && typed(a) == typed(b)) return compare_members(a, b);
    }
    return difference_of(a, b);
  }

 private:
  JsonDifference compare_items(const Value& a, const Value& b, const std::vector<Value>& left,
                               const std::vector<Value>& right) {
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (left[i] == right[i]) continue;
      const Step step(*this, std::to_string(i));
      return compare(left[i], right[i]);
    }
    const auto count = [&](const Value& value, std::size_t size) {
      return typed(value) + " of " + std::to_string(size);
    };
    return placed({count(a, left.size()), count(b, right.size())});
  }

  JsonDifference compare_members(const Value& a, const Value& b) {
    const auto& left = *a.get_if<Value::Object>();
    const auto& right = *b.get_if<Value::Object>();
    std::unordered_map<std::string_view, const Value*> of_right;
    for (const auto& [key, value] : right.members) of_right.emplace(key, &value);
    for (const auto& [key, value] : left.members) {
      const auto other = of_right.find(key);
      const bool exists = other != of_right.end();
      if (exists && *other->second == value) {
        of_right.erase(other);
        continue;
      }
      const Step step(*this, key);
      if (!exists) return placed({truncated_json(value), "nothing"});
      return compare(value, *other->second);
    }
    for (const auto& [key, value] : right.members) {
      if (!of_right.contains(key)) continue;
      const Step step(*this, key);
      return placed({"nothing", truncated_json(value)});
    }
    return difference_of(a, b);
  }

  JsonDifference difference_of(const Value& a, const Value& b) const {
    JsonDifference found = {truncated_json(a), truncated_json(b)};
    if (found.a == found.b) {
      found.a.insert(0, typed(a) + " ");
      found.b.insert(0, typed(b) + " ");
    }
    if (found.a == found.b) show_first_difference(to_json(a), to_json(b), found);
    return placed(std::move(found));
  }

  static void show_first_difference(const std::string& a, const std::string& b,
                                    JsonDifference& found) {
    const std::size_t shorter = std::min(a.size(), b.size());
    const auto at = static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin())
            .first -
        a.begin());
    const auto from = [&](const std::string& text) {
      return "from byte " + std::to_string(at) + " of " + std::to_string(text.size()) + ": " +
             shortened(text.substr(at));
    };
    found = {from(a), from(b)};
  }

  JsonDifference placed(JsonDifference found) const {
    if (place_.empty()) return found;
    return {place_ + ": " + found.a, place_ + ": " + found.b};
  }

  /// While it exists, `place_` includes the key of a nested value.
  class Step {
   public:
    Step(Descent& of, const std::string& key) : of_(of), size_before_(of.place_.size()) {
      of_.place_ += (size_before_ == 0 ? "" : ".") + key;
    }
    ~Step() { of_.place_.resize(size_before_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Descent& of_;
    std::size_t size_before_;
  };

  std::string place_;
};

/// Describes the first difference between two unequal values, which must not contain OrderedDicts.
/// Each of the two descriptions consists of the dotted name of the nested value that differs, and
/// of a text that shows the difference: the truncated_json(), the type, the number of items, or the
/// JSON from the first byte that differs. Examples: "layers.900: 7" and "layers.900: 8",
/// "tuple [1]" and "list [1]", "b: 2" and "b: nothing".
JsonDifference json_difference(const Value& a, const Value& b) { return Descent().compare(a, b); }

constexpr std::size_t kUnmatched = static_cast<std::size_t>(-1);

/// A tensor or a JSON value of one tree.
struct Entry {
  KeyPath path;
  std::variant<Leaf, NonTensor> item;
  std::size_t match = kUnmatched;  ///< index of the matching entry in the other tree
};

/// A node of one tree, and the range of the entries below it.
struct Place {
  KeyPath path;
  std::string what;
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_unread = false;
};

/// True for a node whose content cannot be compared: a persistent ID in a pickle (usually that of a
/// storage) that is not part of a tensor, or an entry that is refused (NodeInfo::is_refused) and is
/// not a regular file. (The node of a refused regular file contains the bytes.)
bool is_unread(const TensorDict& node) {
  const NodeInfo& info = node.info();
  return (info.kind == NodeKind::opaque && info.class_name == "persistent id") ||
         (info.is_refused() && node.empty());
}

std::string text_of(const NodeInfo& info) {
  if (info.is_refused()) return "an entry that is not read";
  // An OrderedDict equals a dict with the same items, as in Python.
  std::string text(to_string(info.kind == NodeKind::ordered_dict ? NodeKind::dict : info.kind));
  if (info.kind == NodeKind::tensorclass || info.kind == NodeKind::opaque) {
    text += " " + info.class_name;
  }
  if (info.kind == NodeKind::sparse) {
    text += " " + info.layout + " " + base::list_text(info.dense_shape);
  }
  if (info.int_keys) text += " of int keys";
  if (!info.typed_keys.empty()) {
    text += " of keys";
    for (const auto& [key, value] : info.typed_keys) text += " " + key;
  }
  if (info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass) {
    text += " " + base::list_text(info.batch_size);
    if (!info.names.empty()) {
      text += " names";
      for (const auto& dim : info.names) text += " " + (dim ? base::quote(*dim) : "None");
    }
  }
  if (info.kind == NodeKind::lazy_stack) {
    text += " along " + std::to_string(info.stack_dim);
    if (info.stack_dim_name) text += " named " + base::quote(*info.stack_dim_name);
  }
  if (info.schema) text += " with schema " + to_json(*info.schema);
  return text;
}

std::string text_of(const Leaf& leaf) {
  return to_string(leaf.dtype()) + (leaf.is_nested() ? " nested " : " ") +
         base::list_text(leaf.shape());
}

std::string text_of(const NonTensor& json) {
  return (json.is_stack ? "stack of " : "") + truncated_json(json.value);
}

/// The stack dimension and the device, for example " along 1 on cpu".
std::string stacking_text(const NonTensor& stack) {
  return " along " + std::to_string(stack.stack_dim) +
         (stack.device.empty() ? "" : " on " + stack.device);
}

/// The entries and nodes of a tree, depth first.
class Side {
 public:
  explicit Side(const TensorDict& tree) { visit(tree); }

  std::vector<Entry> entries;
  std::vector<Place> places;

 private:
  /// Returns a node below the root as one JSON value if it is a dict, list or tuple that contains
  /// only JSON values. So the result does not depend on whether the format stores a container as a
  /// node or as one value. For other nodes, returns nullopt and adds the node and its entries to
  /// the lists.
  std::optional<Value> visit(const TensorDict& node) {
    if (path_.size() > kMaxDepth) {
      throw base::invalid_argument()
          .part("diff")
          .problem("nested too deeply")
          .expected("at most ", kMaxDepth, " levels")
          .found("more");
    }
    const NodeInfo& info = node.info();
    const std::size_t place = places.size();
    const bool is_path_only = is_unread(node);
    const bool is_value = path_.empty() && is_bare(node);
    places.push_back({path_, is_value ? "a value without a name" : text_of(info), entries.size(), 0,
                      is_path_only});
    if (is_path_only) places.back().what += ", whose bytes are not compared";
    bool is_json =
        !path_.empty() && (info.kind == NodeKind::dict || info.kind == NodeKind::ordered_dict ||
                           info.kind == NodeKind::list || info.kind == NodeKind::tuple);
    std::vector<std::pair<std::string, Value>> members;
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      path_.push_back(key);
      if (const auto* leaf = std::get_if<Leaf>(&item)) {
        is_json = false;
        entries.push_back({path_, *leaf});
      } else if (const auto* json = std::get_if<NonTensor>(&item)) {
        is_json &= !json->is_stack;
        if (is_json) members.emplace_back(key, json->value);
        entries.push_back({path_, *json});
      } else if (auto below = visit(std::get<TensorDict>(item))) {
        if (is_json) members.emplace_back(key, *below);
        entries.push_back({path_, NonTensor{*std::move(below)}});
      } else {
        is_json = false;
      }
      path_.pop_back();
    });
    if (!is_json) {
      places[place].end = entries.size();
      return std::nullopt;
    }
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(places[place].begin),
                  entries.end());
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(place), places.end());
    return value_of(info, std::move(members));
  }

  static Value value_of(const NodeInfo& info, std::vector<std::pair<std::string, Value>> members) {
    if (info.kind == NodeKind::dict || info.kind == NodeKind::ordered_dict) {
      Value::Object object;
      object.members = std::move(members);
      object.int_keys = info.int_keys;
      object.typed_keys = info.typed_keys;
      return {std::move(object)};
    }
    std::vector<Value> items;
    items.reserve(members.size());
    for (auto& [key, value] : members) items.push_back(std::move(value));
    if (info.kind == NodeKind::tuple) return {Value::Tuple{std::move(items)}};
    return {Value::List{std::move(items)}};
  }

  KeyPath path_;
};

/// Matches entries by path first, and the remaining ones by dotted name. So a key with dots matches
/// a nested entry of the same dotted name only if neither has an exact match.
void match(Side& a, Side& b) {
  std::map<KeyPath, std::size_t> by_path;
  for (std::size_t j = 0; j < b.entries.size(); ++j) by_path.emplace(b.entries[j].path, j);
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const auto found = by_path.find(a.entries[i].path);
    if (found == by_path.end()) continue;
    a.entries[i].match = found->second;
    b.entries[found->second].match = i;
  }
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t j = 0; j < b.entries.size(); ++j) {
    if (b.entries[j].match == kUnmatched) by_name.emplace(dotted(b.entries[j].path), j);
  }
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    if (a.entries[i].match != kUnmatched) continue;
    const auto found = by_name.find(dotted(a.entries[i].path));
    if (found == by_name.end()) continue;
    a.entries[i].match = found->second;
    b.entries[found->second].match = i;
    by_name.erase(found);
  }
}

bool starts_with(const KeyPath& path, const KeyPath& start) {
  return path.size() >= start.size() && std::equal(start.begin(), start.end(), path.begin());
}

/// Compares nodes. Reports a node that is in both trees as changed if it differs, or if its content
/// cannot be compared (is_unread()). Handles a node that is in only one tree as follows:
///
/// - If the other tree has some of the node's entries, for example under flat names, reports the
///   node as changed, and does not report the nodes below it.
/// - If the node has no entries, reports it as an added or removed entry.
/// - Otherwise, does not report the node, because its entries are reported.
class NodeComparison {
 public:
  explicit NodeComparison(DiffReport& report) : report_(report) {}

  void compare(const Side& a, const Side& b) {
    std::map<KeyPath, const Place*> of_b;
    for (const Place& place : b.places) of_b.emplace(place.path, &place);
    std::map<KeyPath, const Place*> of_a;
    for (const Place& place : a.places) {
      of_a.emplace(place.path, &place);
      const auto found = of_b.find(place.path);
      if (found == of_b.end()) {
        alone(a, place, true);
      } else if (found->second->what != place.what || place.is_unread) {
        add(place.path, place.what, found->second->what);
      }
    }
    last_missing_.reset();
    for (const Place& place : b.places) {
      if (!of_a.contains(place.path)) alone(b, place, false);
    }
  }

 private:
  void add(const KeyPath& path, std::string a, std::string b) {
    Change change;
    change.key = dotted(path);
    change.kind = ChangeKind::node;
    change.a = std::move(a);
    change.b = std::move(b);
    report_.changed.push_back(std::move(change));
  }

  void alone(const Side& side, const Place& place, bool is_first) {
    if (last_missing_ && starts_with(place.path, *last_missing_)) return;
    if (place.begin == place.end) {
      (is_first ? report_.removed : report_.added).push_back(dotted(place.path));
      return;
    }
    const bool shared = std::any_of(side.entries.begin() + static_cast<std::ptrdiff_t>(place.begin),
                                    side.entries.begin() + static_cast<std::ptrdiff_t>(place.end),
                                    [](const Entry& entry) { return entry.match != kUnmatched; });
    if (!shared) return;
    last_missing_ = place.path;
    add(place.path, is_first ? place.what : "no node", is_first ? "no node" : place.what);
  }

  DiffReport& report_;
  std::optional<KeyPath> last_missing_;
};

/// Compares JSON values, but ignores the order of keys and whether a dict is an OrderedDict.
bool is_same_json(NonTensor a, NonTensor b) {
  a.value = unordered(std::move(a.value));
  b.value = unordered(std::move(b.value));
  return a == b;
}

/// Returns the change if two entries differ in type, shape or JSON value. Returns nullopt for equal
/// JSON values, and for two tensors of the same shape; compare_entries() compares the dtypes and
/// values of such tensors.
std::optional<Change> plain_change(const Entry& a, const Entry& b) {
  Change change;
  change.key = dotted(a.path);
  const auto describe = [&](ChangeKind kind) {
    change.kind = kind;
    change.a = std::visit([](const auto& item) { return text_of(item); }, a.item);
    change.b = std::visit([](const auto& item) { return text_of(item); }, b.item);
    return change;
  };
  if (a.item.index() != b.item.index()) return describe(ChangeKind::type);
  if (const auto* leaf = std::get_if<Leaf>(&a.item)) {
    if (same_shape(*leaf, std::get<Leaf>(b.item))) return std::nullopt;
    return describe(ChangeKind::shape);
  }
  const auto& json_a = std::get<NonTensor>(a.item);
  const auto& json_b = std::get<NonTensor>(b.item);
  if (json_a == json_b || is_same_json(json_a, json_b)) return std::nullopt;
  describe(ChangeKind::json);
  if (change.a != change.b) return change;
  const Value value_a = unordered(json_a.value);
  const Value value_b = unordered(json_b.value);
  if (value_a == value_b) {
    change.a += stacking_text(json_a);
    change.b += stacking_text(json_b);
  } else {
    auto [in_a, in_b] = json_difference(value_a, value_b);
    change.a = std::move(in_a);
    change.b = std::move(in_b);
  }
  return change;
}

void require_tolerance(const char* argument, double value) {
  if (value >= 0) return;
  throw base::invalid_argument()
      .part("diff: ", argument)
      .expected("0 or more")
      .found(to_json(Value(value)));
}

/// Compares the matched entries of both trees. Reports changes in the order of the entries of `a`.
void compare_entries(const Side& a, const Side& b, const DiffOptions& options, DiffReport& report) {
  std::vector<LeafPair> pairs;
  std::vector<std::size_t> pair_of(a.entries.size(), kUnmatched);
  std::vector<std::optional<Change>> changes(a.entries.size());
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const Entry& entry = a.entries[i];
    if (entry.match == kUnmatched) continue;
    const Entry& other = b.entries[entry.match];
    ++report.num_leaves;
    const auto* leaf = std::get_if<Leaf>(&entry.item);
    if (leaf != nullptr) report.num_bytes += leaf->nbytes();
    changes[i] = plain_change(entry, other);
    if (changes[i] || leaf == nullptr) continue;
    pair_of[i] = pairs.size();
    pairs.push_back({*leaf, std::get<Leaf>(other.item)});
  }
  const std::vector<PairDifference> differences = compare_values(pairs, options);
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    if (changes[i]) report.changed.push_back(*std::move(changes[i]));
    if (pair_of[i] == kUnmatched) continue;
    const PairDifference& found = differences[pair_of[i]];
    const auto& [left, right] = pairs[pair_of[i]];
    const bool same_dtype = left.dtype() == right.dtype();
    if (same_dtype && !found.differs) continue;
    report.changed.push_back({dotted(a.entries[i].path),
                              same_dtype ? ChangeKind::values : ChangeKind::dtype, text_of(left),
                              text_of(right), found.max_abs, found.rel_l2, found.cosine,
                              found.num_different});
  }
}

}  // namespace

std::string to_string(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::values:
      return "values";
    case ChangeKind::dtype:
      return "dtype";
    case ChangeKind::shape:
      return "shape";
    case ChangeKind::json:
      return "json";
    case ChangeKind::node:
      return "node";
    case ChangeKind::type:
      return "type";
  }
  return "";
}

DiffReport diff(const TensorDict& a, const TensorDict& b, const DiffOptions& options) {
  require_tolerance("rtol", options.rtol);
  require_tolerance("atol", options.atol);
  Side left(with_bare_key(a));
  Side right(with_bare_key(b));
  match(left, right);
  DiffReport report;
  NodeComparison(report).compare(left, right);
  for (const Entry& entry : left.entries) {
    if (entry.match == kUnmatched) report.removed.push_back(dotted(entry.path));
  }
  for (const Entry& entry : right.entries) {
    if (entry.match == kUnmatched) report.added.push_back(dotted(entry.path));
  }
  compare_entries(left, right, options, report);
  return report;
}

DiffReport diff(const Path& a, const Path& b, const DiffOptions& options) {
  return diff(open(a), open(b), options);
}

}  // namespace tenfold

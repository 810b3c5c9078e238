#include "formats/snapshot/tree.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/snapshot/leaf_source.hpp"
#include "formats/snapshot/manifest.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// State shared by all parts of the tree.
struct Context {
  std::shared_ptr<const Manifest> manifest;
  std::shared_ptr<Files> files;
  std::string where;
  /// Maps the path of a sharded tensor, without the rank, to its entries of all ranks.
  std::unordered_map<std::string_view, std::vector<const Entry*>> sharded;
  /// Maps the path of a container (without the rank) to the paths (with the rank) of the sharded
  /// tensors directly in it. Has no entry for app_state itself.
  std::unordered_map<std::string_view, std::vector<std::string_view>> sharded_below;
  /// True if the tree is for a rank that took no part in the save. The tree then has the containers
  /// of rank 0, and access to an entry that is neither replicated nor sharded throws
  /// Error(key_not_found).
  bool is_new = false;
};

std::string_view logical(std::string_view path) { return path.substr(path.find('/') + 1); }

/// Builds the tree of one entry for one rank. `path` has no rank; `key` is for messages. A plain
/// value becomes a NonTensor. Throws Error(io). Any other error of an entry is thrown when that
/// entry is accessed.
Node::Slot slot_of_entry(const std::shared_ptr<const Context>& context, const std::string& rank,
                         const std::string& path, const std::string& key);

/// Finds the entry of a path (without the rank) for one rank: the entry of this rank, the
/// replicated entry of rank 0, or else a sharded entry of another rank. Returns null if there is
/// none.
const Entry* find_entry(const Context& context, const std::string& rank, const std::string& path) {
  if (const Entry* own = context.manifest->find(rank + "/" + path)) return own;
  const Entry* first = context.manifest->find("0/" + path);
  if (first != nullptr && first->tensor.replicated) return first;
  const auto shards = context.sharded.find(path);
  return shards == context.sharded.end() ? nullptr : shards->second.front();
}

/// Decodes a component of a path to a key. Decodes every %XX, as torchsnapshot does. Returns the
/// component unchanged if the decoded key would not be UTF-8.
std::string unescape(std::string_view piece) {
  std::string key;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto digit = [&](std::size_t at) -> int {
      const char c = at < piece.size() ? piece[at] : ' ';
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      return -1;
    };
    if (piece[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      key += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      key += piece[i];
    }
  }
  return base::is_utf8(key) ? key : std::string(piece);
}

/// Builds the tree of one entry for one rank.
class Builder {
 public:
  Builder(std::shared_ptr<const Context> context, std::string rank)
      : context_(std::move(context)),
        rank_(std::move(rank)),
        source_(std::make_shared<RawSource>(context_->files)) {}

  Node::Slot slot(const std::string& path, const std::string& key) {
    keys_.assign(1, key);
    Converted converted = convert(path);
    if (auto* value = std::get_if<Value>(&converted)) return NonTensor{std::move(*value)};
    return std::get<Node::Slot>(std::move(converted));
  }

 private:
  using Converted = std::variant<Value, Node::Slot>;
  using Children = std::vector<std::pair<std::string, Converted>>;

  Error corrupt() const { return base::corrupt(place()); }
  Error unsupported() const { return base::unsupported(place()); }
  const Entry* find(const std::string& path) const { return find_entry(*context_, rank_, path); }
  base::Where place() const { return {context_->where, "key " + base::quote(dotted(keys_))}; }

  static Node::Slot slot_of(TensorDict::Item item) {
    return std::visit([](auto& held) -> Node::Slot { return std::move(held); }, item);
  }

  /// Converts an entry. If it is invalid, returns a slot that throws when it is accessed, so that
  /// other entries are not affected. Only Error(io) is thrown at once.
  Converted convert(const std::string& path) {
    try {
      const Entry* entry = find(path);
      if (entry != nullptr && context_->is_new) require_shared(*entry);
      if (entry == nullptr) {
        throw corrupt()
            .problem("not in the metadata")
            .expected("an entry for each key of its container")
            .found("none");
      }
      return convert(path, *entry);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      return Node::Slot(std::make_shared<RefusedItem>(error));
    }
  }

  void require_shared(const Entry& entry) const {
    if (is_container(entry.type) || is_sharded(entry.type) || entry.tensor.replicated) return;
    const std::int64_t size = context_->manifest->world_size;
    throw base::key_not_found(place())
        .problem("each rank has its own entry")
        .expected("a replicated or sharded entry, because this rank is not among the ", size,
                  " that took the snapshot")
        .found("entries of rank", (size == 1 ? " 0 alone" : "s 0 to " + std::to_string(size - 1)))
        .remedy(
            "when you take the snapshot, add a glob that matches the entry to the option "
            "replicated; or do not restore the entry on this rank");
  }

  Converted convert(const std::string& path, const Entry& entry) {
    switch (entry.type) {
      case EntryType::tensor:
        return Node::Slot(leaf(entry.tensor));
      case EntryType::chunked_tensor:
        return Node::Slot(assembled(entry.tensor.dtype, entry.tensor.shape, pieces(entry)));
      case EntryType::sharded_tensor:
      case EntryType::dtensor:
        return Node::Slot(sharded(path));
      case EntryType::object:
        return object(entry);
      case EntryType::list:
        return list(path);
      case EntryType::dict:
      case EntryType::ordered_dict:
        return dict(path, entry);
      case EntryType::int_:
        return integer(entry.value);
      case EntryType::str:
        return Value(entry.value);
      case EntryType::bool_:
        if (entry.value == "True" || entry.value == "False") return Value(entry.value == "True");
        throw corrupt().part("bool").expected("True or False").found(base::quote(entry.value));
      case EntryType::float_:
        if (const auto number = number_of_base64(entry.value)) return Value(*number);
        throw corrupt()
            .part("float")
            .expected("eight bytes in base64")
            .found(base::quote(entry.value));
      case EntryType::bytes:
        if (auto bytes = base::from_base64(entry.value)) {
          return Value(Value::Special{Value::Special::Type::bytes, *std::move(bytes), {}});
        }
        throw corrupt().part("bytes").expected("base64").found(base::quote(entry.value));
      case EntryType::unknown:
        break;
    }
    throw unsupported()
        .problem("unknown type of entry")
        .expected("one that torchsnapshot 0.1.0 writes and tenfold supports")
        .found(base::quote(entry.obj_type));
  }

  Value integer(const std::string& text) const {
    const std::string_view digits = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      throw corrupt().part("int").expected("decimal digits").found(base::quote(text));
    }
    constexpr std::size_t kFits = 18;
    if (digits.size() <= kFits) return Value(static_cast<std::int64_t>(std::stoll(text)));
    // Parse it as JSON: the result is an int64 or a big integer.
    return parse_value(text, place());
  }

  DType dtype_of(const std::string& name) const {
    std::optional<DType> dtype;
    if (name.starts_with("torch.")) dtype = dtype_from_name(std::string_view(name).substr(6));
    if (!dtype) {
      const bool is_quantized = name.find("torch.q") == 0;
      throw unsupported()
          .part("dtype")
          .expected("a supported dtype that is not quantized")
          .found(base::quote(name))
          .remedy(is_quantized ? "dequantize it before it is saved" : "");
    }
    return *dtype;
  }

  Leaf leaf(const TensorEntry& tensor) {
    const DType dtype = dtype_of(tensor.dtype);
    if (tensor.serializer == "buffer_protocol") {
      std::optional<std::uint64_t> offset;
      if (tensor.byte_range) offset = tensor.byte_range->first;
      return RawSource::leaf(source_, dtype, tensor.shape, tensor.location, offset);
    }
    if (tensor.serializer != "torch_save" || tensor.byte_range) {
      throw unsupported()
          .part("serializer")
          .expected("\"buffer_protocol\", or \"torch_save\" in a file of its own")
          .found(base::quote(tensor.serializer),
                 tensor.byte_range ? " in a byte range of a file" : "");
    }
    const TensorDict::Item item = read_object(tensor.location);
    const auto* found = std::get_if<Leaf>(&item);
    if (found == nullptr || found->dtype() != dtype || found->shape() != tensor.shape) {
      throw corrupt()
          .part(tensor.location)
          .expected("a tensor of ", tensor.dtype, " ", base::list_text(tensor.shape))
          .found(describe_object(item));
    }
    return *found;
  }

  std::vector<TensorPiece> pieces(const Entry& entry) {
    std::vector<TensorPiece> pieces;
    for (const Piece& piece : entry.pieces) {
      pieces.push_back({piece.offsets, leaf(piece.tensor)});
    }
    check_ranges(entry);
    return pieces;
  }

  /// Throws if two pieces use the same bytes of a file: otherwise a small file could become a large
  /// tensor.
  void check_ranges(const Entry& entry) const {
    using Range = std::pair<std::string_view, std::pair<std::uint64_t, std::uint64_t>>;
    std::vector<Range> ranges;
    for (const Piece& piece : entry.pieces) {
      if (numel_of(piece.tensor.shape) == 0) continue;
      constexpr std::pair<std::uint64_t, std::uint64_t> kAll{0, ~std::uint64_t{0}};
      ranges.emplace_back(piece.tensor.location, piece.tensor.byte_range.value_or(kAll));
    }
    std::ranges::sort(ranges);
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first != ranges[i - 1].first) continue;
      if (ranges[i].second.first >= ranges[i - 1].second.second) continue;
      throw corrupt()
          .problem("two pieces share bytes of ", base::quote(ranges[i].first))
          .expected("separate bytes for each")
          .found("overlapping ones");
    }
  }

  Leaf assembled(const std::string& dtype, Shape shape, std::vector<TensorPiece> pieces) const {
    return AssembledSource::assemble(dtype_of(dtype), std::move(shape), std::move(pieces), place());
  }

  /// Assembles the shards of all ranks. If a mesh replicates a shard, several ranks have it, and
  /// one of its copies is used.
  Leaf sharded(const std::string& path) {
    Entry all;
    Shape shape;
    for (const Entry* entry : context_->sharded.at(path)) {
      for (const Piece& piece : entry->pieces) {
        if (shape.empty()) shape.assign(piece.offsets.size(), 0);
        if (piece.offsets.size() != shape.size() || piece.sizes.size() != shape.size()) {
          throw corrupt()
              .problem("its shards differ in their number of dimensions")
              .expected(shape.size(), " offsets and sizes")
              .found(piece.offsets.size(), " offsets and ", piece.sizes.size(), " sizes");
        }
        for (std::size_t d = 0; d < shape.size(); ++d) {
          constexpr std::int64_t kMost = (std::int64_t{1} << 62) - 1;
          if (piece.offsets[d] > kMost || piece.sizes[d] > kMost) {
            throw corrupt()
                .problem("the offset or size of a shard is too large")
                .expected("at most ", kMost)
                .found("offset ", piece.offsets[d], " and size ", piece.sizes[d]);
          }
          shape[d] = std::max(shape[d], piece.offsets[d] + piece.sizes[d]);
        }
        all.pieces.push_back(piece);
      }
    }
    if (all.pieces.empty()) throw corrupt().expected("shards").found("none");
    const auto box = [](const Piece& piece) { return std::tie(piece.offsets, piece.sizes); };
    std::ranges::stable_sort(all.pieces, {}, box);
    const auto repeated = std::ranges::unique(all.pieces, {}, box);
    all.pieces.erase(repeated.begin(), repeated.end());
    const std::string dtype = all.pieces.front().tensor.dtype;
    return assembled(dtype, std::move(shape), pieces(all));
  }

  TensorDict::Item read_object(const std::string& location) {
    const auto known = objects_.find(location);
    if (known != objects_.end()) return known->second;
    TensorDict::Item item = [&] {
      try {
        Files::File& file = context_->files->at(location);
        return read_object_file([files = context_->files, &file] { return files->open(file); });
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
        throw Error(error).within("key ", base::quote(dotted(keys_)));
      }
    }();
    objects_.emplace(location, item);
    return item;
  }

  Converted object(const Entry& entry) {
    if (entry.tensor.serializer != "torch_save") {
      throw unsupported()
          .part("serializer of an object")
          .expected("\"torch_save\"")
          .found(base::quote(entry.tensor.serializer));
    }
    TensorDict::Item item = read_object(entry.tensor.location);
    if (auto* plain = std::get_if<NonTensor>(&item)) return std::move(plain->value);
    return slot_of(std::move(item));
  }

  Converted list(const std::string& path) {
    Children children;
    for (std::size_t i = 0;; ++i) {
      std::string key = std::to_string(i);
      const std::string child = path + "/" + key;
      if (find(child) == nullptr) break;
      add(children, std::move(key), child);
    }
    return finish(std::move(children), NodeKind::list, {});
  }

  Converted dict(const std::string& path, const Entry& entry) {
    KeyTypes keys;
    Children children;
    std::unordered_set<std::string_view> seen;
    for (const Key& key : entry.keys) {
      if (!seen.insert(key.text).second) {
        throw corrupt().problem("two keys are ", base::quote(key.text)).expected("each once");
      }
      key.is_int ? keys.add_int() : keys.add_text();
      add(children, key.text, path + "/" + escape(key.text));
    }
    for (const Key& key : keys_of_others(path, entry)) {
      key.is_int ? keys.add_int() : keys.add_text();
      add(children, key.text, path + "/" + escape(key.text));
    }
    const bool ordered = entry.type == EntryType::ordered_dict;
    return finish(std::move(children), ordered ? NodeKind::ordered_dict : NodeKind::dict,
                  std::move(keys));
  }

  /// Returns the keys of the sharded tensors that only other ranks have in this dict. The dict of
  /// this rank gets them too, because any rank may read a sharded tensor.
  std::vector<Key> keys_of_others(const std::string& path, const Entry& own) const {
    std::vector<Key> keys;
    const auto below = context_->sharded_below.find(path);
    if (below == context_->sharded_below.end()) return keys;
    std::unordered_set<std::string> known;
    for (const Key& key : own.keys) known.insert(escape(key.text));
    // For the dict of each rank: whether each key is an int.
    std::unordered_map<const Entry*, std::unordered_map<std::string_view, bool>> parents;
    for (const std::string_view whole : below->second) {
      const std::size_t last = whole.rfind('/');
      if (!known.emplace(whole.substr(last + 1)).second) continue;
      const Entry* parent = context_->manifest->find(whole.substr(0, last));
      if (parent == nullptr) continue;
      auto [texts, is_new] = parents.try_emplace(parent);
      if (is_new) {
        for (const Key& key : parent->keys) texts->second.emplace(key.text, key.is_int);
      }
      const auto key = texts->second.find(unescape(whole.substr(last + 1)));
      if (key != texts->second.end()) keys.push_back({std::string(key->first), key->second});
    }
    return keys;
  }

  void add(Children& children, std::string key, const std::string& path) {
    if (keys_.size() >= kMaxDepth) {
      throw unsupported()
          .problem("nested too deeply")
          .expected("at most ", kMaxDepth, " levels")
          .found("more");
    }
    keys_.push_back(key);
    Converted converted = convert(path);
    keys_.pop_back();
    children.emplace_back(std::move(key), std::move(converted));
  }

  /// Returns a Value if all children are Values, else a node.
  Converted finish(Children children, NodeKind kind, KeyTypes keys) const {
    const bool plain = std::ranges::all_of(
        children, [](const auto& child) { return std::holds_alternative<Value>(child.second); });
    if (!plain) return node(std::move(children), kind, std::move(keys));
    if (kind == NodeKind::list) {
      Value::List list;
      for (auto& child : children) list.items.push_back(std::get<Value>(std::move(child.second)));
      return Value(std::move(list));
    }
    Value::Object object;
    set_keys(children, std::move(keys), object);
    object.ordered = kind == NodeKind::ordered_dict;
    for (auto& [key, value] : children) {
      object.members.emplace_back(std::move(key), std::get<Value>(std::move(value)));
    }
    return Value(std::move(object));
  }

  /// `info`: a NodeInfo or a Value::Object.
  template <class Info>
  void set_keys(const Children& children, KeyTypes keys, Info& info) const {
    const auto text_at = [&](std::size_t i) -> const std::string& { return children[i].first; };
    if (std::move(keys).finish(info, text_at)) return;
    throw corrupt().problem("two of its keys are equal").expected("different ones");
  }

  Node::Slot node(Children children, NodeKind kind, KeyTypes keys) const {
    auto made = std::make_shared<Node>();
    made->info.kind = kind;
    set_keys(children, std::move(keys), made->info);
    made->where = context_->where;
    for (const std::string& key : keys_) made->where += "/" + key;
    for (auto& [key, converted] : children) {
      Node::Slot slot = NonTensor{};
      if (auto* value = std::get_if<Value>(&converted)) {
        slot = NonTensor{std::move(*value)};
      } else {
        slot = std::get<Node::Slot>(std::move(converted));
      }
      made->entries.push_back({std::move(key), std::move(slot)});
    }
    return tensordict_of(std::move(made));
  }

  std::shared_ptr<const Context> context_;
  std::string rank_;
  std::shared_ptr<RawSource> source_;
  std::unordered_map<std::string, TensorDict::Item> objects_;  ///< by location
  KeyPath keys_;
};

Node::Slot slot_of_entry(const std::shared_ptr<const Context>& context, const std::string& rank,
                         const std::string& path, const std::string& key) {
  return Builder(context, rank).slot(path, key);
}

/// An element of app_state that is a container. It is built at its first access.
class Part final : public LazyItem {
 public:
  Part(std::shared_ptr<const Context> context, std::string rank, std::string path, std::string key)
      : context_(std::move(context)),
        rank_(std::move(rank)),
        path_(std::move(path)),
        key_(std::move(key)) {}
  TensorDict::Item load() override {
    Node::Slot slot = slot_of_entry(context_, rank_, path_, key_);
    if (auto* tree = std::get_if<TensorDict>(&slot)) return std::move(*tree);
    if (auto* value = std::get_if<NonTensor>(&slot)) return std::move(*value);
    return std::get<std::shared_ptr<LazyItem>>(slot)->load();
  }

 private:
  std::shared_ptr<const Context> context_;
  std::string rank_;
  std::string path_;
  std::string key_;
};

/// Applies `root`, the entry whose path is only the rank: it has the kind and the keys of
/// app_state. tenfold writes this entry if app_state was a list, a lazy stack, an ordered dict or a
/// dict with int keys; torchsnapshot ignores it.
void apply_root(const Entry* root, NodeInfo& info, const std::vector<Node::Entry>& entries) {
  if (root == nullptr || !is_container(root->type)) return;
  if (root->type == EntryType::list) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key != std::to_string(i)) return;
    }
    info.kind = NodeKind::list;
    return;
  }
  if (root->type == EntryType::ordered_dict) info.kind = NodeKind::ordered_dict;
  const auto same = [](const Key& key, const auto& entry) { return key.text == entry.key; };
  if (!std::ranges::equal(root->keys, entries, same)) return;
  KeyTypes keys;
  for (const Key& key : root->keys) key.is_int ? keys.add_int() : keys.add_text();
  const auto text_at = [&](std::size_t i) -> const std::string& { return entries[i].key; };
  static_cast<void>(std::move(keys).finish(info, text_at));
}

/// Sorts the escaped keys `tops` of the elements of app_state as in `root`, the entry of app_state.
/// A manifest does not keep this order: it lists replicated elements after the other elements of
/// rank 0.
void sort_tops(const Entry* root, std::vector<std::string>& tops) {
  if (root == nullptr) return;
  std::unordered_map<std::string, std::size_t> positions;
  if (root->type == EntryType::list) {
    for (std::size_t i = 0; i < tops.size(); ++i) positions.emplace(std::to_string(i), i);
  }
  for (const Key& key : root->keys) positions.emplace(escape(key.text), positions.size());
  std::ranges::stable_sort(tops, {}, [&](const std::string& top) {
    const auto at = positions.find(top);
    return at == positions.end() ? positions.size() : at->second;
  });
}

/// Builds app_state of one rank. `tops` are the escaped keys of its elements.
TensorDict rank_tree(const std::shared_ptr<const Context>& context, const std::string& rank,
                     std::vector<std::string> tops, const std::string& where) {
  const Entry* root = context->manifest->find(rank);
  sort_tops(root, tops);
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  std::unordered_set<std::string> keys;
  for (const std::string& top : tops) {
    std::string key = unescape(top);
    if (!keys.insert(key).second) {
      key = top;
      if (!keys.insert(key).second) {
        throw base::corrupt(where)
            .part("the state")
            .problem("two keys are ", base::quote(key))
            .expected("each once");
      }
    }
    const Entry* found = find_entry(*context, rank, top);
    Node::Slot slot = found != nullptr && is_container(found->type)
                          ? std::make_shared<Part>(context, rank, top, key)
                          : slot_of_entry(context, rank, top, key);
    node->entries.push_back({std::move(key), std::move(slot)});
  }
  apply_root(root, node->info, node->entries);
  return tensordict_of(std::move(node));
}

/// app_state of one rank in a snapshot of several ranks. It is built at its first access: each rank
/// also has the replicated elements of rank 0, so together the ranks can have far more elements
/// than the manifest.
class RankPart final : public LazyItem {
 public:
  /// `tops`: the escaped keys of the elements of this rank; `first_tops`: those of rank 0.
  RankPart(std::shared_ptr<const Context> context, std::string rank, std::vector<std::string> tops,
           std::shared_ptr<const std::vector<std::string>> first_tops, std::string where)
      : context_(std::move(context)),
        rank_(std::move(rank)),
        tops_(std::move(tops)),
        first_tops_(std::move(first_tops)),
        where_(std::move(where)) {}
  TensorDict::Item load() override {
    const std::unordered_set<std::string_view> own(tops_.begin(), tops_.end());
    std::vector<std::string> tops = tops_;
    for (const std::string& top : *first_tops_) {
      if (!own.contains(top) && find_entry(*context_, rank_, top) != nullptr) tops.push_back(top);
    }
    return rank_tree(context_, rank_, std::move(tops), where_);
  }

 private:
  std::shared_ptr<const Context> context_;
  std::string rank_;
  std::vector<std::string> tops_;
  std::shared_ptr<const std::vector<std::string>> first_tops_;
  std::string where_;
};

/// The ranks that have entries, and for each rank the elements of its app_state, in the order of
/// the manifest.
struct Ranks {
  std::vector<std::pair<std::string, std::vector<std::string>>> ranks;
  std::unordered_map<std::string_view, std::size_t> positions;
  std::unordered_set<std::string_view> seen;

  void add(std::string_view path) {
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos) return;
    const std::string_view rank = path.substr(0, slash);
    const auto [at, is_new] = positions.try_emplace(rank, ranks.size());
    if (is_new) ranks.emplace_back(rank, std::vector<std::string>());
    const std::size_t end = path.find('/', slash + 1);
    if (!seen.insert(path.substr(0, end)).second) return;
    ranks[at->second].second.emplace_back(
        path.substr(slash + 1, end == std::string_view::npos ? end : end - slash - 1));
  }
};

}  // namespace

TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where, std::optional<std::int64_t> for_rank) {
  const auto context = std::make_shared<Context>();
  context->manifest = std::move(manifest);
  context->files = std::make_shared<Files>(std::move(root));
  context->where = where;
  const bool is_new = for_rank && *for_rank >= context->manifest->world_size;
  Ranks ranks;
  for (const auto& [path, entry] : context->manifest->entries) {
    ranks.add(path);
    if (!is_sharded(entry.type)) continue;
    const std::string_view without_rank = logical(path);
    context->sharded[without_rank].push_back(&entry);
    const std::size_t last = without_rank.rfind('/');
    if (last == std::string_view::npos) continue;
    context->sharded_below[without_rank.substr(0, last)].emplace_back(path);
  }
  std::shared_ptr<const Context> first = context;
  if (is_new) {
    auto shared_only = std::make_shared<Context>(*context);
    shared_only->is_new = true;
    first = std::move(shared_only);
  }
  std::vector<std::string> first_tops;
  if (const auto at = ranks.positions.find("0"); at != ranks.positions.end()) {
    first_tops = ranks.ranks[at->second].second;
  }
  if (context->manifest->world_size == 1)
    return rank_tree(first, "0", std::move(first_tops), where);
  if (for_rank) {
    // A rank other than 0 whose entries are all replicated has no path in the manifest.
    std::string rank = std::to_string(is_new ? 0 : *for_rank);
    if (!ranks.positions.contains(rank)) {
      ranks.ranks.emplace_back(std::move(rank), std::vector<std::string>());
    }
  }
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  const auto shared_tops = std::make_shared<const std::vector<std::string>>(std::move(first_tops));
  for (auto& [rank, tops] : ranks.ranks) {
    node->entries.push_back(
        {rank, std::make_shared<RankPart>(rank == "0" ? first : context, rank, std::move(tops),
                                          shared_tops, where + "/" + rank)});
  }
  return tensordict_of(std::move(node));
}

std::vector<std::string> unreachable(const Manifest& manifest) {
  std::vector<std::string> lost;
  std::unordered_set<std::string> named;
  std::unordered_set<std::string_view> sharded;  // without rank
  for (const auto& [path, entry] : manifest.entries) {
    for (const Key& key : entry.keys) named.insert(path + "/" + escape(key.text));
    if (is_sharded(entry.type)) sharded.insert(logical(path));
  }
  // As in find_entry(), only entries of rank 0 count as replicated.
  const auto is_found = [&](const std::string& path) {
    if (manifest.find(path) != nullptr || sharded.contains(logical(path))) return true;
    const Entry* first = manifest.find("0/" + std::string(logical(path)));
    return first != nullptr && first->tensor.replicated;
  };
  for (const auto& [path, entry] : manifest.entries) {
    const std::size_t last = path.rfind('/');
    if (last != std::string::npos && last == path.find('/')) continue;  // an element of app_state
    if (named.contains(path) || (last == std::string::npos && is_container(entry.type))) continue;
    const Entry* parent =
        last == std::string::npos ? nullptr : manifest.find(std::string_view(path).substr(0, last));
    if (parent != nullptr && parent->type == EntryType::list) {
      const std::string number = path.substr(last + 1);
      const bool is_number = !number.empty() && number.size() < 10 && number[0] != '0' &&
                             number.find_first_not_of("0123456789") == std::string::npos;
      const std::string before =
          path.substr(0, last + 1) + std::to_string(is_number ? std::stoll(number) - 1 : -2);
      if (number == "0" || is_found(before)) continue;
    }
    lost.push_back(path);
  }
  return lost;
}

}  // namespace tenfold::detail::formats::snapshot

#include "formats/snapshot/plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/checked.hpp"
#include "base/glob.hpp"
#include "base/text.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/tree_notes.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// Dtypes that torchsnapshot's `buffer_protocol` supports. Others are stored by torch.save.
constexpr std::array kRawDTypes = {DType::float64, DType::float32, DType::float16, DType::bfloat16,
                                   DType::int64,   DType::int32,   DType::int16,   DType::int8,
                                   DType::uint8,   DType::bool_};
/// Dtypes that it stores as tensor entries, but by torch.save.
constexpr std::array kComplexDTypes = {DType::complex64, DType::complex128};

constexpr std::uint64_t kAlignment = 64;
/// Longer bytes are stored in their own file, because every reader parses the whole manifest.
constexpr std::size_t kMaxInlineBytes = 65536;
/// Maximum length of a file name, with room for the offsets of a chunk.
constexpr std::size_t kMaxNameBytes = 200;

bool is_among(const auto& dtypes, DType dtype) {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

std::string torch_name(DType dtype) { return "torch." + std::string(name(dtype)); }

class Planner {
 public:
  explicit Planner(const SnapshotOptions& options) : options_(options) {}

  Plan run(const TensorDict& tree) {
    const NodeInfo& info = tree.info();
    const bool is_list = info.kind == NodeKind::list || info.kind == NodeKind::lazy_stack;
    const bool is_plain = !is_list && info.kind != NodeKind::ordered_dict && !info.int_keys &&
                          info.typed_keys.empty();
    if (!are_native(info.typed_keys)) {
      refuse(
          "keys that are neither str nor int cannot be stored there: expected str or int, found " +
          base::quote(first_other(info.typed_keys)));
    }
    if (info.kind == NodeKind::tuple) {
      refuse("a tuple has no names for its parts: expected a dict, a list or a TensorDict");
    }
    if (!is_plain) plan_.manifest.add("0", container(tree));
    tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr) return;
      const SharedBytes shared = shared_bytes(*leaf);
      if (shared != SharedBytes{}) ++num_uses_[shared];
    });
    for_children(tree, [&](const std::string& key, const TensorDict::Item& item) {
      add(escape(key), item);
    });
    plan_.notes = tree_notes_of(tree, ModuleVersions::in_notes);
    return std::move(plan_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        ErrorCode::unsupported,
        "snapshot: " + (keys_.empty() ? std::string("root") : "key " + base::quote(dotted(keys_))) +
            ": " + what);
  }

  /// Torchsnapshot supports dicts with str and int keys; it pickles others.
  static bool are_native(const TypedKeys& keys) {
    return std::ranges::all_of(keys, [](const auto& key) { return is_int(key.second); });
  }
  static std::string first_other(const TypedKeys& keys) {
    return std::ranges::find_if(keys, [](const auto& key) { return !is_int(key.second); })->first;
  }
  static bool is_int(const Value& key) { return key.is<std::int64_t>() || key.is<Value::BigInt>(); }
  /// `of`: a NodeInfo or a Value::Object.
  template <class Dict>
  static Key key_of(const Dict& of, const std::string& text) {
    return {text, of.int_keys || find_typed_key(of.typed_keys, text) != nullptr};
  }

  /// Calls `use` for each entry, with its key in keys_.
  template <class Use>
  void for_children(const TensorDict& tree, const Use& use) {
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      enter(key);
      use(key, item);
      keys_.pop_back();
    });
  }

  void enter(const std::string& key) {
    keys_.push_back(key);
    if (keys_.size() > kMaxDepth) {
      refuse("nested too deeply: expected at most " + std::to_string(kMaxDepth) +
             " levels, found more; a node may contain itself");
    }
    if (!base::is_utf8(key)) {
      refuse("a key that is not UTF-8 cannot be stored: expected UTF-8, found other bytes");
    }
  }

  /// `path`: without the rank.
  void put(const std::string& path, Entry entry) {
    plan_.manifest.add("0/" + path, std::move(entry));
  }

  bool is_replicated(const std::string& path) const {
    return std::ranges::any_of(
        options_.replicated, [&](const std::string& glob) { return base::glob_match(glob, path); });
  }

  void add(const std::string& path, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      tensor(path, *leaf);
    } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
      value(path, plain->value);
    } else {
      node(path, std::get<TensorDict>(item));
    }
  }

  Entry container(const TensorDict& tree) {
    const NodeInfo& info = tree.info();
    Entry entry;
    switch (info.kind) {
      case NodeKind::list:
      case NodeKind::lazy_stack:
        entry.type = EntryType::list;
        return entry;
      case NodeKind::ordered_dict:
        entry.type = EntryType::ordered_dict;
        break;
      default:
        entry.type = EntryType::dict;
    }
    for (const std::string& key : tree.keys()) entry.keys.push_back(key_of(info, key));
    return entry;
  }

  void node(const std::string& path, const TensorDict& tree) {
    if (tree.kind() == NodeKind::tuple) return object(path, tree, "builtins.tuple");
    if (tree.kind() == NodeKind::sparse && tree.info().layout == kJagged) {
      refuse(
          "a jagged nested tensor cannot be stored: expected a dense or sparse one; "
          "the format \"memmap\" can");
    }
    if (!are_native(tree.info().typed_keys)) return object(path, tree, dict_type(tree.kind()));
    // An opaque node has a pickle, which is refused.
    const bool is_tensor = tree.kind() == NodeKind::sparse || tree.kind() == NodeKind::opaque;
    if (is_tensor) return object(path, tree, "torch.Tensor");
    put(path, container(tree));
    for_children(tree, [&](const std::string& key, const TensorDict::Item& item) {
      add(path + "/" + escape(key), item);
    });
  }

  static const char* dict_type(NodeKind kind) {
    return kind == NodeKind::ordered_dict ? "collections.OrderedDict" : "builtins.dict";
  }

  void value(const std::string& path, const Value& value) {
    std::visit([&](const auto& held) { write(path, value, held); }, value.data());
  }
  void primitive(const std::string& path, EntryType type, std::string text,
                 std::string readable = {}) {
    Entry entry;
    entry.type = type;
    entry.value = std::move(text);
    entry.readable = std::move(readable);
    entry.tensor.replicated = is_replicated(path);
    put(path, std::move(entry));
  }
  void write(const std::string& path, const Value&, bool held) {
    primitive(path, EntryType::bool_, held ? "True" : "False");
  }
  void write(const std::string& path, const Value&, std::int64_t held) {
    primitive(path, EntryType::int_, std::to_string(held));
  }
  void write(const std::string& path, const Value&, const Value::BigInt& held) {
    primitive(path, EntryType::int_, held.digits);
  }
  void write(const std::string& path, const Value&, double held) {
    primitive(path, EntryType::float_, base64_of(held), to_json(Value(held)));
  }
  void write(const std::string& path, const Value&, const std::string& held) {
    if (!base::is_utf8(held)) {
      refuse("text that cannot be stored: expected UTF-8, found other bytes");
    }
    primitive(path, EntryType::str, held);
  }
  void write(const std::string& path, const Value& value, const Value::Null&) {
    object(path, NonTensor{value}, "builtins.NoneType");
  }
  void write(const std::string& path, const Value& value, const Value::Tuple&) {
    object(path, NonTensor{value}, "builtins.tuple");
  }
  void write(const std::string& path, const Value& value, const Value::Special& held) {
    if (held.type == Value::Special::Type::bytes && held.text.size() <= kMaxInlineBytes) {
      return primitive(path, EntryType::bytes, base::base64(held.text));
    }
    const std::string type(name(held.type));
    const bool is_dotted = type.find('.') != std::string::npos;
    const bool is_counter = held.type == Value::Special::Type::counter;
    object(path, NonTensor{value},
           (is_dotted    ? ""
            : is_counter ? "collections."
                         : "builtins.") +
               type);
  }
  void write(const std::string& path, const Value&, const Value::List& held) {
    Entry entry;
    entry.type = EntryType::list;
    put(path, std::move(entry));
    std::size_t position = 0;
    for (const Value& item : held.items) {
      const std::string key = std::to_string(position++);
      enter(key);
      value(path + "/" + key, item);
      keys_.pop_back();
    }
  }
  void write(const std::string& path, const Value& whole, const Value::Object& held) {
    if (!are_native(held.typed_keys)) {
      const auto kind = held.ordered ? NodeKind::ordered_dict : NodeKind::dict;
      return object(path, NonTensor{whole}, dict_type(kind));
    }
    Entry entry;
    entry.type = held.ordered ? EntryType::ordered_dict : EntryType::dict;
    for (const auto& [key, member] : held.members) entry.keys.push_back(key_of(held, key));
    put(path, std::move(entry));
    for (const auto& [key, member] : held.members) {
      enter(key);
      value(path + "/" + escape(key), member);
      keys_.pop_back();
    }
  }

  // --- tensors ---

  void tensor(const std::string& path, const Leaf& leaf) {
    if (leaf.is_nested()) {
      refuse("a nested tensor cannot be stored: expected a dense one, found one of " +
             std::to_string(leaf.shape().empty() ? 0 : leaf.shape()[0]) +
             " components; save as a folder, which holds it");
    }
    if (!is_among(kRawDTypes, leaf.dtype())) return pickled(path, leaf);
    Entry entry;
    entry.type = EntryType::tensor;
    entry.tensor = raw_entry(leaf, is_replicated(path));
    const std::uint64_t size_bytes = leaf.nbytes();
    if (size_bytes == 0) {
      // torchsnapshot reads no file for a tensor without chunks, and fails on an empty range.
      entry.type = EntryType::chunked_tensor;
      return put(path, std::move(entry));
    }
    if (size_bytes >= options_.slab_bytes && size_bytes > options_.chunk_bytes &&
        leaf.shape()[0] > 1) {
      chunked(path, leaf, std::move(entry));
      return;
    }
    const SharedBytes shared = shared_bytes(leaf);
    const auto known = shared == SharedBytes{} ? places_.end() : places_.find(shared);
    if (known != places_.end()) {
      entry.tensor.location = known->second.location;
      entry.tensor.byte_range = known->second.byte_range;
    } else if (size_bytes < options_.slab_bytes && num_uses_[shared] < 2) {
      into_slab(leaf, entry.tensor);
    } else {
      into_file(path, leaf, 0, entry.tensor);
    }
    if (shared != SharedBytes{}) places_.emplace(shared, entry.tensor);
    put(path, std::move(entry));
  }

  static TensorEntry raw_entry(const Leaf& leaf, bool replicated) {
    TensorEntry entry;
    entry.serializer = "buffer_protocol";
    entry.dtype = torch_name(leaf.dtype());
    entry.shape = leaf.shape();
    entry.replicated = replicated;
    return entry;
  }

  void into_slab(const Leaf& leaf, TensorEntry& entry) {
    const std::uint64_t size_bytes = leaf.nbytes();
    std::uint64_t begin = 0;
    if (slab_ != kNone) begin = base::align_up(plan_.files[slab_].size_bytes, kAlignment);
    if (slab_ == kNone || begin + size_bytes > options_.slab_bytes) {
      slab_ = plan_.files.size();
      DataFile slab;
      slab.location = "batched/" + std::to_string(num_slabs_++);
      plan_.files.push_back(std::move(slab));
      begin = 0;
    }
    DataFile& slab = plan_.files[slab_];
    entry.location = slab.location;
    entry.byte_range = {begin, begin + size_bytes};
    slab.parts.push_back({leaf, 0, size_bytes, begin});
    slab.size_bytes = begin + size_bytes;
    plan_.num_bytes += size_bytes;
  }

  void into_file(const std::string& path, const Leaf& leaf, std::uint64_t leaf_offset,
                 TensorEntry& entry) {
    DataFile file;
    file.location = new_location(path, entry.replicated);
    file.size_bytes = nbytes_of(leaf.dtype(), entry.shape);
    entry.location = file.location;
    file.parts.push_back({leaf, leaf_offset, file.size_bytes, 0});
    plan_.num_bytes += file.size_bytes;
    plan_.files.push_back(std::move(file));
  }

  /// Splits along dimension 0, like torchsnapshot.
  void chunked(const std::string& path, const Leaf& leaf, Entry entry) {
    entry.type = EntryType::chunked_tensor;
    const SharedBytes shared = shared_bytes(leaf);
    const auto known = shared == SharedBytes{} ? chunks_.end() : chunks_.find(shared);
    if (known != chunks_.end() && known->second.tensor.shape == entry.tensor.shape &&
        known->second.tensor.dtype == entry.tensor.dtype) {
      entry.pieces = known->second.pieces;
      return put(path, std::move(entry));
    }
    const std::int64_t rows = leaf.shape()[0];
    const std::uint64_t row_bytes = leaf.nbytes() / static_cast<std::uint64_t>(rows);
    const auto step =
        static_cast<std::int64_t>(std::max<std::uint64_t>(1, options_.chunk_bytes / row_bytes));
    for (std::int64_t row = 0; row < rows; row += step) {
      Piece piece;
      piece.offsets.assign(leaf.shape().size(), 0);
      piece.offsets[0] = row;
      piece.sizes = leaf.shape();
      piece.sizes[0] = std::min(step, rows - row);
      piece.tensor = entry.tensor;
      piece.tensor.shape = piece.sizes;
      std::string name = path;
      for (const std::int64_t offset : piece.offsets) name += "_" + std::to_string(offset);
      into_file(name, leaf, static_cast<std::uint64_t>(row) * row_bytes, piece.tensor);
      piece.tensor.replicated = false;  // same as torchsnapshot
      entry.pieces.push_back(std::move(piece));
    }
    if (shared != SharedBytes{}) chunks_.emplace(shared, entry);
    put(path, std::move(entry));
  }

  // --- objects stored by torch.save ---

  void pickled(const std::string& path, const Leaf& leaf) {
    if (!is_among(kComplexDTypes, leaf.dtype())) return object(path, leaf, "torch.Tensor");
    Entry entry;
    entry.type = EntryType::tensor;
    entry.tensor = raw_entry(leaf, is_replicated(path));
    entry.tensor.serializer = "torch_save";
    entry.tensor.location = object_file(path, leaf, entry.tensor.replicated);
    put(path, std::move(entry));
  }

  void object(const std::string& path, const TensorDict::Item& item, std::string type) {
    Entry entry;
    entry.type = EntryType::object;
    entry.obj_type = std::move(type);
    entry.tensor.serializer = "torch_save";
    entry.tensor.replicated = is_replicated(path);
    entry.tensor.location = object_file(path, item, entry.tensor.replicated);
    put(path, std::move(entry));
  }

  /// Stores an object in a file; equal values, such as None, share one file.
  std::string object_file(const std::string& path, const TensorDict::Item& item, bool replicated) {
    DataFile file;
    try {
      file.object = plan_object_file(item);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      refuse(error.what());
    }
    const bool is_plain = std::holds_alternative<NonTensor>(item);
    // The first record is the pickle.
    const std::string pickle = is_plain ? file.object.front().head : std::string();
    if (is_plain) {
      const auto known = objects_.find({replicated, pickle});
      if (known != objects_.end()) return known->second;
    }
    file.location = new_location(path, replicated);
    for (const ZipArchiveEntry& entry : file.object) {
      if (entry.leaf) plan_.num_bytes += entry.leaf->nbytes();
    }
    if (is_plain) objects_.emplace(std::pair(replicated, pickle), file.location);
    plan_.files.push_back(std::move(file));
    return plan_.files.back().location;
  }

  /// A location that is derived from the path if that gives valid and unused file names; otherwise
  /// a number after a "%", which no escaped key starts with.
  std::string new_location(const std::string& path, bool replicated) {
    const std::string folder = replicated ? "replicated/" : "0/";
    std::string wanted = folder + path;
    if (!is_plain_location(wanted) || !claim(wanted)) {
      wanted = folder + "%n" + std::to_string(num_unnamed_++);
      claim(wanted);
    }
    return wanted;
  }

  /// Returns false if a component is too long, or if the name conflicts with a file or folder.
  bool claim(const std::string& location) {
    std::vector<std::string> folders;
    for (std::size_t slash = location.find('/'); slash != std::string::npos;
         slash = location.find('/', slash + 1)) {
      folders.push_back(location.substr(0, slash));
    }
    std::size_t begin = 0;
    for (const std::string& folder : folders) {
      if (folder.size() - begin > kMaxNameBytes || files_.contains(folder)) return false;
      begin = folder.size() + 1;
    }
    if (location.size() - begin > kMaxNameBytes) return false;
    if (folders_.contains(location) || !files_.insert(location).second) return false;
    folders_.insert(folders.begin(), folders.end());
    return true;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  const SnapshotOptions& options_;
  Plan plan_;
  KeyPath keys_;
  std::size_t slab_ = kNone;  ///< the file that gets the next small tensor
  std::size_t num_slabs_ = 0;
  std::size_t num_unnamed_ = 0;
  /// Shared tensors get their own file: if several entries refer to one range of a file,
  /// torchsnapshot's restore fills only the last one.
  std::unordered_map<SharedBytes, std::size_t, SharedBytesHash> num_uses_;
  std::unordered_map<SharedBytes, TensorEntry, SharedBytesHash> places_;
  std::unordered_map<SharedBytes, Entry, SharedBytesHash> chunks_;
  std::map<std::pair<bool, std::string>, std::string> objects_;  ///< location of a pickle
  std::unordered_set<std::string> files_;
  std::unordered_set<std::string> folders_;
};

}  // namespace

Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options) {
  return Planner(options).run(tree);
}

}  // namespace tenfold::detail::formats::snapshot

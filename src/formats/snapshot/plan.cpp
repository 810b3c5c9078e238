#include "formats/snapshot/plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/glob.hpp"
#include "base/text.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/storable.hpp"
#include "formats/shared/tree_notes.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// Dtypes that torchsnapshot's `buffer_protocol` supports. Tensors of other dtypes become files of
/// torch.save.
constexpr std::array kRawDTypes = {DType::float64, DType::float32, DType::float16, DType::bfloat16,
                                   DType::int64,   DType::int32,   DType::int16,   DType::int8,
                                   DType::uint8,   DType::bool_};
/// Dtypes that torchsnapshot stores as tensor entries whose bytes are files of torch.save.
constexpr std::array kComplexDTypes = {DType::complex64, DType::complex128};

constexpr std::uint64_t kAlignment = 64;
/// Longer bytes objects are stored in files of torch.save, to keep the manifest small: every reader
/// parses the whole manifest.
constexpr std::size_t kMaxInlineBytes = 65536;
/// Maximum length of each component of a location, including the offsets of a chunk.
constexpr std::size_t kMaxNameBytes = 200;

bool is_among(const auto& dtypes, DType dtype) {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

std::string torch_name(DType dtype) { return "torch." + to_string(dtype); }

/// Which ranks have the tensor or value in a file. This determines the folder of the file.
enum class Owner : std::uint8_t { one_rank, all_ranks, shards };

/// Returns the numbers as nested lists of this shape, as torchsnapshot stores a mesh.
Value nested_list(std::span<const std::int64_t> numbers, std::span<const std::int64_t> shape) {
  if (shape.empty()) return numbers.front();
  Value::List list;
  const std::size_t step = numbers.size() / static_cast<std::size_t>(shape.front());
  for (std::size_t at = 0; at < numbers.size(); at += step) {
    list.items.push_back(nested_list(numbers.subspan(at, step), shape.subspan(1)));
  }
  return list;
}

class Planner {
 public:
  Planner(const SnapshotOptions& options, const PlannedRank& rank)
      : options_(options), rank_(rank), rank_name_(std::to_string(rank.rank)) {
    plan_.manifest.world_size = rank.world_size;
    for (const SnapshotShards& shards : rank.shards) shards_.emplace(path_of(shards.key), &shards);
  }

  Plan run(const TensorDict& tree) {
    const NodeInfo& info = tree.info();
    const bool is_list = info.kind == NodeKind::list || info.kind == NodeKind::lazy_stack;
    const bool is_plain = !is_list && info.kind != NodeKind::ordered_dict && !info.int_keys &&
                          info.typed_keys.empty();
    if (!are_native(info.typed_keys)) {
      throw refuse()
          .problem("keys that are neither str nor int cannot be stored at the root")
          .expected("str or int")
          .found(base::quote(first_other(info.typed_keys)));
    }
    if (info.kind == NodeKind::tuple) {
      throw refuse()
          .problem("a tuple cannot be stored at the root")
          .expected("a dict, a list or a TensorDict")
          .found("a tuple");
    }
    if (info.kind == NodeKind::sparse) {
      throw refuse()
          .problem("a tensor cannot be stored at the root")
          .expected("a dict, a list or a TensorDict")
          .found("a tensor of layout ", base::quote(info.layout))
          .remedy("give it a name, {\"name\": ...}");
    }
    if (!is_plain) plan_.manifest.add(rank_name_, container(tree));
    tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr) return;
      const StoredRange shared = stored_range(*leaf);
      if (shared != StoredRange{}) ++num_uses_[shared];
    });
    for_children(tree, [&](const std::string& key, const TensorDict::Item& item) {
      add(escape(key), item);
    });
    if (num_shards_found_ != shards_.size()) {
      throw base::invalid_argument()
          .part("snapshot")
          .expected("the parts of each of ", shards_.size(), " sharded tensors in the tree")
          .found(num_shards_found_);
    }
    plan_.notes = notes_of(tree);
    return std::move(plan_);
  }

 private:
  std::string subject() const {
    return keys_.empty() ? "root" : "key " + base::quote(dotted(keys_));
  }
  Error refuse() const { return base::unsupported().part(subject()); }
  Error refuse_shards() const { return base::invalid_argument().part(subject()); }

  /// Returns the notes of the tree. If there are several ranks, readers apply the notes to the dict
  /// of all ranks. So the paths begin with the rank, and the metadata of the tree becomes the
  /// metadata of this dict. A schema is omitted, because it would make this dict a data set.
  std::string notes_of(const TensorDict& tree) const {
    if (rank_.world_size == 1) return tree_notes_of(tree, ModuleVersions::in_notes);
    NodeInfo ranks;
    ranks.kind = NodeKind::dict;
    ranks.metadata = tree.info().metadata;
    TensorDict all(std::move(ranks));
    all.set(rank_name_, tree);
    return tree_notes_of(all, ModuleVersions::in_notes);
  }

  /// True if all typed keys are int (keys that are str are not in TypedKeys). Torchsnapshot pickles
  /// a dict with a key of any other type except bool, which it treats as an int.
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
      throw refuse()
          .problem("nested too deeply")
          .expected("at most ", kMaxDepth, " levels")
          .found("more")
          .remedy("check whether a node contains itself");
    }
    require_utf8(key, [&] { return refuse(); });
  }

  /// Adds an entry. `path` has no rank. Replicated entries become entries of rank 0.
  void put(const std::string& path, Entry entry) {
    const bool is_of_all = !is_container(entry.type) && entry.tensor.replicated;
    plan_.manifest.add((is_of_all ? "0" : rank_name_) + "/" + path, std::move(entry));
  }

  bool is_replicated(const std::string& path) const {
    if (rank_.assignment != nullptr) return rank_.assignment->replicated.contains(path);
    return std::ranges::any_of(
        options_.replicated, [&](const std::string& glob) { return base::glob_match(glob, path); });
  }

  /// Returns, for each piece of a replicated entry, the rank that writes it; an entry that is not
  /// chunked is one piece. Returns null if this rank writes the whole entry.
  const std::vector<std::int64_t>* writers_of(const std::string& path) const {
    if (rank_.assignment == nullptr) return nullptr;
    const auto found = rank_.assignment->replicated.find(path);
    return found == rank_.assignment->replicated.end() ? nullptr : &found->second;
  }

  bool is_written_here(const std::string& path, std::size_t piece = 0) const {
    const auto* writers = writers_of(path);
    return writers == nullptr || (piece < writers->size() && (*writers)[piece] == rank_.rank);
  }

  void add(const std::string& path, const TensorDict::Item& item) {
    if (const auto shards = shards_.find(path); shards != shards_.end()) {
      sharded(path, item, *shards->second);
    } else if (const auto* leaf = std::get_if<Leaf>(&item)) {
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
      throw refuse()
          .problem("a jagged nested tensor cannot be stored")
          .expected("a dense or sparse one")
          .remedy("the format \"memmap\" supports it");
    }
    if (!are_native(tree.info().typed_keys)) return object(path, tree, dict_type(tree.kind()));
    // object() refuses an opaque node, which stands for an object of an unknown class in a pickle.
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
    if (!is_written_here(path)) return;
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
      throw refuse().problem("a string cannot be stored").expected("UTF-8").found("other bytes");
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
    const std::string type(to_string(held.type));
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
    require_dense(leaf, [&] { return refuse(); });
    if (!is_among(kRawDTypes, leaf.dtype())) return pickled(path, leaf);
    Entry entry;
    entry.type = EntryType::tensor;
    entry.tensor = raw_entry(leaf, is_replicated(path));
    const std::uint64_t size_bytes = leaf.nbytes();
    if (size_bytes == 0) {
      // torchsnapshot fails on an empty byte range, but reads no file for a tensor without chunks.
      entry.type = EntryType::chunked_tensor;
      if (is_written_here(path)) put(path, std::move(entry));
      return;
    }
    if (size_bytes >= options_.slab_bytes && is_large(leaf)) {
      chunked(path, leaf, std::move(entry));
      return;
    }
    if (!is_written_here(path)) return;
    place(path, leaf, entry.tensor.replicated ? Owner::all_ranks : Owner::one_rank, entry.tensor);
    put(path, std::move(entry));
  }

  bool is_large(const Leaf& leaf) const {
    return leaf.nbytes() > options_.chunk_bytes && !leaf.shape().empty() && leaf.shape()[0] > 1;
  }

  /// Returns the number of rows of each chunk but the last.
  std::int64_t chunk_rows(const Leaf& leaf) const {
    const std::uint64_t row_bytes = leaf.nbytes() / static_cast<std::uint64_t>(leaf.shape()[0]);
    return static_cast<std::int64_t>(std::max<std::uint64_t>(1, options_.chunk_bytes / row_bytes));
  }

  /// Assigns a file, and possibly a byte range in it, to a whole leaf. A leaf over the same bytes
  /// as an earlier one gets the file and the range of that leaf.
  void place(const std::string& name, const Leaf& leaf, Owner owner, TensorEntry& entry) {
    const std::uint64_t size_bytes = leaf.nbytes();
    const StoredRange shared = stored_range(leaf);
    const auto known = shared == StoredRange{} ? places_.end() : places_.find(shared);
    if (known != places_.end()) {
      entry.location = known->second.location;
      entry.byte_range = known->second.byte_range;
    } else if (size_bytes < options_.slab_bytes && num_uses_[shared] < 2) {
      into_slab(leaf, entry);
    } else {
      into_file(name, leaf, 0, owner, entry);
    }
    if (shared != StoredRange{}) places_.emplace(shared, entry);
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
      slab.location = "batched/" + (rank_.world_size == 1 ? "" : rank_name_ + "/") +
                      std::to_string(num_slabs_++);
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

  void into_file(const std::string& name, const Leaf& leaf, std::uint64_t leaf_offset, Owner owner,
                 TensorEntry& entry) {
    DataFile file;
    file.location = new_location(name, owner);
    file.size_bytes = nbytes_of(leaf.dtype(), entry.shape);
    entry.location = file.location;
    file.parts.push_back({leaf, leaf_offset, file.size_bytes, 0});
    plan_.num_bytes += file.size_bytes;
    plan_.files.push_back(std::move(file));
  }

  /// Splits along dimension 0, like torchsnapshot.
  void chunked(const std::string& path, const Leaf& leaf, Entry entry) {
    entry.type = EntryType::chunked_tensor;
    const StoredRange shared = stored_range(leaf);
    const auto known = shared == StoredRange{} ? chunks_.end() : chunks_.find(shared);
    if (known != chunks_.end() && known->second.entry.tensor.shape == entry.tensor.shape &&
        known->second.entry.tensor.dtype == entry.tensor.dtype &&
        known->second.writers == writers_of_chunks(path)) {
      entry.pieces = known->second.entry.pieces;
      if (!entry.pieces.empty()) put(path, std::move(entry));
      return;
    }
    const Owner owner = entry.tensor.replicated ? Owner::all_ranks : Owner::one_rank;
    const std::int64_t rows = leaf.shape()[0];
    const std::int64_t step = chunk_rows(leaf);
    std::size_t number = 0;
    for (std::int64_t row = 0; row < rows; row += step) {
      if (!is_written_here(path, number++)) continue;
      entry.pieces.push_back(piece_of(path, leaf, Shape(leaf.shape().size(), 0), row,
                                      std::min(step, rows - row), owner));
    }
    if (shared != StoredRange{}) chunks_.emplace(shared, Chunks{entry, writers_of_chunks(path)});
    if (!entry.pieces.empty()) put(path, std::move(entry));
  }

  std::vector<std::int64_t> writers_of_chunks(const std::string& path) const {
    const auto* writers = writers_of(path);
    return writers == nullptr ? std::vector<std::int64_t>() : *writers;
  }

  static std::string name_of_piece(const std::string& path, const Shape& offsets) {
    std::string name = path;
    for (const std::int64_t offset : offsets) name += "_" + std::to_string(offset);
    return name;
  }

  /// Plans a file with the rows [row, row + num_rows) of a leaf. `offsets`: the position of the
  /// leaf in the whole tensor.
  Piece piece_of(const std::string& path, const Leaf& leaf, Shape offsets, std::int64_t row,
                 std::int64_t num_rows, Owner owner) {
    const std::uint64_t row_bytes = leaf.nbytes() / static_cast<std::uint64_t>(leaf.shape()[0]);
    Piece piece;
    piece.offsets = std::move(offsets);
    piece.offsets[0] += row;
    piece.sizes = leaf.shape();
    piece.sizes[0] = num_rows;
    piece.tensor = raw_entry(leaf, false);  // never marked as replicated, as in torchsnapshot
    piece.tensor.shape = piece.sizes;
    into_file(name_of_piece(path, piece.offsets), leaf, static_cast<std::uint64_t>(row) * row_bytes,
              owner, piece.tensor);
    return piece;
  }

  // --- sharded tensors ---

  void sharded(const std::string& path, const TensorDict::Item& item,
               const SnapshotShards& shards) {
    ++num_shards_found_;
    const auto* list = std::get_if<TensorDict>(&item);
    if (list == nullptr || list->kind() != NodeKind::list ||
        list->size() != shards.offsets.size()) {
      throw refuse_shards()
          .part("a sharded tensor")
          .expected("a list of its ", shards.offsets.size(), " parts")
          .found("another value");
    }
    Entry entry;
    entry.type = shards.is_dtensor ? EntryType::dtensor : EntryType::sharded_tensor;
    if (shards.is_dtensor) describe_mesh(shards, entry);
    std::size_t number = 0;
    list->for_each([&](const std::string&, const TensorDict::Item& part) {
      const auto* leaf = std::get_if<Leaf>(&part);
      const Shape& offsets = shards.offsets[number++];
      if (leaf == nullptr || leaf->is_nested() || leaf->dtype() != shards.dtype ||
          leaf->shape().size() != shards.shape.size() || offsets.size() != shards.shape.size()) {
        throw refuse_shards()
            .part("part ", number - 1, " of a sharded tensor")
            .expected("a dense ", to_string(shards.dtype), " tensor and offsets of ",
                      shards.shape.size(), " dimensions")
            .found("another value");
      }
      // Skip parts without elements, unless the whole tensor has none: readers then compute its
      // shape from the empty parts.
      if (leaf->nbytes() == 0 && numel_of(shards.shape) != 0) return;
      if (!is_box_written_here(path, offsets, leaf->shape())) return;
      shard(path, *leaf, offsets, entry.pieces);
    });
    put(path, std::move(entry));
  }

  void describe_mesh(const SnapshotShards& shards, Entry& entry) const {
    if (static_cast<std::int64_t>(shards.mesh.size()) != numel_of(shards.mesh_shape) ||
        shards.mesh.empty() || shards.dim_map.size() != shards.shape.size()) {
      throw refuse_shards()
          .part("the mesh of a DTensor")
          .expected(
              "a rank for each position in the mesh, and a list of mesh dimensions for each "
              "dimension of the tensor")
          .found("other lengths");
    }
    entry.mesh = nested_list(shards.mesh, shards.mesh_shape);
    Value::List dim_map;
    for (const std::vector<std::int64_t>& dims : shards.dim_map) {
      Value::List list;
      for (const std::int64_t dim : dims) list.items.emplace_back(dim);
      dim_map.items.emplace_back(std::move(list));
    }
    entry.dim_map = std::move(dim_map);
  }

  bool is_box_written_here(const std::string& path, const Shape& offsets,
                           const Shape& sizes) const {
    if (rank_.assignment == nullptr) return true;
    const auto found = rank_.assignment->boxes.find(path);
    if (found == rank_.assignment->boxes.end()) return true;
    return std::ranges::none_of(found->second, [&](const Assignment::SharedBox& box) {
      return box.rank != rank_.rank && box.offsets == offsets && box.sizes == sizes;
    });
  }

  void shard(const std::string& path, const Leaf& leaf, const Shape& offsets,
             std::vector<Piece>& pieces) {
    const std::string name = name_of_piece(path, offsets);
    const bool is_raw = is_among(kRawDTypes, leaf.dtype());
    if (is_raw && leaf.nbytes() >= options_.slab_bytes && is_large(leaf)) {
      const std::int64_t rows = leaf.shape()[0];
      const std::int64_t step = chunk_rows(leaf);
      for (std::int64_t row = 0; row < rows; row += step) {
        pieces.push_back(
            piece_of(path, leaf, offsets, row, std::min(step, rows - row), Owner::shards));
      }
      return;
    }
    Piece piece;
    piece.offsets = offsets;
    piece.sizes = leaf.shape();
    piece.tensor = raw_entry(leaf, false);
    if (leaf.nbytes() == 0) {
      piece.tensor.location = new_location(name, Owner::shards);  // never read
    } else if (is_raw) {
      place(name, leaf, Owner::shards, piece.tensor);
      const auto same_file = [&](const Piece& other) {
        return other.tensor.location == piece.tensor.location &&
               other.tensor.byte_range == piece.tensor.byte_range;
      };
      // Readers refuse a tensor if two of its pieces use the same bytes of a file.
      if (std::ranges::any_of(pieces, same_file)) {
        into_file(name, leaf, 0, Owner::shards, piece.tensor);
      }
    } else {
      piece.tensor.serializer = "torch_save";
      piece.tensor.location = object_file(name, leaf, Owner::shards);
    }
    pieces.push_back(std::move(piece));
  }

  // --- values that are stored as files of torch.save ---

  void pickled(const std::string& path, const Leaf& leaf) {
    if (!is_among(kComplexDTypes, leaf.dtype())) return object(path, leaf, "torch.Tensor");
    if (!is_written_here(path)) return;
    Entry entry;
    entry.type = EntryType::tensor;
    entry.tensor = raw_entry(leaf, is_replicated(path));
    entry.tensor.serializer = "torch_save";
    entry.tensor.location = object_file(path, leaf, owner_of(entry));
    put(path, std::move(entry));
  }

  static Owner owner_of(const Entry& entry) {
    return entry.tensor.replicated ? Owner::all_ranks : Owner::one_rank;
  }

  void object(const std::string& path, const TensorDict::Item& item, std::string type) {
    if (!is_written_here(path)) return;
    Entry entry;
    entry.type = EntryType::object;
    entry.obj_type = std::move(type);
    entry.tensor.serializer = "torch_save";
    entry.tensor.replicated = is_replicated(path);
    entry.tensor.location = object_file(path, item, owner_of(entry));
    put(path, std::move(entry));
  }

  /// Returns the location of a file of torch.save that stores `item`. Equal values with the same
  /// owner, most often None, share a file.
  std::string object_file(const std::string& name, const TensorDict::Item& item, Owner owner) {
    DataFile file;
    try {
      file.object = plan_object_file(item);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      throw Error(error).within(subject());
    }
    const bool is_plain = std::holds_alternative<NonTensor>(item);
    // The first record is the pickle.
    const std::string pickle = is_plain ? file.object.front().head : std::string();
    if (is_plain) {
      const auto known = objects_.find({owner, pickle});
      if (known != objects_.end()) return known->second;
    }
    file.location = new_location(name, owner);
    for (const ZipArchiveEntry& entry : file.object) {
      if (entry.leaf) plan_.num_bytes += entry.leaf->nbytes();
    }
    if (is_plain) objects_.emplace(std::pair(owner, pickle), file.location);
    plan_.files.push_back(std::move(file));
    return plan_.files.back().location;
  }

  /// Returns an unused location: `name` in the folder for `owner`. If that is invalid or used,
  /// returns "%n0", "%n1", ... in the folder; no escaped key contains "%n".
  std::string new_location(const std::string& name, Owner owner) {
    std::string folder = rank_name_ + "/";
    if (owner != Owner::one_rank) {
      // No two ranks write below one folder.
      const std::string of_rank = rank_.world_size == 1 ? std::string() : folder;
      folder = (owner == Owner::all_ranks ? "replicated/" : "sharded/") + of_rank;
    }
    std::string wanted = folder + name;
    if (!is_plain_location(wanted) || !claim(wanted)) {
      wanted = folder + "%n" + std::to_string(num_unnamed_++);
      claim(wanted);
    }
    return wanted;
  }

  /// Reserves a location. Returns false if a component is too long, or if the location conflicts
  /// with a file or folder that is already reserved.
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

  /// The entry of a chunked tensor and, if it is replicated, the ranks that write the chunks.
  struct Chunks {
    Entry entry;
    std::vector<std::int64_t> writers;
  };

  const SnapshotOptions& options_;
  const PlannedRank& rank_;
  std::string rank_name_;
  std::unordered_map<std::string, const SnapshotShards*> shards_;  ///< by path without rank
  std::size_t num_shards_found_ = 0;
  Plan plan_;
  KeyPath keys_;
  std::size_t slab_ = kNone;  ///< the file that gets the next small tensor
  std::size_t num_slabs_ = 0;
  std::size_t num_unnamed_ = 0;
  /// Number of leaves over the same bytes. Leaves that share bytes get one file of their own,
  /// outside of the slabs: if several entries refer to one byte range of a slab, restore() of
  /// torchsnapshot fills only the last of them.
  std::unordered_map<StoredRange, std::size_t> num_uses_;
  std::unordered_map<StoredRange, TensorEntry> places_;
  std::unordered_map<StoredRange, Chunks> chunks_;
  /// Location of a file of torch.save, by owner and pickle.
  std::map<std::pair<Owner, std::string>, std::string> objects_;
  std::unordered_set<std::string> files_;
  std::unordered_set<std::string> folders_;
};

}  // namespace

std::string path_of(const KeyPath& key) {
  std::string path;
  for (std::size_t i = 0; i < key.size(); ++i) path += (i == 0 ? "" : "/") + escape(key[i]);
  return path;
}

Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options,
                   const PlannedRank& rank) {
  return Planner(options, rank).run(tree);
}

}  // namespace tenfold::detail::formats::snapshot

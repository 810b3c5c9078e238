#include "formats/torch_file/write.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "codecs/pickle/text.hpp"
#include "codecs/pickle/writer.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/storable.hpp"
#include "formats/shared/tree_notes.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/torch_file/archive.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

/// The name of the typed storage class of a dtype ("FloatStorage"); empty if torch has none.
std::string_view storage_class(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32:
      return "FloatStorage";
    case DType::float64:
      return "DoubleStorage";
    case DType::float16:
      return "HalfStorage";
    case DType::bfloat16:
      return "BFloat16Storage";
    case DType::int64:
      return "LongStorage";
    case DType::int32:
      return "IntStorage";
    case DType::int16:
      return "ShortStorage";
    case DType::int8:
      return "CharStorage";
    case DType::uint8:
      return "ByteStorage";
    case DType::bool_:
      return "BoolStorage";
    case DType::complex64:
      return "ComplexFloatStorage";
    case DType::complex128:
      return "ComplexDoubleStorage";
    default:
      return "";
  }
}

/// A storage of a file to be written.
struct StorageLayout {
  Leaf bytes;  ///< its elements are written in row-major order
  /// If not `untyped`: the dtype of the typed storage class, and of all tensors in the storage.
  DType dtype = DType::uint8;
  /// True for an UntypedStorage: torch has no typed class for the dtype, or tensors of several
  /// dtypes share the storage.
  bool untyped = false;
};

/// The location of one tensor in its storage, in elements.
struct TensorLayout {
  std::size_t storage = 0;
  std::uint64_t offset = 0;
  Shape strides;
};

struct FileLayout {
  std::vector<StorageLayout> storages;  ///< in the order in which tensors use them
  std::vector<TensorLayout> tensors;    ///< one per leaf
};

/// The content of an archive of torch.save for a tree.
struct Plan {
  std::string pickle;                   ///< data.pkl
  std::vector<StorageLayout> storages;  ///< data/0, data/1, ...
};

/// Plans the archive of any object: a tensor, a JSON value or a node.
Plan make_object_plan(const TensorDict::Item& item);

/// The memory from the first byte to the last byte that elements of a tensor occupy.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t leaf = 0;
};

/// Returns the extent of a leaf in memory; nullopt for a leaf on disk or without elements.
std::optional<Extent> extent_of(const Leaf& leaf, std::size_t number) {
  const Tensor* tensor = leaf.tensor_in_memory();
  if (tensor == nullptr || tensor->numel() == 0) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor->raw_data());
  return Extent{begin, begin + spanned_bytes(*tensor), number};
}

class Planner {
 public:
  explicit Planner(std::span<const Leaf> leaves) : leaves_(leaves), group_of_(leaves.size()) {}

  FileLayout run() {
    find_groups();
    std::vector<std::optional<std::size_t>> storages(groups_.size());
    plan_.tensors.resize(leaves_.size());
    // Number storages in the order of the leaves that use them, as torch does.
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      std::optional<std::size_t>& storage = storages[group_of_[i]];
      if (!storage) storage = add_storage(groups_[group_of_[i]]);
      plan_.tensors[i].storage = *storage;
    }
    return std::move(plan_);
  }

 private:
  /// Leaves that share a storage. If they are in memory, `extent` covers the memory of all of them.
  struct Group {
    std::vector<std::size_t> leaves;
    Extent extent;
  };

  void find_groups() {
    std::vector<Extent> extents;
    std::unordered_map<StoredRange, std::size_t> on_disk;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (const auto extent = extent_of(leaves_[i], i)) {
        extents.push_back(*extent);
        continue;
      }
      const StoredRange key = stored_range(leaves_[i]);
      if (key == StoredRange{}) {
        add_group(i);
      } else if (const auto [found, is_new] = on_disk.try_emplace(key, groups_.size()); is_new) {
        add_group(i);
      } else {
        join(found->second, i);
      }
    }
    group_overlapping(std::move(extents));
  }

  void group_overlapping(std::vector<Extent> extents) {
    std::ranges::stable_sort(extents, {}, &Extent::begin);
    std::optional<std::size_t> open;
    for (const Extent& extent : extents) {
      const bool overlaps = open && extent.begin < groups_[*open].extent.end;
      if (overlaps && is_whole_elements_after(groups_[*open].extent.begin, extent)) {
        Group& group = groups_[*open];
        join(*open, extent.leaf);
        group.extent.end = std::max(group.extent.end, extent.end);
        continue;
      }
      // Offsets count elements. So a tensor gets its own storage if its distance from the start of
      // the shared storage is not a multiple of its itemsize.
      if (!overlaps) open = groups_.size();
      add_group(extent.leaf);
      groups_.back().extent = extent;
    }
  }

  bool is_whole_elements_after(std::uintptr_t begin, const Extent& extent) const {
    return (extent.begin - begin) % itemsize(leaves_[extent.leaf].dtype()) == 0;
  }

  void add_group(std::size_t leaf) {
    group_of_[leaf] = groups_.size();
    groups_.push_back({{leaf}, {}});
  }
  void join(std::size_t group, std::size_t leaf) {
    group_of_[leaf] = group;
    groups_[group].leaves.push_back(leaf);
  }

  bool are_identical_tensors(const Group& group) const {
    const Tensor* first = leaves_[group.leaves.front()].tensor_in_memory();
    return std::ranges::all_of(group.leaves, [&](std::size_t i) {
      const Tensor* other = leaves_[i].tensor_in_memory();
      return other->raw_data() == first->raw_data() && other->dtype() == first->dtype() &&
             other->shape() == first->shape() && other->strides() == first->strides();
    });
  }

  std::size_t add_storage(const Group& group) {
    const Leaf& first = leaves_[group.leaves.front()];
    StorageLayout storage{first, first.dtype(), false};
    storage.untyped = storage_class(first.dtype()).empty() ||
                      std::ranges::any_of(group.leaves, [&](std::size_t i) {
                        return leaves_[i].dtype() != first.dtype();
                      });
    const bool in_memory = group.extent.end > group.extent.begin;
    const bool stays = in_memory && is_copied_unchanged(group);
    if (stays) storage.bytes = memory_of(group);
    for (const std::size_t i : group.leaves) {
      TensorLayout& tensor = plan_.tensors[i];
      if (!stays) {
        tensor.strides = contiguous_strides(leaves_[i].shape());
        continue;
      }
      const Tensor& held = *leaves_[i].tensor_in_memory();
      tensor.strides = held.strides();
      tensor.offset = (reinterpret_cast<std::uintptr_t>(held.raw_data()) - group.extent.begin) /
                      held.itemsize();
    }
    plan_.storages.push_back(std::move(storage));
    return plan_.storages.size() - 1;
  }

  bool is_copied_unchanged(const Group& group) const {
    if (!are_identical_tensors(group)) return true;
    const Tensor& tensor = *leaves_[group.leaves.front()].tensor_in_memory();
    return group.extent.end - group.extent.begin <= tensor.nbytes();
  }

  /// Returns the bytes of the group's extent as a leaf that keeps the tensors' memory alive.
  Leaf memory_of(const Group& group) const {
    auto owners = std::make_shared<std::vector<Buffer>>();
    for (const std::size_t i : group.leaves) {
      owners->push_back(leaves_[i].tensor_in_memory()->buffer());
    }
    const std::size_t size_bytes = group.extent.end - group.extent.begin;
    const std::span bytes(reinterpret_cast<const std::byte*>(group.extent.begin), size_bytes);
    return Tensor(DType::uint8, {static_cast<std::int64_t>(size_bytes)},
                  Buffer::read_only(bytes, std::move(owners)));
  }

  std::span<const Leaf> leaves_;
  std::vector<std::size_t> group_of_;  ///< one per leaf
  std::vector<Group> groups_;
  FileLayout plan_;
};

/// Assigns tensors to storages. As in torch.save, tensors with overlapping memory share one storage
/// and keep their strides, so that aliases and views are preserved. There are three differences
/// from torch.save: views of one tensor that do not overlap get separate storages; tensors with the
/// same memory, dtype, shape and strides are stored contiguously if that takes less space; a tensor
/// whose offset in the shared storage is not a multiple of its itemsize gets a separate storage.
/// Leaves on disk share a storage if they are the same byte range of a file. Does not read the
/// elements of any tensor.
FileLayout lay_out_file(std::span<const Leaf> leaves) { return Planner(leaves).run(); }

constexpr std::string_view kTorchDot = "torch.";
constexpr std::uint64_t kMaxTextBytes = 0xffffffff;

/// The leaves of a tree in the order of the pickle. A node that occurs twice is pickled once.
class LeafCollector {
 public:
  void node(const TensorDict& tree) {
    if (!seen_.insert(node_of(tree).get()).second) return;
    tree.for_each([&](const std::string&, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) leaves.push_back(*leaf);
      if (const auto* below = std::get_if<TensorDict>(&item)) node(*below);
    });
  }

  std::vector<Leaf> leaves;

 private:
  std::unordered_set<const Node*> seen_;
};

class Pickler {
 public:
  Pickler(const FileLayout& layout, const std::vector<Leaf>& leaves)
      : layout_(layout), leaves_(leaves) {}

  std::string run(const TensorDict::Item& root) {
    item(root);
    return to_.take();
  }

 private:
  Error refuse() const {
    return base::unsupported().part(keys_.empty() ? "root" : "key " + base::quote(dotted(keys_)));
  }

  void enter() {
    if (++depth_ <= kMaxDepth) return;
    throw refuse()
        .problem("nested too deeply")
        .expected("at most ", kMaxDepth, " levels")
        .found("more")
        .remedy("check whether a node contains itself");
  }
  void leave() { --depth_; }

  void node(const TensorDict& tree) {
    const auto known = nodes_.find(node_of(tree).get());
    if (known != nodes_.end()) return to_.push(known->second);
    enter();
    const NodeInfo& info = tree.info();
    const auto items = [&](bool has_keys) {
      tree.for_each([&](const std::string& name, const TensorDict::Item& item) {
        keys_.push_back(name);
        if (has_keys) key(name, info);
        this->item(item);
        keys_.pop_back();
      });
    };
    switch (info.kind) {
      case NodeKind::list:
      case NodeKind::lazy_stack:
        to_.begin_list();
        items(false);
        to_.end_list();
        break;
      case NodeKind::tuple:
        to_.begin_tuple();
        items(false);
        to_.end_tuple();
        break;
      case NodeKind::ordered_dict:
        to_.begin_ordered_dict();
        items(true);
        to_.end_ordered_dict();
        if (info.module_versions) module_versions(*info.module_versions);
        break;
      case NodeKind::sparse:
        sparse(tree);
        break;
      case NodeKind::opaque:
        throw refuse()
            .problem("an object of ", base::quote(info.class_name), " cannot be stored")
            .expected("tensors, JSON values and containers")
            .found("an object that was not read");
      case NodeKind::dict:
      case NodeKind::tensordict:
      case NodeKind::tensorclass:
        to_.begin_dict();
        items(true);
        to_.end_dict();
        break;
    }
    nodes_.emplace(node_of(tree).get(), to_.remember());
    leave();
  }

  /// Writes `_metadata`, the attribute that torch's Module.state_dict() sets on the dict that it
  /// returns.
  void module_versions(const Value& versions) {
    to_.begin_dict();
    to_.known_text("_metadata");
    Value ordered = versions;
    std::get<Value::Object>(ordered.data()).ordered = true;
    value(ordered);
    to_.end_dict();
    to_.set_attributes();
  }

  void sparse(const TensorDict& tree) {
    const NodeInfo& info = tree.info();
    if (info.layout == kJagged) {
      throw refuse()
          .problem("a jagged nested tensor cannot be stored")
          .expected("a dense or sparse one")
          .found("one of layout \"jagged\"")
          .remedy("the format \"memmap\" supports it");
    }
    to_.global("torch._utils", "_rebuild_sparse_tensor");
    to_.begin_tuple();
    call("torch.serialization", "_get_layout", [&] { to_.known_text("torch." + info.layout); });
    to_.begin_tuple();
    tree.for_each([&](const std::string& name, const TensorDict::Item& item) {
      keys_.push_back(name);
      this->item(item);
      keys_.pop_back();
    });
    call("torch", "Size", [&] { write_lengths(info.dense_shape); });
    if (info.layout == "sparse_coo") to_.boolean(info.is_coalesced);
    to_.end_tuple();
    to_.end_tuple();
    to_.call();
  }

  /// Writes a call of a function of Python or torch; `arguments` pushes the arguments.
  template <class Arguments>
  void call(std::string_view module, std::string_view name, const Arguments& arguments) {
    to_.global(module, name);
    to_.begin_tuple();
    arguments();
    to_.end_tuple();
    to_.call();
  }

  void item(const TensorDict::Item& item) {
    if (std::holds_alternative<Leaf>(item)) {
      tensor();
    } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
      value(plain->value);
    } else {
      node(std::get<TensorDict>(item));
    }
  }

  /// Writes the key `name` of a dict. `of` is the NodeInfo or the Value::Object of the dict, which
  /// has the types of its keys.
  template <class Dict>
  void key(const std::string& name, const Dict& of) {
    if (of.int_keys) return integer(name);
    if (!of.typed_keys.empty()) {
      if (const Value* typed = find_typed_key(of.typed_keys, name)) return value(*typed);
    }
    require_utf8(name, [&] { return refuse(); });
    to_.known_text(name);
  }

  void integer(std::string_view digits) {
    std::int64_t small = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stopped, error] = std::from_chars(digits.data(), end, small);
    if (error == std::errc() && stopped == end) return to_.integer(small);
    if (!codecs::pickle_decimal(digits) || !to_.big_integer(digits)) {
      throw refuse()
          .problem("an integer that torch cannot load")
          .expected("one from -2^2039 to 2^2039 - 1")
          .found("one of ", digits.size(), " digits");
    }
  }

  void text(const std::string& text) {
    // A pickle may contain lone surrogates, but build_tree() would read such a string as an opaque
    // node.
    if (text.size() > kMaxTextBytes || !base::is_utf8(text)) {
      throw refuse()
          .problem("a string cannot be stored")
          .expected("UTF-8 of less than 4 GiB")
          .found(text.size(), text.size() > kMaxTextBytes ? " bytes" : " bytes that are not UTF-8");
    }
    to_.text(text);
  }

  void value(const Value& value) {
    std::visit([&](const auto& held) { write(held); }, value.data());
  }
  void write(const Value::Null&) { to_.none(); }
  void write(bool held) { to_.boolean(held); }
  void write(std::int64_t held) { to_.integer(held); }
  void write(const Value::BigInt& held) { integer(held.digits); }
  void write(double held) { to_.number(held); }
  void write(const std::string& held) { text(held); }
  void items(const std::vector<Value>& values) {
    std::size_t position = 0;
    for (const Value& item : values) {
      keys_.push_back(std::to_string(position++));
      value(item);
      keys_.pop_back();
    }
  }
  void write(const Value::List& held) {
    enter();
    to_.begin_list();
    items(held.items);
    to_.end_list();
    leave();
  }
  void write(const Value::Tuple& held) {
    enter();
    to_.begin_tuple();
    items(held.items);
    to_.end_tuple();
    leave();
  }
  void write(const Value::Object& held) {
    enter();
    if (held.ordered) {
      to_.begin_ordered_dict();
    } else {
      to_.begin_dict();
    }
    for (const auto& [name, member] : held.members) {
      keys_.push_back(name);
      key(name, held);
      value(member);
      keys_.pop_back();
    }
    to_.end_dict();
    leave();
  }

  void write(const Value::Special& held) {
    using enum Value::Special::Type;
    const auto listed = [&] {
      to_.begin_list();
      items(held.items);
      to_.end_list();
    };
    switch (held.type) {
      case Value::Special::Type::bytes:
        return latin1_bytes(held.text);
      case bytearray:
        return call("builtins", "bytearray", [&] { latin1_bytes(held.text); });
      case Value::Special::Type::complex:
        return call("builtins", "complex", [&] { items(held.items); });
      case set:
        return call("builtins", "set", listed);
      case frozenset:
        throw refuse()
            .problem("a frozenset cannot be stored")
            .expected("a value that torch.load() accepts")
            .found("a frozenset")
            .remedy("store a set");
      case counter:
        return call("collections", "Counter", [&] { items(held.items); });
      case size:
        return call("torch", "Size", [&] {
          to_.begin_tuple();
          items(held.items);
          to_.end_tuple();
        });
      case dtype:
        return torch_constant(held.text, "dtype", is_torch_dtype);
      case qscheme:
        return torch_constant(held.text, "qscheme", is_torch_qscheme);
      case device:
        return call("torch", "device", [&] { text(held.text); });
      case layout:
        return call("torch.serialization", "_get_layout", [&] { text(held.text); });
    }
  }

  /// Writes a constant that torch.load finds by its name.
  void torch_constant(std::string_view text, const std::string& what,
                      bool (*is_known)(std::string_view) noexcept) {
    if (!text.starts_with(kTorchDot) || !is_known(text.substr(kTorchDot.size()))) {
      throw refuse()
          .problem("a ", what, " cannot be stored")
          .expected("one of torch")
          .found(base::quote(text));
    }
    to_.global("torch", text.substr(kTorchDot.size()));
  }

  /// Writes a call that encodes a string in Latin-1, as Python pickles bytes in protocol 2, which
  /// has no opcode for bytes.
  void latin1_bytes(const std::string& bytes) {
    std::string encoded;
    for (const char byte : bytes) {
      const auto value = static_cast<unsigned char>(byte);
      if (value >= 0x80) encoded += static_cast<char>(0xC0U | value >> 6U);
      encoded += static_cast<char>(value >= 0x80 ? 0x80U | (value & 0x3FU) : value);
    }
    call("_codecs", "encode", [&] {
      text(encoded);
      to_.known_text("latin1");
    });
  }

  /// Writes the next leaf, as a call of the function with which torch creates a tensor from a
  /// storage.
  void tensor() {
    const Leaf& leaf = leaves_[next_leaf_];
    const TensorLayout& tensor = layout_.tensors[next_leaf_++];
    const StorageLayout& storage = layout_.storages[tensor.storage];
    require_dense(leaf, [&] { return refuse(); });
    const bool is_parameter =
        leaf.grad() == Grad::parameter || leaf.grad() == Grad::frozen_parameter;
    if (is_parameter) {
      to_.global("torch._utils", "_rebuild_parameter");
      to_.begin_tuple();
    }
    to_.global("torch._utils", storage.untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    to_.begin_tuple();
    write_storage(tensor.storage, storage);
    to_.integer(static_cast<std::int64_t>(tensor.offset));
    write_lengths(leaf.shape());
    write_lengths(tensor.strides);
    write_grad(leaf.grad() == Grad::required);
    if (storage.untyped) to_.global("torch", to_string(leaf.dtype()));
    to_.end_tuple();
    to_.call();
    if (!is_parameter) return;
    write_grad(leaf.grad() == Grad::parameter);
    to_.end_tuple();
    to_.call();
  }

  /// Writes requires_grad, and an empty OrderedDict: the backward hooks.
  void write_grad(bool is_required) {
    to_.boolean(is_required);
    to_.begin_ordered_dict();
    to_.end_ordered_dict();
  }

  void write_storage(std::size_t number, const StorageLayout& storage) {
    to_.begin_tuple();
    to_.known_text("storage");
    if (storage.untyped) {
      to_.global("torch.storage", "UntypedStorage");
    } else {
      to_.global("torch", storage_class(storage.dtype));
    }
    to_.known_text(std::to_string(number));
    to_.known_text("cpu");
    const std::uint64_t item_bytes = storage.untyped ? 1 : itemsize(storage.dtype);
    to_.integer(static_cast<std::int64_t>(storage.bytes.nbytes() / item_bytes));
    to_.end_tuple();
    to_.persistent();
  }

  void write_lengths(const Shape& lengths) {
    if (lengths.size() > codecs::kMaxPickleDimensions) {
      throw refuse()
          .problem("too many dimensions")
          .expected("at most ", codecs::kMaxPickleDimensions)
          .found(lengths.size());
    }
    to_.begin_tuple();
    for (const std::int64_t length : lengths) to_.integer(length);
    to_.end_tuple();
  }

  const FileLayout& layout_;
  const std::vector<Leaf>& leaves_;
  codecs::PickleWriter to_;
  std::unordered_map<const Node*, std::uint32_t> nodes_;  ///< memo slots of pickled nodes
  KeyPath keys_;
  std::size_t next_leaf_ = 0;
  std::size_t depth_ = 0;
};

/// Plans the archive of a tree. A TensorDict and a tensorclass are stored as a dict, a lazy stack
/// as a list; dict, OrderedDict, list, tuple and JSON values keep their types. Throws
/// Error(unsupported), naming the key, for opaque objects, nested and jagged tensors, tensors of
/// more than codecs::kMaxPickleDimensions dimensions, frozensets, integers of more than 255 bytes,
/// strings that are not UTF-8 or have 4 GiB or more, dtypes and quantization schemes that torch
/// does not have, and nesting deeper than kMaxDepth. Also throws like check_pickle(). Does not read
/// the elements of any tensor.
Plan make_plan(const TensorDict& tree) { return make_object_plan(bare_value(tree)); }

Plan make_object_plan(const TensorDict::Item& item) {
  LeafCollector collector;
  if (const auto* leaf = std::get_if<Leaf>(&item)) collector.leaves.push_back(*leaf);
  if (const auto* tree = std::get_if<TensorDict>(&item)) collector.node(*tree);
  FileLayout layout = lay_out_file(collector.leaves);
  Plan plan;
  plan.pickle = Pickler(layout, collector.leaves).run(item);
  check_pickle(plan.pickle);
  plan.storages = std::move(layout.storages);
  return plan;
}

constexpr std::uint32_t kAlignment = 64;  // same as torch

/// Returns the name of the folder that contains all records of the archive: the stem of the file
/// name, as in torch, or "archive" if the stem has characters that are not printable ASCII, or is
/// not a valid name in a zip archive.
std::string root_of(const Path& path) {
  const std::string stem = path.stem().string();
  const bool is_plain = std::ranges::all_of(stem, [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_plain || codecs::zip_name_fault(stem)) return "archive";
  return stem;
}

std::vector<ZipArchiveEntry> entries_of(Plan plan, std::string notes, const std::string& root) {
  std::vector<ZipArchiveEntry> entries;
  entries.reserve(plan.storages.size() + 4);
  const auto add = [&](const std::string& name, std::string text, std::optional<Leaf> leaf) {
    entries.push_back({root + "/" + name, std::move(text), std::move(leaf), kAlignment});
  };
  // torch takes the name of the folder from the first record.
  add("data.pkl", std::move(plan.pickle), std::nullopt);
  add("byteorder", "little", std::nullopt);
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    add("data/" + std::to_string(i), "", std::move(plan.storages[i].bytes));
  }
  add("version", "3\n", std::nullopt);
  if (!notes.empty()) add(std::string(kNotesRecord), std::move(notes), std::nullopt);
  return entries;
}

}  // namespace

void check_pickle(std::string_view pickle, const codecs::PickleLimits& limits) {
  const std::string record = "record \"data.pkl\"";
  if (pickle.size() > kMaxPickleBytes) {
    throw base::unsupported()
        .part(record)
        .problem("too long")
        .expected("at most ", kMaxPickleBytes, " bytes")
        .found(pickle.size());
  }
  // Each node takes at least one byte of the pickle.
  if (pickle.size() <= limits.max_nodes) return;
  static_cast<void>(codecs::read_pickle(pickle, base::Where("", record), limits));
}

void check_tree(const TensorDict& tree) {
  make_plan(tree);
  tree_notes_of(tree);
}

void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  Plan plan = make_plan(tree);
  std::uint64_t total_bytes = 0;
  for (const StorageLayout& storage : plan.storages) total_bytes += storage.bytes.nbytes();
  const std::vector<ZipArchiveEntry> entries =
      entries_of(std::move(plan), request.notes ? tree_notes_of(tree) : "", root_of(path));
  Progress progress(request.monitor, total_bytes, path.filename().string());
  FileReplacement replacement(path, total_bytes);
  write_zip_archive(replacement.file(), entries, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

}  // namespace tenfold::detail::formats::torch_file

namespace tenfold::detail::formats {

std::vector<ZipArchiveEntry> plan_object_file(const TensorDict::Item& item) {
  return torch_file::entries_of(torch_file::make_object_plan(item), "", "archive");
}

}  // namespace tenfold::detail::formats

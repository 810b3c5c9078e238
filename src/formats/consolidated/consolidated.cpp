// The file that tensordict's `consolidate(filename)` writes: the bytes of all tensors, a JSON
// document with their locations, and the length of the document in 8 bytes. This source file
// opens, writes and verifies such files. The other source files:
//   tree          parses the document to a tree of lazy leaves
//   value_stacks  converts between the values of a NonTensorStack and nested lists
//   sidecar       reads and writes the additions of tenfold, in a member of the document that
//                 tensordict ignores

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/consolidated.hpp>
#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/sparse.hpp"
#include "core/value/value_json.hpp"
#include "formats/consolidated/sidecar.hpp"
#include "formats/consolidated/tree.hpp"
#include "formats/consolidated/value_stacks.hpp"
#include "formats/consolidated/write.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/storable.hpp"
#include "formats/shared/tensor_file.hpp"
#include "os/fs/file.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold::detail::formats::consolidated {
namespace {

/// Maximum size of a document that is written or read.
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{256} << 20;

/// The content of a consolidated file for a tree.
struct Plan {
  struct Tensor {
    Leaf leaf;
    std::uint64_t begin = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t stop = 0;  ///< end of the padded tensor: a multiple of 8
  };

  std::vector<Tensor> tensors;  ///< stored tensors, in the order of their bytes
  BlockLayout layout;
  std::string document;  ///< with placeholders for checksums, if requested
};

struct PlanOptions {
  /// Store the notes (core/notes/notes.hpp) and the order of entries, and store shared bytes once.
  /// If this and `checksums` are false, the file is byte for byte what tensordict's `consolidate`
  /// writes, with the two exceptions that the public consolidate() lists.
  bool notes = true;
  bool checksums = true;
  bool locked = false;  ///< `is_locked` of every node in the file
};

Error refuse(const std::string& path) {
  return base::unsupported()
      .part(path.empty() ? "the root" : "key " + base::quote(path))
      .remedy("save in the format \"memmap\", which supports it");
}

/// True if tensordict can read the dtype from a consolidated file: its table of dtypes includes all
/// dtypes except float8 and float4.
bool is_readable(DType dtype) { return dtype < DType::float8_e4m3fn; }

/// Nesting depth of containers, including `value`.
std::size_t depth_of(const Value& value) {
  const bool is_container =
      value.is<Value::List>() || value.is<Value::Tuple>() || value.is<Value::Object>();
  if (!is_container) return 0;
  std::size_t deepest = 0;
  for_each_child(value, [&](const Value& child) { deepest = std::max(deepest, depth_of(child)); });
  return deepest + 1;
}

/// A tensor of a node: its key, dtype and shape, and the index of the stored tensor that has the
/// same bytes. With notes, tensors that share all their bytes have one index, if the bytes are
/// aligned for the dtype of each.
struct Placed {
  std::string key;
  std::size_t tensor = 0;  ///< index in Plan::tensors
  DType dtype = DType::float32;
  Shape shape;
  std::int64_t ragged_dim = 0;  ///< only for the offsets of a jagged tensor
};

struct Level;
using Child = std::variant<Level, NonTensor>;

/// A node. Its entries are in the three groups of the document: values, tensors and nodes.
struct Level {
  const NodeInfo* info = nullptr;
  TensorDict node;  ///< keeps `info` alive
  std::vector<std::pair<std::string, Value>> values;
  std::vector<Placed> leaves;
  std::vector<std::pair<std::string, Child>> nodes;
};

/// Assigns locations to the tensors of a tree, depth first, in the order of the entries.
class Placer {
 public:
  Placer(bool notes, Plan& plan, Sidecar& extra) : notes_(notes), plan_(plan), extra_(extra) {}

  Level level(const TensorDict& tree, const std::string& path, std::size_t depth) {
    check_depth(path, depth, 0);
    Level level;
    level.node = tree;
    level.info = &level.node.info();
    const bool is_stack = tree.kind() == NodeKind::lazy_stack;
    if (is_jagged(tree)) {
      throw refuse(path).expected("a TensorDict").found("a jagged tensor");
    }
    if (tree.kind() == NodeKind::sparse && !notes_) {
      throw refuse(path)
          .problem("a sparse tensor is not supported in tensordict's own format")
          .expected("a dense tensor")
          .found("one of layout ", base::quote(level.info->layout));
    }
    require_valid_info(path, tree);
    if (tree.kind() == NodeKind::tensorclass && !is_tensorclass(level.info->class_name)) {
      throw base::invalid_argument()
          .part(path.empty() ? "the root" : "key " + base::quote(path))
          .part("class_name")
          .expected("the str() of a class, as in \"<class 'module.Class'>\"")
          .found(base::quote(level.info->class_name));
    }
    std::vector<int> groups;
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const std::string child = note_path_child(path, key);
      require_utf8(key, [&] { return refuse(child).remedy("rename the key"); });
      const auto* node = std::get_if<TensorDict>(&item);
      if (is_stack && (node == nullptr || is_jagged(*node))) {
        throw refuse(child)
            .problem("a lazy stack can only store nodes")
            .expected("a node")
            .found(node == nullptr ? "a tensor or value" : "a jagged tensor")
            .remedy("put it into a TensorDict");
      }
      if (is_stack && key != std::to_string(groups.size())) {
        throw base::invalid_argument()
            .part("key ", base::quote(child))
            .part("element of a lazy stack")
            .expected("nodes \"0\", \"1\", ...")
            .found("another key");
      }
      groups.push_back(add(level, key, item, child, depth));
    });
    note_order(groups, path);
    return level;
  }

 private:
  /// Throws if the document would nest too deep. The document nests up to 4 levels deeper than the
  /// tree: the root, a group of entries, an entry, and its shape.
  static void check_depth(const std::string& path, std::size_t depth, std::size_t value_depth) {
    constexpr std::size_t kMost = codecs::kMaxJsonDepth - 4;
    if (depth + value_depth <= kMost) return;
    throw base::invalid_argument()
        .part("key ", base::quote(path))
        .problem("nested too deep")
        .expected("at most ", kMost, " levels")
        .found("more")
        .remedy("check whether a node contains itself");
  }

  /// Adds an entry, and returns its group in the document: 0 for values, 1 for tensors, 2 for
  /// nodes.
  int add(Level& level, const std::string& key, const TensorDict::Item& item,
          const std::string& path, std::size_t depth) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      check_leaf(*leaf, key, path, *level.info);
      level.leaves.push_back(place(*leaf, key));
      return 1;
    }
    if (const auto* node = std::get_if<TensorDict>(&item); node != nullptr && is_jagged(*node)) {
      place_jagged(level, *node, key, path);
      return 1;
    }
    const auto* value = std::get_if<NonTensor>(&item);
    if (value != nullptr) check_depth(path, depth, depth_of(value->value));
    if (value != nullptr && value->is_stack && !value->value.is<Value::List>()) {
      throw base::invalid_argument()
          .part("key ", base::quote(path))
          .part("stack of JSON values")
          .expected("a list")
          .found(value->value.type_name());
    }
    if (value != nullptr && !value->is_stack) {
      level.values.emplace_back(key, value->value);
      return 0;
    }
    if (is_reserved_member(key)) {
      throw refuse(path)
          .problem("a node with this key cannot be stored")
          .expected("a key that tensordict does not reserve")
          .found(base::quote(key));
    }
    if (value != nullptr) {
      level.nodes.emplace_back(key, *value);
    } else {
      level.nodes.emplace_back(key, this->level(std::get<TensorDict>(item), path, depth + 1));
    }
    return 2;
  }

  static bool is_jagged(const TensorDict& node) {
    return node.kind() == NodeKind::sparse && node.info().layout == kJagged;
  }

  void place_jagged(Level& level, const TensorDict& node, const std::string& key,
                    const std::string& path) {
    check_name(key, path);
    check_sparse_indices(node, {"", "key " + base::quote(path)});
    const Shape& shape = node.info().dense_shape;
    require_batch(shape, level.info->batch_size, [&] { return refuse(path); });
    for (const auto& [part, prefix] : {std::pair("values", kJaggedValues),
                                       {"lengths", kJaggedLengths},
                                       {"offsets", kJaggedOffsets}}) {
      if (!node.contains(part)) continue;
      const Leaf leaf = std::get<Leaf>(node.get(part));
      check_dtype(leaf, path);
      level.leaves.push_back(place(leaf, std::string(prefix) + key));
    }
    level.leaves.back().ragged_dim = std::ranges::find(shape, -1) - shape.begin();
  }

  static void check_dtype(const Leaf& leaf, const std::string& path) {
    if (is_readable(leaf.dtype())) return;
    throw refuse(path)
        .problem("tensordict cannot read this dtype from a consolidated file")
        .expected("a dtype that tensordict has a name for")
        .found(to_string(leaf.dtype()));
  }

  static void check_name(const std::string& key, const std::string& path) {
    if (!key.starts_with("<NJT")) return;
    throw refuse(path)
        .problem("tensordict reads a tensor with such a key as a part of a jagged tensor")
        .expected("a key that does not begin with \"<NJT\"")
        .found(base::quote(key));
  }

  void check_leaf(const Leaf& leaf, const std::string& key, const std::string& path,
                  const NodeInfo& info) const {
    require_dense(leaf, [&] { return refuse(path); });
    check_dtype(leaf, path);
    check_name(key, path);
    if (leaf.is_unbatched()) {
      if (notes_) return;
      throw refuse(path)
          .problem("an unbatched tensor cannot be stored")
          .expected("a batched one")
          .found("an unbatched one");
    }
    require_batch(leaf.shape(), info.batch_size, [&] { return refuse(path); });
  }

  Placed place(const Leaf& leaf, const std::string& key) {
    const std::uint64_t size = itemsize(leaf.dtype());
    const std::size_t next = plan_.tensors.size();
    if (notes_) {
      const StoredRange bytes = stored_range(leaf);
      if (bytes != StoredRange{}) {
        const auto [found, added] = stored_.try_emplace(bytes, next);
        if (!added && plan_.tensors[found->second].begin % BlockLayout::alignment(size) == 0) {
          return {key, found->second, leaf.dtype(), leaf.shape(), 0};
        }
      }
    }
    Plan::Tensor tensor{leaf, plan_.layout.add(size, leaf.nbytes()), leaf.nbytes(), 0};
    tensor.stop = plan_.layout.size_bytes();
    plan_.tensors.push_back(std::move(tensor));
    return {key, next, leaf.dtype(), leaf.shape(), 0};
  }

  void note_order(const std::vector<int>& groups, const std::string& path) {
    if (!notes_ || std::ranges::is_sorted(groups)) return;
    std::array<std::size_t, 3> next{};
    for (const int group : groups) {
      for (std::size_t later = static_cast<std::size_t>(group) + 1; later < next.size(); ++later) {
        ++next[later];
      }
    }
    std::vector<std::size_t> order;
    for (const int group : groups) order.push_back(next[static_cast<std::size_t>(group)]++);
    extra_.order.emplace(path, std::move(order));
  }

  bool notes_;
  Plan& plan_;
  Sidecar& extra_;
  std::unordered_map<StoredRange, std::size_t> stored_;
};

/// Writes the document, once all tensors have locations.
class DocumentWriter {
 public:
  DocumentWriter(const Plan& plan, const PlanOptions& options)
      : plan_(plan), options_(options), json_(codecs::JsonStyle::python) {}

  std::string run(const Level& root, const Sidecar& extra) {
    json_.begin_object();
    members(root, true);
    if (!extra.empty()) {
      json_.key("size");
      write_sidecar(extra, json_);
    }
    json_.end_object();
    return json_.take();
  }

 private:
  void members(const Level& level, bool is_root) {
    const NodeInfo& info = *level.info;
    json_.member("cls", class_of(info, is_root));
    json_.key("non_tensors");
    json_.begin_object();
    const Shape batch = is_batched(info) ? info.batch_size : Shape{};
    for (const auto& [key, value] : level.values) this->value(key, value, batch, info.device);
    json_.end_object();
    json_.key("leaves");
    json_.begin_object();
    for (const Placed& placed : level.leaves) leaf(placed);
    json_.end_object();
    json_.key("cls_metadata");
    if (info.kind == NodeKind::lazy_stack) {
      about_stack(info.stack_dim, info.stack_dim_name);
    } else {
      about_node(info, batch);
    }
    for (const auto& [key, child] : level.nodes) {
      json_.key(key);
      if (const auto* inner = std::get_if<Level>(&child)) {
        json_.begin_object();
        members(*inner, false);
        json_.end_object();
      } else {
        const auto& stack = std::get<NonTensor>(child);
        value_stack(stack.value, num_stack_levels(stack.value), stack.stack_dim, batch, info);
      }
    }
  }

  static bool is_batched(const NodeInfo& info) {
    return info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass;
  }

  /// Returns the "cls" of a node. Without notes, a root that is a tensorclass has the "cls"
  /// "TensorDict", because tensordict does not store the class of the root.
  std::string_view class_of(const NodeInfo& info, bool is_root) const {
    if (info.kind == NodeKind::lazy_stack) return "LazyStackedTensorDict";
    const bool kept = info.kind == NodeKind::tensorclass && (options_.notes || !is_root);
    return kept ? std::string_view(info.class_name) : "TensorDict";
  }

  static std::optional<std::string> none_if_empty(const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  }

  void about_node(const NodeInfo& info, const Shape& batch) {
    json_.begin_object();
    json_.member("device", none_if_empty(info.device));
    DimNames names = info.names;
    names.resize(batch.size());
    json_.member("names", names);
    json_.member("batch_size", batch);
    json_.member("is_locked", options_.locked);
    json_.end_object();
  }
  void about_stack(std::int64_t dim, const std::optional<std::string>& name) {
    json_.begin_object();
    json_.member("stack_dim", dim);
    json_.member("stack_dim_name", name);
    json_.member("is_locked", options_.locked);
    json_.end_object();
  }

  void value(const std::string& key, const Value& value, const Shape& batch,
             const std::string& device) {
    json_.key(key);
    json_.begin_array();
    write_json(value, json_);
    json_.value(batch);
    json_.value(none_if_empty(device));
    json_.end_array();
  }

  /// Writes a NonTensorStack: a node whose entries are the elements of `stack` along dimension
  /// `dim`. An element is a value, or again a stack of values. The outer `levels` levels of the
  /// nested lists become stacks, so that all values have the same number of batch dimensions. If
  /// the lists cannot be split along `dim`, the entries are the elements along dimension 0.
  void value_stack(const Value& stack, std::size_t levels, std::int64_t dim, const Shape& batch,
                   const NodeInfo& node) {
    auto elements = static_cast<std::size_t>(dim) < levels
                        ? unstack_values(stack, static_cast<std::size_t>(dim))
                        : std::nullopt;
    if (!elements) {
      dim = 0;
      elements = unstack_values(stack, 0);
    }
    const std::vector<Value> items = std::move(elements).value_or(std::vector<Value>{});
    const bool holds_stacks = levels > 1;
    Shape inner = batch;
    const auto removed = inner.begin() + std::min<std::ptrdiff_t>(dim, std::ssize(inner));
    if (removed != inner.end()) inner.erase(removed);
    json_.begin_object();
    json_.member("cls", "NonTensorStack");
    json_.key("non_tensors");
    json_.begin_object();
    for (std::size_t i = 0; !holds_stacks && i < items.size(); ++i) {
      value(std::to_string(i), items[i], inner, node.device);
    }
    json_.end_object();
    json_.key("leaves");
    json_.begin_object();
    json_.end_object();
    json_.key("cls_metadata");
    about_stack(dim, std::nullopt);
    for (std::size_t i = 0; holds_stacks && i < items.size(); ++i) {
      json_.key(std::to_string(i));
      value_stack(items[i], levels - 1, 0, inner, node);
    }
    json_.end_object();
  }

  void leaf(const Placed& placed) {
    const Plan::Tensor& tensor = plan_.tensors[placed.tensor];
    json_.key(placed.key);
    json_.begin_array();
    json_.string("torch." + to_string(placed.dtype));
    json_.value(placed.shape);
    json_.value(tensor.begin);
    json_.value(tensor.stop);
    json_.value(tensor.stop - tensor.begin - tensor.size_bytes);
    if (placed.ragged_dim > 0) json_.integer(placed.ragged_dim);
    json_.end_array();
  }

  const Plan& plan_;
  const PlanOptions& options_;
  codecs::JsonWriter json_;
};

/// Throws Error(unsupported) if the root has a schema or metadata: a file without notes would
/// silently lose them.
void refuse_described_values(const NodeInfo& root) {
  if (root.schema) {
    throw refuse("")
        .problem("the schema of a data set cannot be stored")
        .expected("none")
        .found("one");
  }
  if (!root.metadata.empty()) {
    throw refuse("")
        .problem("metadata of a safetensors file cannot be stored")
        .expected("none")
        .found("some");
  }
}

/// Plans a file. Throws:
///   Error(unsupported)       an entry that tensordict could not read back; an entry, schema or
///                            metadata that need notes if `options.notes` is false; a document that
///                            is too long
///   Error(invalid_argument)  a tree that nests too deep or contains itself; a stack of JSON values
///                            that is not a list; an invalid NodeInfo or key of a lazy stack
///   Error(corrupt)           a jagged tensor with invalid offsets or lengths
/// and what collect_notes() throws. Errors about an entry name the key.
Plan make_plan(const TensorDict& tree, const PlanOptions& options) {
  Plan plan;
  Sidecar extra;
  const Level root = Placer(options.notes, plan, extra).level(tree, "", 0);
  if (options.notes) {
    extra.notes = collect_notes(tree);
    extra.notes.aliases.clear();  // aliases have the same location in the file
    std::erase_if(extra.notes.nodes,
                  [](const auto& entry) { return entry.second.layout == kJagged; });
    extra.notes.schema = tree.info().schema;
    extra.notes.metadata = tree.info().metadata;
  } else {
    refuse_described_values(tree.info());
  }
  if (options.checksums) {
    std::uint64_t blocks = 0;
    for (const auto& tensor : plan.tensors) blocks += base::num_checksum_blocks(tensor.size_bytes);
    extra.checksums = blank_checksum_text(blocks);
  }
  plan.document = DocumentWriter(plan, options).run(root, extra);
  if (plan.document.size() > kMaxDocumentBytes) {
    throw refuse("")
        .problem("the document is too long")
        .expected("at most ", kMaxDocumentBytes, " bytes")
        .found(plan.document.size());
  }
  return plan;
}

constexpr std::uint64_t kLengthBytes = 8;
/// Upper bound of the gap between two tensors in bytes: padding to a multiple of 8, then alignment
/// to at most 16 bytes, the largest size of an element.
constexpr std::size_t kMaxGapBytes = 16;

/// The location of the document, computed from the length at the end of the file.
struct Document {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// Locates the document, and sets `length` to its stored length. Returns nullopt if a document of
/// that length does not fit the file.
std::optional<Document> find_document(const os::File& file, std::uint64_t file_bytes,
                                      std::uint64_t& length) {
  std::array<std::byte, kLengthBytes> digits{};
  file.read_at(file_bytes - kLengthBytes, digits);
  std::memcpy(&length, digits.data(), sizeof(length));
  if (length > file_bytes - kLengthBytes) return std::nullopt;
  return Document{file_bytes - kLengthBytes - length, length};
}

class ConsolidatedSource final : public Leaves {
 public:
  ConsolidatedSource(os::File file, std::uint64_t data_bytes)
      : file_(std::move(file), 0, data_bytes) {}

  const os::File& file() const noexcept { return file_.file(); }

  Buffer map(const Leaf& leaf) override {
    const TensorRange& range = range_of(leaf);
    return file_.map(range.begin, range.size_bytes, itemsize(range.dtype));
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    file().read_at(range_of(leaf).begin + offset_bytes, into);
  }
  bool is_one_mapping() const noexcept override { return true; }
  StoredRange identity(const Leaf& leaf) override {
    const TensorRange& range = range_of(leaf);
    return StoredRange::in(file().info_at_open(), range.begin, range.size_bytes);
  }
  base::Where where(const Leaf& leaf) const override {
    return file().display() + ": tensor at byte " + std::to_string(range_of(leaf).begin);
  }

 private:
  const TensorRange& range_of(const Leaf& leaf) const {
    return ranges[static_cast<std::size_t>(position_of(leaf))];
  }

  TensorFile file_;
};

struct OpenedFile {
  TensorDict tree;
  Sidecar extra;
  bool locked = false;
  std::string document;
  std::shared_ptr<ConsolidatedSource> source;
  std::uint64_t data_bytes = 0;
};

OpenedFile open_file(os::File file) {
  const std::string where = file.display();
  const auto corrupt = [&] { return base::corrupt(where).part("document length"); };
  const std::uint64_t file_bytes = file.size_bytes();
  if (file_bytes < kLengthBytes) {
    throw corrupt().problem("the file is too short").expected("at least 8 bytes").found(file_bytes);
  }
  std::uint64_t length = 0;
  const auto document = find_document(file, file_bytes, length);
  if (!document) {
    throw corrupt()
        .problem("does not fit the file")
        .expected("at most ", file_bytes - kLengthBytes, " bytes")
        .found(length)
        .remedy("the file may be truncated");
  }
  if (length > kMaxDocumentBytes) {
    throw corrupt()
        .problem("too long")
        .expected("at most ", kMaxDocumentBytes, " bytes")
        .found(length);
  }
  OpenedFile opened;
  opened.document.resize(static_cast<std::size_t>(length));
  file.read_at(document->offset_bytes, std::as_writable_bytes(std::span(opened.document)));
  opened.data_bytes = document->offset_bytes;
  opened.source = std::make_shared<ConsolidatedSource>(std::move(file), opened.data_bytes);
  Tree built = build_tree(opened.document, opened.data_bytes, opened.source, where);
  opened.tree = std::move(built.tree);
  opened.extra = std::move(built.extra);
  opened.locked = built.locked;
  return opened;
}

bool probe(const FileHead& head) {
  const std::uint64_t size_bytes = head.info().size_bytes;
  if (!head.is_file() || size_bytes < kLengthBytes) return false;
  std::uint64_t length = 0;
  const auto document = find_document(head.file(), size_bytes, length);
  if (!document) return false;
  // tensordict writes the member "cls" first.
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(length, 6)), '\0');
  head.file().read_at(document->offset_bytes, std::as_writable_bytes(std::span(start)));
  return start == "{\"cls\"";
}

TensorDict open(const FileHead& head, const OpenRequest& /*request*/) {
  return open_file(head.take_file()).tree;
}

void check(const TensorDict& tree) { make_plan(tree, {}); }

/// Adds a write of zeros for the gap [begin, end), if it is not empty, so that the file is written
/// sequentially.
void add_gap(std::vector<LeafWrite>& writes, os::File& file, const Leaf& zeros, std::uint64_t begin,
             std::uint64_t end) {
  if (begin == end) return;
  writes.push_back({&zeros, &file, begin, end - begin, {}});
}

void write(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  write_tree(tree, path, request, false);
}

/// The checksum blocks of all tensors, in file order. Blocks of shared storage are listed once.
std::vector<BlockCheck> blocks_of(const ConsolidatedSource& source) {
  std::vector<const TensorRange*> ranges;
  for (const TensorRange& range : source.ranges) {
    if (range.size_bytes > 0) ranges.push_back(&range);
  }
  std::ranges::sort(ranges, {}, &TensorRange::begin);
  std::vector<BlockCheck> blocks;
  const TensorRange* before = nullptr;
  for (const TensorRange* range : ranges) {
    if (before != nullptr && before->begin == range->begin) continue;
    before = range;
    for (std::uint64_t done = 0; done < range->size_bytes; done += base::kChecksumBlockBytes) {
      BlockCheck block;
      block.file = &source.file();
      block.offset_bytes = range->begin + done;
      block.size_bytes = std::min(base::kChecksumBlockBytes, range->size_bytes - done);
      block.part = "tensor at byte " + std::to_string(range->begin);
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

/// Returns the checksums at the end of a document that tenfold wrote. Returns "" if there are none,
/// as in a document that tensordict wrote.
std::string_view trailing_checksums(std::string_view document) {
  constexpr std::string_view kEnd = "\"}]}";
  const std::size_t begin = find_last_checksums(document);
  if (begin == std::string_view::npos || !document.ends_with(kEnd)) return {};
  const std::string_view text = document.substr(begin, document.size() - begin - kEnd.size());
  return text.find_first_not_of("0123456789abcdef ") == std::string_view::npos ? text : "";
}

void verify_blocks(const OpenedFile& opened, const Path& path, const VerifyRequest& request,
                   VerifyReport& report) {
  // If the mark "tenfold" before the checksums is damaged, open() ignores the checksums. Find them
  // by their position.
  const std::string_view text = opened.extra.checksums.empty()
                                    ? trailing_checksums(opened.document)
                                    : std::string_view(opened.extra.checksums);
  if (text.empty()) return;
  std::vector<BlockCheck> blocks = blocks_of(*opened.source);
  const std::uint64_t length = opened.document.size();
  ChecksummedDocument document{path.string(),
                               "\"tenfold_xxh3\"",
                               "document",
                               opened.data_bytes,
                               opened.document,
                               text,
                               find_last_checksums(opened.document),
                               blocks.size()};
  document.bytes.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  const auto checksums = check_document(document, report);
  if (!checksums) return;
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].expected = (*checksums)[i];
  std::erase_if(blocks, [&](const BlockCheck& block) {
    return request.skips(block.file->display() + ": " + block.part);
  });
  Progress progress(request.monitor, opened.data_bytes, path.filename().string());
  for (Problem& problem : check_blocks(blocks, request.num_threads, progress)) {
    report.problems.push_back(std::move(problem));
  }
  progress.finish();
}

/// Compares the document and the tensors with their checksums. If the file has no checksums
/// (tensordict writes none), checks only what open() checks: that the document is valid, and that
/// the ranges of its tensors are within the file and do not overlap.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  try {
    const OpenedFile opened = open_file(os::File::open_read(path));
    opened.tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
      if (std::holds_alternative<Leaf>(item)) ++report.num_leaves;
    });
    report.num_bytes = opened.data_bytes;
    verify_blocks(opened, path, request, report);
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "document"});
  }
  return report;
}

}  // namespace

void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request,
                bool locked) {
  Plan plan =
      make_plan(tree, {.notes = request.notes, .checksums = request.checksums, .locked = locked});
  const std::uint64_t data_bytes = plan.layout.size_bytes();
  Progress progress(request.monitor, data_bytes, path.filename().string());
  FileReplacement replacement(path, data_bytes);
  const std::array<std::uint8_t, kMaxGapBytes> no_bytes{};
  const Leaf zeros = Tensor::from(std::span<const std::uint8_t>(no_bytes));
  std::vector<LeafWrite> writes;
  writes.reserve(plan.tensors.size() * 2);
  std::uint64_t end = 0;
  for (const Plan::Tensor& tensor : plan.tensors) {
    add_gap(writes, replacement.file(), zeros, end, tensor.begin);
    writes.push_back({&tensor.leaf, &replacement.file(), tensor.begin, tensor.size_bytes, {}});
    end = tensor.begin + tensor.size_bytes;
  }
  add_gap(writes, replacement.file(), zeros, end, data_bytes);
  write_leaves(writes, xxh3_if(request.checksums), request.num_threads, progress, request.durable);

  const std::uint64_t length = plan.document.size();
  plan.document.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  if (request.checksums) {
    std::vector<std::uint64_t> blocks;
    for (const LeafWrite& write : writes) {
      if (write.leaf == &zeros) continue;
      blocks.insert(blocks.end(), write.block_checksums.begin(), write.block_checksums.end());
    }
    fill_checksums(plan.document, find_last_checksums(plan.document), blocks);
  }
  replacement.file().write_at(data_bytes, std::as_bytes(std::span(plan.document)));
  replacement.publish(request.durable);
  progress.finish();
}

const Format kFormat = {
    .name = "consolidated",
    .noun = "a consolidated file",
    .suffixes = {},
    .holds_sparse = true,
    .probe = probe,
    .open_tree = open,
    .check_tree = check,
    .write_tree = write,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::consolidated

namespace tenfold {

ConsolidatedTree open_consolidated(const Path& path) {
  os::keep_freed_memory();
  const detail::formats::consolidated::OpenedFile opened =
      detail::formats::consolidated::open_file(os::File::open_read(path));
  return {opened.tree, opened.locked};
}

}  // namespace tenfold

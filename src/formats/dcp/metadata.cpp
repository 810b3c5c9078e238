#include "formats/dcp/metadata.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "core/tree/node.hpp"

namespace tenfold::detail::formats::dcp {

using codecs::PickleChange;
using codecs::PickleKind;
using codecs::PickleNode;

namespace {

/// Modules of the metadata classes in different versions of torch.
constexpr std::array<std::string_view, 5> kModules = {
    "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem",
    "torch.distributed._shard.checkpoint.metadata",
    "torch.distributed._shard.checkpoint.filesystem",
    "torch.distributed._shard.sharded_tensor.metadata"};

/// Maximum decompressed size of an object.
constexpr std::uint64_t kMaxObjectBytes = std::uint64_t{1} << 30;
/// Maximum decompressed size of the pickle and headers in the item of a chunk.
constexpr std::uint64_t kMaxOverheadBytes = std::uint64_t{1} << 20;
/// Maximum compression ratio of Zstandard: a block of 4 bytes can repeat one byte for 128 KiB.
constexpr std::uint64_t kMaxZstdRatio = 32'768;
/// Limits the copies of strings and objects that the pickle contains once but refers to many times:
/// kMaxRepeatedBytes, plus kMaxRepeatedRatio bytes for each byte of the pickle. torch writes each
/// name and chunk once, and refers to a name once for each chunk.
constexpr std::uint64_t kMaxRepeatedBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxRepeatedRatio = 64;

std::string index_text(std::string_view name, const Shape& offsets) {
  return std::string(name) + '\0' + base::list_text(offsets);
}

class MetadataReader {
 public:
  MetadataReader(std::string_view pickle, const std::string& where)
      : graph_(codecs::read_pickle(pickle, where)),
        where_(where),
        budget_bytes_(kMaxRepeatedBytes + kMaxRepeatedRatio * pickle.size()) {
    for (const PickleChange& change : graph_.changes) {
      if (change.kind == PickleChange::Kind::state) state_of_[change.object] = change.value;
    }
  }

  Metadata read() {
    if (!is_instance(graph_.root, "Metadata")) {
      throw unsupported()
          .problem("not the metadata of torch.distributed.checkpoint")
          .expected("an object of \"Metadata\"")
          .found(describe(graph_.root))
          .remedy("no module was imported");
    }
    read_storage(field(graph_.root, "storage_data"));
    read_planner(optional_field(graph_.root, "planner_data"));
    const std::uint32_t entries = field(graph_.root, "state_dict_metadata");
    for_each_pair(entries, "state_dict_metadata", [&](std::uint32_t key, std::uint32_t value) {
      name_ = text(key, "name");
      metadata_.entries.push_back(entry(value));
    });
    return std::move(metadata_);
  }

 private:
  PickleNode at(std::uint32_t id) const { return graph_.at(id); }

  // --- errors: `<where>: key "a.b": <what>` ---

  base::Where place() const { return {where_, name_.empty() ? "" : "key " + base::quote(name_)}; }
  Error corrupt() const { return base::corrupt(place()); }
  Error unsupported() const { return base::unsupported(place()); }
  [[noreturn]] void unexpected(const std::string& subject, const std::string& expected,
                               std::uint32_t id) const {
    throw corrupt().part(subject).expected(expected).found(describe(id));
  }

  std::string describe(std::uint32_t id) const { return graph_.describe(id); }

  /// Reduces the budget (see kMaxRepeatedBytes) by the number of bytes that the caller copies or
  /// compares. Throws Error(unsupported) if the budget is exceeded.
  void spend(std::uint64_t size_bytes) const {
    if (size_bytes > budget_bytes_) {
      throw base::unsupported(where_)
          .problem("the pickle repeats shared objects too often")
          .expected("at most ", kMaxRepeatedBytes >> 20, " MiB, plus ", kMaxRepeatedRatio,
                    " bytes for each byte of the pickle")
          .found("more");
    }
    budget_bytes_ -= size_bytes;
  }

  // --- parts of the pickle ---

  bool is_instance(std::uint32_t id, std::string_view name) const {
    const PickleNode node = at(id);
    if (node.kind != PickleKind::newobj) return false;
    const PickleNode type = at(node.items[0]);
    return type.kind == PickleKind::global && type.name == name &&
           std::ranges::find(kModules, type.text) != kModules.end();
  }

  /// Returns the value of an attribute, or nullopt if the object does not have it. If the state has
  /// the name several times, the last one counts, as in Python.
  std::optional<std::uint32_t> optional_field(std::uint32_t object, std::string_view name) const {
    const auto state = state_of_.find(object);
    if (state == state_of_.end()) return std::nullopt;
    const PickleNode fields = at(state->second);
    if (fields.kind != PickleKind::dict) {
      unexpected("state of " + describe(object), "a dict", state->second);
    }
    spend(fields.items.size());
    std::optional<std::uint32_t> found;
    for (std::size_t i = 0; i + 1 < fields.items.size(); i += 2) {
      const PickleNode key = at(fields.items[i]);
      if (key.kind == PickleKind::text && key.text == name) found = fields.items[i + 1];
    }
    return found;
  }

  std::uint32_t field(std::uint32_t object, std::string_view name) const {
    const auto found = optional_field(object, name);
    if (!found) {
      throw corrupt()
          .part(describe(object))
          .expected("the attribute ", base::quote(name))
          .found("none");
    }
    return *found;
  }

  template <class Use>
  void for_each_pair(std::uint32_t id, const std::string& subject, const Use& use) const {
    const PickleNode dict = at(id);
    if (dict.kind != PickleKind::dict) unexpected(subject, "a dict", id);
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      use(dict.items[i], dict.items[i + 1]);
    }
  }

  std::string text(std::uint32_t id, const std::string& subject) const {
    const PickleNode node = at(id);
    if (node.kind != PickleKind::text) unexpected(subject, "a string", id);
    if (!base::is_utf8(node.text)) {
      throw unsupported().part(subject).expected("UTF-8").found(base::quote(node.text));
    }
    spend(node.text.size());
    return std::string(node.text);
  }

  std::uint64_t natural(std::uint32_t id, const std::string& subject) const {
    return graph_.natural(id, [&] { return corrupt().part(subject); });
  }

  Shape lengths(std::uint32_t id, const std::string& subject) const {
    return graph_.lengths(id, [&] { return corrupt().part(subject); });
  }

  // --- content ---

  /// Reads `storage_data`: a dict from the MetadataIndex of each item to its location. The last of
  /// several equal keys counts, as in Python.
  void read_storage(std::uint32_t id) {
    for_each_pair(id, "storage_data", [&](std::uint32_t key, std::uint32_t value) {
      name_.clear();
      if (!is_instance(key, "MetadataIndex")) {
        unexpected("storage_data", "keys of \"MetadataIndex\"", key);
      }
      name_ = text(field(key, "fqn"), "fqn");
      const auto offset = optional_field(key, "offset");
      const bool has_offset = offset && at(*offset).kind != PickleKind::none;
      const Shape offsets = has_offset ? lengths(*offset, "offset") : Shape();
      items_.insert_or_assign(index_text(name_, offsets), item(value));
    });
    name_.clear();
  }

  Item item(std::uint32_t id) {
    if (!is_instance(id, "_StorageInfo")) {
      throw unsupported()
          .problem("stored by another writer")
          .expected("an object of \"_StorageInfo\"")
          .found(describe(id))
          .remedy("no module was imported");
    }
    Item item;
    const auto transforms = optional_field(id, "transform_descriptors");
    if (transforms && at(*transforms).kind != PickleKind::none && !at(*transforms).items.empty()) {
      if (!is_zstd(*transforms)) {
        throw unsupported()
            .problem("stored through an extension")
            .expected("plain bytes or \"stream.zstd/1\"")
            .found(transform_names(*transforms))
            .remedy("save the checkpoint again without extensions");
      }
      item.most_bytes = kMaxObjectBytes;
    }
    item.file = file(text(field(id, "relative_path"), "relative_path"));
    item.begin = natural(field(id, "offset"), "offset");
    item.size_bytes = natural(field(id, "length"), "length");
    return item;
  }

  /// True if the only extension is torch's ZStandard, in version 1 or any version 1.x.
  bool is_zstd(std::uint32_t id) const {
    const PickleNode list = at(id);
    if (list.items.size() != 1 || at(list.items[0]).kind != PickleKind::text) return false;
    const std::string_view text = at(list.items[0]).text;
    return text == "stream.zstd/1" || text.starts_with("stream.zstd/1.");
  }

  std::string transform_names(std::uint32_t id) const {
    std::string names;
    for (const std::uint32_t name : at(id).items) {
      names += (names.empty() ? "" : ", ") + base::quote(at(name).text);
    }
    return names;
  }

  std::uint32_t file(const std::string& name) {
    const auto [found, is_new] =
        files_.emplace(name, static_cast<std::uint32_t>(metadata_.files.size()));
    if (!is_new) return found->second;
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw corrupt()
          .part("relative_path")
          .expected("the name of a file in the folder")
          .found(base::quote(name));
    }
    metadata_.files.push_back(name);
    return found->second;
  }

  /// Reads `planner_data`: a dict from each flattened name to its path. The last of several equal
  /// names counts. An entry whose name has no path is a child of the root.
  void read_planner(std::optional<std::uint32_t> id) {
    if (!id || at(*id).kind != PickleKind::dict) return;
    for_each_pair(*id, "planner_data", [&](std::uint32_t key, std::uint32_t value) {
      const PickleNode name = at(key);
      const PickleNode path = at(value);
      const bool is_path = path.kind == PickleKind::tuple || path.kind == PickleKind::list;
      if (name.kind == PickleKind::text && is_path) paths_.insert_or_assign(name.text, value);
    });
  }

  std::vector<Key> path() const {
    const auto found = paths_.find(name_);
    if (found == paths_.end()) return {{name_, false}};
    const auto items = at(found->second).items;
    if (items.empty() || items.size() > kMaxDepth) {
      throw corrupt()
          .part("planner_data")
          .expected("1 to ", kMaxDepth, " keys")
          .found(items.size());
    }
    std::vector<Key> path;
    for (const std::uint32_t id : items) {
      const bool is_index = at(id).kind == PickleKind::integer;
      path.push_back(
          {is_index ? std::to_string(natural(id, "planner_data")) : text(id, "planner_data"),
           is_index});
      // Count the key once for each key of the path, because the location (`where`) of each node
      // of the tree contains all keys above the node.
      spend(sizeof(Key) + items.size() * path.back().text.size());
    }
    return path;
  }

  Entry entry(std::uint32_t id) const {
    Entry entry;
    entry.name = name_;
    entry.path = path();
    if (is_instance(id, "BytesStorageMetadata")) {
      entry.what = stored({}, "object");
    } else if (is_instance(id, "TensorStorageMetadata")) {
      entry.what = tensor(id);
    } else {
      throw unsupported()
          .problem("neither tensor nor object")
          .expected("one of \"TensorStorageMetadata\" and \"BytesStorageMetadata\"")
          .found(describe(id))
          .remedy("no module was imported");
    }
    return entry;
  }

  Item stored(const Shape& offsets, const std::string& subject) const {
    const auto found = items_.find(index_text(name_, offsets));
    if (found == items_.end()) {
      throw corrupt()
          .part(subject)
          .problem("it is stored nowhere")
          .expected("an entry of storage_data")
          .found("none");
    }
    return found->second;
  }

  TensorEntry tensor(std::uint32_t id) const {
    TensorEntry tensor;
    tensor.dtype = dtype(field(id, "properties"));
    tensor.shape = lengths(field(id, "size"), "size");
    size_of(tensor.dtype, tensor.shape, "size");
    const std::uint32_t chunks = field(id, "chunks");
    if (at(chunks).kind != PickleKind::list) unexpected("chunks", "a list", chunks);
    for (const std::uint32_t chunk : at(chunks).items) add_chunk(tensor, chunk);
    return tensor;
  }

  void add_chunk(TensorEntry& tensor, std::uint32_t id) const {
    if (!is_instance(id, "ChunkStorageMetadata")) {
      unexpected("chunks", "objects of \"ChunkStorageMetadata\"", id);
    }
    Chunk chunk;
    chunk.offsets = lengths(field(id, "offsets"), "offsets of a chunk");
    chunk.sizes = lengths(field(id, "sizes"), "sizes of a chunk");
    spend(sizeof(Chunk) + (chunk.offsets.size() + chunk.sizes.size()) * sizeof(std::int64_t));
    const std::uint64_t size_bytes = size_of(tensor.dtype, chunk.sizes, "sizes of a chunk");
    if (size_bytes == 0) return;
    const std::string subject = "chunk at " + base::list_text(chunk.offsets);
    chunk.item = stored(chunk.offsets, subject);
    if (chunk.item.is_compressed()) {
      chunk.item.most_bytes = size_bytes + kMaxOverheadBytes;
      if (size_bytes / kMaxZstdRatio > chunk.item.size_bytes) {
        throw corrupt()
            .part(subject)
            .problem("its item is too small")
            .expected("at least ", size_bytes / kMaxZstdRatio, " compressed bytes")
            .found(chunk.item.size_bytes);
      }
    } else if (chunk.item.size_bytes < size_bytes) {
      throw corrupt()
          .part(subject)
          .problem("its item is too small")
          .expected("at least ", size_bytes, " bytes")
          .found(chunk.item.size_bytes);
    }
    tensor.chunks.push_back(std::move(chunk));
  }

  std::uint64_t size_of(DType dtype, const Shape& shape, const std::string& subject) const {
    try {
      return nbytes_of(dtype, shape);
    } catch (const Error&) {
      throw corrupt()
          .part(subject)
          .problem("too large")
          .expected("at most 2^63 - 1 bytes")
          .found(base::list_text(shape));
    }
  }

  /// Returns the dtype of a TensorProperties, whose state is a tuple (dtype, layout, requires_grad,
  /// memory format, pin_memory). Throws Error(unsupported) if the layout is known not to be
  /// strided.
  DType dtype(std::uint32_t properties) const {
    const auto state = state_of_.find(properties);
    if (!is_instance(properties, "TensorProperties") || state == state_of_.end()) {
      unexpected("properties", "an object of \"TensorProperties\"", properties);
    }
    const PickleNode tuple = at(state->second);
    if (tuple.kind != PickleKind::tuple || tuple.items.size() < 2) {
      unexpected("properties", "a tuple that starts with dtype and layout", state->second);
    }
    const PickleNode layout = at(tuple.items[1]);
    if (layout.kind == PickleKind::reduce) {
      const PickleNode arguments = at(layout.items[1]);
      const bool is_strided = arguments.kind == PickleKind::tuple && arguments.items.size() == 1 &&
                              at(arguments.items[0]).text == "torch.strided";
      if (!is_strided) {
        throw unsupported()
            .problem("the layout cannot be read")
            .expected("\"torch.strided\"")
            .found("another");
      }
    }
    const PickleNode type = at(tuple.items[0]);
    const auto dtype = type.kind == PickleKind::global && type.text == "torch"
                           ? dtype_from_name(type.name)
                           : std::nullopt;
    if (!dtype) {
      throw unsupported()
          .problem("the dtype cannot be read")
          .expected("a supported one, such as \"torch.float32\"")
          .found(describe(tuple.items[0]));
    }
    return *dtype;
  }

  codecs::PickleGraph graph_;
  const std::string& where_;
  std::unordered_map<std::uint32_t, std::uint32_t> state_of_;  ///< by object
  std::unordered_map<std::string, Item> items_;                ///< by index_text()
  std::unordered_map<std::string_view, std::uint32_t> paths_;
  std::unordered_map<std::string, std::uint32_t> files_;
  Metadata metadata_;
  std::string name_;                    ///< of the current entry
  mutable std::uint64_t budget_bytes_;  ///< the number of bytes that spend() still accepts
};

[[noreturn]] void disagree(const std::string& where, const std::string& name) {
  throw base::corrupt(where)
      .part("key ", base::quote(name))
      .problem("the ranks disagree")
      .expected("the same kind, dtype, shape and path")
      .found("different ones");
}

}  // namespace

Metadata parse_metadata(std::string_view pickle, const std::string& where) {
  return MetadataReader(pickle, where).read();
}

void Merger::add(Metadata other, const std::string& where) {
  const auto first_file = static_cast<std::uint32_t>(merged_.files.size());
  merged_.files.insert(merged_.files.end(), other.files.begin(), other.files.end());
  for (Entry& entry : other.entries) {
    auto* tensor = std::get_if<TensorEntry>(&entry.what);
    if (tensor == nullptr) {
      std::get<Item>(entry.what).file += first_file;
    } else {
      std::erase_if(tensor->chunks, [&](const Chunk& chunk) {
        return !chunks_.insert(index_text(entry.name, chunk.offsets) + base::list_text(chunk.sizes))
                    .second;
      });
      for (Chunk& chunk : tensor->chunks) chunk.item.file += first_file;
    }
    const auto [found, is_new] = positions_.emplace(entry.name, merged_.entries.size());
    if (is_new) {
      merged_.entries.push_back(std::move(entry));
      continue;
    }
    Entry& present = merged_.entries[found->second];
    if (present.what.index() != entry.what.index() || present.path != entry.path) {
      disagree(where, entry.name);
    }
    if (tensor == nullptr) continue;
    auto& target = std::get<TensorEntry>(present.what);
    if (target.dtype != tensor->dtype || target.shape != tensor->shape) {
      disagree(where, entry.name);
    }
    for (Chunk& chunk : tensor->chunks) target.chunks.push_back(std::move(chunk));
  }
}

}  // namespace tenfold::detail::formats::dcp

#include "formats/shared/dcp_manifest.hpp"

#include <array>
#include <span>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/tree/depth.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "core/value/value_reader.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/tree_notes.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::string_view kManifestFormat = "tenfold.distributed";
constexpr std::int64_t kManifestVersion = 1;
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;
constexpr const char* kManifestNotes = "notes";
constexpr std::string_view kManifestSum = "tenfold_xxh3";
constexpr std::size_t kManifestSumDigits = 16;

class TreeWriter {
 public:
  explicit TreeWriter(codecs::JsonWriter& json) : json_(json) {}

  void node(const TensorDict& node) {
    const Depth depth(depth_);
    json_.begin_object();
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      json_.key(key);
      if (std::holds_alternative<Leaf>(item)) {
        json_.integer(next_++);
        return;
      }
      json_.begin_object();
      if (const auto* plain = std::get_if<NonTensor>(&item)) {
        json_.key("value");
        write_json(plain->value, json_);
      } else {
        json_.key("entries");
        this->node(std::get<TensorDict>(item));
      }
      json_.end_object();
    });
    json_.end_object();
  }

 private:
  codecs::JsonWriter& json_;
  std::int64_t next_ = 0;
  std::size_t depth_ = 0;
};

std::string file_name_from(const ValueReader& reader) {
  const std::string& name = reader.text();
  const bool is_plain = !name.empty() && name.front() != '.' &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain) reader.fail("a file name without \"/\" that does not begin with \".\"");
  return name;
}

Shape lengths_from(const ValueReader& reader, DType dtype) {
  Shape lengths = reader.lengths();
  try {
    nbytes_of(dtype, lengths);
  } catch (const Error&) {
    throw reader.error()
        .expected("lengths of a tensor of at most 2^63 - 1 bytes")
        .found(base::list_text(lengths));
  }
  return lengths;
}

/// Parses a tensor: an array of name, dtype, shape and chunks.
ManifestTensor tensor_from(const ValueReader& reader, std::size_t num_files) {
  const auto fields = reader.items(4);
  ManifestTensor tensor;
  tensor.name = fields[0].text();
  tensor.dtype = fields[1].dtype();
  tensor.shape = lengths_from(fields[2], tensor.dtype);
  for (const ValueReader& chunk : fields[3].items()) {
    const auto parts = chunk.items(3);
    const std::uint64_t file = parts[0].count();
    if (file >= num_files) parts[0].fail("a position in \"files\"");
    tensor.chunks.push_back(
        {static_cast<std::size_t>(file), parts[1].lengths(), lengths_from(parts[2], tensor.dtype)});
  }
  return tensor;
}

class TreeReader {
 public:
  TreeReader(const Manifest& manifest, const std::string& where,
             const std::function<Leaf(std::size_t)>& leaf_of)
      : manifest_(manifest),
        where_(where),
        notes_where_(where, kManifestNotes),
        leaf_of_(leaf_of),
        used_(manifest.tensors.size()) {}

  TensorDict node(const Value& value, const std::string& path, const std::string& where) {
    const auto* entries = value.get_if<Value::Object>();
    if (entries == nullptr) fail(path, "an object of entries");
    const Depth depth(depth_);
    auto node = std::make_shared<Node>();
    node->where = where;
    std::vector<std::string> keys;
    for (const auto& [key, item] : entries->members) {
      keys.push_back(key);
      node->entries.push_back({key, slot(item, note_path_child(path, key), where + "/" + key)});
    }
    apply_node_note(manifest_.notes, path, keys, node->info, notes_where_);
    return tensordict_of(std::move(node));
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& expected) const {
    throw base::corrupt(where_)
        .part("tree: key ", base::quote(path))
        .expected(expected)
        .found("something else");
  }

  Node::Slot slot(const Value& value, const std::string& path, const std::string& where) {
    if (const auto* position = value.get_if<std::int64_t>()) {
      if (*position < 0 || static_cast<std::uint64_t>(*position) >= manifest_.tensors.size()) {
        fail(path,
             "the position of one of " + std::to_string(manifest_.tensors.size()) + " tensors");
      }
      const auto number = static_cast<std::size_t>(*position);
      // A leaf needs memory for all chunks of its tensor. If tensors could be repeated, a small
      // manifest could need a lot of memory.
      if (used_[number]) fail(path, "a tensor that no other key has");
      used_[number] = true;
      return leaf_of_(number);
    }
    const auto* fields = value.get_if<Value::Object>();
    if (fields == nullptr || fields->members.size() != 1) fail(path, "a tensor, value or node");
    const auto& [kind, inner] = fields->members.front();
    if (kind == "entries") return node(inner, path, where);
    if (kind != "value") fail(path, "a tensor, value or node");
    NonTensor plain{inner};
    apply_value_note(manifest_.notes, path, plain.value, notes_where_);
    return plain;
  }

  const Manifest& manifest_;
  const std::string& where_;
  const base::Where notes_where_;
  const std::function<Leaf(std::size_t)>& leaf_of_;
  std::vector<bool> used_;  ///< by position in the manifest's tensors
  std::size_t depth_ = 0;
};

std::string manifest_text(const os::Directory& folder, std::string* where = nullptr) {
  const os::File file = os::File::try_open_read_at(folder, std::string(kManifestName));
  if (!file.valid()) return {};
  if (where != nullptr) *where = file.display();
  return file.read_all(kMaxManifestBytes);
}

/// True if the first 64 bytes contain the name of the format, as in every manifest that tenfold
/// writes. Other tools also write files called `metadata.json`.
bool is_manifest(std::string_view text) {
  return text.substr(0, 64).find(base::quote(kManifestFormat)) != std::string_view::npos;
}

}  // namespace

bool has_manifest(const os::Directory& folder, std::string_view layout) {
  const auto info = folder.entry_info(std::string(kManifestName));
  if (!info || !info->is_regular) return false;
  const os::File file = os::File::try_open_read_at(folder, std::string(kManifestName));
  if (!file.valid()) return false;
  std::array<std::byte, 128> start{};
  const std::size_t size = file.read_some_at(0, start);
  const std::string_view text(reinterpret_cast<const char*>(start.data()), size);
  return is_manifest(text) && (layout.empty() || text.find("\"layout\":" + base::quote(layout)) !=
                                                     std::string_view::npos);
}

std::string write_manifest(const std::string& layout, const std::vector<std::string>& files,
                           bool has_checksums, const std::vector<ManifestTensor>& tensors,
                           const TensorDict& tree) {
  codecs::JsonWriter json(codecs::JsonStyle::utf8_compact);
  json.begin_object();
  json.member("format", kManifestFormat);
  json.member("version", kManifestVersion);
  json.member("layout", layout);
  json.member("files", files);
  json.member("checksums", has_checksums);
  json.key("tensors");
  json.begin_array();
  for (const ManifestTensor& tensor : tensors) {
    json.begin_array();
    json.string(tensor.name);
    json.string(to_string(tensor.dtype));
    json.value(tensor.shape);
    json.begin_array();
    for (const ManifestTensor::Chunk& chunk : tensor.chunks) {
      json.begin_array();
      json.value(chunk.file);
      json.value(chunk.offsets);
      json.value(chunk.sizes);
      json.end_array();
    }
    json.end_array();
    json.end_array();
  }
  json.end_array();
  json.key("tree");
  TreeWriter(json).node(tree);
  const Notes notes = collect_notes(tree, false);
  if (!notes.empty()) json.member(kManifestNotes, notes.to_json());
  const std::string tree_notes = tree_notes_of(tree);
  if (!tree_notes.empty()) json.member("tree_notes", tree_notes);
  json.member(kManifestSum, std::string(kManifestSumDigits, '0'));
  json.end_object();
  std::string text = json.take();
  const std::size_t at = text.size() - 2 - kManifestSumDigits;
  text.replace(at, kManifestSumDigits, base::hex16(hash_with_blank_digits(text, at)));
  return text;
}

std::optional<Manifest> read_manifest(const os::Directory& folder) {
  std::string where;
  const std::string text = manifest_text(folder, &where);
  if (!is_manifest(text)) return std::nullopt;
  const Value document = from_json(text, where);
  const base::Where place(where);
  const ValueReader reader(document, place);
  reader.at("version").require_version(kManifestVersion);
  Manifest manifest;
  manifest.layout = reader.at("layout").text();
  for (const ValueReader& file : reader.at("files").items()) {
    manifest.files.push_back(file_name_from(file));
  }
  manifest.has_checksums = reader.at("checksums").flag();
  for (const ValueReader& tensor : reader.at("tensors").items()) {
    manifest.tensors.push_back(tensor_from(tensor, manifest.files.size()));
  }
  manifest.tree = reader.at("tree").value();
  if (const auto notes = reader.find(kManifestNotes)) {
    manifest.notes = Notes::from_json(notes->text(), {where, kManifestNotes});
  }
  if (const auto notes = reader.find("tree_notes")) manifest.tree_notes = notes->text();
  return manifest;
}

TensorDict manifest_tree(const Manifest& manifest, const std::string& where,
                         const std::function<Leaf(std::size_t)>& leaf_of) {
  TensorDict tree = TreeReader(manifest, where, leaf_of).node(manifest.tree, "", where);
  if (!manifest.tree_notes.empty()) {
    apply_tree_notes(manifest.tree_notes, where + ": tree_notes", tree);
  }
  return tree;
}

void verify_manifest(const os::Directory& folder, VerifyReport& report) {
  std::string where;
  const std::string text = manifest_text(folder, &where);
  if (!is_manifest(text)) return;
  ++report.num_checksums;
  const std::string end = "\"}";
  const std::size_t at = text.size() - end.size() - kManifestSumDigits;
  const std::string expected = text.substr(at, kManifestSumDigits);
  if (!text.ends_with(end) || !parse_hex16(expected)) {
    report.problems.push_back(
        problem_of(base::corrupt(where)
                       .part("document")
                       .problem("it has no checksum")
                       .expected("16 hexadecimal digits and ", base::quote(end), " at its end")
                       .found(base::quote(text.substr(at)))
                       .remedy("the file is damaged or was changed")));
    return;
  }
  const std::string found = base::hex16(hash_with_blank_digits(text, at));
  if (found == expected) return;
  report.problems.push_back(
      problem_of(base::corrupt(where)
                     .part("document")
                     .problem("the checksum of ", text.size(), " bytes differs")
                     .expected(base::quote(expected))
                     .found(base::quote(found))
                     .remedy("the file is damaged or was changed")));
}

}  // namespace tenfold::detail::formats

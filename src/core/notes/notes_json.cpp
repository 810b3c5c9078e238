#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kVersion = 1;

using Object = Value::Object;

/// Parses the members of one document; messages name the member.
class NotesReader {
 public:
  explicit NotesReader(const base::Where& where) : where_(where) {}

  Notes read(const Value& document) const {
    const Object& root = object(document, "notes");
    check_version(root);
    Notes notes;
    for (const auto& [name, value] : root.members) member(name, value, notes);
    check_aliases(notes);
    return notes;
  }

 private:
  Error fail(const std::string& part) const { return base::corrupt(where_).part(part); }

  [[noreturn]] void fail_type(const std::string& part, std::string_view expected,
                              const Value& found) const {
    throw fail(part).problem("wrong type").expected(expected).found(found.type_name());
  }

  const Object& object(const Value& value, const std::string& part) const {
    if (const auto* found = value.get_if<Object>()) return *found;
    fail_type(part, "dict", value);
  }

  const std::vector<Value>& list(const Value& value, const std::string& part) const {
    if (const auto* found = value.get_if<Value::List>()) return found->items;
    fail_type(part, "list", value);
  }

  const std::string& text(const Value& value, const std::string& part) const {
    if (const auto* found = value.get_if<std::string>()) return *found;
    fail_type(part, "str", value);
  }

  /// Checks the path and returns a label for messages: "node \"a/b\"".
  std::string part_of(const char* what, const std::string& path) const {
    std::string part = std::string(what) + " " + base::quote(path);
    if (!keys_of_note_path(path).has_value()) {
      throw fail(part)
          .problem("not a path")
          .expected("keys joined by \"/\" with \"%\" and \"/\" as %25 and %2F")
          .found(base::quote(path));
    }
    return part;
  }

  void check_version(const Object& root) const {
    const Value* version = root.find("version");
    if (version == nullptr) {
      throw fail("version").problem("is missing").expected("1").found("no member");
    }
    const auto* number = version->get_if<std::int64_t>();
    if (number == nullptr) fail_type("version", "int", *version);
    if (*number < 1) throw fail("version").problem("out of range").expected("1").found(*number);
    if (*number > kVersion) {
      throw base::unsupported(where_)
          .part("version")
          .problem("is not known")
          .expected("at most ", kVersion)
          .found(*number)
          .remedy("a newer tenfold wrote it");
    }
  }

  void member(const std::string& name, const Value& value, Notes& notes) const {
    if (name == "version") return;
    if (name == "nodes")
      return for_each(value, name, [&](const auto& path, const Value& note) {
        notes.nodes.emplace(path, node_note(path, note));
      });
    if (name == "values")
      return for_each(value, name, [&](const auto& path, const Value& note) {
        notes.values.emplace(path, value_note(path, note));
      });
    if (name == "aliases")
      return for_each(value, name, [&](const auto& path, const Value& note) {
        notes.aliases.emplace(path, alias(path, note));
      });
    if (name == "leaves")
      return for_each(value, name, [&](const auto& path, const Value& note) {
        notes.leaves.emplace(path, leaf_note(path, note));
      });
    if (name == "files")
      return for_each(value, name, [&](const auto& path, const Value& note) {
        notes.files.emplace(path, file_name(path, note));
      });
    if (name == "unbatched") {
      for (const Value& path : list(value, name)) {
        notes.unbatched.push_back(text(path, name));
        part_of("unbatched leaf", notes.unbatched.back());
      }
      return;
    }
    if (name == "schema") {
      notes.schema = value;
      return;
    }
    if (name == "metadata") {
      read_metadata(value, notes);
      return;
    }
    warn(where_.text() + ": member " + base::quote(name) +
         ": is ignored: expected a member of the notes, found an unknown one; a newer tenfold may "
         "have written it");
  }

  template <class Use>
  void for_each(const Value& value, const std::string& name, const Use& use) const {
    for (const auto& [path, note] : object(value, name).members) use(path, note);
  }

  void read_metadata(const Value& value, Notes& notes) const {
    for_each(value, "metadata", [&](const std::string& key, const Value& content) {
      // The keys are free text, not paths.
      notes.metadata.emplace(key, text(content, "metadata " + base::quote(key)));
    });
  }

  Notes::NodeNote node_note(const std::string& path, const Value& value) const {
    const std::string part = part_of("node", path);
    Notes::NodeNote note;
    const Object& members = object(value, part);
    const Value* kind = members.find("kind");
    if (kind == nullptr) {
      throw fail(part).problem("kind is missing").expected("a kind of node").found("no member");
    }
    const auto found = node_kind_from_name(text(*kind, part));
    if (!found.has_value() || !has_note(*found)) {
      throw fail(part)
          .problem("unknown kind")
          .expected("\"dict\", \"ordered_dict\", \"list\", \"tuple\" or \"sparse\"")
          .found(base::quote(text(*kind, part)));
    }
    note.kind = *found;
    note.int_keys = flag(part, members, "int_keys");
    if (const Value* keys = members.find("keys")) note.typed_keys = typed_keys(part, *keys);
    if (note.kind == NodeKind::sparse) read_sparse(part, members, note);
    if (const Value* versions = members.find("versions")) {
      object(*versions, part);
      note.module_versions = *versions;
    }
    note.is_bare = flag(part, members, "bare");
    if (note.is_bare && (!path.empty() || note.kind != NodeKind::dict)) {
      throw fail(part)
          .problem("\"bare\" is not allowed")
          .expected("the root, of kind \"dict\"")
          .found((path.empty() ? base::quote(to_string(note.kind)) : std::string("another node")));
    }
    const bool is_dict = note.kind == NodeKind::dict || note.kind == NodeKind::ordered_dict;
    if (note.int_keys && !note.typed_keys.empty()) {
      throw fail(part)
          .problem("\"int_keys\" and \"keys\" exclude each other")
          .expected("one of them")
          .found("both");
    }
    if ((note.int_keys || !note.typed_keys.empty()) && !is_dict) {
      throw fail(part)
          .problem(note.int_keys ? "\"int_keys\"" : "\"keys\"", " is not allowed for this kind")
          .expected("\"dict\" or \"ordered_dict\"")
          .found(base::quote(to_string(note.kind)));
    }
    return note;
  }

  /// A missing flag is false.
  bool flag(const std::string& part, const Object& members, std::string_view name) const {
    const Value* value = members.find(name);
    if (value == nullptr) return false;
    const bool* found = value->get_if<bool>();
    if (found == nullptr) fail_type(part, "bool", *value);
    return *found;
  }

  /// Parses typed keys: {"0.5": 0.5, "(1, 'a')": [1, "a"]}
  TypedKeys typed_keys(const std::string& part, const Value& value) const {
    TypedKeys keys;
    for (const auto& [text, key] : object(value, part).members) {
      keys.emplace_back(text, with_tuples(key));
    }
    std::ranges::sort(keys, {}, [](const auto& entry) { return std::string_view(entry.first); });
    if (!are_valid(keys)) {
      throw fail(part)
          .part("keys")
          .expected(
              "distinct keys that are null, bool, int, float, or an array of these and strings, "
              "each as the value of the member str(key)")
          .found(short_json(value));
    }
    return keys;
  }

  static Value with_tuples(const Value& value) {
    const auto* list = value.get_if<Value::List>();
    if (list == nullptr) return value;
    Value::Tuple tuple;
    for (const Value& item : list->items) tuple.items.push_back(with_tuples(item));
    return {std::move(tuple)};
  }

  void read_sparse(const std::string& part, const Object& members, Notes::NodeNote& note) const {
    const Value* layout = members.find("layout");
    const Value* shape = members.find("shape");
    if (layout == nullptr || shape == nullptr) {
      throw fail(part)
          .problem(layout == nullptr ? "layout" : "shape", " is missing")
          .expected("layout and shape")
          .found("no member");
    }
    note.layout = text(*layout, part);
    if (sparse_parts(note.layout).empty()) {
      throw fail(part)
          .problem("unknown layout")
          .expected("\"sparse_coo\", \"sparse_csr\", ...")
          .found(base::quote(note.layout));
    }
    if (note.layout == kJagged) {
      note.dense_shape = ragged_shape(part, *shape);
    } else {
      note.dense_shape = shape_of(part, DType::uint8, *shape);
    }
    note.is_coalesced = flag(part, members, "coalesced");
  }

  /// Parses the shape of a jagged tensor, which has -1 for the ragged dimension. Does not check
  /// that there is exactly one -1: check_sparse_indices() does.
  Shape ragged_shape(const std::string& part, const Value& value) const {
    Shape lengths;
    for (const Value& item : list(value, part)) {
      const auto* length = item.get_if<std::int64_t>();
      if (length == nullptr || *length < -1) {
        throw fail(part)
            .problem("bad shape")
            .expected("lengths of at least 0, or -1")
            .found(short_json(item));
      }
      lengths.push_back(*length);
    }
    return lengths;
  }

  Notes::ValueNote value_note(const std::string& path, const Value& value) const {
    const std::string part = part_of("value", path);
    Notes::ValueNote note;
    const Object& members = object(value, part);
    if (const Value* types = members.find("types")) {
      for (const auto& [pointer, content] : object(*types, part).members) {
        const auto type = special_type_from_name(text(content, part));
        // A newer tenfold may write more types.
        if (!type) warn_unknown_type(part, text(content, part));
        if (type) note.types.emplace(pointer, *type);
      }
    }
    if (const Value* keys = members.find("keys")) {
      for (const auto& [pointer, content] : object(*keys, part).members) {
        note.typed_keys.emplace(pointer, typed_keys(part, content));
      }
    }
    for (const auto& [name, into] :
         {std::pair{"tuples", &note.tuples}, std::pair{"int_keys", &note.int_keys},
          std::pair{"ordered", &note.ordered}}) {
      const Value* pointers = members.find(name);
      if (pointers == nullptr) continue;
      for (const Value& pointer : list(*pointers, part)) {
        into->push_back(text(pointer, part));
      }
    }
    return note;
  }

  void warn_unknown_type(const std::string& part, const std::string& type) const {
    warn(where_.text() + ": " + part + ": type " + base::quote(type) +
         ": is ignored: expected a known type, found an unknown one; a newer tenfold may have "
         "written it");
  }

  std::string alias(const std::string& path, const Value& value) const {
    const std::string part = part_of("alias", path);
    part_of("alias target", text(value, part));
    return text(value, part);
  }

  /// Readers open the file of this name, so it must be one plain path component.
  std::string file_name(const std::string& path, const Value& value) const {
    const std::string part = part_of("file of", path);
    const std::string& file = text(value, part);
    constexpr std::size_t kMaxBytes = 255;
    if (file.empty() || file.size() > kMaxBytes || file == "." || file == ".." ||
        file.find('/') != std::string::npos || file.find('\0') != std::string::npos) {
      throw fail(part)
          .problem("not a file name")
          .expected("one path component of 1 to 255 bytes")
          .found(base::quote(file));
    }
    return file;
  }

  Notes::LeafNote leaf_note(const std::string& path, const Value& value) const {
    const std::string part = part_of("leaf", path);
    const Object& members = object(value, part);
    const Value* dtype = members.find("dtype");
    const Value* shape = members.find("shape");
    if (dtype == nullptr || shape == nullptr) {
      throw fail(part)
          .problem(dtype == nullptr ? "dtype" : "shape", " is missing")
          .expected("dtype and shape")
          .found("no member");
    }
    const auto found = dtype_from_name(text(*dtype, part));
    if (!found.has_value()) {
      throw fail(part)
          .problem("unknown dtype")
          .expected("a dtype of torch")
          .found(base::quote(text(*dtype, part)));
    }
    return {*found, shape_of(part, *found, *shape)};
  }

  Shape shape_of(const std::string& part, DType dtype, const Value& value) const {
    Shape shape;
    std::uint64_t size_bytes = itemsize(dtype);
    bool fits = true;
    bool has_zero = false;
    for (const Value& item : list(value, part)) {
      const auto* length = item.get_if<std::int64_t>();
      if (length == nullptr || *length < 0) {
        throw fail(part)
            .problem("bad shape")
            .expected("lengths of at least 0 that fit 63 bits")
            .found(short_json(item));
      }
      shape.push_back(*length);
      has_zero = has_zero || *length == 0;
      const auto product = base::checked_mul(size_bytes, static_cast<std::uint64_t>(*length));
      fits = fits && product.has_value();
      size_bytes = product.value_or(0);
    }
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!has_zero && (!fits || size_bytes > kMax)) {
      throw fail(part)
          .problem("shape is too large")
          .expected("fewer than 2^63 bytes")
          .found(base::list_text(shape));
    }
    return shape;
  }

  void check_aliases(const Notes& notes) const {
    for (const auto& [path, target] : notes.aliases) {
      if (notes.aliases.contains(target)) {
        throw fail("alias " + base::quote(path))
            .problem("its target is an alias")
            .expected("the path of a leaf that is not an alias")
            .found(base::quote(target));
      }
    }
  }

  const base::Where& where_;
};

void write_texts(codecs::JsonWriter& writer, std::string_view key,
                 const std::vector<std::string>& texts) {
  if (!texts.empty()) writer.member(key, texts);
}

/// Writes the member `key`, an object with one member for each item of `map`: `write` writes the
/// value of that member. Writes nothing if `map` is empty. Errors name the item.
template <class Map, class Write>
void write_map(codecs::JsonWriter& writer, std::string_view key, const Map& map,
               const Write& write) {
  if (map.empty()) return;
  writer.key(key);
  writer.begin_object();
  for (const auto& [path, note] : map) {
    writer.key(path);
    try {
      write(note);
    } catch (const Error& error) {
      throw Error(error).within(key, " ", base::quote(path));
    }
  }
  writer.end_object();
}

void write_keys(codecs::JsonWriter& writer, const TypedKeys& keys) {
  writer.begin_object();
  for (const auto& [text, key] : keys) {
    writer.key(text);
    write_json(key, writer);
  }
  writer.end_object();
}

}  // namespace

std::string Notes::to_json() const {
  codecs::JsonWriter writer(codecs::JsonStyle::python);
  writer.begin_object();
  writer.member("version", kVersion);
  write_map(writer, "nodes", nodes, [&](const NodeNote& note) {
    writer.begin_object();
    writer.member("kind", to_string(note.kind));
    if (note.int_keys) writer.member("int_keys", true);
    if (!note.typed_keys.empty()) {
      writer.key("keys");
      write_keys(writer, note.typed_keys);
    }
    if (note.kind == NodeKind::sparse) {
      writer.member("layout", note.layout);
      writer.member("shape", note.dense_shape);
      if (note.is_coalesced) writer.member("coalesced", true);
    }
    if (note.module_versions) {
      writer.key("versions");
      write_json(*note.module_versions, writer);
    }
    if (note.is_bare) writer.member("bare", true);
    writer.end_object();
  });
  write_map(writer, "values", values, [&](const ValueNote& note) {
    writer.begin_object();
    write_texts(writer, "tuples", note.tuples);
    write_texts(writer, "int_keys", note.int_keys);
    write_texts(writer, "ordered", note.ordered);
    write_map(writer, "types", note.types,
              [&](const Value::Special::Type type) { writer.string(to_string(type)); });
    write_map(writer, "keys", note.typed_keys,
              [&](const TypedKeys& keys) { write_keys(writer, keys); });
    writer.end_object();
  });
  write_map(writer, "aliases", aliases, [&](const std::string& target) { writer.string(target); });
  write_map(writer, "leaves", leaves, [&](const LeafNote& note) {
    writer.begin_object();
    writer.member("dtype", to_string(note.dtype));
    writer.member("shape", note.shape);
    writer.end_object();
  });
  write_map(writer, "files", files, [&](const std::string& file) { writer.string(file); });
  write_texts(writer, "unbatched", unbatched);
  if (schema.has_value()) {
    writer.key("schema");
    write_json(*schema, writer);
  }
  write_map(writer, "metadata", metadata, [&](const std::string& text) { writer.string(text); });
  writer.end_object();
  return writer.take();
}

Notes Notes::from_json(std::string_view text, const base::Where& where) {
  return NotesReader(where).read(parse_value(text, where));
}

}  // namespace tenfold

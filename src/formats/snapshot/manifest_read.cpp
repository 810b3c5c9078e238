#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "codecs/json/utf8.hpp"
#include "codecs/yaml.hpp"
#include "core/value/value_json.hpp"
#include "core/value/value_reader.hpp"
#include "formats/snapshot/manifest.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

struct TypeName {
  std::string_view name;
  EntryType type;
};
constexpr std::array<TypeName, 13> kTypes = {{{"Tensor", EntryType::tensor},
                                              {"ChunkedTensor", EntryType::chunked_tensor},
                                              {"ShardedTensor", EntryType::sharded_tensor},
                                              {"DTensor", EntryType::dtensor},
                                              {"object", EntryType::object},
                                              {"list", EntryType::list},
                                              {"dict", EntryType::dict},
                                              {"OrderedDict", EntryType::ordered_dict},
                                              {"int", EntryType::int_},
                                              {"str", EntryType::str},
                                              {"bool", EntryType::bool_},
                                              {"bytes", EntryType::bytes},
                                              {"float", EntryType::float_}}};

/// For a tensor of a known dtype that is stored raw, checks that its size fits 63 bits, and that
/// its byte range, if it has one, has this size. Does nothing for other tensors.
void check_size(const TensorEntry& tensor, const ValueReader& reader) {
  std::optional<DType> dtype;
  if (tensor.dtype.starts_with("torch.")) {
    dtype = dtype_from_name(std::string_view(tensor.dtype).substr(6));
  }
  if (!dtype || tensor.serializer != "buffer_protocol") return;
  std::uint64_t expected = 0;
  try {
    expected = nbytes_of(*dtype, tensor.shape);
  } catch (const Error& error) {
    throw reader.at("shape").error().problem(error.message());
  }
  if (!tensor.byte_range) return;
  const auto [begin, end] = *tensor.byte_range;
  if (end - begin == expected) return;
  throw reader.at("byte_range")
      .error()
      .expected("the ", expected, " bytes of ", tensor.dtype, " ", base::list_text(tensor.shape))
      .found(end - begin);
}

std::string location_of(const ValueReader& reader) {
  const ValueReader location = reader.at("location");
  if (!is_plain_location(location.text())) {
    location.fail("a path that stays below the folder");
  }
  return location.text();
}

TensorEntry tensor_of(const ValueReader& reader) {
  TensorEntry tensor;
  tensor.location = location_of(reader);
  tensor.serializer = reader.at("serializer").text();
  tensor.dtype = reader.at("dtype").text();
  tensor.shape = reader.at("shape").lengths();
  tensor.replicated = reader.at("replicated").flag();
  const auto range = reader.find("byte_range");  // older versions do not write it
  if (range && !range->value().is_null()) {
    const Shape ends = range->lengths();
    if (ends.size() != 2 || ends[0] > ends[1]) {
      throw range->error().expected("begin and end in order").found(base::list_text(ends));
    }
    tensor.byte_range = {static_cast<std::uint64_t>(ends[0]), static_cast<std::uint64_t>(ends[1])};
  }
  check_size(tensor, reader);
  return tensor;
}

std::vector<Piece> pieces_of(const ValueReader& reader) {
  std::vector<Piece> pieces;
  for (const ValueReader& item : reader.items()) {
    Piece piece;
    piece.offsets = item.at("offsets").lengths();
    piece.sizes = item.at("sizes").lengths();
    piece.tensor = tensor_of(item.at("tensor"));
    if (piece.sizes != piece.tensor.shape) {
      throw item.at("sizes")
          .error()
          .expected("the shape of the piece's tensor, ", base::list_text(piece.tensor.shape))
          .found(base::list_text(piece.sizes));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// Returns the keys of a dict. Returns nullopt if a key is a bool, which torchsnapshot treats as an
/// int. Throws Error(corrupt) for keys of types other than str, int and bool.
std::optional<std::vector<Key>> keys_of(const ValueReader& reader) {
  std::vector<Key> keys;
  for (const ValueReader& item : reader.items()) {
    const Value& key = item.value();
    if (const auto* text_key = key.get_if<std::string>()) {
      keys.push_back({*text_key, false});
    } else if (const auto* number = key.get_if<std::int64_t>()) {
      keys.push_back({std::to_string(*number), true});
    } else if (const auto* large = key.get_if<Value::BigInt>()) {
      keys.push_back({large->digits, true});
    } else if (key.is<bool>()) {
      return std::nullopt;
    } else {
      item.fail("a str or an int");
    }
  }
  return keys;
}

Entry entry_of(const ValueReader& reader) {
  const std::string& type_name = reader.at("type").text();
  const auto* known = std::ranges::find(kTypes, type_name, &TypeName::name);
  Entry entry;
  if (known == kTypes.end()) {
    entry.obj_type = type_name;
    return entry;
  }
  entry.type = known->type;
  switch (entry.type) {
    case EntryType::tensor:
      entry.tensor = tensor_of(reader);
      break;
    case EntryType::chunked_tensor:
      entry.tensor.dtype = reader.at("dtype").text();
      entry.tensor.shape = reader.at("shape").lengths();
      entry.tensor.replicated = reader.at("replicated").flag();
      entry.pieces = pieces_of(reader.at("chunks"));
      break;
    case EntryType::sharded_tensor:
    case EntryType::dtensor:
      entry.pieces = pieces_of(reader.at("shards"));
      if (const auto mesh = reader.find("mesh")) entry.mesh = mesh->value();
      if (const auto dim_map = reader.find("dim_map")) entry.dim_map = dim_map->value();
      break;
    case EntryType::object:
      entry.tensor.location = location_of(reader);
      entry.tensor.serializer = reader.at("serializer").text();
      entry.tensor.replicated = reader.at("replicated").flag();
      entry.obj_type = reader.at("obj_type").text();
      break;
    case EntryType::dict:
    case EntryType::ordered_dict:
      if (auto found = keys_of(reader.at("keys"))) {
        entry.keys = *std::move(found);
      } else {
        entry.type = EntryType::unknown;
        entry.obj_type = type_name + " with a bool as key";
      }
      break;
    case EntryType::int_:
    case EntryType::str:
    case EntryType::bool_:
    case EntryType::bytes:
    case EntryType::float_:
      entry.value = reader.at("serialized_value").text();
      entry.tensor.replicated = reader.at("replicated").flag();
      break;
    case EntryType::list:
    case EntryType::unknown:
      break;
  }
  return entry;
}

bool starts_as_json(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

/// Returns the rank at the start of a path, or nullopt if there is none.
std::optional<std::int64_t> rank_of(std::string_view path) {
  const std::string_view digits = path.substr(0, path.find('/'));
  const bool good = !digits.empty() && digits.size() <= 9 && (digits == "0" || digits[0] != '0') &&
                    digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!good) return std::nullopt;
  return std::stoll(std::string(digits));
}

}  // namespace

void Manifest::add(std::string path, Entry entry) {
  index_.emplace(path, entries.size());
  entries.emplace_back(std::move(path), std::move(entry));
}

const Entry* Manifest::find(std::string_view path) const {
  const auto found = index_.find(path);
  return found == index_.end() ? nullptr : &entries[found->second].second;
}

bool is_plain_location(std::string_view location) {
  if (location.find('\0') != std::string_view::npos) return false;
  while (true) {
    const std::size_t slash = location.find('/');
    const std::string_view part = location.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    location.remove_prefix(slash + 1);
  }
}

Value parse_metadata(std::string_view text, const std::string& where) {
  ValueBuilder builder(where);
  if (starts_as_json(text)) {
    codecs::parse_json(text, where, builder);
  } else {
    codecs::parse_yaml(text, where, builder);
  }
  return builder.take();
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Value document = parse_metadata(text, where);
  const base::Where place(where);
  const ValueReader reader(document, place);
  Manifest manifest;
  manifest.version = reader.at("version").text();
  manifest.world_size = reader.at("world_size").integer(1);
  const Value::Object& entries = reader.at("manifest").object();
  manifest.entries.reserve(entries.members.size());
  for (const auto& [path, entry] : entries.members) {
    const base::Where of_entry = place.at("entry " + base::quote(path));
    const auto rank = rank_of(path);
    if (!rank || *rank >= manifest.world_size) {
      throw base::corrupt(of_entry)
          .expected("a path that starts with a rank below ", manifest.world_size)
          .found("another");
    }
    manifest.add(path, entry_of(ValueReader(entry, of_entry)));
  }
  return manifest;
}

namespace {

/// Formats JSON that a YAML parser reads as the same value. In strings, printable ASCII characters
/// are not escaped, except quotes and backslashes, which get a backslash before them. Other
/// characters up to U+FFFF become \uXXXX. Characters above U+FFFF are not escaped, because YAML has
/// no surrogate pairs.
class Text {
 public:
  void raw(std::string_view text) { text_ += text; }

  void string(std::string_view text) {
    text_ += '"';
    while (!text.empty()) {
      const auto [code, size] = codecs::decode_wtf8(text.data(), text.data() + text.size());
      if (size == 0) throw base::invalid_argument().expected("UTF-8").found("other bytes");
      if (code == '"' || code == '\\') {
        text_ += '\\';
        text_ += static_cast<char>(code);
      } else if (code > 0xFFFF || (code >= 0x20 && code < 0x7F)) {
        text_ += text.substr(0, size);
      } else {
        constexpr std::string_view kHex = "0123456789abcdef";
        text_ += "\\u";
        for (const std::uint32_t shift : {12U, 8U, 4U, 0U}) text_ += kHex[(code >> shift) & 0xFU];
      }
      text.remove_prefix(size);
    }
    text_ += '"';
  }

  void member(std::string_view name) {
    if (text_.back() != '{') text_ += ", ";
    string(name);
    text_ += ": ";
  }
  void text_member(std::string_view name, std::string_view value) {
    member(name);
    string(value);
  }
  void bool_member(std::string_view name, bool value) {
    member(name);
    text_ += value ? "true" : "false";
  }
  void shape_member(std::string_view name, const Shape& shape) {
    member(name);
    text_ += '[';
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i != 0) text_ += ", ";
      text_ += std::to_string(shape[i]);
    }
    text_ += ']';
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_tensor(Text& out, const TensorEntry& tensor) {
  out.raw("{");
  out.text_member("type", "Tensor");
  out.text_member("location", tensor.location);
  out.text_member("serializer", tensor.serializer);
  out.text_member("dtype", tensor.dtype);
  out.shape_member("shape", tensor.shape);
  out.bool_member("replicated", tensor.replicated);
  out.member("byte_range");
  if (tensor.byte_range) {
    out.raw("[" + std::to_string(tensor.byte_range->first) + ", " +
            std::to_string(tensor.byte_range->second) + "]");
  } else {
    out.raw("null");
  }
  out.raw("}");
}

void write_pieces(Text& out, std::string_view name, const Entry& entry) {
  out.member(name);
  out.raw("[");
  for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
    const Piece& piece = entry.pieces[i];
    out.raw(i == 0 ? "{" : ", {");
    out.shape_member("offsets", piece.offsets);
    out.shape_member("sizes", piece.sizes);
    out.member("tensor");
    write_tensor(out, piece.tensor);
    out.raw("}");
  }
  out.raw("]");
}

void write_chunked(Text& out, const Entry& entry) {
  out.raw("{");
  out.text_member("type", "ChunkedTensor");
  out.text_member("dtype", entry.tensor.dtype);
  out.shape_member("shape", entry.tensor.shape);
  write_pieces(out, "chunks", entry);
  out.bool_member("replicated", entry.tensor.replicated);
  out.raw("}");
}

void write_sharded(Text& out, const Entry& entry) {
  out.raw("{");
  out.text_member("type", entry.type == EntryType::dtensor ? "DTensor" : "ShardedTensor");
  write_pieces(out, "shards", entry);
  if (entry.type == EntryType::dtensor) {
    out.member("mesh");
    out.raw(to_json(entry.mesh));
    out.member("dim_map");
    out.raw(to_json(entry.dim_map));
  }
  out.raw("}");
}

void write_object(Text& out, const Entry& entry) {
  out.raw("{");
  out.text_member("type", "object");
  out.text_member("location", entry.tensor.location);
  out.text_member("serializer", entry.tensor.serializer);
  out.text_member("obj_type", entry.obj_type);
  out.bool_member("replicated", entry.tensor.replicated);
  out.raw("}");
}

void write_container(Text& out, const Entry& entry) {
  out.raw("{");
  if (entry.type == EntryType::list) {
    out.text_member("type", "list");
    out.raw("}");
    return;
  }
  out.text_member("type", entry.type == EntryType::dict ? "dict" : "OrderedDict");
  out.member("keys");
  out.raw("[");
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    if (i != 0) out.raw(", ");
    if (entry.keys[i].is_int) {
      out.raw(entry.keys[i].text);
    } else {
      out.string(entry.keys[i].text);
    }
  }
  out.raw("]}");
}

void write_primitive(Text& out, const Entry& entry) {
  out.raw("{");
  out.text_member("type", primitive_name(entry.type));
  out.text_member("serialized_value", entry.value);
  out.bool_member("replicated", entry.tensor.replicated);
  out.member("readable");  // torchsnapshot requires it
  if (entry.readable.empty()) {
    out.raw("null");
  } else {
    out.string(entry.readable);
  }
  out.raw("}");
}

void write_entry(Text& out, const Entry& entry) {
  switch (entry.type) {
    case EntryType::tensor:
      return write_tensor(out, entry.tensor);
    case EntryType::chunked_tensor:
      return write_chunked(out, entry);
    case EntryType::sharded_tensor:
    case EntryType::dtensor:
      return write_sharded(out, entry);
    case EntryType::object:
      return write_object(out, entry);
    case EntryType::list:
    case EntryType::dict:
    case EntryType::ordered_dict:
      return write_container(out, entry);
    default:
      return write_primitive(out, entry);
  }
}

}  // namespace

std::string_view primitive_name(EntryType type) {
  switch (type) {
    case EntryType::int_:
      return "int";
    case EntryType::bool_:
      return "bool";
    case EntryType::bytes:
      return "bytes";
    case EntryType::float_:
      return "float";
    default:
      return "str";
  }
}

bool is_container(EntryType type) {
  return type == EntryType::list || type == EntryType::dict || type == EntryType::ordered_dict;
}

bool is_sharded(EntryType type) {
  return type == EntryType::sharded_tensor || type == EntryType::dtensor;
}

std::string escape(std::string_view key) {
  std::string escaped;
  for (const char c : key) {
    if (c == '%') {
      escaped += "%25";
    } else if (c == '/') {
      escaped += "%2F";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string write_manifest(const Manifest& manifest) {
  Text out;
  out.raw("{\n  ");
  out.string("version");
  out.raw(": ");
  out.string(manifest.version);
  out.raw(",\n  \"world_size\": " + std::to_string(manifest.world_size) + ",\n  \"manifest\": {");
  bool first = true;
  for (const auto& [path, entry] : manifest.entries) {
    out.raw(first ? "\n    " : ",\n    ");
    first = false;
    try {
      out.string(path);
      out.raw(": ");
      write_entry(out, entry);
    } catch (const Error& error) {
      throw Error(error).part("entry ", base::quote(path));
    }
  }
  out.raw("\n  }\n}\n");
  return out.take();
}

std::string base64_of(double number) {
  std::array<char, sizeof(double)> bytes{};
  std::memcpy(bytes.data(), &number, bytes.size());
  return base::base64({bytes.data(), bytes.size()});
}

std::optional<double> number_of_base64(std::string_view text) {
  const std::optional<std::string> bytes = base::from_base64(text);
  if (!bytes || bytes->size() != sizeof(double)) return std::nullopt;
  double number = 0;
  std::memcpy(&number, bytes->data(), sizeof(double));
  return number;
}

}  // namespace tenfold::detail::formats::snapshot

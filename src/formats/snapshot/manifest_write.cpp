#include <array>
#include <cstring>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "codecs/json/utf8.hpp"
#include "formats/snapshot/manifest.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// JSON as Python's json.dumps writes it, in the part that a YAML parser reads as the same: what
/// lies beyond 16 bits stands as it is, since YAML knows no surrogate pairs, and DEL is escaped.
class Text {
 public:
  void raw(std::string_view text) { text_ += text; }

  void string(std::string_view text) {
    text_ += '"';
    while (!text.empty()) {
      const auto [code, size] = codecs::decode_wtf8(text.data(), text.data() + text.size());
      if (size == 0) throw Error(ErrorCode::invalid_argument, "text: expected UTF-8, found bytes");
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

void write_chunked(Text& out, const Entry& entry) {
  out.raw("{");
  out.text_member("type", "ChunkedTensor");
  out.text_member("dtype", entry.tensor.dtype);
  out.shape_member("shape", entry.tensor.shape);
  out.member("chunks");
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
  out.bool_member("replicated", entry.tensor.replicated);
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
    out.string(path);
    out.raw(": ");
    write_entry(out, entry);
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

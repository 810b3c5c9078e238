#include <algorithm>
#include <array>
#include <optional>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "codecs/yaml.hpp"
#include "core/value/value_json.hpp"
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

/// Reads the members of one entry. Messages name it.
class EntryReader {
 public:
  EntryReader(const std::string& where, const std::string& path) : where_(where), path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, where_ + ": entry " + base::quote(path_) + ": " + what);
  }
  [[noreturn]] void fail(std::string_view member, const std::string& expected,
                         const Value& found) const {
    fail(base::quote(member) + ": expected " + expected + ", found " +
         std::string(found.type_name()));
  }

  const Value::Object& object(const Value& value, std::string_view member) const {
    const auto* found = value.get_if<Value::Object>();
    if (found == nullptr) fail(member, "a dict", value);
    return *found;
  }
  const Value& member(const Value::Object& entry, std::string_view name) const {
    const Value* found = entry.find(name);
    if (found == nullptr) fail(base::quote(name) + ": expected such a member, found none");
    return *found;
  }
  std::string text(const Value::Object& entry, std::string_view name) const {
    const Value& found = member(entry, name);
    const auto* held = found.get_if<std::string>();
    if (held == nullptr) fail(name, "a str", found);
    return *held;
  }
  bool boolean(const Value::Object& entry, std::string_view name) const {
    const Value& found = member(entry, name);
    const auto* held = found.get_if<bool>();
    if (held == nullptr) fail(name, "a bool", found);
    return *held;
  }
  const std::vector<Value>& list(const Value::Object& entry, std::string_view name) const {
    const Value& found = member(entry, name);
    const auto* held = found.get_if<Value::List>();
    if (held == nullptr) fail(name, "a list", found);
    return held->items;
  }
  Shape lengths(const Value::Object& entry, std::string_view name) const {
    Shape shape;
    for (const Value& item : list(entry, name)) {
      const auto* length = item.get_if<std::int64_t>();
      if (length == nullptr || *length < 0) fail(name, "integers from 0", item);
      shape.push_back(*length);
    }
    return shape;
  }

  TensorEntry tensor(const Value::Object& entry) const {
    TensorEntry tensor;
    tensor.location = location(entry);
    tensor.serializer = text(entry, "serializer");
    tensor.dtype = text(entry, "dtype");
    tensor.shape = lengths(entry, "shape");
    tensor.replicated = boolean(entry, "replicated");
    const Value* range = entry.find("byte_range");  // older versions write none
    if (range != nullptr && !range->is_null()) {
      const Shape ends = lengths(entry, "byte_range");
      if (ends.size() != 2 || ends[0] > ends[1]) {
        fail("\"byte_range\": expected begin and end in order, found " + base::list_text(ends));
      }
      tensor.byte_range = {static_cast<std::uint64_t>(ends[0]),
                           static_cast<std::uint64_t>(ends[1])};
    }
    check_size(tensor);
    return tensor;
  }

  std::string location(const Value::Object& entry) const {
    std::string found = text(entry, "location");
    if (!is_plain_location(found)) {
      fail("\"location\": expected a path that stays below the folder, found " +
           base::quote(found));
    }
    return found;
  }

  std::vector<Piece> pieces(const Value::Object& entry, std::string_view name) const {
    std::vector<Piece> pieces;
    for (const Value& item : list(entry, name)) {
      const Value::Object& object_of_piece = object(item, name);
      Piece piece;
      piece.offsets = lengths(object_of_piece, "offsets");
      piece.sizes = lengths(object_of_piece, "sizes");
      piece.tensor = tensor(object(member(object_of_piece, "tensor"), "tensor"));
      if (piece.sizes != piece.tensor.shape) {
        fail("\"sizes\": expected the shape of the piece's tensor, " +
             base::list_text(piece.tensor.shape) + ", found " + base::list_text(piece.sizes));
      }
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }

  /// Nothing if one is neither str nor int: torchsnapshot takes a bool for an int.
  std::optional<std::vector<Key>> keys(const Value::Object& entry) const {
    std::vector<Key> keys;
    for (const Value& item : list(entry, "keys")) {
      if (const auto* text_key = item.get_if<std::string>()) {
        keys.push_back({*text_key, false});
      } else if (const auto* number = item.get_if<std::int64_t>()) {
        keys.push_back({std::to_string(*number), true});
      } else if (const auto* large = item.get_if<Value::BigInt>()) {
        keys.push_back({large->digits, true});
      } else if (item.is<bool>()) {
        return std::nullopt;
      } else {
        fail("keys", "each a str or an int", item);
      }
    }
    return keys;
  }

  Entry entry(const Value& value) const {
    const Value::Object& members = object(value, "entry");
    const std::string type_name = text(members, "type");
    const auto* known = std::ranges::find(kTypes, type_name, &TypeName::name);
    Entry entry;
    if (known == kTypes.end()) {
      entry.obj_type = type_name;
      return entry;
    }
    entry.type = known->type;
    switch (entry.type) {
      case EntryType::tensor:
        entry.tensor = tensor(members);
        break;
      case EntryType::chunked_tensor:
        entry.tensor.dtype = text(members, "dtype");
        entry.tensor.shape = lengths(members, "shape");
        entry.tensor.replicated = boolean(members, "replicated");
        entry.pieces = pieces(members, "chunks");
        break;
      case EntryType::sharded_tensor:
      case EntryType::dtensor:
        entry.pieces = pieces(members, "shards");
        break;
      case EntryType::object:
        entry.tensor.location = location(members);
        entry.tensor.serializer = text(members, "serializer");
        entry.tensor.replicated = boolean(members, "replicated");
        entry.obj_type = text(members, "obj_type");
        break;
      case EntryType::dict:
      case EntryType::ordered_dict:
        if (auto found = keys(members)) {
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
        entry.value = text(members, "serialized_value");
        entry.tensor.replicated = boolean(members, "replicated");
        break;
      case EntryType::list:
      case EntryType::unknown:
        break;
    }
    return entry;
  }

 private:
  /// Raw bytes have the size that dtype and shape say.
  void check_size(const TensorEntry& tensor) const {
    std::optional<DType> dtype;
    if (tensor.dtype.starts_with("torch.")) {
      dtype = dtype_from_name(std::string_view(tensor.dtype).substr(6));
    }
    if (!dtype || tensor.serializer != "buffer_protocol") return;
    std::uint64_t expected = 0;
    try {
      expected = nbytes_of(*dtype, tensor.shape);
    } catch (const Error& error) {
      fail(std::string("\"shape\": ") + error.what());
    }
    if (!tensor.byte_range) return;
    const auto [begin, end] = *tensor.byte_range;
    if (end - begin == expected) return;
    fail("\"byte_range\": expected the " + std::to_string(expected) + " bytes of " + tensor.dtype +
         " " + base::list_text(tensor.shape) + ", found " + std::to_string(end - begin));
  }

  const std::string& where_;
  const std::string& path_;
};

bool starts_as_json(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

/// The rank that a path begins with.
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
  const std::string whole = "the document";
  const EntryReader top(where, whole);
  const Value::Object& members = top.object(document, "document");
  Manifest manifest;
  manifest.version = top.text(members, "version");
  const Value& world_size = top.member(members, "world_size");
  const auto* ranks = world_size.get_if<std::int64_t>();
  if (ranks == nullptr || *ranks < 1) top.fail("world_size", "an integer from 1", world_size);
  manifest.world_size = *ranks;
  const Value::Object& entries = top.object(top.member(members, "manifest"), "manifest");
  manifest.entries.reserve(entries.members.size());
  for (const auto& [path, value] : entries.members) {
    const EntryReader reader(where, path);
    const auto rank = rank_of(path);
    if (!rank || *rank >= manifest.world_size) {
      reader.fail("expected a path that starts with a rank below " +
                  std::to_string(manifest.world_size) + ", found another");
    }
    manifest.add(path, reader.entry(value));
  }
  return manifest;
}

}  // namespace tenfold::detail::formats::snapshot

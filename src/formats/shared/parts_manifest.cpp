#include "formats/shared/parts_manifest.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::size_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxComponentBytes = 255;

bool is_component(std::string_view name) {
  return !name.empty() && name.size() <= kMaxComponentBytes && name != "." && name != ".." &&
         name.find('\0') == std::string_view::npos;
}

/// One object of the document; errors name its members.
class Members {
 public:
  Members(const Value& value, base::Where where)
      : where_(std::move(where)), object_(value.get_if<Value::Object>()) {
    if (object_ == nullptr) {
      throw base::corrupt(where_).expected("an object").found(value.type_name());
    }
  }

  const Value& at(const char* key) const {
    if (const Value* found = object_->find(key)) return *found;
    throw base::corrupt(where_).part("member ", base::quote(key)).problem("is missing");
  }
  std::int64_t count(const char* key) const {
    const auto* found = at(key).get_if<std::int64_t>();
    if (found == nullptr || *found < 0) fail(key, "an integer of 0 or more");
    return *found;
  }
  std::string text(const char* key) const {
    const auto* found = at(key).get_if<std::string>();
    if (found == nullptr) fail(key, "a string");
    return *found;
  }
  bool flag(const char* key) const {
    const Value* value = object_->find(key);
    if (value == nullptr) return false;
    const auto* found = value->get_if<bool>();
    if (found == nullptr) fail(key, "true or false");
    return *found;
  }
  std::optional<std::uint64_t> checksum(const char* key) const {
    const Value& value = at(key);
    if (value.is_null()) return std::nullopt;
    const auto* digits = value.get_if<std::string>();
    std::uint64_t number = 0;
    const bool has_16 = digits != nullptr && digits->size() == 16;
    const char* end = has_16 ? digits->data() + digits->size() : nullptr;
    if (!has_16 || std::from_chars(digits->data(), end, number, 16).ptr != end) {
      fail(key, "16 hexadecimal digits or null");
    }
    return number;
  }

  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    const auto* text = at(key).get_if<std::string>();
    throw base::corrupt(where_)
        .part("member ", base::quote(key))
        .expected(expected)
        .found(base::quote(text != nullptr ? *text : to_json(at(key))));
  }

 private:
  base::Where where_;
  const Value::Object* object_;
};

PartEntry entry_from(const Value& value, const base::Where& where) {
  const Members members(value, where);
  PartEntry part;
  part.path = members.text("path");
  const std::vector<std::string> names = components_of(part.path);
  if (part.path.size() > kMaxPathBytes || !std::ranges::all_of(names, is_component)) {
    members.fail("path", "a relative path that stays below the folder, without \"..\"");
  }
  part.num_rows = members.count("num_rows");
  part.num_bytes = static_cast<std::uint64_t>(members.count("num_bytes"));
  part.checksum = members.checksum("checksum");
  part.is_open = members.flag("open");
  return part;
}

/// Throws if two parts have the same path, or if one contains another. Compares paths by
/// components, so that "a/b" comes right after "a".
void check_paths(const std::vector<PartEntry>& parts, const std::string& where) {
  std::map<std::vector<std::string>, std::string_view> paths;
  for (const PartEntry& part : parts) {
    if (paths.emplace(components_of(part.path), part.path).second) continue;
    throw base::corrupt(where)
        .part("part ", base::quote(part.path))
        .expected("each part once")
        .found("it twice");
  }
  const std::vector<std::string>* before = nullptr;
  std::string_view path_before;
  for (const auto& [names, path] : paths) {
    if (before != nullptr && before->size() < names.size() &&
        std::equal(before->begin(), before->end(), names.begin())) {
      throw base::corrupt(where)
          .part("part ", base::quote(path_before))
          .expected("parts that do not contain each other")
          .found("one inside another");
    }
    before = &names;
    path_before = path;
  }
}

void check_totals(const std::vector<PartEntry>& parts, const std::string& where) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  for (const PartEntry& part : parts) {
    rows += static_cast<std::uint64_t>(part.num_rows);
    bytes += part.num_bytes;
    if (rows <= kMost && bytes <= kMost) continue;
    throw base::corrupt(where)
        .part("part ", base::quote(part.path))
        .expected("fewer than 2^63 rows and bytes in all")
        .found("more");
  }
}

}  // namespace

std::vector<std::string> components_of(std::string_view part_path) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= part_path.size();) {
    const std::size_t end = std::min(part_path.find('/', begin), part_path.size());
    names.emplace_back(part_path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

PartsManifest parse_parts_manifest(std::string_view text, std::string_view where) {
  const Value document = from_json(text, where);
  const std::string place(where);
  const Members members(document, place);
  const std::int64_t version = members.count("version");
  if (version > kPartsVersion) {
    throw base::unsupported(place)
        .part("version")
        .expected(kPartsVersion)
        .found(version)
        .remedy("use a newer version of tenfold");
  }
  if (version < 1) members.fail("version", "1");
  PartsManifest manifest;
  manifest.schema = members.at("schema");
  const auto* parts = members.at("parts").get_if<Value::List>();
  if (parts == nullptr) members.fail("parts", "an array");
  manifest.parts.reserve(parts->items.size());
  for (std::size_t i = 0; i < parts->items.size(); ++i) {
    manifest.parts.push_back(
        entry_from(parts->items[i], {place, "parts[" + std::to_string(i) + "]"}));
    if (i > 0 && manifest.parts[i - 1].is_open) {
      throw base::corrupt(place)
          .part("part ", base::quote(manifest.parts[i - 1].path))
          .expected("only the last part to be open")
          .found("one before it");
    }
  }
  check_paths(manifest.parts, place);
  check_totals(manifest.parts, place);
  return manifest;
}

std::string parts_manifest_text(const PartsManifest& manifest) {
  // A line for each part, for people.
  std::string text = "{\"version\": " + std::to_string(kPartsVersion) +
                     ",\n \"schema\": " + to_json(manifest.schema) + ",\n \"parts\": [";
  for (std::size_t i = 0; i < manifest.parts.size(); ++i) {
    const PartEntry& part = manifest.parts[i];
    text += (i == 0 ? "\n  {" : ",\n  {");
    text += "\"path\": " + to_json(Value(part.path)) +
            ", \"num_rows\": " + std::to_string(part.num_rows) +
            ", \"num_bytes\": " + std::to_string(part.num_bytes) + ", \"checksum\": " +
            (part.checksum ? "\"" + base::hex16(*part.checksum) + "\"" : "null") +
            (part.is_open ? ", \"open\": true}" : "}");
  }
  return text + "]}\n";
}

bool has_parts_manifest(const os::Directory& folder) {
  return folder.entry_info(std::string(kPartsName)).has_value();
}

PartsManifest read_parts_manifest(const os::Directory& folder) {
  const os::File file = os::File::open_read_at(folder, std::string(kPartsName));
  return parse_parts_manifest(file.read_all(kMaxPartsBytes), file.display());
}

}  // namespace tenfold::detail::formats

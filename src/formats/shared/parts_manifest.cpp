#include "formats/shared/parts_manifest.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "core/value/value_reader.hpp"
#include "formats/shared/json_checksums.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::size_t kMaxPathBytes = 4096;

bool is_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('\0') == std::string_view::npos;
}

std::optional<std::uint64_t> checksum_from(const ValueReader& reader) {
  if (reader.value().is_null()) return std::nullopt;
  const auto* digits = reader.value().get_if<std::string>();
  const auto checksum = digits == nullptr ? std::nullopt : parse_hex16(*digits);
  if (!checksum) reader.fail("16 hexadecimal digits or null");
  return checksum;
}

PartEntry entry_from(const ValueReader& reader) {
  PartEntry part;
  part.path = reader.at("path").text();
  const std::vector<std::string> names = components_of(part.path);
  const auto is_long = [](const std::string& name) { return name.size() > os::kMaxNameBytes; };
  if (part.path.size() > kMaxPathBytes || std::ranges::any_of(names, is_long)) {
    reader.at("path").fail("at most " + std::to_string(kMaxPathBytes) + " bytes, and at most " +
                           std::to_string(os::kMaxNameBytes) + " in each component");
  }
  if (!std::ranges::all_of(names, is_component)) {
    reader.at("path").fail("a relative path that stays below the folder, without \"..\"");
  }
  part.num_rows = reader.at("num_rows").integer();
  part.num_bytes = reader.at("num_bytes").count();
  part.checksum = checksum_from(reader.at("checksum"));
  if (const auto open = reader.find("open")) part.is_open = open->flag();
  return part;
}

/// Throws if two parts have the same path, or if one contains another. Sorts paths by
/// components, so that the paths inside "a" directly follow "a".
void check_paths(const std::vector<PartEntry>& parts, const std::string& where) {
  std::map<std::vector<std::string>, std::string_view> paths;
  for (const PartEntry& part : parts) {
    if (paths.emplace(components_of(part.path), part.path).second) continue;
    throw base::corrupt(where)
        .part("part ", base::quote(part.path))
        .expected("each part once")
        .found("it more than once");
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
  const base::Where place(where);
  const ValueReader reader(document, place);
  reader.at("version").require_version(kPartsVersion);
  PartsManifest manifest;
  manifest.schema = reader.at("schema").value();
  for (const ValueReader& item : reader.at("parts").items()) {
    if (!manifest.parts.empty() && manifest.parts.back().is_open) {
      throw base::corrupt(place)
          .part("part ", base::quote(manifest.parts.back().path))
          .expected("only the last part to be open")
          .found("this part open, and another part after it");
    }
    manifest.parts.push_back(entry_from(item));
  }
  check_paths(manifest.parts, place.path);
  check_totals(manifest.parts, place.path);
  return manifest;
}

std::string parts_manifest_text(const PartsManifest& manifest) {
  // One line for each part, so that people can read the file.
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

#include "formats/folder/keys.hpp"

#include <algorithm>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"

namespace tenfold::detail::formats::folder {
namespace {

bool is_unsafe(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x20 || byte == 0x7F) return true;
  return std::string_view("/<>:\"|?*\\ %").find(c) != std::string_view::npos;
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

std::string encode_key(std::string_view key) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  if (key.empty()) return "%";
  if (key == ".") return "%2E";
  if (key == "..") return "%2E%2E";
  std::string name;
  name.reserve(key.size());
  for (const char c : key) {
    if (!is_unsafe(c)) {
      name += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    name += '%';
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name;
}

std::optional<std::string> decode_key(std::string_view component) {
  std::string key;
  if (component != "%") {
    for (std::size_t i = 0; i < component.size(); ++i) {
      if (component[i] != '%') {
        key += component[i];
        continue;
      }
      if (component.size() - i < 3) return std::nullopt;
      const int high = hex_digit(component[i + 1]);
      const int low = hex_digit(component[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      key += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  if (encode_key(key) != component) return std::nullopt;
  return key;
}

bool is_safe_raw_leaf(std::string_view key) noexcept {
  // A NUL would end the name early, and so name another file.
  if (key.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos) return false;
  return key.size() < 2 || !is_letter(key[0]) || key[1] != ':';
}

bool is_safe_raw_node(std::string_view key) noexcept {
  return is_safe_raw_leaf(key) && !key.empty() && key != "." && key != "..";
}

std::string entry_name(std::string_view key, bool is_leaf, bool robust, std::string_view parent) {
  if (robust) return encode_key(key);
  if (is_leaf ? is_safe_raw_leaf(key) : is_safe_raw_node(key)) return std::string(key);
  throw base::invalid_argument()
      .part(key_part(note_path_child(parent, key)))
      .problem("No such file or directory")
      .expected("a key that is a file name without encoding")
      .found("one that needs encoding")
      .remedy("to encode it, use the option robust_key (in C++: robust_names)");
}

std::string sizes_name(const std::string& stem) {
  return (stem.empty() ? std::string(kLeafSuffix) : stem) + std::string(kSizesSuffix);
}

std::vector<std::string> file_names(const std::string& stem, bool is_node, bool is_nested) {
  if (is_node) return {stem};
  std::vector<std::string> names = {stem + std::string(kLeafSuffix)};
  if (is_nested) names.push_back(sizes_name(stem));
  return names;
}

std::string clash_name(std::uint64_t number) { return "%clash-" + std::to_string(number); }

bool is_clash_name(std::string_view name) noexcept {
  constexpr std::string_view kPrefix = "%clash-";
  constexpr std::size_t kMaxDigits = 19;
  if (!name.starts_with(kPrefix)) return false;
  const std::string_view digits = name.substr(kPrefix.size());
  return !digits.empty() && digits.size() <= kMaxDigits &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string key_part(std::string_view key) { return "key " + base::quote(key); }

bool is_leaf_file(std::string_view path) noexcept {
  return path.ends_with(kLeafSuffix) || is_clash_name(path.substr(path.rfind('/') + 1));
}

bool is_metadata(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1) == kMetaName || path == kNotesName;
}

}  // namespace tenfold::detail::formats::folder

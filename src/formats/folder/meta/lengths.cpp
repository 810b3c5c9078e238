#include "formats/folder/meta/lengths.hpp"

#include <string_view>
#include <unordered_map>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Returns the member of that name, or null if `object` is not an object or has no such member.
Value* member(Value& object, std::string_view key) {
  auto* members = std::get_if<Value::Object>(&object.data());
  if (members == nullptr) return nullptr;
  for (auto& [name, value] : members->members) {
    if (name == key) return &value;
  }
  return nullptr;
}

[[noreturn]] void fail(const std::string& where, const std::string& part,
                       const std::string& expected, const std::string& found) {
  throw base::corrupt(where)
      .part(part)
      .expected(expected, ", as when the data set was opened")
      .found(found)
      .remedy("another tool wrote the file");
}

void set_length(const std::string& where, const std::string& part, Value& object,
                std::uint64_t length) {
  Value* shape = member(object, "shape");
  auto* lengths = shape == nullptr ? nullptr : std::get_if<Value::List>(&shape->data());
  if (lengths == nullptr || lengths->items.empty()) {
    fail(where, part + "shape", "an array that begins with the number of rows",
         shape == nullptr ? "none" : to_json(*shape));
  }
  lengths->items.front() = Value(static_cast<std::int64_t>(length));
}

}  // namespace

std::string with_lengths(std::string_view text, const std::string& where,
                         std::span<const LeafLength> lengths, std::optional<std::uint64_t> batch) {
  Value document = from_json(text, where);
  if (batch) set_length(where, "", document, *batch);
  std::unordered_map<std::string_view, Value*> entries;
  if (auto* object = std::get_if<Value::Object>(&document.data())) {
    for (auto& [name, value] : object->members) entries.emplace(name, &value);
  }
  for (const LeafLength& leaf : lengths) {
    const std::string part = "tensor " + base::quote(leaf.key);
    const auto entry = entries.find(leaf.key);
    if (entry == entries.end()) fail(where, part, "an entry", "none");
    set_length(where, part + ": ", *entry->second, leaf.length);
  }
  return to_json(document);
}

void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch) {
  const std::string name(kMetaName);
  const os::File file = os::File::open_read_at(os::Directory::open(folder), name);
  const std::string before = file.read_all(kMaxMetaBytes);
  const std::string text = with_lengths(before, file.display(), lengths, batch);
  if (text == before) return;
  replace_file(folder / name, text, true);
}

}  // namespace tenfold::detail::formats::folder

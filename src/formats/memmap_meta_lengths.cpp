#include "formats/memmap_meta_lengths.hpp"

#include <string_view>
#include <variant>

#include <tenfold/error.hpp>

#include "core/value_json.hpp"
#include "formats/commit.hpp"
#include "formats/memmap_keys.hpp"
#include "formats/memmap_meta.hpp"
#include "os/directory.hpp"

namespace tenfold::memmap_folder {
namespace {

Value* member(Value& object, std::string_view key) {
  for (auto& [name, value] : std::get<Value::Object>(object.data()).members) {
    if (name == key) return &value;
  }
  return nullptr;
}

void set_length(Value* shape, std::uint64_t length) {
  auto& lengths = std::get<Value::List>(shape->data()).items;
  // A sparse matrix has no batch size.
  if (!lengths.empty()) lengths.front() = Value(static_cast<std::int64_t>(length));
}

}  // namespace

void set_meta_lengths(const Path& folder, std::span<const LeafLength> lengths,
                      std::optional<std::uint64_t> batch) {
  const std::string name(kMetaName);
  const os::File file = os::File::open_read_at(os::Directory::open(folder), name);
  const std::string before = file.read_all(kMaxMetaBytes);
  Value document = from_json(before, file.display());
  if (batch) set_length(member(document, "shape"), *batch);
  for (const LeafLength& leaf : lengths) {
    Value* entry = member(document, leaf.key);
    if (entry == nullptr) {
      throw Error(ErrorCode::corrupt, file.display() + ": tensor \"" + leaf.key +
                                          "\": expected it there, as when the data set was "
                                          "opened, found it gone; another tool wrote the file");
    }
    set_length(member(*entry, "shape"), leaf.length);
  }
  const std::string text = to_json(document);
  if (text == before) return;
  replace_file(folder / name, text, true);
}

}  // namespace tenfold::memmap_folder

#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "dict/state.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kVersion = 1;

std::string to_string(DictValueForm form) {
  switch (form) {
    case DictValueForm::tensor:
      return "tensor";
    case DictValueForm::scalar:
      return "scalar";
    case DictValueForm::columns:
      break;
  }
  return "columns";
}

}  // namespace

Value DictNote::to_value() const {
  Value::Object made;
  made.members.emplace_back("version", Value(kVersion));
  made.members.emplace_back("index", Value(index));
  made.members.emplace_back("values", Value(to_string(form)));
  return made;
}

std::optional<DictNote> DictNote::of(const TensorDict& tree) {
  const auto* schema = tree.info().schema ? tree.info().schema->get_if<Value::Object>() : nullptr;
  const Value* member = schema == nullptr ? nullptr : schema->find(kDictMember);
  if (member == nullptr) return std::nullopt;
  const auto expect = [&](const std::string& part, const char* what, const Value* found) {
    throw base::corrupt(tree.where())
        .part("schema: member ", base::quote(part))
        .expected(what)
        .found((found == nullptr ? "none" : to_json(*found)));
  };
  const auto* object = member->get_if<Value::Object>();
  if (object == nullptr) expect(std::string(kDictMember), "an object", member);
  const auto part = [&](const char* key) { return object->find(key); };
  const auto text = [&](const char* key, const char* what) -> const std::string& {
    const Value* found = part(key);
    const auto* value = found == nullptr ? nullptr : found->get_if<std::string>();
    if (value == nullptr) expect(key, what, found);
    return *value;
  };
  const Value* version = part("version");
  const auto* number = version == nullptr ? nullptr : version->get_if<std::int64_t>();
  if (number == nullptr || *number < 1) expect("version", "1", version);
  if (*number > kVersion) {
    throw base::unsupported(tree.where())
        .part("schema: version of the dictionary")
        .expected("1")
        .found(*number)
        .remedy("a newer tenfold wrote it");
  }
  DictNote note;
  note.index = text("index", "the name of a tensor");
  const std::string& form = text("values", "\"tensor\", \"scalar\" or \"columns\"");
  if (form == "tensor") {
    note.form = DictValueForm::tensor;
  } else if (form == "scalar") {
    note.form = DictValueForm::scalar;
  } else if (form != "columns") {
    expect("values", "\"tensor\", \"scalar\" or \"columns\"", part("values"));
  }
  return note;
}

}  // namespace tenfold

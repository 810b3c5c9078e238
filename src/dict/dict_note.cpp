#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/value/value_reader.hpp"
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
  const base::Where where = base::Where(tree.where()).at("schema: " + std::string(kDictMember));
  const ValueReader reader(*member, where);
  reader.at("version").require_version(kVersion);
  DictNote note;
  note.index = reader.at("index").text();
  const std::string& form = reader.at("values").text();
  if (form == "tensor") {
    note.form = DictValueForm::tensor;
  } else if (form == "scalar") {
    note.form = DictValueForm::scalar;
  } else if (form != "columns") {
    reader.at("values").fail("\"tensor\", \"scalar\" or \"columns\"");
  }
  return note;
}

}  // namespace tenfold

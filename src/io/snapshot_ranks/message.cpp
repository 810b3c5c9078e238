#include "io/snapshot_ranks/message.hpp"

#include <tenfold/error.hpp>

#include "core/value/value_json.hpp"

namespace tenfold::detail::snapshot_ranks {

void refuse_message(const std::string& kind) {
  throw Error(ErrorCode::invalid_argument,
              kind + ": expected an unmodified message of this snapshot, found another string");
}

MessageReader::MessageReader(std::string_view kind, std::string_view text) : kind_(kind) {
  try {
    document_ = from_json(text, kind_);
  } catch (const Error&) {
    refuse_message(kind_);
  }
  const auto* found = as<Value::Object>(document_).find("kind");
  if (found == nullptr || as<std::string>(*found) != kind_) refuse_message(kind_);
}

const Value& MessageReader::at(std::string_view name) const {
  const Value* found = as<Value::Object>(document_).find(name);
  if (found == nullptr) refuse_message(kind_);
  return *found;
}

const std::vector<Value>& MessageReader::items(const Value& value,
                                               std::optional<std::size_t> count) const {
  const auto& list = as<Value::List>(value).items;
  if (count && list.size() != *count) refuse_message(kind_);
  return list;
}

Shape MessageReader::numbers(const Value& value) const {
  Shape numbers;
  for (const Value& item : items(value)) {
    numbers.push_back(as<std::int64_t>(item));
    if (numbers.back() < 0) refuse_message(kind_);
  }
  return numbers;
}

DType MessageReader::dtype(const Value& value) const {
  const auto found = dtype_from_name(as<std::string>(value));
  if (!found) refuse_message(kind_);
  return *found;
}

Value::Object message(std::string_view kind) {
  Value::Object made;
  made.members.emplace_back("kind", Value(kind));
  return made;
}

}  // namespace tenfold::detail::snapshot_ranks

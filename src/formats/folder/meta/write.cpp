#include <algorithm>
#include <string>

#include "base/fail.hpp"
#include "codecs/json/json.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {
namespace {

using codecs::JsonStyle;
using codecs::JsonWriter;

/// Writes the metadata `key` of the node: "shape", "device" or "_type". If the node has an entry
/// with the same key, the member is at the position of that entry: tensordict assigns the metadata
/// to the same key of a Python dict, which keeps the position of a key that is assigned again.
void write_reserved(JsonWriter& json, std::string_view key, const NodeInfo& info) {
  if (key == "shape") {
    json.member(key, info.batch_size);
  } else if (key == "device") {
    json.member(key, "cpu");  // the device of the result of tensordict's memmap()
  } else {
    json.member(key, "<class 'tensordict._td.TensorDict'>");
  }
}

void write_version(JsonWriter& json, std::string_view class_id) {
  json.member("_format_version", kFormatVersion);
  json.member("_class", class_id);
}

void write_entry(JsonWriter& json, const MetaMember& member) {
  json.key(member.key);
  json.begin_object();
  if (!member.node_type.empty()) {
    json.member("type", member.node_type);
  } else {
    json.member("device", "cpu");
    json.member("shape", *member.shape);
    json.member("dtype", "torch." + to_string(member.dtype));
    json.member("is_nested", member.is_nested);
  }
  json.end_object();
}

}  // namespace

bool is_reserved_key(std::string_view key) noexcept {
  return key == "shape" || key == "device" || key == "_type";
}

void check_meta_bytes(std::uint64_t size_bytes, const base::Where& where,
                      std::uint64_t limit_bytes) {
  if (size_bytes <= limit_bytes) return;
  throw base::unsupported(where)
      .problem("too long")
      .expected("at most ", limit_bytes, " bytes")
      .found(size_bytes);
}

std::string tensordict_meta(const NodeInfo& info, const std::vector<MetaMember>& members) {
  const auto has_key = [&](std::string_view key) {
    return std::any_of(members.begin(), members.end(),
                       [&](const MetaMember& member) { return member.key == key; });
  };
  JsonWriter json(JsonStyle::python);
  json.begin_object();
  for (const MetaMember& member : members) {
    if (is_reserved_key(member.key)) {
      write_reserved(json, member.key, info);
    } else {
      write_entry(json, member);
    }
  }
  for (const std::string_view key : {"shape", "device", "_type"}) {
    if (!has_key(key)) write_reserved(json, key, info);
  }
  // An entry whose key is "_format_version", "_class" or "_names" replaces the format's own member
  // of that name, as in tensordict.
  if (!has_key("_format_version")) json.member("_format_version", kFormatVersion);
  if (!has_key("_class")) json.member("_class", "tensordict:TensorDict");
  const bool named = std::any_of(info.names.begin(), info.names.end(),
                                 [](const auto& name) { return name.has_value(); });
  if (named && !has_key("_names")) json.member("_names", info.names);
  json.end_object();
  return json.take();
}

std::string lazy_stack_meta(const NodeInfo& info) {
  JsonWriter json(JsonStyle::python);
  json.begin_object();
  json.member("_type", "<class 'tensordict._lazy.LazyStackedTensorDict'>");
  write_version(json, "tensordict:LazyStackedTensorDict");
  json.member("stack_dim", info.stack_dim);
  json.member("stack_dim_name", info.stack_dim_name);
  json.end_object();
  return json.take();
}

std::string tensorclass_meta(const NodeInfo& info) {
  JsonWriter json(JsonStyle::python);
  json.begin_object();
  json.member("_type", info.class_name);
  json.end_object();
  return json.take();
}

std::string non_tensor_meta(const NonTensor& value) {
  if (value.is_stack) {
    if (!value.value.is<Value::List>() && !value.value.is<Value::Tuple>()) {
      throw base::invalid_argument()
          .part("stack of JSON values")
          .expected("a list or tuple")
          .found(value.value.type_name());
    }
    JsonWriter json(JsonStyle::python_compact);
    json.begin_object();
    json.member("_type", "<class 'tensordict.tensorclass.NonTensorStack'>");
    write_version(json, "tensordict:NonTensorStack");
    json.member("stack_dim", value.stack_dim);
    json.member("device", value.device.empty() ? std::nullopt : std::optional(value.device));
    json.key("data");
    write_json(value.value, json);
    json.end_object();
    return json.take();
  }
  JsonWriter json(JsonStyle::python);
  json.begin_object();
  json.member("_type", "<class 'tensordict.tensorclass.NonTensorData'>");
  json.key("data");
  write_json(value.value, json);
  json.key("_metadata");
  json.null();
  json.member("_is_non_tensor", true);
  json.end_object();
  return json.take();
}

std::string_view short_class_name(std::string_view type) noexcept {
  const std::size_t quote = type.find('\'');
  const std::size_t end = type.rfind('\'');
  if (quote != std::string_view::npos && end > quote)
    type = type.substr(quote + 1, end - quote - 1);
  const std::size_t dot = type.rfind('.');
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

}  // namespace tenfold::detail::formats::folder

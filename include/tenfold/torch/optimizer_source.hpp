#pragma once

/// Reads an optimizer state saved by Python or tenfold. Part of tenfold/torch.hpp.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold::torch_detail {

/// The number in an item: a JSON number (except a BigInt) or a 0-d tensor of real numbers or bools;
/// nullopt for anything else.
inline std::optional<double> number_in(const TensorDict::Item& item) {
  if (std::holds_alternative<Leaf>(item)) {
    TensorDict from, to;
    from.set("number", item);
    to.set("number", Tensor::zeros(DType::float64, {}));
    const LoadReport report = load_into(to, from, {.strict = false, .cast = true});
    if (!report.ok()) return std::nullopt;
    return *to.at("number").data<double>();
  }
  const auto* json = std::get_if<NonTensor>(&item);
  if (json == nullptr) return std::nullopt;
  if (const auto* integer = json->value.get_if<std::int64_t>()) {
    return static_cast<double>(*integer);
  }
  if (const auto* number = json->value.get_if<double>()) return *number;
  return std::nullopt;
}

inline bool is_null(const TensorDict::Item& item) {
  const auto* json = std::get_if<NonTensor>(&item);
  return json != nullptr && json->value.is_null();
}

/// Returns a description of an item, for reports: "0.5", "true", "float32 [3, 4]".
inline std::string text_of(const TensorDict::Item& item) {
  if (const auto* json = std::get_if<NonTensor>(&item)) return to_json(json->value);
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    std::string text = to_string(leaf->dtype()) + " [";
    for (std::size_t i = 0; i < leaf->shape().size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(leaf->shape()[i]);
    }
    return text + ']';
  }
  return "a " + to_string(std::get<TensorDict>(item).kind());
}

/// Reads an option; false if it is of another type or out of range.
inline bool read_option(const TensorDict& group, std::string_view key, double& option) {
  const std::optional<double> number = number_in(group.get(key));
  if (number) option = *number;
  return number.has_value();
}

inline bool read_option(const TensorDict& group, std::string_view key, bool& option) {
  const TensorDict::Item item = group.get(key);
  const auto* json = std::get_if<NonTensor>(&item);
  if (json == nullptr || !json->value.is<bool>()) return false;
  option = *json->value.get_if<bool>();
  return true;
}

inline bool read_option(const TensorDict& group, std::string_view key,
                        std::tuple<double, double>& option) {
  const TensorDict::Item item = group.get(key);
  const auto* json = std::get_if<NonTensor>(&item);
  const bool is_list = json == nullptr
                           ? std::holds_alternative<TensorDict>(item)
                           : json->value.is<Value::List>() || json->value.is<Value::Tuple>();
  if (!is_list) return false;
  const TensorDict pair = group[key];
  if (pair.keys() != std::vector<std::string>{"0", "1"}) return false;
  const auto first = number_in(pair.get("0"));
  const auto second = number_in(pair.get("1"));
  if (!first || !second) return false;
  option = {*first, *second};
  return true;
}

/// The smallest valid number for an integer option. With history_size 0, LibTorch's LBFGS would
/// take elements from an empty container.
inline std::int64_t least_integer(std::string_view key) { return key == "history_size" ? 1 : 0; }

inline bool read_option(const TensorDict& group, std::string_view key, std::int64_t& option) {
  const TensorDict::Item item = group.get(key);
  const auto* json = std::get_if<NonTensor>(&item);
  const auto* number = json == nullptr ? nullptr : json->value.get_if<std::int64_t>();
  if (number == nullptr || *number < least_integer(key)) return false;
  option = *number;
  return true;
}

/// Reads max_eval of LBFGS. Refuses null, which is never saved, because LBFGS's constructor
/// replaces nullopt with a number.
inline bool read_option(const TensorDict& group, std::string_view key,
                        std::optional<std::int64_t>& option) {
  std::int64_t number = 0;
  if (!read_option(group, key, number)) return false;
  option = number;
  return true;
}

inline bool read_option(const TensorDict& group, std::string_view key,
                        std::optional<std::string>& option) {
  const TensorDict::Item item = group.get(key);
  const auto* json = std::get_if<NonTensor>(&item);
  const auto* text = json == nullptr ? nullptr : json->value.get_if<std::string>();
  if (text == nullptr && !is_null(item)) return false;
  option = text == nullptr ? std::nullopt : std::optional(*text);
  return true;
}

inline std::string expected_text(const double& /*option*/, std::string_view /*key*/) {
  return "a number";
}
inline std::string expected_text(const std::int64_t& /*option*/, std::string_view key) {
  return "an integer of " + std::to_string(least_integer(key)) + " or more";
}
inline std::string expected_text(const std::optional<std::int64_t>& /*option*/,
                                 std::string_view key) {
  return expected_text(std::int64_t{0}, key);
}
inline std::string expected_text(const std::optional<std::string>& /*option*/,
                                 std::string_view /*key*/) {
  return "a string or null";
}
inline std::string expected_text(const bool& /*option*/, std::string_view /*key*/) {
  return "true or false";
}
inline std::string expected_text(const std::tuple<double, double>& /*option*/,
                                 std::string_view /*key*/) {
  return "two numbers";
}

/// A parameter group of the source: its options, and the number of each parameter. The number, such
/// as "0", is the key of the parameter's state.
struct SourceGroup {
  TensorDict options;
  std::vector<std::string> numbers;
};

inline Error refuse_source(const TensorDict& source) {
  const Error error(ErrorCode::invalid_argument);
  return source.where().empty() ? Error(error).part("source") : Error(error).path(source.where());
}

/// The dict or list at `key` of `node`, a node of `source`. `part`: the path of that dict or list
/// in `source`, for the message. Throws Error(invalid_argument) if there is none.
inline TensorDict part_of_source(const TensorDict& source, const TensorDict& node,
                                 const std::string& key, const std::string& part) {
  try {
    return node[key];
  } catch (const Error& error) {
    if (error.code() != ErrorCode::key_not_found) throw;
    throw refuse_source(source)
        .part(part)
        .problem("not a valid optimizer state")
        .expected("a dict or list")
        .found(node.contains(key) ? text_of(node.get(key)) : "none");
  }
}

inline std::vector<SourceGroup> source_groups(const TensorDict& source) {
  if (!source.contains("state") || !source.contains("param_groups")) {
    std::string found, remedy;
    source.for_each([&](const std::string& key, const TensorDict::Item& item) {
      found += (found.empty() ? "" : ", ") + key;
      const auto* node = std::get_if<TensorDict>(&item);
      if (node == nullptr || !node->contains("state") || !node->contains("param_groups")) return;
      remedy = "; its node \"" + key + "\" has them";
    });
    throw refuse_source(source)
        .problem("no optimizer state")
        .expected("the keys \"state\" and \"param_groups\"")
        .found((found.empty() ? "none" : found), remedy);
  }
  std::vector<SourceGroup> groups;
  const TensorDict list = part_of_source(source, source, "param_groups", "param_groups");
  for (const std::string& key : list.keys()) {
    const std::string part = "param_groups." + key;
    SourceGroup group{part_of_source(source, list, key, part), {}};
    const TensorDict params = part_of_source(source, group.options, "params", part + ".params");
    for (const std::string& position : params.keys()) {
      const TensorDict::Item item = params.get(position);
      const auto* json = std::get_if<NonTensor>(&item);
      if (json == nullptr || !json->value.is<std::int64_t>()) {
        throw refuse_source(source)
            .part(part, ".params")
            .problem("not a valid optimizer state")
            .expected("integers")
            .found(text_of(item));
      }
      group.numbers.push_back(to_json(json->value));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace tenfold::torch_detail

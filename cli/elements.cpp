#include "elements.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "json.hpp"

namespace tenfold::cli {

Value json_element(DType dtype, const std::string& text) {
  if (dtype == DType::bool_) return {text == "true"};
  // BigInt: a JSON number with these digits.
  if (is_integer(dtype)) return {Value::BigInt{text}};
  if (text == "nan") return {std::numeric_limits<double>::quiet_NaN()};
  const bool is_number = text != "inf" && text != "-inf" && !text.ends_with('j') &&
                         text.find(',') == std::string::npos;
  return is_number ? Value(Value::BigInt{json_float(text)}) : Value(text);
}

Value nested_json(DType dtype, const Shape& shape, std::size_t level,
                  const std::vector<std::string>& texts, std::size_t& at) {
  if (level == shape.size()) return json_element(dtype, texts[at++]);
  Value::List list;
  if (numel_of(shape) == 0) return {std::move(list)};
  for (std::int64_t i = 0; i < shape[level]; ++i) {
    list.items.push_back(nested_json(dtype, shape, level + 1, texts, at));
  }
  return {std::move(list)};
}

std::string readable(const std::string& element) {
  if (element.find_first_of(".e") == std::string::npos) return element;  // integers, nan, inf
  char* end = nullptr;
  const double number = std::strtod(element.c_str(), &end);
  return *end == '\0' ? fmt::format("{:.6g}", number) : element;
}

}  // namespace tenfold::cli

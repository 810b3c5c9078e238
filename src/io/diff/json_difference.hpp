#pragma once

#include <string>

#include <tenfold/value.hpp>

namespace tenfold {

/// At most 200 characters of a value's JSON.
std::string short_json(const Value& value);

/// The same with dicts instead of OrderedDicts.
Value unordered(Value value);

/// Two texts that say in what two values differ.
struct JsonDifference {
  std::string a;
  std::string b;
};

/// Of values without OrderedDicts that are not equal, but whose short_json() may be: the first part
/// in which they differ, by its dotted name, with its type where JSON has none: "layers.900: 7" and
/// "layers.900: 8", "tuple [1]" and "list [1]", "b: 2" and "b: nothing".
JsonDifference json_difference(const Value& a, const Value& b);

}  // namespace tenfold

#include "commands.hpp"

#include <utility>

namespace tenfold::cli {

std::vector<KeyPath> key_paths(const std::vector<std::string>& keys) {
  std::vector<KeyPath> paths;
  for (const std::string& key : keys) paths.push_back({key});
  return paths;
}

Value object(std::vector<std::pair<std::string, Value>> members) {
  Value::Object result;
  result.members = std::move(members);
  return {std::move(result)};
}

std::string leaf_text(const Leaf& leaf) {
  return std::string(name(leaf.dtype())) + (leaf.is_nested() ? " nested " : " ") +
         shape_text(leaf.shape());
}

}  // namespace tenfold::cli

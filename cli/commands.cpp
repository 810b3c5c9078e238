#include "commands.hpp"

#include <optional>
#include <utility>

namespace tenfold::cli {

Keys key_paths(const std::vector<std::string>& keys) { return keys.empty() ? Keys() : Keys(keys); }

Value object(std::vector<std::pair<std::string, Value>> members) {
  Value::Object result;
  result.members = std::move(members);
  return {std::move(result)};
}

void for_each_readable(
    const TensorDict& node,
    const std::function<void(const std::string& key, const TensorDict::Item& item)>& visit,
    const std::function<void(const std::string& key, const Error& error)>& fail) {
  for (const std::string& key : node.keys()) {
    std::optional<TensorDict::Item> item;
    try {
      item = node.get(key);
    } catch (const Error& error) {
      fail(key, error);
      continue;
    }
    visit(key, *item);
  }
}

std::string leaf_text(const Leaf& leaf) {
  return to_string(leaf.dtype()) + (leaf.is_nested() ? " nested " : " ") + shape_text(leaf.shape());
}

}  // namespace tenfold::cli

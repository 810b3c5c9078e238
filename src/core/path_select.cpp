#include "core/path_select.hpp"

#include <algorithm>
#include <string_view>

#include "base/glob.hpp"

namespace tenfold {
namespace {

/// `text` without `head` and a dot, if it starts with both (or with nothing, under the root).
bool starts_below(std::string_view text, std::string_view head) noexcept {
  return head.empty() ||
         (text.size() > head.size() && text.starts_with(head) && text[head.size()] == '.');
}

bool is_prefix(const KeyPath& head, const KeyPath& path) noexcept {
  return head.size() <= path.size() && std::equal(head.begin(), head.end(), path.begin());
}

/// Calls `test` with the dotted form of each node above `path` and of `path` itself.
template <class Test>
bool any_dotted_prefix(const KeyPath& path, const Test& test) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0) text += '.';
    text += path[i];
    if (test(std::string_view(text))) return true;
  }
  return false;
}

bool selects(const KeyPath& key, const KeyPath& path) {
  if (key.size() != 1) return !key.empty() && is_prefix(key, path);
  const std::string& wanted = key[0];
  const bool glob = base::is_glob(wanted);
  return any_dotted_prefix(path, [&](std::string_view text) {
    // A key may itself hold glob characters: its own text always selects it.
    return text == wanted || (glob && base::glob_match(wanted, text));
  });
}

}  // namespace

bool selected(const KeyPath& path, const std::vector<KeyPath>& keys) {
  return std::ranges::any_of(keys, [&](const KeyPath& key) { return selects(key, path); });
}

bool may_select_below(const KeyPath& node, const std::vector<KeyPath>& keys) {
  if (selected(node, keys)) return true;
  const std::string text = dotted(node);
  return std::ranges::any_of(keys, [&](const KeyPath& key) {
    if (key.empty()) return false;
    if (key.size() > 1) return is_prefix(node, key);
    if (starts_below(key[0], text)) return true;
    return base::is_glob(key[0]) &&
           base::glob_may_match_below(key[0], node.empty() ? "" : text + '.');
  });
}

}  // namespace tenfold

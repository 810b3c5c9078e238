#include "io/selector.hpp"

#include <tenfold/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/fail.hpp"
#include "base/glob.hpp"
#include "base/text.hpp"
#include "core/tree/depth.hpp"
#include "io/tree.hpp"

namespace tenfold {
namespace {

void collect_names(const TensorDict& node, const std::string& prefix, std::size_t& levels,
                   std::vector<std::string>& names) {
  const Depth depth(levels);
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    names.push_back(prefix + key);
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      collect_names(*child, prefix + key + ".", levels, names);
    }
  });
}

}  // namespace

Selector::Selector(std::vector<KeyPath> keys) : keys_(std::move(keys)), hit_(keys_.size(), false) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    by_name_[dotted(keys_[i])].push_back(i);
    if (keys_[i].size() == 1 && base::is_glob(keys_[i][0])) globs_.push_back(i);
  }
}

void Selector::add_leaves_of(const Column& column) {
  if (!selects_or_contains(column.path)) return;
  for (KeyPath& leaf : leaves_of(column)) {
    by_name_[dotted(leaf)].push_back(keys_.size());
    keys_.push_back(std::move(leaf));
    hit_.push_back(true);
  }
}

bool Selector::names(const KeyPath& path, const std::string& name) {
  bool found = false;
  if (const auto exact = by_name_.find(name); exact != by_name_.end()) {
    for (const std::size_t i : exact->second) {
      // A key that is a single string matches however the path splits the dotted name into keys. A
      // key that is a path of several keys must equal the path.
      if (keys_[i].size() == 1 || keys_[i] == path) found = hit_[i] = true;
    }
  }
  for (const std::size_t i : globs_) {
    if (base::glob_match(keys_[i][0], name)) found = hit_[i] = true;
  }
  return found;
}

bool Selector::selects_or_contains(const KeyPath& path) {
  KeyPath above;
  for (const std::string& key : path) {
    above.push_back(key);
    if (names(above, dotted(above))) return true;
  }
  return false;
}

bool Selector::may_name_below(const std::string& name) const {
  const std::string prefix = name + ".";
  const auto next = by_name_.lower_bound(prefix);
  if (next != by_name_.end() && next->first.starts_with(prefix)) return true;
  return std::any_of(globs_.begin(), globs_.end(), [&](std::size_t i) {
    return base::glob_may_match_below(keys_[i][0], prefix);
  });
}

bool Selector::all_hit() const { return std::find(hit_.begin(), hit_.end(), false) == hit_.end(); }

void Selector::require_all_hit(const TensorDict& tree) const {
  const auto miss = std::find(hit_.begin(), hit_.end(), false);
  if (miss == hit_.end()) return;
  const KeyPath& key = keys_[static_cast<std::size_t>(miss - hit_.begin())];
  std::vector<std::string> names;
  std::size_t levels = 0;
  collect_names(tree, "", levels, names);
  const bool is_glob = key.size() == 1 && base::is_glob(key[0]);
  throw base::key_not_found(tree.where())
      .problem(is_glob ? "no key matches " : "no key ", base::quote(dotted(key)))
      .remedy(base::did_you_mean(dotted(key), names));
}

std::vector<KeyPath> selected_paths(std::vector<KeyPath> paths, const Keys& keys,
                                    const Keys& exclude) {
  Selector selector(keys.paths());
  Selector excluder(exclude.paths());
  std::erase_if(paths, [&](const KeyPath& path) {
    return (keys.given() && !selector.selects_or_contains(path)) ||
           excluder.selects_or_contains(path);
  });
  return paths;
}

}  // namespace tenfold

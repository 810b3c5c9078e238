#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/depth.hpp"
#include "core/tree/node.hpp"
#include "io/selector.hpp"
#include "io/tree.hpp"

namespace tenfold {
namespace {

class Pruner {
 public:
  Pruner(Selector& keys, Selector& exclude) : keys_(keys), exclude_(exclude) {}

  /// Returns the selected part of `node`. `inside`: true if a key names the node or one of its
  /// ancestors, or if no keys are given.
  TensorDict prune(const TensorDict& node, bool inside) {
    const Depth depth(levels_);
    TensorDict kept = empty_like(node);
    const std::size_t num_excluded_before = num_excluded_;
    for (const std::string& key : node.keys()) {
      path_.push_back(key);
      keep_entry(node, key, inside, kept);
      path_.pop_back();
    }
    const bool is_whole = inside && num_excluded_ == num_excluded_before;
    if (node.kind() == NodeKind::opaque && !is_whole) {
      // A part of an opaque node is no longer that object.
      kept.info() = dict_info(node.info());
    }
    fix_kind(kept);
    return kept;
  }

 private:
  void keep_entry(const TensorDict& node, const std::string& key, bool inside, TensorDict& kept) {
    const std::string name = dotted(path_);
    const bool named = keys_.names(path_, name);
    const bool wanted = inside || named;
    if (!wanted && !keys_.may_name_below(name)) return;
    if (exclude_.names(path_, name)) {
      ++num_excluded_;
      return;
    }
    const TensorDict::Item item = node_of(node)->item(node_of(node)->find(key));
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr) {
      if (wanted) kept.set(key, item);
      return;
    }
    TensorDict pruned = prune(*child, wanted);
    // Keep a node that was already empty, if it was requested, but drop a node that became empty.
    if (!pruned.empty() || (wanted && child->empty())) kept.set(key, std::move(pruned));
  }

  Selector& keys_;
  Selector& exclude_;
  KeyPath path_;
  std::size_t num_excluded_ = 0;  ///< entries that `exclude` omitted
  std::size_t levels_ = 0;        ///< number of nested nodes that are being pruned
};

/// Throws if the tree is a bare root, because its value has no key that could be selected.
void refuse_bare(const TensorDict& tree, const std::string& found) {
  if (!is_bare(tree)) return;
  throw base::key_not_found(tree.where())
      .problem("it holds one value, which has no name")
      .expected("no keys")
      .found(found);
}

void visit_names(const TensorDict& node, KeyPath& path, std::size_t& levels, Selector& selector) {
  const Depth depth(levels);
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    path.push_back(key);
    selector.names(path, dotted(path));
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      visit_names(*child, path, levels, selector);
    }
    path.pop_back();
  });
}

}  // namespace

TensorDict select(const TensorDict& tree, const Keys& keys, const Keys& exclude) {
  const std::vector<KeyPath>& excluded_paths = exclude.paths();
  if (!keys.given() && excluded_paths.empty()) return tree;
  const std::vector<KeyPath>& named = keys.given() ? keys.paths() : excluded_paths;
  refuse_bare(tree, named.empty() ? "an empty list of them" : base::quote(dotted(named.front())));
  Selector selector(keys.paths());
  Selector excluder(excluded_paths);
  for (const Column& column : columns_of(tree)) {
    selector.add_leaves_of(column);
    excluder.add_leaves_of(column);
  }
  TensorDict kept = Pruner(selector, excluder).prune(tree, !keys.given());
  for (Selector* names : {&selector, &excluder}) {
    if (names->all_hit()) continue;
    // Also visit the entries that prune() skipped: those that no key selects, and those inside an
    // excluded node.
    KeyPath path;
    std::size_t levels = 0;
    visit_names(tree, path, levels, *names);
    names->require_all_hit(tree);
  }
  fit_schema(kept);
  return kept;
}

}  // namespace tenfold

#include <tenfold/error.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/fail.hpp"
#include "codecs/pickle/state.hpp"

namespace tenfold::codecs {

namespace {

/// Computes the number of nodes on the longest path from the root. A node that is already on the
/// path (an object that contains itself) counts as a node without items. The longest path that
/// starts at a node is computed only once for each node, so if the graph has cycles, the result may
/// be too small.
class Depth {
 public:
  Depth(const PickleGraph& graph, const base::Where& where, const PickleLimits& limits)
      : graph_(graph), where_(where), limits_(limits), height_(graph.nodes.size(), 0) {
    for (const PickleChange& change : graph.changes) {
      auto& values = changed_[change.object];
      if (change.kind == PickleChange::Kind::set_item) values.push_back(change.key);
      values.push_back(change.value);
    }
  }

  void require() {
    measure_in_order();
    if (height_[graph_.root] == 0) walk();
    require(graph_.root);
  }

 private:
  using Ids = std::vector<std::uint32_t>;
  struct Visit {
    std::uint32_t id;
    std::size_t next;     ///< index of the next child in the node's items, followed by `more`
    std::uint32_t below;  ///< maximum height of the children visited so far
    const Ids* more;
  };

  const Ids* changes_of(std::uint32_t id) const {
    const PickleKind kind = graph_.nodes.kind(id);
    const bool is_object =
        kind == PickleKind::reduce || kind == PickleKind::newobj || kind == PickleKind::instance;
    const auto found = is_object ? changed_.find(id) : changed_.end();
    return found == changed_.end() ? nullptr : &found->second;
  }

  /// Computes the heights (height_) of the nodes in the order of their creation. Most nodes contain
  /// only nodes created before them and are never changed, so they need no traversal.
  void measure_in_order() {
    for (std::uint32_t id = 0; id < graph_.nodes.size(); ++id) {
      std::uint32_t most = 0;
      bool is_known = changes_of(id) == nullptr;
      for (const std::uint32_t child : graph_.nodes.items(id)) {
        is_known = is_known && height_[child] != 0;
        if (!is_known) break;
        most = std::max(most, height_[child]);
      }
      if (is_known) height_[id] = most + 1;
    }
  }

  Visit enter(std::uint32_t id) {
    height_[id] = 1;
    return {id, 0, 0, changes_of(id)};
  }

  /// Depth-first traversal with an explicit stack, because the depth is not bounded yet.
  void walk() {
    std::vector<Visit> path = {enter(graph_.root)};
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::span<const std::uint32_t> items = graph_.nodes.items(visit.id);
      const std::size_t count = items.size() + (visit.more == nullptr ? 0 : visit.more->size());
      if (visit.next == count) {
        const std::uint32_t done = visit.id;
        height_[done] = visit.below + 1;
        require(done);
        path.pop_back();
        if (!path.empty()) path.back().below = std::max(path.back().below, height_[done]);
        continue;
      }
      const std::uint32_t child =
          visit.next < items.size() ? items[visit.next] : (*visit.more)[visit.next - items.size()];
      ++visit.next;
      if (height_[child] == 0) {
        path.push_back(enter(child));
      } else {
        visit.below = std::max(visit.below, height_[child]);
      }
    }
  }

  void require(std::uint32_t id) const {
    if (height_[id] <= limits_.max_depth) return;
    throw base::unsupported(where_)
        .problem("nesting is too deep")
        .expected("at most ", limits_.max_depth, " levels")
        .found("more at byte ", graph_.at(id).offset);
  }

  const PickleGraph& graph_;
  const base::Where& where_;
  const PickleLimits& limits_;
  /// Number of nodes on the longest path that starts at each node; 0 if not known yet; 1 for nodes
  /// on the current path.
  Ids height_;
  std::unordered_map<std::uint32_t, Ids> changed_;
};

}  // namespace

void require_pickle_depth(const PickleGraph& graph, const base::Where& where,
                          const PickleLimits& limits) {
  Depth(graph, where, limits).require();
}

std::string PickleGraph::describe(std::uint32_t id) const {
  const auto quoted = [](const PickleNode& global) {
    return base::quote(std::string(global.text) + "." + std::string(global.name));
  };
  const PickleNode node = at(id);
  if (node.kind == PickleKind::global) return quoted(node);
  const bool is_object = node.kind == PickleKind::newobj || node.kind == PickleKind::instance;
  if ((is_object || node.kind == PickleKind::reduce) &&
      at(node.items[0]).kind == PickleKind::global) {
    return (is_object ? "an object of " : "a call of ") + quoted(at(node.items[0]));
  }
  return std::string(codecs::describe(node.kind));
}

bool PickleGraph::is_global(std::uint32_t id, std::string_view module,
                            std::string_view name) const {
  const PickleNode node = at(id);
  return node.kind == PickleKind::global && node.text == module && node.name == name;
}

std::uint64_t PickleGraph::natural(std::uint32_t id, const Fault& fault) const {
  const PickleNode node = at(id);
  const bool is_integer = node.kind == PickleKind::integer;
  if (is_integer && node.integer >= 0) return static_cast<std::uint64_t>(node.integer);
  if (node.kind == PickleKind::big_integer) {
    constexpr std::size_t kMaxShown = 40;
    const std::string shown(node.text.substr(0, kMaxShown));
    throw fault()
        .expected("an integer from 0 to ", std::numeric_limits<std::int64_t>::max())
        .found(shown, node.text.size() > kMaxShown ? "..." : "");
  }
  throw fault()
      .expected("an integer from 0")
      .found(is_integer ? std::to_string(node.integer) : describe(id));
}

std::vector<std::int64_t> PickleGraph::lengths(std::uint32_t id, const Fault& fault) const {
  PickleNode node = at(id);
  if (node.kind == PickleKind::reduce && is_global(node.items[0], "torch", "Size")) {
    const PickleNode arguments = at(node.items[1]);
    if (arguments.kind == PickleKind::tuple && arguments.items.size() == 1) {
      node = at(arguments.items[0]);
    }
  }
  if (node.kind != PickleKind::tuple && node.kind != PickleKind::list) {
    throw fault().expected("a torch.Size, tuple or list").found(describe(id));
  }
  if (node.items.size() > kMaxPickleDimensions) {
    throw fault()
        .code(ErrorCode::unsupported)
        .problem("too many dimensions")
        .expected("at most ", kMaxPickleDimensions)
        .found(node.items.size());
  }
  std::vector<std::int64_t> lengths;
  for (const std::uint32_t item : node.items) {
    lengths.push_back(static_cast<std::int64_t>(natural(item, fault)));
  }
  return lengths;
}

std::string_view describe(PickleKind kind) noexcept {
  switch (kind) {
    using enum PickleKind;
    case none:
      return "None";
    case boolean:
      return "a boolean";
    case integer:
    case big_integer:
      return "an integer";
    case number:
      return "a float";
    case text:
      return "text";
    case old_string:
      return "a string of Python 2";
    case PickleKind::bytes:
      return "bytes";
    case bytearray:
      return "a bytearray";
    case list:
      return "a list";
    case tuple:
      return "a tuple";
    case dict:
      return "a dict";
    case set:
      return "a set";
    case frozenset:
      return "a frozenset";
    case global:
      return "a global";
    case extension:
      return "an extension code";
    case reduce:
      return "a call";
    case newobj:
    case instance:
      return "an object";
    case persistent:
      return "a persistent id";
  }
  return "";
}

}  // namespace tenfold::codecs

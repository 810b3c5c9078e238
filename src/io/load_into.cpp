#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tree/bare.hpp"
#include "io/copy.hpp"
#include "io/rename.hpp"
#include "io/selector.hpp"
#include "io/tree.hpp"

namespace tenfold {
namespace {

/// Maximum number of names in one list of a message.
constexpr std::size_t kNamesShown = 20;
/// Maximum number of components of a prefix. Without a limit, a name of many dots would take long.
constexpr std::size_t kMaxPrefixParts = 16;

using Names = std::vector<std::string>;

/// The tensors of one tree, by dotted name.
struct NamedTensors {
  static constexpr auto kNone = static_cast<std::size_t>(-1);

  std::vector<std::pair<std::string, Leaf>> leaves;
  std::unordered_map<std::string, std::size_t> positions;

  void add(std::string name, const std::string& original, Leaf leaf, std::string_view whose) {
    if (!positions.emplace(name, leaves.size()).second) {
      const std::string was = name == original ? "" : " (one was " + base::quote(original) + ")";
      throw base::invalid_argument()
          .part(whose)
          .problem("two tensors are called ", base::quote(name), was)
          .expected("a name for each");
    }
    leaves.emplace_back(std::move(name), std::move(leaf));
  }
  std::size_t find(const std::string& name) const {
    const auto found = positions.find(name);
    return found == positions.end() ? kNone : found->second;
  }
};

NamedTensors side_of(const TensorDict& tree, const RenameFunction& rename, std::string_view whose) {
  NamedTensors side;
  for (NamedLeaf& named : tensors_of(tree)) {
    const std::string original = dotted(named.path);
    side.add(rename ? rename(original) : original, original, std::move(named.leaf), whose);
  }
  return side;
}

std::string describe(const Leaf& leaf) {
  const std::string shape = base::list_text(leaf.shape());
  return to_string(leaf.dtype()) + (leaf.is_nested() ? " nested " : " ") + shape;
}

bool fits(const Leaf& target, const Leaf& source, bool cast) {
  return same_shape(target, source) &&
         (target.dtype() == source.dtype() || (cast && can_cast(source.dtype(), target.dtype())));
}

/// A prefix of names, and the number of names that match without it.
struct Prefix {
  std::string text;
  std::size_t num_matches = 0;
};

/// The prefix whose removal makes the most names in `with` match a name in `plain`: "module." for
/// "module.w" and "w".
Prefix common_prefix(const Names& with, const Names& plain) {
  const std::unordered_set<std::string_view> known(plain.begin(), plain.end());
  std::map<std::string_view, std::size_t> counts;
  for (const std::string_view name : with) {
    std::size_t dot = name.find('.');
    for (std::size_t i = 0; i < kMaxPrefixParts && dot != std::string_view::npos; ++i) {
      if (known.contains(name.substr(dot + 1))) ++counts[name.substr(0, dot + 1)];
      dot = name.find('.', dot + 1);
    }
  }
  Prefix most;
  for (const auto& [text, count] : counts) {
    if (count > most.num_matches) most = {std::string(text), count};
  }
  return most;
}

/// For messages about renaming `num_names`: "the names match", or "3 of the 4 names match".
std::string matching(const Prefix& prefix, std::size_t num_names) {
  if (prefix.num_matches == num_names) return "\n  the names match ";
  return "\n  " + std::to_string(prefix.num_matches) + " of the " + std::to_string(num_names) +
         " names match ";
}

/// A rename that would make at least half of the names match, as a remedy; empty if there is none.
std::string rename_remedy(const LoadReport& report) {
  const Names& missing = report.missing;
  const Names& unexpected = report.unexpected;
  Prefix prefix = common_prefix(unexpected, missing);
  if (prefix.num_matches != 0 && prefix.num_matches * 2 >= missing.size()) {
    const std::string quoted = base::quote(prefix.text);
    std::string text = matching(prefix, missing.size()) + "without the source's prefix " + quoted;
    if (prefix.num_matches < unexpected.size()) {
      return text + "; select the keys " + base::quote(prefix.text + "*") +
             " and pass a rename that removes it";
    }
    return text + "; pass a rename that removes it";
  }
  prefix = common_prefix(missing, unexpected);
  if (prefix.num_matches == 0 || prefix.num_matches * 2 < unexpected.size()) return {};
  const std::string quoted = base::quote(prefix.text);
  return matching(prefix, unexpected.size()) + "with the prefix " + quoted +
         "; pass a rename that adds it";
}

std::string list_of(std::string_view title, const Names& names) {
  if (names.empty()) return {};
  std::string text = "\n  " + std::string(title) + " (" + std::to_string(names.size()) + "): ";
  const std::size_t shown = std::min(names.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + base::quote(names[i]);
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string mismatches_of(const LoadReport& report) {
  std::string text;
  const std::size_t shown = std::min(report.mismatched.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const LoadReport::Mismatch& mismatch = report.mismatched[i];
    text += "\n  " + base::quote(mismatch.name) + ": expected " + mismatch.expected + ", found " +
            mismatch.found;
    if (mismatch.cast_helps) text += "; the option cast converts it";
  }
  if (shown < report.mismatched.size()) {
    text += "\n  and " + std::to_string(report.mismatched.size() - shown) + " more that differ";
  }
  return text;
}

/// True if several indices of the tensor refer to the same element.
bool overlaps_itself(const Tensor& tensor) {
  for (std::size_t dim = 0; dim < tensor.shape().size(); ++dim) {
    if (tensor.shape()[dim] > 1 && tensor.strides()[dim] == 0) return true;
  }
  return false;
}

/// The tensor to write to. Throws if it is read-only.
Tensor destination(const std::string& name, const Leaf& leaf) {
  Tensor tensor = leaf.tensor();
  if (tensor.numel() != 0 && !tensor.buffer().writable()) {
    throw base::invalid_argument()
        .part("target: tensor ", base::quote(name))
        .expected("a tensor that can be written")
        .found("a read-only one");
  }
  if (tensor.numel() != 0 && overlaps_itself(tensor)) {
    throw base::invalid_argument()
        .part("target: tensor ", base::quote(name))
        .expected("a tensor with memory for each element")
        .found("an expanded one");
  }
  return tensor;
}

/// The source's leaf for the target's leaf at that position.
struct Match {
  std::size_t position;
  const Leaf* from;
};

/// The copies in the target's order, which determines the result if two of its tensors share
/// memory.
std::vector<LeafCopy> copies_of(std::vector<Match> matches, const NamedTensors& into) {
  std::ranges::sort(matches, {}, &Match::position);
  std::vector<LeafCopy> copies;
  copies.reserve(matches.size());
  for (const Match& match : matches) {
    const auto& [name, leaf] = into.leaves[match.position];
    copies.push_back({*match.from, destination(name, leaf)});
  }
  return copies;
}

}  // namespace

void require_ok(const LoadReport& report, const std::string& source) {
  if (report.ok()) return;
  const std::string counts = std::to_string(report.missing.size()) + " missing, " +
                             std::to_string(report.unexpected.size()) + " unexpected, " +
                             std::to_string(report.mismatched.size()) + " mismatched";
  throw base::invalid_argument(source.empty() ? base::Where("", "source") : source)
      .problem("does not fit the target, which is unchanged")
      .expected("the same names, dtypes and shapes")
      .found(counts, list_of("missing from the source", report.missing),
             list_of("not in the target", report.unexpected), mismatches_of(report),
             rename_remedy(report));
}

LoadReport load_into(const TensorDict& target_tree, const TensorDict& source_tree,
                     const LoadIntoOptions& options) {
  const TensorDict target = with_bare_key(target_tree);
  const TensorDict source = with_bare_key(source_tree);
  require_renamed(source, options.renamed);
  const NamedTensors into = side_of(target, {}, "target");
  const NamedTensors from = side_of(select(source, options.keys), options.rename, "source");
  LoadReport report;
  std::vector<Match> matches;
  for (const auto& [name, leaf] : from.leaves) {
    const std::size_t wanted = into.find(name);
    if (wanted == NamedTensors::kNone) {
      report.unexpected.push_back(name);
    } else if (const Leaf& to = into.leaves[wanted].second; !fits(to, leaf, options.cast)) {
      report.mismatched.push_back({name, describe(to), describe(leaf), fits(to, leaf, true)});
    } else {
      matches.push_back({wanted, &leaf});
      report.loaded.push_back(name);
    }
  }
  Selector requested(options.keys.paths());
  for (const NamedLeaf& named : tensors_of(target)) {
    const std::string name = dotted(named.path);
    if (from.find(name) != NamedTensors::kNone) continue;
    if (options.keys.given() && !requested.selects_or_contains(named.path)) continue;
    report.missing.push_back(name);
  }
  if (options.strict) require_ok(report, source.where());
  if (options.dry_run) return report;
  copy_leaves(copies_of(std::move(matches), into), options.num_threads, options.monitor);
  return report;
}

LoadReport load_into(const TensorDict& target, const Path& source, const LoadIntoOptions& options) {
  return load_into(target, open(source), options);
}

}  // namespace tenfold

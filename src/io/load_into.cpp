#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "core/cast.hpp"
#include "io/copy.hpp"
#include "io/selector.hpp"
#include "io/tree.hpp"

namespace tenfold {
namespace {

/// Names that one list of a message shows.
constexpr std::size_t kNamesShown = 20;

using Names = std::vector<std::string>;

/// The tensors of one side, by dotted name.
struct Side {
  std::vector<std::pair<std::string, Leaf>> leaves;
  std::unordered_map<std::string, std::size_t> positions;

  void add(std::string name, const std::string& original, Leaf leaf, std::string_view whose) {
    if (!positions.emplace(name, leaves.size()).second) {
      std::string message = std::string(whose) + ": two tensors are called " + base::quote(name);
      if (name != original) message += " (one was " + base::quote(original) + ")";
      throw Error(ErrorCode::invalid_argument, message + ": expected a name for each");
    }
    leaves.emplace_back(std::move(name), std::move(leaf));
  }
  const Leaf* find(const std::string& name) const {
    const auto found = positions.find(name);
    return found == positions.end() ? nullptr : &leaves[found->second].second;
  }
};

Side side_of(const TensorDict& tree, const RenameFunction& rename, std::string_view whose) {
  Side side;
  for (NamedLeaf& named : tensors_of(tree)) {
    const std::string original = dotted(named.path);
    side.add(rename ? rename(original) : original, original, std::move(named.leaf), whose);
  }
  return side;
}

std::string describe(const Leaf& leaf) {
  const std::string shape = base::list_text(leaf.shape());
  return std::string(name(leaf.dtype())) + (leaf.is_nested() ? " nested " : " ") + shape;
}

bool same_sizes(const Leaf& a, const Leaf& b) {
  const Tensor x = a.sizes().contiguous();
  const Tensor y = b.sizes().contiguous();
  return x.shape() == y.shape() &&
         std::ranges::equal(x.span<std::int64_t>(), y.span<std::int64_t>());
}

bool fits(const Leaf& target, const Leaf& source, bool cast) {
  if (target.is_nested() != source.is_nested() || target.shape() != source.shape()) return false;
  if (target.dtype() != source.dtype() && !(cast && can_cast(source.dtype(), target.dtype()))) {
    return false;
  }
  return !target.is_nested() || same_sizes(target, source);
}

/// The start of `longer` if it ends with `.shorter`: "module." for "module.w" and "w".
std::string prefix_before(std::string_view longer, std::string_view shorter) {
  if (longer.size() <= shorter.size() + 1 || !longer.ends_with(shorter)) return {};
  const std::string_view prefix = longer.substr(0, longer.size() - shorter.size());
  return prefix.ends_with('.') ? std::string(prefix) : std::string();
}

/// A prefix without which all of `with` are among `without`; empty if there is none.
std::string common_prefix(const Names& with, const Names& without) {
  if (with.empty()) return {};
  const std::set<std::string_view> plain(without.begin(), without.end());
  std::string_view rest = with.front();
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    rest.remove_prefix(dot + 1);
    if (!plain.contains(rest)) continue;
    const std::string prefix = prefix_before(with.front(), rest);
    const bool all = std::ranges::all_of(with, [&](const std::string& name) {
      return name.starts_with(prefix) &&
             plain.contains(std::string_view(name).substr(prefix.size()));
    });
    if (all) return prefix;
  }
  return {};
}

/// What would make the names match, or nothing.
std::string rename_remedy(const LoadReport& report) {
  std::string prefix = common_prefix(report.unexpected, report.missing);
  if (!prefix.empty()) {
    return "\n  the names match without the source's prefix " + base::quote(prefix) +
           "; pass a rename that removes it, rename=lambda name: name.removeprefix(" +
           base::quote(prefix) + ")";
  }
  prefix = common_prefix(report.missing, report.unexpected);
  if (prefix.empty()) return {};
  return "\n  the names match with the prefix " + base::quote(prefix) +
         "; pass a rename that adds it, rename=lambda name: " + base::quote(prefix) + " + name";
}

std::string list_of(std::string_view title, const Names& names) {
  if (names.empty()) return {};
  std::string text = "\n  " + std::string(title) + " (" + std::to_string(names.size()) + "): ";
  const std::size_t shown = std::min(names.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + base::quote(names[i]);
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string mismatches_of(const LoadReport& report, const Side& target, const Side& source) {
  std::string text;
  const std::size_t shown = std::min(report.mismatched.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const LoadReport::Mismatch& mismatch = report.mismatched[i];
    text += "\n  " + base::quote(mismatch.name) + ": expected " + mismatch.expected + ", found " +
            mismatch.found;
    const Leaf* into = target.find(mismatch.name);
    const Leaf* from = source.find(mismatch.name);
    if (into != nullptr && from != nullptr && fits(*into, *from, true)) text += "; pass cast=True";
  }
  if (shown < report.mismatched.size()) {
    text += "\n  and " + std::to_string(report.mismatched.size() - shown) + " more that differ";
  }
  return text;
}

[[noreturn]] void refuse(const LoadReport& report, const Side& target, const Side& source,
                         const std::string& where) {
  const std::string counts = std::to_string(report.missing.size()) + " missing, " +
                             std::to_string(report.unexpected.size()) + " unexpected, " +
                             std::to_string(report.mismatched.size()) + " mismatched";
  throw Error(
      ErrorCode::invalid_argument,
      (where.empty() ? "source" : where) +
          ": does not fit the target, which is unchanged: expected the same tensors, found " +
          counts + list_of("missing from the source", report.missing) +
          list_of("not in the target", report.unexpected) + mismatches_of(report, target, source) +
          rename_remedy(report));
}

/// The tensor to write into. Throws if its bytes may only be read.
Tensor destination(const std::string& name, const Leaf& leaf) {
  Tensor tensor = leaf.tensor();
  if (tensor.numel() != 0 && !tensor.buffer().writable()) {
    throw Error(ErrorCode::invalid_argument,
                "target: tensor " + base::quote(name) +
                    ": expected a tensor that can be written, found a read-only one");
  }
  return tensor;
}

}  // namespace

LoadReport load_into(const TensorDict& target, const TensorDict& source,
                     const LoadIntoOptions& options) {
  const Side into = side_of(target, {}, "target");
  const Side from = side_of(select(source, options.keys), options.rename, "source");
  LoadReport report;
  std::vector<LeafCopy> copies;
  for (const auto& [name, leaf] : from.leaves) {
    const Leaf* wanted = into.find(name);
    if (wanted == nullptr) {
      report.unexpected.push_back(name);
    } else if (!fits(*wanted, leaf, options.cast)) {
      report.mismatched.push_back({name, describe(*wanted), describe(leaf)});
    } else {
      copies.push_back({leaf, destination(name, *wanted)});
      report.loaded.push_back(name);
    }
  }
  Selector asked_for(options.keys);
  for (const NamedLeaf& named : tensors_of(target)) {
    const std::string name = dotted(named.path);
    if (from.find(name) != nullptr) continue;
    if (!options.keys.empty() && !asked_for.names_or_holds(named.path)) continue;
    report.missing.push_back(name);
  }
  if (options.strict && !report.ok()) refuse(report, into, from, source.where());
  if (options.dry_run) return report;
  copy_leaves(copies, options.num_threads, options.monitor);
  return report;
}

LoadReport load_into(const TensorDict& target, const Path& source, const LoadIntoOptions& options) {
  return load_into(target, open(source), options);
}

}  // namespace tenfold

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/bare.hpp"
#include "formats/shared/progress.hpp"
#include "io/rename.hpp"
#include "io/selector.hpp"
#include "io/tree.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Maximum number of names in one list of a message.
constexpr std::size_t kNamesShown = 20;
/// Maximum number of dot-separated components in a prefix that is tried. Without a limit, names
/// with many dots would take long.
constexpr std::size_t kMaxPrefixParts = 16;

using Names = std::vector<std::string>;

/// The tensors of one tree, by dotted name.
struct NamedTensors {
  static constexpr auto kNone = static_cast<std::size_t>(-1);

  std::vector<std::pair<std::string, Leaf>> leaves;
  std::unordered_map<std::string, std::size_t> positions;

  void add(std::string name, const std::string& original, Leaf leaf, std::string_view whose) {
    if (!positions.emplace(name, leaves.size()).second) {
      const std::string was =
          name == original ? "" : " (one was renamed from " + base::quote(original) + ")";
      throw base::invalid_argument()
          .part(whose)
          .problem("two tensors are called ", base::quote(name), was)
          .expected("a different name for each");
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

/// Returns those of the target's `names` that `keys` select. Compares dotted names, because the
/// target may be nested in another way than the source: a state_dict is flat.
Names selected_names(const Names& names, const Keys& keys) {
  if (!keys.given()) return names;
  std::vector<KeyPath> dotted_keys;
  for (const KeyPath& key : keys.paths()) dotted_keys.push_back({dotted(key)});
  Selector selector(dotted_keys);
  Names selected;
  for (const std::string& name : names) {
    KeyPath path;
    append_split(name, path);
    if (selector.selects_or_contains(path)) selected.push_back(name);
  }
  return selected;
}

std::string describe(const Leaf& leaf) {
  const std::string shape = base::list_text(leaf.shape());
  return to_string(leaf.dtype()) + (leaf.is_nested() ? " nested " : " ") + shape;
}

bool fits(const Leaf& target, const Leaf& source, bool cast) {
  return same_shape(target, source) &&
         (target.dtype() == source.dtype() || (cast && can_cast(source.dtype(), target.dtype())));
}

/// A prefix of names, and the number of names that match after its removal.
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

/// The start of a remedy: "the names match" if all `num_names` match, else "3 of the 4 names
/// match".
std::string matching(const Prefix& prefix, std::size_t num_names) {
  if (prefix.num_matches == num_names) return "\n  the names match ";
  return "\n  " + std::to_string(prefix.num_matches) + " of the " + std::to_string(num_names) +
         " names match ";
}

/// Returns a remedy: to remove a prefix from the unexpected names if at least half of the missing
/// names then match, or to add a prefix if at least half of the unexpected names then match.
/// Returns an empty string if neither holds.
std::string rename_remedy(const Names& missing, const Names& unexpected) {
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
    if (mismatch.cast_helps) text += "; to convert it, use the option cast";
  }
  if (shown < report.mismatched.size()) {
    text += "\n  and " + std::to_string(report.mismatched.size() - shown) + " more that differ";
  }
  return text;
}

/// True if the tensor is expanded: a stride of 0 makes several indices refer to the same element.
/// Does not detect other overlaps, which as_strided() can create.
bool overlaps_itself(const Tensor& tensor) {
  for (std::size_t dim = 0; dim < tensor.shape().size(); ++dim) {
    if (tensor.shape()[dim] > 1 && tensor.strides()[dim] == 0) return true;
  }
  return false;
}

/// The tensor to write to. Throws if it has elements and is read-only or expanded.
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

/// A tensor to copy: all of `from`, in row-major order, to `to`, which has the same shape.
struct LeafCopy {
  Leaf from;
  Tensor to;
};

/// Indices in a list of copies.
using Wave = std::vector<std::size_t>;

/// The bytes from the first element of a tensor to its last, which may include bytes of other
/// tensors.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t copy;
};

Extent extent_of(const Tensor& tensor, std::size_t copy) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
  return {begin, begin + spanned_bytes(tensor), copy};
}

/// Copies whose targets overlap, directly or through other targets, in the order of their
/// addresses. `begin` and `end` are the bounds of all bytes of these targets.
struct Group {
  std::uintptr_t begin;
  std::uintptr_t end;
  Wave copies;
};

/// Splits the copies that have elements into groups with disjoint bytes, in ascending order of
/// address.
std::vector<Group> groups_of(const std::vector<LeafCopy>& copies) {
  std::vector<Extent> extents;
  extents.reserve(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].to.numel() != 0) extents.push_back(extent_of(copies[i].to, i));
  }
  std::ranges::sort(extents, {},
                    [](const Extent& extent) { return std::pair(extent.begin, extent.copy); });
  std::vector<Group> groups;
  for (const Extent& extent : extents) {
    if (groups.empty() || extent.begin >= groups.back().end) {
      groups.push_back({extent.begin, extent.end, {}});
    }
    groups.back().end = std::max(groups.back().end, extent.end);
    groups.back().copies.push_back(extent.copy);
  }
  return groups;
}

/// Copies each source in memory that may share bytes with a target, and makes the copy the source,
/// so that no source is read after it was overwritten.
void copy_shared_sources(std::vector<LeafCopy>& copies, const std::vector<Group>& groups) {
  for (LeafCopy& copy : copies) {
    const Tensor* from = copy.from.tensor_in_memory();
    if (from == nullptr || from->numel() == 0) continue;
    const Extent source = extent_of(*from, 0);
    const auto next = std::ranges::upper_bound(groups, source.begin, {}, &Group::end);
    if (next == groups.end() || next->begin >= source.end) continue;
    const Tensor copied = Tensor::zeros(from->dtype(), from->shape());
    copy_to_contiguous(*from, 0, from->numel(), copied.mutable_raw_data());
    copy.from = copy.from.is_nested() ? Leaf::nested(copied, copy.from.sizes()) : Leaf(copied);
  }
}

/// Returns the copies of a group in ascending order of index. Omits each copy for which a later one
/// writes to exactly the same elements.
Wave without_overwritten(const std::vector<LeafCopy>& copies, Wave group) {
  std::ranges::sort(group, std::greater<>());
  std::set<std::tuple<const std::byte*, std::size_t, Shape, Shape>> seen;
  std::erase_if(group, [&](std::size_t i) {
    const Tensor& to = copies[i].to;
    return !seen.emplace(to.raw_data(), to.itemsize(), to.shape(), to.strides()).second;
  });
  std::ranges::reverse(group);
  return group;
}

/// Groups copies into waves, so that the result is the same as copying sequentially. The copies of
/// one wave write to disjoint bytes, and each wave starts after the previous one has ended. If
/// several copies write to exactly the same elements (tied parameters), only the last one is kept.
/// Copies without elements are in no wave. Usually there is a single wave.
std::vector<Wave> write_order(const std::vector<LeafCopy>& copies, std::vector<Group> groups) {
  std::vector<Wave> waves;
  for (Group& group : groups) {
    Wave order = std::move(group.copies);
    if (order.size() > 1) order = without_overwritten(copies, std::move(order));
    if (waves.size() < order.size()) waves.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) waves[i].push_back(order[i]);
  }
  for (Wave& wave : waves) std::ranges::sort(wave);
  return waves;
}

/// Bytes of the target that one task writes: large enough for efficient reads from the storage, and
/// small enough to split a large tensor among threads.
constexpr std::uint64_t kBytesPerTask = std::uint64_t{16} << 20;
/// Read size if data cannot be read directly to its destination.
constexpr std::uint64_t kScratchBytes = std::uint64_t{1} << 20;

/// Elements [begin, end) of one copy.
struct Range {
  const LeafCopy* copy;
  std::uint64_t begin;
  std::uint64_t end;
};

std::vector<Range> ranges_of(const std::vector<LeafCopy>& copies, const Wave& wave) {
  std::vector<Range> ranges;
  for (const std::size_t position : wave) {
    const LeafCopy& copy = copies[position];
    const auto count = static_cast<std::uint64_t>(copy.to.numel());
    const std::uint64_t step = kBytesPerTask / copy.to.itemsize();
    for (std::uint64_t begin = 0; begin < count; begin += step) {
      ranges.push_back({&copy, begin, std::min(count, begin + step)});
    }
  }
  return ranges;
}

/// The address of an element of a contiguous target.
std::byte* address(const Tensor& to, std::uint64_t element) {
  return to.mutable_raw_data() + element * to.itemsize();
}

/// Reads to a scratch buffer, casts if needed, and scatters the elements if the target is strided.
void copy_through_scratch(const Range& range) {
  const Leaf& from = range.copy->from;
  const Tensor& to = range.copy->to;
  const std::size_t item = itemsize(from.dtype());
  const bool casts = from.dtype() != to.dtype();
  const std::uint64_t step = kScratchBytes / std::max(item, to.itemsize());
  const std::uint64_t most = std::min(step, range.end - range.begin);
  std::vector<std::byte> read(most * item);
  std::vector<std::byte> cast(casts && !to.is_contiguous() ? most * to.itemsize() : 0);
  for (std::uint64_t at = range.begin; at < range.end; at += step) {
    const std::uint64_t count = std::min(step, range.end - at);
    from.read(at * item, std::span(read).first(count * item));
    const std::byte* elements = read.data();
    if (casts) {
      std::byte* target = to.is_contiguous() ? address(to, at) : cast.data();
      cast_elements(from.dtype(), read.data(), to.dtype(), target, count);
      elements = target;
    }
    if (to.is_contiguous()) continue;
    const auto begin = static_cast<std::int64_t>(at);
    copy_from_contiguous(elements, to, begin, begin + static_cast<std::int64_t>(count));
  }
}

void copy_range(const Range& range) {
  const Tensor& to = range.copy->to;
  if (range.copy->from.dtype() != to.dtype() || !to.is_contiguous()) {
    copy_through_scratch(range);
    return;
  }
  const std::size_t size_bytes = (range.end - range.begin) * to.itemsize();
  range.copy->from.read(range.begin * to.itemsize(),
                        std::span(address(to, range.begin), size_bytes));
}

/// Copies in parallel. Reads leaves on disk directly into their targets, except if the target is
/// strided or has another dtype. If targets share bytes, the result is the same as copying
/// sequentially. Extra memory: the sources that share bytes with targets and, for casts and strided
/// targets, at most two buffers of 1 MiB per thread.
void copy_leaves(std::vector<LeafCopy> copies, int num_threads, Monitor* monitor) {
  std::vector<Group> groups = groups_of(copies);
  copy_shared_sources(copies, groups);
  const std::vector<Wave> waves = write_order(copies, std::move(groups));
  std::uint64_t total_bytes = 0;
  for (const Wave& wave : waves) {
    for (const std::size_t position : wave) total_bytes += copies[position].to.nbytes();
  }
  detail::formats::Progress progress(monitor, total_bytes, "load");
  for (const Wave& wave : waves) {
    const std::vector<Range> ranges = ranges_of(copies, wave);
    os::parallel_for(
        ranges.size(), os::num_threads_for(num_threads),
        [&](std::size_t i) {
          copy_range(ranges[i]);
          progress.add((ranges[i].end - ranges[i].begin) * ranges[i].copy->to.itemsize());
        },
        [&] { progress.poll(); });
  }
  progress.finish();
}

/// The position of a leaf in the target, and the source's leaf to copy to it.
struct Match {
  std::size_t position;
  const Leaf* from;
};

/// Returns the copies in the order of the target's tensors, which determines the result if two of
/// these share memory.
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

/// Does the work of require_ok(). `unmatched`: the names in the target for which no tensor was
/// selected, also those that do not count as missing because the option `keys` does not name them.
void check_report(const LoadReport& report, const Names& unmatched, const std::string& source) {
  if (report.ok()) return;
  const std::string counts = std::to_string(report.missing.size()) + " missing, " +
                             std::to_string(report.unexpected.size()) + " unexpected, " +
                             std::to_string(report.mismatched.size()) + " mismatched";
  throw base::invalid_argument(source.empty() ? base::Where("", "source") : source)
      .problem("does not fit the target, which is unchanged")
      .expected("the same names, dtypes and shapes")
      .found(counts, list_of("missing from the source", report.missing),
             list_of("not in the target", report.unexpected), mismatches_of(report),
             rename_remedy(unmatched, report.unexpected));
}

}  // namespace

void require_ok(const LoadReport& report, const std::string& source) {
  check_report(report, report.missing, source);
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
  Names unmatched;
  for (const auto& [name, leaf] : into.leaves) {
    if (from.find(name) == NamedTensors::kNone) unmatched.push_back(name);
  }
  report.missing = selected_names(unmatched, options.keys);
  if (options.strict) check_report(report, unmatched, source.where());
  if (options.dry_run) return report;
  copy_leaves(copies_of(std::move(matches), into), options.num_threads, options.monitor);
  return report;
}

LoadReport load_into(const TensorDict& target, const Path& source, const LoadIntoOptions& options) {
  return load_into(target, open(source), options);
}

}  // namespace tenfold

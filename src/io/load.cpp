#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/fail.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "formats/shared/progress.hpp"
#include "io/check_supported.hpp"
#include "io/read_ahead.hpp"
#include "io/registry.hpp"
#include "io/require_intact.hpp"
#include "io/sparse_check.hpp"
#include "io/tree.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/memory/allocation.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// The number of leaves that one task maps. With fewer, scheduling the task would not pay off.
constexpr std::size_t kLeavesPerTask = 128;

/// Appends pointers to the tensors of a tree, depth first. The caller must be the only owner of the
/// nodes, because it changes the tensors in place. No entry may be lazy.
void collect(const TensorDict& tree, std::vector<Leaf*>& leaves) {
  for (Node::Entry& entry : node_of(tree)->entries) {
    if (auto* leaf = std::get_if<Leaf>(&entry.slot)) {
      leaves.push_back(leaf);
    } else if (auto* node = std::get_if<TensorDict>(&entry.slot)) {
      collect(*node, leaves);
    }
  }
}

/// A copy of `leaf` whose data is `tensor`.
Leaf over(const Leaf& leaf, Tensor tensor) {
  Leaf mapped = with_tensor(leaf, std::move(tensor));
  mapped.mark_in_storage(leaf.in_storage());
  return mapped;
}

Tensor copy_on_heap(const Leaf& leaf) {
  const Tensor tensor = leaf.tensor();
  Buffer buffer = Buffer::allocate(static_cast<std::size_t>(tensor.nbytes()));
  leaf.read(0, buffer.mutable_bytes());
  return {tensor.dtype(), tensor.shape(), std::move(buffer)};
}

/// True if each source of a leaf on disk maps all of its tensors at once, and no entry is lazy.
/// Several threads would not map such a tree faster. If true, adds the size of all tensors to
/// `total_bytes`.
bool is_one_mapping(const TensorDict& tree, std::uint64_t& total_bytes) {
  for (const Node::Entry& entry : node_of(tree)->entries) {
    if (const auto* leaf = std::get_if<Leaf>(&entry.slot)) {
      if (!leaf->in_memory() && !source_of(*leaf)->is_one_mapping()) return false;
      total_bytes += leaf->nbytes();
    } else if (const auto* node = std::get_if<TensorDict>(&entry.slot)) {
      if (!is_one_mapping(*node, total_bytes)) return false;
    } else if (!std::holds_alternative<NonTensor>(entry.slot)) {
      return false;
    }
  }
  return true;
}

/// Maps each leaf that is not in memory yet; mapping checks that the file is long enough.
/// Prefetches these leaves if that is worthwhile.
void map_all(const std::vector<Leaf*>& leaves, const LoadOptions& options) {
  std::uint64_t total_bytes = 0;
  for (const Leaf* leaf : leaves) total_bytes += leaf->nbytes();
  const bool read_ahead = ReadAhead::is_worthwhile(total_bytes, options.mode);
  std::vector<bool> was_on_disk;
  for (const Leaf* leaf : leaves) was_on_disk.push_back(!leaf->in_memory());
  formats::Progress progress(options.monitor, total_bytes, "load");
  const std::size_t num_tasks = (leaves.size() + kLeavesPerTask - 1) / kLeavesPerTask;
  os::parallel_for(
      num_tasks, os::num_threads_for(0),
      [&](std::size_t task) {
        const std::size_t end = std::min(leaves.size(), (task + 1) * kLeavesPerTask);
        for (std::size_t i = task * kLeavesPerTask; i < end; ++i) {
          Leaf& leaf = *leaves[i];
          if (!leaf.in_memory()) leaf = over(leaf, leaf.tensor());
          progress.add(leaf.nbytes());
        }
      },
      [&] { progress.poll(); });
  progress.finish();
  if (!read_ahead) return;
  ReadAhead ahead;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (was_on_disk[i]) ahead.add(leaves[i]->tensor());
  }
  std::move(ahead).start();
}

/// Copies leaves to the heap until no two leaves share bytes.
void untie(const std::vector<Leaf*>& leaves) {
  // Sort by address. If addresses are equal, the longer leaf comes first, so that it is not copied.
  std::vector<std::tuple<std::uintptr_t, std::uint64_t, std::size_t>> extents;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor tensor = leaves[i]->tensor();
    if (tensor.numel() == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
    extents.emplace_back(begin, ~spanned_bytes(tensor), i);
  }
  std::ranges::sort(extents);
  std::uintptr_t kept_end = 0;
  for (const auto& [begin, inverted_bytes, i] : extents) {
    if (begin < kept_end) {
      *leaves[i] = over(*leaves[i], copy_on_heap(*leaves[i]));
    } else {
      kept_end = begin + ~inverted_bytes;
    }
  }
}

/// The tree with every tensor mapped. Nodes that have other owners are copied.
TensorDict mapped(TensorDict tree, const LoadOptions& options) {
  std::uint64_t total_bytes = 0;
  if (options.aliases && is_one_mapping(tree, total_bytes)) {
    const bool read_ahead = ReadAhead::is_worthwhile(total_bytes, options.mode);
    ReadAhead ahead;
    TensorDict loaded = map_leaves(std::move(tree), [&](const Leaf& leaf) {
      Leaf mapped = over(leaf, leaf.tensor());
      if (read_ahead && !leaf.in_memory()) ahead.add(mapped.tensor());
      return mapped;
    });
    std::move(ahead).start();
    formats::Progress progress(options.monitor, total_bytes, "load");
    progress.add(total_bytes);
    progress.finish();
    return loaded;
  }
  TensorDict loaded = map_leaves(std::move(tree), [](const Leaf& leaf) { return leaf; });
  std::vector<Leaf*> leaves;
  collect(loaded, leaves);
  map_all(leaves, options);
  if (!options.aliases) untie(leaves);
  return loaded;
}

TensorDict load_once(const Path& path, const LoadOptions& options) {
  const FoundFormat found = format_of_content(path, options.format);
  if (options.verify) {
    require_intact(*found.format, path, options.keys, options.exclude,
                   {.monitor = options.monitor});
  }
  TensorDict tree = select(found.open(options.mode), options.keys, options.exclude);
  if (!options.allow_opaque) {
    refuse_opaque(
        tree, path.string(),
        "; to load the rest, use the option keys or exclude; to load the content of this entry "
        "without its class, use allow_opaque",
        MetaTensors::allowed);
  }
  // In mode write_through, return the tree with the leaves of the file, so that flush() finds their
  // sources. Because `kept` is another owner of the nodes, mapped() works on a copy of the tree.
  const TensorDict kept = options.mode == Mode::write_through ? tree : TensorDict();
  const TensorDict loaded = mapped(std::move(tree), options);
  check_all_sparse_indices(loaded, path.string());
  return options.mode == Mode::write_through ? kept : loaded;
}

}  // namespace

TensorDict load(const Path& path, const LoadOptions& options) {
  if (!options.aliases && options.mode == Mode::write_through) {
    throw base::invalid_argument(path.string())
        .problem(
            "loading without aliases makes copies in memory, which mode \"r+\" cannot write to the "
            "file")
        .expected("mode \"r\" or \"c\"")
        .found("\"r+\"");
  }
  os::keep_freed_memory();
  return os::read_unreplaced(path, [&] { return load_once(path, options); });
}

TensorDict::Item load_value(const Path& path, const LoadOptions& options) {
  return bare_value(load(path, options));
}

}  // namespace tenfold

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/aliases.hpp"
#include "formats/progress.hpp"
#include "io/registry.hpp"
#include "io/tree.hpp"
#include "os/thread_pool.hpp"

namespace tenfold {
namespace {

/// Leaves that one task maps: fewer would not pay for handing the task to another thread.
constexpr std::size_t kLeavesPerTask = 128;

void require_intact(const Format& format, const Path& path, const LoadOptions& options) {
  const VerifyReport report = format.verify(path, {.monitor = options.monitor});
  if (report.ok()) return;
  const Problem& first = report.problems.front();
  std::string message = first.path;
  if (!first.part.empty()) message += ": " + first.part;
  message += ": " + first.what;
  if (report.problems.size() > 1) {
    message += "; and " + std::to_string(report.problems.size() - 1) + " more";
  }
  throw Error(ErrorCode::corrupt, message);
}

/// Maps each leaf, which checks that its file is long enough.
std::vector<Tensor> map_all(const std::vector<NamedLeaf>& leaves, Monitor* monitor) {
  std::vector<Tensor> tensors(leaves.size());
  std::uint64_t total_bytes = 0;
  for (const NamedLeaf& named : leaves) total_bytes += named.leaf.nbytes();
  Progress progress(monitor, total_bytes, "load");
  const std::size_t num_tasks = (leaves.size() + kLeavesPerTask - 1) / kLeavesPerTask;
  os::parallel_for(
      num_tasks, os::num_threads_for(0),
      [&](std::size_t task) {
        const std::size_t end = std::min(leaves.size(), (task + 1) * kLeavesPerTask);
        for (std::size_t i = task * kLeavesPerTask; i < end; ++i) {
          tensors[i] = leaves[i].leaf.tensor();
          progress.add(leaves[i].leaf.nbytes());
        }
      },
      [&] { progress.poll(); });
  progress.finish();
  return tensors;
}

Tensor copy_on_heap(const Leaf& leaf, const Tensor& tensor) {
  Buffer buffer = Buffer::allocate(static_cast<std::size_t>(tensor.nbytes()));
  leaf.read(0, buffer.bytes());
  return {tensor.dtype(), tensor.shape(), std::move(buffer)};
}

/// Gives each leaf but the first over the same bytes a copy of its own.
void untie(const std::vector<NamedLeaf>& leaves, std::vector<Tensor>& tensors) {
  const std::vector<std::size_t> first = alias_targets(leaves, &NamedLeaf::leaf);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (first[i] != i) tensors[i] = copy_on_heap(leaves[i].leaf, tensors[i]);
  }
}

/// The same tree over tensors that are mapped already.
TensorDict over(const TensorDict& tree, const std::vector<Tensor>& tensors) {
  std::size_t position = 0;
  return map_leaves(tree, [&](const Leaf& leaf) {
    const Tensor& tensor = tensors[position++];
    Leaf mapped = leaf.is_nested() ? Leaf::nested(tensor, leaf.sizes()) : Leaf(tensor);
    mapped.mark_unbatched(leaf.is_unbatched());
    return mapped;
  });
}

}  // namespace

TensorDict load(const Path& path, const LoadOptions& options) {
  if (!options.aliases && options.mode == Mode::write_through) {
    throw Error(ErrorCode::invalid_argument,
                path.string() +
                    ": aliases=False makes copies in memory, which mode \"r+\" cannot "
                    "write to the file: expected mode \"r\" or \"c\", found \"r+\"");
  }
  const Format& format = format_of_content(path, options.format);
  if (options.verify) require_intact(format, path, options);
  const TensorDict tree = select(format.open(path, {.mode = options.mode}), options.keys);
  const std::vector<NamedLeaf> leaves = tensors_of(tree);
  std::vector<Tensor> tensors = map_all(leaves, options.monitor);
  // Written through, leaves stay tied to their files, so that flush() finds them.
  if (options.mode == Mode::write_through) return tree;
  if (!options.aliases) untie(leaves, tensors);
  return over(tree, tensors);
}

}  // namespace tenfold

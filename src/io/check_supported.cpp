#include "io/check_supported.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/special.hpp"
#include "core/tree/depth.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/outline_leaf.hpp"

namespace tenfold {

using namespace detail;
namespace {

using Visit = std::function<void(const KeyPath& path, const NodeInfo& info)>;

void for_each_node(const TensorDict& node, KeyPath& path, const Visit& visit) {
  std::size_t levels = path.size();
  const Depth depth(levels);
  visit(path, node.info());
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr) return;
    path.push_back(key);
    for_each_node(*child, path, visit);
    path.pop_back();
  });
}

Error refuse(const std::string& where, const KeyPath& path) {
  return base::unsupported(where).part(path.empty() ? "root" : "key " + base::quote(dotted(path)));
}

void require_whole_leaves(const TensorDict& node, std::size_t levels) {
  const Depth depth(levels);
  node.for_each([&](const std::string&, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) require_whole(*leaf);
    if (const auto* child = std::get_if<TensorDict>(&item)) require_whole_leaves(*child, levels);
  });
}

}  // namespace

void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta) {
  KeyPath path;
  for_each_node(tree, path, [&](const KeyPath& at, const NodeInfo& info) {
    if (info.kind != NodeKind::opaque) return;
    if (meta == MetaTensors::allowed && info.class_name == kMetaTensor) return;
    if (!info.problem.empty()) throw refuse(where, at).problem(info.problem, remedy);
    throw refuse(where, at)
        .problem("it is not a tensor, JSON value or container of them")
        .expected("one of the classes that are read")
        .found(base::quote(info.class_name))
        .remedy("nothing was imported", remedy);
  });
}

void require_whole(const Leaf& leaf) {
  constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 30U;
  if (!source_of(leaf) || leaf.nbytes() < kLargeBytes || is_outline(leaf)) return;
  std::vector<std::byte> last(itemsize(leaf.dtype()));
  leaf.read(leaf.nbytes() - last.size(), last);
}

void check_supported(const TensorDict& tree, const formats::Format& format,
                     const std::string& where) {
  refuse_opaque(tree, where, "");
  require_whole_leaves(tree, 0);
  if (format.bare_roots == formats::BareRoots::none && is_bare(tree)) {
    throw refuse(where, KeyPath())
        .problem("format ", base::quote(format.name), " cannot hold a value without a name")
        .expected("a container")
        .found("a ", (std::holds_alternative<Leaf>(bare_value(tree)) ? "tensor" : "JSON value"))
        .remedy("give it a name, {\"name\": ...}");
  }
  if (format.holds_sparse) return;
  KeyPath path;
  for_each_node(tree, path, [&](const KeyPath& at, const NodeInfo& info) {
    if (info.kind != NodeKind::sparse) return;
    throw refuse(where, at)
        .problem("format ", base::quote(format.name), " cannot hold it")
        .expected("dense tensors")
        .found("one of layout ", base::quote(info.layout))
        .remedy("the format \"memmap\" can");
  });
}

void with_path(const Path& path, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported || !error.path().empty()) throw;
    throw Error(error).path(path.string());
  }
}

}  // namespace tenfold

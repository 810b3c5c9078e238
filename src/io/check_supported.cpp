#include "io/check_supported.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/notes/walk.hpp"
#include "core/tensor/extended_scalar.hpp"
#include "core/tree/bare.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/outline_leaf.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// The remedy for an opaque root, which no selection of keys can omit.
constexpr std::string_view kRootRemedy =
    "; to load its content without its class, use load with allow_opaque; to convert it, save its "
    "state_dict() with the program that wrote it";

Error refuse_node(const std::string& where, const std::string& path) {
  return base::unsupported(where).part(
      path.empty() ? "root" : "key " + base::quote(dotted(*keys_of_note_path(path))));
}

/// Throws for opaque nodes, except for tensors on the meta device if they are allowed. If a format
/// is given, also throws for sparse tensors that it does not support, and for leaves that
/// require_whole() cannot read.
class SupportCheck final : public TreeVisitor {
 public:
  SupportCheck(const std::string& where, const std::string& remedy, MetaTensors meta,
               const formats::Format* format)
      : where_(where), remedy_(remedy), meta_(meta), format_(format) {}

 private:
  void node(const std::string& path, const TensorDict& node) override {
    const NodeInfo& info = node.info();
    if (info.kind == NodeKind::opaque) opaque(path, info);
    if (info.kind != NodeKind::sparse || format_ == nullptr || format_->holds_sparse) return;
    throw refuse_node(where_, path)
        .problem("format ", base::quote(format_->name), " cannot hold it")
        .expected("dense tensors")
        .found("a tensor of layout ", base::quote(info.layout))
        .remedy("the format \"memmap\" can hold it");
  }

  void leaf(const std::string& /*path*/, const Leaf& leaf) override {
    if (format_ != nullptr) require_whole(leaf);
  }

  void opaque(const std::string& path, const NodeInfo& info) const {
    if (meta_ == MetaTensors::allowed && info.class_name == kMetaTensor) return;
    const std::string_view remedy =
        path.empty() && !remedy_.empty() ? kRootRemedy : std::string_view(remedy_);
    if (!info.problem.empty()) throw refuse_node(where_, path).problem(info.problem, remedy);
    throw refuse_node(where_, path)
        .problem("it is not a tensor, JSON value or container of them")
        .expected("an object of a class that tenfold reads")
        .found(base::quote(info.class_name))
        .remedy("no module was imported", remedy);
  }

  const std::string& where_;
  const std::string& remedy_;
  MetaTensors meta_;
  const formats::Format* format_;
};

}  // namespace

void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta) {
  SupportCheck check(where, remedy, meta, nullptr);
  walk(tree, check);
}

void require_whole(const Leaf& leaf) {
  constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 30U;
  if (!source_of(leaf) || leaf.nbytes() < kLargeBytes || is_outline(leaf)) return;
  std::vector<std::byte> last(itemsize(leaf.dtype()));
  leaf.read(leaf.nbytes() - last.size(), last);
}

void check_supported(const TensorDict& tree, const formats::Format& format,
                     const std::string& where) {
  const std::string no_remedy;
  SupportCheck check(where, no_remedy, MetaTensors::refused, &format);
  walk(tree, check);
  if (format.bare_roots == formats::BareRoots::none && is_bare(tree)) {
    throw refuse_node(where, std::string())
        .problem("format ", base::quote(format.name), " cannot hold a value without a name")
        .expected("a container")
        .found("a ", (std::holds_alternative<Leaf>(bare_value(tree)) ? "tensor" : "JSON value"))
        .remedy("give it a name, as an entry of a dict");
  }
}

void refuse_shard_size(const formats::Format& format, const Path& target,
                       std::uint64_t shard_size_bytes) {
  if (shard_size_bytes == 0 || &format == &formats::safetensors::kShardedFormat) return;
  throw base::invalid_argument(target.string())
      .problem("only an index of shards has a shard size")
      .expected("a name that ends in \".safetensors.index.json\"")
      .found(base::quote(target.filename().string()));
}

void with_path(const Path& path, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    const bool is_of_tree =
        error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument;
    if (!is_of_tree || !error.path().empty()) throw;
    throw Error(error).path(path.string());
  }
}

}  // namespace tenfold

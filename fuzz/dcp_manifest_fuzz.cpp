// Arbitrary bytes as the `metadata.json` of two otherwise valid checkpoints, one in the layout
// `shards` and one in the layout `torch`. Two ranks saved each of them. The bytes are refused with
// an Error, or every tensor can be read. Nothing outside the folder is read, and no number in the
// file makes the reader allocate too much memory.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/sharded_writer.hpp>
#include <tenfold/warnings.hpp>

#include "formats/shared/dcp_manifest.hpp"
#include "fuzz/scratch.hpp"
#include "os/fs/directory.hpp"

namespace {

using namespace tenfold;

/// Saves with two ranks: a matrix with half of its rows on each rank, a vector on rank 0, and a
/// number.
void save_by_two(const Path& path, ShardLayout layout) {
  const auto dict = [] { return TensorDict(NodeInfo{.kind = NodeKind::dict}); };
  TensorDict tree = dict();
  TensorDict model = dict();
  model.set("w", Tensor::zeros(DType::float32, {4, 2}));
  model.set("b", Tensor::zeros(DType::int64, {3}));
  tree.set("model", model);
  tree.set("step", Value(7));
  ShardedWriter writer(path, tree,
                       {{0, {0, 0}, {2, 2}, 0}, {0, {2, 0}, {2, 2}, 1}, {1, {0}, {3}, 0}},
                       {.layout = layout, .durable = false});
  const Tensor rows = Tensor::zeros(DType::float32, {2, 2});
  ShardWriter first(writer.ticket(0));
  first.write(0, std::vector{rows, Tensor::zeros(DType::int64, {3})});
  ShardWriter second(writer.ticket(1));
  second.write(0, std::vector{rows});
  writer.publish(std::vector{first.finish(), second.finish()});
}

const Path& folder() {
  static const fuzz::ScratchFolder scratch;
  static const Path path = [] {
    save_by_two(scratch.path() / "shards", ShardLayout::shards);
    save_by_two(scratch.path() / "torch", ShardLayout::torch);
    return scratch.path();
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_warning_handler([](const std::string&) {});
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* layout : {"shards", "torch"}) {
    const Path path = folder() / layout;
    std::ofstream(path / detail::formats::kManifestName, std::ios::binary | std::ios::trunc)
        << text;
    try {
      fuzz::touch_leaves(open(path));
    } catch (const Error&) {
    }
    static_cast<void>(verify(path));
    try {
      const auto manifest = detail::formats::read_manifest(os::Directory::open(path));
      if (!manifest) continue;
      // Builds the tree of the manifest, with a small tensor for each tensor of the manifest.
      static_cast<void>(detail::formats::manifest_tree(*manifest, "manifest", [](std::size_t) {
        return Leaf(Tensor::zeros(DType::uint8, {1}));
      }));
    } catch (const Error& error) {
      const bool is_known = error.code() == ErrorCode::corrupt ||
                            error.code() == ErrorCode::unsupported ||
                            error.code() == ErrorCode::invalid_argument;
      if (!is_known) std::abort();
    }
  }
  return 0;
}

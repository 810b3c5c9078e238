// Arbitrary bytes as tree notes, a JSON document with properties of the nodes of a tree, here of a
// small one. They are refused, or the notes of the tree to which they were applied survive a round
// trip.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/shared/tree_notes.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats;

NodeInfo of_kind(NodeKind kind) {
  NodeInfo info;
  info.kind = kind;
  return info;
}

TensorDict plain_tree() {
  TensorDict part(of_kind(NodeKind::dict));
  part.set("y", Tensor::zeros(DType::int16, {2}));
  TensorDict list(of_kind(NodeKind::list));
  list.set("0", part);
  TensorDict tree(of_kind(NodeKind::dict));
  TensorDict module(of_kind(NodeKind::ordered_dict));
  module.set("z", Tensor::zeros(DType::int16, {1}));
  tree.set("m", module);
  tree.set("x", Tensor::zeros(DType::int16, {2, 3}));
  tree.set("l", list);
  tree.set("v", from_json(R"({"w": [{"a": {}}, []], "": 1})", "value"));
  return tree;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TensorDict tree = plain_tree();
  try {
    apply_tree_notes({reinterpret_cast<const char*>(data), size}, "input", tree);
  } catch (const Error& error) {
    const bool expected =
        error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported;
    if (!expected) std::abort();
    return 0;
  }
  const std::string notes = tree_notes_of(tree, ModuleVersions::in_notes);
  TensorDict again = plain_tree();
  if (!notes.empty()) apply_tree_notes(notes, "again", again);
  if (tree_notes_of(again, ModuleVersions::in_notes) != notes) std::abort();
  return 0;
}

#include "formats/shared/dcp_manifest.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include <tenfold/tensordict.hpp>

#include "core/value/value_json.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

TensorDict tree_of(const std::string& json) {
  Manifest manifest;
  manifest.tensors.resize(2);
  manifest.tree = from_json(json, "x");
  return manifest_tree(manifest, "x",
                       [](std::size_t) { return Leaf(Tensor::zeros(DType::int8, {1})); });
}

TEST(DcpManifest, EachTensorHasOneKey) {
  EXPECT_EQ(tree_of(R"({"a": 1, "b": {"entries": {"c": 0}}})").keys().size(), 2U);
  expect_error(ErrorCode::corrupt, "tree: key \"b/c\": expected a tensor that no other key has",
               [] { tree_of(R"({"a": 1, "b": {"entries": {"c": 1}}})"); });
}

}  // namespace
}  // namespace tenfold::test

#include "io/tree.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/tree/node.hpp"

namespace tenfold {
namespace {

Tensor numbers(std::int32_t first) {
  const std::vector<std::int32_t> values = {first, first + 1};
  return Tensor::from(std::span<const std::int32_t>(values));
}

TensorDict dict() {
  NodeInfo info;
  info.kind = NodeKind::dict;
  return TensorDict(info);
}

std::int32_t first_of(const Leaf& leaf) { return leaf.tensor().data<std::int32_t>()[0]; }

Leaf ten_more(const Leaf& leaf) { return numbers(first_of(leaf) + 10); }

/// Returns its item when it is loaded.
class Later final : public LazyItem {
 public:
  explicit Later(TensorDict::Item item) : item_(std::move(item)) {}
  TensorDict::Item load() override { return item_; }

 private:
  TensorDict::Item item_;
};

TEST(MapLeaves, ChangesATreeWithOneOwnerInPlace) {
  TensorDict tree = dict();
  tree.set("a", numbers(1));
  TensorDict child = dict();
  child.set("b", numbers(2));
  tree.set("child", std::move(child));
  const Node* node = node_of(tree).get();
  const TensorDict mapped = map_leaves(std::move(tree), ten_more);
  EXPECT_EQ(node_of(mapped).get(), node);
  EXPECT_EQ(mapped.at("a").data<std::int32_t>()[0], 11);
  EXPECT_EQ(mapped.at("child", "b").data<std::int32_t>()[0], 12);
}

TEST(MapLeaves, DoesNotChangeNodesWithOtherOwners) {
  TensorDict shared = dict();
  shared.set("b", numbers(2));
  TensorDict tree = dict();
  tree.set("a", numbers(1));
  tree.set("one", shared);
  tree.set("two", shared);
  TensorDict same = tree;
  TensorDict mapped = map_leaves(std::move(tree), ten_more);
  EXPECT_EQ(same.at("a").data<std::int32_t>()[0], 1);
  EXPECT_EQ(mapped.at("a").data<std::int32_t>()[0], 11);
  mapped = dict();
  mapped = map_leaves(std::move(same), ten_more);
  EXPECT_EQ(mapped.at("one", "b").data<std::int32_t>()[0], 12);
  EXPECT_EQ(mapped.at("two", "b").data<std::int32_t>()[0], 12);
  EXPECT_EQ(shared.at("b").data<std::int32_t>()[0], 2);
}

TEST(MapLeaves, IncludesLazyEntries) {
  TensorDict child = dict();
  child.set("b", numbers(2));
  TensorDict tree = dict();
  node_of(tree)->entries.push_back({"leaf", std::make_shared<Later>(Leaf(numbers(1)))});
  node_of(tree)->entries.push_back({"child", std::make_shared<Later>(child)});
  const TensorDict mapped = map_leaves(std::move(tree), ten_more);
  EXPECT_EQ(mapped.at("leaf").data<std::int32_t>()[0], 11);
  EXPECT_EQ(mapped.at("child", "b").data<std::int32_t>()[0], 12);
  EXPECT_EQ(child.at("b").data<std::int32_t>()[0], 2);
}

}  // namespace
}  // namespace tenfold

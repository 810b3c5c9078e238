#include "core/notes/walk.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "core/tree/node.hpp"

namespace tenfold {
namespace {

class Record final : public TreeVisitor {
 public:
  std::vector<std::string> seen;

 private:
  void node(const std::string& path, const TensorDict& /*node*/) override {
    seen.push_back("node " + path);
  }
  void leaf(const std::string& path, const Leaf& /*leaf*/) override {
    seen.push_back("leaf " + path);
  }
  void value(const std::string& path, const NonTensor& /*value*/) override {
    seen.push_back("value " + path);
  }
};

class LazyLeaf final : public LazyItem {
 public:
  TensorDict::Item load() override { return Leaf(Tensor::zeros(DType::float32, {1})); }
};

Leaf zeros() { return Leaf(Tensor::zeros(DType::float32, {2})); }

TEST(Walk, VisitsParentsFirstInTheOrderOfTheKeys) {
  TensorDict below;
  below.set("w", zeros());
  TensorDict tree;
  tree.set("z", zeros());
  tree.set("a", below);
  tree.set("n", NonTensor{Value(1)});
  node_of(tree)->entries.push_back({"lazy", std::make_shared<LazyLeaf>()});
  Record record;
  walk(tree, record);
  EXPECT_EQ(record.seen, (std::vector<std::string>{"node ", "leaf z", "node a", "leaf a/w",
                                                   "value n", "leaf lazy"}));
}

TEST(Walk, EncodesKeysAsNotesDo) {
  TensorDict below;
  node_of(below)->entries.push_back({"x/y", zeros()});
  TensorDict tree;
  node_of(tree)->entries.push_back({"", below});
  node_of(tree)->entries.push_back({"50%", zeros()});
  Record record;
  walk(tree, record);
  EXPECT_EQ(record.seen,
            (std::vector<std::string>{"node ", "node %", "leaf %/x%2Fy", "leaf 50%25"}));
}

TEST(Walk, RefusesATreeThatContainsItself) {
  TensorDict tree;
  tree.set("self", tree);
  Record record;
  try {
    walk(tree, record);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.found(), "more");
  }
  node_of(tree)->entries.clear();  // the node owns itself, and would never be freed
}

}  // namespace
}  // namespace tenfold

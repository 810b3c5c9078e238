#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "core/tree/fake_source.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

Tensor scalar(float value) { return Tensor::from(std::span<const float>(&value, 1), {}); }

float at(const TensorDict& td, const KeyPath& path) { return td.tensor(path).data<float>()[0]; }

/// {"model": {"encoder": {"weight", "bias"}, "epoch": 3}, "step"}
TensorDict small_tree() {
  TensorDict encoder;
  encoder.set("weight", scalar(1));
  encoder.set("bias", scalar(2));
  TensorDict model;
  model.set("encoder", encoder);
  model.set("epoch", Value(3));
  TensorDict root;
  root.set("model", model);
  root.set("step", scalar(4));
  return root;
}

template <class Call>
std::string no_key(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

class CountingLazyItem : public LazyItem {
 public:
  explicit CountingLazyItem(std::atomic<int>* loads) : loads_(loads) {}
  TensorDict::Item load() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (loads_->fetch_add(1) < failures) throw Error(ErrorCode::corrupt, "no luck");
    TensorDict child;
    child.set("x", scalar(5));
    return child;
  }
  int failures = 0;

 private:
  std::atomic<int>* loads_;
};

TEST(TensorDict, KeepsItsKeysInOrderAndReplacesInPlace) {
  TensorDict td;
  td.set("b", scalar(1));
  td.set("a", scalar(2));
  td.set("b", scalar(3));
  EXPECT_THAT(td.keys(), ElementsAre("b", "a"));
  EXPECT_EQ(at(td, {"b"}), 3);
  EXPECT_EQ(td.size(), 2U);
  EXPECT_TRUE(td.contains("a"));
  EXPECT_FALSE(td.contains("c"));
}

TEST(TensorDict, FindsKeysAddedAfterTheIndexWasMade) {
  TensorDict td;
  for (int i = 0; i < 50; ++i) td.set("k" + std::to_string(i), scalar(static_cast<float>(i)));
  EXPECT_TRUE(td.contains("k49"));  // creates the index
  for (int i = 50; i < 200; ++i) td.set("k" + std::to_string(i), scalar(static_cast<float>(i)));
  td.set("k7", scalar(-7));
  for (int i = 0; i < 200; ++i) {
    const float expected = i == 7 ? -7 : static_cast<float>(i);
    ASSERT_EQ(at(td, {"k" + std::to_string(i)}), expected);
  }
  EXPECT_EQ(td.size(), 200U);
}

TEST(TensorDict, CopiesShareTheNode) {
  TensorDict td;
  const TensorDict copy = td;
  td.set("a", scalar(1));
  EXPECT_TRUE(copy.contains("a"));
  EXPECT_TRUE(copy.same_node(td));
  EXPECT_FALSE(TensorDict().same_node(td));
}

TEST(TensorDict, ReturnsTensorsNodesAndValues) {
  const TensorDict td = small_tree();
  EXPECT_EQ(td.at("model", "encoder", "bias").data<float>()[0], 2);
  EXPECT_EQ(at(td["model"]["encoder"], {"weight"}), 1);
  EXPECT_EQ(td["model"].value("epoch"), Value(3));
  EXPECT_TRUE(std::holds_alternative<NonTensor>(td.get(KeyPath{"model", "epoch"})));
}

TEST(TensorDict, AMissingKeyNamesTheSourceAndNearMatches) {
  const TensorDict td = small_tree();
  td["model"]["encoder"].node()->where = "ckpt/model/encoder";
  EXPECT_EQ(no_key([&] { td["model"]["encoder"].at("wieght"); }),
            "ckpt/model/encoder: no key \"wieght\"; did you mean \"weight\"?");
  EXPECT_EQ(no_key([&] { td.get("nothing like it"); }), "no key \"nothing like it\"");
}

TEST(TensorDict, SeveralNearMatchesAreListed) {
  TensorDict td;
  for (const char* key : {"beta1", "beta2", "beta3", "beta4"}) td.set(key, scalar(0));
  EXPECT_EQ(no_key([&] { td.get("beta"); }),
            "no key \"beta\"; did you mean \"beta1\", \"beta2\" or \"beta3\"?");
}

TEST(TensorDict, APathNamesThePartThatIsMissing) {
  const TensorDict td = small_tree();
  td.node()->where = "ckpt";
  EXPECT_EQ(no_key([&] { td.at("model", "encoder", "biass"); }),
            "ckpt: node \"model.encoder\": no key \"biass\"; did you mean \"bias\"?");
  EXPECT_EQ(no_key([&] { td.at("modle", "encoder"); }),
            "ckpt: no key \"modle\"; did you mean \"model\"?");
  EXPECT_EQ(no_key([&] { td.at("model", "epoch", "x"); }),
            "ckpt: node \"model\": key \"epoch\": expected a node, found a JSON value");
  EXPECT_THROW(td.tensor({}), Error);
}

TEST(TensorDict, AnEntryOfAnotherKindIsNamed) {
  const TensorDict td = small_tree();
  EXPECT_EQ(no_key([&] { td["step"]; }), "key \"step\": expected a node, found a tensor");
  EXPECT_EQ(no_key([&] { td.at("model"); }), "key \"model\": expected a tensor, found a node");
  EXPECT_EQ(no_key([&] { td.at("model", "epoch"); }),
            "node \"model\": key \"epoch\": expected a tensor, found a JSON value");
  EXPECT_EQ(no_key([&] { td.value("step"); }),
            "key \"step\": expected a JSON value, found a tensor");
}

TEST(TensorDict, VisitsLeavesDepthFirstInOrder) {
  std::vector<std::string> paths;
  small_tree().for_each_leaf(
      [&](const KeyPath& path, const TensorDict::Item&) { paths.push_back(dotted(path)); });
  EXPECT_THAT(paths,
              ElementsAre("model.encoder.weight", "model.encoder.bias", "model.epoch", "step"));
}

TEST(TensorDict, ThatContainsItselfIsAnErrorNotACrash) {
  TensorDict td;
  td.set("self", td);
  EXPECT_THROW(td.for_each_leaf([](const KeyPath&, const TensorDict::Item&) {}), Error);
  td.flush();                  // visits each node once
  td.node()->entries.clear();  // so that the node can be freed
}

TEST(TensorDict, LoadsALazyEntryOnceForConcurrentThreads) {
  std::atomic<int> loads = 0;
  TensorDict td;
  td.node()->entries.push_back({"child", std::make_shared<CountingLazyItem>(&loads)});
  EXPECT_THAT(td.keys(), ElementsAre("child"));
  EXPECT_TRUE(td.contains("child"));
  td.flush();
  EXPECT_EQ(loads, 0);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { good += at(td, {"child", "x"}) == 5 ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(loads, 1);
  EXPECT_TRUE(td["child"].same_node(td["child"]));
}

TEST(TensorDict, RetriesALazyEntryAfterAFailure) {
  std::atomic<int> loads = 0;
  auto item = std::make_shared<CountingLazyItem>(&loads);
  item->failures = 1;
  TensorDict td;
  td.node()->entries.push_back({"child", item});
  EXPECT_THROW(td["child"], Error);
  EXPECT_EQ(at(td, {"child", "x"}), 5);
}

TEST(TensorDict, JsonContainersAreNodes) {
  TensorDict td;
  td.node()->where = "ckpt";
  const Value::Object by_number{{{"0", Value(1)}, {"1", Value(2)}}, true, false};
  td.set("state", Value(by_number));
  td.set("groups", Value(Value::List{{Value(by_number), Value("x")}}));
  td.set("betas", Value(Value::Tuple{{Value(0.5)}}));
  EXPECT_EQ(td["state"].kind(), NodeKind::dict);
  EXPECT_TRUE(td["state"].info().int_keys);
  EXPECT_EQ(td["state"].value("1"), Value(2));
  EXPECT_EQ(td["state"].where(), "ckpt/state");
  EXPECT_EQ(td["groups"].kind(), NodeKind::list);
  EXPECT_EQ(td["groups"]["0"].value("0"), Value(1));
  EXPECT_EQ(td["betas"].kind(), NodeKind::tuple);
  EXPECT_EQ(no_key([&] { td["groups"]["1"]; }),
            "ckpt/groups: key \"1\": expected a node, found a JSON value");
}

TEST(TensorDict, FlushesEachSourceOnce) {
  const auto a = std::make_shared<FakeSource>(Buffer::allocate(8));
  const auto b = std::make_shared<FakeSource>(Buffer::allocate(8));
  TensorDict child;
  child.set("x", TensorDict::Item(Leaf(DType::uint8, {8}, a, 0)));
  child.set("y", TensorDict::Item(Leaf(DType::uint8, {8}, b, 0)));
  TensorDict td;
  td.set("x", TensorDict::Item(Leaf(DType::uint8, {4}, a, 0)));
  td.set("child", child);
  td.set("again", child);
  td.set("memory", scalar(1));
  td.flush();
  EXPECT_EQ(a->num_flushes, 1);
  EXPECT_EQ(b->num_flushes, 1);
}

TEST(NodeKind, EveryNameLeadsBackToItsKind) {
  for (int i = 0; i < 7; ++i) {
    const auto kind = static_cast<NodeKind>(i);
    EXPECT_EQ(node_kind_from_name(name(kind)), kind);
  }
  EXPECT_EQ(name(NodeKind::lazy_stack), "lazy_stack");
  EXPECT_EQ(node_kind_from_name("set"), std::nullopt);
}

}  // namespace
}  // namespace tenfold

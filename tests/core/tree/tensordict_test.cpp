#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "core/tree/fake_source.hpp"
#include "core/tree/node.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

// Temporaries return copies, so that a range-based for over a member of the result does not dangle.
static_assert(!std::is_reference_v<decltype(TensorDict().info())>);
static_assert(!std::is_assignable_v<decltype((TensorDict().info().kind)), NodeKind>);
static_assert(!std::is_reference_v<decltype(TensorDict().batch_size())>);

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

std::string no_key(const auto& call) { return test::message_of(call, ErrorCode::key_not_found); }

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
  node_of(td["model"]["encoder"])->where = "ckpt/model/encoder";
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

TEST(TensorDict, MissingPathErrorNamesTheMissingPart) {
  const TensorDict td = small_tree();
  node_of(td)->where = "ckpt";
  EXPECT_EQ(no_key([&] { td.at("model", "encoder", "biass"); }),
            "ckpt: node \"model.encoder\": no key \"biass\"; did you mean \"bias\"?");
  EXPECT_EQ(no_key([&] { td.at("modle", "encoder"); }),
            "ckpt: no key \"modle\"; did you mean \"model\"?");
  EXPECT_EQ(no_key([&] { td.at("model", "epoch", "x"); }),
            "ckpt: node \"model\": key \"epoch\": expected a node, found a JSON value");
  EXPECT_THROW(td.tensor({}), Error);
}

TEST(TensorDict, AMissingDottedNameNamesNearMatches) {
  const TensorDict td = small_tree();
  EXPECT_EQ(no_key([&] { td.at("model.encoder.wieght"); }),
            "node \"model.encoder\": no key \"wieght\"; did you mean \"weight\"?");
  EXPECT_EQ(no_key([&] { td.get("model.encodr.weight"); }),
            "node \"model\": no key \"encodr.weight\"; did you mean \"encoder.weight\"?");
  EXPECT_EQ(no_key([&] { td["modle.encoder"]; }),
            "no key \"modle.encoder\"; did you mean \"model.encoder\"?");
  EXPECT_EQ(no_key([&] { td.value("other.encoder"); }), "no key \"other.encoder\"");
}

TEST(TensorDict, AnErrorAboutTheKindOfAnEntryNamesTheRightCall) {
  const TensorDict td = small_tree();
  EXPECT_EQ(no_key([&] { td["step"]; }),
            "key \"step\": expected a node, found a tensor; at() returns tensors");
  EXPECT_EQ(no_key([&] { td.at("model"); }),
            "key \"model\": expected a tensor, found a node; operator[] returns nodes");
  EXPECT_EQ(no_key([&] { td.at("model", "epoch"); }),
            "node \"model\": key \"epoch\": expected a tensor, found a JSON value; value() returns "
            "JSON values");
  EXPECT_EQ(no_key([&] { td.value<int>("step"); }),
            "key \"step\": expected a JSON value, found a tensor; at() returns tensors");
}

TEST(TensorDict, VisitsLeavesDepthFirstInOrder) {
  std::vector<std::string> paths;
  small_tree().for_each_leaf(
      [&](const KeyPath& path, const TensorDict::Item&) { paths.push_back(dotted(path)); });
  EXPECT_THAT(paths,
              ElementsAre("model.encoder.weight", "model.encoder.bias", "model.epoch", "step"));
}

TEST(TensorDict, ATreeThatContainsItselfIsAnErrorNotACrash) {
  TensorDict td;
  td.set("self", td);
  EXPECT_THROW(td.for_each_leaf([](const KeyPath&, const TensorDict::Item&) {}), Error);
  td.flush();                    // ends, because it visits each node once
  node_of(td)->entries.clear();  // so that the node can be freed
}

TEST(TensorDict, LoadsALazyEntryOnceForConcurrentThreads) {
  std::atomic<int> loads = 0;
  TensorDict td;
  node_of(td)->entries.push_back({"child", std::make_shared<CountingLazyItem>(&loads)});
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

// Without synchronization, this would be a data race, which only ThreadSanitizer detects.
TEST(TensorDict, LooksUpAMissingKeyWhileTheEntryOfABareRootIsLoaded) {
  std::atomic<int> loads = 0;
  TensorDict td(NodeInfo{.kind = NodeKind::dict, .is_bare = true});
  node_of(td)->where = "x.npy";
  node_of(td)->entries.push_back({"value", std::make_shared<CountingLazyItem>(&loads)});
  std::thread loader([&] { EXPECT_EQ(at(td, {"value", "x"}), 5); });
  while (loads == 0) EXPECT_FALSE(td.contains("missing"));
  loader.join();
}

TEST(TensorDict, RetriesALazyEntryAfterAFailure) {
  std::atomic<int> loads = 0;
  auto item = std::make_shared<CountingLazyItem>(&loads);
  item->failures = 1;
  TensorDict td;
  node_of(td)->entries.push_back({"child", item});
  EXPECT_THROW(td["child"], Error);
  EXPECT_EQ(at(td, {"child", "x"}), 5);
}

TEST(TensorDict, JsonContainersAreNodes) {
  TensorDict td;
  node_of(td)->where = "ckpt";
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
            "ckpt/groups: key \"1\": expected a node, found a JSON value; value() returns JSON "
            "values");
}

TEST(TensorDict, IntKeysStayIntNextToAStringKey) {
  TensorDict td(NodeInfo{.kind = NodeKind::dict, .int_keys = true});
  td.set("1", 10);
  td.set("2", 20);
  EXPECT_TRUE(td.info().int_keys);
  td.set("loss", 0.5);
  EXPECT_FALSE(td.info().int_keys);
  EXPECT_EQ(td.info().typed_keys, (TypedKeys{{"1", 1}, {"2", 2}}));
}

TEST(TensorDict, FlushesEachSourceOnce) {
  const auto a = std::make_shared<FakeSource>(Buffer::allocate(8));
  const auto b = std::make_shared<FakeSource>(Buffer::allocate(8));
  TensorDict child;
  child.set("x", TensorDict::Item(stored_leaf(DType::uint8, {8}, a, 0)));
  child.set("y", TensorDict::Item(stored_leaf(DType::uint8, {8}, b, 0)));
  TensorDict td;
  td.set("x", TensorDict::Item(stored_leaf(DType::uint8, {4}, a, 0)));
  td.set("child", child);
  td.set("again", child);
  td.set("memory", scalar(1));
  td.flush();
  EXPECT_EQ(a->num_flushes, 1);
  EXPECT_EQ(b->num_flushes, 1);
}

TEST(NodeKind, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(NodeKind::opaque); ++i) {
    const auto kind = static_cast<NodeKind>(i);
    EXPECT_EQ(node_kind_from_name(to_string(kind)), kind);
  }
  EXPECT_EQ(to_string(NodeKind::lazy_stack), "lazy_stack");
  EXPECT_EQ(node_kind_from_name("set"), std::nullopt);
}

TEST(TensorDict, ANameIsAKeyOrKeysJoinedWithDots) {
  TensorDict td = small_tree();
  EXPECT_EQ(td.at("model.encoder.weight").item<float>(), 1);
  EXPECT_EQ(td["model.encoder"].at("bias").item<float>(), 2);
  EXPECT_EQ(td.value<int>("model.epoch"), 3);
  EXPECT_TRUE(std::holds_alternative<TensorDict>(td.get("model.encoder")));
  EXPECT_TRUE(td.contains("model.encoder.bias"));
  EXPECT_FALSE(td.contains("model.encoder.scale"));
  EXPECT_FALSE(td.contains("step.x"));
  EXPECT_FALSE(td.contains("."));
  EXPECT_FALSE(td.contains(""));
  // A key that contains dots, as in a state dict, is found before a path of keys.
  td.set("model.encoder.weight", scalar(7));
  EXPECT_EQ(td.at("model.encoder.weight").item<float>(), 7);
  TensorDict flat;
  flat.set("encoder.weight", scalar(8));
  td.set("flat", flat);
  EXPECT_EQ(td.at("flat.encoder.weight").item<float>(), 8);
}

TEST(TensorDict, ANameMayBeginWithAnEmptyKey) {
  TensorDict inner;
  inner.set("w", scalar(1));
  TensorDict middle;
  middle.set("", inner);
  TensorDict td;
  td.set("", inner);
  td.set("a", middle);
  EXPECT_EQ(td.at(".w").item<float>(), 1);
  EXPECT_EQ(td.at("a..w").item<float>(), 1);
  td.for_each_leaf([&](const KeyPath& path, const TensorDict::Item&) {
    EXPECT_TRUE(td.find(dotted(path))) << dotted(path);
  });
  EXPECT_FALSE(td.contains(".x"));
}

TEST(TensorDict, APathConsistsOfExactKeys) {
  const TensorDict td = small_tree();
  EXPECT_TRUE(td.contains({"model", "encoder", "weight"}));
  EXPECT_FALSE(td.contains(KeyPath{"model.encoder.weight"}));
  EXPECT_FALSE(td.contains({"model", "encoder.weight"}));
  EXPECT_FALSE(td.contains({"step", "x"}));
  EXPECT_FALSE(td.contains(KeyPath{}));
  EXPECT_EQ(td.at({"model", "encoder", "bias"}).item<float>(), 2);
  EXPECT_EQ((td[{"model", "encoder"}].size()), 2U);
  EXPECT_EQ(td.value({"model", "epoch"}), Value(3));
  EXPECT_TRUE(
      no_key([&] { td.get(KeyPath{"model.encoder"}); }).starts_with("no key \"model.encoder\""));
}

TEST(TensorDict, FindReturnsNulloptForAMissingEntry) {
  const TensorDict td = small_tree();
  ASSERT_TRUE(td.find("model.encoder.weight"));
  EXPECT_TRUE(std::holds_alternative<Leaf>(*td.find("model.encoder.weight")));
  EXPECT_TRUE(td.find({"model", "epoch"}));
  EXPECT_FALSE(td.find("model.nothing"));
  EXPECT_FALSE(td.find({"step", "x"}));
  EXPECT_FALSE(td.find(KeyPath{}));
}

TEST(TensorDict, SupportsRangeForOverItsEntries) {
  TensorDict td = small_tree();
  std::vector<std::string> keys;
  for (auto&& [key, item] : td) {
    keys.push_back(key);
    if (key == "model") td.set("later", 1);  // not visited: end() was called before
  }
  EXPECT_THAT(keys, ElementsAre("model", "step"));
  const auto found = std::find_if(td.begin(), td.end(), [](const TensorDict::Entry& entry) {
    return std::holds_alternative<Leaf>(entry.item);
  });
  ASSERT_NE(found, td.end());
  EXPECT_EQ((*found).key, "step");
  EXPECT_EQ(TensorDict().begin(), TensorDict().end());
  // Iterators keep the node of a temporary alive.
  auto begin = small_tree()["model"].begin();
  EXPECT_EQ((*begin).key, "encoder");
}

TEST(TensorDict, DictIsConstructedFromEntries) {
  const auto td = TensorDict::dict(
      {{"model", small_tree()}, {"w", scalar(1)}, {"epoch", 3}, {"name", "adam"}, {"done", true}});
  EXPECT_EQ(td.kind(), NodeKind::dict);
  EXPECT_THAT(td.keys(), ElementsAre("model", "w", "epoch", "name", "done"));
  EXPECT_EQ(td.value<std::string>("name"), "adam");
  EXPECT_TRUE(td.value<bool>("done"));
  EXPECT_EQ(TensorDict::dict().kind(), NodeKind::dict);
  EXPECT_TRUE(TensorDict::dict().empty());
}

TEST(TensorDict, SetAcceptsEveryTypeOfValue) {
  TensorDict td;
  td.set("int", 3);
  td.set("size", std::size_t{4});
  td.set("text", "x");
  td.set("flag", true);
  td.set("number", 0.5F);
  td.set("list", Value::List{{1, 2}});
  EXPECT_EQ(td.value("int"), Value(3));
  EXPECT_EQ(td.value<std::size_t>("size"), 4U);
  EXPECT_EQ(td.value("text"), Value("x"));
  EXPECT_EQ(td.value("flag"), Value(true));
  EXPECT_EQ(td.value("number"), Value(0.5));
  EXPECT_EQ(td.value<std::vector<int>>("list"), (std::vector<int>{1, 2}));
  try {
    td.value<int>("text");
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("key \"text\": expected an int"), 0U);
  }
}

TEST(TensorDict, PrintsAsATree) {
  TensorDict td = small_tree();
  td.set("long\n", std::string(100, 'x'));
  std::ostringstream text;
  text << td;
  EXPECT_EQ(text.str(),
            "tensordict []\n"
            "  model: tensordict []\n"
            "    encoder: tensordict []\n"
            "      weight: float32 []\n"
            "      bias: float32 []\n"
            "    epoch: 3\n"
            "  step: float32 []\n"
            "  \"long\\x0a\": \"" +
                std::string(59, 'x') + "...");
}

TEST(TensorDict, PrintingALargeOrCyclicTreeIsBounded) {
  TensorDict large;
  for (int i = 0; i < 1000; ++i) large.set(std::to_string(i), i);
  std::ostringstream text;
  text << large;
  EXPECT_NE(text.str().find("\n  19: 19\n  ... 980 more"), std::string::npos);
  TensorDict endless;
  endless.set("self", endless);
  endless.set("twice", endless);
  std::ostringstream bounded;
  bounded << endless;
  EXPECT_LT(bounded.str().size(), 100'000U);
  node_of(endless)->entries.clear();  // so that the node can be freed
}

TEST(TensorDict, ACloneSharesNoTensorsAndNoNodes) {
  TensorDict root = small_tree();
  const Tensor tied = root.at("model.encoder.weight");
  root.set("tied", Tensor(DType::float32, {1}, tied.buffer()));
  Leaf unbatched(Tensor::from<std::int64_t>({1, 2, 3}));
  unbatched.mark_unbatched();
  unbatched.mark_grad(Grad::required);
  root.set("unbatched", TensorDict::Item(unbatched));
  root.set("nested", TensorDict::Item(Leaf::nested(Tensor::from<float>({1, 2, 3}),
                                                   Tensor::from<std::int64_t>({1, 2}, {2, 1}))));
  TensorDict copy = root.clone();
  EXPECT_EQ(copy.keys(), root.keys());
  EXPECT_EQ(copy.value<int>("model.epoch"), 3);
  tied.mutable_data<float>()[0] = 7;
  root["model"].set("epoch", 4);
  EXPECT_EQ(at(copy, {"model", "encoder", "weight"}), 1);
  EXPECT_EQ(copy.value<int>("model.epoch"), 3);
  EXPECT_EQ(copy.at("tied").raw_data(), copy.at("model.encoder.weight").raw_data());
  EXPECT_EQ(copy.at("tied").shape(), (Shape{1}));
  const auto leaf = std::get<Leaf>(copy.get("unbatched"));
  EXPECT_TRUE(leaf.is_unbatched());
  EXPECT_EQ(leaf.grad(), Grad::required);
  EXPECT_EQ(std::get<Leaf>(copy.get("nested")).sizes().at<std::int64_t>(1, 0), 2);
  TensorDict endless;
  endless.set("self", endless);
  EXPECT_THAT(
      test::message_of([&] { static_cast<void>(endless.clone()); }, ErrorCode::invalid_argument),
      testing::HasSubstr("check whether a node contains itself"));
  node_of(endless)->entries.clear();  // so that the node can be freed
}

}  // namespace
}  // namespace tenfold

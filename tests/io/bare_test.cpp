#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::counting;
using test::node_of;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kOfTensors = {
    "m", "m.tdz", "m.safetensors", "m.safetensors.index.json", "m.pt", "m.npz", "m.npy"};
const std::vector<std::string> kOfValues = {"m", "m.tdz", "m.safetensors", "m.pt"};

Tensor tensor_in(const TensorDict::Item& item) { return std::get<Leaf>(item).tensor(); }

TEST(Bare, ATensorRoundTrips) {
  const test::TemporaryFolder folder;
  for (const std::string& name : kOfTensors) {
    save_value(Leaf(counting({2, 3})), folder / name);
    EXPECT_EQ(bytes_of(tensor_in(load_value(folder / name))), bytes_of(counting({2, 3}))) << name;
    const TensorDict tree = open(folder / name);
    EXPECT_TRUE(is_bare(tree)) << name;
    EXPECT_THAT(tree.keys(), ElementsAre(name == "m.npz" ? "arr_0" : "value")) << name;
    const std::string stem = name == "m.safetensors.index.json" ? "m.safetensors.index" : "m";
    EXPECT_EQ(tree.at(stem).shape(), (Shape{2, 3})) << name;
    EXPECT_TRUE(verify(folder / name).ok()) << name;
  }
}

TEST(Bare, AJsonValueRoundTrips) {
  const test::TemporaryFolder folder;
  for (const std::string& name : kOfValues) {
    for (const Value& value : {Value(7), Value("text"), Value(), Value(0.5), Value(true)}) {
      save_value(NonTensor{value}, folder / name);
      EXPECT_EQ(std::get<NonTensor>(load_value(folder / name)).value, value) << name;
      EXPECT_EQ(open(folder / name).value("m"), value) << name;
    }
    const Value list = Value::List{{Value(1), Value("a")}};
    save_value(NonTensor{list}, folder / name);
    EXPECT_EQ(std::get<TensorDict>(load_value(folder / name)).kind(), NodeKind::list) << name;
  }
}

TEST(Bare, OtherFormatsRefuseABareRoot) {
  const test::TemporaryFolder folder;
  for (const std::string format : {"consolidated", "snapshot"}) {
    EXPECT_THAT(thrown_by([&] {
                  save_value(Leaf(counting({2})), folder / "m", {.format = format});
                }).message,
                HasSubstr("m: root: format \"" + format +
                          "\" cannot hold a value without a name: expected a container, found a "
                          "tensor; give it a name"));
  }
  for (const std::string name : {"m.npy", "m.npz"}) {
    EXPECT_THAT(thrown_by([&] { save_value(NonTensor{Value(7)}, folder / name); }).message,
                HasSubstr("root: it cannot be stored: expected a tensor, found a JSON value"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Bare, ADictWithTheKeyOfABareRootStaysADict) {
  const test::TemporaryFolder folder;
  for (const std::string name : {"m", "m.tdz", "m.safetensors", "m.pt", "m.npz"}) {
    TensorDict tree = node_of(NodeKind::dict);
    tree.set(name == "m.npz" ? "arr_0" : "value", counting({2}));
    save(tree, folder / name);
    EXPECT_FALSE(is_bare(load(folder / name))) << name;
  }
  // A bare tree becomes an ordinary dict when it is saved as a child of another tree or with a
  // second entry.
  TensorDict changed = bare_tree(Leaf(counting({2})));
  TensorDict above = node_of(NodeKind::dict);
  above.set("a", bare_tree(Leaf(counting({2}))));
  save(above, folder / "above");
  EXPECT_FALSE(load(folder / "above")["a"].info().is_bare);
  changed.set("b", counting({3}));
  save(changed, folder / "changed");
  EXPECT_THAT(load(folder / "changed").keys(), ElementsAre("value", "b"));
  EXPECT_FALSE(is_bare(load(folder / "changed")));
}

TEST(Bare, HasNoKeysToSelect) {
  const test::TemporaryFolder folder;
  save_value(Leaf(counting({2})), folder / "m.npy");
  for (const char* key : {"value", "m", "*"}) {
    const auto thrown = thrown_by([&] { load(folder / "m.npy", {.keys = {key}}); });
    EXPECT_EQ(thrown.code, ErrorCode::key_not_found);
    EXPECT_EQ(thrown.message,
              (folder / "m.npy").string() +
                  ": it holds one value, which has no name: expected no keys, found \"" + key +
                  "\"");
  }
  EXPECT_EQ(thrown_by([&] { load(folder / "m.npy", {.keys = Keys(std::vector<KeyPath>{})}); }).code,
            ErrorCode::key_not_found);
}

TEST(Bare, BareRootsAreComparedRegardlessOfTheirKeys) {
  const test::TemporaryFolder folder;
  save_value(Leaf(counting({2})), folder / "a.npy");
  save_value(Leaf(counting({2})), folder / "b.npz");
  EXPECT_TRUE(diff(folder / "a.npy", folder / "b.npz").same());
  save_value(Leaf(counting({2}, 5)), folder / "b.npz");
  const DiffReport report = diff(folder / "a.npy", folder / "b.npz");
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].key, "value");
  EXPECT_EQ(report.changed[0].kind, ChangeKind::values);
  TensorDict named = node_of(NodeKind::dict);
  named.set("value", counting({2}));
  const DiffReport other = diff(open(folder / "a.npy"), named);
  ASSERT_EQ(other.changed.size(), 1U);
  EXPECT_EQ(other.changed[0].a, "a value without a name");
}

TEST(Bare, LoadsIntoABareRoot) {
  const test::TemporaryFolder folder;
  save_value(Leaf(counting({2}, 5)), folder / "b.npz");
  const Tensor target = Tensor::zeros(DType::float32, {2});
  EXPECT_THAT(load_into(bare_tree(Leaf(target)), folder / "b.npz").loaded, ElementsAre("value"));
  EXPECT_EQ(bytes_of(target), bytes_of(counting({2}, 5)));
}

TEST(Bare, IsConvertedAsABareRoot) {
  const test::TemporaryFolder folder;
  Path from = save_value(Leaf(counting({2, 2})), folder / "first.npy");
  for (const std::string& name : kOfTensors) {
    const ConvertReport report = convert(from, folder / name);
    EXPECT_EQ(report.num_leaves, 1U);
    EXPECT_EQ(bytes_of(tensor_in(load_value(folder / name))), bytes_of(counting({2, 2}))) << name;
    from = folder / name;
  }
}

TEST(Bare, ARenamedBareRootBecomesADict) {
  const test::TemporaryFolder folder;
  save_value(Leaf(counting({2})), folder / "m.npz");
  ConvertOptions options;
  options.rename = [](const std::string& name) { return name == "value" ? "w" : name; };
  options.renamed = {"value"};
  convert(folder / "m.npz", folder / "m.safetensors", options);
  const TensorDict tree = load(folder / "m.safetensors");
  EXPECT_THAT(tree.keys(), ElementsAre("w"));
  EXPECT_FALSE(is_bare(tree));
}

TEST(Bare, OneTensorOfATreeBecomesANumpyFile) {
  const test::TemporaryFolder folder;
  save(test::sample_checkpoint(), folder / "m");
  convert(folder / "m", folder / "m.npy", {.keys = {"model.head.bias"}});
  EXPECT_EQ(bytes_of(tensor_in(load_value(folder / "m.npy"))), bytes_of(counting({4}, 100)));
  EXPECT_THAT(thrown_by([&] { convert(folder / "m", folder / "n.npy"); }).message,
              HasSubstr("a NumPy file holds one array, which has no name"));
}

TEST(Bare, AnEmptyNodeNextToATensorIsNotDropped) {
  const test::TemporaryFolder folder;
  TensorDict tree = test::node_of(NodeKind::dict);
  tree.set("a", counting({2}));
  tree.set("b", test::node_of(NodeKind::dict));
  save(tree, folder / "m");
  EXPECT_THAT(thrown_by([&] { convert(folder / "m", folder / "m.npy"); }).message,
              HasSubstr("a NumPy file holds one array, which has no name"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.npy"));
}

TEST(Bare, IsNamedByItsFile) {
  const test::TemporaryFolder folder;
  save_value(Leaf(counting({2})), folder / "m.npz");
  EXPECT_THAT(named_by_file(open(folder / "m.npz")).keys(), ElementsAre("m"));
  const TensorDict in_memory = bare_tree(Leaf(counting({2})));
  EXPECT_THAT(named_by_file(in_memory).keys(), ElementsAre("value"));
  EXPECT_FALSE(in_memory.contains(""));
  TensorDict tree = open(folder / "m.npz");
  tree.set("m", counting({3}));  // adds an entry, because only reads accept the name of the file
  EXPECT_THAT(tree.keys(), ElementsAre("arr_0", "m"));
}

}  // namespace
}  // namespace tenfold

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/tensor/cast.hpp"
#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::counting;
using test::node_of;
using test::sample_checkpoint;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
TensorDict tree_of(const std::vector<T>& values) {
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("w", Tensor::from(std::span<const T>(values)));
  return tree;
}

template <class T>
DiffReport diff_of(const std::vector<T>& a, const std::vector<T>& b,
                   const DiffOptions& options = {}) {
  return diff(tree_of(a), tree_of(b), options);
}

TensorDict with_json(Value value) {
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("value", std::move(value));
  return tree;
}

TEST(Diff, TheSameTreeInTwoFormatsIsEqual) {
  const test::TemporaryFolder folder;
  save(sample_checkpoint(), folder / "ckpt");
  save(sample_checkpoint(), folder / "m.safetensors");
  const DiffReport report = diff(folder / "ckpt", folder / "m.safetensors");
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.num_leaves, 6U);
  EXPECT_EQ(report.num_bytes, 160U);
}

TEST(Diff, ListsEntriesOfOnlyOneTree) {
  TensorDict a = sample_checkpoint();
  TensorDict b = sample_checkpoint();
  a["model"].set("old", counting({1}));
  b["optimizer"].set("eps", Value(1e-8));
  const DiffReport report = diff(a, b);
  EXPECT_FALSE(report.same());
  EXPECT_THAT(report.removed, ElementsAre("model.old"));
  EXPECT_THAT(report.added, ElementsAre("optimizer.eps"));
  EXPECT_THAT(report.changed, IsEmpty());
}

TEST(Diff, ReportsStatisticsOfDifferences) {
  const DiffReport report = diff_of<float>({3, 4, 0}, {3, 0, 0});
  ASSERT_EQ(report.changed.size(), 1U);
  const Change& change = report.changed[0];
  EXPECT_EQ(change.key, "w");
  EXPECT_EQ(change.kind, ChangeKind::values);
  EXPECT_EQ(change.a, "float32 [3]");
  EXPECT_EQ(change.max_abs, 4);
  EXPECT_DOUBLE_EQ(change.rel_l2, 0.8);
  EXPECT_DOUBLE_EQ(change.cosine, 0.6);
  EXPECT_EQ(change.num_different, 1U);
}

TEST(Diff, ComparesTheElementsOfExpandedTensorsOnce) {
  constexpr std::int64_t kRows = std::int64_t{1} << 58;
  const auto expanded = [](const std::vector<float>& values) {
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("w", Tensor(DType::float32, {kRows, 2}, {0, 1}, Tensor::from(values).buffer(), 0));
    return tree;
  };
  EXPECT_TRUE(diff(expanded({3, 4}), expanded({3, 4})).same());
  const DiffReport report = diff(expanded({3, 4}), expanded({3, 9}));
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].num_different, std::uint64_t{kRows});
  EXPECT_EQ(report.changed[0].max_abs, 5);
  EXPECT_DOUBLE_EQ(report.changed[0].rel_l2, 1);
}

TEST(Diff, ComparesAnExpandedTensorWithADenseOne) {
  TensorDict expanded = node_of(NodeKind::dict);
  expanded.set("w",
               Tensor(DType::float32, {3}, {0}, Tensor::from(std::vector<float>{1}).buffer(), 0));
  EXPECT_TRUE(diff(expanded, tree_of<float>({1, 1, 1})).same());
  EXPECT_EQ(diff(expanded, tree_of<float>({1, 2, 2})).changed.at(0).num_different, 2U);
}

TEST(Diff, ValuesWithinTheToleranceAreEqual) {
  EXPECT_FALSE(diff_of<float>({1, 100}, {1.0625F, 101}, {.atol = 0.5}).same());
  EXPECT_TRUE(diff_of<float>({1, 100}, {1.0625F, 101}, {.rtol = 0.125}).same());
  EXPECT_TRUE(diff_of<float>({1, 100}, {1.0625F, 101}, {.atol = 1}).same());
  EXPECT_TRUE(diff_of<std::int64_t>({5, -5}, {6, -6}, {.atol = 1}).same());
  EXPECT_EQ(diff_of<std::int64_t>({5, -5}, {6, -7}, {.atol = 1}).changed[0].num_different, 1U);
}

TEST(Diff, EqualZerosAreWithinAnInfiniteRelativeTolerance) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(diff_of<float>({0, 1, 2}, {0, 1, 3}, {.rtol = infinite}).same());
  EXPECT_TRUE(diff_of<std::int64_t>({0, 2}, {0, 3}, {.rtol = infinite}).same());
}

TEST(Diff, RelativeToleranceRefersToTheSecondTree) {
  EXPECT_TRUE(diff_of<float>({1}, {2}, {.rtol = 0.5}).same());
  EXPECT_FALSE(diff_of<float>({2}, {1}, {.rtol = 0.5}).same());
}

TEST(Diff, RefusesAnInvalidTolerance) {
  for (const double wrong : {-1.0, std::nan("")}) {
    EXPECT_THROW(diff_of<float>({1}, {1}, {.rtol = wrong}), Error);
    EXPECT_THROW(diff_of<float>({1}, {1}, {.atol = wrong}), Error);
  }
}

TEST(Diff, NanEqualsNanAndMinusZeroEqualsZero) {
  EXPECT_TRUE(diff_of<float>({kNan, 0.0F, kInf}, {-kNan, -0.0F, kInf}).same());
  EXPECT_TRUE(diff_of<std::complex<float>>({{kNan, 1}}, {{-kNan, 1}}).same());
}

TEST(Diff, NanOnOneSideIsAnInfiniteDifference) {
  using Values = std::vector<float>;
  for (const Values& b : {Values{kNan, 2, 3}, Values{kInf, 2, 3}}) {
    for (const DiffOptions& options : {DiffOptions{}, DiffOptions{.rtol = 1, .atol = 1e9}}) {
      const DiffReport report = diff_of<float>({1, 2, 3}, b, options);
      ASSERT_EQ(report.changed.size(), 1U);
      EXPECT_EQ(report.changed[0].max_abs, kInf);
      EXPECT_EQ(report.changed[0].rel_l2, kInf);
      EXPECT_TRUE(std::isnan(report.changed[0].cosine));
      EXPECT_EQ(report.changed[0].num_different, 1U);
    }
  }
  EXPECT_FALSE(diff_of<float>({kInf}, {-kInf}).same());
  EXPECT_FALSE(diff_of<std::complex<float>>({{kNan, 1}}, {{kNan, 2}}).same());
}

TEST(Diff, ExcludesEqualNansFromStatistics) {
  const DiffReport report = diff_of<float>({kNan, kInf, 2}, {kNan, kInf, 4});
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].max_abs, 2);
  EXPECT_EQ(report.changed[0].rel_l2, 1);
  EXPECT_EQ(report.changed[0].cosine, 1);
}

TEST(Diff, DetectsTheLastBitOfLargeIntegers) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const DiffReport report = diff_of<std::int64_t>({kLarge}, {kLarge + 1});
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].max_abs, 1);
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(diff_of<std::int64_t>({kLeast}, {kMost}).changed[0].max_abs, 0x1p64);
  constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(diff_of<std::uint64_t>({kAll}, {kAll - 1}).changed[0].max_abs, 1);
}

TEST(Diff, AvoidsOverflowOfSquares) {
  for (const double scale : {1e300, 1e-300}) {
    const DiffReport report = diff_of<double>({3 * scale, 4 * scale}, {3 * scale, 0});
    EXPECT_DOUBLE_EQ(report.changed[0].rel_l2, 0.8);
    EXPECT_DOUBLE_EQ(report.changed[0].cosine, 0.6);
  }
}

TEST(Diff, DifferencesFromZeroAreInfinite) {
  const DiffReport report = diff_of<float>({0, 0}, {1, 0});
  EXPECT_EQ(report.changed[0].rel_l2, kInf);
  EXPECT_TRUE(std::isnan(report.changed[0].cosine));
}

TEST(Diff, MeasuresComplexNumbersByTheirMagnitude) {
  const DiffReport report = diff_of<std::complex<double>>({{3, 4}, {1, 0}}, {{0, 0}, {1, 0}});
  EXPECT_EQ(report.changed[0].max_abs, 5);
  EXPECT_EQ(report.changed[0].num_different, 1U);
  EXPECT_DOUBLE_EQ(report.changed[0].rel_l2, std::sqrt(25.0 / 26));
}

TEST(Diff, SupportsEveryDtype) {
  for (const DType dtype : all_dtypes()) {
    TensorDict a = node_of(NodeKind::dict);
    Tensor zeros = Tensor::zeros(dtype, {4});
    std::fill_n(zeros.mutable_raw_data(), zeros.nbytes(), std::byte{1});
    TensorDict b = node_of(NodeKind::dict);
    Tensor changed = Tensor::zeros(dtype, {4});
    std::copy_n(zeros.raw_data(), zeros.nbytes(), changed.mutable_raw_data());
    changed.mutable_raw_data()[0] = std::byte{0};
    a.set("w", zeros);
    EXPECT_TRUE(diff(a, a).same()) << to_string(dtype);
    b.set("w", changed);
    const DiffReport report = diff(a, b);
    ASSERT_EQ(report.changed.size(), 1U) << to_string(dtype);
    EXPECT_GT(report.changed[0].max_abs, 0) << to_string(dtype);
    EXPECT_EQ(report.changed[0].num_different, 1U) << to_string(dtype);
  }
}

TEST(Diff, ComparesValuesOfTwoDtypes) {
  TensorDict a = tree_of<float>({1, 2, 3.0009765625F});
  TensorDict b = node_of(NodeKind::dict);
  Tensor half = Tensor::zeros(DType::bfloat16, {3});
  const Tensor floats = a.at("w");
  cast_elements(DType::float32, floats.raw_data(), DType::bfloat16, half.mutable_raw_data(), 3);
  b.set("w", half);
  const DiffReport report = diff(a, b, {.atol = 1});
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].kind, ChangeKind::dtype);
  EXPECT_EQ(report.changed[0].b, "bfloat16 [3]");
  EXPECT_EQ(report.changed[0].max_abs, 0.0009765625);
  EXPECT_EQ(report.changed[0].num_different, 0U);
}

TEST(Diff, DistinguishesShapes) {
  TensorDict a = node_of(NodeKind::dict);
  a.set("w", counting({2, 3}));
  TensorDict b = node_of(NodeKind::dict);
  b.set("w", counting({3, 2}));
  const DiffReport report = diff(a, b);
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].kind, ChangeKind::shape);
  EXPECT_TRUE(std::isnan(report.changed[0].max_abs));
}

TEST(Diff, DistinguishesComponentsOfNestedTensors) {
  const auto nested = [](std::vector<std::int64_t> sizes) {
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("n", Leaf::nested(counting({6}),
                               Tensor::from(std::span<const std::int64_t>(sizes), {2, 1})));
    return tree;
  };
  EXPECT_TRUE(diff(nested({2, 4}), nested({2, 4})).same());
  EXPECT_EQ(diff(nested({2, 4}), nested({3, 3})).changed[0].kind, ChangeKind::shape);
}

TEST(Diff, ComparesJsonValuesExactly) {
  EXPECT_TRUE(diff(with_json(std::nan("")), with_json(std::nan(""))).same());
  EXPECT_FALSE(diff(with_json(1), with_json(1.0)).same());
  EXPECT_FALSE(diff(with_json(1.0), with_json(1.5), {.atol = 1}).same());
  const DiffReport report = diff(with_json(Value::List{{1}}), with_json(Value::Tuple{{1}}));
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].kind, ChangeKind::json);
  EXPECT_EQ(report.changed[0].a, "list [1]");
  EXPECT_EQ(report.changed[0].b, "tuple [1]");
}

TEST(Diff, ShowsDifferencesOfValuesWithTheSameString) {
  const auto change = [](Value a, Value b) {
    const DiffReport report = diff(with_json(std::move(a)), with_json(std::move(b)));
    EXPECT_EQ(report.changed.size(), 1U);
    return report.changed.at(0);
  };
  const auto dict = [](bool int_keys) { return Value(Value::Object{{{"1", 1}}, int_keys}); };
  EXPECT_EQ(change(dict(false), dict(true)).a, R"(dict {"1": 1})");
  EXPECT_EQ(change(dict(false), dict(true)).b, R"(dict of int keys {"1": 1})");

  const Value::List list{{1}};
  const Value::Tuple tuple{{1}};
  const auto under = [](Value value) { return Value(Value::Object{{{"x", std::move(value)}}}); };
  EXPECT_EQ(change(under(list), under(tuple)).a, "x: list [1]");
  EXPECT_EQ(change(under(list), under(tuple)).b, "x: tuple [1]");

  Value::List long_list{std::vector<Value>(1000, Value(7))};
  Value::List other = long_list;
  other.items[900] = 8;
  EXPECT_EQ(change(long_list, other).a, "900: 7");
  EXPECT_EQ(change(long_list, other).b, "900: 8");
  other = long_list;
  other.items.emplace_back(7);
  EXPECT_EQ(change(long_list, other).a, "list of 1000");
  EXPECT_EQ(change(long_list, other).b, "list of 1001");

  const std::string text(500, 'x');
  EXPECT_EQ(change(text + "a", text + "b").a, "from byte 501 of 503: a\"");
  EXPECT_EQ(change(text + "a", text + "b").b, "from byte 501 of 503: b\"");

  Value::Object many;
  for (int i = 0; i < 100; ++i) many.members.emplace_back("k" + std::to_string(i), i);
  Value::Object fewer = many;
  fewer.members.pop_back();
  EXPECT_EQ(change(many, fewer).a, "k99: 99");
  EXPECT_EQ(change(many, fewer).b, "k99: nothing");
  EXPECT_EQ(change(fewer, many).a, "k99: nothing");
}

TEST(Diff, TreatsAnOrderedDictAsADict) {
  Value::Object dict{{{"a", 1}, {"b", Value::List{{2}}}}};
  Value::Object ordered{{{"b", Value::List{{2}}}, {"a", 1}}};
  ordered.ordered = true;
  EXPECT_TRUE(diff(with_json(dict), with_json(ordered)).same());
  EXPECT_TRUE(diff(with_json(Value::List{{dict}}), with_json(Value::List{{ordered}})).same());
  const auto tree = [](NodeKind kind) {
    TensorDict node = node_of(kind);
    node.set("w", counting({2}));
    return node;
  };
  EXPECT_TRUE(diff(tree(NodeKind::dict), tree(NodeKind::ordered_dict)).same());
  EXPECT_FALSE(diff(tree(NodeKind::dict), tree(NodeKind::list)).same());
}

TEST(Diff, NamesTheDimensionAndTheDeviceOfStacksOfEqualValues) {
  const auto tree = [](std::int64_t stack_dim, std::string device) {
    TensorDict node = node_of(NodeKind::dict);
    node.set("value", NonTensor{Value::List{{Value::List{{1, 2}}, Value::List{{3, 4}}}}, true,
                                stack_dim, std::move(device)});
    return node;
  };
  EXPECT_TRUE(diff(tree(1, "cpu"), tree(1, "cpu")).same());
  const DiffReport dims = diff(tree(0, ""), tree(1, ""));
  ASSERT_EQ(dims.changed.size(), 1U);
  EXPECT_THAT(dims.changed[0].a, testing::EndsWith(" along 0"));
  EXPECT_THAT(dims.changed[0].b, testing::EndsWith(" along 1"));
  const DiffReport devices = diff(tree(0, ""), tree(0, "cpu"));
  ASSERT_EQ(devices.changed.size(), 1U);
  EXPECT_THAT(devices.changed[0].b, testing::EndsWith(" along 0 on cpu"));
}

TEST(Diff, TruncatesLongJson) {
  const DiffReport report = diff(with_json(std::string(10'000, 'x')), with_json(1));
  EXPECT_LE(report.changed[0].a.size(), 200U);
}

TEST(Diff, DistinguishesATensorFromAValue) {
  const DiffReport report = diff(tree_of<float>({1}), [] {
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("w", Value(1));
    return tree;
  }());
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].kind, ChangeKind::type);
  EXPECT_EQ(report.changed[0].a, "float32 [1]");
  EXPECT_EQ(report.changed[0].b, "1");
}

TEST(Diff, TreatsContainersOfJsonAsJson) {
  TensorDict a = node_of(NodeKind::dict);
  TensorDict group = node_of(NodeKind::dict);
  group.set("lr", Value(0.1));
  TensorDict groups = node_of(NodeKind::list);
  groups.set("0", group);
  a.set("groups", groups);
  TensorDict b = node_of(NodeKind::dict);
  Value::Object object;
  object.members = {{"lr", Value(0.1)}};
  b.set("groups", Value(Value::List{{Value(object)}}));
  EXPECT_TRUE(diff(a, b).same());
  object.members[0].second = Value(0.2);
  b.set("groups", Value(Value::List{{Value(object)}}));
  EXPECT_EQ(diff(a, b).changed[0].key, "groups");
}

TEST(Diff, DistinguishesKindsOfNodes) {
  TensorDict a = sample_checkpoint();
  TensorDict b = sample_checkpoint();
  TensorDict model = b["model"];
  model.info().kind = NodeKind::tensordict;
  const DiffReport report = diff(a, b);
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].key, "model");
  EXPECT_EQ(report.changed[0].kind, ChangeKind::node);
  EXPECT_EQ(report.changed[0].a, "dict");
  EXPECT_EQ(report.changed[0].b, "tensordict []");
  model.info() = a["model"].info();
  b.info().kind = NodeKind::tensordict;
  EXPECT_EQ(diff(a, b).changed[0].key, "");
  EXPECT_THAT(diff(a, b).changed[0].b, HasSubstr("tensordict []"));
}

TEST(Diff, MatchesFlatNamesWithNestedOnes) {
  TensorDict nested = node_of(NodeKind::dict);
  TensorDict model = node_of(NodeKind::dict);
  model.set("w", counting({2}));
  model.set("b", counting({3}));
  nested.set("model", model);
  TensorDict flat = node_of(NodeKind::dict);
  flat.set("model.w", counting({2}));
  flat.set("model.b", counting({3}));
  const DiffReport report = diff(nested, flat);
  EXPECT_THAT(report.added, IsEmpty());
  EXPECT_THAT(report.removed, IsEmpty());
  ASSERT_EQ(report.changed.size(), 1U);
  EXPECT_EQ(report.changed[0].key, "model");
  EXPECT_EQ(report.changed[0].b, "no node");
}

TEST(Diff, ReportsNodesWithoutEntries) {
  TensorDict a = node_of(NodeKind::dict);
  a.set("empty", TensorDict());
  const DiffReport report = diff(a, node_of(NodeKind::dict));
  EXPECT_THAT(report.removed, ElementsAre("empty"));
}

TEST(Diff, ComparesStridedViewsByTheirValues) {
  const Tensor plain = counting({2, 3});
  const Tensor transposed(DType::float32, {3, 2}, {1, 3}, plain.buffer(), 0);
  TensorDict a = node_of(NodeKind::dict);
  a.set("w", transposed);
  TensorDict b = node_of(NodeKind::dict);
  b.set("w", transposed.contiguous());
  EXPECT_TRUE(diff(a, b).same());
  EXPECT_FALSE(diff(a,
                    [&] {
                      TensorDict tree = node_of(NodeKind::dict);
                      tree.set("w", counting({3, 2}));
                      return tree;
                    }())
                   .same());
}

TEST(Diff, StatisticsAreIndependentOfTheNumberOfThreads) {
  std::vector<float> a(3'000'001);
  std::vector<float> b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 1013);
    b[i] = a[i] + (i % 7 == 0 ? 0.5F : 0.0F);
  }
  b[2'999'999] += 8;
  const DiffReport one = diff_of(a, b, {.num_threads = 1});
  const DiffReport many = diff_of(a, b, {.num_threads = 4});
  EXPECT_EQ(one.changed[0].max_abs, 8);
  EXPECT_EQ(one.changed[0].num_different, (a.size() + 6) / 7 + 1);
  EXPECT_EQ(one.changed[0].rel_l2, many.changed[0].rel_l2);
  EXPECT_EQ(one.changed[0].cosine, many.changed[0].cosine);
}

TEST(Diff, StopsWhenTheMonitorCancels) {
  class Stopper : public Monitor {
   public:
    void report(std::uint64_t, std::uint64_t, std::string_view) override {}
    bool stop() override { return true; }
  } stopper;
  EXPECT_THROW(diff_of<float>({1}, {1}, {.monitor = &stopper}), Error);
}

}  // namespace
}  // namespace tenfold

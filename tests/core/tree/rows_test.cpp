// TensorDict::select_row and narrow_rows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "support/message_of.hpp"
#include "support/values.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor counting(const Shape& shape, std::int64_t first = 0) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(numel_of(shape)));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(std::span<const std::int64_t>(values), shape);
}

TensorDict node_of(NodeKind kind, Shape batch_size = {}) {
  NodeInfo info;
  info.kind = kind;
  info.batch_size = std::move(batch_size);
  return TensorDict(info);
}

TensorDict batch(Shape batch_size) { return node_of(NodeKind::tensordict, std::move(batch_size)); }

Value list(std::vector<Value> items) { return Value(Value::List{std::move(items)}); }

std::string refused(const auto& call) {
  return test::message_of(call, ErrorCode::invalid_argument);
}

TEST(Rows, AreViewsOfEveryTensorIncludingNestedNodes) {
  TensorDict inner = batch({3, 2});
  inner.set("y", counting({3, 2}, 10));
  TensorDict td = batch({3});
  td.info().names = {"time"};
  const Tensor x = counting({3, 4});
  td.set("x", x);
  td.set("inner", inner);

  const TensorDict row = td.select_row(1);
  EXPECT_TRUE(row.batch_size().empty());
  EXPECT_TRUE(row.info().names.empty());
  EXPECT_EQ(row.at("x").raw_data(), x.raw_data() + 32);
  EXPECT_THAT(row["inner"].batch_size(), ElementsAre(2));
  EXPECT_THAT(test::values<std::int64_t>(row.at("inner", "y")), ElementsAre(12, 13));

  const TensorDict part = td.narrow_rows(1, 3);
  EXPECT_THAT(part.batch_size(), ElementsAre(2));
  EXPECT_EQ(part.info().names, td.info().names);
  EXPECT_THAT(part["inner"].batch_size(), ElementsAre(2, 2));
  EXPECT_THAT(test::values<std::int64_t>(part.at("inner", "y")), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(part.keys(), ElementsAre("x", "inner"));
  EXPECT_TRUE(td.narrow_rows(2, 2).at("x").shape() == Shape({0, 4}));
}

TEST(Rows, IndicesOutOfRangeAndNodesWithoutABatchAreRefused) {
  TensorDict td = batch({3});
  td.set("x", counting({3}));
  EXPECT_THAT(refused([&] { td.select_row(3); }), HasSubstr("row 3 is out of range"));
  EXPECT_THAT(refused([&] { td.select_row(-1); }), HasSubstr("row -1 is out of range"));
  EXPECT_THAT(refused([&] { td.select_row(INT64_MAX); }), HasSubstr("out of range"));
  EXPECT_THAT(refused([&] { td.narrow_rows(2, 1); }), HasSubstr("rows [2, 1)"));
  EXPECT_THAT(refused([&] { td.narrow_rows(0, 4); }), HasSubstr("within [0, 3)"));
  EXPECT_THAT(refused([] { batch({}).select_row(0); }), HasSubstr("batch_size []"));
  EXPECT_THAT(refused([] { node_of(NodeKind::dict).select_row(0); }), HasSubstr("no rows"));
}

TEST(Rows, UnbatchedLeavesAndPlainValuesBelongToEveryRow) {
  TensorDict td = batch({3});
  Leaf table(counting({7}));
  table.mark_unbatched();
  td.set("table", TensorDict::Item(table));
  td.set("note", Value("hello"));
  const TensorDict row = td.select_row(2);
  EXPECT_THAT(row.at("table").shape(), ElementsAre(7));
  EXPECT_TRUE(std::get<Leaf>(row.get("table")).is_unbatched());
  EXPECT_EQ(row.value("note"), Value("hello"));
}

TEST(Rows, NodesWithoutTheBatchAreIndexedIfTheirTensorsFit) {
  TensorDict fits = batch({});
  fits.set("y", counting({3, 2}));
  TensorDict td = batch({3});
  td.set("fits", fits);
  TensorDict plain = node_of(NodeKind::dict);
  plain.set("z", counting({3}));
  td.set("plain", plain);
  EXPECT_THAT(test::values<std::int64_t>(td.select_row(2).at("fits", "y")), ElementsAre(4, 5));
  EXPECT_EQ(td.select_row(2).at("plain", "z").data<std::int64_t>()[0], 2);

  fits.set("bad", counting({2}));
  EXPECT_EQ(
      refused([&] { td.select_row(0); }),
      "entry \"fits.bad\": cannot take rows: expected a first dimension of 3, found shape [2]");
}

TEST(Rows, NodesOfAnotherBatchAreRefused) {
  TensorDict td = batch({3});
  td.set("inner", batch({2}));
  EXPECT_EQ(refused([&] { td.select_row(0); }),
            "entry \"inner\": cannot take rows: expected 3 rows, found 2");
}

TEST(Rows, ALazyStackAlongTheFirstDimensionGivesItsElements) {
  TensorDict stack = node_of(NodeKind::lazy_stack);
  for (int i = 0; i < 3; ++i) {
    TensorDict element;
    element.set("x", counting({i + 1}));  // different lengths, the purpose of lazy stacks
    stack.set(std::to_string(i), element);
  }
  EXPECT_TRUE(stack.select_row(2).same_node(stack["2"]));
  const TensorDict part = stack.narrow_rows(1, 3);
  EXPECT_EQ(part.kind(), NodeKind::lazy_stack);
  EXPECT_THAT(part.keys(), ElementsAre("0", "1"));
  EXPECT_TRUE(part["0"].same_node(stack["1"]));

  TensorDict td = batch({3});
  td.set("stack", stack);
  EXPECT_TRUE(td.select_row(1)["stack"].same_node(stack["1"]));
}

TEST(Rows, ALazyStackAlongALaterDimensionGivesStacksOfRows) {
  TensorDict stack = node_of(NodeKind::lazy_stack);
  stack.info().stack_dim = 1;
  for (int i = 0; i < 2; ++i) {
    TensorDict element = batch({3});
    element.set("x", counting({3}, 10 * i));
    stack.set(std::to_string(i), element);
  }
  const TensorDict row = stack.select_row(2);
  EXPECT_EQ(row.kind(), NodeKind::lazy_stack);
  EXPECT_EQ(row.info().stack_dim, 0);
  EXPECT_EQ(row.at("1", "x").data<std::int64_t>()[0], 12);
  EXPECT_EQ(stack.narrow_rows(0, 2).info().stack_dim, 1);
  EXPECT_THROW(stack.select_row(3), Error);
}

TEST(Rows, AStackOfValuesGivesItsItems) {
  TensorDict td = batch({3});
  td.set("s", TensorDict::Item(NonTensor{list({"a", "b", "c"}), true, 0}));
  EXPECT_EQ(std::get<NonTensor>(td.select_row(1).get("s")), (NonTensor{Value("b"), false, 0}));
  EXPECT_EQ(std::get<NonTensor>(td.narrow_rows(1, 3).get("s")),
            (NonTensor{list({"b", "c"}), true, 0}));
  td.set("s", TensorDict::Item(NonTensor{list({"a"}), true, 0}));
  EXPECT_THAT(refused([&] { td.select_row(0); }), HasSubstr("expected 3 items, found 1"));
}

TEST(Rows, AStackAlongALaterDimensionIsInTheOrderOfTheBatch) {
  TensorDict td = batch({2, 3});
  const Value first = list({"a", "b", "c"});
  const Value second = list({"d", "e", "f"});
  td.set("s", TensorDict::Item(NonTensor{list({first, second}), true, 1}));
  EXPECT_EQ(std::get<NonTensor>(td.select_row(1).get("s")), (NonTensor{second, true, 0}));
  EXPECT_EQ(std::get<NonTensor>(td.narrow_rows(1, 2).get("s")),
            (NonTensor{list({second}), true, 1}));
}

TEST(Rows, AStackOfStacksGivesStacks) {
  TensorDict td = batch({2, 2});
  td.set("s", TensorDict::Item(NonTensor{list({list({1, 2}), list({3, 4})}), true, 0}));
  const TensorDict row = td.select_row(1);
  EXPECT_EQ(std::get<NonTensor>(row.get("s")), (NonTensor{list({3, 4}), true, 0}));
  EXPECT_EQ(std::get<NonTensor>(row.select_row(0).get("s")), (NonTensor{Value(3), false, 0}));
}

TEST(Rows, StacksOfValuesKeepTheirDevice) {
  TensorDict td = batch({2, 2});
  const Value items = list({list({1, 2}), list({3, 4})});
  td.set("s", TensorDict::Item(NonTensor{items, true, 0, "cpu"}));
  const TensorDict row = td.select_row(1);
  EXPECT_EQ(std::get<NonTensor>(row.get("s")), (NonTensor{list({3, 4}), true, 0, "cpu"}));
  EXPECT_EQ(std::get<NonTensor>(row.select_row(0).get("s")), (NonTensor{Value(3), false, 0}));
  EXPECT_EQ(std::get<NonTensor>(td.narrow_rows(0, 2).get("s")), (NonTensor{items, true, 0, "cpu"}));
}

TEST(Rows, ANestedTensorGivesItsComponents) {
  const std::vector<std::int64_t> sizes = {2, 3, 0, 1, 1, 4};
  TensorDict td = batch({3});
  td.set("n", TensorDict::Item(Leaf::nested(
                  counting({10}), Tensor::from(std::span<const std::int64_t>(sizes), {3, 2}))));
  EXPECT_THAT(td.select_row(0).at("n").shape(), ElementsAre(2, 3));
  EXPECT_THAT(td.select_row(1).at("n").shape(), ElementsAre(0, 1));
  EXPECT_THAT(test::values<std::int64_t>(td.select_row(2).at("n")), ElementsAre(6, 7, 8, 9));
  const Leaf part = std::get<Leaf>(td.narrow_rows(1, 3).get("n"));
  EXPECT_TRUE(part.is_nested());
  EXPECT_THAT(test::values<std::int64_t>(part.tensor()), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(test::values<std::int64_t>(part.sizes()), ElementsAre(0, 1, 1, 4));
}

TEST(Rows, ASparseTensorIsRefused) {
  TensorDict sparse = node_of(NodeKind::sparse);
  sparse.info().layout = "sparse_coo";
  sparse.info().dense_shape = {2, 3};
  sparse.set("indices", counting({2, 2}));
  sparse.set("values", counting({2}));
  TensorDict td = batch({2});
  td.set("s", sparse);
  const auto message = [](const auto& call) {
    return test::message_of(call, ErrorCode::unsupported);
  };
  EXPECT_THAT(message([&] { td.select_row(0); }),
              HasSubstr("entry \"s\": cannot take rows: expected a dense tensor, a JSON value or a "
                        "node that contains them, found a node of kind \"sparse\""));
  message([&] { td.narrow_rows(0, 1); });
}

TEST(Rows, ANodeThatContainsItselfIsAnError) {
  TensorDict td = batch({2});
  td.set("self", td);
  EXPECT_THROW(td.select_row(0), Error);
  td.set("self", Value());  // so that the node can be freed
}

}  // namespace
}  // namespace tenfold

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/mapped_dict.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/state_mapper.hpp>

#include "dataset/table_of.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::message_of;
using testing::HasSubstr;

// Temporaries return copies, so that a range-based for over a member of the result does not dangle.
static_assert(!std::is_reference_v<decltype(Schema().columns())>);
static_assert(!std::is_reference_v<decltype(std::declval<Dataset>().schema())>);
static_assert(!std::is_reference_v<decltype(std::declval<MappedDict>().schema())>);
static_assert(!std::is_reference_v<decltype(std::declval<StateMapper>().config())>);
static_assert(!std::is_reference_v<decltype(Keys().paths())>);

TEST(Schema, MakesAColumnForEachTensorByDefault) {
  TensorDict tree = test::numbers(4);
  NodeInfo info;
  info.batch_size = {4};
  TensorDict inner(info);
  inner.set("gain", Tensor::zeros(DType::float64, {4}));
  tree.set("camera", inner);
  const Schema schema = Schema::of(tree);
  ASSERT_EQ(schema.size(), 4U);
  EXPECT_EQ(schema.columns()[0].shape, Shape{3});
  EXPECT_EQ(schema.columns()[3].path, (KeyPath{"camera", "gain"}));
  EXPECT_EQ(schema.find("camera.gain"), &schema.columns()[3]);
  EXPECT_EQ(schema.find("camera"), nullptr);
}

TEST(Schema, RoundTripsThroughItsDocument) {
  const std::string text =
      R"({"columns": {"x": {"dtype": "float32", "shape": [3]}, )"
      R"("name": {"dtype": "string", "nullable": true}, )"
      R"("camera": {"columns": {"gain": {"dtype": "float64", "unit": "dB"}}}, )"
      R"("t": {"dtype": "int32", "ragged": true, "end_leaf": "t.end-1"}}})";
  const Schema schema = Schema::from_json(text, "test");
  EXPECT_EQ(schema.to_json(), text);
  EXPECT_EQ(schema.find("t")->end_leaf, KeyPath{"t.end-1"});
  EXPECT_EQ(schema.find("name")->valid_leaf, KeyPath{"name.valid"});
  EXPECT_EQ(schema.find("camera.gain")->leaf, KeyPath{"camera.gain"});
}

TEST(Schema, RefusesInvalidDocuments) {
  for (const char* text :
       {"[]", "{}", R"({"columns": []})", R"({"columns": {"x": 1}})", R"({"columns": {"x": {}}})",
        R"({"columns": {"x": {"dtype": "float31"}}})", R"({"columns": {"x": {"dtype": 3}}})",
        R"({"columns": {"x": {"dtype": "int8", "shape": [-1]}}})",
        R"({"columns": {"x": {"dtype": "int8", "shape": 3}}})",
        R"({"columns": {"x": {"dtype": "string", "shape": [3]}}})",
        R"({"columns": {"x": {"dtype": "int8", "ragged": 1}}})",
        R"({"columns": {"x": {"dtype": "int8", "leaf": []}}})",
        R"({"columns": {"x": {"dtype": "int8", "unit": null}}})"}) {
    message_of([&] { Schema::from_json(text, "s.json"); }, ErrorCode::corrupt);
  }
  EXPECT_THAT(
      message_of([] { Schema::from_json(R"({"columns": {"x": {"dtype": "float31"}}})", "s"); },
                 ErrorCode::corrupt),
      HasSubstr(R"(s: schema: column "x": member "dtype": expected a dtype of torch)"));
  EXPECT_THAT(message_of([] { Schema::from_json("{}", "s"); }, ErrorCode::corrupt),
              HasSubstr(R"(s: schema: member "columns": is missing)"));
  EXPECT_THAT(message_of([] { Schema::from_json(R"({"columns": {"r": {"columns": 5}}})", "s"); },
                         ErrorCode::corrupt),
              HasSubstr(R"(s: schema: column "r": member "columns": expected an object, found 5)"));
  std::string deep = R"({"dtype": "int8"})";
  for (int level = 0; level < 66; ++level) deep = R"({"columns": {"r": )" + deep + "}}";
  EXPECT_THAT(message_of([&] { Schema::from_json(deep, "s"); }, ErrorCode::corrupt),
              HasSubstr("expected at most 64 nested records, found deeper nesting"));
}

TEST(Schema, RefusesEqualPathsAndAColumnThatIsAlsoARecord) {
  const auto column = [](KeyPath path) {
    Column made;
    made.path = std::move(path);
    return made;
  };
  EXPECT_THROW(Schema({column({"a", "b"}), column({"a"})}), Error);
  EXPECT_THROW(Schema({column({"a"}), column({"a", "b", "c"})}), Error);
  EXPECT_THROW(Schema({column({"a", "b"}), column({"a", "b"})}), Error);
}

TEST(Schema, RefusesAColumnWithoutAPath) {
  EXPECT_THAT(message_of([] { Schema({Column{}}); }, ErrorCode::invalid_argument),
              HasSubstr("schema: column: expected a path, found an empty one"));
}

TEST(Schema, StoresStringsAndBytesAsUint8) {
  const Schema schema({{.path = {"s"}, .kind = ColumnKind::string},
                       {.path = {"b"}, .kind = ColumnKind::bytes, .dtype = DType::int64}});
  EXPECT_EQ(schema.find("s")->dtype, DType::uint8);
  EXPECT_EQ(schema.find("b")->dtype, DType::uint8);
  EXPECT_THAT(
      message_of([] { Schema({{.path = {"s"}, .kind = ColumnKind::string, .shape = {3}}}); },
                 ErrorCode::invalid_argument),
      HasSubstr("column \"s\": expected no shape for strings and bytes, found [3]"));
}

TEST(Schema, RefusesColumnsThatCouldNotBeRead) {
  Column column;
  column.path = KeyPath(65, "r");
  const Schema deepest({column});
  EXPECT_EQ(Schema::from_json(deepest.to_json(), "s").columns().size(), 1U);
  column.path.emplace_back("r");
  EXPECT_THAT(message_of([&] { Schema({column}); }, ErrorCode::invalid_argument),
              HasSubstr("expected at most 64 nested records, found 65"));
  TensorDict tree = test::numbers(4);
  for (int i = 0; i < 65; ++i) {
    EXPECT_EQ(Schema::of(tree).columns().size(), 3U);
    TensorDict outer(tree.info());
    outer.set("r", tree);
    tree = outer;
  }
  EXPECT_THAT(message_of([&] { Schema::of(tree); }, ErrorCode::invalid_argument),
              HasSubstr("expected at most 64 nested records, found 65"));
}

TEST(Schema, ADottedNameIsTheColumnOfThatKeyIfThereIsOne) {
  Column nested;
  nested.path = {"a", "b"};
  Column flat;
  flat.path = {"a.b"};
  const Schema schema({nested, flat});
  EXPECT_EQ(schema.find("a.b"), &schema.columns()[1]);
  EXPECT_EQ(schema.find(KeyPath{"a", "b"}), &schema.columns()[0]);
}

TEST(Schema, RefusesTreesThatAreNotTables) {
  EXPECT_THAT(message_of([] { Schema::of(TensorDict()); }, ErrorCode::invalid_argument),
              HasSubstr("expected [N], found []"));
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict unequal(dict);
  unequal.set("a", Tensor::zeros(DType::int8, {3}));
  unequal.set("b", Tensor::zeros(DType::int8, {4}));
  EXPECT_THAT(message_of([&] { Schema::of(unequal); }, ErrorCode::invalid_argument),
              HasSubstr("expected 3, found 4"));
  TensorDict scalar(dict);
  scalar.set("a", Tensor::zeros(DType::int8, {}));
  EXPECT_THAT(message_of([&] { Schema::of(scalar); }, ErrorCode::invalid_argument),
              HasSubstr("found a tensor of shape []"));
  EXPECT_THROW(Schema::of(TensorDict(dict)), Error);
}

TEST(Schema, NamesTheFileOfANestedTensor) {
  const test::TemporaryFolder folder;
  TensorDict inner = test::numbers(2);
  const Tensor sizes = Tensor::from<std::int64_t>({1, 2}, {2, 1});
  inner.set("n", TensorDict::Item(Leaf::nested(Tensor::zeros(DType::float32, {3}), sizes)));
  TensorDict tree = test::numbers(2);
  tree.set("inner", inner);
  const std::string message =
      "entry \"inner.n\": a nested tensor cannot be a column: expected a dense tensor, found a "
      "nested";
  EXPECT_THAT(message_of([&] { Schema::of(tree); }, ErrorCode::invalid_argument),
              HasSubstr("data set: " + message));
  save(tree, folder / "td");
  EXPECT_THAT(message_of([&] { Schema::of(open(folder / "td")); }, ErrorCode::invalid_argument),
              HasSubstr((folder / "td").string() + ": " + message));
}

TEST(Schema, RefusesSparseAndJaggedTensors) {
  const auto message_for = [](const char* layout) {
    NodeInfo info;
    info.kind = NodeKind::sparse;
    info.layout = layout;
    info.dense_shape = {2, 2};
    TensorDict sparse(info);
    // As many elements as rows.
    sparse.set("indices", Tensor::zeros(DType::int64, {2, 2}));
    sparse.set("values", Tensor::zeros(DType::float32, {2}));
    TensorDict tree = test::numbers(2);
    tree.set("s", sparse);
    return message_of([&] { Schema::of(tree); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(
      message_for("sparse_coo"),
      HasSubstr("data set: entry \"s\": a sparse or jagged tensor cannot be a column: expected "
                "a dense tensor, found a tensor of layout \"sparse_coo\"; to_dense() makes"));
  EXPECT_THAT(message_for("jagged"),
              HasSubstr("found a tensor of layout \"jagged\"; ingest it as a ragged column"));
}

TEST(Schema, RefusesLeavesThatContradictTheDocument) {
  const auto spoil = [](const char* key, TensorDict::Item item) {
    TensorDict tree = test::ragged();
    tree.set(key, std::move(item));
    return message_of([&] { Schema::of(tree); }, ErrorCode::corrupt);
  };
  EXPECT_THAT(spoil("tokens.end", Leaf(Tensor::zeros(DType::int32, {4}))),
              HasSubstr("dtype: expected int64, found int32"));
  EXPECT_THAT(spoil("tokens.end", Leaf(test::ints({1, 2, 3}))), HasSubstr("rows: expected 4"));
  EXPECT_THAT(spoil("tokens", test::unbatched(Tensor::zeros(DType::int32, {4, 2}))),
              HasSubstr("shape of a row: expected [], found [2]"));
  EXPECT_THAT(spoil("age.valid", NonTensor{Value(1)}), HasSubstr("another kind of entry"));
  TensorDict missing = test::ragged();
  missing.info().schema = from_json(R"({"columns": {"gone": {"dtype": "int8"}}})", "test");
  EXPECT_THAT(
      message_of([&] { Schema::of(missing); }, ErrorCode::corrupt),
      HasSubstr(R"(column "gone": entry "gone": the schema names it, but it does not exist)"));
}

TEST(Schema, RefusesNegativeLengths) {
  EXPECT_EQ(
      message_of([] { Schema({{.path = {"x"}, .shape = {2, -1}}}); }, ErrorCode::invalid_argument),
      R"(schema: column "x": shape: expected lengths of 0 or more, found [2, -1])");
}

}  // namespace
}  // namespace tenfold

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>
#include <tenfold/sparse_matrix.hpp>
#include <tenfold/state_mapper.hpp>

#include "core/tensor/cast.hpp"
#include "dict/index.hpp"
#include "mapper/saved_mapper.hpp"
#include "mapper/saved_sparse.hpp"
#include "mapper/state_keys.hpp"
#include "mapper/state_paths.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::message_of;
using testing::HasSubstr;

const Path kData = Path(TENFOLD_TEST_DATA) / "state_mappers";

std::string text_of(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Converts lists to tuples, because a state may be a tuple, and JSON has no tuples.
Value state_from(const Value& json) {
  const auto* list = json.get_if<Value::List>();
  if (list == nullptr) return json;
  Value::Tuple tuple;
  for (const Value& item : list->items) tuple.items.push_back(state_from(item));
  return tuple;
}

std::vector<double> doubles_of(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous();
  std::vector<double> values(static_cast<std::size_t>(whole.numel()));
  cast_elements(whole.dtype(), whole.raw_data(), DType::float64,
                reinterpret_cast<std::byte*>(values.data()), values.size());
  return values;
}

std::vector<double> doubles_of(const Value& json) {
  std::vector<double> values;
  for (const Value& item : json.get_if<Value::List>()->items) {
    const auto* number = item.get_if<double>();
    values.push_back(number != nullptr ? *number
                                       : static_cast<double>(*item.get_if<std::int64_t>()));
  }
  return values;
}

/// tests/data/state_mappers/generate.py recorded the results of Python's mappers.
TEST(StateMapper, ReturnsTheSameRowsAsPython) {
  const Value expected = from_json(text_of(kData / "expected.json"), "expected.json");
  std::size_t num_rows = 0;
  for (const auto& [name, answers] : expected.get_if<Value::Object>()->members) {
    const StateMapper mapper = StateMapper::open(kData / name);
    for (const Value& answer : answers.get_if<Value::List>()->items) {
      const auto* members = answer.get_if<Value::Object>();
      const Value state = state_from(*members->find("state"));
      SCOPED_TRACE(name + ": " + to_json(state));
      const Value* row = members->find("row");
      if (row->is_null()) {
        EXPECT_THAT(message_of([&] { mapper.at(state); }, ErrorCode::key_not_found),
                    HasSubstr(to_json(state)));
        continue;
      }
      const Tensor found = mapper.at(state);
      EXPECT_EQ(doubles_of(found), doubles_of(*row));
      EXPECT_EQ(tenfold::to_string(found.dtype()), *members->find("dtype")->get_if<std::string>());
      ++num_rows;
    }
  }
  EXPECT_GT(num_rows, 20U);
}

TEST(StateMapper, ReturnsABatchAsItsRows) {
  const StateMapper mapper = StateMapper::open(kData / "tuples.tdz");
  ASSERT_EQ(mapper.kind(), MapperKind::sparse);
  const std::vector<Value> states = {Value::Tuple{{3, 4}}, Value::Tuple{{9, 9}}, "a",
                                     Value::Tuple{{1, 2}}, Value::Tuple{{3.0, 4.0}}};
  const Tensor rows = mapper.rows(states);
  ASSERT_EQ(rows.shape(), (Shape{5, 6}));
  for (std::size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(doubles_of(rows.select(static_cast<std::int64_t>(i))),
              doubles_of(mapper.at(states[i])));
  }
  EXPECT_EQ(mapper.rows({}).shape(), (Shape{0, 6}));
}

TEST(StateMapper, PromotesTheValuesOfAHierarchy) {
  const StateMapper mapper = StateMapper::open(kData / "levels.tdz");
  ASSERT_EQ(mapper.kind(), MapperKind::hierarchical);
  const std::vector<Value> states = {"a/low/x", Value::Tuple{{"b", "y"}}, Value::Tuple{{"b", 1}},
                                     "rest/inner/k"};
  const Tensor rows = mapper.rows(states);
  EXPECT_EQ(rows.dtype(), DType::float64);
  EXPECT_EQ(doubles_of(rows), (std::vector<double>{3, 4, 9, 10, 7.5, 8, 5, 6}));
}

TEST(StateMapper, ReturnsOtherJsonAsValues) {
  const StateMapper mapper = StateMapper::open(kData / "levels.tdz");
  EXPECT_EQ(mapper.value("word"), Value("text"));
  EXPECT_EQ(to_json(mapper.value("mixed")), "[1, null]");
  EXPECT_EQ(to_json(mapper.value("b/1")), "[7.5, 8.0]");
  EXPECT_THAT(message_of([&] { mapper.at("word"); }, ErrorCode::unsupported), HasSubstr("value()"));
  EXPECT_EQ(StateMapper::open(kData / "plain.json").value("word"), Value("text"));
}

TEST(StateMapper, ReturnsTheFactoryAndParametersOfAModule) {
  const StateMapper mapper = StateMapper::open(kData / "module.safetensors");
  EXPECT_EQ(mapper.kind(), MapperKind::module);
  EXPECT_EQ(mapper.factory(), "golden.linear");
  EXPECT_EQ(to_json(mapper.config()), R"({"size": 3})");
  EXPECT_EQ(mapper.parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(doubles_of(mapper.parameters().at("bias")), (std::vector<double>{0.5, -0.5}));
  EXPECT_THAT(message_of([&] { mapper.at(3); }, ErrorCode::unsupported),
              HasSubstr("load the mapper's parameters() with load_into()"));

  const StateMapper levels = StateMapper::open(kData / "levels.tdz");
  EXPECT_EQ(levels.mapper_paths(), (std::vector<std::string>{"rest/inner", "rest/net"}));
  EXPECT_EQ(levels.mapper("rest/net").factory(), "golden.linear");
  EXPECT_THAT(
      message_of([&] { levels.at(Value::Tuple{{"rest", "net", 1.5}}); }, ErrorCode::unsupported),
      HasSubstr("a module"));
  message_of([&] { levels.mapper("rest"); }, ErrorCode::key_not_found);
  message_of([&] { levels.factory(); }, ErrorCode::unsupported);
}

TEST(StateMapper, OpensASafetensorsFileWhoseHeaderLengthLooksLikeJson) {
  const test::TemporaryFolder folder;
  const std::string saved = text_of(kData / "module.safetensors");
  constexpr std::size_t kLength = sizeof(std::uint64_t);
  std::uint64_t size = 0;
  std::memcpy(&size, saved.data(), kLength);
  constexpr std::uint64_t kPadded = 0x7B20;  // its bytes begin with " {"
  ASSERT_LT(size, kPadded);
  std::string padded(kLength, '\0');
  std::memcpy(padded.data(), &kPadded, kLength);
  padded += saved.substr(kLength, size) + std::string(kPadded - size, ' ');
  padded += saved.substr(kLength + size);
  std::ofstream(folder / "m.safetensors", std::ios::binary) << padded;
  EXPECT_EQ(StateMapper::open(folder / "m.safetensors").factory(), "golden.linear");
}

TEST(StateMapper, NamesAnUnknownStateAndTheNearestLevel) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "x.json") << R"({"a": {"b": 1}})";
  const StateMapper mapper = StateMapper::open(folder.path() / "x.json");
  EXPECT_THAT(message_of([&] { mapper.at("a/c/d"); }, ErrorCode::key_not_found),
              HasSubstr(R"(no state "a/c/d")"));
  EXPECT_THAT(message_of([&] { mapper.at("a/b/d"); }, ErrorCode::key_not_found),
              HasSubstr(R"(nearest level that exists is "a")"));
  EXPECT_THAT(message_of([&] { mapper.at("x"); }, ErrorCode::key_not_found), HasSubstr("the root"));
  for (const char* path : {"", "/", "a//b", "a/", "/a"}) {
    message_of([&] { mapper.at(path); }, ErrorCode::invalid_argument);
  }
  message_of([&] { mapper.at(Value::Tuple{}); }, ErrorCode::invalid_argument);
  message_of([&] { mapper.at(1.5); }, ErrorCode::invalid_argument);
}

TEST(StateMapper, SupportsAPathOfAMillionComponents) {
  const StateMapper mapper = StateMapper::open(kData / "levels.tdz");
  std::string path = "a";
  for (int i = 0; i < 1'000'000; ++i) path += "/b";
  EXPECT_EQ(doubles_of(mapper.at(path)), (std::vector<double>{0, 0}));
}

TEST(StateMapper, RefusesJsonThatIsNotAHierarchy) {
  const test::TemporaryFolder folder;
  const std::string head = R"({"%state_mapper": {"version": 1, "default_key": "default"}, )";
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += R"({"a": )";
  for (const std::string& text : {
           std::string(R"({"a": )"),
           std::string(R"({"a": 1, "a": 2})"),
           deep,
           std::string(R"({"a/b": 1})"),
           std::string(R"({"": 1})"),
           std::string(R"({"x": {"default": {}}})"),
           std::string(R"({"%state_mapper": 3})"),
           std::string(R"({"%state_mapper": {"version": 1}})"),
           head + R"("%x": 1})",
           head + R"("x": {"%tensor": "int9", "shape": [], "values": 1}})",
           head + R"("x": {"%tensor": "int8", "shape": 3, "values": 1}})",
           head + R"("x": {"%tensor": "int8", "shape": [2], "values": [1]}})",
           head + R"("x": {"%tensor": "int8", "shape": [1], "values": [1.5]}})",
           head + R"("x": {"%tensor": "int8", "shape": [-1], "values": []}})",
           head + R"("x": {"%tensor": "int8", "shape": [1], "values": null}})",
           head + R"("x": {"%tensor": "int8", "shape": [1], "values": [true]}})",
           head + R"("x": {"%tensor": "bool", "shape": [2], "values": [2, 0]}})",
           head +
               R"("x": {"%tensor": "int8", "shape": [4611686018427387904, 2, 0], "values": []}})",
       }) {
    std::ofstream(folder.path() / "x.json") << text;
    SCOPED_TRACE(text.substr(0, 80));
    message_of([&] { StateMapper::open(folder.path() / "x.json"); }, ErrorCode::corrupt);
  }
  std::ofstream(folder.path() / "x.json")
      << R"({"%state_mapper": {"version": 2, "default_key": "d"}})";
  EXPECT_THAT(
      message_of([&] { StateMapper::open(folder.path() / "x.json"); }, ErrorCode::unsupported),
      HasSubstr("newer version of tenfold"));
}

/// Replaces or adds the tensor `part` of the golden tree `name`, opens the tree from memory and
/// reads rows. Returns the error message.
std::string message_without(const std::string& name, const std::string& part,
                            const TensorDict::Item& instead, ErrorCode code) {
  const TensorDict tree = load(kData / name);
  TensorDict tensors;
  tree["tensors"].for_each([&](const std::string& key, const TensorDict::Item& item) {
    tensors.set(key, key == part ? instead : item);
  });
  if (!tensors.contains(part)) tensors.set(part, instead);
  TensorDict made;
  made.set("state_mapper", tree.get("state_mapper"));
  made.set("tensors", tensors);
  return message_of(
      [&] {
        const StateMapper mapper(made);
        mapper.rows(std::vector<Value>{"a/x", Value::Tuple{{3, 4}}, "a"});
      },
      code);
}

TEST(StateMapper, ReportsASymlinkLoopAsAnErrorOfTheFile) {
  const test::TemporaryFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  const std::string said = message_of([&] { StateMapper::open(folder / "a"); }, ErrorCode::io);
  EXPECT_THAT(said, HasSubstr((folder / "a").string()));
}

TEST(StateMapper, RefusesInconsistentParts) {
  const TensorDict::Item number(NonTensor{Value(3)});
  const TensorDict::Item tensor(Leaf(Tensor::zeros(DType::float32, {2})));
  for (const char* part : {"keys", "matrix", "rows", "default"}) {
    SCOPED_TRACE(part);
    message_without("tuples.tdz", part, number, ErrorCode::corrupt);
    message_without("tuples.tdz", part, tensor, ErrorCode::corrupt);
  }
  const std::vector<std::int64_t> far(9, 1'000'000);
  const TensorDict::Item rows = Leaf(Tensor::from(std::span<const std::int64_t>(far)));
  EXPECT_THAT(message_without("tuples.tdz", "rows", rows, ErrorCode::corrupt),
              HasSubstr("found 1000000"));
  for (const char* part : {"paths", "tables", "mappers"}) {
    SCOPED_TRACE(part);
    message_without("levels.tdz", part, number, ErrorCode::corrupt);
    message_without("levels.tdz", part, tensor, ErrorCode::corrupt);
  }
  EXPECT_THAT(message_without("levels.tdz", "paths", tensor, ErrorCode::corrupt),
              HasSubstr("paths: expected a tree, found an entry of another kind"));
  TensorDict none;
  EXPECT_THAT(
      message_of([&] { StateMapper mapper(none); }, ErrorCode::unsupported),
      HasSubstr("no state mapper: expected an entry \"state_mapper\", found an empty tree"));
  TensorDict others = TensorDict::dict({{"w", Tensor::from({1.0F})}, {"b", 3}});
  EXPECT_THAT(message_of([&] { StateMapper mapper(others); }, ErrorCode::unsupported),
              HasSubstr("found \"w\", \"b\""));
  others.set("state_mapper", Value(Value::Object{{{"class", Value("c")},
                                                  {"version", Value(1)},
                                                  {"config", Value(Value::Object{{}, true})}}}));
  EXPECT_THAT(message_of([&] { StateMapper mapper(others); }, ErrorCode::corrupt),
              HasSubstr("member \"config\": expected an object with strings as keys"));
}

TEST(StateMapper, SavesAHierarchyOfAProgramInEveryForm) {
  const test::TemporaryFolder folder;
  TensorDict hall = TensorDict::dict({{"door", Tensor::from({1.0F, 2.5F})}, {"%in", "text"}});
  hall.set("sizes", Value::List{{1, 2.5}});
  TensorDict levels = TensorDict::dict({{"default", 0.5}});
  levels.set("hall", hall);
  Value::Object attic;
  attic.members.emplace_back("default", Value(7));
  levels.set("attic", Value(attic));
  const StateMapper made = StateMapper::hierarchical(levels);
  for (const char* name : {"x.json", "x.tdz", "x", "x.safetensors.index.json"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(made.save(folder / name), folder / name);
    const StateMapper mapper = StateMapper::open(folder / name);
    EXPECT_EQ(mapper.kind(), MapperKind::hierarchical);
    EXPECT_EQ(mapper.at("hall/door").dtype(), DType::float32);
    EXPECT_EQ(doubles_of(mapper.at("hall/door")), (std::vector<double>{1, 2.5}));
    EXPECT_EQ(doubles_of(mapper.at("hall/sizes")), (std::vector<double>{1, 2.5}));
    EXPECT_EQ(mapper.value("hall/%in"), Value("text"));
    EXPECT_EQ(doubles_of(mapper.at("attic/box")), (std::vector<double>{7}));
    EXPECT_EQ(doubles_of(mapper.at("cellar/x")), (std::vector<double>{0.5}));
  }
  EXPECT_EQ(text_of(folder / "x.json"), R"({
    "%state_mapper": {"version": 1, "default_key": "default"},
    "default": 0.5,
    "hall": {
        "door": {"%tensor": "float32", "shape": [2], "values": [1.0, 2.5]},
        "%%in": "text",
        "sizes": [1.0, 2.5]
    },
    "attic": {
        "default": 7
    }
}
)");
  message_of([&] { made.save(folder / "x.json", {.overwrite = false}); }, ErrorCode::io);
  StateMapper::open(folder / "x.json").save(folder / "again.json");
  EXPECT_EQ(text_of(folder / "again.json"), text_of(folder / "x.json"));
}

TEST(StateMapper, TensorsWithoutElementsMayHaveManyRows) {
  const test::TemporaryFolder folder;
  const std::string text = R"({
    "%state_mapper": {"version": 1, "default_key": "default"},
    "x": {"%tensor": "float32", "shape": [1099511627776, 0], "values": []}
}
)";
  std::ofstream(folder.path() / "x.json") << text;
  const StateMapper mapper = StateMapper::open(folder.path() / "x.json");
  EXPECT_EQ(to_json(mapper.value("x")), "[]");
  mapper.save(folder / "again.json");
  EXPECT_EQ(text_of(folder / "again.json"), text);
}

TEST(StateMapper, RefusesATensorOfVeryManyDimensionsAsJson) {
  const StateMapper mapper = StateMapper::hierarchical(
      TensorDict::dict({{"x", Tensor::zeros(DType::float32, Shape(20'000, 1))}}));
  EXPECT_THAT(message_of([&] { mapper.value("x"); }, ErrorCode::unsupported),
              HasSubstr("a tensor has too many dimensions for nested lists: expected at most 512, "
                        "found 20000"));
}

TEST(StateMapper, ValuesOfFewRowsWithoutElementsAreListsOfEmptyLists) {
  const auto json_of = [](Shape shape) {
    const Tensor tensor = Tensor::zeros(DType::float32, std::move(shape));
    const StateMapper mapper = StateMapper::hierarchical(TensorDict::dict({{"x", tensor}}));
    return to_json(mapper.value("x"));
  };
  EXPECT_EQ(json_of({0}), "[]");
  EXPECT_EQ(json_of({2, 0}), "[[], []]");
  EXPECT_EQ(json_of({2, 1, 0, 1 << 20}), "[[[]], [[]]]");
  EXPECT_EQ(json_of({1 << 9, 1 << 8, 0}), "[]");
}

TEST(StateMapper, KeepsIntegersOfAllSizesInJson) {
  const test::TemporaryFolder folder;
  TensorDict levels = TensorDict::dict({{"u", Tensor::from({std::uint64_t{0}, ~std::uint64_t{0}})},
                                        {"i", Tensor::from({INT64_MIN, INT64_MAX})}});
  levels.set("big", Value(~std::uint64_t{0}));
  StateMapper::hierarchical(levels).save(folder / "x.json");
  const StateMapper mapper = StateMapper::open(folder / "x.json");
  EXPECT_EQ(mapper.at("u").at<std::uint64_t>(1), ~std::uint64_t{0});
  EXPECT_EQ(mapper.at("i").at<std::int64_t>(0), INT64_MIN);
  EXPECT_EQ(mapper.value("big").as<std::uint64_t>(), ~std::uint64_t{0});
  for (const char* values :
       {"[-1, 0]", "[-1, 9223372036854775808]", "[18446744073709551616, 0]", "[1e300, 0]"}) {
    std::ofstream(folder / "y.json")
        << R"({"%state_mapper": {"version": 1, "default_key": "d"}, )"
        << R"("x": {"%tensor": "uint64", "shape": [2], "values": )" << values << "}}";
    EXPECT_THAT(message_of([&] { StateMapper::open(folder / "y.json"); }, ErrorCode::corrupt),
                HasSubstr("\"x\""));
  }
}

TEST(StateMapper, RefusesValuesThatAHierarchyCannotStore) {
  const auto refused = [](const TensorDict& levels, ErrorCode code) {
    return message_of([&] { StateMapper::hierarchical(levels); }, code);
  };
  EXPECT_THAT(refused(TensorDict::dict({{"a/b", 1}}), ErrorCode::invalid_argument),
              HasSubstr("without \"/\""));
  EXPECT_THAT(
      refused(TensorDict::dict({{"default", TensorDict::dict()}}), ErrorCode::invalid_argument),
      HasSubstr("the default of a level is a value"));
  NodeInfo list;
  list.kind = NodeKind::list;
  EXPECT_THAT(refused(TensorDict::dict({{"x", TensorDict(list)}}), ErrorCode::unsupported),
              HasSubstr("\"x\": expected a number, a tensor, JSON or a level, found a list"));
  TensorDict deep = TensorDict::dict({{"a", 1}});
  for (int i = 0; i < 512; ++i) deep = TensorDict::dict({{"a", deep}});
  EXPECT_THAT(refused(deep, ErrorCode::invalid_argument), HasSubstr("at most 512 levels"));

  const test::TemporaryFolder folder;
  const auto unsaved = [&](const Tensor& tensor) {
    const StateMapper mapper = StateMapper::hierarchical(TensorDict::dict({{"a", tensor}}));
    return message_of([&] { mapper.save(folder / "x.json"); }, ErrorCode::unsupported);
  };
  EXPECT_THAT(unsaved(Tensor::zeros(DType::complex64, {2})), HasSubstr("JSON has no complex64"));
  EXPECT_THAT(unsaved(Tensor::zeros(DType::bool_, {65'537})), HasSubstr("at most 65,536 numbers"));
  message_of([&] { StateMapper::open(kData / "levels.tdz").save(folder / "x.json"); },
             ErrorCode::unsupported);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.json"));
}

TEST(StateMapper, SavesASparseMapperOfAProgram) {
  const test::TemporaryFolder folder;
  const StateMapper golden = StateMapper::open(kData / "tuples.tdz");
  const SparseMatrix matrix(golden.parameters()["matrix"]);
  const Tensor fallback = golden.at(Value::Tuple{{99, 99}});
  const std::vector<std::vector<Value>> kinds = {
      {3, 1, 2}, {"a", "b", "c"}, {Value::Tuple{{1, 2.0}}, "a", 3}};
  for (const std::vector<Value>& states : kinds) {
    StateMapper::sparse(states, matrix, fallback).save(folder / "x");
    const StateMapper mapper = StateMapper::open(folder / "x");
    EXPECT_EQ(mapper.kind(), MapperKind::sparse);
    const std::vector<std::int64_t> first = {0, 1, 2};
    EXPECT_EQ(doubles_of(mapper.rows(states)), doubles_of(matrix.rows(first).values));
    EXPECT_EQ(doubles_of(mapper.at("none of them")), doubles_of(fallback));
  }
  const std::vector<Value> twice = {1, 1.0};
  EXPECT_THAT(message_of([&] { StateMapper::sparse(twice, matrix); }, ErrorCode::invalid_argument),
              HasSubstr("twice"));
  std::vector<Value> many;
  for (std::int64_t i = 0; i <= matrix.num_rows(); ++i) many.emplace_back(i);
  EXPECT_THAT(message_of([&] { StateMapper::sparse(many, matrix); }, ErrorCode::invalid_argument),
              HasSubstr("keys: expected at most the " + std::to_string(matrix.num_rows()) +
                        " rows of the matrix"));
  message_of([&] { StateMapper::sparse(kinds[0], matrix, Tensor::zeros(DType::bool_, {1})); },
             ErrorCode::invalid_argument);
}

TEST(StateMapper, MapsStatesToAnyRowsOfASparseMatrix) {
  const test::TemporaryFolder folder;
  const SparseMatrix matrix(StateMapper::open(kData / "tuples.tdz").parameters()["matrix"]);
  const std::vector<Value> states = {"a", "b", "c"};
  const std::vector<std::int64_t> numbers = {2, 0, 2};
  const auto made = made_sparse(make_state_keys(states), matrix, std::nullopt,
                                Tensor::from(std::span<const std::int64_t>(numbers)));
  made->save(folder / "x", {});
  const StateMapper saved = StateMapper::open(folder / "x");
  EXPECT_EQ(doubles_of(made->rows(states)), doubles_of(matrix.rows(numbers).values));
  EXPECT_EQ(doubles_of(saved.rows(states)), doubles_of(matrix.rows(numbers).values));
}

TEST(StateMapper, ConvertsNumbersToAFallbackRow) {
  const auto matrix = [&](DType dtype) {
    SparseBuilder builder(1, 3, dtype);
    return builder.finish();
  };
  const SparseMatrix floats = matrix(DType::float16);
  const Tensor filled = fallback_row(Tensor::scalar<std::int64_t>(7), floats);
  EXPECT_EQ(filled.dtype(), DType::float16);
  EXPECT_EQ(doubles_of(filled), (std::vector<double>{7, 7, 7}));
  const Tensor row = fallback_row(Tensor::from<double>({1, 2, 65519}), floats);
  EXPECT_EQ(doubles_of(row), (std::vector<double>{1, 2, 65504}));
  const auto refused = [&](const Tensor& numbers, DType dtype) {
    return message_of([&] { fallback_row(numbers, matrix(dtype)); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(refused(Tensor::from<double>({1, 65520, 2}), DType::float16),
              HasSubstr("default: expected numbers that float16 holds"));
  EXPECT_THAT(refused(Tensor::scalar(0.0), DType::float8_e8m0fnu), HasSubstr("float8_e8m0fnu"));
  EXPECT_THAT(refused(Tensor::scalar(0.5), DType::int64), HasSubstr("int64"));
}

TEST(StateMapper, RefusesAStateWithoutARowNumber) {
  const SparseMatrix matrix(StateMapper::open(kData / "tuples.tdz").parameters()["matrix"]);
  const std::vector<Value> states = {"a", "b", "c"};
  const std::vector<std::int64_t> numbers = {2};
  auto keys = make_state_keys(states);
  // According to the changed index, two of the three rows are superseded, so only one key exists.
  Tensor index = keys.second.at("key.index");
  const std::size_t header = static_cast<std::size_t>(index.numel()) - kDictSlots;
  index.mutable_data<std::int64_t>()[header + static_cast<std::size_t>(DictWord::dead_a)] = 2;
  const auto made = made_sparse(std::move(keys), matrix, std::nullopt,
                                Tensor::from(std::span<const std::int64_t>(numbers)));
  EXPECT_EQ(doubles_of(made->rows({states.data(), 1})), doubles_of(matrix.rows(numbers).values));
  EXPECT_THAT(message_of([&] { made->rows(states); }, ErrorCode::corrupt),
              HasSubstr("rows: expected a row number for each key, found none for state \"b\""));
}

TEST(StateMapper, ErrorsShowStatesAsTheCallerFormatsThem) {
  const SparseMatrix matrix(StateMapper::open(kData / "tuples.tdz").parameters()["matrix"]);
  const ShownKey shown = [](std::size_t i) { return "number " + std::to_string(i); };
  const std::vector<Value> twice = {1, 2, 1.0};
  EXPECT_THAT(
      message_of([&] { make_state_keys(twice, shown); }, ErrorCode::invalid_argument),
      HasSubstr("keys: state number 2: expected it once, found it twice, at positions 0 and "
                "2"));
  const std::vector<Value> states = {1, 2};
  const auto mapper = made_sparse(make_state_keys(states), matrix, std::nullopt);
  const std::vector<std::int64_t> positions = {0, -1};
  const StateNames names = {[] { return base::Where("file"); }, shown};
  EXPECT_THAT(
      message_of([&] { mapper->rows_at(positions, names); }, ErrorCode::key_not_found),
      HasSubstr("file: no state number 1: expected one of 2 states, or a default row, found "
                "neither"));
}

/// The node "paths" of a hierarchy.
TensorDict paths_node(const std::vector<std::string_view>& paths,
                      const std::vector<std::int64_t>& tables,
                      const std::vector<std::int64_t>& rows,
                      const std::vector<std::uint8_t>& is_level) {
  return StatePaths::make(paths, tables, rows, is_level);
}

/// Replaces the config of the golden tree `name` and opens the tree from memory. Returns the error
/// message.
std::string message_with_config(const std::string& name, std::string_view config) {
  const TensorDict tree = load(kData / name);
  const TensorDict::Item item = tree.get("state_mapper");
  Value head = std::get<NonTensor>(item).value;
  for (auto& [key, member] : std::get<Value::Object>(head.data()).members) {
    if (key == "config") member = from_json(config, "config");
  }
  TensorDict made;
  made.set("state_mapper", std::move(head));
  made.set("tensors", tree["tensors"]);
  return message_of([&] { const StateMapper mapper(made); }, ErrorCode::corrupt);
}

TEST(StateMapper, RefusesAConfigThatDoesNotFitTheTensors) {
  const auto levels = [](std::string_view members) {
    return message_with_config("levels.tdz",
                               R"({"default_key": "default", )" + std::string(members) + "}");
  };
  EXPECT_THAT(levels(R"("tables": ["list", "tensor", "tensor", "set"], "mappers": [])"),
              HasSubstr("config: tables: expected a list of \"number\", \"list\" and \"tensor\", "
                        "found another name"));
  EXPECT_THAT(levels(R"("tables": 4, "mappers": [])"),
              HasSubstr("config: tables: expected a list, found no list"));
  EXPECT_THAT(levels(R"("tables": ["list"], "mappers": [])"),
              HasSubstr("tables: expected 1 tensors, found 4"));
  const std::string tables = R"("tables": ["list", "tensor", "tensor", "tensor"], )";
  EXPECT_THAT(levels(tables + R"("mappers": [3, "rest/net"])"),
              HasSubstr("config: mappers: expected a list of paths, found no path"));
  EXPECT_THAT(levels(tables + R"("mappers": ["rest/net"])"),
              HasSubstr("mappers: expected 1 trees, found 2"));
  EXPECT_THAT(message_with_config("tuples.tdz", R"({"keys": "float"})"),
              HasSubstr("config: keys: expected int, str, bytes or json, found another name"));
  EXPECT_THAT(message_with_config("module.safetensors", R"({"factory": "f", "config": 3})"),
              HasSubstr("config: config: expected the arguments of a factory, found int"));
  EXPECT_THAT(message_with_config("module.safetensors", R"({"factory": "f"})"),
              HasSubstr("config: config: expected the arguments of a factory, found none"));
  TensorDict tensor;
  tensor.set("state_mapper", Tensor::zeros(DType::float32, {2}));
  EXPECT_THAT(message_of([&] { const StateMapper mapper(tensor); }, ErrorCode::corrupt),
              HasSubstr("state_mapper: expected a JSON object, found an entry of another kind"));
}

TEST(StateMapper, NamesTheDamagedPartOfAHierarchy) {
  const auto with = [](const std::string& part, const TensorDict::Item& instead) {
    return message_without("levels.tdz", part, instead, ErrorCode::corrupt);
  };
  TensorDict scalars = TensorDict::dict();
  for (const char* key : {"0", "1", "2", "3"}) scalars.set(key, Tensor::zeros(DType::float32, {}));
  EXPECT_THAT(with("tables", scalars),
              HasSubstr("tables: 0: expected a tensor of rows, found a 0-d tensor"));
  const TensorDict::Item floats = Leaf(Tensor::zeros(DType::float32, {2}));
  for (const char* part : {"texts", "text_ends"}) {
    EXPECT_THAT(
        with(part, floats),
        HasSubstr("texts: expected uint8 bytes and int64 end offsets of one dimension, found other "
                  "tensors"));
  }
  EXPECT_THAT(with("paths", paths_node({"", "a"}, {0, 2}, {0, 7}, {1, 0})),
              HasSubstr("paths: expected the row of a value, found row 7 of table 2"));
  EXPECT_THAT(with("paths", paths_node({"", "a"}, {0, 4}, {0, 0}, {1, 0})),
              HasSubstr("found row 0 of table 4"));
  EXPECT_THAT(with("paths", paths_node({"a"}, {0}, {0}, {0})),
              HasSubstr(R"(paths: expected a level with the path "", found none)"));
  EXPECT_THAT(with("paths", paths_node({"", "a"}, {-1, 0}, {0, 0}, {0, 0})),
              HasSubstr(R"(paths: expected a level with the path "", found none)"));
}

TEST(StateMapper, ReportsInvalidEndOffsetsOfStrings) {
  const TensorDict tree = load(kData / "levels.tdz");
  const auto message = [&](std::int64_t first, std::int64_t second) {
    TensorDict tensors;
    tree["tensors"].for_each(
        [&](const std::string& key, const TensorDict::Item& item) { tensors.set(key, item); });
    tensors.set("text_ends", Tensor::from({first, second}));
    TensorDict made;
    made.set("state_mapper", tree.get("state_mapper"));
    made.set("tensors", tensors);
    const StateMapper mapper(made);
    return message_of([&] { mapper.value("mixed"); }, ErrorCode::corrupt);
  };
  EXPECT_THAT(
      message(6, 16),
      HasSubstr("texts: ends: expected nondecreasing end offsets up to 15, found 6 before 16"));
  EXPECT_THAT(message(6, 5), HasSubstr("found 6 before 5"));
  EXPECT_THAT(message(-1, 15), HasSubstr("found -1 before 15"));
}

TEST(StateMapper, RefusesToSaveAHierarchyWhosePathsAreDamaged) {
  const test::TemporaryFolder folder;
  const StateMapper good = StateMapper::hierarchical(TensorDict::dict({{"a", 1}}));
  const auto message = [&](const TensorDict& paths) {
    const TensorDict tree = good.tree();
    TensorDict tensors;
    tensors.set("tables", tree["tensors"]["tables"]);
    tensors.set("paths", paths);
    TensorDict made;
    made.set("state_mapper", tree.get("state_mapper"));
    made.set("tensors", tensors);
    const StateMapper mapper(made);
    return message_of([&] { mapper.save(folder / "x.json"); }, ErrorCode::corrupt);
  };
  EXPECT_THAT(message(paths_node({"", "a/b", "a"}, {-1, 0, -1}, {0, 0, 0}, {1, 0, 1})),
              HasSubstr(R"(paths: expected the level of "a/b" before the entry, found none)"));
  EXPECT_THAT(message(paths_node({"", "a"}, {-1, -1}, {0, 0}, {1, 0})),
              HasSubstr(R"(paths: "a": expected a value, found none)"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.json"));
}

TEST(StateMapper, NamesAMatrixAndKeysThatAreDicts) {
  const TensorDict::Item dict(TensorDict::dict({{"values", Tensor::zeros(DType::float32, {2})}}));
  EXPECT_THAT(message_without("tuples.tdz", "matrix", dict, ErrorCode::corrupt),
              HasSubstr("matrix: kind: expected a sparse tensor, found a dict"));
  EXPECT_THAT(message_without("tuples.tdz", "keys", dict, ErrorCode::corrupt),
              HasSubstr("column \"key\": entry \"key\": the schema names it"));
}

TEST(StateMapper, ReturnsTheTreeThatItSaves) {
  const StateMapper made = StateMapper::hierarchical(
      TensorDict::dict({{"a", 2.5}, {"b", TensorDict::dict({{"c", 1}})}}));
  EXPECT_EQ(made.class_name(), "tenfold.HierarchicalStateMapper");
  const StateMapper again(made.tree());
  EXPECT_EQ(again.kind(), MapperKind::hierarchical);
  EXPECT_EQ(to_json(again.config()), to_json(made.config()));
  EXPECT_EQ(again.at("a").item<double>(), 2.5);
  EXPECT_EQ(again.at("b/c").item<std::int64_t>(), 1);
  EXPECT_EQ(StateMapper::open(kData / "tuples.tdz").class_name(), "tenfold.SparseStateMapper");
}

TEST(StateMapper, KeepsTheConfigAndTensorsOfAClassItDoesNotKnow) {
  TensorDict made;
  made.set("state_mapper", from_json(R"({"class": "my.Mapper", "version": 1, "config": {"n": 3}})",
                                     "state_mapper"));
  made.set("tensors", TensorDict::dict({{"w", Tensor::from({1.0F, 2.0F})}}));
  const StateMapper mapper(made);
  EXPECT_EQ(mapper.kind(), MapperKind::other);
  EXPECT_EQ(mapper.class_name(), "my.Mapper");
  EXPECT_EQ(to_json(mapper.config()), R"({"n": 3})");
  EXPECT_EQ(doubles_of(mapper.parameters().at("w")), (std::vector<double>{1, 2}));
  EXPECT_THAT(message_of([&] { mapper.at(3); }, ErrorCode::unsupported),
              HasSubstr("rows of a \"my.Mapper\" are computed by a program: expected a sparse or "
                        "hierarchical mapper, found a class of a Python program"));
  EXPECT_THAT(message_of([&] { mapper.value(3); }, ErrorCode::unsupported),
              HasSubstr("value(): expected a hierarchy, found a \"my.Mapper\""));
}

TEST(StateMapper, AStateThatEndsAtAMapperIsUnknown) {
  const StateMapper levels = StateMapper::open(kData / "levels.tdz");
  for (const Value& state : {Value("rest/net"), Value("rest/inner")}) {
    EXPECT_THAT(
        message_of([&] { levels.at(state); }, ErrorCode::key_not_found),
        HasSubstr("it ends at a mapper: expected a longer path, which ends with a state of the "
                  "mapper, found 2 components"));
  }
}

TEST(StateMapper, AnEmptyBatchHasTheDtypeOfTheOnlyTableOrFloat64) {
  const StateMapper one =
      StateMapper::hierarchical(TensorDict::dict({{"a", Tensor::from({1, 2})}}));
  EXPECT_EQ(one.rows({}).shape(), (Shape{0, 2}));
  EXPECT_EQ(one.rows({}).dtype(), DType::int32);
  const StateMapper levels = StateMapper::open(kData / "levels.tdz");
  EXPECT_EQ(levels.rows({}).shape(), (Shape{0}));
  EXPECT_EQ(levels.rows({}).dtype(), DType::float64);
}

TEST(StateMapper, TheDtypeOfABatchDoesNotDependOnItsOrder) {
  const StateMapper mapper =
      StateMapper::hierarchical(TensorDict::dict({{"a", Tensor::zeros(DType::float32, {1})},
                                                  {"b", Tensor::zeros(DType::int64, {1})},
                                                  {"c", Tensor::zeros(DType::uint16, {1})}}));
  std::vector<std::string> states = {"a", "b", "c"};
  do {
    const Tensor rows = mapper.rows(std::vector<Value>(states.begin(), states.end()));
    EXPECT_EQ(rows.dtype(), DType::float32);
  } while (std::ranges::next_permutation(states).found);
}

TEST(StateMapper, RefusesABatchOfValuesOfSeveralShapes) {
  const StateMapper mapper = StateMapper::hierarchical(
      TensorDict::dict({{"a", Tensor::from({1, 2})}, {"b", Tensor::from({3})}}));
  EXPECT_THAT(message_of([&] { mapper.rows({"a", "b"}); }, ErrorCode::invalid_argument),
              HasSubstr("states \"a\" and \"b\": their values differ in shape: expected [2], found "
                        "[1]"));
}

TEST(StateMapper, ChecksTheRowsOfATable) {
  const MapperHead head;
  const Tensor table = Tensor::from({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(doubles_of(take_rows(head, table, std::vector<std::int64_t>{1, 0, 1})),
            (std::vector<double>{3, 4, 1, 2, 3, 4}));
  for (const std::int64_t row : {std::int64_t{-1}, std::int64_t{2}}) {
    EXPECT_THAT(
        message_of([&] { take_rows(head, table, std::span(&row, 1)); }, ErrorCode::corrupt),
        HasSubstr("table: row: expected at least 0 and less than 2, found " + std::to_string(row)));
  }
}

}  // namespace
}  // namespace tenfold

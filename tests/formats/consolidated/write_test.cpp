#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <tenfold/consolidated.hpp>

#include "core/tensor/leaf_bytes.hpp"
#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;

/// The document at the end of a file.
std::string document_of(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - 8, 8);
  return bytes.substr(bytes.size() - 8 - static_cast<std::size_t>(length),
                      static_cast<std::size_t>(length));
}

std::string consolidated(const TensorDict& tree, bool locked = false) {
  const TemporaryFolder folder;
  consolidate(tree, folder / "file", {.locked = locked});
  EXPECT_EQ(open_consolidated(folder / "file").locked, locked);
  return bytes_of(folder / "file");
}

WriteRequest request(bool checksums = true) {
  WriteRequest made;
  made.durable = false;
  made.checksums = checksums;
  return made;
}

TEST(ConsolidatedWrite, TheDocumentEqualsThatOfTensordict) {
  TensorDict below(batch({2}, {"x"}));
  below.set("c", tensor_of<std::int8_t>({0, 0}, {2}));
  TensorDict tree(batch({2}, {"x"}));
  tree.set("a", tensor_of<float>({1, 1, 1, 1, 1, 1}, {2, 3}));
  tree.set("s", Value("hi"));
  tree.set("b", below);
  tree.set("z", tensor_of<float>({1, 1}, {2}));
  const std::string bytes = consolidated(tree);
  // Printed by tensordict 0.15.3 for the same tree.
  const std::string document =
      R"({"cls": "TensorDict", "non_tensors": {"s": ["hi", [2], null]}, "leaves": {"a": )"
      R"(["torch.float32", [2, 3], 0, 24, 0], "z": ["torch.float32", [2], 32, 40, 0]}, )"
      R"("cls_metadata": {"device": null, "names": ["x"], "batch_size": [2], "is_locked": false}, )"
      R"("b": {"cls": "TensorDict", "non_tensors": {}, "leaves": {"c": ["torch.int8", [2], 24, )"
      R"(32, 6]}, "cls_metadata": {"device": null, "names": ["x"], "batch_size": [2], )"
      R"("is_locked": false}}})";
  EXPECT_EQ(document_of(bytes), document);
  EXPECT_EQ(bytes.size(), 40 + document.size() + 8);
  EXPECT_EQ(bytes.substr(26, 6), std::string(6, '\0'));
}

TEST(ConsolidatedWrite, JaggedTensorsHaveTheBytesOfTensordict) {
  const Path golden = Path(TENFOLD_TEST_DATA) / "consolidated/ok-jagged.consolidated";
  const TensorDict tree = consolidated::kFormat.open(golden, {});
  TensorDict in_order(tree.info());  // in the original order, which the document does not store
  for (const char* key : {"rows", "holes", "n", "x"}) in_order.set(key, tree.get(key));
  EXPECT_EQ(consolidated(in_order), bytes_of(golden));
  const TemporaryFolder folder;
  consolidated::kFormat.write(in_order, folder / "file", request());
  const TensorDict found = consolidated::kFormat.open(folder / "file", {});
  EXPECT_EQ(text_of(found), text_of(in_order));
  EXPECT_EQ(found["n"]["turned"].info().dense_shape, (Shape{3, 2, -1}));
  EXPECT_TRUE(consolidated::kFormat.verify(folder / "file", {}).ok());
}

TEST(ConsolidatedWrite, StacksOfValuesAreNodes) {
  TensorDict tree(batch({2, 2}));
  tree.info().device = "cpu";
  const Value inner(Value::List{{Value("a"), Value(1)}});
  NonTensor values{Value(Value::List{{inner, inner}}), true, 0};
  tree.set("st", TensorDict::Item(values));
  const std::string about =
      R"("leaves": {}, "cls_metadata": {"stack_dim": 0, "stack_dim_name": null, "is_locked": true})";
  const std::string row =
      R"({"cls": "NonTensorStack", "non_tensors": {"0": ["a", [], "cpu"], "1": [1, [], "cpu"]}, )" +
      about + "}";
  EXPECT_THAT(document_of(consolidated(tree, true)),
              HasSubstr(R"("st": {"cls": "NonTensorStack", "non_tensors": {}, )" + about +
                        R"(, "0": )" + row + R"(, "1": )" + row + "}"));
}

TEST(ConsolidatedWrite, StacksOfValuesWithoutElementsKeepTheirShape) {
  const Value empty(Value::List{});
  const Value rows(Value::List{{empty, empty}});
  TensorDict tree(batch({2, 0}));
  for (const std::int64_t dim : {0, 1, 2}) {
    const TemporaryFolder folder;
    tree.set("rows", TensorDict::Item(NonTensor{rows, true, dim}));
    tree.set("none", TensorDict::Item(NonTensor{empty, true, dim}));
    tree.set("deep", TensorDict::Item(NonTensor{Value(Value::List{{rows, rows}}), true, dim}));
    consolidated::kFormat.write(tree, folder / "file", request());
    const TensorDict found = consolidated::kFormat.open(folder / "file", {});
    EXPECT_EQ(to_json(found.value("rows")), "[[], []]");
    EXPECT_EQ(to_json(found.value("none")), "[]");
    EXPECT_EQ(to_json(found.value("deep")), "[[[], []], [[], []]]");
  }
}

TEST(ConsolidatedWrite, ListsThatDifferInLengthAreValuesOfAStack) {
  for (const char* json :
       {"[[[1], [2]], [[3, 4], [5]]]", R"([[["a"], ["b"]], ["c", "d"]])", "[[[1], [2]], [3, [4]]]",
        "[[[1], [2]], [[3], [4], [5]]]", "[[[[1, 2]]], [[[3], [4]]]]", "[[1], 2]"}) {
    for (const std::int64_t dim : {0, 1, 2}) {
      for (const Shape& shape : {Shape{2}, Shape{2, 2}, Shape{}}) {
        SCOPED_TRACE(std::string(json) + ", stack_dim " + std::to_string(dim));
        const TemporaryFolder folder;
        TensorDict tree(batch(shape));
        tree.set("v", TensorDict::Item(NonTensor{from_json(json, "json"), true, dim}));
        consolidated::kFormat.write(tree, folder / "file", request());
        const TensorDict found = consolidated::kFormat.open(folder / "file", {});
        EXPECT_EQ(to_json(found.value("v")), json);
        consolidated::kFormat.write(found, folder / "again", request());
        EXPECT_EQ(to_json(consolidated::kFormat.open(folder / "again", {}).value("v")), json);
      }
    }
  }
}

TEST(ConsolidatedWrite, DtypesOfSixteenBytesAreAligned) {
  TensorDict tree;
  tree.set("a", tensor_of<std::uint8_t>({1}, {1}));
  tree.set("c", tensor_of<std::complex<double>>({{1, 2}}, {1}));
  const std::string bytes = consolidated(tree);
  EXPECT_THAT(document_of(bytes), HasSubstr(R"("c": ["torch.complex128", [1], 16, 32, 0])"));
  EXPECT_EQ(bytes.substr(1, 15), std::string(15, '\0'));
}

/// Returns a tree with properties that tensordict's document cannot express: kinds of nodes, int
/// keys, metadata, a schema, shared storage and an unbatched leaf.
TensorDict rich_tree() {
  TensorDict list(kind(NodeKind::list));
  list.set("0", TensorDict(kind(NodeKind::tuple)));
  list.set("1", tensor_of<float>({1, 2, 3}, {3}));
  list.set("2", Value(Value::Tuple{{Value(1), Value(2)}}));
  TensorDict state(kind(NodeKind::dict, true));
  state.set("7", list);
  TensorDict table(batch({2}));
  Leaf payload(tensor_of<std::uint8_t>({1, 2, 3}, {3}));
  payload.mark_unbatched();
  table.set("texts", TensorDict::Item(payload));
  NodeInfo info = kind(NodeKind::ordered_dict);
  info.metadata = {{"author", "me"}};
  info.schema = Value("columns");
  TensorDict tree(info);
  tree.set("state", state);
  const Tensor tied = tensor_of<std::int64_t>({4, 5}, {2});
  tree.set("tied", tied);
  tree.set("again", tied);
  tree.set("epoch", Value(3));
  tree.set("table", table);
  TensorDict instance(batch({}));
  instance.info().kind = NodeKind::tensorclass;
  instance.info().class_name = "<class 'm.C'>";
  instance.set("x", tensor_of<float>({}, {0}));
  tree.set("instance", instance);
  return tree;
}

TEST(ConsolidatedWrite, RoundTripsAWholeTree) {
  const TemporaryFolder folder;
  const TensorDict tree = rich_tree();
  consolidated::kFormat.write(tree, folder / "file", request());
  const TensorDict found = consolidated::kFormat.open(folder / "file", {});
  EXPECT_EQ(text_of(found), text_of(tree));
  EXPECT_EQ(found.info().metadata, tree.info().metadata);
  EXPECT_EQ(found.info().schema, tree.info().schema);
  const auto bytes_at = [&](const char* key) {
    return stored_range(std::get<Leaf>(found.get(key)));
  };
  EXPECT_EQ(bytes_at("tied"), bytes_at("again"));
  EXPECT_EQ(found.value("epoch"), Value(3));
  const VerifyReport report = consolidated::kFormat.verify(folder / "file", {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 5U);
  EXPECT_EQ(report.num_checksums, 4U);  // the document, and each tensor with elements
}

TEST(ConsolidatedWrite, RoundTripsAnOpenedFile) {
  const TemporaryFolder folder;
  consolidated::kFormat.write(rich_tree(), folder / "file", request());
  consolidated::kFormat.write(consolidated::kFormat.open(folder / "file", {}), folder / "again",
                              request());
  EXPECT_EQ(bytes_of(folder / "again"), bytes_of(folder / "file"));
}

TEST(ConsolidatedWrite, VerifyDetectsEveryFlippedByteThatHasAChecksum) {
  const TemporaryFolder folder;
  consolidated::kFormat.write(rich_tree(), folder / "file", request());
  const std::string whole = bytes_of(folder / "file");
  const std::size_t data = whole.size() - 8 - document_of(whole).size();
  EXPECT_TRUE(consolidated::kFormat.verify(folder / "file", {}).ok());
  // A change of the name of the member with the checksums gives a valid file without checksums.
  const std::string name = "tenfold_xxh3";
  const std::size_t name_at = whole.find(name);
  Warnings ignored;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    // Bytes of padding have no checksum.
    if (i < data && ((i >= 12 && i < 16) || i > 34)) continue;
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    write_bytes(folder / "file", bytes);
    const bool hidden = i >= name_at && i < name_at + name.size();
    EXPECT_EQ(consolidated::kFormat.verify(folder / "file", {}).ok(), hidden) << "byte " << i;
    if (!hidden) continue;
    EXPECT_EQ(text_of(consolidated::kFormat.open(folder / "file", {})), text_of(rich_tree()));
  }
}

TEST(ConsolidatedWrite, KeysMayHaveTheNameOfTheChecksums) {
  for (const Value& value :
       {Value(std::string(60, 'x')), Value("x"), Value(3),
        Value(Value::Object{{{"tenfold_xxh3", Value(std::string(60, 'y'))}}})}) {
    const TemporaryFolder folder;
    TensorDict inner(kind(NodeKind::dict));
    inner.set("tenfold_xxh3", tensor_of<float>({1, 2}, {2}));
    TensorDict tree(kind(NodeKind::dict));
    tree.set("tenfold_xxh3", value);
    tree.set("inner", inner);
    consolidated::kFormat.write(tree, folder / "file", request());
    const TensorDict found = consolidated::kFormat.open(folder / "file", {});
    EXPECT_EQ(text_of(found), text_of(tree));
    EXPECT_EQ(found.value("tenfold_xxh3"), value);
    EXPECT_TRUE(consolidated::kFormat.verify(folder / "file", {}).ok());
    consolidate(tree, folder / "plain");  // writes the layout of tensordict, without checksums
    EXPECT_TRUE(consolidated::kFormat.verify(folder / "plain", {}).ok());
  }
}

TEST(ConsolidatedWrite, StaleNotesAreIgnoredWithAWarning) {
  const TemporaryFolder folder;
  consolidated::kFormat.write(rich_tree(), folder / "file", request(false));
  const std::string whole = bytes_of(folder / "file");
  std::string document = document_of(whole);
  const std::size_t at = document.find("\"order\": {\"\": [");
  ASSERT_NE(at, std::string::npos);
  document.replace(at, 15, "\"order\": {\"\": [9,");
  const std::uint64_t length = document.size();
  std::string bytes = whole.substr(0, whole.size() - 8 - document_of(whole).size()) + document;
  bytes.append(reinterpret_cast<const char*>(&length), 8);
  write_bytes(folder / "file", bytes);
  Warnings warnings;
  const TensorDict found = consolidated::kFormat.open(folder / "file", {});
  EXPECT_EQ(found.keys(),
            (std::vector<std::string>{"epoch", "tied", "again", "state", "table", "instance"}));
  ASSERT_EQ(warnings.messages().size(), 1U);
  EXPECT_THAT(warnings.messages()[0], HasSubstr("\"order\" of \"\" is ignored"));
}

TensorDict with(const std::string& key, TensorDict::Item item, NodeInfo info = {}) {
  TensorDict tree(std::move(info));
  tree.set(key, std::move(item));
  return tree;
}

TEST(ConsolidatedWrite, RefusesByKeyBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const Tensor bytes = tensor_of<std::uint8_t>({1, 2}, {2});
  const Tensor float8(DType::float8_e4m3fn, {2}, Buffer::allocate(2));
  const Leaf nested = Leaf::nested(bytes, tensor_of<std::int64_t>({1, 1}, {2, 1}));
  TensorDict endless;
  endless.set("self", endless);
  const auto expect = [&](ErrorCode code, const TensorDict& tree, const std::string& words) {
    const auto write = [&] { consolidated::kFormat.write(tree, folder / "file", request()); };
    EXPECT_THAT(message_of(write, code), HasSubstr(words));
    EXPECT_THAT(message_of([&] { consolidated::kFormat.check(tree); }, code), HasSubstr(words));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  };
  using enum ErrorCode;
  expect(unsupported, with("a", with("x", Leaf(float8))),
         "key \"a/x\": tensordict cannot read this dtype");
  expect(unsupported, with("x", nested), "key \"x\": a nested tensor cannot be stored");
  expect(unsupported, with("leaves", TensorDict()),
         "key \"leaves\": a node with this key cannot be stored");
  expect(unsupported, with("size", TensorDict()),
         "key \"size\": a node with this key cannot be stored");
  expect(unsupported, with("<NJT_VALUES>x", Leaf(bytes)), "a part of a jagged tensor");
  NodeInfo jagged = kind(NodeKind::sparse);
  jagged.layout = "jagged";
  jagged.dense_shape = {1, -1};
  TensorDict rows(jagged);
  expect(unsupported, rows, "the root: expected a TensorDict, found a jagged tensor");
  NodeInfo instance = kind(NodeKind::tensorclass);
  instance.class_name = "m.C";
  expect(invalid_argument, with("a", TensorDict(instance)),
         "key \"a\": class_name: expected the str() of a class, as in \"<class 'module.Class'>\", "
         "found \"m.C\"");
  expect(corrupt, with("x", rows), "key \"x\": jagged tensor: values: expected a tensor");
  rows.set("values", bytes);
  rows.set("offsets", tensor_of<std::int64_t>({0, 2}, {2}));
  expect(unsupported, with("x", rows, batch({2})), "the shape does not fit");
  expect(unsupported, with("<NJT_VALUES>x", rows), "a part of a jagged tensor");
  expect(unsupported, with("0", rows, kind(NodeKind::lazy_stack)),
         "key \"0\": a lazy stack can only store nodes: expected a node, found a jagged tensor");
  expect(unsupported, with("x\xff", Leaf(bytes)), "a key that is not UTF-8");
  expect(unsupported, with("x", Leaf(bytes), batch({3})), "the shape does not fit");
  expect(unsupported, with("0", Leaf(bytes), kind(NodeKind::lazy_stack)),
         "a lazy stack can only store nodes");
  expect(invalid_argument, with("1", TensorDict(), kind(NodeKind::lazy_stack)),
         "key \"1\": element of a lazy stack: expected nodes \"0\", \"1\", ..., found another key");
  for (const std::int64_t dim : {-1, 64}) {
    NodeInfo stack = kind(NodeKind::lazy_stack);
    stack.stack_dim = dim;
    expect(invalid_argument, with("a", TensorDict(stack)),
           "key \"a\": stack_dim: expected 0 to 63, found " + std::to_string(dim));
  }
  expect(invalid_argument, with("a", TensorDict(batch({2, -2}))),
         "key \"a\": batch_size: expected lengths of 0 or more, found -2");
  for (const Value& value : {Value(Value::Tuple{{Value(1)}}), Value(1)}) {
    expect(invalid_argument, with("x", NonTensor{value, true, 0}),
           "key \"x\": stack of JSON values: expected a list, found ");
  }
  expect(invalid_argument, endless, "nested too deep");
  Value deep(1);
  for (int i = 0; i < 600; ++i) deep = Value(Value::List{{deep}});
  expect(invalid_argument, with("x", NonTensor{deep}), "key \"x\": nested too deep");
  endless.set("self", Value());  // otherwise it would never be freed
}

TEST(ConsolidatedWrite, TensordictFormatRefusesUnsupportedEntries) {
  const TemporaryFolder folder;
  Leaf unbatched(tensor_of<std::uint8_t>({1, 2}, {2}));
  unbatched.mark_unbatched();
  NodeInfo described;
  described.schema = Value("columns");
  for (const TensorDict& tree : {with("x", unbatched), TensorDict(described)}) {
    message_of([&] { consolidate(tree, folder / "file"); }, ErrorCode::unsupported);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(ConsolidatedWrite, ATreeOfMaximumDepthRoundTrips) {
  const TemporaryFolder folder;
  TensorDict tree;
  tree.set("x", Value(1));
  int depth = 0;
  try {
    for (; depth < 600; ++depth) {
      consolidated::kFormat.check(tree);
      tree = with("n", tree);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(depth, 509);
  const TensorDict deepest = std::get<TensorDict>(tree.get("n"));
  consolidated::kFormat.write(deepest, folder / "file", request());
  EXPECT_EQ(consolidated::kFormat.open(folder / "file", {}).size(), 1U);
}

}  // namespace
}  // namespace tenfold::test

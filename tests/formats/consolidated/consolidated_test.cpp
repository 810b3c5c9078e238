#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/sparse.hpp"
#include "formats/safetensors/support.hpp"
#include "io/registry.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;

Path golden(const std::string& name) {
  return Path(TENFOLD_TEST_DATA) / "consolidated" / ("ok-" + name + ".consolidated");
}

/// The bytes of a file: `data_bytes` bytes of data (0, 1, 2, ...), the document and its length.
std::string file_of(const std::string& document, std::size_t data_bytes = 32) {
  std::string bytes;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  bytes += document;
  const std::uint64_t length = document.size();
  bytes.append(reinterpret_cast<const char*>(&length), 8);
  return bytes;
}

std::string node(const std::string& leaves, const std::string& non_tensors = "",
                 const std::string& batch_size = "", const std::string& rest = "") {
  return R"({"cls": "TensorDict", "non_tensors": {)" + non_tensors + R"(}, "leaves": {)" + leaves +
         R"(}, "cls_metadata": {"device": null, "names": [], "batch_size": [)" + batch_size +
         R"(], "is_locked": false})" + rest + "}";
}

std::string stack(const std::string& cls, const std::string& rest, const std::string& values = "",
                  const std::string& stack_dim = "0") {
  return R"({"cls": ")" + cls + R"(", "non_tensors": {)" + values +
         R"(}, "leaves": {}, "cls_metadata": {"stack_dim": )" + stack_dim +
         R"(, "stack_dim_name": null, "is_locked": false})" + rest + "}";
}

TensorDict opened(const Path& path) {
  EXPECT_TRUE(consolidated::kFormat.probe(path));
  EXPECT_TRUE(consolidated::kFormat.verify(path, {}).ok());
  return consolidated::kFormat.open(path, {});
}

TensorDict opened(const std::string& document) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", file_of(document));
  return opened(folder / "file");
}

TEST(Consolidated, OpensFilesOfTensordict) {
  const TensorDict tree = opened(golden("nested"));
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"text", "a", "none", "b", "n", "texts"}));
  EXPECT_EQ(tree.at("a").data<float>()[2], 2.0F);
  EXPECT_EQ(tree.at("n", "c").data<std::int64_t>()[0], 5);
  EXPECT_EQ(tree.at("none").shape(), (Shape{0, 3}));
  EXPECT_EQ(tree.at("b").data<bool>()[0], true);
  EXPECT_EQ(tree.value("text"), Value("hi"));
  const auto texts = std::get<NonTensor>(tree.get("texts"));
  EXPECT_TRUE(texts.is_stack);
  EXPECT_EQ(to_json(texts.value), R"(["x", "y"])");

  const TensorDict batched = opened(golden("batched"));
  EXPECT_EQ(batched.batch_size(), (Shape{2, 3}));
  EXPECT_EQ(batched.info().names, (DimNames{"time", std::nullopt}));
  EXPECT_EQ(batched.info().device, "cpu");
  EXPECT_EQ(batched.at("x").dtype(), DType::bfloat16);

  const TensorDict parts = opened(golden("lazy-stack"));
  EXPECT_EQ(parts.kind(), NodeKind::lazy_stack);
  EXPECT_EQ(parts.at("1", "x").data<std::int32_t>()[2], 2);
  EXPECT_EQ(parts["0"].value("s"), Value("part 2"));
}

TEST(Consolidated, OpensJaggedTensorsByTheirComponents) {
  const TensorDict tree = opened(golden("jagged"));
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"rows", "holes", "x", "n"}));
  const TensorDict rows = tree["rows"];
  EXPECT_EQ(rows.kind(), NodeKind::sparse);
  EXPECT_EQ(rows.info().layout, "jagged");
  EXPECT_EQ(rows.info().dense_shape, (Shape{3, -1, 2}));
  EXPECT_EQ(rows.keys(), (std::vector<std::string>{"values", "offsets"}));
  EXPECT_EQ(rows.at("values").shape(), (Shape{6, 2}));
  EXPECT_EQ(rows.at("offsets").data<std::int64_t>()[3], 6);
  EXPECT_EQ(tree["holes"].at("lengths").data<std::int64_t>()[2], 2);
  EXPECT_EQ(tree["n"]["turned"].info().dense_shape, (Shape{3, 2, -1}));
  for (const TensorDict& node : {rows, tree["holes"], tree["n"]["turned"]}) {
    EXPECT_NO_THROW(check_sparse_indices(node, "golden"));
  }
}

TEST(Consolidated, JaggedTensorsOfOlderVersionsAreRaggedInDimensionOne) {
  const TensorDict tree = opened(node(R"("<NJT_VALUES>x": ["torch.uint8", [8, 1], 0, 8, 0], )"
                                      R"("<NJT_OFFSETS>x": ["torch.int64", [3], 8, 32, 0])"));
  EXPECT_EQ(tree["x"].info().dense_shape, (Shape{2, -1, 1}));
  // The offsets consist of the bytes 8, 9, ..., so they are larger than 8, the number of values.
  EXPECT_THAT(message_of([&] { check_sparse_indices(tree["x"], "x"); }, ErrorCode::corrupt),
              HasSubstr("jagged tensor: offsets: expected numbers from 0 to 8"));
}

TEST(Consolidated, IsRecognisedByItsEnd) {
  const TemporaryFolder folder;
  // The start of this file looks like safetensors: the length of a header, and a brace.
  std::string bytes = file_of(node(R"("x": ["torch.int64", [4], 0, 32, 0])"));
  bytes.replace(0, 9, std::string("\x05\0\0\0\0\0\0\0{", 9));
  write_bytes(folder / "file", bytes);
  EXPECT_TRUE(safetensors::kFormat.probe(folder / "file"));
  EXPECT_EQ(probe(folder / "file"), "consolidated");
}

TEST(Consolidated, TensorsStoredOnceShareStorage) {
  const TensorDict tree =
      opened(node(R"("a": ["torch.uint8", [5], 8, 16, 3], "b": ["torch.uint8", [5], 8, 16, 3])"));
  EXPECT_EQ(tree.at("a").raw_data(), tree.at("b").raw_data());
  EXPECT_EQ(stored_range(std::get<Leaf>(tree.get("a"))),
            stored_range(std::get<Leaf>(tree.get("b"))));
  EXPECT_EQ(tree.at("a").data<std::uint8_t>()[4], 12);
}

TEST(Consolidated, ReadsUnalignedTensorsAndIgnoresTheSize) {
  const TensorDict tree =
      opened(node(R"("w": ["torch.complex128", [1], 8, 24, 0])", "", "", R"(, "size": {"a": 1})"));
  EXPECT_EQ(tree.keys(), std::vector<std::string>{"w"});
  const Leaf leaf = std::get<Leaf>(tree.get("w"));
  EXPECT_EQ(mapped_bytes(leaf), file_of("").substr(8, 16));
  EXPECT_EQ(mapped_bytes(leaf), read_bytes(leaf));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leaf.tensor().raw_data()) % 16, 0U);
}

TEST(Consolidated, IgnoresMembersOfTenfoldThatDoNotFitTheTreeWithAWarning) {
  const std::string leaves =
      R"("a": ["torch.uint8", [1], 0, 1, 0], "b": ["torch.uint8", [1], 1, 2, 0])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("order": 3)", R"("order" is ignored: expected an object, found int)"},
      {R"("order": {"": 3})",
       R"("order" of "" is ignored: expected a list with each position once, found another value)"},
      {R"("order": {"": [1, "0"]})", R"("order" of "" is ignored)"},
      {R"("order": {"": [0, 0]})", R"("order" of "" is ignored)"},
      {R"("order": {"": [2, 0, 1]})", R"("order" is ignored: expected 2 positions, found 3)"},
      {R"("notes": {})", R"("notes" is ignored: expected a string, found dict)"},
      {R"("later": [])", R"("later" is ignored: expected a string, found list)"},
  };
  for (const auto& [member, message] : cases) {
    const TemporaryFolder folder;
    write_bytes(folder / "file",
                file_of(node(leaves, "", "", R"(, "size": ["tenfold", {)" + member + "}]")));
    const Warnings warnings;
    const TensorDict tree = consolidated::kFormat.open(folder / "file", {});
    EXPECT_EQ(tree.keys(), (std::vector<std::string>{"a", "b"})) << member;
    ASSERT_EQ(Warnings::messages().size(), 1U) << member;
    EXPECT_THAT(Warnings::messages()[0], HasSubstr(message));
    EXPECT_THAT(Warnings::messages()[0], HasSubstr("another tool may have changed the file"));
  }
  const TensorDict reversed =
      opened(node(leaves, "", "", R"(, "size": ["tenfold", {"order": {"": [1, 0]}}])"));
  EXPECT_EQ(reversed.keys(), (std::vector<std::string>{"b", "a"}));
}

TEST(Consolidated, KeepsTheClassOfATensorclass) {
  std::string document = node(R"("x": ["torch.uint8", [], 0, 8, 7])");
  document.replace(document.find("TensorDict"), 10, "<class 'm.C'>");
  const TensorDict tree = opened(node("", "", "", R"(, "n": )" + document));
  EXPECT_EQ(tree["n"].kind(), NodeKind::tensorclass);
  EXPECT_EQ(tree["n"].info().class_name, "<class 'm.C'>");
}

TEST(Consolidated, OpensStacksOfStacks) {
  const std::string inner =
      stack("NonTensorStack", "", R"("0": [1, [], null], "1": [2, [], null])");
  const TensorDict tree =
      opened(node("", "", "",
                  R"(, "v": )" + stack("NonTensorStack", R"(, "0": )" + inner) + R"(, "l": )" +
                      stack("LazyStackedTensorDict", R"(, "0": )" + node(""))));
  EXPECT_EQ(to_json(tree.value("v")), "[[1, 2]]");
  EXPECT_EQ(tree["l"].size(), 1U);
}

TEST(Consolidated, ValuesStackedAlongALaterDimensionAreInTheOrderOfTheBatch) {
  const auto column = [](const std::string& first, const std::string& second) {
    return stack("NonTensorStack", "",
                 "\"0\": [" + first + ", [], null], \"1\": [" + second + ", [], null]");
  };
  const TensorDict tree =
      opened(node("", "", "2, 3",
                  R"(, "v": )" + stack("NonTensorStack",
                                       R"(, "0": )" + column("1", "4") + R"(, "1": )" +
                                           column("2", "5") + R"(, "2": )" + column("3", "6"),
                                       "", "1")));
  EXPECT_EQ(std::get<NonTensor>(tree.get("v")).stack_dim, 1);
  EXPECT_EQ(to_json(tree.value("v")), "[[1, 2, 3], [4, 5, 6]]");
}

TEST(Consolidated, AValueThatRowsShareIsRepeatedForTheDimensionsOfTheOtherEntries) {
  const std::string inner =
      stack("NonTensorStack", "", R"("0": [1, [], null], "1": [2, [], null])");
  const auto value_of = [&](const std::string& stacked) {
    return to_json(opened(node("", "", "", R"(, "v": )" + stacked)).value("v"));
  };
  EXPECT_EQ(value_of(stack("NonTensorStack", R"(, "1": )" + inner,
                           R"("0": [0, [2], null], "2": [3, [2], null])")),
            "[[0, 0], [1, 2], [3, 3]]");
  EXPECT_EQ(value_of(stack("NonTensorStack", "",
                           R"("0": [0, [2, 9], null], "1": [1, [2, 9], null])", "1")),
            "[[0, 1], [0, 1]]");
  EXPECT_EQ(value_of(stack("NonTensorStack", "", R"("0": [0, [2], null], "1": [1, [2], null])")),
            "[0, 1]");
}

TEST(Consolidated, ListsOfAnEntryThatHasMoreDimensionsThanAnotherAreValues) {
  const std::string deep = stack(
      "NonTensorStack", R"(, "0": )" + stack("NonTensorStack", "", R"("0": [1, [], null])") +
                            R"(, "1": )" + stack("NonTensorStack", "", R"("0": [2, [], null])"));
  const std::string flat =
      stack("NonTensorStack", "", R"("0": [[3, 4], [], null], "1": [[5], [], null])");
  const TensorDict tree = opened(
      node("", "", "",
           R"(, "v": )" + stack("NonTensorStack", R"(, "0": )" + deep + R"(, "1": )" + flat)));
  EXPECT_EQ(to_json(tree.value("v")), "[[[1], [2]], [[3, 4], [5]]]");
}

TEST(Consolidated, NeverWritesToTheFile) {
  const TemporaryFolder folder;
  const std::string bytes = file_of(node(R"("x": ["torch.uint8", [32], 0, 32, 0])"));
  write_bytes(folder / "file", bytes);
  opened(folder / "file").at("x").mutable_data<std::uint8_t>()[0] = 77;
  EXPECT_EQ(bytes_of(folder / "file"), bytes);
  OpenRequest request;
  request.mode = Mode::write_through;
  EXPECT_THAT(message_of([&] { consolidated::kFormat.open(folder / "file", request); },
                         ErrorCode::unsupported),
              HasSubstr("cannot be changed in place"));
}

TEST(Consolidated, EveryTruncatedFileIsCorrupt) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(golden("nested"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "file", whole.substr(0, size));
    message_of([&] { consolidated::kFormat.open(folder / "file", {}); }, ErrorCode::corrupt);
    EXPECT_FALSE(consolidated::kFormat.verify(folder / "file", {}).ok());
  }
}

struct Bad {
  std::string document;
  ErrorCode code;
  std::string message;  ///< the message without the path
};

std::string leaf(const std::string& item) { return node(R"("x": )" + item); }

/// Returns a document with the values of a jagged tensor "x" and the offsets of a jagged tensor
/// `key`.
std::string jagged(const std::string& key, const std::string& values, const std::string& offsets,
                   const std::string& batch_size, const std::string& dim) {
  return node(R"("<NJT_VALUES>x": ["torch.uint8", )" + values + R"(, 0, 8, 0], "<NJT_OFFSETS>)" +
                  key + R"(": ["torch.int64", )" + offsets + ", 8, 32, 0, " + dim + "]",
              "", batch_size);
}

TEST(Consolidated, ReportsErrorsWithTheirLocation) {
  using enum ErrorCode;
  const std::vector<Bad> cases = {
      {"[]", corrupt,
       R"(node "": the document has the wrong type: expected an object, found list)"},
      {"{}", corrupt, R"(node "": "cls" is missing: expected a string, found none)"},
      {R"({"cls": "os.system"})", unsupported,
       R"(node "": unknown class: expected "TensorDict", "LazyStackedTensorDict", )"
       R"("NonTensorStack" or a tensorclass, found "os.system")"},
      {R"({"cls": "TensorDict"})", corrupt,
       R"(node "": "cls_metadata" is missing: expected an object, found none)"},
      {node("", "", "-1"), corrupt,
       R"(node "": "batch_size" is negative: expected an integer from 0, found -1)"},
      {node(R"("x": ["torch.uint8", [3], 0, 8, 5])", "", "2"), corrupt,
       R"(node "x": the shape does not fit: expected it to start with the batch_size [2], found [3])"},
      {leaf("[]"), corrupt,
       R"(node "x": its array has the wrong length: expected dtype, shape, start, stop and padding, found 0 items)"},
      {leaf(R"(["torch.save", [], 0, 8, 0])"), unsupported,
       R"(node "x": unknown dtype: expected one that torch has, found "torch.save")"},
      {leaf(R"(["torch.uint8", [8], 0, 40, 32])"), corrupt,
       R"(node "x": data reaches into the document: expected an end at byte 32 or before, found byte 40)"},
      {leaf(R"(["torch.uint8", [8], 8, 0, 0])"), corrupt,
       R"(node "x": stop is before start: expected a stop of at least 8, found 0)"},
      {leaf(R"(["torch.uint8", [8], 0, 8, 1])"), corrupt,
       R"(node "x": start, stop and padding do not fit the shape: expected a range of 8 bytes of data and 1 of padding, found one of 8 bytes)"},
      {leaf(R"(["torch.uint8", [0], 0, 8, 9])"), corrupt,
       R"(node "x": start, stop and padding do not fit the shape: expected a range of 0 bytes of data and 9 of padding, found one of 8 bytes)"},
      {leaf(R"(["torch.uint8", [4294967296, 4294967296], 0, 0, 0])"), corrupt,
       R"(node "x": shape is too large: expected at most 2^63 - 1 bytes, found [4294967296, 4294967296])"},
      {leaf(R"(["torch.uint8", [1.5], 0, 8, 0])"), corrupt,
       R"(node "x": shape has the wrong type: expected an integer from 0, found float)"},
      {node(R"("<NJT_VALUES>x": ["torch.uint8", [8], 0, 8, 0])"), corrupt,
       R"(node "": a jagged tensor is not complete: expected "<NJT_OFFSETS>x", found the end of "leaves")"},
      {node(
           R"("<NJT_VALUES>x": ["torch.uint8", [8], 0, 8, 0], "y": ["torch.uint8", [8], 0, 8, 0])"),
       corrupt,
       R"(node "y": a jagged tensor is not complete: expected "<NJT_OFFSETS>x", found "y")"},
      {node(R"("<NJT_OFFSETS>x": ["torch.int64", [1], 0, 8, 0])"), corrupt,
       R"(node "<NJT_OFFSETS>x": it is not a valid part of a jagged tensor: expected consecutive values, lengths and offsets of one key, found "<NJT_OFFSETS>x")"},
      {node(R"("<NJT>x": ["torch.uint8", [8], 0, 8, 0])"), corrupt,
       R"(node "<NJT>x": it is not a valid part of a jagged tensor: expected consecutive values, lengths and offsets of one key, found "<NJT>x")"},
      {jagged("x", "[8, 1]", "[3]", "", "3"), corrupt,
       R"(node "x": ragged dimension: expected 1 to 2, found 3)"},
      {jagged("x", "[8, 1]", "[3]", "", "0"), corrupt,
       R"(node "x": ragged dimension: expected 1 to 2, found 0)"},
      {jagged("x", "[8, 1]", "[1, 3]", "", "1"), corrupt,
       R"(node "x": offsets of a jagged tensor: expected one dimension with a length of at least 1, found [1, 3])"},
      {jagged("x", "[8, 1]", "[3]", "3", "1"), corrupt,
       R"(node "x": the shape does not fit: expected it to start with the batch_size [3], found [2, -1, 1])"},
      {jagged("y", "[8, 1]", "[3]", "", "1"), corrupt,
       R"(node "<NJT_OFFSETS>y": it is not a valid part of a jagged tensor: expected consecutive values, lengths and offsets of one key, found "<NJT_OFFSETS>y")"},
      {node(R"("x": ["torch.uint8", [8], 0, 8, 0], "y": ["torch.uint8", [8], 4, 12, 0])"), corrupt,
       "leaves: two tensors overlap: expected one that begins at byte 8 or later, found one at "
       "byte 4"},
      {node(R"("x": ["torch.uint8", [8], 0, 8, 0])", R"("x": [1, [], null])"), corrupt,
       R"(node "x": the key is duplicated: expected it once, found two)"},
      {node("", R"("x": [1])"), corrupt,
       R"(node "x": its array has the wrong length: expected data, batch_size and device, found 1 items)"},
      {node("", "", "", R"(, "n": 1)"), corrupt,
       R"(node "n": its value has the wrong type: expected an object, found int)"},
      {stack("LazyStackedTensorDict", R"(, "1": )" + node("")), corrupt,
       R"(node "": an entry of a stack is missing: expected key "0", found "1")"},
      {stack("LazyStackedTensorDict", R"(, "0": )" + stack("NonTensorStack", "")), corrupt,
       R"(node "0": an entry of a lazy stack has the wrong class: expected a TensorDict, tensorclass or lazy stack, found "NonTensorStack")"},
      {stack("LazyStackedTensorDict", R"(, "0": )" + node("", "", "4"), "", "2"), corrupt,
       R"(node "": "stack_dim": expected at most 1, the number of batch dimensions of entry "0", found 2)"},
      {R"({"cls": "TensorDict", "non_tensors": {}, "leaves": {}, "cls_metadata": {"device": "os.system", "names": [], "batch_size": [], "is_locked": false}})",
       corrupt,
       R"(node "": "device": expected a type and optionally an index of at most 127, as in "cuda:0", found "os.system")"},
      {stack("<class 'm.C'>", R"(, "0": )" + node("")), unsupported,
       R"(node "": a tensorclass around a lazy stack cannot be opened: expected "batch_size", found "stack_dim")"},
      {node("", "", "",
            R"(, "v": )" + stack("NonTensorStack", "", R"("0": ["p", [1000000000], null])", "1")),
       unsupported,
       R"(node "v": an entry of a stack of values is repeated too often: expected at most 67108864 bytes in all copies of values, found a dimension of length 1000000000)"},
      {node("", "", "", R"(, "v": )" + stack("NonTensorStack", "", R"("0": ["p", [], null])", "1")),
       corrupt,
       R"(node "v": an entry of a stack of values does not fit: expected at least 1 batch dimensions, found 0)"},
      {node("", "", "",
            R"(, "v": )" +
                stack("NonTensorStack",
                      R"(, "0": )" + stack("NonTensorStack", "", R"("0": [1, [], null])") +
                          R"(, "1": )" + stack("NonTensorStack", ""),
                      "", "1")),
       corrupt,
       R"(node "v": the entries of a stack of values differ in their batch size: expected a dimension of length 1, found 0)"},
      {stack("NonTensorStack", ""), unsupported,
       R"(node "": a stack of values cannot be opened as the root: expected a TensorDict, tensorclass or lazy stack, found "NonTensorStack")"},
  };
  const TemporaryFolder folder;
  const Path path = folder / "file";
  for (const Bad& bad : cases) {
    write_bytes(path, file_of(bad.document));
    EXPECT_EQ(message_of([&] { consolidated::kFormat.open(path, {}); }, bad.code),
              path.string() + ": " + bad.message);
    EXPECT_FALSE(consolidated::kFormat.verify(path, {}).ok());
  }
}

}  // namespace
}  // namespace tenfold::test

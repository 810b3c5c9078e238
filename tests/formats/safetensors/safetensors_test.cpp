#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/fake_source.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/safetensors/support.hpp"
#include "formats/safetensors/tree.hpp"
#include "os/fs/file.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

const Path kName = "m.safetensors";

TensorDict reopened(const TensorDict& tree, const TemporaryFolder& folder,
                    const WriteRequest& request = {}) {
  safetensors::kFormat.check(tree);
  safetensors::kFormat.write(tree, folder / kName, request);
  EXPECT_TRUE(safetensors::kFormat.verify(folder / kName, {}).ok());
  return safetensors::kFormat.open(folder / kName, {});
}

safetensors::Header header_of(const Path& path) {
  const std::string bytes = bytes_of(path);
  const os::File file = os::File::open_read(path);
  const std::string header = safetensors::read_header_bytes(file, bytes.size());
  return safetensors::parse_header(std::string_view(header).substr(8), bytes.size() - header.size(),
                                   path.string());
}

Tensor numbered(DType dtype, Shape shape) {
  Tensor tensor = Tensor::zeros(dtype, std::move(shape));
  std::byte* bytes = tensor.mutable_raw_data();
  const std::uint64_t mask = dtype == DType::bool_ ? 1 : 255;
  for (std::uint64_t i = 0, size = tensor.nbytes(); i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i & mask);
  }
  return tensor;
}

class EveryShape : public testing::TestWithParam<Shape> {};

TEST_P(EveryShape, RoundTripsInEveryDtypeFlatAndInATree) {
  const TemporaryFolder folder;
  for (const NodeKind root : {NodeKind::dict, NodeKind::tensordict}) {
    TensorDict tree(kind(root));
    for (const DType dtype : all_dtypes()) {
      if (!safetensors::name_of_dtype(dtype)) continue;
      if (dtype == DType::float4_e2m1fn_x2 && GetParam().empty()) continue;
      tree.set(to_string(dtype), numbered(dtype, GetParam()));
    }
    EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
  }
}

INSTANTIATE_TEST_SUITE_P(Safetensors, EveryShape,
                         testing::Values(Shape{}, Shape{1}, Shape{7}, Shape{0}, Shape{3, 0, 2},
                                         Shape{2, 3, 4}, Shape{1, 1, 1, 1, 1}),
                         [](const auto& shape) { return "Shape" + std::to_string(shape.index); });

/// A tree with nodes of most kinds, several types of values and unusual keys.
TensorDict rich_tree() {
  TensorDict root(kind(NodeKind::dict));
  root.set("a.b", tensor_of<float>({1, 2}, {2}));
  TensorDict a(kind(NodeKind::ordered_dict));
  a.set("b", tensor_of<std::int32_t>({3}, {1}));
  root.set("a", a);
  TensorDict state(kind(NodeKind::dict, true));
  TensorDict zero(kind(NodeKind::dict));
  zero.set("step", tensor_of<float>({5}, {}));
  zero.set("lr", Value(0.5));
  state.set("0", zero);
  root.set("state", state);
  Value::Object group;
  group.members = {{"betas", Value(Value::Tuple{{Value(0.9), Value(0.999)}})},
                   {"params", Value(Value::List{{Value(0), Value(1)}})}};
  root.set("param_groups", Value(Value::List{{Value(group)}}));
  TensorDict list(kind(NodeKind::list));
  list.set("0", tensor_of<std::uint8_t>({1}, {1}));
  list.set("1", TensorDict(kind(NodeKind::tuple)));
  root.set("list", list);
  TensorDict batched(batch({2, 3}, {"time", std::nullopt}));
  batched.info().device = "cpu";
  batched.set("x", tensor_of<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  Leaf table(tensor_of<float>({7}, {1}));
  table.mark_unbatched();
  batched.set("table", TensorDict::Item(table));
  NonTensor stack{Value(Value::List{{Value("p"), Value("q")}}), true, 0};
  batched.set("labels", TensorDict::Item(stack));
  root.set("batched", batched);
  TensorDict record(batch({2}));
  record.info().kind = NodeKind::tensorclass;
  record.info().class_name = "<class 'm.C'>";
  record.set("x", tensor_of<float>({1, 2}, {2}));
  root.set("record", record);
  root.set("none", Value());
  root.set("", Value("empty key"));
  root.set("per/cent %2F \xC3\xA9 \"quoted\"", tensor_of<float>({9}, {1}));
  root.set("__metadata__", tensor_of<float>({10}, {1}));
  root.set("empty", TensorDict());
  return root;
}

TEST(Safetensors, RoundTripsARichTree) {
  const TemporaryFolder folder;
  const TensorDict tree = rich_tree();
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
  // The tree that was read is written again, from disk to disk.
  const TensorDict again = safetensors::kFormat.open(folder / kName, {});
  safetensors::kFormat.write(again, folder / "copy.safetensors", {});
  EXPECT_EQ(bytes_of(folder / "copy.safetensors"), bytes_of(folder / kName));
}

TEST(Safetensors, TheKindOfAFlatDictRoundTrips) {
  const TemporaryFolder folder;
  for (const bool int_keys : {false, true}) {
    for (const NodeKind root : {NodeKind::dict, NodeKind::ordered_dict}) {
      TensorDict tree(kind(root, int_keys));
      tree.set("10", tensor_of<float>({1}, {1}));
      tree.set("9", tensor_of<float>({2}, {1}));
      EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
      EXPECT_EQ(header_of(folder / kName).metadata_value("tensordict"), nullptr);
    }
  }
}

TEST(Safetensors, TwoKeysWithOneDottedNameAreBothKept) {
  const TemporaryFolder folder;
  reopened(rich_tree(), folder);
  const safetensors::Header header = header_of(folder / kName);
  EXPECT_NE(header.find("a.b"), KeyIndex::kNone);
  EXPECT_NE(header.find("a.b~2"), KeyIndex::kNone);
}

TensorDict lazy(const std::vector<TensorDict>& entries, std::int64_t dim) {
  TensorDict stack(kind(NodeKind::lazy_stack));
  stack.info().stack_dim = dim;
  for (std::size_t i = 0; i < entries.size(); ++i) stack.set(std::to_string(i), entries[i]);
  return stack;
}

TEST(Safetensors, LazyStacksOfOneShapeAreStoredStacked) {
  const TemporaryFolder folder;
  for (const std::int64_t dim : {0, 1, 2}) {
    std::vector<TensorDict> entries;
    for (int i = 0; i < 3; ++i) {
      TensorDict entry(batch({4, 5}, {"u", "v"}));
      std::vector<float> values(4 * 5 * 2);
      for (std::size_t j = 0; j < values.size(); ++j) {
        values[j] = static_cast<float>(100 * i) + static_cast<float>(j);
      }
      entry.set("x", tensor_of<float>(values, {4, 5, 2}));
      entry.set("note", Value("same"));
      TensorDict inner(batch({4, 5}, {"u", "v"}));
      inner.set("y", numbered(DType::int16, {4, 5}));
      entry.set("inner", inner);
      entries.push_back(entry);
    }
    TensorDict stack = lazy(entries, dim);
    stack.info().stack_dim_name = "w";
    TensorDict tree;
    tree.set("stack", stack);
    EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
    Shape shape = {4, 5, 2};
    shape.insert(shape.begin() + dim, 3);
    const safetensors::Header header = header_of(folder / kName);
    const std::uint32_t x = header.find("stack.x");
    ASSERT_NE(x, KeyIndex::kNone);
    EXPECT_EQ(Shape(header.shape(x).begin(), header.shape(x).end()), shape);
  }
}

TEST(Safetensors, LazyStacksOfDifferentShapesAreStoredEntryByEntry) {
  const TemporaryFolder folder;
  TensorDict first(batch({2}));
  first.set("x", tensor_of<float>({1, 2}, {2}));
  TensorDict second(batch({2}));
  second.set("x", tensor_of<float>({1, 2, 3, 4}, {2, 2}));
  second.set("only", Value(1));
  TensorDict tree;
  tree.set("stack", lazy({first, second}, 1));
  tree.set("none", lazy({}, 0));
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
  const safetensors::Header header = header_of(folder / kName);
  for (const char* name : {"stack.0.x", "stack.1.x"}) {
    EXPECT_NE(header.find(name), KeyIndex::kNone) << name;
  }
}

TEST(Safetensors, LazyStacksAlongADimensionThatANestedNodeLacksAreStoredEntryByEntry) {
  const TemporaryFolder folder;
  TensorDict nested;
  nested.set("x", tensor_of<float>({1}, {}));
  TensorDict entry(batch({4}));
  entry.set("nested", nested);
  const TensorDict tree = lazy({entry, entry}, 1);
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
}

TEST(Safetensors, EqualValuesOfALazyStackKeepTheirDifferences) {
  const TemporaryFolder folder;
  const auto stack_of = [](const Value& first, const Value& second) {
    std::vector<TensorDict> entries(2);
    entries[0] = TensorDict(batch({}));
    entries[1] = TensorDict(batch({}));
    entries[0].set("v", first);
    entries[1].set("v", second);
    return lazy(entries, 0);
  };
  const std::vector<TensorDict> trees = {
      stack_of(Value(0.0), Value(-0.0)),
      stack_of(from_json(R"({"a":1,"b":2})", ""), from_json(R"({"b":2,"a":1})", ""))};
  for (const TensorDict& tree : trees) EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
}

TEST(Safetensors, LazyStacksTooLargeToBeReadAsStackedTensorsAreStoredEntryByEntry) {
  TensorDict entry(batch({}));
  for (int i = 0; i < 1024; ++i) entry.set(std::to_string(i), Value(1));
  const TensorDict tree = lazy(std::vector<TensorDict>(1024, entry), 0);
  const auto plan = safetensors::make_plan(tree, false);
  EXPECT_NE(plan.metadata.at("tensordict").find("lazy_stack"), std::string::npos);
}

TEST(Safetensors, TheMetadataOfALazyStackCountsForItsSize) {
  const TemporaryFolder folder;
  // Each KiB of metadata counts as one more entry. A dimension counts as 64 bytes, so an entry with
  // a shape of 501 dimensions counts as 32.
  const Shape many_dims(501, 1);
  const auto is_split = [&](std::size_t count) {
    const TensorDict tree = lazy(std::vector<TensorDict>(count, TensorDict(batch(many_dims))), 0);
    const auto plan = safetensors::make_plan(tree, false);
    return plan.metadata.at("tensordict").find("lazy_stack") != std::string::npos;
  };
  EXPECT_FALSE(is_split(safetensors::kMaxStackItems / 32));
  EXPECT_TRUE(is_split(safetensors::kMaxStackItems / 32 + 1));
  const TensorDict tree = lazy(
      std::vector<TensorDict>(safetensors::kMaxStackItems / 32, TensorDict(batch(many_dims))), 0);
  EXPECT_EQ(reopened(tree, folder).size(), tree.size());
}

TEST(Safetensors, TensorsThatDoNotBeginWithTheBatchSizeAreRefused) {
  TensorDict tree(batch({4}));
  tree.set("x", numbered(DType::int8, {4, 2}));
  Leaf unbatched(numbered(DType::int8, {}));
  unbatched.mark_unbatched();
  tree.set("u", TensorDict::Item(unbatched));
  EXPECT_NO_THROW(safetensors::kFormat.check(tree));
  tree.set("y", numbered(DType::int8, {}));
  const std::string message =
      ": the shape does not fit: expected it to start with the batch_size [4], found []";
  EXPECT_EQ(message_of([&] { safetensors::kFormat.check(tree); }, ErrorCode::unsupported),
            "key \"y\"" + message);
  EXPECT_EQ(message_of([&] { safetensors::kFormat.check(lazy({tree, tree}, 0)); },
                       ErrorCode::unsupported),
            "key \"y\"" + message);
}

TEST(Safetensors, LongRunsOfAStackAreRead) {
  const TemporaryFolder folder;
  std::vector<TensorDict> entries;
  for (int i = 0; i < 2; ++i) {
    TensorDict entry(batch({3}));
    Tensor x = numbered(DType::uint8, {3, 70'001});
    x.mutable_raw_data()[0] = static_cast<std::byte>(i);
    entry.set("x", x);
    entries.push_back(entry);
  }
  TensorDict tree;
  tree.set("stack", lazy(entries, 1));
  const TensorDict opened = reopened(tree, folder);
  EXPECT_EQ(text_of(opened), text_of(tree));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorDict entry = opened["stack"][std::to_string(i)];
    EXPECT_TRUE(read_bytes(std::get<Leaf>(entry.get("x"))) ==
                mapped_bytes(Leaf(entries[i].at("x"))));
  }
}

TEST(Safetensors, AFlatDictIsAPlainFile) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", tensor_of<float>({1}, {1}));
  tree.set("b", tensor_of<float>({2}, {1}));
  WriteRequest request;
  request.checksums = false;
  safetensors::kFormat.write(tree, folder / kName, request);
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
  std::string expected = header + std::string(184 - header.size(), ' ');
  expected = std::string("\xb8\0\0\0\0\0\0\0", 8) + expected;
  expected += std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  EXPECT_EQ(bytes_of(folder / kName), expected);
}

TEST(Safetensors, TensorsAreInTheOrderOfTheReferenceAndAligned) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("z8", numbered(DType::uint8, {3}));
  tree.set("b64", numbered(DType::float64, {1}));
  tree.set("a32", numbered(DType::float32, {1}));
  tree.set("a64", numbered(DType::float64, {1}));
  tree.set("u64", numbered(DType::uint64, {1}));
  tree.set("bool", numbered(DType::bool_, {1}));
  const TensorDict opened = reopened(tree, folder);
  const safetensors::Header header = header_of(folder / kName);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < header.entries.size(); ++i) names.emplace_back(header.name(i));
  EXPECT_EQ(names, (std::vector<std::string>{"u64", "a64", "b64", "a32", "z8", "bool"}));
  EXPECT_EQ(header.data_offset % 64, 0U);
  EXPECT_EQ(opened.keys(), tree.keys()) << "the order of the dict is stored separately";
}

TEST(Safetensors, AnInconsistentOrderIsIgnoredWithAWarning) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("b", tensor_of<float>({1}, {1}));
  tree.set("a", tensor_of<float>({1}, {1}));
  WriteRequest request;
  request.checksums = false;
  safetensors::kFormat.write(tree, folder / kName, request);
  std::string bytes = bytes_of(folder / kName);
  const std::size_t at = bytes.find("\"1 0\"");
  ASSERT_NE(at, std::string::npos);
  for (const char* wrong : {"1 1", "1 2", "1x0", "  1"}) {
    bytes.replace(at + 1, 3, wrong);
    write_bytes(folder / kName, bytes);
    const Warnings warnings;
    EXPECT_EQ(safetensors::kFormat.open(folder / kName, {}).keys(),
              (std::vector<std::string>{"a", "b"}));
    ASSERT_EQ(Warnings::messages().size(), 1U) << wrong;
    EXPECT_EQ(Warnings::messages()[0],
              (folder / kName).string() +
                  ": __metadata__ \"tenfold_order\": ignored: expected each of 2 positions once, "
                  "found others; another tool may have changed the file");
  }
}

TEST(Safetensors, SharedTensorsOfAFlatDictAreStoredOnceUnderTheFirstName) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1, 2, 3}, {3});
  TensorDict tree(kind(NodeKind::dict));
  tree.set("head", shared);
  tree.set("other", tensor_of<float>({4}, {1}));
  tree.set("embed", shared);
  const TensorDict opened = reopened(tree, folder);
  EXPECT_EQ(text_of(opened), text_of(tree));
  EXPECT_EQ(opened.at("head").raw_data(), opened.at("embed").raw_data());
  const safetensors::Header header = header_of(folder / kName);
  EXPECT_EQ(header.entries.size(), 2U);
  ASSERT_NE(header.metadata_value("head"), nullptr);
  EXPECT_EQ(*header.metadata_value("head"), "embed");
}

TEST(Safetensors, MetadataOfTheUserIsKeptUnderTheNameOfATensor) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1}, {1});
  const std::map<std::string, std::string> metadata = {{"a", "hello"}, {"b", "a"}, {"m", "x"}};
  for (const bool has_alias : {false, true}) {
    TensorDict tree(kind(NodeKind::dict));
    tree.set("a", shared);
    tree.set("b", tensor_of<float>({2}, {1}));
    if (has_alias) tree.set("tied", shared);
    tree.info().metadata = metadata;
    const TensorDict opened = reopened(tree, folder);
    EXPECT_EQ(opened.info().metadata, metadata);
    EXPECT_EQ(opened.keys(), tree.keys());
    EXPECT_EQ(header_of(folder / kName).metadata_value("tensordict"), nullptr);
  }
}

TEST(Safetensors, MetadataOfTheUserThatNamesAnAliasDoesNotChangeTheOrder) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1}, {1});
  TensorDict tree(kind(NodeKind::dict));
  for (const char* key : {"z", "n", "a"}) tree.set(key, shared);
  tree.info().metadata = {{"o", "n"}};
  const Warnings warnings;
  const TensorDict opened = reopened(tree, folder);
  EXPECT_EQ(opened.keys(), tree.keys());
  EXPECT_EQ(opened.info().metadata, tree.info().metadata);
  EXPECT_TRUE(Warnings::messages().empty());
}

TEST(Safetensors, SharedTensorsOfATreeAreStoredOnce) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1, 2, 3, 4}, {4});
  TensorDict tree;
  tree.set("a", shared);
  TensorDict inner;
  inner.set("b", shared);
  tree.set("inner", inner);
  tree.set("seen otherwise", Tensor(DType::float32, {2, 2}, shared.buffer()));
  const TensorDict opened = reopened(tree, folder);
  EXPECT_EQ(text_of(opened), text_of(tree));
  EXPECT_EQ(opened.at("a").raw_data(), opened.at("inner", "b").raw_data());
  EXPECT_EQ(header_of(folder / kName).entries.size(), 2U);
}

TEST(Safetensors, AnAliasNamedLikeAMemberOfTheMetadataRoundTrips) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1}, {1});
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", shared);
  tree.set("format", shared);
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
}

TEST(Safetensors, StridedTensorsAreWrittenContiguously) {
  const TemporaryFolder folder;
  const Tensor base = numbered(DType::int16, {4, 6});
  TensorDict tree(kind(NodeKind::dict));
  tree.set("t", Tensor(DType::int16, {6, 4}, {1, 6}, base.buffer(), 0));
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
}

TEST(Safetensors, UnsupportedEntriesAreRefusedByKeyBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const auto message = [&](const TensorDict& tree) {
    const std::string checked =
        message_of([&] { safetensors::kFormat.check(tree); }, ErrorCode::unsupported);
    EXPECT_EQ(message_of([&] { safetensors::kFormat.write(tree, folder / kName, {}); },
                         ErrorCode::unsupported),
              checked);
    EXPECT_EQ(message_of([&] { safetensors::kShardedFormat.check(tree); }, ErrorCode::unsupported),
              checked);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return checked;
  };
  TensorDict inner;
  inner.set("z", numbered(DType::complex128, {2}));
  TensorDict tree;
  tree.set("m", inner);
  EXPECT_EQ(message(tree),
            "key \"m.z\": the dtype cannot be stored: expected one that safetensors "
            "has, found complex128; save in the format \"memmap\", which supports it");
  TensorDict half(kind(NodeKind::dict));
  half.set("z", numbered(DType::complex32, {2}));
  EXPECT_EQ(message(half),
            "key \"z\": the dtype cannot be stored: expected one that safetensors "
            "has, found complex32; save in the format \"memmap\", which supports it");
  TensorDict nested;
  nested.set("n", TensorDict::Item(Leaf::nested(tensor_of<float>({1, 2, 3}, {3}),
                                                tensor_of<std::int64_t>({1, 2}, {2, 1}))));
  EXPECT_EQ(message(nested),
            "key \"n\": a nested tensor cannot be stored: expected a dense tensor, found "
            "a nested tensor of 2 components; save in the format \"memmap\", which supports it");
  TensorDict text(kind(NodeKind::dict));
  text.set("\xff", tensor_of<float>({1}, {1}));
  EXPECT_EQ(message(text),
            "key \"\\xff\": a key that is not UTF-8 cannot be stored: expected UTF-8, "
            "found other bytes");
  TensorDict scalar;
  scalar.set("f4", numbered(DType::float4_e2m1fn_x2, {}));
  EXPECT_EQ(message(scalar),
            "key \"f4\": a float4_e2m1fn_x2 tensor without dimensions cannot be "
            "stored: expected at least one dimension, found none");
  TensorDict wide;
  wide.set("f4", numbered(DType::float4_e2m1fn_x2, {0, std::int64_t{1} << 62}));
  EXPECT_EQ(message(wide),
            "key \"f4\": a float4_e2m1fn_x2 tensor of this shape cannot be stored: expected a last "
            "dimension of at most 4611686018427387903, found 4611686018427387904");
}

TEST(Safetensors, TreesNestAsDeepAsTheStructureDocumentCanBeRead) {
  const TemporaryFolder folder;
  const auto refused = [](const TensorDict& tree) {
    return message_of([&] { safetensors::kFormat.check(tree); }, ErrorCode::unsupported);
  };
  const std::string problem = "nested too deeply: expected at most 512 levels of json, found more";
  TensorDict tree(kind(NodeKind::dict));
  tree.set("x", tensor_of<float>({1}, {1}));
  const auto nested = [](const TensorDict& inner) {
    TensorDict outer(kind(NodeKind::dict));
    outer.set("a", inner);
    return outer;
  };
  for (int i = 0; i < 169; ++i) tree = nested(tree);
  EXPECT_EQ(text_of(reopened(tree, folder)), text_of(tree));
  const std::string message = refused(nested(tree));
  EXPECT_TRUE(message.starts_with("key \"a.a.")) << message;
  EXPECT_NE(message.find(problem), std::string::npos) << message;

  Value list(1);
  for (int i = 0; i < 508; ++i) list = Value(Value::List{{list}});
  TensorDict values(kind(NodeKind::dict));
  values.set("v", list);
  EXPECT_EQ(text_of(reopened(values, folder)), text_of(values));
  values.set("v", Value(Value::List{{list}}));
  EXPECT_EQ(refused(values),
            "key \"v\": " + problem + "; save as a folder, which supports deeper nesting");
}

TEST(Safetensors, RefusesZerosAndModeWriteThrough) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", tensor_of<float>({1}, {1}));
  WriteRequest zeros;
  zeros.zeros = true;
  message_of([&] { safetensors::kFormat.write(tree, folder / kName, zeros); },
             ErrorCode::unsupported);
  safetensors::kFormat.write(tree, folder / kName, {});
  EXPECT_EQ(message_of([&] { safetensors::kFormat.open(folder / kName, {Mode::write_through}); },
                       ErrorCode::unsupported),
            (folder / kName).string() +
                ": mode: a safetensors file cannot be changed in place: expected \"r\" or \"c\", "
                "found \"r+\"; save it as a memmap folder");
}

TEST(Safetensors, WritesToAMappedTensorStayInMemory) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", tensor_of<float>({1, 2}, {2}));
  const TensorDict opened = reopened(tree, folder);
  const std::string before = bytes_of(folder / kName);
  opened.at("a").mutable_data<float>()[0] = 7;
  EXPECT_EQ(opened.at("a").data<float>()[0], 7) << "the same mapping";
  EXPECT_EQ(bytes_of(folder / kName), before);
}

TEST(Safetensors, AnOpenedFileKeepsItsBytesWhenItIsReplaced) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", tensor_of<float>({1, 2}, {2}));
  const TensorDict opened = reopened(tree, folder);
  TensorDict other(kind(NodeKind::dict));
  other.set("a", tensor_of<float>({8}, {1}));
  safetensors::kFormat.write(other, folder / kName, {});
  EXPECT_EQ(text_of(opened), text_of(tree)) << "first read after the replacement";
  EXPECT_EQ(text_of(safetensors::kFormat.open(folder / kName, {})), text_of(other));
}

TEST(Safetensors, ATreeMayBeSavedOverTheFileItWasReadFrom) {
  const TemporaryFolder folder;
  const TensorDict tree = rich_tree();
  const TensorDict opened = reopened(tree, folder);
  safetensors::kFormat.write(opened, folder / kName, {});
  EXPECT_EQ(text_of(safetensors::kFormat.open(folder / kName, {})), text_of(tree));
}

TEST(Safetensors, ATruncatedFileIsAnErrorWithoutACrash) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", numbered(DType::float32, {5000}));
  const TensorDict opened = reopened(tree, folder);
  std::filesystem::resize_file(folder / kName, 1000);
  message_of([&] { opened.at("a"); }, ErrorCode::corrupt);
  message_of([&] { read_bytes(std::get<Leaf>(opened.get("a"))); }, ErrorCode::corrupt);
}

TEST(Safetensors, NonRegularFilesAreRefusedWithoutBlocking) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(safetensors::kFormat.probe(folder / "fifo"));
  message_of([&] { safetensors::kFormat.open(folder / "fifo", {}); }, ErrorCode::corrupt);
  message_of([&] { safetensors::kFormat.open(folder / "none", {}); }, ErrorCode::file_not_found);
  message_of([&] { safetensors::kFormat.verify(folder / "none", {}); }, ErrorCode::file_not_found);
}

TEST(Safetensors, TenThousandTensorsRoundTrip) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  for (int i = 0; i < 10'000; ++i) {
    tree.set("layers." + std::to_string(i) + ".weight", tensor_of<std::int32_t>({i}, {1}));
  }
  const TensorDict opened = reopened(tree, folder);
  EXPECT_EQ(opened.keys(), tree.keys());
  EXPECT_EQ(opened.at("layers.9876.weight").data<std::int32_t>()[0], 9876);
}

TEST(Safetensors, LargeTensorsHaveOneChecksumForEach16MiB) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("big", numbered(DType::uint8, {(std::int64_t{40} << 20) + 1}));
  tree.set("small", numbered(DType::uint8, {3}));
  safetensors::kFormat.write(tree, folder / kName, {});
  const VerifyReport whole = safetensors::kFormat.verify(folder / kName, {});
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(whole.num_checksums, 1U + 3U + 1U);
  std::string bytes = bytes_of(folder / kName);
  const std::size_t data_at = bytes.size() - ((std::size_t{40} << 20) + 4);
  bytes[data_at + (std::size_t{17} << 20)] ^= 1;
  write_bytes(folder / kName, bytes);
  const VerifyReport damaged = safetensors::kFormat.verify(folder / kName, {});
  ASSERT_EQ(damaged.problems.size(), 1U);
  EXPECT_EQ(damaged.problems[0].path, (folder / kName).string());
  EXPECT_EQ(damaged.problems[0].part, "tensor \"big\"");
}

TEST(Safetensors, NotesMadeStaleByAnotherToolAreIgnoredWithAWarning) {
  const TemporaryFolder folder;
  TensorDict list(kind(NodeKind::list));
  list.set("0", tensor_of<float>({1}, {1}));
  TensorDict tree;
  tree.set("list", list);
  WriteRequest request;
  request.checksums = false;
  safetensors::kFormat.write(tree, folder / kName, request);
  std::string bytes = bytes_of(folder / kName);
  for (const std::string from : {"{\\\"0\\\": {\\\"tensor", "list.0\\\"}", "\"list.0\":"}) {
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes[at + from.find('0')] = '7';
  }
  write_bytes(folder / kName, bytes);
  const Warnings warnings;
  const TensorDict opened = safetensors::kFormat.open(folder / kName, {});
  EXPECT_EQ(opened["list"].kind(), NodeKind::tensordict);
  EXPECT_EQ(Warnings::messages().size(), 1U);
}

}  // namespace
}  // namespace tenfold::test

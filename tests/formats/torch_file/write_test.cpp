#include "formats/torch_file/write.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"
#include "support/pickled.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;

Tensor counting(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return tensor_of(std::move(values), {count});
}

TensorDict opened(const TensorDict& tree, const Path& path) {
  torch_file::kFormat.write(tree, path, {});
  const VerifyReport report = torch_file::kFormat.verify(path, {});
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.problems[0].what);
  return torch_file::kFormat.open(path, {});
}

Leaf leaf_in(const TensorDict& tree, const std::string& key) {
  return std::get<Leaf>(tree.get(key));
}

codecs::ZipDirectory directory_of(const Path& path, const std::string& bytes) {
  return codecs::read_zip_directory(
      codecs::zip_input(path.string(), std::as_bytes(std::span(bytes))), {});
}

std::vector<std::string> records_of(const Path& path) {
  std::vector<std::string> names;
  for (const codecs::ZipEntry& entry : directory_of(path, bytes_of(path)).entries) {
    EXPECT_EQ(entry.data_offset % 64, 0U) << entry.name;
    EXPECT_EQ(entry.method, codecs::ZipMethod::stored);
    names.push_back(entry.name);
  }
  return names;
}

TEST(TorchFileWrite, RoundTripsContainersValuesAndEveryDtype) {
  TensorDict tree(kind(NodeKind::ordered_dict));
  TensorDict ints(kind(NodeKind::dict, true));
  ints.set("-7", counting(3));
  ints.set("36893488147419103232", Value("beyond 64 bits"));
  TensorDict list(kind(NodeKind::list));
  list.set("0", counting(2));
  list.set("1", Value(Value::Tuple{{Value(1), Value(), Value(0.5)}}));
  TensorDict tuple(kind(NodeKind::tuple));
  tuple.set("0", Tensor::zeros(DType::bool_, {0, 3}));
  tree.set("ints", ints);
  tree.set("list", list);
  tree.set("tuple", tuple);
  Value::Object object;
  object.ordered = true;
  object.members.emplace_back("big",
                              Value(Value::BigInt{"-170141183460469231731687303715884105729"}));
  object.members.emplace_back("nan", Value(std::nan("")));
  tree.set("object", Value(object));
  tree.set("scalar", Tensor::zeros(DType::float64, {}));
  for (const DType dtype : all_dtypes()) {
    tree.set("as " + to_string(dtype), Tensor::zeros(dtype, {2, 2}));
  }
  const TemporaryFolder folder;
  EXPECT_EQ(text_of(opened(tree, folder / "m.pt")), text_of(tree));
}

TEST(TorchFileWrite, NotesRestorePropertiesThatAPickleCannotExpress) {
  TensorDict tree(batch({2}, {{"time"}}));
  tree.info().metadata = {{"author", "me"}};
  tree.set("x", Tensor::zeros(DType::int16, {2, 3}));
  Leaf table(counting(5));
  table.mark_unbatched();
  tree.set("table", TensorDict::Item(table));
  tree.set("texts",
           TensorDict::Item(NonTensor{Value(Value::List{{Value("a"), Value("b")}}), true, 0}));
  NodeInfo inner = batch({2});
  inner.kind = NodeKind::tensorclass;
  inner.class_name = "<class 'm.C'>";
  inner.device = "cpu";
  tree.set("empty/%", TensorDict(inner));
  TensorDict stack(kind(NodeKind::lazy_stack));
  stack.info().stack_dim = 1;
  stack.info().stack_dim_name = "s";
  for (const char* key : {"0", "1"}) {
    TensorDict part(batch({2}));
    part.set("y", Tensor::zeros(DType::uint8, {2, 4}));
    stack.set(key, part);
  }
  tree.set("stack", stack);
  const TemporaryFolder folder;
  const TensorDict found = opened(tree, folder / "m.pt");
  EXPECT_EQ(text_of(found), text_of(tree));
  EXPECT_EQ(found.info().metadata, tree.info().metadata);
  EXPECT_EQ(records_of(folder / "m.pt").back(), "m/tenfold.json");
}

TEST(TorchFileWrite, APlainTreeHasNoNotes) {
  TensorDict tree(kind(NodeKind::dict));
  tree.set("x", counting(1));
  const TemporaryFolder folder;
  torch_file::kFormat.write(tree, folder / "a model.pt", {});
  EXPECT_EQ(records_of(folder / "a model.pt"),
            (std::vector<std::string>{"a model/data.pkl", "a model/byteorder", "a model/data/0",
                                      "a model/version"}));
  torch_file::kFormat.write(tree, folder / "\u96ea.pt", {});
  EXPECT_EQ(records_of(folder / "\u96ea.pt").front(), "archive/data.pkl");
}

TEST(TorchFileWrite, SharedTensorsAndViewsUseOneRecord) {
  const Tensor whole = counting(12);
  TensorDict tree(kind(NodeKind::dict));
  tree.set("whole", whole);
  tree.set("tied", whole);
  tree.set("rows", Tensor(DType::float32, {2, 2}, {4, 1}, whole.buffer(), 16));
  tree.set("bits", Tensor(DType::int32, {3}, {1}, whole.buffer(), 8));
  tree.set("apart", counting(12));
  const TemporaryFolder folder;
  const TensorDict found = opened(tree, folder / "m.pt");
  EXPECT_EQ(text_of(found), text_of(tree));
  EXPECT_EQ(records_of(folder / "m.pt").size(), 5U);
  const Tensor shared = found.at("whole");
  const float* begin = shared.data<float>();
  EXPECT_EQ(found.at("tied").data<float>(), begin);
  EXPECT_EQ(found.at("rows").data<float>(), begin + 4);
  EXPECT_EQ(found.at("rows").strides(), (Shape{4, 1}));
  EXPECT_EQ(static_cast<const void*>(found.at("bits").raw_data()), begin + 2);
  EXPECT_EQ(stored_range(leaf_in(found, "whole")), stored_range(leaf_in(found, "tied")));

  // Leaves that are at the same place in a file share storage, and are written once.
  const TensorDict again = opened(found, folder / "again.pt");
  EXPECT_EQ(again.at("tied").raw_data(), again.at("whole").raw_data());
}

TEST(TorchFileWrite, AViewIsStoredWithoutTheRestOfItsStorage) {
  const Tensor whole = counting(10'000);
  TensorDict tree(kind(NodeKind::dict));
  tree.set("column", Tensor(DType::float32, {100}, {100}, whole.buffer(), 0));
  tree.set("transposed", Tensor(DType::float32, {10, 20}, {1, 10}, counting(200).buffer(), 0));
  tree.set("expanded", Tensor(DType::float32, {50, 2}, {0, 1}, counting(2).buffer(), 0));
  tree.set("none", Tensor(DType::float32, {0, 2}, {9, 9}, counting(2).buffer(), 0));
  const TemporaryFolder folder;
  const TensorDict found = opened(tree, folder / "m.pt");
  EXPECT_EQ(text_of(found), text_of(tree));
  EXPECT_EQ(found.at("column").strides(), Shape{1});
  EXPECT_EQ(found.at("transposed").strides(), (Shape{1, 10}));
  EXPECT_EQ(found.at("expanded").strides(), (Shape{0, 1}));
  const std::string bytes = bytes_of(folder / "m.pt");
  const codecs::ZipDirectory directory = directory_of(folder / "m.pt", bytes);
  const auto size = [&](const char* name) { return directory.find(name)->size_bytes; };
  EXPECT_EQ(size("m/data/0"), 400U);
  EXPECT_EQ(size("m/data/1"), 800U);
  EXPECT_EQ(size("m/data/2"), 8U);
  EXPECT_EQ(size("m/data/3"), 0U);
}

TEST(TorchFileWrite, ARepeatedNodeIsPickledOnce) {
  TensorDict shared(kind(NodeKind::dict));
  shared.set("x", counting(4));
  TensorDict tree(kind(NodeKind::list));
  tree.set("0", shared);
  tree.set("1", shared);
  const TemporaryFolder folder;
  EXPECT_EQ(text_of(opened(tree, folder / "m.pt")), text_of(tree));
  EXPECT_EQ(records_of(folder / "m.pt").size(), 4U);
  // Two nodes with the same tensor need more bytes in the pickle than one node under two keys.
  TensorDict copy(kind(NodeKind::dict));
  copy.set("x", shared.at("x"));
  tree.set("1", copy);
  torch_file::kFormat.write(tree, folder / "copy/m.pt", {});
  const auto pickle_bytes = [](const Path& path) {
    return directory_of(path, bytes_of(path)).find("m/data.pkl")->size_bytes;
  };
  EXPECT_LT(pickle_bytes(folder / "m.pt"), pickle_bytes(folder / "copy/m.pt"));
}

std::string complaint(const TensorDict& tree) {
  const TemporaryFolder folder;
  const Path path = folder / "m.pt";
  const std::string checked =
      message_of([&] { torch_file::kFormat.check(tree); }, ErrorCode::unsupported);
  EXPECT_EQ(message_of([&] { torch_file::kFormat.write(tree, path, {}); }, ErrorCode::unsupported),
            checked);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return checked;
}

TEST(TorchFileWrite, EntriesThatTorchCannotLoadAreRefusedByKeyBeforeWriting) {
  TensorDict inner(kind(NodeKind::dict));
  TensorDict tree(kind(NodeKind::dict));
  tree.set("a", inner);
  inner.set("n", TensorDict::Item(Leaf::nested(Tensor::zeros(DType::int8, {0}),
                                               Tensor::zeros(DType::int64, {2, 1}))));
  EXPECT_THAT(complaint(tree), HasSubstr("key \"a.n\": a nested tensor cannot be stored"));
  inner.set("n", Tensor::zeros(DType::int8, Shape(65, 1)));
  EXPECT_THAT(complaint(tree),
              HasSubstr("key \"a.n\": too many dimensions: expected at most 64, found 65"));
  inner.set("n", Value(Value::BigInt{std::string(700, '9')}));
  EXPECT_THAT(complaint(tree),
              HasSubstr("key \"a.n\": an integer that torch cannot load: "
                        "expected one from -2^2039 to 2^2039 - 1, found one of 700 digits"));
  inner.set("n", Value(Value::List{{Value("\xed\xa0\x80")}}));
  EXPECT_THAT(complaint(tree), HasSubstr("key \"a.n.0\": a string cannot be stored"));
  inner.set("n", Value("\xff"));
  EXPECT_THAT(complaint(tree), HasSubstr("key \"a.n\": a string cannot be stored"));
  inner.set("n", Value(0));
  inner.set("\xff", Value(0));
  EXPECT_THAT(complaint(tree), HasSubstr("a key that is not UTF-8 cannot be stored"));
}

TEST(TorchFileWrite, RefusesAPickleOfMoreValuesThanReadersAccept) {
  const std::string pickle = pickled::whole(
      pickled::list({pickled::integer(1000), pickled::integer(1001), pickled::integer(1002)}));
  EXPECT_NO_THROW(torch_file::check_pickle(pickle, {.max_nodes = 4}));
  EXPECT_THAT(message_of([&] { torch_file::check_pickle(pickle, {.max_nodes = 3}); },
                         ErrorCode::unsupported),
              HasSubstr("record \"data.pkl\": too many values: expected at most 3, found more"));
}

TEST(TorchFileWrite, ATreeThatContainsItselfIsRefused) {
  TensorDict tree(kind(NodeKind::dict));
  tree.set("self", tree);
  EXPECT_THAT(message_of([&] { torch_file::kFormat.check(tree); }, ErrorCode::unsupported),
              HasSubstr("nested too deeply: expected at most 512 levels"));
  tree.set("self", Value());  // otherwise it would keep itself alive
}

TEST(TorchFileWrite, ATreeOfMaximumDepthRoundTrips) {
  TensorDict tree(kind(NodeKind::ordered_dict));
  TensorDict deepest = tree;
  for (int depth = 1; depth < 512; ++depth) {
    TensorDict next(kind(NodeKind::ordered_dict));
    deepest.set("d", next);
    deepest = next;
  }
  deepest.set("x", counting(1));
  const TemporaryFolder folder;
  EXPECT_EQ(text_of(opened(tree, folder / "m.pt")), text_of(tree));
}

}  // namespace
}  // namespace tenfold::test

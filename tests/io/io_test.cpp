#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "io/registry.hpp"
#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::counting;
using test::difference;
using test::node_of;
using test::sample_checkpoint;
using test::sample_state_dict;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

/// The name of a file or folder, and the format that save() derives from the name.
struct Form {
  std::string label;
  std::string file_name;
  std::string format;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.file_name; }

class FoldersAndSafetensors : public testing::TestWithParam<Form> {
 protected:
  Path saved(const TensorDict& tree) { return save(tree, folder_ / GetParam().file_name); }

  test::TemporaryFolder folder_;
};

TEST_P(FoldersAndSafetensors, RoundTripsACheckpoint) {
  const Path path = saved(sample_checkpoint());
  EXPECT_EQ(probe(path), GetParam().format);
  EXPECT_EQ(difference(sample_checkpoint(), open(path)), "");
  EXPECT_EQ(difference(sample_checkpoint(), load(path)), "");
}

TEST_P(FoldersAndSafetensors, RoundTripsAStateDict) {
  EXPECT_EQ(difference(sample_state_dict(), load(saved(sample_state_dict()))), "");
}

TEST_P(FoldersAndSafetensors, RoundTripsEveryDtypeAndShape) {
  TensorDict tree = node_of(NodeKind::dict);
  for (const DType dtype : all_dtypes()) {
    // safetensors has no dtype names for complex32 and complex128. A float4_e2m1fn_x2 element is
    // two numbers, which safetensors counts along the last dimension. A scalar has no dimension.
    const bool narrow = GetParam().format == "safetensors";
    if (narrow && (dtype == DType::complex32 || dtype == DType::complex128)) continue;
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{5, 3}}) {
      if (narrow && dtype == DType::float4_e2m1fn_x2 && shape.empty()) continue;
      Tensor tensor = Tensor::zeros(dtype, shape);
      for (std::uint64_t i = 0; i < tensor.nbytes(); ++i) {
        // The bits are arbitrary, except that the bytes of bool are 0 or 1.
        const auto byte = static_cast<unsigned char>(i * 37 + 11);
        tensor.mutable_raw_data()[i] =
            std::byte{dtype == DType::bool_ ? static_cast<unsigned char>(byte & 1) : byte};
      }
      tree.set(to_string(dtype) + "_" + std::to_string(shape.size()) +
                   (numel_of(shape) == 0 ? "_empty" : ""),
               tensor);
    }
  }
  EXPECT_EQ(difference(tree, load(saved(tree))), "");
}

TEST_P(FoldersAndSafetensors, KeepsSharedStorage) {
  const Path path = saved(sample_checkpoint());
  const TensorDict tied = load(path);
  EXPECT_EQ(tied.at("model", "embed.weight").raw_data(),
            tied.at("model", "head.weight").raw_data());
  const TensorDict untied = load(path, {.aliases = false});
  EXPECT_NE(untied.at("model", "embed.weight").raw_data(),
            untied.at("model", "head.weight").raw_data());
  EXPECT_EQ(difference(tied, untied), "");
}

TEST_P(FoldersAndSafetensors, LoadsOnlyTheRequestedKeys) {
  const Path path = saved(sample_checkpoint());
  const TensorDict some = load(path, {.keys = {{"model.*.weight"}, {"optimizer", "lr"}}});
  EXPECT_THAT(some.keys(), ElementsAre("model", "optimizer"));
  EXPECT_THAT(some["model"].keys(), ElementsAre("embed.weight", "head.weight"));
  EXPECT_THAT(some["optimizer"].keys(), ElementsAre("lr"));
  EXPECT_EQ(some.kind(), NodeKind::dict);
  EXPECT_EQ(some["model"].kind(), NodeKind::ordered_dict);
}

TEST_P(FoldersAndSafetensors, SuggestsSimilarKeysForAMissingKey) {
  const Path path = saved(sample_checkpoint());
  const auto thrown = thrown_by([&] { load(path, {.keys = {"model.head.wieght"}}); });
  EXPECT_EQ(thrown.code, ErrorCode::key_not_found);
  EXPECT_THAT(thrown.message, HasSubstr("no key \"model.head.wieght\""));
  EXPECT_THAT(thrown.message, HasSubstr("did you mean \"model.head.weight\""));
}

TEST_P(FoldersAndSafetensors, WritesToALoadedTreeDoNotChangeTheFile) {
  const Path path = saved(sample_checkpoint());
  Tensor bias = load(path).at("model", "head.bias");
  bias.mutable_data<float>()[0] = -1;
  EXPECT_EQ(load(path).at("model", "head.bias").data<float>()[0], 100);
}

TEST_P(FoldersAndSafetensors, WritesThroughInModeRPlusOrRefuses) {
  const Path path = saved(sample_state_dict());
  if (GetParam().format == "safetensors") {
    const auto thrown = thrown_by([&] { load(path, {.mode = Mode::write_through}); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported);
    EXPECT_THAT(thrown.message, HasSubstr("memmap folder"));
    return;
  }
  {
    const TensorDict tree = load(path, {.mode = Mode::write_through});
    tree.at("encoder.bias").mutable_data<float>()[1] = -1;
    tree.flush();
  }
  EXPECT_EQ(load(path).at("encoder.bias").data<float>()[1], -1);
}

TEST_P(FoldersAndSafetensors, RefusesToOverwriteOnRequest) {
  const Path path = saved(sample_state_dict());
  const auto thrown = thrown_by([&] { save(sample_checkpoint(), path, {.overwrite = false}); });
  EXPECT_EQ(thrown.code, ErrorCode::io);
  EXPECT_EQ(thrown.system_errno, EEXIST);
  EXPECT_EQ(difference(sample_state_dict(), load(path)), "");
}

TEST_P(FoldersAndSafetensors, ReplacesAFileWhileReadersKeepTheOldOne) {
  const Path path = saved(sample_state_dict());
  const Tensor old = open(path).at("encoder.weight");
  TensorDict changed = node_of(NodeKind::dict);
  changed.set("encoder.weight", counting({3, 4}, 1000));
  save(changed, path);
  EXPECT_EQ(bytes_of(old), bytes_of(counting({3, 4})));
  EXPECT_EQ(difference(changed, load(path)), "");
}

TEST_P(FoldersAndSafetensors, VerifiesSavedFiles) {
  const VerifyReport report = verify(saved(sample_checkpoint()));
  EXPECT_TRUE(report.ok()) << report.problems.front().what;
  EXPECT_GE(report.num_leaves, 3U);
  EXPECT_GT(report.num_checksums, 0U);
  EXPECT_GT(report.num_bytes, 0U);
}

TEST_P(FoldersAndSafetensors, LoadsAnUndamagedFileWithVerify) {
  EXPECT_EQ(difference(sample_checkpoint(), load(saved(sample_checkpoint()), {.verify = true})),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Formats, FoldersAndSafetensors,
    testing::Values(Form{"Memmap", "tree", "memmap"}, Form{"UnknownSuffix", "run.1", "memmap"},
                    Form{"Safetensors", "tree.safetensors", "safetensors"},
                    Form{"Sharded", "tree.safetensors.index.json", "safetensors"}),
    [](const auto& form) { return form.param.label; });

TEST(Folders, AWriteToASharedTensorIsReadAndSavedThroughItsAlias) {
  const test::TemporaryFolder folder;
  for (const char* name : {"tree", "tree.tdz"}) {
    save(sample_checkpoint(), folder / name);
    const TensorDict tree = open(folder / name, {.mode = Mode::copy_on_write});
    tree.at("model", "embed.weight").mutable_data<float>()[0] = -1;
    float first = 0;
    std::get<Leaf>(tree["model"].get("head.weight"))
        .read(0, std::as_writable_bytes(std::span(&first, 1)));
    EXPECT_EQ(first, -1) << name;
    for (const char* copy : {"copy", "copy.tdz", "copy.safetensors"}) {
      save(tree, folder / copy);
      const TensorDict read = load(folder / copy);
      EXPECT_EQ(read.at("model", "embed.weight").data<float>()[0], -1) << name << copy;
      EXPECT_EQ(read.at("model", "head.weight").data<float>()[0], -1) << name << copy;
    }
  }
}

/// Changes one byte of the file.
void damage(const Path& file, std::uint64_t offset_bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset_bytes));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(offset_bytes));
  stream.put(static_cast<char>(byte ^ 0x10));
  ASSERT_TRUE(stream.good());
}

TEST(Save, NamesThePathAndTheValueThatIsNotUtf8) {
  const test::TemporaryFolder folder;
  for (const std::string name : {"folder", "m.safetensors", "a.tdz"}) {
    TensorDict tree = sample_state_dict();
    tree.set("text", Value("ab\xff"));
    const auto thrown = thrown_by([&] { save(tree, folder / name); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
    EXPECT_THAT(thrown.message, testing::StartsWith((folder / name).string() + ": "));
    EXPECT_THAT(thrown.message, HasSubstr("string \"ab\\xff\": cannot be encoded"));
  }
}

TEST(Load, WithVerifyThrowsTheFirstProblem) {
  const test::TemporaryFolder folder;
  const Path path = save(sample_state_dict(), folder / "m.safetensors");
  damage(path, std::filesystem::file_size(path) - 3);
  const auto thrown = thrown_by([&] { load(path, {.verify = true}); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
  EXPECT_THAT(thrown.message, HasSubstr("m.safetensors"));
  EXPECT_NO_THROW(load(path));
}

TEST(Verify, ReportsDamageAndDoesNotThrow) {
  const test::TemporaryFolder folder;
  const Path file = save(sample_state_dict(), folder / "m.safetensors");
  damage(file, 2);  // the length of the header
  EXPECT_FALSE(verify(file).ok());
  std::filesystem::resize_file(file, 0);
  EXPECT_FALSE(verify(file).ok());
  const Path tree = save(sample_state_dict(), folder / "tree");
  std::filesystem::resize_file(tree / "meta.json", 5);
  EXPECT_FALSE(verify(tree).ok());
  std::filesystem::remove(tree / "meta.json");
  EXPECT_FALSE(verify(tree).ok());
}

TEST(Verify, ThrowsForAMissingPath) {
  const auto thrown = thrown_by([] { verify("/nowhere/at/all"); });
  EXPECT_EQ(thrown.code, ErrorCode::file_not_found);
}

TEST(Memmap, ReturnsTensorsThatWriteThrough) {
  const test::TemporaryFolder folder;
  TensorDict tree;
  tree.set("x", counting({3, 4}));
  const TensorDict mapped = memmap(tree, folder / "buffer");
  mapped.at("x").mutable_data<float>()[5] = -5;
  EXPECT_EQ(load(folder / "buffer").at("x").data<float>()[5], -5);
  EXPECT_EQ(tree.at("x").data<float>()[5], 5);
  EXPECT_EQ(verify(folder / "buffer").num_checksums, 0U);
}

TEST(MemmapLike, CreatesZerosOfTheSameTypes) {
  const test::TemporaryFolder folder;
  TensorDict tree;
  tree.set("x", counting({3, 4}));
  const TensorDict zeros = memmap(tree, folder / "buffer", {.zeros = true});
  EXPECT_EQ(zeros.at("x").shape(), (Shape{3, 4}));
  EXPECT_EQ(bytes_of(zeros.at("x")), std::string(48, '\0'));
  zeros.at("x").mutable_data<float>()[11] = 1;
  EXPECT_EQ(load(folder / "buffer").at("x").data<float>()[11], 1);
}

TEST(Save, RefusesADeviceThatNoReaderAccepts) {
  const test::TemporaryFolder folder;
  TensorDict node = node_of(NodeKind::tensordict);
  node.info().device = "gpu:0x";
  node.set("x", counting({2}));
  TensorDict tree;
  tree.set("b", node);
  const std::string message = "key \"b\": device: expected a type and optionally an index";
  for (const std::string format : {"memmap", "safetensors", "pt", "snapshot", "consolidated"}) {
    const auto thrown = thrown_by([&] { save(tree, folder / "f", {.format = format}); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument) << format;
    EXPECT_THAT(thrown.message, HasSubstr(message)) << format;
    EXPECT_FALSE(std::filesystem::exists(folder / "f")) << format;
  }
  EXPECT_THAT(thrown_by([&] { memmap(tree, folder / "f"); }).message, HasSubstr(message));
  EXPECT_THAT(thrown_by([&] { consolidate(tree, folder / "f"); }).message, HasSubstr(message));
}

TEST(Save, RefusesTextOfANodeThatIsNotUtf8) {
  const std::string text = "x\xff";
  NodeInfo names;
  names.batch_size = {2};
  names.names = {text};
  NodeInfo class_name;
  class_name.kind = NodeKind::tensorclass;
  class_name.class_name = text;
  NodeInfo stack;
  stack.kind = NodeKind::lazy_stack;
  stack.stack_dim_name = text;
  const test::TemporaryFolder folder;
  for (const auto& [info, part] :
       {std::pair(names, "names"), {class_name, "class_name"}, {stack, "stack_dim_name"}}) {
    TensorDict tree;
    tree.set("b", TensorDict(info));
    for (const std::string format : {"memmap", "safetensors", "pt", "snapshot", "consolidated"}) {
      const auto thrown = thrown_by([&] { save(tree, folder / "f", {.format = format}); });
      EXPECT_EQ(thrown.code, ErrorCode::invalid_argument) << format;
      EXPECT_THAT(thrown.message, HasSubstr("key \"b\": " + std::string(part) +
                                            ": expected UTF-8, found \"x\\xff\""))
          << format;
      EXPECT_FALSE(std::filesystem::exists(folder / "f")) << format;
    }
  }
}

TEST(Save, RefusesKeyTypesThatNoReaderAccepts) {
  const std::vector<std::pair<NodeInfo, std::string>> cases = {
      {{.kind = NodeKind::list, .int_keys = true},
       "int_keys: expected a node of kind \"dict\" or \"ordered_dict\", found \"list\""},
      {{.kind = NodeKind::tensordict, .typed_keys = {{"0", 0}}},
       "typed_keys: expected a node of kind \"dict\" or \"ordered_dict\", found \"tensordict\""},
      {{.kind = NodeKind::dict, .int_keys = true, .typed_keys = {{"0", 0}}},
       "typed_keys: expected none, as int_keys is true, found 1"},
      {{.kind = NodeKind::dict, .typed_keys = {{"0", 7}}},
       "typed_keys: expected pairs of str(key) and key"}};
  const test::TemporaryFolder folder;
  for (const auto& [info, message] : cases) {
    TensorDict node(info);
    node.set("0", counting({2}));
    TensorDict above = node_of(NodeKind::dict);
    above.set("b", node);
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("a", above);
    for (const char* name : {"tree", "tree.safetensors", "tree.pt"}) {
      const auto thrown = thrown_by([&] { save(tree, folder / name); });
      EXPECT_EQ(thrown.code, ErrorCode::invalid_argument) << name;
      EXPECT_THAT(thrown.message, HasSubstr("key \"a.b\": " + message)) << name;
      EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
    }
  }
}

TEST(Save, RefusesKeyTypesOfAValueThatNoReaderAccepts) {
  Value::Object dict;
  dict.members = {{"0", 1}};
  dict.typed_keys = {{"0", 7}};
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("x", counting({2}));
  tree.set("v", Value(Value::List{{Value(dict)}}));
  const test::TemporaryFolder folder;
  for (const char* name : {"tree", "tree.safetensors", "tree.pt"}) {
    const auto thrown = thrown_by([&] { save(tree, folder / name); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument) << name;
    EXPECT_THAT(thrown.message, HasSubstr("key \"v\": typed_keys: expected pairs")) << name;
  }
}

TEST(Load, RefusesCopiesInModeWriteThrough) {
  const test::TemporaryFolder folder;
  const Path path = save(sample_state_dict(), folder / "tree");
  const auto thrown =
      thrown_by([&] { load(path, {.mode = Mode::write_through, .aliases = false}); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace tenfold

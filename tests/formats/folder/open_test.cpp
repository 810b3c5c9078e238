// Costs and guarantees of opening a folder.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/sanitizers.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::counting;
using test::TemporaryFolder;
using test::thrown_by;
using test::Warnings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::string_view kType = R"("_type": "<class 'tensordict._td.TensorDict'>")";

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void save_folder(const TensorDict& tree, const fs::path& path, bool checksums = true) {
  WriteRequest request;
  request.durable = false;
  request.checksums = checksums;
  folder::kFormat.write(tree, path, request);
}

TensorDict open_folder(const fs::path& path, Mode mode = Mode::read) {
  return folder::kFormat.open(path, {mode});
}

/// A root with tensors "small" and "large", and a node "n" with a tensor "x".
TensorDict sample() {
  TensorDict tree;
  tree.set("small", counting({4}));
  tree.set("large", counting({100'000}));
  TensorDict node;
  node.set("x", counting({3}, 9));
  tree.set("n", node);
  return tree;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::size_t maps() {
  const std::string text = read_bytes("/proc/self/maps");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(MemmapOpen, ReadsOnlyTheMetadataOfTheRoot) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  fs::remove(folder / "tree/small.memmap");
  fs::remove(folder / "tree/large.memmap");
  write_bytes(folder / "tree/n/meta.json", "damaged");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_THAT(tree.keys(), ElementsAre("small", "large", "n"));
  EXPECT_EQ(std::get<Leaf>(tree.get("large")).shape(), Shape{100'000});
  EXPECT_THROW(tree["n"], Error);
  EXPECT_THROW(static_cast<void>(tree.at("small")), Error);
  // A failure is not cached, so the next access reads the repaired file.
  write_bytes(folder / "tree/n/meta.json", "{" + std::string(kType) + "}");
  EXPECT_THAT(tree["n"].keys(), IsEmpty());
}

TEST(MemmapOpen, IgnoresForeignFiles) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  write_bytes(folder / "tree/other.memmap", "x");
  write_bytes(folder / "tree/some_other_path/meta.json", "x");
  EXPECT_EQ(test::difference(sample(), open_folder(folder / "tree")), "");
}

TEST(MemmapOpen, IgnoresEntriesThatAreNotTensors) {
  const TemporaryFolder folder;
  write_bytes(
      folder / "tree/meta.json",
      R"({"a": {"shape": [1]}, "b": {"dtype": "torch.int8"}, "c": {}, "d": 3, "e": [1, {}],)"
      R"( "f": {"type": null}, "g": null, "x": {"dtype": "torch.int8", "shape": [2],)"
      R"( "unknown": {"deep": [{}]}}, "_names": 5, "_class": {}, "_format_version": "9", )" +
          std::string(kType) + "}");
  write_bytes(folder / "tree/x.memmap", "ab-longer-than-needed");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_THAT(tree.keys(), ElementsAre("x"));
  EXPECT_EQ(bytes_of(tree.at("x")), "ab");
}

TEST(MemmapOpen, ReadsBothSpellingsOfJsonAndMembersInAnyOrder) {
  const TemporaryFolder folder;
  write_bytes(
      folder / "tree/meta.json",
      " \n{" + std::string(kType) +
          R"(,"device":"None","shape":[2],"é":{"is_nested":false,"dtype":"torch.bool","shape":[2]}} )");
  write_bytes(folder / "tree/é.memmap", "\1\1");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.batch_size(), Shape{2});
  EXPECT_EQ(tree.info().device, "");
  EXPECT_EQ(bytes_of(tree.at("é")), "\1\1");
}

TEST(MemmapOpen, OneBadEntryDoesNotAffectTheOthers) {
  const TemporaryFolder folder;
  write_bytes(
      folder / "tree/meta.json",
      R"({"bad": {"dtype": "torch.what", "shape": [1]}, "neg": {"dtype": "torch.int8", "shape": [-1]},)"
      R"( "good": {"dtype": "torch.int8", "shape": [1]},)"
      R"( "two": {"dtype": "torch.int8", "shape": [1], "dtype": "torch.bool"},)"
      R"( "node": {"type": "TensorDict", "type": "TensorDict"}, )" +
          std::string(kType) + "}");
  write_bytes(folder / "tree/good.memmap", "x");
  write_bytes(folder / "tree/two.memmap", "x");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(bytes_of(tree.at("good")), "x");
  EXPECT_EQ(thrown_by([&] { tree.get("bad"); }).code, ErrorCode::unsupported);
  EXPECT_EQ(thrown_by([&] { tree.get("neg"); }).code, ErrorCode::corrupt);
  EXPECT_THAT(thrown_by([&] { tree.get("two"); }).message,
              HasSubstr("entry \"two\": key \"dtype\": expected once, found twice"));
  EXPECT_THAT(thrown_by([&] { tree.get("node"); }).message,
              HasSubstr("entry \"node\": key \"type\": expected once, found twice"));
}

TEST(MemmapOpen, ReturnsTheSameBytesAtEveryCall) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.at("small").raw_data(), tree.at("small").raw_data());
  EXPECT_EQ(tree.at("large").raw_data(), tree.at("large").raw_data());
}

TEST(MemmapOpen, WritesInMemoryReachTheFileOnlyInWriteThrough) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  for (const Mode mode : {Mode::read, Mode::copy_on_write}) {
    const TensorDict tree = open_folder(folder / "tree", mode);
    for (const std::string key : {"small", "large"}) tree.at(key).mutable_data<float>()[1] = 77;
    EXPECT_EQ(tree.at("large").data<float>()[1], 77);
    // In mode copy_on_write, Leaf::read returns the numbers that the program wrote to its private
    // copy; in mode read, those of the file.
    float found = 0;
    std::get<Leaf>(tree.get("large")).read(4, std::as_writable_bytes(std::span(&found, 1)));
    EXPECT_EQ(found, mode == Mode::copy_on_write ? 77.0F : 1.0F);
  }
  EXPECT_EQ(test::difference(sample(), open_folder(folder / "tree")), "");
  {
    const TensorDict tree = open_folder(folder / "tree", Mode::write_through);
    for (const std::string key : {"small", "large"}) tree.at(key).mutable_data<float>()[1] = 77;
    tree.flush();
  }
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.at("small").data<float>()[1], 77);
  EXPECT_EQ(tree.at("large").data<float>()[1], 77);
}

TEST(MemmapOpen, WritingThroughANodeRemovesItsChecksumsFromTheRoot) {
  const TemporaryFolder folder;
  TensorDict inner;
  inner.set("x", Tensor(DType::int32, {2}, Buffer::allocate(8)));
  TensorDict middle;
  middle.set("inner", inner);
  TensorDict tree;
  tree.set("middle", middle);
  tree.set("y", Tensor(DType::int32, {2}, Buffer::allocate(8)));
  save_folder(tree, folder / "tree");
  const std::uint64_t before = folder::kFormat.verify(folder / "tree", {}).num_checksums;
  {
    const TensorDict node =
        folder::kFormat.open(folder / "tree/middle/inner", {.mode = Mode::write_through});
    node.at("x").mutable_raw_data()[0] = std::byte{7};
  }
  const VerifyReport report = folder::kFormat.verify(folder / "tree", {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, before - 1);
}

TEST(MemmapOpen, WritingThroughRemovesOnlyTheChecksumsOfTensors) {
  const TemporaryFolder folder;
  save_folder(test::sample_checkpoint(), folder / "tree");
  const std::uint64_t before = folder::kFormat.verify(folder / "tree", {}).num_checksums;
  {
    const TensorDict tree = open_folder(folder / "tree", Mode::write_through);
    tree.at("model", "head.bias").mutable_data<float>()[0] = 5;
  }
  const VerifyReport report = folder::kFormat.verify(folder / "tree", {});
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.num_checksums, 0U);
  EXPECT_EQ(report.num_checksums, before - 4);  // one block for each of four tensors
  write_bytes(folder / "tree/model/meta.json", read_bytes(folder / "tree/model/meta.json") + " ");
  EXPECT_FALSE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapOpen, AFolderThatIsWrittenThroughIsNotReplaced) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  {
    TensorDict node;
    {
      const TensorDict tree = open_folder(folder / "tree", Mode::write_through);
      node = tree["n"];
    }
    // A node keeps the lock of the whole tree.
    const auto thrown = thrown_by([&] { save_folder(sample(), folder / "tree"); });
    EXPECT_EQ(thrown.code, ErrorCode::io);
    EXPECT_EQ(thrown.system_errno, EBUSY);
  }
  save_folder(sample(), folder / "tree");
}

TEST(MemmapOpen, AFolderIsNotReplacedWhileANodeOfItIsWrittenThrough) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  for (const char* node : {"tree/n", "tree/n/../n/."}) {
    const TensorDict tree = open_folder(folder / node, Mode::write_through);
    const auto thrown = thrown_by([&] { save_folder(sample(), folder / "tree"); });
    EXPECT_EQ(thrown.system_errno, EBUSY);
    save_folder(sample(), folder / "other");  // another path can be saved while `tree` is open
  }
  save_folder(sample(), folder / "tree");
  const FolderReplacement replacement(folder / "tree", 0);
  const auto thrown =
      thrown_by([&] { static_cast<void>(open_folder(folder / "tree/n", Mode::write_through)); });
  EXPECT_EQ(thrown.system_errno, EBUSY);
}

TEST(MemmapOpen, ReportsThatTheFolderWasReplaced) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  const TensorDict tree = open_folder(folder / "tree");
  const Tensor mapped = tree.at("large");
  save_folder(sample(), folder / "tree");
  EXPECT_EQ(bytes_of(mapped), bytes_of(counting({100'000})));
  EXPECT_EQ(bytes_of(tree.at("large")), bytes_of(mapped));
  for (const auto& thrown : {thrown_by([&] { static_cast<void>(tree.at("small")); }),
                             thrown_by([&] { static_cast<void>(tree["n"]); })}) {
    EXPECT_EQ(thrown.code, ErrorCode::io);
    EXPECT_EQ(thrown.system_errno, ESTALE);
    EXPECT_THAT(thrown.message, HasSubstr("was replaced since it was opened; open it again"));
  }
}

TEST(MemmapOpen, ReportsAMissingFileIfNothingWasReplaced) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  const TensorDict tree = open_folder(folder / "tree");
  const TensorDict node = tree["n"];
  fs::remove(folder / "tree/n/x.memmap");
  for (const Mode mode : {Mode::read, Mode::write_through}) {
    const auto thrown = thrown_by([&] { open_folder(folder / "tree", mode).at("n", "x"); });
    EXPECT_EQ(thrown.code, ErrorCode::corrupt);
    EXPECT_THAT(thrown.message, HasSubstr("tensor \"x\": leaf file is missing"));
  }
  EXPECT_EQ(thrown_by([&] { static_cast<void>(node.at("x")); }).code, ErrorCode::corrupt);
}

TEST(MemmapOpen, NeedsFewDescriptorsAndMapsForManyNodesAndLeaves) {
  const TemporaryFolder folder;
  TensorDict tree;
  for (int i = 0; i < 600; ++i) {
    TensorDict node;
    for (int k = 0; k < 5; ++k) node.set("x" + std::to_string(k), counting({k + 1}));
    tree.set("n" + std::to_string(i), node);
  }
  const std::size_t descriptors_before = open_descriptors();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{descriptors_before + 200, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  save_folder(tree, folder / "tree");
  const std::size_t maps_before = maps();
  const TensorDict again = open_folder(folder / "tree");
  std::uint64_t count = 0;
  again.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    count += static_cast<std::uint64_t>(std::get<Leaf>(item).tensor().numel());
  });
  EXPECT_EQ(count, 600U * 15U);
#if TENFOLD_TSAN
  constexpr std::size_t kMaxMaps = 100;  // ThreadSanitizer maps memory as well
#else
  constexpr std::size_t kMaxMaps = 20;
#endif
  EXPECT_LT(maps(), maps_before + kMaxMaps);
  // `again` leaves enough descriptors to open the folder once more and to verify it.
  EXPECT_EQ(bytes_of(open_folder(folder / "tree").at("n0", "x4")), bytes_of(counting({5})));
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(MemmapOpen, ReportsThePickleOfATensorclassAndReadsTheRest) {
  const TemporaryFolder folder;
  write_bytes(folder / "tree/meta.json", R"({"_type": "<class 'app.C'>", "y": 3, "none": null})");
  write_bytes(folder / "tree/other.pickle", "cos\nsystem\n");
  write_bytes(folder / "tree/_tensordict/meta.json",
              R"({"x": {"dtype": "torch.int8", "shape": [1]}, )" + std::string(kType) + "}");
  write_bytes(folder / "tree/_tensordict/x.memmap", "x");
  const Warnings warnings;
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.kind(), NodeKind::tensorclass);
  EXPECT_EQ(tree.info().class_name, "<class 'app.C'>");
  EXPECT_THAT(tree.keys(), ElementsAre("x", "y"));
  EXPECT_EQ(bytes_of(tree.at("x")), "x");
  EXPECT_EQ(tree.value("y"), Value(3));
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("other.pickle: tensorclass")));
  EXPECT_FALSE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapOpen, IgnoresAPickleThatIsNotNeeded) {
  const TemporaryFolder folder;
  write_bytes(folder / "tree/meta.json",
              R"({"v": {"type": "NonTensorData"}, "w": {"type": "MetaData[str]"}, )" +
                  std::string(kType) + "}");
  write_bytes(folder / "tree/v/meta.json",
              R"({"_type": "<class 'tensordict.tensorclass.NonTensorData'>", "data": [1]})");
  write_bytes(folder / "tree/v/other.pickle", "cos\nsystem\n");
  write_bytes(folder / "tree/v/_tensordict/meta.json", "ignored");
  write_bytes(folder / "tree/w/meta.json",
              R"({"_type": "<class 'tensordict.tensorclass.MetaData[str]'>"})");
  const Warnings warnings;
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.value("v"), Value(Value::List{{Value(1)}}));
  EXPECT_EQ(tree.value("w"), Value());
  EXPECT_THAT(warnings.all(), IsEmpty());
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapOpen, ReadsStacksOfValuesThatOldVersionsStoredInFolders) {
  const TemporaryFolder folder;
  write_bytes(folder / "tree/meta.json",
              R"({"s": {"type": "NonTensorStack"}, )" + std::string(kType) + "}");
  write_bytes(folder / "tree/s/meta.json",
              R"({"_type": "<class 'tensordict.tensorclass.NonTensorStack'>", "stack_dim": 0})");
  for (const std::string i : {"0", "1"}) {
    write_bytes(
        folder.path() / "tree/s" / i / "meta.json",
        R"({"_type": "<class 'tensordict.tensorclass.NonTensorData'>", "data": "v)" + i + "\"}");
  }
  const auto found = std::get<NonTensor>(open_folder(folder / "tree").get("s"));
  EXPECT_TRUE(found.is_stack);
  EXPECT_EQ(found.value, Value(Value::List{{Value("v0"), Value("v1")}}));
}

TEST(MemmapOpen, ReadsAnUnknownSubclassAsATensorDictWithAWarning) {
  const TemporaryFolder folder;
  write_bytes(folder / "tree/meta.json",
              R"({"x": {"dtype": "torch.int8", "shape": [1]}, "shape": [], "device": "cpu", )"
              R"("_type": "<class 'app.MyDict'>", "_format_version": 1, "_class": "app:MyDict"})");
  write_bytes(folder / "tree/x.memmap", "x");
  const Warnings warnings;
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.kind(), NodeKind::tensordict);
  EXPECT_EQ(bytes_of(tree.at("x")), "x");
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("class <class 'app.MyDict'> is unknown")));
}

TEST(MemmapOpen, PrefersTheClassOfNewVersionsToTheTypeOfOldOnes) {
  const TemporaryFolder folder;
  write_bytes(
      folder / "tree/meta.json",
      R"({"_type": "<class 'moved.elsewhere.Lazy'>", "_class": "tensordict:LazyStackedTensorDict", )"
      R"("stack_dim": 1, "stack_dim_name": "t"})");
  write_bytes(folder / "tree/0/meta.json", R"({"shape": [2], )" + std::string(kType) + "}");
  write_bytes(folder / "tree/1/meta.json", R"({"shape": [2], )" + std::string(kType) + "}");
  write_bytes(folder / "tree/3/meta.json", R"({"shape": [2], )" + std::string(kType) + "}");
  const TensorDict tree = open_folder(folder / "tree");
  EXPECT_EQ(tree.kind(), NodeKind::lazy_stack);
  EXPECT_EQ(tree.info().stack_dim, 1);
  EXPECT_EQ(tree.info().stack_dim_name, "t");
  // The length of the stack is not stored, so the stack ends before the first missing number.
  EXPECT_THAT(tree.keys(), ElementsAre("0", "1"));
}

TEST(MemmapOpen, WarnsAboutAStaleNoteAndContinues) {
  const TemporaryFolder folder;
  TensorDict root(NodeInfo{});
  TensorDict list;
  list.info().kind = NodeKind::list;
  list.set("0", counting({1}));
  root.set("l", list);
  save_folder(root, folder / "tree");
  write_bytes(folder / "tree/l/meta.json",
              R"({"7": {"dtype": "torch.int8", "shape": [0]}, )" + std::string(kType) + "}");
  const Warnings warnings;
  EXPECT_EQ(open_folder(folder / "tree")["l"].kind(), NodeKind::tensordict);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("another tool may have changed the tree")));
}

TEST(MemmapOpen, ProbesFoldersWithMetadata) {
  const TemporaryFolder folder;
  save_folder(sample(), folder / "tree");
  EXPECT_TRUE(folder::kFormat.probe(folder / "tree"));
  EXPECT_FALSE(folder::kFormat.probe(folder.path()));
  EXPECT_FALSE(folder::kFormat.probe(folder / "tree/small.memmap"));
  EXPECT_EQ(thrown_by([&] { open_folder(folder / "none"); }).code, ErrorCode::file_not_found);
}

}  // namespace
}  // namespace tenfold

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <tenfold/io.hpp>

#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/support.hpp"
#include "formats/shared/object_file.hpp"
#include "io/registry.hpp"
#include "support/message_of.hpp"
#include "support/pickled.hpp"
#include "support/zip.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using namespace std::string_literals;
using testing::HasSubstr;

Path torch_file(const std::string& name) {
  return Path(TENFOLD_TEST_DATA) / "torch_file" / (name + ".pt");
}

std::vector<std::string> lines_of(const Path& path) {
  std::istringstream text(bytes_of(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// The content of each ok file, from golden.txt.
std::map<std::string, std::string> golden() {
  std::map<std::string, std::string> texts;
  std::string name;
  for (const std::string& line : lines_of(torch_file("").parent_path() / "golden.txt")) {
    if (line.starts_with("== ")) {
      name = line.substr(3);
    } else {
      texts[name] += line + "\n";
    }
  }
  return texts;
}

Leaf leaf_in(const TensorDict& tree, const std::string& key) {
  return std::get<Leaf>(tree.get(key));
}

/// Checks that mapping and Leaf::read() give the same bytes for every leaf.
void read_all(const TensorDict& tree) {
  tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    // Skip large tensors: a stride of 0 can expand a few bytes to any size.
    if (leaf == nullptr || leaf->nbytes() > (1U << 20U)) return;
    EXPECT_EQ(mapped_bytes(*leaf), read_bytes(*leaf));
  });
}

TEST(TorchFile, ReadsFilesOfTorch) {
  const auto texts = golden();
  ASSERT_EQ(texts.size(), 18U);
  for (const auto& [name, text] : texts) {
    const TensorDict tree = torch_file::kFormat.open(torch_file(name), {});
    EXPECT_EQ(text_of(tree), text) << name;
    read_all(tree);
  }
}

/// Copies the archive `name` to offset `before` of a larger file, and reads it there. Returns the
/// content as text, or "" if the saved object is not a container.
std::string text_of_item(const Path& folder, const std::string& name, std::size_t before) {
  const std::string whole = bytes_of(torch_file(name));
  const Path path = folder / (name + std::to_string(before));
  write_bytes(path, std::string(before, 'x') + whole + "more");
  const auto file = std::make_shared<const os::File>(os::File::open_read(path));
  const TensorDict::Item item = read_object_item([file] { return file; }, before, whole.size());
  const auto* tree = std::get_if<TensorDict>(&item);
  if (tree == nullptr) return "";
  read_all(*tree);
  return text_of(*tree);
}

TEST(TorchFile, ReadsArchivesInsideOtherFiles) {
  const TemporaryFolder folder;
  std::size_t num_trees = 0;
  for (const auto& [name, text] : golden()) {
    if (name.starts_with("ok-legacy")) continue;
    for (const std::size_t before : {0U, 43U, 64U}) {
      const std::string found = text_of_item(folder.path(), name, before);
      if (found.empty()) continue;
      EXPECT_EQ(found, text) << name << " at " << before;
      ++num_trees;
    }
  }
  EXPECT_GT(num_trees, 20U);
}

FileOpener opener_of(const Path& path) {
  return [path] { return std::make_shared<const os::File>(os::File::open_read(path)); };
}

TEST(TorchFile, ReadsObjectsOfAnyKind) {
  const TensorDict::Item tensor = read_object_file(opener_of(torch_file("ok-tensor")));
  EXPECT_TRUE(std::holds_alternative<Leaf>(tensor));
  const TensorDict::Item value = read_object_file(opener_of(torch_file("ok-text")));
  EXPECT_TRUE(std::get<NonTensor>(value).value.is<std::string>());
}

TEST(TorchFile, ASingleValueIsABareRoot) {
  const TensorDict tensor = torch_file::kFormat.open(torch_file("ok-tensor"), {});
  EXPECT_TRUE(is_bare(tensor));
  EXPECT_EQ(tensor.at("ok-tensor").shape(), Shape{3});
  const TensorDict::Item text = load_value(torch_file("ok-text"));
  EXPECT_EQ(std::get<NonTensor>(text).value, Value("text"));
  EXPECT_FALSE(is_bare(torch_file::kFormat.open(torch_file("ok-no-tensor"), {})));
}

TEST(TorchFile, IsRecognisedByItsContent) {
  for (const auto& [name, text] : golden()) {
    EXPECT_TRUE(torch_file::kFormat.probe(torch_file(name))) << name;
    EXPECT_EQ(probe(torch_file(name)), "pt") << name;
    const VerifyReport report = torch_file::kFormat.verify(torch_file(name), {});
    EXPECT_TRUE(report.ok()) << name << ": " << (report.ok() ? "" : report.problems[0].what);
    EXPECT_EQ(report.num_checksums > 2, !name.starts_with("ok-legacy")) << name;
  }
  EXPECT_FALSE(torch_file::kFormat.probe(torch_file("bad-text")));
  EXPECT_FALSE(torch_file::kFormat.probe(torch_file("bad-no-pickle")));
}

TEST(TorchFile, KeepsContiguousTensorsOnDiskAndOthersAsStridedViews) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("ok-views"), {});
  EXPECT_FALSE(leaf_in(tree, "whole").in_memory());
  EXPECT_FALSE(leaf_in(tree, "rows").in_memory());
  EXPECT_FALSE(leaf_in(tree, "element").in_memory());
  EXPECT_EQ(tree.at("transposed").strides(), (Shape{1, 4}));
  EXPECT_EQ(tree.at("column").strides(), Shape{4});
  EXPECT_EQ(tree.at("expanded").strides(), Shape{0});
  EXPECT_EQ(tree.at("channels-last").strides(), (Shape{16, 1, 8, 2}));
}

TEST(TorchFile, KeepsTensorsOfOneStorageInTheSameMemory) {
  for (const char* name : {"ok-views", "ok-unaligned", "ok-deflated", "ok-legacy"}) {
    const TensorDict tree = torch_file::kFormat.open(torch_file(name), {});
    const Tensor held = tree.at("whole");
    const auto* whole = held.data<std::int32_t>();
    EXPECT_EQ(tree.at("transposed").data<std::int32_t>(), whole) << name;
    EXPECT_EQ(tree.at("rows").data<std::int32_t>(), whole + 4) << name;
    EXPECT_EQ(tree.at("column").data<std::int32_t>(), whole + 1) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(whole) % 16, 0U) << name;
  }
}

TEST(TorchFile, DistinguishesSharedStorage) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("ok-tied"), {});
  const StoredRange first = stored_range(leaf_in(tree, "0"));
  EXPECT_NE(first, StoredRange{});
  EXPECT_EQ(stored_range(leaf_in(tree["1"], "again")), first);
  EXPECT_NE(stored_range(leaf_in(tree["2"], "0")), first);
  EXPECT_EQ(stored_range(leaf_in(tree["2"], "2")), StoredRange{});
  EXPECT_EQ(tree.kind(), NodeKind::list);
  EXPECT_EQ(tree["2"].kind(), NodeKind::tuple);
}

TEST(TorchFile, KeepsKindsOfValues) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("ok-values"), {});
  const auto special = [&](const char* key) {
    const Value value = tree.value(key);
    const auto* held = value.get_if<Value::Special>();
    return held == nullptr ? "none" : to_string(held->type) + " " + held->text;
  };
  EXPECT_EQ(special("size"), "torch.Size ");
  EXPECT_TRUE(tree.value<Value::Object>("ordered").ordered);
  EXPECT_FALSE(tree.value<Value::Object>("default").ordered);
  EXPECT_TRUE(tree.value<Value::Object>("ints").int_keys);
  EXPECT_TRUE(tree.value("big").is<Value::BigInt>());
  EXPECT_EQ(special("dtype"), "torch.dtype torch.bfloat16");
  EXPECT_EQ(special("device"), "torch.device cuda:1");
}

TEST(TorchFile, WritesToATensorDoNotChangeTheFile) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  std::filesystem::copy_file(torch_file("ok-views"), path);
  const TensorDict tree = torch_file::kFormat.open(path, {});
  tree.at("whole").mutable_data<std::int32_t>()[0] = 77;
  EXPECT_EQ(bytes_of(path), bytes_of(torch_file("ok-views")));
  OpenRequest request;
  request.mode = Mode::write_through;
  EXPECT_THAT(message_of([&] { torch_file::kFormat.open(path, request); }, ErrorCode::unsupported),
              HasSubstr("cannot be changed in place"));
}

TEST(TorchFile, ReportsTheErrorOfABadFile) {
  std::size_t count = 0;
  for (const std::string& line : lines_of(torch_file("").parent_path() / "expected.txt")) {
    ++count;
    const std::size_t first = line.find('\t');
    const std::size_t second = line.find('\t', first + 1);
    const std::string name = line.substr(0, first);
    const bool is_corrupt = line.substr(first + 1, second - first - 1) == "corrupt";
    const ErrorCode code = is_corrupt ? ErrorCode::corrupt : ErrorCode::unsupported;
    const std::string message =
        message_of([&] { torch_file::kFormat.open(torch_file(name), {}); }, code);
    EXPECT_THAT(message, HasSubstr(line.substr(second + 1))) << name;
    EXPECT_TRUE(message.starts_with(torch_file(name).string() + ": ")) << message;
    EXPECT_FALSE(torch_file::kFormat.verify(torch_file(name), {}).ok()) << name;
  }
  EXPECT_EQ(count, 29U);
}

TEST(TorchFile, UnsupportedObjectsAreDescribedAndNotCalled) {
  const TemporaryFolder folder;
  const Path executed = folder / "it-was-executed";
  const std::string command = pickled::text("touch " + executed.string());
  write_zip(folder / "global.pt",
            {{"archive/data.pkl",
              pickled::whole(pickled::dict(
                  {pickled::text("x"), pickled::call("posix", "system", {command})}))},
             {"archive/version", "3\n"}});
  std::string legacy = bytes_of(torch_file("opaque-legacy-global"));
  const std::string saved_command = pickled::text("touch /tmp/it-was-executed");
  legacy.replace(legacy.find(saved_command), saved_command.size(), command);
  write_bytes(folder / "legacy-global.pt", legacy);
  const std::map<Path, std::string> names = {{torch_file("opaque-class"), "my_net.Own"},
                                             {torch_file("opaque-global"), "posix.system"},
                                             {folder / "global.pt", "posix.system"},
                                             {folder / "legacy-global.pt", "posix.system"}};
  for (const auto& [path, called] : names) {
    const TensorDict node = torch_file::kFormat.open(path, {})["x"];
    EXPECT_EQ(node.kind(), NodeKind::opaque) << path;
    EXPECT_TRUE(node.info().class_name.ends_with(called.substr(called.find('.')))) << path;
    EXPECT_TRUE(node.contains("args")) << path;
    read_all(node);
  }
  EXPECT_FALSE(std::filesystem::exists(executed));
}

TEST(TorchFile, AnUnreadableEntryHasAReason) {
  struct Case {
    const char* file;
    KeyPath path;
    const char* class_name;
    const char* problem;
  };
  const std::vector<Case> cases = {
      {"key", {"<__builtin__.frozenset>"}, "__builtin__.frozenset", "its key cannot be read"},
      {"key-twice", {"<str>"}, "str", "found \"1\" again"},
      {"cycle", {"c", "0"}, "list", "it contains itself"},
      {"surrogate", {"t"}, "str", "expected UTF-8"},
      {"storage-class", {"w"}, "torch._utils._rebuild_tensor_v2", "found \"torch.QInt8Storage\""}};
  for (const Case& c : cases) {
    const Path path = torch_file(std::string("unreadable-") + c.file);
    const TensorDict tree = torch_file::kFormat.open(path, {});
    const auto node = std::get<TensorDict>(tree.get(c.path));
    EXPECT_EQ(node.kind(), NodeKind::opaque) << c.file;
    EXPECT_EQ(node.info().class_name, c.class_name) << c.file;
    EXPECT_THAT(node.info().problem, HasSubstr(c.problem)) << c.file;
    EXPECT_THAT(node.info().problem, testing::Not(HasSubstr("unreadable-")))
        << "the problem does not repeat the path";
    read_all(tree);
    EXPECT_TRUE(torch_file::kFormat.verify(path, {}).ok()) << c.file;
    EXPECT_THAT(message_of([&] { load(path); }, ErrorCode::unsupported),
                AllOf(HasSubstr("key \"" + dotted(c.path) + "\": " + node.info().problem),
                      HasSubstr("; to load the rest, use the option keys")));
  }
  EXPECT_EQ(torch_file::kFormat.open(torch_file("unreadable-key-twice"), {}).value("1"),
            Value("int"));
}

TEST(TorchFile, LazyViewsAreReadInPiecesOfAnySize) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("ok-lazy-views"), {});
  tree.for_each_leaf([](const KeyPath& path, const TensorDict::Item& item) {
    const auto& leaf = std::get<Leaf>(item);
    const std::string whole = mapped_bytes(leaf);
    for (std::size_t begin = 0; begin < whole.size(); ++begin) {
      for (const std::size_t size : {1U, 3U, 7U, 16U}) {
        std::string piece(std::min(size, whole.size() - begin), '\0');
        leaf.read(begin, std::as_writable_bytes(std::span(piece)));
        EXPECT_EQ(piece, whole.substr(begin, piece.size())) << dotted(path) << " at " << begin;
      }
    }
    EXPECT_EQ(leaf.tensor().raw_data(), leaf.tensor().raw_data());
  });
}

TEST(TorchFile, QuantizedTensorsBecomeTheirComponents) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("ok-quantized"), {});
  const TensorDict part = tree["channels"];
  EXPECT_EQ(part.keys(), (std::vector<std::string>{"int_repr", "dtype", "qscheme", "scales",
                                                   "zero_points", "axis"}));
  EXPECT_EQ(part.at("int_repr").dtype(), DType::int8);
  EXPECT_EQ(part.value("axis"), Value(1));
  EXPECT_EQ(std::get<Value::Special>(part.value("qscheme").data()).text,
            "torch.per_channel_affine");
  EXPECT_EQ(tree["transposed"].at("int_repr").strides(), (Shape{1, 3}));
}

TEST(TorchFile, KeepsTheTypesOfKeys) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("keys-values"), {});
  const TypedKeys expected = {{"(1, 'a')", Value::Tuple{{1, "a"}}},
                              {"0.5", 0.5},
                              {"1", 1},
                              {"None", Value()},
                              {"True", true}};
  EXPECT_EQ(tree.info().typed_keys, (TypedKeys{{"7", 7}}));
  const TensorDict node = tree["node"];
  EXPECT_EQ(node.keys(), (std::vector<std::string>{"0.5", "None", "1", "(1, 'a')"}));
  EXPECT_EQ(node.info().typed_keys,
            (TypedKeys{expected[0], expected[1], expected[2], expected[3]}));
  const Value plain = tree.value("7");
  const auto& object = *plain.get_if<Value::List>()->items[0].get_if<Value::Object>();
  EXPECT_EQ(object.typed_keys, (TypedKeys{expected[1], expected[4]}));
  EXPECT_EQ(object.members[2].first, "text");
}

TEST(TorchFile, ReadsExtendedScalars) {
  const TensorDict tree = torch_file::kFormat.open(torch_file("special-values"), {});
  const auto special = [&](const char* key) {
    return std::get<Value::Special>(tree.value(key).data());
  };
  using enum Value::Special::Type;
  EXPECT_EQ(special("bytes"), (Value::Special{Value::Special::Type::bytes, "\0\xff"s, {}}));
  EXPECT_EQ(special("set"), (Value::Special{set, "", {Value(1)}}));
  EXPECT_EQ(special("complex"),
            (Value::Special{Value::Special::Type::complex, "", {Value(1.0), Value(-2.0)}}));
  EXPECT_EQ(special("size"), (Value::Special{size, "", {Value(2), Value(3)}}));
  const NodeInfo& sparse = tree["sparse"].info();
  EXPECT_EQ(sparse.kind, NodeKind::sparse);
  EXPECT_EQ(sparse.layout, "sparse_coo");
  EXPECT_EQ(sparse.dense_shape, (Shape{2, 2}));
  EXPECT_EQ(tree["sparse"].at("indices").shape(), (Shape{2, 2}));
}

/// Opens arbitrary `bytes` and reads the tensors. The only errors may be `corrupt` and
/// `unsupported`.
void open_bytes(const Path& path, const std::string& bytes) {
  write_bytes(path, bytes);
  torch_file::kFormat.probe(path);
  try {
    read_all(torch_file::kFormat.open(path, {}));
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
        << error.what();
  }
}

TEST(TorchFile, RefusesEveryPrefix) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  for (const char* name : {"ok-tensor", "ok-legacy"}) {
    const std::string bytes = bytes_of(torch_file(name));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      write_bytes(path, bytes.substr(0, size));
      EXPECT_THROW(torch_file::kFormat.open(path, {}), Error) << name << " " << size;
    }
  }
}

TEST(TorchFile, SurvivesFlippedBits) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  std::mt19937 random(7);
  for (const char* name : {"ok-views", "ok-values", "ok-numpy", "ok-deflated", "ok-legacy"}) {
    const std::string bytes = bytes_of(torch_file(name));
    for (int round = 0; round < 100; ++round) {
      std::string changed = bytes;
      changed[random() % changed.size()] ^= static_cast<char>(1U << (random() % 8U));
      open_bytes(path, changed);
    }
  }
}

/// Returns tensors "0", "1", ... of six numbers that count from the index of the tensor. Every
/// tenth tensor is transposed, and therefore mapped while the tree is built.
TensorDict many_tensors(std::int64_t count) {
  TensorDict tree;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> numbers(6);
    std::iota(numbers.begin(), numbers.end(), i);
    const Tensor tensor = Tensor::from(std::span<const std::int64_t>(numbers), {2, 3});
    tree.set(std::to_string(i),
             i % 10 == 0 ? Tensor(DType::int64, {3, 2}, {1, 3}, tensor.buffer(), 0) : tensor);
  }
  return tree;
}

TEST(TorchFile, ReadsFilesOfManyTensors) {
  constexpr std::int64_t kCount = 3000;
  const TemporaryFolder folder;
  save(many_tensors(kCount), folder / "x.pt");
  const TensorDict tree = torch_file::kFormat.open(folder / "x.pt", {});
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Tensor tensor = tree.at(std::to_string(i));
    ASSERT_EQ(tensor.shape(), i % 10 == 0 ? (Shape{3, 2}) : (Shape{2, 3}));
    ASSERT_EQ(tensor.strides(), i % 10 == 0 ? (Shape{1, 3}) : (Shape{3, 1}));
    ASSERT_EQ(tensor.data<std::int64_t>()[5], i + 5);
  }
}

TEST(TorchFile, WithManyTensorsIsRefusedIfALocalHeaderIsDamaged) {
  constexpr std::int64_t kCount = 3000;
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  save(many_tensors(kCount), path);
  const std::string bytes = bytes_of(path);
  const std::string key = "X\4\0\0\0"s + "2998";  // as in the pickle
  for (const char* entry : {"/data/0", "/data/1500", "/data/2999"}) {
    std::string changed = bytes;
    changed[changed.find(entry) + 2] = 'A';
    for (const bool with_pickle : {false, true}) {
      if (with_pickle) changed[bytes.find(key) + 5] = '9';  // a missing storage
      write_bytes(path, changed);
      EXPECT_THAT(message_of([&] { torch_file::kFormat.open(path, {}); }, ErrorCode::corrupt),
                  HasSubstr("its local header has another name"))
          << entry;
      EXPECT_FALSE(torch_file::kFormat.verify(path, {}).ok());
    }
  }
}

TEST(TorchFile, DetectsAFlippedBitOfATensorByItsChecksum) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  std::string bytes = bytes_of(torch_file("ok-tensor"));
  const std::string data("\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 16);
  const std::size_t at = bytes.find(data);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = '\x03';
  write_bytes(path, bytes);
  const VerifyReport report = torch_file::kFormat.verify(path, {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "entry \"archive/data/0\"");
}

TEST(TorchFile, VerifiesTensorsOfManyBlocksWithSeveralThreadCounts) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  TensorDict tree(kind(NodeKind::dict));
  constexpr std::int64_t kCount = std::int64_t{9} << 20;  // 36 MiB: three blocks
  tree.set("a", Tensor::zeros(DType::float32, {kCount}));
  tree.set("b", Tensor::zeros(DType::uint8, {3}));
  tree.set("c", Tensor::zeros(DType::float32, {kCount}));
  WriteRequest request;
  request.durable = false;
  torch_file::kFormat.write(tree, path, request);
  for (const int num_threads : {1, 3}) {
    const VerifyReport report = torch_file::kFormat.verify(path, {.num_threads = num_threads});
    EXPECT_TRUE(report.ok());
    EXPECT_GE(report.num_checksums, 5U);
    EXPECT_EQ(report.num_bytes, 8 * static_cast<std::uint64_t>(kCount) + 3);
  }
  std::string bytes = bytes_of(path);
  bytes[bytes.size() / 4] ^= 1;
  write_bytes(path, bytes);
  const VerifyReport report = torch_file::kFormat.verify(path, {.num_threads = 3});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "entry \"x/data/0\"");
  EXPECT_THAT(report.problems[0].what, HasSubstr("its bytes are damaged: expected CRC-32"));
}

TEST(TorchFile, DetectsADamagedHeaderByTheChecksumOfTheStructure) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  save(many_tensors(3), path);
  std::string bytes = bytes_of(path);
  bytes[bytes.find("PK\x01\x02") + 12] ^= 1;  // the time in the directory, which nothing reads
  write_bytes(path, bytes);
  const VerifyReport report = torch_file::kFormat.verify(path, {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "archive");
  EXPECT_THAT(report.problems[0].what, HasSubstr("save it again"));
}

TEST(TorchFile, RefusesATooLongVersion) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  write_zip(path, {{"archive/data.pkl", pickled::whole(pickled::none())},
                   {"archive/version", std::string(65, '1')}});
  EXPECT_THAT(
      message_of([&] { torch_file::kFormat.open(path, {}); }, ErrorCode::corrupt),
      HasSubstr("record \"archive/version\": too long: expected at most 64 bytes, found 65"));
}

TEST(TorchFile, RefusesATooLongPickleWithoutReadingIt) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  constexpr std::uint64_t kTooLong = (std::uint64_t{1} << 30) + 1;
  write_zip(path, {{"archive/data.pkl", "", 0, kTooLong},  // a hole in the file
                   {"archive/version", "3\n"}});
  EXPECT_THAT(message_of([&] { torch_file::kFormat.open(path, {}); }, ErrorCode::unsupported),
              HasSubstr("record \"data.pkl\": too long: expected at most 1073741824 bytes, found "
                        "1073741825"));
}

/// A file of the layout before torch 1.6.
struct Legacy {
  std::string machine = pickled::dict({pickled::text("protocol_version"), pickled::integer(1001),
                                       pickled::text("little_endian"), pickled::boolean(true)});
  std::string keys = pickled::list({pickled::text("94")});
  std::string type = "FloatStorage";

  std::string bytes() const {
    const std::string storage = pickled::persistent(pickled::tuple(
        {pickled::text("storage"), pickled::global("torch", type), pickled::text("94"),
         pickled::text("cpu"), pickled::integer(2), pickled::none()}));
    const std::string tensor =
        pickled::call("torch._utils", "_rebuild_tensor",
                      {storage, pickled::integer(1), pickled::list({pickled::integer(1)}),
                       pickled::list({pickled::integer(1)})});
    const std::string magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    return magic + pickled::whole(pickled::integer(1001)) + pickled::whole(machine) +
           pickled::whole(pickled::dict({pickled::text("w"), tensor})) + pickled::whole(keys) +
           pickled::little(2, 8) + std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  }
};

TEST(TorchFile, LegacyTensorsHaveTheByteRangeOfTheirStorage) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  write_bytes(path, Legacy().bytes());
  const TensorDict tree = torch_file::kFormat.open(path, {});
  const TensorDict again = torch_file::kFormat.open(path, {});
  const Leaf leaf = leaf_in(tree, "w");
  EXPECT_EQ(tree.at("w").data<float>()[0], 2);
  const StoredRange range = stored_range(leaf);
  EXPECT_EQ(range, stored_range(leaf_in(again, "w")));
  EXPECT_EQ(range.offset_bytes, std::filesystem::file_size(path) - 4);
  EXPECT_EQ(range.size_bytes, 4U);
  EXPECT_EQ(source_of(leaf)->where(leaf).text(), path.string() + ": storage \"94\"");
}

TEST(TorchFile, LegacyHeadersMustBeComplete) {
  const TemporaryFolder folder;
  const Path path = folder / "x.pt";
  const auto refusal = [&](const Legacy& file) {
    write_bytes(path, file.bytes());
    return message_of([&] { torch_file::kFormat.open(path, {}); }, ErrorCode::corrupt);
  };
  for (const std::string& machine : {pickled::none(), pickled::dict({})}) {
    EXPECT_THAT(refusal({.machine = machine}),
                HasSubstr("byte order: expected \"little_endian\" in a dict, found none"));
  }
  EXPECT_THAT(refusal({.keys = pickled::tuple({pickled::text("94")})}),
              HasSubstr("storage keys: expected a list, found an object of another type"));
  EXPECT_THAT(
      refusal({.keys = pickled::list({pickled::text("95")})}),
      HasSubstr("storage keys: expected the key of a storage that the object uses, found \"95\""));
  EXPECT_THAT(
      refusal({.keys = pickled::list({pickled::integer(94)})}),
      HasSubstr(
          "storage keys: expected the key of a storage that the object uses, found an integer"));
}

}  // namespace
}  // namespace tenfold::test

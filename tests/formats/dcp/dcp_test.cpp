#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "formats/dcp/leaf_source.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/dcp/writer.hpp"
#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;
using testing::SizeIs;

Path checkpoint(const std::string& name) { return Path(TENFOLD_TEST_DATA) / "dcp" / name; }

std::vector<std::string> lines_of(const Path& path) {
  std::istringstream text(bytes_of(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Returns the content of each checkpoint as torch loads it, from golden.txt. For `ranks`, this is
/// the content of `sharded`, because both were saved from the same state.
std::map<std::string, std::string> golden() {
  std::map<std::string, std::string> texts;
  std::string name;
  for (const std::string& line : lines_of(checkpoint("golden.txt"))) {
    if (line.starts_with("== ")) {
      name = line.substr(3);
    } else {
      texts[name] += line + "\n";
    }
  }
  return texts;
}

/// Copies the checkpoint `sharded`, and replaces its metadata by `pickle`. Returns the path.
Path with_metadata(const TemporaryFolder& folder, const std::string& pickle) {
  const Path path = folder / "ckpt";
  std::filesystem::copy(checkpoint("sharded"), path);
  write_bytes(path / ".metadata", pickle);
  return path;
}

/// Opens a checkpoint, and checks that mapping and Leaf::read() give the same bytes for every
/// tensor.
void read_all(const Path& path) {
  open(path).for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    EXPECT_TRUE(mapped_bytes(*leaf) == read_bytes(*leaf));
  });
}

TEST(Dcp, ReadsCheckpointsAsTorchDoes) {
  for (const auto& [name, text] : golden()) {
    EXPECT_EQ(text_of(open(checkpoint(name))), text) << name;
    read_all(checkpoint(name));
  }
}

TEST(Dcp, IsRecognisedByItsMetadata) {
  for (const char* name : {"plain", "flat", "zstd", "sharded", "fsdp", "ranks", "hf"}) {
    EXPECT_EQ(probe(checkpoint(name)), "dcp") << name;
  }
}

TEST(Dcp, VerifiesMoreThanTwoChecksumsForEachLeaf) {
  for (const char* name : {"plain", "flat", "zstd", "sharded", "fsdp", "ranks"}) {
    const VerifyReport report = verify(checkpoint(name));
    EXPECT_TRUE(report.ok()) << name << ": " << (report.ok() ? "" : report.problems[0].what);
    EXPECT_GT(report.num_checksums, 2 * report.num_leaves) << name;
  }
}

TEST(Dcp, NamesTheTensorWhoseBytesAreDamaged) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::string data = bytes_of(path / "__1_0.distcp");
  const std::string row = {0, 0, 0x10, 0x41};  // 9.0, the first number of the second rank
  data[data.find(row)] ^= 1;
  write_bytes(path / "__1_0.distcp", data);
  const VerifyReport report = verify(path);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_THAT(report.problems[0].path, HasSubstr("__1_0.distcp"));
  EXPECT_THAT(report.problems[0].part, HasSubstr("key \"model.rows\": item at byte"));
  EXPECT_THAT(report.problems[0].expected, HasSubstr("CRC-32"));
}

TEST(Dcp, ReadsOnlyTheRequestedFiles) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::filesystem::remove(path / "__1_0.distcp");
  const TensorDict tree = open(path);
  const Leaf rows = std::get<Leaf>(tree.get({"model", "rows"}));
  std::vector<std::byte> first(36);
  rows.read(0, first);  // the three rows of the first rank
  EXPECT_EQ(first[4], std::byte{0});
  EXPECT_EQ(first[7], std::byte{0x3F});
  const std::string expected = "__1_0.distcp: missing: expected a file that the metadata names";
  EXPECT_THAT(message_of([&] { rows.tensor(); }, ErrorCode::corrupt), HasSubstr(expected));
}

TEST(Dcp, ReportsThatAFileWasReplacedAfterItWasOpened) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  const dcp::Item item{0, 0, 1};
  const auto files = std::make_shared<dcp::Files>(
      os::Directory::open(path),
      std::vector<std::string>(1 + dcp::Files::kMaxOpen, "__1_0.distcp"));
  std::weak_ptr<const os::File> first = files->open(item);
  EXPECT_FALSE(first.expired());
  // At most kMaxOpen files are kept open. When one more is opened, the first one is closed, but
  // every file can still be used.
  for (std::uint32_t i = 1; i <= dcp::Files::kMaxOpen; ++i) EXPECT_TRUE(files->open({i, 0, 1}));
  EXPECT_TRUE(first.expired());
  const FileOpener again = files->place(item).file;
  EXPECT_EQ(again()->size_bytes(), std::filesystem::file_size(path / "__1_0.distcp"));
  for (std::uint32_t i = 1; i <= dcp::Files::kMaxOpen; ++i) EXPECT_TRUE(files->open({i, 0, 1}));
  std::filesystem::copy(path / "__1_0.distcp", path / "other");
  std::filesystem::rename(path / "other", path / "__1_0.distcp");
  EXPECT_THAT(message_of([&] { again(); }, ErrorCode::io), HasSubstr("was replaced since"));
}

TEST(Dcp, ReadsAnObjectWithoutTheFilesOfOtherEntries) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::filesystem::remove(path / "__0_0.distcp");
  EXPECT_EQ(open(path).value("step"), Value(3));
}

TEST(Dcp, VerifiesOnlyWhatIsLoaded) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::filesystem::remove(path / "__0_0.distcp");
  LoadOptions options;
  options.verify = true;
  options.keys = {"step"};
  EXPECT_EQ(load(path, options).value("step"), Value(3));
  options.keys = {"model"};
  EXPECT_THAT(message_of([&] { load(path, options); }, ErrorCode::corrupt),
              HasSubstr("__0_0.distcp"));
}

TEST(Dcp, ReportsErrorsInMetadata) {
  std::size_t num_cases = 0;
  for (const std::string& line : lines_of(checkpoint("expected.txt"))) {
    std::istringstream words(line);
    std::string name;
    std::string kind;
    std::string message;
    words >> name >> kind >> std::ws;
    std::getline(words, message);
    const TemporaryFolder folder;
    const Path path = with_metadata(folder, bytes_of(checkpoint("bad") / (name + ".metadata")));
    const ErrorCode code = kind == "corrupt" ? ErrorCode::corrupt : ErrorCode::unsupported;
    EXPECT_THAT(message_of([&] { read_all(path); }, code), HasSubstr(message)) << name;
    const VerifyReport report = verify(path);
    EXPECT_FALSE(report.ok()) << name;
    ++num_cases;
  }
  EXPECT_GT(num_cases, 40U);
}

TEST(Dcp, LimitsTheMissingItemsOfAllLists) {
  const TemporaryFolder folder;
  const auto write = [&](int num_lists) {
    dcp::Metadata metadata;
    for (int i = 0; i < num_lists; ++i) {
      const std::string list = "list" + std::to_string(i);
      metadata.entries.push_back(
          {list, {{list, false}, {"65536", true}}, dcp::TensorEntry{DType::float32, {0}, {}}});
    }
    write_bytes(folder / ".metadata", dcp::write_metadata(metadata));
  };
  write(1);
  EXPECT_EQ(std::get<TensorDict>(open(folder.path()).get("list0")).size(), 65'537U);
  write(2);
  EXPECT_THAT(
      message_of([&] { open(folder.path()); }, ErrorCode::corrupt),
      HasSubstr("list1: too many missing items: expected at most 65536 in all lists together, "
                "found 131072"));
}

TEST(Dcp, DoesNotFollowSymlinksOutOfTheFolder) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::filesystem::rename(path / "__1_0.distcp", folder / "outside");
  std::filesystem::create_symlink(folder / "outside", path / "__1_0.distcp");
  EXPECT_THAT(message_of([&] { read_all(path); }, ErrorCode::corrupt), HasSubstr("__1_0.distcp"));
}

TEST(Dcp, ReportsATruncatedFile) {
  const TemporaryFolder folder;
  const Path path = with_metadata(folder, bytes_of(checkpoint("sharded") / ".metadata"));
  std::filesystem::resize_file(path / "__1_0.distcp", 2000);
  EXPECT_THAT(message_of([&] { read_all(path); }, ErrorCode::corrupt),
              HasSubstr("it reaches past the end of the file"));
  EXPECT_FALSE(verify(path).ok());
}

TEST(Dcp, RequiresTheMetadataOfEveryRank) {
  const TemporaryFolder folder;
  const Path path = folder / "ckpt";
  std::filesystem::copy(checkpoint("ranks"), path);
  std::filesystem::remove(path / "__1.metadata");
  EXPECT_THAT(message_of([&] { open(path); }, ErrorCode::corrupt),
              HasSubstr("its pieces do not make up the tensor"));
}

TEST(Dcp, ReportsThatRanksDisagree) {
  const TemporaryFolder folder;
  const Path path = folder / "ckpt";
  std::filesystem::copy(checkpoint("ranks"), path);
  write_bytes(path / "__1.metadata", bytes_of(checkpoint("bad") / "larger.metadata"));
  EXPECT_THAT(message_of([&] { open(path); }, ErrorCode::corrupt),
              HasSubstr("__1.metadata: key \"model.rows\": the ranks disagree"));
}

/// Copies the folder of safetensors shards, and replaces `from` by `to` in one shard.
Path with_shard(const TemporaryFolder& folder, const std::string& from, const std::string& to) {
  const Path path = folder / "hf";
  std::filesystem::copy(checkpoint("hf"), path);
  const Path shard = path / "shard-00002-model-00001-of-00001.safetensors";
  std::string bytes = bytes_of(shard);
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  write_bytes(shard, bytes);
  return path;
}

std::string refusal_of_shards(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  const Path path = with_shard(folder, from, to);
  EXPECT_FALSE(verify(path).ok());
  return message_of([&] { open(path); }, ErrorCode::corrupt);
}

TEST(Dcp, VerifiesShardsInSafetensors) {
  const VerifyReport report = verify(checkpoint("hf"));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 5U);
  EXPECT_EQ(report.num_bytes, 180U);
}

TEST(Dcp, ReportsErrorsInShardsInSafetensors) {
  // The replacement has the same number of bytes, so that the header stays valid.
  const std::string info = R"(model.rows\": {\"saved_offsets\": [3, 0]})";
  const auto changed = [&](const std::string& offsets) {
    return refusal_of_shards(info, R"(model.rows\": {\"saved_offsets\": )" + offsets + "}");
  };
  EXPECT_THAT(changed("[4, 0]"),
              HasSubstr("tensor \"model.rows\": its pieces do not make up the tensor"));
  EXPECT_THAT(changed("[2, 0]"), HasSubstr("its pieces do not make up the tensor"));
  EXPECT_THAT(changed("[-3,0]"), HasSubstr("a list \"saved_offsets\" of 2 integers from 0"));
  EXPECT_THAT(changed("[3.00]"), HasSubstr("a list \"saved_offsets\" of 2 integers from 0"));
  EXPECT_THAT(changed("[3, 0["), HasSubstr("DCP_SHARDING_INFO"));
}

TEST(Dcp, ReportsThatShardsInSafetensorsDisagreeOnTheDtypeOfOneBox) {
  const TemporaryFolder folder;
  const Path path =
      with_shard(folder, R"("model.plain":{"dtype":"F32")", R"("model.plain":{"dtype":"I32")");
  const std::string name = "shard-00003-model-00001-of-00001.safetensors";
  std::filesystem::copy(checkpoint("hf") / "shard-00002-model-00001-of-00001.safetensors",
                        path / name);
  EXPECT_FALSE(verify(path).ok());
  EXPECT_THAT(message_of([&] { open(path); }, ErrorCode::corrupt),
              HasSubstr(name + ": tensor \"model.plain\": a piece of it has another dtype: "
                               "expected int32, as in another file, found float32"));
}

TEST(Dcp, RequiresAllShardsInSafetensors) {
  const TemporaryFolder folder;
  std::filesystem::copy(checkpoint("hf"), folder / "hf");
  std::filesystem::remove(folder / "hf" / "shard-00001-model-00001-of-00001.safetensors");
  EXPECT_THAT(message_of([&] { open(folder / "hf"); }, ErrorCode::corrupt),
              HasSubstr("its pieces do not make up the tensor"));
}

TEST(Dcp, ErrorsInTensorsOfAManifestHaveThePathOfTheFolder) {
  const TemporaryFolder folder;
  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  write_bytes(folder / "shard-00001-model-00001-of-00001.safetensors", bytes + header + '\0');
  write_bytes(folder / "metadata.json",
              R"({"format":"tenfold.distributed","version":1,"layout":"shards","files":)"
              R"(["shard-00001-model-00001-of-00001.safetensors"],"checksums":false,)"
              R"("tensors":[["w","uint8",[2],[[0,[0],[1]]]]],"tree":{"w":0}})");
  try {
    open(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.path(), folder.path().string());
    EXPECT_EQ(error.part(), "tensor \"w\"");
    EXPECT_THAT(error.what(), HasSubstr("its pieces do not make up the tensor"));
  }
}

TEST(Dcp, RefusesABoxWhoseEndDoesNotFit63Bits) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\": {\"saved_offsets\": [9223372036854775807]}}"},)"
      R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const Path shard = folder / "shard-00001-model-00001-of-00001.safetensors";
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  write_bytes(shard, bytes + header + '\0');
  EXPECT_EQ(message_of([&] { open(folder.path()); }, ErrorCode::corrupt),
            shard.string() +
                ": tensor \"w\": the end of its box is too large: expected at most 2^63 - 1, found "
                "offsets [9223372036854775807] and sizes [1]");
  EXPECT_THAT(verify(folder.path()).problems, SizeIs(1));
}

TEST(Dcp, AFolderWithoutShardsIsRefused) {
  const TemporaryFolder folder;
  write_bytes(folder / "model.safetensors", "");
  EXPECT_EQ(
      message_of([&] { safetensors::kDcpFormat.open(folder.path(), {}); }, ErrorCode::corrupt),
      folder.path().string() +
          ": no shards: expected files called "
          "\"shard-<rank + 1>-model-<i>-of-<n>.safetensors\", found none");
}

/// Returns the location of the first compressed tensor in the checkpoint `zstd`.
dcp::Item compressed_item() {
  const dcp::Metadata metadata =
      dcp::parse_metadata(bytes_of(checkpoint("zstd") / ".metadata"), "x");
  for (const dcp::Entry& entry : metadata.entries) {
    const auto* tensor = std::get_if<dcp::TensorEntry>(&entry.what);
    if (tensor != nullptr && !tensor->chunks.empty()) return tensor->chunks[0].item;
  }
  ADD_FAILURE() << "no tensor";
  return {};
}

std::string refusal_of_item(const dcp::Item& item) {
  const auto files = std::make_shared<dcp::Files>(os::Directory::open(checkpoint("zstd")),
                                                  std::vector<std::string>{"__0_0.distcp"});
  return message_of([&] { files->place(item); }, ErrorCode::corrupt);
}

TEST(Dcp, RefusesACompressedItemThatIsTooLongOrIncomplete) {
  dcp::Item item = compressed_item();
  ASSERT_TRUE(item.is_compressed());
  const std::string where = (checkpoint("zstd") / "__0_0.distcp").string() + ": item at byte " +
                            std::to_string(item.begin) + ": ";
  item.most_bytes = 100;
  EXPECT_EQ(refusal_of_item(item),
            where + "it decompresses to too much: expected at most 100 bytes, found more");
  item = compressed_item();
  item.size_bytes -= 10;
  EXPECT_EQ(refusal_of_item(item),
            where +
                "expected more compressed bytes, found the end of the item; the file may be "
                "truncated");
}

TEST(Dcp, ReadsSmallAndLargeTensorsWithTheirAliases) {
  const TemporaryFolder folder;
  std::string data;
  dcp::Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  for (const auto& [name, count] : {std::pair("small", 100), std::pair("large", 20'000)}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), count);
    const dcp::ItemFile file(DType::int32, {count});
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    const std::uint32_t crc = codecs::crc32(std::as_bytes(std::span(bytes)));
    const dcp::Item item{0, data.size(), file.size_bytes(), 0};
    data += file.head(crc) + bytes + file.tail(crc);
    for (const std::string& key : {std::string(name), std::string(name) + "_again"}) {
      metadata.entries.push_back(
          {key, {{key, false}}, dcp::TensorEntry{DType::int32, {count}, {{{0}, {count}, item}}}});
    }
  }
  write_bytes(folder / "__0_0.distcp", data);
  write_bytes(folder / ".metadata", dcp::write_metadata(metadata));
  EXPECT_TRUE(verify(folder.path()).ok());
  const TensorDict tree = open(folder.path());
  for (const auto& [name, count] : {std::pair("small", 100), std::pair("large", 20'000)}) {
    const Tensor tensor = tree.at(name);
    ASSERT_EQ(tensor.shape(), (Shape{count})) << name;
    EXPECT_EQ(tensor.data<std::int32_t>()[0], count);
    EXPECT_EQ(tensor.data<std::int32_t>()[count - 1], 2 * count - 1);
    EXPECT_EQ(tensor.raw_data(), tree.at(std::string(name) + "_again").raw_data())
        << "two names of one item share storage";
  }
  read_all(folder.path());
}

TEST(Dcp, ConvertsToOtherFormats) {
  const TemporaryFolder folder;
  for (const char* target : {"copy", "copy.safetensors"}) {
    convert(checkpoint("fsdp"), folder / target);
    EXPECT_TRUE(diff(checkpoint("fsdp"), folder / target).same()) << target;
  }
}

TEST(Dcp, IsReadOnly) {
  const TemporaryFolder folder;
  SaveOptions options;
  options.format = "dcp";
  EXPECT_THAT(
      message_of([&] { save(TensorDict(), folder / "x", options); }, ErrorCode::unsupported),
      HasSubstr("this version reads a checkpoint of torch.distributed and writes none"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  OpenOptions through;
  through.mode = Mode::write_through;
  EXPECT_THAT(message_of([&] { open(checkpoint("plain"), through); }, ErrorCode::unsupported),
              HasSubstr("cannot be changed in place"));
}

TEST(DcpMetadata, RoundTrips) {
  dcp::Metadata metadata;
  metadata.files = {"__0_0.distcp", "__1_0.distcp"};
  const auto chunk = [](Shape offsets, Shape sizes, std::uint32_t file, std::uint64_t begin) {
    return dcp::Chunk{std::move(offsets), std::move(sizes), {file, begin, 5'000'000'000, 0}};
  };
  metadata.entries = {
      {"model.w",
       {{"model", false}, {"w", false}},
       dcp::TensorEntry{DType::bfloat16,
                        {10, 6},
                        {chunk({0, 0}, {3, 6}, 0, 0), chunk({3, 0}, {7, 6}, 1, 70'000)}}},
      {"list.300", {{"list", false}, {"300", true}}, dcp::Item{1, 64, 800, 0}},
      {"s", {{"s", false}}, dcp::TensorEntry{DType::float32, {}, {chunk({}, {}, 0, 1)}}},
  };
  const dcp::Metadata read = dcp::parse_metadata(dcp::write_metadata(metadata), "x");
  ASSERT_THAT(read.files, testing::ElementsAreArray(metadata.files));
  ASSERT_THAT(read.entries, SizeIs(3));
  for (std::size_t i = 0; i < 3; ++i) {
    const dcp::Entry& expected = metadata.entries[i];
    EXPECT_EQ(read.entries[i].name, expected.name);
    EXPECT_EQ(read.entries[i].path, expected.path);
    ASSERT_EQ(read.entries[i].what.index(), expected.what.index());
  }
  const auto& tensor = std::get<dcp::TensorEntry>(read.entries[0].what);
  EXPECT_EQ(tensor.dtype, DType::bfloat16);
  EXPECT_EQ(tensor.shape, (Shape{10, 6}));
  ASSERT_THAT(tensor.chunks, SizeIs(2));
  EXPECT_EQ(tensor.chunks[1].offsets, (Shape{3, 0}));
  EXPECT_EQ(tensor.chunks[1].sizes, (Shape{7, 6}));
  EXPECT_EQ(tensor.chunks[1].item.file, 1U);
  EXPECT_EQ(tensor.chunks[1].item.begin, 70'000U);
  EXPECT_EQ(tensor.chunks[1].item.size_bytes, 5'000'000'000U);
  EXPECT_EQ(std::get<dcp::Item>(read.entries[1].what).begin, 64U);
}

/// Writes `entries` as metadata. Their equal strings and lists are stored once in the pickle, and
/// referred to repeatedly. Returns the error message with which parse_metadata() refuses this.
std::string refusal_of_repeats(const std::vector<dcp::Entry>& entries) {
  dcp::Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  metadata.entries = entries;
  const std::string pickle = dcp::write_metadata(metadata);
  EXPECT_LT(pickle.size(), 500'000U);
  return message_of([&] { dcp::parse_metadata(pickle, "x"); }, ErrorCode::unsupported);
}

TEST(DcpMetadata, RefusesSharedStringsThatAreRepeatedTooOften) {
  const std::string text(200'000, 'k');
  const dcp::TensorEntry empty{DType::float32, {0}, {}};
  const std::string refusal =
      "x: the pickle repeats shared objects too often: expected at most 64 MiB, plus 64 bytes for "
      "each byte of the pickle, found more";
  EXPECT_EQ(refusal_of_repeats({{"t", std::vector<dcp::Key>(500, {text, false}), empty}}), refusal);
  EXPECT_EQ(refusal_of_repeats(std::vector<dcp::Entry>(1000, {text, {{"t", false}}, empty})),
            refusal);
}

TEST(DcpMetadata, TheLastOfSeveralEqualKeysCounts) {
  dcp::Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  metadata.entries = {{"x", {{"first", false}}, dcp::Item{0, 0, 800, 0}},
                      {"x", {{"last", false}}, dcp::Item{0, 64, 800, 0}}};
  const dcp::Metadata read = dcp::parse_metadata(dcp::write_metadata(metadata), "x");
  ASSERT_THAT(read.entries, SizeIs(2));
  for (const dcp::Entry& entry : read.entries) {
    EXPECT_EQ(std::get<dcp::Item>(entry.what).begin, 64U);
    EXPECT_EQ(entry.path, metadata.entries[1].path);
  }
}

}  // namespace
}  // namespace tenfold::test

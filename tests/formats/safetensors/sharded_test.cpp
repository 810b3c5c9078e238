#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors/support.hpp"
#include "formats/shared/hub_index.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

const char* const kIndex = "m.safetensors.index.json";

WriteRequest shards_of(std::uint64_t size_bytes) {
  WriteRequest request;
  request.shard_size_bytes = size_bytes;
  return request;
}

/// Tensors of 8, 4, 12 and 8 bytes.
TensorDict flat_tree() {
  TensorDict tree(kind(NodeKind::dict));
  tree.set("z", tensor_of<float>({1, 2}, {2}));
  tree.set("y", tensor_of<float>({3}, {1}));
  tree.set("x", tensor_of<float>({4, 5, 6}, {3}));
  tree.set("w", tensor_of<double>({7}, {1}));
  return tree;
}

std::set<std::string> entries_of(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(SafetensorsSharded, ShardsAreFilledInTheOrderOfTheKeys) {
  const TemporaryFolder folder;
  WriteRequest request = shards_of(12);
  request.checksums = false;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, request);
  EXPECT_EQ(bytes_of(folder / kIndex),
            "{\n"
            "  \"metadata\": {\n"
            "    \"total_size\": 32\n"
            "  },\n"
            "  \"weight_map\": {\n"
            "    \"z\": \"m-00001-of-00003.safetensors\",\n"
            "    \"y\": \"m-00001-of-00003.safetensors\",\n"
            "    \"x\": \"m-00002-of-00003.safetensors\",\n"
            "    \"w\": \"m-00003-of-00003.safetensors\"\n"
            "  }\n"
            "}\n");
  EXPECT_EQ(entries_of(folder), (std::set<std::string>{kIndex, "m-00001-of-00003.safetensors",
                                                       "m-00002-of-00003.safetensors",
                                                       "m-00003-of-00003.safetensors"}));
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(flat_tree()));
  EXPECT_EQ(safetensors::kFormat.open(folder / "m-00001-of-00003.safetensors", {}).size(), 2U)
      << "a shard is a complete file";
}

TEST(SafetensorsSharded, ATensorLargerThanAShardHasItsOwnShard) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, shards_of(1));
  EXPECT_EQ(entries_of(folder).size(), 5U);
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(flat_tree()));
}

TEST(SafetensorsSharded, StructureSharedStorageAndOrderRoundTrip) {
  const TemporaryFolder folder;
  const Tensor shared = tensor_of<float>({1, 2, 3}, {3});
  TensorDict inner(batch({3}, {"n"}));
  inner.set("a", shared);
  inner.set("text", Value("v"));
  TensorDict tree;
  tree.set("b", tensor_of<std::uint8_t>({9}, {1}));
  tree.set("inner", inner);
  tree.set("tied", shared);
  safetensors::kShardedFormat.check(tree);
  safetensors::kShardedFormat.write(tree, folder / kIndex, shards_of(4));
  const TensorDict opened = safetensors::kShardedFormat.open(folder / kIndex, {});
  EXPECT_EQ(text_of(opened), text_of(tree));
  EXPECT_EQ(opened.at("tied").raw_data(), opened.at("inner", "a").raw_data());

  TensorDict flat(kind(NodeKind::ordered_dict));
  flat.set("head", shared);
  flat.set("mid", tensor_of<float>({4}, {1}));
  flat.set("embed", shared);
  safetensors::kShardedFormat.write(flat, folder / kIndex, shards_of(4));
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(flat));
  EXPECT_TRUE(safetensors::kShardedFormat.verify(folder / kIndex, {}).ok());
}

TEST(SafetensorsSharded, SavingAgainRemovesOldShardsAndKeepsForeignFiles) {
  const TemporaryFolder folder;
  write_bytes(folder / "m-00009-of-00009.safetensors", "a foreign file");
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, shards_of(12));
  const TensorDict old = safetensors::kShardedFormat.open(folder / kIndex, {});
  TensorDict next(kind(NodeKind::dict));
  next.set("z", tensor_of<float>({-1}, {1}));
  next.set("y", tensor_of<float>({-2}, {1}));
  next.set("x", tensor_of<float>({-3}, {1}));
  safetensors::kShardedFormat.write(next, folder / kIndex, shards_of(4));
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(next));
  EXPECT_EQ(text_of(old), text_of(flat_tree())) << "an open tree keeps the old version";
  const auto entries = entries_of(folder);
  EXPECT_EQ(entries.size(), 1U + 3U + 1U);
  EXPECT_TRUE(entries.contains("m-00009-of-00009.safetensors")) << "a foreign file";
}

TEST(SafetensorsSharded, AnIndexMayHaveTheLongestName) {
  const TemporaryFolder folder;
  const std::string suffix = ".safetensors.index.json";
  const Path index = folder / (std::string(255 - suffix.size(), 'm') + suffix);
  // The second save needs other names for its shards, because the first shards still exist.
  for (int save = 0; save < 2; ++save) {
    safetensors::kShardedFormat.write(flat_tree(), index, shards_of(8));
    EXPECT_EQ(text_of(safetensors::kShardedFormat.open(index, {})), text_of(flat_tree()));
  }
}

TEST(SafetensorsSharded, ExistingShardFilesAreNotOverwritten) {
  const TemporaryFolder folder;
  write_bytes(folder / "m-00001-of-00001.safetensors", "precious");
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, {});
  EXPECT_EQ(bytes_of(folder / "m-00001-of-00001.safetensors"), "precious");
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(flat_tree()));
}

TEST(SafetensorsSharded, ATreeMayBeSavedOverTheShardsItWasReadFrom) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, shards_of(12));
  safetensors::kShardedFormat.write(safetensors::kShardedFormat.open(folder / kIndex, {}),
                                    folder / kIndex, shards_of(20));
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(flat_tree()));
}

TEST(SafetensorsSharded, ATreeWithoutTensorsIsOnlyAnIndex) {
  const TemporaryFolder folder;
  TensorDict tree;
  tree.set("n", Value(1));
  safetensors::kShardedFormat.write(tree, folder / kIndex, {});
  EXPECT_EQ(entries_of(folder), std::set<std::string>{kIndex});
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(tree));
}

TEST(SafetensorsSharded, IsRecognisedByContent) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, {});
  EXPECT_TRUE(safetensors::kShardedFormat.probe(folder / kIndex));
  EXPECT_FALSE(safetensors::kFormat.probe(folder / kIndex));
  EXPECT_FALSE(safetensors::kShardedFormat.probe(folder / "m-00001-of-00001.safetensors"));
  EXPECT_FALSE(safetensors::kShardedFormat.probe(folder.path()));
  write_bytes(folder / "other.json", "{\"weights\": 1}");
  EXPECT_FALSE(safetensors::kShardedFormat.probe(folder / "other.json"));
}

TEST(SafetensorsSharded, ANameThatIsNotAnIndexIsRefused) {
  const TemporaryFolder folder;
  for (const char* name : {"m.json", ".safetensors.index.json"}) {
    message_of([&] { safetensors::kShardedFormat.write(flat_tree(), folder / name, {}); },
               ErrorCode::unsupported);
  }
  EXPECT_TRUE(entries_of(folder).empty());
}

TEST(SafetensorsSharded, VerifyDetectsAFlippedBitInEveryByteOfTheIndexAndOfAShard) {
  const bool has_memory = std::filesystem::is_directory("/dev/shm");
  const TemporaryFolder folder(has_memory ? "/dev/shm" : "");
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, shards_of(12));
  const VerifyReport whole = safetensors::kShardedFormat.verify(folder / kIndex, {});
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(whole.num_leaves, 4U);
  EXPECT_EQ(whole.num_bytes, 32U);
  EXPECT_EQ(whole.num_checksums, 1U + 3U + 4U) << "index, headers, tensors";
  for (const std::string& name :
       {std::string(kIndex), std::string("m-00002-of-00003.safetensors")}) {
    const std::string bytes = bytes_of(folder / name);
    const std::size_t marker_at = bytes.find("tenfold_xxh3");
    ASSERT_NE(marker_at, std::string::npos);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      write_bytes(folder / name, damaged);
      const VerifyReport report = safetensors::kShardedFormat.verify(folder / kIndex, {});
      // A change of the name of the member with the checksums gives a valid file without checksums.
      const bool hidden = at >= marker_at && at < marker_at + 12;
      EXPECT_TRUE(!report.ok() || hidden) << name << " byte " << at;
    }
    write_bytes(folder / name, bytes);
  }
}

TEST(SafetensorsSharded, ATensorMayHaveTheNameOfTheChecksums) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::dict));
  tree.set("tenfold_xxh3", tensor_of<float>({1, 2}, {2}));
  safetensors::kShardedFormat.write(tree, folder / kIndex, shards_of(100));
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(tree));
  const VerifyReport report = safetensors::kShardedFormat.verify(folder / kIndex, {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, 1U + 1U + 1U);
  // An index without a checksum, as other tools write it, is valid.
  std::string index = bytes_of(folder / kIndex);
  const std::size_t at = index.find("    \"tenfold_xxh3\"");
  index.erase(at, index.find('\n', at) + 1 - at);
  write_bytes(folder / kIndex, index);
  EXPECT_TRUE(safetensors::kShardedFormat.verify(folder / kIndex, {}).ok());
}

TEST(SafetensorsSharded, VerifyReportsAChecksumThatCannotBeRead) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(data("ok-blanks.safetensors"), folder / "s.safetensors");
  for (const std::string value : {"\"0123\"", "\"0123456789abcdef0\""}) {
    write_bytes(folder / kIndex, "{\"metadata\":{\"tenfold_xxh3\":" + value +
                                     "},\"weight_map\":{\"w\":\"s.safetensors\"}}");
    const VerifyReport report = safetensors::kShardedFormat.verify(folder / kIndex, {});
    ASSERT_EQ(report.problems.size(), 1U) << value;
    EXPECT_EQ(report.problems[0].path, (folder / kIndex).string());
    EXPECT_EQ(report.problems[0].part, "metadata \"tenfold_xxh3\"");
    EXPECT_EQ(
        report.problems[0].what,
        "cannot be read: expected 16 hexadecimal digits as tenfold writes them, found another "
        "value; another tool may have changed the file");
  }
  // Another tool rewrote the index, with a blank where tenfold writes none.
  write_bytes(folder / kIndex,
              "{\"metadata\":{\"tenfold_xxh3\" : \"0123456789abcdef\"},"
              "\"weight_map\":{\"w\":\"s.safetensors\"}}");
  EXPECT_EQ(safetensors::kShardedFormat.verify(folder / kIndex, {}).problems.size(), 1U);
}

/// Returns the message, without its path, with which `index` is refused next to one good shard
/// "s.safetensors" that holds the tensor "w".
std::string open_error(const TemporaryFolder& folder, const std::string& index,
                       ErrorCode code = ErrorCode::corrupt) {
  std::filesystem::copy_file(data("ok-blanks.safetensors"), folder / "s.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  write_bytes(folder / kIndex, index);
  const std::string message =
      message_of([&] { safetensors::kShardedFormat.open(folder / kIndex, {}); }, code);
  const std::string prefix = (folder / kIndex).string() + ": ";
  EXPECT_TRUE(message.starts_with(prefix)) << message;
  const VerifyReport report = safetensors::kShardedFormat.verify(folder / kIndex, {});
  EXPECT_EQ(report.problems.size(), 1U);
  return message.substr(std::min(message.size(), prefix.size()));
}

TEST(SafetensorsSharded, EveryMalformedIndexIsRefusedWithItsMessage) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& index) { return open_error(folder, index); };
  EXPECT_EQ(error("[]"), "the document: has the wrong type: expected an object, found an array");
  EXPECT_EQ(error("{}"), "\"weight_map\": is missing: expected an object, found none");
  EXPECT_EQ(error("{\"weight_map\":[]}"),
            "\"weight_map\": has the wrong type: expected an object, found an array");
  EXPECT_EQ(error("{\"weight_map\":null}"),
            "\"weight_map\": has the wrong type: expected an object, found null");
  EXPECT_EQ(error("{\"weight_map\":{},\"weight_map\":{}}"),
            "\"weight_map\": is duplicated: expected it once, found two");
  EXPECT_EQ(
      error("{\"weight_map\":{\"w\":1}}"),
      "tensor \"w\": the name of its file has the wrong type: expected a string, found a number");
  EXPECT_EQ(
      error("{\"weight_map\":{\"w\":{}}}"),
      "tensor \"w\": the name of its file has the wrong type: expected a string, found an object");
  EXPECT_EQ(error("{\"weight_map\":{\"w\":\"s.safetensors\",\"w\":\"s.safetensors\"}}"),
            "tensor \"w\": its name is duplicated: expected it once, found two");
  for (const std::string file : {"../s.safetensors", "/etc/passwd", "a/b", ".", ".."}) {
    EXPECT_EQ(error("{\"weight_map\":{\"w\":\"" + file + "\"}}"),
              "tensor \"w\": its file leads out of the folder: expected the name of a file next to "
              "the index, found \"" +
                  file + "\"");
  }
  EXPECT_EQ(error("{\"weight_map\":{\"w\":\"\"}}"),
            "tensor \"w\": the name of its file is empty: expected the name of a file next to the "
            "index, found \"\"");
  EXPECT_EQ(error("{\"weight_map\":{\"w\":\"t.safetensors\"}}"),
            "shard \"t.safetensors\": missing: expected a file next to the index, found none");
  EXPECT_EQ(error("{\"weight_map\":{\"v\":\"s.safetensors\"}}"),
            "tensor \"v\": missing in its shard: expected a tensor in \"s.safetensors\", found "
            "none");
}

TEST(SafetensorsSharded, ATensorThatTheIndexDoesNotNameIsRefused) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, {});
  write_bytes(folder / kIndex,
              "{\"weight_map\":{\"w\":\"m-00001-of-00001.safetensors\","
              "\"x\":\"m-00001-of-00001.safetensors\",\"z\":\"m-00001-of-00001.safetensors\"}}");
  EXPECT_EQ(message_of([&] { safetensors::kShardedFormat.open(folder / kIndex, {}); },
                       ErrorCode::corrupt),
            (folder / kIndex).string() +
                ": tensor \"y\": not in the index: expected \"weight_map\" to assign it to "
                "\"m-00001-of-00001.safetensors\", found no such entry");
}

TEST(SafetensorsSharded, UnknownMembersAreIgnored) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(data("ok-blanks.safetensors"), folder / "s.safetensors");
  write_bytes(
      folder / kIndex,
      "{\"x\":[1,{\"weight_map\":2}],\"metadata\":{\"total_size\":8,\"n\":null,\"l\":[[],{}]},"
      "\"y\":3,\"weight_map\":{\"w\":\"s.safetensors\"},\"z\":{\"a\":[]}}");
  EXPECT_EQ(safetensors::kShardedFormat.open(folder / kIndex, {}).keys(),
            std::vector<std::string>{"w"});
}

/// A cache of the Hugging Face hub that contains one shard and its index as blobs. The index is
/// opened through a symbolic link; link_shard() creates the link to the shard.
struct Cache {
  Cache() {
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directory(blobs);
    std::filesystem::copy_file(data("ok-blanks.safetensors"), blobs / kHash);
    write_bytes(blobs / kIndexHash, "{\"weight_map\":{\"w\":\"s.safetensors\"}}");
    std::filesystem::create_symlink("../../blobs/" + kIndexHash, snapshot / kIndex);
  }
  void link_shard(const std::string& text) const {
    std::filesystem::remove(snapshot / "s.safetensors");
    std::filesystem::create_symlink(text, snapshot / "s.safetensors");
  }
  std::string refusal() const {
    return message_of([&] { safetensors::kShardedFormat.open(snapshot / kIndex, {}); },
                      ErrorCode::corrupt);
  }

  const std::string kHash = std::string(60, 'a') + "0123";
  const std::string kIndexHash = std::string(36, 'b') + "0123";
  TemporaryFolder folder;
  Path snapshot = folder / "models--o--m/snapshots/c0ffee";
  Path blobs = folder / "models--o--m/blobs";
};

TEST(SafetensorsSharded, ASymlinkIntoTheHubCacheIsFollowed) {
  const Cache cache;
  cache.link_shard("../../blobs/" + cache.kHash);
  const TensorDict tree = safetensors::kShardedFormat.open(cache.snapshot / kIndex, {});
  EXPECT_EQ(tree.keys(), std::vector<std::string>{"w"});
  EXPECT_NE(tree.at("w").raw_data(), nullptr);
  EXPECT_TRUE(safetensors::kShardedFormat.verify(cache.snapshot / kIndex, {}).ok());
}

TEST(SafetensorsSharded, ASaveThroughASymlinkedIndexIsReadThroughIt) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  const std::string name = "m.safetensors.index.json";
  std::filesystem::create_symlink("real/" + name, folder / name);
  TensorDict tree = TensorDict(NodeInfo{.kind = NodeKind::dict});
  const std::vector<float> values = {1, 2, 3};
  tree.set("w", Tensor::from(std::span<const float>(values), {3}));
  for (int round = 0; round < 2; ++round) {
    safetensors::kShardedFormat.write(tree, folder / name, {});
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
    const TensorDict found = safetensors::kShardedFormat.open(folder / name, {});
    EXPECT_EQ(found.at("w").data<float>()[2], 3.0F);
    EXPECT_TRUE(safetensors::kShardedFormat.verify(folder / name, {}).ok());
  }
  EXPECT_EQ(entries_of(folder), (std::set<std::string>{"real", name}));
}

TEST(SafetensorsSharded, OtherSymlinksAreNotFollowed) {
  const Cache cache;
  std::filesystem::copy_file(cache.blobs / cache.kHash, cache.blobs / "plain");
  std::filesystem::create_directory(cache.folder / "models--o--m/snapshots/blobs");
  std::filesystem::copy_file(cache.blobs / cache.kHash,
                             cache.folder / "models--o--m/snapshots/blobs" / cache.kHash);
  for (const std::string& text :
       {data("ok-blanks.safetensors").string(), (cache.blobs / cache.kHash).string(),
        std::string("../../blobs/plain"), "../blobs/" + cache.kHash,
        "../../blobs/../blobs/" + cache.kHash, "../.././blobs/" + cache.kHash,
        "../../blobs/" + cache.kHash + "/", std::string("../../blobs/") + std::string(64, 'A')}) {
    cache.link_shard(text);
    EXPECT_EQ(cache.refusal(),
              (cache.snapshot / kIndex).string() +
                  ": shard \"s.safetensors\": is a symbolic link: expected a regular file, or a "
                  "link of the Hugging Face cache to \"../../blobs/<hash>\", found one to \"" +
                  text + "\"");
  }
}

TEST(SafetensorsSharded, ACacheSymlinkMustLeadToARegularFile) {
  const Cache cache;
  cache.link_shard("../../blobs/" + std::string(64, 'f'));
  message_of([&] { safetensors::kShardedFormat.open(cache.snapshot / kIndex, {}); },
             ErrorCode::file_not_found);
  std::filesystem::create_symlink(cache.kHash, cache.blobs / std::string(64, 'f'));
  EXPECT_THAT(cache.refusal(),
              testing::HasSubstr("expected a regular file, found a symbolic link"));
  std::filesystem::rename(cache.blobs, cache.folder / "elsewhere");
  std::filesystem::create_directory_symlink(cache.folder / "elsewhere", cache.blobs);
  cache.link_shard("../../blobs/" + cache.kHash);
  EXPECT_THAT(cache.refusal(), testing::HasSubstr("expected a folder, found a symbolic link"));
}

TEST(SafetensorsSharded, NoPrefixOfAnIndexOpens) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, shards_of(12));
  std::string whole = bytes_of(folder / kIndex);
  whole.resize(whole.find_last_of('}') + 1);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / kIndex, whole.substr(0, size));
    message_of([&] { safetensors::kShardedFormat.open(folder / kIndex, {}); }, ErrorCode::corrupt);
  }
}

TEST(SafetensorsSharded, RefusesModeWriteThrough) {
  const TemporaryFolder folder;
  safetensors::kShardedFormat.write(flat_tree(), folder / kIndex, {});
  message_of([&] { safetensors::kShardedFormat.open(folder / kIndex, {Mode::write_through}); },
             ErrorCode::unsupported);
}

}  // namespace
}  // namespace tenfold::test

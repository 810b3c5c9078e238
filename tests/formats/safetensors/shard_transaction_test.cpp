#include "formats/safetensors/shard_transaction.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/safetensors/support.hpp"

namespace tenfold::test {

using namespace detail::formats;
using safetensors::ShardTransaction;
namespace {

const std::string kIndex = "m.safetensors.index.json";
const std::string kFirst = "m-00001-of-00001.safetensors";

/// Returns the name of the list of shards that a crashed writer leaves. `slot` is the number in the
/// temporary name of the index that the writer used.
std::string list_name(int slot) {
  return "." + kIndex + ".tenfold-shards-" + std::to_string(slot) + "-0123abcd";
}

std::set<std::string> entries_of(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::string index_of(const std::string& shard) {
  return "{\"weight_map\":{\"w\":\"" + shard + "\"}}";
}

TensorDict tree() {
  TensorDict tree(kind(NodeKind::dict));
  tree.set("w", tensor_of<float>({1, 2}, {2}));
  return tree;
}

void write(const Path& path) { safetensors::kShardedFormat.write(tree(), path, {}); }

TEST(ShardTransaction, RemovesWhatCrashedWritersOfEverySlotListed) {
  const TemporaryFolder folder;
  for (const int slot : {0, 1, 40}) {
    const std::string shard = "left-" + std::to_string(slot) + ".safetensors";
    write_bytes(folder / shard, "left");
    write_bytes(folder / list_name(slot), shard + "\n");
  }
  write(folder / kIndex);
  EXPECT_EQ(entries_of(folder), (std::set<std::string>{kIndex, kFirst}));
}

TEST(ShardTransaction, RemovesOnlyShardsThatAreListedAndThatTheIndexDoesNotName) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "sub");
  write_bytes(folder / "sub" / "s.safetensors", "foreign");
  write_bytes(folder / "notes.txt", "foreign");
  write_bytes(folder / "cut.safetensors", "foreign");
  write_bytes(folder / "left.safetensors", "left");
  std::filesystem::create_directory(folder / "folder.safetensors");
  std::filesystem::copy_file(data("ok-blanks.safetensors"), folder / "named.safetensors");
  write_bytes(folder / kIndex, index_of("named.safetensors"));
  // The last line is not complete: the writer crashed.
  write_bytes(folder / list_name(1),
              "sub/s.safetensors\nnotes.txt\nfolder.safetensors\nnamed.safetensors\n"
              "left.safetensors\nmissing.safetensors\ncut.safetensors");
  {
    os::Directory directory = os::Directory::open(folder.path());
    const FileReplacement index(folder / kIndex, 0);
    const ShardTransaction shards(directory, kIndex, index,
                                  [] { return std::vector<std::string>{"named.safetensors"}; });
  }
  EXPECT_EQ(entries_of(folder),
            (std::set<std::string>{kIndex, "sub", "notes.txt", "cut.safetensors",
                                   "folder.safetensors", "named.safetensors"}));
  EXPECT_EQ(bytes_of(folder / "sub" / "s.safetensors"), "foreign");
}

TEST(ShardTransaction, KeepsListedShardsWhileTheIndexCannotBeRead) {
  const TemporaryFolder folder;
  write_bytes(folder / kIndex, "{");
  write_bytes(folder / kFirst, "perhaps named by the index");
  write_bytes(folder / list_name(1), kFirst + "\n");
  write(folder / kIndex);
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(tree()));
  EXPECT_EQ(bytes_of(folder / kFirst), "perhaps named by the index");
  EXPECT_TRUE(std::filesystem::exists(folder / list_name(1)));
  write(folder / kIndex);  // now the index can be read, and does not name the shard
  EXPECT_FALSE(std::filesystem::exists(folder / list_name(1)));
  EXPECT_EQ(entries_of(folder).size(), 2U);
  EXPECT_EQ(text_of(safetensors::kShardedFormat.open(folder / kIndex, {})), text_of(tree()));
}

/// Creates one shard in a transaction that ends before its index is published.
void abandon(const TemporaryFolder& folder, bool about_to_commit,
             const std::function<std::vector<std::string>()>& present_shards) {
  os::Directory directory = os::Directory::open(folder.path());
  const FileReplacement index(folder / kIndex, 0);
  ShardTransaction shards(directory, kIndex, index, present_shards);
  const std::vector<std::string> names = shards.name_shards(1, false);
  EXPECT_EQ(names, std::vector<std::string>{kFirst});
  shards.create(names[0], std::nullopt).close_written();
  if (about_to_commit) shards.about_to_commit();
}

TEST(ShardTransaction, RemovesItsShardsUnlessTheIndexMayNameThem) {
  const auto left = [](bool about_to_commit, const auto& present_shards) {
    const TemporaryFolder folder;
    abandon(folder, about_to_commit, present_shards);
    return entries_of(folder);
  };
  const auto nothing = [] { return std::vector<std::string>(); };
  const auto named = [] { return std::vector<std::string>{kFirst}; };
  const auto unreadable = []() -> std::vector<std::string> {
    throw Error(ErrorCode::corrupt, "the index cannot be read");
  };
  EXPECT_TRUE(left(false, nothing).empty());
  EXPECT_TRUE(left(false, named).empty());
  EXPECT_TRUE(left(true, nothing).empty());
  EXPECT_EQ(left(true, named).size(), 2U) << "the shard and its list";
  EXPECT_EQ(left(true, unreadable).size(), 2U) << "the shard and its list";
  EXPECT_TRUE(left(true, named).contains(kFirst));
  EXPECT_TRUE(left(true, unreadable).contains(kFirst));
}

}  // namespace
}  // namespace tenfold::test

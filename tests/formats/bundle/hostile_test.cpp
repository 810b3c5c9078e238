// Malicious folders, and folders that change while they are read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "formats/bundle/folder.hpp"
#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
namespace bundle = detail::formats::bundle;
using test::thrown_by;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class HostileBundle : public testing::Test {
 protected:
  HostileBundle() {
    fs::create_directory(path_);
    test::write_bytes(path_ / "trainer_state.json", "{}");
  }

  std::string refusal(const std::string& key) const {
    const auto thrown = thrown_by([&] { open(path_).get(key); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported) << thrown.message;
    return thrown.message;
  }
  /// Checks that load(), diff(), verify() and scan() end without an error.
  void expect_walkable() const {
    EXPECT_NO_THROW(load(path_, {.allow_opaque = true}));
    EXPECT_NO_THROW(diff(path_, path_));
    EXPECT_NO_THROW(verify(path_));
    EXPECT_NO_THROW(scan(path_));
  }

  test::TemporaryFolder folder_;
  Path path_ = folder_ / "run";
};

TEST_F(HostileBundle, DoesNotFollowSymlinksOutOfItsFolder) {
  save(test::sample_state_dict(), folder_ / "secret.safetensors");
  fs::create_symlink(folder_ / "secret.safetensors", path_ / "model.safetensors");
  fs::create_directory(folder_ / "outside");
  test::write_bytes(folder_ / "outside/trainer_state.json", "{}");
  fs::create_symlink(folder_ / "outside", path_ / "global_step1");
  fs::create_symlink("../run", path_ / "self");
  fs::create_symlink("nowhere", path_ / "config.json");
  for (const char* key : {"model", "global_step1", "self", "config"}) {
    EXPECT_THAT(refusal(key), HasSubstr("a symbolic link, which is not followed")) << key;
  }
  EXPECT_THAT(verify(path_).unchecked,
              ElementsAre("config", "global_step1", "model", "self", "trainer_state"));
  expect_walkable();
}

TEST_F(HostileBundle, FollowsSymlinksOfTheHubCache) {
  const Path snapshot = folder_ / "models--a--b/snapshots/0/checkpoint-1";
  const Path blobs = folder_ / "models--a--b/blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  const std::string hash(64, 'a');
  save(test::sample_state_dict(), folder_ / "x.safetensors");
  fs::rename(folder_ / "x.safetensors", blobs / hash);
  test::write_bytes(blobs / std::string(40, 'b'), "{\"epoch\": 1}");
  fs::create_symlink("../../../blobs/" + hash, snapshot / "model.safetensors");
  fs::create_symlink("../../../blobs/" + std::string(40, 'b'), snapshot / "config.json");
  fs::create_symlink("../../../blobs/" + std::string(40, 'b'), snapshot / "trainer_state.json");
  fs::create_symlink("../../../blobs/" + std::string(40, 'b'), snapshot / "merges.txt");
  const TensorDict tree = open(snapshot);
  EXPECT_EQ(tree["model"].size(), 3u);
  EXPECT_EQ(tree["config"].value("epoch"), Value(1));
  EXPECT_TRUE(verify(snapshot).ok());
  std::string bytes;
  load(snapshot, {.allow_opaque = true})
      .for_each([&](const std::string& key, const TensorDict::Item& item) {
        if (key != "merges.txt") return;
        std::get<TensorDict>(item).for_each([&](const std::string&, const TensorDict::Item& of) {
          bytes = test::bytes_of(std::get<Leaf>(of).tensor());
        });
      });
  EXPECT_EQ(bytes, "{\"epoch\": 1}");
  // A blob that is itself a link is refused, because it could lead out of the cache.
  fs::rename(blobs / hash, folder_ / "secret");
  fs::create_symlink(folder_ / "secret", blobs / hash);
  EXPECT_THAT(thrown_by([&] { open(snapshot).get("model"); }).message,
              HasSubstr("a symbolic link"));
}

TEST_F(HostileBundle, AcceptsAnyFileName) {
  const std::string longest(250, 'x');
  const std::string broken = "bytes\xff\xfe";
  for (const std::string& name : {std::string("new\nline"), longest, broken, std::string("%2e%2e"),
                                  std::string("a.b.c"), std::string("\x1b[2J")}) {
    test::write_bytes(path_ / (name + ".json"), "1");
  }
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree.size(), 7u);
  for (const char* key : {"new\nline", "%2e%2e", "a.b.c", "\x1b[2J", "bytes\\xff\\xfe"}) {
    EXPECT_EQ(tree.value(key), Value(1)) << key;
  }
  EXPECT_EQ(tree.value(longest), Value(1));
  expect_walkable();
  convert(path_, folder_ / "copy");
  EXPECT_TRUE(diff(path_, folder_ / "copy").same());
}

TEST_F(HostileBundle, DistinguishesSimilarNames) {
  test::write_bytes(path_ / "a\xff.json", "1");
  test::write_bytes(path_ / "a\\xff.json", "2");
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree.size(), 3u);
  EXPECT_EQ(tree.value("a\\xff"), Value(2));
  EXPECT_EQ(tree.value("a\\xff_"), Value(1));
}

TEST_F(HostileBundle, RefusesAFolderWhereAFileIsExpected) {
  fs::create_directory(path_ / "optimizer.pt");
  test::write_bytes(path_ / "optimizer.pt/x", "?");
  fs::create_directory(path_ / "config.json");
  EXPECT_THAT(refusal("optimizer"), HasSubstr("optimizer.pt: not a known format"));
  EXPECT_THAT(refusal("config"), HasSubstr("config.json: not a known format"));
  expect_walkable();
}

TEST_F(HostileBundle, DoesNotOpenPipes) {
  ASSERT_EQ(::mkfifo((path_ / "optimizer.pt").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((path_ / "model.safetensors.index.json").c_str(), 0600), 0);
  EXPECT_THAT(refusal("optimizer"), HasSubstr("found a device, socket or pipe"));
  EXPECT_THAT(refusal("model"), HasSubstr("found a device, socket or pipe"));
  EXPECT_NO_THROW(load(path_, {.allow_opaque = true}));
  EXPECT_NO_THROW(verify(path_));
}

TEST_F(HostileBundle, NamesAFileThatVanished) {
  save(test::sample_state_dict(), path_ / "model.safetensors");
  const TensorDict tree = open(path_);
  fs::remove(path_ / "model.safetensors");
  const auto thrown = thrown_by([&] { tree.get("model"); });
  EXPECT_EQ(thrown.code, ErrorCode::file_not_found);
  EXPECT_THAT(thrown.message, HasSubstr("it was there when the folder was listed"));
  EXPECT_EQ(tree["trainer_state"].size(), 0u);
}

TEST_F(HostileBundle, NamesAFileThatBecameASymlink) {
  save(test::sample_state_dict(), path_ / "model.safetensors");
  const TensorDict tree = open(path_);
  fs::rename(path_ / "model.safetensors", folder_ / "m.safetensors");
  fs::create_symlink("../m.safetensors", path_ / "model.safetensors");
  EXPECT_THAT(thrown_by([&] { tree.get("model"); }).message, HasSubstr("a symbolic link"));
}

TEST_F(HostileBundle, RefusesShardsOutsideItsFolder) {
  save(test::sample_state_dict(), folder_ / "secret.safetensors");
  test::write_bytes(path_ / "model.safetensors.index.json",
                    R"({"weight_map": {"encoder.weight": "../secret.safetensors"}})");
  EXPECT_EQ(thrown_by([&] { open(path_).get("model"); }).code, ErrorCode::corrupt);
  EXPECT_FALSE(verify(path_).ok());
}

TEST_F(HostileBundle, AcceptsManyStrayFiles) {
  constexpr int kMany = 5'000;
  for (int i = 0; i < kMany; ++i) {
    std::ofstream(path_ / ("events." + std::to_string(i))) << i;
  }
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree.size(), kMany + 1u);
  EXPECT_EQ(tree["trainer_state"].size(), 0u);
  EXPECT_EQ(verify(path_).unchecked.size(), kMany + 1u);
}

TEST(BundleEntries, AreLimited) {
  if (!fs::is_directory("/dev/shm")) {
    GTEST_SKIP() << "no /dev/shm: other file systems need too long for so many files";
  }
  const test::TemporaryFolder folder("/dev/shm");
  const auto directory = os::Directory::open(folder.path());
  for (std::size_t i = 0; i <= bundle::kMaxEntries; ++i) {
    ASSERT_EQ(::mknodat(directory.fd(), std::to_string(i).c_str(), S_IFREG | 0600, 0), 0);
  }
  const auto thrown = thrown_by([&] { bundle::list_entries(directory); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_EQ(thrown.message, folder.path().string() +
                                ": too many entries: expected at most 262144 files and folders, "
                                "found more; open the files one by one");
}

}  // namespace
}  // namespace tenfold

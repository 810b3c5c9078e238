// Damaged and hostile folders. Nothing outside of them is read. Each folder tests/data/memmap/bad-*
// (written by make_bad.py) is refused with the message of its expected.json. The tests create other
// folders: some have links or files that git cannot store, some have invalid notes, and some are
// damaged copies of ok-*. The damaged copies are refused, or are read without a crash.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/format.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Visits every node. Reads the first and last byte of every mapped tensor, and up to 64 bytes of
/// each tensor by Leaf::read().
void touch_all(const TensorDict& tree) {
  tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    const Tensor tensor = leaf->tensor();
    if (tensor.nbytes() == 0) return;
    volatile std::byte touched = tensor.raw_data()[0];
    touched = tensor.raw_data()[tensor.nbytes() - 1];
    static_cast<void>(touched);
    std::vector<std::byte> all(
        static_cast<std::size_t>(std::min<std::uint64_t>(leaf->nbytes(), 64)));
    leaf->read(0, all);
  });
}

struct Failure {
  ErrorCode code;
  std::string message;
};

std::optional<Failure> failure_of(const fs::path& path, Mode mode = Mode::read) {
  try {
    touch_all(folder::kFormat.open(path, {mode}));
  } catch (const Error& error) {
    return Failure{error.code(), error.what()};
  }
  return std::nullopt;
}

struct Bad {
  fs::path path;
  friend std::ostream& operator<<(std::ostream& out, const Bad& bad) {
    return out << bad.path.filename().string();
  }
};

std::vector<Bad> bad_folders() {
  std::vector<Bad> found;
  for (const auto& entry : fs::directory_iterator(TENFOLD_TEST_DATA "/memmap")) {
    if (entry.path().filename().string().starts_with("bad-")) found.push_back({entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const Bad& a, const Bad& b) { return a.path < b.path; });
  return found;
}

class MemmapBad : public testing::TestWithParam<Bad> {};

TEST_P(MemmapBad, IsRefusedWithItsMessage) {
  const Value expected = from_json(read_bytes(GetParam().path / "expected.json"), "expected.json");
  const auto text = [&](std::string_view key) {
    return std::get<std::string>(std::get<Value::Object>(expected.data()).find(key)->data());
  };
  const fs::path tree = GetParam().path / "tree";
  const auto failure = failure_of(tree);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, text("code") == "corrupt" ? ErrorCode::corrupt : ErrorCode::unsupported);
  // If the expected message ends with ": ", the rest is a message of the JSON parser.
  const std::string message = tree.string() + text("message");
  if (message.ends_with(": ")) {
    EXPECT_THAT(failure->message, StartsWith(message));
  } else {
    EXPECT_EQ(failure->message, message);
  }
}

TEST_P(MemmapBad, IsAProblemForVerify) {
  const VerifyReport report = folder::kFormat.verify(GetParam().path / "tree", {});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.problems[0].part, "");
  EXPECT_NE(report.problems[0].what, "");
  EXPECT_THAT(report.problems[0].path, StartsWith(GetParam().path.string()));
}

INSTANTIATE_TEST_SUITE_P(Folders, MemmapBad, testing::ValuesIn(bad_folders()), [](const auto& bad) {
  std::string name = bad.param.path.filename().string().substr(4);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

constexpr std::string_view kGoodMeta =
    R"({"a": {"device": "cpu", "shape": [2], "dtype": "torch.float32", "is_nested": false}, )"
    R"("n": {"type": "TensorDict"}, "shape": [], "device": "cpu", )"
    R"("_type": "<class 'tensordict._td.TensorDict'>"})";
constexpr std::string_view kEmptyMeta = R"({"_type": "<class 'tensordict._td.TensorDict'>"})";

/// A folder with a tensor "a" and a node "n".
void make_good(const fs::path& path) {
  fs::create_directories(path / "n");
  write_bytes(path / "meta.json", std::string(kGoodMeta));
  write_bytes(path / "n/meta.json", std::string(kEmptyMeta));
  write_bytes(path / "a.memmap", "12345678");
}

TEST(MemmapHostile, NeverFollowsSymlinksOutOfTheFolder) {
  const TemporaryFolder folder;
  make_good(folder / "good");
  ASSERT_FALSE(failure_of(folder / "good").has_value());
  const struct {
    std::string link;
    fs::path target;
    std::string message;
  } cases[] = {
      {"a.memmap", folder / "good/a.memmap",
       "a.memmap: expected a regular file, found a symbolic link"},
      {"meta.json", folder / "good/meta.json",
       "meta.json: expected a regular file, found a symbolic link"},
      {"n", folder / "good/n", "node \"n\": folder is missing"},
      {"n/meta.json", folder / "good/n/meta.json",
       "meta.json: expected a regular file, found a symbolic link"},
      {"%notes.json", folder / "good/meta.json",
       "%notes.json: expected a regular file, found a symbolic link"},
  };
  for (const auto& bad : cases) {
    fs::remove_all(folder / "bad");
    make_good(folder / "bad");
    fs::remove_all(folder.path() / "bad" / bad.link);
    fs::create_symlink(bad.target, folder.path() / "bad" / bad.link);
    for (const Mode mode : {Mode::read, Mode::write_through}) {
      const auto failure = failure_of(folder / "bad", mode);
      ASSERT_TRUE(failure.has_value()) << bad.link;
      EXPECT_EQ(failure->code, ErrorCode::corrupt) << bad.link;
      EXPECT_THAT(failure->message, HasSubstr(bad.message)) << bad.link;
    }
  }
  // A path given by the user may be a link.
  fs::create_directory_symlink(folder / "good", folder / "link");
  EXPECT_FALSE(failure_of(folder / "link").has_value());
}

TEST(MemmapHostile, NeverWaitsForAFifo) {
  for (const std::string name : {"a.memmap", "meta.json", "%notes.json", "n/meta.json"}) {
    const TemporaryFolder folder;
    make_good(folder / "bad");
    fs::remove(folder.path() / "bad" / name);
    ASSERT_EQ(::mkfifo((folder.path() / "bad" / name).c_str(), 0600), 0);
    for (const Mode mode : {Mode::read, Mode::write_through}) {
      const auto failure = failure_of(folder / "bad", mode);
      ASSERT_TRUE(failure.has_value()) << name;
      EXPECT_EQ(failure->code, ErrorCode::corrupt) << name;
      EXPECT_THAT(failure->message, HasSubstr("expected a regular file, found a FIFO")) << name;
    }
    EXPECT_FALSE(folder::kFormat.verify(folder / "bad", {}).ok());
  }
}

TEST(MemmapHostile, NeverGrowsAShortFile) {
  const TemporaryFolder folder;
  make_good(folder / "bad");
  write_bytes(folder / "bad/a.memmap", "1234567");
  for (const Mode mode : {Mode::read, Mode::copy_on_write, Mode::write_through}) {
    const auto failure = failure_of(folder / "bad", mode);
    ASSERT_TRUE(failure.has_value());
    EXPECT_THAT(failure->message, HasSubstr("expected 8 bytes, found 7"));
    EXPECT_EQ(read_bytes(folder / "bad/a.memmap"), "1234567");
  }
}

TEST(MemmapHostile, RefusesMetadataOfManyGigabytesBeforeReadingIt) {
  const TemporaryFolder folder;
  make_good(folder / "bad");
  fs::resize_file(folder / "bad/meta.json", std::uintmax_t{1} << 40);
  const auto failure = failure_of(folder / "bad");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, ErrorCode::corrupt);
  EXPECT_THAT(failure->message,
              HasSubstr("the file is too large: expected at most 268435456 bytes"));
}

TEST(MemmapHostile, RefusesFoldersNestedTooDeep) {
  const TemporaryFolder folder;
  fs::path path = folder / "bad";
  fs::create_directory(path);
  const fs::path start = fs::current_path();
  fs::current_path(path);
  for (int i = 0; i < 600; ++i) {
    write_bytes("meta.json", R"({"n": {"type": "TensorDict"}, "_type": )"
                             R"("<class 'tensordict._td.TensorDict'>"})");
    fs::create_directory("n");
    fs::current_path("n");
  }
  write_bytes("meta.json", std::string(kEmptyMeta));
  fs::current_path(start);
  const auto failure = failure_of(path);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, ErrorCode::unsupported);
  EXPECT_THAT(failure->message, HasSubstr("nodes nested too deep: expected at most 512 levels"));
}

TEST(MemmapHostile, RefusesNamesInNotesThatLeaveTheFolder) {
  const TemporaryFolder folder;
  make_good(folder / "bad");
  write_bytes(folder / "bad/other", "abcdefgh");
  write_bytes(folder / "secret", "abcdefgh");
  fs::copy(folder / "bad/n", folder / "bad/elsewhere");
  const fs::path notes = folder / "bad/%notes.json";
  write_bytes(notes, R"({"version": 1, "files": {"a": "other", "n": "elsewhere"}})");
  {
    // File names that a save would not write are ignored with a warning.
    const test::Warnings warnings;
    const TensorDict tree = folder::kFormat.open(folder / "bad", {});
    EXPECT_EQ(tree.at("a").raw_data()[0], std::byte{'1'});
    EXPECT_THAT(warnings.all(),
                ElementsAre(HasSubstr("found \"other\""), HasSubstr("found \"elsewhere\"")));
  }
  for (const std::string name : {"../secret", "..", "/etc/passwd", ""}) {
    write_bytes(notes, R"({"version": 1, "files": {"a": ")" + name + "\"}}");
    const test::Warnings warnings;
    const auto failure = failure_of(folder / "bad");
    EXPECT_TRUE(failure.has_value() || warnings.all().size() == 1) << name;
    if (failure) continue;
    EXPECT_EQ(folder::kFormat.open(folder / "bad", {}).at("a").raw_data()[0], std::byte{'1'});
  }
}

/// The files below 1,000 bytes of some golden folders.
std::vector<fs::path> small_files() {
  std::vector<fs::path> files;
  for (const std::string name :
       {"names", "lazy-name", "tensorclass-root", "stack", "nested-tensor", "v014-values"}) {
    const fs::path root = fs::path(TENFOLD_TEST_DATA "/memmap") / ("ok-" + name) / "tree";
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_regular_file() && entry.file_size() < 1000) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Opens, reads and verifies a damaged folder. Both a result and an Error are accepted.
void use_damaged(const fs::path& path) {
  static_cast<void>(failure_of(path));
  try {
    static_cast<void>(folder::kFormat.verify(path, {}));
  } catch (const Error&) {
  }
}

/// A copy of the folder of `file`, in which `file` can be damaged.
class DamagedCopy {
 public:
  explicit DamagedCopy(const fs::path& file) {
    fs::path root = file;
    while (root.filename() != "tree") root = root.parent_path();
    fs::copy(root, copy(), fs::copy_options::recursive);
    file_ = copy() / file.lexically_relative(root);
    bytes_ = read_bytes(file);
  }
  fs::path copy() const { return folder_ / "copy"; }
  const std::string& bytes() const { return bytes_; }
  void damage(const std::string& bytes) const { write_bytes(file_, bytes); }

 private:
  TemporaryFolder folder_;
  fs::path file_;
  std::string bytes_;
};

TEST(MemmapHostile, SurvivesEveryPrefixOfEverySmallFile) {
  const test::Warnings quiet;
  for (const fs::path& file : small_files()) {
    const DamagedCopy damaged(file);
    for (std::size_t size = 0; size < damaged.bytes().size(); ++size) {
      damaged.damage(damaged.bytes().substr(0, size));
      use_damaged(damaged.copy());
      // The file of a tensor is valid only at its full length.
      if (file.extension() == ".memmap") {
        EXPECT_TRUE(failure_of(damaged.copy()).has_value()) << file << " of " << size << " bytes";
      }
    }
  }
}

TEST(MemmapHostile, SurvivesRandomBytesInEverySmallFile) {
  const test::Warnings quiet;
  std::mt19937 random(7);
  for (const fs::path& file : small_files()) {
    const DamagedCopy damaged(file);
    const int flips = file.extension() == ".json" ? 500 : 50;
    for (int i = 0; i < flips && !damaged.bytes().empty(); ++i) {
      std::string bytes = damaged.bytes();
      bytes[random() % bytes.size()] = static_cast<char>(random());
      damaged.damage(bytes);
      use_damaged(damaged.copy());
    }
  }
}

}  // namespace
}  // namespace tenfold

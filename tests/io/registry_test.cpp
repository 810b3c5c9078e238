#include "io/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

using test::difference;
using test::thrown_by;
using testing::AllOf;
using testing::HasSubstr;

void write_file(const Path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Counts how often one file is opened.
class OpenCounter {
 public:
  explicit OpenCounter(const Path& path) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_, path.c_str(), IN_OPEN | IN_ACCESS | IN_CLOSE), 0);
  }
  ~OpenCounter() { ::close(fd_); }
  OpenCounter(const OpenCounter&) = delete;
  OpenCounter& operator=(const OpenCounter&) = delete;

  /// Returns the number of opens since construction or the last call. Reads and closes are watched
  /// as well, because they separate two opens: the kernel merges consecutive equal events.
  int count() {
    int opens = 0;
    inotify_event event{};
    while (::read(fd_, &event, sizeof(event)) == static_cast<ssize_t>(sizeof(event))) {
      opens += (event.mask & IN_OPEN) != 0 ? 1 : 0;
    }
    return opens;
  }

 private:
  int fd_;
};

/// Bytes that this process has read by system calls so far.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "rchar:") return value;
  }
  return 0;
}

TEST(Registry, ChoosesTheFormatBySuffix) {
  EXPECT_EQ(&format_for_saving("a/m.safetensors", ""), &safetensors::kFormat);
  EXPECT_EQ(&format_for_saving("a/m.safetensors.index.json", ""), &safetensors::kShardedFormat);
  EXPECT_EQ(&format_for_saving("a/x.npy", ""), &numpy::kNpy);
  EXPECT_EQ(&format_for_saving("a/ckpt", ""), &folder::kFormat);
  EXPECT_EQ(&format_for_saving("a/run.1", ""), &folder::kFormat);
  EXPECT_EQ(&format_for_saving("a/.safetensors", ""), &folder::kFormat);
}

TEST(Registry, AnExplicitFormatOverridesTheSuffix) {
  EXPECT_EQ(&format_for_saving("m.safetensors", "memmap"), &folder::kFormat);
  EXPECT_EQ(&format_for_saving("m", "safetensors"), &safetensors::kFormat);
  EXPECT_EQ(&format_for_saving("m.safetensors.index.json", "safetensors"),
            &safetensors::kShardedFormat);
}

TEST(Registry, RefusesAnUnsupportedFormatBeforeWriting) {
  const test::TemporaryFolder folder;
  for (const char* suffix : {".pkl"}) {
    const Path path = folder / (std::string("m") + suffix);
    const auto thrown = thrown_by([&] { save(test::sample_state_dict(), path); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported) << suffix;
    EXPECT_THAT(thrown.message,
                AllOf(HasSubstr(suffix), HasSubstr("\"memmap\""), HasSubstr("\"safetensors\"")));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(Registry, DescribesAForeignFile) {
  const test::TemporaryFolder folder;
  write_file(folder / "zip", "PK\x03\x04....");
  write_file(folder / "pickle", "\x80\x02}q");
  write_file(folder / "text", "hello\n");
  write_file(folder / "nothing", "");
  const std::pair<const char*, const char*> cases[] = {{"zip", "found a zip archive"},
                                                       {"pickle", "found a pickle"},
                                                       {"text", "starts with \"hello"},
                                                       {"nothing", "found an empty file"}};
  for (const auto& [file_name, words] : cases) {
    const auto thrown = thrown_by([&] { probe(folder / file_name); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported) << file_name;
    EXPECT_THAT(thrown.message, HasSubstr(words));
  }
}

TEST(Registry, NamesTheKindOfASpecialFile) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const std::pair<Path, const char*> cases[] = {{folder / "fifo", "found a FIFO"},
                                                {"/dev/null", "found a device"}};
  for (const auto& [path, words] : cases) {
    const auto thrown = thrown_by([&] { probe(path); });
    EXPECT_EQ(thrown.code, ErrorCode::corrupt) << path;
    EXPECT_THAT(thrown.message, HasSubstr(words));
  }
}

TEST(Registry, SuggestsAReadableFileInAFolder) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "repository");
  write_file(folder / "repository/model.safetensors", "");
  const auto thrown = thrown_by([&] { open(folder / "repository"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr("did you mean"));
  EXPECT_THAT(thrown.message, HasSubstr("repository/model.safetensors"));
}

TEST(Registry, SuggestsTheIndexRatherThanOneShard) {
  const test::TemporaryFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"model.safetensors.index.json", "model-00001-of-00002.safetensors"},
      {"model.safetensors", "a.npy"},
      {"pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"},
      {"pytorch_model.bin", "optimizer.pt"},
      {"adapter.safetensors.index.json", "adapter-00001.safetensors"}};
  for (const auto& [wanted, other] : cases) {
    const Path model = folder / (std::string("of ") + wanted);
    std::filesystem::create_directory(model);
    write_file(model / wanted, "{}");
    write_file(model / other, "");
    const auto thrown = thrown_by([&] { open(model); });
    EXPECT_THAT(thrown.message, HasSubstr("did you mean \"" + (model / wanted).string() + "\""));
  }
}

TEST(Registry, ReportsAnIncompleteDistributedCheckpoint) {
  const test::TemporaryFolder folder;
  write_file(folder / "__0_0.distcp", "");
  EXPECT_THAT(thrown_by([&] { open(Path(folder.path())); }).message,
              AllOf(HasSubstr("no \".metadata\""), HasSubstr("incomplete")));
}

TEST(Registry, DescribesFailedDownloads) {
  const test::TemporaryFolder folder;
  for (const char* name : {"m.pt", "m.safetensors", "m.bin", "m"}) {
    write_file(folder / name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    EXPECT_THAT(thrown_by([&] { open(folder / name); }).message, HasSubstr("\"git lfs pull\""));
    write_file(folder / name, "\n<!DOCTYPE html><html><body>sign in</body></html>");
    EXPECT_THAT(thrown_by([&] { open(folder / name); }).message, HasSubstr("an HTML page"));
  }
}

TEST(Registry, OpensByContentWithAnySuffix) {
  const test::TemporaryFolder folder;
  save(test::sample_state_dict(), folder / "m.safetensors");
  std::filesystem::rename(folder / "m.safetensors", folder / "weights.dat");
  EXPECT_EQ(probe(folder / "weights.dat"), "safetensors");
  EXPECT_EQ(difference(test::sample_state_dict(), load(folder / "weights.dat")), "");
}

TEST(Registry, ReportsTheErrorOfTheFormatOfTheSuffix) {
  const test::TemporaryFolder folder;
  write_file(folder / "m.safetensors", "");
  const auto thrown = thrown_by([&] { open(folder / "m.safetensors"); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
}

TEST(Registry, DoesNotAssumeThatBinFilesAreTorchFiles) {
  const test::TemporaryFolder folder;
  for (const char* text : {"", "hello\n",
                           "\x7f"
                           "ELF...."}) {
    write_file(folder / "m.bin", text);
    const auto thrown = thrown_by([&] { open(folder / "m.bin"); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported);
    EXPECT_THAT(thrown.message, HasSubstr("m.bin: not a known format: expected one of \""));
  }
  for (const char* text : {"PK\x03\x04....", "\x80\x02\x8a\nl"}) {
    write_file(folder / "m.bin", text);
    EXPECT_THAT(thrown_by([&] { open(folder / "m.bin"); }).message,
                testing::Not(HasSubstr("not a known format")));
  }
}

TEST(Registry, DescribesAPickleWithAnySuffix) {
  const test::TemporaryFolder folder;
  for (const char* file_name : {"m.pkl", "m.pt", "m.pth", "m.bin", "m"}) {
    write_file(folder / file_name, "\x80\x04}.");
    const auto thrown = thrown_by([&] { verify(folder / file_name); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported) << file_name;
    EXPECT_THAT(thrown.message, AllOf(HasSubstr("found a pickle"), HasSubstr("use scan")));
  }
}

std::vector<std::string> warned;

TEST(Registry, WarnsAboutAMisspelledSuffix) {
  WarningHandler before =
      set_warning_handler([](const std::string& message) { warned.push_back(message); });
  for (const auto& [file_name, intended] :
       {std::pair("m.safetensor", ".safetensors"), std::pair("m.saftensors", ".safetensors"),
        std::pair("m.NPZ", ".npz"), std::pair("m.ptt", ".pt"), std::pair("m.tdzz", ".tdz")}) {
    warned.clear();
    EXPECT_EQ(&format_for_saving(Path("a") / file_name, ""), &folder::kFormat);
    EXPECT_THAT(warned, testing::ElementsAre(
                            AllOf(HasSubstr(file_name), HasSubstr("a folder is written"),
                                  HasSubstr(std::string("did you mean \"") + intended + "\"?"))));
  }
  warned.clear();
  for (const char* file_name : {"run", "run.1", "run.v2", "2026.11.24", "x.", ".pt"}) {
    format_for_saving(file_name, "");
  }
  format_for_saving("m.safetensor", "memmap");
  set_warning_handler(before);
  EXPECT_THAT(warned, testing::IsEmpty());
}

TEST(Registry, ThrowsFileNotFoundForAMissingPath) {
  const auto thrown = thrown_by([] { probe("/nowhere/at/all"); });
  EXPECT_EQ(thrown.code, ErrorCode::file_not_found);
  EXPECT_THAT(thrown.message, HasSubstr("/nowhere/at/all: "));
}

TEST(Registry, SuggestsARemedyForAMissingPath) {
  const test::TemporaryFolder folder;
  write_file(folder / "weights.safetensors", "x");
  const auto message = [](const Path& path) { return thrown_by([&] { probe(path); }).message; };
  EXPECT_THAT(message(folder / "weight.safetensors"),
              testing::EndsWith("no such file or folder; did you mean \"" +
                                (folder / "weights.safetensors").string() + "\"?"));
  EXPECT_THAT(message(folder / "of" / "none"), testing::EndsWith("no such file or folder"));
  EXPECT_THAT(message("https://host/m.safetensors"), HasSubstr("it is a URL"));
  EXPECT_THAT(message("~/m.safetensors"), HasSubstr("only a shell replaces ~"));
  EXPECT_THAT(message("C:\\m.safetensors"), HasSubstr("separated by /"));
}

TEST(Registry, WarnsAboutTheSuffixOfAnotherProgram) {
  WarningHandler before =
      set_warning_handler([](const std::string& message) { warned.push_back(message); });
  warned.clear();
  EXPECT_EQ(&format_for_saving("m.h5", ""), &folder::kFormat);
  EXPECT_EQ(&format_for_saving("m.tsv", ""), &folder::kFormat);
  EXPECT_EQ(&format_for_saving("m.ndjson", ""), &folder::kFormat);
  format_for_saving("m.h5", "memmap");
  set_warning_handler(before);
  EXPECT_THAT(warned,
              testing::ElementsAre(
                  AllOf(HasSubstr("m.h5: suffix \".h5\""), HasSubstr("so a folder is written")),
                  HasSubstr("suffix \".tsv\""), HasSubstr("suffix \".ndjson\"")));
}

TEST(Registry, SuggestsIngestForFilesOfRows) {
  const test::TemporaryFolder folder;
  write_file(folder / "a.csv", "a,b\n1,2\n");
  EXPECT_THAT(thrown_by([&] { open(folder / "a.csv"); }).message,
              testing::EndsWith("; to make a data set of it, use ingest"));
}

TEST(Registry, ListsTheFormatsForAnUnknownName) {
  const auto thrown = thrown_by([] { format_by_name("hdf5"); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("expected one of \"consolidated\", \"safetensors\", "
                                        "\"snapshot\", \"parts\", \"memmap\", \"tdz\", \"npy\", "
                                        "\"npz\", \"pt\", \"dcp\", \"bundle\", "
                                        "found \"hdf5\""));
  EXPECT_EQ(thrown_by([] { format_by_name("pickle"); }).code, ErrorCode::unsupported);
}

TEST(Registry, OpensAFileTwiceAtMostAndReadsItsDirectoryOnce) {
  const test::TemporaryFolder folder;
  TensorDict tree = test::node_of(NodeKind::dict);
  for (int i = 0; i < 2000; ++i) tree.set("layer." + std::to_string(i), test::counting({4}));
  for (const char* name : {"m.pt", "m.safetensors", "m.tdz"}) {
    const Path path = save(tree, folder / name);
    OpenCounter opens(path);
    const std::uint64_t before = bytes_read();
    const TensorDict opened = open(path);
    const std::uint64_t read = bytes_read() - before;
    EXPECT_LE(opens.count(), 2) << name;
    // Measured: 1.19 times the size of the file for m.pt, and 1.12 times for m.tdz. A second read
    // of the archive's directory would add 0.30 or 0.22 times the size.
    EXPECT_LT(read, std::filesystem::file_size(path) * 5 / 4) << name;
  }
}

}  // namespace
}  // namespace tenfold

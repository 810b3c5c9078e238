#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "formats/dcp/metadata.hpp"
#include "formats/dcp/writer.hpp"
#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/pickled.hpp"
#include "support/temporary_folder.hpp"
#include "support/zip.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
namespace pickled = test::pickled;
namespace dcp = detail::formats::dcp;
using test::thrown_by;
using test::write_bytes;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Drops root privileges during its lifetime, because root may read every file.
class WithoutRoot {
 public:
  WithoutRoot() {
    constexpr ::uid_t kNobody = 65534;
    if (before_ == 0 && ::seteuid(kNobody) != 0) throw std::runtime_error("cannot drop root");
  }
  ~WithoutRoot() {
    if (::seteuid(before_) != 0) ADD_FAILURE() << "cannot become root again";
  }
  WithoutRoot(const WithoutRoot&) = delete;
  WithoutRoot& operator=(const WithoutRoot&) = delete;

 private:
  ::uid_t before_ = ::geteuid();
};

const std::string kEvil =
    pickled::whole(pickled::call("os", "system", {pickled::text("true")}));  // imports at byte 2

auto finding(ScanRisk risk, const std::string& what, const std::string& where) {
  return AllOf(Field(&ScanFinding::global, what), Field(&ScanFinding::risk, risk),
               Field(&ScanFinding::where, where));
}

auto evil(const std::string& where) { return finding(ScanRisk::dangerous, "os.system", where); }

auto suspicious(const std::string& what, const std::string& where) {
  return finding(ScanRisk::suspicious, what, where);
}

class Scan : public testing::Test {
 protected:
  std::vector<ScanFinding> findings(const std::string& name = "") const {
    return scan(name.empty() ? folder_.path() : folder_ / name).findings;
  }
  /// An archive of one pickle: a file of torch.save without tensors.
  static std::string archive(const std::string& pickle) {
    return test::zip_of({{"m/data.pkl", pickle}});
  }

  test::TemporaryFolder folder_;
};

TEST_F(Scan, NamesTheRisks) {
  EXPECT_EQ(to_string(ScanRisk::safe), "safe");
  EXPECT_EQ(to_string(ScanRisk::suspicious), "suspicious");
  EXPECT_EQ(to_string(ScanRisk::dangerous), "dangerous");
}

TEST_F(Scan, OmitsTheNameOfASingleFile) {
  write_bytes(folder_ / "m.pkl", kEvil);
  EXPECT_THAT(findings("m.pkl"), ElementsAre(evil("at byte 2")));
  write_bytes(folder_ / "empty", "");
  EXPECT_TRUE(scan(folder_ / "empty").safe());
}

TEST_F(Scan, ThrowsForAMissingFile) {
  const auto thrown = thrown_by([&] { scan(folder_ / "none"); });
  EXPECT_EQ(thrown.code, ErrorCode::file_not_found);
  EXPECT_THAT(thrown.message, HasSubstr("none: no such file"));
}

TEST_F(Scan, VisitsEveryFileOfAFolder) {
  fs::create_directories(folder_ / "b/c");
  write_bytes(folder_ / "b/c/w.pkl", kEvil);
  write_bytes(folder_ / "a.pt", archive(kEvil));
  write_bytes(folder_ / "text", "hello");
  fs::create_symlink("a.pt", folder_ / "z");
  fs::create_directory_symlink("..", folder_ / "b/loop");
  fs::create_symlink("nowhere", folder_ / "dangling");
  EXPECT_THAT(findings(), ElementsAre(evil("\"a.pt\": record \"m/data.pkl\" at byte 2"),
                                      evil("\"b/c/w.pkl\": at byte 2"),
                                      evil("\"z\": record \"m/data.pkl\" at byte 2")));
  EXPECT_EQ(scan(folder_.path()).num_pickles, 3U);
}

TEST_F(Scan, ReportsAnArchiveOfAFolderThatCannotBeRead) {
  write_bytes(folder_ / "a.zip", "PK\x03\x04, but no archive");
  write_bytes(folder_ / "b.pkl", kEvil);
  EXPECT_THAT(
      findings(),
      ElementsAre(AllOf(Field(&ScanFinding::global, StartsWith("archive that cannot be read: ")),
                        Field(&ScanFinding::risk, ScanRisk::suspicious),
                        Field(&ScanFinding::where, "\"a.zip\": at byte 0")),
                  evil("\"b.pkl\": at byte 2")));
  EXPECT_EQ(thrown_by([&] { findings("a.zip"); }).code, ErrorCode::corrupt);
}

TEST_F(Scan, ReportsALinkInAFolderThatCannotBeFollowed) {
  fs::create_symlink("x", folder_ / "x");
  EXPECT_THAT(findings(), ElementsAre(AllOf(
                              Field(&ScanFinding::global,
                                    StartsWith("folder that cannot be listed, or entry of unknown "
                                               "type: ")),
                              Field(&ScanFinding::risk, ScanRisk::suspicious),
                              Field(&ScanFinding::where, "\"x\": at byte 0"))));
}

TEST_F(Scan, ReportsALinkToAFolderOutside) {
  fs::create_directories(folder_ / "run/a/b");
  fs::create_directories(folder_ / "run_2");
  write_bytes(folder_ / "run_2/m.pkl", kEvil);
  fs::create_directory_symlink("a/b", folder_ / "run/inside");
  fs::create_directory_symlink("../..", folder_ / "run/a/root");
  fs::create_directory_symlink("../run_2", folder_ / "run/x");
  EXPECT_THAT(
      findings("run"),
      ElementsAre(suspicious("link that leads out of the scanned folder and is not followed",
                             "\"a/root\": at byte 0"),
                  suspicious("link that leads out of the scanned folder and is not followed",
                             "\"x\": at byte 0")));
  fs::create_directory_symlink("run", folder_ / "link");
  EXPECT_EQ(findings("link").size(), 2U);
}

TEST_F(Scan, ReportsEntriesOfAFolderThatItMayNotRead) {
  fs::permissions(folder_.path(), fs::perms::all);
  fs::create_directory(folder_ / "closed");
  write_bytes(folder_ / "closed/m.pkl", kEvil);
  write_bytes(folder_ / "m.pkl", kEvil);
  write_bytes(folder_ / "open.pkl", kEvil);
  fs::permissions(folder_ / "open.pkl", fs::perms::all);
  fs::permissions(folder_ / "closed", fs::perms::none);
  fs::permissions(folder_ / "m.pkl", fs::perms::none);
  {
    const WithoutRoot dropped;
    EXPECT_THAT(
        findings(),
        ElementsAre(
            AllOf(Field(&ScanFinding::global, AllOf(StartsWith("folder that cannot be listed"),
                                                    HasSubstr("Permission denied"))),
                  Field(&ScanFinding::where, "\"closed\": at byte 0")),
            AllOf(Field(&ScanFinding::global,
                        AllOf(StartsWith("file that cannot be read: "), HasSubstr("m.pkl"))),
                  Field(&ScanFinding::risk, ScanRisk::suspicious),
                  Field(&ScanFinding::where, "\"m.pkl\": at byte 0")),
            evil("\"open.pkl\": at byte 2")));
    const auto thrown = thrown_by([&] { findings("closed"); });
    EXPECT_EQ(thrown.code, ErrorCode::io);
    EXPECT_THAT(thrown.message, HasSubstr("cannot be listed"));
  }
  fs::permissions(folder_ / "closed", fs::perms::owner_all);
}

TEST_F(Scan, FindsAnArchiveAfterOtherBytes) {
  const std::string script = "#!/bin/sh\n";
  const std::string zip = archive(kEvil);
  write_bytes(folder_ / "a", script + zip);
  const std::string start = std::to_string(script.size());
  EXPECT_THAT(findings("a"),
              ElementsAre(suspicious(start + " bytes outside of archives, scanned only as a pickle",
                                     "at byte 0"),
                          evil("archive at byte " + start + ": record \"m/data.pkl\" at byte 2")));

  const std::size_t end = zip.rfind("PK\x05\x06");
  std::string commented = script + zip + "PK\x05\x06";
  constexpr std::size_t kCommentSizeAt = 20;
  commented[script.size() + end + kCommentSizeAt] += 4;
  write_bytes(folder_ / "a", commented);
  EXPECT_THAT(findings("a"),
              Contains(evil("archive at byte " + start + ": record \"m/data.pkl\" at byte 2")));

  const std::string damaged = script + zip.substr(end);
  write_bytes(folder_ / "a", damaged);
  EXPECT_THAT(findings("a"),
              ElementsAre(suspicious(
                  "zip archive that starts after the file's beginning, which is not scanned",
                  "at byte 0")));

  write_bytes(folder_ / "a", damaged + "x");
  EXPECT_THAT(findings("a"), IsEmpty());
}

/// A folder of torch.distributed.checkpoint with one file, "w.distcp".
class ScanDcp : public Scan {
 protected:
  void write(const std::string& bytes) const { write_bytes(folder_ / "w.distcp", bytes); }
  /// Writes .metadata, which states that the objects with the keys "k0", "k1", ... are at these
  /// ranges (begin, size) of w.distcp.
  void name(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) const {
    dcp::Metadata metadata;
    metadata.files = {"w.distcp"};
    for (const auto& [begin, size] : ranges) {
      const std::string key = "k" + std::to_string(metadata.entries.size());
      metadata.entries.push_back(
          {key, {{key}}, dcp::Item{.file = 0, .begin = begin, .size_bytes = size}});
    }
    write_bytes(folder_ / ".metadata", dcp::write_metadata(metadata));
  }
  std::vector<ScanFinding> unsafe() const {
    std::vector<ScanFinding> found = findings();
    std::erase_if(found, [](const ScanFinding& each) { return each.risk == ScanRisk::safe; });
    return found;
  }

  const std::string good_ = archive(pickled::whole(pickled::none()));
  const std::string bad_ = archive(kEvil);
};

TEST_F(ScanDcp, NamesTheKeyOfAnItem) {
  write(good_ + bad_);
  name({{0, good_.size()}, {good_.size(), bad_.size()}});
  EXPECT_THAT(unsafe(),
              ElementsAre(evil("\"w.distcp\": key \"k1\": record \"m/data.pkl\" at byte 2")));
}

TEST_F(ScanDcp, ScansTheItemsOfATensorOfAnotherWriter) {
  const Path path = Path(TENFOLD_TEST_DATA) / "dcp" / "sharded";
  const ScanReport report = scan(path);
  EXPECT_TRUE(report.safe());
  EXPECT_GT(report.num_pickles, 2U);
  EXPECT_THAT(report.findings,
              Contains(Field(&ScanFinding::where, HasSubstr(".distcp\": key \""))));
}

TEST_F(ScanDcp, ScansAnItemOnceThatTwoKeysShare) {
  write(bad_);
  name({{0, bad_.size()}, {0, bad_.size()}});
  EXPECT_THAT(unsafe(),
              ElementsAre(evil("\"w.distcp\": key \"k0\": record \"m/data.pkl\" at byte 2")));
}

TEST_F(ScanDcp, ReportsItemsThatOverlapOrLieBeyondTheFile) {
  write(good_);
  name({{0, good_.size()}, {9, good_.size() - 9}, {good_.size(), 1}, {good_.size() + 1, 0}});
  EXPECT_THAT(unsafe(),
              ElementsAre(suspicious("item of the key \"k1\" that overlaps another",
                                     "\"w.distcp\": at byte 9"),
                          suspicious("item of the key \"k2\" that is beyond the file's end",
                                     "\"w.distcp\": at byte " + std::to_string(good_.size())),
                          suspicious("item of the key \"k3\" that is beyond the file's end",
                                     "\"w.distcp\": at byte " + std::to_string(good_.size() + 1))));
}

TEST_F(ScanDcp, ScansTheBytesThatNoKeyNames) {
  write("abc" + good_ + bad_);
  name({{3, good_.size()}});
  const std::string end = std::to_string(3 + good_.size());
  EXPECT_THAT(
      unsafe(),
      ElementsAre(suspicious("3 bytes that no key names, scanned only as a pickle",
                             "\"w.distcp\": at byte 0"),
                  evil("\"w.distcp\": bytes from " + end +
                       " on, which no key names: archive at byte 0: record \"m/data.pkl\" at "
                       "byte 2")));
}

TEST_F(ScanDcp, ReportsAnItemThatCannotBeRead) {
  const std::string broken = "PK\x03\x04, but no archive";
  write(broken + good_);
  name({{0, broken.size()}, {broken.size(), good_.size()}});
  EXPECT_THAT(
      unsafe(),
      ElementsAre(AllOf(Field(&ScanFinding::global, StartsWith("archive that cannot be read: ")),
                        Field(&ScanFinding::where, "\"w.distcp\": key \"k0\" at byte 0"))));
}

TEST_F(ScanDcp, ScansTheWholeFileIfItemsSplitAPickle) {
  write(kEvil);
  name({{0, 3}, {3, kEvil.size() - 3}});
  EXPECT_THAT(unsafe(), Contains(evil("\"w.distcp\": at byte 2")));
}

TEST_F(ScanDcp, FindsTheArchivesOfAFileWithoutMetadata) {
  write(good_ + bad_);
  const std::string where =
      "archive at byte " + std::to_string(good_.size()) + ": record \"m/data.pkl\" at byte 2";
  EXPECT_THAT(findings("w.distcp"), ElementsAre(evil(where)));
  write("abc" + good_ + bad_);
  EXPECT_THAT(
      findings("w.distcp"),
      ElementsAre(suspicious("3 bytes outside of archives, scanned only as a pickle", "at byte 0"),
                  evil("archive at byte " + std::to_string(3 + good_.size()) +
                       ": record \"m/data.pkl\" at byte 2")));
}

TEST_F(ScanDcp, ReportsAFileWithoutMetadataAndWithoutArchives) {
  write("no archive");
  const auto unscanned =
      suspicious("checkpoint without its .metadata, which is not scanned", "at byte 0");
  EXPECT_THAT(findings("w.distcp"), ElementsAre(unscanned));
}

TEST_F(ScanDcp, FindsTheArchivesIfTheMetadataIsDamaged) {
  write(good_ + bad_);
  write_bytes(folder_ / ".metadata", "\x80\x02N.");
  write_bytes(folder_ / "__0.metadata", kEvil);
  EXPECT_THAT(unsafe(),
              ElementsAre(evil("\"__0.metadata\": at byte 2"),
                          evil("\"w.distcp\": archive at byte " + std::to_string(good_.size()) +
                               ": record \"m/data.pkl\" at byte 2")));
}

}  // namespace
}  // namespace tenfold

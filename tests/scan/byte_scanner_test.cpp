#include "scan/byte_scanner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/pickled.hpp"
#include "support/zip.hpp"

namespace tenfold {
namespace {

using namespace std::string_literals;
namespace pickled = test::pickled;
using test::zip_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Scans `bytes` as the record "x" of the file "f".
ScanReport scanned(std::string_view bytes, ScanHint hint = ScanHint::none) {
  ByteScanner scanner;
  scanner.enter("f", "");
  scanner.any(bytes, "x", hint);
  return scanner.take();
}

auto finding(ScanRisk risk, const std::string& what, const std::string& where) {
  return AllOf(Field(&ScanFinding::global, what), Field(&ScanFinding::risk, risk),
               Field(&ScanFinding::where, where));
}

auto suspicious(const std::string& what, const std::string& where) {
  return finding(ScanRisk::suspicious, what, where);
}

auto dangerous(const std::string& what, const std::string& where) {
  return finding(ScanRisk::dangerous, what, where);
}

const std::string kEvil =
    pickled::whole(pickled::call("os", "system", {pickled::text("true")}));  // imports at byte 2

TEST(ByteScanner, LimitsTheNumberOfPicklesThatFollowOthers) {
  ByteScanner scanner(3);
  scanner.enter("f", "");
  scanner.any("N.N.N.N." + kEvil, "x", ScanHint::pickle);
  EXPECT_THAT(scanner.take().findings,
              ElementsAre(suspicious(
                  "more than 3 pickles that directly follow another; the rest is not scanned",
                  "x at byte 8")));
}

TEST(ByteScanner, HintsFollowTheSuffixesOfNames) {
  for (const char* name : {"a.pkl", "a.pickle", "a.joblib", "a.p", "a.z"}) {
    EXPECT_EQ(hint_of_name(name), ScanHint::pickle) << name;
  }
  EXPECT_EQ(hint_of_name("a.memmap"), ScanHint::tensor);
  EXPECT_EQ(hint_of_name("a.pt"), ScanHint::none);
}

TEST(ByteScanner, ReportsAGlobalOncePerPickle) {
  const std::string two = pickled::whole(
      pickled::list({pickled::global("os", "system"), pickled::global("os", "system")}));
  const ScanReport report = scanned(two + kEvil);
  EXPECT_EQ(report.num_pickles, 2U);
  EXPECT_FALSE(report.safe());
  EXPECT_THAT(report.findings,
              ElementsAre(dangerous("os.system", "x at byte 4"),
                          dangerous("os.system", "x at byte " + std::to_string(two.size() + 2))));
}

TEST(ByteScanner, ListsAMillionFindingsAndTheGreatestRiskOfTheRest) {
  constexpr std::size_t kMost = 1'000'000;
  ByteScanner scanner;
  for (std::size_t i = 0; i < kMost + 2; ++i) scanner.add("a.b", ScanRisk::safe, "x", i);
  scanner.any(kEvil, "y", ScanHint::none);
  scanner.add("a.b", ScanRisk::suspicious, "z", 0);
  const std::vector<ScanFinding> found = scanner.take().findings;
  ASSERT_EQ(found.size(), kMost + 1);
  EXPECT_THAT(found[kMost - 1], finding(ScanRisk::safe, "a.b", "x at byte 999999"));
  EXPECT_THAT(found[kMost], dangerous("more findings, which are not listed", "x at byte 1000000"));
}

TEST(ByteScanner, ReportsExtensionCodes) {
  const ScanReport report = scanned(pickled::whole("\x82\x07"));
  EXPECT_THAT(report.findings, ElementsAre(suspicious("extension code 7", "x at byte 2")));
}

TEST(ByteScanner, ReportsGlobalsBeforeTheEndOfADamagedPickle) {
  const std::string cut = kEvil.substr(0, kEvil.size() - 1);
  EXPECT_THAT(scanned(cut).findings,
              ElementsAre(dangerous("os.system", "x at byte 2"),
                          AllOf(Field(&ScanFinding::global,
                                      HasSubstr("pickle that cannot be read to its end: x: ")),
                                Field(&ScanFinding::where, "x at byte 0"))));
}

TEST(ByteScanner, ReportsBytesAfterAPickle) {
  const std::string pickle = pickled::whole(pickled::none());
  EXPECT_THAT(
      scanned(pickle + "\xff\xff\xff").findings,
      ElementsAre(suspicious("3 bytes after a pickle that are not a pickle", "x at byte 4")));
}

TEST(ByteScanner, FindsPicklesWithoutAMagicNumberIfTheyImport) {
  EXPECT_THAT(scanned("cos\nsystem\n(Vtrue\ntR.").findings,
              ElementsAre(dangerous("os.system", "x at byte 0")));
  EXPECT_THAT(scanned("hello, world").findings, IsEmpty());
  // Without a magic number and imports, bytes are a pickle only if the file name indicates one.
  EXPECT_EQ(scanned("I1\n.", ScanHint::pickle).num_pickles, 1U);
  EXPECT_EQ(scanned("I1\n.").num_pickles, 0U);
}

TEST(ByteScanner, FindsAPickleInTheStorageOfATensorOnlyIfItImports) {
  EXPECT_THAT(scanned(kEvil, ScanHint::storage).findings,
              ElementsAre(dangerous("os.system", "x at byte 2")));
  const std::string cut = kEvil.substr(0, kEvil.size() - 1);
  EXPECT_THAT(scanned(cut, ScanHint::storage).findings, SizeIs(2));
  EXPECT_THAT(scanned("\x80\x02K\x01\xff", ScanHint::storage).findings, IsEmpty());
  EXPECT_THAT(scanned("PK\x03\x04zip", ScanHint::storage).findings, IsEmpty());
}

TEST(ByteScanner, SkipsTheStoragesOfAnOldTorchFile) {
  std::string file = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  for (int i = 0; i < 4; ++i) file += pickled::whole(pickled::none());
  const ScanReport report = scanned(file + kEvil);
  EXPECT_EQ(report.num_pickles, 5U);
  EXPECT_THAT(report.findings, IsEmpty());
}

/// A .npy file with the given header and format version, and a pickle as its data.
std::string npy(const std::string& header, char version = '\1') {
  return "\x93NUMPY"s + version + '\0' + pickled::little(header.size(), version == '\1' ? 2 : 4) +
         header + kEvil;
}

TEST(ByteScanner, FindsThePickleOfANpyFileThatMayHoldObjects) {
  for (const char version : {'\1', '\2'}) {
    for (const char* header :
         {"{'descr': '|O'}", "{'descr': 'object'}", "{'descr': '\\x4f'}", "{'descr': '' 'f8'}",
          "{'descr': [('a', '|T16')]}", "{ # comment\n}"}) {
      EXPECT_THAT(scanned(npy(header, version)).findings, SizeIs(1)) << header;
    }
    for (const char* header :
         {"{'descr': '<f8', 'fortran_order': True}", "{'descr': [('TO', 'i4')]}"}) {
      EXPECT_THAT(scanned(npy(header, version)).findings, IsEmpty()) << header;
    }
  }
  const std::string cut = npy("{'descr': '|O'}").substr(0, 20);  // within the header
  EXPECT_THAT(scanned(cut).findings, IsEmpty());
}

/// A tar header without the magic number. Its checksum is encoded in base 8 or 256, and exceeds the
/// right one by `more`.
std::string tar_header(bool is_octal, std::int64_t more = 0) {
  std::string header(512, '\0');
  header.replace(0, 5, "a.txt");
  header.replace(148, 8, 8, ' ');
  std::int64_t sum = more;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::string field(8, '\0');
  if (is_octal) {
    std::string digits;
    for (; sum > 0; sum /= 8) digits.insert(digits.begin(), static_cast<char>('0' + sum % 8));
    field.replace(0, digits.size(), digits);
  } else {
    field[0] = '\x80';
    field[6] = static_cast<char>(sum >> 8);
    field[7] = static_cast<char>(sum);
  }
  return header.replace(148, 8, field);
}

TEST(ByteScanner, ReportsATarArchiveByItsMagicNumberOrItsChecksum) {
  const auto tar = suspicious("tar archive, which is not scanned", "x at byte 0");
  for (const bool is_octal : {true, false}) {
    for (const ScanHint hint : {ScanHint::none, ScanHint::tensor, ScanHint::pickle}) {
      EXPECT_THAT(scanned(tar_header(is_octal), hint).findings, testing::Contains(tar));
    }
    EXPECT_THAT(scanned(tar_header(is_octal, 1)).findings, IsEmpty());
  }
  std::string marked = tar_header(true, 1);
  marked.replace(257, 5, "ustar");
  EXPECT_THAT(scanned(marked).findings, ElementsAre(tar));
  EXPECT_THAT(scanned(marked, ScanHint::tensor).findings, IsEmpty())
      << "elements of a tensor may equal the magic";
  EXPECT_THAT(scanned(tar_header(true), ScanHint::storage).findings, IsEmpty());
}

TEST(ByteScanner, ReportsCompressedBytesByTheirMagicNumber) {
  const std::vector<std::pair<std::string, const char*>> magics = {{"\x1f\x8b\x08", "gzip"},
                                                                   {"BZh", "bzip2"},
                                                                   {"\xfd"
                                                                    "7zXZ",
                                                                    "xz"},
                                                                   {"7z\xbc\xaf\x27\x1c", "7z"},
                                                                   {"\x28\xb5\x2f\xfd", "zstd"},
                                                                   {"\x04\x22\x4d\x18", "lz4"},
                                                                   {"Rar!\x1a\x07", "rar"},
                                                                   {"\x1f\x9d", "compress (.Z)"}};
  for (const auto& [magic, name] : magics) {
    EXPECT_THAT(scanned(magic + "rest").findings,
                ElementsAre(suspicious(std::string(name) +
                                           " archive, which is not scanned; unpack it and scan "
                                           "what comes out",
                                       "x at byte 0")));
    EXPECT_THAT(scanned(magic + "rest", ScanHint::tensor).findings, IsEmpty()) << name;
  }
}

TEST(ByteScanner, ReportsAZlibStreamThatIsNamedAsAPickle) {
  EXPECT_THAT(scanned("\x78\x9c"
                      "abc",
                      ScanHint::pickle)
                  .findings,
              ElementsAre(suspicious("zlib stream, which is not scanned", "x at byte 0")));
  EXPECT_THAT(scanned("\x78\x9c"
                      "abc")
                  .findings,
              IsEmpty());
}

TEST(ByteScanner, ScansArchivesInArchives) {
  const std::string inner = zip_of({{"m/data.pkl", kEvil}});
  for (const int level : {0, 9}) {
    EXPECT_THAT(scanned(zip_of({{"inner.pt", inner, level}, {"empty", ""}})).findings,
                ElementsAre(dangerous("os.system",
                                      "x: record \"inner.pt\": record \"m/data.pkl\" at byte 2")));
  }
}

TEST(ByteScanner, ReportsArchivesThatAreNestedTooDeeply) {
  std::string archive = zip_of({{"data.pkl", kEvil}});
  for (int i = 0; i < 8; ++i) archive = zip_of({{"z", archive}});
  const ScanReport report = scanned(archive);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].global, "archive in an archive, 8 deep, which is not scanned");
  EXPECT_EQ(report.findings[0].risk, ScanRisk::suspicious);
}

TEST(ByteScanner, ReportsAnUnreadableArchiveInAnArchive) {
  const ScanReport report = scanned(zip_of({{"z", "PK\x03\x04, but no archive"}}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_THAT(report.findings[0].global, HasSubstr("archive that cannot be read: f: x: record"));
  EXPECT_EQ(report.findings[0].where, "x: record \"z\" at byte 0");
}

/// Sets the uncompressed size of the first record in its local header and in the directory.
std::string with_size(std::string archive, std::uint32_t size_bytes) {
  const std::string bytes = pickled::little(size_bytes, 4);
  archive.replace(22, 4, bytes);
  archive.replace(archive.find("PK\x01\x02") + 24, 4, bytes);
  return archive;
}

TEST(ByteScanner, ReportsADeflatedRecordOfMoreThan1GiB) {
  // The deflated size must be more than 1 GiB / 1032, because deflate cannot reach a higher ratio.
  std::mt19937 random(5);
  std::string content(2'000'000, '\0');
  for (char& c : content) c = static_cast<char>(random() % 128);
  const std::uint32_t large = (1U << 30U) + 1;
  EXPECT_THAT(scanned(with_size(zip_of({{"x", content, 1}, {"y", kEvil}}), large)).findings,
              ElementsAre(suspicious("deflated record of more than 1 GiB, which is not scanned",
                                     "x: record \"x\" at byte 0"),
                          dangerous("os.system", "x: record \"y\" at byte 2")));
  const std::string tensors =
      zip_of({{"m/data/0", content, 1}, {"m/data.pkl", pickled::whole(pickled::none())}});
  EXPECT_THAT(scanned(with_size(tensors, large)).findings, IsEmpty());
}

TEST(ByteScanner, FindsConsecutiveArchivesAndTheBytesBetweenThem) {
  const std::string archive = zip_of({{"m/data.pkl", kEvil}});
  const std::string between = "cos\nsystem\n(Vtrue\ntR.";
  ByteScanner scanner;
  scanner.enter("f", "");
  EXPECT_TRUE(scanner.archives(archive + between + archive, ""));
  const std::string second = std::to_string(archive.size() + between.size());
  const std::string first = std::to_string(archive.size());
  EXPECT_THAT(
      scanner.take().findings,
      ElementsAre(dangerous("os.system", "archive at byte 0: record \"m/data.pkl\" at byte 2"),
                  suspicious(std::to_string(between.size()) +
                                 " bytes outside of archives, scanned only as a pickle",
                             "at byte " + first),
                  dangerous("os.system", "bytes from " + first + " on at byte 0"),
                  dangerous("os.system",
                            "archive at byte " + second + ": record \"m/data.pkl\" at byte 2")));
}

TEST(ByteScanner, ReportsNothingAboutBytesWithoutAnArchive) {
  std::string ends = "PK\x03\x04";
  for (int i = 0; i < 100; ++i) ends += "PK\x05\x06" + std::string(18, '\1');
  for (const std::string& bytes : {""s, "no archive"s, "PK\x03\x04"s, ends}) {
    ByteScanner scanner;
    EXPECT_FALSE(scanner.archives(bytes, ""));
    EXPECT_THAT(scanner.take().findings, IsEmpty());
  }
}

TEST(ByteScanner, RefusesAnUnreadableArchive) {
  EXPECT_EQ(test::thrown_by([] { scanned("PK\x03\x04, but no archive"); }).code,
            ErrorCode::corrupt);
}

TEST(ByteScanner, DoesNotReportAnErrorThatIsNotAboutTheBytes) {
  ByteScanner scanner;
  EXPECT_EQ(test::thrown_by([&] { scanner.add(Error(ErrorCode::io), "x"); }).code, ErrorCode::io);
}

}  // namespace
}  // namespace tenfold

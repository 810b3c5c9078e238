// Damaged and hostile data sets of parts. Each causes a clear Error or a problem in the report of
// verify(), and nothing outside the folder is read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "dataset/parts/parts_of.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
using detail::formats::parse_parts_manifest;
using testing::HasSubstr;

constexpr std::string_view kSchema = R"({"columns": {"x": {"dtype": "int64"}}})";

std::string document(const std::string& parts) {
  return R"({"version": 1, "schema": )" + std::string(kSchema) + R"(, "parts": [)" + parts + "]}";
}

std::string part(const std::string& path, const std::string& rows = "1",
                 const std::string& more = R"("checksum": null)") {
  return R"({"path": ")" + path + R"(", "num_rows": )" + rows + R"(, "num_bytes": 8, )" + more +
         "}";
}

std::string fault_of(const std::string& text) {
  try {
    parse_parts_manifest(text, "ds/%parts.json");
  } catch (const Error& error) {
    const bool is_known =
        error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported;
    EXPECT_TRUE(is_known) << error.what();
    EXPECT_TRUE(std::string(error.what()).starts_with("ds/%parts.json")) << error.what();
    return error.what();
  }
  return "none";
}

TEST(HostileParts, InvalidManifestsAreRefusedWithTheirProblem) {
  EXPECT_EQ(fault_of(document(part("a"))), "none");
  EXPECT_EQ(fault_of(document(part("a/b") + "," + part("a/c"))), "none");
  for (const char* path :
       {"", "..", ".", "/etc", "../x", "a/../../x", "a//b", "a/", "./a", "a\\u0000b"}) {
    EXPECT_THAT(fault_of(document(part(path))), HasSubstr("a relative path that stays below"))
        << path;
  }
  EXPECT_THAT(fault_of(document(part(std::string(300, 'a')))),
              HasSubstr("at most 255 in each component"));
  EXPECT_THAT(fault_of(document(part("a") + "," + part("a"))),
              HasSubstr("found it more than once"));
  EXPECT_THAT(fault_of(document(part("a") + "," + part("a/b"))),
              HasSubstr("found one inside another"));
  EXPECT_THAT(fault_of(document(part("a/b/c") + "," + part("a/b"))), HasSubstr("part \"a/b\": "));
  for (const char* rows : {"-1", "1.5", "\"1\"", "null"}) {
    EXPECT_THAT(fault_of(document(part("a", rows))), HasSubstr("an integer of 0 or more")) << rows;
  }
  EXPECT_THAT(fault_of(document(part("a", "9223372036854775808"))),
              HasSubstr("a signed integer of 64 bits"));
  const std::string huge = "9223372036854775807";
  EXPECT_THAT(fault_of(document(part("a", huge) + "," + part("b", huge))),
              HasSubstr("fewer than 2^63"));
  for (const char* sum : {"1", "\"123\"", "\"0123456789abcdeg\"", "true"}) {
    EXPECT_THAT(fault_of(document(part("a", "1", R"("checksum": )" + std::string(sum)))),
                HasSubstr("16 hexadecimal digits"))
        << sum;
  }
  EXPECT_THAT(fault_of(document(part("a", "1", R"("checksum": null, "open": 1)"))),
              HasSubstr("true or false"));
  EXPECT_THAT(
      fault_of(document(part("a", "1", R"("checksum": null, "open": true)") + "," + part("b"))),
      HasSubstr("only the last part to be open"));
  EXPECT_THAT(fault_of(document(R"({"path": "a"})")),
              HasSubstr("\"parts[0].num_rows\": is missing"));
  EXPECT_THAT(fault_of(document("1")), HasSubstr("expected an object"));
  EXPECT_THAT(fault_of(R"({"version": 2, "schema": {}, "parts": []})"),
              HasSubstr("\"version\": expected 1 at most, found 2"));
  EXPECT_THAT(fault_of(R"({"version": 0, "schema": {}, "parts": []})"), HasSubstr("of 1 or more"));
  EXPECT_THAT(fault_of(R"({"version": 1, "parts": []})"), HasSubstr("\"schema\": is missing"));
  EXPECT_THAT(fault_of(R"({"version": 1, "schema": {}, "parts": {}})"), HasSubstr("an array"));
  EXPECT_NE(fault_of("[]"), "none");
  EXPECT_NE(fault_of(""), "none");
  EXPECT_NE(fault_of(R"({"version": 1, "version": 1})"), "none");
}

class HostileFolders : public ::testing::Test {
 protected:
  HostileFolders() { make_parts(path_, {2, 3}); }

  void write(const std::string& text) { write_bytes(path_ / "%parts.json", text); }
  std::string text() const { return read_bytes(path_ / "%parts.json"); }
  void replace(const std::string& from, const std::string& to) {
    std::string changed = text();
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, from.size(), to);
    write(changed);
  }
  /// Returns the error message of reading all rows. Checks that verify() finds a problem as well.
  std::string fault() const {
    EXPECT_FALSE(is_valid());
    try {
      const Dataset ds(path_);
      static_cast<void>(ds.rows(0, ds.size()));
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  bool is_valid() const {
    try {
      return verify(path_).ok();
    } catch (const Error&) {
      return false;
    }
  }

  TemporaryFolder folder_;
  Path path_ = folder_ / "ds";
};

TEST_F(HostileFolders, SymlinksAreNotFollowed) {
  const Path first = path_ / part_name(0, 2);
  fs::rename(first, folder_ / "outside");
  fs::create_directory_symlink(folder_ / "outside", first);
  EXPECT_THAT(fault(), HasSubstr("expected a folder, found a symbolic link"));
  fs::remove(first);
  // The path of the part contains a link before its last name.
  fs::create_directories(folder_ / "elsewhere");
  fs::rename(folder_ / "outside", folder_ / "elsewhere" / "a");
  fs::create_directory_symlink(folder_ / "elsewhere", path_ / "above");
  replace(part_name(0, 2), "above/a");
  EXPECT_THAT(fault(), HasSubstr("expected a folder, found a symbolic link"));
}

TEST_F(HostileFolders, RowsAreAppendedOnlyToAPartThatReadersAccept) {
  fs::remove_all(path_);
  for (std::int64_t i = 0; i < 2; ++i) save(numbers(3), path_ / part_name(i, 2));
  commit_parts(path_);
  const std::string sound = text();
  const Path last = path_ / part_name(1, 2);
  const auto append = [&] { Dataset(path_, Mode::write_through).append(numbers(1)); };
  fs::rename(last, folder_ / "outside");
  fs::create_directory_symlink(folder_ / "outside", last);
  expect_error(ErrorCode::corrupt, "expected a folder, found a symbolic link", append);
  EXPECT_EQ(Dataset(folder_ / "outside").size(), 3);
  EXPECT_EQ(text(), sound);
  fs::remove(last);
  save(numbers(2), last);
  expect_error(ErrorCode::corrupt, "rows: expected 3, the number in %parts.json, found 2", append);
  EXPECT_EQ(Dataset(last).size(), 2);
  EXPECT_EQ(text(), sound);
}

TEST_F(HostileFolders, TheManifestMustBeARegularFile) {
  fs::rename(path_ / "%parts.json", folder_ / "manifest");
  fs::create_symlink(folder_ / "manifest", path_ / "%parts.json");
  EXPECT_NE(fault(), "none");
  fs::remove(path_ / "%parts.json");
  fs::create_directory(path_ / "%parts.json");
  EXPECT_NE(fault(), "none");
  fs::remove(path_ / "%parts.json");
  ASSERT_EQ(::mkfifo((path_ / "%parts.json").c_str(), 0600), 0);
  EXPECT_NE(fault(), "none");
}

TEST_F(HostileFolders, PartsMustNotHavePartsThemselves) {
  // Folders cannot contain themselves, but a part whose manifest names itself would be a cycle.
  const Path first = path_ / part_name(0, 2);
  write_bytes(first / "%parts.json", text());
  EXPECT_THAT(fault(), HasSubstr("found a data set of parts"));
}

TEST_F(HostileFolders, PartsMustMatchTheRowsAndColumnsOfTheManifest) {
  const std::string sound = text();
  replace("\"num_rows\": 2", "\"num_rows\": 9223372036854775000");
  EXPECT_THAT(fault(),
              testing::AnyOf(HasSubstr("rows: expected 9223372036854775000"), HasSubstr("2^63")));
  write(sound);
  replace("\"num_rows\": 2", "\"num_rows\": 1");
  EXPECT_THAT(fault(), HasSubstr("rows: expected 1"));
  write(sound);
  replace(R"("dtype": "int64")", R"("dtype": "int32")");
  EXPECT_THAT(fault(),
              HasSubstr("expected the column of the data set, \"id\" (int32 []), found \"id\" "
                        "(int64 [])"));
  write(sound);
  replace(R"("schema": {"columns")", R"("schema": {"rows")");
  EXPECT_NE(fault(), "none");
  write(sound);
  fs::remove_all(path_ / part_name(1, 2));
  EXPECT_THAT(fault(), HasSubstr("part is missing"));
  write_bytes(path_ / part_name(1, 2), "a file");
  EXPECT_THAT(fault(), HasSubstr("expected a folder"));
}

TEST_F(HostileFolders, TheSchemaOfTheManifestNeedsAColumn) {
  write(R"({"version": 1, "schema": {"columns": {}}, "parts": []})");
  EXPECT_THAT(fault(), HasSubstr("%parts.json: schema: expected at least one column, found none"));
}

TEST_F(HostileFolders, AnOpenPartMustHaveTheRowsOfTheManifest) {
  replace("\"num_rows\": 3", "\"open\": true, \"num_rows\": 4");
  EXPECT_THAT(fault(), HasSubstr(part_name(1, 2) + ": rows: expected at least 4, found 3"));
}

TEST_F(HostileFolders, TheNumberOfBytesOfAPartMustBeThatOfTheManifest) {
  const std::string sound = text();
  const std::size_t at = sound.find("\"num_bytes\": ") + 13;
  const std::string number = sound.substr(at, sound.find(',', at) - at);
  replace("\"num_bytes\": " + number, "\"num_bytes\": 7");
  const VerifyReport report = verify(path_);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].path, HasSubstr(part_name(0, 2)));
  EXPECT_EQ(report.problems[0].part, "num_bytes");
  EXPECT_EQ(report.problems[0].what, "expected 7, the number in %parts.json, found " + number);
}

TEST_F(HostileFolders, TheElementsOfAllPartsMustBeCountable) {
  // Each part claims more elements than it has: only their sum, or the size of the sum, is too
  // large.
  const auto claim = [&](const std::string& column, std::int64_t count) {
    for (std::int64_t i = 0; i < 2; ++i) {
      const Path part = path_ / part_name(i, 2);
      std::string meta = read_bytes(part / "%values" / "meta.json");
      const std::size_t from = meta.find("[", meta.find("\"" + column + "\": {")) + 1;
      meta.replace(from, meta.find("]", from) - from, std::to_string(count));
      write_bytes(part / "%values" / "meta.json", meta);
      std::string ends = read_bytes(part / (column + ".end.memmap"));
      ends.replace(ends.size() - 8, 8, reinterpret_cast<const char*>(&count), 8);
      write_bytes(part / (column + ".end.memmap"), ends);
    }
  };
  claim("tokens", std::int64_t{1} << 60);
  EXPECT_THAT(fault(),
              HasSubstr("%parts.json: rows: tensor: shape [2305843009213693952] of int32 is too "
                        "large: expected at most 2^63 - 1 bytes"));
  claim("name", std::int64_t{1} << 62);
  EXPECT_THAT(fault(), HasSubstr(part_name(1, 2) +
                                 ": elements: expected fewer than 2^63 in all parts, found more"));
}

TEST_F(HostileFolders, TheRowsOfAllPartsMustBeCountable) {
  // Rows without elements take no space in a file.
  constexpr std::int64_t kRows = std::int64_t{1} << 62;
  TensorDict rows(NodeInfo{.batch_size = {kRows}});
  rows.set("x", Tensor::zeros(DType::uint8, {kRows, 0}));
  fs::remove_all(path_);
  for (std::int64_t i = 0; i < 2; ++i) save(rows, path_ / part_name(i, 2));
  write(R"({"version": 1, "schema": {"columns": {"x": {"dtype": "uint8", "shape": [0]}}},)"
        R"( "parts": [)" +
        part(part_name(0, 2), std::to_string(kRows)) + ", " +
        part(part_name(1, 2), "0", R"("checksum": null, "open": true)") + "]}");
  EXPECT_THAT(fault(), HasSubstr(part_name(1, 2) +
                                 ": rows: expected fewer than 2^63 in all parts, found more"));
}

TEST_F(HostileFolders, AShapeThatNoPartHasCausesNoAllocation) {
  fs::remove_all(path_);
  save(numbers(3), path_ / "a");
  commit_parts(path_);
  replace(R"("shape": [3])", R"("shape": [1099511627776])");
  expect_error(ErrorCode::corrupt, "column 0: expected the column of the data set",
               [&] { load(path_); });
}

TEST_F(HostileFolders, InvalidEndOffsetsAreReportedByPart) {
  const Path ends = path_ / part_name(1, 2) / "name.end.memmap";
  for (const std::int64_t last : {std::int64_t{-1}, std::int64_t{1} << 62}) {
    std::string bytes = read_bytes(ends);
    bytes.replace(16, 8, reinterpret_cast<const char*>(&last), 8);
    write_bytes(ends, bytes);
    EXPECT_THAT(fault(), HasSubstr(part_name(1, 2)));
    EXPECT_THROW(load(path_), Error);
  }
}

TEST_F(HostileFolders, ACircularBufferIsRefusedAsAPart) {
  const Path first = path_ / part_name(0, 2);
  fs::remove_all(first);
  Dataset ring = create(folder_ / "ring", Schema::of(numbers(1)), {.capacity = 2});
  ring.append(numbers(2));
  ring.close();
  fs::remove_all(path_);
  fs::create_directories(path_);
  fs::rename(folder_ / "ring", path_ / "a");
  EXPECT_THROW(commit_parts(path_), Error);
  EXPECT_FALSE(fs::exists(path_ / "%parts.json"));
}

}  // namespace
}  // namespace tenfold::test

#include "ingest/bad_row.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenfold {
namespace {

TEST(BadRow, TextIsCutBetweenCharacters) {
  const std::string most(std::size_t{1} << 20, 'a');
  EXPECT_EQ(shown_text(most), most);
  EXPECT_EQ(shown_text(most + "b"), most);
  const std::string euros = "\xE2\x82\xAC\xE2\x82\xAC";
  for (const std::size_t fits : {3U, 4U, 5U}) {
    const std::string before = most.substr(fits);
    EXPECT_TRUE(shown_text(before + euros) == before + euros.substr(0, 3)) << fits;
  }
}

TEST(BadRow, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(shown_text("a\xFF\xC3"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(BadRow, ErrorsMayNameAFileThatIsNotUtf8) {
  const BadRow bad{.row = 1, .error = "f\xFF.csv: expected int64"};
  EXPECT_EQ(to_json_line(bad),
            "{\"line\": null, \"row\": 1, \"column\": null, \"error\": \"f\\ufffd.csv: expected "
            "int64\", \"text\": \"\"}\n");
}

TEST(SourceRows, NamesARowByItsFile) {
  const BadValue bad{"x", "expected int64, found 'a'", 7};
  SourceRows rows{"list", {}};
  EXPECT_STREQ(rows.error_of(bad).what(), "list: row 7, column \"x\": expected int64, found 'a'");
  EXPECT_EQ(rows.bad_row_of(bad, "{}").error, bad.what);
  rows.find = [](std::int64_t row) { return SourceRow{"b.parquet", row - 5}; };
  EXPECT_STREQ(rows.error_of({"", "expected a row", 7}).what(), "b.parquet: row 2: expected a row");
  const BadRow omitted = rows.bad_row_of(bad, "{}");
  EXPECT_EQ(omitted.row, 2);
  EXPECT_EQ(omitted.column, "x");
  EXPECT_EQ(omitted.error, "b.parquet: row 2, column \"x\": expected int64, found 'a'");
  EXPECT_EQ(omitted.text, "{}");
}

}  // namespace
}  // namespace tenfold

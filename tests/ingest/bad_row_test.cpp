#include "ingest/bad_row.hpp"

#include <gtest/gtest.h>

#include <cstddef>
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

}  // namespace
}  // namespace tenfold

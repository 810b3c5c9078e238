#include <tenfold/version.hpp>

#include <gtest/gtest.h>

#include <string>

namespace tenfold {
namespace {

TEST(Version, MacrosAndLibraryAgree) {
  const std::string numbers = std::to_string(TENFOLD_VERSION_MAJOR) + "." +
                              std::to_string(TENFOLD_VERSION_MINOR) + "." +
                              std::to_string(TENFOLD_VERSION_PATCH);
  EXPECT_EQ(numbers, TENFOLD_VERSION_STRING);
  EXPECT_EQ(version(), TENFOLD_VERSION_STRING);
}

}  // namespace
}  // namespace tenfold

#include <gtest/gtest.h>

#include <cerrno>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

TEST(Error, CarriesItsCodeAndText) {
  const Error error(ErrorCode::corrupt, "x: header: too short");
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_STREQ(error.what(), "x: header: too short");
  EXPECT_EQ(error.system_errno(), 0);
  EXPECT_EQ(error.path(), "");
}

TEST(Error, IoNamesThePathAndTheSystemsReason) {
  const Error error = Error::io(ENOSPC, "run/a.memmap", "cannot write");
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), ENOSPC);
  EXPECT_EQ(error.path(), "run/a.memmap");
  EXPECT_STREQ(error.what(), "run/a.memmap: cannot write: no space left on device");
}

TEST(Error, IoRepeatsNothing) {
  EXPECT_STREQ(Error::io(EACCES, "run", "run: cannot open: permission denied").what(),
               "run: cannot open: permission denied");
  EXPECT_STREQ(Error::io(ENOSPC, "out", "out: cannot write: No space left on device").what(),
               "out: cannot write: No space left on device");
}

}  // namespace
}  // namespace tenfold

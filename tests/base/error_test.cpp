#include <gtest/gtest.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

TEST(Error, WithOnlyAProblemHasNoOtherFields) {
  const Error error(ErrorCode::corrupt, "it is truncated");
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_STREQ(error.what(), "it is truncated");
  EXPECT_EQ(error.problem(), "it is truncated");
  EXPECT_EQ(error.system_errno(), 0);
  for (const std::string* field :
       {&error.path(), &error.part(), &error.expected(), &error.found(), &error.remedy()}) {
    EXPECT_EQ(*field, "");
  }
}

TEST(Error, ItsCodeHasAName) {
  EXPECT_EQ(to_string(ErrorCode::file_not_found), "file_not_found");
  std::ostringstream text;
  text << ErrorCode::io;
  EXPECT_EQ(text.str(), "io");
}

TEST(Error, MessageJoinsTheFields) {
  const Error error = Error(ErrorCode::unsupported)
                          .path("a.pt")
                          .part("key \"w\"")
                          .problem("too many dimensions")
                          .expected("at most ", 64)
                          .found(std::uint64_t{1} << 63U)
                          .remedy("save a view");
  EXPECT_STREQ(error.what(),
               "a.pt: key \"w\": too many dimensions: expected at most 64, found "
               "9223372036854775808; save a view");
  EXPECT_EQ(error.message(),
            "too many dimensions: expected at most 64, found 9223372036854775808; save a view");
  EXPECT_EQ(error.path(), "a.pt");
  EXPECT_EQ(error.part(), "key \"w\"");
  EXPECT_EQ(error.problem(), "too many dimensions");
  EXPECT_EQ(error.expected(), "at most 64");
  EXPECT_EQ(error.found(), "9223372036854775808");
  EXPECT_EQ(error.remedy(), "save a view");
}

TEST(Error, MessageOmitsEmptyFields) {
  const auto error = [] { return Error(ErrorCode::corrupt); };
  EXPECT_STREQ(error().what(), "");
  EXPECT_STREQ(error().path("a").what(), "a");
  EXPECT_STREQ(error().part("p").expected("x").what(), "p: expected x");
  EXPECT_STREQ(error().path("a").found(-1).what(), "a: found -1");
  EXPECT_STREQ(error().expected("x").found("y").what(), "expected x, found y");
  EXPECT_STREQ(error().path("a").problem("p").remedy("r").what(), "a: p; r");
  EXPECT_STREQ(error().path("a").path("").problem("p").what(), "p");
}

TEST(Error, PartAppendsAndWithinPrepends) {
  const Error error = Error(ErrorCode::corrupt).path("a").part("member ", 3).part("header");
  EXPECT_EQ(error.part(), "member 3: header");
  EXPECT_STREQ(Error(error).within("archive").what(), "a: archive: member 3: header");
  EXPECT_STREQ(Error(error).within("").what(), error.what());
  EXPECT_STREQ(Error(error).part("").what(), error.what());
}

TEST(Error, ChangesOfACopyDoNotChangeTheOriginal) {
  try {
    try {
      throw Error(ErrorCode::invalid_argument).part("shape").expected("[2]");
    } catch (const Error& error) {
      const Error changed = Error(error).code(ErrorCode::corrupt).path("a.npy");
      EXPECT_STREQ(error.what(), "shape: expected [2]");
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      throw changed;
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_STREQ(error.what(), "a.npy: shape: expected [2]");
  }
}

TEST(Error, CopiesThrowNothingAndOutliveTheOriginal) {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  static_assert(std::is_nothrow_copy_assignable_v<Error>);
  std::exception_ptr kept;
  {
    const Error error = Error(ErrorCode::corrupt).path("a").part("b").problem("c");
    kept = std::make_exception_ptr(error);
  }
  for (int i = 0; i < 2; ++i) {
    try {
      std::rethrow_exception(kept);
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "a: b: c");
    }
  }
}

TEST(Error, IoNamesThePathAndTheSystemMessage) {
  const Error error = Error::io(ENOSPC, "run/a.memmap", "cannot write");
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), ENOSPC);
  EXPECT_EQ(error.path(), "run/a.memmap");
  EXPECT_STREQ(error.what(), "run/a.memmap: cannot write: no space left on device");
  EXPECT_EQ(Error(error).path("b").system_errno(), ENOSPC);
  EXPECT_STREQ(Error(error).path("b").what(), "b: cannot write: no space left on device");
}

TEST(Error, IoBeginsTheSystemMessageWithAnAsciiLetterInEveryLocale) {
  const std::string before = std::setlocale(LC_CTYPE, nullptr);
  // In this locale, tolower('I') is a dotless i, whose one byte is not valid UTF-8.
  if (std::setlocale(LC_CTYPE, "tr_TR") == nullptr) GTEST_SKIP() << "the locale is not installed";
  const Error error = Error::io(EIO, "x", "cannot be read");
  std::setlocale(LC_CTYPE, before.c_str());
  EXPECT_STREQ(error.what(), "x: cannot be read: input/output error");
}

TEST(Error, IoDoesNotRepeatTheSystemMessage) {
  EXPECT_STREQ(Error::io(EACCES, "run", "cannot open: permission denied").what(),
               "run: cannot open: permission denied");
  EXPECT_STREQ(Error::io(ENOSPC, "out", "cannot write: No space left on device").what(),
               "out: cannot write: No space left on device");
}

TEST(Error, IoWithAnExpectedValueOmitsTheSystemMessage) {
  EXPECT_STREQ(Error::io(EEXIST, "run").problem("it exists already").expected("nothing").what(),
               "run: it exists already: expected nothing");
  EXPECT_STREQ(Error::io(EEXIST, "run").what(), "run: file exists");
}

TEST(Fail, BuildersAcceptTheFileAndItsPart) {
  using base::Where;
  EXPECT_STREQ(base::corrupt("a").problem("p").what(), "a: p");
  EXPECT_STREQ(base::corrupt(std::filesystem::path("a/b")).problem("p").what(), "a/b: p");
  const Where member = Where("a.npz").at("member \"x\"");
  EXPECT_EQ(member.text(), "a.npz: member \"x\"");
  EXPECT_EQ(Where("", "keys").text(), "keys");
  const Error error = base::unsupported(member).part("header").expected("1.0").found("9.0");
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(error.path(), "a.npz");
  EXPECT_EQ(error.part(), "member \"x\": header");
  EXPECT_STREQ(base::invalid_argument().part("step").expected("0 or more").found(-1).what(),
               "step: expected 0 or more, found -1");
}

}  // namespace
}  // namespace tenfold

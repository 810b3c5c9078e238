#include "formats/shared/problem.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include <tenfold/error.hpp>

namespace tenfold::test {

using namespace detail::formats;
namespace {

std::string error_text(const Error& error, std::size_t count = 1) {
  VerifyReport report;
  report.problems.assign(count, problem_of(error, {"x", "file"}));
  return error_of(report).what();
}

TEST(Problem, AnErrorOfAReportHasTheTextOfItsFirstProblem) {
  const Error corrupt = base::corrupt("x").expected("1").found("2");
  EXPECT_EQ(error_text(corrupt), "x: file: expected 1, found 2");
  EXPECT_EQ(error_text(corrupt, 3), "x: file: expected 1, found 2; and 2 more problems");
  EXPECT_EQ(error_text(Error::io(EIO, "x")), "x: file: input/output error");
  EXPECT_EQ(error_text(Error::io(EIO, "x", "cannot read"), 2),
            "x: file: cannot read: input/output error; and 1 more problem");
}

TEST(Problem, ABlockOrAFileThatCannotBeReadIsAProblemInEveryFormat) {
  VerifyReport report;
  for (const int code : {EIO, EBADMSG, EUCLEAN, EACCES}) {
    add_problem(report, Error::io(code, "x"), {"x", "file"});
  }
  add_problem(report, base::corrupt("x").expected("1").found("2"), {"x", "file"});
  EXPECT_EQ(report.problems.size(), 5U);
  for (const int code : {EMFILE, ENOMEM, ENOENT, ECANCELED}) {
    EXPECT_THROW(add_problem(report, Error::io(code, "x"), {"x", "file"}), Error) << code;
  }
}

}  // namespace
}  // namespace tenfold::test

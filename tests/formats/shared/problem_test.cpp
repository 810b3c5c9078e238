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
  EXPECT_EQ(error_text(corrupt, 3), "x: file: expected 1, found 2; and 2 more");
  EXPECT_EQ(error_text(Error::io(EIO, "x")), "x: file: input/output error");
  EXPECT_EQ(error_text(Error::io(EIO, "x", "cannot read"), 2),
            "x: file: cannot read: input/output error; and 1 more");
}

}  // namespace
}  // namespace tenfold::test

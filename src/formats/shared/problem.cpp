#include "formats/shared/problem.hpp"

#include <cerrno>

#include "base/fail.hpp"

namespace tenfold::detail::formats {

bool is_problem_of_files(const Error& error) noexcept {
  if (error.code() != ErrorCode::io) return true;
  switch (error.system_errno()) {
    case EIO:      // a block of the disk that cannot be read
    case EBADMSG:  // metadata of the file system with a wrong checksum
    case EUCLEAN:  // other damage of the file system
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:  // of a name in the metadata
    case ESTALE:
      return true;
    default:
      return false;
  }
}

Problem problem_of(const Error& error, const base::Where& where) {
  return {.path = error.path().empty() ? where.path : error.path(),
          .part = error.part().empty() ? where.part : error.part(),
          .what = error.message(),
          .problem = error.problem(),
          .expected = error.expected(),
          .found = error.found(),
          .remedy = error.remedy()};
}

void add_problem(VerifyReport& report, const Error& error, const base::Where& where) {
  const bool is_damage = error.code() == ErrorCode::corrupt ||
                         error.code() == ErrorCode::unsupported ||
                         (error.code() == ErrorCode::io && is_problem_of_files(error));
  if (!is_damage) throw error;
  report.problems.push_back(problem_of(error, where));
}

void add_report(VerifyReport& report, const VerifyReport& part) {
  report.num_leaves += part.num_leaves;
  report.num_bytes += part.num_bytes;
  report.num_checksums += part.num_checksums;
  report.problems.insert(report.problems.end(), part.problems.begin(), part.problems.end());
}

Error error_of(const VerifyReport& report) {
  const Problem& first = report.problems.front();
  // If expected, found and remedy are empty, use the whole message: that of a failed system call
  // ends with the text of strerror().
  const bool is_plain = first.expected.empty() && first.found.empty() && first.remedy.empty();
  const Error error = base::corrupt({first.path, first.part})
                          .problem(is_plain ? first.what : first.problem)
                          .expected(first.expected)
                          .found(first.found)
                          .remedy(first.remedy);
  const std::size_t more = report.problems.size() - 1;
  if (more == 0) return error;
  return Error(error).remedy(first.remedy, first.remedy.empty() ? "" : "; ", "and ", more,
                             more == 1 ? " more problem" : " more problems");
}

}  // namespace tenfold::detail::formats

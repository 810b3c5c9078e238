#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold {
namespace {

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return base::to_lower(a) == base::to_lower(b); };
  return std::ranges::search(text, part, same).begin() != text.end();
}

/// The system's description of the errno. Its first letter becomes lower case, as in all messages,
/// unless it begins with an acronym.
std::string reason_of(int system_errno) {
  std::string reason = std::generic_category().message(system_errno);
  const bool is_word = reason.size() > 1 && reason[1] >= 'a' && reason[1] <= 'z';
  if (is_word) reason[0] = base::to_lower(reason[0]);
  return reason;
}

void add(std::string& text, std::string_view separator, std::string_view more) {
  if (!text.empty()) text += separator;
  text += more;
}

}  // namespace

std::string to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::file_not_found:
      return "file_not_found";
    case ErrorCode::key_not_found:
      return "key_not_found";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::io:
      return "io";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, ErrorCode code) { return out << to_string(code); }

Error::Error(ErrorCode code, std::string problem)
    : std::runtime_error(problem),
      code_(code),
      fields_(std::make_shared<const Fields>(Fields{"", "", std::move(problem)})) {}

Error Error::io(int system_errno, std::string path, std::string problem) {
  Error error(ErrorCode::io);
  error.system_errno_ = system_errno;
  error.fields_ = std::make_shared<const Fields>(Fields{std::move(path), "", std::move(problem)});
  error.make_text();
  return error;
}

Error::~Error() = default;

std::string Error::message() const {
  std::string text = problem();
  if (!expected().empty()) {
    add(text, ": ", "expected " + expected());
    if (!found().empty()) text += ", found " + found();
  } else if (!found().empty()) {
    add(text, ": ", "found " + found());
  }
  if (!remedy().empty()) add(text, "; ", remedy());
  const bool is_explained = !expected().empty() || !found().empty() || !remedy().empty();
  if (system_errno_ == 0 || is_explained) return text;
  const std::string reason = reason_of(system_errno_);
  if (!contains_ignoring_case(text, reason)) add(text, ": ", reason);
  return text;
}

Error Error::with(Field field, std::string text) const {
  Fields fields = *fields_;
  fields[static_cast<std::size_t>(field)] = std::move(text);
  Error error(*this);
  error.fields_ = std::make_shared<const Fields>(std::move(fields));
  error.make_text();
  return error;
}

Error Error::with_parts(std::string outer, const std::string& inner) const {
  if (!inner.empty()) add(outer, ": ", inner);
  return with(Field::part, std::move(outer));
}

void Error::make_text() {
  std::string text = path();
  if (!part().empty()) add(text, ": ", part());
  if (const std::string rest = message(); !rest.empty()) add(text, ": ", rest);
  std::runtime_error::operator=(std::runtime_error(text));
}

}  // namespace tenfold

namespace tenfold::base {

Error fail(ErrorCode code, const Where& where) {
  return Error(code).path(where.path).part(where.part);
}

}  // namespace tenfold::base

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  return std::ranges::search(text, part, same).begin() != text.end();
}

}  // namespace

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}

Error Error::io(int system_errno, const std::string& path, const std::string& message) {
  std::string text = message;
  if (!path.empty() && text.find(path) == std::string::npos) text = path + ": " + text;
  if (system_errno != 0) {
    std::string reason = std::generic_category().message(system_errno);
    if (!reason.empty()) reason[0] = lower(reason[0]);
    if (!contains_ignoring_case(text, reason)) text += ": " + reason;
  }
  Error error(ErrorCode::io, text);
  error.system_errno_ = system_errno;
  error.path_ = path;
  return error;
}

}  // namespace tenfold

#include <cctype>
#include <system_error>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold {

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}

Error Error::io(int system_errno, const std::string& path, const std::string& message) {
  std::string text = message;
  if (!path.empty() && text.find(path) == std::string::npos) text = path + ": " + text;
  if (system_errno != 0) {
    std::string reason = std::generic_category().message(system_errno);
    if (!reason.empty()) {
      reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
    }
    if (text.find(reason) == std::string::npos) text += ": " + reason;
  }
  Error error(ErrorCode::io, text);
  error.system_errno_ = system_errno;
  error.path_ = path;
  return error;
}

}  // namespace tenfold

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold::base {

/// The subject of an error: a file or folder, or a part of one. Readers of formats take a Where as
/// a parameter, for messages. A string or a path converts to the Where of a file.
struct Where {
  Where() = default;
  Where(std::string file) : path(std::move(file)) {}
  Where(std::string_view file) : path(file) {}
  Where(const char* file) : path(file) {}
  Where(const std::filesystem::path& file) : path(file.string()) {}
  Where(std::string file, std::string place) : path(std::move(file)), part(std::move(place)) {}

  /// The beginning of Error::what(): "<path>: <part>".
  std::string text() const { return path + (path.empty() || part.empty() ? "" : ": ") + part; }
  /// The Where of `place` within this part of the same file: joins both with ": ".
  Where at(std::string_view place) const {
    return {path, part + (part.empty() ? "" : ": ") + std::string(place)};
  }

  std::string path;
  std::string part;
};

// The library throws an error by one expression, built from a Where and the fields of the error:
//
//   throw corrupt(where).part("header").expected("at most ", limit, " bytes").found(size);
//
// Without a Where, the error has no path: either it concerns an argument of the call, which part()
// names, or the caller adds the path. For a failed system call, os::throw_system_error() throws
// Error::io(errno, path), or file_not_found() if the errno is ENOENT.
Error fail(ErrorCode code, const Where& where);

inline Error corrupt(const Where& where = {}) { return fail(ErrorCode::corrupt, where); }
inline Error unsupported(const Where& where = {}) { return fail(ErrorCode::unsupported, where); }
inline Error invalid_argument(const Where& where = {}) {
  return fail(ErrorCode::invalid_argument, where);
}
inline Error key_not_found(const Where& where = {}) {
  return fail(ErrorCode::key_not_found, where);
}
inline Error file_not_found(const Where& where) { return fail(ErrorCode::file_not_found, where); }

}  // namespace tenfold::base

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold::base {

/// The subject of an error: a file or folder, or a part of one. Readers of formats have it as a
/// parameter, for messages; a string or a path is a file.
struct Where {
  Where() = default;
  Where(std::string file) : path(std::move(file)) {}
  Where(std::string_view file) : path(file) {}
  Where(const char* file) : path(file) {}
  Where(const std::filesystem::path& file) : path(file.string()) {}
  Where(std::string file, std::string place) : path(std::move(file)), part(std::move(place)) {}

  /// As what() begins: "<path>: <part>".
  std::string text() const { return path + (path.empty() || part.empty() ? "" : ": ") + part; }
  /// A part of this one.
  Where at(std::string_view place) const {
    return {path, part + (part.empty() ? "" : ": ") + std::string(place)};
  }

  std::string path;
  std::string part;
};

// An error of the engine is one expression, a place and the fields of the error:
//
//   throw corrupt(where).part("header").expected("at most ", limit, " bytes").found(size);
//
// Without a place, it concerns an argument of the call, which part() names. Failed system calls are
// Error::io(errno, path).
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

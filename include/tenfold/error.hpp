#pragma once

#include <stdexcept>
#include <string>

#include <tenfold/export.hpp>

namespace tenfold {

/// The kinds of failure. Each maps to exactly one exception class in Python.
enum class ErrorCode {
  file_not_found,    ///< the path does not exist (FileNotFoundError)
  key_not_found,     ///< no such key, row or step (KeyError)
  corrupt,           ///< the bytes violate the format (tenfold.CorruptFileError)
  unsupported,       ///< valid, but refused or unknown (tenfold.UnsupportedError)
  invalid_argument,  ///< the caller's value (ValueError)
  io,                ///< a system call failed (OSError with errno and filename)
};

/// The only exception that this library throws itself.
///
/// what() reads `<path>: <part>: <what is wrong>: expected <E>, found <F>[; <remedy>]`.
class TENFOLD_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);

  /// A failed system call: `system_errno` as in <cerrno>, `path` the file it concerns. what()
  /// is `<path>: <message>: <strerror of the errno>`; parts that `message` contains are omitted.
  static Error io(int system_errno, const std::string& path, const std::string& message);

  ErrorCode code() const noexcept { return code_; }
  /// The errno of an io error; 0 otherwise.
  int system_errno() const noexcept { return system_errno_; }
  /// The file that an io error concerns; empty otherwise.
  const std::string& path() const noexcept { return path_; }

 private:
  ErrorCode code_;
  int system_errno_ = 0;
  std::string path_;
};

}  // namespace tenfold

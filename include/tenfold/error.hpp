#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/export.hpp>

namespace tenfold {

/// The kinds of failure, and the exceptions that Python raises for them.
enum class ErrorCode {
  file_not_found,    ///< the path does not exist (FileNotFoundError)
  key_not_found,     ///< no such key, row or step (KeyError)
  corrupt,           ///< the bytes violate the format (tenfold.CorruptFileError)
  unsupported,       ///< valid, but not supported, or of unknown format (tenfold.UnsupportedError)
  invalid_argument,  ///< an argument of the call is invalid (ValueError)
  io,                ///< a system call failed, or a lock is held (OSError with errno)
};

/// Returns the name of the code: "file_not_found", "key_not_found", ...
TENFOLD_API std::string to_string(ErrorCode code);
/// Writes to_string().
TENFOLD_API std::ostream& operator<<(std::ostream& out, ErrorCode code);

/// The only exception that this library throws itself, except std::bad_alloc.
///
/// what() consists of the fields that are not empty:
/// `<path>: <part>: <problem>: expected <E>, found <F>; <remedy>`. An error of io() may add the
/// strerror of its errno.
///
///     try {
///       tenfold::load("model.safetensors");
///     } catch (const tenfold::Error& error) {
///       if (error.code() == tenfold::ErrorCode::corrupt) restore_backup(error.path());
///     }
class TENFOLD_API Error : public std::runtime_error {
 public:
  /// Creates an error with this code and problem(), and no other fields.
  explicit Error(ErrorCode code, std::string problem = {});

  /// Returns the error of a failed system call. `system_errno`: its errno. `path`: its file.
  /// what() ends with the strerror of the errno, unless `problem` contains it or the error has an
  /// expected(), found() or remedy().
  static Error io(int system_errno, std::string path, std::string problem = {});

  /// The copy shares the fields of the original. There is no move constructor, because a moved-from
  /// Error would have no fields.
  Error(const Error&) = default;
  /// As the copy constructor.
  Error& operator=(const Error&) = default;
  ~Error() override;

  /// The kind of failure.
  ErrorCode code() const noexcept { return code_; }
  /// The errno of the failed system call, or one that describes the failure, such as EBUSY for a
  /// lock that is held; 0 if the error has none.
  int system_errno() const noexcept { return system_errno_; }

  /// The file or folder. An entry of an archive follows the archive: "run.tdz/meta.json".
  const std::string& path() const noexcept { return field(Field::path); }
  /// The location in that file or folder, outermost part first: `header`, `key "a.b": shape`. If
  /// the path is empty, the argument of the call: `schema: column "x"`.
  const std::string& part() const noexcept { return field(Field::part); }
  /// The fault.
  const std::string& problem() const noexcept { return field(Field::problem); }
  /// A description of valid input.
  const std::string& expected() const noexcept { return field(Field::expected); }
  /// A description of the invalid input.
  const std::string& found() const noexcept { return field(Field::found); }
  /// A way to correct the fault.
  const std::string& remedy() const noexcept { return field(Field::remedy); }
  /// what() without the path and the part.
  std::string message() const;

  // Setters with several arguments (strings and integers) join them to one string. All setters need
  // an rvalue, so that an error is built by one expression, and a caught one is copied before it is
  // changed:
  //
  //   throw Error(ErrorCode::corrupt).path(file).expected("at least ", 8, " bytes").found(size);
  //   catch (const Error& error) { throw Error(error).within("shard ", i); }

  /// Sets code().
  Error code(ErrorCode code) && {
    code_ = code;
    return *this;
  }
  /// Sets path().
  Error path(const auto& text, const auto&... more) && {
    return with(Field::path, joined(text, more...));
  }
  /// Appends an inner location to part(): "<part>: <text>".
  Error part(const auto& text, const auto&... more) && {
    return with_parts(part(), joined(text, more...));
  }
  /// Prepends an outer location to part(): "<text>: <part>".
  Error within(const auto& text, const auto&... more) && {
    return with_parts(joined(text, more...), part());
  }
  /// Sets problem().
  Error problem(const auto& text, const auto&... more) && {
    return with(Field::problem, joined(text, more...));
  }
  /// Sets expected().
  Error expected(const auto& text, const auto&... more) && {
    return with(Field::expected, joined(text, more...));
  }
  /// Sets found().
  Error found(const auto& text, const auto&... more) && {
    return with(Field::found, joined(text, more...));
  }
  /// Sets remedy().
  Error remedy(const auto& text, const auto&... more) && {
    return with(Field::remedy, joined(text, more...));
  }

 private:
  enum class Field { path, part, problem, expected, found, remedy };
  using Fields = std::array<std::string, 6>;

  const std::string& field(Field field) const noexcept {
    return (*fields_)[static_cast<std::size_t>(field)];
  }
  Error with(Field field, std::string text) const;
  Error with_parts(std::string outer, const std::string& inner) const;
  void make_text();

  static std::string joined(const auto&... texts) {
    std::string all;
    (append(all, texts), ...);
    return all;
  }
  static void append(std::string& all, std::string_view text) { all += text; }
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool> && !std::same_as<Integer, char>)
  static void append(std::string& all, Integer number) {
    all += std::to_string(number);
  }

  ErrorCode code_;
  int system_errno_ = 0;
  std::shared_ptr<const Fields> fields_;
};

}  // namespace tenfold

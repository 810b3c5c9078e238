#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// A value of a JSON document and its place in messages. A function that returns one type throws
/// Error(corrupt) for a value of another: `<where>: member "parts[3].path": expected a string,
/// found 4`. Refers to the document and to `where`.
class ValueReader {
 public:
  ValueReader(const Value& value, const base::Where& where, std::string path = {})
      : value_(&value), where_(&where), path_(std::move(path)) {}
  ValueReader(const Value& value, base::Where&& where, std::string path = {}) = delete;

  const Value& value() const noexcept { return *value_; }

  const std::string& text() const { return as<std::string>("a string"); }
  const Value::Object& object() const { return as<Value::Object>("an object"); }
  bool flag() const { return as<bool>("true or false"); }
  std::int64_t integer(std::int64_t least = 0) const;
  std::uint64_t count() const { return static_cast<std::uint64_t>(integer()); }
  /// The integers, of 0 or more, of an array.
  Shape lengths() const;
  DType dtype() const;
  /// Throws Error(unsupported) for an integer above `newest`.
  void require_version(std::int64_t newest) const;

  /// A member of an object. at() throws if there is none.
  ValueReader at(std::string_view key) const;
  std::optional<ValueReader> find(std::string_view key) const;
  /// The members of an object, in order.
  std::vector<std::pair<std::string_view, ValueReader>> members() const;
  /// The items of an array; throws unless there are `count`, if that is given.
  std::vector<ValueReader> items(std::optional<std::size_t> count = {}) const;

  /// An Error(corrupt) of this place.
  Error error() const { return base::corrupt(place()); }
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  template <class T>
  const T& as(std::string_view expected) const {
    const T* found = value_->get_if<T>();
    if (found == nullptr) fail(expected);
    return *found;
  }
  base::Where place() const;
  std::string path_of(std::string_view key) const;
  std::string path_of(std::size_t position) const;

  const Value* value_;
  const base::Where* where_;
  std::string path_;  ///< within the document
};

}  // namespace tenfold

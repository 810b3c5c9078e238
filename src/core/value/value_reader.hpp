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

/// A value of a JSON document, for readers whose messages name the value by its path. A function
/// for one type, such as text(), throws Error(corrupt) if the value has another type: `<where>:
/// member "parts[3].path": expected a string, found 4`. The document and `where` must outlive this
/// object. The path is computed only for a message, because a manifest can have hundreds of
/// thousands of members.
class ValueReader {
 public:
  ValueReader(const Value& document, const base::Where& where)
      : ValueReader(document, document, where) {}
  ValueReader(const Value& document, base::Where&& where) = delete;

  const Value& value() const noexcept { return *value_; }

  const std::string& text() const { return as<std::string>("a string"); }
  const Value::Object& object() const { return as<Value::Object>("an object"); }
  bool flag() const { return as<bool>("true or false"); }
  /// Also throws Error(corrupt) if the integer is below `least` or does not fit 64 signed bits.
  std::int64_t integer(std::int64_t least = 0) const;
  std::uint64_t count() const { return static_cast<std::uint64_t>(integer()); }
  /// The items of an array. Throws Error(corrupt) unless all are integers of 0 or more.
  Shape lengths() const;
  DType dtype() const;
  /// Throws Error(unsupported) for an integer above `newest`, Error(corrupt) for one that is below
  /// 1 or does not fit 64 signed bits.
  void require_version(std::int64_t newest) const;

  /// The member `key` of an object. If there is none, at() throws Error(corrupt), and find()
  /// returns nullopt.
  ValueReader at(std::string_view key) const;
  std::optional<ValueReader> find(std::string_view key) const;
  /// The members of an object, in the order of the document.
  std::vector<std::pair<std::string_view, ValueReader>> members() const;
  /// The items of an array. Throws Error(corrupt) if `count` is given and the array has another
  /// length.
  std::vector<ValueReader> items(std::optional<std::size_t> count = {}) const;

  /// An Error(corrupt) that names the file and the path of this value.
  Error error() const { return base::corrupt(place()); }
  /// Throws error() with `expected` and the value found.
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  template <class T>
  const T& as(std::string_view expected) const {
    const T* found = value_->get_if<T>();
    if (found == nullptr) fail(expected);
    return *found;
  }
  ValueReader(const Value& value, const Value& document, const base::Where& where)
      : value_(&value), document_(&document), where_(&where) {}
  ValueReader within(const Value& value) const { return {value, *document_, *where_}; }
  base::Where place() const;
  /// The path within the document, such as `parts[3].path`; empty for the document itself.
  std::string path() const;

  const Value* value_;
  const Value* document_;
  const base::Where* where_;
};

}  // namespace tenfold

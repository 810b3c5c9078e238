#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/export.hpp>

namespace tenfold {

/// A JSON value with the extensions of Python's json module: integers of any size, NaN and the
/// infinities, and members in insertion order. Tuples and extended scalars (Special) are distinct
/// types. to_json() writes a tuple as an array; a saved file records the difference in its
/// metadata.
///
///     tenfold::Value options = tenfold::Value::Object{{{"lr", 0.1}, {"betas", betas}}};
///     if (const auto* object = options.get_if<tenfold::Value::Object>()) {
///       if (const tenfold::Value* lr = object->find("lr")) set_rate(lr->as<double>());
///     }
class TENFOLD_API Value {
 public:
  /// null, or None.
  struct Null {
    /// Always true.
    bool operator==(const Null&) const = default;
  };
  /// An integer outside the range of std::int64_t, as decimal digits with an optional '-'.
  struct BigInt {
    std::string digits;  ///< "18446744073709551616"
    /// Compares the digits.
    bool operator==(const BigInt&) const = default;
  };
  /// A list, or a JSON array.
  struct List {
    std::vector<Value> items;  ///< the items
    /// Compares the items.
    bool operator==(const List&) const;
  };
  /// A tuple.
  struct Tuple {
    std::vector<Value> items;  ///< the items
    /// Compares the items.
    bool operator==(const Tuple&) const;
  };
  /// A dict, or a JSON object.
  struct Object {
    std::vector<std::pair<std::string, Value>> members;  ///< in insertion order; keys are unique
    bool int_keys = false;                               ///< in Python, all keys were ints
    bool ordered = false;  ///< a Python OrderedDict rather than a dict
    /// The keys that were not str in Python: see TypedKeys.
    std::vector<std::pair<std::string, Value>> typed_keys{};
    /// Compares `ordered`, the types of the keys, and the members. The order of the members counts
    /// only in OrderedDicts.
    bool operator==(const Object&) const;
    /// The member of that key, or null.
    const Value* find(std::string_view key) const noexcept;
  };
  /// An extended scalar: a value of Python or torch that JSON lacks. to_json() writes a Counter as
  /// an object, and a complex, set, frozenset or torch.Size as the array `items`. It writes all
  /// other types as the string `text` (base64 for bytes and bytearray).
  struct Special {
    /// The type of the value.
    enum class Type : std::uint8_t {
      bytes,      ///< text: the bytes
      bytearray,  ///< text: the bytes
      complex,    ///< items: two floats, the real and the imaginary part
      set,        ///< hashable items, in the order in which they were saved
      frozenset,  ///< as for `set`
      counter,    ///< items: one Object, the counts of a Counter; no items: an empty Counter
      size,       ///< items: the lengths of a torch.Size
      dtype,      ///< text: "torch.float32"
      device,     ///< text: "cuda:0"
      layout,     ///< text: "torch.strided"
      qscheme,    ///< text: "torch.per_tensor_affine"
    };
    Type type = Type::bytes;     ///< the type
    std::string text{};          ///< see Type
    std::vector<Value> items{};  ///< see Type
    /// Compares types, texts and items.
    bool operator==(const Special&) const;
  };
  /// The alternatives of a value.
  using Variant = std::variant<Null, bool, std::int64_t, BigInt, double, std::string, List, Tuple,
                               Object, Special>;

  /// null.
  Value() : data_(Null{}) {}
  /// null.
  Value(std::nullptr_t) : data_(Null{}) {}
  /// A bool. Other types, in particular pointers, are not converted to bool.
  template <std::same_as<bool> Bool>
  Value(Bool value) : data_(value) {}
  /// An integer of any type except char, wchar_t and the charN_t types. It becomes a BigInt if it
  /// exceeds std::int64_t.
  template <std::integral Int>
    requires(!std::same_as<Int, bool> && !std::same_as<Int, char> && !std::same_as<Int, wchar_t> &&
             !std::same_as<Int, char8_t> && !std::same_as<Int, char16_t> &&
             !std::same_as<Int, char32_t>)
  Value(Int value) {
    if (std::in_range<std::int64_t>(value)) {
      data_ = static_cast<std::int64_t>(value);
    } else {
      data_ = BigInt{std::to_string(value)};
    }
  }
  /// A float, of 64 bits.
  template <std::floating_point Float>
  Value(Float value) : data_(static_cast<double>(value)) {}
  /// An integer of any size.
  Value(BigInt value) : data_(std::move(value)) {}
  /// A string.
  Value(std::string value) : data_(std::move(value)) {}
  /// A string.
  Value(std::string_view value) : data_(std::string(value)) {}
  /// A string.
  Value(const char* value) : data_(std::string(value)) {}
  /// A list.
  Value(List value) : data_(std::move(value)) {}
  /// A tuple.
  Value(Tuple value) : data_(std::move(value)) {}
  /// An object.
  Value(Object value) : data_(std::move(value)) {}
  /// An extended scalar.
  Value(Special value) : data_(std::move(value)) {}

  /// The value, for std::visit.
  const Variant& data() const noexcept { return data_; }
  /// The value, to be changed.
  Variant& data() noexcept { return data_; }

  /// True if the value is a T, one of Variant.
  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(data_);
  }
  /// A pointer to the value if it is of type T, one of the types of Variant; otherwise null.
  template <class T>
  const T* get_if() const& noexcept TENFOLD_LIFETIMEBOUND {
    return std::get_if<T>(&data_);
  }
  /// Deleted for temporaries, in which the pointer would point. Store the value in a variable
  /// first.
  template <class T>
  const T* get_if() const&& = delete;
  /// True for null.
  bool is_null() const noexcept { return is<Null>(); }

  /// The value as T: bool, an integer type, a floating-point type, std::string, a std::vector of
  /// these, or an alternative of Variant. A std::int64_t is converted to floating-point types, and
  /// a list or tuple to a std::vector; no other type is converted. Throws Error(invalid_argument),
  /// with `what` as its subject, if the value is of another type, the integer does not fit T, or a
  /// finite float becomes infinite.
  template <class T>
  T as(std::string_view what = "value") const {
    if constexpr (std::same_as<T, bool>) {
      if (const auto* flag = get_if<bool>()) return *flag;
      fail_as(what, "a bool");
    } else if constexpr (std::integral<T>) {
      const auto* number = get_if<std::int64_t>();
      if (number != nullptr && std::in_range<T>(*number)) return static_cast<T>(*number);
      if constexpr (std::in_range<T>(std::numeric_limits<std::uint64_t>::max())) {
        if (const std::optional<std::uint64_t> large = unsigned_of_digits()) return *large;
      }
      fail_as(what, "an int from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
                        std::to_string(std::numeric_limits<T>::max()));
    } else if constexpr (std::floating_point<T>) {
      if (const auto* number = get_if<double>()) {
        const auto converted = static_cast<T>(*number);
        if (std::isfinite(converted) || !std::isfinite(*number)) return converted;
        fail_as(what, "a number that fits the floating-point type");
      }
      if (const auto* number = get_if<std::int64_t>()) return static_cast<T>(*number);
      fail_as(what, "a float, or an int in the range of int64");
    } else if constexpr (IsVector<T>::value) {
      const std::vector<Value>* items = items_of_list();
      if (items == nullptr) fail_as(what, "a list or tuple");
      T all;
      for (const Value& item : *items) all.push_back(item.as<typename T::value_type>(what));
      return all;
    } else {
      if (const auto* found = get_if<T>()) return *found;
      if constexpr (std::same_as<T, BigInt>) fail_as(what, "an int outside the range of int64");
      if constexpr (std::same_as<T, Special>) fail_as(what, "an extended scalar, such as bytes");
      fail_as(what, "a " + std::string(Value(T()).type_name()));
    }
  }

  /// The name of the type: "null", "bool", "int", "float", "str", "list", "tuple", "dict", or
  /// to_string() of a Special's type.
  std::string_view type_name() const noexcept;

  /// True if the values are equal in Python, with these exceptions: NaN equals NaN, types must
  /// agree, the items of sets must be in the same order, and a count of zero in a Counter is not
  /// ignored.
  bool operator==(const Value& other) const;

 private:
  template <class T>
  struct IsVector : std::false_type {};
  template <class T>
  struct IsVector<std::vector<T>> : std::true_type {};

  [[noreturn]] void fail_as(std::string_view what, const std::string& expected) const;
  /// The value of a BigInt that fits into std::uint64_t; nullopt for any other value.
  std::optional<std::uint64_t> unsigned_of_digits() const noexcept;
  /// The items of a list or tuple; null for any other value.
  const std::vector<Value>* items_of_list() const noexcept;

  Variant data_;
};

/// The keys of a Python dict that were not str, each with its text: "1", "0.5", "True", "None",
/// "(1, 'a')". Sorted by text. Empty if all keys were int, which the flag `int_keys` records.
using TypedKeys = std::vector<std::pair<std::string, Value>>;

/// Returns the name of the type: "bytes", "complex", "Counter", "torch.Size", "torch.dtype", ...
TENFOLD_API std::string to_string(Value::Special::Type type);
/// The type of that name; nullopt if there is none.
TENFOLD_API std::optional<Value::Special::Type> special_type_from_name(
    std::string_view name) noexcept;

/// The text that Python's `json.dumps(value)` returns, with its separators (`", "` and `": "`),
/// ASCII escapes and NaN. Throws Error(invalid_argument) for a string that is not UTF-8 (lone
/// surrogates are allowed) and for a BigInt that is not decimal digits. Throws Error(unsupported)
/// for more than 512 levels, which no reader of the library accepts.
TENFOLD_API std::string to_json(const Value& value);

/// Writes to_json(value).
TENFOLD_API std::ostream& operator<<(std::ostream& out, const Value& value);

/// Parses one JSON document in UTF-8 as Python's `json.loads` does, except that duplicate keys and
/// nesting deeper than 512 are errors. Throws Error(corrupt), with the byte offset or the duplicate
/// key; `where` names the source in the message.
TENFOLD_API Value from_json(std::string_view text, std::string_view where);

}  // namespace tenfold

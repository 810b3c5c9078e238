#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/export.hpp>

namespace tenfold {

/// A JSON value with the extensions of Python's json module: integers of any size, NaN and the
/// infinities, members in order. Tuples and extended scalars (Special) are distinct types. JSON
/// writes a tuple as an array; the notes document of a format records the difference.
class TENFOLD_API Value {
 public:
  struct Null {
    bool operator==(const Null&) const = default;
  };
  /// An integer beyond 64 bits, as decimal digits with an optional '-'.
  struct BigInt {
    std::string digits;
    bool operator==(const BigInt&) const = default;
  };
  struct List {
    std::vector<Value> items;
    bool operator==(const List&) const;
  };
  struct Tuple {
    std::vector<Value> items;
    bool operator==(const Tuple&) const;
  };
  /// Members in order; keys are unique. `int_keys`: in Python all keys were int; `typed_keys`: keys
  /// that were not str, as in NodeInfo.
  struct Object {
    std::vector<std::pair<std::string, Value>> members;
    bool int_keys = false;
    /// A Python OrderedDict rather than a dict.
    bool ordered = false;
    std::vector<std::pair<std::string, Value>> typed_keys{};
    bool operator==(const Object&) const;
    /// The member of that key, or null.
    const Value* find(std::string_view key) const noexcept;
  };
  /// An extended scalar: a value of Python or torch that JSON lacks. JSON writes `text` (bytes as
  /// base64), `items` as an array, or a Counter as its object.
  struct Special {
    enum class Type : std::uint8_t {
      bytes,      ///< text: the bytes
      bytearray,  ///< text: the bytes
      complex,    ///< items: two floats, the real and the imaginary part
      set,        ///< hashable items, in the order in which they were saved
      frozenset,  ///< as set
      counter,    ///< items: one Object, the counts of collections.Counter
      size,       ///< items: the lengths of a torch.Size
      dtype,      ///< text: "torch.float32"
      device,     ///< text: "cuda:0"
      layout,     ///< text: "torch.strided"
      qscheme,    ///< text: "torch.per_tensor_affine"
    };
    Type type = Type::bytes;
    std::string text{};
    std::vector<Value> items{};
    bool operator==(const Special&) const;
  };
  using Variant = std::variant<Null, bool, std::int64_t, BigInt, double, std::string, List, Tuple,
                               Object, Special>;

  Value() : data_(Null{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(int value) : data_(static_cast<std::int64_t>(value)) {}
  Value(BigInt value) : data_(std::move(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Tuple value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}
  Value(Special value) : data_(std::move(value)) {}

  const Variant& data() const noexcept { return data_; }
  Variant& data() noexcept { return data_; }

  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(data_);
  }
  /// The value as T, or null if it is something else.
  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&data_);
  }
  bool is_null() const noexcept { return is<Null>(); }

  /// "null", "bool", "int", "float", "str", "list", "tuple", "dict", or name() of a Special.
  std::string_view type_name() const noexcept;

  /// Equal as Python compares them, except that NaN equals NaN and types must agree.
  bool operator==(const Value& other) const;

 private:
  Variant data_;
};

/// Keys of a Python dict that were not str, by their str(): "1", "0.5", "True", "None", "(1, 'a')".
/// Sorted by str().
using TypedKeys = std::vector<std::pair<std::string, Value>>;

/// "bytes", "bytearray", "complex", "set", "frozenset", "Counter", "torch.Size", "torch.dtype", ...
TENFOLD_API std::string_view name(Value::Special::Type type) noexcept;
TENFOLD_API std::optional<Value::Special::Type> special_type_from_name(
    std::string_view name) noexcept;

/// Text as Python's `json.dumps(value)` writes it: `", "` and `": "`, ASCII escapes, NaN.
TENFOLD_API std::string to_json(const Value& value);

/// Parses one JSON document as Python's `json.loads` does, except that duplicate keys and
/// nesting deeper than 512 are errors. Throws Error(corrupt) with the byte offset; `where` names
/// the source in the message.
TENFOLD_API Value from_json(std::string_view text, std::string_view where);

}  // namespace tenfold

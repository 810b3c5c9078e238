#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "formats/torch_file/tensor.hpp"

// How NumPy pickles itself:
//
//   scalar(dtype, bytes)
//   _reconstruct(ndarray, (0,), b"b"), then the state (1, shape, dtype, is_fortran, bytes)
//   _frombuffer(bytes, dtype, shape, "C" or "F") from protocol 5 on
//   dtype("f8", False, True), then the state (3, "<", ...)

namespace tenfold::detail::formats::torch_file {

using codecs::PickleChange;
using codecs::PickleKind;
using codecs::PickleNode;

namespace {

struct Name {
  std::string_view text;
  DType dtype;
};
constexpr std::array<Name, 14> kNames = {{{"b1", DType::bool_},
                                          {"u1", DType::uint8},
                                          {"u2", DType::uint16},
                                          {"u4", DType::uint32},
                                          {"u8", DType::uint64},
                                          {"i1", DType::int8},
                                          {"i2", DType::int16},
                                          {"i4", DType::int32},
                                          {"i8", DType::int64},
                                          {"f2", DType::float16},
                                          {"f4", DType::float32},
                                          {"f8", DType::float64},
                                          {"c8", DType::complex64},
                                          {"c16", DType::complex128}}};

bool is_multiarray(std::string_view module) {
  return module == "numpy.core.multiarray" || module == "numpy._core.multiarray";
}

/// The items of the one state that the object was given; none if it has another history.
std::span<const std::uint32_t> state_of(const Pickle& pickle, std::uint32_t id) {
  const auto changes = pickle.changes(id);
  if (changes.size() != 1 || changes[0].kind != PickleChange::Kind::state) return {};
  const PickleNode state = pickle.at(changes[0].value);
  if (state.kind != PickleKind::tuple) return {};
  return state.items;
}

DType dtype_of(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind != PickleKind::reduce || !pickle.is_global(node.items[0], "numpy", "dtype")) {
    pickle.corrupt("dtype: expected one of NumPy, found " + pickle.describe(id));
  }
  const auto call = pickle.call(id);
  const auto text = call->arguments.empty() ? std::nullopt : pickle.text(call->arguments[0]);
  const auto* const known = std::ranges::find(kNames, text.value_or(""), &Name::text);
  if (known == kNames.end()) {
    pickle.unsupported("dtype: torch has none for it: expected numbers or bool, found " +
                       (text ? base::quote(*text) : std::string("none")));
  }
  const auto state = state_of(pickle, id);
  const auto order = state.size() < 2 ? std::nullopt : pickle.text(state[1]);
  if (order == ">") {
    pickle.unsupported("dtype: big-endian elements: expected little-endian ones, found \">" +
                       std::string(*text) + "\"");
  }
  if (order != "<" && order != "|" && order != "=") {
    pickle.corrupt("dtype: expected a state with a byte order, found none");
  }
  return known->dtype;
}

Leaf leaf_of(const Pickle& pickle, DType dtype, const Shape& shape, bool is_fortran,
             std::uint32_t data) {
  const auto bytes = pickle.bytes(data);
  if (!bytes) {
    pickle.unsupported("array: expected its bytes, found " + pickle.describe(data));
  }
  std::uint64_t expected = 0;
  try {
    expected = nbytes_of(dtype, shape);
  } catch (const Error&) {
    pickle.corrupt("shape: too large: expected a size of at most 63 bits, found " +
                   base::list_text(shape));
  }
  if (bytes->size() != expected) {
    pickle.corrupt("array: its bytes do not fit the shape: expected " + std::to_string(expected) +
                   ", found " + std::to_string(bytes->size()));
  }
  Buffer buffer = Buffer::allocate(bytes->size());
  if (!bytes->empty()) std::memcpy(buffer.data(), bytes->data(), bytes->size());
  if (!is_fortran || bytes->empty()) return Tensor(dtype, shape, std::move(buffer));
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return Tensor(dtype, shape, std::move(strides), std::move(buffer), 0);
}

/// _frombuffer(bytes, dtype, shape, order)
Leaf leaf_of_buffer(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 4, 4);
  const auto order = pickle.text(call.arguments[3]);
  if (order != "C" && order != "F") {
    pickle.corrupt("array: order: expected \"C\" or \"F\", found " +
                   pickle.describe(call.arguments[3]));
  }
  return leaf_of(pickle, dtype_of(pickle, call.arguments[1]),
                 pickle.lengths(call.arguments[2], "shape"), order == "F", call.arguments[0]);
}

}  // namespace

std::optional<Leaf> numpy_leaf(const Pickle& pickle, std::uint32_t id, const Pickle::Call& call) {
  const bool is_numeric =
      call.module == "numpy.core.numeric" || call.module == "numpy._core.numeric";
  if (is_numeric && call.name == "_frombuffer") return leaf_of_buffer(pickle, call);
  if (!is_multiarray(call.module)) return std::nullopt;
  if (call.name == "scalar") {
    pickle.require_arguments(call, 2, 2);
    return leaf_of(pickle, dtype_of(pickle, call.arguments[0]), {}, false, call.arguments[1]);
  }
  if (call.name != "_reconstruct") return std::nullopt;
  if (call.arguments.empty() || !pickle.is_global(call.arguments[0], "numpy", "ndarray")) {
    pickle.unsupported("array: expected a plain one, found one of a class of its own");
  }
  const auto state = state_of(pickle, id);
  if (state.size() != 5) pickle.corrupt("array: expected a state of 5 parts, found another");
  const PickleNode order = pickle.at(state[3]);
  return leaf_of(pickle, dtype_of(pickle, state[2]), pickle.lengths(state[1], "shape"),
                 order.integer != 0, state[4]);
}

}  // namespace tenfold::detail::formats::torch_file

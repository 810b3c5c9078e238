#include "formats/torch_file/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/extended_scalar.hpp"
#include "core/tree/sparse.hpp"
#include "formats/torch_file/builder.hpp"
#include "formats/torch_file/node.hpp"
#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/value.hpp"

namespace tenfold::detail::formats::torch_file {

using codecs::PickleKind;
using codecs::PickleNode;

namespace {

constexpr std::string_view kUtils = "torch._utils";

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr std::array<StorageClass, 13> kStorageClasses = {
    {{"FloatStorage", DType::float32},
     {"DoubleStorage", DType::float64},
     {"HalfStorage", DType::float16},
     {"BFloat16Storage", DType::bfloat16},
     {"LongStorage", DType::int64},
     {"IntStorage", DType::int32},
     {"ShortStorage", DType::int16},
     {"CharStorage", DType::int8},
     {"ByteStorage", DType::uint8},
     {"BoolStorage", DType::bool_},
     {"ComplexFloatStorage", DType::complex64},
     {"ComplexDoubleStorage", DType::complex128},
     {"ComplexHalfStorage", DType::complex32}}};
constexpr std::array<StorageClass, 3> kQuantizedClasses = {{{"QInt8Storage", DType::int8},
                                                            {"QUInt8Storage", DType::uint8},
                                                            {"QInt32Storage", DType::int32}}};

std::optional<DType> dtype_of(std::span<const StorageClass> classes, std::string_view module,
                              std::string_view name) {
  if (module != "torch" && module != "torch.cuda") return std::nullopt;
  for (const StorageClass& known : classes) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

/// True if the strides are row-major, ignoring dimensions of length 1.
bool is_contiguous(const Shape& shape, const Shape& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace

std::optional<DType> storage_dtype(std::string_view module, std::string_view name) {
  return dtype_of(kStorageClasses, module, name);
}

std::optional<DType> quantized_dtype(std::string_view module, std::string_view name) {
  return dtype_of(kQuantizedClasses, module, name);
}

std::optional<Leaf> Tensors::leaf(std::uint32_t id, const Pickle::Call& call) {
  if (call.is(kUtils, "_rebuild_tensor")) {
    pickle_.require_arguments(call, 4, 4);
    return rebuild(call, false);
  }
  if (call.is(kUtils, "_rebuild_tensor_v2")) {
    pickle_.require_arguments(call, 6, 7);
    const bool has_metadata = call.arguments.size() == 7;
    return resolve(id, rebuild(call, false),
                   has_metadata ? lazy_view(call.arguments[6]) : LazyView{});
  }
  if (call.is(kUtils, "_rebuild_tensor_v3")) {
    pickle_.require_arguments(call, 7, 8);
    const bool has_metadata = call.arguments.size() == 8;
    return resolve(id, rebuild(call, true),
                   has_metadata ? lazy_view(call.arguments[7]) : LazyView{});
  }
  if (call.is(kUtils, "_rebuild_parameter")) return parameter(call, false);
  if (call.is(kUtils, "_rebuild_parameter_with_state")) return parameter(call, true);
  if (call.is("torch._tensor", "_rebuild_from_type_v2")) return of_type(id, call);
  const bool is_of_device = call.is(kUtils, "_rebuild_device_tensor_from_cpu_tensor") ||
                            call.is(kUtils, "_rebuild_device_tensor_from_numpy");
  if (is_of_device) return of_device(id, call);
  // Tensors of torch share memory through their storage. Arrays of NumPy are copied, so cache the
  // copy: an array that the pickle refers to several times stays one tensor.
  if (const auto found = copies_.find(id); found != copies_.end()) return found->second;
  std::optional<Leaf> copy = numpy_leaf(pickle_, id, call);
  if (copy) copies_.emplace(id, *copy);
  return copy;
}

Leaf Tensors::rebuild(const Pickle::Call& call, bool names_dtype) {
  const Storage where = storage(call.arguments[0]);
  std::optional<DType> dtype = where.dtype;
  if (names_dtype) dtype = torch_dtype(call.arguments[6]);
  if (!dtype) {
    throw pickle_.corrupt().part("storage").expected("one with a dtype").found("one without");
  }
  const std::uint64_t offset = pickle_.natural(call.arguments[1], "storage offset");
  Leaf made = view(*dtype, where.number, offset, pickle_.lengths(call.arguments[2], "shape"),
                   pickle_.lengths(call.arguments[3], "strides"));
  if (call.arguments.size() > 4 && requires_grad(call.arguments[4], made)) {
    made.mark_grad(Grad::required);
  }
  return made;
}

DType Tensors::torch_dtype(std::uint32_t id) const {
  const PickleNode node = pickle_.at(id);
  const bool is_of_torch = node.kind == PickleKind::global && node.text == "torch";
  if (const auto dtype = is_of_torch ? dtype_from_name(node.name) : std::nullopt) return *dtype;
  throw pickle_.unsupported()
      .part("dtype")
      .problem("it cannot be read")
      .expected("a dtype of torch")
      .found(pickle_.describe(id));
}

/// Reads requires_grad. Throws Error(corrupt) if it is not a bool, or if it is true and the dtype
/// is neither floating-point nor complex, because torch supports gradients only for such dtypes.
bool Tensors::requires_grad(std::uint32_t id, const Leaf& leaf) const {
  const PickleNode node = pickle_.at(id);
  if (node.kind != PickleKind::boolean) {
    throw pickle_.corrupt().part("requires_grad").expected("a bool").found(pickle_.describe(id));
  }
  if (node.integer == 0) return false;
  if (!is_floating_point(leaf.dtype()) && !is_complex(leaf.dtype())) {
    throw pickle_.corrupt()
        .part("requires_grad")
        .expected("a tensor of floating-point or complex numbers")
        .found(to_string(leaf.dtype()));
  }
  return true;
}

Leaf Tensors::parameter(const Pickle::Call& call, bool has_state) {
  pickle_.require_arguments(call, has_state ? 4 : 3, has_state ? 4 : 3);
  if (has_state) warn_of_state(call.arguments[3]);
  Leaf made = of_call(call.arguments[0]);
  const bool is_trained = requires_grad(call.arguments[1], made);
  made.mark_grad(is_trained ? Grad::parameter : Grad::frozen_parameter);
  return made;
}

/// Returns, on the CPU, the tensor that a call with the arguments (tensor or array, dtype, device,
/// requires_grad) creates. `dtype` may differ from the dtype of the first argument: torch stored
/// bfloat16 tensors of XLA as arrays of float32.
Leaf Tensors::of_device(std::uint32_t id, const Pickle::Call& call) {
  pickle_.require_arguments(call, 4, 4);
  Leaf made = of_call(call.arguments[0]);
  const DType dtype = torch_dtype(call.arguments[1]);
  if (made.dtype() != dtype) made = converted(id, made, dtype);
  made.mark_grad(requires_grad(call.arguments[3], made) ? Grad::required : Grad::none);
  return made;
}

Leaf Tensors::converted(std::uint32_t id, const Leaf& leaf, DType dtype) {
  if (const auto found = copies_.find(id); found != copies_.end()) return found->second;
  const Tensor from = leaf.tensor();
  // Refuse strided tensors: with strides of 0, a small file could describe a tensor of any size,
  // whose copy would need that much memory.
  if (!can_cast(from.dtype(), dtype) || !from.is_contiguous()) {
    throw pickle_.unsupported()
        .part("dtype")
        .expected("that of the stored tensor, or contiguous elements that can be converted")
        .found(to_string(dtype), " for a tensor of ", to_string(from.dtype()));
  }
  Buffer to = Buffer::allocate(static_cast<std::size_t>(nbytes_of(dtype, from.shape())));
  cast_elements(from.dtype(), from.raw_data(), dtype, to.mutable_data(),
                static_cast<std::size_t>(from.numel()));
  return copies_.emplace(id, Tensor(dtype, from.shape(), std::move(to))).first->second;
}

/// Returns the tensor that call `id`, an argument of another call, creates. Throws for calls that
/// do not create a tensor from a storage or from NumPy's bytes: a call that creates a tensor from
/// another tensor could make the recursion endless.
Leaf Tensors::of_call(std::uint32_t id) {
  const auto inner = pickle_.call(id);
  const bool is_plain =
      inner && (inner->module.starts_with("numpy") ||
                (inner->module == kUtils && inner->name.starts_with("_rebuild_tensor")));
  std::optional<Leaf> made = is_plain ? leaf(id, *inner) : std::nullopt;
  if (made) return *std::move(made);
  if (inner) pickle_.refuse_global(inner->module, inner->name);
  throw pickle_.corrupt()
      .part("tensor")
      .expected("a call that creates it")
      .found(pickle_.describe(id));
}

/// Returns the tensor of a call that also sets Python attributes; nullopt for a tensor of a class
/// other than Tensor, Parameter and Buffer. Ignores the attributes, with a warning if any of them
/// is not from the torch compiler.
std::optional<Leaf> Tensors::of_type(std::uint32_t id, const Pickle::Call& call) {
  pickle_.require_arguments(call, 4, 4);
  const std::uint32_t type = call.arguments[1];
  if (!pickle_.is_global(type, "torch", "Tensor") &&
      !pickle_.is_global(type, "torch.nn.parameter", "Parameter") &&
      !pickle_.is_global(type, "torch.nn.parameter", "Buffer")) {
    return std::nullopt;
  }
  const PickleNode function = pickle_.at(call.arguments[0]);
  const PickleNode arguments = pickle_.at(call.arguments[2]);
  if (function.kind != PickleKind::global || arguments.kind != PickleKind::tuple) {
    throw pickle_.corrupt()
        .part("_rebuild_from_type_v2")
        .expected("a function and a tuple")
        .found(pickle_.describe(call.arguments[0]), " and ", pickle_.describe(call.arguments[2]));
  }
  if (function.text != kUtils || !function.name.starts_with("_rebuild_tensor")) {
    pickle_.refuse_global(function.text, function.name);
  }
  const Pickle::Call inner = {function.text, function.name, arguments.items};
  std::optional<Leaf> made = leaf(id, inner);
  if (!made) pickle_.refuse_global(function.text, function.name);
  warn_of_state(call.arguments[3]);
  return *std::move(made);
}

void Tensors::warn_of_state(std::uint32_t state) const {
  const PickleNode node = pickle_.at(state);
  if (node.kind == PickleKind::none) return;
  pickle_.spend(node.items.size());
  // Do not warn about attributes that the torch compiler adds to tensors.
  bool is_plain = node.kind == PickleKind::dict;
  for (std::size_t i = 0; is_plain && i < node.items.size(); i += 2) {
    is_plain = pickle_.text(node.items[i]).value_or("").starts_with("_dynamo_");
  }
  if (is_plain) return;
  warn(pickle_.place().text() + ": the tensor's attributes are ignored: expected none, found some");
}

/// Reads whether the tensor is a conjugate view, a negative view, or both.
LazyView Tensors::lazy_view(std::uint32_t metadata) const {
  const PickleNode node = pickle_.at(metadata);
  LazyView view;
  if (node.kind == PickleKind::none) return view;
  pickle_.spend(node.items.size());
  if (node.kind != PickleKind::dict) {
    throw pickle_.corrupt().part("metadata").expected("a dict").found(pickle_.describe(metadata));
  }
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const PickleNode value = pickle_.at(node.items[i + 1]);
    if (value.kind == PickleKind::boolean && value.integer == 0) continue;
    const auto mark = pickle_.text(node.items[i]).value_or("");
    if (value.kind == PickleKind::boolean && mark == "conj") {
      view.is_conjugate = true;
    } else if (value.kind == PickleKind::boolean && mark == "neg") {
      view.is_negative = true;
    } else {
      throw pickle_.unsupported()
          .problem("a tensor with unknown metadata cannot be read")
          .expected("\"conj\" or \"neg\"")
          .found(base::quote(mark));
    }
  }
  return view;
}

Leaf Tensors::resolve(std::uint32_t id, const Leaf& bytes, LazyView view) {
  if (view.is_plain()) return bytes;
  // As in torch, the conjugate of a real tensor is the tensor itself.
  if (!is_complex(bytes.dtype())) view.is_conjugate = false;
  if (view.is_plain()) return bytes;
  if (!has_sign_bits(bytes.dtype())) {
    throw pickle_.unsupported()
        .problem("a negative view cannot be read")
        .expected("floating-point or complex numbers")
        .found(to_string(bytes.dtype()))
        .remedy("save it after resolve_neg()");
  }
  return copies_.try_emplace(id, resolved(bytes, view)).first->second;
}

Tensors::Quantized Tensors::quantized(const Pickle::Call& call) {
  pickle_.require_arguments(call, 7, 7);
  const Storage where = storage(call.arguments[0], quantized_dtype);
  if (!where.dtype) {
    throw pickle_.corrupt()
        .part("quantized tensor")
        .expected("a storage of quantized elements")
        .found("bytes");
  }
  const std::uint64_t offset = pickle_.natural(call.arguments[1], "storage offset");
  Leaf integers =
      view(*where.dtype, where.number, offset, pickle_.lengths(call.arguments[2], "shape"),
           pickle_.lengths(call.arguments[3], "strides"));
  switch (*where.dtype) {
    case DType::int8:
      return {std::move(integers), "qint8"};
    case DType::uint8:
      return {std::move(integers), "quint8"};
    default:
      return {std::move(integers), "qint32"};
  }
}

Tensors::Storage Tensors::storage(std::uint32_t id, DTypeOfClass dtype_of) {
  const PickleNode node = pickle_.at(id);
  if (node.kind != PickleKind::persistent) {
    throw pickle_.corrupt()
        .part("storage")
        .expected("a storage of the file")
        .found(pickle_.describe(id));
  }
  const PickleNode tuple = pickle_.at(node.items[0]);
  const bool fits = tuple.kind == PickleKind::tuple &&
                    (tuple.items.size() == 5 || tuple.items.size() == 6) &&
                    pickle_.text(tuple.items[0]) == "storage";
  if (!fits) {
    throw pickle_.unsupported()
        .part("storage")
        .expected("(\"storage\", class, key, location, size)")
        .found(pickle_.describe(node.items[0]), " of another kind");
  }
  if (tuple.items.size() == 6 && pickle_.at(tuple.items[5]).kind != PickleKind::none) {
    throw pickle_.unsupported()
        .part("storage")
        .problem("a view of a storage cannot be read")
        .expected("a whole one")
        .found(pickle_.describe(tuple.items[5]));
  }
  const PickleNode type = pickle_.at(tuple.items[1]);
  if (type.kind != PickleKind::global) {
    throw pickle_.corrupt().part("storage").expected("a class").found(
        pickle_.describe(tuple.items[1]));
  }
  Storage result;
  result.dtype = dtype_of(type.text, type.name);
  const bool untyped = type.name == "UntypedStorage" && type.text == "torch.storage";
  if (!result.dtype && !untyped) pickle_.refuse_global(type.text, type.name);

  const auto key = pickle_.text(tuple.items[2]);
  if (!key) {
    throw pickle_.corrupt()
        .part("storage key")
        .expected("a string")
        .found(pickle_.describe(tuple.items[2]));
  }
  const auto found = storages_->find(*key);
  if (!found) {
    throw pickle_.corrupt()
        .part("storage")
        .problem("the file lacks it")
        .expected("the storage ", base::quote(*key))
        .found("none");
  }
  result.number = *found;
  const std::uint64_t count = pickle_.natural(tuple.items[4], "storage size");
  const auto expected = base::checked_mul(count, result.dtype ? itemsize(*result.dtype) : 1);
  const std::uint64_t stored = storages_->size_bytes(*found);
  if (!expected || *expected != stored) {
    throw pickle_.corrupt()
        .part("storage ", base::quote(*key))
        .problem("its size does not fit")
        .expected(count, (result.dtype ? " elements of " : " bytes"),
                  (result.dtype ? to_string(*result.dtype) : ""))
        .found(stored, " bytes");
  }
  return result;
}

Leaf Tensors::view(DType dtype, std::size_t storage, std::uint64_t offset, Shape shape,
                   Shape strides) {
  const std::uint64_t item_bytes = itemsize(dtype);
  const std::uint64_t available = storages_->size_bytes(storage) / item_bytes;
  if (strides.size() != shape.size()) {
    throw pickle_.corrupt()
        .problem("strides do not fit")
        .expected(shape.size(), " strides")
        .found(base::list_text(strides));
  }
  std::uint64_t size_bytes = 0;
  try {
    size_bytes = nbytes_of(dtype, shape);
  } catch (const Error&) {
    throw pickle_.corrupt()
        .part("shape")
        .problem("too large")
        .expected("at most 2^63 - 1 bytes")
        .found(base::list_text(shape));
  }
  if (size_bytes == 0) {
    storages_->ranges.push_back({storage, 0, 0});
    return stored_leaf(dtype, std::move(shape), storages_, storages_->ranges.size() - 1);
  }
  auto end = base::checked_add(offset, 1);
  for (std::size_t i = 0; i < shape.size() && end; ++i) {
    const auto reach = base::checked_mul(static_cast<std::uint64_t>(shape[i] - 1),
                                         static_cast<std::uint64_t>(strides[i]));
    end = reach ? base::checked_add(*end, *reach) : std::nullopt;
  }
  if (!end || *end > available) {
    throw pickle_.corrupt()
        .problem("it reaches beyond its storage")
        .expected("at most ", available, " elements")
        .found("shape ", base::list_text(shape), " of strides ", base::list_text(strides), " from ",
               offset, " on");
  }
  const bool is_whole = offset == 0 && *end == available;
  if (!is_contiguous(shape, strides)) {
    Leaf leaf = Tensor(dtype, std::move(shape), std::move(strides), storages_->bytes(storage),
                       offset * item_bytes);
    leaf.mark_in_storage(!is_whole);
    return leaf;
  }
  storages_->ranges.push_back({storage, offset * item_bytes, size_bytes});
  Leaf leaf = stored_leaf(dtype, std::move(shape), storages_, storages_->ranges.size() - 1);
  leaf.mark_in_storage(!is_whole);
  return leaf;
}

namespace {

/// True if the n components of a nested tensor are row-major and stored in order without gaps, from
/// offset 0 on. False unless `sizes` and `strides` are int64 [n, k], and `offsets` is int64 [n].
bool is_packed(const Tensor& sizes, const Tensor& strides, const Tensor& offsets) {
  if (sizes.dtype() != DType::int64 || strides.dtype() != DType::int64 ||
      offsets.dtype() != DType::int64 || sizes.ndim() != 2 || sizes.shape() != strides.shape() ||
      offsets.shape() != Shape{sizes.shape()[0]}) {
    return false;
  }
  const auto width = static_cast<std::size_t>(sizes.shape()[1]);
  const auto* size = sizes.data<std::int64_t>();
  const auto* stride = strides.data<std::int64_t>();
  const auto* offset = offsets.data<std::int64_t>();
  // Unsigned, because sums and products of numbers from the file may overflow.
  std::uint64_t end = 0;
  for (std::int64_t i = 0; i < sizes.shape()[0]; ++i, size += width, stride += width) {
    const Shape shape(size, size + width);
    if (offset[i] < 0 || static_cast<std::uint64_t>(offset[i]) != end) return false;
    try {
      end += static_cast<std::uint64_t>(numel_of(shape));
    } catch (const Error&) {
      return false;
    }
    std::uint64_t expected = 1;
    for (std::size_t d = width; d-- > 0; expected *= static_cast<std::uint64_t>(shape[d])) {
      if (shape[d] > 1 && static_cast<std::uint64_t>(stride[d]) != expected) return false;
    }
  }
  return true;
}

}  // namespace

Leaf nested_tensor(const Pickle& pickle, Tensors& tensors, const Pickle::Call& call) {
  pickle.require_arguments(call, 4, 4);
  std::vector<Tensor> parts;
  for (const std::uint32_t part : call.arguments) {
    const auto inner = pickle.call(part);
    const std::optional<Leaf> leaf = inner ? tensors.leaf(part, *inner) : std::nullopt;
    if (!leaf) {
      throw pickle.corrupt().part("nested tensor").expected("tensors").found(pickle.describe(part));
    }
    parts.push_back(leaf->tensor());
  }
  // Refuse strided parts instead of copying them: with strides of 0, a small file could describe a
  // tensor of any size, whose copy would need that much memory.
  if (!std::ranges::all_of(parts, &Tensor::is_contiguous) ||
      !is_packed(parts[1], parts[2], parts[3])) {
    throw pickle.unsupported()
        .part("nested tensor")
        .expected("contiguous components")
        .found("other offsets or strides")
        .remedy("save a contiguous() one");
  }
  try {
    return Leaf::nested(parts[0], parts[1]);
  } catch (const Error& error) {
    throw Error(error).code(ErrorCode::corrupt).within(pickle.subject()).path(pickle.where().path);
  }
}

// Tensors that consist of several tensors (sparse, jagged, quantized), and tensors on the meta
// device, which have no data.

Node::Slot TreeBuilder::sparse(const Pickle::Call& call) {
  pickle_.require_arguments(call, 2, 2);
  const auto inner = pickle_.call(call.arguments[0]);
  const auto layout_value =
      inner ? special_value(pickle_, call.arguments[0], *inner) : std::nullopt;
  std::string_view layout =
      layout_value ? std::string_view(layout_value->text) : std::string_view();
  if (layout.starts_with("torch.")) layout.remove_prefix(6);
  const auto names = sparse_parts(layout);
  const std::span<const std::uint32_t> parts = pickle_.at(call.arguments[1]).items;
  if (names.empty() || layout == kJagged || parts.size() < names.size() + 1 ||
      parts.size() > names.size() + (layout == "sparse_coo" ? 2 : 1)) {
    throw pickle_.unsupported()
        .part("sparse tensor")
        .expected("a layout of torch and its parts")
        .found(base::quote(layout), " and ", parts.size(), " parts");
  }
  Slot made = container(call.arguments[1], NodeKind::sparse, [&](Children& to) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      add(to, std::string(names[i]), parts[i]);
      require_tensor(to.entries.back().slot, "sparse tensor: " + std::string(names[i]));
    }
  });
  auto& node = std::get<TensorDict>(made);
  node.info().layout = layout;
  node.info().dense_shape = pickle_.lengths(parts[names.size()], "shape of a sparse tensor");
  if (parts.size() == names.size() + 2) {
    const std::uint32_t flag = parts[names.size() + 1];
    const PickleNode coalesced = pickle_.at(flag);
    if (coalesced.kind != PickleKind::boolean && coalesced.kind != PickleKind::none) {
      throw pickle_.corrupt()
          .part("sparse tensor: is_coalesced")
          .expected("a bool or None")
          .found(pickle_.describe(flag));
    }
    node.info().is_coalesced = coalesced.integer != 0;
  }
  return made;
}

void TreeBuilder::require_tensor(const Slot& part, const std::string& name) const {
  if (std::holds_alternative<Leaf>(part)) return;
  const auto* node = std::get_if<TensorDict>(&part);
  const bool is_opaque = node != nullptr && node->kind() == NodeKind::opaque;
  throw base::fail(is_opaque ? ErrorCode::unsupported : ErrorCode::corrupt, pickle_.place())
      .part(name)
      .expected("a tensor")
      .found(is_opaque ? base::quote(node->info().class_name) : "another value");
}

bool TreeBuilder::is_jagged(const Pickle::Call& call) const {
  return call.is("torch._tensor", "_rebuild_from_type_v2") && call.arguments.size() == 4 &&
         pickle_.is_global(call.arguments[0], "torch.nested._internal.nested_tensor",
                           "_rebuild_njt");
}

/// Builds a dict that describes a quantized tensor: its integers, its dtype, its quantization
/// scheme and the parameters of the scheme. torch's int_repr(), q_scale(), ... return the same.
Node::Slot TreeBuilder::quantized(std::uint32_t id, const Pickle::Call& call) {
  Tensors::Quantized parts = tensors_.quantized(call);
  const PickleNode scheme = pickle_.at(call.arguments[4]);
  const std::span<const std::uint32_t> arguments = scheme.items;
  const auto is_scheme = [&](std::string_view name, std::size_t count) {
    return scheme.kind == PickleKind::tuple && arguments.size() == count &&
           pickle_.is_global(arguments[0], "torch", name);
  };
  const bool is_per_tensor = is_scheme("per_tensor_affine", 3);
  const bool is_per_channel =
      is_scheme("per_channel_affine", 4) || is_scheme("per_channel_affine_float_qparams", 4);
  if (!is_per_tensor && !is_per_channel) {
    throw pickle_.unsupported()
        .part("quantized tensor")
        .expected("one that is quantized per tensor or per channel")
        .found("another scheme")
        .remedy("save the result of dequantize()");
  }
  const Shape shape = parts.integers.shape();
  return container(id, NodeKind::dict, [&](Children& to) {
    to.any_tensor = true;
    to.entries.push_back({"int_repr", std::move(parts.integers)});
    to.entries.push_back({"dtype", special(Value::Special::Type::dtype, "torch." + parts.dtype)});
    add(to, "qscheme", arguments[0]);
    add(to, is_per_tensor ? "scale" : "scales", arguments[1]);
    add(to, is_per_tensor ? "zero_point" : "zero_points", arguments[2]);
    if (is_per_tensor) return require_numbers(arguments);
    add(to, "axis", arguments[3]);
    require_channels(to, shape, pickle_.natural(arguments[3], "axis"));
  });
}

/// Checks that the scale is a float and the zero point is an int.
void TreeBuilder::require_numbers(std::span<const std::uint32_t> arguments) const {
  if (pickle_.at(arguments[1]).kind == PickleKind::number &&
      pickle_.at(arguments[2]).kind == PickleKind::integer) {
    return;
  }
  throw pickle_.corrupt()
      .part("quantized tensor")
      .expected("a float as scale and an int as zero point")
      .found(pickle_.describe(arguments[1]), " and ", pickle_.describe(arguments[2]));
}

/// Checks that there is one scale and one zero point for each index along the axis.
void TreeBuilder::require_channels(const Children& parts, const Shape& shape,
                                   std::uint64_t axis) const {
  if (axis >= shape.size()) {
    throw pickle_.corrupt()
        .part("quantized tensor: axis")
        .expected("a dimension of ", base::list_text(shape))
        .found(axis);
  }
  const Shape expected = {shape[static_cast<std::size_t>(axis)]};
  for (const Node::Entry& entry : parts.entries) {
    if (entry.key != "scales" && entry.key != "zero_points") continue;
    const auto* leaf = std::get_if<Leaf>(&entry.slot);
    if (leaf != nullptr && leaf->shape() == expected) continue;
    throw pickle_.corrupt()
        .part("quantized tensor: ", entry.key)
        .expected("a tensor of ", base::list_text(expected))
        .found((leaf == nullptr ? "another value" : base::list_text(leaf->shape())));
  }
}

std::optional<Pickle::Call> TreeBuilder::quantized_call(const Pickle::Call& call) const {
  constexpr std::string_view kRebuild = "_rebuild_qtensor";
  if (call.is(kUtils, kRebuild)) return call;
  if (call.is(kUtils, "_rebuild_parameter") && !call.arguments.empty()) {
    auto inner = pickle_.call(call.arguments[0]);
    if (inner && inner->is(kUtils, kRebuild)) return inner;
  }
  return std::nullopt;
}

Node::Slot TreeBuilder::jagged(const Pickle::Call& call) {
  const PickleNode arguments = pickle_.at(call.arguments[2]);
  const bool is_one = arguments.kind == PickleKind::tuple && arguments.items.size() == 1 &&
                      pickle_.at(arguments.items[0]).kind == PickleKind::dict;
  if (!is_one) {
    throw pickle_.corrupt()
        .part("jagged tensor")
        .expected("a dict of its parts")
        .found(pickle_.describe(call.arguments[2]));
  }
  const std::span<const std::uint32_t> fields = pickle_.at(arguments.items[0]).items;
  pickle_.spend(fields.size());
  const auto field = [&](std::string_view name) -> std::optional<std::uint32_t> {
    std::optional<std::uint32_t> found;  // the last of several equal keys counts, as in Python
    for (std::size_t i = 0; i + 1 < fields.size(); i += 2) {
      if (pickle_.text(fields[i]) == name) found = fields[i + 1];
    }
    return found;
  };
  Slot made = container(arguments.items[0], NodeKind::sparse, [&](Children& to) {
    for (const char* name : {"values", "offsets", "lengths"}) {
      const auto part = field(name);
      const bool is_none = !part || pickle_.at(*part).kind == PickleKind::none;
      if (name == std::string_view("lengths") && is_none) continue;
      const std::string subject = std::string("jagged tensor: ") + name;
      if (!part) throw pickle_.corrupt().part(subject).expected("a tensor").found("none");
      add(to, name, *part);
      require_tensor(to.entries.back().slot, subject);
    }
  });
  const auto& node = std::get<TensorDict>(made);
  Shape shape = std::get<Leaf>(node.get("values")).shape();
  const Shape offsets = std::get<Leaf>(node.get("offsets")).shape();
  const auto ragged = field("_ragged_idx");
  const std::uint64_t at = ragged ? pickle_.natural(*ragged, "ragged dimension") : 0;
  if (at < 1 || at > shape.size() || offsets.size() != 1 || offsets[0] < 1) {
    throw pickle_.corrupt()
        .part("jagged tensor")
        .expected("offsets of shape [n + 1] and a ragged dimension from 1 to ", shape.size())
        .found("offsets of shape ", base::list_text(offsets), " and dimension ", at);
  }
  shape[static_cast<std::size_t>(at - 1)] = -1;
  shape.insert(shape.begin(), offsets[0] - 1);
  NodeInfo& info = std::get<TensorDict>(made).info();
  info.layout = kJagged;
  info.dense_shape = std::move(shape);
  return made;
}

bool TreeBuilder::is_meta_parameter(const Pickle::Call& call) const {
  if (call.module != "torch._utils" || !call.name.starts_with("_rebuild_parameter")) return false;
  const auto inner = call.arguments.empty() ? std::nullopt : pickle_.call(call.arguments[0]);
  return inner && opaque_name(pickle_, call.arguments[0]) == kMetaTensor;
}

Node::Slot TreeBuilder::meta_parameter(const Pickle::Call& call) {
  pickle_.require_arguments(call, 3, 4);
  const PickleNode requires_grad = pickle_.at(call.arguments[1]);
  if (requires_grad.kind != PickleKind::boolean) {
    throw pickle_.corrupt()
        .part("requires_grad")
        .expected("a bool")
        .found(pickle_.describe(call.arguments[1]));
  }
  Slot made = opaque(call.arguments[0]);
  std::get<TensorDict>(made).set("parameter", NonTensor{Value(requires_grad.integer != 0)});
  return made;
}

// How NumPy pickles scalars, arrays and dtypes:
//
//   scalar(dtype, bytes)
//   _reconstruct(ndarray, (0,), b"b"), then the state (1, shape, dtype, is_fortran, bytes)
//   _frombuffer(bytes, dtype, shape, "C" or "F") from protocol 5 on, if the array is contiguous
//   _frombuffer(bytes, dtype, shape, "K", axes), in later versions of NumPy, if the array is a
//     transposition of a contiguous array of that shape
//   dtype("f8", False, True), then the state (3, "<", ...)

using codecs::PickleChange;

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

/// Returns the items of the state (a tuple) that the pickle sets on object `id`. Returns an empty
/// span if the state is not a tuple, or if the pickle changes the object several times, in another
/// way, or not at all.
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
    throw pickle.corrupt().part("dtype").expected("a dtype of NumPy").found(pickle.describe(id));
  }
  const auto call = pickle.call(id);
  const auto text = call->arguments.empty() ? std::nullopt : pickle.text(call->arguments[0]);
  const auto* const known = std::ranges::find(kNames, text.value_or(""), &Name::text);
  if (known == kNames.end()) {
    throw pickle.unsupported()
        .part("dtype")
        .problem("torch has no such dtype")
        .expected("numbers or bool")
        .found((text ? base::quote(*text) : std::string("none")));
  }
  const auto state = state_of(pickle, id);
  const auto order = state.size() < 2 ? std::nullopt : pickle.text(state[1]);
  if (order == ">") {
    throw pickle.unsupported()
        .part("dtype")
        .problem("big-endian elements")
        .expected("little-endian ones")
        .found("\">", *text, "\"");
  }
  if (order != "<" && order != "|" && order != "=") {
    throw pickle.corrupt().part("dtype").expected("a state with a byte order").found("none");
  }
  return known->dtype;
}

/// Returns the array whose dimension i is dimension axes[i] of the row-major array with this shape
/// and data. No axes: the row-major array itself.
Leaf leaf_of(const Pickle& pickle, DType dtype, const Shape& shape, const Shape& axes,
             std::uint32_t data) {
  const auto bytes = pickle.bytes(data);
  if (!bytes) {
    throw pickle.unsupported().part("array").expected("its bytes").found(pickle.describe(data));
  }
  std::uint64_t expected = 0;
  try {
    expected = nbytes_of(dtype, shape);
  } catch (const Error&) {
    throw pickle.corrupt()
        .part("shape")
        .problem("too large")
        .expected("at most 2^63 - 1 bytes")
        .found(base::list_text(shape));
  }
  if (bytes->size() != expected) {
    throw pickle.corrupt()
        .part("array")
        .problem("its bytes do not fit the shape")
        .expected(expected, " bytes")
        .found(bytes->size());
  }
  Buffer buffer = Buffer::allocate(bytes->size());
  if (!bytes->empty()) std::memcpy(buffer.mutable_data(), bytes->data(), bytes->size());
  if (axes.empty()) return Tensor(dtype, shape, std::move(buffer));
  const Shape strides = contiguous_strides(shape);
  Shape permuted_shape;
  Shape permuted_strides;
  for (const std::int64_t axis : axes) {
    permuted_shape.push_back(shape[static_cast<std::size_t>(axis)]);
    permuted_strides.push_back(strides[static_cast<std::size_t>(axis)]);
  }
  return Tensor(dtype, std::move(permuted_shape), std::move(permuted_strides), std::move(buffer),
                0);
}

/// Returns the column-major array with this shape and data.
Leaf fortran_leaf_of(const Pickle& pickle, DType dtype, Shape shape, std::uint32_t data) {
  Shape axes(shape.size());
  std::iota(axes.rbegin(), axes.rend(), 0);
  std::ranges::reverse(shape);
  return leaf_of(pickle, dtype, shape, axes, data);
}

/// Converts the call _frombuffer(bytes, dtype, shape, order[, axes]).
Leaf leaf_of_buffer(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 4, 5);
  const auto order = pickle.text(call.arguments[3]);
  const bool has_axes = order == "K" && call.arguments.size() == 5;
  if (order != "C" && order != "F" && !has_axes) {
    throw pickle.corrupt()
        .part("array: order")
        .expected("\"C\", \"F\" or \"K\" with axes")
        .found(pickle.describe(call.arguments[3]));
  }
  const DType dtype = dtype_of(pickle, call.arguments[1]);
  Shape shape = pickle.lengths(call.arguments[2], "shape");
  if (order == "F") return fortran_leaf_of(pickle, dtype, std::move(shape), call.arguments[0]);
  if (!has_axes) return leaf_of(pickle, dtype, shape, {}, call.arguments[0]);
  const Shape axes = pickle.lengths(call.arguments[4], "axes");
  Shape all(shape.size());
  std::iota(all.begin(), all.end(), 0);
  if (!std::ranges::is_permutation(axes, all)) {
    throw pickle.corrupt()
        .part("array: axes")
        .expected("a permutation of the dimensions")
        .found(base::list_text(axes));
  }
  return leaf_of(pickle, dtype, shape, axes, call.arguments[0]);
}

}  // namespace

std::optional<Leaf> numpy_leaf(const Pickle& pickle, std::uint32_t id, const Pickle::Call& call) {
  const bool is_numeric =
      call.module == "numpy.core.numeric" || call.module == "numpy._core.numeric";
  if (is_numeric && call.name == "_frombuffer") return leaf_of_buffer(pickle, call);
  if (!is_multiarray(call.module)) return std::nullopt;
  if (call.name == "scalar") {
    pickle.require_arguments(call, 2, 2);
    return leaf_of(pickle, dtype_of(pickle, call.arguments[0]), {}, {}, call.arguments[1]);
  }
  if (call.name != "_reconstruct") return std::nullopt;
  if (call.arguments.empty() || !pickle.is_global(call.arguments[0], "numpy", "ndarray")) {
    throw pickle.unsupported().part("array").expected("numpy.ndarray").found("another class");
  }
  const auto state = state_of(pickle, id);
  if (state.size() != 5) {
    throw pickle.corrupt().part("array").expected("a state of 5 parts").found("another");
  }
  const DType dtype = dtype_of(pickle, state[2]);
  Shape shape = pickle.lengths(state[1], "shape");
  const bool is_fortran = pickle.at(state[3]).integer != 0;
  return is_fortran ? fortran_leaf_of(pickle, dtype, std::move(shape), state[4])
                    : leaf_of(pickle, dtype, shape, {}, state[4]);
}

}  // namespace tenfold::detail::formats::torch_file

#include "formats/torch_file/tensor.hpp"

#include <array>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"

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

/// True where the strides are those of a row-major tensor, but for lengths of 1.
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
  if (module != "torch" && module != "torch.cuda") return std::nullopt;
  for (const StorageClass& known : kStorageClasses) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

std::optional<Leaf> Tensors::leaf(std::uint32_t id, const Pickle::Call& call) {
  if (call.is(kUtils, "_rebuild_tensor")) {
    pickle_.require_arguments(call, 4, 4);
    return rebuild(call, false);
  }
  if (call.is(kUtils, "_rebuild_tensor_v2")) {
    pickle_.require_arguments(call, 6, 7);
    if (call.arguments.size() == 7) require_plain(call.arguments[6]);
    return rebuild(call, false);
  }
  if (call.is(kUtils, "_rebuild_tensor_v3")) {
    pickle_.require_arguments(call, 7, 8);
    if (call.arguments.size() == 8) require_plain(call.arguments[7]);
    return rebuild(call, true);
  }
  if (call.is(kUtils, "_rebuild_parameter")) return parameter(call, false);
  if (call.is(kUtils, "_rebuild_parameter_with_state")) return parameter(call, true);
  if (call.is("torch._tensor", "_rebuild_from_type_v2")) return of_type(call);
  const bool is_of_device = call.is(kUtils, "_rebuild_device_tensor_from_cpu_tensor") ||
                            call.is(kUtils, "_rebuild_device_tensor_from_numpy");
  if (is_of_device) {
    pickle_.require_arguments(call, 4, 4);
    return of_call(call.arguments[0]);
  }
  // Tensors over one storage are tied by it. These are copies: what the pickle shares stays one.
  if (const auto found = copies_.find(id); found != copies_.end()) return found->second;
  std::optional<Leaf> copy = numpy_leaf(pickle_, id, call);
  if (copy) copies_.emplace(id, *copy);
  return copy;
}

Leaf Tensors::rebuild(const Pickle::Call& call, bool names_dtype) {
  const Storage where = storage(call.arguments[0]);
  std::optional<DType> dtype = where.dtype;
  if (names_dtype) {
    const PickleNode node = pickle_.at(call.arguments[6]);
    dtype = node.kind == PickleKind::global && node.text == "torch" ? dtype_from_name(node.name)
                                                                    : std::nullopt;
    if (!dtype) {
      pickle_.unsupported("dtype: it cannot be read: expected a dtype of torch, found " +
                          pickle_.describe(call.arguments[6]));
    }
  }
  if (!dtype) pickle_.corrupt("storage: expected one with a dtype, found one without");
  const std::uint64_t offset = pickle_.natural(call.arguments[1], "storage offset");
  Leaf made = view(*dtype, where.number, offset, pickle_.lengths(call.arguments[2], "shape"),
                   pickle_.lengths(call.arguments[3], "strides"));
  if (call.arguments.size() > 4 && requires_grad(call.arguments[4], made)) {
    made.mark_grad(Grad::required);
  }
  return made;
}

/// As torch, which takes a gradient of nothing but floating-point and complex numbers.
bool Tensors::requires_grad(std::uint32_t id, const Leaf& leaf) const {
  const PickleNode node = pickle_.at(id);
  if (node.kind != PickleKind::boolean) {
    pickle_.corrupt("requires_grad: expected a bool, found " + pickle_.describe(id));
  }
  if (node.integer == 0) return false;
  if (!is_floating_point(leaf.dtype()) && !is_complex(leaf.dtype())) {
    pickle_.corrupt(
        "requires_grad: expected a tensor of floating-point or complex numbers, found " +
        std::string(name(leaf.dtype())));
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

/// The tensor that another call wraps: made of a storage or of NumPy's bytes, so that the recursion
/// ends here.
Leaf Tensors::of_call(std::uint32_t id) {
  const auto inner = pickle_.call(id);
  const bool is_plain =
      inner && (inner->module.starts_with("numpy") ||
                (inner->module == kUtils && inner->name.starts_with("_rebuild_tensor")));
  std::optional<Leaf> made = is_plain ? leaf(id, *inner) : std::nullopt;
  if (made) return *std::move(made);
  if (inner) pickle_.refuse_global(inner->module, inner->name);
  pickle_.corrupt("parameter: expected a tensor, found " + pickle_.describe(id));
}

/// A tensor with attributes of Python's, which are left out; nothing for one of another class.
std::optional<Leaf> Tensors::of_type(const Pickle::Call& call) {
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
    pickle_.corrupt("_rebuild_from_type_v2: expected a function and a tuple, found " +
                    pickle_.describe(call.arguments[0]) + " and " +
                    pickle_.describe(call.arguments[2]));
  }
  if (function.text != kUtils || !function.name.starts_with("_rebuild_tensor")) {
    pickle_.refuse_global(function.text, function.name);
  }
  const Pickle::Call inner = {function.text, function.name, arguments.items};
  std::optional<Leaf> made = leaf(call.arguments[0], inner);
  if (!made) pickle_.refuse_global(function.text, function.name);
  warn_of_state(call.arguments[3]);
  return *std::move(made);
}

void Tensors::warn_of_state(std::uint32_t state) const {
  const PickleNode node = pickle_.at(state);
  if (node.kind == PickleKind::none) return;
  // The compiler's notes on a tensor are none of the program's.
  bool is_plain = node.kind == PickleKind::dict;
  for (std::size_t i = 0; is_plain && i < node.items.size(); i += 2) {
    is_plain = pickle_.text(node.items[i]).value_or("").starts_with("_dynamo_");
  }
  if (is_plain) return;
  warn(pickle_.where() + ": " + pickle_.subject() +
       ": the tensor's attributes are left out: expected none, found some");
}

/// Of a view that stands for the conjugate or the negative of its bytes the storage tells nothing.
void Tensors::require_plain(std::uint32_t metadata) const {
  const PickleNode node = pickle_.at(metadata);
  if (node.kind == PickleKind::none) return;
  if (node.kind != PickleKind::dict) {
    pickle_.corrupt("metadata: expected a dict, found " + pickle_.describe(metadata));
  }
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const PickleNode value = pickle_.at(node.items[i + 1]);
    if (value.kind == PickleKind::boolean && value.integer == 0) continue;
    pickle_.unsupported("a lazy view cannot be read: expected plain bytes, found one marked " +
                        base::quote(pickle_.text(node.items[i]).value_or("")) +
                        "; save it after resolve_conj() and resolve_neg()");
  }
}

Tensors::Storage Tensors::storage(std::uint32_t id) {
  const PickleNode node = pickle_.at(id);
  if (node.kind != PickleKind::persistent) {
    pickle_.corrupt("storage: expected a storage of the file, found " + pickle_.describe(id));
  }
  const PickleNode tuple = pickle_.at(node.items[0]);
  const bool fits = tuple.kind == PickleKind::tuple &&
                    (tuple.items.size() == 5 || tuple.items.size() == 6) &&
                    pickle_.text(tuple.items[0]) == "storage";
  if (!fits) {
    pickle_.unsupported("storage: expected (\"storage\", class, key, location, size), found " +
                        pickle_.describe(node.items[0]) + " of another kind");
  }
  if (tuple.items.size() == 6 && pickle_.at(tuple.items[5]).kind != PickleKind::none) {
    pickle_.unsupported(
        "storage: a view of a storage cannot be read: expected a whole one, found " +
        pickle_.describe(tuple.items[5]));
  }
  const PickleNode type = pickle_.at(tuple.items[1]);
  if (type.kind != PickleKind::global) {
    pickle_.corrupt("storage: expected a class, found " + pickle_.describe(tuple.items[1]));
  }
  Storage result;
  result.dtype = storage_dtype(type.text, type.name);
  const bool untyped = type.name == "UntypedStorage" && type.text == "torch.storage";
  if (!result.dtype && !untyped) pickle_.refuse_global(type.text, type.name);

  const auto key = pickle_.text(tuple.items[2]);
  if (!key)
    pickle_.corrupt("storage key: expected text, found " + pickle_.describe(tuple.items[2]));
  const auto found = storages_->find(*key);
  if (!found) {
    pickle_.corrupt("storage: the file lacks it: expected a record \"data/" + std::string(*key) +
                    "\", found none");
  }
  result.number = *found;
  const std::uint64_t count = pickle_.natural(tuple.items[4], "storage size");
  const auto expected = base::checked_mul(count, result.dtype ? itemsize(*result.dtype) : 1);
  const std::uint64_t stored = storages_->size_bytes(*found);
  if (!expected || *expected != stored) {
    pickle_.corrupt("storage " + base::quote(*key) + ": its size does not fit: expected " +
                    std::to_string(count) + (result.dtype ? " elements of " : " bytes") +
                    (result.dtype ? std::string(name(*result.dtype)) : "") + ", found " +
                    std::to_string(stored) + " bytes");
  }
  return result;
}

Leaf Tensors::view(DType dtype, std::size_t storage, std::uint64_t offset, Shape shape,
                   Shape strides) {
  const std::uint64_t item_bytes = itemsize(dtype);
  const std::uint64_t available = storages_->size_bytes(storage) / item_bytes;
  if (strides.size() != shape.size()) {
    pickle_.corrupt("strides do not fit: expected " + std::to_string(shape.size()) + ", found " +
                    base::list_text(strides));
  }
  std::uint64_t size_bytes = 0;
  try {
    size_bytes = nbytes_of(dtype, shape);
  } catch (const Error&) {
    pickle_.corrupt("shape: too large: expected a size of at most 63 bits, found " +
                    base::list_text(shape));
  }
  if (size_bytes == 0) {
    storages_->ranges.push_back({storage, 0, 0});
    return {dtype, std::move(shape), storages_, storages_->ranges.size() - 1};
  }
  auto end = base::checked_add(offset, 1);
  for (std::size_t i = 0; i < shape.size() && end; ++i) {
    const auto reach = base::checked_mul(static_cast<std::uint64_t>(shape[i] - 1),
                                         static_cast<std::uint64_t>(strides[i]));
    end = reach ? base::checked_add(*end, *reach) : std::nullopt;
  }
  if (!end || *end > available) {
    pickle_.corrupt("it reaches beyond its storage: expected at most " + std::to_string(available) +
                    " elements, found shape " + base::list_text(shape) + " of strides " +
                    base::list_text(strides) + " from " + std::to_string(offset) + " on");
  }
  const bool is_whole = offset == 0 && *end == available;
  if (!is_contiguous(shape, strides)) {
    Leaf leaf = Tensor(dtype, std::move(shape), std::move(strides), storages_->bytes(storage),
                       offset * item_bytes);
    leaf.mark_in_storage(!is_whole);
    return leaf;
  }
  storages_->ranges.push_back({storage, offset * item_bytes, size_bytes});
  Leaf leaf(dtype, std::move(shape), storages_, storages_->ranges.size() - 1);
  leaf.mark_in_storage(!is_whole);
  return leaf;
}

}  // namespace tenfold::detail::formats::torch_file

#include "array_in.hpp"

#include <memory>
#include <span>
#include <utility>

#include "core/tensor/strided_copy.hpp"
#include "dlpack.hpp"
#include "mapped_file.hpp"
#include "torch_api.hpp"

namespace tenfold::python {
namespace {

Buffer buffer_over(std::span<std::byte> bytes, std::shared_ptr<const void> owner, bool writable) {
  return writable ? Buffer(bytes, std::move(owner)) : Buffer::read_only(bytes, std::move(owner));
}

template <class ManagedArray>
struct CallDeleter {
  void operator()(ManagedArray* managed) const {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};

template <class ManagedArray>
std::optional<Tensor> tensor_of_managed(std::shared_ptr<ManagedArray> managed, bool writable) {
  const dlpack::Array& array = managed->array;
  const std::optional<DType> dtype = dtype_of_dlpack(array.dtype);
  if (!dtype || array.device.type != dlpack::kCpu) return std::nullopt;
  Shape shape(array.shape, array.shape + array.ndim);
  Shape strides = array.strides == nullptr ? contiguous_strides(shape)
                                           : Shape(array.strides, array.strides + array.ndim);
  for (const std::int64_t stride : strides) {
    if (stride < 0) return std::nullopt;
  }
  const std::size_t size_bytes = spanned_bytes(*dtype, shape, strides);
  // A tensor whose storage was freed or never allocated has a shape but no bytes.
  if (size_bytes > 0 && array.data == nullptr) return std::nullopt;
  auto* first = static_cast<std::byte*>(array.data);
  if (first != nullptr) first += array.byte_offset;
  Buffer buffer = buffer_over({first, size_bytes}, std::move(managed), writable);
  return Tensor(*dtype, std::move(shape), std::move(strides), std::move(buffer), 0);
}

/// An interned str that is never released.
PyObject* interned(const char* text) {
  PyObject* made = PyUnicode_InternFromString(text);
  if (made == nullptr) throw nb::python_error();
  return made;
}

bool is_instance(nb::handle object, PyTypeObject* type) {
  const int answer = PyObject_IsInstance(object.ptr(), reinterpret_cast<PyObject*>(type));
  if (answer < 0) throw nb::python_error();
  return answer != 0;
}

bool is_method_true(nb::handle object, const char* method) {
  return nb::cast<bool>(object.attr(method)());
}

/// Whether a torch tensor is a lazy conjugate or negative view. Such a view has the bytes of its
/// base, and a flag that DLPack does not transfer.
bool is_lazy_view(nb::handle object, const dlpack::Array& array) {
  constexpr std::uint8_t kComplex = 5;
  const bool is_complex = array.dtype.code == kComplex;
  return (is_complex && is_method_true(object, "is_conj")) || is_method_true(object, "is_neg");
}

/// True if the elements of a torch tensor have less than 8 bits. DLPack describes a tensor of
/// torch.uint4, for example, as one of uint8.
bool is_sub_byte(nb::handle object, const dlpack::Array& array, const Torch& torch_api) {
  static PyObject* const name = interned("dtype");
  constexpr std::uint8_t kInt = 0;
  constexpr std::uint8_t kUint = 1;
  const dlpack::DataType type = array.dtype;
  if (type.bits != 8 || (type.code != kInt && type.code != kUint)) return false;
  const nb::object dtype = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!dtype.is_valid()) throw nb::python_error();
  return dtype.ptr() != (type.code == kInt ? torch_api.int8 : torch_api.uint8);
}

}  // namespace

std::optional<Tensor> tensor_of_torch(nb::handle object) {
  const Torch* torch_api = torch_if_imported();
  if (torch_api == nullptr || torch_api->api == nullptr) return std::nullopt;
  PyTypeObject* type = Py_TYPE(object.ptr());
  const bool is_mapped = type == torch_api->mapped_type;
  if (!is_mapped && type != torch_api->tensor_type && type != torch_api->parameter_type) {
    return std::nullopt;
  }
  dlpack::ManagedVersioned* exported = nullptr;
  if (torch_api->api->from_object(object.ptr(), &exported) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  std::shared_ptr<dlpack::ManagedVersioned> managed(exported,
                                                    CallDeleter<dlpack::ManagedVersioned>{});
  if (is_lazy_view(object, managed->array)) return std::nullopt;
  if (is_sub_byte(object, managed->array, *torch_api)) return std::nullopt;
  std::optional<Tensor> tensor = tensor_of_managed(std::move(managed), true);
  if (is_mapped && tensor) check_not_truncated(object, *tensor);
  return tensor;
}

bool exceeds_storage(nb::handle object, const Tensor& tensor) {
  static PyObject* const storage_name = interned("untyped_storage");
  static PyObject* const size_name = interned("nbytes");
  static PyObject* const offset_name = interned("storage_offset");
  if (tensor.numel() == 0) return false;
  const auto call = [](nb::handle of, PyObject* name) {
    nb::object result = nb::steal(PyObject_CallMethodNoArgs(of.ptr(), name));
    if (!result.is_valid()) throw nb::python_error();
    return result;
  };
  const auto size_bytes = nb::cast<std::uint64_t>(call(call(object, storage_name), size_name));
  const auto offset = nb::cast<std::uint64_t>(call(object, offset_name));
  return offset * tensor.itemsize() + spanned_bytes(tensor) > size_bytes;
}

bool is_torch_tensor(nb::handle object) {
  const Torch* torch_api = torch_if_imported();
  return torch_api != nullptr && is_instance(object, torch_api->tensor_type);
}

Grad grad_of_torch(nb::handle object) {
  static PyObject* const name = interned("requires_grad");
  const nb::object answer = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!answer.is_valid()) throw nb::python_error();
  const bool is_required = answer.is(Py_True);
  const Torch& torch_api = *torch();
  const PyTypeObject* type = Py_TYPE(object.ptr());
  const bool is_plain = type == torch_api.tensor_type || type == torch_api.mapped_type;
  if (!is_plain && is_instance(object, torch_api.parameter_type)) {
    return is_required ? Grad::parameter : Grad::frozen_parameter;
  }
  return is_required ? Grad::required : Grad::none;
}

std::optional<Tensor> tensor_of_capsule(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    auto* exported = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (exported->version.major != dlpack::kMajorVersion) return std::nullopt;
    if (PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned") != 0) throw nb::python_error();
    const bool writable = (exported->flags & dlpack::kReadOnly) == 0;
    return tensor_of_managed(std::shared_ptr<dlpack::ManagedVersioned>(
                                 exported, CallDeleter<dlpack::ManagedVersioned>{}),
                             writable);
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0) return std::nullopt;
  auto* exported = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (PyCapsule_SetName(capsule.ptr(), "used_dltensor") != 0) throw nb::python_error();
  return tensor_of_managed(
      std::shared_ptr<dlpack::Managed>(exported, CallDeleter<dlpack::Managed>{}), true);
}

Tensor tensor_of_memory(std::uintptr_t address, DType dtype, Shape shape, Shape strides,
                        bool writable, nb::object owner) {
  auto* first = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  const std::size_t size_bytes = spanned_bytes(dtype, shape, strides);
  Buffer buffer = buffer_over({first, size_bytes}, keep_alive(std::move(owner)), writable);
  return {dtype, std::move(shape), std::move(strides), std::move(buffer), 0};
}

}  // namespace tenfold::python

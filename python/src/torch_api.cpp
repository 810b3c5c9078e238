#include "torch_api.hpp"

#include <array>
#include <utility>

namespace tenfold::python {
namespace {

using dlpack::DataType;

enum Code : std::uint8_t {
  kInt = 0,
  kUint = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E4m3fnuz = 11,
  kFloat8E5m2 = 12,
  kFloat8E5m2fnuz = 13,
  kFloat8E8m0fnu = 14,
  kFloat4E2m1fn = 17,
};

const dlpack::ExchangeApi* exchange_api_of(nb::handle tensor_type) {
  nb::object capsule = nb::getattr(tensor_type, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none()) return nullptr;
  auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  while (api != nullptr && api->version.major != dlpack::kMajorVersion) api = api->previous;
  return api;
}

Torch look_up(nb::handle module) {
  Torch found;
  nb::object tensor_type = module.attr("Tensor");
  found.api = exchange_api_of(tensor_type);
  // These references are never released, because torch cannot be unloaded.
  found.tensor_type = reinterpret_cast<PyTypeObject*>(tensor_type.release().ptr());
  nb::object parameter_type = module.attr("nn").attr("Parameter");
  found.parameter_type = reinterpret_cast<PyTypeObject*>(parameter_type.release().ptr());
  found.from_dlpack = nb::object(module.attr("from_dlpack")).release().ptr();
  found.uint8 = nb::object(module.attr("uint8")).release().ptr();
  found.int8 = nb::object(module.attr("int8")).release().ptr();
  return found;
}

/// The only Torch of the process; empty until torch() has imported torch. Guarded by the GIL.
std::optional<Torch>& record() {
  static std::optional<Torch> torch_record;
  return torch_record;
}

thread_local Framework scope_of_thread = Framework::undecided;
Framework default_of_process = Framework::undecided;  // guarded by the GIL

}  // namespace

Framework set_framework_scope(Framework framework) noexcept {
  return std::exchange(scope_of_thread, framework);
}

Framework framework_scope() noexcept { return scope_of_thread; }

void set_default_framework(Framework framework) noexcept { default_of_process = framework; }

const Torch* output_torch() { return output_torch(scope_of_thread); }

const Torch* output_torch(Framework decided) {
  if (decided == Framework::undecided) decided = default_of_process;
  if (decided == Framework::numpy) return nullptr;
  if (decided == Framework::torch || record()) {
    const Torch* found = torch();
    if (found != nullptr) return found;
    throw nb::import_error("framework: expected the package torch, which cannot be imported");
  }
  // The framework is undecided and torch is not in use yet. Python decides, and imports torch only
  // if it decides for torch.
  const nb::object module = nb::module_::import_("tenfold._interop.arrays").attr("torch_or_none")();
  return module.is_none() ? nullptr : torch();
}

void bind_framework(nb::module_& module) {
  module.def(
      "set_framework_scope",
      [](int framework) {
        return static_cast<int>(set_framework_scope(static_cast<Framework>(framework)));
      },
      nb::arg("framework"));
  module.def("framework_scope", [] { return static_cast<int>(framework_scope()); });
  module.def(
      "set_default_framework",
      [](int framework) { set_default_framework(static_cast<Framework>(framework)); },
      nb::arg("framework"));
}

const Torch* torch() {
  if (record()) return &*record();
  const nb::object module = nb::module_::import_("tenfold._interop.arrays").attr("import_torch")();
  if (module.is_none()) return nullptr;
  const Torch found = look_up(module);
  // Another thread may have set record() while the Python code above released the GIL. Keep that
  // Torch, because its mapped_type may already be set.
  if (!record()) record() = found;
  return &*record();
}

const Torch* torch_if_imported() {
  if (record()) return &*record();
  const nb::dict modules = nb::borrow<nb::dict>(PySys_GetObject("modules"));
  return modules.contains("torch") ? torch() : nullptr;
}

void set_mapped_type(nb::object type) {
  static_cast<void>(torch());
  record()->mapped_type = reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

DataType dlpack_dtype(DType dtype) noexcept {
  static constexpr std::array<DataType, kNumDTypes> kTypes = {{
      {kBool, 8, 1},            // bool
      {kUint, 8, 1},            // uint8
      {kUint, 16, 1},           // uint16
      {kUint, 32, 1},           // uint32
      {kUint, 64, 1},           // uint64
      {kInt, 8, 1},             // int8
      {kInt, 16, 1},            // int16
      {kInt, 32, 1},            // int32
      {kInt, 64, 1},            // int64
      {kFloat, 16, 1},          // float16
      {kBfloat, 16, 1},         // bfloat16
      {kFloat, 32, 1},          // float32
      {kFloat, 64, 1},          // float64
      {kComplex, 32, 1},        // complex32
      {kComplex, 64, 1},        // complex64
      {kComplex, 128, 1},       // complex128
      {kFloat8E4m3fn, 8, 1},    // float8_e4m3fn
      {kFloat8E4m3fnuz, 8, 1},  // float8_e4m3fnuz
      {kFloat8E5m2, 8, 1},      // float8_e5m2
      {kFloat8E5m2fnuz, 8, 1},  // float8_e5m2fnuz
      {kFloat8E8m0fnu, 8, 1},   // float8_e8m0fnu
      {kFloat4E2m1fn, 4, 2},    // float4_e2m1fn_x2
  }};
  return kTypes[static_cast<std::size_t>(dtype)];
}

DataType dlpack_dtype_of_any_torch(DataType dtype) noexcept {
  const bool is_known = dtype.code == kInt || dtype.code == kFloat || dtype.code == kBfloat ||
                        dtype.code == kComplex || (dtype.code == kUint && dtype.bits == 8);
  if (is_known) return dtype;
  const auto bits = static_cast<std::uint8_t>(dtype.bits * dtype.lanes);
  return {bits == 8 ? kUint : kInt, bits, 1};
}

std::optional<DType> dtype_of_dlpack(DataType dtype) noexcept {
  for (const DType candidate : all_dtypes()) {
    if (dlpack_dtype(candidate) == dtype) return candidate;
  }
  return std::nullopt;
}

}  // namespace tenfold::python

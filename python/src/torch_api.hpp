#pragma once

#include <cstdint>
#include <optional>

#include "common.hpp"
#include "dlpack.hpp"

namespace tenfold::python {

/// The objects of torch that this module uses. Never released.
struct Torch {
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* parameter_type = nullptr;
  /// The class MemoryMappedTensor; null before its module is imported.
  PyTypeObject* mapped_type = nullptr;
  PyObject* from_dlpack = nullptr;
  PyObject* uint8 = nullptr;  ///< the dtype
  PyObject* int8 = nullptr;   ///< the dtype
  /// Null if this torch has no DLPack exchange API of the supported major version.
  const dlpack::ExchangeApi* api = nullptr;
};

/// Imports torch; null if it cannot be imported.
const Torch* torch();

/// The framework of returned arrays: torch, numpy, or undecided, to be chosen in Python.
enum class Framework : std::uint8_t { undecided = 0, torch = 1, numpy = 2 };

/// Sets the framework of this thread, and returns the previous one. If undecided, the thread uses
/// the framework of the process. A handle with its own framework sets it during each of its calls.
Framework set_framework_scope(Framework framework) noexcept;
Framework framework_scope() noexcept;
/// Sets the framework of the process, for set_framework() and TENFOLD_FRAMEWORK. Undecided if
/// neither was used.
void set_default_framework(Framework framework) noexcept;

/// Sets the framework of this thread during the lifetime of this object. Undecided: no change.
class FrameworkScope {
 public:
  explicit FrameworkScope(Framework framework) noexcept
      : before_(framework == Framework::undecided ? framework_scope()
                                                  : set_framework_scope(framework)) {}
  FrameworkScope(const FrameworkScope&) = delete;
  FrameworkScope& operator=(const FrameworkScope&) = delete;
  ~FrameworkScope() { set_framework_scope(before_); }

 private:
  Framework before_;
};

/// The objects of torch if arrays are returned as torch tensors; imports torch if necessary. Null
/// if arrays are returned as numpy arrays. Raises ImportError if torch is wanted and cannot be
/// imported.
const Torch* output_torch();
/// output_torch() for an object whose own framework is `decided`. If it is undecided, the framework
/// of the process is used.
const Torch* output_torch(Framework decided);

void bind_framework(nb::module_& module);

/// The objects of torch if the program has imported torch, else null. Before torch is imported, no
/// argument can be a torch tensor.
const Torch* torch_if_imported();

/// Sets the class of tensors over mapped files.
void set_mapped_type(nb::object type);

dlpack::DataType dlpack_dtype(DType dtype) noexcept;
/// Returns `dtype` if torch 2.1 accepts it in a capsule, else the integer type of the same size.
dlpack::DataType dlpack_dtype_of_any_torch(dlpack::DataType dtype) noexcept;
std::optional<DType> dtype_of_dlpack(dlpack::DataType dtype) noexcept;

}  // namespace tenfold::python

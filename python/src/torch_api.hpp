#pragma once

#include <cstdint>
#include <optional>

#include "common.hpp"
#include "dlpack.hpp"

namespace tenfold::python {

/// What this module uses of torch. Objects live until the process ends.
struct Torch {
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* parameter_type = nullptr;
  /// MemoryMappedTensor, once that module is imported.
  PyTypeObject* mapped_type = nullptr;
  PyObject* from_dlpack = nullptr;
  /// Null where this torch has none (before DLPack's exchange API) or one of another major version.
  const dlpack::ExchangeApi* api = nullptr;
};

/// Imports torch; null if it cannot be imported.
const Torch* torch();

/// Whose arrays are handed out: torch's, numpy's, or as Python's decision is.
enum class Framework : std::uint8_t { undecided = 0, torch = 1, numpy = 2 };

/// The framework of what this thread does now; undecided: that of the process. Returns the one
/// before. A handle that has decided sets it around each of its calls.
Framework set_framework_scope(Framework framework) noexcept;
Framework framework_scope() noexcept;
/// Of the process: set_framework() or TENFOLD_FRAMEWORK; undecided if neither was used.
void set_default_framework(Framework framework) noexcept;

/// Sets the framework of this thread for a block, unless it is undecided.
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

/// torch if arrays are to be torch's, imported now if need be; null for numpy's.
const Torch* output_torch();
/// The same for a holder of a decision of its own.
const Torch* output_torch(Framework decided);

void bind_framework(nb::module_& module);

/// torch if the program has imported it already, else null: an object that someone hands over can
/// be a tensor only then.
const Torch* torch_if_imported();

/// Tells which class stands for tensors over mapped files.
void set_mapped_type(nb::object type);

dlpack::DataType dlpack_dtype(DType dtype) noexcept;
/// The same if torch 2.1 reads it from a capsule, else the integer of its size.
dlpack::DataType dlpack_dtype_of_any_torch(dlpack::DataType dtype) noexcept;
std::optional<DType> dtype_of_dlpack(dlpack::DataType dtype) noexcept;

}  // namespace tenfold::python

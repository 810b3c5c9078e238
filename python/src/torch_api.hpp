#pragma once

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

#pragma once

#include <optional>
#include <vector>

#include <tenfold/sharded_writer.hpp>

#include "common.hpp"

namespace tenfold::python {

/// The memory of a dense torch tensor on the CPU, shared without a copy. nullopt if torch is not
/// imported or has no DLPack exchange API, or if the class of `object` is not exactly Tensor,
/// Parameter or MemoryMappedTensor. Also nullopt if the tensor cannot be shared, for example
/// because of its device, layout or dtype, or because it is a lazy conjugate or negative view. If
/// this function returns nullopt, tenfold._interop.objects converts the object or reports the
/// reason. Throws Error(corrupt) if the file of a MemoryMappedTensor was truncated.
std::optional<Tensor> tensor_of_torch(nb::handle object);
/// True if a torch tensor extends beyond the end of its storage, because resize_() made the storage
/// smaller. `tensor`: the result of tensor_of_torch(object). Slow for many small tensors:
/// untyped_storage() creates a Python object for each storage, and torch keeps that object.
bool exceeds_storage(nb::handle object, const Tensor& tensor);
/// True for a torch tensor of any class, device and layout.
bool is_torch_tensor(nb::handle object);
/// The autograd properties of a torch tensor.
Grad grad_of_torch(nb::handle object);

/// The memory of a DLPack capsule. Consumes the capsule if its version is supported. Empty if the
/// version, the device or the dtype is not supported, if a stride is negative, or if the capsule
/// has elements but no memory.
std::optional<Tensor> tensor_of_capsule(nb::handle capsule);

/// A tensor over the memory at `address`, which `owner` keeps alive. No stride may be negative.
Tensor tensor_of_memory(std::uintptr_t address, DType dtype, Shape shape, Shape strides,
                        bool writable, nb::object owner);

/// Converts a list of tuples (index of the tensor, offsets, sizes, rank).
std::vector<ShardBox> shard_boxes_from(nb::list boxes);

}  // namespace tenfold::python

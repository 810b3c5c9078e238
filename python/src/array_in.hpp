#pragma once

#include <optional>
#include <vector>

#include <tenfold/sharded_writer.hpp>

#include "common.hpp"

namespace tenfold::python {

/// The memory of a dense torch tensor in main memory, shared, not copied. Nothing if `object` is
/// not of exactly torch's Tensor or Parameter, or cannot be taken as it is (another device or
/// layout, a lazy conjugate or negative): tenfold._interop.objects then finds a way or the reason.
std::optional<Tensor> tensor_of_torch(nb::handle object);
/// What autograd makes of an object that tensor_of_torch() took.
Grad grad_of_torch(nb::handle object);

/// The memory behind a DLPack capsule, which is consumed. Nothing if its device or dtype is not
/// one of ours.
std::optional<Tensor> tensor_of_capsule(nb::handle capsule);

/// Memory at `address` that `owner` keeps alive.
Tensor tensor_of_memory(std::uintptr_t address, DType dtype, Shape shape, Shape strides,
                        bool writable, nb::object owner);

/// A list of (number of the tensor, offsets, sizes, rank).
std::vector<ShardBox> shard_boxes_from(nb::list boxes);

}  // namespace tenfold::python

#pragma once

#include <string_view>

namespace tenfold {

// Checks of the names of torch's constants, such as "torch.float32" in a pickle. A tree stores such
// a constant as an extended scalar, even a dtype that a tenfold Tensor cannot have. The first two
// functions take the name without the prefix "torch.".

/// True for "float32", ..., and for the torch dtypes that have no DType: "bits8", "int4", ...
bool is_torch_dtype(std::string_view name) noexcept;
/// True for "per_tensor_affine", ...
bool is_torch_qscheme(std::string_view name) noexcept;

// The functions below take str() of a torch object.

/// True for "torch.strided", "torch.sparse_csr", ...
bool is_torch_layout(std::string_view text) noexcept;
/// True if `text` has the syntax of a device, "cpu" or "cuda:1": a type and, optionally, an index
/// of 0 to 127. The type is not checked against a list, because backends can register more types.
bool is_torch_device(std::string_view text) noexcept;

}  // namespace tenfold

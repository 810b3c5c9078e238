#pragma once

#include <string_view>

namespace tenfold {

/// torch's own constants that a pickle names without a call, by their names without "torch.". They
/// are kept as values; tensors of those that are no DType are another matter.

/// "float32", and the dtypes of torch that no tensor here has: "bits8", "int4", "quint8", ...
bool is_torch_dtype(std::string_view name) noexcept;
/// "per_tensor_affine", ...
bool is_torch_qscheme(std::string_view name) noexcept;

// The text of a value of torch, as str() gives it.

/// "torch.strided", "torch.sparse_csr", ...
bool is_torch_layout(std::string_view text) noexcept;
/// The syntax of a device: a type and an index of 0 to 127, "cpu", "cuda:1". Types are not compared
/// with a list, because backends outside of torch register their own.
bool is_torch_device(std::string_view text) noexcept;

}  // namespace tenfold

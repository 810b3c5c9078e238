#pragma once

#include <tenfold/dtype.hpp>

namespace tenfold {

/// The common dtype of `left` and `right`, as `torch.promote_types` returns it. Throws
/// Error(unsupported) for two different dtypes if one is a float8 or float4, or if one is uint16,
/// uint32 or uint64 and the other is not a float. torch has no common dtype for them either, except
/// for float4 with uint16, uint32 or uint64.
DType promoted(DType left, DType right);

/// Like `torch.can_cast`: false for complex to real, float to integer, and any number to bool.
bool keeps_kind(DType from, DType to) noexcept;

}  // namespace tenfold

#pragma once

#include <tenfold/dtype.hpp>

namespace tenfold {

/// The common dtype of both, as `torch.promote_types` returns it. Throws Error(unsupported) for two
/// different dtypes for which torch has none: if one is a float8 or float4, or if one is uint16,
/// uint32 or uint64 and the other is not a float.
DType promoted(DType left, DType right);

}  // namespace tenfold

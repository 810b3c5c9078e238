#pragma once

#include <tenfold/dtype.hpp>

namespace tenfold {

/// The common dtype of both, as `torch.promote_types` returns it. Throws Error(unsupported) where
/// torch has none: float8 and float4, and uint16 to uint64 with other integers.
DType promoted(DType left, DType right);

}  // namespace tenfold

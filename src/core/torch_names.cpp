#include "core/torch_names.hpp"

#include <algorithm>
#include <array>

#include <tenfold/dtype.hpp>

namespace tenfold {
namespace {

/// Those of torch 2.13 without a DType.
constexpr auto kOtherDTypes = std::to_array<std::string_view>({
    "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8",  "int1",  "int2",     "int3",
    "int4",   "int5",    "int6",    "int7",    "qint32", "qint8", "quint2x4", "quint4x2",
    "quint8", "uint1",   "uint2",   "uint3",   "uint4",  "uint5", "uint6",    "uint7",
});

constexpr auto kQSchemes = std::to_array<std::string_view>({
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
});

}  // namespace

bool is_torch_dtype(std::string_view name) noexcept {
  return dtype_from_name(name) || std::ranges::binary_search(kOtherDTypes, name);
}

bool is_torch_qscheme(std::string_view name) noexcept {
  return std::ranges::binary_search(kQSchemes, name);
}

}  // namespace tenfold

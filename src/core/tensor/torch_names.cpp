#include "core/tensor/torch_names.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <tenfold/dtype.hpp>

namespace tenfold {
namespace {

/// The dtypes of torch 2.13 that have no DType.
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

constexpr auto kLayouts = std::to_array<std::string_view>({
    "torch._mkldnn",
    "torch.jagged",
    "torch.sparse_bsc",
    "torch.sparse_bsr",
    "torch.sparse_coo",
    "torch.sparse_csc",
    "torch.sparse_csr",
    "torch.strided",
});

}  // namespace

bool is_torch_dtype(std::string_view name) noexcept {
  return dtype_from_name(name) || std::ranges::binary_search(kOtherDTypes, name);
}

bool is_torch_qscheme(std::string_view name) noexcept {
  return std::ranges::binary_search(kQSchemes, name);
}

bool is_torch_layout(std::string_view text) noexcept {
  return std::ranges::binary_search(kLayouts, text);
}

bool is_torch_device(std::string_view text) noexcept {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view type = text.substr(0, colon);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (type.empty() || !is_letter(type.front()) ||
      !std::ranges::all_of(type, [&](char c) { return is_letter(c) || is_digit(c); })) {
    return false;
  }
  if (colon == text.size()) return true;
  const std::string_view index = text.substr(colon + 1);
  constexpr std::size_t kMaxDigits = 3;
  constexpr int kLastIndex = 127;  // torch stores device indices in 8 bits
  if (index.empty() || index.size() > kMaxDigits || !std::ranges::all_of(index, is_digit) ||
      (index.size() > 1 && index.front() == '0')) {
    return false;
  }
  int number = 0;
  for (const char digit : index) number = 10 * number + (digit - '0');
  return number <= kLastIndex;
}

}  // namespace tenfold

#include <array>

#include "base/checked.hpp"
#include "codecs/json/json.hpp"
#include "formats/safetensors/header.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

struct DTypeName {
  std::string_view name;
  DType dtype;
};

// In the reverse order of the enum Dtype of the Rust library, without the types that torch lacks.
// The library sorts the tensors of a file by this reverse order; see order_of_dtype().
constexpr std::array kDTypeNames = {
    DTypeName{"U64", DType::uint64},
    DTypeName{"I64", DType::int64},
    DTypeName{"F64", DType::float64},
    DTypeName{"C64", DType::complex64},
    DTypeName{"F32", DType::float32},
    DTypeName{"U32", DType::uint32},
    DTypeName{"I32", DType::int32},
    DTypeName{"BF16", DType::bfloat16},
    DTypeName{"F16", DType::float16},
    DTypeName{"U16", DType::uint16},
    DTypeName{"I16", DType::int16},
    DTypeName{"F8_E5M2FNUZ", DType::float8_e5m2fnuz},
    DTypeName{"F8_E4M3FNUZ", DType::float8_e4m3fnuz},
    DTypeName{"F8_E8M0", DType::float8_e8m0fnu},
    DTypeName{"F8_E4M3", DType::float8_e4m3fn},
    DTypeName{"F8_E5M2", DType::float8_e5m2},
    DTypeName{"I8", DType::int8},
    DTypeName{"U8", DType::uint8},
    DTypeName{"F4", DType::float4_e2m1fn_x2},
    DTypeName{"BOOL", DType::bool_},
};

constexpr std::uint64_t kHeaderLengthBytes = 8;
constexpr std::uint64_t kDataAlignmentBytes = 64;

}  // namespace

std::optional<DType> dtype_of_name(std::string_view name) noexcept {
  for (const DTypeName& row : kDTypeNames) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<std::string_view> name_of_dtype(DType dtype) noexcept {
  for (const DTypeName& row : kDTypeNames) {
    if (row.dtype == dtype) return row.name;
  }
  return std::nullopt;
}

int order_of_dtype(DType dtype) noexcept {
  for (std::size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i].dtype == dtype) return static_cast<int>(i);
  }
  return static_cast<int>(kDTypeNames.size());
}

std::string write_header(std::span<const TensorEntry> tensors,
                         const std::map<std::string, std::string, std::less<>>& metadata) {
  codecs::JsonWriter json(codecs::JsonStyle::utf8_compact);
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__");
    json.begin_object();
    for (const auto& [key, value] : metadata) json.member(key, value);
    json.end_object();
  }
  std::uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    json.key(tensor.name);
    json.begin_object();
    json.member("dtype", *name_of_dtype(tensor.dtype));
    std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    if (tensor.dtype == DType::float4_e2m1fn_x2 && !shape.empty()) shape.back() *= 2;
    json.member("shape", shape);
    json.member("data_offsets", std::array{offset, offset + tensor.size_bytes});
    offset += tensor.size_bytes;
    json.end_object();
  }
  json.end_object();
  std::string text = json.take();
  const std::uint64_t padded =
      base::align_up(kHeaderLengthBytes + text.size(), kDataAlignmentBytes) - kHeaderLengthBytes;
  text.resize(padded, ' ');
  std::string bytes(kHeaderLengthBytes, '\0');
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i) {
    bytes[i] = static_cast<char>((padded >> (8 * i)) & 0xFF);
  }
  return bytes + text;
}

}  // namespace tenfold::detail::formats::safetensors

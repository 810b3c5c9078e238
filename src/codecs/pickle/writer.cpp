#include "codecs/pickle/writer.hpp"

#include <bit>
#include <limits>
#include <optional>
#include <utility>

namespace tenfold::codecs {
namespace {

constexpr std::size_t kMaxLongBytes = 255;

/// Encodes a decimal integer as the shortest little-endian two's complement. Returns nullopt if the
/// result exceeds the maximum size of LONG1.
std::optional<std::string> long_bytes(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  std::string bytes;
  for (const char digit : digits) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (char& byte : bytes) {
      carry += static_cast<unsigned char>(byte) * 10U;
      byte = static_cast<char>(carry & 0xffU);
      carry >>= 8U;
    }
    if (carry != 0) bytes += static_cast<char>(carry);
    if (bytes.size() > kMaxLongBytes) return std::nullopt;
  }
  bytes += '\0';  // room for the sign bit
  if (negative) {
    bool carry = true;
    for (char& byte : bytes) {
      byte = static_cast<char>(~static_cast<unsigned char>(byte) + (carry ? 1 : 0));
      carry = carry && byte == 0;
    }
  }
  const auto sign_of = [](char byte) { return (static_cast<unsigned char>(byte) & 0x80U) != 0; };
  while (bytes.size() > 1 && bytes.back() == (sign_of(bytes[bytes.size() - 2]) ? '\xff' : '\0')) {
    bytes.pop_back();
  }
  if (bytes.size() > kMaxLongBytes) return std::nullopt;
  return bytes;
}

}  // namespace

PickleWriter::PickleWriter() { put("\x80\x02", 2); }

void PickleWriter::put_little(std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xffU);
}

void PickleWriter::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value <= 0xff) {
    put('K');
    put_little(bits, 1);
  } else if (value >= 0 && value <= 0xffff) {
    put('M');
    put_little(bits, 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() &&
             value <= std::numeric_limits<std::int32_t>::max()) {
    put('J');
    put_little(bits, 4);
  } else {
    put("\x8a\x08", 2);
    put_little(bits, 8);
  }
}

bool PickleWriter::big_integer(std::string_view digits) {
  const std::optional<std::string> bytes = long_bytes(digits);
  if (!bytes) return false;
  put('\x8a');
  put_little(bytes->size(), 1);
  bytes_ += *bytes;
  return true;
}

void PickleWriter::number(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  put('G');
  for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xffU);
}

void PickleWriter::text(std::string_view value) {
  put('X');
  put_little(value.size(), 4);
  bytes_ += value;
}

void PickleWriter::known_text(std::string_view value) {
  const auto [found, is_new] = known_.try_emplace("X" + std::string(value), remembered_);
  if (!is_new) return push(found->second);
  text(value);
  remember();
}

void PickleWriter::begin_ordered_dict() {
  global("collections", "OrderedDict");
  put(")R(", 3);
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  std::string line = "c" + std::string(module) + "\n" + std::string(name) + "\n";
  const auto [found, is_new] = known_.try_emplace(std::move(line), remembered_);
  if (!is_new) return push(found->second);
  bytes_ += found->first;
  remember();
}

std::uint32_t PickleWriter::remember() {
  const bool is_short = remembered_ <= 0xff;
  put(is_short ? 'q' : 'r');
  put_little(remembered_, is_short ? 1 : 4);
  return remembered_++;
}

void PickleWriter::push(std::uint32_t remembered) {
  const bool is_short = remembered <= 0xff;
  put(is_short ? 'h' : 'j');
  put_little(remembered, is_short ? 1 : 4);
}

std::string PickleWriter::take() {
  put('.');
  return std::move(bytes_);
}

}  // namespace tenfold::codecs

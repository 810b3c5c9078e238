#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {
namespace {

// A CRC-32 is the remainder of a polynomial over GF(2) modulo a polynomial of degree 32. The lowest
// bit of a CRC-32 is the coefficient of x^31, the highest power. Appending n zero bytes multiplies
// the CRC-32 by x^(8n), apart from the inversions at the beginning and end, which cancel when two
// CRC-32s are combined.

constexpr std::uint32_t kModulus = 0xedb88320;
constexpr std::uint32_t kOne = 0x80000000;      // x^0
constexpr std::uint32_t kOneByte = 0x00800000;  // x^8

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1U) ^ ((b & 1U) != 0 ? kModulus : 0);  // times x
  }
  return product;
}

/// x^(8 * 2^i): the factor for appending 2^i bytes.
constexpr std::array<std::uint32_t, 64> kPowersOfTwoBytes = [] {
  std::array<std::uint32_t, 64> powers{kOneByte};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = times(powers[i - 1], powers[i - 1]);
  return powers;
}();

}  // namespace

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second,
                            std::uint64_t second_bytes) noexcept {
  if (first == 0) return second;  // zero times x^n is zero
  for (std::uint64_t rest = second_bytes; rest != 0; rest &= rest - 1) {
    first = times(kPowersOfTwoBytes[static_cast<std::size_t>(std::countr_zero(rest))], first);
  }
  return first ^ second;
}

std::uint32_t crc32_of_zeros(std::uint64_t size_bytes) noexcept {
  const std::byte zero{};
  std::uint32_t run = crc32({&zero, 1});  // CRC-32 of `bit` zeros
  std::uint32_t crc = 0;
  for (std::uint64_t bit = 1; bit != 0 && bit <= size_bytes; bit <<= 1U) {
    if ((size_bytes & bit) != 0) crc = crc32_combine(crc, run, bit);
    run = crc32_combine(run, run, bit);
  }
  return crc;
}

}  // namespace tenfold::codecs

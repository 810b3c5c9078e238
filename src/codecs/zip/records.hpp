#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Internal to the codec: the records of a zip archive (PKWARE's APPNOTE 6.3), for the reader
// and the writer.

namespace tenfold::codecs {

inline constexpr std::uint32_t kLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kCentralSignature = 0x02014b50;
inline constexpr std::uint32_t kEndSignature = 0x06054b50;
inline constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
inline constexpr std::uint32_t kZip64LocatorSignature = 0x07064b50;
inline constexpr std::uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr std::size_t kLocalBytes = 30;
inline constexpr std::size_t kCentralBytes = 46;
inline constexpr std::size_t kLocalCrcAt = 14;    // offset of the CRC-32 in a local header
inline constexpr std::size_t kCentralCrcAt = 16;  // and in a central header
inline constexpr std::size_t kCrcBytes = 4;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kZip64EndBytes = 56;
inline constexpr std::size_t kZip64LocatorBytes = 20;
// Stored in a field of 16 or 32 bits if the true value is in a zip64 record or extra field.
inline constexpr std::uint64_t kFull16 = 0xffff;
inline constexpr std::uint64_t kFull32 = 0xffffffff;
inline constexpr std::uint64_t kEncryptedFlags = 0x2041;
inline constexpr std::uint64_t kDescriptorFlag = 0x0008;
inline constexpr std::uint64_t kPatchFlag = 0x0020;
inline constexpr std::uint64_t kUtf8Flag = 0x0800;
inline constexpr std::uint16_t kZip64Extra = 1;

/// Reads a little-endian integer of `size` bytes. The caller must make sure that the bytes exist.
inline std::uint64_t little(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i > 0; --i) {
    value = value << 8U | static_cast<unsigned char>(bytes[at + i - 1]);
  }
  return value;
}

}  // namespace tenfold::codecs

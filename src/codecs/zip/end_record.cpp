#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "codecs/zip/directory.hpp"
#include "codecs/zip/records.hpp"

// The end of a zip archive: the end record and the zip64 end record, which locate the central
// headers.

namespace tenfold::codecs {

ZipEnd ZipDirectoryReader::read_end() const {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(input_.size_bytes, kEndBytes + kFull16);
  const std::uint64_t tail_at = input_.size_bytes - tail_bytes;
  const std::string tail = bytes_at(tail_at, static_cast<std::size_t>(tail_bytes));
  const std::size_t at = tail.size() < kEndBytes
                             ? std::string::npos
                             : tail.rfind("PK\x05\x06", tail.size() - kEndBytes);
  if (at == std::string::npos) {
    throw corrupt()
        .part("end record")
        .problem("is missing")
        .expected("one at the end of the file")
        .found("none")
        .remedy("the file may be truncated");
  }
  const std::string_view record = std::string_view(tail).substr(at);
  const std::uint64_t comment_bytes = little(record, 20, 2);
  if (record.size() - kEndBytes != comment_bytes) {
    throw corrupt()
        .part("end record")
        .problem("does not reach to the end of the file")
        .expected("a comment of ", comment_bytes, " bytes")
        .found(record.size() - kEndBytes);
  }
  ZipEnd end;
  end.comment = record.substr(kEndBytes);
  end.entries = little(record, 10, 2);
  end.directory_bytes = little(record, 12, 4);
  end.directory_offset = little(record, 16, 4);
  end.directory_end = tail_at + at;
  read_zip64_end(end, tail_at + at);
  if (little(record, 4, 2) != 0 || little(record, 6, 2) != 0 ||
      little(record, 8, 2) != little(record, 10, 2)) {
    throw unsupported()
        .part("end record")
        .problem("several disks")
        .expected("a whole archive")
        .found("disk ", little(record, 4, 2), " with ", little(record, 8, 2), " of ",
               little(record, 10, 2), " entries");
  }
  if (end.entries > limits_.max_entries || end.directory_bytes > limits_.max_directory_bytes) {
    throw unsupported()
        .part("directory")
        .problem("too large")
        .expected("at most ", limits_.max_entries, " entries in ", limits_.max_directory_bytes,
                  " bytes")
        .found(end.entries, " in ", end.directory_bytes);
  }
  // Bytes that precede the archive would shift its parts, and make the offsets ambiguous.
  if (!base::range_fits(end.directory_offset, end.directory_bytes, end.directory_end) ||
      end.directory_offset + end.directory_bytes != end.directory_end) {
    throw corrupt()
        .part("directory")
        .problem("does not end where the end record starts")
        .expected(end.directory_bytes, " bytes up to byte ", end.directory_end)
        .found("them at byte ", end.directory_offset);
  }
  return end;
}

void ZipDirectoryReader::read_zip64_end(ZipEnd& end, std::uint64_t record_at) const {
  const std::string locator = record_at < kZip64LocatorBytes
                                  ? std::string()
                                  : bytes_at(record_at - kZip64LocatorBytes, kZip64LocatorBytes);
  // Without a zip64 locator, the greatest values (65,535 entries, 0xffffffff bytes) are the true
  // ones.
  if (locator.empty() || little(locator, 0, 4) != kZip64LocatorSignature) return;
  const std::uint64_t at = little(locator, 8, 8);
  if (little(locator, 4, 4) != 0 || little(locator, 16, 4) > 1) {
    throw unsupported()
        .part("zip64 locator")
        .problem("several disks")
        .expected("disk 0 of 1")
        .found("disk ", little(locator, 4, 4), " of ", little(locator, 16, 4));
  }
  const std::uint64_t limit = record_at - kZip64LocatorBytes;
  if (!base::range_fits(at, kZip64EndBytes, limit)) {
    throw corrupt()
        .part("zip64 locator")
        .problem("points to no zip64 end record")
        .expected(kZip64EndBytes, " bytes before byte ", limit)
        .found("byte ", at);
  }
  const std::string zip64 = bytes_at(at, kZip64EndBytes);
  if (little(zip64, 0, 4) != kZip64EndSignature || little(zip64, 4, 8) != limit - at - 12) {
    throw corrupt()
        .part("zip64 end record")
        .problem("not at byte ", at)
        .expected("its signature and ", limit - at, " bytes")
        .found("other bytes");
  }
  if (little(zip64, 16, 4) != 0 || little(zip64, 20, 4) != 0 ||
      little(zip64, 24, 8) != little(zip64, 32, 8)) {
    throw unsupported()
        .part("zip64 end record")
        .problem("several disks")
        .expected("a whole archive")
        .found("a part of one");
  }
  const auto agree = [&](const char* what, std::uint64_t& value, std::size_t field,
                         std::uint64_t full) {
    const std::uint64_t wide = little(zip64, field, 8);
    if (value != full && value != wide) {
      throw corrupt()
          .part("zip64 end record")
          .problem(what, " is not that of the end record")
          .expected(value)
          .found(wide);
    }
    value = wide;
  };
  agree("the number of entries", end.entries, 32, kFull16);
  agree("the size of the directory", end.directory_bytes, 40, kFull32);
  agree("the offset of the directory", end.directory_offset, 48, kFull32);
  end.directory_end = at;
}

}  // namespace tenfold::codecs

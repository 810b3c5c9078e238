#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/zip/zip.hpp"

// Internal to the codec: the reader of a directory, in three files. end_record.cpp reads the end
// records, zip.cpp the central headers, and local_header.cpp the local headers.

namespace tenfold::codecs {

/// Location of the central headers.
struct ZipEnd {
  std::uint64_t entries = 0;
  std::uint64_t directory_bytes = 0;
  std::uint64_t directory_offset = 0;
  std::uint64_t directory_end = 0;  ///< offset of the first end record
  std::string comment;
};

using ZipNames = decltype(ZipDirectory::names);

/// Reads the directory of one archive, from its end to its beginning.
class ZipDirectoryReader {
 public:
  ZipDirectoryReader(const ZipInput& input, const ZipLimits& limits)
      : input_(input), limits_(limits) {}

  ZipDirectory read_central_headers();
  void read_local_headers(ZipDirectory& directory);
  void read_local_header(ZipEntry& entry, std::uint64_t limit);

 private:
  Error corrupt() const { return base::corrupt(input_.where); }
  Error corrupt(const ZipEntry& entry) const { return base::corrupt(place_of(entry)); }
  Error unsupported() const { return base::unsupported(input_.where); }
  Error unsupported(const ZipEntry& entry) const { return base::unsupported(place_of(entry)); }
  base::Where place_of(const ZipEntry& entry) const {
    return input_.where.at("entry " + base::quote(entry.name));
  }

  std::string bytes_at(std::uint64_t offset, std::size_t size) const {
    std::string bytes(size, '\0');
    if (size > 0) input_.read(offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  ZipEnd read_end() const;
  void read_zip64_end(ZipEnd& end, std::uint64_t record_at) const;
  std::string directory_text(const ZipEnd& end) const;
  template <class Use>
  void for_each_central(std::string_view text, std::uint64_t entries, const Use& use) const;
  std::vector<ZipEntry> read_centrals(const ZipEnd& end) const;
  ZipEntry parse_central(std::string_view header) const;
  void apply_zip64(ZipEntry& entry, std::string_view extra, std::uint64_t disk) const;
  std::optional<std::string_view> zip64_extra(const ZipEntry& entry, std::string_view extra) const;
  void require_safe_name(const ZipEntry& entry) const;
  ZipNames index_names(const std::vector<ZipEntry>& entries) const;
  void refuse_bombs(const std::vector<ZipEntry>& entries) const;
  std::string_view near_headers(std::uint64_t offset, std::size_t size);
  void read_window(std::uint64_t offset, std::size_t size);
  void read_local(ZipEntry& entry);
  void compare_local_sizes(const ZipEntry& entry, std::string_view local) const;
  std::uint64_t descriptor_bytes(const ZipEntry& entry, std::uint64_t next);
  void require_end(const ZipEntry& entry, std::uint64_t next);

  const ZipInput& input_;
  const ZipLimits& limits_;

  // Used to read local headers.
  std::uint64_t limit_ = 0;       ///< offset of the directory, by which all entries must end
  std::vector<ZipEntry*> order_;  ///< by header_offset
  std::size_t next_ = 0;          ///< index in `order_` of the first header beyond the window
  std::uint64_t window_at_ = 0;
  std::string_view window_;  ///< the part of window_memory_ that was read
  std::unique_ptr<char[]> window_memory_;
  std::size_t window_capacity_ = 0;
};

}  // namespace tenfold::codecs

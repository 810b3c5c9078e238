#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/shared/boxes.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

/// The location of one tensor in a save by several processes.
struct TensorPlace {
  std::string key;  ///< dotted and quoted, for messages
  DType dtype = DType::float32;
  Shape shape;
  std::size_t file = 0;
  std::uint64_t offset_bytes = 0;  ///< in the file
};

/// A file that the coordinator has created.
struct StagedFile {
  std::string path;         ///< within the staged folder; empty: it is the staged file itself
  bool is_reserved = true;  ///< its blocks are allocated, so it may be written through a mapping
};

/// The message from the coordinator to a rank.
struct ShardTicket {
  struct Box {
    std::size_t tensor = 0;
    bool is_written = true;  ///< false: another rank writes the same box
    detail::formats::Box box;
  };
  std::string id;  ///< of the save, stored in the marker of the staged files
  std::string boot;
  std::string host;
  std::string staging;  ///< absolute path
  bool is_folder = false;
  bool durable = true;
  bool checksums = true;
  bool are_crc32 = false;    ///< checksums are CRC-32 instead of XXH3
  bool shares_files = true;  ///< with other ranks, which write other parts of them
  int rank = 0;
  std::vector<StagedFile> files;
  std::vector<TensorPlace> tensors;
  std::vector<Box> boxes;

  std::string to_text() const;
  /// Throws Error(invalid_argument) if the text is malformed.
  static ShardTicket parse(std::string_view text);
};

/// The message from a rank to the coordinator.
struct ShardReceipt {
  std::string id;
  int rank = 0;
  std::size_t num_boxes = 0;
  std::vector<std::uint64_t> checksums;  ///< of the parts of its boxes, in order

  std::string to_text() const;
  static std::optional<ShardReceipt> parse(std::string_view text);
};

/// The file in a staged folder that identifies the save. A staged file begins with the same text.
inline constexpr std::string_view kStagingMarker = "%staging";
std::string marker_text(const std::string& id);

/// Returns the boot ID of this host.
std::string boot_text();

}  // namespace tenfold::checkpoint

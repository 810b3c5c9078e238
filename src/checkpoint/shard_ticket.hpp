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

/// The location of one tensor in the files of a save by several processes.
struct TensorPlace {
  std::string key;  ///< dotted and quoted, for messages
  DType dtype = DType::float32;
  Shape shape;
  std::size_t file = 0;            ///< index in the files of the layout or ticket
  std::uint64_t offset_bytes = 0;  ///< offset in that file
};

/// A file that the coordinator, the process that has the ShardedWriter, has created for the ranks.
struct StagedFile {
  /// Path relative to the staged folder. For files that are staged without a folder: the path
  /// relative to the folder that contains them, or empty if only one file is staged.
  std::string path;
  bool is_reserved = true;  ///< disk blocks are allocated, so a mapping may be written safely
};

/// The message from the coordinator to a rank.
struct ShardTicket {
  struct Box {
    std::size_t tensor = 0;
    bool is_written = true;  ///< false: a duplicate of a box that is written
    detail::formats::Box box;
  };
  std::string id;    ///< identifies the save; stored in the marker of the staged files
  std::string boot;  ///< boot ID of the coordinator's host
  std::string host;
  std::string staging;  ///< absolute path of the staged file or folder
  std::string values;   ///< absolute path of the folder for add_values(); empty if there is none
  bool is_folder = false;
  bool durable = true;
  bool checksums = true;
  bool are_crc32 = false;    ///< checksums are CRC-32 instead of XXH3
  bool shares_files = true;  ///< other ranks may write into the same files
  int rank = 0;
  int num_ranks = 1;  ///< number of ranks that write, including this one
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
  std::vector<std::uint64_t> checksums;  ///< one for each part of a box, in the order of the ticket

  std::string to_text() const;
  /// Returns nullopt if the text is malformed.
  static std::optional<ShardReceipt> parse(std::string_view text);
};

/// The file in a staged folder that identifies the save by marker_text(). If files are staged
/// without a folder, each of them begins with marker_text().
inline constexpr std::string_view kStagingMarker = "%staging";
std::string marker_text(const std::string& id);
/// Returns true if the file begins with marker_text(id).
bool has_marker(const os::File& file, const std::string& id);

/// Returns the name of the folder or safetensors file in which `rank` passes a tree of values to
/// the coordinator.
std::string values_name(int rank, bool is_folder);

/// Returns the boot ID of this host.
std::string boot_text();

}  // namespace tenfold::checkpoint

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// The file that makes a folder a step.
inline constexpr std::string_view kDocumentName = "checkpoint.json";
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{64} << 20;
/// Its first member, "format".
inline constexpr std::string_view kFormatName = "tenfold.checkpoint";
/// Of what this version writes; all older ones are read.
inline constexpr std::int64_t kDocumentVersion = 1;

/// True if JSON gives this value back as it is: no tuples, integer keys, bytes, and
/// Unicode text only.
bool is_json(const Value& value);

/// Text of `checkpoint.json`, strict JSON with one member a line. The last member is the checksum
/// of the others.
std::string write_document(const CheckpointInfo& info);

/// Throws Error(corrupt) naming the member, Error(unsupported) for a newer version.
CheckpointInfo parse_document(std::string_view text, const std::string& where);

/// Throws Error(corrupt) if the document has a checksum that does not fit it.
void require_checksum(std::string_view text, const std::string& where);

inline constexpr std::size_t kMaxEntryPathBytes = 255;
/// True for the name of a file or folder within a step.
bool is_entry_path(std::string_view path) noexcept;

/// The folder of a step that holds the entries of single ranks.
inline constexpr std::string_view kRanksName = "ranks";
/// "ranks/3/", within a step's folder.
std::string rank_folder(std::int64_t rank);

}  // namespace tenfold::checkpoint

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// The name of a step's document. A folder without it is not a step.
inline constexpr std::string_view kDocumentName = "checkpoint.json";
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{64} << 20;
/// The value of the document's first member, "format".
inline constexpr std::string_view kFormatName = "tenfold.checkpoint";
/// The version that is written. Newer versions are refused.
inline constexpr std::int64_t kDocumentVersion = 1;

/// Returns true if the value survives a round trip through JSON that allows NaN and infinities. It
/// must have no tuples, extended scalars or OrderedDicts, only str keys, and only strings of valid
/// Unicode.
bool is_json(const Value& value);

/// Returns false if a number in the value is NaN or an infinity, which strict JSON lacks. is_json()
/// must be true for the value.
bool is_finite(const Value& value);

/// Returns the text of `checkpoint.json`, with one member or entry per line. It is strict JSON if
/// is_finite() holds for `extra` and `versions`. The last member is the checksum of the text before
/// it. Throws Error(unsupported) if parse_document() or read_document() would refuse the text: it
/// is larger than kMaxDocumentBytes, or nested too deeply.
std::string write_document(const CheckpointInfo& info);

/// Parses a document, but does not compare its checksum. Throws Error(unsupported) for a newer
/// version. Throws Error(corrupt) for any other invalid document, naming the member if the text is
/// JSON in valid Unicode.
CheckpointInfo parse_document(std::string_view text, const std::string& where);

/// Returns false if the document has a checksum that does not match.
bool has_valid_checksum(std::string_view text);

/// Throws Error(corrupt) unless has_valid_checksum().
void require_checksum(std::string_view text, const std::string& where);

inline constexpr std::size_t kMaxEntryPathBytes = 255;
/// Returns true if `path` may name an entry directly in the folder of a step or of a rank.
bool is_entry_path(std::string_view path) noexcept;

/// The folder, within a step's folder, of the entries that belong to a single rank each.
inline constexpr std::string_view kRanksName = "ranks";
/// "ranks/3/", within a step's folder.
std::string rank_folder(std::int64_t rank);

}  // namespace tenfold::checkpoint

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/ingest.hpp>
#include <tenfold/io.hpp>

#include "ingest/text/byte_stream.hpp"

namespace tenfold {

/// The format of a text file: chosen by the caller, or by the suffix of its name.
enum class SourceKind : std::uint8_t {
  lines,  ///< .jsonl, .ndjson, .jsonlines
  json,   ///< .json: lines, or one array
  csv,    ///< .csv
  tsv,    ///< .tsv, .tab
  unknown,
};

/// The remedy in errors for text that is not UTF-8.
inline constexpr std::string_view kConvertToUtf8 =
    "convert the file to UTF-8, for example with iconv -f LATIN1 -t UTF-8";

/// Unquoted CSV fields that mean null, in addition to the empty field. A null pointer: only the
/// empty field means null.
using NaValues = std::shared_ptr<const std::set<std::string, std::less<>>>;

/// A text source: a file, possibly compressed, or an entry of an archive.
struct SourceFile {
  std::string display;  ///< name of the source in messages
  SourceKind kind = SourceKind::unknown;
  std::function<std::unique_ptr<ByteStream>()> open;
  char separator = '\0';  ///< CSV: '\0' if the caller named none
  NaValues na_values{};   ///< CSV: fields that mean null
};

/// The kind of a file by the suffix of its name, compared case-insensitively. A compression suffix
/// (.gz, .zst, .bz2, .xz) after it is ignored.
SourceKind kind_of_name(const std::string& name);

/// The files that `sources` expand to, in the order of `sources`; the matches of a glob are sorted
/// by path. Does not look into archives. Throws Error(file_not_found) for missing files and for
/// globs without a match.
std::vector<Path> find_files(const std::vector<Path>& sources);

/// The text sources that `sources` expand to, in the order of `sources`; the matches of a glob are
/// sorted by path, the entries of an archive by name. Hidden and compressed entries of an archive
/// are skipped. Unless `format` is by_name, the other entries, and files that are not .zip
/// archives, are read in that format, whatever their names.
///
/// Throws Error(file_not_found) for missing files and for globs without a match; Error(unsupported)
/// for folders, for archives without a text file and, if `format` is by_name, for files whose names
/// have no known suffix; Error(invalid_argument) for empty `sources`, and for a `separator` if no
/// file is CSV or TSV.
std::vector<SourceFile> find_sources(const std::vector<Path>& sources,
                                     SourceFormat format = SourceFormat::by_name,
                                     char separator = '\0');

/// Throws Error(invalid_argument) that names `option` if `files` is not empty and no file is CSV or
/// TSV.
void require_csv(const std::vector<SourceFile>& files, std::string_view option);

/// Total size of all files that `sources` expand to.
std::uint64_t total_bytes_of(const std::vector<Path>& sources);

}  // namespace tenfold

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

/// Unquoted CSV fields that mean null, besides the empty field. A null pointer: no others.
using NaValues = std::shared_ptr<const std::set<std::string, std::less<>>>;

/// A text source: a file, possibly compressed, or an entry of an archive.
struct SourceFile {
  std::string display;  ///< for messages
  SourceKind kind = SourceKind::unknown;
  std::function<std::unique_ptr<ByteStream>()> open;
  char separator = '\0';  ///< CSV: '\0' if the caller named none
  NaValues na_values{};   ///< CSV
};

/// The kind of a file by the suffix of its name, compared case-insensitively. A final suffix of a
/// compression (.gz, .zst, .bz2, .xz) is ignored.
SourceKind kind_of_name(const std::string& name);

/// The files that `sources` expand to, in order, without entering archives; the matches of a glob
/// are sorted by path. Throws Error(file_not_found) for missing files and for globs without a
/// match.
std::vector<Path> find_files(const std::vector<Path>& sources);

/// The text sources that `sources` expand to, in order; the matches of a glob are sorted by path,
/// the entries of an archive by name. Hidden and compressed entries of an archive are skipped. With
/// a `format`, files and other entries may have any name. Throws Error(file_not_found) for missing
/// files and for globs without a match, Error(unsupported) for files of another kind, folders, and
/// archives without a text file, Error(invalid_argument) for a `separator` without a CSV or TSV
/// file.
std::vector<SourceFile> find_sources(const std::vector<Path>& sources,
                                     SourceFormat format = SourceFormat::by_name,
                                     char separator = '\0');

/// Throws Error(invalid_argument), which names `option`, if there are `files` and none is CSV or
/// TSV.
void require_csv(const std::vector<SourceFile>& files, std::string_view option);

/// Total size of all files that `sources` expand to.
std::uint64_t total_bytes_of(const std::vector<Path>& sources);

}  // namespace tenfold

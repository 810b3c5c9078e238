#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <tenfold/ingest.hpp>
#include <tenfold/io.hpp>

#include "ingest/text/byte_stream.hpp"

namespace tenfold {

/// What the text of a file is, by its name.
enum class SourceKind : std::uint8_t {
  lines,  ///< .jsonl, .ndjson
  json,   ///< .json: lines, or one array
  csv,    ///< .csv
  tsv,    ///< .tsv, .tab
  unknown,
};

/// Texts of unquoted CSV fields that are no value; null: none but the empty one.
using NaValues = std::shared_ptr<const std::set<std::string, std::less<>>>;

/// A text that rows are read from: a file, what is compressed in it, or an entry of an archive.
struct SourceFile {
  std::string display;  ///< for messages
  SourceKind kind = SourceKind::unknown;
  std::function<std::unique_ptr<ByteStream>()> open;
  NaValues na_values{};  ///< CSV
};

/// By the suffix; that of a compressed file (.gz, .zst, .bz2, .xz) comes behind the one that
/// counts.
SourceKind kind_of_name(const std::string& name);

/// The files that `sources` name, archives not gone into, in their order; the matches of a glob in
/// the order of their names. Throws Error(file_not_found) for what is not there and for globs
/// without a match.
std::vector<Path> find_files(const std::vector<Path>& sources);

/// The texts that `sources` name, in their order; the matches of a glob, and the entries of an
/// archive, in the order of their names. With a `format`, files and entries may have any name.
/// Throws Error(file_not_found) for what is not there and for globs without a match,
/// Error(unsupported) for files of another kind.
std::vector<SourceFile> find_sources(const std::vector<Path>& sources,
                                     SourceFormat format = SourceFormat::by_name);

/// Bytes of all files that `sources` name.
std::uint64_t total_bytes_of(const std::vector<Path>& sources);

}  // namespace tenfold

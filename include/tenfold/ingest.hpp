#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// Handling of rows that are malformed or do not fit.
enum class OnError : std::uint8_t {
  raise,    ///< throw an Error for the first such row
  skip,     ///< omit such rows, and count them in IngestReport::num_bad_rows
  collect,  ///< as skip, and list the rows in the data set's file `bad_rows.jsonl`
};

/// The format of source files.
enum class SourceFormat : std::uint8_t {
  by_name,     ///< determined by the suffix of each file's name
  json_lines,  ///< one object per line
  json,        ///< one object per line, or one array of objects
  csv,         ///< commas between fields by default: see IngestOptions::separator
  tsv,         ///< tabs between fields by default: see IngestOptions::separator
};

/// Returns the format of that name: "jsonl" or "ndjson", "json", "csv", "tsv"; "" for by_name.
/// Throws Error(invalid_argument) for other names.
TENFOLD_API SourceFormat source_format_from(std::string_view name);

/// Converts the text of an option to a value of IngestOptions::separator. Returns the character if
/// `text` is one ASCII character, a tab for the two characters backslash and t, and '\0' (the
/// separator is not set) for an empty text. Throws Error(invalid_argument) for any other text, and
/// for letters, digits, quotes, '.', '+', '-', NUL and line ends, which cannot separate fields.
TENFOLD_API char separator_from(std::string_view text);

/// A column whose type was widened after its first value, or in which bools became numbers.
struct Promotion {
  std::string column;  ///< its dotted name
  /// The type of its first value: "int64", "a list of int64". "bool" or "a list of bool" if bools,
  /// anywhere in the column, became numbers.
  std::string from;
  std::string to;  ///< the type of all values: "float64", "a list as JSON text"
  /// Compares all members.
  bool operator==(const Promotion&) const = default;
};

/// The result of ingest().
struct IngestReport {
  std::uint64_t num_rows = 0;         ///< number of rows written
  std::uint64_t num_bad_rows = 0;     ///< number of rows omitted
  std::uint64_t num_files = 0;        ///< number of files read
  std::uint64_t num_bytes = 0;        ///< size of the sources as stored, compressed or not
  std::vector<Promotion> promotions;  ///< columns whose type was widened
  std::vector<std::string> ignored;   ///< names in the data that a given schema does not have
};

/// Options of ingest().
struct IngestOptions {
  /// Columns and their types; nullopt: inferred from the whole source.
  std::optional<Schema> schema{};
  /// Only these columns, in this order, by (dotted) names; empty: all.
  std::vector<std::string> columns{};
  /// The format of all files, whatever their names; a final .gz, .zst, .bz2, .xz or .zip is still
  /// unpacked.
  SourceFormat format = SourceFormat::by_name;
  /// CSV and TSV: the character between fields, as returned by separator_from(). '\0' means the
  /// character that a first line such as `sep=;` names. Without such a line, it means a comma, or a
  /// tab in TSV files; ingest() then throws Error(invalid_argument) for a header in which another
  /// separator (comma, semicolon, tab or |) is more frequent outside of quotes. It also throws this
  /// error for a value other than '\0' if there is no CSV or TSV file.
  char separator = '\0';
  /// CSV and TSV: unquoted fields equal to one of these are missing values, like empty ones. If the
  /// list is not empty and there is no CSV or TSV file, ingest() throws Error(invalid_argument).
  std::vector<std::string> na_values{};
  OnError on_error = OnError::raise;  ///< the effect of a bad row
  /// Greatest number of rows in memory per thread; 0: as many rows as take about 4 MiB.
  std::int64_t batch_rows = 0;
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  bool overwrite = true;       ///< false: Error(io) with errno EEXIST if `path` exists
  bool durable = true;         ///< fsync the files before the call returns
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Writes the rows of text files as a data set, which replaces `path` atomically.
///
///     tenfold::ingest({"flights.jsonl"}, "flights");
///     tenfold::Dataset ds("flights");
///
/// `sources` are files of JSON lines (.jsonl, .jsonlines, .ndjson; .json: lines or one array of
/// objects), CSV (.csv) and TSV (.tsv, .tab), each also as .gz, .zst, .bz2, .xz or in a .zip. A
/// source may also be a glob of such files, in which "**" matches folders of any depth. The matches
/// of a glob are read in the order of their paths. All files are streamed in bounded memory. If
/// there are records, but none of them has a key, ingest() throws Error(invalid_argument), as it
/// does for an empty list of sources, and for sources without columns (such as empty files) if
/// `path` exists.
///
/// Without a schema, a column gets the first of bool, int64, uint64, float64 and string that holds
/// all of its values without loss. In a column of numbers, true and false become 1 and 0, which
/// IngestReport::promotions lists. Integers that float64 does not represent exactly, in a column
/// with floats, make the column a column of strings. In CSV, a number with a blank or a plus sign
/// before it, such as ` 2` or `+3`, is a string, so its column becomes a column of strings, too.
///
/// Throws Error(file_not_found) for a missing source, and Error(unsupported) for a file of another
/// format. With OnError::raise, throws Error(corrupt) for malformed rows and
/// Error(invalid_argument) for values that do not fit. Both errors name file, line and row, and the
/// column if the fault is in one value. Throws Error(key_not_found) if `columns` names a column
/// that `schema` lacks or, without a schema, that no row has. Throws Error(invalid_argument) for a
/// selected column of `schema` that no row has, but accepts sources without rows. Throws
/// Error(invalid_argument) for two columns of the same dotted name ({"a.b"} and {"a", "b"}), and
/// for a nullable column "x" if there is also a column "x.valid" that is
/// not one bool per row, because readers get the validity of "x" under the name "x.valid".
TENFOLD_API IngestReport ingest(const std::vector<Path>& sources, const Path& path,
                                const IngestOptions& options = {});
/// Overload for a list in braces: ingest({"a.csv", "b.csv"}, "rows").
inline IngestReport ingest(std::initializer_list<Path> sources, const Path& path,
                           const IngestOptions& options = {}) {
  return ingest(std::vector<Path>(sources), path, options);
}
/// Overload for one source: a file or a glob.
TENFOLD_API IngestReport ingest(const Path& source, const Path& path,
                                const IngestOptions& options = {});

/// Returns the schema that ingest() would infer from the sources. `num_threads`, `format`,
/// `na_values` and `separator` are as in IngestOptions. Throws what ingest() throws.
TENFOLD_API Schema infer_schema(const std::vector<Path>& sources, int num_threads = 0,
                                Monitor* monitor = nullptr,
                                SourceFormat format = SourceFormat::by_name,
                                const std::vector<std::string>& na_values = {},
                                char separator = '\0');

/// True if ingest() supports the suffix of the file name. False for ".zip", although ingest() reads
/// the files in such an archive.
TENFOLD_API bool is_ingestible(const Path& source);

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "ingest/row_fault.hpp"

namespace tenfold {

/// A row of a source, for messages.
struct SourceRow {
  std::string where;     ///< the file of the row, or the source
  std::int64_t row = 0;  ///< index of the row in `where`, from 0
};

/// Description of a row that was omitted.
struct BadRow {
  std::optional<std::uint64_t> line{};  ///< text files: first line of the row, from 1
  std::int64_t row = 0;                 ///< index in its file or source, from 0
  std::string column{};                 ///< the bad column; empty: the whole row is bad
  std::string error{};                  ///< why the row was rejected; for files, with file and line
  std::string text{};                   ///< the row, as returned by shown_text()
};

/// Formats a line of bad_rows.jsonl: `{"line": 7, "row": 6, "column": "x", "error": "...", "text":
/// "..."}`.
std::string to_json_line(const BadRow& bad);

/// The text of a row for BadRow::text: the first MiB, without a character that this limit would
/// cut. If the text is not UTF-8, U+FFFD replaces each non-ASCII byte.
std::string shown_text(std::string_view text);

/// The error that is thrown for a bad row if on_error is `raise`. `place`: the position of the row
/// for the message, such as "row 7", or empty.
Error error_of_row(ErrorCode code, std::string_view where, std::string place, const BadValue& bad);
/// The error for a rejected row of a text file. `line`: the first line of the row, from 1.
Error error_of_row(ErrorCode code, std::string_view file, std::uint64_t line, std::int64_t row,
                   const RowFault& fault);

/// Describes rows of a source in messages and in reports of bad rows.
struct SourceRows {
  std::string where{};  ///< the file, or the origin of the rows
  /// Maps the index of a row in the source to the file of the row and the index of the row in this
  /// file. Empty: messages name `where` and the index in the source.
  std::function<SourceRow(std::int64_t row)> find{};

  Error error_of(const BadValue& bad) const;
  /// Describes the row of a bad value.
  BadRow bad_row_of(const BadValue& bad, std::string_view text) const;

 private:
  SourceRow at(std::int64_t row) const { return find ? find(row) : SourceRow{where, row}; }
};

/// Describes a rejected row of a text file.
BadRow bad_row_of(std::string_view file, std::uint64_t line, std::int64_t row,
                  const RowFault& fault, std::string_view text);

}  // namespace tenfold

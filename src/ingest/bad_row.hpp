#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "ingest/row_fault.hpp"

namespace tenfold {

/// A row that was left out, as it is told of.
struct BadRow {
  std::optional<std::uint64_t> line{};  ///< of a text: where the row begins, from 1
  std::int64_t row = 0;                 ///< of its file or source, from 0
  std::string column{};                 ///< empty: the whole row
  std::string error{};                  ///< the message of the Error that it would have been
  std::string text{};                   ///< the row as it came
};

/// A line of bad_rows.jsonl:
/// `{"line": 7, "row": 6, "column": "x", "error": "...", "text": "..."}`.
std::string to_json_line(const BadRow& bad);

/// Its text: cut, and repaired where it is no UTF-8.
std::string shown_text(std::string_view text);

/// The error, of that code, that the row is for who wants all rows.
Error error_of_row(ErrorCode code, std::string_view file, std::uint64_t line, std::int64_t row,
                   const RowFault& fault);

/// The row of a file that `fault` is about.
BadRow bad_row_of(std::string_view file, std::uint64_t line, std::int64_t row,
                  const RowFault& fault, std::string_view text);

}  // namespace tenfold

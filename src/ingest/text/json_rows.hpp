#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/row_fault.hpp"
#include "ingest/text/json_text.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// Parses JSON records into rows.
class JsonRows {
 public:
  /// Both arguments must outlive this object.
  JsonRows(const RowPlan& plan, RowBuilder& rows);

  /// Adds one record, the text in [begin, end), as a row. JsonText states which bytes must follow
  /// the text. If `lines` is true, a line feed ends the record. If the record is rejected, adds no
  /// row, and fault() returns the reason.
  Outcome add(const char* begin, const char* end, bool lines);
  const RowFault& fault() const noexcept { return fault_; }

  /// Marks in `seen` the targets whose names occurred in a record, and adds names that are not in
  /// the plan to `ignored` until it has 10,000.
  void note_names(std::vector<bool>& seen, std::set<std::string>& ignored);

 private:
  void note_names(const Field& field, const std::string& prefix, std::vector<bool>& seen,
                  std::set<std::string>& ignored) const;
  bool object(const Field& field, std::size_t depth);
  bool member(const Field& field, std::size_t depth);
  std::uint64_t& mark_of_other(const Field& parent, std::string_view key);
  bool other_member(const Field& parent, std::string_view key);
  bool takes_key(const Field& field);
  bool plain_number(TextColumn& column);
  const Field* find(const Field& field, std::size_t& next);
  bool miss(const Field& field);
  bool allows_absence(const Field& field);

  bool value(TextColumn& column);
  bool scalar(TextColumn& column);
  bool list(TextColumn& column);
  bool items(TextColumn& column, std::size_t level, std::byte*& into);
  bool item(TextColumn& column, std::byte* into);
  bool text(TextColumn& column);
  bool text_list(TextColumn& column);
  bool raw(TextColumn& column);

  bool put(TextColumn& column, Fit fit, const char* begin);
  bool wrong_kind(const TextColumn& column);
  bool too_narrow(const TextColumn& column, const std::string& expected, const char* begin);
  bool mismatch(std::string column, std::string message, Outcome outcome = Outcome::mismatch);
  bool unexpected(std::string column, const std::string& expected, const char* begin,
                  Outcome outcome = Outcome::mismatch);
  bool malformed(const char* expected);

  const RowPlan& plan_;
  RowBuilder& rows_;
  JsonText text_{nullptr, nullptr, true};
  std::uint64_t row_ = 0;            ///< the number of the current row; the first row is 1
  std::vector<std::uint64_t> seen_;  ///< by Field::number: the last row that had the field, or 0
  /// Indexed by Field::number of a record: the record's names that are not in the plan, each with
  /// the last row that had it.
  std::vector<TextMap<std::uint64_t>> others_;
  bool has_new_columns_ = false;  ///< there were new names after the last note_names()
  std::string scratch_;
  RowFault fault_;
};

}  // namespace tenfold

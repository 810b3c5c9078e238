#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/row_fault.hpp"
#include "ingest/text/record_blocks.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/row_plan.hpp"
#include "ingest/text/value_types.hpp"

namespace tenfold {

/// What a field of CSV is: nothing (unquoted and empty), a number, a bool or a string.
struct CsvValue {
  ScalarKinds kinds = 0;
  NumberText number;   ///< of integers, and of floats that are no word
  double special = 0;  ///< of nan and inf
  bool is_special = false;
  bool is_true = false;
};
/// `text` is followed by a character of no number.
CsvValue csv_value(std::string_view text, bool is_quoted);

/// Reads records of CSV into rows.
class CsvRows {
 public:
  /// Both outlive this object.
  CsvRows(const RowPlan& plan, RowBuilder& rows) : plan_(plan), rows_(rows) {}

  /// From now on records are those of this file. What its header lacks, its rows lack.
  void begin_file(const TextFile& file);
  /// As JsonRows::add().
  Outcome add(const char* begin, const char* end);
  const RowFault& fault() const noexcept { return fault_; }
  /// As JsonRows::note_names(), of the headers.
  void note_names(std::vector<bool>& seen, std::set<std::string>& ignored);

 private:
  static constexpr std::size_t kIgnored = ~std::size_t{0};

  bool fields(const char* begin, const char* end);
  bool is_well_formed(const char* begin, const char* end);
  bool field(const CsvField& field, ColumnBuilder& column);
  bool set_null(ColumnBuilder& column);
  bool fail(Outcome outcome, std::string column, std::string message);

  const RowPlan& plan_;
  RowBuilder& rows_;
  char delimiter_ = ',';
  NaValues na_values_;
  std::vector<std::size_t> targets_;  ///< of each field
  std::vector<std::size_t> absent_;   ///< that no field has
  std::string new_column_;            ///< that calls for another plan
  std::vector<bool> seen_;
  std::vector<std::string> ignored_;
  std::string scratch_;
  RowFault fault_;
};

/// Looks at the types of records of CSV.
class CsvTypes {
 public:
  explicit CsvTypes(ValueTypes& types) : types_(types) {}
  void begin_file(const TextFile& file);
  void add(const char* begin, const char* end);

 private:
  ValueTypes& types_;
  char delimiter_ = ',';
  NaValues na_values_;
  std::vector<std::size_t> members_;  ///< of each field
  std::vector<ScalarKinds> kinds_;
  std::string scratch_;
};

}  // namespace tenfold

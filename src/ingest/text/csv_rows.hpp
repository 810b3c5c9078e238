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

/// The value of a CSV field: null (unquoted and empty), a number, a bool or a string.
struct CsvValue {
  ScalarKinds kinds = 0;
  NumberText number;   ///< integers, and floats except nan and inf
  double special = 0;  ///< nan or inf
  bool is_special = false;
  bool is_true = false;
};
/// Parses a field. `text` must be followed by a character that cannot be part of a number, and
/// kNumberSlackBytes must be readable after it.
CsvValue csv_value(std::string_view text, bool is_quoted);

/// Parses CSV records into rows.
class CsvRows {
 public:
  /// Both arguments must outlive this object.
  CsvRows(const RowPlan& plan, RowBuilder& rows) : plan_(plan), rows_(rows) {}

  /// Continues with the records of `file`. Columns that are missing in the header of the file are
  /// null in its rows. If such a column must not be null, all rows of the file are rejected.
  void begin_file(const TextFile& file);
  /// Like JsonRows::add().
  Outcome add(const char* begin, const char* end);
  const RowFault& fault() const noexcept { return fault_; }
  /// Like JsonRows::note_names(), for the names in headers.
  void note_names(std::vector<bool>& seen, std::set<std::string>& ignored);

 private:
  static constexpr std::size_t kIgnored = ~std::size_t{0};
  static constexpr std::size_t kRecord = kIgnored - 1;  ///< not a column, but the name of a record

  bool fields(const char* begin, const char* end);
  bool put(const CsvField& field, std::size_t number);
  bool is_well_formed(const char* begin, const char* end);
  bool field(const CsvField& field, TextColumn& column);
  bool set_null(TextColumn& column);
  bool fail(Outcome outcome, std::string column, std::string message);

  const RowPlan& plan_;
  RowBuilder& rows_;
  char delimiter_ = ',';
  NaValues na_values_;
  std::vector<std::string> header_;
  std::vector<std::size_t> targets_;  ///< target of each field
  std::vector<std::size_t> absent_;   ///< required targets without a field
  std::string new_column_;            ///< name of a column that requires another plan
  std::vector<bool> seen_;
  std::vector<std::string> ignored_;
  std::string scratch_;
  RowFault fault_;
};

/// Infers types from CSV records.
class CsvTypes {
 public:
  explicit CsvTypes(ValueTypes& types) : types_(types) {}
  void begin_file(const TextFile& file);
  void add(const char* begin, const char* end);

 private:
  ValueTypes& types_;
  char delimiter_ = ',';
  NaValues na_values_;
  std::vector<std::size_t> members_;  ///< index of each field's member
  std::vector<ScalarKinds> kinds_;
  std::string scratch_;
};

}  // namespace tenfold

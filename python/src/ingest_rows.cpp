#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "arguments.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "common.hpp"
#include "gil.hpp"
#include "ingest/arrow/stream.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/table/dict_table.hpp"
#include "ingest_report.hpp"
#include "mapped_dict.hpp"
#include "python_objects.hpp"
#include "row_reader.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

constexpr std::int64_t kBlockRows = 65'536;
/// Maximum size of a block in memory. It is checked after every row, because a row may be large.
/// While it grows, a block uses up to three times this size, or more if a single row is larger than
/// this size. The writer uses another 16 MiB.
constexpr std::size_t kBlockBytes = std::size_t{8} << 20;
/// Rows between two checks of signals and the clock.
constexpr std::int64_t kCheckRows = 1024;
/// Maximum number of characters of a row in `bad_rows.jsonl`.
constexpr std::size_t kMaxRowCharacters = 2000;

std::optional<Schema> schema_from(nb::handle json) {
  if (json.is_none()) return std::nullopt;
  return Schema::from_json(utf8(json), "");
}

std::optional<Path> optional_path(nb::handle path) {
  if (path.is_none()) return std::nullopt;
  return path_from(path);
}

/// The part of a schema that `columns` selects. `columns`: names of columns, or of records that
/// contain them.
std::optional<Schema> selected(std::optional<Schema> schema,
                               const std::vector<std::string>& columns, const std::string& where) {
  if (!schema || columns.empty()) return schema;
  std::vector<Column> kept;
  for (const std::size_t i : selected_columns(schema->columns(), columns, where)) {
    kept.push_back(schema->columns()[i]);
  }
  return Schema(std::move(kept));
}

/// The files of a source, for messages about rows.
class RowFiles {
 public:
  /// `first_rows[i]`: the number of rows in the files before `files[i]`. `first_rows` has items
  /// only for the files that were opened so far, and the caller may change it while rows are read.
  RowFiles(nb::list files, nb::list first_rows)
      : files_(std::move(files)), first_rows_(std::move(first_rows)) {}

  /// Returns the function for SourceRows::find, or an empty one if there are no files. The function
  /// uses this object.
  std::function<SourceRow(std::int64_t)> finder() const {
    if (nb::len(files_) == 0) return {};
    return [this](std::int64_t row) {
      const GilAcquire gil;
      return find(row);
    };
  }

 private:
  SourceRow find(std::int64_t row) const {
    std::size_t begin = 0;
    std::size_t end = nb::len(first_rows_);
    while (end - begin > 1) {
      const std::size_t middle = begin + (end - begin) / 2;
      (first_row(middle) <= row ? begin : end) = middle;
    }
    return {utf8(files_[begin]), row - first_row(begin)};
  }
  std::int64_t first_row(std::size_t file) const {
    return nb::cast<std::int64_t>(first_rows_[file]);
  }

  nb::list files_;
  nb::list first_rows_;
};

/// Ingests Python rows into a data set.
class RowIngest {
 public:
  RowIngest(PathArgument path, std::string where, AnyObject schema,
            std::vector<std::string> columns, const std::string& on_error, std::int64_t batch_rows,
            bool overwrite, bool durable, ProgressArgument progress, nb::list files,
            nb::list first_rows, AnyObject dictionary)
      : where_(std::move(where)),
        files_(std::move(files), std::move(first_rows)),
        rows_{where_, files_.finder()},
        on_error_(on_error_from(on_error)),
        block_rows_(batch_rows > 0 ? batch_rows : kBlockRows),
        monitor_(std::move(progress)) {
    const std::optional<Schema> wanted = selected(schema_from(schema), columns, where_);
    TableWriterOptions options;
    options.overwrite = overwrite;
    options.durable = durable;
    options.monitor = &monitor_;
    if (!dictionary.is_none()) {
      const DictValueForm form = form_from(utf8(dictionary[0]));
      const DuplicateKeys duplicates = duplicates_from(utf8(dictionary[1]));
      options.before_commit = [this, form, duplicates](TableWriter& table) {
        add_dict_index(table, where_, form, duplicates, &monitor_);
      };
    }
    has_schema_ = wanted.has_value();
    // A null in a list may fit its column only after later rows have changed the column's type. If
    // bad rows raise an error, check such nulls after the last row. Otherwise, bad rows are
    // omitted, so they must be known before their block is written.
    const bool defers_nulls = on_error_ == OnError::raise;
    // A dictionary must return the values that it was given, so numbers and Decimals are never
    // converted to strings.
    const bool is_dictionary = !dictionary.is_none();
    table_.emplace(optional_path(path), wanted, columns, options, defers_nulls, is_dictionary);
    reader_.emplace(*table_, wanted.has_value(), std::move(columns), !is_dictionary);
  }

  void add_rows(AnyObject rows, std::int64_t total_rows) {
    expect_rows(total_rows);
    if (PyList_CheckExact(rows.ptr()) || PyTuple_CheckExact(rows.ptr())) {
      for (std::size_t i = 0; i < sequence_size(rows.ptr()); ++i) {
        add(nb::borrow(sequence_item(rows.ptr(), i)));
      }
      return;
    }
    const nb::object iterator = nb::steal(PyObject_GetIter(rows.ptr()));
    if (!iterator.is_valid()) throw nb::python_error();
    while (true) {
      const nb::object row = nb::steal(PyIter_Next(iterator.ptr()));
      if (!row.is_valid()) break;
      add(row);
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }

  /// Adds the rows [begin, end) of whole columns. If a column contains records, adds nothing and
  /// returns false; the caller then adds the rows one by one.
  bool add_columns(nb::dict columns, std::int64_t begin, std::int64_t end,
                   std::int64_t total_rows) {
    expect_rows(total_rows);
    try {
      reader_->add_columns(columns, begin, end);
    } catch (const RowsNeeded&) {
      table_->undo_row();
      return false;
    } catch (BadValue& bad) {
      bad.row = position_ + (bad.row >= 0 ? bad.row - begin : 0);
      throw rows_.error_of(bad);
    }
    position_ += end - begin;
    look();
    return true;
  }

  nb::dict finish() {
    if (position_ > 0) reader_->check_all_seen(where_);
    if (table_->num_columns() == 0 && num_kept_ > 0) {
      throw base::invalid_argument(where_)
          .part("columns")
          .expected("a key in some row")
          .found("none in ", num_kept_, num_kept_ == 1 ? " row" : " rows");
    }
    table_->report().ignored = reader_->ignored();
    if (!has_schema_) table_->arrange(reader_->columns_in_input_order());
    try {
      const SourceReport report = guarded([&] { return table_->finish(); });
      monitor_.rethrow();
      return dict_of(report);
    } catch (const BadValue& bad) {
      throw rows_.error_of(bad);
    }
  }

 private:
  void expect_rows(std::int64_t total_rows) {
    total_rows_ = total_rows;
    // Unless they raise an error, bad rows are omitted: the number of rows is not known in advance.
    if (on_error_ == OnError::raise) table_->expect_rows(total_rows);
  }

  void add(const nb::object& row) {
    try {
      reader_->add(row);
      ++num_kept_;
    } catch (BadValue& bad) {
      bad.row = position_;
      refuse(bad, row);
    }
    ++position_;
    if (position_ % kCheckRows == 0 || is_full()) look();
  }

  bool is_full() const {
    return table_->block_rows() >= block_rows_ || table_->block_bytes() >= kBlockBytes;
  }

  void refuse(const BadValue& bad, const nb::object& row) {
    if (on_error_ == OnError::raise) throw rows_.error_of(bad);
    std::string line;
    if (on_error_ == OnError::collect) {
      const std::string shown = utf8(nb::module_::import_("tenfold.dataset._ingest.values")
                                         .attr("row_text")(row, kMaxRowCharacters));
      line = to_json_line(rows_.bad_row_of(bad, shown));
    }
    table_->skip_row(line);
  }

  /// Writes the block if it is full, checks signals, and reports progress at most every 50 ms.
  void look() {
    if (is_full()) {
      guarded([&] { table_->flush(); });
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const auto now = std::chrono::steady_clock::now();
    if (now - reported_ < std::chrono::milliseconds(50)) return;
    reported_ = now;
    const std::uint64_t done = table_->written_bytes() + table_->block_bytes();
    const auto rows = static_cast<double>(std::max<std::int64_t>(position_, 1));
    const double share = static_cast<double>(std::max(total_rows_, position_)) / rows;
    const std::uint64_t total =
        total_rows_ == 0 ? 0 : static_cast<std::uint64_t>(static_cast<double>(done) * share);
    monitor_.report(done, total, "ingest");
    monitor_.rethrow();
  }

  template <class Work>
  auto guarded(const Work& work) -> decltype(work()) {
    try {
      return without_gil(work);
    } catch (const Error&) {
      monitor_.rethrow();
      throw;
    }
  }

  std::string where_;
  RowFiles files_;
  SourceRows rows_;
  OnError on_error_;
  std::int64_t block_rows_;
  bool has_schema_ = false;
  std::int64_t total_rows_ = 0;
  std::int64_t position_ = 0;  ///< rows of the source so far
  std::int64_t num_kept_ = 0;  ///< rows added one by one
  std::chrono::steady_clock::time_point reported_{};
  PythonMonitor monitor_;
  std::optional<RowTable> table_;
  std::optional<RowReader> reader_;
};

std::vector<ArrowArrayStream*> streams_of(nb::list capsules) {
  std::vector<ArrowArrayStream*> streams;
  for (const nb::handle capsule : capsules) {
    void* pointer = PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
    if (pointer == nullptr) throw nb::python_error();
    streams.push_back(static_cast<ArrowArrayStream*>(pointer));
  }
  return streams;
}

/// Ingests streams from the capsules of `__arrow_c_stream__`, and consumes them. `again`: the same
/// streams for a second pass, or none; see ingest_arrow().
nb::dict ingest_streams(nb::list capsules, nb::list again, PathArgument path,
                        const std::string& where, AnyObject schema,
                        std::vector<std::string> columns, const std::string& on_error,
                        std::int64_t batch_rows, bool overwrite, bool durable,
                        std::uint64_t total_bytes, std::int64_t total_rows,
                        ProgressArgument progress, nb::list files, nb::list first_rows) {
  const std::vector<ArrowArrayStream*> streams = streams_of(capsules);
  const std::vector<ArrowArrayStream*> retry_streams = streams_of(again);
  const RowFiles row_files(std::move(files), std::move(first_rows));
  ArrowIngestOptions options;
  options.where = where;
  options.find_row = row_files.finder();
  options.schema = selected(schema_from(schema), columns, where);
  if (!options.schema) options.columns = std::move(columns);
  options.on_error = on_error_from(on_error);
  options.batch_rows = batch_rows;
  options.total_bytes = total_bytes;
  options.table.overwrite = overwrite;
  options.table.durable = durable;
  // Unless they raise an error, bad rows are omitted: the number of rows is not known in advance.
  if (options.on_error == OnError::raise) options.table.expected_rows = total_rows;
  const std::optional<Path> target = optional_path(path);
  const SourceReport report = monitored(progress, [&](Monitor* monitor) {
    options.table.monitor = monitor;
    return ingest_arrow(streams, retry_streams, target, options);
  });
  return dict_of(report);
}

}  // namespace

nb::dict dict_of(const SourceReport& report) {
  nb::dict made = dict_of(static_cast<const IngestReport&>(report));
  made["schema"] = text(report.schema.to_json());
  return made;
}

void bind_ingest_sources(nb::module_& module) {
  nb::class_<RowIngest>(module, "RowIngest")
      .def(nb::init<PathArgument, std::string, AnyObject, std::vector<std::string>, std::string,
                    std::int64_t, bool, bool, ProgressArgument, nb::list, nb::list, AnyObject>(),
           "path"_a.none(), "where"_a, "schema"_a.none(), "columns"_a, "on_error"_a, "batch_rows"_a,
           "overwrite"_a, "durable"_a, "progress"_a.none(), "files"_a, "first_rows"_a,
           "dictionary"_a = nb::none())
      .def("add_rows", &RowIngest::add_rows, "rows"_a, "total_rows"_a)
      .def("add_columns", &RowIngest::add_columns, "columns"_a, "begin"_a, "end"_a, "total_rows"_a)
      .def("finish", &RowIngest::finish);
  module.def("ingest_arrow", &ingest_streams, "capsules"_a, "again"_a, "path"_a.none(), "where"_a,
             "schema"_a.none(), "columns"_a, "on_error"_a, "batch_rows"_a, "overwrite"_a,
             "durable"_a, "total_bytes"_a, "total_rows"_a, "progress"_a.none(), "files"_a,
             "first_rows"_a);
}

}  // namespace tenfold::python

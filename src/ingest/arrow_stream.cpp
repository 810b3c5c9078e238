#include "ingest/arrow_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/value_json.hpp"
#include "formats/memmap_keys.hpp"
#include "formats/progress.hpp"
#include "ingest/arrow_array.hpp"
#include "ingest/arrow_column.hpp"
#include "ingest/arrow_plan.hpp"
#include "ingest/arrow_value.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/convert_chunk.hpp"
#include "ingest/fit_chunk.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kBatchRows = 65'536;

/// A stream: its record batches one after the other, checked.
class BatchStream {
 public:
  BatchStream(ArrowArrayStream& stream, const std::string& where) : where_(where) {
    stream_.take(stream);
    if (stream_.is_released()) {
      throw Error(ErrorCode::corrupt, where_ + ": expected a stream, found one that was released");
    }
  }

  void read_schema() {
    if (stream_->get_schema == nullptr || stream_->get_next == nullptr) {
      throw Error(ErrorCode::corrupt, where_ +
                                          ": stream: expected functions that give "
                                          "schema and batches, found null pointers");
    }
    ArrowOwned<ArrowSchema> schema;
    check(stream_->get_schema(stream_.get(), schema.get()), "no schema could be had");
    type_ = parse_arrow_type(*schema, where_);
  }
  const ArrowType& type() const noexcept { return type_; }

  /// False at the end.
  bool next(ArrowOwned<ArrowArray>& batch) {
    batch.reset();
    check(stream_->get_next(stream_.get(), batch.get()), "no batch could be had");
    if (batch.is_released()) return false;
    check_arrow_array(*batch, type_, where_);
    return true;
  }

 private:
  void check(int code, const char* what) {
    if (code == 0) return;
    const char* said = stream_.get()->get_last_error == nullptr
                           ? nullptr
                           : stream_.get()->get_last_error(stream_.get());
    throw Error::io(code < 0 ? EIO : code, where_,
                    std::string(what) + (said == nullptr ? "" : std::string(": ") + said));
  }

  std::string where_;
  ArrowOwned<ArrowArrayStream> stream_;
  ArrowType type_;
};

class ArrowIngest {
 public:
  ArrowIngest(std::span<ArrowArrayStream* const> streams, const std::optional<Path>& path,
              const ArrowIngestOptions& options)
      : options_(options),
        path_(path),
        progress_(options.table.monitor, options.total_bytes, "ingest") {
    for (ArrowArrayStream* stream : streams) {
      streams_.push_back(std::make_unique<BatchStream>(*stream, options_.where));
    }
    if (streams_.size() > 1 && options_.on_error != OnError::raise) {
      throw Error(ErrorCode::invalid_argument,
                  options_.where +
                      ": rows are left out of all columns at once: expected one "
                      "stream, found " +
                      std::to_string(streams_.size()));
    }
  }

  SourceReport run() {
    read_schemas();
    if (path_) writer_.emplace(*path_, Schema(targets_), options_.table);
    std::optional<std::size_t> first;
    for (const std::unique_ptr<BatchStream>& stream : streams_) {
      columns_.clear();
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        if (sources_[i].stream == stream.get()) columns_.push_back(i);
      }
      if (columns_.empty()) continue;
      const std::uint64_t num_rows = std::exchange(report_.num_rows, 0);
      read(*stream);
      if (first && report_.num_rows != num_rows) fail_unequal(*first, num_rows);
      if (!first) first = columns_[0];
    }
    if (writer_) writer_->commit();
    progress_.finish();
    report_.schema = writer_ ? writer_->schema() : Schema(targets_);
    return std::move(report_);
  }

 private:
  /// What a column is read from.
  struct Source : ArrowColumn {
    BatchStream* stream;
  };

  void read(BatchStream& stream) {
    position_ = 0;
    ArrowOwned<ArrowArray> batch;
    while (stream.next(batch)) {
      const ArrowSlice rows = ArrowSlice::whole(*batch, stream.type());
      const std::int64_t step = options_.batch_rows > 0 ? options_.batch_rows : kBatchRows;
      for (std::int64_t begin = 0; begin < rows.size; begin += step) {
        add(rows.part(begin, std::min(step, rows.size - begin)));
        progress_.poll();
      }
    }
  }

  [[noreturn]] void fail_unequal(std::size_t first, std::uint64_t num_rows) const {
    throw Error(ErrorCode::corrupt, options_.where + ": column " +
                                        base::quote(targets_[columns_[0]].name()) +
                                        ": rows: expected " + std::to_string(num_rows) +
                                        " as column " + base::quote(targets_[first].name()) +
                                        " has, found " + std::to_string(report_.num_rows));
  }

  void read_schemas() {
    std::vector<Source> all;
    std::vector<Column> found;
    for (const std::unique_ptr<BatchStream>& stream : streams_) {
      stream->read_schema();
      for (ArrowColumn& column : arrow_columns(stream->type(), options_.where)) {
        found.push_back(column.column);
        all.push_back({std::move(column), stream.get()});
      }
    }
    const Schema unique(found);
    std::vector<Source> kept;
    for (const std::size_t i : selected_columns(found, options_.columns, options_.where)) {
      kept.push_back(all[i]);
    }
    if (options_.schema) {
      take_schema(kept);
    } else {
      for (const Source& column : kept) {
        targets_.push_back(column.column);
        if (column.is_json) report_json(column.column);
      }
      sources_ = std::move(kept);
    }
  }

  /// The columns that were asked for, in the order of the schema.
  void take_schema(const std::vector<Source>& found) {
    for (const Column& wanted : options_.schema->columns()) {
      const auto source = std::find_if(found.begin(), found.end(), [&](const Source& column) {
        return column.column.path == wanted.path;
      });
      if (source == found.end()) {
        throw Error(ErrorCode::invalid_argument,
                    options_.where + ": column " + base::quote(wanted.name()) +
                        ": the schema names it: expected it in the source, found no such column");
      }
      Column target = wanted;
      if (target.unit.empty()) target.unit = source->column.unit;
      targets_.push_back(std::move(target));
      sources_.push_back(*source);
    }
    for (const Source& column : found) {
      if (options_.schema->find(column.column.path) == nullptr) {
        report_.ignored.push_back(column.column.name());
      }
    }
  }

  struct Bad {
    std::int64_t row;
    std::size_t column;
    std::string what;
  };

  void add(const ArrowSlice& batch) {
    std::vector<ArrowRows> rows;
    std::vector<OwnedChunk> fitted;
    std::vector<ColumnChunk> chunks;
    std::vector<Bad> bad;
    // Chunks are spans of these.
    rows.reserve(columns_.size());
    fitted.reserve(columns_.size());
    bad_batch_rows(batch, bad);
    for (const std::size_t i : columns_) settle(i, batch);
    for (const std::size_t i : columns_) {
      rows.push_back(read_arrow_column(sources_[i], batch));
      ArrowRows& read = rows.back();
      for (BadValue& value : read.bad) bad.push_back({value.row, i, std::move(value.what)});
      fitted.emplace_back();
      if (options_.schema && must_fit(i, read)) {
        std::vector<BadValue> misfits;
        fitted.back() = fit_chunk(sources_[i].column, read.chunk, targets_[i], misfits);
        for (BadValue& value : misfits) bad.push_back({value.row, i, std::move(value.what)});
        chunks.push_back(fitted.back().view());
      } else {
        chunks.push_back(read.chunk);
      }
    }
    if (!bad.empty()) drop(batch, bad, chunks, fitted);
    append(chunks);
    position_ += batch.size;
  }

  void report_json(const Column& column) {
    report_.promotions.push_back({column.name(), "a list or map", "a list as JSON text"});
  }

  /// Lists in lists are of a shape until others come; what was written becomes what they are then.
  void settle(std::size_t i, const ArrowSlice& batch) {
    if (!settle_shape(sources_[i], batch) || options_.schema) return;
    const Column before = targets_[i];
    Column now = sources_[i].column;
    now.nullable = before.nullable;
    name_leaves(now);
    if (sources_[i].is_json) report_json(now);
    if (writer_) {
      writer_->change_column(
          i, now, [&](const ColumnChunk& chunk) { return convert_chunk(before, chunk, now); });
    }
    targets_[i] = std::move(now);
  }

  bool must_fit(std::size_t i, const ArrowRows& read) const {
    return !stored_alike(sources_[i].column, targets_[i]) ||
           (!targets_[i].nullable && !read.chunk.valid.empty());
  }

  /// Record batches have no nulls themselves, though the interface lets them.
  void bad_batch_rows(const ArrowSlice& batch, std::vector<Bad>& bad) const {
    for (std::int64_t i = 0; batch.may_have_nulls() && i < batch.size; ++i) {
      if (!batch.is_valid(i)) bad.push_back({i, columns_[0], "expected a row, found null"});
    }
  }

  /// Leaves out the rows that do not fit, or refuses the first of them.
  void drop(const ArrowSlice& batch, std::vector<Bad>& bad, std::vector<ColumnChunk>& chunks,
            std::vector<OwnedChunk>& fitted) {
    std::stable_sort(bad.begin(), bad.end(),
                     [](const Bad& a, const Bad& b) { return a.row < b.row; });
    bad.erase(std::unique(bad.begin(), bad.end(),
                          [](const Bad& a, const Bad& b) { return a.row == b.row; }),
              bad.end());
    std::vector<std::int64_t> dropped;
    for (const Bad& one : bad) {
      const std::int64_t row = position_ + one.row;
      const std::string column = targets_[one.column].name();
      if (options_.on_error == OnError::raise) {
        throw Error(ErrorCode::invalid_argument, options_.where + ": row " + std::to_string(row) +
                                                     ", column " + base::quote(column) + ": " +
                                                     one.what);
      }
      if (options_.on_error == OnError::collect && writer_) {
        const std::string text = to_json(arrow_value(batch, one.row), codecs::JsonStyle::python);
        writer_->append_text(
            memmap_folder::kBadRowsName,
            to_json_line(
                {.row = row, .column = column, .error = one.what, .text = shown_text(text)}));
      }
      dropped.push_back(one.row);
    }
    report_.num_bad_rows += dropped.size();
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      fitted[k] = without_rows(targets_[columns_[k]], chunks[k], dropped);
      chunks[k] = fitted[k].view();
    }
  }

  /// A chunk for each of columns_.
  void append(std::vector<ColumnChunk>& chunks) {
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      const std::size_t i = columns_[k];
      const auto& valid = chunks[k].valid;
      // Bad rows had no value; without them there may be no null left.
      if (!targets_[i].nullable &&
          std::all_of(valid.begin(), valid.end(), [](auto v) { return v; })) {
        chunks[k].valid = {};
      }
      if (!targets_[i].nullable && !chunks[k].valid.empty()) {
        targets_[i].nullable = true;
        name_leaves(targets_[i]);
        if (writer_) writer_->change_column(i, targets_[i], {});
      }
      if (writer_) writer_->append(i, chunks[k]);
      progress_.add(chunks[k].values.size());
    }
    report_.num_rows += static_cast<std::uint64_t>(chunks[0].num_rows);
  }

  const ArrowIngestOptions& options_;
  std::optional<Path> path_;
  Progress progress_;
  std::vector<std::unique_ptr<BatchStream>> streams_;
  std::vector<Source> sources_;
  std::vector<Column> targets_;
  std::optional<TableWriter> writer_;
  SourceReport report_;
  std::vector<std::size_t> columns_;  ///< of the stream that is read: which of sources_, targets_
  std::int64_t position_ = 0;         ///< rows of it that were looked at
};

}  // namespace

SourceReport ingest_arrow(ArrowArrayStream& stream, const std::optional<Path>& path,
                          const ArrowIngestOptions& options) {
  ArrowArrayStream* const one = &stream;
  return ingest_arrow(std::span(&one, 1), path, options);
}

SourceReport ingest_arrow(std::span<ArrowArrayStream* const> streams,
                          const std::optional<Path>& path, const ArrowIngestOptions& options) {
  return ArrowIngest(streams, path, options).run();
}

}  // namespace tenfold

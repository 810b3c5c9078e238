#include "ingest/arrow/stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/spill_file.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/progress.hpp"
#include "ingest/arrow/array.hpp"
#include "ingest/arrow/column.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/arrow/value.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/table/convert_chunk.hpp"
#include "ingest/table/fit_chunk.hpp"

namespace tenfold {
namespace {

/// Descriptions of bad rows when columns are read from several streams. For every bad row, each
/// stream adds a piece. If there are many pieces, they are written to a spill file.
class BadRowPieces {
 public:
  struct Piece {
    std::string column{};  ///< the bad column; empty if this stream has none in the row
    std::string error{};
    std::string text{};  ///< the values of the stream's columns: a JSON object, or null
  };

  /// `folder`: where unnamed spill files are created; empty: the folder for temporary files.
  explicit BadRowPieces(Path folder) : folder_(std::move(folder)) {}

  /// Starts the pieces of the next stream, which has the same rows in the same order.
  void begin_stream();
  void add(const Piece& piece);

  /// Calls `tell` for each of the `num_rows` bad rows, with the error of the first stream that has
  /// an error in the row, and with the JSON objects of all streams joined into one.
  void report_all(std::size_t num_rows, const std::function<void(const Piece&)>& tell) const;

 private:
  Path folder_;
  std::vector<SpillFile> streams_;
};

/// Greatest size of a stream's pieces in memory; if they are larger, they go to a spill file.
constexpr std::size_t kPiecesInMemoryBytes = std::size_t{64} << 10;

void append_member(SpillFile& spill, std::string_view text) {
  const auto size = static_cast<std::uint64_t>(text.size());
  spill.append(std::as_bytes(std::span(&size, 1)));
  spill.append(std::as_bytes(std::span(text)));
}

std::string read_member(const SpillFile& spill, std::uint64_t& at) {
  std::uint64_t size = 0;
  spill.read(at, std::as_writable_bytes(std::span(&size, 1)));
  std::string text(static_cast<std::size_t>(size), '\0');
  spill.read(at + sizeof size, std::as_writable_bytes(std::span(text)));
  at += sizeof size + size;
  return text;
}

/// Appends the members of the JSON object `object` to the JSON object `all`. `object` may be null.
void join_members(std::string& all, std::string_view object) {
  if (!object.starts_with('{')) return;
  const std::string_view members = object.substr(1, object.size() - 2);
  if (members.empty()) return;
  all.insert(all.size() - 1, (all.size() > 2 ? ", " : "") + std::string(members));
}

void BadRowPieces::begin_stream() { streams_.emplace_back(folder_, kPiecesInMemoryBytes); }

void BadRowPieces::add(const Piece& piece) {
  SpillFile& spill = streams_.back();
  append_member(spill, piece.column);
  append_member(spill, piece.error);
  append_member(spill, piece.text);
}

void BadRowPieces::report_all(std::size_t num_rows,
                              const std::function<void(const Piece&)>& tell) const {
  std::vector<std::uint64_t> at(streams_.size());
  for (std::size_t row = 0; row < num_rows; ++row) {
    Piece whole;
    whole.text = "{}";
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      std::string column = read_member(streams_[i], at[i]);
      std::string error = read_member(streams_[i], at[i]);
      join_members(whole.text, read_member(streams_[i], at[i]));
      if (!whole.column.empty() || column.empty()) continue;
      whole.column = std::move(column);
      whole.error = std::move(error);
    }
    tell(whole);
  }
}

}  // namespace

using namespace detail;
namespace {

constexpr std::int64_t kBatchRows = 65'536;
/// Approximate limit of the bytes that are copied at a time from columns with can_share(). Only a
/// single row may exceed it.
constexpr std::int64_t kSharedBytes = std::int64_t{32} << 20;

/// True if several rows can share values, so that a copy can be larger than the source.
bool can_share(const ArrowType& type) {
  return type.dictionary != nullptr || type.kind == ArrowKind::list_view ||
         std::ranges::any_of(type.children, can_share);
}

/// Subtracts the approximate size in bytes of a copy of value `i` from `left`. Stops as soon as
/// `left` is negative.
void count_bytes(const ArrowSlice& values, std::int64_t i, std::int64_t& left) {
  left -= 8;
  if (left < 0 || !values.is_valid(i)) return;
  const ArrowType& type = *values.type;
  if (type.dictionary) {
    count_bytes(values.entry(values.index_at(i)), 0, left);
  } else if (type.kind == ArrowKind::text || type.kind == ArrowKind::text_view ||
             type.kind == ArrowKind::fixed_bytes) {
    left -= static_cast<std::int64_t>(values.text_at(i).size());
  } else if (type.is_list() || type.kind == ArrowKind::map) {
    const auto [begin, end] = values.range_at(i);
    const ArrowSlice items = values.items(begin, end - begin);
    for (std::int64_t k = 0; k < items.size && left >= 0; ++k) count_bytes(items, k, left);
  } else if (type.kind == ArrowKind::record) {
    for (std::size_t k = 0; k < type.children.size(); ++k) count_bytes(values.field(k), i, left);
  }
}

/// A stream whose record batches are read sequentially and checked.
class BatchStream {
 public:
  BatchStream(ArrowArrayStream& stream, const std::string& where) : where_(where) {
    stream_.take(stream);
  }

  void require_unreleased() const {
    if (!stream_.is_released()) return;
    throw base::corrupt(where_).expected("a stream").found("one that was released");
  }

  void read_schema() {
    if (stream_->get_schema == nullptr || stream_->get_next == nullptr) {
      throw base::corrupt(where_)
          .part("stream")
          .expected("functions that return schema and batches")
          .found("null pointers");
    }
    ArrowOwned<ArrowSchema> schema;
    check(stream_->get_schema(stream_.get(), schema.get()), "the schema cannot be read");
    type_ = parse_arrow_type(*schema, where_);
  }
  const ArrowType& type() const noexcept { return type_; }

  /// Returns false at the end.
  bool next(ArrowOwned<ArrowArray>& batch) {
    batch.reset();
    check(stream_->get_next(stream_.get(), batch.get()), "the next batch cannot be read");
    if (batch.is_released()) return false;
    check_arrow_array(*batch, type_, where_);
    return true;
  }

 private:
  void check(int code, const char* what) {
    if (code == 0) return;
    const char* message = stream_.get()->get_last_error == nullptr
                              ? nullptr
                              : stream_.get()->get_last_error(stream_.get());
    throw Error::io(code < 0 ? EIO : code, where_)
        .problem(what, message == nullptr ? "" : ": ", message == nullptr ? "" : message);
  }

  std::string where_;
  ArrowOwned<ArrowArrayStream> stream_;
  ArrowType type_;
};

std::vector<std::unique_ptr<BatchStream>> taken(std::span<ArrowArrayStream* const> streams,
                                                const std::string& where) {
  std::vector<std::unique_ptr<BatchStream>> made;
  for (ArrowArrayStream* stream : streams) {
    made.push_back(std::make_unique<BatchStream>(*stream, where));
  }
  return made;
}

class ArrowIngest {
 public:
  ArrowIngest(std::span<ArrowArrayStream* const> streams, std::span<ArrowArrayStream* const> again,
              const std::optional<Path>& path, const ArrowIngestOptions& options)
      : options_(options),
        rows_{options.where, options.find_row},
        path_(path),
        streams_(taken(streams, options.where)),
        again_(taken(again, options.where)) {
    // Check after all streams are owned, so that an error releases all of them.
    for (const auto& stream : streams_) stream->require_unreleased();
    for (const auto& stream : again_) stream->require_unreleased();
  }

  SourceReport run() {
    read_all();
    if (!bad_rows_seen_.empty()) {
      std::sort(bad_rows_seen_.begin(), bad_rows_seen_.end());
      bad_rows_seen_.erase(std::unique(bad_rows_seen_.begin(), bad_rows_seen_.end()),
                           bad_rows_seen_.end());
      start_again();
      read_all();
      report_.num_bad_rows = bad_rows_seen_.size();
      if (pieces_) report_pieces();
    }
    if (writer_) writer_->commit();
    progress_->finish();
    report_.schema = writer_ ? writer_->schema() : Schema(targets_);
    return std::move(report_);
  }

 private:
  /// The source of a column.
  struct Source : ArrowColumn {
    std::size_t stream;             ///< index in streams_
    Origins origins{};              ///< is_nested: which of the written numbers were nulls
    std::int64_t num_elements = 0;  ///< is_nested: number of numbers that were written
    bool can_share_values = false;  ///< can_share() of the column's type
  };

  void read_all() {
    progress_.emplace(options_.table.monitor, options_.total_bytes, "ingest");
    read_schemas();
    if (path_) writer_.emplace(*path_, Schema(targets_), options_.table);
    std::vector<std::vector<std::size_t>> columns(streams_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) columns[sources_[i].stream].push_back(i);
    const auto wanted = std::count_if(columns.begin(), columns.end(),
                                      [](const auto& some) { return !some.empty(); });
    defers_bad_rows_ = wanted > 1 && options_.on_error != OnError::raise;
    if (defers_bad_rows_ && !is_again_ && again_.size() != streams_.size()) {
      throw base::invalid_argument(options_.where)
          .problem("bad rows can be omitted only if all columns are read again")
          .expected("the streams twice, or a single stream")
          .found(streams_.size(), " streams once");
    }
    if (sources_.empty()) require_no_rows();
    std::optional<std::size_t> first;
    for (std::size_t k = 0; k < streams_.size(); ++k) {
      columns_ = std::move(columns[k]);
      if (columns_.empty()) continue;
      const std::uint64_t num_rows = std::exchange(report_.num_rows, 0);
      if (pieces_) pieces_->begin_stream();
      read(*streams_[k]);
      if (first && report_.num_rows != num_rows) fail_unequal(*first, num_rows);
      if (!first) first = columns_[0];
    }
  }

  /// Throws if there are rows, which cannot be stored without a column.
  void require_no_rows() {
    ArrowOwned<ArrowArray> batch;
    for (const auto& stream : streams_) {
      while (stream->next(batch)) {
        if (batch->length == 0) continue;
        throw base::invalid_argument(options_.where)
            .part("columns")
            .expected("at least one")
            .found("rows without columns");
      }
    }
  }

  /// Starts the second pass, in which all rows to omit are known.
  void start_again() {
    writer_.reset();
    streams_ = std::move(again_);
    sources_.clear();
    targets_.clear();
    report_ = {};
    is_again_ = true;
    if (options_.on_error == OnError::collect && path_) pieces_.emplace(path_->parent_path());
  }

  void read(BatchStream& stream) {
    position_ = 0;
    ArrowOwned<ArrowArray> batch;
    while (stream.next(batch)) {
      const ArrowSlice rows = ArrowSlice::whole(*batch, stream.type());
      const std::int64_t most = options_.batch_rows > 0 ? options_.batch_rows : kBatchRows;
      for (std::int64_t begin = 0; begin < rows.size;) {
        const std::int64_t step = rows_to_copy(rows.part(begin, std::min(most, rows.size - begin)));
        add(rows.part(begin, step));
        begin += step;
        progress_->poll();
      }
    }
  }

  /// Returns the number of rows at the start of `batch` to copy at a time: at least one, and so few
  /// that the copies of columns with can_share() take about kSharedBytes at most.
  std::int64_t rows_to_copy(const ArrowSlice& batch) const {
    std::vector<std::size_t> shared;
    std::ranges::copy_if(columns_, std::back_inserter(shared),
                         [&](std::size_t i) { return sources_[i].can_share_values; });
    std::int64_t left = kSharedBytes;
    for (std::int64_t row = 0; row < batch.size && !shared.empty(); ++row) {
      for (const std::size_t i : shared) {
        ArrowSlice values = batch;
        for (const std::size_t field : sources_[i].fields) {
          if (!values.is_valid(row)) break;  // the fields of a null struct are unchecked
          values = values.field(field);
        }
        count_bytes(values, row, left);
      }
      if (left < 0) return std::max<std::int64_t>(row, 1);
    }
    return batch.size;
  }

  [[noreturn]] void fail_unequal(std::size_t first, std::uint64_t num_rows) const {
    throw base::corrupt(options_.where)
        .part("column ", base::quote(targets_[columns_[0]].name()), ": rows")
        .expected(num_rows, ", as in column ", base::quote(targets_[first].name()))
        .found(report_.num_rows);
  }

  void read_schemas() {
    std::vector<Source> all;
    std::vector<Column> found;
    for (std::size_t k = 0; k < streams_.size(); ++k) {
      streams_[k]->read_schema();
      for (ArrowColumn& column : arrow_columns(streams_[k]->type(), options_.where)) {
        found.push_back(column.column);
        const ArrowType* type = &streams_[k]->type();
        for (const std::size_t field : column.fields) type = &type->children[field];
        all.push_back({std::move(column), k});
        all.back().can_share_values = can_share(*type);
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

  /// Selects the requested columns, in the order of the schema.
  void take_schema(const std::vector<Source>& found) {
    for (const Column& wanted : options_.schema->columns()) {
      const auto source = std::find_if(found.begin(), found.end(), [&](const Source& column) {
        return column.column.path == wanted.path;
      });
      if (source == found.end()) {
        throw base::invalid_argument(options_.where)
            .part("column ", base::quote(wanted.name()))
            .problem("the schema names it, but it is not among the columns to read")
            .expected("a column of the source");
      }
      Column target = wanted;
      const std::string& unit = source->column.unit;
      if (!target.is_text() && target.unit.empty()) target.unit = unit;
      if (!target.is_text() && !unit.empty() && unit != target.unit) {
        throw base::invalid_argument(options_.where)
            .part("column ", base::quote(wanted.name()))
            .expected(described(target))
            .found(described(source->column))
            .remedy("convert the times in the source, or request their unit");
      }
      targets_.push_back(std::move(target));
      sources_.push_back(*source);
      adapt_to(sources_.back(), targets_.back());
    }
    for (const Source& column : found) {
      const auto& wanted = options_.schema->columns();
      if (std::ranges::find(wanted, column.column.path, &Column::path) == wanted.end()) {
        report_.ignored.push_back(column.column.name());
      }
    }
  }

  void add(const ArrowSlice& batch) {
    std::vector<ArrowRows> rows;
    std::vector<ColumnBuilder> fitted;
    std::vector<ColumnChunk> chunks;
    std::vector<BadValue> bad;
    // Reserved, because `chunks` has spans into the elements.
    rows.reserve(columns_.size());
    fitted.reserve(columns_.size());
    dropped_.clear();
    bad_batch_rows(batch, bad);
    for (const std::size_t i : columns_) settle(i, batch);
    for (const std::size_t i : columns_) {
      rows.push_back(read_arrow_column(sources_[i], batch));
      ArrowRows& read = rows.back();
      std::ranges::move(read.bad, std::back_inserter(bad));
      fitted.emplace_back();
      if (options_.schema && must_fit(i, read)) {
        fitted.back() = fit_chunk(sources_[i].column, read.chunk, targets_[i], bad);
        chunks.push_back(fitted.back().view());
      } else {
        chunks.push_back(read.chunk);
      }
    }
    keep_first_of_rows(bad);
    if (defers_bad_rows_) {
      defer_bad_rows(batch, bad, chunks, fitted);
    } else if (!bad.empty()) {
      drop(batch, bad, chunks, fitted);
    }
    append(chunks);
    for (std::size_t k = 0; writer_ && k < rows.size(); ++k) {
      note_nulls(sources_[columns_[k]], rows[k]);
    }
    position_ += batch.size;
  }

  void report_json(const Column& column) {
    report_.promotions.push_back({column.name(), "a list or map", "a list as JSON text"});
  }

  /// Determines the inner shape of a nested column. If this changes the type of the column,
  /// converts the rows that were written.
  void settle(std::size_t i, const ArrowSlice& batch) {
    if (!settle_shape(sources_[i], batch) || options_.schema) return;
    const Column before = targets_[i];
    Column now = sources_[i].column;
    now.nullable = before.nullable;
    name_leaves(now);
    if (sources_[i].is_json) report_json(now);
    if (writer_) {
      std::int64_t position = 0;
      writer_->change_column(i, now, [&](const ColumnChunk& chunk) {
        return convert_chunk(before, chunk, now, &sources_[i].origins, &position);
      });
      if (sources_[i].is_json) sources_[i].origins = {};
    }
    targets_[i] = std::move(now);
  }

  /// Records which numbers of a nested column are NaN because they were null: if the column becomes
  /// JSON, they become null.
  void note_nulls(Source& source, const ArrowRows& read) const {
    if (!source.is_nested || source.is_json || options_.schema) return;
    Origins& origins = source.origins;
    if (!read.null_items.empty()) origins.begin(source.num_elements, Origins::Kind::same);
    const std::int64_t per_element = numel_of(source.column.shape);
    auto next_dropped = dropped_.begin();
    auto next_null = read.null_items.begin();
    std::int64_t begin = 0;
    for (std::int64_t row = 0; row < read.chunk.num_rows; ++row) {
      const std::int64_t end = read.chunk.ends[static_cast<std::size_t>(row)] * per_element;
      const bool is_dropped = next_dropped != dropped_.end() && *next_dropped == row;
      if (is_dropped) {
        ++next_dropped;
      } else {
        source.num_elements += end - begin;
      }
      for (; next_null != read.null_items.end() && *next_null < end; ++next_null) {
        if (is_dropped) continue;
        origins.push_same(*next_null - begin);
        origins.push(Origins::Kind::null);
        begin = *next_null + 1;
      }
      if (!is_dropped && origins.is_kept()) origins.push_same(end - begin);
      begin = end;
    }
  }

  bool must_fit(std::size_t i, const ArrowRows& read) const {
    return !has_same_storage(sources_[i].column, targets_[i]) ||
           (!targets_[i].nullable && !read.chunk.valid.empty());
  }

  /// Marks null rows of the batch as bad: the C interface allows them, but no column can store
  /// them.
  void bad_batch_rows(const ArrowSlice& batch, std::vector<BadValue>& bad) const {
    for (std::int64_t i = 0; batch.may_have_nulls() && i < batch.size; ++i) {
      if (!batch.is_valid(i)) {
        bad.push_back({targets_[columns_[0]].name(), "expected a row, found null", i});
      }
    }
  }

  static void keep_first_of_rows(std::vector<BadValue>& bad) {
    std::ranges::stable_sort(bad, {}, &BadValue::row);
    const auto others = std::ranges::unique(bad, {}, &BadValue::row);
    bad.erase(others.begin(), others.end());
  }

  /// Drops the bad rows, or throws for the first one.
  void drop(const ArrowSlice& batch, std::vector<BadValue>& bad, std::vector<ColumnChunk>& chunks,
            std::vector<ColumnBuilder>& fitted) {
    for (BadValue& one : bad) {
      dropped_.push_back(one.row);
      one.row += position_;
      if (options_.on_error == OnError::raise) throw rows_.error_of(one);
      if (options_.on_error == OnError::collect && writer_) {
        tell(one, text_of(batch, dropped_.back()));
      }
    }
    report_.num_bad_rows += dropped_.size();
    drop_rows(chunks, fitted);
  }

  /// Handles bad rows of several streams. The first pass collects the bad rows; at the first of
  /// them, it discards what was written and stops writing. The second pass drops the rows that are
  /// bad in any stream.
  void defer_bad_rows(const ArrowSlice& batch, const std::vector<BadValue>& bad,
                      std::vector<ColumnChunk>& chunks, std::vector<ColumnBuilder>& fitted) {
    if (!is_again_) {
      for (const BadValue& one : bad) bad_rows_seen_.push_back(position_ + one.row);
      if (!bad.empty()) writer_.reset();
      return;
    }
    auto row = std::lower_bound(bad_rows_seen_.begin(), bad_rows_seen_.end(), position_);
    auto found = bad.begin();
    for (; row != bad_rows_seen_.end() && *row < position_ + batch.size; ++row) {
      dropped_.push_back(*row - position_);
      if (!pieces_) continue;
      BadRowPieces::Piece piece{.text = text_of(batch, dropped_.back())};
      while (found != bad.end() && found->row < dropped_.back()) ++found;
      if (found != bad.end() && found->row == dropped_.back()) {
        piece.column = found->column;
        piece.error = found->what;
      }
      pieces_->add(piece);
    }
    if (!dropped_.empty()) drop_rows(chunks, fitted);
  }

  void drop_rows(std::vector<ColumnChunk>& chunks, std::vector<ColumnBuilder>& fitted) const {
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      fitted[k] = without_rows(targets_[columns_[k]], chunks[k], dropped_);
      chunks[k] = fitted[k].view();
    }
  }

  static std::string text_of(const ArrowSlice& batch, std::int64_t row) {
    return to_json(arrow_value(batch, row), codecs::JsonStyle::python);
  }

  void tell(const BadValue& bad, const std::string& text) {
    writer_->append_text(formats::folder::kBadRowsName, to_json_line(rows_.bad_row_of(bad, text)));
  }

  void report_pieces() {
    auto row = bad_rows_seen_.begin();
    pieces_->report_all(bad_rows_seen_.size(), [&](const BadRowPieces::Piece& piece) {
      tell({piece.column, piece.error, *row++}, piece.text);
    });
  }

  /// Appends a chunk for each of columns_.
  void append(std::vector<ColumnChunk>& chunks) {
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      const std::size_t i = columns_[k];
      const auto& valid = chunks[k].valid;
      // Bad rows are null. After they are dropped, there may be no nulls left.
      if (!targets_[i].nullable &&
          std::all_of(valid.begin(), valid.end(), [](auto v) { return v; })) {
        chunks[k].valid = {};
      }
      if (!targets_[i].nullable && !chunks[k].valid.empty()) {
        targets_[i].nullable = true;
        name_leaves(targets_[i]);
        if (writer_) writer_->make_nullable(i);
      }
      if (writer_) writer_->append(i, chunks[k]);
      progress_->add(chunks[k].values.size());
    }
    report_.num_rows += static_cast<std::uint64_t>(chunks[0].num_rows);
  }

  const ArrowIngestOptions& options_;
  SourceRows rows_;
  std::optional<Path> path_;
  std::vector<std::unique_ptr<BatchStream>> streams_;
  std::vector<std::unique_ptr<BatchStream>> again_;  ///< the same streams, for the second pass
  std::optional<formats::Progress> progress_;
  std::vector<Source> sources_;
  std::vector<Column> targets_;
  std::optional<TableWriter> writer_;
  SourceReport report_;
  std::vector<std::size_t> columns_;  ///< columns of the current stream, as indices in sources_
  std::int64_t position_ = 0;         ///< number of rows that were read from the current stream
  bool defers_bad_rows_ = false;      ///< a row that is bad in one stream must be dropped from all
  bool is_again_ = false;
  std::vector<std::int64_t> dropped_;        ///< rows of the current batch to omit, ascending
  std::vector<std::int64_t> bad_rows_seen_;  ///< if defers_bad_rows_: row indices in the source;
                                             ///< in the second pass ascending and unique
  std::optional<BadRowPieces> pieces_;       ///< descriptions of the bad rows
};

}  // namespace

SourceReport ingest_arrow(ArrowArrayStream& stream, const std::optional<Path>& path,
                          const ArrowIngestOptions& options) {
  ArrowArrayStream* const one = &stream;
  return ingest_arrow(std::span(&one, 1), {}, path, options);
}

SourceReport ingest_arrow(std::span<ArrowArrayStream* const> streams,
                          std::span<ArrowArrayStream* const> again, const std::optional<Path>& path,
                          const ArrowIngestOptions& options) {
  return ArrowIngest(streams, again, path, options).run();
}

}  // namespace tenfold

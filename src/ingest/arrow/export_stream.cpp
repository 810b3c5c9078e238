#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <tenfold/arrow.hpp>
#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "ingest/arrow/export.hpp"

namespace tenfold {
namespace {

/// The offsets of some rows, starting at 0, and the range [first, last) of their elements.
struct Span {
  std::vector<std::int64_t> offsets;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The span of rows [begin, end), or of items [begin, end) of ragged strings. Throws Error(corrupt)
/// unless their end offsets `ends` are nondecreasing and within [0, limit]. `noun`: the word for an
/// offset in the message.
Span span_of(const Tensor& ends, std::int64_t begin, std::int64_t end, std::int64_t limit,
             const Column& column, const char* noun) {
  const std::span<const std::int64_t> all = ends.span<std::int64_t>();
  const auto fail = [&](std::int64_t row) {
    return base::corrupt()
        .part("data set: column ", base::quote(column.name()), ": ", noun, " ", row)
        .expected("nondecreasing offsets within [0, ", limit, "]");
  };
  Span found;
  found.first = begin == 0 ? 0 : all[static_cast<std::size_t>(begin - 1)];
  if (found.first < 0 || found.first > limit) throw fail(begin - 1).found(found.first);
  found.offsets.reserve(static_cast<std::size_t>(end - begin) + 1);
  found.offsets.push_back(0);
  found.last = found.first;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t next = all[static_cast<std::size_t>(row)];
    if (next < found.last || next > limit) throw fail(row).found(next, " after ", found.last);
    found.offsets.push_back(next - found.first);
    found.last = next;
  }
  return found;
}

/// Adds a separate column for the validity of each nullable float column with rows of fixed size,
/// because gathered batches mark missing values only by NaN.
Schema with_validity(const Schema& schema, std::vector<std::size_t>& columns) {
  std::vector<Column> all = schema.columns();
  std::string record = "%valid";
  while (std::ranges::any_of(all, [&](const Column& column) { return column.path[0] == record; })) {
    record += '%';
  }
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const Column& column = schema.columns()[i];
    if (!column.nullable || column.has_ends() || !is_floating_point(column.dtype)) continue;
    Column validity;
    validity.path = {record, std::to_string(i)};
    validity.dtype = DType::bool_;
    all.push_back(std::move(validity));
    columns.push_back(i);
  }
  return Schema(std::move(all));
}

class Exporter {
 public:
  Exporter(const Dataset& rows, const ArrowExportOptions& options)
      : state_(state_of(rows)), options_(options), size_(state_->order->size()) {
    if (options.batch_rows < 1) {
      throw base::invalid_argument()
          .part("export_arrow_stream")
          .problem("batch_rows must be positive, got ", options.batch_rows);
    }
    ArrowOwned<ArrowSchema> checked;
    export_arrow_schema(state_->schema, checked.get());
    fields_ = arrow_fields(state_->schema);
    const bool may_point = !options.copy && state_->parts.size() == 1 && state_->all_open &&
                           !state_->parts[0].table->ring();
    if (may_point) first_ = state_->order->contiguous_from();
    if (!first_) prepare_gathering();
  }

  void schema(ArrowSchema* out) const { export_arrow_schema(state_->schema, out); }

  /// Stores the next array in `out`; after the last row, a released array, which ends the stream.
  void next(ArrowArray* out) {
    *out = ArrowArray{};
    if (position_ >= size_) return;
    const std::int64_t end = position_ + std::min(options_.batch_rows, size_ - position_);
    std::optional<Batch> gathered;
    if (!first_) {
      BatchOptions options;
      options.num_threads = 0;
      gathered = dataset_of(gathered_state_).rows(position_, end, options);
    }
    const auto rows_of = [&](std::size_t i) {
      return gathered ? gathered_rows(*gathered, i) : stored_rows(i, position_, end);
    };
    struct_array(fields_, end - position_, rows_of, out);
    position_ = end;
  }

 private:
  template <class RowsOf>
  void struct_array(const std::vector<ArrowField>& fields, std::int64_t length,
                    const RowsOf& rows_of, ArrowArray* out) const {
    ArrowArrayMaker maker(length, fields.size());
    maker.add_null();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const ArrowField& field = fields[i];
      if (field.column == nullptr) {
        struct_array(field.fields, length, rows_of, maker.child(i));
      } else {
        export_arrow_column(*field.column, rows_of(field.index), maker.child(i));
      }
    }
    maker.move_to(out);
  }

  void prepare_gathering() {
    auto state = std::make_shared<DatasetState>(*state_);
    state->schema = with_validity(state_->schema, validity_of_);
    choose_columns(state->parts, [&](std::vector<PartColumn> columns) {
      for (const std::size_t i : validity_of_) columns.push_back({columns[i].index, true});
      return columns;
    });
    gathered_state_ = std::move(state);
  }

  ExportedRows gathered_rows(const Batch& batch, std::size_t i) const {
    const BatchColumn& found = batch.columns()[i];
    ExportedRows rows;
    rows.size = batch.num_rows();
    rows.values = found.values;
    const auto ints_of = [](const Tensor& tensor) {
      const auto ints =
          tensor.numel() == 0 ? std::span<const std::int64_t>() : tensor.span<std::int64_t>();
      return std::vector<std::int64_t>(ints.begin(), ints.end());
    };
    rows.offsets = ints_of(found.offsets);
    rows.item_offsets = ints_of(found.item_offsets);
    rows.valid = found.valid;
    const auto validity = std::ranges::find(validity_of_, i);
    if (validity != validity_of_.end()) {
      const auto k = static_cast<std::size_t>(validity - validity_of_.begin());
      rows.valid = batch.columns()[state_->schema.size() + k].values;
    }
    return rows;
  }

  ExportedRows stored_rows(std::size_t i, std::int64_t position, std::int64_t end) const {
    const Column& column = state_->schema.columns()[i];
    const StoredColumn& stored = *state_->parts[0].columns[i];
    const std::int64_t first_row = *first_ + position;
    const std::int64_t last_row = *first_ + end;
    ExportedRows rows;
    rows.size = end - position;
    if (column.nullable) rows.valid = stored.valid.narrow(first_row, last_row);
    if (!column.has_ends()) {
      const Tensor values = stored.values.narrow(first_row, last_row);
      rows.values = values.contiguous();  // no copy if rows are contiguous
      return rows;
    }
    const bool has_items = column.ragged && column.is_text();
    const std::int64_t num_values = stored.values.shape()[0];
    const std::int64_t limit = has_items ? stored.item_ends.numel() : num_values;
    Span span = span_of(stored.ends, first_row, last_row, limit, column, "end offset");
    rows.offsets = std::move(span.offsets);
    if (has_items) {
      Span items = span_of(stored.item_ends, span.first, span.last, num_values, column,
                           "end offset of item");
      rows.item_offsets = std::move(items.offsets);
      span = std::move(items);
    }
    rows.values = stored.values.narrow(span.first, span.last).contiguous();
    return rows;
  }

  std::shared_ptr<const DatasetState> state_;
  std::shared_ptr<const DatasetState> gathered_state_;  ///< null if first_ is set
  std::vector<std::size_t> validity_of_;
  ArrowExportOptions options_;
  std::vector<ArrowField> fields_;
  /// The row at position 0, if the arrays can point into the data set; otherwise rows are gathered.
  std::optional<std::int64_t> first_;
  std::int64_t size_;
  std::int64_t position_ = 0;
};

struct StreamHolder {
  Exporter exporter;
  std::string last_error;
};

StreamHolder& holder_of(ArrowArrayStream* stream) {
  return *static_cast<StreamHolder*>(stream->private_data);
}

/// Calls `work` and converts exceptions to an errno, because exceptions must not cross the C
/// interface.
template <class Work>
int guarded(ArrowArrayStream* stream, const Work& work) noexcept {
  StreamHolder& holder = holder_of(stream);
  try {
    holder.last_error.clear();
    work(holder.exporter);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::exception& error) {
    try {
      holder.last_error = error.what();
    } catch (const std::bad_alloc&) {
      // The message is omitted.
    }
    return EIO;
  }
}

}  // namespace

void export_arrow_stream(const Dataset& rows, ArrowArrayStream* out,
                         const ArrowExportOptions& options) {
  auto holder = std::make_unique<StreamHolder>(StreamHolder{Exporter(rows, options), {}});
  *out = ArrowArrayStream{};
  out->get_schema = [](ArrowArrayStream* stream, ArrowSchema* schema) {
    return guarded(stream, [&](const Exporter& exporter) { exporter.schema(schema); });
  };
  out->get_next = [](ArrowArrayStream* stream, ArrowArray* array) {
    return guarded(stream, [&](Exporter& exporter) { exporter.next(array); });
  };
  out->get_last_error = [](ArrowArrayStream* stream) -> const char* {
    const std::string& error = holder_of(stream).last_error;
    return error.empty() ? nullptr : error.c_str();
  };
  out->release = [](ArrowArrayStream* stream) {
    delete &holder_of(stream);
    stream->release = nullptr;
  };
  out->private_data = holder.release();
}

}  // namespace tenfold

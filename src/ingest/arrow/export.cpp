#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/arrow.hpp>
#include <tenfold/buffer.hpp>
#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/tensor.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "ingest/arrow/abi.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kNullable = 2;

/// Arrow's format letter for a dtype, or null.
const char* letter_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::bool_:
      return "b";
    case DType::uint8:
      return "C";
    case DType::uint16:
      return "S";
    case DType::uint32:
      return "I";
    case DType::uint64:
      return "L";
    case DType::int8:
      return "c";
    case DType::int16:
      return "s";
    case DType::int32:
      return "i";
    case DType::int64:
      return "l";
    case DType::float16:
      return "e";
    case DType::float32:
      return "f";
    case DType::float64:
      return "g";
    default:
      return nullptr;
  }
}

struct SchemaHolder {
  std::string format;
  std::string name;
  std::string metadata;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> child_pointers;

  ~SchemaHolder() {
    for (ArrowSchema& child : children) {
      if (child.release != nullptr) child.release(&child);
    }
  }
};

void release_schema(ArrowSchema* schema) {
  delete static_cast<SchemaHolder*>(schema->private_data);
  schema->release = nullptr;
}

/// Initialises `out` with these properties. `fill(i, child)` initialises child `i`.
template <class Fill>
void make_schema(ArrowSchema* out, std::string format, std::string name, std::int64_t flags,
                 std::string metadata, std::size_t num_children, const Fill& fill) {
  auto holder = std::make_unique<SchemaHolder>();
  holder->format = std::move(format);
  holder->name = std::move(name);
  holder->metadata = std::move(metadata);
  holder->children.resize(num_children, ArrowSchema{});
  for (ArrowSchema& child : holder->children) holder->child_pointers.push_back(&child);
  for (std::size_t i = 0; i < num_children; ++i) fill(i, &holder->children[i]);
  *out = ArrowSchema{};
  out->format = holder->format.c_str();
  out->name = holder->name.c_str();
  out->metadata = holder->metadata.empty() ? nullptr : holder->metadata.data();
  out->flags = flags;
  out->n_children = static_cast<std::int64_t>(num_children);
  out->children = holder->child_pointers.data();
  out->release = release_schema;
  out->private_data = holder.release();
}

/// One key-value pair in Arrow's encoding of metadata: counts and lengths are native int32.
std::string metadata_of(std::string_view key, std::string_view value) {
  std::string encoded;
  const auto add_count = [&](std::size_t count) {
    const auto value32 = static_cast<std::int32_t>(count);
    encoded.append(reinterpret_cast<const char*>(&value32), sizeof(value32));
  };
  add_count(1);
  for (const std::string_view text : {key, value}) {
    add_count(text.size());
    encoded.append(text);
  }
  return encoded;
}

/// Initialises `out` with the type of an element at dimension `dim` of a row's shape: a fixed-size
/// list, or beyond the last dimension a number, string or bytes.
void element_schema(const Column& column, std::size_t dim, std::string name, std::int64_t flags,
                    std::string metadata, ArrowSchema* out) {
  if (dim < column.shape.size()) {
    make_schema(out, "+w:" + std::to_string(column.shape[dim]), std::move(name), flags,
                std::move(metadata), 1, [&](std::size_t, ArrowSchema* child) {
                  element_schema(column, dim + 1, "item", 0, "", child);
                });
    return;
  }
  std::string format = column.kind == ColumnKind::string  ? "U"
                       : column.kind == ColumnKind::bytes ? "Z"
                                                          : letter_of(column.dtype);
  make_schema(out, std::move(format), std::move(name), flags, std::move(metadata), 0,
              [](std::size_t, ArrowSchema*) {});
}

/// A field of a struct: a column, or a record with fields.
struct ArrowField {
  std::string name;
  const Column* column = nullptr;  ///< null for a record
  std::size_t index = 0;           ///< index of the column
  std::vector<ArrowField> fields;
};

void field_schema(const ArrowField& field, ArrowSchema* out) {
  if (field.name.find('\0') != std::string::npos) {
    throw base::unsupported()
        .part("data set: column ", base::quote(field.name))
        .problem("names in Arrow's C interface end at a null character")
        .expected("a name without one")
        .found(base::quote(field.name))
        .remedy("rename() the column");
  }
  if (field.column == nullptr) {
    make_schema(out, "+s", field.name, 0, "", field.fields.size(),
                [&](std::size_t i, ArrowSchema* child) { field_schema(field.fields[i], child); });
    return;
  }
  const Column& column = *field.column;
  if (!column.is_text() && letter_of(column.dtype) == nullptr) {
    throw base::unsupported()
        .part("data set: column ", base::quote(column.name()))
        .problem("Arrow has no such type")
        .expected("integers, float16, float32, float64, bool or text")
        .found(column.dtype_name())
        .remedy("select() other columns");
  }
  constexpr std::int64_t kMaxListLength = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t length : column.shape) {
    if (length <= kMaxListLength) continue;
    throw base::unsupported()
        .part("data set: column ", base::quote(column.name()))
        .problem("Arrow has no such type")
        .expected("fixed-size lists of at most ", kMaxListLength, " elements")
        .found(length)
        .remedy("select() other columns");
  }
  const std::int64_t flags = column.nullable ? kNullable : 0;
  std::string metadata = column.unit.empty() ? "" : metadata_of("unit", column.unit);
  if (!column.ragged) {
    element_schema(column, 0, field.name, flags, std::move(metadata), out);
    return;
  }
  make_schema(
      out, "+L", field.name, flags, std::move(metadata), 1,
      [&](std::size_t, ArrowSchema* child) { element_schema(column, 0, "item", 0, "", child); });
}

/// The columns of `schema` as nested fields, which point to the columns in `schema`. A record is at
/// the position of its first column.
std::vector<ArrowField> arrow_fields(const Schema& schema) {
  std::vector<ArrowField> fields;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const Column& column = schema.columns()[i];
    std::vector<ArrowField>* level = &fields;
    for (std::size_t depth = 0; depth + 1 < column.path.size(); ++depth) {
      const std::string& name = column.path[depth];
      auto found = std::ranges::find_if(*level, [&](const ArrowField& field) {
        return field.column == nullptr && field.name == name;
      });
      if (found == level->end())
        found = level->insert(level->end(), ArrowField{name, nullptr, 0, {}});
      level = &found->fields;
    }
    level->push_back({column.path.back(), &column, i, {}});
  }
  return fields;
}

/// Initialises `out` with the type of `schema`: a struct of its columns, with nested structs for
/// records. Throws Error(unsupported), naming the column, for a dtype that Arrow lacks, a shape
/// with a dimension above 2^31 - 1, or a name with a null character.
void export_arrow_schema(const Schema& schema, ArrowSchema* out) {
  const ArrowField root{"", nullptr, 0, arrow_fields(schema)};
  field_schema(root, out);
}

/// The rows of one column that become one Arrow array.
struct ExportedRows {
  std::int64_t size = 0;
  Tensor values;  ///< contiguous: [size, *shape]; the elements of all ragged rows, or the bytes of
                  ///< all strings
  /// Ragged rows and strings: offsets [size + 1], starting at 0, in elements (for strings in bytes,
  /// for ragged strings in items).
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> item_offsets;  ///< ragged strings: offsets [items + 1], starting at 0,
                                           ///< in bytes
  Tensor valid;                            ///< bool [size]; empty: all rows have a value
};

std::vector<std::uint8_t> bits_of(const std::byte* bools, std::size_t count) {
  std::vector<std::uint8_t> bits((count + 7) / 8);
  for (std::size_t i = 0; i < count; ++i) {
    if (bools[i] != std::byte{0}) bits[i / 8] |= static_cast<std::uint8_t>(1U << (i % 8));
  }
  return bits;
}

/// Builds an array that keeps its buffers alive and owns its children until it is released.
class ArrowArrayMaker {
 public:
  ArrowArrayMaker(std::int64_t length, std::size_t num_children)
      : holder_(std::make_unique<Holder>()), length_(length) {
    holder_->children.resize(num_children, ArrowArray{});
    for (ArrowArray& child : holder_->children) holder_->child_pointers.push_back(&child);
  }

  /// Adds a null buffer.
  void add_null() { holder_->buffers.push_back(nullptr); }
  /// Adds the bytes at `data`, which `owner` keeps alive.
  void add(const void* data, Buffer owner) {
    holder_->buffers.push_back(data);
    holder_->owners.push_back(std::move(owner));
  }

  void add(std::vector<std::int64_t> offsets) {
    holder_->buffers.push_back(offsets.data());
    holder_->offsets.push_back(std::move(offsets));
  }

  void add(std::vector<std::uint8_t> bits) {
    holder_->buffers.push_back(bits.data());
    holder_->bits.push_back(std::move(bits));
  }

  /// Adds `valid` as bits, or a null buffer if it is empty or all true.
  void add_validity(const Tensor& valid) {
    const auto count = static_cast<std::size_t>(valid.numel());
    const std::span<const std::byte> bools(count == 0 ? nullptr : valid.raw_data(), count);
    null_count_ = std::ranges::count(bools, std::byte{0});
    if (null_count_ == 0) {
      add_null();
    } else {
      add(bits_of(bools.data(), count));
    }
  }

  ArrowArray* child(std::size_t i) { return &holder_->children[i]; }

  void move_to(ArrowArray* out) {
    *out = ArrowArray{};
    out->length = length_;
    out->null_count = null_count_;
    out->n_buffers = static_cast<std::int64_t>(holder_->buffers.size());
    out->buffers = holder_->buffers.data();
    out->n_children = static_cast<std::int64_t>(holder_->children.size());
    out->children = holder_->child_pointers.data();
    out->release = release;
    out->private_data = holder_.release();
  }

 private:
  struct Holder {
    std::vector<Buffer> owners;
    std::vector<std::vector<std::int64_t>> offsets;
    std::vector<std::vector<std::uint8_t>> bits;
    std::vector<const void*> buffers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray*> child_pointers;

    ~Holder() {
      for (ArrowArray& child : children) {
        if (child.release != nullptr) child.release(&child);
      }
    }
  };

  static void release(ArrowArray* array) {
    delete static_cast<Holder*>(array->private_data);
    array->release = nullptr;
  }

  std::unique_ptr<Holder> holder_;
  std::int64_t length_;
  std::int64_t null_count_ = 0;
};

/// Initialises `out` with an array of `length` elements at dimension `dim` of a row's shape.
/// `valid` applies to the outermost level.
void element_array(const Column& column, const Tensor& values, std::int64_t length, std::size_t dim,
                   const Tensor& valid, ArrowArray* out) {
  const bool is_list = dim < column.shape.size();
  ArrowArrayMaker maker(length, is_list ? 1 : 0);
  maker.add_validity(valid);
  if (is_list) {
    element_array(column, values, length * column.shape[dim], dim + 1, {}, maker.child(0));
  } else if (values.numel() == 0) {
    maker.add(std::vector<std::uint8_t>(8));
  } else if (values.dtype() == DType::bool_) {
    maker.add(bits_of(values.raw_data(), static_cast<std::size_t>(length)));
  } else {
    maker.add(values.raw_data(), values.buffer());
  }
  maker.move_to(out);
}

void text_array(const Tensor& bytes, std::vector<std::int64_t> offsets, const Tensor& valid,
                ArrowArray* out) {
  ArrowArrayMaker maker(static_cast<std::int64_t>(offsets.size()) - 1, 0);
  maker.add_validity(valid);
  maker.add(std::move(offsets));
  if (bytes.numel() == 0) {
    maker.add(std::vector<std::uint8_t>(8));
  } else {
    maker.add(bytes.raw_data(), bytes.buffer());
  }
  maker.move_to(out);
}

void export_arrow_column(const Column& column, const ExportedRows& rows, ArrowArray* out) {
  if (!column.has_ends()) {
    element_array(column, rows.values, rows.size, 0, rows.valid, out);
    return;
  }
  if (!column.ragged) {
    text_array(rows.values, rows.offsets, rows.valid, out);
    return;
  }
  ArrowArrayMaker maker(rows.size, 1);
  maker.add_validity(rows.valid);
  maker.add(std::vector<std::int64_t>(rows.offsets));
  if (column.is_text()) {
    text_array(rows.values, rows.item_offsets, {}, maker.child(0));
  } else {
    element_array(column, rows.values, rows.offsets.back(), 0, {}, maker.child(0));
  }
  maker.move_to(out);
}

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
/// because gathered batches mark missing values only by NaN. Appends the indices of these float
/// columns to `columns`.
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

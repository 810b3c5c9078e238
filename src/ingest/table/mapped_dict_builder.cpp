#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/mapped_dict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "dataset/row_bytes.hpp"
#include "dict/builder.hpp"
#include "dict/handle.hpp"
#include "dict/state.hpp"
#include "dict/walk.hpp"
#include "ingest/table/dict_table.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {
namespace {

/// Rows of a data set that are copied at a time.
constexpr std::int64_t kBatchRows = 1 << 14;

Column key_column(DictKeyType type) {
  Column key;
  key.path = {std::string(kDictKeyColumn)};
  switch (type) {
    case DictKeyType::string:
      key.kind = ColumnKind::string;
      break;
    case DictKeyType::bytes:
      key.kind = ColumnKind::bytes;
      break;
    case DictKeyType::int64:
      key.dtype = DType::int64;
      return key;
  }
  key.dtype = DType::uint8;
  return key;
}

Schema with_key(const Path& path, DictKeyType type, const Schema& values, DictValueForm form) {
  std::vector<Column> columns = {key_column(type)};
  for (const Column& column : values.columns()) {
    if (column.path[0] == kDictKeyColumn) {
      throw base::invalid_argument(path)
          .part("column ", base::quote(column.name()))
          .expected("a name other than that of the key column")
          .found("a column of values with this name");
    }
    columns.push_back(column);
  }
  if (!fits_form(values, form)) {
    throw base::invalid_argument(path)
        .part("schema")
        .expected("one column ", base::quote(kDictValueColumn),
                  form == DictValueForm::scalar ? ", of shape [] and not ragged," : "",
                  " for values that are not dicts")
        .found(shown_columns(values));
  }
  return Schema(std::move(columns));
}

/// Owns the memory to which a chunk made from a batch points.
struct ChunkMemory {
  Tensor values;
  Tensor valid;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> item_ends;
};

std::vector<std::int64_t> ends_of(const Tensor& offsets) {
  const auto numbers = offsets.span<std::int64_t>();
  std::vector<std::int64_t> ends(numbers.begin() + 1, numbers.end());
  for (std::int64_t& end : ends) end -= numbers.front();
  return ends;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes())};
}

/// Converts `rows`, which must have passed check_rows(), to a chunk of `column`.
ColumnChunk chunk_of(const Column& column, const BatchColumn& rows, std::int64_t num_rows,
                     ChunkMemory& memory) {
  ColumnChunk chunk;
  chunk.num_rows = num_rows;
  if (!column.has_ends()) {
    memory.values = values_of(column, rows, num_rows);
  } else {
    const Tensor& offsets = column.ragged && column.is_text() ? rows.item_offsets : rows.offsets;
    const auto numbers = offsets.span<std::int64_t>();
    memory.values = rows.values.narrow(numbers.front(), numbers.back()).contiguous();
    memory.ends = ends_of(rows.offsets);
    if (column.ragged && column.is_text()) memory.item_ends = ends_of(rows.item_offsets);
  }
  if (column.nullable) {
    memory.valid = valid_of(column, rows, num_rows);
    const auto valid = bytes_of(memory.valid);
    chunk.valid = {reinterpret_cast<const std::uint8_t*>(valid.data()), valid.size()};
  }
  chunk.values = bytes_of(memory.values);
  chunk.ends = memory.ends;
  chunk.item_ends = memory.item_ends;
  return chunk;
}

}  // namespace

void add_dict_index(TableWriter& table, const std::string& where, DictValueForm form,
                    DuplicateKeys duplicates, Monitor* monitor) {
  const std::vector<Column>& columns = table.schema().columns();
  const Column* key = table.schema().find(kDictKeyColumn);
  if (key == nullptr || key->path.size() != 1) {
    throw base::invalid_argument(where)
        .part("column ", base::quote(kDictKeyColumn))
        .expected("keys")
        .found("none");
  }
  const StoredColumn stored = table.map_column(static_cast<std::size_t>(key - columns.data()));
  const StoredKeys keys = StoredKeys::of(*key, stored, table.num_rows(), where);
  const std::size_t index =
      table.begin_extra(std::string(kDictKeyColumn) + ".index", DType::int64, {kDictSlots});
  const DictBuildOptions options{
      .duplicates = duplicates, .spill = &table.folder(), .monitor = monitor};
  build_dict_index(keys, options, [&](std::uint64_t offset_bytes, auto bytes) {
    if (offset_bytes == 0) table.restart_extra(index);
    table.append_extra(index, bytes);
  });
  const DictNote note{.index = table.extra_name(index), .form = form};
  table.set_schema_member(kDictMember, note.to_value());
}

struct MappedDictBuilder::State {
  State(const Path& target, DictKeyType type, const Schema& schema, const MappedDictOptions& with,
        DictValueForm form)
      : path(target), keys(type), table(path, with_key(path, type, schema, form), [&] {
          TableWriterOptions options;
          options.overwrite = with.overwrite;
          options.durable = with.durable;
          options.monitor = with.monitor;
          options.expected_rows = with.expected_keys;
          options.before_commit = [where = path.string(), form, duplicates = with.duplicates,
                                   monitor = with.monitor](TableWriter& writer) {
            add_dict_index(writer, where, form, duplicates, monitor);
          };
          return options;
        }()) {}

  ColumnChunk chunk_of_keys(const DictKeys& some) {
    if (const auto* ints = std::get_if<0>(&some.views())) {
      if (keys != DictKeyType::int64) refuse_keys("int64");
      ColumnChunk chunk;
      chunk.num_rows = static_cast<std::int64_t>(ints->size());
      chunk.values = std::as_bytes(*ints);
      return chunk;
    }
    if (keys == DictKeyType::int64) refuse_keys("str or bytes");
    const auto& texts = std::get<1>(some.views());
    const base::Where where(path);
    text.clear();
    ends.clear();
    for (const std::string_view one : texts) {
      if (keys == DictKeyType::string) check_utf8(one, where);
      text += one;
      ends.push_back(static_cast<std::int64_t>(text.size()));
    }
    ColumnChunk chunk;
    chunk.num_rows = static_cast<std::int64_t>(texts.size());
    chunk.values = std::as_bytes(std::span(text));
    chunk.ends = ends;
    return chunk;
  }
  [[noreturn]] void refuse_keys(const char* found) const {
    throw base::invalid_argument(path).part("keys").expected(to_string(keys)).found(found);
  }

  Path path;
  DictKeyType keys;
  TableWriter table;
  std::string text;
  std::vector<std::int64_t> ends;
};

MappedDictBuilder::MappedDictBuilder(const Path& path, DictKeyType keys, const Schema& schema,
                                     const MappedDictOptions& options, DictValueForm form)
    : state_(std::make_unique<State>(path, keys, schema, options, form)) {}
MappedDictBuilder::~MappedDictBuilder() = default;

void MappedDictBuilder::append(const DictKeys& keys, const Batch& values) {
  State& state = *state_;
  std::vector<ColumnChunk> chunks = {state.chunk_of_keys(keys)};
  if (chunks[0].num_rows != values.num_rows()) {
    throw base::invalid_argument(state.path)
        .part("values")
        .expected("a row for each of ", chunks[0].num_rows, " keys")
        .found(values.num_rows());
  }
  const std::vector<Column>& columns = state.table.schema().columns();
  check_rows(Schema({columns.begin() + 1, columns.end()}), values, state.path.string());
  std::vector<ChunkMemory> memory(columns.size());
  for (std::size_t i = 1; i < columns.size(); ++i) {
    chunks.push_back(
        chunk_of(columns[i], *find_column(values, columns[i]), values.num_rows(), memory[i]));
  }
  state.table.append(chunks);
}

void MappedDictBuilder::commit() { state_->table.commit(); }

namespace {

/// The keys of a data set, and its other columns.
struct Source {
  Dataset keys;
  Dataset values;
  DictKeyType type;
};

/// Integer dtypes whose values all fit int64.
bool is_key_dtype(DType dtype) { return is_integer(dtype) && dtype != DType::uint64; }

Tensor as_int64(const Tensor& keys) {
  if (keys.dtype() == DType::int64) return keys;
  Tensor made = Tensor::zeros(DType::int64, keys.shape());
  if (keys.numel() == 0) return made;
  cast_elements(keys.dtype(), keys.raw_data(), DType::int64, made.mutable_raw_data(),
                static_cast<std::size_t>(keys.numel()));
  return made;
}

Source source_of(const Path& path, const Dataset& source, std::string_view key) {
  const Column* column = source.schema().find(key);
  Dataset keys = source.select({std::string(key)});
  if (column == nullptr || keys.schema().size() != 1) {
    throw base::invalid_argument(path)
        .part("column ", base::quote(key))
        .expected("one column of keys")
        .found("a record");
  }
  const bool is_int = !column->has_ends() && is_key_dtype(column->dtype) && column->shape.empty();
  if (column->nullable || column->ragged || (!is_int && !column->is_text())) {
    throw base::invalid_argument(path)
        .part("column ", base::quote(column->name()))
        .expected("keys (string, bytes or integers except uint64, none of them missing)")
        .found(column->dtype_name(),
               (column->shape.empty() ? "" : " " + base::list_text(column->shape)),
               (column->ragged ? ", ragged" : ""), (column->nullable ? ", nullable" : ""));
  }
  const DictKeyType type = is_int                               ? DictKeyType::int64
                           : column->kind == ColumnKind::string ? DictKeyType::string
                                                                : DictKeyType::bytes;
  const auto index = static_cast<std::size_t>(column - source.schema().columns().data());
  return {std::move(keys), dataset_of(without_column(*state_of(source), index)), type};
}

}  // namespace

void build_mapped_dict(const Path& path, const Dataset& source, std::string_view key,
                       const MappedDictOptions& options) {
  const Source from = source_of(path, source, key);
  MappedDictOptions all = options;
  all.expected_keys = source.size();
  MappedDictBuilder builder(path, from.type, from.values.schema(), all);
  std::vector<std::string_view> texts;
  for (std::int64_t begin = 0; begin < source.size(); begin += kBatchRows) {
    const std::int64_t end = std::min(source.size(), begin + kBatchRows);
    const Batch keys = from.keys.rows(begin, end);
    const Batch values = from.values.rows(begin, end);
    if (from.type == DictKeyType::int64) {
      const Tensor ints = as_int64(keys.columns()[0].values);
      builder.append(ints.span<std::int64_t>(), values);
      continue;
    }
    texts.clear();
    for (std::int64_t row = 0; row < end - begin; ++row) {
      texts.push_back(keys.text(keys.columns()[0].column.name(), row));
    }
    builder.append(std::span<const std::string_view>(texts), values);
  }
  builder.commit();
}

void MappedDict::compact(Monitor* monitor) {
  handle_->replace([&](const std::shared_ptr<const DictState>& source) {
    const Path path = source->keys.where.path;
    MappedDictOptions options;
    options.monitor = monitor;
    options.expected_keys = source->num_keys();
    MappedDictBuilder builder(path, source->keys.type, source->values->schema, options,
                              source->form);
    DictWalk walk(source, [&](const DictKeys& keys) {
      FoundRows found{source, std::vector<std::int64_t>(num_keys_of(keys))};
      find_rows(*source, keys, found.rows);
      return found;
    });
    for (auto block = walk.next(); !block.rows.empty(); block = walk.next()) {
      const Batch values = gather(*source->values, block.rows, {});
      if (source->keys.is_text()) {
        std::vector<std::string_view> texts;
        for (const std::int64_t row : block.places) texts.push_back(source->keys.text(row));
        builder.append(std::span<const std::string_view>(texts), values);
      } else {
        std::vector<std::int64_t> numbers;
        for (const std::int64_t row : block.places) numbers.push_back(source->keys.number(row));
        builder.append(std::span<const std::int64_t>(numbers), values);
      }
    }
    // The builder has locked the folder at the path since it was created. Before that, another
    // handle may have added rows, or replaced the folder.
    if (num_rows_now(*source) > source->keys.num_rows || source->place.root->was_replaced()) {
      throw Error::io(EBUSY, path.string())
          .part("compact")
          .expected("no concurrent writer")
          .found("a writer that added rows or replaced the dictionary; nothing was changed")
          .remedy("call compact() again");
    }
    builder.commit();
  });
}

}  // namespace tenfold

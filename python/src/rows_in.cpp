#include "rows_in.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "array_in.hpp"
#include "core/tensor/promote.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "python_objects.hpp"
#include "row_reader.hpp"

namespace tenfold::python {
namespace {

/// Converts all rows of a column. An array that already has the dtype and row shape of the column,
/// and whose column has no end offsets, is copied only if array_from() has to copy it.
BatchColumn column_from(const Column& column, nb::handle values, bool keeps_kinds = true) {
  const bool is_list = PyList_Check(values.ptr()) || PyTuple_Check(values.ptr());
  if (is_list || column.has_ends()) {
    const auto num_rows = static_cast<std::int64_t>(nb::len(values));
    RowTable table(Schema({column}), num_rows, keeps_kinds);
    nb::dict columns;
    columns[nb::make_tuple(text(column.name()))] = values;
    RowReader(table).add_columns(columns, 0, num_rows);
    return std::move(table.take_rows()).columns()[0];
  }
  const std::optional<Tensor> array = array_from(values);
  if (!array) return column_from(column, simple_value(values));
  if (array->ndim() == 0) throw BadValue{"", "expected an array of rows, found one number"};
  Column found;
  found.dtype = array->dtype();
  found.shape.assign(array->shape().begin() + 1, array->shape().end());
  if (has_same_storage(found, column)) {
    BatchColumn made;
    made.column = column;
    made.values = *array;
    return made;
  }
  if (!keeps_kind(found.dtype, column.dtype)) {
    throw BadValue{"", "expected " + described(column) + ", found " + described(found)};
  }
  std::vector<BadValue> bad;
  ColumnBuilder made = fit_chunk(found, {array->shape()[0], array->bytes()}, column, bad);
  if (!bad.empty()) throw BadValue(bad[0]);
  return batch_column(column, std::move(made));
}

/// Converts an array or list of numbers to a tensor.
Tensor tensor_from(DType dtype, const Shape& row_shape, nb::handle values,
                   bool keeps_kinds = true) {
  Column column;
  column.path = {"values"};
  column.dtype = dtype;
  column.shape = row_shape;
  return column_from(column, values, keeps_kinds).values;
}

}  // namespace

Tensor numbers_from(DType dtype, nb::list values) {
  return tensor_from(dtype, {}, values, dtype != DType::bool_);
}

Batch batch_of_rows(const Schema& schema, nb::list rows, const std::string& unit,
                    std::int64_t begin, bool some, bool exact) {
  RowTable table(schema, static_cast<std::int64_t>(rows.size()), true, some);
  for (std::size_t i = 0; exact && i < table.num_columns(); ++i) table.column(i).require_exact();
  RowReader reader(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      reader.add(nb::object(rows[i]));
    } catch (const BadValue& bad) {
      throw error_of_row(ErrorCode::invalid_argument, "",
                         unit + std::to_string(begin + static_cast<std::int64_t>(i)), bad);
    }
  }
  return table.take_rows();
}

Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle rows,
                 std::int64_t first_row, bool some) {
  if (nb::isinstance<nb::list>(rows)) {
    return batch_of_rows(schema, nb::borrow<nb::list>(rows), "row ", first_row, some);
  }
  std::vector<BatchColumn> made;
  for (const nb::handle entry : rows) {
    const Column& column = schema.columns().at(nb::cast<std::size_t>(entry[0]));
    BatchColumn& into = made.emplace_back();
    try {
      if (const nb::object offsets = entry[2]; !offsets.is_none()) {
        into.values = tensor_from(column.dtype, column.shape, nb::object(entry[1]));
        into.offsets = tensor_from(DType::int64, {}, offsets).contiguous();
      } else {
        into = column_from(column, nb::object(entry[1]));
      }
      if (const nb::object valid = entry[3]; !valid.is_none()) {
        into.valid = tensor_from(DType::bool_, {}, valid);
      }
    } catch (BadValue& bad) {
      bad.column = column.name();
      const bool has_row = bad.row >= 0 && num_rows > 1;
      throw error_of_row(ErrorCode::invalid_argument, "",
                         has_row ? "row " + std::to_string(bad.row) : "", bad);
    }
    into.column = column;
  }
  return {num_rows, std::move(made)};
}

std::optional<Batch> plain_batch_from(const Schema& schema, nb::handle rows) {
  const std::vector<Column>& columns = schema.columns();
  if (dict_size(rows.ptr()) != columns.size()) return std::nullopt;
  std::int64_t num_rows = -1;
  std::vector<BatchColumn> made;
  made.reserve(columns.size());
  for (const Column& column : columns) {
    if (column.has_ends() || column.nullable || column.path.size() != 1) return std::nullopt;
    PyObject* found = PyDict_GetItemWithError(rows.ptr(), text(column.path[0]).ptr());
    if (found == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return std::nullopt;
    }
    std::optional<Tensor> tensor = tensor_of_torch(found);
    const bool fits =
        tensor && tensor->dtype() == column.dtype &&
        tensor->shape().size() == column.shape.size() + 1 &&
        std::equal(column.shape.begin(), column.shape.end(), tensor->shape().begin() + 1);
    if (!fits || (num_rows >= 0 && tensor->shape()[0] != num_rows)) return std::nullopt;
    num_rows = tensor->shape()[0];
    BatchColumn& into = made.emplace_back();
    into.column = column;
    into.values = std::move(*tensor);
  }
  if (num_rows < 0) return std::nullopt;
  return Batch(num_rows, std::move(made));
}

}  // namespace tenfold::python

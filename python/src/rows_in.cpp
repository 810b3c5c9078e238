#include "rows_in.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "array_in.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "ingest/table/column_builder.hpp"
#include "python_objects.hpp"
#include "tree_in.hpp"

namespace tenfold::python {
namespace {

[[noreturn]] void raise_type(const Column& column, nb::handle found) {
  const char* expected = column.kind == ColumnKind::string ? "str" : "bytes";
  const std::string message = "column \"" + column.name() + "\": expected " + expected +
                              ", found " + std::string(type_name(found.ptr()));
  PyErr_SetObject(PyExc_TypeError, text(message).ptr());
  throw nb::python_error();
}

Tensor tensor_from(nb::handle object) {
  if (std::optional<Tensor> tensor = tensor_of_torch(object)) return std::move(*tensor);
  nb::dict only;
  only["values"] = object;
  return TreeBuilder("rows").root(only, false).at("values");
}

/// Appends a str or bytes; nothing for None.
void add_text(nb::handle item, const Column& column, ColumnBuilder& into) {
  if (item.is_none()) return;
  if (column.kind == ColumnKind::bytes) {
    if (!PyBytes_Check(item.ptr())) raise_type(column, item);
    return into.values.append(bytes_text(item.ptr()));
  }
  if (!PyUnicode_Check(item.ptr())) raise_type(column, item);
  Py_ssize_t size = 0;
  const char* characters = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
  if (characters == nullptr) {
    PyErr_Clear();
    throw base::invalid_argument()
        .part("column ", base::quote(column.name()))
        .expected("text")
        .found("a str with a lone surrogate, which UTF-8 cannot encode");
  }
  into.values.append(std::string_view(characters, static_cast<std::size_t>(size)));
}

BatchColumn text_column(nb::handle rows, const Column& column) {
  ColumnBuilder made(column);
  for (const nb::handle row : rows) {
    if (!column.ragged) {
      add_text(row, column, made);
    } else if (!row.is_none()) {
      for (const nb::handle item : row) {
        add_text(item, column, made);
        made.end_item();
      }
    }
    made.end_row();
  }
  return batch_column(column, made.view());
}

}  // namespace

Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle columns) {
  std::vector<BatchColumn> made;
  for (const nb::handle entry : columns) {
    BatchColumn column;
    column.column = schema.columns().at(nb::cast<std::size_t>(entry[0]));
    if (column.column.is_text()) {
      column = text_column(nb::object(entry[1]), column.column);
    } else {
      column.values = tensor_from(nb::object(entry[1]));
      if (column.column.ragged) column.offsets = tensor_from(nb::object(entry[2])).contiguous();
    }
    if (const nb::object valid = entry[3]; !valid.is_none()) column.valid = tensor_from(valid);
    made.push_back(std::move(column));
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

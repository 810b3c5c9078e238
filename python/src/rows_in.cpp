#include "rows_in.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tenfold/error.hpp>

#include "array_in.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
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

/// Concatenated strings, and their end offsets.
class Texts {
 public:
  explicit Texts(const Column& column) : column_(column) {}

  void add(nb::handle item) {
    if (item.is_none()) {
      ends_.push_back(static_cast<std::int64_t>(bytes_.size()));
      return;
    }
    if (column_.kind == ColumnKind::string) {
      if (!PyUnicode_Check(item.ptr())) raise_type(column_, item);
      Py_ssize_t size = 0;
      const char* characters = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
      if (characters == nullptr) {
        PyErr_Clear();
        throw base::invalid_argument()
            .part("column ", base::quote(column_.name()))
            .expected("text")
            .found("a str with a lone surrogate, which UTF-8 cannot encode");
      }
      bytes_.append(characters, static_cast<std::size_t>(size));
    } else {
      if (!PyBytes_Check(item.ptr())) raise_type(column_, item);
      bytes_.append(bytes_text(item.ptr()));
    }
    ends_.push_back(static_cast<std::int64_t>(bytes_.size()));
  }

  std::int64_t count() const { return static_cast<std::int64_t>(ends_.size()) - 1; }
  Tensor offsets() const { return Tensor::from(std::span<const std::int64_t>(ends_)); }
  Tensor values() const {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes_.data());
    return Tensor::from(std::span<const std::uint8_t>(begin, bytes_.size()));
  }

 private:
  const Column& column_;
  std::string bytes_;
  std::vector<std::int64_t> ends_ = {0};
};

void take_text(nb::handle rows, BatchColumn& into) {
  Texts texts(into.column);
  if (!into.column.ragged) {
    for (const nb::handle row : rows) texts.add(row);
    into.offsets = texts.offsets();
  } else {
    std::vector<std::int64_t> ends = {0};
    for (const nb::handle row : rows) {
      if (!row.is_none()) {
        for (const nb::handle item : row) texts.add(item);
      }
      ends.push_back(texts.count());
    }
    into.offsets = Tensor::from(std::span<const std::int64_t>(ends));
    into.item_offsets = texts.offsets();
  }
  into.values = texts.values();
}

}  // namespace

Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle columns) {
  std::vector<BatchColumn> made;
  for (const nb::handle entry : columns) {
    BatchColumn column;
    column.column = schema.columns().at(nb::cast<std::size_t>(entry[0]));
    if (column.column.is_text()) {
      take_text(nb::object(entry[1]), column);
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

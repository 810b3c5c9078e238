#include <tenfold/sparse_builder.hpp>
#include <tenfold/sparse_matrix.hpp>

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "array_out.hpp"
#include "base/fail.hpp"
#include "batch_out.hpp"
#include "call.hpp"
#include "ingest/bad_row.hpp"
#include "rows_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

SparseLayout layout_from(const std::string& name) {
  if (const auto layout = sparse_layout_from_name(name)) return *layout;
  throw base::invalid_argument()
      .part("sparse matrix: layout")
      .expected("\"csr\", \"csc\" or \"coo\"")
      .found("\"", name, "\"");
}

RowsLayout rows_layout_from(const std::string& name) {
  if (const auto layout = rows_layout_from_name(name)) return *layout;
  throw base::invalid_argument()
      .part("sparse matrix: layout")
      .expected("\"dense\", \"csr\", \"coo\" or \"padded\"")
      .found("\"", name, "\"");
}

/// Returns (layout, number of rows, number of columns, number of entries, dtype, dtype of the
/// indices, location).
nb::tuple describe_matrix(const SparseMatrix& self) {
  return nb::make_tuple(text(to_string(self.layout())), self.num_rows(), self.num_cols(),
                        self.nnz(), text(to_string(self.dtype())),
                        text(to_string(self.index_dtype())), text(self.where()));
}

/// Returns the arrays of a layout:
///
///   dense    (values,)
///   csr      (crow_indices, col_indices, values, shape)
///   coo      (indices, values, shape)
///   padded   (indices, values, lengths)
nb::tuple arrays_of(const SparseRows& rows) {
  const auto array = [](const Tensor& tensor) { return array_of(tensor, "rows"); };
  const auto shape = [&] { return nb::make_tuple(rows.num_rows, rows.num_cols); };
  switch (rows.layout) {
    case RowsLayout::csr:
      return nb::make_tuple(array(rows.crow_indices), array(rows.indices), array(rows.values),
                            shape());
    case RowsLayout::coo:
      return nb::make_tuple(array(rows.indices), array(rows.values), shape());
    case RowsLayout::padded:
      return nb::make_tuple(array(rows.indices), array(rows.values), array(rows.lengths));
    case RowsLayout::dense:
      break;
  }
  return nb::make_tuple(array(rows.values));
}

nb::tuple matrix_rows(const SparseMatrix& self, AnyObject rows, const std::string& layout) {
  const RowsLayout wanted = rows_layout_from(layout);
  const auto numbers = positions_from(rows, self.num_rows());
  return arrays_of(without_gil([&] { return self.rows(numbers, wanted); }));
}

nb::tuple cols_of(const SparseMatrix& self, AnyObject columns, const std::string& layout) {
  const RowsLayout wanted = rows_layout_from(layout);
  const auto numbers = positions_from(columns, self.num_cols(), "column");
  return arrays_of(without_gil([&] { return self.cols(numbers, wanted); }));
}

void will_need(const SparseMatrix& self, AnyObject rows) {
  const auto numbers = positions_from(rows, self.num_rows());
  without_gil([&] { self.will_need(numbers); });
}

SparseMatrix open_matrix(PathArgument path, const std::string& mode) {
  const Path source = path_from(path);
  const Mode how = mode_from(mode);
  return without_gil([&] { return SparseMatrix(source, how); });
}

/// `parts`: a node with the component tensors in the order of the parameters of
/// torch.sparse_csr_tensor(), or of the torch function for another layout. Its keys are ignored.
SparseMatrix of_parts(const std::string& layout, const NodeHandle& parts, std::int64_t num_rows,
                      std::int64_t num_cols) {
  const SparseLayout how = layout_from(layout);
  return without_gil([&] {
    std::vector<Tensor> tensors;
    for (const std::string& key : parts.node.keys()) tensors.push_back(parts.node.at(key));
    return SparseMatrix::of_parts(how, num_rows, num_cols, tensors);
  });
}

/// An array that shares the memory of the component tensor `part`.
AnyObject part_of(const SparseMatrix& self, const std::string& part) {
  const Tensor tensor = without_gil([&] { return self.tree().at(part); });
  return array_of(tensor, self.where() + ": " + part);
}

/// Builds a sparse matrix from chunks of coordinates.
struct Builder {
  Builder(std::int64_t num_rows, std::int64_t num_cols, const std::string& dtype_name,
          const std::string& layout, const std::string& index_dtype, bool sum_duplicates,
          std::uint64_t memory_bytes, PathArgument folder)
      : dtype(dtype_from(dtype_name)) {
    SparseBuilderOptions options;
    options.layout = layout_from(layout);
    options.index_dtype = dtype_from(index_dtype);
    options.sum_duplicates = sum_duplicates;
    options.memory_bytes = memory_bytes;
    if (!folder.is_none()) options.temporary_folder = path_from(folder);
    builder = std::make_unique<SparseBuilder>(num_rows, num_cols, dtype, options);
  }
  void add(const NodeHandle& chunk) {
    without_gil([&] {
      builder->add(chunk.node.at("rows"), chunk.node.at("cols"), chunk.node.at("values"));
    });
  }
  /// `rows`, `cols` (ints) and `values`: the entries. Throws Error(invalid_argument) for a value
  /// that is not a number that the dtype can hold; the message names its row.
  void add_entries(nb::list rows, nb::list cols, nb::list values) {
    const Tensor row_indices = numbers_from(DType::int64, rows);
    const Tensor col_indices = numbers_from(DType::int64, cols);
    Tensor elements;
    try {
      elements = numbers_from(dtype, values);
    } catch (BadValue& bad) {
      const auto i = static_cast<std::size_t>(bad.row);
      bad.column.clear();
      // The engine's message for a null describes columns of data sets.
      if (values[i].is_none()) {
        bad.what = "expected " + std::string(to_string(dtype)) + ", found None";
      }
      const std::string row = std::to_string(nb::cast<std::int64_t>(rows[i]));
      const Error error =
          error_of_row(ErrorCode::invalid_argument, "", "sparse matrix: row " + row, bad);
      // No dtype can hold None.
      throw values[i].is_none() ? error : Error(error).remedy("pass another dtype to build()");
    }
    without_gil([&] { builder->add(row_indices, col_indices, elements); });
  }
  void add_matrix(const SparseMatrix& matrix, ProgressArgument progress) {
    monitored(std::move(progress), [&](Monitor* monitor) { builder->add(matrix, monitor); });
  }
  /// A negative number stands for as many rows or columns as the added coordinates need.
  void resize(std::int64_t num_rows, std::int64_t num_cols) {
    builder->resize(num_rows < 0 ? builder->rows_needed() : num_rows,
                    num_cols < 0 ? builder->cols_needed() : num_cols);
  }
  SparseMatrix finish(ProgressArgument progress) {
    return monitored(std::move(progress),
                     [&](Monitor* monitor) { return builder->finish(monitor); });
  }
  DType dtype;
  std::unique_ptr<SparseBuilder> builder;
};

}  // namespace

void bind_sparse_matrix(nb::module_& module) {
  nb::class_<SparseMatrix>(module, "SparseMatrix")
      .def_static("open_path", open_matrix, "path"_a, "mode"_a)
      .def_static("of_tree",
                  [](const NodeHandle& tree) {
                    return without_gil([&] { return SparseMatrix(tree.node); });
                  })
      .def_static("of_parts", of_parts, "layout"_a, "parts"_a, "num_rows"_a, "num_cols"_a)
      .def("describe", describe_matrix)
      .def("at",
           [](const SparseMatrix& self, std::int64_t row, std::int64_t column) -> AnyObject {
             return array_of(without_gil([&] { return self.at(row, column); }), "element");
           })
      .def("rows", matrix_rows, "rows"_a, "layout"_a)
      .def("will_need", will_need, "rows"_a)
      .def("cols", cols_of, "columns"_a, "layout"_a)
      .def("transposed",
           [](const SparseMatrix& self) { return without_gil([&] { return self.transposed(); }); })
      .def("check", [](const SparseMatrix& self) { without_gil([&] { self.check(); }); })
      .def("part", part_of, "part"_a)
      .def("tree", [](const SparseMatrix& self) { return NodeHandle{self.tree()}; })
      .def("append_rows",
           [](SparseMatrix& self, const SparseMatrix& rows) {
             without_gil([&] { self.append_rows(rows); });
           })
      .def("flush", [](SparseMatrix& self) { without_gil([&] { self.flush(); }); })
      .def("close", [](SparseMatrix& self) { without_gil([&] { self.close(); }); })
      .def("refresh", [](SparseMatrix& self) { without_gil([&] { self.refresh(); }); });
  nb::class_<Builder>(module, "SparseBuilder")
      .def(nb::init<std::int64_t, std::int64_t, const std::string&, const std::string&,
                    const std::string&, bool, std::uint64_t, PathArgument>(),
           "num_rows"_a, "num_cols"_a, "dtype"_a, "layout"_a, "index_dtype"_a, "sum_duplicates"_a,
           "memory_bytes"_a, "folder"_a.none())
      .def("add", &Builder::add, "chunk"_a)
      .def("add_entries", &Builder::add_entries, "rows"_a, "cols"_a, "values"_a)
      .def("add_matrix", &Builder::add_matrix, "matrix"_a, "progress"_a.none())
      .def("resize", &Builder::resize, "num_rows"_a, "num_cols"_a)
      .def("finish", &Builder::finish, "progress"_a.none());
}

}  // namespace tenfold::python

#include "batch_out.hpp"

#include <algorithm>
#include <utility>

#include "array_out.hpp"
#include "dataset/leaf_names.hpp"

namespace tenfold::python {
namespace {

nb::object text_object(ColumnKind kind, const std::byte* bytes, std::int64_t size) {
  const auto* characters = reinterpret_cast<const char*>(bytes);
  if (kind == ColumnKind::string) return text({characters, static_cast<std::size_t>(size)});
  return nb::steal(PyBytes_FromStringAndSize(characters, static_cast<Py_ssize_t>(size)));
}

/// Items [begin, end) as a list of str or bytes.
nb::list texts(const BatchColumn& column, const Tensor& offsets, std::int64_t begin,
               std::int64_t end) {
  nb::list made;
  const auto* ends = offsets.data<std::int64_t>();
  const std::byte* bytes = column.values.raw_data();
  for (std::int64_t i = begin; i < end; ++i) {
    made.append(text_object(column.column.kind, bytes + ends[i], ends[i + 1] - ends[i]));
  }
  return made;
}

nb::object texts_of(const BatchColumn& column, bool is_row) {
  const std::int64_t rows = column.offsets.shape()[0] - 1;
  if (!column.column.ragged) {
    nb::list all = texts(column, column.offsets, 0, rows);
    if (is_row) return nb::object(all[0]);
    return all;
  }
  const auto* ends = column.offsets.data<std::int64_t>();
  nb::list lists;
  for (std::int64_t i = 0; i < rows; ++i) {
    lists.append(texts(column, column.item_offsets, ends[i], ends[i + 1]));
  }
  if (is_row) return nb::object(lists[0]);
  return lists;
}

nb::object array(const Tensor& tensor, bool is_row, const Column& column) {
  return array_of(is_row ? tensor.select(0) : tensor, column.name());
}

void set(const nb::object& dict, const nb::object& key, const nb::object& value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
}

}  // namespace

BatchMaker::BatchMaker(const Schema& schema, nb::object ragged) : ragged_(std::move(ragged)) {
  for (const Column& column : schema.columns()) {
    std::vector<nb::object> keys;
    for (const std::string& key : column.path) keys.push_back(text(key));
    keys_.push_back(std::move(keys));
    const auto beside = [&](std::string_view suffix) {
      KeyPath path = column.path;
      path.back() += suffix;
      const bool is_column = std::any_of(schema.columns().begin(), schema.columns().end(),
                                         [&](const Column& other) { return other.path == path; });
      return is_column ? nb::object() : nb::object(text(path.back()));
    };
    valid_keys_.push_back(beside(kValiditySuffix));
    length_keys_.push_back(beside(".length"));
  }
}

nb::object BatchMaker::value(const BatchColumn& column, bool is_row) const {
  const Column& about = column.column;
  if (about.is_text()) return texts_of(column, is_row);
  if (!about.ragged || column.is_padded) return array(column.values, is_row, about);
  if (is_row) return array(column.values, false, about);
  return ragged_(array(column.values, false, about), array(column.offsets, false, about));
}

nb::object BatchMaker::dict_of(const Batch& batch, bool is_row) const {
  nb::object made = nb::dict();
  for (std::size_t i = 0; i < batch.columns().size(); ++i) {
    const BatchColumn& column = batch.columns()[i];
    nb::object into = made;
    for (std::size_t k = 0; k + 1 < keys_[i].size(); ++k) {
      PyObject* record = PyDict_GetItemWithError(into.ptr(), keys_[i][k].ptr());
      nb::object child = record != nullptr ? nb::borrow(record) : nb::object(nb::dict());
      if (record == nullptr) set(into, keys_[i][k], child);
      into = std::move(child);
    }
    set(into, keys_[i].back(), value(column, is_row));
    if (column.valid.dtype() == DType::bool_ && valid_keys_[i].is_valid()) {
      set(into, valid_keys_[i], array(column.valid, is_row, column.column));
    }
    if (column.is_padded && length_keys_[i].is_valid()) {
      set(into, length_keys_[i], array(column.lengths, is_row, column.column));
    }
  }
  return made;
}

nb::object BatchMaker::batch(const Batch& batch) const { return dict_of(batch, false); }

nb::object BatchMaker::row(const Batch& batch) const { return dict_of(batch, true); }

}  // namespace tenfold::python

#include "dict/keys.hpp"

#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"

namespace tenfold {

std::string to_string(DictKeyType type) {
  switch (type) {
    case DictKeyType::string:
      return "str";
    case DictKeyType::bytes:
      return "bytes";
    case DictKeyType::int64:
      break;
  }
  return "int";
}

StoredKeys StoredKeys::of(const Column& column, const StoredColumn& stored, std::int64_t num_rows,
                          base::Where where) {
  StoredKeys keys;
  keys.where = std::move(where);
  keys.num_rows = num_rows;
  const bool is_text = column.is_text() && !column.ragged;
  const bool is_int = !column.has_ends() && column.dtype == DType::int64 && column.shape.empty();
  if (column.nullable || (!is_text && !is_int)) {
    throw base::invalid_argument(keys.where)
        .part("column ", base::quote(column.name()))
        .expected("keys (string, bytes or int64, none of them missing)")
        .found(column.dtype_name(),
               (column.shape.empty() ? "" : " " + base::list_text(column.shape)),
               (column.ragged ? ", ragged" : ""), (column.nullable ? ", nullable" : ""));
  }
  keys.type = is_int                              ? DictKeyType::int64
              : column.kind == ColumnKind::string ? DictKeyType::string
                                                  : DictKeyType::bytes;
  keys.memory = contiguous_of_file(stored.values, keys.where);
  keys.values = keys.memory.raw_data();
  keys.num_bytes = keys.memory.nbytes();
  if (is_text && num_rows > 0) keys.ends = stored.ends.data<std::int64_t>();
  return keys;
}

void StoredKeys::fail(std::int64_t row) const {
  throw base::corrupt(where)
      .part("key of row ", row)
      .expected("nondecreasing end offsets from 0 to ", num_bytes)
      .found("other offsets")
      .remedy("the dictionary is damaged");
}

std::string StoredKeys::shown(std::int64_t row) const {
  return is_text() ? shown_key(text(row)) : shown_key(number(row));
}

void check_utf8(std::string_view key, const base::Where& where) {
  if (base::is_utf8(key)) return;
  throw base::invalid_argument(where)
      .part("key ", shown_key(key))
      .expected("a string in UTF-8")
      .found("other bytes")
      .remedy("build a dictionary of bytes");
}

std::string shown_key(std::string_view key) { return base::quote(key, 80); }

std::string shown_key(std::int64_t key) { return std::to_string(key); }

}  // namespace tenfold

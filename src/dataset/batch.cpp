#include <string>

#include <tenfold/batch.hpp>
#include <tenfold/error.hpp>

#include "base/text.hpp"

namespace tenfold {

const BatchColumn& Batch::column(std::string_view name) const& {
  for (const BatchColumn& column : columns_) {
    if (column.column.path.size() == 1 && column.column.path[0] == name) return column;
  }
  for (const BatchColumn& column : columns_) {
    if (column.column.path.size() > 1 && column.column.name() == name) return column;
  }
  throw Error(ErrorCode::key_not_found, "batch: no column " + base::quote(name));
}

std::string_view Batch::text(std::string_view name, std::int64_t row) const& {
  const BatchColumn& found = column(name);
  if (!found.column.is_text() || found.column.ragged || row < 0 || row >= num_rows_) {
    throw Error(ErrorCode::invalid_argument,
                "batch: column " + base::quote(name) +
                    ": expected a text column and a row in [0, " + std::to_string(num_rows_) +
                    "), found " + found.column.dtype_name() + " and row " + std::to_string(row));
  }
  const auto* offsets = found.offsets.data<std::int64_t>() + row;
  const auto* bytes = reinterpret_cast<const char*>(found.values.raw_data());
  return {bytes + offsets[0], static_cast<std::size_t>(offsets[1] - offsets[0])};
}

}  // namespace tenfold

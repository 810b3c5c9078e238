#include <string>

#include <tenfold/batch.hpp>
#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/compatible_columns.hpp"

namespace tenfold {

const BatchColumn& Batch::column(std::string_view name) const& {
  for (const BatchColumn& column : columns_) {
    if (column.column.path.size() == 1 && column.column.path[0] == name) return column;
  }
  for (const BatchColumn& column : columns_) {
    if (column.column.path.size() > 1 && column.column.name() == name) return column;
  }
  throw base::key_not_found().part("batch").problem("no column ", base::quote(name));
}

std::string_view Batch::text(std::string_view name, std::int64_t row) const& {
  const BatchColumn& found = column(name);
  const auto fail = [&] {
    return base::invalid_argument().part("batch: column ", base::quote(name));
  };
  if (!found.column.is_text() || found.column.ragged) {
    throw fail()
        .expected("one string or one bytes value for each row")
        .found(describe(found.column));
  }
  if (row < 0 || row >= num_rows_) {
    throw fail().expected("a row in [0, ", num_rows_, ")").found(row);
  }
  const auto* offsets = found.offsets.data<std::int64_t>() + row;
  const auto* bytes = reinterpret_cast<const char*>(found.values.raw_data());
  return {bytes + offsets[0], static_cast<std::size_t>(offsets[1] - offsets[0])};
}

}  // namespace tenfold

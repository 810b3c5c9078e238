#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// A row that has no place in its column.
struct BadValue {
  std::int64_t row = 0;  ///< in the chunk
  std::string what;      ///< expected, found
};

/// True if every row of a column like `from` can lie in one like `to` as it is stored.
bool stored_alike(const Column& from, const Column& to);

/// The number of elements before the first one that `to` cannot hold, `count` if there is none: an
/// integer beyond its range, a fraction or NaN where integers are, a finite number that would
/// become infinite. Rounding to a float is no misfit, nor is 0 or 1 where booleans are.
std::int64_t first_misfit(DType from, const std::byte* elements, DType to, std::int64_t count);

/// The rows of `chunk`, of a source's column `from`, as the column `to` that somebody asked for.
/// Rows that do not fit hold no value, and an entry in `bad`.
OwnedChunk fit_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                     std::vector<BadValue>& bad);

/// The rows of `chunk` without those of `dropped`, which ascend.
OwnedChunk without_rows(const Column& column, const ColumnChunk& chunk,
                        std::span<const std::int64_t> dropped);

/// "float32[3]", "string", "int64[*]": for messages.
std::string described(const Column& column);

}  // namespace tenfold

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>

#include "dataset/table_of.hpp"
#include "os/process.hpp"

namespace tenfold::test {

inline std::vector<std::int64_t> ids_of(const Dataset& ds) {
  const Batch batch = ds.rows(0, ds.size());
  const auto ids = batch.at("id").span<std::int64_t>();
  return {ids.begin(), ids.end()};
}

inline Schema schema_of(const TensorDict& tree) { return Schema::of(tree); }

/// A data set with the columns of numbers(), open for writing. It is empty unless the options give
/// it rows.
inline Dataset numbers_at(const Path& path, const CreateOptions& options = {}) {
  return create(path, schema_of(numbers(1)), options);
}

/// Rows of one column, "x", with no elements.
inline Batch rows_without_bytes(DType dtype, std::int64_t count, const Shape& inner = {0}) {
  std::vector<BatchColumn> columns(1);
  columns[0].column = {.path = {"x"}, .dtype = dtype, .shape = inner};
  Shape shape = inner;
  shape.insert(shape.begin(), count);
  columns[0].values = Tensor::zeros(dtype, std::move(shape));
  return {count, std::move(columns)};
}

inline Schema schema_of(const Batch& rows) { return Schema({rows.columns()[0].column}); }

/// Simulates a reboot after a power failure.
class NextBoot {
 public:
  NextBoot() { os::set_boot_id(os::BootId{std::byte{7}}); }
  ~NextBoot() { os::set_boot_id(std::nullopt); }
  NextBoot(const NextBoot&) = delete;
  NextBoot& operator=(const NextBoot&) = delete;
};

}  // namespace tenfold::test

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
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

/// Simulates a reboot after a power failure.
class NextBoot {
 public:
  NextBoot() { os::set_boot_id(os::BootId{std::byte{7}}); }
  ~NextBoot() { os::set_boot_id(std::nullopt); }
  NextBoot(const NextBoot&) = delete;
  NextBoot& operator=(const NextBoot&) = delete;
};

}  // namespace tenfold::test

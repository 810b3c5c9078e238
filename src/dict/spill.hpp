#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/mapped_dict.hpp>

#include "dataset/spill_file.hpp"

namespace tenfold {

/// Buffers keys and values that are added in batches, for one call of MappedDict::assign() or
/// extend(), which stores all of them or none. Small buffers and the end offsets of keys stay in
/// memory. Large buffers are written to unnamed spill files.
///
/// Thread safety: none; one thread at a time.
class DictSpill {
 public:
  /// `values`: the schema of batches. `folder`: where spill files are created.
  DictSpill(DictKeyType type, Schema values, Path folder);

  /// Throws Error(invalid_argument) for keys of another type, and for values that do not match the
  /// schema or the number of keys.
  void add(const DictKeys& keys, const Batch& values);

  // Do not call add() after keys() or values(), and call keys() only once. The results are valid as
  // long as this object exists.

  DictKeys keys();
  Batch values() const;

 private:
  struct ColumnParts {
    std::shared_ptr<SpillFile> values, ends, item_ends, valid;
    std::int64_t num_values = 0;  ///< number of fixed-size rows, ragged elements, or bytes
    std::int64_t num_items = 0;   ///< number of strings in a column of lists of strings
  };

  std::shared_ptr<SpillFile> make_spill() const;
  void add_column(const Column& column, const BatchColumn& rows, std::int64_t num_rows,
                  ColumnParts& parts) const;

  DictKeyType type_;
  Schema schema_;
  Path folder_;
  std::int64_t num_rows_ = 0;
  std::shared_ptr<SpillFile> keys_;  ///< the bytes of all string or bytes keys, or the integers
  std::vector<std::int64_t> ends_;
  std::vector<ColumnParts> columns_;
  Tensor all_keys_;
  std::vector<std::string_view> texts_;
};

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/mapped_dict.hpp>

#include "dataset/spool.hpp"

namespace tenfold {

/// Keys and values on their way into a dictionary, which takes them in one step: some at a time,
/// more than fit memory. Small ones stay there, others go to files without a name.
///
/// Thread safety: none; one thread at a time.
class DictSpool {
 public:
  /// `values`: what batches have. `folder`: where files would be.
  DictSpool(DictKeyType type, Schema values, Path folder);

  /// Throws Error(invalid_argument) for keys of another kind, and values that do not fit.
  void add(const DictKeys& keys, const Batch& values);

  // Nothing is added any more; both live as long as this object.

  DictKeys keys();
  Batch values() const;

 private:
  struct ColumnParts {
    std::shared_ptr<Spool> values, ends, item_ends, valid;
    std::int64_t num_values = 0;  ///< elements, of text bytes
    std::int64_t num_items = 0;   ///< of ragged text
  };

  std::shared_ptr<Spool> make_spool() const;
  void add_column(const Column& column, const BatchColumn& rows, std::int64_t num_rows,
                  ColumnParts& parts) const;

  DictKeyType type_;
  Schema schema_;
  Path folder_;
  std::int64_t num_rows_ = 0;
  std::shared_ptr<Spool> keys_;  ///< the bytes of all, or the numbers
  std::vector<std::int64_t> ends_;
  std::vector<ColumnParts> columns_;
  Tensor all_keys_;
  std::vector<std::string_view> texts_;
};

}  // namespace tenfold

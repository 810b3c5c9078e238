#pragma once

#include <memory>

#include "ingest/text/block_pipeline.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_types.hpp"
#include "ingest/text/value_types.hpp"

namespace tenfold {

/// Looks at the types in blocks, and joins what it saw in their order.
class TypeWork final : public BlockWork {
 public:
  /// `all` is changed by who has the turn only.
  explicit TypeWork(ValueTypes& all) : all_(all) {}

  void begin(const Block& block) override;
  bool work() override;
  bool deliver() override;

 private:
  ValueTypes& all_;
  ValueTypes types_;
  const Block* block_ = nullptr;
};

}  // namespace tenfold

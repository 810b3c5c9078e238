#pragma once

#include <memory>
#include <string>

#include "ingest/text/block_pipeline.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_text.hpp"
#include "ingest/text/value_types.hpp"

namespace tenfold {

/// Looks at the types of records of JSON. Records that are no JSON leave no trace.
class JsonTypes {
 public:
  /// `types` outlives this object.
  explicit JsonTypes(ValueTypes& types) : types_(types) {}

  /// The text is followed as JsonText wants it.
  void add(const char* begin, const char* end, bool lines);

 private:
  void object(ValueTypes& types);
  void value(ValueTypes& types);
  void list(ListTypes& types, std::size_t depth);
  ScalarKinds scalar();

  ValueTypes& types_;
  JsonText text_{nullptr, nullptr, true};
  std::string scratch_;
};

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

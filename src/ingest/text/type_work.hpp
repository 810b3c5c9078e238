#pragma once

#include <memory>
#include <string>

#include "ingest/text/block_pipeline.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_text.hpp"
#include "ingest/text/value_types.hpp"

namespace tenfold {

/// Infers types from JSON records. Ignores records that are not valid JSON objects.
class JsonTypes {
 public:
  /// `types` must outlive this object.
  explicit JsonTypes(ValueTypes& types) : types_(types) {}

  /// Adds the types of one record, the text in [begin, end). JsonText explains `lines`, and which
  /// bytes must follow the text.
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

/// Infers types from blocks, and merges them in the order of the blocks.
class TypeWork final : public BlockWork {
 public:
  /// `all` is changed only by the thread that delivers.
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

#pragma once

#include <string>

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

}  // namespace tenfold

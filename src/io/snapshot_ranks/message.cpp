#include "io/snapshot_ranks/message.hpp"

namespace tenfold::detail::snapshot_ranks {

void refuse_message(const std::string& kind) {
  throw Error(ErrorCode::invalid_argument,
              kind + ": expected an unmodified message of this snapshot, found another string");
}

Value::Object message(std::string_view kind) {
  Value::Object made;
  made.members.emplace_back("kind", Value(kind));
  return made;
}

}  // namespace tenfold::detail::snapshot_ranks

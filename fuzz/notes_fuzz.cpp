// Arbitrary bytes as a notes document (`%notes.json`), in which each note describes one node or
// JSON value of a tree. The document is refused, or survives a round trip. A note that does not fit
// its value leaves the value unchanged. A note that does not fit its node leaves the kind of the
// node unchanged.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tenfold/error.hpp>

#include "core/notes/notes.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Notes notes;
  try {
    notes = Notes::from_json(text, "input");
  } catch (const Error& error) {
    const bool expected =
        error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported;
    if (!expected) std::abort();
    return 0;
  }
  if (Notes::from_json(notes.to_json(), "again") != notes) std::abort();

  for (const auto& [path, note] : notes.values) {
    Value value = from_json(R"([{"betas": [0.9, [1]], "0": {"1": []}}, [], {}])", "value");
    const Value before = value;
    if (!apply_value_note(notes, path, value, "input") && value != before) std::abort();
  }
  const std::array<std::string, 2> keys = {"0", "1"};
  for (const auto& [path, note] : notes.nodes) {
    NodeInfo info;
    apply_node_note(notes, path, keys, info, "input");
    if (info.kind != note.kind && info.kind != NodeKind::tensordict) std::abort();
  }
  return 0;
}

// Arbitrary bytes as the `checkpoint.json` of a step. They are refused, or the document survives a
// round trip. No path of an entry leads out of the folder of the step or, if the entry belongs to a
// rank, out of the folder of this rank.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "checkpoint/document.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckpointInfo info;
  try {
    info = checkpoint::parse_document(text, "input");
  } catch (const Error& error) {
    const bool expected =
        error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported;
    if (!expected) std::abort();
    return 0;
  }
  try {
    checkpoint::require_checksum(text, "input");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) std::abort();
  }
  for (const CheckpointEntry& entry : info.entries) {
    std::string_view path = entry.path;
    const std::string folder = entry.rank ? checkpoint::rank_folder(*entry.rank) : "";
    if (!path.starts_with(folder)) std::abort();
    path.remove_prefix(folder.size());
    if (!checkpoint::is_entry_path(path)) std::abort();
  }
  const std::string written = checkpoint::write_document(info);
  checkpoint::require_checksum(written, "written");
  if (checkpoint::write_document(checkpoint::parse_document(written, "again")) != written) {
    std::abort();
  }
  return 0;
}

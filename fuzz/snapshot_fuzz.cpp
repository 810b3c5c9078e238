// Arbitrary bytes as the metadata (JSON or YAML) of a snapshot with a few files. They are refused
// with an Error, or every tensor can be mapped. Metadata that can be parsed survives a round trip.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "formats/format.hpp"
#include "formats/snapshot/manifest.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;

/// One folder per process. The data files are written once, the metadata for each input.
const fs::path& scratch() {
  static const tenfold::fuzz::ScratchFolder folder;
  static const bool filled = [] {
    fs::create_directories(folder.path() / "0");
    for (const char* name : {"a", "0/b"}) {
      std::ofstream(folder.path() / name) << std::string(64, 'x');
    }
    return true;
  }();
  static_cast<void>(filled);
  return folder.path();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  set_warning_handler([](const std::string&) {});
  std::ofstream(scratch() / ".snapshot_metadata", std::ios::binary) << text;
  try {
    fuzz::touch_leaves(detail::formats::snapshot::kFormat.open(scratch(), {}));
  } catch (const Error&) {
  }
  static_cast<void>(detail::formats::snapshot::kFormat.verify(scratch(), {}));
  try {
    const Value read = detail::formats::snapshot::parse_metadata(text, "input");
    if (!(from_json(to_json(read), "again") == read)) std::abort();
  } catch (const Error&) {
  }
  return 0;
}

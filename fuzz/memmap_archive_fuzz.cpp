// Arbitrary bytes as a .tdz archive. They are refused with an Error, or every tensor can be mapped.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "formats/format.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;

/// One file per process, rewritten for each input.
fs::path scratch() {
  static const tenfold::fuzz::ScratchFolder folder;
  return folder.path() / "m.tdz";
}

void use(tenfold::Mode mode) {
  using namespace tenfold;
  const TensorDict tree = detail::formats::folder::kArchiveFormat.open(scratch(), {mode});
  fuzz::touch_leaves(tree);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  std::ofstream(scratch(), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  set_warning_handler([](const std::string&) {});
  static_cast<void>(detail::formats::folder::kArchiveFormat.probe(scratch()));
  for (const Mode mode : {Mode::read, Mode::write_through}) {
    try {
      use(mode);
    } catch (const Error&) {
    }
  }
  static_cast<void>(detail::formats::folder::kArchiveFormat.verify(scratch(), {.num_threads = 1}));
  return 0;
}

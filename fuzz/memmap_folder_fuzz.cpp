// Any bytes as the files of a folder: a result or an Error, and no crash. 0xFF, which no JSON
// holds, separates the files; their names are those of kFiles in order.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "core/notes.hpp"
#include "formats/format.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles[] = {"meta.json",
                                       "%notes.json",
                                       "a.memmap",
                                       "n/meta.json",
                                       "n/a.memmap",
                                       "a.shape.memmap",
                                       "%checksums",
                                       "n/other.pickle",
                                       "n/0/meta.json",
                                       "%values/meta.json",
                                       "n/_tensordict/meta.json",
                                       "%clash-0",
                                       "%commit"};

/// One folder for the life of the process, filled anew for each input.
const fs::path& scratch() {
  static const tenfold::fuzz::ScratchFolder folder;
  return folder.path();
}

void fill(std::string_view input) {
  for (const auto& entry : fs::directory_iterator(scratch())) fs::remove_all(entry);
  for (const std::string_view name : kFiles) {
    const std::size_t end = input.find('\xFF');
    const std::string_view bytes = input.substr(0, end);
    if (!bytes.empty()) {
      const fs::path path = scratch() / name;
      fs::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << bytes;
    }
    if (end == std::string_view::npos) return;
    input.remove_prefix(end + 1);
  }
}

void use(tenfold::Mode mode) {
  using namespace tenfold;
  const TensorDict tree = kMemmapFolder.open(scratch(), {mode});
  fuzz::touch_leaves(tree);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  fill({reinterpret_cast<const char*>(data), size});
  set_warning_handler([](const std::string&) {});
  for (const Mode mode : {Mode::read, Mode::write_through}) {
    try {
      use(mode);
    } catch (const Error&) {
    }
  }
  static_cast<void>(kMemmapFolder.verify(scratch(), {}));
  return 0;
}

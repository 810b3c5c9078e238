// Arbitrary bytes as the files kFiles of a folder. The folder is refused with an Error, or every
// tensor can be mapped. In the input, the byte 0xFF, which JSON never contains, separates the
// files.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <tenfold/diff.hpp>
#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
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
                                       "%commit",
                                       "n/1/meta.json",
                                       "n/0/a.memmap",
                                       "n/crow_indices.memmap",
                                       "n/col_indices.memmap",
                                       "n/values.memmap"};

/// One folder per process, rewritten for each input.
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
  const TensorDict tree = detail::formats::folder::kFormat.open(scratch(), {mode});
  fuzz::touch_leaves(tree);
}

/// Compares the folder with itself. diff() plans its work and memory from the shapes in the
/// metadata, before it maps a tensor.
void compare() {
  using namespace tenfold;
  const TensorDict tree = detail::formats::folder::kFormat.open(scratch(), {Mode::read});
  static_cast<void>(diff(tree, tree, {.num_threads = 1}));
}

void select_row() {
  using namespace tenfold;
  fuzz::touch_leaves(detail::formats::folder::kFormat.open(scratch(), {Mode::read}).select_row(0));
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
  for (const auto call : {compare, select_row}) {
    try {
      call();
    } catch (const Error&) {
    }
  }
  static_cast<void>(detail::formats::folder::kFormat.verify(scratch(), {}));
  return 0;
}

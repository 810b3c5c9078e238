// Arbitrary bytes as the manifest of a folder with two valid parts. If the manifest can be parsed,
// it survives a round trip. Each call that opens, reads or verifies the folder succeeds or throws
// an Error.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/warnings.hpp>

#include "formats/shared/parts_manifest.hpp"
#include "fuzz/scratch.hpp"
#include "tests/dataset/table_of.hpp"

namespace {

using tenfold::Path;

/// Returns a folder with the parts "a" and "b/c" of 4 rows each, and a symbolic link "b/link" to
/// "b/c".
const Path& folder() {
  static const tenfold::fuzz::ScratchFolder scratch;
  static const Path path = [] {
    const Path made = scratch.path() / "ds";
    tenfold::save(tenfold::test::ragged(), made / "a", {.durable = false});
    tenfold::save(tenfold::test::ragged(), made / "b" / "c", {.durable = false});
    std::filesystem::create_directory_symlink(made / "b" / "c", made / "b" / "link");
    return made;
  }();
  return path;
}

template <class Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const tenfold::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  set_warning_handler([](const std::string&) {});
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Path file = folder() / detail::formats::kPartsName;
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  std::optional<detail::formats::PartsManifest> manifest;
  attempt([&] { manifest = detail::formats::parse_parts_manifest(text, "manifest"); });
  if (manifest) {
    const std::string written = detail::formats::parts_manifest_text(*manifest);
    const auto again = detail::formats::parse_parts_manifest(written, "written");
    if (detail::formats::parts_manifest_text(again) != written) std::abort();
  }
  attempt([&] {
    const Dataset ds(folder());
    constexpr std::int64_t kMaxRows = 64;
    static_cast<void>(ds.rows(0, std::min(ds.size(), kMaxRows)));
  });
  attempt([&] { fuzz::touch_leaves(open(folder())); });
  attempt([&] { static_cast<void>(verify(folder())); });
  return 0;
}

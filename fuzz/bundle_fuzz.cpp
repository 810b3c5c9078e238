// A folder with arbitrary names and bytes, including links and folders. Opening it gives a tree.
// Getting an entry of the tree gives an item or throws an Error. Nothing outside of the folder may
// be read.
//
// Input: a sequence of entries: a byte for the type ("d": folder, "l": link, others: file), a byte
// for the length of its name, the name, a byte for the length of its content or of the link's
// target, the content. All entries after a folder are created inside this folder.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "formats/format.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;

/// Removes a string from the front of `rest`, and returns it. A byte with its length precedes it.
std::string take(std::string_view& rest) {
  if (rest.empty()) return {};
  const std::size_t size =
      std::min<std::size_t>(static_cast<unsigned char>(rest[0]), rest.size() - 1);
  std::string taken(rest.substr(1, size));
  rest.remove_prefix(1 + size);
  return taken;
}

void fill(const fs::path& folder, std::string_view rest) {
  constexpr int kMaxEntries = 16;
  fs::path at = folder;
  for (int i = 0; i < kMaxEntries && !rest.empty(); ++i) {
    const char kind = rest[0];
    rest.remove_prefix(1);
    std::string name = take(rest);
    const std::string content = take(rest);
    std::ranges::replace(name, '/', '_');
    std::ranges::replace(name, '\0', '_');
    if (name.empty() || name == "." || name == "..") continue;
    std::error_code ignored;
    if (kind == 'd') {
      if (fs::create_directory(at / name, ignored)) at /= name;
    } else if (kind == 'l') {
      fs::create_symlink(content.substr(0, content.find('\0')), at / name, ignored);
    } else if (!fs::is_symlink(at / name, ignored)) {
      std::ofstream(at / name, std::ios::binary) << content;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  set_warning_handler([](const std::string&) {});
  const fuzz::ScratchFolder folder;
  fill(folder.path(), {reinterpret_cast<const char*>(data), size});
  const auto& format = detail::formats::bundle::kFormat;
  static_cast<void>(format.probe(folder.path()));
  const TensorDict tree = format.open(folder.path(), {});
  for (const std::string& key : tree.keys()) {
    try {
      const TensorDict::Item item = tree.get(key);
      if (const auto* child = std::get_if<TensorDict>(&item)) fuzz::touch_leaves(*child);
      if (const auto* leaf = std::get_if<Leaf>(&item)) leaf->tensor();
    } catch (const Error&) {
    }
  }
  static_cast<void>(format.verify(folder.path(), {}));
  return 0;
}

// Arbitrary bytes as an archive of NumPy files. The archive or a tensor is refused with an Error,
// or mapping the tensor gives the same bytes as Leaf::read().

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"
#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tenfold;
using namespace tenfold::detail::formats;

/// One file per process, rewritten for each input.
fs::path scratch() {
  static const fuzz::ScratchFolder folder;
  return folder.path() / "x.npz";
}

template <class Call>
bool is_refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
    return true;
  }
}

void use_leaf(const Leaf& leaf) {
  const Tensor mapped = leaf.tensor().contiguous();
  std::vector<std::byte> read(static_cast<std::size_t>(leaf.nbytes()));
  leaf.read(0, read);
  if (!read.empty() && std::memcmp(read.data(), mapped.raw_data(), read.size()) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(scratch(), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  numpy::kNpz.probe(scratch());
  numpy::kNpz.verify(scratch(), {});
  is_refused([] {
    const TensorDict tree = numpy::kNpz.open(scratch(), {});
    for (const std::string& key : tree.keys()) {
      is_refused([&] { use_leaf(std::get<Leaf>(tree.get(key))); });
    }
  });
  return 0;
}

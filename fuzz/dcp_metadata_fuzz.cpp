// Arbitrary bytes as the `.metadata` of a folder of torch.distributed.checkpoint, alone and merged
// with itself. They are refused with an Error (corrupt or unsupported), or give a tree. The folder
// has no data files: an access to a tensor or an object of the tree may throw these errors only.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/dcp/leaf_source.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/dcp/tree.hpp"
#include "fuzz/scratch.hpp"
#include "os/fs/directory.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats;

/// An empty folder that exists as long as the process.
const std::filesystem::path& empty_folder() {
  static const fuzz::ScratchFolder folder;
  return folder.path();
}

void require_refusal(const Error& error) {
  if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
}

void walk(const TensorDict& node) {
  for (const std::string& key : node.keys()) {
    try {
      const TensorDict::Item item = node.get(key);
      if (const auto* below = std::get_if<TensorDict>(&item)) walk(*below);
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf != nullptr && leaf->nbytes() != 0) leaf->tensor();
    } catch (const Error& error) {
      require_refusal(error);
    }
  }
}

void open_metadata(dcp::Metadata metadata) {
  auto files = std::make_shared<dcp::Files>(os::Directory::open(empty_folder()), metadata.files);
  walk(dcp::build_tree(std::move(metadata), files, "input"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const dcp::Metadata metadata = dcp::parse_metadata(bytes, "input");
    try {
      dcp::Merger merger;
      merger.add(metadata, "input");
      merger.add(metadata, "input");
      open_metadata(merger.take());
    } catch (const Error& error) {
      require_refusal(error);
    }
    open_metadata(metadata);
  } catch (const Error& error) {
    require_refusal(error);
  }
  return 0;
}

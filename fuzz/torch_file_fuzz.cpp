// Arbitrary bytes as a file of torch.save. If they do not begin with "PK", they are only the
// pickle of the file, and its storages "0" to "3" contain zeros. The bytes are refused with an
// Error, or every tensor of less than 1 MiB can be read completely.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "codecs/pickle/pickle.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/torch_file/archive.hpp"
#include "formats/torch_file/tree.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats;

/// Storages in buffers of their exact size, so that sanitizers detect reads out of bounds.
class InputStorages final : public torch_file::Storages {
 public:
  void add(std::string key, std::span<const std::byte> bytes) {
    keys_.push_back(std::move(key));
    const std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
    if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
    buffers_.emplace_back(std::span(copy.get(), bytes.size()), copy);
  }
  std::optional<std::size_t> find(std::string_view key) const override {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == key) return i;
    }
    return std::nullopt;
  }
  std::uint64_t size_bytes(std::size_t storage) const override {
    return buffers_[storage].size_bytes();
  }
  Buffer bytes(std::size_t storage) override { return buffers_[storage]; }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const torch_file::StorageRange& range = range_of(leaf);
    std::memcpy(into.data(), buffers_[range.storage].data() + range.begin + offset_bytes,
                into.size());
  }
  base::Where where(const Leaf&) const override { return "input"; }

 private:
  std::vector<std::string> keys_;
  std::vector<Buffer> buffers_;
};

void open_pickle(std::string_view pickle, const std::shared_ptr<InputStorages>& storages) {
  const codecs::PickleGraph graph = codecs::read_pickle(pickle, "input");
  const TensorDict tree = torch_file::build_tree(graph, storages, "input");
  tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    // Skip large tensors: a stride of 0 can expand a few bytes to any size.
    if (leaf != nullptr && leaf->nbytes() < (1U << 20U)) leaf->tensor().contiguous();
  });
}

void open_archive(std::string_view bytes) {
  const codecs::ZipInput input = codecs::zip_input("input", std::as_bytes(std::span(bytes)));
  torch_file::Archive archive = torch_file::read_archive(input);
  codecs::read_zip_local_headers(input, codecs::ZipLimits(), archive.directory);
  const auto storages = std::make_shared<InputStorages>();
  for (const codecs::ZipEntry& entry : archive.directory.entries) {
    const std::size_t at = entry.name.find("/data/");
    if (at == std::string::npos || entry.size_bytes > (1U << 20U)) continue;
    storages->add(entry.name.substr(at + 6), codecs::read_zip_entry(input, entry));
  }
  const std::vector<std::byte> pickle = torch_file::read_pickle(input, archive);
  open_pickle({reinterpret_cast<const char*>(pickle.data()), pickle.size()}, storages);
}

void open_any(std::string_view bytes) {
  if (bytes.starts_with("PK")) return open_archive(bytes);
  const auto storages = std::make_shared<InputStorages>();
  const std::vector<std::byte> zeros(64);
  for (std::size_t i = 0; i < 4; ++i) {
    storages->add(std::to_string(i), std::span(zeros).first(zeros.size() >> i));
  }
  open_pickle(bytes, storages);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    open_any({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
  }
  return 0;
}

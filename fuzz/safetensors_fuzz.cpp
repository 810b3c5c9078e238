// Arbitrary bytes as a safetensors file. They are refused with an Error, or the first 1000 tensors
// can be read completely. The same bytes are also parsed as an index of shards. They are refused
// with an Error, or the index survives a round trip.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/hub_index.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats;

/// The bytes after the header of the input, in a buffer of their exact size, so that sanitizers
/// detect reads out of bounds.
class InputSource final : public LeafSource {
 public:
  InputSource(std::shared_ptr<const safetensors::Header> header, std::string_view data)
      : header_(std::move(header)), data_(std::make_unique<std::byte[]>(data.size())) {
    std::memcpy(data_.get(), data.data(), data.size());
  }
  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, buffer.mutable_bytes());
    return buffer;
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const auto& entry = header_->entries[static_cast<std::size_t>(position_of(leaf))];
    if (!into.empty())
      std::memcpy(into.data(), data_.get() + entry.begin + offset_bytes, into.size());
  }
  base::Where where(const Leaf&) const override { return "input"; }

 private:
  std::shared_ptr<const safetensors::Header> header_;
  std::unique_ptr<std::byte[]> data_;
};

void open_file(std::string_view input) {
  if (input.size() < 8) return;
  std::uint64_t length = 0;
  std::memcpy(&length, input.data(), 8);
  input.remove_prefix(8);
  if (length > input.size()) return;
  const std::string_view data = input.substr(static_cast<std::size_t>(length));
  auto header = std::make_shared<safetensors::Header>(safetensors::parse_header(
      input.substr(0, static_cast<std::size_t>(length)), data.size(), "input"));
  safetensors::TensorEntries tensors;
  tensors.files.push_back({header, std::make_shared<InputSource>(header, data)});
  for (std::uint32_t i = 0; i < header->entries.size(); ++i) tensors.rows.push_back({0, i});
  tensors.index = header->index;
  const TensorDict tree = safetensors::build_tree(std::move(tensors), header->metadata, "input");
  std::size_t budget = 1000;  // number of tensors to read, because a lazy stack may have a million
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr || budget == 0) return;
    --budget;
    leaf->tensor();
  });
  if (tree.size() < 100) safetensors::make_plan(tree, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    open_file(input);
  } catch (const Error&) {
  }
  HubIndex index;
  try {
    index = parse_hub_index(input, "input");
  } catch (const Error&) {
    return 0;
  }
  index.metadata.erase(std::string(safetensors::kTotalSizeMember));  // the writer adds it
  const std::string written = write_hub_index(index, 0);
  if (write_hub_index(parse_hub_index(written, "written"), 0) != written) std::abort();
  return 0;
}

// Arbitrary bytes as a consolidated file. They are refused with an Error, or every tensor can be
// read completely. The check of the offsets of jagged tensors runs, too.

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

#include "core/tree/sparse.hpp"
#include "formats/consolidated/tree.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats;

/// The data of the input, copied so that sanitizers detect reads out of bounds.
class InputLeaves final : public consolidated::Leaves {
 public:
  explicit InputLeaves(std::string_view data) : data_(std::make_unique<std::byte[]>(data.size())) {
    std::memcpy(data_.get(), data.data(), data.size());
  }
  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, buffer.mutable_bytes());
    return buffer;
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const auto& range = ranges[static_cast<std::size_t>(position_of(leaf))];
    if (!into.empty())
      std::memcpy(into.data(), data_.get() + range.begin + offset_bytes, into.size());
  }
  base::Where where(const Leaf&) const override { return "input"; }

 private:
  std::unique_ptr<std::byte[]> data_;
};

void check_jagged(const TensorDict& tree) {
  if (tree.kind() == NodeKind::sparse) return check_sparse_indices(tree, "input");
  tree.for_each([](const std::string&, const TensorDict::Item& item) {
    if (const auto* node = std::get_if<TensorDict>(&item)) check_jagged(*node);
  });
}

void open_file(std::string_view input) {
  if (input.size() < 8) return;
  std::uint64_t length = 0;
  std::memcpy(&length, input.data() + input.size() - 8, 8);
  input.remove_suffix(8);
  if (length > input.size()) return;
  const std::string_view data = input.substr(0, input.size() - static_cast<std::size_t>(length));
  const std::shared_ptr<consolidated::Leaves> leaves = std::make_shared<InputLeaves>(data);
  const TensorDict tree =
      consolidated::build_tree(input.substr(data.size()), data.size(), leaves, "input").tree;
  tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) leaf->tensor();
  });
  check_jagged(tree);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    open_file({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
  }
  return 0;
}

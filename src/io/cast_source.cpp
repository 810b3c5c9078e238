#include "io/cast_source.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/cast.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kElementsPerCast = std::uint64_t{1} << 16;

/// The values of one leaf in another dtype.
class CastSource : public LeafSource {
 public:
  CastSource(Leaf inner, DType dtype) : inner_(std::move(inner)), dtype_(dtype) {}

  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(num_elements() * itemsize(dtype_)));
    read(leaf, 0, buffer.bytes());
    return buffer;
  }

  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const std::uint64_t item = itemsize(dtype_);
    const std::uint64_t inner_item = itemsize(inner_.dtype());
    const std::uint64_t end_bytes = offset_bytes + into.size();
    const std::uint64_t end = (end_bytes + item - 1) / item;
    std::vector<std::byte> source;
    std::vector<std::byte> cast;
    for (std::uint64_t at = offset_bytes / item; at < end; at += kElementsPerCast) {
      const std::uint64_t count = std::min(kElementsPerCast, end - at);
      source.resize(count * inner_item);
      cast.resize(count * item);
      inner_.read(at * inner_item, source);
      cast_elements(inner_.dtype(), source.data(), dtype_, cast.data(), count);
      // A caller may start or end within an element.
      const std::uint64_t from = std::max(offset_bytes, at * item);
      const std::uint64_t to = std::min(end_bytes, (at + count) * item);
      std::memcpy(into.data() + (from - offset_bytes), cast.data() + (from - at * item), to - from);
    }
  }

  Tensor nested_sizes(const Leaf&) override { return inner_.sizes(); }

  void will_need(const Leaf&) override {
    if (inner_.source() != nullptr) inner_.source()->will_need(inner_);
  }

  Identity identity(const Leaf&) override {
    Identity inner = shared_bytes(inner_);
    if (inner == Identity{}) return {};
    // The same bytes cast to the same dtype are the same bytes again, but not the uncast ones.
    return {.part = static_cast<std::uint64_t>(dtype_), .pieces = {std::move(inner)}};
  }

  std::string where(const Leaf&) const override {
    return inner_.source() == nullptr ? std::string("tensor in memory")
                                      : inner_.source()->where(inner_);
  }

  std::vector<Leaf> parts(const Leaf&) const override { return {inner_}; }

 private:
  std::uint64_t num_elements() const { return inner_.nbytes() / itemsize(inner_.dtype()); }

  Leaf inner_;
  DType dtype_;
};

}  // namespace

Leaf cast_lazily(const Leaf& leaf, DType dtype) {
  Leaf cast(dtype, leaf.shape(), std::make_shared<CastSource>(leaf, dtype), 0);
  if (leaf.is_nested()) cast.mark_nested();
  cast.mark_unbatched(leaf.is_unbatched());
  if (is_floating_point(dtype) || is_complex(dtype)) cast.mark_grad(leaf.grad());
  return cast;
}

}  // namespace tenfold

#include "core/tree/outline_leaf.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold {
namespace {

class NoBytes final : public LeafSource {
 public:
  Buffer map(const Leaf& leaf) override { refuse(leaf); }
  void read(const Leaf& leaf, std::uint64_t /*offset_bytes*/,
            std::span<std::byte> /*into*/) override {
    refuse(leaf);
  }
  base::Where where(const Leaf& /*leaf*/) const override {
    return {"", "a tensor with dtype and shape only"};
  }

 private:
  [[noreturn]] void refuse(const Leaf& leaf) const {
    throw base::invalid_argument(where(leaf)).expected("a tensor with bytes").found("none");
  }
};

}  // namespace

std::shared_ptr<detail::LeafSource> outline_source() { return std::make_shared<NoBytes>(); }

Leaf outline_leaf(DType dtype, Shape shape) {
  static_cast<void>(nbytes_of(dtype, shape));
  return stored_leaf(dtype, std::move(shape), outline_source(), 0);
}

bool is_outline(const Leaf& leaf) {
  return dynamic_cast<const NoBytes*>(source_of(leaf).get()) != nullptr;
}

}  // namespace tenfold

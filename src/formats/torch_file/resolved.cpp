#include "formats/torch_file/resolved.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::byte kSignBit{0x80};  // of the last byte of a number

class ResolvedSource final : public LeafSource {
 public:
  ResolvedSource(Leaf bytes, LazyView view)
      : bytes_(std::move(bytes)),
        number_bytes_(itemsize(bytes_.dtype()) / (is_complex(bytes_.dtype()) ? 2 : 1)),
        // The negative of a conjugate has the sign of the real part flipped, and the imaginary part
        // unchanged.
        flips_real_(view.is_negative),
        flips_imaginary_(view.is_negative != view.is_conjugate) {}

  Buffer map(const Leaf& leaf) override {
    const std::lock_guard lock(mutex_);
    if (copy_.size_bytes() == 0) {
      Buffer copy = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
      read(leaf, 0, copy.mutable_bytes());
      copy_ = std::move(copy);
    }
    return copy_;
  }

  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    bytes_.read(offset_bytes, into);
    const bool is_real = !is_complex(bytes_.dtype());
    const std::uint64_t last = number_bytes_ - 1;
    std::uint64_t at = (last + number_bytes_ - offset_bytes % number_bytes_) % number_bytes_;
    for (; at < into.size(); at += number_bytes_) {
      const bool is_imaginary = (offset_bytes + at) / number_bytes_ % 2 == 1;
      if (is_real || !is_imaginary ? flips_real_ : flips_imaginary_) into[at] ^= kSignBit;
    }
  }

  StoredRange identity(const Leaf&) override {
    StoredRange inner = stored_range(bytes_);
    if (inner == StoredRange{}) return {};
    const std::uint64_t flips = 1U + (flips_real_ ? 2U : 0U) + (flips_imaginary_ ? 4U : 0U);
    return {.part = flips, .pieces = {std::move(inner)}};
  }

  base::Where where(const Leaf&) const override {
    return source_of(bytes_) == nullptr ? base::Where("", "tensor in memory")
                                        : source_of(bytes_)->where(bytes_);
  }

  std::vector<Leaf> parts(const Leaf&) const override { return {bytes_}; }

 private:
  Leaf bytes_;
  std::uint64_t number_bytes_;
  bool flips_real_;
  bool flips_imaginary_;
  std::mutex mutex_;
  Buffer copy_;
};

}  // namespace

bool has_sign_bits(DType dtype) noexcept {
  return is_complex(dtype) || (is_floating_point(dtype) && itemsize(dtype) > 1);
}

Leaf resolved(const Leaf& bytes, LazyView view) {
  Leaf made =
      stored_leaf(bytes.dtype(), bytes.shape(), std::make_shared<ResolvedSource>(bytes, view), 0);
  made.mark_grad(bytes.grad());
  return made;
}

}  // namespace tenfold::detail::formats::torch_file

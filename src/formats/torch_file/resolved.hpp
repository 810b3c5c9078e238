#pragma once

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::torch_file {

/// What a lazy view of torch stands for: the conjugate or the negative of its bytes, or both.
struct LazyView {
  bool is_conjugate = false;
  bool is_negative = false;
  bool is_plain() const noexcept { return !is_conjugate && !is_negative; }
};

/// The leaf of the values that `view` of `bytes` stands for, as resolve_conj() and resolve_neg()
/// give them: read in bounded memory, copied when it is mapped. `bytes` is of floating-point
/// numbers of 16 bits or more, or complex.
Leaf resolved(const Leaf& bytes, LazyView view);

/// True if the negative of each number is the number with another sign bit.
bool has_sign_bits(DType dtype) noexcept;

}  // namespace tenfold::detail::formats::torch_file

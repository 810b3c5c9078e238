#pragma once

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::torch_file {

/// A lazy view of torch: the conjugate or the negative of its bytes, or both.
struct LazyView {
  bool is_conjugate = false;
  bool is_negative = false;
  bool is_plain() const noexcept { return !is_conjugate && !is_negative; }
};

/// Returns the leaf with the values of the lazy `view` of `bytes`, as resolve_conj() and
/// resolve_neg() compute them. The leaf is read with bounded memory, and copied when it is mapped.
/// `bytes` has a floating-point dtype of 16 bits or more, or a complex one.
Leaf resolved(const Leaf& bytes, LazyView view);

/// True for the dtypes that resolved() can negate: complex numbers, and floating-point numbers of
/// 16 bits or more.
bool has_sign_bits(DType dtype) noexcept;

}  // namespace tenfold::detail::formats::torch_file

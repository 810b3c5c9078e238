#pragma once

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::torch_file {

/// A lazy view in torch: a tensor whose values are the conjugate or the negative of its stored
/// values, or both.
struct LazyView {
  bool is_conjugate = false;
  bool is_negative = false;
  bool is_plain() const noexcept { return !is_conjugate && !is_negative; }
};

/// Returns a leaf with the values of the lazy `view` of `bytes`, as torch's resolve_conj() and
/// resolve_neg() compute them. Reading the leaf needs bounded memory; mapping it creates a copy of
/// all its bytes. has_sign_bits() must be true for the dtype of `bytes`.
Leaf resolved(const Leaf& bytes, LazyView view);

/// True for the dtypes that resolved() can negate: complex numbers, and floating-point numbers of
/// 16 bits or more.
bool has_sign_bits(DType dtype) noexcept;

}  // namespace tenfold::detail::formats::torch_file

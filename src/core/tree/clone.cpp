#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "core/tree/aliases.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

/// Copies the tensors of a tree.
class Cloner {
 public:
  TensorDict node(const TensorDict& from, std::size_t depth) {
    if (depth > kMaxDepth) {
      throw base::invalid_argument(from.where())
          .problem("nested deeper than ", kMaxDepth, " nodes")
          .remedy("check whether a node contains itself");
    }
    TensorDict copy(from.info());
    node_of(copy)->where = from.where();
    from.for_each([&](const std::string& key, const TensorDict::Item& item) {
      if (const auto* child = std::get_if<TensorDict>(&item)) {
        copy.set(key, node(*child, depth + 1));
      } else if (const auto* found = std::get_if<Leaf>(&item)) {
        copy.set(key, TensorDict::Item(leaf(*found)));
      } else {
        copy.set(key, item);
      }
    });
    return copy;
  }

 private:
  Leaf leaf(const Leaf& from) {
    const std::size_t first = finder_.add(from);
    copies_.push_back(first == copies_.size() ? from.tensor().clone() : Tensor());
    // An alias has the bytes of the first tensor, but may have another dtype or shape.
    const Tensor& bytes = copies_[first];
    Leaf copy = from.is_nested() ? Leaf::nested(bytes, from.sizes().clone())
                                 : Leaf(Tensor(from.dtype(), from.shape(), bytes.buffer()));
    copy.mark_unbatched(from.is_unbatched());
    copy.mark_grad(from.grad());
    return copy;
  }

  AliasFinder finder_;
  std::vector<Tensor> copies_;  ///< by the numbers of finder_; empty tensors for aliases
};

}  // namespace

TensorDict TensorDict::clone() const { return Cloner().node(*this, 0); }

}  // namespace tenfold

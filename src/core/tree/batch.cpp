#include "core/tree/batch.hpp"

#include <algorithm>
#include <variant>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"

namespace tenfold {

bool starts_with(const Shape& shape, const Shape& batch) {
  return shape.size() >= batch.size() && std::equal(batch.begin(), batch.end(), shape.begin());
}

std::optional<std::size_t> num_batch_dims(const TensorDict::Item& item) {
  const auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) return std::nullopt;
  switch (node->kind()) {
    case NodeKind::tensordict:
    case NodeKind::tensorclass:
      return node->batch_size().size();
    case NodeKind::lazy_stack: {
      if (node->size() == 0) return std::nullopt;
      const auto inner = num_batch_dims(node_of(*node)->item(0));
      return inner ? std::optional(*inner + 1) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Error> stack_dim_fault(std::int64_t stack_dim, const std::string& key,
                                     const TensorDict::Item& entry) {
  const auto dims = num_batch_dims(entry);
  if (!dims || static_cast<std::uint64_t>(stack_dim) <= *dims) return std::nullopt;
  return base::corrupt()
      .expected("at most ", *dims, ", the number of batch dimensions of entry ", base::quote(key))
      .found(stack_dim);
}

}  // namespace tenfold

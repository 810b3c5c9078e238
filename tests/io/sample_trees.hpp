#pragma once

#include <tenfold/tenfold.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace tenfold::test {

/// Returns a float32 tensor of `shape` with the numbers first, first + 1, ...
inline Tensor counting(Shape shape, float first = 0) {
  std::vector<float> values(static_cast<std::size_t>(numel_of(shape)));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(std::span<const float>(values), std::move(shape));
}

inline TensorDict node_of(NodeKind kind, bool int_keys = false) {
  NodeInfo info;
  info.kind = kind;
  info.int_keys = int_keys;
  return TensorDict(info);
}

/// A typical checkpoint: a model with a tied weight, an optimizer with int keys, JSON values.
inline TensorDict sample_checkpoint() {
  const Tensor embedding = counting({4, 3});
  TensorDict model = node_of(NodeKind::ordered_dict);
  model.set("embed.weight", embedding);
  model.set("head.weight", embedding);
  model.set("head.bias", counting({4}, 100));
  TensorDict moments = node_of(NodeKind::dict);
  moments.set("exp_avg", counting({4, 3}, 7));
  TensorDict state = node_of(NodeKind::dict, true);
  state.set("0", moments);
  TensorDict optimizer = node_of(NodeKind::dict);
  optimizer.set("state", state);
  optimizer.set("lr", Value(0.1));
  TensorDict root = node_of(NodeKind::dict);
  root.set("model", model);
  root.set("optimizer", optimizer);
  root.set("epoch", Value(3));
  return root;
}

/// A state_dict: only tensors, with dotted names.
inline TensorDict sample_state_dict() {
  TensorDict flat = node_of(NodeKind::dict);
  flat.set("encoder.weight", counting({3, 4}));
  flat.set("encoder.bias", counting({3}, 50));
  flat.set("decoder.weight", counting({2, 3}, 60));
  return flat;
}

inline std::string bytes_of(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous();
  return {reinterpret_cast<const char*>(whole.raw_data()),
          static_cast<std::size_t>(whole.nbytes())};
}

/// Returns the first difference between two trees, or "" if they are equal. Compares keys and their
/// order, kinds, batch sizes, int_keys, dtypes, shapes, bytes and values.
inline std::string difference(const TensorDict& a, const TensorDict& b,
                              const std::string& at = "") {
  if (a.kind() != b.kind())
    return at + ": kind " + to_string(a.kind()) + " and " + to_string(b.kind());
  if (a.batch_size() != b.batch_size()) return at + ": batch_size";
  if (a.info().int_keys != b.info().int_keys) return at + ": int_keys";
  if (a.keys() != b.keys()) return at + ": keys";
  for (const std::string& key : a.keys()) {
    const std::string here = at.empty() ? key : at + "/" + key;
    const TensorDict::Item x = a.get(key);
    const TensorDict::Item y = b.get(key);
    if (x.index() != y.index()) return here + ": kind of entry";
    if (const auto* node = std::get_if<TensorDict>(&x)) {
      const std::string below = difference(*node, std::get<TensorDict>(y), here);
      if (!below.empty()) return below;
    } else if (const auto* leaf = std::get_if<Leaf>(&x)) {
      const Leaf& other = std::get<Leaf>(y);
      if (leaf->dtype() != other.dtype() || leaf->shape() != other.shape()) return here + ": type";
      if (bytes_of(leaf->tensor()) != bytes_of(other.tensor())) return here + ": bytes";
    } else if (!(std::get<NonTensor>(x) == std::get<NonTensor>(y))) {
      return here + ": value";
    }
  }
  return {};
}

/// The code, errno and message of the Error that a call throws, or the default values if it throws
/// none.
struct Thrown {
  ErrorCode code = ErrorCode::io;
  int system_errno = 0;
  std::string message = "nothing was thrown";
};
template <class Call>
Thrown thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.system_errno(), error.what()};
  }
  return {};
}

}  // namespace tenfold::test

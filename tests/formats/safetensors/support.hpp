#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "formats/format.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

inline std::string bytes_of(const std::filesystem::path& path) { return read_bytes(path); }

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(TENFOLD_TEST_DATA) / "safetensors" / name;
}

/// Returns the contiguous bytes of a leaf, read through its mapping.
inline std::string mapped_bytes(const Leaf& leaf) {
  const Tensor tensor = leaf.tensor().contiguous();
  return {reinterpret_cast<const char*>(tensor.raw_data()),
          static_cast<std::size_t>(tensor.nbytes())};
}

/// Returns the contiguous bytes of a leaf, read by Leaf::read().
inline std::string read_bytes(const Leaf& leaf) {
  std::string bytes(static_cast<std::size_t>(leaf.nbytes()), '\0');
  leaf.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

inline std::string text_of(const NodeInfo& info) {
  std::string text = to_string(info.kind) + (info.int_keys ? " int" : "") + " [";
  for (const auto length : info.batch_size) text += std::to_string(length) + ",";
  text += "] (";
  for (const auto& dim : info.names) text += dim.value_or("None") + ",";
  text += ") " + info.class_name + " " + info.device;
  if (info.kind == NodeKind::lazy_stack) {
    text += std::to_string(info.stack_dim) + " " + info.stack_dim_name.value_or("None");
  }
  return text;
}

/// The nodes, keys, dtypes, shapes, bytes and values of a tree as text. Metadata, schemas, the
/// sizes of nested tensors, and the layout and shape of sparse ones are not part of it.
inline std::string text_of(const TensorDict& tree, const std::string& indent = "") {
  std::string text = indent + text_of(tree.info()) + "\n";
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    text += indent + "  " + key + ": ";
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      text += to_string(leaf->dtype()) + " [";
      for (const auto length : leaf->shape()) text += std::to_string(length) + ",";
      text += leaf->is_unbatched() ? "] unbatched " : "] ";
      for (const char c : mapped_bytes(*leaf)) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        text += kDigits[static_cast<unsigned char>(c) >> 4];
        text += kDigits[static_cast<unsigned char>(c) & 15];
      }
      text += "\n";
    } else if (const auto* value = std::get_if<NonTensor>(&item)) {
      text += to_json(value->value);
      if (value->is_stack) text += " stack " + std::to_string(value->stack_dim);
      text += "\n";
    } else {
      text += "\n" + text_of(std::get<TensorDict>(item), indent + "  ");
    }
  });
  return text;
}

template <class T>
Tensor tensor_of(std::vector<T> values, Shape shape) {
  return Tensor::from(std::span<const T>(values), std::move(shape));
}

inline NodeInfo kind(NodeKind which, bool int_keys = false) {
  NodeInfo info;
  info.kind = which;
  info.int_keys = int_keys;
  return info;
}

inline NodeInfo batch(Shape batch_size, DimNames names = {}) {
  NodeInfo info;
  info.batch_size = std::move(batch_size);
  info.names = std::move(names);
  return info;
}

/// Collects warnings during its lifetime.
class Warnings {
 public:
  Warnings() {
    messages().clear();
    previous_ =
        set_warning_handler([](const std::string& message) { messages().push_back(message); });
  }
  ~Warnings() { set_warning_handler(previous_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  static std::vector<std::string>& messages() {
    static std::vector<std::string> list;
    return list;
  }

 private:
  WarningHandler previous_;
};

}  // namespace tenfold::test

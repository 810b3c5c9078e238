#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"
#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"
#include "support/pickled.hpp"
#include "support/temporary_folder.hpp"
#include "support/zip.hpp"

namespace tenfold::test {

/// A fixture that writes files as torch.save does, from given pickles.
class SavedByTorch : public testing::Test {
 protected:
  /// Adds a storage and returns the pickled reference to it.
  template <class T>
  std::string storage(std::string_view type, const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    records_.push_back({"archive/data/" + std::to_string(num_storages_), std::move(bytes)});
    return stored(type, std::to_string(num_storages_++), static_cast<std::int64_t>(values.size()));
  }
  /// Returns a pickled reference to the storage `key` of `count` elements.
  static std::string stored(std::string_view type, std::string_view key, std::int64_t count) {
    return pickled::persistent(
        pickled::tuple({pickled::text("storage"), pickled::global("torch", type),
                        pickled::text(key), pickled::text("cpu"), pickled::integer(count)}));
  }
  static std::string lengths(const Shape& shape) {
    pickled::Values items;
    for (const std::int64_t length : shape) items.push_back(pickled::integer(length));
    return pickled::tuple(items);
  }
  static Shape row_major(const Shape& shape) {
    Shape strides(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    return strides;
  }
  /// The arguments of _rebuild_tensor_v2 for a contiguous tensor.
  static pickled::Values arguments(const std::string& storage, const Shape& shape,
                                   bool requires_grad = false) {
    return {storage,
            pickled::integer(0),
            lengths(shape),
            lengths(row_major(shape)),
            pickled::boolean(requires_grad),
            pickled::call("collections", "OrderedDict", {})};
  }
  static std::string rebuilt(const pickled::Values& arguments) {
    return pickled::call("torch._utils", "_rebuild_tensor_v2", arguments);
  }
  std::string floats(const std::vector<float>& values, const Shape& shape) {
    return rebuilt(arguments(storage("FloatStorage", values), shape));
  }
  std::string longs(const std::vector<std::int64_t>& values, const Shape& shape) {
    return rebuilt(arguments(storage("LongStorage", values), shape));
  }

  /// Writes a file as torch.save does. `root` is the pickled object.
  void write(const std::string& root) const {
    std::vector<ZipRecord> records = {{"archive/data.pkl", pickled::whole(root)}};
    records.insert(records.end(), records_.begin(), records_.end());
    records.push_back({"archive/version", "3\n"});
    write_zip(path_, records);
  }
  /// Writes and opens a file whose root is {"x": value}.
  TensorDict open(const std::string& value) const {
    write(pickled::dict({pickled::text("x"), value}));
    TensorDict tree = detail::formats::torch_file::kFormat.open(path_, {});
    EXPECT_EQ(tree.size(), 1U);
    return tree;
  }
  Leaf leaf(const std::string& value) const { return std::get<Leaf>(open(value).get("x")); }
  Value value(const std::string& pickled) const { return open(pickled).value("x"); }
  TensorDict node(const std::string& value) const { return open(value)["x"]; }
  /// Returns why the value is an opaque node.
  std::string problem(const std::string& value) const {
    const TensorDict found = node(value);
    EXPECT_EQ(found.kind(), NodeKind::opaque);
    return found.info().problem;
  }
  /// Returns the message with which a file of {"x": value} is refused as corrupt.
  std::string corrupt(const std::string& value) const {
    return message_of([&] { open(value); }, ErrorCode::corrupt);
  }

  TemporaryFolder folder_;
  Path path_ = folder_ / "x.pt";

 private:
  std::vector<ZipRecord> records_;
  std::size_t num_storages_ = 0;
};

}  // namespace tenfold::test

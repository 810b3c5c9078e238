#include "formats/torch_file/layout.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/tensor/leaf_bytes.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

/// The memory from a tensor's first element to the end of its last.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t leaf = 0;
};

/// Nothing for a leaf on disk or without elements.
std::optional<Extent> extent_of(const Leaf& leaf, std::size_t number) {
  const Tensor* tensor = leaf.tensor_in_memory();
  if (tensor == nullptr || tensor->numel() == 0) return std::nullopt;
  std::uint64_t last_element = 0;
  for (std::size_t i = 0; i < tensor->shape().size(); ++i) {
    last_element += static_cast<std::uint64_t>((tensor->shape()[i] - 1) * tensor->strides()[i]);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor->raw_data());
  return Extent{begin, begin + (last_element + 1) * tensor->itemsize(), number};
}

class Planner {
 public:
  explicit Planner(std::span<const Leaf> leaves) : leaves_(leaves), group_of_(leaves.size()) {}

  FileLayout run() {
    find_groups();
    std::vector<std::optional<std::size_t>> storages(groups_.size());
    plan_.tensors.resize(leaves_.size());
    // In the order of the leaves: their numbers are then those that torch would give.
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      std::optional<std::size_t>& storage = storages[group_of_[i]];
      if (!storage) storage = add_storage(groups_[group_of_[i]]);
      plan_.tensors[i].storage = *storage;
    }
    return std::move(plan_);
  }

 private:
  /// Leaves that share a storage, and the memory it takes if they are in memory.
  struct Group {
    std::vector<std::size_t> leaves;
    Extent extent;
  };

  void find_groups() {
    std::vector<Extent> extents;
    std::unordered_map<SharedBytes, std::size_t, SharedBytesHash> on_disk;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (const auto extent = extent_of(leaves_[i], i)) {
        extents.push_back(*extent);
        continue;
      }
      const SharedBytes key = shared_bytes(leaves_[i]);
      if (key == SharedBytes{}) {
        add_group(i);
      } else if (const auto [found, is_new] = on_disk.try_emplace(key, groups_.size()); is_new) {
        add_group(i);
      } else {
        join(found->second, i);
      }
    }
    group_overlapping(std::move(extents));
  }

  void group_overlapping(std::vector<Extent> extents) {
    std::ranges::stable_sort(extents, {}, &Extent::begin);
    std::optional<std::size_t> open;
    for (const Extent& extent : extents) {
      const bool overlaps = open && extent.begin < groups_[*open].extent.end;
      if (overlaps && is_whole_elements_after(groups_[*open].extent.begin, extent)) {
        Group& group = groups_[*open];
        join(*open, extent.leaf);
        group.extent.end = std::max(group.extent.end, extent.end);
        continue;
      }
      // Offsets count elements: one that lies between them is stored apart.
      if (!overlaps) open = groups_.size();
      add_group(extent.leaf);
      groups_.back().extent = extent;
    }
  }

  bool is_whole_elements_after(std::uintptr_t begin, const Extent& extent) const {
    return (extent.begin - begin) % itemsize(leaves_[extent.leaf].dtype()) == 0;
  }

  void add_group(std::size_t leaf) {
    group_of_[leaf] = groups_.size();
    groups_.push_back({{leaf}, {}});
  }
  void join(std::size_t group, std::size_t leaf) {
    group_of_[leaf] = group;
    groups_[group].leaves.push_back(leaf);
  }

  bool are_alike(const Group& group) const {
    const Tensor* first = leaves_[group.leaves.front()].tensor_in_memory();
    return std::ranges::all_of(group.leaves, [&](std::size_t i) {
      const Tensor* other = leaves_[i].tensor_in_memory();
      return other->raw_data() == first->raw_data() && other->dtype() == first->dtype() &&
             other->shape() == first->shape() && other->strides() == first->strides();
    });
  }

  std::size_t add_storage(const Group& group) {
    const Leaf& first = leaves_[group.leaves.front()];
    StorageLayout storage{first, first.dtype(), false};
    storage.untyped = storage_class(first.dtype()).empty() ||
                      std::ranges::any_of(group.leaves, [&](std::size_t i) {
                        return leaves_[i].dtype() != first.dtype();
                      });
    const bool in_memory = group.extent.end > group.extent.begin;
    const bool stays = in_memory && stays_as_it_lies(group);
    if (stays) storage.bytes = memory_of(group);
    for (const std::size_t i : group.leaves) {
      TensorLayout& tensor = plan_.tensors[i];
      if (!stays) {
        tensor.strides = contiguous_strides(leaves_[i].shape());
        continue;
      }
      const Tensor& held = *leaves_[i].tensor_in_memory();
      tensor.strides = held.strides();
      tensor.offset = (reinterpret_cast<std::uintptr_t>(held.raw_data()) - group.extent.begin) /
                      held.itemsize();
    }
    plan_.storages.push_back(std::move(storage));
    return plan_.storages.size() - 1;
  }

  bool stays_as_it_lies(const Group& group) const {
    if (!are_alike(group)) return true;
    const Tensor& tensor = *leaves_[group.leaves.front()].tensor_in_memory();
    return group.extent.end - group.extent.begin <= tensor.nbytes();
  }

  /// The bytes of the group's extent, kept alive by the tensors in it.
  Leaf memory_of(const Group& group) const {
    auto owners = std::make_shared<std::vector<Buffer>>();
    for (const std::size_t i : group.leaves) {
      owners->push_back(leaves_[i].tensor_in_memory()->buffer());
    }
    const std::size_t size_bytes = group.extent.end - group.extent.begin;
    const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(group.extent.begin), size_bytes);
    return Tensor(DType::uint8, {static_cast<std::int64_t>(size_bytes)},
                  Buffer(bytes, std::move(owners), false));
  }

  std::span<const Leaf> leaves_;
  std::vector<std::size_t> group_of_;  ///< of each leaf
  std::vector<Group> groups_;
  FileLayout plan_;
};

}  // namespace

std::string_view storage_class(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32:
      return "FloatStorage";
    case DType::float64:
      return "DoubleStorage";
    case DType::float16:
      return "HalfStorage";
    case DType::bfloat16:
      return "BFloat16Storage";
    case DType::int64:
      return "LongStorage";
    case DType::int32:
      return "IntStorage";
    case DType::int16:
      return "ShortStorage";
    case DType::int8:
      return "CharStorage";
    case DType::uint8:
      return "ByteStorage";
    case DType::bool_:
      return "BoolStorage";
    case DType::complex64:
      return "ComplexFloatStorage";
    case DType::complex128:
      return "ComplexDoubleStorage";
    default:
      return "";
  }
}

FileLayout lay_out_file(std::span<const Leaf> leaves) { return Planner(leaves).run(); }

}  // namespace tenfold::detail::formats::torch_file

#pragma once

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include <tenfold/leaf.hpp>

#include "base/checked.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold {

/// A "file" in memory that counts accesses. A leaf's position is its offset in bytes.
class FakeSource : public LeafSource {
 public:
  explicit FakeSource(Buffer bytes) : bytes_(std::move(bytes)) {}
  Buffer map(const Leaf& leaf) override {
    ++num_maps;
    return bytes_.slice(position_of(leaf), leaf.nbytes());
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    ++num_reads;
    const Buffer part = bytes_.slice(position_of(leaf) + offset_bytes, into.size());
    std::memcpy(into.data(), part.data(), into.size());
  }
  Tensor nested_sizes(const Leaf&) override { return sizes; }
  StoredRange identity(const Leaf& leaf) override {
    return {.device = device, .inode = 1, .offset_bytes = position_of(leaf)};
  }
  base::Where where(const Leaf&) const override { return "fake.memmap"; }
  void flush(Monitor*) override { ++num_flushes; }

  std::atomic<int> num_maps = 0;
  std::atomic<int> num_reads = 0;
  int num_flushes = 0;
  std::uint64_t device = 1;
  Tensor sizes = Tensor::zeros(DType::int64, {0, 0});

 private:
  Buffer bytes_;
};

}  // namespace tenfold

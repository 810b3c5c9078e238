#include "core/tree/assembled_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/tree/fake_source.hpp"

namespace tenfold {
namespace {

using testing::HasSubstr;

Tensor counting(Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(numel_of(shape)));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(std::span<const float>(values), std::move(shape));
}

/// A box of a tensor. `source` contains the bytes of the box.
struct Box {
  TensorPiece piece;
  std::shared_ptr<FakeSource> source;
};
Box box_of(const Tensor& whole, const Shape& offsets, const Shape& sizes) {
  std::size_t first = 0;
  for (std::size_t d = 0; d < offsets.size(); ++d) {
    first += static_cast<std::size_t>(offsets[d] * whole.strides()[d]);
  }
  const Tensor part(whole.dtype(), sizes, whole.strides(), whole.buffer(),
                    first * whole.itemsize());
  Buffer bytes = Buffer::allocate(part.nbytes());
  Leaf(part).read(0, bytes.mutable_bytes());
  auto source = std::make_shared<FakeSource>(std::move(bytes));
  return {{offsets, stored_leaf(whole.dtype(), sizes, source, 0)}, source};
}

Leaf assemble(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<TensorPiece> pieces;
  for (const Box& box : boxes) pieces.push_back(box.piece);
  return AssembledSource::assemble(DType::float32, shape, pieces, "ckpt: key \"w\"");
}

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw_data()), tensor.nbytes()};
}

/// Compares the leaf with the tensor: mapped, read in one call, and read in parts of three lengths.
void expect_same(const Leaf& leaf, const Tensor& whole) {
  EXPECT_TRUE(bytes_of(leaf.tensor()) == bytes_of(whole));
  const std::string expected = bytes_of(whole);
  for (std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{60}, expected.size()}) {
    std::string found(expected.size(), '\0');
    for (std::size_t at = 0; at < expected.size(); at += step) {
      const std::size_t size = std::min(step, expected.size() - at);
      leaf.read(at, std::as_writable_bytes(std::span(found)).subspan(at, size));
    }
    EXPECT_TRUE(found == expected) << step;
  }
}

std::string refusal(const Shape& shape, const std::vector<Box>& boxes) {
  try {
    assemble(shape, boxes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "taken";
}

TEST(AssembledSource, AssemblesRows) {
  const Tensor whole = counting({5, 3});
  expect_same(assemble({5, 3}, {box_of(whole, {2, 0}, {3, 3}), box_of(whole, {0, 0}, {2, 3})}),
              whole);
}

TEST(AssembledSource, AssemblesColumns) {
  const Tensor whole = counting({4, 5});
  expect_same(assemble({4, 5}, {box_of(whole, {0, 0}, {4, 2}), box_of(whole, {0, 2}, {4, 3})}),
              whole);
}

TEST(AssembledSource, AssemblesBoxesOfThreeDimensions) {
  const Tensor whole = counting({4, 3, 5});
  std::vector<Box> boxes;
  for (const std::int64_t i : {0, 1}) {
    for (const std::int64_t j : {0, 1}) {
      for (const std::int64_t k : {0, 1}) {
        boxes.push_back(
            box_of(whole, {i * 3, j, k * 2}, {i == 0 ? 3 : 1, j == 0 ? 1 : 2, k == 0 ? 2 : 3}));
      }
    }
  }
  expect_same(assemble({4, 3, 5}, boxes), whole);
}

TEST(AssembledSource, AssemblesLongRuns) {
  const Tensor whole = counting({6, 40'000});
  const Leaf leaf = assemble(
      {6, 40'000}, {box_of(whole, {0, 0}, {6, 30'000}), box_of(whole, {0, 30'000}, {6, 10'000})});
  EXPECT_TRUE(bytes_of(leaf.tensor()) == bytes_of(whole));
}

TEST(AssembledSource, ReadsOnlyTheOverlappingPieces) {
  const Tensor whole = counting({6, 2});
  const std::vector<Box> boxes = {box_of(whole, {0, 0}, {3, 2}), box_of(whole, {3, 0}, {3, 2})};
  const Leaf leaf = assemble({6, 2}, boxes);
  std::array<std::byte, 8> row{};
  leaf.read(32, row);
  EXPECT_EQ(boxes[0].source->num_reads, 0);
  EXPECT_EQ(boxes[1].source->num_reads, 1);
  EXPECT_EQ(boxes[1].source->num_maps, 0);
}

TEST(AssembledSource, ReturnsTheSameBytesAtEveryCall) {
  const Tensor whole = counting({2, 2});
  const Leaf leaf =
      assemble({2, 2}, {box_of(whole, {0, 0}, {1, 2}), box_of(whole, {1, 0}, {1, 2})});
  EXPECT_EQ(leaf.tensor().raw_data(), leaf.tensor().raw_data());
}

TEST(AssembledSource, ReturnsASingleCompletePieceUnchanged) {
  const Tensor whole = counting({2, 2});
  const Box box = box_of(whole, {0, 0}, {2, 2});
  const Leaf leaf = assemble({2, 2}, {box, box_of(whole, {2, 0}, {0, 2})});
  EXPECT_EQ(source_of(leaf), box.source);
}

TEST(AssembledSource, SupportsScalarsAndEmptyTensors) {
  const Tensor scalar = counting({});
  expect_same(assemble({}, {box_of(scalar, {}, {})}), scalar);
  EXPECT_EQ(assemble({0, 3}, {}).nbytes(), 0U);
}

TEST(AssembledSource, RefusesGapsAndOverlaps) {
  const Tensor whole = counting({4, 4});
  const std::string text =
      "ckpt: key \"w\": its pieces do not make up the tensor: expected each "
      "element of [4, 4] in one piece, found gaps or overlaps";
  EXPECT_EQ(refusal({4, 4}, {box_of(whole, {0, 0}, {3, 4})}), text);
  EXPECT_EQ(refusal({4, 4}, {}), text);
  EXPECT_EQ(refusal({4, 4}, {box_of(whole, {0, 0}, {3, 4}), box_of(whole, {2, 0}, {2, 4})}), text);
  // The boxes have as many elements as the whole tensor, but cover some elements twice and others
  // not at all.
  EXPECT_EQ(refusal({4, 4}, {box_of(whole, {0, 0}, {2, 4}), box_of(whole, {1, 0}, {2, 4})}), text);
  EXPECT_EQ(refusal({4, 4}, {box_of(whole, {0, 0}, {4, 2}), box_of(whole, {0, 0}, {2, 4})}), text);
}

TEST(AssembledSource, RefusesPiecesOutsideTheTensor) {
  const Tensor whole = counting({4, 4});
  Box box = box_of(whole, {0, 0}, {2, 4});
  box.piece.offsets = {3, 0};
  EXPECT_THAT(refusal({4, 4}, {box}),
              HasSubstr("expected a box within [4, 4], found shape [2, 4] at [3, 0]"));
  box.piece.offsets = {-1, 0};
  EXPECT_THAT(refusal({4, 4}, {box}), HasSubstr("does not fit"));
  box.piece.offsets = {0};
  EXPECT_THAT(refusal({4, 4}, {box}), HasSubstr("does not fit"));
  box.piece = {{0, 0}, stored_leaf(DType::int32, {4, 4}, box.source, 0)};
  EXPECT_THAT(refusal({4, 4}, {box}), HasSubstr("expected float32, found int32"));
  box.piece = {{0, 0}, stored_leaf(DType::float32, {4, 4}, box.source, 0)};
  box.piece.leaf.mark_nested();
  EXPECT_THAT(refusal({4, 4}, {box}),
              HasSubstr("expected float32, found a nested tensor of float32"));
}

TEST(AssembledSource, AssemblesRandomPartitions) {
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): reproducible
  for (int round = 0; round < 20; ++round) {
    const Shape shape = {5, 6, 4};
    const Tensor whole = counting(shape);
    std::vector<std::pair<Shape, Shape>> parts = {{{0, 0, 0}, shape}};
    for (int cut = 0; cut < 8; ++cut) {  // split one part along one dimension
      const std::size_t i = random() % parts.size();
      auto& [offsets, sizes] = parts[i];
      const std::size_t d = random() % 3;
      if (sizes[d] < 2) continue;
      const auto first = 1 + static_cast<std::int64_t>(random()) % (sizes[d] - 1);
      auto second = parts[i];
      second.first[d] += first;
      second.second[d] -= first;
      sizes[d] = first;
      parts.push_back(second);
    }
    std::vector<Box> boxes;
    for (const auto& [offsets, sizes] : parts) boxes.push_back(box_of(whole, offsets, sizes));
    expect_same(assemble(shape, boxes), whole);
    boxes.pop_back();
    EXPECT_THAT(refusal(shape, boxes), HasSubstr("gaps or overlaps"));
  }
}

}  // namespace
}  // namespace tenfold

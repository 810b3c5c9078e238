#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

// Checksums of boxes, the rectangular parts of a tensor that one process writes. When several
// processes write a tensor, a 16 MiB block may contain bytes from several processes. So each
// checksum covers a box, whose bytes are hashed in row-major order. In `%checksums`, a box whose
// bytes are contiguous is listed like a block.

/// A box of a tensor, in elements. `offsets` and `sizes` have one number per dimension.
struct Box {
  Shape offsets;
  Shape sizes;
  bool operator==(const Box&) const = default;
};

/// A box of a byte array of `shape`, with as few dimensions as possible. A contiguous box has one
/// dimension.
struct ByteBox {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> sizes;
  bool operator==(const ByteBox&) const = default;

  bool is_contiguous() const noexcept { return shape.size() == 1; }
  std::uint64_t volume() const noexcept;  ///< size in bytes
  std::uint64_t begin() const noexcept;   ///< offset of its first byte in the tensor
  std::uint64_t end() const noexcept;     ///< offset after its last byte
};

/// Converts a box in elements to bytes. Returns nullopt if the box has another number of dimensions
/// than the tensor, is empty or not inside the tensor, or if the size of the tensor does not fit 63
/// bits.
std::optional<ByteBox> byte_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                                const Box& box);
/// Like the function above, for an array of bytes. Also returns nullopt if the array has no
/// dimension.
std::optional<ByteBox> byte_box(const std::vector<std::uint64_t>& shape,
                                const std::vector<std::uint64_t>& offsets,
                                const std::vector<std::uint64_t>& sizes);

/// Returns true if a box has bytes in the range [begin, end) of the array.
bool overlaps(const ByteBox& box, std::uint64_t begin, std::uint64_t end);

/// Returns the part of `box` that is in `piece`, relative to `piece`. Both are boxes of one tensor.
/// Returns nullopt if they do not overlap.
std::optional<Box> part_inside(const Box& piece, const Box& box);

/// Iterates over the contiguous runs of a box, in file order.
class BoxRuns {
 public:
  /// `box` must outlive this object.
  explicit BoxRuns(const ByteBox& box);

  bool done() const noexcept { return done_; }
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t size_bytes() const noexcept { return box_->sizes.back(); }
  void next() noexcept;

 private:
  const ByteBox* box_;
  std::vector<std::uint64_t> index_;    ///< index in the box, for all dimensions but the last
  std::vector<std::uint64_t> strides_;  ///< in bytes
  std::uint64_t begin_ = 0;
  bool done_ = false;
};

/// Splits a box into smaller boxes with one checksum each. Each smaller box is inside a band of the
/// tensor, a range of at most 16 MiB of the file. The bands are the same for all boxes of the
/// tensor, so that a sequential reader has few boxes open at a time. The box must be inside the
/// tensor. Returns no boxes if the box is empty.
std::vector<Box> split_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                           const Box& box);

/// A box and its stored checksum.
struct BoxSum {
  ByteBox box;
  std::uint64_t expected = 0;
};

/// The boxes of one tensor of a file.
struct BoxedTensor {
  const os::File* file = nullptr;
  std::uint64_t offset_bytes = 0;  ///< of the tensor in the file
  std::uint64_t size_bytes = 0;    ///< of the tensor
  std::string part;                ///< for the report
  std::vector<BoxSum> boxes;
  /// Returns true if the bytes [begin, end) of the tensor need no check; empty: check all.
  std::function<bool(std::uint64_t begin, std::uint64_t end)> skips = {};
};

/// Checks tensors in parallel, each split into ranges whose borders no box crosses. Each range is
/// read once, sequentially, up to its first problem. Memory contains a hash state, or the bytes of
/// a small box, for each box that was begun and is not complete yet. Ranges that the tensor's
/// `skips` excludes are not read. Boxes that overlap, or do not cover all bytes, are a problem of
/// the tensor.
/// Returns the problems, in the order of the tensors. Throws an error for which
/// is_problem_of_files() is false.
std::vector<Problem> check_boxes(std::vector<BoxedTensor> tensors, int num_threads,
                                 Progress& progress);

// The text of "tenfold_boxes" in a safetensors file: 16 hexadecimal digits of the hash of the
// header (with these digits as zeros), then for each tensor in file order a ";" and its boxes,
// separated by blanks. A box is "<16 digits>" if it is the whole tensor, else "<16
// digits>:<offsets>:<sizes>" in elements, with comma-separated numbers. A tensor without elements
// has no boxes.

/// Returns the text with zeros as digits.
std::string blank_boxes_text(const std::vector<std::vector<Box>>& tensors,
                             const std::vector<Shape>& shapes);

struct StoredBox {
  std::uint64_t checksum = 0;
  std::optional<Box> box;  ///< empty: the whole tensor
};
/// Parses the boxes of each tensor. Returns nullopt unless the text has the form that
/// blank_boxes_text() returns, with any digits.
std::optional<std::vector<std::vector<StoredBox>>> parse_boxes_text(std::string_view text);

/// Writes the checksums of all boxes, in order, over the digits of the boxes in the text at
/// `text_at` of `document`. Then writes the checksum of the document.
void fill_boxes(std::string& document, std::size_t text_at,
                std::span<const std::uint64_t> checksums);

/// Formats and parses comma-separated numbers, as in the texts above. The parser returns nullopt
/// for any other text.
std::string numbers_text(std::span<const std::uint64_t> numbers);
std::optional<std::vector<std::uint64_t>> parse_numbers(std::string_view text);

}  // namespace tenfold::detail::formats

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

/// A box in the bytes of a tensor, which form an array of `shape`. byte_box() merges dimensions
/// where it can, so a contiguous box has one dimension.
struct ByteBox {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> sizes;
  bool operator==(const ByteBox&) const = default;

  bool is_contiguous() const noexcept { return shape.size() == 1; }
  std::uint64_t volume() const noexcept;  ///< number of bytes in the box
  std::uint64_t begin() const noexcept;   ///< offset of its first byte in the tensor
  std::uint64_t end() const noexcept;     ///< offset after its last byte in the tensor
};

/// Converts a box of a tensor of `shape`, whose elements have `itemsize` bytes, to a box of bytes.
/// Returns nullopt if the box has another number of dimensions than the tensor, is empty or not
/// inside the tensor, or if the tensor has 2^63 bytes or more.
std::optional<ByteBox> byte_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                                const Box& box);
/// Returns the box [offsets, offsets + sizes) of an array of bytes of `shape`, with merged
/// dimensions. Returns nullopt for the same reasons as the overload above, and if the array has no
/// dimensions.
std::optional<ByteBox> byte_box(const std::vector<std::uint64_t>& shape,
                                const std::vector<std::uint64_t>& offsets,
                                const std::vector<std::uint64_t>& sizes);

/// Returns true if the box contains a byte of the tensor whose offset is in [begin, end).
bool overlaps(const ByteBox& box, std::uint64_t begin, std::uint64_t end);

/// Returns the intersection of two boxes of one tensor, with offsets relative to those of `piece`.
/// Returns nullopt if they do not overlap.
std::optional<Box> part_inside(const Box& piece, const Box& box);

/// Iterates over the contiguous runs of bytes of a box, in file order.
class BoxRuns {
 public:
  /// `box` must outlive this object.
  explicit BoxRuns(const ByteBox& box);

  /// True after next() was called for the last run.
  bool done() const noexcept { return done_; }
  /// Offset of the current run in the tensor.
  std::uint64_t begin() const noexcept { return begin_; }
  /// Size of every run.
  std::uint64_t size_bytes() const noexcept { return box_->sizes.back(); }
  void next() noexcept;

 private:
  const ByteBox* box_;
  std::vector<std::uint64_t> index_;    ///< index in the box, for all dimensions but the last
  std::vector<std::uint64_t> strides_;  ///< in bytes
  std::uint64_t begin_ = 0;
  bool done_ = false;
};

/// Splits a box of a tensor of `shape` into smaller boxes, each of which gets one checksum. Each of
/// them is inside one range of at most 16 MiB of the tensor's bytes. These ranges are the same for
/// all boxes of a tensor, so that a sequential reader needs memory for few partly read boxes.
/// The box must be inside the tensor. Returns no boxes if the box is empty.
std::vector<Box> split_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                           const Box& box);

/// A box and its stored checksum.
struct BoxSum {
  ByteBox box;
  std::uint64_t expected = 0;  ///< XXH3
};

/// The boxes of one tensor of a file.
struct BoxedTensor {
  const os::File* file = nullptr;
  std::uint64_t offset_bytes = 0;  ///< of the tensor in the file
  std::uint64_t size_bytes = 0;    ///< of the tensor
  std::string part;                ///< names the tensor in problems
  std::vector<BoxSum> boxes;
  /// Returns true if the bytes [begin, end) of the tensor need no check; empty: check all.
  std::function<bool(std::uint64_t begin, std::uint64_t end)> skips = {};
};

/// Compares the boxes of tensors with their checksums, in parallel. Splits each tensor into ranges
/// whose borders no box crosses. Reads each range once, sequentially, up to its first problem, and
/// skips ranges that the tensor's `skips` excludes. Needs memory for each box of which it has read
/// some, but not all bytes: a hash state, or the bytes of a small box. Returns the problems, in the
/// order of the tensors; boxes that overlap or do not cover all bytes are a problem, too. Throws
/// any error for which is_problem_of_files() is false.
std::vector<Problem> check_boxes(std::vector<BoxedTensor> tensors, int num_threads,
                                 Progress& progress);

// The text of "tenfold_boxes" in a safetensors file: 16 hexadecimal digits of the hash of the
// header (with these digits as zeros), then for each tensor in file order a ";" and its boxes,
// separated by spaces. A box is "<16 digits>" if it is the whole tensor, else "<16
// digits>:<offsets>:<sizes>" in elements, with comma-separated numbers. A tensor without elements
// has no boxes.

/// Returns the text of "tenfold_boxes" for tensors of `shapes`, with zeros in place of all
/// hexadecimal digits. `tensors` has the boxes of each tensor.
std::string blank_boxes_text(const std::vector<std::vector<Box>>& tensors,
                             const std::vector<Shape>& shapes);

/// A box in the text of "tenfold_boxes".
struct StoredBox {
  std::uint64_t checksum = 0;
  std::optional<Box> box;  ///< empty: the whole tensor
};
/// Parses the text of "tenfold_boxes". Returns the boxes of each tensor, in file order, or nullopt
/// if the text has another form. Does not check that the boxes are inside the tensors.
std::optional<std::vector<std::vector<StoredBox>>> parse_boxes_text(std::string_view text);

/// Fills in the digits of blank_boxes_text(), which begins at `text_at` in `document`: first
/// `checksums`, one for each box in the order of the text, then the hash of the document, in the
/// first 16 digits.
void fill_boxes(std::string& document, std::size_t text_at,
                std::span<const std::uint64_t> checksums);

/// Format and parse comma-separated decimal numbers. parse_numbers() returns nullopt for any other
/// text, including "".
std::string numbers_text(std::span<const std::uint64_t> numbers);
std::optional<std::vector<std::uint64_t>> parse_numbers(std::string_view text);

}  // namespace tenfold::detail::formats

#pragma once

#include <cstdint>
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

// Checksums of boxes. A tensor that several processes wrote has no 16 MiB blocks that one of them
// saw whole: each checksum is that of a box, whose bytes are taken in row-major order. A box whose
// bytes lie end to end in the file is a block as any other.

/// A box of a tensor, in elements: `sizes` from `offsets`, one number for each dimension.
struct Box {
  Shape offsets;
  Shape sizes;
  bool operator==(const Box&) const = default;
};

/// The same in bytes, with as few dimensions as describe it: of an array of bytes of `shape`. What
/// lies end to end has one dimension.
struct ByteBox {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> sizes;
  bool operator==(const ByteBox&) const = default;

  bool is_contiguous() const noexcept { return shape.size() == 1; }
  std::uint64_t volume() const noexcept;  ///< its bytes
  std::uint64_t begin() const noexcept;   ///< its first byte in the tensor
  std::uint64_t end() const noexcept;     ///< behind its last byte
};

/// Nothing if the box has other dimensions than the tensor, or reaches out of it, or the tensor is
/// larger than 63 bits can say, or the box has no bytes.
std::optional<ByteBox> byte_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                                const Box& box);
/// As byte_box(), of lengths that count bytes already.
std::optional<ByteBox> byte_box(const std::vector<std::uint64_t>& shape,
                                const std::vector<std::uint64_t>& offsets,
                                const std::vector<std::uint64_t>& sizes);

/// The runs of bytes of a box that lie end to end, in the order of the file.
class BoxRuns {
 public:
  /// `box` must stay where it is.
  explicit BoxRuns(const ByteBox& box);

  bool done() const noexcept { return done_; }
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t size_bytes() const noexcept { return box_->sizes.back(); }
  void next() noexcept;

 private:
  const ByteBox* box_;
  std::vector<std::uint64_t> index_;    ///< in the box, of all dimensions but the last
  std::vector<std::uint64_t> strides_;  ///< bytes
  std::uint64_t begin_ = 0;
  bool done_ = false;
};

/// Cuts a box into those that have a checksum each: every one lies within a band of the tensor, a
/// run of at most 16 MiB of the file, and the bands are the same for all boxes of the tensor, so
/// that a reader who goes through the file has few of them open at a time. The box lies inside the
/// tensor.
std::vector<Box> split_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                           const Box& box);

/// One box and the checksum that is stored of it.
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
};

/// Checks tensors in parallel. Each is read once, in the order of the file, in bounded memory: one
/// hash state for each box that the reader is within. Boxes that overlap, or leave bytes out, are a
/// problem of the tensor. Returns the problems, in order.
std::vector<Problem> check_boxes(std::vector<BoxedTensor> tensors, int num_threads,
                                 Progress& progress);

// The text that holds them in a safetensors file's "tenfold_boxes": 16 hexadecimal digits of the
// hash of the header (with these digits as zeros), then for each tensor in the order of the file a
// ";" and its boxes with blanks between them, each "<16 digits>" if it is the whole tensor, else
// "<16 digits>:<offsets>:<sizes>" in elements, with commas between the numbers. A tensor without
// elements has none.

/// The text with zeros as digits.
std::string blank_boxes_text(const std::vector<std::vector<Box>>& tensors,
                             const std::vector<Shape>& shapes);

struct StoredBox {
  std::uint64_t checksum = 0;
  std::optional<Box> box;  ///< nothing: the whole tensor
};
/// The boxes of each tensor; nothing if the text is not as blank_boxes_text() makes it.
std::optional<std::vector<std::vector<StoredBox>>> parse_boxes_text(std::string_view text);

/// Puts the checksums of all boxes, in order, into the digits of the text that begins at `text_at`
/// of `document`, and then that of the document.
void fill_boxes(std::string& document, std::size_t text_at,
                std::span<const std::uint64_t> checksums);

/// Numbers with commas between them, as in the texts above; nothing if it is anything else.
std::string numbers_text(std::span<const std::uint64_t> numbers);
std::optional<std::vector<std::uint64_t>> parse_numbers(std::string_view text);

}  // namespace tenfold::detail::formats

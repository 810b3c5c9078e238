#include "core/tensor/strided_copy.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

/// Bytes by which a contiguous copy of a tensor with repeated elements may exceed its storage.
constexpr std::uint64_t kRepeatedBytes = std::uint64_t{16} << 20U;

enum class Direction { gather, scatter };

/// A block of `rows` x `cols` elements: strided in the tensor, row-major in the packed buffer.
struct Block {
  std::byte* strided;
  std::byte* packed;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;  ///< in elements
  std::int64_t col_stride;
};

/// Copies `count` elements one by one. Uses memcpy because addresses may be unaligned.
template <std::size_t kItemBytes, Direction kDirection>
void copy_run(std::byte* strided, std::byte* packed, std::int64_t count, std::int64_t stride) {
  const std::ptrdiff_t step = stride * static_cast<std::ptrdiff_t>(kItemBytes);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (kDirection == Direction::gather) {
      std::memcpy(packed, strided, kItemBytes);
    } else {
      std::memcpy(strided, packed, kItemBytes);
    }
    strided += step;
    packed += kItemBytes;
  }
}

template <std::size_t kItemBytes, Direction kDirection>
void copy_block(const Block& block) {
  constexpr auto kBytes = static_cast<std::ptrdiff_t>(kItemBytes);
  if (block.col_stride == 1) {
    const std::size_t row_bytes = static_cast<std::size_t>(block.cols) * kItemBytes;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      std::byte* strided = block.strided + r * block.row_stride * kBytes;
      std::byte* packed = block.packed + r * block.cols * kBytes;
      if constexpr (kDirection == Direction::gather) {
        std::memcpy(packed, strided, row_bytes);
      } else {
        std::memcpy(strided, packed, row_bytes);
      }
    }
    return;
  }
  // In a transposed matrix each column is contiguous. With tiles of 32 x 32, the cache lines of the
  // tensor and of the packed buffer are reused before they are evicted.
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < block.rows; r0 += kTile) {
    const std::int64_t r1 = std::min(r0 + kTile, block.rows);
    for (std::int64_t c0 = 0; c0 < block.cols; c0 += kTile) {
      const std::int64_t count = std::min(kTile, block.cols - c0);
      for (std::int64_t r = r0; r < r1; ++r) {
        copy_run<kItemBytes, kDirection>(
            block.strided + (r * block.row_stride + c0 * block.col_stride) * kBytes,
            block.packed + (r * block.cols + c0) * kBytes, count, block.col_stride);
      }
    }
  }
}

template <Direction kDirection>
void copy_block_of(std::size_t item_bytes, const Block& block) {
  switch (item_bytes) {
    case 1:
      return copy_block<1, kDirection>(block);
    case 2:
      return copy_block<2, kDirection>(block);
    case 4:
      return copy_block<4, kDirection>(block);
    case 8:
      return copy_block<8, kDirection>(block);
    default:
      return copy_block<16, kDirection>(block);
  }
}

/// A shape and strides that visit the elements of a tensor in row-major order, with adjacent
/// dimensions merged where possible. Has at least two dimensions, the first of length 1.
struct Layout {
  Shape shape;
  Shape strides;
};

Layout collapsed(const Tensor& tensor) {
  Layout layout{{1}, {0}};
  for (std::size_t i = 0; i < tensor.shape().size(); ++i) {
    const std::int64_t length = tensor.shape()[i];
    const std::int64_t stride = tensor.strides()[i];
    if (length == 1) continue;
    const bool merges = layout.shape.size() > 1 && layout.strides.back() == stride * length;
    if (merges) {
      layout.shape.back() *= length;
      layout.strides.back() = stride;
    } else {
      layout.shape.push_back(length);
      layout.strides.push_back(stride);
    }
  }
  if (layout.shape.size() == 1) {
    layout.shape.push_back(1);
    layout.strides.push_back(1);
  }
  return layout;
}

template <Direction kDirection>
void copy(const Tensor& tensor, std::int64_t begin, std::int64_t end, std::byte* packed) {
  if (begin < 0 || end < begin || end > tensor.numel()) {
    throw base::invalid_argument()
        .part("tensor")
        .problem("elements [", begin, ", ", end, ") are out of range")
        .expected("a range within [0, ", tensor.numel(), ")");
  }
  if (begin == end) return;
  const Layout layout = collapsed(tensor);
  const std::size_t last = layout.shape.size() - 1;
  const std::int64_t cols = layout.shape[last];
  const std::int64_t rows = layout.shape[last - 1];
  const auto item_bytes = static_cast<std::int64_t>(tensor.itemsize());
  while (begin < end) {
    const std::int64_t col = begin % cols;
    std::int64_t rest = begin / cols;
    const std::int64_t row = rest % rows;
    std::int64_t at = col * layout.strides[last] + row * layout.strides[last - 1];
    rest /= rows;
    for (std::size_t i = last - 1; i-- > 0;) {
      at += rest % layout.shape[i] * layout.strides[i];
      rest /= layout.shape[i];
    }
    // Direction::gather only reads; copy_from_contiguous() checks that the tensor is writable.
    Block block{const_cast<std::byte*>(tensor.raw_data()) + at * item_bytes,
                packed,
                1,
                0,
                layout.strides[last - 1],
                layout.strides[last]};
    if (col != 0 || end - begin < cols) {
      block.cols = std::min(cols - col, end - begin);
    } else {
      block.cols = cols;
      block.rows = std::min(rows - row, (end - begin) / cols);
    }
    copy_block_of<kDirection>(tensor.itemsize(), block);
    begin += block.rows * block.cols;
    packed += block.rows * block.cols * item_bytes;
  }
}

}  // namespace

void copy_to_contiguous(const Tensor& from, std::int64_t begin, std::int64_t end, std::byte* to) {
  copy<Direction::gather>(from, begin, end, to);
}

void copy_from_contiguous(const std::byte* from, const Tensor& to, std::int64_t begin,
                          std::int64_t end) {
  if (!to.buffer().writable()) {
    throw base::invalid_argument().problem("tensor is read-only");
  }
  // The const_cast is safe: Direction::scatter only reads the packed bytes.
  copy<Direction::scatter>(to, begin, end, const_cast<std::byte*>(from));
}

Tensor contiguous_of_file(const Tensor& tensor, const base::Where& where) {
  const std::uint64_t stored = tensor.buffer().size_bytes();
  if (!where.path.empty() && !tensor.is_contiguous() && tensor.nbytes() > stored &&
      tensor.nbytes() - stored > kRepeatedBytes) {
    throw base::unsupported(where)
        .problem("a tensor repeats its elements too often to be copied")
        .expected("at most ", stored + kRepeatedBytes,
                  " bytes, which is 16 MiB more than its storage")
        .found(tensor.nbytes())
        .remedy("save a contiguous() copy of it");
  }
  return tensor.contiguous();
}

}  // namespace tenfold

#include "core/tree/assembled_source.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Runs of fewer bytes are read in groups into a scratch buffer, and then copied to their
/// destinations.
constexpr std::uint64_t kDirectBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kScratchBytes = std::uint64_t{1} << 20;
/// Bytes that one task copies when the whole tensor is read into memory.
constexpr std::uint64_t kBytesPerTask = std::uint64_t{16} << 20;
/// The greatest number of sharded dimensions: with n of them, a piece has 2^n corners.
constexpr std::size_t kMaxCutDims = 8;
/// The greatest number of corners of all pieces, more than any cluster needs. Without a limit, a
/// hostile file could make check_cover() take arbitrarily long.
constexpr std::size_t kMaxCorners = std::size_t{1} << 22;

std::string box_text(const TensorPiece& piece) {
  return "shape " + base::list_text(piece.leaf.shape()) + " at " + base::list_text(piece.offsets);
}

void check_piece(const TensorPiece& piece, DType dtype, const Shape& shape,
                 const base::Where& where) {
  const Shape& sizes = piece.leaf.shape();
  if (piece.leaf.dtype() != dtype || piece.leaf.is_nested()) {
    throw base::corrupt(where)
        .problem("a piece of it has another dtype")
        .expected(to_string(dtype))
        .found(piece.leaf.is_nested() ? "a nested tensor of " : "", to_string(piece.leaf.dtype()));
  }
  bool fits = sizes.size() == shape.size() && piece.offsets.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = piece.offsets[d] >= 0 && sizes[d] >= 0 && piece.offsets[d] <= shape[d] &&
           sizes[d] <= shape[d] - piece.offsets[d];
  }
  if (!fits) {
    throw base::corrupt(where)
        .problem("a piece of it does not fit")
        .expected("a box within ", base::list_text(shape))
        .found(box_text(piece));
  }
}

/// The dimensions in which at least one piece does not span the whole tensor.
std::vector<std::size_t> cut_dims(const std::vector<TensorPiece>& pieces, const Shape& shape) {
  std::vector<std::size_t> cut;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto is_cut = [&](const TensorPiece& piece) { return piece.leaf.shape()[d] != shape[d]; };
    if (std::ranges::any_of(pieces, is_cut)) cut.push_back(d);
  }
  return cut;
}

using Corner = std::array<std::int64_t, kMaxCutDims>;

/// Adds the signed corners of a box: the weight is negated at corners that are upper bounds in an
/// odd number of dimensions.
void add_corners(std::map<Corner, std::int64_t>& corners, const std::vector<std::size_t>& cut,
                 const Shape& offsets, const Shape& sizes, std::int64_t weight) {
  for (std::size_t which = 0; which < (std::size_t{1} << cut.size()); ++which) {
    Corner corner{};
    std::int64_t sign = weight;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      const bool upper = ((which >> i) & 1U) != 0;
      corner[i] = offsets[cut[i]] + (upper ? sizes[cut[i]] : 0);
      if (upper) sign = -sign;
    }
    const auto at = corners.try_emplace(corner, 0).first;
    at->second += sign;
    if (at->second == 0) corners.erase(at);
  }
}

/// Checks that every element is covered exactly once: this holds if the signed corners of all boxes
/// sum to those of the whole tensor.
void check_cover(const std::vector<TensorPiece>& pieces, const Shape& shape,
                 const base::Where& where) {
  const std::vector<std::size_t> cut = cut_dims(pieces, shape);
  if (cut.size() > kMaxCutDims || pieces.size() > (kMaxCorners >> cut.size())) {
    throw base::unsupported(where)
        .problem("it has too many pieces or sharded dimensions")
        .expected("at most ", kMaxCutDims, " sharded dimensions, and at most ", kMaxCorners,
                  " / 2^n pieces if n dimensions are sharded")
        .found(pieces.size(), " pieces, sharded along ", cut.size(), " dimensions");
  }
  std::map<Corner, std::int64_t> corners;
  for (const TensorPiece& piece : pieces) {
    add_corners(corners, cut, piece.offsets, piece.leaf.shape(), 1);
  }
  add_corners(corners, cut, Shape(shape.size(), 0), shape, -1);
  if (corners.empty()) return;
  throw base::corrupt(where)
      .problem("its pieces do not make up the tensor")
      .expected("each element of ", base::list_text(shape), " in one piece")
      .found("gaps or overlaps");
}

}  // namespace

Leaf AssembledSource::assemble(DType dtype, Shape shape, std::vector<TensorPiece> pieces,
                               base::Where where) {
  std::uint64_t size_bytes = 0;
  try {
    size_bytes = nbytes_of(dtype, shape);
  } catch (const Error& error) {
    throw Error(error).code(ErrorCode::corrupt).within(where.part).path(where.path);
  }
  for (const TensorPiece& piece : pieces) check_piece(piece, dtype, shape, where);
  std::erase_if(pieces, [](const TensorPiece& piece) { return piece.leaf.nbytes() == 0; });
  if (size_bytes == 0) return Leaf(Tensor(dtype, std::move(shape), Buffer()));
  check_cover(pieces, shape, where);
  if (pieces.size() == 1) return std::move(pieces.front().leaf);

  const std::shared_ptr<AssembledSource> source(new AssembledSource(std::move(where)));
  source->strides_bytes_ = contiguous_strides(shape);
  for (std::int64_t& stride : source->strides_bytes_) {
    stride *= static_cast<std::int64_t>(itemsize(dtype));
  }
  for (TensorPiece& piece : pieces) {
    Placed placed{std::move(piece)};
    const Shape& sizes = placed.piece.leaf.shape();
    std::size_t dim = shape.empty() ? 0 : shape.size() - 1;
    while (dim > 0 && sizes[dim] == shape[dim]) --dim;
    placed.run_dim = dim;
    placed.num_runs = 1;
    for (std::size_t d = 0; d < dim; ++d) {
      placed.num_runs *= static_cast<std::uint64_t>(sizes[d]);
    }
    placed.run_bytes = placed.piece.leaf.nbytes() / placed.num_runs;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      placed.first_byte +=
          static_cast<std::uint64_t>(placed.piece.offsets[d] * source->strides_bytes_[d]);
    }
    source->pieces_.push_back(std::move(placed));
  }
  return stored_leaf(dtype, std::move(shape), source, 0);
}

std::uint64_t AssembledSource::run_begin(const Placed& placed, std::uint64_t run) const {
  const Shape& sizes = placed.piece.leaf.shape();
  std::uint64_t byte = placed.first_byte;
  for (std::size_t d = placed.run_dim; d > 0; --d) {
    const auto length = static_cast<std::uint64_t>(sizes[d - 1]);
    byte += run % length * static_cast<std::uint64_t>(strides_bytes_[d - 1]);
    run /= length;
  }
  return byte;
}

/// Index of the first run that ends after `byte`.
std::uint64_t AssembledSource::first_run_after(const Placed& placed, std::uint64_t byte) const {
  std::uint64_t low = 0;
  std::uint64_t high = placed.num_runs;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (run_begin(placed, middle) + placed.run_bytes > byte) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Copies bytes of the piece to `into`, which stands for the bytes of the whole tensor from `begin`
/// on. Leaves the bytes of other pieces unchanged.
void AssembledSource::read_piece(const Placed& placed, std::uint64_t begin,
                                 std::span<std::byte> into) const {
  const std::uint64_t end = begin + into.size();
  std::vector<std::byte> scratch;
  for (std::uint64_t run = first_run_after(placed, begin); run < placed.num_runs;) {
    const std::uint64_t at = run_begin(placed, run);
    if (at >= end) return;
    const std::uint64_t from = std::max(at, begin);
    const std::uint64_t to = std::min(at + placed.run_bytes, end);
    if (placed.run_bytes >= kDirectBytes || from != at || to != at + placed.run_bytes) {
      placed.piece.leaf.read(run * placed.run_bytes + (from - at),
                             into.subspan(static_cast<std::size_t>(from - begin),
                                          static_cast<std::size_t>(to - from)));
      ++run;
      continue;
    }
    // Whole short runs are contiguous in the piece: read as many at once as fit the scratch buffer.
    std::uint64_t count = std::min(kScratchBytes / placed.run_bytes, placed.num_runs - run);
    while (count > 1 && run_begin(placed, run + count - 1) + placed.run_bytes > end) {
      count = (count + 1) / 2;
    }
    scratch.resize(static_cast<std::size_t>(count * placed.run_bytes));
    placed.piece.leaf.read(run * placed.run_bytes, scratch);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(into.data() + (run_begin(placed, run + i) - begin),
                  scratch.data() + i * placed.run_bytes,
                  static_cast<std::size_t>(placed.run_bytes));
    }
    run += count;
  }
}

void AssembledSource::read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) {
  for (const Placed& placed : pieces_) read_piece(placed, offset_bytes, into);
}

Buffer AssembledSource::map(const Leaf& leaf) {
  const std::lock_guard lock(mutex_);
  if (copy_.size_bytes() != 0) return copy_;
  // A file can declare any size. Reading each piece's last byte first throws, before the
  // allocation, if a file is too short for its pieces.
  for (const Placed& placed : pieces_) {
    std::byte last{};
    placed.piece.leaf.read(placed.piece.leaf.nbytes() - 1, {&last, 1});
  }
  const std::uint64_t size_bytes = leaf.nbytes();
  Buffer filled = Buffer::allocate(static_cast<std::size_t>(size_bytes));
  const std::uint64_t num_tasks = (size_bytes + kBytesPerTask - 1) / kBytesPerTask;
  os::parallel_for(static_cast<std::size_t>(num_tasks), os::num_threads_for(0),
                   [&](std::size_t task) {
                     const std::uint64_t begin = task * kBytesPerTask;
                     const std::uint64_t count = std::min(kBytesPerTask, size_bytes - begin);
                     read(leaf, begin,
                          filled.mutable_bytes().subspan(static_cast<std::size_t>(begin),
                                                         static_cast<std::size_t>(count)));
                   });
  copy_ = std::move(filled);
  return copy_;
}

std::vector<TensorPiece> AssembledSource::pieces() const {
  std::vector<TensorPiece> pieces;
  pieces.reserve(pieces_.size());
  for (const Placed& placed : pieces_) pieces.push_back(placed.piece);
  return pieces;
}

base::Where AssembledSource::where(const Leaf&) const { return where_; }

std::vector<Leaf> AssembledSource::parts(const Leaf&) const {
  std::vector<Leaf> leaves;
  for (const Placed& placed : pieces_) leaves.push_back(placed.piece.leaf);
  return leaves;
}

/// Two assembled tensors share storage if all of their pieces do, at the same offsets. If the
/// identity of one piece is StoredRange{}, so is that of the tensor.
StoredRange AssembledSource::identity(const Leaf&) {
  StoredRange whole;
  whole.pieces.reserve(2 * pieces_.size());
  for (const Placed& placed : pieces_) {
    StoredRange piece = stored_range(placed.piece.leaf);
    if (piece == StoredRange{}) return {};
    whole.pieces.push_back(std::move(piece));
    whole.pieces.push_back({.offset_bytes = placed.first_byte});  // offset in the whole tensor
  }
  return whole;
}

}  // namespace tenfold

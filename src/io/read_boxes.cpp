#include <tenfold/read_boxes.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/progress.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

namespace formats = detail::formats;

/// Runs of fewer bytes are copied from a mapping of the file.
constexpr std::uint64_t kReadRunBytes = std::uint64_t{64} << 10;
/// Total size of the small boxes in one task.
constexpr std::uint64_t kBoxBatchBytes = std::uint64_t{4} << 20;
constexpr std::size_t kBoxPieceBytes = std::size_t{1} << 20;

base::Where place_of(const Leaf& leaf) {
  return leaf.in_memory() ? base::Where("", "tensor") : source_of(leaf)->where(leaf);
}

void require_fitting(const BoxRead& read) {
  const auto refuse = [&] { return base::invalid_argument(place_of(read.leaf)).part("box"); };
  if (read.leaf.is_nested()) throw refuse().expected("a dense tensor").found("a nested one");
  if (read.destination.dtype() != read.leaf.dtype()) {
    throw refuse()
        .expected("a tensor of ", to_string(read.leaf.dtype()), " to read into")
        .found(to_string(read.destination.dtype()));
  }
  const Shape& shape = read.leaf.shape();
  const Shape& sizes = read.destination.shape();
  bool fits = read.offsets.size() == shape.size() && sizes.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = read.offsets[d] >= 0 && read.offsets[d] <= shape[d] &&
           sizes[d] <= shape[d] - read.offsets[d];
  }
  if (!fits) {
    throw refuse()
        .expected("one within ", base::list_text(shape))
        .found("one at ", base::list_text(read.offsets), " of shape ", base::list_text(sizes));
  }
  if (!read.destination.buffer().writable()) {
    throw refuse().expected("a tensor that can be written").found("a read-only one");
  }
}

/// The box as a view of the whole tensor.
Tensor view_of(const BoxRead& read, const Tensor& whole) {
  std::uint64_t offset = whole.offset_bytes();
  for (std::size_t d = 0; d < read.offsets.size(); ++d) {
    offset += static_cast<std::uint64_t>(read.offsets[d]) *
              static_cast<std::uint64_t>(whole.strides()[d]) * whole.itemsize();
  }
  return {whole.dtype(), read.destination.shape(), whole.strides(), whole.buffer(), offset};
}

void copy_view(const Tensor& from, const Tensor& destination) {
  if (destination.is_contiguous()) {
    copy_to_contiguous(from, 0, from.numel(), destination.mutable_raw_data());
    return;
  }
  const auto per_piece = static_cast<std::int64_t>(kBoxPieceBytes / from.itemsize());
  std::vector<std::byte> piece(kBoxPieceBytes);
  for (std::int64_t at = 0; at < from.numel(); at += per_piece) {
    const std::int64_t end = std::min(from.numel(), at + per_piece);
    copy_to_contiguous(from, at, end, piece.data());
    copy_from_contiguous(piece.data(), destination, at, end);
  }
}

void read_box(const BoxRead& read);

/// Reads the part of each stored piece that is in the box.
void read_pieces(const BoxRead& read, const AssembledSource& source) {
  for (const TensorPiece& piece : source.pieces()) {
    BoxRead part{piece.leaf, read.offsets, read.destination};
    Shape sizes = read.destination.shape();
    std::uint64_t destination_offset = read.destination.offset_bytes();
    bool meets = true;
    for (std::size_t d = 0; meets && d < sizes.size(); ++d) {
      const std::int64_t begin = std::max(read.offsets[d], piece.offsets[d]);
      const std::int64_t end = std::min(read.offsets[d] + read.destination.shape()[d],
                                        piece.offsets[d] + piece.leaf.shape()[d]);
      meets = begin < end;
      sizes[d] = end - begin;
      part.offsets[d] = begin - piece.offsets[d];
      destination_offset += static_cast<std::uint64_t>(begin - read.offsets[d]) *
                            static_cast<std::uint64_t>(read.destination.strides()[d]) *
                            read.destination.itemsize();
    }
    if (!meets) continue;
    part.destination =
        Tensor(read.destination.dtype(), std::move(sizes), read.destination.strides(),
               read.destination.buffer(), destination_offset);
    read_box(part);
  }
}

void read_box(const BoxRead& read) {
  if (read.destination.numel() == 0) return;
  if (const auto* pieces = dynamic_cast<const AssembledSource*>(source_of(read.leaf).get())) {
    return read_pieces(read, *pieces);
  }
  const auto box = formats::byte_box(read.leaf.shape(), itemsize(read.leaf.dtype()),
                                     {read.offsets, read.destination.shape()});
  const bool by_pread = !read.leaf.in_memory() && read.destination.is_contiguous() && box &&
                        (box->is_contiguous() || box->sizes.back() >= kReadRunBytes);
  if (!by_pread) return copy_view(view_of(read, read.leaf.tensor()), read.destination);
  std::byte* to = read.destination.mutable_raw_data();
  for (formats::BoxRuns runs(*box); !runs.done(); runs.next()) {
    read.leaf.read(runs.begin(), {to, static_cast<std::size_t>(runs.size_bytes())});
    to += runs.size_bytes();
  }
}

}  // namespace

void read_boxes(std::span<const BoxRead> boxes, int num_threads, Monitor* monitor) {
  std::uint64_t total_bytes = 0;
  std::vector<std::size_t> batches;  // index of the first box of each batch
  std::uint64_t batch_bytes = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    require_fitting(boxes[i]);
    if (batches.empty() || batch_bytes > kBoxBatchBytes) {
      batches.push_back(i);
      batch_bytes = 0;
    }
    batch_bytes += boxes[i].destination.nbytes();
    total_bytes += boxes[i].destination.nbytes();
  }
  batches.push_back(boxes.size());
  formats::Progress progress(monitor, total_bytes, "load");
  os::parallel_for(
      batches.size() - 1, os::num_threads_for(num_threads),
      [&](std::size_t batch) {
        for (std::size_t i = batches[batch]; i < batches[batch + 1]; ++i) {
          read_box(boxes[i]);
          progress.add(boxes[i].destination.nbytes());
        }
      },
      [&] { progress.poll(); });
  progress.finish();
}

}  // namespace tenfold

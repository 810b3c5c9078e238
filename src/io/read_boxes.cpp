#include <tenfold/read_boxes.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/format.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/verify_filter.hpp"
#include "io/registry.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

namespace formats = detail::formats;

/// Minimum size of the contiguous runs of a box that is read with pread. If the runs are smaller or
/// the destination is not contiguous, the box is copied from a mapping of the file. A box that is a
/// single run may be smaller.
constexpr std::uint64_t kReadRunBytes = std::uint64_t{64} << 10;
/// Boxes are added to a task until their total size exceeds this.
constexpr std::uint64_t kBoxBatchBytes = std::uint64_t{4} << 20;
/// Size of the buffer for copies to a destination that is not contiguous.
constexpr std::size_t kBoxPieceBytes = std::size_t{1} << 20;

base::Where place_of(const Leaf& leaf) {
  return leaf.in_memory() ? base::Where("", "tensor") : source_of(leaf)->where(leaf);
}

/// Throws Error(invalid_argument) unless the box is within the tensor.
void require_within(const Leaf& leaf, const Shape& offsets, const Shape& sizes) {
  const Shape& shape = leaf.shape();
  bool fits = offsets.size() == shape.size() && sizes.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = offsets[d] >= 0 && offsets[d] <= shape[d] && sizes[d] >= 0 &&
           sizes[d] <= shape[d] - offsets[d];
  }
  if (fits) return;
  throw base::invalid_argument(place_of(leaf))
      .part("box")
      .expected("one within ", base::list_text(shape))
      .found("one at ", base::list_text(offsets), " of shape ", base::list_text(sizes));
}

void require_fitting(const BoxRead& read) {
  const auto refuse = [&] { return base::invalid_argument(place_of(read.leaf)).part("box"); };
  if (read.leaf.is_nested()) throw refuse().expected("a dense tensor").found("a nested one");
  if (read.destination.dtype() != read.leaf.dtype()) {
    throw refuse()
        .expected("a tensor of ", to_string(read.leaf.dtype()), " to read into")
        .found(to_string(read.destination.dtype()));
  }
  require_within(read.leaf, read.offsets, read.destination.shape());
  if (!read.destination.buffer().writable()) {
    throw refuse().expected("a tensor that can be written").found("a read-only one");
  }
}

/// The box as a view into the whole tensor.
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
    const auto inside = formats::part_inside({piece.offsets, piece.leaf.shape()},
                                             {read.offsets, read.destination.shape()});
    if (!inside) continue;
    std::uint64_t destination_offset = read.destination.offset_bytes();
    for (std::size_t d = 0; d < inside->sizes.size(); ++d) {
      destination_offset +=
          static_cast<std::uint64_t>(piece.offsets[d] + inside->offsets[d] - read.offsets[d]) *
          static_cast<std::uint64_t>(read.destination.strides()[d]) * read.destination.itemsize();
    }
    read_box({piece.leaf, inside->offsets,
              Tensor(read.destination.dtype(), inside->sizes, read.destination.strides(),
                     read.destination.buffer(), destination_offset)});
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

namespace {

VerifyReport verify_boxes_once(const Path& path, std::span<const BoxCheck> boxes,
                               const VerifyOptions& options) {
  const formats::Format& format = *format_of_content(path, options.format).format;
  const TensorDict whole = format.open(path, {.mode = Mode::read});
  std::vector<KeyPath> paths;
  std::vector<formats::LeafBox> loaded;
  for (const BoxCheck& check : boxes) {
    const TensorDict::Item item = whole.get(check.path);
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) {
      throw base::invalid_argument(path)
          .part("key ", base::quote(dotted(check.path)))
          .expected("a tensor")
          .found("another entry");
    }
    require_within(*leaf, check.offsets, check.sizes);
    if (numel_of(check.sizes) == 0) continue;
    paths.push_back(check.path);
    loaded.push_back({*leaf, {check.offsets, check.sizes}});
  }
  // The value of a bare root has no key to select.
  const TensorDict selected = is_bare(whole) ? whole : select(whole, Keys(std::move(paths)));
  const formats::VerifyFilter filter(whole, selected, loaded);
  return format.verify(
      path, {.num_threads = options.num_threads, .monitor = options.monitor, .filter = &filter});
}

}  // namespace

VerifyReport verify_boxes(const Path& path, std::span<const BoxCheck> boxes,
                          const VerifyOptions& options) {
  return os::read_unreplaced(path, [&] { return verify_boxes_once(path, boxes, options); });
}

}  // namespace tenfold

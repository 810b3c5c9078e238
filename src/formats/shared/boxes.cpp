#include "formats/shared/boxes.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {
namespace {

/// Each task but the last has more bytes than this, so that small tensors share a task.
constexpr std::uint64_t kTaskBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMaxTensorBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kBoxDigits = 16;
/// Maximum size of a read while boxes are checked.
constexpr std::uint64_t kBandPieceBytes = std::uint64_t{1} << 20;
/// Boxes of at most this size are buffered until they are complete, which needs less memory than a
/// hash state.
constexpr std::uint64_t kKeptBoxBytes = 256;

std::vector<std::uint64_t> unsigned_of(std::span<const std::int64_t> values) {
  std::vector<std::uint64_t> result;
  result.reserve(values.size());
  for (const std::int64_t value : values) result.push_back(static_cast<std::uint64_t>(value));
  return result;
}

Shape signed_of(const std::vector<std::uint64_t>& values) {
  Shape result;
  result.reserve(values.size());
  for (const std::uint64_t value : values) result.push_back(static_cast<std::int64_t>(value));
  return result;
}

}  // namespace

std::uint64_t ByteBox::volume() const noexcept {
  std::uint64_t product = 1;
  for (const std::uint64_t size : sizes) product *= size;
  return product;
}

std::uint64_t ByteBox::begin() const noexcept {
  std::uint64_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + offsets[d];
  return at;
}

std::uint64_t ByteBox::end() const noexcept {
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) last = last * shape[d] + offsets[d] + sizes[d] - 1;
  return last + 1;
}

std::optional<ByteBox> byte_box(const std::vector<std::uint64_t>& shape,
                                const std::vector<std::uint64_t>& offsets,
                                const std::vector<std::uint64_t>& sizes) {
  if (shape.empty() || offsets.size() != shape.size() || sizes.size() != shape.size()) return {};
  std::uint64_t total = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto product = base::checked_mul(total, shape[d]);
    if (!product || *product > kMaxTensorBytes || sizes[d] == 0 ||
        !base::range_fits(offsets[d], sizes[d], shape[d])) {
      return {};
    }
    total = *product;
  }
  // From the innermost dimension outwards: a dimension can be merged with the next inner one if the
  // box contains all of the inner dimension, or only a single index of the outer one.
  ByteBox box{{shape.back()}, {offsets.back()}, {sizes.back()}};
  for (std::size_t d = shape.size() - 1; d-- > 0;) {
    std::uint64_t& inner = box.shape.back();
    if (box.sizes.back() == inner) {
      box.offsets.back() = offsets[d] * inner;
      box.sizes.back() = sizes[d] * inner;
      inner *= shape[d];
    } else if (sizes[d] == 1) {
      box.offsets.back() += offsets[d] * inner;
      inner *= shape[d];
    } else {
      box.shape.push_back(shape[d]);
      box.offsets.push_back(offsets[d]);
      box.sizes.push_back(sizes[d]);
    }
  }
  std::ranges::reverse(box.shape);
  std::ranges::reverse(box.offsets);
  std::ranges::reverse(box.sizes);
  return box;
}

std::optional<ByteBox> byte_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                                const Box& box) {
  const auto negative = [](std::int64_t value) { return value < 0; };
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size() ||
      std::ranges::any_of(box.offsets, negative) || std::ranges::any_of(box.sizes, negative)) {
    return {};
  }
  std::vector<std::uint64_t> lengths = unsigned_of(shape);
  std::vector<std::uint64_t> offsets = unsigned_of(box.offsets);
  std::vector<std::uint64_t> sizes = unsigned_of(box.sizes);
  // The bytes of an element form an innermost dimension, which the box always contains completely.
  lengths.push_back(itemsize);
  offsets.push_back(0);
  sizes.push_back(itemsize);
  return byte_box(lengths, offsets, sizes);
}

bool overlaps(const ByteBox& box, std::uint64_t begin, std::uint64_t end) {
  const std::size_t last = box.shape.size() - 1;
  std::vector<std::uint64_t> strides(box.shape.size(), 1);
  for (std::size_t d = last; d-- > 0;) strides[d] = strides[d + 1] * box.shape[d + 1];
  // `base`: offset of the subarray that the indices of the dimensions before `d` select.
  const auto in_dimension = [&](const auto& self, std::size_t d, std::uint64_t base) -> bool {
    if (begin >= end || end <= base) return false;
    const std::uint64_t first =
        std::max(box.offsets[d], (std::max(begin, base) - base) / strides[d]);
    const std::uint64_t stop =
        std::min(box.offsets[d] + box.sizes[d], (end - base - 1) / strides[d] + 1);
    if (first >= stop) return false;
    // Of three or more subarrays, all but the first and the last are completely in [begin, end).
    if (d == last || stop - first > 2) return true;
    return self(self, d + 1, base + first * strides[d]) ||
           (stop - first == 2 && self(self, d + 1, base + (first + 1) * strides[d]));
  };
  return in_dimension(in_dimension, 0, 0);
}

std::optional<Box> part_inside(const Box& piece, const Box& box) {
  Box part = box;
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    const std::int64_t begin = std::max(box.offsets[d], piece.offsets[d]);
    const std::int64_t end =
        std::min(box.offsets[d] + box.sizes[d], piece.offsets[d] + piece.sizes[d]);
    if (begin >= end) return std::nullopt;
    part.offsets[d] = begin - piece.offsets[d];
    part.sizes[d] = end - begin;
  }
  return part;
}

BoxRuns::BoxRuns(const ByteBox& box)
    : box_(&box), index_(box.shape.size() - 1), strides_(box.shape.size()), begin_(box.begin()) {
  std::uint64_t stride = 1;
  for (std::size_t d = box.shape.size(); d-- > 0;) {
    strides_[d] = stride;
    stride *= box.shape[d];
  }
}

void BoxRuns::next() noexcept {
  for (std::size_t d = index_.size(); d-- > 0;) {
    begin_ += strides_[d];
    if (++index_[d] < box_->sizes[d]) return;
    begin_ -= index_[d] * strides_[d];
    index_[d] = 0;
  }
  done_ = true;
}

std::vector<Box> split_box(std::span<const std::int64_t> shape, std::uint64_t itemsize,
                           const Box& box) {
  if (std::ranges::find(box.sizes, 0) != box.sizes.end()) return {};
  if (shape.empty()) return {box};
  // `cut`: the outermost dimension of which one row (the elements at one index) has at most the
  // size of a block. Each part has a single index in every dimension before `cut`.
  std::size_t cut = shape.size() - 1;
  std::uint64_t row_bytes = itemsize;
  while (cut > 0) {
    const auto larger = base::checked_mul(row_bytes, static_cast<std::uint64_t>(shape[cut]));
    if (!larger || *larger > base::kChecksumBlockBytes) break;
    row_bytes = *larger;
    --cut;
  }
  const auto rows =
      static_cast<std::int64_t>(std::max<std::uint64_t>(1, base::kChecksumBlockBytes / row_bytes));
  std::vector<Box> parts;
  Box part = box;
  for (std::size_t d = 0; d < cut; ++d) part.sizes[d] = 1;
  while (true) {
    const std::int64_t end = box.offsets[cut] + box.sizes[cut];
    for (std::int64_t begin = box.offsets[cut]; begin < end;) {
      const std::int64_t stop = std::min(end, begin - begin % rows + rows);
      part.offsets[cut] = begin;
      part.sizes[cut] = stop - begin;
      parts.push_back(part);
      begin = stop;
    }
    std::size_t d = cut;
    while (d > 0 && ++part.offsets[d - 1] == box.offsets[d - 1] + box.sizes[d - 1]) {
      part.offsets[d - 1] = box.offsets[d - 1];
      --d;
    }
    if (d == 0) return parts;
  }
}

namespace {

/// A byte range of a tensor that contains whole boxes only: no box crosses its borders.
struct Band {
  const BoxedTensor* tensor = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::span<const BoxSum> boxes;
};

/// Hashes the bytes of one box as they are read. Keeps the bytes of a small box, and hashes them
/// when the box is complete.
class OpenBox {
 public:
  explicit OpenBox(const BoxSum& sum) : sum_(&sum), runs_(sum.box) {}

  const BoxSum& sum() const noexcept { return *sum_; }
  BoxRuns& runs() noexcept { return runs_; }
  const BoxRuns& runs() const noexcept { return runs_; }

  void update(std::span<const std::byte> bytes) {
    if (sum_->box.volume() <= kKeptBoxBytes) {
      kept_.insert(kept_.end(), bytes.begin(), bytes.end());
      return;
    }
    if (!stream_) stream_ = std::make_unique<base::Xxh3Stream>();
    stream_->update(bytes);
  }
  std::uint64_t digest() const { return stream_ ? stream_->digest() : base::xxh3(kept_); }

 private:
  const BoxSum* sum_;
  BoxRuns runs_;
  std::vector<std::byte> kept_;
  std::unique_ptr<base::Xxh3Stream> stream_;
};

/// Reads a range of a file in pieces.
class PieceReader {
 public:
  PieceReader(const os::File& file, std::uint64_t begin, std::uint64_t end, Progress& progress)
      : file_(file), next_(begin), end_(end), progress_(progress) {}

  /// Returns the next bytes, at least one and at most `limit`.
  std::span<const std::byte> take(std::uint64_t limit) {
    if (left_.empty()) {
      const std::uint64_t size = std::min(kBandPieceBytes, end_ - next_);
      memory_.resize(static_cast<std::size_t>(size));
      file_.read_at(next_, memory_);
      progress_.add(size);
      next_ += size;
      left_ = memory_;
    }
    const auto taken = left_.first(static_cast<std::size_t>(
        std::min<std::uint64_t>(limit, static_cast<std::uint64_t>(left_.size()))));
    left_ = left_.subspan(taken.size());
    return taken;
  }

 private:
  const os::File& file_;
  std::uint64_t next_;
  std::uint64_t end_;
  Progress& progress_;
  std::vector<std::byte> memory_;
  std::span<const std::byte> left_;
};

std::string box_text(const ByteBox& box) {
  return "with offsets [" + numbers_text(box.offsets) + "] and sizes [" + numbers_text(box.sizes) +
         "] in shape [" + numbers_text(box.shape) + "]";
}

/// Reads a band sequentially and hashes its boxes. The runs of the boxes must cover every byte
/// exactly once. Returns the first problem, or nullopt.
std::optional<Problem> check_band(const Band& band, Progress& progress) {
  const BoxedTensor& tensor = *band.tensor;
  const base::Where where(tensor.file->display(), tensor.part);
  const auto later = [](const std::unique_ptr<OpenBox>& a, const std::unique_ptr<OpenBox>& b) {
    return a->runs().begin() > b->runs().begin();
  };
  PieceReader reader(*tensor.file, tensor.offset_bytes + band.begin, tensor.offset_bytes + band.end,
                     progress);
  const auto not_in_one_box = [&](std::uint64_t byte) {
    return problem_of(base::corrupt(where)
                          .problem("boxes with checksums overlap or leave bytes out")
                          .expected("each byte in one box")
                          .found("byte ", byte, " in none or in several")
                          .remedy("another tool may have changed the file"));
  };
  std::vector<std::unique_ptr<OpenBox>> open;  // a heap with the box that has the next run on top
  auto next = band.boxes.begin();
  for (std::uint64_t at = band.begin; at < band.end;) {
    // Open the boxes that start here.
    for (; next != band.boxes.end() && next->box.begin() <= at; ++next) {
      open.push_back(std::make_unique<OpenBox>(*next));
      std::ranges::push_heap(open, later);
    }
    if (open.empty() || open.front()->runs().begin() != at) return not_in_one_box(at);
    std::ranges::pop_heap(open, later);
    OpenBox& box = *open.back();
    for (std::uint64_t left = box.runs().size_bytes(); left > 0;) {
      const auto bytes = reader.take(left);
      box.update(bytes);
      left -= bytes.size();
    }
    at += box.runs().size_bytes();
    box.runs().next();
    if (!box.runs().done()) {
      std::ranges::push_heap(open, later);
      continue;
    }
    if (const std::uint64_t found = box.digest(); found != box.sum().expected) {
      return problem_of(
          base::corrupt(where)
              .problem("the checksum of the box ", box_text(box.sum().box), " (in bytes) differs")
              .expected(base::hex16(box.sum().expected))
              .found(base::hex16(found))
              .remedy("the file is damaged or was changed"));
    }
    open.pop_back();
  }
  // The remaining runs of a box that is not complete overlap runs that were already read.
  if (!open.empty()) return not_in_one_box(open.front()->runs().begin());
  if (next != band.boxes.end()) return not_in_one_box(next->box.begin());
  return std::nullopt;
}

/// Sorts the boxes of a tensor and splits the tensor into bands. Returns false if a box exceeds the
/// tensor, if the sizes of the boxes do not add up to the size of the tensor, or if there is a gap
/// between the byte ranges [begin(), end()) of the boxes.
bool bands_of(BoxedTensor& tensor, std::vector<Band>& bands) {
  std::ranges::sort(tensor.boxes, {}, [](const BoxSum& sum) { return sum.box.begin(); });
  std::uint64_t covered = 0;
  std::uint64_t reached = 0;
  for (const BoxSum& sum : tensor.boxes) {
    const std::uint64_t volume = sum.box.volume();
    if (sum.box.begin() > reached || sum.box.end() > tensor.size_bytes ||
        volume > tensor.size_bytes - covered) {
      return false;
    }
    covered += volume;
    reached = std::max(reached, sum.box.end());
  }
  if (covered != tensor.size_bytes || reached != tensor.size_bytes) return false;
  const std::span<const BoxSum> boxes(tensor.boxes);
  for (std::size_t first = 0; first < boxes.size();) {
    std::uint64_t end = boxes[first].box.end();
    std::size_t last = first + 1;
    while (last < boxes.size() && boxes[last].box.begin() < end) {
      end = std::max(end, boxes[last++].box.end());
    }
    bands.push_back({&tensor, boxes[first].box.begin(), end, boxes.subspan(first, last - first)});
    first = last;
  }
  return true;
}

std::optional<Problem> check_file_size(const BoxedTensor& tensor) {
  const base::Where where(tensor.file->display(), tensor.part);
  try {
    const std::uint64_t file_bytes = tensor.file->size_bytes();
    if (base::range_fits(tensor.offset_bytes, tensor.size_bytes, file_bytes)) return std::nullopt;
    return problem_of(base::corrupt(where)
                          .problem("the file is too short")
                          .expected("at least ", tensor.offset_bytes + tensor.size_bytes, " bytes")
                          .found(file_bytes)
                          .remedy("it may be truncated"));
  } catch (const Error& error) {
    if (!is_problem_of_files(error)) throw;
    return problem_of(error, where);
  }
}

}  // namespace

std::vector<Problem> check_boxes(std::vector<BoxedTensor> tensors, int num_threads,
                                 Progress& progress) {
  std::vector<std::vector<Problem>> found(tensors.size());
  std::vector<Band> bands;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (auto problem = check_file_size(tensors[i])) {
      found[i].push_back(std::move(*problem));
    } else if (!bands_of(tensors[i], bands)) {
      found[i].push_back(
          problem_of(base::corrupt({tensors[i].file->display(), tensors[i].part})
                         .problem("boxes with checksums overlap or leave bytes out")
                         .expected("boxes of ", tensors[i].size_bytes, " bytes in all")
                         .found("another total, a gap or a box beyond the end")
                         .remedy("another tool may have changed the file")));
    }
  }
  std::erase_if(bands, [](const Band& band) {
    return band.tensor->skips && band.tensor->skips(band.begin, band.end);
  });
  std::vector<std::optional<Problem>> of_bands(bands.size());
  std::vector<std::size_t> tasks;  // index of the first band of each task
  for (std::size_t i = 0, bytes = 0; i < bands.size(); ++i) {
    if (tasks.empty() || bytes > kTaskBytes) {
      tasks.push_back(i);
      bytes = 0;
    }
    bytes += bands[i].end - bands[i].begin;
  }
  tasks.push_back(bands.size());
  const auto check = [&](std::size_t i) {
    try {
      of_bands[i] = check_band(bands[i], progress);
    } catch (const Error& error) {
      if (!is_problem_of_files(error)) throw;
      const BoxedTensor& tensor = *bands[i].tensor;
      of_bands[i] = problem_of(error, {tensor.file->display(), tensor.part});
    }
  };
  os::parallel_for(
      tasks.size() - 1, os::num_threads_for(num_threads),
      [&](std::size_t task) {
        for (std::size_t i = tasks[task]; i < tasks[task + 1]; ++i) check(i);
      },
      [&] { progress.poll(); });
  std::vector<Problem> problems;
  auto band = bands.begin();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (Problem& problem : found[i]) problems.push_back(std::move(problem));
    for (; band != bands.end() && band->tensor == &tensors[i]; ++band) {
      auto& problem = of_bands[static_cast<std::size_t>(band - bands.begin())];
      if (problem) problems.push_back(std::move(*problem));
    }
  }
  return problems;
}

std::string numbers_text(std::span<const std::uint64_t> numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) {
    if (!text.empty()) text += ',';
    text += std::to_string(number);
  }
  return text;
}

std::optional<std::vector<std::uint64_t>> parse_numbers(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view digits = text.substr(0, comma);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) return {};
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

std::string blank_boxes_text(const std::vector<std::vector<Box>>& tensors,
                             const std::vector<Shape>& shapes) {
  std::string text(kBoxDigits, '0');
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    text += ';';
    for (const Box& box : tensors[i]) {
      if (text.back() != ';') text += ' ';
      text.append(kBoxDigits, '0');
      if (box.sizes == shapes[i]) continue;
      text.append(":").append(numbers_text(unsigned_of(box.offsets)));
      text.append(":").append(numbers_text(unsigned_of(box.sizes)));
    }
  }
  return text;
}

namespace {

/// Returns the part of `text` before the first `separator`, and removes this part and the separator
/// from `text`. Without a separator, returns and removes the whole text.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

std::optional<StoredBox> parse_stored_box(std::string_view text) {
  StoredBox stored;
  const auto checksum = parse_hex16(take_until(text, ':'));
  if (!checksum) return {};
  stored.checksum = *checksum;
  if (text.empty()) return stored;
  const auto offsets = parse_numbers(take_until(text, ':'));
  const auto sizes = parse_numbers(text);
  if (!offsets || !sizes) return {};
  stored.box = Box{signed_of(*offsets), signed_of(*sizes)};
  return stored;
}

}  // namespace

std::optional<std::vector<std::vector<StoredBox>>> parse_boxes_text(std::string_view text) {
  std::vector<std::vector<StoredBox>> tensors;
  const bool has_tensors = text.find(';') != std::string_view::npos;
  if (!parse_hex16(take_until(text, ';'))) return {};
  if (!has_tensors) return tensors;
  while (true) {
    const std::size_t end = text.find(';');
    std::string_view boxes = text.substr(0, end);
    tensors.emplace_back();
    while (!boxes.empty()) {
      auto stored = parse_stored_box(take_until(boxes, ' '));
      if (!stored) return {};
      tensors.back().push_back(std::move(*stored));
    }
    if (end == std::string_view::npos) return tensors;
    text.remove_prefix(end + 1);
  }
}

void fill_boxes(std::string& document, std::size_t text_at,
                std::span<const std::uint64_t> checksums) {
  std::size_t at = text_at + kBoxDigits;
  for (const std::uint64_t checksum : checksums) {
    // A box's digits follow the ";" of its tensor or the space after another box; a tensor without
    // boxes is a ";" followed by another ";".
    while (document[at + 1] == ';' || (document[at] != ';' && document[at] != ' ')) ++at;
    document.replace(at + 1, kBoxDigits, base::hex16(checksum));
    at += 1 + kBoxDigits;
  }
  document.replace(text_at, kBoxDigits, base::hex16(hash_with_blank_digits(document, text_at)));
}

}  // namespace tenfold::detail::formats

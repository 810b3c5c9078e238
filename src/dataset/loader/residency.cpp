#include "dataset/loader/residency.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "os/fs/file_system.hpp"
#include "os/memory/advice.hpp"

namespace tenfold {
namespace {

/// The number of rows that are sampled in each tensor at a time. Samples are taken before the first
/// batch, which waits for them, and before later batches, until kSamplesInAll rows are sampled.
constexpr std::int64_t kSampledRows = 4;
constexpr std::size_t kMaxRanges = 1024;
/// Prefetching pays off if more than one page in 256 is missing.
constexpr std::int64_t kPagesPerMissing = 256;
/// reconsider() samples about kSamplesPerBatch rows of a batch, and after each kSamples samples
/// decides whether to stop prefetching.
constexpr std::size_t kSamplesPerBatch = 8;
constexpr std::int64_t kSamples = 512;
constexpr const char* kVariable = "TENFOLD_RESIDENCY";

}  // namespace

std::optional<Residency::Strategy> Residency::strategy_from_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view name = text;
  if (name == "willneed") return Strategy::willneed;
  if (name == "pread") return Strategy::pread;
  if (name == "none") return Strategy::none;
  throw base::invalid_argument()
      .part(kVariable)
      .expected("willneed, pread or none")
      .found(base::quote(name));
}

Residency::Residency(const DatasetState& state, bool random) : random_(random) {
  forced_ = strategy_from_environment();

  constexpr std::uint64_t kEndBytes = sizeof(std::int64_t);
  // Parts that are not open have no columns, so they are neither sampled nor prefetched.
  for (const DatasetPart& part : state.parts) {
    for (const StoredColumn* column : part.columns) {
      const bool has_ends = column->ends.numel() > 0;
      const bool in_items = column->item_ends.numel() > 0;
      add(part, *column, column->valid, 1, 1, 0);
      add(part, *column, column->ends, kEndBytes, kEndBytes, 0);
      add(part, *column, column->item_ends, kEndBytes, kEndBytes, 1);
      add(part, *column, column->values, column->row_bytes, column->stride_bytes,
          in_items ? 2 : (has_ends ? 1 : 0));
    }
  }
  num_sampled_ = kSampledRows;
  if (!are_samples_cached(0, kSampledRows)) start_prefetching();
}

Residency::~Residency() { stop_prefetching(); }

bool Residency::sample_more() {
  if (is_needed() || num_sampled_ >= kSamplesInAll) return false;
  const std::int64_t begin = num_sampled_;
  num_sampled_ += kSampledRows;
  if (!are_samples_cached(begin, num_sampled_)) start_prefetching();
  return true;
}

void Residency::start_prefetching() {
  if (!lock_.lock()) return;  // a thread of the parent held it at the fork
  const std::lock_guard unlock(lock_, std::adopt_lock);
  if (is_needed()) return;
  if (!was_needed_) choose_strategy();
  if (random_ && strategy_ != Strategy::none) {
    for (const Source& source : sources_) os::expect_random_access(source.bytes, true);
  }
  num_samples_ = num_missing_ = 0;
  was_needed_.store(true, std::memory_order_release);
  needed_.store(true, std::memory_order_release);
}

void Residency::stop_prefetching() {
  if (!lock_.lock()) return;  // a thread of the parent held it at the fork
  const std::lock_guard unlock(lock_, std::adopt_lock);
  if (!is_needed()) return;
  needed_.store(false, std::memory_order_release);
  if (!random_ || strategy_ == Strategy::none) return;
  // Few pages are missing now, so enable readahead, which also reads missing neighbouring pages.
  for (const Source& source : sources_) os::expect_random_access(source.bytes, false);
}

void Residency::note_waits(std::uint64_t num_pages, std::int64_t num_rows) {
  if (sources_.empty()) return;  // nothing can be prefetched
  const auto num_pieces = num_rows * static_cast<std::int64_t>(sources_.size());
  if (static_cast<std::int64_t>(num_pages) * kPagesPerMissing > num_pieces) start_prefetching();
}

void Residency::reconsider(std::span<const std::int64_t> rows, int stage) {
  if (strategy_ == Strategy::none || sources_.empty()) return;
  const std::size_t step = std::max<std::size_t>(rows.size() / kSamplesPerBatch, 1);
  // To save time, check each sampled row in one source only. The first source differs between
  // calls.
  auto turn = static_cast<std::size_t>(num_calls_++);
  std::int64_t num_checked = 0;
  std::int64_t missing = 0;
  for (std::size_t i = 0; i < rows.size(); i += step, ++turn) {
    const Source& source = sources_[turn % sources_.size()];
    const std::int64_t local = rows[i] - source.first_row;
    if (source.stage != stage || local < 0 || local >= source.num_rows) continue;
    const Piece piece = piece_of(source, local);
    const auto bytes = source.bytes.subspan(static_cast<std::size_t>(piece.offset_bytes),
                                            static_cast<std::size_t>(piece.size_bytes));
    ++num_checked;
    missing += os::is_resident(bytes) ? 0 : 1;
  }
  num_missing_ += missing;
  if ((num_samples_ += num_checked) < kSamples) return;
  if (num_missing_ * kPagesPerMissing <= num_samples_) return stop_prefetching();
  num_samples_ = num_missing_ = 0;
}

void Residency::choose_strategy() {
  strategy_ = forced_.value_or(Strategy::willneed);
  if (forced_ && *forced_ != Strategy::pread) return;
  std::map<const os::Mapping*, std::shared_ptr<const os::File>> files;
  bool any_remote = false;
  for (Source& source : sources_) {
    if (source.mapping == nullptr) continue;
    const auto [found, is_new] = files.try_emplace(source.mapping);
    if (is_new) found->second = source.mapping->open_file();
    source.file = found->second;
    any_remote = any_remote || (source.file && os::is_remote(*source.file));
  }
  if (!forced_ && any_remote) strategy_ = Strategy::pread;
  if (strategy_ == Strategy::pread) reader_.emplace();
}

std::string_view Residency::strategy() const noexcept {
  if (!was_needed_.load(std::memory_order_acquire)) return "resident";
  switch (strategy_) {
    case Strategy::willneed:
      return "willneed";
    case Strategy::pread:
      return "pread";
    case Strategy::none:
      break;
  }
  return "none";
}

void Residency::add(const DatasetPart& part, const StoredColumn& column, const Tensor& tensor,
                    std::uint64_t row_bytes, std::uint64_t stride_bytes, int stage) {
  if (tensor.numel() == 0) return;
  const std::int64_t num_elements = tensor.shape()[0];
  const std::uint64_t size =
      static_cast<std::uint64_t>(num_elements - 1) * stride_bytes + row_bytes;
  if (size < kMinBytes) return;
  sources_.push_back({{tensor.raw_data(), static_cast<std::size_t>(size)},
                      row_bytes,
                      stride_bytes,
                      num_elements,
                      stage,
                      &column,
                      part.first_row,
                      part.num_rows(),
                      os::mapping_of(tensor.buffer()),
                      nullptr});
  num_stages_ = std::max(num_stages_, stage + 1);
}

bool Residency::is_sample_cached(std::span<const std::byte> bytes, std::uint64_t stride_bytes,
                                 std::int64_t num_elements, std::int64_t begin, std::int64_t end) {
  const Permutation sample(num_elements, 1);
  for (std::int64_t i = begin; i < std::min(end, num_elements); ++i) {
    const auto offset = static_cast<std::uint64_t>(sample[i]) * stride_bytes;
    if (!os::is_resident(bytes.subspan(static_cast<std::size_t>(offset), 1))) return false;
  }
  return true;
}

bool Residency::are_samples_cached(std::int64_t begin, std::int64_t end) const {
  return std::ranges::all_of(sources_, [&](const Source& source) {
    return is_sample_cached(source.bytes, source.stride_bytes, source.num_elements, begin, end);
  });
}

void Residency::prefetch(std::span<const std::int64_t> rows, int stage) {
  if (strategy_ == Strategy::willneed) advise_kernel(rows, stage);
  if (strategy_ == Strategy::pread) queue_reads(rows, stage);
}

Residency::Piece Residency::piece_of(const Source& source, std::int64_t local) {
  if (source.stage == 0) {
    return {static_cast<std::uint64_t>(local) * source.stride_bytes, source.row_bytes};
  }
  const auto begin_of = [](const std::int64_t* ends, std::int64_t i) {
    return i == 0 ? 0 : ends[i - 1];
  };
  const StoredColumn& column = *source.column;
  const auto* ends = column.ends.data<std::int64_t>();
  std::int64_t begin = begin_of(ends, local);
  std::int64_t end = ends[local];
  if (source.stage == 2) {
    if (begin < 0 || begin >= end || end > column.item_ends.shape()[0]) return {0, 0};
    const auto* item_ends = column.item_ends.data<std::int64_t>();
    begin = begin_of(item_ends, begin);
    end = item_ends[end - 1];
  }
  if (begin < 0 || begin >= end || end > source.num_elements) return {0, 0};
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * source.stride_bytes;
  };
  return {bytes(begin), bytes(end - begin - 1) + source.row_bytes};
}

template <class Use>
void Residency::for_each_piece(std::span<const std::int64_t> rows, int stage,
                               const Use& use) const {
  for (const Source& source : sources_) {
    if (source.stage != stage) continue;
    for (const std::int64_t row : rows) {
      const std::int64_t local = row - source.first_row;
      if (local < 0 || local >= source.num_rows) continue;
      const Piece piece = piece_of(source, local);
      if (piece.size_bytes > 0) use(source, piece);
    }
  }
}

bool Residency::holds(std::span<const std::int64_t> rows) const {
  bool holds = true;
  // Check the stages in order and stop at a missing page: a later stage reads the end offsets of
  // the earlier stage, which must be cached.
  for (int stage = 0; holds && stage < num_stages_; ++stage) {
    for_each_piece(rows, stage, [&](const Source& source, const Piece& piece) {
      const auto bytes = source.bytes.subspan(static_cast<std::size_t>(piece.offset_bytes),
                                              static_cast<std::size_t>(piece.size_bytes));
      holds = holds && os::is_resident(bytes);
    });
  }
  return holds;
}

void Residency::advise_kernel(std::span<const std::int64_t> rows, int stage) const {
  std::vector<std::span<const std::byte>> ranges;
  ranges.reserve(std::min(kMaxRanges, rows.size() * sources_.size()));
  for_each_piece(rows, stage, [&](const Source& source, const Piece& piece) {
    ranges.push_back(source.bytes.subspan(static_cast<std::size_t>(piece.offset_bytes),
                                          static_cast<std::size_t>(piece.size_bytes)));
    if (ranges.size() < kMaxRanges) return;
    os::will_need(ranges);
    ranges.clear();
  });
  os::will_need(ranges);
}

void Residency::queue_reads(std::span<const std::int64_t> rows, int stage) {
  std::vector<os::PageReader::Range> ranges;
  ranges.reserve(rows.size() * sources_.size());
  for_each_piece(rows, stage, [&](const Source& source, const Piece& piece) {
    if (!source.file) return;
    ranges.push_back({source.file,
                      source.mapping->offset_of(source.bytes.data()) + piece.offset_bytes,
                      piece.size_bytes});
  });
  reader_->prefetch(ranges);
}

}  // namespace tenfold

#include "stores/residency.hpp"

#include <algorithm>

#include <tenfold/permutation.hpp>

#include "os/mapping.hpp"
#include "os/paging.hpp"

namespace tenfold {
namespace {

/// Pages looked at of each column: if one in a hundred is missing, half of all looks find it.
constexpr std::int64_t kSampledRows = 64;
/// Smaller data is brought into memory by its first epoch, faster than by asking.
constexpr std::uint64_t kMinBytes = std::uint64_t{1} << 20U;
constexpr std::size_t kRangesAtATime = 1024;

}  // namespace

Residency::Residency(const DatasetState& state, bool random) : random_(random) {
  for (const DatasetPart& part : state.parts) {
    for (const StoredColumn* column : part.columns) {
      if (column->ends.numel() == 0) {
        add(part, column->values, column->row_bytes, column->stride_bytes);
      } else {
        // Ends are needed to know what else is: they are small, and come in by faults.
        add(part, column->ends, sizeof(std::int64_t), sizeof(std::int64_t));
      }
    }
  }
  needed_ = !looks_resident();
  if (!needed_ || !random_) return;
  for (const Source& source : sources_) os::expect_random_access(source.bytes, true);
}

Residency::~Residency() {
  if (!needed_ || !random_) return;
  for (const Source& source : sources_) os::expect_random_access(source.bytes, false);
}

void Residency::add(const DatasetPart& part, const Tensor& tensor, std::uint64_t row_bytes,
                    std::uint64_t stride_bytes) {
  const std::uint64_t size =
      tensor.numel() == 0
          ? 0
          : static_cast<std::uint64_t>(tensor.shape()[0] - 1) * stride_bytes + row_bytes;
  if (size < kMinBytes) return;
  sources_.push_back({{tensor.raw_data(), static_cast<std::size_t>(size)},
                      row_bytes,
                      stride_bytes,
                      part.first_row,
                      part.table->num_rows()});
}

bool Residency::looks_resident() const {
  for (const Source& source : sources_) {
    const Permutation sample(source.num_rows, 1);
    for (std::int64_t i = 0; i < std::min(kSampledRows, source.num_rows); ++i) {
      const auto offset = static_cast<std::uint64_t>(sample[i]) * source.stride_bytes;
      if (!os::is_resident(source.bytes.subspan(static_cast<std::size_t>(offset), 1))) return false;
    }
  }
  return true;
}

void Residency::ask(std::span<const std::int64_t> rows) const {
  std::vector<std::span<const std::byte>> ranges;
  ranges.reserve(std::min(kRangesAtATime, rows.size() * sources_.size()));
  for (const Source& source : sources_) {
    for (const std::int64_t row : rows) {
      const std::int64_t local = row - source.first_row;
      if (local < 0 || local >= source.num_rows) continue;
      const auto offset = static_cast<std::uint64_t>(local) * source.stride_bytes;
      ranges.push_back(source.bytes.subspan(static_cast<std::size_t>(offset),
                                            static_cast<std::size_t>(source.row_bytes)));
      if (ranges.size() == kRangesAtATime) {
        os::will_need(ranges);
        ranges.clear();
      }
    }
  }
  os::will_need(ranges);
}

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

struct DatasetState;

/// How rows become a batch.
struct BatchOptions {
  /// Ragged columns to be padded, by dotted name.
  std::map<std::string, PadValue, std::less<>> pad{};
  std::optional<PadValue> pad_all{};  ///< every ragged column of numbers
  int num_threads = 1;
};

/// The rows of a tree whose tensors share their first dimension, on disk, in any format that open()
/// reads. Nothing is read until rows are asked for.
///
///   tenfold::Dataset ds("flights");
///   tenfold::Batch batch = ds.rows(std::array<std::int64_t, 3>{5, 2, 900'000'000});
///   batch.at("price").span<float>();
///
/// A Dataset is a handle; views (range, select, take, ...) copy no row and compose.
///
/// Thread safety: all const members may be called from any thread.
class Dataset {
 public:
  /// Throws what open() throws, Error(invalid_argument) if it is no table, Error(corrupt) if its
  /// parts contradict each other.
  explicit Dataset(const Path& path, Mode mode = Mode::read);
  explicit Dataset(TensorDict tree);

  std::int64_t size() const noexcept;
  const Schema& schema() const noexcept TENFOLD_LIFETIMEBOUND;

  /// The rows at these positions, as often and in the order as named.
  /// Throws Error(invalid_argument) for a position outside [0, size()).
  Batch rows(std::span<const std::int64_t> positions, const BatchOptions& options = {}) const;
  /// The rows [begin, end).
  Batch rows(std::int64_t begin, std::int64_t end, const BatchOptions& options = {}) const;

  /// The whole column of that (dotted) name: a view of what is mapped where the rows follow each
  /// other, else copied. Throws Error(key_not_found), and Error(invalid_argument) for columns whose
  /// rows are of unequal length: take those by rows().
  Tensor column(std::string_view name) const;

  /// The rows [begin, end), both clamped as a slice clamps them.
  Dataset range(std::int64_t begin, std::int64_t end) const;
  /// Some of the columns, by (dotted) names; a record's name means all it holds.
  /// Throws Error(key_not_found).
  Dataset select(const std::vector<std::string>& names) const;
  /// The rows at `positions`, int64 [n], kept without a copy.
  /// Throws Error(invalid_argument) for a position outside [0, size()).
  Dataset take(Tensor positions) const;
  /// The rows where `mask`, bool [size()], is true.
  Dataset filter(const Tensor& mask) const;
  /// `sizes` rows each, which sum to size(): contiguous, or pieces of permutation(size(), seed).
  std::vector<Dataset> split(const std::vector<std::int64_t>& sizes,
                             std::optional<std::uint64_t> seed = {}) const;
  /// The contiguous part of `rank`; the sizes of the parts differ by one at most.
  Dataset shard(std::int64_t rank, std::int64_t world_size) const;

  /// One after the other. Throws Error(invalid_argument) naming a column that differs.
  static Dataset concat(std::span<const Dataset> parts);
  /// In turn: of every prefix, each source's part is within one row of its weight's share. Ends
  /// with the first source that is exhausted.
  static Dataset mix(std::span<const Dataset> sources, std::span<const double> weights);

  /// What it was made of, for those who want the tree itself; of concat and mix the first.
  const TensorDict& tree() const noexcept TENFOLD_LIFETIMEBOUND;

  const std::shared_ptr<const DatasetState>& state() const noexcept { return state_; }
  explicit Dataset(std::shared_ptr<const DatasetState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const DatasetState> state_;
};

}  // namespace tenfold

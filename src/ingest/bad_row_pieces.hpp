#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tenfold/io.hpp>

#include "dataset/spool.hpp"

namespace tenfold {

/// What there is to tell of bad rows whose columns are read some after the others. Each stream of
/// columns has a piece of every bad row; they are kept outside of memory if there are many.
class BadRowPieces {
 public:
  struct Piece {
    std::string column{};  ///< empty: nothing is wrong with this stream's columns
    std::string error{};
    std::string text{};  ///< a JSON object
  };

  /// `folder`: where files without a name may be made.
  explicit BadRowPieces(Path folder) : folder_(std::move(folder)) {}

  /// The pieces of the next stream follow, of the same rows in the same order.
  void begin_stream();
  void add(const Piece& piece);

  /// Calls `tell` with each of `num_rows` rows: the error that the first stream found in it, and
  /// the members of all streams' objects.
  void tell_all(std::size_t num_rows, const std::function<void(const Piece&)>& tell) const;

 private:
  Path folder_;
  std::vector<Spool> streams_;
};

}  // namespace tenfold

#include "sparse/growth.hpp"

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/sparse.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/leaf_source.hpp"
#include "formats/folder/reader.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

namespace {

/// The files of the components. The offsets are last, so that entries are written before the
/// offsets that count them.
std::vector<folder::GrowingLeaf> leaves_of(const Path& path, const SparseState& state) {
  const auto names = sparse_parts(state.tree.info().layout);
  std::vector<folder::GrowingLeaf> leaves;
  for (const std::size_t part : {std::size_t{1}, std::size_t{2}, std::size_t{0}}) {
    const TensorDict::Item item = state.tree.get(names[part]);
    const auto& leaf = std::get<Leaf>(item);
    const auto handle = folder::folder_of(leaf);
    if (handle == nullptr || !handle->may_grow()) {
      throw base::unsupported(path)
          .problem("rows cannot be added")
          .expected("a matrix that save() wrote")
          .found("other tensors");
    }
    folder::GrowingLeaf growing;
    growing.key = std::string(names[part]);
    growing.file = folder::file_of(leaf);
    growing.counts_itself = true;
    growing.row_bytes = itemsize(leaf.dtype());
    growing.size_bytes = leaf.nbytes();
    leaves.push_back(std::move(growing));
  }
  return leaves;
}

/// Converts numbers[begin:] to `dtype` and adds `base`.
Tensor counted_from(const Tensor& numbers, DType dtype, std::int64_t base, std::int64_t begin) {
  const std::int64_t count = numbers.numel() - begin;
  Tensor made = Tensor::zeros(dtype, {count});
  const auto convert = [&](const auto* from, auto* into) {
    using Into = std::remove_pointer_t<decltype(into)>;
    for (std::int64_t i = 0; i < count; ++i) {
      into[i] = static_cast<Into>(static_cast<std::int64_t>(from[begin + i]) + base);
    }
  };
  const auto convert_from = [&](const auto* from) {
    if (dtype == DType::int32) {
      convert(from, made.mutable_data<std::int32_t>());
    } else {
      convert(from, made.mutable_data<std::int64_t>());
    }
  };
  if (numbers.dtype() == DType::int32) {
    convert_from(numbers.data<std::int32_t>());
  } else {
    convert_from(numbers.data<std::int64_t>());
  }
  return made;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes())};
}

void require_fitting(const Path& path, const SparseState& state, const SparseState& rows) {
  const auto mismatch = [&] { return base::invalid_argument(path).part("rows to append"); };
  if (rows.num_cols != state.num_cols) {
    throw mismatch().expected(state.num_cols, " columns").found(rows.num_cols);
  }
  if (rows.values.dtype() != state.values.dtype()) {
    throw mismatch()
        .expected(to_string(state.values.dtype()))
        .found(to_string(rows.values.dtype()));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (state.minor_indices.dtype() == DType::int32 && rows.minor_indices.dtype() == DType::int64 &&
      rows.num_cols - 1 > kMost) {
    for (const std::int64_t column : rows.minor_indices.span<std::int64_t>()) {
      if (column <= kMost) continue;
      throw mismatch()
          .expected("column indices of at most 2^31 - 1, as the indices are int32")
          .found(column);
    }
  }
  if (state.ends.dtype() == DType::int32 && state.nnz > kMost - rows.nnz) {
    throw mismatch()
        .expected("at most 2^31 - 1 entries in all, as the offsets are int32")
        .found(state.nnz, " in the matrix and ", rows.nnz, " to append");
  }
}

/// Checks a matrix, and returns its state in layout csr, converted if necessary. Reads the state of
/// the matrix once, because another thread may refresh it.
std::shared_ptr<const SparseState> checked_rows(const SparseMatrix& matrix) {
  const auto state = state_of(matrix);
  check_indices(*state);
  if (state->layout == SparseLayout::csr) return state;
  SparseBuilder builder(state->num_rows, state->num_cols, state->values.dtype());
  builder.add(SparseMatrix(state->tree));
  return state_of(builder.finish());
}

}  // namespace

SparseGrowth::SparseGrowth(const Path& path, Mode mode) : folder_(path, mode, "a matrix") {
  if (mode == Mode::write_through && probe(folder_.path()) == "memmap") folder_.lock();
  const Lock lock(mutex_);
  current();
}

/// Returns the current state, and opens it if necessary. For Mode::write_through, tensors are
/// mapped as for Mode::read, because rows are appended but never changed in place.
const std::shared_ptr<const SparseState>& SparseGrowth::current() {
  if (state_) return state_;
  const Path& path = folder_.path();
  OpenOptions options;
  options.mode = folder_.mode() == Mode::write_through ? Mode::read : folder_.mode();
  if (folder_.directory().valid()) {
    return state_ = sparse_state_of(
               folder::open_tree(folder_.directory().duplicate(), path, options.mode));
  }
  return state_ = os::read_unreplaced(path, [&] { return sparse_state_of(open(path, options)); });
}

void SparseGrowth::renew() noexcept {
  folder_.abandon();
  std::construct_at(&state_);
}

std::shared_ptr<const SparseState> SparseGrowth::state() {
  const Lock lock(mutex_);
  return current();
}

void SparseGrowth::refresh() {
  const Lock lock(mutex_);
  state_ = nullptr;
  current();
}

/// Prepares the first append: acquires the lock against other writers, opens the files, and makes
/// close() write the new number of rows to the metadata sidecar.
void SparseGrowth::start() {
  if (folder_.writer() != nullptr) return;
  folder_.require_folder();
  if (current()->layout != SparseLayout::csr) {
    throw base::unsupported(folder_.path())
        .problem("rows cannot be added in layout ", to_string(current()->layout))
        .expected("csr")
        .remedy("to_layout(\"csr\") (in C++: a SparseBuilder) converts it");
  }
  folder_.start([this](bool) {
    state_ = nullptr;
    return leaves_of(folder_.path(), *current());
  });
  folder_.writer()->edit_notes([this](const std::string& text) {
    Notes notes =
        Notes::from_json(text, folder_.path().string() + "/" + std::string(folder::kNotesName));
    const auto root = notes.nodes.find(std::string_view());
    if (root == notes.nodes.end() || root->second.dense_shape.empty()) return text;
    root->second.dense_shape[0] = static_cast<std::int64_t>(folder_.writer()->state().num_rows);
    return notes.to_json();
  });
}

void SparseGrowth::append(const SparseMatrix& added) {
  {
    const Lock lock(mutex_);
    folder_.require_writable("append_rows");
    start();
  }
  // The mutex is not locked here, because `added` may be this matrix, and reading it locks the
  // mutex.
  const auto rows = checked_rows(added);
  const Lock lock(mutex_);
  folder_.require_writable("append_rows");
  const std::shared_ptr<const SparseState> state = current();
  require_fitting(folder_.path(), *state, *rows);
  if (rows->num_rows == 0) return;
  const Tensor ends = counted_from(rows->ends, state->ends.dtype(), state->nnz, 1);
  const Tensor minor_indices =
      rows->minor_indices.dtype() == state->minor_indices.dtype()
          ? rows->minor_indices
          : counted_from(rows->minor_indices, state->minor_indices.dtype(), 0, 0);
  const std::vector<std::span<const std::byte>> bytes = {bytes_of(minor_indices),
                                                         bytes_of(rows->values), bytes_of(ends)};
  state_ = nullptr;
  folder_.writer()->append(static_cast<std::uint64_t>(rows->num_rows), bytes);
}

void SparseGrowth::flush() {
  const Lock lock(mutex_);
  folder_.require_writable("flush");
  folder_.flush();
}

void SparseGrowth::close() {
  const Lock lock(mutex_);
  if (!folder_.is_writable()) return;
  folder_.close([this] {
    state_ = nullptr;
    current();
  });
}

}  // namespace tenfold

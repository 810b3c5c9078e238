#include "dataset/growth.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "dataset/ring_guard.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/reader.hpp"
#include "formats/folder/source.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

namespace {

[[noreturn]] void refuse_growth(const Path& path, const std::string& what) {
  throw Error(ErrorCode::unsupported, path.string() + ": " + what);
}

/// The file of a leaf. Throws Error(unsupported) if the leaf is not stored as in a data set.
folder::GrowingLeaf growing_leaf(const Path& path, const TensorDict& tree, const LeafRole& role,
                                 const std::string& column) {
  const std::string where = "column " + base::quote(column) + ": ";
  const TensorDict::Item item = tree.get(role.key);
  const auto& leaf = std::get<Leaf>(item);
  auto* source = dynamic_cast<folder::FolderSource*>(leaf.source().get());
  auto* handle =
      source == nullptr ? nullptr : dynamic_cast<folder::FolderHandle*>(source->folder().get());
  const std::string below = handle == nullptr ? "" : handle->path_below_root();
  // The elements of ragged rows must be in one folder, next to the root's tensors.
  const bool lies_right = role.is_unbatched ? below == folder::kValuesName
                                            : below.find(folder::kValuesName) == std::string::npos;
  if (handle == nullptr || !lies_right || leaf.is_unbatched() != role.is_unbatched) {
    refuse_growth(path, where +
                            "rows cannot be added: expected its tensors to lie as those of a data "
                            "set, found others; make one by create() or ingest()");
  }
  const std::string& key = role.key.back();
  if (key == "shape" || key == "device" || key == "_type") {
    refuse_growth(path, where +
                            "its tensor has a name that tensordict's metadata hides: expected " +
                            "another one; make a data set by create() or ingest()");
  }
  if (role.is_unbatched && role.row_bytes == 0) {
    refuse_growth(path, where + "elements of 0 bytes cannot be counted: expected at least one");
  }
  return {key, source->file_of(leaf), below, role.is_unbatched, false, role.row_bytes, 0};
}

/// Number of batched tensors in a node. Throws Error(unsupported) for nodes whose rows do not grow
/// with those of the root.
std::size_t count_batched(const Path& path, const TensorDict& node, std::int64_t num_rows) {
  std::size_t count = 0;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      const std::string where = "entry " + base::quote(key) + ": rows cannot be added: ";
      const Shape& batch = child->batch_size();
      if (child->kind() != NodeKind::tensordict || batch.empty() || batch[0] != num_rows) {
        refuse_growth(
            path, where + "expected a TensorDict of as many rows as the data set has, found a " +
                      std::string(name(child->kind())) + " of batch size " +
                      base::list_text(batch));
      }
      const std::size_t inside = count_batched(path, *child, num_rows);
      if (inside == 0) refuse_growth(path, where + "expected tensors in every node, found none");
      count += inside;
    } else if (leaf == nullptr || !leaf->is_unbatched()) {
      ++count;
    }
  });
  return count;
}

/// The last of `count` end offsets, for which there are `limit` elements. Throws Error(corrupt) if
/// it is out of range, because elements are appended after it.
std::uint64_t last_end(const Path& path, const Column& column, const Tensor& ends,
                       std::uint64_t count, std::int64_t limit, bool is_exact) {
  const auto* values = count == 0 ? nullptr : ends.data<std::int64_t>();
  const std::int64_t last = count == 0 ? 0 : values[count - 1];
  const std::int64_t before = count < 2 ? 0 : values[count - 2];
  const std::string where = path.string() + ": column " + base::quote(column.name()) + ": ends: ";
  if (before < 0 || last < before || last > limit) {
    throw Error(ErrorCode::corrupt, where + "expected ends that rise from 0 to " +
                                        std::to_string(limit) + ", found " +
                                        std::to_string(before) + " before " + std::to_string(last) +
                                        "; the data set is damaged");
  }
  if (is_exact && last != limit) {
    throw Error(ErrorCode::corrupt,
                where + "rows cannot be added: expected " + std::to_string(limit) +
                    ", as many elements as there are, found " + std::to_string(last) +
                    "; the data set is damaged or was cut: ingest() copies its rows");
  }
  return static_cast<std::uint64_t>(last);
}

}  // namespace

Growth::Growth(const Path& path, Mode mode) : path_(std::filesystem::absolute(path)), mode_(mode) {
  if (mode_ == Mode::write_through && probe(path_) == "memmap") {
    lock_ = folder::lock_for_writing_through(path_);
  }
  const Lock lock(mutex_);
  current();
}

std::shared_ptr<const DatasetState> Growth::open_state() const {
  const Mode mode = closed_ ? Mode::read : mode_;
  if (lock_.folder.valid()) {
    // Appending keeps the checksums of existing rows; writing in place removes them.
    return state_of(folder::open_tree(lock_.folder.duplicate(), path_, mode),
                    os::identity_of(path_));
  }
  OpenOptions options;
  options.mode = mode;
  return os::read_unreplaced(
      path_, [&] { return state_of(open(path_, options), os::identity_of(path_)); });
}

const std::shared_ptr<const DatasetState>& Growth::current() {
  if (state_) return state_;
  state_ = open_state();
  size_ = state_->order->size();
  if (roles_.empty()) {
    schema_ = state_->schema;
    roles_ = leaf_roles(schema_);
  }
  return state_;
}

std::shared_ptr<const DatasetState> Growth::state() {
  const Lock lock(mutex_);
  return current();
}

std::int64_t Growth::size() {
  const Lock lock(mutex_);
  return known_size();
}

/// Counts appended rows without mapping anything.
std::int64_t Growth::known_size() {
  if (size_ < 0) current();
  return size_;
}

void Growth::forget() noexcept {
  state_ = nullptr;
  size_ = -1;
}

void Growth::refresh() {
  const Lock lock(mutex_);
  forget();
  current();
}

void Growth::require_writable(const char* what) const {
  if (mode_ != Mode::write_through) {
    refuse_growth(path_, std::string(what) +
                             ": expected a data set opened with mode \"r+\", found one "
                             "opened to read");
  }
  if (closed_) refuse_growth(path_, std::string(what) + ": it was closed: open it again");
}

void Growth::require_folder() const {
  if (lock_.folder.valid()) return;
  refuse_growth(path_, "rows cannot be added in this format: expected a folder, found one file; " +
                           std::string("convert() it to a folder"));
}

std::vector<folder::GrowingLeaf> Growth::leaves_of(const DatasetState& state, bool is_exact) {
  const TensorDict& tree = state.parts[0].table->tree();
  std::vector<folder::GrowingLeaf> leaves;
  std::size_t batched = 0;
  for (const LeafRole& role : roles_) {
    const Column& column = state.schema.columns()[role.column];
    folder::GrowingLeaf leaf = growing_leaf(path_, tree, role, column.name());
    const StoredColumn& stored = *state.parts[0].columns[role.column];
    auto count = static_cast<std::uint64_t>(state.parts[0].table->num_rows());
    if (role.is_unbatched) {
      const auto end_of = [&](const Tensor& ends, std::uint64_t of, const Tensor& counted) {
        return last_end(path_, column, ends, of, counted.shape()[0], is_exact);
      };
      const bool has_items = column.ragged && column.is_text();
      count = end_of(stored.ends, count, has_items ? stored.item_ends : stored.values);
      if (has_items && role.part == LeafRole::Part::values) {
        count = end_of(stored.item_ends, count, stored.values);
      }
    } else {
      ++batched;
    }
    leaf.size_bytes = count * role.row_bytes;
    leaves.push_back(std::move(leaf));
  }
  const std::size_t found = count_batched(path_, tree, state.parts[0].table->num_rows());
  if (found != batched) {
    refuse_growth(path_,
                  "rows cannot be added: expected the tensors of its schema alone, found others "
                  "beside them");
  }
  return leaves;
}

/// Takes the lock and prepares appending; once.
void Growth::start() {
  if (writer_) return;
  require_folder();
  const bool had_page = lock_.folder.entry_info(std::string(folder::kCommitName)).has_value();
  // Take the lock first: from then on no other process can append rows.
  folder::CommitFile commit(path_, lock_.folder);
  forget();
  // If its last writer closed it, there is no commit page, and no element after the rows.
  constexpr std::uint64_t kFirstSequence = 2;
  const bool was_closed =
      !had_page && commit.capacity() == 0 && commit.state().sequence == kFirstSequence;
  try {
    auto leaves = leaves_of(*current(), was_closed);
    writer_ = std::make_unique<folder::GrowingFolder>(path_, lock_.folder.duplicate(),
                                                      std::move(commit), std::move(leaves));
  } catch (...) {
    if (was_closed) lock_.folder.remove_file(std::string(folder::kCommitName));
    throw;
  }
}

std::int64_t Growth::append(const Batch& rows) {
  const Lock lock(mutex_);
  require_writable("append");
  start();
  check_rows(schema_, rows, path_.string());
  if (rows.num_rows() == 0) return known_size();
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    const std::uint64_t row_bytes = roles_[i].row_bytes;
    lengths.push_back(
        row_bytes == 0 ? 0 : static_cast<std::int64_t>(writer_->size_bytes(i) / row_bytes));
  }
  const std::vector<Tensor> tensors = leaf_tensors(roles_, schema_, rows, lengths);
  std::vector<std::span<const std::byte>> bytes;
  for (const Tensor& tensor : tensors) {
    bytes.emplace_back(tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes()));
  }
  const auto count = static_cast<std::uint64_t>(rows.num_rows());
  const auto shown = static_cast<std::uint64_t>(size_);
  try {
    if (writer_->capacity() > 0) {
      writer_->write_ring(count, bytes);
    } else {
      writer_->append(count, bytes);
    }
  } catch (...) {
    forget();
    throw;
  }
  const folder::CommitState& now = writer_->state();
  // A full circular buffer without busy rows shows the same slots as before.
  if (now.num_rows != shown || now.busy_rows > 0) {
    forget();
    if (now.busy_rows == 0) size_ = static_cast<std::int64_t>(now.num_rows);
  }
  return known_size();
}

void Growth::mark_in_place() {
  if (in_place_ || closed_ || mode_ != Mode::write_through) return;
  in_place_ = true;
  if (lock_.folder.valid()) folder::drop_leaf_checksums(lock_.folder, path_);
}

void Growth::will_write_in_place() {
  const Lock lock(mutex_);
  mark_in_place();
}

void Growth::update(std::span<const std::int64_t> positions, const Batch& rows) {
  const Lock lock(mutex_);
  require_writable("rows in place");
  const auto state = current();
  const auto count = static_cast<std::int64_t>(positions.size());
  if (rows.num_rows() != count) {
    throw Error(ErrorCode::invalid_argument, path_.string() + ": rows in place: expected " +
                                                 std::to_string(count) + " rows, found " +
                                                 std::to_string(rows.num_rows()));
  }
  for (const std::int64_t position : positions) {
    if (position >= 0 && position < size_) continue;
    throw Error(ErrorCode::invalid_argument, path_.string() + ": row: expected an index in [0, " +
                                                 std::to_string(size_) + "), found " +
                                                 std::to_string(position));
  }
  check_rows(state->schema, rows, path_.string(), true);
  for (const BatchColumn& found : rows.columns()) {
    if (!found.column.has_ends()) continue;
    refuse_growth(path_, "column " + base::quote(found.column.name()) +
                             ": ragged rows cannot be changed in place: expected columns of "
                             "rows of one size; append() a new row");
  }
  mark_in_place();
  std::vector<std::int64_t> slots(positions.begin(), positions.end());
  state->order->map(slots);
  for (const LeafRole& role : roles_) {
    const Column& column = state->schema.columns()[role.column];
    const BatchColumn* found = find_column(rows, column);
    if (found == nullptr) continue;
    const StoredColumn& stored = *state->parts[0].columns[role.column];
    const bool is_valid = role.part == LeafRole::Part::valid;
    const Tensor from = is_valid ? valid_of(column, *found, count) : found->values.contiguous();
    const Tensor& into = is_valid ? stored.valid : stored.values;
    if (from.nbytes() == 0) continue;
    if (!into.buffer().writable()) {
      refuse_growth(
          path_, "column " + base::quote(column.name()) + ": expected bytes that can be written");
    }
    const std::uint64_t stride_bytes = is_valid ? 1 : stored.stride_bytes;
    const auto row_bytes = static_cast<std::size_t>(role.row_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      std::memcpy(into.raw_data() + static_cast<std::uint64_t>(slots[i]) * stride_bytes,
                  from.raw_data() + i * row_bytes, row_bytes);
    }
  }
}

void Growth::flush() {
  const Lock lock(mutex_);
  require_writable("flush");
  if (in_place_) current()->parts[0].table->tree().flush();
  if (writer_) writer_->flush();
}

void Growth::close() {
  const Lock lock(mutex_);
  if (closed_ || mode_ != Mode::write_through) return;
  if (in_place_) current()->parts[0].table->tree().flush();
  if (writer_) writer_->close();
  writer_ = nullptr;
  closed_ = true;
  // Reopen on the next read: another process may append or replace the data set from now on.
  forget();
  current();
  lock_.release();
}

std::int64_t Growth::capacity() {
  const Lock lock(mutex_);
  const auto& ring = current()->parts[0].table->ring();
  return ring ? static_cast<std::int64_t>(ring->capacity()) : 0;
}

std::int64_t Growth::cursor() {
  const Lock lock(mutex_);
  const auto& ring = current()->parts[0].table->ring();
  return ring ? static_cast<std::int64_t>(ring->now().written % ring->capacity()) : known_size();
}

}  // namespace tenfold

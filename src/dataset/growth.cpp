#include "dataset/growth.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/fixed_rows.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/parts/growth.hpp"
#include "dataset/ring_guard.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/leaf_source.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/reader.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

namespace {

/// Returns the file of a leaf; the caller sets size_bytes. Throws Error(unsupported) if rows cannot
/// be added to it.
folder::GrowingLeaf growing_leaf(const Path& path, const TensorDict& tree, const LeafRole& role,
                                 const std::string& column) {
  const std::string where = "column " + base::quote(column);
  const TensorDict::Item item = tree.get(role.key);
  const auto& leaf = std::get<Leaf>(item);
  const auto handle = folder::folder_of(leaf);
  const std::string below = handle == nullptr ? "" : handle->path_below_root();
  // Unbatched leaves must be in the folder `%values` of the root, other tensors outside of any
  // `%values`.
  const bool has_expected_name = role.is_unbatched
                                     ? below == folder::kValuesName
                                     : below.find(folder::kValuesName) == std::string::npos;
  if (handle == nullptr || !has_expected_name || leaf.is_unbatched() != role.is_unbatched) {
    throw base::unsupported(path)
        .part(where)
        .problem("rows cannot be added")
        .expected("tensors in the folders of a data set")
        .found("tensors in other folders")
        .remedy("make a data set by create() or ingest()");
  }
  const std::string& key = role.key.back();
  if (key == "shape" || key == "device" || key == "_type") {
    throw base::unsupported(path)
        .part(where)
        .problem("its tensor has the name of a member of tensordict's metadata")
        .expected("another name")
        .remedy("make a data set by create() or ingest()");
  }
  if (role.is_unbatched && role.row_bytes == 0) {
    throw base::unsupported(path)
        .part(where)
        .problem("elements of 0 bytes cannot be counted")
        .expected("at least 1 byte");
  }
  return {key, folder::file_of(leaf), below, role.is_unbatched, false, role.row_bytes, 0};
}

/// Returns the number of batched tensors and non-tensor values in `node` and its descendants.
/// Throws Error(unsupported) for a child node that has none, or is not a TensorDict of `num_rows`
/// rows.
std::size_t count_batched(const Path& path, const TensorDict& node, std::int64_t num_rows) {
  std::size_t count = 0;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      const auto refuse = [&] {
        return base::unsupported(path)
            .part("entry ", base::quote(key))
            .problem("rows cannot be added");
      };
      const Shape& batch = child->batch_size();
      if (child->kind() != NodeKind::tensordict || batch.empty() || batch[0] != num_rows) {
        throw refuse()
            .expected("a TensorDict with as many rows as the data set")
            .found("a ", to_string(child->kind()), " of batch size ", base::list_text(batch));
      }
      const std::size_t inside = count_batched(path, *child, num_rows);
      if (inside == 0) throw refuse().expected("tensors in every node").found("none");
      count += inside;
    } else if (leaf == nullptr || !leaf->is_unbatched()) {
      ++count;
    }
  });
  return count;
}

/// Returns the last of `count` end offsets, or 0 if there is none; the column has `limit` elements.
/// Throws Error(corrupt) if the last offset is out of range or less than the previous offset,
/// because new elements are written at the last offset. If `is_exact`, also throws if the last
/// offset is not `limit`.
std::uint64_t last_end(const Path& path, const Column& column, const Tensor& ends,
                       std::uint64_t count, std::int64_t limit, bool is_exact) {
  const auto* values = count == 0 ? nullptr : ends.data<std::int64_t>();
  const std::int64_t last = count == 0 ? 0 : values[count - 1];
  const std::int64_t before = count < 2 ? 0 : values[count - 2];
  const base::Where where(path.string(), "column " + base::quote(column.name()) + ": ends");
  if (before < 0 || last < before || last > limit) {
    throw base::corrupt(where)
        .problem("the data set is damaged")
        .expected("nondecreasing end offsets from 0 to ", limit)
        .found(before, " before ", last);
  }
  if (is_exact && last != limit) {
    throw base::corrupt(where)
        .problem("rows cannot be added")
        .expected("a last end offset of ", limit, ", the number of elements")
        .found(last)
        .remedy("the data set is damaged or was truncated: copy its rows with ingest()");
  }
  return static_cast<std::uint64_t>(last);
}

/// Throws Error(invalid_argument) if readers would refuse the shape of a tensor of `num_rows` rows
/// of 0 bytes. The shapes of other tensors are limited by the sizes of their files.
void check_empty_rows(const Path& path, const Schema& schema, const std::vector<LeafRole>& roles,
                      std::int64_t num_rows) {
  for (const LeafRole& role : roles) {
    if (role.row_bytes > 0) continue;
    const Column& column = schema.columns()[role.column];
    folder::MetaEntry entry;
    entry.key = column.name();
    entry.dtype = column.dtype;
    entry.shape = batch_shape_of(num_rows, column);
    folder::check_leaf_size(entry);
    if (!entry.problem) continue;
    throw Error(*entry.problem).code(ErrorCode::invalid_argument).path(path.string());
  }
}

/// The guard of a circular buffer; null for other data sets.
std::shared_ptr<const RingGuard> ring_of(const DatasetState& state) {
  const bool has_table = state.parts.size() == 1 && state.parts[0].is_open();
  return has_table ? state.parts[0].table->ring() : nullptr;
}

}  // namespace

std::shared_ptr<Growth> Growth::open(const Path& path, Mode mode) {
  if (mode == Mode::write_through && probe(path) == "parts") {
    return std::make_shared<PartsGrowth>(path);
  }
  return std::make_shared<FolderGrowth>(path, mode);
}

void detail::require_same_columns(const Path& path, const Schema& found, const Schema& opened) {
  if (found == opened) return;
  throw Error::io(ESTALE, path.string())
      .problem("the data set was replaced")
      .expected("the columns that it had when it was opened")
      .found("other columns")
      .remedy("open it again");
}

FolderGrowth::FolderGrowth(const Path& path, Mode mode) : folder_(path, mode, "a data set") {
  if (mode == Mode::write_through) {
    os::Directory locked;
    if (probe(folder_.path()) == "memmap") {
      folder_.lock();
      locked = folder_.directory().duplicate();
    }
    in_place_ = std::make_shared<InPlaceWrites>(std::move(locked), folder_.path());
  }
  const Lock lock(mutex_);
  current();
}

std::shared_ptr<const DatasetState> FolderGrowth::open_state() const {
  const Path& path = folder_.path();
  OpenOptions options;
  options.mode = folder_.is_closed() ? Mode::read : folder_.mode();
  const auto in_place = folder_.is_writable() ? in_place_ : nullptr;
  if (folder_.directory().valid()) {
    // open() in mode write_through would remove the checksums. open_tree() keeps them, because
    // appending does not change existing rows. InPlaceWrites removes them before existing rows
    // change.
    return state_of(folder::open_tree(folder_.directory().duplicate(), path, options.mode),
                    os::identity_of(path), in_place);
  }
  return os::read_unreplaced(path, [&] {
    return state_of(tenfold::open(path, options), os::identity_of(path), in_place);
  });
}

const std::shared_ptr<const DatasetState>& FolderGrowth::current() {
  if (state_) return state_;
  std::shared_ptr<const DatasetState> opened = open_state();
  if (roles_.empty()) {
    schema_ = opened->schema;
    roles_ = leaf_roles(schema_);
  } else {
    require_same_columns(folder_.path(), opened->schema, schema_);
  }
  state_ = std::move(opened);
  size_ = state_->order->size();
  return state_;
}

std::shared_ptr<const DatasetState> FolderGrowth::state() {
  const Lock lock(mutex_);
  return current();
}

std::int64_t FolderGrowth::size() {
  const Lock lock(mutex_);
  return known_size();
}

std::int64_t FolderGrowth::known_size() {
  if (size_ < 0) current();
  return size_;
}

void FolderGrowth::forget() noexcept {
  state_ = nullptr;
  size_ = -1;
}

void FolderGrowth::renew() noexcept {
  folder_.abandon();
  std::construct_at(&state_);
  std::construct_at(&in_place_);
  size_ = -1;
}

void FolderGrowth::refresh() {
  const Lock lock(mutex_);
  forget();
  current();
}

std::vector<folder::GrowingLeaf> FolderGrowth::leaves_of(const DatasetState& state, bool is_exact) {
  const TensorDict& tree = state.parts[0].table->tree();
  std::vector<folder::GrowingLeaf> leaves;
  std::size_t batched = 0;
  for (const LeafRole& role : roles_) {
    const Column& column = state.schema.columns()[role.column];
    folder::GrowingLeaf leaf = growing_leaf(folder_.path(), tree, role, column.name());
    const StoredColumn& stored = *state.parts[0].columns[role.column];
    auto count = static_cast<std::uint64_t>(state.parts[0].table->num_rows());
    if (role.is_unbatched) {
      const auto end_of = [&](const Tensor& ends, std::uint64_t of, const Tensor& counted) {
        return last_end(folder_.path(), column, ends, of, counted.shape()[0], is_exact);
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
  const std::size_t found = count_batched(folder_.path(), tree, state.parts[0].table->num_rows());
  if (found != batched) {
    throw base::unsupported(folder_.path())
        .problem("rows cannot be added")
        .expected("only the tensors of its schema")
        .found("other entries");
  }
  return leaves;
}

/// Prepares the first append: acquires the lock against other writers and opens the files.
void FolderGrowth::start() {
  if (folder_.writer() != nullptr) return;
  refuse_ambiguous_names(schema_.columns(), folder_.path());
  folder_.start([this](bool is_exact) {
    forget();
    return leaves_of(*current(), is_exact);
  });
}

std::int64_t FolderGrowth::append(const Batch& rows) {
  const Lock lock(mutex_);
  folder_.require_writable("append");
  check_rows(schema_, rows, folder_.path().string());
  start();
  folder::GrowingFolder& writer = *folder_.writer();
  if (rows.num_rows() == 0) {
    writer.check_here();
    return known_size();
  }
  const auto count = static_cast<std::uint64_t>(rows.num_rows());
  writer.require_countable(count);
  if (writer.capacity() == 0) {
    const std::uint64_t total = writer.state().num_rows + count;
    check_empty_rows(folder_.path(), schema_, roles_, static_cast<std::int64_t>(total));
  }
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    const std::uint64_t row_bytes = roles_[i].row_bytes;
    lengths.push_back(row_bytes == 0 ? 0
                                     : static_cast<std::int64_t>(writer.size_bytes(i) / row_bytes));
  }
  const std::vector<Tensor> tensors = leaf_tensors(roles_, schema_, rows, lengths);
  std::vector<std::span<const std::byte>> bytes;
  for (const Tensor& tensor : tensors) {
    bytes.emplace_back(tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes()));
  }
  const auto shown = static_cast<std::uint64_t>(size_);
  try {
    if (writer.capacity() > 0) {
      writer.write_ring(count, bytes);
    } else {
      writer.append(count, bytes);
    }
  } catch (...) {
    forget();
    throw;
  }
  const folder::CommitState& now = writer.state();
  // `state_` must be opened again if rows were added, or to omit slots that are busy because a
  // write failed. After a write to a full circular buffer it is still valid, because it maps all
  // slots.
  if (now.num_rows != shown || now.busy_rows > 0) {
    forget();
    size_ = static_cast<std::int64_t>(now.num_rows);
    if (now.busy_rows > 0) {
      const auto [before, after] = settled_slots(now, writer.capacity(), size_);
      size_ = before.end - before.begin + after.end - after.begin;
    }
  }
  return size_;
}

void FolderGrowth::update(std::span<const std::int64_t> positions, const Batch& rows) {
  const Lock lock(mutex_);
  folder_.require_writable("update of rows in place");
  const auto state = current();
  const auto count = static_cast<std::int64_t>(positions.size());
  if (rows.num_rows() != count) {
    throw base::invalid_argument(folder_.path().string())
        .part("update of rows in place")
        .expected(count, " rows")
        .found(rows.num_rows());
  }
  for (const std::int64_t position : positions) {
    if (position >= 0 && position < size_) continue;
    throw base::invalid_argument(folder_.path().string())
        .part("row")
        .expected("an index in [0, ", size_, ")")
        .found(position);
  }
  check_rows(state->schema, rows, folder_.path().string(), true);
  for (const Column& column : state->schema.columns()) {
    if (!column.has_ends() || find_column(rows, column) == nullptr) continue;
    throw base::unsupported(folder_.path())
        .part("column ", base::quote(column.name()))
        .problem("rows of variable size cannot be changed in place")
        .expected("columns with rows of fixed size")
        .remedy("append() a new row");
  }
  in_place_->begin();
  std::vector<std::int64_t> slots(positions.begin(), positions.end());
  state->order->map(slots);
  for (const LeafRole& role : roles_) {
    const Column& column = state->schema.columns()[role.column];
    const BatchColumn* found = find_column(rows, column);
    if (found == nullptr) continue;
    const StoredColumn& stored = *state->parts[0].columns[role.column];
    const bool is_valid = role.part == LeafRole::Part::valid;
    const Tensor from =
        is_valid ? valid_of(column, *found, count) : values_of(column, *found, count);
    const Tensor& into = is_valid ? stored.valid : stored.values;
    if (from.nbytes() == 0) continue;
    if (!into.buffer().writable()) {
      throw base::unsupported(folder_.path())
          .part("column ", base::quote(column.name()))
          .expected("a column that can be written in place")
          .found("a read-only one");
    }
    const std::uint64_t stride_bytes = is_valid ? 1 : stored.stride_bytes;
    const auto row_bytes = static_cast<std::size_t>(role.row_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      std::memcpy(into.mutable_raw_data() + static_cast<std::uint64_t>(slots[i]) * stride_bytes,
                  from.raw_data() + i * row_bytes, row_bytes);
    }
  }
}

void FolderGrowth::flush() {
  const Lock lock(mutex_);
  folder_.require_writable("flush");
  if (in_place_->have_begun()) current()->parts[0].table->tree().flush();
  folder_.flush();
}

void FolderGrowth::close() {
  const Lock lock(mutex_);
  if (!folder_.is_writable()) return;
  if (in_place_->have_begun()) current()->parts[0].table->tree().flush();
  folder_.close([this] {
    in_place_ = nullptr;
    forget();
    current();
  });
}

std::int64_t FolderGrowth::capacity() {
  const Lock lock(mutex_);
  const auto ring = ring_of(*current());
  return ring ? static_cast<std::int64_t>(ring->capacity()) : 0;
}

std::int64_t FolderGrowth::cursor() {
  const Lock lock(mutex_);
  const auto ring = ring_of(*current());
  return ring ? static_cast<std::int64_t>(ring->now().written % ring->capacity()) : known_size();
}

}  // namespace tenfold

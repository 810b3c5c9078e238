#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/compatible_columns.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/growth.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/loader/mix_pattern.hpp"
#include "dataset/padding.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/ring_guard.hpp"

namespace tenfold {
namespace {

Error fail_dataset() { return base::invalid_argument().part("data set"); }

/// The column whose path is exactly `path`, or null. Schema::find() also finds dotted names.
const Column* column_at(const Schema& schema, const KeyPath& path) {
  const Column* found = schema.find(path);
  return found != nullptr && found->path == path ? found : nullptr;
}

/// Returns for each column of `schema` the index of the same column in `from`. Throws unless both
/// schemas have the same columns.
std::vector<std::size_t> matching_columns(const Schema& schema, const Schema& from,
                                          std::string_view call) {
  std::vector<std::size_t> indices;
  for (const Column& column : schema.columns()) {
    const Column* found = column_at(from, column.path);
    if (found == nullptr || !are_compatible(column, *found)) {
      throw fail_dataset()
          .part(call, ": column ", base::quote(column.name()))
          .expected(describe(column), " in every data set")
          .found((found == nullptr ? "none" : describe(*found)));
    }
    indices.push_back(static_cast<std::size_t>(found - from.columns().data()));
  }
  for (const Column& column : from.columns()) {
    if (column_at(schema, column.path) == nullptr) {
      throw fail_dataset()
          .part(call, ": column ", base::quote(column.name()))
          .expected("the column in every data set")
          .found("the column in some of them only")
          .remedy("select() the columns that all of them have");
    }
  }
  return indices;
}

/// The tables of several data sets, with consecutive row numbers, and the order of each data set,
/// shifted to these row numbers.
struct Joined {
  std::shared_ptr<DatasetState> state = std::make_shared<DatasetState>();
  std::vector<RowOrderPtr> orders;
};

/// An order whose rows are shifted by `first_row`.
class MovedOrder final : public RowOrder {
 public:
  MovedOrder(RowOrderPtr base, std::int64_t first_row)
      : base_(std::move(base)), first_row_(first_row) {}
  std::int64_t size() const noexcept override { return base_->size(); }
  void map(std::span<std::int64_t> positions) const override {
    base_->map(positions);
    for (std::int64_t& position : positions) position += first_row_;
  }
  std::optional<std::int64_t> contiguous_from() const override {
    const auto first = base_->contiguous_from();
    if (!first) return std::nullopt;
    return *first + first_row_;
  }

 private:
  RowOrderPtr base_;
  std::int64_t first_row_;
};

bool is_same_part(const DatasetPart& a, const DatasetPart& b) { return a.is_same(b); }

RowOrderPtr moved(const RowOrderPtr& order, std::int64_t rows) {
  return rows == 0 ? order : std::make_shared<MovedOrder>(order, rows);
}

/// Joins data sets. `call`: the name of the called function, for messages.
Joined join(std::span<const Dataset> sources, std::string_view call) {
  if (sources.empty()) {
    throw fail_dataset().part(call).expected("at least one data set").found("none");
  }
  Joined joined;
  joined.state->schema = sources[0].schema();
  joined.state->tree = sources[0].tree();
  std::int64_t first_row = 0;
  for (const Dataset& source : sources) {
    const auto indices = matching_columns(joined.state->schema, source.schema(), call);
    const auto state = state_of(source);
    std::vector<DatasetPart> parts = state->parts;
    for (DatasetPart& part : parts) part.first_row += first_row;
    choose_columns(parts, [&](const std::vector<PartColumn>& columns) {
      std::vector<PartColumn> chosen;
      for (const std::size_t index : indices) chosen.push_back(columns[index]);
      return chosen;
    });
    joined.state->all_open = joined.state->all_open && state->all_open;
    if (parts.empty()) {
      joined.orders.push_back(row_range(0, 0));
      continue;
    }
    // Reuse parts that are already in `all`, so that joining views of one data set does not make
    // gathering slower.
    std::vector<DatasetPart>& all = joined.state->parts;
    const auto known =
        std::search(all.begin(), all.end(), parts.begin(), parts.end(), is_same_part);
    if (known != all.end()) {
      joined.orders.push_back(moved(state->order, known->first_row - state->parts[0].first_row));
      continue;
    }
    joined.orders.push_back(moved(state->order, first_row));
    first_row = parts.back().first_row + parts.back().num_rows();
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return joined;
}

/// Returns the column `x` if `name` is "x.valid" and `x` is nullable; otherwise null.
const Column* column_of_validity(const Schema& schema, std::string_view name) {
  if (!name.ends_with(kValiditySuffix)) return nullptr;
  const Column* column = schema.find(name.substr(0, name.size() - kValiditySuffix.size()));
  return column != nullptr && column->nullable ? column : nullptr;
}

/// The validity of a column as a bool column.
Column validity_column(const Column& column) {
  Column valid;
  valid.path = column.path;
  valid.path.back() += kValiditySuffix;
  valid.dtype = DType::bool_;
  valid.leaf = column.valid_leaf;
  return valid;
}

bool is_inside(const KeyPath& path, const KeyPath& record) {
  return path.size() > record.size() && std::equal(record.begin(), record.end(), path.begin());
}

/// Returns the proper prefix of `path` whose dotted name is `name`: the path of a record that
/// contains the column at `path`. Empty if there is none.
KeyPath record_of(const KeyPath& path, std::string_view name) {
  for (std::size_t length = 1; length < path.size(); ++length) {
    KeyPath record(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length));
    if (dotted(record) == name) return record;
  }
  return {};
}

/// Returns the path of the record with the dotted name `name`; empty if there is none.
KeyPath record_path(const Schema& schema, std::string_view name) {
  for (const Column& column : schema.columns()) {
    if (KeyPath record = record_of(column.path, name); !record.empty()) return record;
  }
  return {};
}

std::string known_columns(const Schema& schema) {
  std::string known;
  for (const Column& column : schema.columns()) {
    known += (known.empty() ? "" : ", ") + base::quote(column.name());
  }
  return known;
}

Dataset with_order(const DatasetState& state, RowOrderPtr order) {
  auto made = std::make_shared<DatasetState>(state);
  made->order = std::move(order);
  return dataset_of(std::move(made));
}

void check_positions(std::span<const std::int64_t> positions, std::int64_t size) {
  for (const std::int64_t position : positions) {
    if (position >= 0 && position < size) continue;
    throw fail_dataset().part("row").expected("an index in [0, ", size, ")").found(position);
  }
}

}  // namespace

std::shared_ptr<const DatasetState> state_of(TensorDict tree,
                                             const std::optional<os::FileIdentity>& origin,
                                             std::shared_ptr<InPlaceWrites> in_place) {
  auto state = std::make_shared<DatasetState>();
  state->tree = tree;
  state->origin = origin;
  if (const auto folder = PartsFolder::of(tree)) {
    folder->add_to(*state);
    return state;
  }
  auto table = std::make_shared<const Table>(std::move(tree), std::move(in_place));
  state->schema = table->schema();
  state->order =
      table->ring() ? table->ring()->order(table->num_rows()) : row_range(0, table->num_rows());
  state->parts.emplace_back(std::move(table), 0);
  return state;
}

Dataset::Dataset(const Path& path, Mode mode) : growth_(Growth::open(path, mode)) {
  state_ = growth_->state();
}

Dataset::Dataset(TensorDict tree) : state_(state_of(std::move(tree))) {}

std::shared_ptr<const DatasetState> Dataset::state() const {
  return growth_ ? growth_->state() : state_;
}

std::int64_t Dataset::size() const { return growth_ ? growth_->size() : state_->order->size(); }

const Schema& Dataset::schema() const& noexcept { return state_->schema; }

const TensorDict& Dataset::tree() const noexcept { return state_->tree; }

Batch Dataset::rows(std::span<const std::int64_t> positions, const BatchOptions& options) const {
  const auto state = this->state();
  check_pads(state->schema, options);
  refuse_length_names(state->schema, options);
  check_positions(positions, state->order->size());
  std::vector<std::int64_t> rows(positions.begin(), positions.end());
  state->order->map(rows);
  return gather(*state, rows, options);
}

Batch Dataset::rows(std::int64_t begin, std::int64_t end, const BatchOptions& options) const {
  const auto state = this->state();
  check_pads(state->schema, options);
  refuse_length_names(state->schema, options);
  const std::int64_t size = state->order->size();
  if (begin < 0 || begin > end || end > size) {
    throw fail_dataset()
        .part("rows")
        .expected("a range inside [0, ", size, ")")
        .found("[", begin, ", ", end, ")");
  }
  std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  state->order->map(rows);
  return gather(*state, rows, options);
}

Dataset Dataset::rename(const std::vector<std::pair<std::string, KeyPath>>& names) const {
  const auto state = this->state();
  std::vector<Column> columns = state->schema.columns();
  for (const auto& [name, path] : names) {
    const Column* exact = state->schema.find(name);
    const KeyPath record = exact == nullptr ? record_path(state->schema, name) : KeyPath();
    if (path.empty()) {
      throw base::key_not_found()
          .part("data set: rename: new path of ", base::quote(name))
          .expected("at least one key")
          .found("none");
    }
    if (exact == nullptr && record.empty()) {
      throw base::key_not_found()
          .part("data set")
          .problem("no column ", base::quote(name))
          .expected("one of ", known_columns(state->schema))
          .found(base::quote(name));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Column& before = state->schema.columns()[i];
      if (exact != nullptr ? exact != &before : !is_inside(before.path, record)) continue;
      KeyPath renamed = path;
      if (exact == nullptr) {
        renamed.insert(renamed.end(),
                       before.path.begin() + static_cast<std::ptrdiff_t>(record.size()),
                       before.path.end());
      }
      columns[i].path = std::move(renamed);
    }
  }
  auto made = std::make_shared<DatasetState>(*state);
  made->schema = Schema(std::move(columns));
  return Dataset(std::move(made));
}

Tensor Dataset::column(std::string_view name) const {
  const Dataset selected = select({std::string(name)});
  const std::vector<Column>& columns = selected.schema().columns();
  if (columns.size() != 1 || columns[0].has_ends()) {
    throw fail_dataset()
        .part("column ", base::quote(name))
        .problem("its rows are strings, bytes or ragged, or it is a record of several columns")
        .expected("one column with rows of fixed size")
        .found(columns.size() == 1 ? describe(columns[0])
                                   : std::to_string(columns.size()) + " columns")
        .remedy("read it by rows()");
  }
  const DatasetState& state = *selected.state_;
  const auto first = state.order->contiguous_from();
  // A column of a circular buffer is copied, because its mapped rows may be overwritten at any
  // time.
  if (first && state.parts.size() == 1 && state.all_open && !state.parts[0].table->ring()) {
    state.parts[0].table->will_write_in_place();
    return state.parts[0].columns[0]->values.narrow(*first, *first + selected.size());
  }
  BatchOptions options;
  options.num_threads = 0;
  return selected.rows(0, selected.size(), options).columns()[0].values;
}

Dataset Dataset::range(std::int64_t begin, std::int64_t end) const {
  const auto state = this->state();
  const std::int64_t size = state->order->size();
  begin = std::clamp<std::int64_t>(begin, 0, size);
  end = std::clamp<std::int64_t>(end, begin, size);
  return with_order(*state, sub_order(state->order, begin, end - begin));
}

Dataset Dataset::select(const std::vector<std::string>& names) const {
  const auto state = this->state();
  auto made = std::make_shared<DatasetState>(*state);
  std::vector<Column> columns;
  std::vector<PartColumn> wanted;  // for each of `columns`, its column in this data set
  for (const std::string& name : names) {
    const std::size_t before = columns.size();
    const Column* exact = schema().find(name);
    for (std::size_t i = 0; i < schema().size(); ++i) {
      const Column& column = schema().columns()[i];
      if (exact != nullptr ? exact != &column : record_of(column.path, name).empty()) continue;
      columns.push_back(column);
      wanted.push_back({i, false});
    }
    if (columns.size() > before) continue;
    if (const Column* of = column_of_validity(schema(), name)) {
      columns.push_back(validity_column(*of));
      wanted.push_back({static_cast<std::size_t>(of - schema().columns().data()), true});
      continue;
    }
    throw base::key_not_found()
        .part("data set")
        .problem("no column ", base::quote(name))
        .expected("one of ", known_columns(schema()))
        .found(base::quote(name));
  }
  choose_columns(made->parts, [&](const std::vector<PartColumn>& shown) {
    std::vector<PartColumn> chosen;
    for (const PartColumn& column : wanted) {
      const PartColumn& of = shown[column.index];
      chosen.push_back({of.index, of.is_validity || column.is_validity});
    }
    return chosen;
  });
  made->schema = Schema(std::move(columns));
  return Dataset(std::shared_ptr<const DatasetState>(std::move(made)));
}

Dataset Dataset::take(Tensor positions) const {
  if (positions.dtype() != DType::int64 || positions.ndim() != 1) {
    throw fail_dataset()
        .part("take")
        .expected("int64 positions of one dimension")
        .found(to_string(positions.dtype()), " ", base::list_text(positions.shape()));
  }
  const Tensor kept = positions.contiguous();
  const auto rows = kept.span<std::int64_t>();
  const auto state = this->state();
  check_positions(rows, state->order->size());
  return with_order(*state, selected_order(state->order, rows));
}

Dataset Dataset::filter(const Tensor& mask) const {
  const auto state = this->state();
  const std::int64_t size = state->order->size();
  if (mask.dtype() != DType::bool_ || mask.ndim() != 1 || mask.shape()[0] != size) {
    throw fail_dataset()
        .part("filter")
        .expected("a bool mask of shape [", size, "]")
        .found(to_string(mask.dtype()), " ", base::list_text(mask.shape()));
  }
  const Tensor flags = mask.contiguous();
  std::vector<std::int64_t> positions;
  const auto* bytes = flags.raw_data();
  for (std::int64_t i = 0; i < size; ++i) {
    if (bytes[i] != std::byte{0}) positions.push_back(i);
  }
  return with_order(*state, selected_order(state->order, positions));
}

std::vector<Dataset> Dataset::split(const std::vector<std::int64_t>& sizes,
                                    std::optional<std::uint64_t> seed) const {
  const Dataset whole(state());
  const std::int64_t size = whole.size();
  std::int64_t total = 0;
  for (const std::int64_t part : sizes) {
    if (part < 0 || part > size - total) {
      total = -1;
      break;
    }
    total += part;
  }
  if (total != size) {
    throw fail_dataset()
        .part("split")
        .expected("sizes that sum to ", size)
        .found(base::list_text(sizes));
  }
  std::vector<Dataset> parts;
  std::int64_t begin = 0;
  const Permutation permutation(size, seed.value_or(0));
  for (const std::int64_t part : sizes) {
    parts.push_back(seed ? with_order(*whole.state_,
                                      permuted_order(whole.state_->order, permutation, begin, part))
                         : whole.range(begin, begin + part));
    begin += part;
  }
  return parts;
}

Dataset Dataset::shard(std::int64_t rank, std::int64_t world_size) const {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw fail_dataset()
        .part("shard")
        .expected("a rank in [0, world_size)")
        .found("rank ", rank, " of ", world_size);
  }
  const Dataset whole(state());
  // The first size() % world_size parts have one row more than the other parts.
  const std::int64_t least = whole.size() / world_size;
  const std::int64_t longer = whole.size() % world_size;
  const std::int64_t begin = rank * least + std::min(rank, longer);
  return whole.range(begin, begin + least + (rank < longer ? 1 : 0));
}

Dataset Dataset::concat(std::span<const Dataset> parts) {
  Joined joined = join(parts, "concat");
  joined.state->order = joined_order(std::move(joined.orders));
  return Dataset(std::shared_ptr<const DatasetState>(std::move(joined.state)));
}

Dataset Dataset::mix(std::span<const Dataset> sources, std::span<const double> weights) {
  if (weights.size() != sources.size()) {
    throw fail_dataset()
        .part("mix")
        .expected("a weight for each of ", sources.size(), " data sets")
        .found(std::to_string(weights.size()));
  }
  Joined joined = join(sources, "mix");
  joined.state->order = mixed_order(std::move(joined.orders), mix_pattern(weights));
  return Dataset(std::shared_ptr<const DatasetState>(std::move(joined.state)));
}

Growth& Dataset::growth(const char* what) const {
  if (growth_) return *growth_;
  throw base::unsupported()
      .part("data set: ", what)
      .expected("a data set that was opened from a path")
      .found("a view, or a data set in memory")
      .remedy("use the data set that the view was made from");
}

std::int64_t Dataset::append(const Batch& rows) { return growth("append").append(rows); }

std::int64_t Dataset::append(const TensorDict& rows) {
  const Dataset table(rows);
  return append(table.rows(0, table.size()));
}

void Dataset::update(std::span<const std::int64_t> positions, const Batch& rows) {
  growth("update of rows in place").update(positions, rows);
}

void Dataset::flush() { growth("flush").flush(); }

void Dataset::close() {
  if (growth_) growth_->close();
}

void Dataset::refresh() { growth("refresh").refresh(); }

std::int64_t Dataset::capacity() const { return growth_ ? growth_->capacity() : 0; }

std::int64_t Dataset::cursor() const { return growth_ ? growth_->cursor() : size(); }

}  // namespace tenfold

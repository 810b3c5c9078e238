#include "ingest/table/table_writer.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/tensordict.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "dataset/leaf_names.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/plan.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/progress.hpp"
#include "ingest/table/part_file.hpp"
#include "os/fs/file.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Creates the file of one tensor of a column; unbatched tensors are in a separate folder.
using MakePart = std::function<std::unique_ptr<PartFile>(bool unbatched)>;

/// The files of one column, to which rows are appended chunk by chunk.
class ColumnWriter {
 public:
  ColumnWriter(Column column, const MakePart& make_part);

  const Column& column() const noexcept { return column_; }
  std::int64_t num_rows() const noexcept { return num_rows_; }
  /// Takes the names of leaves from `named`.
  void rename_leaves(const Column& named);

  /// Throws Error(invalid_argument) if the spans of the chunk do not match each other or the
  /// column.
  void check(const ColumnChunk& chunk) const;
  /// Appends rows that passed check().
  void append(const ColumnChunk& chunk);
  /// Appends rows without a value.
  void append_nulls(std::int64_t num_rows);
  /// Makes the column nullable. Marks all existing rows as valid.
  void make_nullable(const MakePart& make_part);

  /// Calls `use` with all rows, in blocks of a few MiB. A larger row is a block of its own.
  void for_each_block(const std::function<void(const ColumnChunk&)>& use);

  /// One tensor of the column, and its file.
  struct Stored {
    PartFile* file;
    KeyPath leaf;
    DType dtype;
    Shape shape;  ///< the first dimension is `num_rows` or the number of elements
    bool unbatched;
  };
  std::vector<Stored> stored(std::int64_t num_rows) const;

 private:
  void append_ends(PartFile& file, std::span<const std::int64_t> ends, std::int64_t base);
  std::vector<std::int64_t> read_ends(const PartFile& file, std::int64_t begin, std::int64_t end);

  Column column_;
  std::uint64_t element_bytes_;  ///< bytes of a fixed-size row, or of an element of a ragged row
  std::unique_ptr<PartFile> values_;
  std::unique_ptr<PartFile> ends_;
  std::unique_ptr<PartFile> item_ends_;
  std::unique_ptr<PartFile> valid_;
  std::int64_t num_rows_ = 0;
  std::int64_t num_elements_ = 0;  ///< elements of all ragged rows; bytes for strings
  std::int64_t num_items_ = 0;     ///< ragged strings only
  std::vector<std::int64_t> scratch_;
};

/// Maximum size of the values in a block of rows that is read back or filled with nulls, unless the
/// block is a single row.
constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
constexpr std::int64_t kBlockRows = 1 << 16;

Error fail(const Column& column) {
  return base::invalid_argument().part("column ", base::quote(column.name())).part("chunk");
}

/// True if `ends` is nonnegative and nondecreasing, and its last element (or 0) is `total`.
bool ends_fit(std::span<const std::int64_t> ends, std::int64_t total) {
  if (ends.empty()) return total == 0;
  return ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) && ends.back() == total;
}

ColumnWriter::ColumnWriter(Column column, const MakePart& make_part)
    : column_(std::move(column)), element_bytes_(nbytes_of(column_.dtype, column_.shape)) {
  values_ = make_part(column_.has_ends());
  if (column_.has_ends()) ends_ = make_part(false);
  if (column_.ragged && column_.is_text()) item_ends_ = make_part(true);
  if (column_.nullable) valid_ = make_part(false);
}

void ColumnWriter::rename_leaves(const Column& named) {
  column_.leaf = named.leaf;
  column_.end_leaf = named.end_leaf;
  column_.item_end_leaf = named.item_end_leaf;
  column_.valid_leaf = named.valid_leaf;
}

void ColumnWriter::check(const ColumnChunk& chunk) const {
  const auto expect = [&](const char* what, std::uint64_t expected, std::uint64_t found) {
    if (expected == found) return;
    throw fail(column_).part(what).expected(expected).found(found);
  };
  const auto rows = static_cast<std::uint64_t>(chunk.num_rows);
  if (chunk.num_rows < 0) throw fail(column_).expected("0 rows or more").found("fewer");
  if (!chunk.valid.empty()) {
    expect("validity of rows", rows, chunk.valid.size());
    if (!column_.nullable && std::ranges::find(chunk.valid, 0) != chunk.valid.end()) {
      throw fail(column_)
          .expected("a value in every row of a column that is not nullable")
          .found("none");
    }
  }
  if (!column_.has_ends()) return expect("bytes", rows * element_bytes_, chunk.values.size());
  expect("end offsets of rows", rows, chunk.ends.size());
  const auto num_bytes = static_cast<std::int64_t>(chunk.values.size());
  if (column_.ragged && column_.is_text()) {
    if (!ends_fit(chunk.ends, static_cast<std::int64_t>(chunk.item_ends.size())) ||
        !ends_fit(chunk.item_ends, num_bytes)) {
      throw fail(column_)
          .expected("nondecreasing end offsets of rows and items, up to the last item and byte")
          .found("other end offsets");
    }
    return;
  }
  const std::int64_t elements = chunk.ends.empty() ? 0 : chunk.ends.back();
  if (elements < 0 || !ends_fit(chunk.ends, elements)) {
    throw fail(column_)
        .expected("nonnegative, nondecreasing end offsets")
        .found("other end offsets");
  }
  expect("bytes", static_cast<std::uint64_t>(elements) * element_bytes_, chunk.values.size());
}

void ColumnWriter::append(const ColumnChunk& chunk) {
  num_rows_ += chunk.num_rows;
  values_->append(chunk.values);
  if (item_ends_) {
    append_ends(*ends_, chunk.ends, num_items_);
    append_ends(*item_ends_, chunk.item_ends, num_elements_);
    num_items_ += static_cast<std::int64_t>(chunk.item_ends.size());
    num_elements_ += static_cast<std::int64_t>(chunk.values.size());
  } else if (ends_) {
    append_ends(*ends_, chunk.ends, num_elements_);
    num_elements_ += chunk.ends.empty() ? 0 : chunk.ends.back();
  }
  if (!valid_) return;
  if (!chunk.valid.empty()) return valid_->append(std::as_bytes(chunk.valid));
  const std::vector<std::uint8_t> ones(static_cast<std::size_t>(chunk.num_rows), 1);
  valid_->append(std::as_bytes(std::span(ones)));
}

void ColumnWriter::append_ends(PartFile& file, std::span<const std::int64_t> ends,
                               std::int64_t base) {
  scratch_.resize(ends.size());
  std::ranges::transform(ends, scratch_.begin(), [base](std::int64_t end) { return base + end; });
  file.append(std::as_bytes(std::span(scratch_)));
}

void ColumnWriter::append_nulls(std::int64_t num_rows) {
  ColumnBuilder chunk;
  const std::int64_t most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(kBlockBytes / (element_bytes_ + 1)), 1, kBlockRows);
  while (num_rows > 0) {
    const std::int64_t count = std::min(num_rows, most);
    if (chunk.num_rows != count) {
      chunk = ColumnBuilder(column_);
      chunk.add_nulls(count);
    }
    append(chunk.view());
    num_rows -= count;
  }
}

void ColumnWriter::make_nullable(const MakePart& make_part) {
  column_.nullable = true;
  valid_ = make_part(false);
  const std::vector<std::uint8_t> ones(kBlockRows, 1);
  for (std::int64_t left = num_rows_; left > 0; left -= kBlockRows) {
    const auto count = static_cast<std::size_t>(std::min(left, kBlockRows));
    valid_->append(std::as_bytes(std::span(ones).first(count)));
  }
}

std::vector<std::int64_t> ColumnWriter::read_ends(const PartFile& file, std::int64_t begin,
                                                  std::int64_t end) {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(end - begin));
  file.read_at(static_cast<std::uint64_t>(begin) * sizeof(std::int64_t),
               std::as_writable_bytes(std::span(ends)));
  return ends;
}

/// The number of rows at the start of `chunk`, which has ragged strings, that together have at most
/// `most_bytes` bytes of values; at least 1.
std::int64_t rows_within(const ColumnBuilder& chunk, std::int64_t most_bytes) {
  const auto fits = [&](std::int64_t end) {
    return end == 0 || chunk.item_ends[static_cast<std::size_t>(end - 1)] <= most_bytes;
  };
  const auto last = std::partition_point(chunk.ends.begin(), chunk.ends.end(), fits);
  return std::max<std::int64_t>(1, last - chunk.ends.begin());
}

void ColumnWriter::for_each_block(const std::function<void(const ColumnChunk&)>& use) {
  for (PartFile* file : {values_.get(), ends_.get(), item_ends_.get(), valid_.get()}) {
    if (file != nullptr) file->flush();
  }
  std::int64_t first_item = 0;
  std::int64_t first_element = 0;
  for (std::int64_t begin = 0; begin < num_rows_;) {
    ColumnBuilder chunk;
    std::int64_t count = std::min(num_rows_ - begin, kBlockRows);
    std::uint64_t num_bytes = 0;
    if (!ends_) {
      count = std::clamp<std::int64_t>(
          static_cast<std::int64_t>(kBlockBytes / std::max<std::uint64_t>(element_bytes_, 1)), 1,
          count);
      num_bytes = static_cast<std::uint64_t>(count) * element_bytes_;
      chunk.values.resize(static_cast<std::size_t>(num_bytes));
      values_->read_at(static_cast<std::uint64_t>(begin) * element_bytes_, chunk.values);
    } else {
      chunk.ends = read_ends(*ends_, begin, begin + count);
      // As many rows as fit the block, but at least one.
      const std::int64_t base = item_ends_ ? first_item : first_element;
      const std::uint64_t each = item_ends_ ? 16 : element_bytes_;
      const auto most =
          base + static_cast<std::int64_t>(kBlockBytes / std::max<std::uint64_t>(each, 1));
      const auto last = std::upper_bound(chunk.ends.begin(), chunk.ends.end(), most);
      count = std::max<std::int64_t>(1, last - chunk.ends.begin());
      chunk.ends.resize(static_cast<std::size_t>(count));
      for (std::int64_t& end : chunk.ends) end -= base;
      std::int64_t elements = chunk.ends.back();
      if (item_ends_) {
        chunk.item_ends = read_ends(*item_ends_, first_item, first_item + elements);
        for (std::int64_t& end : chunk.item_ends) end -= first_element;
        count = rows_within(chunk, static_cast<std::int64_t>(kBlockBytes));
        chunk.ends.resize(static_cast<std::size_t>(count));
        chunk.item_ends.resize(static_cast<std::size_t>(chunk.ends.back()));
        first_item += chunk.ends.back();
        elements = chunk.item_ends.empty() ? 0 : chunk.item_ends.back();
      }
      chunk.values.resize(static_cast<std::size_t>(elements) *
                          static_cast<std::size_t>(element_bytes_));
      values_->read_at(static_cast<std::uint64_t>(first_element) * element_bytes_, chunk.values);
      first_element += elements;
    }
    chunk.num_rows = count;
    if (valid_) {
      chunk.valid.resize(static_cast<std::size_t>(count));
      valid_->read_at(static_cast<std::uint64_t>(begin),
                      std::as_writable_bytes(std::span(chunk.valid)));
    }
    use(chunk.view());
    begin += count;
  }
}

std::vector<ColumnWriter::Stored> ColumnWriter::stored(std::int64_t num_rows) const {
  Shape shape = {column_.has_ends() ? num_elements_ : num_rows};
  shape.insert(shape.end(), column_.shape.begin(), column_.shape.end());
  std::vector<Stored> parts;
  parts.push_back(
      {values_.get(), column_.leaf, column_.dtype, std::move(shape), column_.has_ends()});
  const auto add = [&](PartFile* file, const KeyPath& leaf, DType dtype, std::int64_t rows,
                       bool unbatched) {
    if (file != nullptr) parts.push_back({file, leaf, dtype, {rows}, unbatched});
  };
  add(ends_.get(), column_.end_leaf, DType::int64, num_rows, false);
  add(item_ends_.get(), column_.item_end_leaf, DType::int64, num_items_, true);
  add(valid_.get(), column_.valid_leaf, DType::bool_, num_rows, false);
  return parts;
}

}  // namespace

using namespace detail;
namespace {

using formats::folder::Plan;

/// The total size of the write buffers of all columns' files. The limits for the size of each
/// buffer take precedence.
constexpr std::size_t kGatheredBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxGatheredBytes = std::size_t{2} << 20;
constexpr std::size_t kLeastGatheredBytes = std::size_t{16} << 10;

/// Number of files that stay open, in the order of their creation. Later files are opened for each
/// write.
constexpr std::size_t kOpenFiles = 256;

/// The size of each write buffer if there are `num_files` files.
std::size_t gathered_bytes_of(std::size_t num_files) {
  return std::bit_floor(
      std::clamp(kGatheredBytes / num_files, kLeastGatheredBytes, kMaxGatheredBytes));
}

/// The source of the tree's leaves while metadata is planned. The position of a leaf is its index
/// in `stored_`.
class Parts final : public LeafSource {
 public:
  explicit Parts(std::vector<ColumnWriter::Stored> stored) : stored_(std::move(stored)) {}

  const ColumnWriter::Stored& of(const Leaf& leaf) const {
    return stored_.at(static_cast<std::size_t>(position_of(leaf)));
  }
  Buffer map(const Leaf& leaf) override {
    const auto bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, *bytes);
    return {std::span(*bytes), bytes};
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    of(leaf).file->read_at(offset_bytes, into);
  }
  base::Where where(const Leaf& leaf) const override {
    return of(leaf).file->folder().display_of(of(leaf).file->name());
  }

 private:
  std::vector<ColumnWriter::Stored> stored_;
};

std::size_t parts_of(const Column& column) {
  const bool has_items = column.ragged && column.is_text();
  return 1U + (column.has_ends() ? 1 : 0) + (has_items ? 1 : 0) + (column.nullable ? 1 : 0);
}

/// The target folder. Throws unless it may be replaced.
Path checked_target(const Path& path, bool overwrite) {
  formats::refuse_existing(path, overwrite);
  if (!os::exists(path) && !formats::recover_folder(path)) return path;
  if (!os::file_info(path).is_directory) {
    throw Error::io(EEXIST, path.string())
        .expected("a data set to replace, or nothing")
        .found("a file")
        .remedy("remove it first");
  }
  try {
    formats::folder::require_replaceable(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error::io(EEXIST, path.string())
        .part(error.part())
        .problem(error.problem())
        .expected(error.expected())
        .found(error.found())
        .remedy(error.remedy());
  }
  return path;
}

/// Lower bound of the size of `num_rows` rows in bytes. Elements of ragged rows and bytes of
/// strings are not counted.
std::uint64_t expected_bytes(const Schema& schema, std::int64_t num_rows) {
  std::uint64_t row_bytes = 0;
  for (const Column& column : schema.columns()) {
    row_bytes += column.has_ends() ? sizeof(std::int64_t) : nbytes_of(column.dtype, column.shape);
    if (column.nullable) ++row_bytes;
  }
  return base::checked_mul(row_bytes, static_cast<std::uint64_t>(num_rows))
      .value_or(std::numeric_limits<std::uint64_t>::max());
}

/// A tensor that is not a column.
struct Extra {
  std::string name;
  DType dtype;
  Shape inner;
  std::unique_ptr<PartFile> file;
};

}  // namespace

struct TableWriter::State {
  State(const Path& path, Schema wanted, const TableWriterOptions& with)
      : options(with),
        replacement(checked_target(path, with.overwrite),
                    expected_bytes(wanted, with.expected_rows), formats::folder::foreign_in) {
    std::vector<Column> columns = wanted.columns();
    name_leaves(columns);
    for (const Column& column : columns) num_parts += parts_of(column);
    gathered_bytes = gathered_bytes_of(num_parts);
    for (Column& column : columns) writers.emplace_back(std::move(column), make_part());
    check_names(0, writers.size());
  }

  MakePart make_part() {
    return [this](bool unbatched) { return create(unbatched); };
  }

  /// If `count` more files of columns require smaller write buffers, shrinks the buffers of all
  /// columns. The buffers never grow again.
  void expect_parts(std::size_t count) {
    num_parts += count;
    const std::size_t size = gathered_bytes_of(num_parts);
    if (size >= gathered_bytes) return;
    gathered_bytes = size;
    for (const ColumnWriter& writer : writers) {
      for (const ColumnWriter::Stored& part : writer.stored(0)) part.file->shrink_buffer(size);
    }
  }

  std::unique_ptr<PartFile> create(bool unbatched) {
    if (unbatched && !values.valid()) {
      const std::string name(formats::folder::kValuesName);
      replacement.folder().create_directory(name);
      values = os::Directory::open_at(replacement.folder(), name);
    }
    // The name cannot clash with the final name of a file: no encoded key and no clash_name() has
    // this form.
    return create(unbatched ? values : replacement.folder(),
                  "%part-" + std::to_string(num_created));
  }
  std::unique_ptr<PartFile> create(os::Directory& folder, std::string name) {
    PartFile::Options part;
    part.buffer_bytes = gathered_bytes;
    part.stays_open = num_created++ < kOpenFiles;
    part.will_sync = options.durable;
    return std::make_unique<PartFile>(folder, std::move(name), part);
  }

  /// Checks that the names of these columns can be file names. Unique names of all leaves are made
  /// later, when they are needed, because making them takes time proportional to the number of all
  /// columns for each added or changed column.
  void check_names(std::size_t first, std::size_t count) {
    has_names = false;
    std::vector<Column> columns;
    for (std::size_t i = first; i < first + count; ++i) columns.push_back(writers[i].column());
    name_leaves(columns);
    const auto no_bytes = std::make_shared<Parts>(std::vector<ColumnWriter::Stored>());
    TensorDict tree;
    for (const Column& column : columns) {
      for (const KeyPath* leaf :
           {&column.leaf, &column.end_leaf, &column.item_end_leaf, &column.valid_leaf}) {
        if (leaf->empty()) continue;
        tree.set(leaf->at(0), TensorDict::Item(stored_leaf(DType::uint8, {0}, no_bytes, 0)));
      }
    }
    static_cast<void>(formats::folder::plan_tree(tree));
  }

  /// Gives all leaves unique names.
  void rename() {
    if (has_names) return;
    std::vector<Column> columns;
    for (const ColumnWriter& writer : writers) columns.push_back(writer.column());
    name_leaves(columns);
    for (std::size_t i = 0; i < writers.size(); ++i) writers[i].rename_leaves(columns[i]);
    schema = Schema(std::move(columns));
    has_names = true;
  }

  std::int64_t num_rows() const noexcept {
    std::int64_t most = 0;
    for (const ColumnWriter& writer : writers) most = std::max(most, writer.num_rows());
    return most;
  }

  /// The tree as readers will see it, over the files with their current names.
  Plan plan() {
    rename();
    const std::int64_t num_rows = this->num_rows();
    std::vector<ColumnWriter::Stored> stored;
    for (const ColumnWriter& writer : writers) {
      for (ColumnWriter::Stored& part : writer.stored(num_rows)) stored.push_back(std::move(part));
    }
    for (const Extra& extra : extras) {
      const std::uint64_t element_bytes = nbytes_of(extra.dtype, extra.inner);
      Shape shape = extra.inner;
      shape.insert(shape.begin(),
                   static_cast<std::int64_t>(extra.file->size_bytes() / element_bytes));
      stored.push_back({extra.file.get(), {extra.name}, extra.dtype, std::move(shape), true});
    }
    parts = std::make_shared<Parts>(stored);
    NodeInfo info;
    info.batch_size = {num_rows};
    Value document = schema.to_value();
    for (const auto& member : schema_members) {
      std::get<Value::Object>(document.data()).members.push_back(member);
    }
    info.schema = std::move(document);
    TensorDict tree(info);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      Leaf leaf = stored_leaf(stored[i].dtype, stored[i].shape, parts, i);
      leaf.mark_unbatched(stored[i].unbatched);
      tree.set(stored[i].leaf.at(0), TensorDict::Item(std::move(leaf)));
    }
    return formats::folder::plan_tree(tree);
  }

  os::Directory& folder_of(const Plan& plan, std::size_t number) {
    return number == 0 || plan.folders[number].name != detail::formats::folder::kValuesName
               ? replacement.folder()
               : values;
  }

  void require_writable() const {
    if (committed) {
      throw base::invalid_argument(replacement.path())
          .expected("one call of commit(), after the last rows")
          .found("a call after commit()");
    }
    if (incomplete) {
      throw base::invalid_argument(replacement.path())
          .expected("no call after a failed write")
          .found("one")
          .remedy("start a new data set");
    }
  }
  /// Calls `write`. If it throws, the files may be incomplete, and nothing can be committed.
  template <class Write>
  void change(const Write& write) {
    require_writable();
    incomplete = true;
    write();
    incomplete = false;
  }
  void require_equal_rows() const;
  void require_columns() const;
  void finish_files();
  void write_texts(const Plan& plan, std::vector<formats::ChecksumLine>& lines);
  void sync_files(const Plan& plan);
  void publish();

  TableWriterOptions options;
  formats::FolderReplacement replacement;
  os::Directory values;            ///< `%values/`, once it has content
  std::size_t gathered_bytes = 0;  ///< size of each write buffer
  std::size_t num_parts = 1;       ///< number of files of all columns, plus 1 for all other files
  std::size_t num_created = 0;
  std::vector<ColumnWriter> writers;
  /// The files of append_text(), by name.
  std::map<std::string, std::unique_ptr<PartFile>, std::less<>> texts;
  std::vector<Extra> extras;
  std::vector<std::unique_ptr<PartFile>> metadata;  ///< written by commit()
  std::vector<std::pair<std::string, Value>> schema_members;
  std::shared_ptr<Parts> parts;  ///< the source of the leaves of the last plan
  Schema schema;
  bool has_names = false;  ///< `schema` and the columns of `writers` have their final names
  bool committed = false;
  bool incomplete = false;  ///< a call failed while it wrote
};

TableWriter::TableWriter(const Path& path, Schema schema, const TableWriterOptions& options)
    : state_(std::make_unique<State>(path, std::move(schema), options)) {}
TableWriter::~TableWriter() = default;

std::int64_t TableWriter::num_rows() const noexcept { return state_->num_rows(); }
std::size_t TableWriter::num_columns() const noexcept { return state_->writers.size(); }
const Schema& TableWriter::schema() const {
  state_->rename();
  return state_->schema;
}

void TableWriter::append(std::span<const ColumnChunk> chunks) {
  std::vector<ColumnWriter>& writers = state_->writers;
  if (chunks.size() != writers.size()) {
    throw base::invalid_argument()
        .part("rows")
        .expected("a chunk for each of ", writers.size(), " columns")
        .found(chunks.size());
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    writers[i].check(chunks[i]);
    if (chunks[i].num_rows == chunks[0].num_rows) continue;
    throw base::invalid_argument()
        .part("column ", base::quote(writers[i].column().name()), ": rows")
        .expected(chunks[0].num_rows)
        .found(chunks[i].num_rows);
  }
  state_->change([&] {
    for (std::size_t i = 0; i < chunks.size(); ++i) writers[i].append(chunks[i]);
  });
}

void TableWriter::append(std::size_t index, const ColumnChunk& chunk) {
  ColumnWriter& writer = state_->writers.at(index);
  writer.check(chunk);
  state_->change([&] { writer.append(chunk); });
}

void TableWriter::add_columns(std::vector<Column> columns) {
  State& state = *state_;
  const std::int64_t num_rows = state.num_rows();
  std::set<KeyPath> taken;
  for (const ColumnWriter& writer : state.writers) taken.insert(writer.column().path);
  for (const Column& column : columns) {
    if (num_rows > 0 && !column.nullable) {
      throw base::invalid_argument()
          .part("column ", base::quote(column.name()))
          .problem("added after ", num_rows, " rows")
          .expected("a nullable column")
          .found("one that is not nullable");
    }
    if (!taken.insert(column.path).second) {
      throw base::invalid_argument()
          .part("column ", base::quote(column.name()))
          .expected("a new name")
          .found("a used name");
    }
  }
  std::size_t num_parts = 0;
  for (const Column& column : columns) num_parts += parts_of(column);
  state.change([&] {
    state.expect_parts(num_parts);
    for (Column& column : columns) {
      name_leaves(column);
      state.writers.emplace_back(std::move(column), state.make_part());
      state.writers.back().append_nulls(num_rows);
    }
  });
  state.check_names(state.writers.size() - columns.size(), columns.size());
}

void TableWriter::reorder(std::span<const std::size_t> order) {
  std::vector<ColumnWriter> sorted;
  sorted.reserve(order.size());
  for (const std::size_t index : order) sorted.push_back(std::move(state_->writers.at(index)));
  state_->writers = std::move(sorted);
  state_->has_names = false;
}

void TableWriter::make_nullable(std::size_t index) {
  ColumnWriter& writer = state_->writers.at(index);
  if (writer.column().nullable) return;
  state_->change([&] {
    state_->expect_parts(1);
    writer.make_nullable(state_->make_part());
  });
  state_->check_names(index, 1);
}

void TableWriter::change_column(std::size_t index, Column column,
                                const std::function<ColumnBuilder(const ColumnChunk&)>& convert) {
  State& state = *state_;
  ColumnWriter& old = state.writers.at(index);
  name_leaves(column);
  state.change([&] {
    state.expect_parts(parts_of(column));
    ColumnWriter made(std::move(column), state.make_part());
    old.for_each_block([&](const ColumnChunk& block) {
      const ColumnBuilder chunk = convert(block);
      made.check(chunk.view());
      made.append(chunk.view());
    });
    if (made.num_rows() != old.num_rows()) {
      throw base::invalid_argument()
          .part("column ", base::quote(made.column().name()), ": conversion")
          .expected(old.num_rows(), " rows")
          .found(made.num_rows());
    }
    for (const ColumnWriter::Stored& part : old.stored(old.num_rows())) part.file->remove();
    state.num_parts -= parts_of(old.column());
    old = std::move(made);
  });
  state.check_names(index, 1);
}

void TableWriter::append_text(std::string_view file_name, std::string_view text) {
  State& state = *state_;
  state.change([&] {
    auto found = state.texts.find(file_name);
    if (found == state.texts.end()) {
      const std::string name(file_name);
      found = state.texts.emplace(name, state.create(state.replacement.folder(), name)).first;
    }
    found->second->append(std::as_bytes(std::span(text)));
  });
}

StoredColumn TableWriter::map_column(std::size_t index) {
  state_->rename();
  const ColumnWriter& writer = state_->writers.at(index);
  StoredColumn made;
  made.row_bytes = nbytes_of(writer.column().dtype, writer.column().shape);
  made.stride_bytes = made.row_bytes;
  for (const ColumnWriter::Stored& part : writer.stored(writer.num_rows())) {
    Tensor tensor(part.dtype, part.shape, part.file->map());
    if (part.leaf == writer.column().leaf)
      made.values = std::move(tensor);
    else if (part.leaf == writer.column().end_leaf)
      made.ends = std::move(tensor);
    else if (part.leaf == writer.column().item_end_leaf)
      made.item_ends = std::move(tensor);
    else
      made.valid = std::move(tensor);
  }
  return made;
}

std::size_t TableWriter::begin_extra(std::string_view name, DType dtype, Shape inner) {
  state_->rename();
  std::set<std::string, std::less<>> taken;
  for (const ColumnWriter& writer : state_->writers) {
    for (const ColumnWriter::Stored& part : writer.stored(0)) taken.insert(part.leaf.at(0));
  }
  for (const Extra& extra : state_->extras) taken.insert(extra.name);
  std::string found(name);
  for (int number = 2; taken.contains(found); ++number) {
    found = std::string(name) + "~" + std::to_string(number);
  }
  state_->extras.push_back({std::move(found), dtype, std::move(inner), state_->create(true)});
  return state_->extras.size() - 1;
}

void TableWriter::restart_extra(std::size_t number) {
  Extra& extra = state_->extras.at(number);
  extra.file->remove();
  extra.file = state_->create(true);
}

void TableWriter::append_extra(std::size_t number, std::span<const std::byte> bytes) {
  state_->extras.at(number).file->append(bytes);
}

const std::string& TableWriter::extra_name(std::size_t number) const {
  return state_->extras.at(number).name;
}

void TableWriter::set_schema_member(std::string_view name, Value value) {
  state_->schema_members.emplace_back(name, std::move(value));
}

os::Directory& TableWriter::folder() noexcept { return state_->replacement.folder(); }

void TableWriter::State::require_equal_rows() const {
  const std::int64_t most = num_rows();
  for (const ColumnWriter& writer : writers) {
    if (writer.num_rows() == most) continue;
    throw base::invalid_argument()
        .part("column ", base::quote(writer.column().name()), ": rows")
        .expected(most, ", as in other columns")
        .found(writer.num_rows());
  }
}

/// Finishes all files. Removes the empty files of tensors, because a tensor without bytes has no
/// file. write_texts() renames all other files of tensors to their names in the tree.
void TableWriter::State::finish_files() {
  for (const ColumnWriter& writer : writers) {
    for (const ColumnWriter::Stored& part : writer.stored(writer.num_rows())) {
      part.file->finish();
      if (part.file->size_bytes() == 0) part.file->remove();
    }
  }
  for (Extra& extra : extras) {
    extra.file->finish();
    if (extra.file->size_bytes() == 0) extra.file->remove();
  }
  for (auto& [name, text] : texts) text->finish();
}

/// Writes the files of metadata and `%checksums`, and renames the files of leaves to their names in
/// the tree.
void TableWriter::State::write_texts(const Plan& plan, std::vector<formats::ChecksumLine>& lines) {
  const auto write = [&](os::Directory& folder, const std::string& name, const std::string& path,
                         const std::string& text) {
    PartFile& file = *metadata.emplace_back(std::make_unique<PartFile>(
        folder, name, PartFile::Options{.stays_open = true, .will_sync = options.durable}));
    file.append(std::as_bytes(std::span(text)));
    file.finish();
    formats::append_lines(lines, path, file.size_bytes(), file.checksums());
  };
  for (const Plan::File& file : plan.files) {
    os::Directory& folder = folder_of(plan, file.folder);
    const std::string path = plan.path_of(file);
    if (!file.is_leaf) {
      write(folder, file.name, path, file.text);
      continue;
    }
    PartFile& part = *parts->of(file.leaf).file;
    part.rename(file.name);
    formats::append_lines(lines, path, part.size_bytes(), part.checksums());
  }
  for (const auto& [name, text] : texts) {
    formats::append_lines(lines, name, text->size_bytes(), text->checksums());
  }
  const std::string name(formats::kChecksumsName);
  write(replacement.folder(), name, name, formats::checksums_text(lines));
}

/// Syncs all files, with several threads. Writeback of the files that stayed open has started
/// before, so the threads mostly wait for the disk.
void TableWriter::State::sync_files(const Plan& plan) {
  std::vector<PartFile*> files;
  for (const Plan::File& file : plan.files) {
    if (file.is_leaf) files.push_back(parts->of(file.leaf).file);
  }
  for (const auto& [name, text] : texts) files.push_back(text.get());
  for (const auto& file : metadata) files.push_back(file.get());
  formats::Progress progress(options.monitor, 0, "save");
  os::parallel_for(
      files.size(), os::num_threads_for(options.num_threads),
      [&](std::size_t i) { files[i]->sync(); }, [&] { progress.poll(); });
  if (values.valid()) values.sync();
}

/// Throws if a table without columns would replace a path that exists.
void TableWriter::State::require_columns() const {
  const Path path = replacement.path();
  if (!writers.empty() || !os::exists(path)) return;
  throw base::invalid_argument(path)
      .expected("rows with columns, to replace what exists")
      .found("no columns and no rows")
      .remedy("remove the path first, or set the option schema");
}

void TableWriter::State::publish() {
  finish_files();
  const Plan tree_plan = plan();
  // `%values/` may exist without content: a ragged column may have been changed to another type.
  const bool has_values = std::ranges::any_of(tree_plan.folders, [](const Plan::Folder& folder) {
    return folder.name == detail::formats::folder::kValuesName;
  });
  if (values.valid() && !has_values) {
    values.close();
    replacement.folder().remove_tree(std::string(formats::folder::kValuesName));
  }
  std::vector<formats::ChecksumLine> lines;
  write_texts(tree_plan, lines);
  if (options.durable) sync_files(tree_plan);
  formats::folder::publish_folder(replacement, options.durable);
}

void TableWriter::commit() {
  State& state = *state_;
  state.require_writable();
  state.require_equal_rows();
  refuse_ambiguous_names(schema().columns(), state.replacement.path());
  state.require_columns();
  state.change([&] {
    if (state.options.before_commit) state.options.before_commit(*this);
    state.publish();
  });
  state.committed = true;
}

}  // namespace tenfold

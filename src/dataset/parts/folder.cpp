#include "dataset/parts/folder.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/compatible_columns.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/parts/leaf_source.hpp"
#include "dataset/ring_guard.hpp"
#include "formats/folder/reader.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;

os::Directory open_part_folder(const os::Directory& folder, std::string_view part_path) {
  os::Directory opened = folder.duplicate();
  for (const std::string& name : formats::components_of(part_path)) {
    if (!opened.entry_info(name)) return {};
    opened = os::Directory::open_at(opened, name);
  }
  return opened;
}

void require_columns(const Schema& schema, const Schema& found, const std::string& display) {
  const auto fail = [&](std::size_t i) {
    const auto text = [&](const Schema& of) {
      if (i >= of.size()) return std::string("none");
      const Column& column = of.columns()[i];
      return base::quote(column.name()) + " (" + describe(column) + ")";
    };
    throw base::corrupt(display)
        .part("column ", i)
        .expected("the column of the data set, ", text(schema))
        .found(text(found));
  };
  for (std::size_t i = 0; i < std::max(schema.size(), found.size()); ++i) {
    if (i >= schema.size() || i >= found.size()) fail(i);
    if (!are_compatible(schema.columns()[i], found.columns()[i])) fail(i);
  }
}

std::shared_ptr<PartsFolder> PartsFolder::open(os::Directory folder, const Path& path) {
  return std::shared_ptr<PartsFolder>(new PartsFolder(std::move(folder), path));
}

PartsFolder::PartsFolder(os::Directory folder, const Path& path)
    : folder_(std::move(folder)),
      path_(os::absolute(path)),
      manifest_(formats::read_parts_manifest(folder_)) {
  std::vector<Column> columns =
      Schema::from_value(manifest_.schema, folder_.display_of(std::string(formats::kPartsName)))
          .columns();
  name_leaves(columns);
  schema_ = Schema(std::move(columns));
  if (schema_.size() == 0) {
    throw base::corrupt(folder_.display_of(std::string(formats::kPartsName)))
        .part("schema")
        .expected("at least one column")
        .found("none");
  }
  first_rows_.push_back(0);
  for (std::size_t i = 0; i < num_parts(); ++i) {
    // Count the rows of an open part in its files, because rows may have been appended to the part
    // after the manifest was written.
    if (manifest_.parts[i].is_open) {
      const std::int64_t rows = num_rows_of(open_tree(i));
      if (rows < manifest_.parts[i].num_rows) {
        throw corrupt(i)
            .part("rows")
            .expected("at least ", manifest_.parts[i].num_rows)
            .found(rows);
      }
      if (rows > std::numeric_limits<std::int64_t>::max() - first_rows_.back()) {
        throw corrupt(i).part("rows").expected("fewer than 2^63 in all parts").found("more");
      }
      manifest_.parts[i].num_rows = rows;
    } else if (manifest_.parts[i].num_rows > kMaxUnseenRows) {
      static_cast<void>(tree_of(i));
    }
    first_rows_.push_back(first_rows_.back() + manifest_.parts[i].num_rows);
  }
}

std::shared_ptr<PartsFolder> PartsFolder::of(const TensorDict& tree) {
  std::shared_ptr<PartsSource> source;
  std::size_t num_entries = 0;
  bool is_whole = true;
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    if (!is_whole) return;
    const auto* leaf = std::get_if<Leaf>(&item);
    if (num_entries == 0 && leaf != nullptr) {
      source = std::dynamic_pointer_cast<PartsSource>(source_of(*leaf));
    }
    is_whole = source != nullptr && leaf != nullptr && source->is_leaf(num_entries, key, *leaf);
    ++num_entries;
  });
  // Return null for a modified tree, because its rows may differ from the rows in the folder.
  return is_whole && source != nullptr && source->is_all(num_entries, tree) ? source->folder()
                                                                            : nullptr;
}

std::string PartsFolder::display_of(std::size_t number) const {
  return folder_.display_of(manifest_.parts[number].path);
}

Error PartsFolder::corrupt(std::size_t number) const { return base::corrupt(display_of(number)); }

TensorDict PartsFolder::open_tree(std::size_t number) const {
  const std::string& path = manifest_.parts[number].path;
  os::Directory folder = open_part_folder(folder_, path);
  if (!folder.valid()) {
    if (!folder_.is_at(path_)) {
      throw Error::io(ESTALE, path_.string())
          .problem("it was replaced since it was opened")
          .expected("the same data set")
          .found("another data set")
          .remedy("open it again");
    }
    throw corrupt(number)
        .problem("part is missing")
        .expected("a folder")
        .found("none")
        .remedy("copy it again");
  }
  if (formats::has_parts_manifest(folder)) {
    throw corrupt(number)
        .expected("a data set in one folder")
        .found("a data set of parts")
        .remedy("compact() it");
  }
  return formats::folder::open_tree(std::move(folder), path_ / path, Mode::read);
}

std::shared_ptr<const PartTree> PartsFolder::tree_of(std::size_t number) const {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = trees_.find(number)) return *known;
  }
  auto opened = std::make_shared<PartTree>();
  opened->tree = open_tree(number);
  const Schema schema = Schema::of(opened->tree);
  require_columns(schema_, schema, display_of(number));
  opened->roles = leaf_roles(schema);
  const formats::PartEntry& part = manifest_.parts[number];
  const std::int64_t rows = num_rows_of(opened->tree);
  if (part.is_open ? rows < part.num_rows : rows != part.num_rows) {
    throw corrupt(number)
        .part("rows")
        .expected(part.num_rows, ", the number in ", formats::kPartsName)
        .found(rows);
  }
  const std::lock_guard lock(mutex_);
  trees_.add(number, opened);
  return opened;
}

std::shared_ptr<const Table> PartsFolder::open(std::size_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = tables_.find(number)) return *known;
  }
  auto table = Table::without_tree(tree_of(number)->tree);
  if (table->ring()) throw corrupt(number).expected("a data set").found("a circular buffer");
  const std::lock_guard lock(mutex_);
  tables_.add(number, table);
  return table;
}

void PartsFolder::add_to(DatasetState& state) {
  state.schema = schema_;
  std::vector<PartColumn> columns(schema_.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i].index = i;
  const auto chosen = std::make_shared<const std::vector<PartColumn>>(std::move(columns));
  state.parts.reserve(num_parts());
  for (std::size_t i = 0; i < num_parts(); ++i) {
    // No row is ever requested from a part without rows.
    if (manifest_.parts[i].num_rows == 0) continue;
    state.parts.emplace_back(shared_from_this(), i, manifest_.parts[i].num_rows, first_rows_[i],
                             chosen);
  }
  state.all_open = state.parts.empty();
  state.order = row_range(0, num_rows());
}

}  // namespace tenfold

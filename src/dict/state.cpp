#include "dict/state.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/strided_copy.hpp"
#include "dict/builder.hpp"
#include "formats/folder/append/appendable.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/leaf_source.hpp"
#include "formats/folder/meta/meta.hpp"
#include "os/memory/advice.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold {

using namespace detail;
namespace {

using formats::folder::file_of;
using formats::folder::folder_of;

Leaf index_leaf(const TensorDict& tree, const DictNote& note) {
  const Error error = base::corrupt(tree.where())
                          .part("index of the keys: entry ", base::quote(note.index))
                          .expected("an unbatched int64 tensor");
  if (!tree.contains(note.index)) throw Error(error).found("none");
  const TensorDict::Item item = tree.get(note.index);
  const auto* leaf = std::get_if<Leaf>(&item);
  if (leaf == nullptr) throw Error(error).found("another kind of entry");
  if (leaf->dtype() != DType::int64) throw Error(error).found(to_string(leaf->dtype()));
  return *leaf;
}

/// If the dictionary is a folder, maps the whole file of the index and ignores its length in the
/// metadata, because another process may have replaced the index by a larger one. Slots may change
/// while this process reads.
Buffer map_index(const Leaf& leaf, const base::Where& where) {
  const auto folder = folder_of(leaf);
  if (folder == nullptr) {
    const Tensor tensor = contiguous_of_file(leaf.tensor(), where.at("index of the keys"));
    const auto size = static_cast<std::size_t>(tensor.nbytes());
    if (size == 0) return {};
    Buffer bytes = tensor.buffer().slice(static_cast<std::size_t>(tensor.offset_bytes()), size);
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) == 0) return bytes;
    Buffer copy = Buffer::allocate(size);
    std::memcpy(copy.mutable_data(), bytes.data(), size);
    return copy;
  }
  const os::File file = os::File::open_read_at(*folder->directory(), file_of(leaf));
  const Buffer index = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  // The header is read next. Prefetch its page, because a page fault would also read neighboring
  // pages, up to the readahead size of the device, which can be megabytes.
  if (index.size_bytes() > kDictBucketBytes) os::will_need(index.bytes().last(kDictBucketBytes));
  return index;
}

DictIndexPlace place_of(const TensorDict& tree, const DictNote& note, const Column& key) {
  DictIndexPlace place;
  place.leaf = note.index;
  const auto leaf_at = [&](const KeyPath& path) {
    const TensorDict::Item item = tree.get(path);
    return std::get<Leaf>(item);
  };
  const Leaf index = index_leaf(tree, note);
  if (folder_of(index) == nullptr) return place;
  place.file = file_of(index);
  place.root = folder_of(leaf_at(key.has_ends() ? key.end_leaf : key.leaf));
  return place;
}

std::int64_t dead_rows(const DictState& state) {
  const auto num_rows = static_cast<std::uint64_t>(state.keys.num_rows);
  return static_cast<std::int64_t>(state.index->num_dead(num_rows));
}

}  // namespace

std::shared_ptr<const DatasetState> without_column(const DatasetState& state, std::size_t index) {
  auto made = std::make_shared<DatasetState>(state);
  const auto at = static_cast<std::ptrdiff_t>(index);
  std::vector<Column> columns = state.schema.columns();
  columns.erase(columns.begin() + at);
  made->schema = Schema(std::move(columns));
  choose_columns(made->parts, [&](std::vector<PartColumn> shown) {
    shown.erase(shown.begin() + at);
    return shown;
  });
  return made;
}

bool fits_form(const Schema& values, DictValueForm form) {
  if (form == DictValueForm::columns) return true;
  if (values.size() != 1) return false;
  const Column& column = values.columns()[0];
  const bool is_scalar = column.shape.empty() && !column.ragged;
  return column.name() == kDictValueColumn && (form == DictValueForm::tensor || is_scalar);
}

std::string shown_columns(const Schema& values) {
  if (values.size() == 1) return base::quote(values.columns()[0].name());
  return std::to_string(values.size()) + " columns";
}

std::shared_ptr<DictState> dict_state_of(std::shared_ptr<const DatasetState> rows) {
  const TensorDict& tree = rows->tree;
  const std::optional<DictNote> note = DictNote::of(tree);
  const base::Where where = tree.where().empty() ? base::Where("", "dictionary") : tree.where();
  if (!note) {
    throw base::invalid_argument(where)
        .expected("a dictionary")
        .found("a data set without an index of keys")
        .remedy("build a dictionary of its rows at another path");
  }
  const Table& table = *rows->parts.at(0).table;
  const Column* key = rows->schema.find(kDictKeyColumn);
  if (key == nullptr || key->path.size() != 1) {
    throw base::corrupt(where)
        .part("column ", base::quote(kDictKeyColumn))
        .expected("the keys of the dictionary")
        .found("none");
  }
  auto state = std::make_shared<DictState>();
  const auto at = static_cast<std::size_t>(key - rows->schema.columns().data());
  state->keys = StoredKeys::of(*key, *rows->parts[0].columns[at], table.num_rows(), where);
  state->values = without_column(*rows, at);
  state->form = note->form;
  const Schema& values = state->values->schema;
  if (!fits_form(values, note->form)) {
    throw base::corrupt(where)
        .part("schema")
        .expected("the one column ", base::quote(kDictValueColumn), " besides the keys",
                  note->form == DictValueForm::scalar ? ", of scalars" : "")
        .found(shown_columns(values));
  }
  state->place = place_of(tree, *note, *key);
  const Leaf leaf = index_leaf(tree, *note);
  state->index = std::make_shared<DictIndex>(map_index(leaf, where), where);
  state->num_dead = dead_rows(*state);
  state->rows = std::move(rows);
  return state;
}

bool is_trusted(const DictState& state) {
  const std::uint64_t writer = state.index->word(DictWord::writer);
  // Another boot ID: a writer did not close the index before the system restarted, so some slots
  // may be durable and others not.
  if (writer != 0 && writer != dict_boot()) return false;
  return state.index->knows(static_cast<std::uint64_t>(state.keys.num_rows));
}

void make_index_in_memory(DictState& state) {
  warn(state.keys.where.text() +
       ": the index of the keys does not fit the rows (the system went down while it was open for "
       "writing, or rows were added without updating the index): it is rebuilt in memory" +
       (state.place.root == nullptr ? ""
                                    : "; to repair it, open the dictionary with mode \"r+\", and "
                                      "call flush() and close()"));
  state.index =
      std::make_shared<DictIndex>(build_dict_index_in_memory(state.keys), state.keys.where);
  state.num_dead = dead_rows(state);
  state.has_own_index = true;
}

std::int64_t num_rows_now(const DictState& state) {
  const std::int64_t known = state.keys.num_rows;
  if (state.place.root == nullptr) return known;
  formats::folder::Folder& root = *state.place.root;
  if (const auto rows = detail::formats::folder::committed_rows(root))
    return std::max(known, *rows);
  // After a writer has closed the data set, the metadata has the number of rows.
  const std::string name(formats::folder::kMetaName);
  const auto text = root.read_text(name, formats::folder::kMaxMetaBytes);
  if (!text) return known;
  const Shape batch =
      detail::formats::folder::parse_meta(*text, root.display() + "/" + name).batch_size;
  return batch.empty() ? known : std::max(known, batch[0]);
}

std::optional<DictCounts> counts_now(const DictState& state) {
  // A writer usually commits at most once or twice while this loop runs.
  constexpr int kMaxTries = 100;
  const DictIndex& index = *state.index;
  for (int i = 0; i < kMaxTries; ++i) {
    if (index.word(DictWord::writer) != dict_boot()) return std::nullopt;
    const std::int64_t num_rows = num_rows_now(state);
    const auto count = static_cast<std::uint64_t>(num_rows);
    const auto num_dead = static_cast<std::int64_t>(index.num_dead(count));
    // `num_dead` is valid for `count` rows only if the index still covers exactly these rows.
    if (index.knows(count)) return DictCounts{num_rows, num_dead};
  }
  return std::nullopt;
}

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "dataset/dataset_state.hpp"
#include "dict/index.hpp"
#include "dict/keys.hpp"
#include "formats/folder/files.hpp"

namespace tenfold {

/// The name of the column of keys, and the name of the value column if values are not dicts.
inline constexpr std::string_view kDictKeyColumn = "key";
inline constexpr std::string_view kDictValueColumn = "value";
/// The member of the schema document that marks a data set as a dictionary:
///
///   {"version": 1, "index": "key.index", "values": "tensor" | "scalar" | "columns"}
inline constexpr std::string_view kDictMember = "mapped_dict";

/// The content of the member kDictMember.
struct DictNote {
  std::string index;  ///< name of the unbatched leaf with the index
  DictValueForm form = DictValueForm::columns;

  Value to_value() const;
  /// Reads the member of the schema of `tree`; nullopt if `tree` is not a dictionary. Throws
  /// Error(corrupt) for an invalid member, and Error(unsupported) for a "version" above 1.
  static std::optional<DictNote> of(const TensorDict& tree);
};

/// Location of the index. In formats other than a folder, only `leaf` is set.
struct DictIndexPlace {
  std::shared_ptr<detail::formats::folder::Folder> root;  ///< the folder with `%commit`
  std::string leaf;                                       ///< name of the unbatched leaf
  std::string file;                                       ///< file name in `%values`
};

/// A snapshot of a dictionary: its rows at one moment, and the index, whose slots may point to
/// newer rows.
///
/// Thread safety: like a const object.
struct DictState {
  std::shared_ptr<const DatasetState> rows;
  std::shared_ptr<const DatasetState> values;  ///< without the column "key"
  StoredKeys keys;
  std::shared_ptr<DictIndex> index;
  DictIndexPlace place;
  DictValueForm form = DictValueForm::columns;
  std::int64_t num_dead = 0;   ///< number of superseded rows
  bool has_own_index = false;  ///< `index` was built in memory: no writer changes it

  std::int64_t num_keys() const noexcept { return keys.num_rows - num_dead; }
};

/// The data set without column `index`. Dataset::select() cannot omit it, because two columns may
/// have the same dotted name.
std::shared_ptr<const DatasetState> without_column(const DatasetState& state, std::size_t index);

/// True if values of this form can have these columns. The form `columns` allows any columns. The
/// other forms allow only the one column "value", which must be of scalars if the form is `scalar`.
bool fits_form(const Schema& values, DictValueForm form);

/// Formats the columns of values for messages: the quoted name of a single column, or "3 columns".
std::string shown_columns(const Schema& values);

/// Returns the state of a dictionary with these rows. Throws Error(invalid_argument) if the tree is
/// not a dictionary or the type of its column "key" is not supported. Throws Error(corrupt) if the
/// index or the schema is invalid, and Error(unsupported) for a "version" above 1 in the schema.
/// Only is_trusted() checks that the index covers the rows.
std::shared_ptr<DictState> dict_state_of(std::shared_ptr<const DatasetState> rows);

/// True if the index covers exactly the rows of `state`. Reasons for false: since the rows were
/// read, a writer has added rows or replaced the index; the system restarted before a writer closed
/// the index; or rows were added to the data set without updating the index.
bool is_trusted(const DictState& state);
/// Replaces the index of `state` by one that is built in memory from its rows, with a warning.
void make_index_in_memory(DictState& state);

/// The number of rows that are committed now: as many as in `state`, or more.
std::int64_t num_rows_now(const DictState& state);

/// Number of rows and of superseded rows, at one moment.
struct DictCounts {
  std::int64_t num_rows = 0;
  std::int64_t num_dead = 0;
};
/// Reads the current counts: of rows from the folder, of superseded rows from the index of `state`.
/// Returns nullopt if no writer has begun to change the index, if a writer before the last reboot
/// did not close it, if the index was replaced, or if it changes too often to be read consistently.
std::optional<DictCounts> counts_now(const DictState& state);

/// A row that is newer than the state. A slot, possibly that of the key, points to it. The row may
/// have been committed after the state was read, or may not be committed yet.
struct NewerRow {
  std::size_t key;  ///< position among the keys of the lookup
  std::int64_t row;
};

/// The result of a lookup besides the rows.
struct DictLookup {
  std::vector<NewerRow> newer;  ///< candidates for keys that were not found in the state
};

/// Finds the row of each key in the state, and writes it to `rows`, or -1 if the key is missing or
/// not of the type of the dictionary's keys. Returns the newer rows to which slots point. Each step
/// runs for a group of keys, so that their cache misses overlap.
DictLookup find_rows(const DictState& state, std::span<const std::int64_t> keys,
                     std::span<std::int64_t> rows);
DictLookup find_rows(const DictState& state, std::span<const std::string_view> keys,
                     std::span<std::int64_t> rows);
DictLookup find_rows(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows);

/// Like find_rows(), and also sets `values` to the values of the keys; missing keys get zeros or
/// empty values. Short values are copied as soon as their rows are found.
DictLookup find_values(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows,
                       std::optional<Batch>& values);

/// `lookup` is the result of a lookup of `keys` in an older state. For each row in `lookup.newer`
/// that `state` contains and that has the requested key, sets the key's element of `rows`.
void take_newer(const DictState& state, const DictLookup& lookup, const DictKeys& keys,
                std::span<std::int64_t> rows);

/// Checks that a lookup of every key finds its last row, and that the index has one slot for each
/// key and the right number of keys. Reads all keys. While a writer is active, differences that its
/// changes explain are not reported.
std::vector<Problem> check_dict(const DictState& state);

/// The values of rows; zeros or empty values where a row is -1.
Batch gather_found(const DatasetState& values, std::span<const std::int64_t> rows);

}  // namespace tenfold

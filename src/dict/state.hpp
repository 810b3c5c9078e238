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

/// The column that holds the keys, and the one of values that were no dicts.
inline constexpr std::string_view kDictKeyColumn = "key";
inline constexpr std::string_view kDictValueColumn = "value";
/// The member of the schema document that says that a data set is a dictionary:
///
///   {"version": 1, "index": "key.index", "values": "tensor" | "scalar" | "columns"}
inline constexpr std::string_view kDictMember = "mapped_dict";

/// What that member says.
struct DictNote {
  std::string index;  ///< the unbatched leaf
  DictValueForm form = DictValueForm::columns;

  Value to_value() const;
  /// Nothing if the tree is no dictionary. Throws Error(corrupt) for a member that makes no sense,
  /// Error(unsupported) for a higher version.
  static std::optional<DictNote> of(const TensorDict& tree);
};

/// Where the index of a folder lies; nothing of it in other formats.
struct DictIndexPlace {
  std::shared_ptr<detail::formats::folder::Folder> root;  ///< that has the `%commit`
  std::string leaf;
  std::string file;  ///< its name in `%values`
};

/// A dictionary as it was at one moment: which rows there are, and the index, whose slots may be
/// newer.
///
/// Thread safety: as of a const object.
struct DictState {
  std::shared_ptr<const DatasetState> rows;
  std::shared_ptr<const DatasetState> values;  ///< without the column "key"
  StoredKeys keys;
  std::shared_ptr<DictIndex> index;
  DictIndexPlace place;
  DictValueForm form = DictValueForm::columns;
  std::int64_t num_dead = 0;

  std::int64_t num_keys() const noexcept { return keys.num_rows - num_dead; }
};

/// Throws Error(invalid_argument) if the tree is no dictionary, Error(corrupt) if its index cannot
/// belong to it.
std::shared_ptr<DictState> dict_state_of(std::shared_ptr<const DatasetState> rows);

/// False if the index does not know all rows, or may know others: it has been replaced meanwhile,
/// its writer's system went down, or rows were added as to a plain data set.
bool is_trusted(const DictState& state);
/// Makes the index anew in memory, with a warning.
void make_index_in_memory(DictState& state);

/// The rows that are committed now: those that `state` knows, or more.
std::int64_t num_rows_now(const DictState& state);

/// How many rows there are and how many of them are of no use any more, at one moment.
struct DictCounts {
  std::int64_t num_rows = 0;
  std::int64_t num_dead = 0;
};
/// Of now, by the index of `state`, while a writer goes on; nothing if it does not know.
std::optional<DictCounts> counts_now(const DictState& state);

/// A row that the slot of a key names and the state does not know: it may have been committed
/// since, or be about to be.
struct NewerRow {
  std::size_t key;  ///< its number among those that are looked for
  std::int64_t row;
};

/// What a search found besides rows.
struct DictLookup {
  std::vector<NewerRow> newer;  ///< of keys that were not found
};

/// The row of each key, -1 where there is none, to `rows`. All steps of a group of keys are made
/// side by side, so that the cache misses of one overlap with those of the others.
DictLookup find_rows(const DictState& state, std::span<const std::int64_t> keys,
                     std::span<std::int64_t> rows);
DictLookup find_rows(const DictState& state, std::span<const std::string_view> keys,
                     std::span<std::int64_t> rows);
DictLookup find_rows(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows);

/// The same, and the values of the keys, zeros or nothing where there is none. Short ones are
/// copied as soon as their rows are found.
DictLookup find_values(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows,
                       std::optional<Batch>& values);

/// Takes the rows that a search in an older state could not know: those whose keys they are.
void take_newer(const DictState& state, const DictLookup& lookup, const DictKeys& keys,
                std::span<std::int64_t> rows);

/// Every key is found at its row, the last that has it, and every slot names a row that is there.
/// Reads all keys.
std::vector<Problem> check_dict(const DictState& state);

/// Values of rows, zeros or nothing where a row is -1.
Batch gather_found(const DatasetState& values, std::span<const std::int64_t> rows);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

#include "dataset/dataset_state.hpp"
#include "dataset/row_bytes.hpp"
#include "dataset/table.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

/// A cache of the most recently used values, by number.
template <class T>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t most) : most_(most) {}

  std::optional<T> find(std::size_t number) {
    const auto found = places_.find(number);
    if (found == places_.end()) return std::nullopt;
    values_.splice(values_.begin(), values_, found->second);
    return values_.front().second;
  }
  void add(std::size_t number, T value) {
    if (find(number)) return;
    values_.emplace_front(number, std::move(value));
    places_[number] = values_.begin();
    if (values_.size() <= most_) return;
    places_.erase(values_.back().first);
    values_.pop_back();
  }

 private:
  using Values = std::list<std::pair<std::size_t, T>>;
  std::size_t most_;
  Values values_;  ///< most recently used first
  std::unordered_map<std::size_t, typename Values::iterator> places_;
};

struct PartTree {
  TensorDict tree;
  std::vector<LeafRole> roles;  ///< the leaf roles of the data set, with this part's leaf names
};

/// A folder with a `%parts.json`: a data set whose parts are data sets. Parts are opened when they
/// are needed; if more than kMaxOpen parts are open, the least recently used part is closed. Each
/// component of the path of a part is opened separately, so that no symbolic link is followed.
///
/// Thread safety: all members may be called from any thread.
class PartsFolder final : public ClosedTables, public std::enable_shared_from_this<PartsFolder> {
 public:
  /// Reads the manifest, and checks the parts that are large (kMaxUnseenRows) or marked as open.
  /// Throws what read_parts_manifest() and Schema::from_value() throw, Error(corrupt) for a schema
  /// without columns or 2^63 rows and more, and what open(number) throws for a part that is
  /// checked.
  static std::shared_ptr<PartsFolder> open(os::Directory folder, const Path& path);
  /// The folder of an unmodified tree that open_parts() returned; null for other trees.
  static std::shared_ptr<PartsFolder> of(const TensorDict& tree);

  const detail::formats::PartsManifest& manifest() const noexcept { return manifest_; }
  /// The schema in the manifest, with the leaf names that name_leaves() chooses.
  const Schema& schema() const noexcept { return schema_; }
  std::size_t num_parts() const noexcept { return manifest_.parts.size(); }
  std::int64_t num_rows() const noexcept { return first_rows_.back(); }
  /// The first row of each part, followed by the number of all rows.
  const std::vector<std::int64_t>& first_rows() const noexcept { return first_rows_; }
  const os::Directory& directory() const noexcept { return folder_; }
  /// The path of a part for messages, such as "ds/part-0".
  std::string display_of(std::size_t number) const;

  /// The table of a part. Throws Error(corrupt) if the part is missing, is a link, is a circular
  /// buffer or consists of parts. Also throws it if the columns or the number of rows differ from
  /// those in the manifest, except that an open part may have more rows. Throws Error(io) (ESTALE)
  /// if the part is missing because the data set was replaced, and what Dataset(path) throws.
  std::shared_ptr<const Table> open(std::size_t number) override;
  /// The tree of a part, which has as many rows as in the manifest (or more if the part is open).
  std::shared_ptr<const PartTree> tree_of(std::size_t number) const;
  /// Sets schema, order, parts and all_open of a state without parts. Omits parts without rows.
  void add_to(DatasetState& state);

 private:
  static constexpr std::size_t kMaxTrees = 16;
  /// A part with more rows in the manifest than this is checked when the data set is opened. So a
  /// wrong number of rows cannot cause a large allocation.
  static constexpr std::int64_t kMaxUnseenRows = 65'536;

  PartsFolder(os::Directory folder, const Path& path);
  TensorDict open_tree(std::size_t number) const;
  Error corrupt(std::size_t number) const;

  os::Directory folder_;
  Path path_;
  detail::formats::PartsManifest manifest_;
  Schema schema_;
  std::vector<std::int64_t> first_rows_;
  mutable std::mutex mutex_;  ///< guards the members below
  mutable RecentlyUsed<std::shared_ptr<const PartTree>> trees_{kMaxTrees};
  RecentlyUsed<std::shared_ptr<const Table>> tables_{kMaxOpen};
};

/// Opens the folder at the path `part_path` below `folder`. Returns an invalid Directory if a
/// component is missing. Throws Error(corrupt) if a component is a link or a file.
os::Directory open_part_folder(const os::Directory& folder, std::string_view part_path);

/// Throws Error(corrupt), naming `display`, unless the schema `found` has the columns of `schema`
/// in the same order.
void require_columns(const Schema& schema, const Schema& found, const std::string& display);

}  // namespace tenfold

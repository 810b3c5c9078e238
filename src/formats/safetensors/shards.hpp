#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

/// Keeps the shards of one index file tidy while they are replaced.
///
/// The index is the commit point: a shard counts only once an index names it. New shards therefore
/// get names that nothing in the folder has, and the old ones stay until the new index stands:
/// `<stem>-00001-of-00002.safetensors` if the writer holds slot 0 of the index (see Sibling), which
/// keeps other writers from these names, otherwise, or if they are taken, names with a number of
/// this save alone.
///
/// What a killed save leaves, shards of an index that never came or old ones not yet removed, is
/// named by a list: `.<index>.tenfold-shards-<slot>-<number>`, one file name a line, written before
/// the first shard. The holder of slot 0 removes what the lists of dead writers name and the index
/// does not. Nothing else is ever removed.
class ShardTransaction {
 public:
  /// `folder` holds the index `index_name`, which `index` replaces. `present_shards` gives those
  /// that it names now, none if there is no index, and throws if it cannot be read. Removes the
  /// leavings of killed saves.
  ShardTransaction(os::Directory& folder, std::string index_name, const FileReplacement& index,
                   std::function<std::vector<std::string>()> present_shards);
  ShardTransaction(const ShardTransaction&) = delete;
  ShardTransaction& operator=(const ShardTransaction&) = delete;
  /// Removes the new shards, unless an index names them.
  ~ShardTransaction();

  /// Names for that many shards, none of which exists. Call once.
  std::vector<std::string> name_shards(std::size_t count, bool durable);
  /// Makes one of them, readable by nobody who could not read the old index.
  os::File create(const std::string& name, const std::optional<os::FileInfo>& old_index);

  /// The index is now replaced. Should this fail, the next save finds out which index stands and
  /// removes the shards of the other.
  void about_to_commit() noexcept { committing_ = true; }

  /// The index that was replaced named these: others than at the start if another save came first.
  void set_old_shards(std::vector<std::string> names) { old_shards_ = std::move(names); }

  /// The new index stands: removes the old shards. What cannot be removed is a warning.
  void committed(bool durable);

 private:
  void clean_up_after_others();
  void clean_up(const std::string& list_name);
  bool may_be_named() const;
  bool are_free(const std::vector<std::string>& names) const;
  void remove_all(const std::vector<std::string>& names);

  os::Directory& folder_;
  std::string index_name_;
  const FileReplacement& index_;
  std::function<std::vector<std::string>()> present_shards_;
  std::vector<std::string> old_shards_;
  std::vector<std::string> new_shards_;  ///< made so far
  std::string list_name_;
  bool has_list_ = false;
  bool committing_ = false;
};

}  // namespace tenfold::detail::formats::safetensors

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "os/directory.hpp"
#include "os/file.hpp"

namespace tenfold {

/// Keeps the shards of one index file tidy while they are replaced.
///
/// The index is the commit point: a shard counts only once an index names it. New shards therefore
/// get names that nothing in the folder has, and the old ones stay until the new index stands. What
/// a killed save leaves, shards of an index that never came or old ones not yet removed, is
/// told by a list: `.<index>.tenfold-shards-<k>`, one file name a line, written before the first
/// shard and locked (flock) while its writer lives. The next save removes what the lists of the
/// dead name and the index does not. Nothing else is ever removed.
class ShardTransaction {
 public:
  /// `folder` holds the index `index_name`; `old_shards` are those its present version names.
  /// Removes the leavings of killed saves.
  ShardTransaction(os::Directory& folder, std::string index_name,
                   std::vector<std::string> old_shards);
  ShardTransaction(const ShardTransaction&) = delete;
  ShardTransaction& operator=(const ShardTransaction&) = delete;
  /// Before about_to_commit(): removes the new shards.
  ~ShardTransaction();

  /// Names for that many shards, none of which exists. Call once.
  std::vector<std::string> name_shards(std::size_t count, bool durable);

  /// The index is now replaced; at the moment it names `old_shards`. Should this fail, the next
  /// save finds out which index stands and removes the shards of the other.
  void about_to_commit(std::vector<std::string> old_shards);

  /// The new index stands: removes the old shards.
  void committed();

 private:
  void remove_all(const std::vector<std::string>& names);

  os::Directory& folder_;
  std::string index_name_;
  std::vector<std::string> old_shards_;
  std::vector<std::string> new_shards_;
  os::File list_;
  std::string list_name_;
  bool committing_ = false;
};

}  // namespace tenfold

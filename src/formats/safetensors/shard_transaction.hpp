#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

/// Manages the shards of one index file while they are replaced.
///
/// The index is the commit point: a shard is only valid once an index names it. So new shards get
/// unused names, and the old shards are kept until the new index is in place.
///
/// Only a writer that holds slot 0 of the index (see Sibling) may use the names
/// `<stem>-00001-of-00002.safetensors`; the stem is the name of the index without its suffix. If
/// the writer holds another slot, or if a file with one of these names exists, the names contain
/// eight hexadecimal digits (<id>) after the stem: a hash of the time, a counter and the process
/// ID. If a name would be too long for the file system, a hash replaces the stem and these digits.
/// Shards for the tensors that ranks pass to ShardWriter::add_values() have names with the part
/// `-values` after the numbers: before the numbers, this part could belong to the stem of another
/// index.
///
/// A crashed save may leave shards: new ones whose index was never written, or old ones that were
/// not removed. They are listed in a file `.<index>.tenfold-shards-<slot>-<id>`, one file name per
/// line, written before the first shard. The holder of slot 0 removes the lists of crashed writers,
/// and the shards in these lists that the index does not name. It removes no other shards.
class ShardTransaction {
 public:
  /// `folder` contains the index `index_name`, which `index` replaces. `folder` and `index` must
  /// outlive this object. `present_shards` returns the shards that the index names at the time of
  /// the call, or none if there is no index, and throws if the index cannot be read. If `index`
  /// holds slot 0, the constructor removes the leftovers of crashed saves.
  ShardTransaction(os::Directory& folder, std::string index_name, const FileReplacement& index,
                   std::function<std::vector<std::string>()> present_shards);
  ShardTransaction(const ShardTransaction&) = delete;
  ShardTransaction& operator=(const ShardTransaction&) = delete;
  /// Removes the new shards and the list, unless committed() was called. Keeps them in a forked
  /// child, and if the lease was lost. After about_to_commit(), also keeps them if the index names
  /// one of the new shards or cannot be read.
  ~ShardTransaction();

  /// Returns unused names for `count` shards, and adds them to the list. `part` is inserted after
  /// the numbers in the names, and must differ between calls. With `durable`, the list is durable
  /// afterwards.
  std::vector<std::string> name_shards(std::size_t count, bool durable,
                                       const std::string& part = "");
  /// Creates the shard `name`, with the permissions of the old index if there is one
  /// (create_like()).
  os::File create(const std::string& name, const std::optional<os::FileInfo>& old_index);

  /// Call before the index is replaced. If the replacement fails, the destructor determines which
  /// index is in place.
  void about_to_commit() noexcept { committing_ = true; }

  /// Sets the shards of the index that was replaced. They differ from those that the constructor
  /// found if another save replaced the index in between.
  void set_old_shards(std::vector<std::string> names) { old_shards_ = std::move(names); }

  /// Call after the new index is in place: removes the old shards and the list, and warns if that
  /// fails.
  void committed(bool durable);

 private:
  void remove_abandoned();
  void clean_up(const std::string& list_name);
  bool may_be_named() const;
  bool are_free(const std::vector<std::string>& names) const;
  void remove_all(const std::vector<std::string>& names);

  os::Directory& folder_;
  std::string index_name_;
  const FileReplacement& index_;
  std::function<std::vector<std::string>()> present_shards_;
  std::vector<std::string> old_shards_;
  std::vector<std::string> new_shards_;  ///< created so far
  std::string list_name_;
  bool has_list_ = false;
  bool committing_ = false;
};

}  // namespace tenfold::detail::formats::safetensors

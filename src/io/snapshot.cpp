#include <tenfold/snapshot.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/commit.hpp"
#include "formats/snapshot/folder.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;

Path save_snapshot(const TensorDict& tree, const Path& path, const SnapshotOptions& options) {
  formats::refuse_existing(path, options.overwrite);
  formats::snapshot::write_folder(tree, path, options);
  return path;
}

TensorDict open_snapshot(const Path& path, std::int64_t rank) {
  if (!os::exists(path)) formats::recover_folder(path);
  const os::Directory root = os::Directory::open(path);
  const std::string where = root.display_of(std::string(formats::snapshot::kMetadataName));
  auto manifest = std::make_shared<const formats::snapshot::Manifest>(
      formats::snapshot::parse_manifest(formats::snapshot::read_metadata(root), where));
  if (rank < 0) {
    throw Error(ErrorCode::invalid_argument,
                path.string() + ": rank: expected at least 0, found " + std::to_string(rank));
  }
  const std::int64_t world_size = manifest->world_size;
  const bool is_new = rank >= world_size;
  TensorDict tree = formats::snapshot::tree_of(std::move(manifest), root, path.string(), is_new);
  if (world_size == 1) return tree;
  const std::string key = std::to_string(is_new ? 0 : rank);
  NodeInfo empty;
  empty.kind = NodeKind::dict;
  TensorDict of_rank = tree.contains(key) ? tree[key] : TensorDict(std::move(empty));
  // The metadata belongs to all ranks.
  of_rank.info().metadata = tree.info().metadata;
  return of_rank;
}

std::string snapshot_metadata(const Path& path) {
  if (!os::exists(path)) formats::recover_folder(path);
  const os::Directory root = os::Directory::open(path);
  const std::string text = detail::formats::snapshot::read_metadata(root);
  const std::string where = root.display_of(std::string(formats::snapshot::kMetadataName));
  formats::snapshot::parse_manifest(text, where);  // throws if the text is invalid
  return to_json(formats::snapshot::parse_metadata(text, where));
}

}  // namespace tenfold

#include <tenfold/snapshot.hpp>

#include <memory>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/value/value_json.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "formats/snapshot/folder.hpp"
#include "io/check_supported.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

using namespace detail;

namespace {

os::Directory open_snapshot_folder(const Path& path) {
  if (!os::exists(path)) formats::recover_folder(path);
  return os::Directory::open(path);
}

}  // namespace

Path save_snapshot(const TensorDict& tree, const Path& path, const SnapshotOptions& options) {
  formats::refuse_existing(path, options.overwrite);
  check_supported(tree, formats::snapshot::kFormat, path.string());
  with_path(path, [&] { formats::snapshot::write_folder(tree, path, options); });
  return path;
}

TensorDict open_snapshot(const Path& path, std::int64_t rank) {
  if (rank < 0) {
    throw base::invalid_argument(path).part("rank").expected("at least 0").found(rank);
  }
  return os::read_unreplaced(path, [&] {
    const os::Directory root = open_snapshot_folder(path);
    const std::string where = root.display_of(std::string(formats::snapshot::kMetadataName));
    auto manifest = std::make_shared<const formats::snapshot::Manifest>(
        formats::snapshot::parse_manifest(formats::snapshot::read_metadata(root), where));
    const std::int64_t world_size = manifest->world_size;
    TensorDict tree = formats::snapshot::tree_of(std::move(manifest), root, path.string(), rank);
    if (world_size == 1) return tree;
    TensorDict of_rank = tree[std::to_string(rank < world_size ? rank : 0)];
    // The metadata belongs to all ranks.
    of_rank.info().metadata = tree.info().metadata;
    return of_rank;
  });
}

std::string snapshot_metadata(const Path& path) {
  return os::read_unreplaced(path, [&] {
    const os::Directory root = open_snapshot_folder(path);
    const std::string text = formats::snapshot::read_metadata(root);
    const std::string where = root.display_of(std::string(formats::snapshot::kMetadataName));
    formats::snapshot::parse_manifest(text, where);  // throws if the text is invalid
    return to_json(formats::snapshot::parse_metadata(text, where));
  });
}

}  // namespace tenfold

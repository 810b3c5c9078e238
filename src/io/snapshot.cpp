#include <tenfold/snapshot.hpp>

#include <cerrno>

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
  if (!options.overwrite && (os::exists(path) || formats::recover_folder(path))) {
    throw Error::io(EEXIST, path.string()).problem("it exists already").expected("nothing there");
  }
  formats::snapshot::write_folder(tree, path, options);
  return path;
}

std::string snapshot_metadata(const Path& path) {
  if (!os::exists(path)) formats::recover_folder(path);
  const os::Directory root = os::Directory::open(path);
  const std::string text = detail::formats::snapshot::read_metadata(root);
  const std::string where = root.display_of(std::string(formats::snapshot::kMetadataName));
  formats::snapshot::parse_manifest(text, where);  // checks it
  return to_json(formats::snapshot::parse_metadata(text, where));
}

}  // namespace tenfold

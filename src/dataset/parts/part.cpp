#include "dataset/parts/part.hpp"

#include <cerrno>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/ring_guard.hpp"
#include "dataset/table.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/reader.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// The name of the lease that a process holds while it changes the parts. is_leftover() is true for
/// this name, so that a lease that remained after a crash is removed when the folder is replaced.
constexpr const char* kLeaseName = ".parts.tenfold-lease";

os::Directory require_part_folder(const os::Directory& folder, const std::string& part_path) {
  os::Directory part = open_part_folder(folder, part_path);
  const std::string display = folder.display_of(part_path);
  if (!part.valid()) {
    throw base::file_not_found(display)
        .problem("part is missing")
        .expected("a data set")
        .found("nothing");
  }
  if (formats::has_parts_manifest(part)) {
    throw base::invalid_argument(display)
        .expected("a data set in one folder")
        .found("a data set of parts")
        .remedy("compact() it");
  }
  if (!part.entry_info(std::string(formats::folder::kMetaName))) {
    throw base::invalid_argument(display)
        .expected("a data set")
        .found("a folder without meta.json")
        .remedy("remove the folder, or finish writing the part");
  }
  return part;
}

TensorDict open_part(const os::Directory& folder, const Path& path, const std::string& part_path) {
  return formats::folder::open_tree(require_part_folder(folder, part_path), path / part_path,
                                    Mode::read);
}

/// Completes a part whose writer did not close it, so that meta.json counts all of its rows. Throws
/// Error(io) (EBUSY) if another writer is appending.
void seal_part(const Path& path) {
  Dataset part(path, Mode::write_through);
  part.append(part.rows(0, 0));
  part.close();
}

}  // namespace

std::optional<std::uint64_t> checksum_of_part(const os::Directory& part) {
  const os::File file = os::File::try_open_read_at(part, std::string(formats::kChecksumsName));
  if (!file.valid()) return std::nullopt;
  const std::string text = file.read_all(formats::kMaxChecksumsBytes);
  return base::xxh3(std::as_bytes(std::span(text)));
}

os::Lease lease_parts(const os::Directory& folder, const Path& path) {
  if (auto lease = os::Lease::try_acquire(folder, kLeaseName)) return std::move(*lease);
  const std::string holder = os::lease_holder(folder, kLeaseName);
  throw Error::io(EBUSY, path.string())
      .problem("its parts are being changed by ", holder.empty() ? "another writer" : holder)
      .expected("one writer at a time")
      .found("another writer")
      .remedy("wait for it or close it");
}

Schema schema_of_part(const os::Directory& folder, const Path& path, const std::string& part_path) {
  return Schema::of(open_part(folder, path, part_path));
}

formats::PartEntry entry_of_part(const os::Directory& folder, const Path& path,
                                 const std::string& part_path, const Schema& schema) {
  const os::Directory part = require_part_folder(folder, part_path);
  if (part.entry_info(std::string(formats::folder::kCommitName))) {
    if (Table(open_part(folder, path, part_path)).ring()) {
      throw base::invalid_argument(folder.display_of(part_path))
          .expected("a data set")
          .found("a circular buffer");
    }
    seal_part(path / part_path);
  }
  const TensorDict tree = open_part(folder, path, part_path);
  require_columns(schema, Schema::of(tree), folder.display_of(part_path));
  // Maps the tensors of all columns, which throws if a file is shorter than its tensor.
  const auto table = Table::without_tree(tree);
  formats::PartEntry entry;
  entry.path = part_path;
  entry.num_rows = table->num_rows();
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) entry.num_bytes += leaf->nbytes();
  });
  entry.checksum = checksum_of_part(part);
  return entry;
}

void publish_parts(const formats::PartsManifest& manifest, const os::Lease& lease, const Path& path,
                   bool durable) {
  if (!lease.is_held()) {
    throw Error::io(EBUSY, path.string())
        .problem("the lease of its parts was lost")
        .expected("this process to be the only writer")
        .found("another writer")
        .remedy("open it again");
  }
  const std::string text = formats::parts_manifest_text(manifest);
  if (text.size() > formats::kMaxPartsBytes) {
    throw base::unsupported(path / formats::kPartsName)
        .problem("the manifest is too long")
        .expected("at most ", formats::kMaxPartsBytes, " bytes")
        .found(text.size())
        .remedy("compact the data set");
  }
  formats::replace_file(path / formats::kPartsName, text, durable);
}

}  // namespace tenfold

// tensordict's .tdz: a zip archive of a memory-mapped folder.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/zip/zip.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/archive/archive.hpp"
#include "formats/folder/archive/folder.hpp"
#include "formats/folder/archive/writer.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/reader.hpp"
#include "formats/folder/verify.hpp"
#include "formats/format.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::array<std::string_view, 1> kSuffixes = {".tdz"};

/// tensordict writes meta.json first, so usually the first entry's name is sufficient. Otherwise
/// the zip directory is read.
bool probe_archive(const FileHead& head) {
  if (head.first_zip_name() == kMetaName) return true;
  const codecs::ZipDirectory* directory = head.zip_directory();
  return directory != nullptr && directory->find(kMetaName) != nullptr;
}

TensorDict open_archive(const FileHead& head, const OpenRequest& request) {
  return open_tree(root_of(Archive::open(head.path(), request.mode)), request.mode);
}

void check_archive(const TensorDict& tree) { static_cast<void>(plan_tree(tree)); }

void write_archive(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  Plan plan = plan_tree(tree, {.notes = request.notes ? NotesUse::all : NotesUse::none});
  if (!plan.unloadable_by_upstream.empty()) {
    warn(path.string() + ": tensor " + base::quote(plan.unloadable_by_upstream) +
         ": tensordict 0.15.3 cannot load float8 and float4 from an archive; tenfold can, and "
         "both can load them from a safetensors file");
  }
  save_archive(std::move(plan), path, request);
}

}  // namespace

const Format kArchiveFormat = {
    .name = "tdz",
    .noun = "an archive of a memory-mapped folder",
    .suffixes = kSuffixes,
    .holds_sparse = true,
    .bare_roots = BareRoots::some,
    .is_writable_in_place = true,
    .holds_zeros = true,
    .probe = probe_archive,
    .open_tree = open_archive,
    .check_tree = check_archive,
    .write_tree = write_archive,
    .verify = verify_archive,
};

}  // namespace tenfold::detail::formats::folder

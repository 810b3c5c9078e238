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
constexpr std::string_view kZipMagic = "PK\x03\x04";

/// tensordict writes meta.json first, so mostly the first entry's name tells. Otherwise the
/// directory does.
bool probe_archive(const Path& path) {
  if (!os::file_info(path).is_regular) return false;
  constexpr std::size_t kHeaderBytes = 30;
  constexpr std::size_t kLengthAt = 26;
  const os::File file = os::File::open_read(path);
  std::string head(kHeaderBytes + kMetaName.size(), '\0');
  head.resize(file.read_some_at(0, std::as_writable_bytes(std::span(head))));
  if (!head.starts_with(kZipMagic)) return false;
  const char length = static_cast<char>(kMetaName.size());
  if (head.ends_with(kMetaName) && head[kLengthAt] == length && head[kLengthAt + 1] == '\0') {
    return true;
  }
  codecs::ZipInput input;
  input.where = file.display();
  input.size_bytes = file.size_bytes();
  input.read = [&file](std::uint64_t offset, std::span<std::byte> into) {
    file.read_at(offset, into);
  };
  try {
    return codecs::zip_has_entry(input, kMetaName);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    return false;
  }
}

TensorDict open_archive(const Path& path, const OpenRequest& request) {
  return open_tree(root_of(Archive::open(path, request.mode)), request.mode);
}

void check_archive(const TensorDict& tree) { static_cast<void>(plan_tree(tree)); }

void write_archive(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  Plan plan = plan_tree(tree, {.notes = request.notes ? NotesUse::all : NotesUse::none});
  if (!plan.unloadable_by_upstream.empty()) {
    warn(path.string() + ": tensor " + base::quote(plan.unloadable_by_upstream) +
         ": tensordict 0.15.3 cannot load float8 and float4 from an archive; tenfold can, and the "
         "safetensors format is read by both");
  }
  save_archive(std::move(plan), path, request);
}

}  // namespace

const Format kArchiveFormat = {"tdz",          kSuffixes,     probe_archive,
                               open_archive,   check_archive, write_archive,
                               verify_archive, true,          BareRoots::some};

}  // namespace tenfold::detail::formats::folder

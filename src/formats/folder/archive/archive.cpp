#include "formats/folder/archive/archive.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/archive/refresh_crc32s.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::folder {
namespace {

codecs::ZipLimits limits() noexcept {
  codecs::ZipLimits limits;
  limits.same_crc32s = false;
  return limits;
}

[[noreturn]] void refuse_to_write(const os::File& file, const codecs::ZipEntry& entry) {
  std::string found = "one that is not aligned";
  std::string remedy = "save the archive again";
  if (entry.method == codecs::ZipMethod::deflated) {
    found = "a deflated one";
    remedy = "save the archive again without compression";
  } else if (entry.has_descriptor) {
    found = "one with a data descriptor";
  }
  throw base::unsupported(file.display() + "/" + entry.name)
      .problem("mode \"r+\" cannot change it in place")
      .expected("a stored, aligned entry without a data descriptor")
      .found(found)
      .remedy(remedy);
}

}  // namespace

std::shared_ptr<Archive> Archive::open(const Path& path, Mode mode) {
  const bool writes = mode == Mode::write_through;
  os::File file = writes ? open_write_through(path) : os::File::open_read(path);
  std::shared_ptr<Archive> archive(new Archive(std::move(file), mode));
  if (writes) drop_leaf_checksums(*archive->file_, *archive);
  return archive;
}

Archive::Archive(os::File file, Mode mode)
    : file_(std::make_shared<os::File>(std::move(file))),
      info_(file_->info()),
      mode_(mode),
      zip_(whole_file([file = file_] { return file; }),
           mode == Mode::write_through ? os::MapKind::shared_write : os::MapKind::private_copy) {
  directory_ = codecs::read_zip_directory(input(), limits());
  index_folders();
}

Archive::~Archive() {
  if (written_.empty()) return;
  const std::vector<std::size_t> all(written_.begin(), written_.end());
  try {
    refresh(all, {});
  } catch (const std::exception& error) {
    warn(file().display() + ": its CRC-32s were not updated: " + error.what());
  } catch (...) {
    // Tests throw other objects to simulate a crash of this process.
  }
}

void Archive::index_folders() {
  std::string_view last;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    const std::string_view name = entries()[i].name;
    if (is_leaf_file(name) && !zip_.can_map(entries()[i])) is_one_mapping_ = false;
    // Add the parent folders, but only to the depth that try_child() accepts: adding all parents of
    // a hostile name would take quadratic time in its length. Skip entries in the same folder as
    // the previous entry, whose parents are already added.
    std::size_t slash = std::string_view::npos;
    std::size_t next = name.find('/');
    for (std::size_t depth = 0; next != std::string_view::npos && depth <= Folder::kMaxDepth;
         ++depth) {
      slash = next;
      next = name.find('/', slash + 1);
    }
    if (slash == std::string_view::npos || name.substr(0, slash) == last) continue;
    last = name.substr(0, slash);
    while (slash != std::string_view::npos && folders_.insert(name.substr(0, slash)).second) {
      slash = slash == 0 ? std::string_view::npos : name.rfind('/', slash - 1);
    }
  }
  for (const codecs::ZipEntry& entry : entries()) {
    if (!folders_.contains(entry.name)) continue;
    throw base::corrupt(file().display() + "/" + entry.name)
        .problem("a file and a folder have this name")
        .expected("one of them")
        .found("both");
  }
}

std::optional<std::size_t> Archive::find(std::string_view path) const {
  const codecs::ZipEntry* found = directory_.find(path);
  if (found == nullptr || path.ends_with('/')) return std::nullopt;
  return static_cast<std::size_t>(found - entries().data());
}

bool Archive::has_folder(std::string_view path) const { return folders_.contains(path); }

Buffer Archive::map(std::size_t number, std::uint64_t size_bytes) {
  const codecs::ZipEntry& entry = entries()[number];
  const bool writes = mode_ == Mode::write_through;
  if (writes && (!zip_.can_map(entry) || entry.has_descriptor)) refuse_to_write(file(), entry);
  if (!zip_.can_map(entry)) {
    return copy_of(entry).slice(0, static_cast<std::size_t>(size_bytes));
  }
  Buffer bytes = zip_.map(entry.data_offset, size_bytes);
  if (!writes) return bytes;
  const std::lock_guard lock(mutex_);
  written_.insert(number);
  return Buffer(bytes.mutable_bytes(), shared_from_this());
}

Buffer Archive::copy_of(const codecs::ZipEntry& entry) const {
  return read_entry_into_memory(input(), entry, file().display() + "/" + entry.name,
                                "use unpack_memmap to convert the archive to a folder");
}

std::size_t Archive::read_some(std::size_t number, std::uint64_t offset_bytes,
                               std::span<std::byte> into) {
  const codecs::ZipEntry& entry = entries()[number];
  if (offset_bytes >= entry.size_bytes) return 0;
  into = into.first(static_cast<std::size_t>(
      std::min<std::uint64_t>(into.size(), entry.size_bytes - offset_bytes)));
  if (entry.method == codecs::ZipMethod::stored) {
    return file().read_some_at(entry.data_offset + offset_bytes, into);
  }
  zip_.read_copy(number, offset_bytes, into, [&] { return copy_of(entry); });
  return into.size();
}

void Archive::refresh(std::span<const std::size_t> numbers, const RefreshOptions& options) {
  std::vector<std::size_t> written;
  {
    const std::lock_guard lock(mutex_);
    for (const std::size_t number : numbers) {
      if (written_.contains(number)) written.push_back(number);
    }
  }
  if (written.empty()) return;
  if (options.durable) {
    for (const std::size_t number : written) {
      const codecs::ZipEntry& entry = entries()[number];
      os::sync_mapping(zip_.map(entry.data_offset, entry.size_bytes), file().display());
    }
  }
  refresh_crc32s(*file_, *this, written, options);
}

}  // namespace tenfold::detail::formats::folder

#include "formats/folder/archive/archive.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/archive/refresh_crc32s.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Alignment that is sufficient for every dtype.
constexpr std::uint64_t kMapAlignment = 16;

bool is_stored_aligned(const codecs::ZipEntry& entry) noexcept {
  return entry.method == codecs::ZipMethod::stored && entry.data_offset % kMapAlignment == 0;
}

codecs::ZipLimits limits() noexcept {
  codecs::ZipLimits limits;
  limits.same_crc32s = false;
  return limits;
}

[[noreturn]] void refuse_to_write(const os::File& file, const codecs::ZipEntry& entry) {
  std::string found = "one that is not aligned";
  std::string remedy = "save it again";
  if (entry.method == codecs::ZipMethod::deflated) {
    found = "a deflated one";
    remedy = "save it again without compression";
  } else if (entry.has_descriptor) {
    found = "one with a data descriptor";
  }
  throw base::unsupported(file.display() + "/" + entry.name)
      .problem("mode \"r+\" cannot change it in place")
      .expected("a stored entry")
      .found(found)
      .remedy(remedy);
}

}  // namespace

std::shared_ptr<Archive> Archive::open(const Path& path, Mode mode) {
  const bool writes = mode == Mode::write_through;
  os::File file = writes ? open_write_through(path) : os::File::open_read(path);
  std::shared_ptr<Archive> archive(new Archive(std::move(file), mode));
  if (writes) drop_leaf_checksums(archive->file_, *archive);
  return archive;
}

Archive::Archive(os::File file, Mode mode)
    : file_(std::move(file)), info_(file_.info()), mode_(mode) {
  directory_ = codecs::read_zip_directory(input(), limits());
  index_folders();
}

Archive::~Archive() {
  if (written_.empty()) return;
  const std::vector<std::size_t> all(written_.begin(), written_.end());
  try {
    refresh(all, {});
  } catch (const std::exception& error) {
    warn(file_.display() + ": its CRC-32s were not updated: " + error.what());
  } catch (...) {
    // A test has simulated a crash of this process.
  }
}

void Archive::index_folders() {
  std::string_view last;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    const std::string_view name = entries()[i].name;
    if (name.ends_with(kLeafSuffix) && !is_stored_aligned(entries()[i])) is_one_mapping_ = false;
    // Add all parent folders. Most entries are in the same folder as the previous one.
    std::size_t slash = name.rfind('/');
    if (slash == std::string_view::npos || name.substr(0, slash) == last) continue;
    last = name.substr(0, slash);
    while (slash != std::string_view::npos && folders_.insert(name.substr(0, slash)).second) {
      slash = slash == 0 ? std::string_view::npos : name.rfind('/', slash - 1);
    }
  }
}

codecs::ZipInput Archive::input() const {
  codecs::ZipInput input;
  input.where = file_.display();
  input.size_bytes = info_.size_bytes;
  input.read = [this](std::uint64_t offset, std::span<std::byte> into) {
    file_.read_at(offset, into);
  };
  return input;
}

std::optional<std::size_t> Archive::find(std::string_view path) const {
  const codecs::ZipEntry* found = directory_.find(path);
  if (found == nullptr || path.ends_with('/')) return std::nullopt;
  return static_cast<std::size_t>(found - entries().data());
}

bool Archive::has_folder(std::string_view path) const { return folders_.contains(path); }

Buffer Archive::mapping_of_file() {
  const std::lock_guard lock(mutex_);
  if (mapping_.size_bytes() == 0) {
    const bool writes = mode_ == Mode::write_through;
    mapping_ = os::map_file(file_, 0, info_.size_bytes,
                            writes ? os::MapKind::shared_write : os::MapKind::private_copy);
  }
  return mapping_;
}

Buffer Archive::map(std::size_t number, std::uint64_t size_bytes) {
  const codecs::ZipEntry& entry = entries()[number];
  const bool writes = mode_ == Mode::write_through;
  if (writes && (!is_stored_aligned(entry) || entry.has_descriptor)) refuse_to_write(file_, entry);
  if (!is_stored_aligned(entry)) {
    return copy_of(number).slice(0, static_cast<std::size_t>(size_bytes));
  }
  Buffer bytes = mapping_of_file().slice(static_cast<std::size_t>(entry.data_offset),
                                         static_cast<std::size_t>(size_bytes));
  if (!writes) return bytes;
  const std::lock_guard lock(mutex_);
  written_.insert(number);
  return Buffer(bytes.mutable_bytes(), shared_from_this());
}

Buffer Archive::copy_of(std::size_t number) const {
  const codecs::ZipEntry& entry = entries()[number];
  return read_entry_into_memory(input(), entry, file_.display() + "/" + entry.name,
                                "unpack_memmap makes a folder of the archive");
}

std::optional<Buffer> Archive::kept(std::size_t number) {
  const std::lock_guard lock(mutex_);
  for (const Inflated& one : kept_) {
    if (one.entry == number && one.bytes.size_bytes() > 0) return one.bytes;
  }
  return std::nullopt;
}

/// Returns the bytes of a deflated entry. Caches the last few entries for callers that read in
/// pieces.
Buffer Archive::inflated(std::size_t number) {
  const std::lock_guard inflate_lock(inflating_[number % kStripes]);
  if (auto bytes = kept(number)) return *bytes;
  Buffer bytes = copy_of(number);
  const std::lock_guard lock(mutex_);
  kept_[next_kept_] = {number, bytes};
  next_kept_ = (next_kept_ + 1) % kKeptInflated;
  return bytes;
}

std::size_t Archive::read_some(std::size_t number, std::uint64_t offset_bytes,
                               std::span<std::byte> into) {
  const codecs::ZipEntry& entry = entries()[number];
  if (offset_bytes >= entry.size_bytes) return 0;
  const auto count = static_cast<std::size_t>(
      std::min<std::uint64_t>(into.size(), entry.size_bytes - offset_bytes));
  if (count == 0) return 0;
  if (entry.method == codecs::ZipMethod::stored) {
    return file_.read_some_at(entry.data_offset + offset_bytes, into.first(count));
  }
  std::memcpy(into.data(), inflated(number).data() + offset_bytes, count);
  return count;
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
    const Buffer mapped = mapping_of_file();
    for (const std::size_t number : written) {
      const codecs::ZipEntry& entry = entries()[number];
      os::sync_mapping(mapped.slice(static_cast<std::size_t>(entry.data_offset),
                                    static_cast<std::size_t>(entry.size_bytes)),
                       file_.display());
    }
  }
  refresh_crc32s(file_, *this, written, options);
}

}  // namespace tenfold::detail::formats::folder

#include "os/memory/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "os/system.hpp"

namespace tenfold::os {
namespace {

std::uint64_t read_setting(const char* path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t value = otherwise;
  return file >> value ? value : otherwise;
}

std::uint64_t count_maps() {
  std::ifstream file("/proc/self/maps");
  return static_cast<std::uint64_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

/// The deleter of mapped memory. A Buffer does not store the type of its owner, so mapping_of()
/// recognises a mapping by the type of its deleter.
struct Unmap {
  Mapping mapping;
  void operator()(const void*) const noexcept { ::munmap(mapping.begin, mapping.size_bytes); }
};

[[noreturn]] void throw_map_error(int system_errno, const File& file, std::uint64_t size_bytes) {
  const std::string action = "cannot map " + std::to_string(size_bytes) + " bytes";
  constexpr std::uint64_t kAlmost = 64;
  if (system_errno == ENOMEM && count_maps() + kAlmost >= max_map_count()) {
    throw Error::io(ENOMEM, file.display())
        .problem(action)
        .expected("fewer than ", max_map_count(),
                  " mappings in this process, which is the system's limit")
        .remedy("raise vm.max_map_count, or save in a single-file format such as safetensors");
  }
  throw_system_error(system_errno, file.display(), action);
}

}  // namespace

std::uint64_t max_map_count() { return read_setting("/proc/sys/vm/max_map_count", 65530); }

Buffer map_file(const File& file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                MapKind kind, std::optional<std::uint64_t> file_bytes) {
  if (!file_bytes) file_bytes = file.size_bytes();
  if (!base::range_fits(offset_bytes, size_bytes, *file_bytes)) {
    const auto end = base::checked_add(offset_bytes, size_bytes);
    throw base::corrupt(file.display())
        .problem("the file is too short")
        .expected("at least ", (end ? std::to_string(*end) : "2^64"), " bytes")
        .found(*file_bytes)
        .remedy("it may be truncated");
  }
  if (size_bytes == 0) return Buffer();

  const std::uint64_t before = offset_bytes % page_bytes();
  Mapping mapping;
  mapping.size_bytes = static_cast<std::size_t>(size_bytes + before);
  mapping.offset_bytes = offset_bytes - before;
  mapping.path = file.display();
  mapping.inode = file.info_at_open().inode;
  bool writable = kind != MapKind::read_only;
  int system_errno = 0;
  const auto map = [&](int protection, int flags) {
    void* begin = ::mmap(nullptr, mapping.size_bytes, protection, flags, file.fd(),
                         static_cast<off_t>(mapping.offset_bytes));
    system_errno = errno;
    if (begin != MAP_FAILED) mapping.begin = static_cast<std::byte*>(begin);
  };
  switch (kind) {
    case MapKind::private_copy:
      // With MAP_NORESERVE, the mapping does not count towards the commit limit, except with
      // vm.overcommit_memory = 2, which ignores the flag.
      map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
      if (mapping.begin == nullptr && system_errno == ENOMEM &&
          read_setting("/proc/sys/vm/overcommit_memory", 0) == 2) {
        writable = false;
        map(PROT_READ, MAP_PRIVATE);
      }
      break;
    case MapKind::shared_write:
      map(PROT_READ | PROT_WRITE, MAP_SHARED);
      break;
    case MapKind::read_only:
      map(PROT_READ, MAP_SHARED);
      break;
  }
  if (mapping.begin == nullptr) throw_map_error(system_errno, file, size_bytes);
  const std::span<std::byte> bytes(mapping.begin + before, static_cast<std::size_t>(size_bytes));
  const void* const begin = mapping.begin;
  const std::shared_ptr<const void> owner(begin, Unmap{std::move(mapping)});
  return writable ? Buffer(bytes, owner) : Buffer::read_only(bytes, owner);
}

std::shared_ptr<const File> Mapping::open_file() const {
  try {
    File file = File::open_read(path);
    if (inode == 0 || file.info_at_open().inode != inode) return nullptr;
    return std::make_shared<const File>(std::move(file));
  } catch (const Error&) {
    return nullptr;
  }
}

const Mapping* mapping_of(const Buffer& buffer) noexcept {
  const Unmap* const unmap = std::get_deleter<Unmap>(buffer.owner());
  return unmap == nullptr ? nullptr : &unmap->mapping;
}

void sync_mapping(const Buffer& buffer, const std::string& display) {
  if (buffer.size_bytes() == 0) return;
  const std::span<std::byte> pages = pages_of(buffer.bytes());
  if (::msync(pages.data(), pages.size(), MS_SYNC) != 0) {
    throw_system_error(errno, display, "cannot be synced to disk");
  }
}

}  // namespace tenfold::os

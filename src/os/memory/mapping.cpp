#include "os/memory/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "os/system.hpp"

// Missing from headers of C libraries that are older than the kernel.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tenfold::os {
namespace {

std::uint64_t read_setting(const char* path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t value = otherwise;
  return file >> value ? value : otherwise;
}

/// Extends `bytes` to page boundaries, as madvise and msync require.
std::span<std::byte> pages_of(std::span<const std::byte> bytes) noexcept {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes();
  return {const_cast<std::byte*>(bytes.data()) - before, bytes.size() + before};
}

std::uint64_t count_maps() {
  std::ifstream file("/proc/self/maps");
  return static_cast<std::uint64_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

/// Mapped pages of a file, unmapped by the destructor.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (start_ != nullptr) ::munmap(start_, size_bytes_);
  }

  /// Returns false with errno set if mmap fails.
  bool map(int fd, std::uint64_t offset_bytes, std::size_t size_bytes, int protection, int flags) {
    void* start =
        ::mmap(nullptr, size_bytes, protection, flags, fd, static_cast<off_t>(offset_bytes));
    if (start == MAP_FAILED) return false;
    start_ = start;
    size_bytes_ = size_bytes;
    return true;
  }

  std::byte* start() const noexcept { return static_cast<std::byte*>(start_); }

 private:
  void* start_ = nullptr;
  std::size_t size_bytes_ = 0;
};

[[noreturn]] void throw_map_error(int system_errno, const File& file, std::uint64_t size_bytes) {
  const std::string action = "cannot map " + std::to_string(size_bytes) + " bytes";
  constexpr std::uint64_t kAlmost = 64;
  if (system_errno == ENOMEM && count_maps() + kAlmost >= max_map_count()) {
    throw Error::io(ENOMEM, file.display())
        .problem(action)
        .expected("fewer than ", max_map_count(),
                  " maps in this process, which is the system's limit")
        .remedy("raise vm.max_map_count, or save in a format of one file such as safetensors");
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
  const std::uint64_t begin = offset_bytes - before;
  const std::size_t length = static_cast<std::size_t>(size_bytes + before);
  const auto mapping = std::make_shared<Mapping>();
  bool writable = kind != MapKind::read_only;
  bool mapped = false;
  int system_errno = 0;
  switch (kind) {
    case MapKind::private_copy:
      // NORESERVE: pages are not charged to the commit limit until they are written to.
      mapped = mapping->map(file.fd(), begin, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_NORESERVE);
      system_errno = errno;
      if (!mapped && system_errno == ENOMEM &&
          read_setting("/proc/sys/vm/overcommit_memory", 0) == 2) {
        writable = false;
        mapped = mapping->map(file.fd(), begin, length, PROT_READ, MAP_PRIVATE);
      }
      break;
    case MapKind::shared_write:
      mapped = mapping->map(file.fd(), begin, length, PROT_READ | PROT_WRITE, MAP_SHARED);
      system_errno = errno;
      break;
    case MapKind::read_only:
      mapped = mapping->map(file.fd(), begin, length, PROT_READ, MAP_SHARED);
      system_errno = errno;
      break;
  }
  if (!mapped) throw_map_error(system_errno, file, size_bytes);
  const std::span<std::byte> bytes(mapping->start() + before, static_cast<std::size_t>(size_bytes));
  return writable ? Buffer(bytes, mapping) : Buffer::read_only(bytes, mapping);
}

void sync_mapping(const Buffer& buffer, const std::string& display) {
  if (buffer.size_bytes() == 0) return;
  const std::span<std::byte> pages = pages_of(buffer.bytes());
  if (::msync(pages.data(), pages.size(), MS_SYNC) != 0) {
    throw_system_error(errno, display, "cannot be synced to disk");
  }
}

bool is_resident(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const std::span<std::byte> pages = pages_of(bytes);
  std::vector<unsigned char> in_memory((pages.size() + page_bytes() - 1) / page_bytes());
  if (::mincore(pages.data(), pages.size(), in_memory.data()) != 0) return false;
  return std::all_of(in_memory.begin(), in_memory.end(), [](unsigned char p) { return p & 1; });
}

void prefetch(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::span<std::byte> pages = pages_of(bytes);
  ::madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void populate(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::span<std::byte> pages = pages_of(bytes);
  // Linux before 5.14 does not have it.
  if (::madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
  prefetch(bytes);
}

std::uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace tenfold::os

#include "os/fs/file_system.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace tenfold::os {
namespace {

/// A network or FUSE file system.
struct Remote {
  std::uint32_t magic = 0;          ///< f_type of statfs(2); 0: no remote file system
  bool loses_shared_pages = false;  ///< result of loses_shared_pages()
};

constexpr auto kRemotes = std::to_array<Remote>({
    {0x00006969, true},   // NFS
    {0x0000517B, true},   // SMB
    {0xFF534D42, true},   // CIFS
    {0xFE534D42, true},   // SMB2
    {0x65735546, true},   // FUSE
    {0x01021997, true},   // 9p
    {0x00C36400, false},  // Ceph
    {0x0BD00BD0, false},  // Lustre
    {0x47504653, false},  // GPFS
    {0x5346414F, false},  // AFS
});

constexpr std::int64_t kRealFileSystem = -1;
/// The f_type that tests have set.
std::atomic<std::int64_t> file_system_for_tests{kRealFileSystem};

std::uint32_t magic_of(const File& file) noexcept {
  const std::int64_t set = file_system_for_tests.load(std::memory_order_relaxed);
  if (set != kRealFileSystem) return static_cast<std::uint32_t>(set);
  struct statfs status{};
  return ::fstatfs(file.fd(), &status) == 0 ? static_cast<std::uint32_t>(status.f_type) : 0;
}

Remote remote_of(const File& file) noexcept {
  const auto found = std::ranges::find(kRemotes, magic_of(file), &Remote::magic);
  return found == kRemotes.end() ? Remote() : *found;
}

}  // namespace

bool is_remote(const File& file) noexcept { return remote_of(file).magic != 0; }

bool loses_shared_pages(const File& file) noexcept { return remote_of(file).loses_shared_pages; }

std::optional<std::uint32_t> set_file_system(std::optional<std::uint32_t> magic) noexcept {
  const std::int64_t before =
      file_system_for_tests.exchange(magic ? std::int64_t{*magic} : kRealFileSystem);
  if (before == kRealFileSystem) return std::nullopt;
  return static_cast<std::uint32_t>(before);
}

}  // namespace tenfold::os

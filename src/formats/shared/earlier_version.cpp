#include "formats/shared/earlier_version.hpp"

#include <cerrno>

#include <tenfold/error.hpp>

namespace tenfold::detail::formats {
namespace {

/// Removes write permission from a file that belongs to two versions: a write would change both.
void protect(os::File& file, os::FileInfo info) {
  constexpr std::uint32_t kWriteBits = 0222;
  if ((info.mode & kWriteBits) == 0) return;
  info.mode &= ~kWriteBits;
  file.copy_permissions(info);
}

/// Opens the linked file under its new name, because the old name may belong to another file now.
/// Returns an invalid File if the size or modification time shows that it is not the saved file, if
/// it is not a regular file, or if this user may not read it or change its permissions.
os::File open_as_saved(const os::Directory& folder, const std::string& name,
                       const EarlierVersion& earlier, std::uint64_t size_bytes) {
  try {
    os::File file = os::File::open_read_at(folder, name);
    const os::FileInfo info = file.info();
    if (info.size_bytes != size_bytes || info.modified_ns > earlier.saved_ns) return {};
    protect(file, info);
    return file;
  } catch (const Error& error) {
    // The file is not regular, not readable, or owned by another user.
    const bool is_denied = error.system_errno() == EACCES || error.system_errno() == EPERM;
    if (error.code() != ErrorCode::corrupt && !is_denied) throw;
  }
  return {};
}

}  // namespace

os::File link_unchanged(os::Directory& folder, const std::string& name,
                        const EarlierVersion& earlier, const os::Directory& old_folder,
                        const std::string& old_name, std::uint64_t size_bytes) {
  try {
    if (!folder.link_from(old_folder, old_name, name)) return {};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::file_not_found) return {};
    throw;
  }
  try {
    os::File file = open_as_saved(folder, name, earlier, size_bytes);
    if (file.valid()) return file;
  } catch (...) {
    folder.remove_file(name);
    throw;
  }
  folder.remove_file(name);
  return {};
}

}  // namespace tenfold::detail::formats

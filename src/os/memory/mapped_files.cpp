#include "os/memory/mapped_files.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold::os {
namespace {

/// A line of /proc/self/maps that names a file.
struct Map {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t inode = 0;
  std::string path;
};

/// Returns the next word of `line`, and advances `line` past the blanks that follow.
std::string_view next_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  return word;
}

template <class Number>
bool read_number(std::string_view text, int base, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into, base);
  return error == std::errc() && end == text.data() + text.size();
}

/// begin-end permissions offset device inode path
std::optional<Map> parse(std::string_view line) {
  Map map;
  const std::string_view range = next_word(line);
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  next_word(line);
  const std::string_view offset = next_word(line);
  next_word(line);
  const std::string_view inode = next_word(line);
  const bool read = read_number(range.substr(0, dash), 16, map.begin) &&
                    read_number(range.substr(dash + 1), 16, map.end) &&
                    read_number(offset, 16, map.offset_bytes) && read_number(inode, 10, map.inode);
  if (!read || map.inode == 0) return std::nullopt;
  map.path = line;
  return map;
}

std::vector<Map> maps_of_files() {
  std::vector<Map> maps;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    if (auto map = parse(line)) maps.push_back(std::move(*map));
  }
  return maps;
}

/// Null unless the path still names the mapped file. (The kernel writes a line feed in a path as
/// \012: such a file is not found.)
std::shared_ptr<const File> open_mapped(const Map& map) {
  try {
    File file = File::open_read(map.path);
    if (file.info_at_open().inode != map.inode) return nullptr;
    return std::make_shared<const File>(std::move(file));
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

std::vector<MappedFile> files_of_mappings(std::span<const std::span<const std::byte>> ranges) {
  const std::vector<Map> maps = maps_of_files();
  std::vector<MappedFile> found(ranges.size());
  std::vector<std::pair<const Map*, std::shared_ptr<const File>>> opened;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(ranges[i].data());
    const auto map = std::find_if(maps.begin(), maps.end(), [&](const Map& one) {
      return one.begin <= address && address < one.end;
    });
    if (map == maps.end()) continue;
    const auto known = std::find_if(opened.begin(), opened.end(),
                                    [&](const auto& one) { return one.first->path == map->path; });
    if (known == opened.end()) {
      found[i].file = open_mapped(*map);
      opened.emplace_back(&*map, found[i].file);
    } else {
      found[i].file = known->second;
    }
    found[i].offset_bytes = map->offset_bytes + (address - map->begin);
  }
  return found;
}

bool is_remote(const File& file) noexcept {
  struct statfs status{};
  if (::fstatfs(file.fd(), &status) != 0) return false;
  switch (static_cast<std::uint32_t>(status.f_type)) {
    case 0x00006969:  // NFS
    case 0x0000517B:  // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
    case 0x65735546:  // FUSE
    case 0x01021997:  // 9p
    case 0x00C36400:  // Ceph
    case 0x0BD00BD0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x5346414F:  // AFS
      return true;
    default:
      return false;
  }
}

bool loses_shared_pages(const File& file) noexcept {
  struct statfs status{};
  if (::fstatfs(file.fd(), &status) != 0) return false;
  switch (static_cast<std::uint32_t>(status.f_type)) {
    case 0x00006969:  // NFS
    case 0x0000517B:  // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
    case 0x65735546:  // FUSE
    case 0x01021997:  // 9p
      return true;
    default:
      return false;
  }
}

}  // namespace tenfold::os

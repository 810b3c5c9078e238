#include "support/crash_file.hpp"

#include <fstream>
#include <iterator>
#include <span>

#include "formats/shared/commit.hpp"

namespace tenfold::test {

namespace fs = std::filesystem;

std::string content(char version, std::size_t size) {
  std::string bytes;
  while (bytes.size() < size) bytes += version + std::to_string(bytes.size()) + "/";
  bytes.resize(size);
  return bytes;
}

void write_all(os::File& file, const std::string& bytes) {
  const auto all = std::as_bytes(std::span(bytes));
  const std::size_t middle = bytes.size() / 2;
  file.write_at(middle, all.subspan(middle));
  file.write_at(0, all.first(middle));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void save_file(const fs::path& path, char version, bool durable) {
  detail::formats::FileReplacement replacement(path, 0);
  write_all(replacement.file(), content(version));
  replacement.publish(durable);
}

Found which_file(const fs::path& path) {
  if (!fs::exists(path)) return Found::absent;
  const std::string bytes = read_file(path);
  if (bytes == content('o')) return Found::old_version;
  if (bytes == content('n')) return Found::new_version;
  return Found::neither;
}

}  // namespace tenfold::test

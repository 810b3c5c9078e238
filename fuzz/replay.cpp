// main() of a fuzz target that is built without libFuzzer. Each argument is a file or a folder.
// Runs the target once for each of the files, and for each file below the folders. An input that
// fails crashes the process or causes a sanitizer report. Returns 1 if a path does not exist or
// there are no files.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::filesystem::path> files_below(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<char> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::exists(argv[i])) {
      std::cerr << argv[i] << ": no such file or folder\n";
      return 1;
    }
    for (const auto& path : files_below(argv[i])) {
      // Print the path first, so that it is known after a crash.
      std::cout << path.string() << '\n' << std::flush;
      const std::vector<char> bytes = bytes_of(path);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++num_inputs;
    }
  }
  std::cout << num_inputs << " inputs\n";
  return num_inputs > 0 ? 0 : 1;
}

#pragma once

#include <filesystem>
#include <string>

#include "os/fs/file.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {

/// Number of simulated power failures at each moment of a save.
inline constexpr int kCrashTrials = 48;

/// Returns the content of a file in the given version. The default size is about 3.3 sectors of 512
/// bytes. No two sectors are equal.
std::string content(char version, std::size_t size = 1700);
/// Writes in two parts, the later part first.
void write_all(os::File& file, const std::string& bytes);
std::string read_file(const std::filesystem::path& path);
void save_file(const std::filesystem::path& path, char version, bool durable);
Found which_file(const std::filesystem::path& path);

}  // namespace tenfold::test

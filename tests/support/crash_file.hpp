#pragma once

#include <filesystem>
#include <string>

#include "os/fs/file.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {

/// Losses tried at each moment.
inline constexpr int kCrashTrials = 48;

/// A file of one version and the other: three sectors and a bit, each unlike the next.
std::string content(char version, std::size_t size = 1700);
/// In two writes, the later part first.
void write_all(os::File& file, const std::string& bytes);
std::string read_file(const std::filesystem::path& path);
void save_file(const std::filesystem::path& path, char version, bool durable);
Found which_file(const std::filesystem::path& path);

}  // namespace tenfold::test

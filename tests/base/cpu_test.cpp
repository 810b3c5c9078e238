#include "base/cpu.hpp"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

/// Returns the flags of the first CPU in /proc/cpuinfo, or an empty set if the file lists no flags.
std::set<std::string> flags_of_kernel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

TEST(Cpu, VectorInstructionsMatchProcCpuinfo) {
  const std::set<std::string> flags = flags_of_kernel();
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const VectorInstructions found = vector_instructions();
  EXPECT_EQ(found.avx2, flags.contains("avx2"));
  EXPECT_EQ(found.avx512vbmi2, flags.contains("avx512_vbmi2"));
}

}  // namespace
}  // namespace tenfold::base

#include "codecs/pickle/imports.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/sanitizers.hpp"

using namespace std::string_view_literals;
using tenfold::codecs::may_import;

namespace {

constexpr std::string_view kCall = "cos\nsystem\n(VMARK\ntR.";

TEST(PickleImports, DetectsGlobalInstAndStackGlobal) {
  EXPECT_TRUE(may_import(kCall));
  EXPECT_TRUE(may_import("(Vx\nios\nsystem\n."));
  EXPECT_TRUE(may_import("\x8c\x02os\x8c\x06system\x93."sv));
  EXPECT_TRUE(may_import("S'os'\nS'system'\n\x93."sv));
}

TEST(PickleImports, DetectsImportsWherePythonContinues) {
  const std::string call(kCall);
  for (const std::string_view before :
       {"I0x10\n0"sv, "I010\n0"sv, "L1_0\n0"sv, "F+1.0\n0"sv, "F1e-999\n0"sv, "Np 1\n0"sv, "(N00"sv,
        "](NNtb0"sv, "(Nl(K\0Nu0"sv}) {
    EXPECT_TRUE(may_import(std::string(before) + call)) << before;
  }
  EXPECT_TRUE(may_import("(V" + std::string(2'000'000, 'a') + "\n0" + call));
  EXPECT_TRUE(may_import("N." + call));
  // Python's pickle.py imports the module before it finds that the truncated name does not exist.
  EXPECT_TRUE(may_import("cos\nsystem"));
}

TEST(PickleImports, IgnoresPicklesThatPythonRefuses) {
  EXPECT_FALSE(may_import(""));
  EXPECT_FALSE(may_import("N0." + std::string(kCall)));
  EXPECT_FALSE(may_import("0" + std::string(kCall)));
  EXPECT_FALSE(may_import("ios\nsystem\n"));
  EXPECT_FALSE(may_import("\x93"));
  EXPECT_FALSE(may_import("N\x93"));
  EXPECT_FALSE(may_import("X\x05\0\0\0abc"sv));
  EXPECT_FALSE(may_import("\x97" + std::string(kCall)));
}

TEST(PickleImports, ManyMarksTakeLittleMemory) {
#if TENFOLD_ASAN || TENFOLD_TSAN
  GTEST_SKIP() << "the sanitizer needs memory itself";
#endif
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const std::string marks(std::size_t{64} << 20U, '(');
  const auto before = peak_kib();
  EXPECT_FALSE(may_import(marks));
  EXPECT_LT(peak_kib() - before, 64 << 10);  // 8 bytes per mark would take 512 MiB
  EXPECT_TRUE(may_import(marks + "NN\x93"));
}

TEST(PickleImports, IgnoresOrdinaryText) {
  EXPECT_FALSE(may_import("could you\nplease\n"));
  EXPECT_FALSE(may_import("class,label\n1,2\n"));
  EXPECT_FALSE(may_import("import os\nclass\n"));
  EXPECT_FALSE(may_import("hello"));
}

}  // namespace

# Builds for an older glibc than this machine's: zig (ziglang on PyPI) has the headers and the symbol
# versions of every glibc, and links its own libc++ statically. Needs TENFOLD_ZIG, the path of zig,
# and TENFOLD_ZIG_TARGET (x86_64-linux-gnu.2.28) in the environment: `make wheel` sets both.
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/../../tools/zig/cc)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/../../tools/zig/c++)
# Without -O3 in CMake's own checks, zig would build its C++ runtime a second time, which takes
# minutes. In builds without optimisation, zig enables UBSan, so it is disabled explicitly.
# Without glibc_memory.h, ragged batches take 1.2 times as long as in a build by g++; with it, 1.03.
set(TENFOLD_ZIG_FLAGS
  "-O3 -fno-sanitize=undefined -include ${CMAKE_CURRENT_LIST_DIR}/glibc_memory.h")
set(CMAKE_C_FLAGS_INIT "${TENFOLD_ZIG_FLAGS}")
set(CMAKE_CXX_FLAGS_INIT "${TENFOLD_ZIG_FLAGS}")
# The C++ runtime is linked statically, so TenfoldSbom.cmake lists it.
set(TENFOLD_STATIC_RUNTIME libc++)

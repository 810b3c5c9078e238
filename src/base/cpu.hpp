#pragma once

namespace tenfold::base {

/// Which vector instructions this process may execute: those that the CPU has and whose registers
/// the operating system saves on a context switch. All false on architectures other than x86-64.
///
/// `__builtin_cpu_supports` is not used: it reads a table that the compiler's runtime library
/// fills. The library of zig leaves the table empty, so that the wheels for old glibcs, which zig
/// compiles, would run without vector instructions.
struct VectorInstructions {
  bool avx2 = false;
  bool avx512vbmi2 = false;
};

/// May be called before main(): depends on no static object.
VectorInstructions vector_instructions() noexcept;

}  // namespace tenfold::base

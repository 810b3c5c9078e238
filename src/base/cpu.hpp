#pragma once

namespace tenfold::base {

/// Which vector instructions this process may execute: what the CPU has and the operating system
/// saves on a context switch. All false on other architectures than x86-64.
///
/// Not `__builtin_cpu_supports`: it reads a table that the compiler's runtime library fills, and
/// zig's leaves it empty, so that the wheels for old glibcs ran without any of these.
struct VectorInstructions {
  bool avx2 = false;
  bool avx512vbmi2 = false;
};

/// May be called before main(): depends on no static object.
VectorInstructions vector_instructions() noexcept;

}  // namespace tenfold::base

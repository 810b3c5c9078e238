#include "base/cpu.hpp"

#ifdef TENFOLD_X86_64_KERNELS
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tenfold::base {

#ifdef TENFOLD_X86_64_KERNELS

namespace {

// Bits of CPUID and XCR0: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// CPUID, and volume 1, section 13.3.
constexpr unsigned kOsxsave = 1U << 27U;        // leaf 1, ECX
constexpr unsigned kAvx2 = 1U << 5U;            // leaf 7, EBX
constexpr unsigned kAvx512vbmi2 = 1U << 6U;     // leaf 7, ECX
constexpr unsigned long long kYmmState = 0x06;  // XCR0: SSE and AVX registers
constexpr unsigned long long kZmmState = 0xE6;  // XCR0: in addition mask and ZMM registers

[[gnu::target("xsave")]] unsigned long long saved_registers() noexcept {
  return static_cast<unsigned long long>(_xgetbv(0));
}

}  // namespace

VectorInstructions vector_instructions() noexcept {
  VectorInstructions found;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return found;
  const unsigned long long saved = saved_registers();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  const bool has_ymm = (saved & kYmmState) == kYmmState;
  const bool has_zmm = (saved & kZmmState) == kZmmState;
  found.avx2 = has_ymm && (ebx & kAvx2) != 0;
  found.avx512vbmi2 = has_zmm && (ecx & kAvx512vbmi2) != 0;
  return found;
}

#else

VectorInstructions vector_instructions() noexcept { return {}; }

#endif

}  // namespace tenfold::base

/* Included first in every source that zig compiles: see zig.cmake.
 *
 * zig links its own memcpy, memset and other such functions, which use SSE2 only, before those of
 * glibc. A symbol with a version is not in zig's library, so the linker takes it from glibc, which
 * selects the implementation for the processor at run time. */
#if defined(__x86_64__)
#define TENFOLD_MEMCPY_VERSION "GLIBC_2.14"
#define TENFOLD_GLIBC_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define TENFOLD_MEMCPY_VERSION "GLIBC_2.17"
#define TENFOLD_GLIBC_VERSION "GLIBC_2.17"
#else
#error "glibc_memory.h has no symbol versions for this processor"
#endif

__asm__(".symver memcpy,memcpy@" TENFOLD_MEMCPY_VERSION);
__asm__(".symver memmove,memmove@" TENFOLD_GLIBC_VERSION);
__asm__(".symver memset,memset@" TENFOLD_GLIBC_VERSION);
__asm__(".symver memcmp,memcmp@" TENFOLD_GLIBC_VERSION);
__asm__(".symver bcmp,bcmp@" TENFOLD_GLIBC_VERSION);
__asm__(".symver strlen,strlen@" TENFOLD_GLIBC_VERSION);

#undef TENFOLD_MEMCPY_VERSION
#undef TENFOLD_GLIBC_VERSION

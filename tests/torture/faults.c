/* Preloaded (LD_PRELOAD) into the program under test. Counts the calls of the C library while a
 * fault is armed. The n-th call kills the process, fails, or transfers only a part. faults.py
 * compiles and controls this library. Calls of all libraries (Python, libstdc++, Rust's standard
 * library) are counted, except those that the C library makes itself, and functions without a
 * wrapper below, such as ioctl. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
  OPENS = 1,     /* open, openat, fopen, opendir, fdopendir */
  READS = 2,     /* read, pread, readv, preadv */
  WRITES = 4,    /* write, pwrite, writev, ..., copy_file_range */
  CHANGES = 8,   /* names, sizes and permissions: rename, mkdir, unlink, truncate, fallocate, ... */
  SYNCS = 16,    /* fsync, fdatasync, msync, syncfs */
  CLOSES = 32,   /* close; not fclose or closedir */
  MEMORY = 64,   /* malloc, calloc, realloc, memalign, ...; anonymous maps */
  LOOKUPS = 128, /* stat, seek, directory entries, targets of links, maps of files */
  LOCKS = 256,   /* flock */
};
enum { NOTHING, KILL, FAIL, SHORT };

static atomic_int armed, classes, action, error_number, persists;
static atomic_long wanted, counted, fired;

/* Prints a backtrace of a crash to stderr: without memory, no debugger can be started. */
static void say_where(int signal_number) {
  armed = 0;
  void* frames[24];
  backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}
static void catch_crashes(void) {
  static char stack[1 << 16];
  static int is_done;
  if (is_done) return;
  is_done = 1;
  void* frame[1];
  backtrace(frame, 1); /* loads its library, which needs memory */
  stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
  sigaltstack(&other, NULL);
  struct sigaction catch = {.sa_handler = say_where, .sa_flags = SA_ONSTACK};
  sigaction(SIGSEGV, &catch, NULL);
  sigaction(SIGBUS, &catch, NULL);
  sigaction(SIGABRT, &catch, NULL);
}

void faults_arm(int action_, int classes_, long at, int error, int persists_) {
  catch_crashes();
  action = action_;
  classes = classes_;
  error_number = error;
  persists = persists_;
  wanted = at;
  counted = 0;
  fired = 0;
  armed = 1;
}
long faults_disarm(void) {
  armed = 0;
  return counted;
}
long faults_fired(void) { return fired; }

/* Counts the call if its class is armed, and returns its fault. 0: none; -1: the call must fail,
 * and errno is set; 1: it must transfer only a part. The action KILL does not return. */
static int fault(int class) {
  if (!armed || !(classes & class)) return 0;
  long number = atomic_fetch_add(&counted, 1) + 1;
  if (number != wanted && !(persists && number > wanted && wanted > 0)) return 0;
  switch (action) {
    case KILL:
      fired++;
      kill(getpid(), SIGKILL);
      for (;;) pause();
    case FAIL:
      fired++;
      errno = error_number;
      return -1;
    case SHORT:
      fired++;
      return 1;
  }
  return 0;
}

#define REAL(name)                                                  \
  static __typeof__(&name) real;                                    \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WRAP(class, result, failed, name, parameters, arguments) \
  result name parameters {                                       \
    REAL(name);                                                  \
    if (fault(class) < 0) return failed;                         \
    return real arguments;                                       \
  }

/* --- opens --- */
static int mode_of(int flags, va_list list) {
  /* O_TMPFILE includes the bit O_DIRECTORY. */
  int has_mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? va_arg(list, int) : 0;
}
#define WRAP_OPEN(name)                       \
  int name(const char* path, int flags, ...) { \
    REAL(name);                               \
    va_list list;                             \
    va_start(list, flags);                    \
    int mode = mode_of(flags, list);          \
    va_end(list);                             \
    if (fault(OPENS) < 0) return -1;          \
    return real(path, flags, mode);           \
  }
WRAP_OPEN(open)
WRAP_OPEN(open64)
#define WRAP_OPENAT(name)                              \
  int name(int at, const char* path, int flags, ...) { \
    REAL(name);                                        \
    va_list list;                                      \
    va_start(list, flags);                             \
    int mode = mode_of(flags, list);                   \
    va_end(list);                                      \
    if (fault(OPENS) < 0) return -1;                   \
    return real(at, path, flags, mode);                \
  }
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP(OPENS, FILE*, NULL, fopen, (const char* path, const char* mode), (path, mode))
WRAP(OPENS, FILE*, NULL, fopen64, (const char* path, const char* mode), (path, mode))
WRAP(OPENS, DIR*, NULL, opendir, (const char* path), (path))
WRAP(OPENS, DIR*, NULL, fdopendir, (int fd), (fd))

/* --- lookups and locks --- */
WRAP(LOOKUPS, int, -1, fstat, (int fd, struct stat* s), (fd, s))
WRAP(LOOKUPS, int, -1, fstat64, (int fd, struct stat64* s), (fd, s))
WRAP(LOOKUPS, int, -1, stat, (const char* p, struct stat* s), (p, s))
WRAP(LOOKUPS, int, -1, stat64, (const char* p, struct stat64* s), (p, s))
WRAP(LOOKUPS, int, -1, lstat, (const char* p, struct stat* s), (p, s))
WRAP(LOOKUPS, int, -1, lstat64, (const char* p, struct stat64* s), (p, s))
WRAP(LOOKUPS, int, -1, fstatat, (int d, const char* p, struct stat* s, int f), (d, p, s, f))
WRAP(LOOKUPS, int, -1, fstatat64, (int d, const char* p, struct stat64* s, int f), (d, p, s, f))
WRAP(LOOKUPS, int, -1, statx, (int d, const char* p, int f, unsigned m, struct statx* s), (d, p, f, m, s))
WRAP(LOOKUPS, off_t, -1, lseek, (int fd, off_t o, int w), (fd, o, w))
WRAP(LOOKUPS, off64_t, -1, lseek64, (int fd, off64_t o, int w), (fd, o, w))
WRAP(LOOKUPS, struct dirent*, NULL, readdir, (DIR* d), (d))
WRAP(LOOKUPS, struct dirent64*, NULL, readdir64, (DIR* d), (d))
WRAP(LOOKUPS, ssize_t, -1, readlink, (const char* p, char* b, size_t n), (p, b, n))
WRAP(LOOKUPS, ssize_t, -1, readlinkat, (int d, const char* p, char* b, size_t n), (d, p, b, n))
WRAP(LOCKS, int, -1, flock, (int fd, int operation), (fd, operation))

/* --- reads and writes --- */
/* At least one byte, because a read of 0 bytes means the end of the file. */
static size_t part_of(size_t size) { return size > 1 ? size / 2 : size; }
#define WRAP_TRANSFER(class, name, buffer, more, arguments)  \
  ssize_t name(int fd, buffer data, size_t size more) {      \
    REAL(name);                                              \
    int what = fault(class);                                 \
    if (what < 0) return -1;                                 \
    if (what > 0) size = part_of(size);                      \
    return real arguments;                                   \
  }
#define COMMA ,
WRAP_TRANSFER(READS, read, void*, , (fd, data, size))
WRAP_TRANSFER(READS, pread, void*, COMMA off_t o, (fd, data, size, o))
WRAP_TRANSFER(READS, pread64, void*, COMMA off64_t o, (fd, data, size, o))
WRAP_TRANSFER(WRITES, write, const void*, , (fd, data, size))
WRAP_TRANSFER(WRITES, pwrite, const void*, COMMA off_t o, (fd, data, size, o))
WRAP_TRANSFER(WRITES, pwrite64, const void*, COMMA off64_t o, (fd, data, size, o))

/* The part of a transfer of vectors is half of the first vector. */
#define WRAP_VECTORS(class, name, more, arguments)                        \
  ssize_t name(int fd, const struct iovec* vectors, int count more) {     \
    REAL(name);                                                           \
    int what = fault(class);                                              \
    if (what < 0) return -1;                                              \
    struct iovec part;                                                    \
    if (what > 0 && count > 0) {                                          \
      part = vectors[0];                                                  \
      part.iov_len = part_of(part.iov_len);                               \
      vectors = &part, count = 1;                                         \
    }                                                                     \
    return real arguments;                                                \
  }
WRAP_VECTORS(READS, readv, , (fd, vectors, count))
WRAP_VECTORS(READS, preadv, COMMA off_t o, (fd, vectors, count, o))
WRAP_VECTORS(READS, preadv64, COMMA off64_t o, (fd, vectors, count, o))
WRAP_VECTORS(WRITES, writev, , (fd, vectors, count))
WRAP_VECTORS(WRITES, pwritev, COMMA off_t o, (fd, vectors, count, o))
WRAP_VECTORS(WRITES, pwritev64, COMMA off64_t o, (fd, vectors, count, o))

ssize_t copy_file_range(int in, off64_t* io, int out, off64_t* oo, size_t size, unsigned flags) {
  REAL(copy_file_range);
  int what = fault(WRITES);
  if (what < 0) return -1;
  return real(in, io, out, oo, what > 0 ? part_of(size) : size, flags);
}
ssize_t sendfile(int out, int in, off_t* offset, size_t size) {
  REAL(sendfile);
  int what = fault(WRITES);
  if (what < 0) return -1;
  return real(out, in, offset, what > 0 ? part_of(size) : size);
}
ssize_t sendfile64(int out, int in, off64_t* offset, size_t size) {
  REAL(sendfile64);
  int what = fault(WRITES);
  if (what < 0) return -1;
  return real(out, in, offset, what > 0 ? part_of(size) : size);
}

/* --- changes --- */
WRAP(CHANGES, int, -1, mkdir, (const char* p, mode_t m), (p, m))
WRAP(CHANGES, int, -1, mkdirat, (int d, const char* p, mode_t m), (d, p, m))
WRAP(CHANGES, int, -1, rmdir, (const char* p), (p))
WRAP(CHANGES, int, -1, unlink, (const char* p), (p))
WRAP(CHANGES, int, -1, unlinkat, (int d, const char* p, int f), (d, p, f))
WRAP(CHANGES, int, -1, remove, (const char* p), (p))
WRAP(CHANGES, int, -1, rename, (const char* a, const char* b), (a, b))
WRAP(CHANGES, int, -1, renameat, (int d, const char* a, int e, const char* b), (d, a, e, b))
WRAP(CHANGES, int, -1, renameat2, (int d, const char* a, int e, const char* b, unsigned f), (d, a, e, b, f))
WRAP(CHANGES, int, -1, link, (const char* a, const char* b), (a, b))
WRAP(CHANGES, int, -1, linkat, (int d, const char* a, int e, const char* b, int f), (d, a, e, b, f))
WRAP(CHANGES, int, -1, symlink, (const char* a, const char* b), (a, b))
WRAP(CHANGES, int, -1, symlinkat, (const char* a, int d, const char* b), (a, d, b))
WRAP(CHANGES, int, -1, truncate, (const char* p, off_t s), (p, s))
WRAP(CHANGES, int, -1, truncate64, (const char* p, off64_t s), (p, s))
WRAP(CHANGES, int, -1, ftruncate, (int fd, off_t s), (fd, s))
WRAP(CHANGES, int, -1, ftruncate64, (int fd, off64_t s), (fd, s))
WRAP(CHANGES, int, -1, fallocate, (int fd, int m, off_t o, off_t s), (fd, m, o, s))
WRAP(CHANGES, int, -1, fallocate64, (int fd, int m, off64_t o, off64_t s), (fd, m, o, s))
WRAP(CHANGES, int, error_number, posix_fallocate, (int fd, off_t o, off_t s), (fd, o, s))
WRAP(CHANGES, int, error_number, posix_fallocate64, (int fd, off64_t o, off64_t s), (fd, o, s))
WRAP(CHANGES, int, -1, chmod, (const char* p, mode_t m), (p, m))
WRAP(CHANGES, int, -1, fchmod, (int fd, mode_t m), (fd, m))
WRAP(CHANGES, int, -1, fchmodat, (int d, const char* p, mode_t m, int f), (d, p, m, f))
WRAP(CHANGES, int, -1, chown, (const char* p, uid_t u, gid_t g), (p, u, g))
WRAP(CHANGES, int, -1, fchown, (int fd, uid_t u, gid_t g), (fd, u, g))
WRAP(CHANGES, int, -1, fchownat, (int d, const char* p, uid_t u, gid_t g, int f), (d, p, u, g, f))
WRAP(CHANGES, int, -1, utimensat, (int d, const char* p, const struct timespec t[2], int f), (d, p, t, f))
WRAP(CHANGES, int, -1, futimens, (int fd, const struct timespec t[2]), (fd, t))

/* --- syncs --- */
WRAP(SYNCS, int, -1, fsync, (int fd), (fd))
WRAP(SYNCS, int, -1, fdatasync, (int fd), (fd))
WRAP(SYNCS, int, -1, syncfs, (int fd), (fd))
WRAP(SYNCS, int, -1, msync, (void* p, size_t n, int f), (p, n, f))

/* A close that fails closes the descriptor nevertheless, as Linux does. */
int close(int fd) {
  REAL(close);
  int what = fault(CLOSES);
  int error = errno;
  int result = real(fd);
  if (what < 0) {
    errno = error;
    return -1;
  }
  return result;
}

/* --- the clock --- */
static atomic_long clock_offset; /* seconds */
void faults_move_clock(long seconds) { clock_offset = seconds; }
int clock_gettime(clockid_t clock, struct timespec* time) {
  REAL(clock_gettime);
  int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += clock_offset;
  return result;
}

/* --- memory --- */
static int is_memory(int flags) { return (flags & MAP_ANONYMOUS) != 0; }
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  REAL(mmap);
  if (fault(is_memory(flags) ? MEMORY : LOOKUPS) < 0) return MAP_FAILED;
  return real(at, size, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
  REAL(mmap64);
  if (fault(is_memory(flags) ? MEMORY : LOOKUPS) < 0) return MAP_FAILED;
  return real(at, size, protection, flags, fd, offset);
}

/* dlsym allocates memory, so the internal names of glibc are called instead. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
static int no_memory(void) {
  if (!armed || !(classes & MEMORY)) return 0;
  return fault(MEMORY) < 0;
}
void* malloc(size_t size) { return no_memory() ? NULL : __libc_malloc(size); }
void* calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void* realloc(void* p, size_t size) { return no_memory() ? NULL : __libc_realloc(p, size); }
void* memalign(size_t to, size_t size) { return no_memory() ? NULL : __libc_memalign(to, size); }
void* aligned_alloc(size_t to, size_t size) { return no_memory() ? NULL : __libc_memalign(to, size); }
int posix_memalign(void** result, size_t to, size_t size) {
  if (no_memory()) return ENOMEM;
  *result = __libc_memalign(to, size);
  return *result ? 0 : ENOMEM;
}

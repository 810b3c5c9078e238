// The limits of the machine for the benchmarks: system calls and memcpy that move the same bytes as
// the library. Python calls these functions through ctypes and times them.

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

bool write_whole(int fd, const char* bytes, std::size_t size, std::size_t offset) {
  while (size > 0) {
    const ssize_t n = pwrite(fd, bytes, std::min(size, kPieceBytes), static_cast<off_t>(offset));
    if (n <= 0) return false;
    bytes += n;
    offset += static_cast<std::size_t>(n);
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

template <class Work>
bool on_threads(int num_threads, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> good{true};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count && good; i = next++) {
      if (!work(i)) good = false;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) threads.emplace_back(loop);
  loop();
  for (std::thread& thread : threads) thread.join();
  return good;
}

/// Returns the i-th pseudo-random number of splitmix64, which needs no state.
std::uint64_t place_of(std::size_t i) {
  std::uint64_t place = (i + 1) * 0x9E3779B97F4A7C15;
  place = (place ^ (place >> 30U)) * 0xBF58476D1CE4E5B9;
  place = (place ^ (place >> 27U)) * 0x94D049BB133111EB;
  return place ^ (place >> 31U);
}

constexpr std::size_t kPageBytes = 4096;

/// The number of whole pages of the file.
std::size_t num_pages(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);
  return size < 0 ? 0 : static_cast<std::size_t>(size) / kPageBytes;
}

}  // namespace

extern "C" {

// Writes each block to a new file `folder`/<i>; the folder must exist. Returns 0 on success.
int raw_write_files(const char* folder, std::size_t count, const char* const* blocks,
                    const std::size_t* sizes, int sync, int num_threads) {
  const std::string prefix = std::string(folder) + "/";
  const bool good = on_threads(num_threads, count, [&](std::size_t i) {
    const int fd = open((prefix + std::to_string(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool written = write_whole(fd, blocks[i], sizes[i], 0);
    if (sync != 0) written = written && fsync(fd) == 0;
    return close(fd) == 0 && written;
  });
  if (good && sync != 0) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) return 1;
    close(fd);
  }
  return good ? 0 : 1;
}

// Writes all blocks consecutively to one new file. Returns 0 on success.
int raw_write_one(const char* path, std::size_t count, const char* const* blocks,
                  const std::size_t* sizes, int sync) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return 1;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!write_whole(fd, blocks[i], sizes[i], offset)) return 1;
    offset += sizes[i];
  }
  if (sync != 0 && fsync(fd) != 0) return 1;
  return close(fd);
}

// Returns the sum of all 64-bit words. Each of `num_threads` threads reads one part of them.
std::uint64_t raw_sum(const std::uint64_t* words, std::size_t count, int num_threads) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_threads));
  on_threads(num_threads, sums.size(), [&](std::size_t t) {
    const std::size_t begin = count * t / sums.size();
    const std::size_t end = count * (t + 1) / sums.size();
    std::uint64_t a = 0, b = 0, c = 0, d = 0;
    std::size_t i = begin;
    for (; i + 4 <= end; i += 4) {
      a += words[i];
      b += words[i + 1];
      c += words[i + 2];
      d += words[i + 3];
    }
    for (; i < end; ++i) a += words[i];
    sums[t] = a + b + c + d;
    return true;
  });
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

// Copies each block with memcpy.
void raw_copy(std::size_t count, char* const* to, const char* const* from, const std::size_t* sizes,
              int num_threads) {
  on_threads(num_threads, count, [&](std::size_t i) {
    std::memcpy(to[i], from[i], sizes[i]);
    return true;
  });
}

// Reads the tensors of a safetensors file, which are in the order of `to`, with one pread each.
// Returns 0 on success.
int raw_read_safetensors(const char* path, std::size_t count, char* const* to,
                         const std::size_t* sizes, int num_threads) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  std::uint64_t header_bytes = 0;
  if (fd < 0 || pread(fd, &header_bytes, sizeof header_bytes, 0) != sizeof header_bytes) return 1;
  std::vector<std::uint64_t> offsets = {sizeof header_bytes + header_bytes};
  for (std::size_t i = 0; i < count; ++i) offsets.push_back(offsets.back() + sizes[i]);
  const bool good = on_threads(num_threads, count, [&](std::size_t i) {
    return pread(fd, to[i], sizes[i], static_cast<off_t>(offsets[i])) ==
           static_cast<ssize_t>(sizes[i]);
  });
  close(fd);
  return good ? 0 : 1;
}

// Reads a whole file with large preads, as `dd` would. Returns the number of bytes read.
std::uint64_t raw_read_file(const char* path, int num_threads) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat status{};
  fstat(fd, &status);
  const std::size_t size = static_cast<std::size_t>(status.st_size);
  const std::size_t count = (size + kPieceBytes - 1) / kPieceBytes;
  std::atomic<std::uint64_t> total{0};
  std::vector<std::vector<char>> buffers(static_cast<std::size_t>(num_threads));
  std::atomic<std::size_t> next{0};
  on_threads(num_threads, buffers.size(), [&](std::size_t t) {
    buffers[t].resize(kPieceBytes);
    for (std::size_t i = next++; i < count; i = next++) {
      const ssize_t n =
          pread(fd, buffers[t].data(), kPieceBytes, static_cast<off_t>(i * kPieceBytes));
      if (n > 0) total += static_cast<std::uint64_t>(n);
    }
    return true;
  });
  close(fd);
  return total;
}

// Maps `count` files `folder`/<i> with open, fstat, mmap and close, reads the first byte of each if
// `touch` is not 0, and unmaps them: the lower bound for a format with one file per leaf. Returns
// the total size of the files, or 0 on failure.
std::uint64_t raw_map_files(const char* folder, std::size_t count, int touch) {
  const std::string prefix = std::string(folder) + "/";
  std::vector<std::pair<void*, std::size_t>> maps;
  std::uint64_t total = 0;
  bool good = true;
  for (std::size_t i = 0; i < count && good; ++i) {
    const int fd = open((prefix + std::to_string(i)).c_str(), O_RDWR | O_CLOEXEC);
    struct stat status{};
    if (fd < 0 || fstat(fd, &status) != 0) return 0;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    good = map != MAP_FAILED;
    if (good) maps.emplace_back(map, size);
    total += size;
  }
  for (const auto& [map, size] : maps) {
    if (touch != 0) static_cast<void>(*static_cast<volatile char*>(map));
  }
  for (const auto& [map, size] : maps) munmap(map, size);
  return good ? total : 0;
}

// Reads `count` random pages of 4 KiB with O_DIRECT. The number of threads is the number of
// outstanding requests. Returns the number of pages read.
std::uint64_t raw_read_pages(const char* path, std::size_t count, int num_threads) {
  const int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return 0;
  const std::size_t pages = num_pages(fd);
  if (pages == 0) count = 0;
  std::atomic<std::uint64_t> num_read{0};
  on_threads(num_threads, count, [&](std::size_t i) {
    alignas(kPageBytes) thread_local char page[kPageBytes];
    const auto offset = static_cast<off_t>(place_of(i) % pages * kPageBytes);
    if (pread(fd, page, kPageBytes, offset) != static_cast<ssize_t>(kPageBytes)) return false;
    ++num_read;
    return true;
  });
  close(fd);
  return num_read;
}

// Reads the blocks with the given indices through the page cache, without readahead. The number of
// threads is the number of outstanding requests. Returns the number of blocks read.
std::uint64_t raw_read_blocks(const char* path, std::size_t count, const std::int64_t* blocks,
                              std::size_t block_bytes, int num_threads) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  std::atomic<std::uint64_t> num_read{0};
  on_threads(num_threads, count, [&](std::size_t i) {
    thread_local std::vector<char> block;
    block.resize(block_bytes);
    const auto offset = static_cast<off_t>(static_cast<std::size_t>(blocks[i]) * block_bytes);
    if (pread(fd, block.data(), block_bytes, offset) != static_cast<ssize_t>(block_bytes)) {
      return false;
    }
    ++num_read;
    return true;
  });
  close(fd);
  return num_read;
}

// Like raw_read_pages, but uses io_uring with `depth` outstanding requests. Returns 0 if the kernel
// does not support or allow io_uring.
std::uint64_t raw_read_pages_uring(const char* path, std::size_t count, unsigned depth) {
  const int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return 0;
  const std::size_t pages = num_pages(fd);
  if (pages == 0) count = 0;
  io_uring_params about{};
  const int ring = static_cast<int>(syscall(__NR_io_uring_setup, depth, &about));
  if (ring < 0) {
    close(fd);
    return 0;
  }
  const auto map = [&](std::size_t size, std::uint64_t offset) {
    return static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                   ring, static_cast<off_t>(offset)));
  };
  const std::size_t sq_bytes = about.sq_off.array + about.sq_entries * sizeof(unsigned);
  const std::size_t cq_bytes = about.cq_off.cqes + about.cq_entries * sizeof(io_uring_cqe);
  const std::size_t entry_bytes = about.sq_entries * sizeof(io_uring_sqe);
  char* sq = map(sq_bytes, IORING_OFF_SQ_RING);
  char* cq = map(cq_bytes, IORING_OFF_CQ_RING);
  char* sqes = map(entry_bytes, IORING_OFF_SQES);
  if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED) {
    close(ring);
    close(fd);
    return 0;
  }
  auto* entries = reinterpret_cast<io_uring_sqe*>(sqes);
  const auto number = [](char* base, std::uint32_t offset) -> unsigned& {
    return *reinterpret_cast<unsigned*>(base + offset);
  };
  auto* places = reinterpret_cast<unsigned*>(sq + about.sq_off.array);
  auto* done = reinterpret_cast<io_uring_cqe*>(cq + about.cq_off.cqes);
  const unsigned sq_mask = number(sq, about.sq_off.ring_mask);
  const unsigned cq_mask = number(cq, about.cq_off.ring_mask);
  auto* memory = static_cast<char*>(std::aligned_alloc(kPageBytes, depth * kPageBytes));

  std::vector<unsigned> free_slots;
  for (unsigned slot = 0; slot < depth; ++slot) free_slots.push_back(slot);
  std::uint64_t num_read = 0;
  std::size_t begun = 0;
  std::size_t ended = 0;
  unsigned queued = 0;  // begun, but not submitted yet
  bool good = true;
  while (good && ended < count) {
    unsigned tail = number(sq, about.sq_off.tail);
    for (; begun < count && !free_slots.empty(); ++begun, ++queued, ++tail) {
      const unsigned slot = free_slots.back();
      free_slots.pop_back();
      io_uring_sqe& entry = entries[tail & sq_mask];
      std::memset(&entry, 0, sizeof(entry));
      entry.opcode = IORING_OP_READ;
      entry.fd = fd;
      entry.addr = reinterpret_cast<std::uint64_t>(memory + slot * kPageBytes);
      entry.len = kPageBytes;
      entry.off = place_of(begun) % pages * kPageBytes;
      entry.user_data = slot;
      places[tail & sq_mask] = tail & sq_mask;
    }
    std::atomic_ref(number(sq, about.sq_off.tail)).store(tail, std::memory_order_release);
    const long submitted =
        syscall(__NR_io_uring_enter, ring, queued, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    good = submitted >= 0 || errno == EINTR;
    if (submitted > 0) queued -= static_cast<unsigned>(submitted);
    unsigned head = number(cq, about.cq_off.head);
    const unsigned end =
        std::atomic_ref(number(cq, about.cq_off.tail)).load(std::memory_order_acquire);
    for (; head != end; ++head, ++ended) {
      const io_uring_cqe& one = done[head & cq_mask];
      if (one.res == static_cast<int>(kPageBytes)) ++num_read;
      free_slots.push_back(static_cast<unsigned>(one.user_data));
    }
    std::atomic_ref(number(cq, about.cq_off.head)).store(head, std::memory_order_release);
  }
  close(ring);
  munmap(sq, sq_bytes);
  munmap(cq, cq_bytes);
  munmap(sqes, entry_bytes);
  // After an error, reads may be in flight. close() does not wait for them, so `memory` is leaked.
  if (ended + queued == begun) std::free(memory);
  close(fd);
  return num_read;
}

// Copies row rows[i] of each column to row i of the output: the least that any loader must do.
void raw_gather_rows(std::size_t num_rows, const std::int64_t* rows, std::size_t num_columns,
                     const char* const* from, const std::size_t* row_bytes, char* const* to) {
  constexpr std::size_t kAhead = 16;
  for (std::size_t c = 0; c < num_columns; ++c) {
    const std::size_t size = row_bytes[c];
    const auto row = [&](std::size_t i) {
      return from[c] + static_cast<std::size_t>(rows[std::min(i, num_rows - 1)]) * size;
    };
    for (std::size_t i = 0; i < num_rows; ++i) {
      for (std::size_t at = 0; at < size; at += 64) __builtin_prefetch(row(i + kAhead) + at, 0, 2);
      std::memcpy(to[c] + i * size, row(i), size);
    }
  }
}

}  // extern "C"

#include "dataset/copy_cache_lines.hpp"

#include <cstring>

#include "base/cpu.hpp"
#include "base/prefetch.hpp"

#ifdef TENFOLD_X86_64_KERNELS
#include <immintrin.h>
#endif

namespace tenfold {
namespace {

template <int kInto>
void copy_plain(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                std::byte* out) noexcept {
  const std::size_t last = size_bytes - kCacheLineBytes;
  for (std::size_t at = 0; at < last; at += kCacheLineBytes) {
    base::prefetch<kInto>(coming + at);
    std::memcpy(out + at, from + at, kCacheLineBytes);
  }
  base::prefetch<kInto>(coming + size_bytes - 1);
  std::memcpy(out + last, from + last, kCacheLineBytes);
}

void copy_two_plain(TwoSources coming, TwoSources from, std::size_t size_bytes, std::byte* out,
                    std::size_t second_offset_bytes) noexcept {
  const auto copy_line = [&](std::size_t at) {
    std::memcpy(out + at, from.first + at, kCacheLineBytes);
    std::memcpy(out + second_offset_bytes + at, from.second + at, kCacheLineBytes);
  };
  const std::size_t last = size_bytes - kCacheLineBytes;
  for (std::size_t at = 0; at < last; at += kCacheLineBytes) {
    base::prefetch(coming.first + at);
    base::prefetch(coming.second + at);
    copy_line(at);
  }
  base::prefetch(coming.first + size_bytes - 1);
  base::prefetch(coming.second + size_bytes - 1);
  copy_line(last);
}

#ifdef TENFOLD_X86_64_KERNELS
void stream_two_sse2(TwoSources coming, TwoSources from, std::size_t size_bytes, std::byte* out,
                     std::size_t second_offset_bytes) noexcept {
  const auto stream_line = [](std::byte* into, const std::byte* line) {
    for (std::size_t at = 0; at < kCacheLineBytes; at += sizeof(__m128i)) {
      const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + at));
      _mm_stream_si128(reinterpret_cast<__m128i*>(into + at), word);
    }
  };
  for (std::size_t at = 0; at < size_bytes; at += kCacheLineBytes) {
    base::prefetch(coming.first + at);
    base::prefetch(coming.second + at);
    stream_line(out + at, from.first + at);
    stream_line(out + second_offset_bytes + at, from.second + at);
  }
}

[[gnu::target("avx512f")]] void copy_two_avx512(TwoSources coming, TwoSources from,
                                                std::size_t size_bytes, std::byte* out,
                                                std::size_t second_offset_bytes) noexcept {
  const std::size_t last = size_bytes - kCacheLineBytes;
  for (std::size_t at = 0; at < last; at += kCacheLineBytes) {
    base::prefetch(coming.first + at);
    base::prefetch(coming.second + at);
    _mm512_storeu_si512(out + at, _mm512_loadu_si512(from.first + at));
    _mm512_storeu_si512(out + second_offset_bytes + at, _mm512_loadu_si512(from.second + at));
  }
  base::prefetch(coming.first + size_bytes - 1);
  base::prefetch(coming.second + size_bytes - 1);
  _mm512_storeu_si512(out + last, _mm512_loadu_si512(from.first + last));
  _mm512_storeu_si512(out + second_offset_bytes + last, _mm512_loadu_si512(from.second + last));
}

[[gnu::target("avx512f")]] void stream_two_avx512(TwoSources coming, TwoSources from,
                                                  std::size_t size_bytes, std::byte* out,
                                                  std::size_t second_offset_bytes) noexcept {
  for (std::size_t at = 0; at < size_bytes; at += kCacheLineBytes) {
    base::prefetch(coming.first + at);
    base::prefetch(coming.second + at);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + at), _mm512_loadu_si512(from.first + at));
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + second_offset_bytes + at),
                        _mm512_loadu_si512(from.second + at));
  }
}

/// Copies each cache line with one load and one store, which is 10 to 20 percent faster than AVX2.
template <int kInto>
[[gnu::target("avx512f")]] void copy_avx512(const std::byte* coming, const std::byte* from,
                                            std::size_t size_bytes, std::byte* out) noexcept {
  const std::size_t last = size_bytes - kCacheLineBytes;
  for (std::size_t at = 0; at < last; at += kCacheLineBytes) {
    base::prefetch<kInto>(coming + at);
    _mm512_storeu_si512(out + at, _mm512_loadu_si512(from + at));
  }
  base::prefetch<kInto>(coming + size_bytes - 1);
  _mm512_storeu_si512(out + last, _mm512_loadu_si512(from + last));
}
#endif

CacheLineCopiers choose_line_copiers() noexcept {
#ifdef TENFOLD_X86_64_KERNELS
  // Use AVX-512 only on processors with VBMI2: older ones reduce their clock frequency for
  // 512-bit vectors.
  if (base::vector_instructions().avx512vbmi2) {
    return {copy_avx512<base::kL2>, copy_avx512<base::kL1>, copy_two_avx512, stream_two_avx512};
  }
#endif
  return plain_line_copiers();
}

}  // namespace

CacheLineCopiers plain_line_copiers() noexcept {
#ifdef TENFOLD_X86_64_KERNELS
  return {copy_plain<base::kL2>, copy_plain<base::kL1>, copy_two_plain, stream_two_sse2};
#else
  return {copy_plain<base::kL2>, copy_plain<base::kL1>, copy_two_plain, copy_two_plain};
#endif
}

void end_streaming() noexcept {
#ifdef TENFOLD_X86_64_KERNELS
  _mm_sfence();
#endif
}

namespace {

/// Initialised at load time: if a process forks while another thread initialises a static local
/// variable, the child hangs when it uses the variable.
const CacheLineCopiers kLineCopiers = choose_line_copiers();

}  // namespace

const CacheLineCopiers& cache_line_copiers() noexcept { return kLineCopiers; }

}  // namespace tenfold

#include "base/hash/checksum.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <random>
#include <utility>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include "base/cpu.hpp"
#include "base/hash/xxh3_kernel.hpp"

namespace tenfold::base {
namespace {

const Xxh3Kernel& choose_kernel() noexcept {
#ifdef TENFOLD_X86_64_KERNELS
  if (vector_instructions().avx2) return kXxh3Avx2;
#endif
  return kXxh3Baseline;
}

/// Null until the first checksum is computed, which may happen before main(). Not a function-local
/// static: if another thread forked during its initialisation, the child could hang.
std::atomic<const Xxh3Kernel*> chosen_kernel{nullptr};

const Xxh3Kernel& kernel() noexcept {
  const Xxh3Kernel* chosen = chosen_kernel.load(std::memory_order_relaxed);
  if (chosen == nullptr) {
    chosen = &choose_kernel();
    chosen_kernel.store(chosen, std::memory_order_relaxed);
  }
  return *chosen;
}

}  // namespace

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept {
  return kernel().hash(bytes.data(), bytes.size());
}

std::uint64_t xxh3_seeded(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t hash_seed() noexcept {
  static std::atomic<std::uint64_t> seed{0};
  if (const std::uint64_t known = seed.load(std::memory_order_relaxed)) return known;
  std::uint64_t made = reinterpret_cast<std::uintptr_t>(&made);
  try {
    std::random_device device;
    made = std::uint64_t{device()} << 32U | device();
  } catch (const std::exception&) {
    // No random numbers are available: use a stack address, which the system randomises.
  }
  std::uint64_t first = 0;
  made |= 1U;
  return seed.compare_exchange_strong(first, made, std::memory_order_relaxed) ? made : first;
}

struct Xxh3Stream::State {
  XXH3_state_t xxh;  // XXH3_state_t is declared with the alignment of the widest vectors, which
                     // `new` honours
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) { reset(); }
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::reset() noexcept { XXH3_64bits_reset(&state_->xxh); }

void Xxh3Stream::update(std::span<const std::byte> bytes) noexcept {
  // An empty span may have a null data pointer, which xxHash 0.8.0 reports as an error.
  if (!bytes.empty()) kernel().update(&state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t Xxh3Stream::digest() const noexcept { return kernel().digest(&state_->xxh); }

std::string hex16(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

void BlockSums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t room = kChecksumBlockBytes - size_bytes_ % kChecksumBlockBytes;
    const auto some =
        bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size())));
    last_.update(some);
    size_bytes_ += some.size();
    bytes = bytes.subspan(some.size());
    if (some.size() < room) return;
    whole_.push_back(last_.digest());
    last_.reset();
  }
}

std::vector<std::uint64_t> BlockSums::checksums() const {
  std::vector<std::uint64_t> all = whole_;
  if (size_bytes_ % kChecksumBlockBytes != 0) all.push_back(last_.digest());
  return all;
}

std::uint64_t BlockSums::drop_whole_blocks() noexcept {
  const std::uint64_t dropped = size_bytes_ - size_bytes_ % kChecksumBlockBytes;
  whole_.clear();
  size_bytes_ -= dropped;
  return dropped;
}

}  // namespace tenfold::base

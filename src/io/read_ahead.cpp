#include "io/read_ahead.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "os/memory/advice.hpp"
#include "os/memory/allocation.hpp"
#include "os/thread/background.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
/// The number of threads if the first piece is cached. They mostly map cached pages, which is
/// CPU-bound.
constexpr int kNumPopulating = 2;
/// The number of threads if the first piece is not cached. The prefetch requests of one thread keep
/// the device busy, and are in the order of the leaves.
constexpr int kNumPrefetching = 1;
constexpr std::uint64_t kMinReadAheadBytes = std::uint64_t{16} << 20;

}  // namespace

bool ReadAhead::is_worthwhile(std::uint64_t total_bytes, Mode mode) {
  return mode != Mode::write_through && total_bytes >= kMinReadAheadBytes &&
         total_bytes <= os::available_memory_bytes() / 2;
}

void ReadAhead::add(const Tensor& tensor) {
  // Prefetch the whole buffer of a strided tensor.
  const std::span<const std::byte> bytes =
      tensor.is_contiguous()
          ? tensor.buffer().bytes().subspan(static_cast<std::size_t>(tensor.offset_bytes()),
                                            static_cast<std::size_t>(tensor.nbytes()))
          : tensor.buffer().bytes();
  if (bytes.empty()) return;
  for (std::size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
    const std::size_t length = std::min<std::size_t>(kPieceBytes, bytes.size() - offset);
    pieces_.push_back({owners_.size(), bytes.subspan(offset, length)});
  }
  owners_.push_back(tensor.buffer().owner());
}

void ReadAhead::start() && {
  const std::size_t count = pieces_.size();
  if (count == 0) return;
  const auto ahead = std::make_shared<const ReadAhead>(std::move(*this));
  const bool is_cached = os::is_resident(ahead->pieces_.front().bytes);
  os::run_in_background(count, is_cached ? kNumPopulating : kNumPrefetching,
                        [ahead](std::size_t i) {
                          const Piece& piece = ahead->pieces_[i];
                          // Keeps the pages mapped during this iteration.
                          const auto owner = ahead->owners_[piece.owner].lock();
                          if (!owner) return;
                          // Populate only cached pages. For missing pages, populate() would send
                          // its own requests and wait for them, interleaved with the requests for
                          // later pages.
                          if (os::is_resident(piece.bytes)) {
                            os::populate(piece.bytes);
                          } else {
                            os::will_need(piece.bytes);
                          }
                        });
}

}  // namespace tenfold

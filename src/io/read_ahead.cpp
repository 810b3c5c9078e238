#include "io/read_ahead.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "os/background.hpp"
#include "os/mapping.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
/// Each has a piece under way, and enters pages into the map while the other waits.
constexpr int kNumThreads = 2;
constexpr std::uint64_t kWorthwhileBytes = std::uint64_t{16} << 20;

}  // namespace

bool ReadAhead::is_worthwhile(std::uint64_t total_bytes, Mode mode) {
  return mode != Mode::write_through && total_bytes >= kWorthwhileBytes &&
         total_bytes <= os::available_memory_bytes() / 2;
}

void ReadAhead::add(const Tensor& tensor) {
  const std::span<std::byte> bytes = tensor.buffer().bytes();
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
  os::run_in_background(count, kNumThreads, [ahead](std::size_t i) {
    const Piece& piece = ahead->pieces_[i];
    // Keeps the pages mapped for the moment.
    const auto owner = ahead->owners_[piece.owner].lock();
    if (!owner) return;
    // Asked for as one: faults alone would ask for as little as the device's read_ahead_kb.
    os::prefetch(piece.bytes);
    os::populate(piece.bytes);
  });
}

}  // namespace tenfold

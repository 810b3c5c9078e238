#include "io/read_ahead.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "os/background.hpp"
#include "os/mapping.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
/// Two keep a fast disk busy, the third covers for the time that pages are entered into the map.
constexpr int kNumThreads = 3;
constexpr std::uint64_t kWorthwhileBytes = std::uint64_t{16} << 20;

}  // namespace

bool ReadAhead::is_worthwhile(std::uint64_t total_bytes, Mode mode) {
  return mode != Mode::write_through && total_bytes >= kWorthwhileBytes &&
         total_bytes <= os::available_memory_bytes() / 2;
}

void ReadAhead::add(const Leaf& leaf, const Tensor& tensor) {
  const std::span<std::byte> bytes = tensor.buffer().bytes();
  if (bytes.empty()) return;
  for (std::size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
    const std::size_t length = std::min<std::size_t>(kPieceBytes, bytes.size() - offset);
    pieces_.push_back({leaves_.size(), offset, bytes.subspan(offset, length)});
  }
  leaves_.push_back(leaf);
  owners_.push_back(tensor.buffer().owner());
}

void ReadAhead::start() && {
  const std::size_t count = pieces_.size();
  if (count == 0) return;
  const auto ahead = std::make_shared<const ReadAhead>(std::move(*this));
  os::run_in_background(count, kNumThreads, [ahead](std::size_t i) {
    const Piece& piece = ahead->pieces_[i];
    // Keeps the pages mapped for the moment.
    const auto owner = ahead->owners_[piece.leaf].lock();
    if (!owner) return;
    if (!os::is_resident(piece.bytes)) {
      thread_local std::vector<std::byte> scratch;
      scratch.resize(std::max(scratch.size(), piece.bytes.size()));
      ahead->leaves_[piece.leaf].read(piece.offset_bytes,
                                      std::span(scratch).first(piece.bytes.size()));
    }
    os::populate(piece.bytes);
  });
}

}  // namespace tenfold

#include "formats/folder/compare.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/checked.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

std::size_t piece_bytes(std::uint64_t left) {
  return static_cast<std::size_t>(std::min(kPieceBytes, left));
}

}  // namespace

bool same_content(const StoredFile& a, const StoredFile& b, std::uint64_t size_bytes) {
  std::vector<std::byte> scratch(2 * piece_bytes(size_bytes));
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::size_t count = piece_bytes(size_bytes - done);
    const auto one = std::span(scratch).first(count);
    const auto two = std::span(scratch).subspan(scratch.size() / 2, count);
    if (a.read_some_at(done, one) != count || b.read_some_at(done, two) != count) return false;
    if (std::memcmp(one.data(), two.data(), count) != 0) return false;
    done += count;
  }
  return true;
}

bool same_content(const StoredFile& file, std::span<const std::byte> bytes) {
  std::vector<std::byte> scratch(piece_bytes(bytes.size()));
  for (std::uint64_t done = 0; done < bytes.size();) {
    const std::size_t count = piece_bytes(bytes.size() - done);
    const auto piece = std::span(scratch).first(count);
    if (file.read_some_at(done, piece) != count) return false;
    if (std::memcmp(piece.data(), bytes.data() + done, count) != 0) return false;
    done += count;
  }
  return true;
}

std::optional<std::uint64_t> nested_numel(const Tensor& sizes) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto components = static_cast<std::uint64_t>(sizes.shape()[0]);
  const auto dimensions = static_cast<std::size_t>(sizes.shape()[1]);
  const std::int64_t* lengths = sizes.data<std::int64_t>();
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < components; ++i) {
    std::uint64_t product = 1;
    for (std::size_t k = 0; k < dimensions; ++k) {
      const std::int64_t length = *lengths++;
      if (length < 0) return std::nullopt;
      const auto next = base::checked_mul(product, static_cast<std::uint64_t>(length));
      if (!next || *next > kMax) return std::nullopt;
      product = *next;
    }
    const auto sum = base::checked_add(total, product);
    if (!sum || *sum > kMax) return std::nullopt;
    total = *sum;
  }
  return total;
}

}  // namespace tenfold::detail::formats::folder

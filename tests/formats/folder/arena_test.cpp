#include "formats/folder/arena.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {
bool is_out_of_memory = false;
}  // namespace

void* operator new(std::size_t size, std::align_val_t alignment) {
  void* bytes = is_out_of_memory ? nullptr : std::aligned_alloc(std::size_t(alignment), size);
  if (bytes == nullptr) throw std::bad_alloc();
  return bytes;
}
void operator delete(void* bytes, std::align_val_t) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t, std::align_val_t) noexcept { std::free(bytes); }

namespace tenfold::detail::formats::folder {
namespace {

TEST(Arena, AFailedAllocationLeavesTheBlockAsItWas) {
  Arena arena;
  std::vector<Buffer> pieces = {arena.allocate(16 << 10)};  // fills the first block
  is_out_of_memory = true;
  EXPECT_THROW(arena.allocate(16 << 10), std::bad_alloc);
  is_out_of_memory = false;
  pieces.push_back(arena.allocate(64));
  // The piece is in a new block, not after the end of the full one.
  EXPECT_NE(pieces[1].data(), pieces[0].data() + pieces[0].size_bytes());
}

}  // namespace
}  // namespace tenfold::detail::formats::folder

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/error.hpp>

namespace tenfold {
namespace {

TEST(Buffer, SliceOutlivesTheBufferItCameFrom) {
  auto heap = std::make_shared<std::vector<std::byte>>(8, std::byte{7});
  std::weak_ptr<void> alive = heap;
  Buffer tail;
  {
    const Buffer whole{std::span(*heap), heap};
    heap.reset();
    tail = whole.slice(6, 2);
  }
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(tail.bytes()[0], std::byte{7});
  tail = Buffer();
  EXPECT_TRUE(alive.expired());
}

TEST(Buffer, AllocatesZeroedBytesAlignedTo64) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{100'000}}) {
    const Buffer buffer = Buffer::allocate(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    ASSERT_EQ(buffer.size_bytes(), size);
    for (const std::byte b : buffer.bytes()) ASSERT_EQ(b, std::byte{0});
    buffer.mutable_bytes().back() = std::byte{1};
  }
}

TEST(Buffer, EmptyNeedsNoMemory) { EXPECT_EQ(Buffer::allocate(0).data(), nullptr); }

TEST(Buffer, SizesThatWrapWhenAlignedAreABadAlloc) {
  EXPECT_THROW(Buffer::allocate(~std::size_t{0}), std::bad_alloc);
  EXPECT_THROW(Buffer::allocate(~std::size_t{0} - 63), std::bad_alloc);
}

TEST(Buffer, SlicesOutOfRangeAreRefused) {
  const Buffer buffer = Buffer::allocate(8);
  EXPECT_EQ(buffer.slice(8, 0).size_bytes(), 0U);
  EXPECT_THROW(buffer.slice(0, 9), Error);
  EXPECT_THROW(buffer.slice(9, 0), Error);
  EXPECT_THROW(buffer.slice(~std::size_t{0}, 2), Error);
  try {
    buffer.slice(4, 5);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "buffer: slice of 5 bytes at offset 4 does not fit: expected an end within 8 bytes");
  }
}

TEST(Buffer, SliceOfReadOnlyBytesIsReadOnly) {
  const Buffer whole = Buffer::allocate(8);
  const Buffer read_only = Buffer::read_only(whole.bytes(), whole.owner());
  EXPECT_TRUE(whole.slice(0, 4).writable());
  EXPECT_FALSE(read_only.slice(0, 4).writable());
}

TEST(Buffer, ReadOnlyBytesAreNotHandedOutForWriting) {
  const std::vector<std::byte> memory(8, std::byte{7});
  const Buffer read_only = Buffer::read_only(memory, nullptr);
  EXPECT_EQ(read_only.data(), memory.data());
  for (const auto& write :
       std::vector<std::function<void()>>{[&] { static_cast<void>(read_only.mutable_bytes()); },
                                          [&] { static_cast<void>(read_only.mutable_data()); }}) {
    try {
      write();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(), "buffer: bytes are read-only");
    }
  }
}

TEST(Buffer, AMovedFromBufferIsADefaultBuffer) {
  const std::vector<std::byte> memory(8, std::byte{7});
  Buffer first = Buffer::read_only(memory, nullptr);
  Buffer second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the state is documented
  EXPECT_EQ(first.size_bytes(), 0U);
  EXPECT_TRUE(first.writable());
  first = std::move(second);
  EXPECT_EQ(first.data(), memory.data());
  EXPECT_FALSE(first.writable());
  EXPECT_EQ(second.size_bytes(), 0U);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace tenfold

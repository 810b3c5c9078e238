#include "formats/shared/boxes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/hash/checksum.hpp"
#include "formats/shared/json_checksums.hpp"
#include "os/fs/file.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
constexpr std::int64_t kHugeLength = std::numeric_limits<std::int64_t>::max();

std::vector<std::uint64_t> run_begins(const ByteBox& box) {
  std::vector<std::uint64_t> begins;
  for (BoxRuns runs(box); !runs.done(); runs.next()) begins.push_back(runs.begin());
  return begins;
}

ByteBox box_in(const Shape& shape, const Box& box, std::uint64_t itemsize = 4) {
  const auto bytes = byte_box(shape, itemsize, box);
  EXPECT_TRUE(bytes);
  return *bytes;
}

TEST(ByteBox, MergesCompleteDimensions) {
  const ByteBox rows = box_in({4, 3, 2}, {{1, 0, 0}, {2, 3, 2}});
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(rows.begin(), 24U);
  EXPECT_EQ(rows.end(), 72U);
  EXPECT_EQ(rows.volume(), 48U);
  const ByteBox middle = box_in({4, 3, 2}, {{1, 1, 0}, {2, 2, 2}});
  EXPECT_EQ(middle, (ByteBox{{4, 24}, {1, 8}, {2, 16}}));
  EXPECT_THAT(run_begins(middle), ElementsAre(32, 56));
}

TEST(ByteBox, IsContiguousForOneIndexOfTheOuterDimensions) {
  const ByteBox row = box_in({4, 3, 8}, {{2, 1, 3}, {1, 1, 5}});
  EXPECT_TRUE(row.is_contiguous());
  EXPECT_EQ(row.begin(), ((2 * 3 + 1) * 8 + 3) * 4U);
  EXPECT_EQ(row.volume(), 20U);
}

TEST(ByteBox, IsTheOnlyElementOfAScalar) {
  EXPECT_EQ(box_in({}, {{}, {}}), (ByteBox{{4}, {0}, {4}}));
}

TEST(ByteBox, RunsAreInFileOrder) {
  EXPECT_THAT(run_begins(box_in({3, 4}, {{0, 1}, {3, 2}})), ElementsAre(4, 20, 36));
  EXPECT_THAT(run_begins(box_in({2, 2, 4}, {{0, 0, 3}, {2, 1, 1}})), ElementsAre(12, 44));
}

TEST(ByteBox, OverlapsTheRangesThatHaveItsBytes) {
  const Shape shape = {3, 4, 5};
  const std::vector<Box> boxes = {{{0, 0, 0}, {3, 4, 5}}, {{1, 0, 0}, {1, 4, 5}},
                                  {{0, 1, 0}, {3, 2, 5}}, {{0, 0, 2}, {3, 4, 1}},
                                  {{1, 2, 3}, {2, 1, 2}}, {{0, 3, 4}, {1, 1, 1}}};
  for (const Box& box : boxes) {
    const ByteBox bytes = box_in(shape, box);
    std::vector<bool> is_inside(240, false);
    for (BoxRuns runs(bytes); !runs.done(); runs.next()) {
      for (std::uint64_t i = 0; i < runs.size_bytes(); ++i) is_inside[runs.begin() + i] = true;
    }
    for (std::uint64_t begin = 0; begin <= 240; ++begin) {
      bool expected = false;
      for (std::uint64_t end = begin; end <= 240; ++end) {
        if (end > begin) expected = expected || is_inside[end - 1];
        ASSERT_EQ(overlaps(bytes, begin, end), expected) << begin << " " << end;
      }
      ASSERT_EQ(overlaps(bytes, begin, 1000), expected) << begin;
    }
  }
}

TEST(Box, ThePartInsideAPieceIsRelativeToThePiece) {
  const Box piece = {{2, 0}, {3, 4}};
  EXPECT_EQ(part_inside(piece, {{0, 1}, {4, 2}}), (Box{{0, 1}, {2, 2}}));
  EXPECT_EQ(part_inside(piece, {{3, 0}, {9, 4}}), (Box{{1, 0}, {2, 4}}));
  EXPECT_EQ(part_inside(piece, {{0, 0}, {2, 4}}), std::nullopt);
  EXPECT_EQ(part_inside(piece, {{5, 0}, {1, 4}}), std::nullopt);
  EXPECT_EQ(part_inside({{}, {}}, {{}, {}}), (Box{{}, {}}));
}

TEST(ByteBox, IsEmptyForInvalidBoxes) {
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{0, 0}, {1, 1}}));               // other number of dimensions
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{3}, {2}}));                     // exceeds the shape
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{-1}, {2}}));                    // negative offset
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{0}, {-1}}));                    // negative size
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{1}, {kHugeLength}}));           // overflows
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{kHugeLength}, {1}}));           // out of range
  EXPECT_FALSE(byte_box(Shape{4}, 4, {{0}, {0}}));                     // empty
  EXPECT_FALSE(byte_box(Shape{kHugeLength, 2}, 4, {{0, 0}, {1, 1}}));  // beyond 63 bits
  EXPECT_FALSE(byte_box({kHuge, 2}, {0, 0}, {1, 1}));
  EXPECT_FALSE(byte_box(std::vector<std::uint64_t>{}, {}, {}));
}

TEST(SplitBox, SplitsAtTheSameRowsForEveryBox) {
  // A row has 1 MiB and a block 16 MiB, so boxes are split every 16 rows.
  const Shape shape = {40, 1 << 18};
  const std::vector<Box> left = split_box(shape, 4, {{0, 0}, {40, 100}});
  const std::vector<Box> right = split_box(shape, 4, {{5, 100}, {35, (1 << 18) - 100}});
  ASSERT_THAT(left, SizeIs(3));
  ASSERT_THAT(right, SizeIs(3));
  EXPECT_EQ(left[1], (Box{{16, 0}, {16, 100}}));
  EXPECT_EQ(right[0], (Box{{5, 100}, {11, (1 << 18) - 100}}));
  EXPECT_EQ(right[1].offsets[0], 16);
  EXPECT_EQ(right[2].offsets[0], 32);
}

TEST(SplitBox, SplitsRowsThatAreLargerThanABlock) {
  const Shape shape = {2, 3, 1 << 23};  // rows of 32 MiB
  const std::vector<Box> parts = split_box(shape, 4, {{0, 1, 0}, {2, 2, 1 << 23}});
  ASSERT_THAT(parts, SizeIs(8));
  EXPECT_EQ(parts.front(), (Box{{0, 1, 0}, {1, 1, 1 << 22}}));
  EXPECT_EQ(parts.back(), (Box{{1, 2, 1 << 22}, {1, 1, 1 << 22}}));
}

TEST(SplitBox, SplitsOneDimensionIntoBlocks) {
  const std::vector<Box> parts = split_box(Shape{10'000'000}, 4, {{0}, {10'000'000}});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_EQ(parts[1], (Box{{1 << 22}, {1 << 22}}));
}

TEST(SplitBox, IsEmptyWithoutElements) {
  EXPECT_THAT(split_box(Shape{4, 0}, 4, {{0, 0}, {4, 0}}), SizeIs(0));
  EXPECT_THAT(split_box(Shape{}, 4, {{}, {}}), SizeIs(1));
}

TEST(BoxesText, RoundTrips) {
  const std::vector<std::vector<Box>> boxes = {
      {{{0}, {2}}}, {}, {{{0, 0}, {2, 1}}, {{0, 1}, {2, 3}}}};
  std::string text = "{\"tenfold_boxes\":\"" + blank_boxes_text(boxes, {{2}, {0}, {2, 4}}) + "\"}";
  const std::size_t at = find_checksums(text, "tenfold_boxes");
  fill_boxes(text, at, std::vector<std::uint64_t>{1, 2, 3});
  const auto stored = parse_boxes_text(text.substr(at, text.size() - at - 2));
  ASSERT_TRUE(stored);
  ASSERT_THAT(*stored, SizeIs(3));
  ASSERT_THAT((*stored)[0], SizeIs(1));
  EXPECT_FALSE((*stored)[0][0].box);
  EXPECT_EQ((*stored)[0][0].checksum, 1U);
  EXPECT_THAT((*stored)[1], SizeIs(0));
  ASSERT_THAT((*stored)[2], SizeIs(2));
  EXPECT_EQ((*stored)[2][1].checksum, 3U);
  EXPECT_EQ((*stored)[2][1].box, (Box{{0, 1}, {2, 3}}));
  EXPECT_EQ(hash_with_blank_digits(text, at), *parse_hex16(text.substr(at, 16)));
}

TEST(BoxesText, HashesHaveOneSpelling) {
  EXPECT_EQ(parse_hex16("00000000000000ff"), std::uint64_t{255});
  EXPECT_EQ(parse_hex16("ffffffffffffffff"), ~std::uint64_t{0});
  for (const char* other : {"", "ff", "00000000000000FF", "0x000000000000ff", "-0000000000000ff",
                            " 0000000000000ff", "0000000000000000ff", "000000000000000g"}) {
    EXPECT_EQ(parse_hex16(other), std::nullopt) << other;
  }
}

TEST(BoxesText, WithoutTensorsIsOnlyTheHash) {
  EXPECT_THAT(*parse_boxes_text(blank_boxes_text({}, {})), SizeIs(0));
  EXPECT_THAT(*parse_boxes_text(blank_boxes_text({{}}, {{0}})), SizeIs(1));
}

TEST(BoxesText, IsRefusedInAnyOtherForm) {
  const std::string zeros(16, '0');
  for (const std::string& text :
       {std::string(), zeros.substr(1), zeros + ";1", zeros + ";" + zeros + ":1",
        zeros + ";" + zeros + ":1:", zeros + ";" + zeros + ":-1:1", zeros + ";" + zeros + ":1,:1",
        zeros + ";" + zeros + ":1:99999999999999999999", zeros + ";" + zeros + ":1:1:1",
        zeros + ";" + zeros + "  " + zeros, zeros + ";ABCDEFABCDEFABCD"}) {
    EXPECT_FALSE(parse_boxes_text(text)) << text;
  }
}

/// A file with the bytes of one tensor, whose boxes are checked.
class CheckedBoxes : public testing::Test {
 protected:
  CheckedBoxes() : bytes_(static_cast<std::size_t>(rows_ * columns_), '\0') {
    std::iota(bytes_.begin(), bytes_.end(), '\0');
    write_bytes(folder_ / "t", bytes_);
  }

  /// The checksum of a box as its writer computes it.
  BoxSum sum_of(const Box& box) const {
    const auto bytes = byte_box(shape(), 1, box);
    EXPECT_TRUE(bytes);
    std::string taken;
    for (BoxRuns runs(*bytes); !runs.done(); runs.next()) {
      taken += bytes_.substr(static_cast<std::size_t>(runs.begin()),
                             static_cast<std::size_t>(runs.size_bytes()));
    }
    return {*bytes, base::xxh3(std::as_bytes(std::span(taken)))};
  }

  std::vector<Problem> check(std::vector<BoxSum> boxes, std::uint64_t offset = 0) const {
    const os::File file = os::File::open_read(folder_ / "t");
    Progress progress(nullptr, 0, "");
    std::vector<BoxedTensor> tensors(1);
    tensors[0] = {&file, offset, bytes_.size(), "tensor \"t\"", std::move(boxes)};
    return check_boxes(std::move(tensors), 2, progress);
  }

  Shape shape() const { return {rows_, columns_}; }

  static constexpr std::int64_t rows_ = 1100;
  static constexpr std::int64_t columns_ = 1000;
  TemporaryFolder folder_;
  std::string bytes_;
};

TEST_F(CheckedBoxes, VerifyForEverySplitOfTheTensor) {
  EXPECT_THAT(check({sum_of({{0, 0}, {rows_, columns_}})}), SizeIs(0));
  EXPECT_THAT(check({sum_of({{0, 0}, {7, columns_}}), sum_of({{7, 0}, {rows_ - 7, columns_}})}),
              SizeIs(0));
  EXPECT_THAT(check({sum_of({{0, 900}, {rows_, 100}}), sum_of({{0, 0}, {rows_, 900}})}), SizeIs(0));
  std::vector<BoxSum> grid;
  for (std::int64_t row = 0; row < rows_; row += 550) {
    for (std::int64_t column = 0; column < columns_; column += 8) {
      grid.push_back(sum_of({{row, column}, {550, 8}}));
    }
  }
  EXPECT_THAT(check(grid), SizeIs(0));
}

TEST_F(CheckedBoxes, AFlippedBitIsDetectedInItsBox) {
  const std::vector<BoxSum> boxes = {sum_of({{0, 0}, {rows_, 400}}),
                                     sum_of({{0, 400}, {rows_, 600}})};
  std::string damaged = bytes_;
  damaged[1000 * 1000 + 500] ^= 1;
  write_bytes(folder_ / "t", damaged);
  const auto problems = check(boxes);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].part, "tensor \"t\"");
  EXPECT_THAT(
      problems[0].what,
      HasSubstr("the box with offsets [0,400] and sizes [1100,600] in shape [1100,1000] (in bytes) "
                "differs: expected "));
}

TEST_F(CheckedBoxes, OverlapsAndGapsAreAProblem) {
  const auto is_refused = [&](std::vector<BoxSum> boxes) {
    const auto problems = check(std::move(boxes));
    ASSERT_THAT(problems, SizeIs(1));
    EXPECT_THAT(problems[0].what, HasSubstr("boxes with checksums overlap or leave bytes out"));
    EXPECT_EQ(problems[0].problem, "boxes with checksums overlap or leave bytes out");
    EXPECT_NE(problems[0].expected, "");
    EXPECT_NE(problems[0].found, "");
    EXPECT_EQ(problems[0].remedy, "another tool may have changed the file");
  };
  is_refused({});
  is_refused({sum_of({{0, 0}, {rows_, 999}})});
  is_refused({sum_of({{0, 0}, {rows_, columns_}}), sum_of({{0, 0}, {1, 1}})});
  // The boxes have the right total size, but cover some bytes twice and others not at all.
  is_refused({sum_of({{0, 0}, {rows_, 600}}), sum_of({{0, 500}, {rows_, 400}})});
  is_refused({sum_of({{0, 0}, {rows_, 500}}), sum_of({{0, 0}, {rows_, 500}})});
  is_refused({sum_of({{0, 0}, {2, columns_}}), sum_of({{1, 0}, {rows_ - 2, columns_}})});
  // The total size is right, but one box is inside another one, so some rows are in no box.
  is_refused({sum_of({{0, 0}, {10, columns_}}), sum_of({{5, 0}, {5, columns_}}),
              sum_of({{15, 0}, {rows_ - 15, columns_}})});
  is_refused({sum_of({{0, 0}, {rows_ - 5, columns_}}), sum_of({{5, 0}, {5, columns_}})});
  is_refused({sum_of({{5, 0}, {5, columns_}}), sum_of({{5, 0}, {rows_ - 5, columns_}})});
  // These boxes belong to an array of another shape.
  is_refused({{{{kHuge / 2}, {0}, {bytes_.size()}}, 0}, {{{kHuge / 2}, {kHuge / 4}, {1}}, 0}});
}

TEST_F(CheckedBoxes, AnOverlapIsAProblemOfItsOwnRange) {
  // Rows 0 to 9 are covered twice. Columns 500 to 999 of rows 10 to 29 are not covered.
  const auto problems =
      check({sum_of({{0, 0}, {10, columns_}}), sum_of({{0, 0}, {10, columns_}}),
             sum_of({{10, 0}, {rows_ - 10, 500}}), sum_of({{30, 500}, {rows_ - 30, 500}})});
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems[0].found, "byte 0 in none or in several");
  EXPECT_EQ(problems[1].found, "byte 10500 in none or in several");
}

TEST_F(CheckedBoxes, BoxesOfATruncatedFileAreAProblem) {
  const auto problems = check({sum_of({{0, 0}, {rows_, columns_}})}, 1);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_THAT(problems[0].what, HasSubstr("the file is too short"));
}

}  // namespace
}  // namespace tenfold::test

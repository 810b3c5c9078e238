#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>
#include <tenfold/mapped_dict.hpp>
#include <tenfold/tensordict.hpp>

#include "dataset/table_of.hpp"
#include "dict/dict_of.hpp"
#include "support/files.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::ints;
using test::message_of;
using test::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Returns the problems that verify() finds in a tree with checksums, as "<part>: <what>".
std::vector<std::string> problems_of(const Path& path) {
  std::vector<std::string> texts;
  const VerifyReport report = verify(path);
  EXPECT_GT(report.num_checksums, 0U);
  for (const Problem& problem : report.problems)
    texts.push_back(problem.part + ": " + problem.what);
  return texts;
}

/// test::ragged() with other end offsets.
TensorDict ragged_with(const std::string& key, const Tensor& ends) {
  TensorDict tree = test::ragged();
  if (key == "tags.item_end") {
    tree.set(key, TensorDict::Item(test::unbatched(ends)));
  } else {
    tree.set(key, ends);
  }
  return tree;
}

/// A CSR matrix of 3 rows and 4 columns. Its 3 elements are in the given columns.
TensorDict csr_with(const Tensor& columns) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = {3, 4};
  TensorDict node(info);
  node.set("crow_indices", ints({0, 2, 2, 3}));
  node.set("col_indices", columns);
  node.set("values", Tensor::zeros(DType::float32, {3}));
  return TensorDict::dict({{"w", node}});
}

class VerifyOfEachFormat : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Verify, VerifyOfEachFormat,
                         ::testing::Values("tree", "tree.safetensors", "tree.tdz"));

TEST_P(VerifyOfEachFormat, FindsNoProblemInValidRows) {
  const TemporaryFolder folder;
  save(test::ragged(), folder / GetParam());
  EXPECT_THAT(problems_of(folder / GetParam()), IsEmpty());
}

TEST_P(VerifyOfEachFormat, NamesTheColumnWhoseEndOffsetsFall) {
  const TemporaryFolder folder;
  save(ragged_with("tokens.end", ints({2, 5, 2, 6})), folder / GetParam());
  EXPECT_THAT(
      problems_of(folder / GetParam()),
      ElementsAre("column \"tokens\": ends: expected nondecreasing end offsets from 0 to 6, "
                  "found 5 before 2"));
}

TEST_P(VerifyOfEachFormat, NamesTheColumnWhoseEndOffsetsExceedItsElements) {
  const TemporaryFolder folder;
  save(ragged_with("name.end", ints({3, 300, 300, 300})), folder / GetParam());
  EXPECT_THAT(problems_of(folder / GetParam()),
              ElementsAre(HasSubstr("column \"name\": ends: expected nondecreasing")));
}

TEST_P(VerifyOfEachFormat, NamesTheColumnWhoseItemsHaveFallingEndOffsets) {
  const TemporaryFolder folder;
  save(ragged_with("tags.item_end", ints({8, 3, 8, 12})), folder / GetParam());
  EXPECT_THAT(problems_of(folder / GetParam()),
              ElementsAre(HasSubstr("column \"tags\": ends of items: expected nondecreasing")));
}

TEST(Verify, NamesEveryColumnWithInvalidEndOffsets) {
  TensorDict tree = ragged_with("tokens.end", ints({2, 5, 2, 6}));
  tree.set("tags.item_end", TensorDict::Item(test::unbatched(ints({8, 3, 8, 12}))));
  const TemporaryFolder folder;
  save(tree, folder / "tree");
  EXPECT_THAT(problems_of(folder / "tree"),
              UnorderedElementsAre(HasSubstr("column \"tokens\": ends: expected"),
                                   HasSubstr("column \"tags\": ends of items: expected")));
}

TEST(Verify, NamesASparseMatrixWithAColumnOutOfRange) {
  const TemporaryFolder folder;
  for (const char* name : {"tree", "tree.tdz", "tree.pt"}) {
    save(csr_with(ints({0, 3, 1})), folder / name);
    EXPECT_THAT(problems_of(folder / name), IsEmpty()) << name;
    save(csr_with(ints({0, 4, 1})), folder / name);
    EXPECT_THAT(problems_of(folder / name), ElementsAre(HasSubstr("key \"w\""))) << name;
  }
}

TEST(Verify, NamesAKeyThatTheIndexOfADictionaryHasLost) {
  const TemporaryFolder folder;
  test::build_pairs(folder / "d", 1);
  EXPECT_TRUE(verify(folder / "d").ok());
  std::filesystem::remove(folder / "d" / "%checksums");
  const Path index = folder / "d" / "%values" / "key.index.memmap";
  std::string bytes = test::read_bytes(index);
  ASSERT_GT(bytes.size(), 64U);
  std::fill(bytes.begin(), bytes.end() - 64, '\0');  // all slots; the last 64 bytes are the header
  test::write_bytes(index, bytes);
  EXPECT_THAT(verify(folder / "d").problems,
              Contains(Field(&Problem::part, HasSubstr("key \"key0\""))));
}

TEST(Verify, ReportsDamagedBytesWithoutReadingTheRowsInThem) {
  const TemporaryFolder folder;
  save(ragged_with("tokens.end", ints({2, 5, 2, 6})), folder / "tree");
  std::string bytes = test::read_bytes(folder / "tree" / "tokens.end.memmap");
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  test::write_bytes(folder / "tree" / "tokens.end.memmap", bytes);
  const VerifyReport report = verify(folder / "tree");
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].what, HasSubstr("checksum"));
}

TEST(Verify, ThrowsForAMissingPath) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { verify(folder / "none"); }, ErrorCode::file_not_found),
              HasSubstr("none"));
}

}  // namespace
}  // namespace tenfold

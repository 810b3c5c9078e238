#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dataset/dataset_state.hpp"
#include "dataset/table_of.hpp"
#include "ingest/arrow/abi.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Reads an exported stream like a consumer.
class Reader {
 public:
  explicit Reader(const Dataset& ds, ArrowExportOptions options = {}) {
    export_arrow_stream(ds, stream_.get(), options);
    EXPECT_EQ(stream_.get()->get_schema(stream_.get(), schema_.get()), 0);
  }

  const ArrowSchema& schema() const { return *schema_; }
  /// Returns the index of the field called `name`.
  std::size_t field(const std::string& name) const {
    std::size_t i = 0;
    while (schema_->children[i]->name != name) ++i;
    return i;
  }
  /// Gets the next array of the stream. Returns the error message, or "" if it succeeds.
  std::string next(ArrowOwned<ArrowArray>& array) {
    array.reset();
    const int code = stream_.get()->get_next(stream_.get(), array.get());
    if (code == 0) return "";
    EXPECT_EQ(code, EIO);
    return stream_.get()->get_last_error(stream_.get());
  }

 private:
  ArrowOwned<ArrowArrayStream> stream_;
  ArrowOwned<ArrowSchema> schema_;
};

template <class T>
std::vector<T> values_of(const ArrowArray& array, std::size_t buffer, std::int64_t count) {
  const auto* values = static_cast<const T*>(array.buffers[buffer]);
  return {values, values + count};
}

std::vector<bool> bits_of(const ArrowArray& array, std::size_t buffer) {
  const auto* bytes = static_cast<const std::uint8_t*>(array.buffers[buffer]);
  std::vector<bool> bits;
  for (std::int64_t i = 0; i < array.length; ++i)
    bits.push_back((bytes[i / 8] >> (i % 8) & 1) != 0);
  return bits;
}

std::string text_of(const ArrowArray& array, std::size_t row) {
  const auto* ends = static_cast<const std::int64_t*>(array.buffers[1]);
  const auto* bytes = static_cast<const char*>(array.buffers[2]);
  return {bytes + ends[row], bytes + ends[row + 1]};
}

TEST(ArrowExport, NumbersPointIntoTheMemoryOfTheColumn) {
  const TensorDict tree = test::numbers(10);
  Reader reader(Dataset(tree).range(2, 9), {.batch_rows = 4});
  EXPECT_STREQ(reader.schema().format, "+s");
  EXPECT_STREQ(reader.schema().children[reader.field("x")]->format, "+w:3");
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  EXPECT_EQ(batch->length, 4);
  const ArrowArray& x = *batch->children[reader.field("x")];
  EXPECT_EQ(x.length, 4);
  EXPECT_EQ(x.children[0]->length, 12);
  EXPECT_EQ(x.children[0]->buffers[1], tree.at("x").narrow(2, 9).raw_data());
  EXPECT_EQ(values_of<std::int64_t>(*batch->children[reader.field("id")], 1, 4),
            (std::vector<std::int64_t>{2, 3, 4, 5}));
  EXPECT_THAT(bits_of(*batch->children[reader.field("flag")], 1),
              ElementsAre(false, true, false, true));
  ASSERT_EQ(reader.next(batch), "");
  EXPECT_EQ(batch->length, 3);
  EXPECT_EQ(values_of<std::int64_t>(*batch->children[reader.field("id")], 1, 3),
            (std::vector<std::int64_t>{6, 7, 8}));
  ASSERT_EQ(reader.next(batch), "");
  EXPECT_TRUE(batch.is_released());
}

TEST(ArrowExport, ArraysKeepTheMappingUntilTheyAreReleased) {
  auto memory = std::make_shared<std::vector<std::int64_t>>(std::vector<std::int64_t>{5, 6});
  const std::weak_ptr<void> alive = memory;
  NodeInfo info;
  info.batch_size = {2};
  TensorDict tree(info);
  auto* bytes = reinterpret_cast<std::byte*>(memory->data());
  tree.set("x", Tensor(DType::int64, {2}, Buffer({bytes, 16}, memory)));
  ArrowOwned<ArrowArray> batch;
  {
    Reader reader{Dataset(std::move(tree))};
    ASSERT_EQ(reader.next(batch), "");
  }
  memory.reset();
  EXPECT_FALSE(alive.expired());
  EXPECT_THAT(values_of<std::int64_t>(*batch->children[0], 1, 2), ElementsAre(5, 6));
  batch.reset();
  EXPECT_TRUE(alive.expired());
}

TEST(ArrowExport, AChildThatIsMovedOutOutlivesItsParent) {
  Reader reader{Dataset(test::numbers(3))};
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  ArrowOwned<ArrowArray> child;
  child.take(*batch->children[reader.field("id")]);
  batch.reset();
  EXPECT_THAT(values_of<std::int64_t>(*child, 1, 3), ElementsAre(0, 1, 2));
}

/// If the parameter is true, the rows are a range, which is exported as a view. If it is false, the
/// rows are gathered.
class RaggedRows : public testing::TestWithParam<bool> {
 protected:
  Dataset rows() const {
    const Dataset ds(test::ragged());
    return GetParam() ? ds.range(1, 4) : ds.take(test::ints({1, 2, 3}));
  }
};

TEST_P(RaggedRows, AreListsAndStringsWithOffsetsFromZero) {
  Reader reader(rows());
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  const ArrowSchema& schema = reader.schema();
  EXPECT_STREQ(schema.children[reader.field("tokens")]->format, "+L");
  EXPECT_STREQ(schema.children[reader.field("name")]->format, "U");
  EXPECT_STREQ(schema.children[reader.field("tags")]->children[0]->format, "U");
  const ArrowArray& tokens = *batch->children[reader.field("tokens")];
  EXPECT_THAT(values_of<std::int64_t>(tokens, 1, 4), ElementsAre(0, 0, 3, 4));
  EXPECT_THAT(values_of<std::int32_t>(*tokens.children[0], 1, 4), ElementsAre(3, 4, 5, 6));
  const ArrowArray& name = *batch->children[reader.field("name")];
  EXPECT_EQ(text_of(name, 0), "Bobby");
  EXPECT_EQ(text_of(name, 1), "");
  EXPECT_EQ(text_of(name, 2), "Zo\xC3\xAB");
  const ArrowArray& tags = *batch->children[reader.field("tags")];
  EXPECT_THAT(values_of<std::int64_t>(tags, 1, 4), ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(tags.children[0]->length, 2);
  EXPECT_EQ(text_of(*tags.children[0], 0), "");
  EXPECT_EQ(text_of(*tags.children[0], 1), "blue");
  const ArrowArray& age = *batch->children[reader.field("age")];
  EXPECT_EQ(age.null_count, 2);
  EXPECT_THAT(bits_of(age, 0), ElementsAre(false, true, false));
  EXPECT_EQ(schema.children[reader.field("age")]->flags, 2);
}

INSTANTIATE_TEST_SUITE_P(ArrowExport, RaggedRows, testing::Bool());

TEST(ArrowExport, ValidityDistinguishesANullFloatFromNaN) {
  NodeInfo info;
  info.batch_size = {3};
  info.schema = from_json(R"({"columns": {"x": {"dtype": "float64", "nullable": true}}})", "test");
  TensorDict tree(info);
  const std::vector<double> values = {1, std::numeric_limits<double>::quiet_NaN(), 0};
  tree.set("x", Tensor::from(std::span<const double>(values)));
  Tensor valid = Tensor::zeros(DType::bool_, {3});
  valid.mutable_raw_data()[0] = valid.mutable_raw_data()[1] = std::byte{1};
  tree.set("x.valid", valid);
  const Dataset ds(tree);
  for (const Dataset& rows : {ds, ds.take(test::ints({0, 1, 2}))}) {
    Reader reader(rows);
    ArrowOwned<ArrowArray> batch;
    ASSERT_EQ(reader.next(batch), "");
    EXPECT_THAT(bits_of(*batch->children[0], 0), ElementsAre(true, true, false));
  }
}

TEST(ArrowExport, AColumnMayHaveTheNameOfTheGatheredValidity) {
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(R"({"columns": {"x": {"dtype": "float64", "nullable": true},
                                "%valid": {"columns": {"0": {"dtype": "float64"}}}}})",
                          "test");
  TensorDict tree(info);
  const std::vector<double> values = {1, 0};
  tree.set("x", Tensor::from(std::span<const double>(values)));
  tree.set("%valid.0", Tensor::from(std::span<const double>(values)));
  Tensor valid = Tensor::zeros(DType::bool_, {2});
  valid.mutable_raw_data()[0] = std::byte{1};
  tree.set("x.valid", valid);
  Reader reader(Dataset(tree).take(test::ints({1, 0})));
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  EXPECT_THAT(bits_of(*batch->children[reader.field("x")], 0), ElementsAre(false, true));
  const ArrowArray& record = *batch->children[reader.field("%valid")];
  EXPECT_THAT(values_of<double>(*record.children[0], 1, 2), ElementsAre(0, 1));
}

TEST(ArrowExport, RecordsAreStructsAndUnitsAreMetadata) {
  NodeInfo info;
  info.batch_size = {1};
  info.schema = from_json(R"({"columns": {"a": {"columns": {"b": {"dtype": "int64"}}},
                                          "t": {"dtype": "int64", "unit": "ns"}}})",
                          "test");
  TensorDict tree(info);
  tree.set("a.b", test::ints({7}));
  tree.set("t", test::ints({9}));
  Reader reader{Dataset(tree)};
  EXPECT_STREQ(reader.schema().children[0]->format, "+s");
  EXPECT_STREQ(reader.schema().children[0]->children[0]->name, "b");
  const std::array<char, 18> metadata = {1,   0,   0,   0, 4, 0, 0, 0,   'u',
                                         'n', 'i', 't', 2, 0, 0, 0, 'n', 's'};
  ASSERT_NE(reader.schema().children[1]->metadata, nullptr);
  EXPECT_EQ(std::memcmp(reader.schema().children[1]->metadata, metadata.data(), 18), 0);
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  EXPECT_THAT(values_of<std::int64_t>(*batch->children[0]->children[0], 1, 1), ElementsAre(7));
}

TEST(ArrowExport, ACopyIsIndependentOfTheMemory) {
  const TensorDict tree = test::numbers(4);
  Reader reader(Dataset(tree), {.copy = true});
  ArrowOwned<ArrowArray> batch;
  ASSERT_EQ(reader.next(batch), "");
  tree.at("id").mutable_raw_data()[0] = std::byte{99};
  EXPECT_THAT(values_of<std::int64_t>(*batch->children[reader.field("id")], 1, 4),
              ElementsAre(0, 1, 2, 3));
}

TEST(ArrowExport, DamagedOffsetsAreAnErrorOfTheBatchThatReadsThem) {
  TensorDict tree = test::ragged();
  tree.set("name.end", test::ints({3, 8, 1'000'000, 12}));
  Reader reader(Dataset(tree), {.batch_rows = 2});
  ArrowOwned<ArrowArray> batch;
  EXPECT_EQ(reader.next(batch), "");
  EXPECT_THAT(reader.next(batch),
              HasSubstr("column \"name\": end offset 2: expected nondecreasing offsets within "
                        "[0, 12], found 1000000 after 8"));
}

TEST(ArrowExport, DamagedOffsetsOfABatchWithoutItemsAreAnErrorToo) {
  TensorDict tree = test::ragged();
  tree.set("tags.end", test::ints({2, 2, 2, 2}));
  tree.set("tags.item_end", TensorDict::Item(test::unbatched(test::ints({3, 1'000'000, 8, 12}))));
  Reader reader(Dataset(tree).range(2, 4), {});
  ArrowOwned<ArrowArray> batch;
  EXPECT_THAT(reader.next(batch),
              HasSubstr("column \"tags\": end offset of item 1: expected nondecreasing offsets"));
}

TEST(ArrowExport, DtypesThatArrowDoesNotHaveAreRefusedByColumn) {
  NodeInfo info;
  info.batch_size = {2};
  TensorDict tree(info);
  tree.set("w", Tensor::zeros(DType::bfloat16, {2}));
  ArrowArrayStream stream;
  try {
    export_arrow_stream(Dataset(tree), &stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("column \"w\""));
    EXPECT_THAT(error.what(), HasSubstr("found bfloat16"));
  }
  EXPECT_THROW(export_arrow_stream(Dataset(test::numbers(1)), &stream, {.batch_rows = 0}), Error);
}

TEST(ArrowExport, NamesWithANullCharacterAreRefused) {
  NodeInfo info;
  info.batch_size = {1};
  info.schema =
      from_json(R"({"columns": {"a": {"columns": {"b\u0000c": {"dtype": "int64"}}}}})", "test");
  TensorDict tree(info);
  tree.set(std::string("a.b\0c", 5), test::ints({7}));
  ArrowArrayStream stream;
  try {
    export_arrow_stream(Dataset(tree), &stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("names in Arrow's C interface end at a null character"));
  }
}

TEST(ArrowExport, RowsThatAreTooLongForAFixedSizeListAreRefused) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t length : {kMax, kMax + 1}) {
    NodeInfo info;
    info.batch_size = {0};
    TensorDict tree(info);
    tree.set("w", Tensor::zeros(DType::float32, {0, length}));
    ArrowOwned<ArrowArrayStream> stream;
    try {
      export_arrow_stream(Dataset(tree), stream.get());
      EXPECT_EQ(length, kMax);
    } catch (const Error& error) {
      EXPECT_EQ(length, kMax + 1);
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("column \"w\": Arrow has no such type: expected "
                                          "fixed-size lists of at most 2147483647 elements"));
    }
  }
}

TEST(ArrowExport, WithoutRowsThereIsASchemaAndNoBatch) {
  Reader reader(Dataset(test::ragged()).range(0, 0));
  EXPECT_EQ(reader.schema().n_children, 4);
  ArrowOwned<ArrowArray> batch;
  EXPECT_EQ(reader.next(batch), "");
  EXPECT_TRUE(batch.is_released());
}

}  // namespace
}  // namespace tenfold

#include "formats/numpy/npy_array.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;

Path npy(const std::string& name) { return Path(TENFOLD_TEST_DATA) / "npy" / (name + ".npy"); }

/// The only leaf of a file.
Leaf leaf_in(const Path& path) {
  const TensorDict tree = numpy::kNpy.open(path, {});
  EXPECT_EQ(tree.keys(), std::vector<std::string>{"value"});
  EXPECT_TRUE(is_bare(tree));
  return std::get<Leaf>(bare_value(tree));
}
Tensor tensor_in(const std::string& name) { return leaf_in(npy(name)).tensor(); }

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const Tensor contiguous = tensor.contiguous();
  const auto span = contiguous.span<T>();
  return {span.begin(), span.end()};
}

TensorDict tree_of(Tensor tensor) { return bare_tree(Leaf(std::move(tensor))); }

TEST(Npy, ReadsEveryDtypeThatNumpyAndTorchShare) {
  std::size_t count = 0;
  for (const DType dtype : all_dtypes()) {
    if (!numpy::npy_descr(dtype)) continue;
    ++count;
    EXPECT_EQ(numpy::dtype_of_npy_descr(*numpy::npy_descr(dtype)), dtype);
    const std::string key = "ok-dtype-" + to_string(dtype);
    const Leaf leaf = leaf_in(npy(key));
    EXPECT_EQ(leaf.dtype(), dtype);
    EXPECT_EQ(leaf.shape(), Shape{3});
    EXPECT_EQ(mapped_bytes(leaf), read_bytes(leaf));
  }
  EXPECT_EQ(count, 14U);
  EXPECT_EQ(values_of<std::int16_t>(tensor_in("ok-dtype-int16")),
            (std::vector<std::int16_t>{0, 1, 2}));
}

TEST(Npy, AcceptsAnyByteOrderForOneByteElementsOnly) {
  EXPECT_EQ(numpy::dtype_of_npy_descr(">u1"), DType::uint8);
  EXPECT_EQ(numpy::dtype_of_npy_descr("=f4"), DType::float32);
  for (const char* descr : {">f4", "|f4", "f4", "", "<", "<f16", "<f44", "x|b1"}) {
    EXPECT_FALSE(numpy::dtype_of_npy_descr(descr)) << descr;
  }
}

TEST(Npy, FortranOrderBecomesStridesOverTheFile) {
  const Tensor matrix = tensor_in("ok-fortran");
  EXPECT_EQ(matrix.shape(), (Shape{2, 3}));
  EXPECT_EQ(matrix.strides(), (Shape{1, 2}));
  EXPECT_EQ(values_of<std::int32_t>(matrix), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  const Tensor block = tensor_in("ok-fortran-3d");
  EXPECT_EQ(block.strides(), (Shape{1, 2, 6}));
  std::vector<std::int16_t> counted(24);
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<std::int16_t>(i);
  EXPECT_EQ(values_of<std::int16_t>(block), counted);
  EXPECT_EQ(tensor_in("ok-fortran-zero").shape(), (Shape{0, 3}));
}

TEST(Npy, ReadsEveryVersionAndSpelling) {
  for (const char* name : {"ok-version-2", "ok-version-3"}) {
    EXPECT_EQ(values_of<std::int32_t>(tensor_in(name)),
              (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  }
  for (const char* name :
       {"ok-another-spelling", "ok-no-padding", "ok-odd-offset", "ok-python-2"}) {
    const Leaf leaf = leaf_in(npy(name));
    EXPECT_EQ(values_of<float>(leaf.tensor()), (std::vector<float>{1, 2})) << name;
    EXPECT_EQ(mapped_bytes(leaf), read_bytes(leaf)) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leaf.tensor().raw_data()) % 4, 0U) << name;
  }
  EXPECT_EQ(values_of<std::int64_t>(tensor_in("ok-no-dimensions")), std::vector<std::int64_t>{5});
  EXPECT_EQ(tensor_in("ok-no-elements").shape(), (Shape{3, 0, 2}));
}

TEST(Npy, RewritesItsFilesByteForByte) {
  const TemporaryFolder folder;
  const Path path = folder / "again.npy";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(npy("").parent_path())) {
    const std::string stem = entry.path().stem().string();
    if (!stem.starts_with("ok-dtype-") && !stem.starts_with("ok-no-d") &&
        !stem.starts_with("ok-no-e")) {
      continue;
    }
    ++count;
    numpy::kNpy.write(numpy::kNpy.open(entry.path(), {}), path, {});
    EXPECT_EQ(bytes_of(path), bytes_of(entry.path())) << stem;
  }
  EXPECT_EQ(count, 16U);
}

TEST(Npy, SavesWhatTheProgramWroteToItsPrivateCopy) {
  const TemporaryFolder folder;
  const TensorDict tree = numpy::kNpy.open(npy("ok-dtype-float32"), {.mode = Mode::copy_on_write});
  std::get<Leaf>(bare_value(tree)).tensor().mutable_data<float>()[0] = 77;
  numpy::kNpy.write(tree, folder / "written.npy", {});
  EXPECT_EQ(values_of<float>(leaf_in(folder / "written.npy").tensor()),
            (std::vector<float>{77, 1, 2}));
}

TEST(Npy, WritesAnyStridesInRowMajorOrder) {
  const TemporaryFolder folder;
  numpy::kNpy.write(numpy::kNpy.open(npy("ok-fortran"), {}), folder / "rows.npy", {});
  const Tensor rows = leaf_in(folder / "rows.npy").tensor();
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(values_of<std::int32_t>(rows), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Npy, ReadersKeepTheOldFile) {
  const TemporaryFolder folder;
  numpy::kNpy.write(tree_of(tensor_of<float>({1, 2}, {2})), folder / "x.npy", {});
  const Leaf opened = leaf_in(folder / "x.npy");
  numpy::kNpy.write(tree_of(tensor_of<float>({3}, {1})), folder / "x.npy", {});
  EXPECT_EQ(values_of<float>(opened.tensor()), (std::vector<float>{1, 2}));
  EXPECT_EQ(values_of<float>(leaf_in(folder / "x.npy").tensor()), std::vector<float>{3});
}

TEST(Npy, WritesToTheTensorDoNotChangeTheFile) {
  const TemporaryFolder folder;
  const Path path = folder / "x.npy";
  std::filesystem::copy_file(npy("ok-fortran"), path);
  leaf_in(path).tensor().mutable_data<std::int32_t>()[0] = 77;
  EXPECT_EQ(bytes_of(path), bytes_of(npy("ok-fortran")));
  OpenRequest request;
  request.mode = Mode::write_through;
  EXPECT_THAT(message_of([&] { numpy::kNpy.open(path, request); }, ErrorCode::unsupported),
              HasSubstr("cannot be changed in place"));
}

TEST(Npy, ChangesTheFileInModeWriteThrough) {
  const TemporaryFolder folder;
  for (const char* name : {"ok-dtype-float32", "ok-no-elements"}) {
    const Path path = folder / "x.npy";
    std::filesystem::copy_file(npy(name), path, std::filesystem::copy_options::overwrite_existing);
    const TensorDict tree = numpy::kNpy.open(path, {.mode = Mode::write_through});
    const Tensor tensor = std::get<Leaf>(bare_value(tree)).tensor();
    std::string expected = bytes_of(path);
    if (tensor.numel() > 0) {
      tensor.mutable_data<float>()[2] = 77;
      const float changed = 77;
      expected.replace(expected.size() - 4, 4, reinterpret_cast<const char*>(&changed), 4);
    }
    tree.flush();
    EXPECT_EQ(bytes_of(path), expected) << name;
  }
}

TEST(Npy, RefusesModeWriteThroughForUnalignedElements) {
  const TemporaryFolder folder;
  const Path path = folder / "x.npy";
  std::filesystem::copy_file(npy("ok-no-padding"), path);
  {
    const TensorDict tree = numpy::kNpy.open(path, {.mode = Mode::write_through});
    const auto leaf = std::get<Leaf>(bare_value(tree));
    EXPECT_EQ(
        message_of([&] { static_cast<void>(leaf.tensor()); }, ErrorCode::unsupported),
        path.string() +
            ": data: is not aligned for a shared mapping: expected an offset that is a multiple "
            "of 4 bytes, found 67; save the array again, which aligns its data");
    EXPECT_EQ(read_bytes(leaf), bytes_of(path).substr(67)) << "Leaf::read() needs no mapping";
    tree.flush();
  }
  numpy::kNpy.write(numpy::kNpy.open(path, {}), path, {});
  const TensorDict aligned = numpy::kNpy.open(path, {.mode = Mode::write_through});
  EXPECT_EQ(values_of<float>(std::get<Leaf>(bare_value(aligned)).tensor()),
            (std::vector<float>{1, 2}));
}

TEST(Npy, AnErrorOfATensorNamesTheFile) {
  const Leaf leaf = leaf_in(npy("ok-dtype-float32"));
  EXPECT_EQ(message_of([&] { static_cast<void>(leaf.sizes()); }, ErrorCode::invalid_argument),
            npy("ok-dtype-float32").string() + ": not a nested tensor: it has no component sizes");
}

/// Returns the error message of check() for `tree`. write() must fail with it, and leave no file.
std::string refusal_of(const TensorDict& tree) {
  const TemporaryFolder folder;
  const std::string message = message_of([&] { numpy::kNpy.check(tree); }, ErrorCode::unsupported);
  EXPECT_EQ(
      message_of([&] { numpy::kNpy.write(tree, folder / "x.npy", {}); }, ErrorCode::unsupported),
      message);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return message;
}

TEST(Npy, RefusesDtypesThatNumpyLacksBeforeWriting) {
  std::size_t count = 0;
  for (const DType dtype : all_dtypes()) {
    if (numpy::npy_descr(dtype)) continue;
    ++count;
    EXPECT_EQ(refusal_of(tree_of(Tensor::zeros(dtype, {2}))),
              "root: NumPy has no name for the dtype: expected a dtype of NumPy, found " +
                  to_string(dtype));
  }
  EXPECT_EQ(count, kNumDTypes - 14);
}

TEST(Npy, RefusesMoreDimensionsThanNumpySupportsBeforeWriting) {
  EXPECT_EQ(refusal_of(tree_of(Tensor::zeros(DType::uint8, Shape(65, 1)))),
            "root: too many dimensions: expected at most 64, found 65");
}

TEST(Npy, RefusesTreesOfOtherThanOneTensor) {
  const Tensor tensor = tensor_of<float>({1}, {1});
  EXPECT_EQ(refusal_of(TensorDict()),
            "root: a NumPy file holds one array, which has no name: expected a tensor, found a "
            "tensordict of length 0; save each tensor as a separate file");
  EXPECT_THAT(refusal_of(TensorDict(kind(NodeKind::list))),
              HasSubstr("expected a tensor, found a list of length 0"));
  TensorDict named(kind(NodeKind::dict));
  named.set("a", tensor);
  EXPECT_THAT(refusal_of(named), HasSubstr("expected a tensor, found a dict of length 1"));
  EXPECT_EQ(refusal_of(bare_tree(NonTensor{Value(1)})),
            "root: it cannot be stored: expected a tensor, found a JSON value");
  EXPECT_THAT(refusal_of(bare_tree(Leaf::nested(tensor_of<float>({1, 2, 3}, {3}),
                                                tensor_of<std::int64_t>({1, 2}, {2, 1})))),
              HasSubstr("root: a nested tensor cannot be stored"));
  Leaf unbatched(tensor);
  unbatched.mark_unbatched();
  EXPECT_THAT(refusal_of(bare_tree(unbatched)), HasSubstr("root: an unbatched tensor"));
}

TEST(Npy, IsAlsoFoundByItsFileStem) {
  const TensorDict tree = numpy::kNpy.open(npy("ok-no-dimensions"), {});
  EXPECT_TRUE(tree.contains("value"));
  EXPECT_TRUE(tree.contains("ok-no-dimensions"));
  EXPECT_FALSE(tree.contains("ok"));
  EXPECT_EQ(values_of<std::int64_t>(tree.at("ok-no-dimensions")), std::vector<std::int64_t>{5});
  EXPECT_EQ(named_by_file(tree).keys(), std::vector<std::string>{"ok-no-dimensions"});
  EXPECT_EQ(message_of([&] { tree.get("ok"); }, ErrorCode::key_not_found),
            npy("ok-no-dimensions").string() + ": no key \"ok\"");
}

TEST(Npy, RefusesUnsupportedRootProperties) {
  TensorDict rows = tree_of(tensor_of<float>({1}, {1}));
  rows.info().batch_size = {1};
  EXPECT_EQ(refusal_of(rows), "root: batch_size cannot be stored: expected [], found [1]");
}

TEST(Npy, VerifyChecksTheSizeAndReportsThatThereAreNoChecksums) {
  const VerifyReport report = numpy::kNpy.verify(npy("ok-fortran"), {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 1U);
  EXPECT_EQ(report.num_bytes, 24U);
  EXPECT_EQ(report.num_checksums, 0U);
  const VerifyReport cut = numpy::kNpy.verify(npy("bad-data-cut"), {});
  ASSERT_EQ(cut.problems.size(), 1U);
  EXPECT_EQ(cut.problems[0].part, "data");
  EXPECT_THAT(cut.problems[0].what, HasSubstr("expected 8 bytes, found 7"));
}

struct BadFile {
  const char* name;  ///< the file is tests/data/npy/bad-<name>.npy
  ErrorCode code;
  const char* message;  ///< the message without the path
};

const std::vector<BadFile> kBadFiles = {
    {"array-of-dates", ErrorCode::unsupported,
     "dtype: torch has no such dtype: expected numbers or bool, found \"<M8[s]\""},
    {"array-of-objects", ErrorCode::unsupported,
     "dtype: an array of Python objects is a pickle, which is never executed: expected numbers, "
     "found \"|O\""},
    {"array-of-texts", ErrorCode::unsupported,
     "dtype: torch has no such dtype: expected numbers or bool, found \"<U2\""},
    {"array-of-voids", ErrorCode::unsupported,
     "dtype: torch has no such dtype: expected numbers or bool, found \"|V2\""},
    {"array-structured", ErrorCode::unsupported,
     "dtype: a structured array is not a tensor: expected one number per element, found fields "
     "\"[('x', '<f4'), ('y', '<i8', (2,))]\"; save each field as a separate file"},
    {"big-endian", ErrorCode::unsupported,
     "dtype: big-endian elements cannot be mapped: expected little-endian ones, found \">f4\"; "
     "save array.astype(array.dtype.newbyteorder(\"<\")) in NumPy"},
    {"data-cut", ErrorCode::corrupt,
     "data: too short for float32 [2]: expected 8 bytes, found 7; the file may be truncated"},
    {"data-missing", ErrorCode::corrupt,
     "data: too short for float32 [2]: expected 8 bytes, found 0; the file may be truncated"},
    {"data-trailing", ErrorCode::unsupported,
     "data: bytes after the array: expected 8 bytes, found 144; if the file has several arrays, "
     "only NumPy can read it"},
    {"descr-empty", ErrorCode::unsupported,
     "dtype: torch has no such dtype: expected numbers or bool, found \"\""},
    {"descr-missing", ErrorCode::corrupt,
     "header: a key is missing: expected \"descr\", found none"},
    {"descr-number", ErrorCode::corrupt,
     "header: not a valid literal: expected a string, list or tuple, found \"4\" at byte 20"},
    {"descr-twice", ErrorCode::corrupt,
     "header: \"descr\" is duplicated: expected it once, found two"},
    {"descr-unclosed", ErrorCode::corrupt,
     "header: not a valid literal: expected a quote that ends the string, found the end at byte "
     "24"},
    {"empty", ErrorCode::corrupt,
     "header: not a NumPy file: expected it to start with \"\\x93NUMPY\", found nothing"},
    {"header-call", ErrorCode::corrupt,
     "header: not a valid literal: expected \"(\", found \"t\" at byte 60"},
    {"header-cut", ErrorCode::corrupt,
     "header: reaches past the end of the file: expected 67 bytes, found 40; the file may be "
     "truncated"},
    {"header-list", ErrorCode::corrupt,
     "header: not a valid literal: expected \"{\", found \"[\" at byte 10"},
    {"header-missing", ErrorCode::corrupt,
     "header: not a valid literal: expected \"{\", found the end at byte 10"},
    {"header-more", ErrorCode::corrupt,
     "header: not a valid literal: expected only spaces after the dict, found \",\" at byte 67"},
    {"header-too-long", ErrorCode::corrupt,
     "header: too long: expected at most 1048576 bytes, found 1048577"},
    {"key-unknown", ErrorCode::corrupt,
     "header: unknown key: expected \"descr\", \"fortran_order\" and \"shape\", found "
     "\"order\""},
    {"length-cut", ErrorCode::corrupt,
     "header: it is truncated: expected its length, found the end"},
    {"magic", ErrorCode::corrupt,
     "header: not a NumPy file: expected it to start with \"\\x93NUMPY\", found \"\\x93NUMPI\""},
    {"order-number", ErrorCode::corrupt,
     "header: not a valid literal: expected True or False, found \"0\" at byte 44"},
    {"python-2-in-version-3", ErrorCode::corrupt,
     "header: not a valid literal: expected \",\" or \")\", found \"L\" at byte 64"},
    {"shape-deep", ErrorCode::corrupt,
     "header: not a valid literal: expected at most 32 levels, found \"[\" at byte 53"},
    {"shape-dimensions", ErrorCode::corrupt,
     "shape: too many dimensions: expected at most 64, found 65"},
    {"shape-huge", ErrorCode::corrupt,
     "header: a length does not fit 63 bits: expected at most 9223372036854775807, found "
     "9223372036854775808"},
    {"shape-list", ErrorCode::corrupt,
     "header: not a valid literal: expected \"(\", found \"[\" at byte 60"},
    {"shape-negative", ErrorCode::corrupt,
     "header: not a valid literal: expected a length from 0, found \"-\" at byte 61"},
    {"shape-number", ErrorCode::corrupt,
     "header: not a valid literal: expected \",\", which makes it a tuple, found \")\" at byte "
     "62"},
    {"shape-overflow", ErrorCode::corrupt,
     "shape: too large: expected at most 2^63 - 1 bytes, found [4294967296, 4294967296]"},
    {"version-4", ErrorCode::unsupported,
     "header: unknown version: expected 1.0, 2.0 or 3.0, found 4.0"},
    {"version-cut", ErrorCode::corrupt,
     "header: it is truncated: expected a version, found the end"},
};

class NpyBad : public testing::TestWithParam<BadFile> {};

TEST_P(NpyBad, IsRefusedWithItsMessage) {
  const Path path = npy(std::string("bad-") + GetParam().name);
  EXPECT_EQ(message_of([&] { numpy::kNpy.open(path, {}); }, GetParam().code),
            path.string() + ": " + GetParam().message);
  EXPECT_FALSE(numpy::kNpy.verify(path, {}).ok());
}

INSTANTIATE_TEST_SUITE_P(Npy, NpyBad, testing::ValuesIn(kBadFiles), [](const auto& bad) {
  std::string name = bad.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(NpyBadFiles, AreAllInTheTable) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(npy("").parent_path())) {
    if (entry.path().filename().string().starts_with("bad-")) ++count;
  }
  EXPECT_EQ(count, kBadFiles.size());
}

TEST(NpyBadFiles, EveryTruncatedFileIsCorrupt) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(npy("ok-fortran"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "x.npy", whole.substr(0, size));
    message_of([&] { numpy::kNpy.open(folder / "x.npy", {}); }, ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace tenfold::test

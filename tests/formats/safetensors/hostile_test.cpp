#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

struct BadFile {
  const char* name;  ///< the file is tests/data/safetensors/bad-<name>.safetensors
  ErrorCode code;
  const char* message;  ///< the message without the path
};

const std::vector<BadFile> kBadFiles = {
    {"data-cut", ErrorCode::corrupt,
     "tensor \"b\": data reaches past the end of the file: expected at most 3 bytes, found 8; the "
     "file may be truncated"},
    {"data-missing", ErrorCode::corrupt,
     "tensor \"b\": data reaches past the end of the file: expected at most 0 bytes, found 8; the "
     "file may be truncated"},
    {"data-trailing-empty", ErrorCode::corrupt,
     "data: bytes after the last tensor: expected 0 bytes of data, found 1"},
    {"data-trailing", ErrorCode::corrupt,
     "data: bytes after the last tensor: expected 8 bytes of data, found 9"},
    {"dtype-lower-case", ErrorCode::unsupported,
     "tensor \"w\": unknown dtype: expected one that torch has, found \"f32\""},
    {"dtype-missing", ErrorCode::corrupt,
     "tensor \"w\": dtype is missing: expected a string, found none"},
    {"dtype-number", ErrorCode::corrupt,
     "tensor \"w\": dtype has the wrong type: expected a string, found a number"},
    {"dtype-twice", ErrorCode::corrupt,
     "tensor \"w\": dtype is duplicated: expected it once, found two"},
    {"dtype-unknown", ErrorCode::unsupported,
     "tensor \"w\": unknown dtype: expected one that torch has, found \"F6_E2M3\""},
    {"empty", ErrorCode::corrupt,
     "header length: the file is too short: expected at least 8 bytes, found 0"},
    {"entry-array", ErrorCode::corrupt,
     "tensor \"w\": its value has the wrong type: expected an object, found an array"},
    {"entry-string", ErrorCode::corrupt,
     "tensor \"w\": its value has the wrong type: expected an object, found a string"},
    {"header-array", ErrorCode::corrupt, "header: not a JSON object: expected \"{\", found \"[\""},
    {"header-blank", ErrorCode::corrupt,
     "header: not a JSON object: expected \"{\", found nothing"},
    {"header-bom", ErrorCode::corrupt,
     "header: not a JSON object: expected \"{\", found \"\\xef\""},
    {"header-cut", ErrorCode::corrupt,
     "header: not valid json: expected \",\" or \"}\", found the end of the text at byte 19"},
    {"header-deep", ErrorCode::corrupt,
     "header: nesting is too deep: expected at most 512 levels, found more at byte 520"},
    {"header-empty", ErrorCode::corrupt,
     "header: not a JSON object: expected \"{\", found nothing"},
    {"header-length-huge", ErrorCode::corrupt,
     "header: too long: expected at most 100000000 bytes, found 18446744073709551615"},
    {"header-not-json", ErrorCode::corrupt,
     "header: not valid json: expected a value, found \"}\" at byte 5"},
    {"header-not-utf8", ErrorCode::corrupt,
     "header: not valid json: expected utf-8, found \"\\xff\" at byte 2"},
    {"header-nul-padding", ErrorCode::corrupt,
     "header: not valid json: expected the end of the text, found \"\\x00\" at byte 2"},
    {"header-past-end", ErrorCode::corrupt,
     "header: reaches past the end of the file: expected at most 2 bytes, found 3; the file may be "
     "truncated"},
    {"header-too-long", ErrorCode::corrupt,
     "header: too long: expected at most 100000000 bytes, found 100000001"},
    {"header-two-documents", ErrorCode::corrupt,
     "header: not valid json: expected the end of the text, found \"{\" at byte 2"},
    {"metadata-array", ErrorCode::corrupt,
     "header: \"__metadata__\" has the wrong type: expected an object of strings, found an array"},
    {"metadata-key-twice", ErrorCode::corrupt,
     "header: \"a\" in \"__metadata__\" is duplicated: expected it once, found two"},
    {"metadata-nested", ErrorCode::corrupt,
     "header: \"a\" in \"__metadata__\" has the wrong type: expected a string, found an object"},
    {"metadata-number", ErrorCode::corrupt,
     "header: \"a\" in \"__metadata__\" has the wrong type: expected a string, found a number"},
    {"metadata-twice", ErrorCode::corrupt,
     "header: \"__metadata__\" is duplicated: expected it once, found two"},
    {"name-surrogate", ErrorCode::corrupt,
     "tensor \"\\xed\\xa0\\x80\": its name is not valid UTF-8: expected UTF-8, found a lone "
     "surrogate"},
    {"name-twice", ErrorCode::corrupt,
     "tensor \"w\": its name is duplicated: expected it once, found two"},
    {"notes-not-json", ErrorCode::corrupt,
     "__metadata__ \"tenfold\": not valid json: expected a string in double quotes or \"}\", found "
     "the end of the text at byte 1"},
    {"offsets-alias", ErrorCode::corrupt,
     "tensor \"b\": data_offsets must be contiguous: expected begin 8, found 0"},
    {"offsets-backwards", ErrorCode::corrupt,
     "tensor \"w\": data_offsets end before they begin: expected end at least 8, found 0"},
    {"offsets-first-hole", ErrorCode::corrupt,
     "tensor \"w\": data_offsets must be contiguous: expected begin 0, found 4"},
    {"offsets-hole", ErrorCode::corrupt,
     "tensor \"b\": data_offsets must be contiguous: expected begin 8, found 12"},
    {"offsets-huge", ErrorCode::corrupt,
     "tensor \"w\": data_offsets does not fit 63 bits: expected an integer from 0, found "
     "1180591620717411303424"},
    {"offsets-missing", ErrorCode::corrupt,
     "tensor \"w\": data_offsets is missing: expected an array of two integers, found none"},
    {"offsets-negative", ErrorCode::corrupt,
     "tensor \"w\": data_offsets is negative: expected offsets from 0, found -8"},
    {"offsets-one", ErrorCode::corrupt,
     "tensor \"w\": data_offsets is too short: expected 2 offsets, found 1"},
    {"offsets-overlap", ErrorCode::corrupt,
     "tensor \"b\": data_offsets must be contiguous: expected begin 8, found 4"},
    {"offsets-three", ErrorCode::corrupt,
     "tensor \"w\": data_offsets is too long: expected 2 offsets, found more"},
    {"seven-bytes", ErrorCode::corrupt,
     "header length: the file is too short: expected at least 8 bytes, found 7"},
    {"shape-fraction", ErrorCode::corrupt,
     "tensor \"w\": shape is not an integer: expected an integer from 0, found 2.5"},
    {"shape-huge", ErrorCode::corrupt,
     "tensor \"w\": shape does not fit 63 bits: expected an integer from 0, found "
     "18446744073709551616"},
    {"shape-missing", ErrorCode::corrupt,
     "tensor \"w\": shape is missing: expected an array of integers, found none"},
    {"shape-negative", ErrorCode::corrupt,
     "tensor \"w\": shape is negative: expected lengths from 0, found -2"},
    {"shape-number", ErrorCode::corrupt,
     "tensor \"w\": shape has the wrong type: expected an array of integers, found a number"},
    {"shape-odd-f4", ErrorCode::corrupt,
     "tensor \"w\": shape does not fill whole bytes: expected an even last dimension for F4, found "
     "[2, 3]"},
    {"shape-overflow", ErrorCode::corrupt,
     "tensor \"w\": shape is too large: expected at most 2^63 - 1 bytes, found [4294967296, "
     "4294967296]"},
    {"shape-scalar-f4", ErrorCode::corrupt,
     "tensor \"w\": shape does not fill whole bytes: expected an even last dimension for F4, found "
     "[]"},
    {"shape-string", ErrorCode::corrupt,
     "tensor \"w\": shape has an item of the wrong type: expected an integer, found a string"},
    {"shape-wraps-to-fit", ErrorCode::corrupt,
     "tensor \"w\": shape is too large: expected at most 2^63 - 1 bytes, found "
     "[4611686018427387904, 4, 2]"},
    {"size-mismatch", ErrorCode::corrupt,
     "tensor \"w\": data_offsets do not fit F32 [3]: expected 12 bytes, found 8"},
    {"structure-array", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": the document has the wrong type: expected an object, "
     "found an array"},
    {"structure-batch-mismatch", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"w\": the shape of tensor \"w\" does not fit: expected it "
     "to start with the batch_size [3], found [2]"},
    {"structure-batch-missing", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"batch_size\" is missing: expected an array, found "
     "none"},
    {"structure-batch-negative", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": an item of \"batch_size\" is out of range: "
     "expected an integer from 0, found -1"},
    {"structure-entry-empty", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"w\": has no content: expected one of \"tensor\", "
     "\"non_tensor\" and \"td\", found none"},
    {"structure-entry-two", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"w\": has more than one content: expected one of "
     "\"tensor\", "
     "\"non_tensor\" and \"td\", found two"},
    {"structure-key-twice", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"w\": the key is duplicated: expected it once, found "
     "two"},
    {"structure-keys-missing", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"keys\" is missing: expected an object, found none"},
    {"structure-name-taken", ErrorCode::corrupt,
     "tensor \"w\": not in the structure, and its name is taken: expected another name, found a "
     "key of the root"},
    {"structure-names-few", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"names\" does not fit: expected one for each of the "
     "1 batch dimensions, found 2"},
    {"structure-not-json", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": not valid json: expected a string in double quotes or \"}\", "
     "found the end of the text at byte 1"},
    {"structure-root-missing", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"root\" is missing: expected an object, found none"},
    {"structure-stack-dim", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"stack_dim\" does not fit: expected a dimension of "
     "batch_size [], found 0"},
    {"structure-stack-huge", ErrorCode::unsupported,
     "__metadata__ \"tensordict\": node \"\": the lazy stacks are too large: expected at most "
     "1048576 entries in all, found more"},
    {"structure-tensor-number", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"w\": \"tensor\" has the wrong type: expected a string, "
     "found an integer"},
    {"structure-tensor-unknown", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"n/x\": no such tensor: expected a tensor of the file, "
     "found \"v\""},
    {"structure-version-2", ErrorCode::unsupported,
     "__metadata__ \"tensordict\": unknown version: expected 1, found 2"},
    {"structure-version-missing", ErrorCode::corrupt,
     "__metadata__ \"tensordict\": node \"\": \"version\" is missing: expected 1, found none"},
};

class EveryBadFile : public testing::TestWithParam<BadFile> {};

TEST_P(EveryBadFile, IsRefusedWithItsMessage) {
  const Path path = data("bad-" + std::string(GetParam().name) + ".safetensors");
  const std::string message =
      message_of([&] { safetensors::kFormat.open(path, {}); }, GetParam().code);
  EXPECT_EQ(message, path.string() + ": " + GetParam().message);
}

TEST_P(EveryBadFile, IsReportedByVerify) {
  const Path path = data("bad-" + std::string(GetParam().name) + ".safetensors");
  const VerifyReport report = safetensors::kFormat.verify(path, {});
  ASSERT_EQ(report.problems.size(), 1U);
  const Problem& problem = report.problems.front();
  EXPECT_EQ(problem.path, path.string());
  EXPECT_EQ(problem.part + ": " + problem.what, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, EveryBadFile, testing::ValuesIn(kBadFiles),
                         [](const auto& file) {
                           std::string name = file.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SafetensorsHostile, EveryBadFileOfTheFolderIsInTheTable) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(data(""))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("bad-")) found.push_back(name);
  }
  std::vector<std::string> expected;
  for (const BadFile& file : kBadFiles) {
    expected.push_back("bad-" + std::string(file.name) + ".safetensors");
  }
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

/// A file with the tensors "w", float32 [2], and "s", float32 [], and the document `structure`.
/// If `notes` is not empty, it is the value of the metadata member "tenfold".
std::string file_with_structure(const std::string& structure, const std::string& notes = "") {
  std::string header = R"({"__metadata__":{"tensordict":)" + to_json(Value(structure));
  if (!notes.empty()) header += R"(,"tenfold":)" + to_json(Value(notes));
  header += R"(},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    length[i] = static_cast<char>(header.size() >> (8 * i) & 255U);
  return length + header + std::string(12, '\0');
}

struct BadStructure {
  const char* name;
  const char* root;  ///< members of the root node, or, after a "!", of the document
  const char* message;
  const char* notes = "";
};

const std::vector<BadStructure> kBadStructures = {
    {"VersionString", R"(!"version":"1")",
     "node \"\": \"version\" has the wrong type: expected an integer from 0, found a string"},
    {"VersionHuge", R"(!"version":99999999999999999999)",
     "node \"\": \"version\" has the wrong type: expected an integer from 0, found "
     "99999999999999999999"},
    {"VersionFraction", R"(!"version":1.5)",
     "node \"\": \"version\" has the wrong type: expected an integer from 0, found a "
     "floating-point number"},
    {"RootNull", R"(!"root":null)",
     "node \"\": \"root\" has the wrong type: expected an object, found null"},
    {"RootTwice", R"(!"root":{"batch_size":[],"keys":{}},"root":{})",
     "node \"\": \"root\" is duplicated: expected it once, found two"},
    {"BatchSizeNull", R"("batch_size":null)",
     "node \"\": \"batch_size\" has the wrong type: expected an array, found null"},
    {"BatchSizeTwice", R"("batch_size":[],"batch_size":[])",
     "node \"\": \"batch_size\" is duplicated: expected it once, found two"},
    {"BatchSizeNested", R"("batch_size":[[1]])",
     "node \"\": an item of \"batch_size\" has the wrong type: expected an integer from 0, found "
     "an array"},
    {"NamesNumber", R"("names":3)",
     "node \"\": \"names\" has the wrong type: expected an array or null, found an integer"},
    {"NameTrue", R"("names":[true])",
     "node \"\": an item of \"names\" has the wrong type: expected a string or null, found true"},
    {"StackDimString", R"("stack_dim":"0")",
     "node \"\": \"stack_dim\" has the wrong type: expected an integer from 0 to 63, or null, "
     "found a string"},
    {"StackDimHuge", R"("stack_dim":64)",
     "node \"\": \"stack_dim\" is out of range: expected an integer from 0 to 63, or null, "
     "found 64"},
    {"ClassNumber", R"("class":3)",
     "node \"\": \"class\" has the wrong type: expected a string or null, found an integer"},
    {"DeviceNull", R"("device":null)",
     "node \"\": \"device\" has the wrong type: expected a string, found null"},
    {"DeviceUnknown", R"("batch_size":[],"device":"cuda:1000","keys":{})",
     "node \"\": \"device\": expected a type and optionally an index of at most 127, as in "
     "\"cuda:0\", found \"cuda:1000\""},
    {"LazyStackNumber", R"("lazy_stack":1)",
     "node \"\": \"lazy_stack\" has the wrong type: expected an object, found an integer"},
    {"LazyStackDimNull", R"("lazy_stack":{"stack_dim":null})",
     "node \"\": \"stack_dim\" has the wrong type: expected an integer from 0 to 63, found null"},
    {"LazyStackNameNumber", R"("lazy_stack":{"name":1})",
     "node \"\": \"name\" has the wrong type: expected a string or null, found an integer"},
    {"LazyStackDimTooLarge",
     R"("batch_size":[],"lazy_stack":{"stack_dim":1,"name":"n"},)"
     R"("keys":{"0":{"td":{"batch_size":[],"keys":{}}}})",
     "node \"\": \"stack_dim\": expected at most 0, the number of batch dimensions of entry \"0\", "
     "found 1"},
    {"LazyStackOfADict",
     R"("batch_size":[],"lazy_stack":{"stack_dim":0},)"
     R"("keys":{"0":{"td":{"batch_size":[],"keys":{}}}})",
     "node \"0\": an entry of a lazy stack has the wrong kind: expected \"tensordict\", "
     "\"tensorclass\" or \"lazy_stack\", found \"dict\"",
     R"({"version":1,"nodes":{"0":{"kind":"dict"}}})"},
    {"KeysArray", R"("keys":[])",
     "node \"\": \"keys\" has the wrong type: expected an object, found an array"},
    {"KeysTwice", R"("keys":{},"keys":{})",
     "node \"\": \"keys\" is duplicated: expected it once, found two"},
    {"EntryNumber", R"("keys":{"w":3})",
     "node \"w\": an entry has the wrong type: expected an object, found an integer"},
    {"UnbatchedNumber", R"("keys":{"w":{"unbatched":1}})",
     "node \"w\": \"unbatched\" has the wrong type: expected a boolean, found an integer"},
    {"NonTensorStackDim", R"("keys":{"w":{"stack_dim":-1}})",
     "node \"w\": \"stack_dim\" is out of range: expected an integer from 0 to 63, found -1"},
    {"TdArray", R"("keys":{"n":{"td":[]}})",
     "node \"n\": \"td\" has the wrong type: expected an object, found an array"},
    {"InnerKeysMissing", R"("batch_size":[],"keys":{"n/m":{"td":{"batch_size":[]}}})",
     "node \"n%2Fm\": \"keys\" is missing: expected an object, found none"},
    {"BatchSizeShorterThanTheStack",
     R"("batch_size":[2],"stack_dim":0,"keys":{"n":{"td":{"batch_size":[1],"keys":{}}}})",
     "node \"1/n\": batch_size does not fit the stack: expected more than 1 in dimension 0, found "
     "1"},
    {"TensorShorterThanTheStack",
     R"("batch_size":[3],"stack_dim":0,"keys":{"n":{"td":{"batch_size":[],"keys":)"
     R"({"w":{"tensor":"w"}}}}})",
     "node \"2/n/w\": the shape of tensor \"w\" does not fit the stack: expected more than 2 in "
     "dimension 0, found [2]"},
    {"ScalarInAStack",
     R"("batch_size":[1],"stack_dim":0,"keys":{"n":{"td":{"batch_size":[],"keys":)"
     R"({"s":{"tensor":"s"}}}}})",
     "node \"0/n/s\": the shape of tensor \"s\" does not fit the stack: expected more than 0 in "
     "dimension 0, found []"},
};

class EveryBadStructure : public testing::TestWithParam<BadStructure> {};

TEST_P(EveryBadStructure, IsRefusedWithItsMessage) {
  const BadStructure& bad = GetParam();
  const std::string root = bad.root;
  const std::string document =
      root.starts_with("!") ? "{" + root.substr(1) + "}" : R"({"version":1,"root":{)" + root + "}}";
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  write_bytes(path, file_with_structure(document, bad.notes));
  EXPECT_EQ(message_of([&] { safetensors::kFormat.open(path, {}); }, ErrorCode::corrupt),
            path.string() + ": __metadata__ \"tensordict\": " + bad.message);
  const VerifyReport report = safetensors::kFormat.verify(path, {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part + ": " + report.problems[0].what,
            std::string("__metadata__ \"tensordict\": ") + bad.message);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, EveryBadStructure, testing::ValuesIn(kBadStructures),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(SafetensorsHostile, RefusesALazyStackWhoseMetadataWouldBeCopiedTooOften) {
  const std::string text(std::size_t{1} << 20, 'x');
  std::string dims = "524288";
  for (int i = 0; i < 500; ++i) dims += ",1";
  for (const std::string& level :
       {R"("batch_size":[2000],"stack_dim":0,"keys":{"v":{"non_tensor":")" + text + R"("}})",
        R"("batch_size":[2000],"stack_dim":0,"class":")" + text + R"(","keys":{})",
        R"("batch_size":[2000],"stack_dim":0,"keys":{")" + text +
            R"(":{"td":{"batch_size":[2000],"stack_dim":0,"keys":{}}}})",
        R"("batch_size":[)" + dims + R"(],"stack_dim":0,"keys":{})"}) {
    const TemporaryFolder folder;
    write_bytes(folder / "m.safetensors",
                file_with_structure(R"({"version":1,"root":{)" + level + R"(}})"));
    expect_error(ErrorCode::unsupported, "the lazy stacks are too large",
                 [&] { safetensors::kFormat.open(folder / "m.safetensors", {}); });
  }
}

TEST(SafetensorsHostile, ReadsALazyStackFromAStructureDocument) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  write_bytes(
      path,
      file_with_structure(
          R"({"version":1,"later":[{"a":1}],"root":{"batch_size":[],"names":null,"class":null,)"
          R"("stack_dim":null,"later":{"b":[]},"lazy_stack":{"stack_dim":1,"name":"time","x":[2]},)"
          R"("keys":{"0":{"td":{"batch_size":[2],"device":"cuda:1","keys":{"w":{"tensor":"w"}}}},)"
          R"("1":{"td":{"batch_size":[2],"keys":{"w":{"tensor":"w"},"x":{"non_tensor":[1,2],)"
          R"("stack_dim":0}}}}}}})"));
  const test::Warnings warnings;
  const TensorDict tree = safetensors::kFormat.open(path, {});
  EXPECT_EQ(tree.kind(), NodeKind::lazy_stack);
  EXPECT_EQ(tree.info().stack_dim, 1);
  EXPECT_EQ(tree.info().stack_dim_name, "time");
  EXPECT_EQ(tree["0"].info().device, "cuda:1");
  const TensorDict::Item item = tree["1"].get("x");
  EXPECT_TRUE(std::get<NonTensor>(item).is_stack);
  EXPECT_EQ(to_json(std::get<NonTensor>(item).value), "[1, 2]");
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"0", "1"}));
  EXPECT_THAT(Warnings::messages(),
              testing::ElementsAre(testing::HasSubstr(
                  "tensor \"s\": not in __metadata__ \"tensordict\": ignored, because the root is "
                  "a lazy stack; another tool may have changed the file")));
}

TEST(SafetensorsHostile, TensorsThatTheStructureDoesNotNameAreAddedWithOneWarning) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  for (const std::string batch_size : {"[]", "[2]"}) {
    write_bytes(path, file_with_structure(R"({"version":1,"root":{"batch_size":)" + batch_size +
                                          R"(,"keys":{}}})"));
    const test::Warnings warnings;
    const TensorDict tree = safetensors::kFormat.open(path, {});
    EXPECT_EQ(tree.keys(), (std::vector<std::string>{"w", "s"}));
    EXPECT_FALSE(std::get<Leaf>(tree.get("w")).is_unbatched());
    EXPECT_EQ(std::get<Leaf>(tree.get("s")).is_unbatched(), batch_size == "[2]");
    EXPECT_THAT(Warnings::messages(),
                testing::ElementsAre(testing::HasSubstr(
                    "tensor \"w\" and 1 more: not in __metadata__ \"tensordict\": added at the "
                    "root under their names; another tool may have changed the file")));
  }
}

/// Returns a folder in memory, or an empty path if there is none. These tests write thousands of
/// small files, so a file system in memory makes them faster.
std::filesystem::path memory() {
  const std::filesystem::path shared_memory = "/dev/shm";
  return std::filesystem::is_directory(shared_memory) ? shared_memory : std::filesystem::path();
}

/// Opens the file, and maps and reads all of its tensors. Returns false if it was refused.
bool opens(const Path& path) {
  try {
    const TensorDict tree = safetensors::kFormat.open(path, {});
    text_of(tree);
    tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) read_bytes(*leaf);
    });
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    return false;
  }
}

TEST(SafetensorsHostile, NoPrefixOfAFileOpens) {
  const TemporaryFolder folder(memory());
  for (const char* name : {"ok-td-nested.safetensors", "ok-save-model.safetensors",
                           "ok-td-lazy-1.safetensors", "ok-zero-elements.safetensors"}) {
    const std::string whole = bytes_of(data(name));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write_bytes(folder / "m.safetensors", whole.substr(0, size));
      EXPECT_FALSE(opens(folder / "m.safetensors")) << name << " cut to " << size << " bytes";
    }
  }
}

TEST(SafetensorsHostile, AFlippedBitIsRefusedOrHarmless) {
  const TemporaryFolder folder(memory());
  std::mt19937 random(7);
  for (const char* name : {"ok-td-nested.safetensors", "ok-td-lazy-0.safetensors",
                           "ok-save-model.safetensors", "ok-dtypes.safetensors"}) {
    const std::string whole = bytes_of(data(name));
    for (int i = 0; i < 500; ++i) {
      std::string damaged = whole;
      const std::size_t at = random() % damaged.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
      write_bytes(folder / "m.safetensors", damaged);
      opens(folder / "m.safetensors");  // checks the codes of errors
    }
  }
}

TEST(SafetensorsHostile, VerifyDetectsAFlippedBitInEveryByteOfASavedFile) {
  const TemporaryFolder folder(memory());
  TensorDict tree;
  tree.set("w", tensor_of<float>({1, 2, 3}, {3}));
  tree.set("n", Value(3));
  safetensors::kFormat.write(tree, folder / "ok.safetensors", {});
  const std::string whole = bytes_of(folder / "ok.safetensors");
  // If the changed byte is in the name of the member with the checksums, the result is a valid file
  // without checksums.
  const std::string marker = "tenfold_xxh3";
  const std::size_t marker_at = whole.find(marker);
  ASSERT_NE(marker_at, std::string::npos);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    write_bytes(folder / "m.safetensors", damaged);
    const VerifyReport report = safetensors::kFormat.verify(folder / "m.safetensors", {});
    const bool marker_is_hit = at >= marker_at && at < marker_at + marker.size();
    EXPECT_TRUE(!report.ok() || (marker_is_hit && report.num_checksums == 0)) << "byte " << at;
  }
}

}  // namespace
}  // namespace tenfold::test

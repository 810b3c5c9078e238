#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "codecs/npy_header.hpp"
#include "formats/format.hpp"
#include "formats/numpy/npy_array.hpp"
#include "formats/safetensors/support.hpp"
#include "formats/shared/zip_archive.hpp"
#include "io/registry.hpp"
#include "os/fs/directory.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::HasSubstr;

struct Member {
  std::string name;
  std::string bytes;
  std::uint32_t alignment = 64;
};

/// Writes the archive x.npz, whose members have arbitrary bytes.
void write_archive(const TemporaryFolder& folder, const std::vector<Member>& members) {
  std::vector<ZipArchiveEntry> entries;
  for (const Member& member : members) {
    entries.push_back({member.name, member.bytes, {}, member.alignment});
  }
  const os::Directory directory = os::Directory::open(folder.path());
  std::filesystem::remove(folder / "x.npz");
  os::File file = os::File::create_at(directory, "x.npz");
  Progress progress(nullptr, 0, "writing");
  write_zip_archive(file, entries, {}, progress);
}

std::string npy(const std::string& descr, const std::vector<std::int64_t>& shape,
                const std::string& elements, bool fortran_order = false) {
  codecs::NpyHeader header;
  header.descr = descr;
  header.is_structured = descr.starts_with('[');
  header.shape = shape;
  header.fortran_order = fortran_order;
  return codecs::write_npy_header(header) + elements;
}

TensorDict opened(const TemporaryFolder& folder) {
  EXPECT_TRUE(numpy::kNpz.probe(folder / "x.npz"));
  EXPECT_TRUE(numpy::kNpz.verify(folder / "x.npz", {}).ok());
  return numpy::kNpz.open(folder / "x.npz", {});
}

Leaf leaf_in(const TensorDict& tree, const std::string& key) {
  return std::get<Leaf>(tree.get(key));
}

TEST(Npz, MapsMembersInPlace) {
  const TemporaryFolder folder;
  write_archive(folder, {{"a.npy", npy("<i2", {2}, "abcd")}, {"b/c.npy", npy("|u1", {}, "x")}});
  const TensorDict tree = opened(folder);
  EXPECT_EQ(tree.kind(), NodeKind::dict);
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"a", "b/c"}));
  EXPECT_EQ(mapped_bytes(leaf_in(tree, "a")), "abcd");
  EXPECT_EQ(read_bytes(leaf_in(tree, "b/c")), "x");
  EXPECT_EQ(leaf_in(tree, "b/c").shape(), Shape{});
  // The distance of the tensors in memory equals that in the file, which is mapped as a whole.
  const auto address = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.raw_data());
  };
  const std::string bytes = bytes_of(folder / "x.npz");
  EXPECT_EQ(address(leaf_in(tree, "b/c").tensor()) - address(leaf_in(tree, "a").tensor()),
            bytes.find("\nx") - bytes.find("\nabcd"));
}

TEST(Npz, StoresABareTensorUnderNumpysName) {
  const TemporaryFolder folder;
  const TensorDict saved = bare_tree(Leaf(tensor_of<float>({1, 2}, {2})));
  numpy::kNpz.write(saved, folder / "x.npz", {});
  const TensorDict tree = opened(folder);
  EXPECT_TRUE(is_bare(tree));
  EXPECT_EQ(tree.keys(), std::vector<std::string>{"arr_0"});
  EXPECT_EQ(tree.at("x").shape(), Shape{2});
  // tenfold marks a bare tensor by a comment of its ZIP member. numpy.savez writes no such comment.
  write_archive(folder, {{"arr_0.npy", npy("<i2", {2}, "abcd")}});
  EXPECT_FALSE(is_bare(opened(folder)));
  TensorDict named(kind(NodeKind::dict));
  named.set("arr_0", tensor_of<float>({1, 2}, {2}));
  numpy::kNpz.write(named, folder / "x.npz", {});
  EXPECT_FALSE(is_bare(opened(folder)));
  EXPECT_EQ(message_of([] { numpy::kNpz.check(bare_tree(NonTensor{Value("text")})); },
                       ErrorCode::unsupported),
            "root: it cannot be stored: expected a tensor, found a JSON value");
}

TEST(Npz, CopiesUnalignedMembers) {
  const TemporaryFolder folder;
  write_archive(folder, {{"x.npy", npy("<f8", {1}, "12345678"), 1}});
  const TensorDict tree = opened(folder);
  const Leaf leaf = leaf_in(tree, "x");
  EXPECT_EQ(mapped_bytes(leaf), "12345678");
  EXPECT_EQ(read_bytes(leaf), "12345678");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leaf.tensor().raw_data()) % 8, 0U);
  EXPECT_EQ(leaf.tensor().raw_data(), leaf.tensor().raw_data());
}

TEST(Npz, FortranOrderIsAViewIfMappedAndTransposedIfCopied) {
  for (const std::uint32_t alignment : {64U, 1U}) {
    const TemporaryFolder folder;
    write_archive(folder, {{"x.npy", npy("<i2", {2, 3}, "aabbccddeeff", true), alignment}});
    const TensorDict tree = opened(folder);
    const Leaf leaf = leaf_in(tree, "x");
    EXPECT_EQ(leaf.shape(), (Shape{2, 3}));
    EXPECT_EQ(leaf.tensor().is_contiguous(), alignment == 1);
    EXPECT_EQ(mapped_bytes(leaf), "aacceebbddff");
    EXPECT_EQ(read_bytes(leaf), "aacceebbddff");
  }
}

TEST(Npz, KeepsACopyUntilItsNumberOfBytesWasRead) {
  const TemporaryFolder folder;
  write_archive(folder, {{"x.npy", npy("<i2", {2, 3}, "aabbccddeeff", true), 1}});
  const Leaf leaf = leaf_in(opened(folder), "x");
  const auto half_at = [&](std::uint64_t begin) {
    std::string half(6, ' ');
    leaf.read(begin, std::as_writable_bytes(std::span(half)));
    return half;
  };
  EXPECT_EQ(half_at(6), "bbddff");
  const auto at = static_cast<std::streamoff>(bytes_of(folder / "x.npz").find("aabbccddeeff"));
  std::fstream file(folder / "x.npz", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file << "xxxxxxxxxxxx" << std::flush;
  EXPECT_EQ(half_at(0), "aaccee");
  EXPECT_EQ(half_at(0), "xxxxxx");
}

TEST(Npz, ASelectedMappedArrayInFortranOrderIsVerified) {
  const TemporaryFolder folder;
  write_archive(folder, {{"good.npy", npy("|u1", {1}, "x")},
                         {"bad.npy", npy("<i2", {2, 3}, "aabbccddeeff", true)}});
  std::string bytes = bytes_of(folder / "x.npz");
  bytes[bytes.find("aabbccddeeff")] = 'x';
  write_bytes(folder / "x.npz", bytes);
  LoadOptions options;
  options.verify = true;
  options.keys = {"bad"};
  EXPECT_THAT(message_of([&] { load(folder / "x.npz", options); }, ErrorCode::corrupt),
              HasSubstr("bad.npy"));
  options.keys = {"good"};
  EXPECT_EQ(load(folder / "x.npz", options).keys(), std::vector<std::string>{"good"});
}

TEST(Npz, AnUnsupportedMemberIsAnErrorOnAccess) {
  const TemporaryFolder folder;
  write_archive(folder, {{"good.npy", npy("|u1", {1}, "x")},
                         {"bad.npy", npy("|O", {1}, "pickled")},
                         {"text.npy", npy("<U1", {1}, "abcd")},
                         {"big.npy", npy(">i4", {1}, "abcd")}});
  const TensorDict tree = numpy::kNpz.open(folder / "x.npz", {});
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"good", "bad", "text", "big"}));
  EXPECT_EQ(read_bytes(leaf_in(tree, "good")), "x");
  EXPECT_THAT(message_of([&] { tree.get("bad"); }, ErrorCode::unsupported),
              HasSubstr("x.npz: member \"bad.npy\": dtype: an array of Python objects"));
  EXPECT_THAT(message_of([&] { tree.get("text"); }, ErrorCode::unsupported),
              HasSubstr("member \"text.npy\": dtype: torch has no such dtype"));
  EXPECT_THAT(message_of([&] { tree.get("big"); }, ErrorCode::unsupported),
              HasSubstr("member \"big.npy\": dtype: big-endian elements"));
  LoadOptions some;
  some.keys = {"good"};
  EXPECT_EQ(load(folder / "x.npz", some).keys(), std::vector<std::string>{"good"});
  message_of([&] { load(folder / "x.npz"); }, ErrorCode::unsupported);
  const VerifyReport report = numpy::kNpz.verify(folder / "x.npz", {});
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.num_leaves, 1);
  EXPECT_EQ(report.num_checksums, 4);
}

TEST(Npz, RoundTripsItsMembers) {
  const TemporaryFolder folder;
  TensorDict tree(kind(NodeKind::ordered_dict));
  tree.set("a/b", tensor_of<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  tree.set("none", tensor_of<std::int8_t>({}, {0, 7}));
  tree.set("", tensor_of<std::uint8_t>({1}, {}));
  const Tensor square = tensor_of<std::int64_t>({1, 2, 3, 4}, {2, 2});
  tree.set("strided", Tensor(DType::int64, {2, 2}, {1, 2}, square.buffer(), 0));
  numpy::kNpz.check(tree);
  numpy::kNpz.write(tree, folder / "x.npz", {});
  const TensorDict found = opened(folder);
  tree.info().kind = NodeKind::dict;
  EXPECT_EQ(text_of(found), text_of(tree));
  const VerifyReport report = numpy::kNpz.verify(folder / "x.npz", {});
  EXPECT_EQ(report.num_leaves, 4U);
  EXPECT_EQ(report.num_checksums, 4U);
  for (const char* key : {"a/b", "strided"}) {
    const Tensor tensor = leaf_in(found, key).tensor();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % 64, 0U) << key;
  }
  numpy::kNpz.write(TensorDict(kind(NodeKind::dict)), folder / "x.npz", {});
  EXPECT_EQ(opened(folder).size(), 0U);
}

TEST(Npz, VerifyDetectsDamagedElements) {
  const TemporaryFolder folder;
  write_archive(folder, {{"a.npy", npy("|u1", {4}, "good")}, {"b.npy", npy("|u1", {4}, "fine")}});
  std::string bytes = bytes_of(folder / "x.npz");
  bytes[bytes.find("good")] = 'm';
  write_bytes(folder / "x.npz", bytes);
  const VerifyReport report = numpy::kNpz.verify(folder / "x.npz", {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "entry \"a.npy\"");
  EXPECT_THAT(report.problems[0].what, HasSubstr("CRC-32"));
  LoadOptions options;
  options.verify = true;
  EXPECT_THAT(message_of([&] { load(folder / "x.npz", options); }, ErrorCode::corrupt),
              HasSubstr("a.npy"));
}

TEST(Npz, RefusesByKeyBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const Tensor tensor = tensor_of<float>({1, 2}, {2});
  const auto expect = [&](const TensorDict& tree, const std::string& words) {
    EXPECT_THAT(
        message_of([&] { numpy::kNpz.write(tree, folder / "x.npz", {}); }, ErrorCode::unsupported),
        HasSubstr(words));
    EXPECT_THAT(message_of([&] { numpy::kNpz.check(tree); }, ErrorCode::unsupported),
                HasSubstr(words));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  };
  const auto with = [&](const std::string& key, TensorDict::Item item) {
    TensorDict tree(kind(NodeKind::dict));
    tree.set("fine", tensor_of<float>({1}, {1}));
    tree.set(key, std::move(item));
    return tree;
  };
  expect(with("n", TensorDict()),
         "key \"n\": it cannot be stored: expected a tensor, found a node");
  expect(with("v", NonTensor{Value(1)}), "found a JSON value");
  expect(with("x", Leaf(Tensor::zeros(DType::bfloat16, {1}))), "NumPy has no name for the dtype");
  expect(with("x", Leaf(Tensor::zeros(DType::uint8, Shape(65, 1)))), "too many dimensions");
  expect(with("../x", Leaf(tensor)),
         "key \"../x\": a zip archive cannot have a member of this name");
  expect(with("/x", Leaf(tensor)), "key \"/x\": a zip archive cannot have a member of this name");
  expect(with("x\xff", Leaf(tensor)), "a zip archive cannot have a member of this name");
  expect(with(std::string(70'000, 'x'), Leaf(tensor)), "its name is too long");
  TensorDict tied = with("w", Leaf(tensor));
  tied.set("again", tensor);
  expect(tied,
         "key \"again\": shared storage cannot be stored: expected a tensor with its own "
         "memory, found that of key \"w\"");
  expect(TensorDict(kind(NodeKind::list)), "root: its kind cannot be stored");
  expect(TensorDict(kind(NodeKind::dict, true)), "root: integer keys cannot be stored");
  expect(TensorDict(batch({2})), "root: batch_size cannot be stored");
}

TEST(Npz, RefusesModeWriteThrough) {
  const TemporaryFolder folder;
  write_archive(folder, {{"a.npy", npy("|u1", {4}, "good")}});
  OpenRequest request;
  request.mode = Mode::write_through;
  EXPECT_THAT(
      message_of([&] { numpy::kNpz.open(folder / "x.npz", request); }, ErrorCode::unsupported),
      HasSubstr("cannot be changed in place"));
}

TEST(Npz, ReportsErrorsWithTheirLocation) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::vector<Member>& members, ErrorCode code,
                          const std::string& words) {
    write_archive(folder, members);
    EXPECT_THAT(message_of([&] { numpy::kNpz.open(folder / "x.npz", {}); }, code),
                HasSubstr(words));
    EXPECT_FALSE(numpy::kNpz.verify(folder / "x.npz", {}).ok());
  };
  using enum ErrorCode;
  const Member good = {"good.npy", npy("|u1", {1}, "x")};
  expect({good, {"x.npy", ""}}, corrupt, "x.npz: member \"x.npy\":");
  expect({good, {"x.npy", "no array at all"}}, corrupt, "member \"x.npy\":");
  expect({good, {"x.npy", npy("<f4", {2}, "1234")}}, corrupt, "member \"x.npy\": data: too short");
  expect({good, {"x.npy", npy("<f4", {std::int64_t{1} << 62, 8}, "")}}, corrupt,
         "member \"x.npy\": shape: too large");
  expect({good, {"readme.txt", "hello"}}, unsupported,
         "member \"readme.txt\": not a NumPy file: expected a name that ends in \".npy\"");
  // A member with bytes after its array is refused when it is read, because NumPy would read these
  // bytes as another array.
  write_archive(folder, {good, {"x.npy", npy("<f4", {1}, "12345678")}});
  EXPECT_THAT(message_of([&] { numpy::kNpz.open(folder / "x.npz", {}).get("x"); }, unsupported),
              HasSubstr("bytes after the array"));
}

TEST(Npz, EveryTruncatedFileIsCorrupt) {
  const TemporaryFolder folder;
  write_archive(folder, {{"a.npy", npy("<i2", {2, 2}, "abcdefgh", true)},
                         {"b.npy", npy("|u1", {4}, "fine")}});
  const std::string whole = bytes_of(folder / "x.npz");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "x.npz", whole.substr(0, size));
    message_of([&] { numpy::kNpz.open(folder / "x.npz", {}); }, ErrorCode::corrupt);
    EXPECT_FALSE(numpy::kNpz.verify(folder / "x.npz", {}).ok());
  }
}

}  // namespace
}  // namespace tenfold::test

// A data set whose files are damaged before or after rows are appended, but before close(). Every
// call must succeed or throw an Error. The input is a list of changes. Each change is a byte of
// flags, an offset and a length of two bytes each (little-endian), and as many bytes as the length:
//
//   flags & 15   the index of the file, modulo the number of files, in the sorted list of all files
//                of the valid data set
//   flags & 64   set: the bytes replace everything after the offset; not set: the bytes replace the
//                same number of bytes after the offset
//   flags & 128  the change is made after rows were appended, as if by another program

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/warnings.hpp>

#include "fuzz/scratch.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tenfold;

Leaf unbatched(Tensor tensor) {
  Leaf leaf(std::move(tensor));
  leaf.mark_unbatched();
  return leaf;
}

Tensor ints(const std::vector<std::int64_t>& values) {
  return Tensor::from(std::span<const std::int64_t>(values));
}

Tensor bytes_tensor(std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  return Tensor::from(std::span<const std::uint8_t>(bytes, text.size()));
}

/// Two rows: numbers, strings, and lists of strings.
TensorDict two_rows() {
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(
      R"({"columns": {"x": {"dtype": "int64"},
                      "s": {"dtype": "string"},
                      "w": {"dtype": "string", "ragged": true}}})",
      "fuzz");
  TensorDict rows(info);
  rows.set("x", ints({1, 2}));
  rows.set("s.end", ints({2, 5}));
  rows.set("s", TensorDict::Item(unbatched(bytes_tensor("onetw"))));
  rows.set("w.end", ints({2, 3}));
  rows.set("w.item_end", TensorDict::Item(unbatched(ints({3, 5, 9}))));
  rows.set("w", TensorDict::Item(unbatched(bytes_tensor("abcdefghi"))));
  return rows;
}

using Files = std::map<std::string, std::string>;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Files files_of(const fs::path& root) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().lexically_relative(root).string()] = bytes_of(entry.path());
  }
  return files;
}

const fs::path& scratch() {
  static const fuzz::ScratchFolder folder;
  return folder.path();
}

/// The files of a valid data set, to which the changes of each input are applied.
const Files& valid_files() {
  static const Files files = [] {
    const fs::path path = scratch() / "valid";
    {
      Dataset ds = create(path, Schema::of(two_rows()), {});
      ds.append(two_rows());
      ds.close();
    }
    return files_of(path);
  }();
  return files;
}

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

struct Change {
  std::size_t file = 0;
  bool cuts = false;
  bool comes_later = false;
  std::size_t offset = 0;
  std::string_view bytes;
};

std::vector<Change> changes_of(std::string_view input) {
  std::vector<Change> changes;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(input[at]));
  };
  while (input.size() >= 5) {
    Change change;
    change.file = byte(0) & 15U;
    change.cuts = (byte(0) & 64U) != 0;
    change.comes_later = (byte(0) & 128U) != 0;
    change.offset = byte(1) | byte(2) << 8U;
    const std::size_t length = byte(3) | byte(4) << 8U;
    change.bytes = input.substr(5, length);
    input.remove_prefix(std::min(5 + length, input.size()));
    changes.push_back(change);
  }
  return changes;
}

void apply(const std::vector<Change>& changes, bool later, const fs::path& root) {
  for (const Change& change : changes) {
    if (change.comes_later != later) continue;
    auto file = valid_files().begin();
    std::advance(file, change.file % valid_files().size());
    std::string text = bytes_of(root / file->first);
    const std::size_t offset = std::min(change.offset, text.size());
    text.replace(offset, change.cuts ? std::string::npos : change.bytes.size(), change.bytes);
    write(root / file->first, text);
  }
}

template <class Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_warning_handler([](const std::string&) {});
  const fs::path path = scratch() / "rows";
  const Files& valid = valid_files();
  fs::remove_all(path);
  for (const auto& [name, bytes] : valid) write(path / name, bytes);
  const auto changes = changes_of({reinterpret_cast<const char*>(data), size});
  apply(changes, false, path);
  attempt([&] {
    Dataset ds(path, Mode::write_through);
    attempt([&] { ds.append(two_rows()); });
    attempt([&] { ds.append(two_rows()); });
    apply(changes, true, path);
    attempt([&] { ds.flush(); });
    attempt([&] { ds.append(two_rows()); });
    ds.close();
  });
  attempt([&] { static_cast<void>(verify(path)); });
  attempt([&] {
    const Dataset ds(path);
    static_cast<void>(ds.rows(0, std::min<std::int64_t>(ds.size(), 100)));
  });
  return 0;
}

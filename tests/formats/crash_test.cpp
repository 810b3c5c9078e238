// Crash tests of writers that replace a file or a folder, and of appends to memmap folders: a
// SIGKILL at every change of the file system, and an error of every change. The tests of
// replacements also simulate power failures at every moment. Other writers, such as those of
// growing data sets, dictionaries and checkpoints, have their own crash tests in tests/dataset,
// tests/dict and tests/checkpoint. Add a new format as one row of crash_cases().

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/memmap.hpp>
#include <tenfold/sparse_builder.hpp>
#include <tenfold/tensordict.hpp>

#include "dict/dict_of.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "ingest/table/table_writer.hpp"
#include "io/memmap.hpp"
#include "os/fs/change_observer.hpp"
#include "support/crash_file.hpp"
#include "support/crash_harness.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

/// The versions share some file names, so that a check of the names alone would accept a mixture of
/// both.
Files files_of(char version) {
  Files files = {{"a", content(version)}, {"sub/b", content(version, 700)}};
  files[version == 'o' ? "sub/old" : "sub/new"] = content(version, 90);
  return files;
}

void save_folder(const fs::path& path, char version, bool durable) {
  FolderReplacement replacement(path, 0);
  replacement.folder().create_directory("sub");
  os::Directory sub = os::Directory::open_at(replacement.folder(), "sub");
  for (const auto& [name, bytes] : files_of(version)) {
    const bool nested = name.starts_with("sub/");
    os::File file =
        os::File::create_at(nested ? sub : replacement.folder(), nested ? name.substr(4) : name);
    write_all(file, bytes);
    if (durable) file.sync();
    file.close_written();
  }
  if (durable) sub.sync();
  replacement.publish(durable);
}

Found which_folder(const fs::path& path) {
  recover_folder(path);
  if (!fs::exists(path)) return Found::absent;
  Files found;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_directory()) continue;
    found[entry.path().lexically_relative(path).string()] = read_file(entry.path());
  }
  if (found == files_of('o')) return Found::old_version;
  if (found == files_of('n')) return Found::new_version;
  return Found::neither;
}

/// The versions have different tensors, so that the header of one version never matches the data of
/// the other.
TensorDict tree_of(char version) {
  const auto values = [](std::vector<float> list) {
    const auto size = static_cast<std::int64_t>(list.size());
    return Tensor::from(std::span<const float>(list), {size});
  };
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict inner(dict);
  TensorDict tree(dict);
  if (version == 'o') {
    inner.set("w", values({1, 2, 3}));
    tree.set("b", values({4}));
  } else {
    inner.set("w", values({5, 6, 7}));
    tree.set("c", values({8, 9}));
  }
  tree.set("inner", inner);
  tree.set("tied", inner.at("w"));
  tree.set("version", Value(std::string(1, version)));
  return tree;
}

bool same_trees(const TensorDict& a, const TensorDict& b) {
  bool same = a.keys() == b.keys();
  if (!same) return false;
  a.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const TensorDict::Item other = b.get(key);
    if (item.index() != other.index()) {
      same = false;
    } else if (const auto* leaf = std::get_if<Leaf>(&item)) {
      const auto values = test::values<float>(leaf->tensor());
      const Tensor expected = std::get<Leaf>(other).tensor();
      const auto found = expected.span<float>();
      same = same && std::equal(values.begin(), values.end(), found.begin(), found.end());
    } else if (const auto* value = std::get_if<NonTensor>(&item)) {
      same = same && *value == std::get<NonTensor>(other);
    } else {
      same = same && same_trees(std::get<TensorDict>(item), std::get<TensorDict>(other));
    }
  });
  return same;
}

void save_tree(const Format& format, const fs::path& path, char version, bool durable) {
  WriteRequest request;
  request.durable = durable;
  request.num_threads = 1;
  request.shard_size_bytes = 12;
  format.write(tree_of(version), path, request);
}

Found which_tree(const Format& format, const fs::path& path) {
  if (!fs::exists(path)) return Found::absent;
  if (!format.verify(path, {}).ok()) return Found::neither;
  const TensorDict tree = format.open(path, {});
  if (same_trees(tree, tree_of('o'))) return Found::old_version;
  if (same_trees(tree, tree_of('n'))) return Found::new_version;
  return Found::neither;
}

Found which_memmap_folder(const fs::path& path) {
  recover_folder(path);  // open() and load() do this as well
  return which_tree(folder::kFormat, path);
}

fs::path index_in(const fs::path& folder) { return folder / "m.safetensors.index.json"; }

/// Shards and their index are in a separate folder.
void save_shards(const fs::path& folder, char version, bool durable) {
  save_tree(safetensors::kShardedFormat, index_in(folder), version, durable);
}

std::string files_that_no_index_names(const fs::path& folder) {
  const std::string index = read_file(index_in(folder));
  std::string names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_named =
        entry.path() == index_in(folder) || index.find('"' + name + '"') != std::string::npos;
    if (!is_named) names += name + " ";
  }
  return names;
}

/// Saves one tensor in a format of NumPy. The versions differ in every byte of the tensor.
void save_npy(const Format& format, const fs::path& path, char version, bool durable) {
  const std::vector<std::uint8_t> bytes(10000, static_cast<std::uint8_t>(version));
  const TensorDict tree = bare_tree(Leaf(Tensor::from(std::span<const std::uint8_t>(bytes))));
  WriteRequest request;
  request.durable = durable;
  request.num_threads = 1;
  format.write(tree, path, request);
}

Found which_npy(const Format& format, const fs::path& path) {
  if (!fs::exists(path)) return Found::absent;
  if (!format.verify(path, {}).ok()) return Found::neither;
  const Tensor tensor = std::get<Leaf>(bare_value(format.open(path, {}))).tensor();
  const auto bytes = tensor.span<std::uint8_t>();
  const auto all = [&](char version) {
    return bytes.size() == 10000 && std::ranges::all_of(bytes, [&](std::uint8_t byte) {
             return byte == static_cast<std::uint8_t>(version);
           });
  };
  return all('o') ? Found::old_version : all('n') ? Found::new_version : Found::neither;
}

/// A data set with a nullable number and a string column, written in two appends.
void ingest_rows(const fs::path& path, char version, bool durable) {
  Column number;
  number.path = {"n"};
  number.dtype = DType::int64;
  number.nullable = true;
  Column text;
  text.path = {"s"};
  text.kind = ColumnKind::string;
  text.dtype = DType::uint8;
  TableWriter writer(path, Schema({number, text}), {.durable = durable, .num_threads = 1});
  for (std::int64_t row = 0; row < 2; ++row) {
    const std::string value(100 + static_cast<std::size_t>(row), version);
    const std::int64_t end = static_cast<std::int64_t>(value.size());
    const ColumnChunk numbers = {1, std::as_bytes(std::span(&row, 1))};
    const ColumnChunk texts = {1, std::as_bytes(std::span(value)), std::span(&end, 1)};
    writer.append(std::array{numbers, texts});
  }
  writer.append_text("bad_rows.jsonl", std::string(1, version));
  writer.commit();
}

Found which_ingested(const fs::path& path) {
  recover_folder(path);
  if (!fs::exists(path)) return Found::absent;
  if (!folder::kFormat.verify(path, {}).ok()) return Found::neither;
  const Dataset ds(path);
  const Batch batch = ds.rows(0, ds.size());
  const auto is = [&](char version) {
    return ds.size() == 2 && batch.text("s", 0) == std::string(100, version) &&
           batch.text("s", 1) == std::string(101, version) &&
           batch.at("n").span<std::int64_t>()[1] == 1 &&
           read_file(path / "bad_rows.jsonl") == std::string(1, version);
  };
  return is('o') ? Found::old_version : is('n') ? Found::new_version : Found::neither;
}

/// Saves a diagonal matrix. The character code of `version` is the number of rows.
void save_matrix(const fs::path& path, char version, bool durable) {
  const std::int64_t length = version;
  SparseBuilder builder(length, length, DType::int64, {.temporary_folder = path.parent_path()});
  for (std::int64_t i = length - 1; i >= 0; --i) {
    const Tensor number = Tensor::from(std::span<const std::int64_t>(&i, 1));
    builder.add(number, number, number);
  }
  builder.finish().save(path, {.durable = durable, .num_threads = 1});
}

Found which_matrix(const fs::path& path) {
  recover_folder(path);
  if (!fs::exists(path)) return Found::absent;
  if (!folder::kFormat.verify(path, {}).ok()) return Found::neither;
  const SparseMatrix m(path);
  m.check();
  for (std::int64_t i = 0; i < m.num_rows(); ++i) {
    if (*m.at(i, i).data<std::int64_t>() != i) return Found::neither;
  }
  return m.num_rows() == 'o'   ? Found::old_version
         : m.num_rows() == 'n' ? Found::new_version
                               : Found::neither;
}

/// Simulates a file system that cannot exchange two names atomically.
class WithoutExchange {
 public:
  WithoutExchange() : before_(os::set_exchange_supported(false)) {}
  ~WithoutExchange() { os::set_exchange_supported(before_); }
  WithoutExchange(const WithoutExchange&) = delete;
  WithoutExchange& operator=(const WithoutExchange&) = delete;

 private:
  bool before_;
};

/// Version 'n' has one more key, and other values.
void build_dict(const fs::path& path, char version, bool durable) {
  std::vector<std::string_view> keys = {"a", "b"};
  if (version == 'n') keys.emplace_back("c");
  const std::int64_t first = version == 'o' ? 0 : 10;
  MappedDictBuilder builder(path, DictKeyType::string, pair_schema(), {.durable = durable},
                            DictValueForm::tensor);
  builder.append(std::span<const std::string_view>(keys),
                 pairs(first, static_cast<std::int64_t>(keys.size())));
  builder.commit();
}

Found which_dict(const fs::path& path) {
  recover_folder(path);
  if (!fs::exists(path)) return Found::absent;
  if (!verify(path).ok()) return Found::neither;
  const MappedDict dict(path);
  const bool is_new = dict.contains("c");
  const std::int64_t first = is_new ? 10 : 0;
  if (dict.size() != (is_new ? 3 : 2)) return Found::neither;
  if (pair_at(dict, "a") != first || pair_at(dict, "b") != first + 1) return Found::neither;
  return is_new ? Found::new_version : Found::old_version;
}

std::shared_ptr<void> open_tree_r_plus(const Format& format, const fs::path& path) {
  return std::make_shared<TensorDict>(format.open(path, {.mode = Mode::write_through}));
}

/// Adds to each case how its path is opened "r+", whether the writer refuses to remove foreign
/// files, and how leftovers inside the path are found.
std::vector<CrashCase> with_handles(std::vector<CrashCase> cases) {
  for (CrashCase& crash : cases) {
    const std::string& name = crash.name;
    const bool is_folder = name.starts_with("MemmapFolder") || name == "Memmap" ||
                           name == "Ingest" || name == "SparseMatrix" || name == "MappedDict";
    crash.keeps_foreign_files = is_folder || name == "Snapshot";
    if (name == "SafetensorsShards") crash.litter_in = files_that_no_index_names;
    const Format* format = name == "MemmapArchive" ? &folder::kArchiveFormat
                           : name == "Npy"         ? &numpy::kNpy
                           : is_folder             ? &folder::kFormat
                                                   : nullptr;
    if (format == nullptr) continue;
    crash.write_through = [format](const fs::path& path) {
      return open_tree_r_plus(*format, path);
    };
  }
  return cases;
}

std::vector<CrashCase> crash_cases() {
  return with_handles({
      {"File", "data.bin", [](const Path& path) { save_file(path, 'o', false); },
       [](const Path& path, bool durable) { save_file(path, 'n', durable); }, which_file},
      {"FileWithoutExchange", "data.bin", [](const Path& path) { save_file(path, 'o', false); },
       [](const Path& path, bool durable) {
         const WithoutExchange without;
         save_file(path, 'n', durable);
       },
       which_file},
      {"Folder", "data", [](const Path& path) { save_folder(path, 'o', false); },
       [](const Path& path, bool durable) { save_folder(path, 'n', durable); }, which_folder},
      {"FolderWithoutExchange", "data", [](const Path& path) { save_folder(path, 'o', false); },
       [](const Path& path, bool durable) {
         const WithoutExchange without;
         save_folder(path, 'n', durable);
       },
       which_folder},
      {"MemmapFolder", "data",
       [](const Path& path) { save_tree(folder::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) { save_tree(folder::kFormat, path, 'n', durable); },
       which_memmap_folder},
      {"MemmapFolderWithoutExchange", "data",
       [](const Path& path) { save_tree(folder::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) {
         const WithoutExchange without;
         save_tree(folder::kFormat, path, 'n', durable);
       },
       which_memmap_folder},
      {"Memmap", "data", [](const Path& path) { write_memmap(tree_of('o'), path); },
       [](const Path& path, bool durable) {
         write_memmap(tree_of('n'), path, {.num_threads = 1, .durable = durable});
       },
       which_memmap_folder},
      {"MemmapArchive", "m.tdz",
       [](const Path& path) { save_tree(folder::kArchiveFormat, path, 'o', false); },
       [](const Path& path, bool durable) {
         save_tree(folder::kArchiveFormat, path, 'n', durable);
       },
       [](const Path& path) { return which_tree(folder::kArchiveFormat, path); }},
      {"Consolidated", "data.consolidated",
       [](const Path& path) { save_tree(consolidated::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) { save_tree(consolidated::kFormat, path, 'n', durable); },
       [](const Path& path) { return which_tree(consolidated::kFormat, path); }},
      {"Npy", "data.npy", [](const Path& path) { save_npy(numpy::kNpy, path, 'o', false); },
       [](const Path& path, bool durable) { save_npy(numpy::kNpy, path, 'n', durable); },
       [](const Path& path) { return which_npy(numpy::kNpy, path); }},
      {"Npz", "data.npz", [](const Path& path) { save_npy(numpy::kNpz, path, 'o', false); },
       [](const Path& path, bool durable) { save_npy(numpy::kNpz, path, 'n', durable); },
       [](const Path& path) { return which_npy(numpy::kNpz, path); }},
      {"Safetensors", "m.safetensors",
       [](const Path& path) { save_tree(safetensors::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) { save_tree(safetensors::kFormat, path, 'n', durable); },
       [](const Path& path) { return which_tree(safetensors::kFormat, path); }},
      {"Snapshot", "data", [](const Path& path) { save_tree(snapshot::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) { save_tree(snapshot::kFormat, path, 'n', durable); },
       [](const Path& path) {
         recover_folder(path);
         return which_tree(snapshot::kFormat, path);
       }},
      {"SafetensorsShards", "data", [](const Path& path) { save_shards(path, 'o', false); },
       [](const Path& path, bool durable) { save_shards(path, 'n', durable); },
       [](const Path& path) { return which_tree(safetensors::kShardedFormat, index_in(path)); }},
      {"Ingest", "data", [](const Path& path) { ingest_rows(path, 'o', false); },
       [](const Path& path, bool durable) { ingest_rows(path, 'n', durable); }, which_ingested},
      {"SparseMatrix", "m", [](const Path& path) { save_matrix(path, 'o', false); },
       [](const Path& path, bool durable) { save_matrix(path, 'n', durable); }, which_matrix},
      {"MappedDict", "data", [](const Path& path) { build_dict(path, 'o', false); },
       [](const Path& path, bool durable) { build_dict(path, 'n', durable); }, which_dict},
      {"TorchFile", "m.pt",
       [](const Path& path) { save_tree(torch_file::kFormat, path, 'o', false); },
       [](const Path& path, bool durable) { save_tree(torch_file::kFormat, path, 'n', durable); },
       [](const Path& path) { return which_tree(torch_file::kFormat, path); }},
  });
}

class EveryWriter : public ::testing::TestWithParam<CrashCase> {};

TEST_P(EveryWriter, SurvivesACrashAtEveryChange) {
  for (const bool durable : {true, false}) {
    for (const bool with_old : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "durable " << durable << ", with old " << with_old);
      expect_survives_kill_at_every_change(GetParam(), durable, with_old);
    }
  }
}

TEST_P(EveryWriter, SurvivesAFullDiskAtEveryChange) {
  for (const bool with_old : {true, false}) {
    expect_survives_failure_of_every_change(GetParam(), true, with_old, ENOSPC);
  }
}

TEST_P(EveryWriter, SurvivesAFailingDiskAtEveryChange) {
  expect_survives_failure_of_every_change(GetParam(), true, true, EIO);
  expect_survives_failure_of_every_change(GetParam(), false, true, EIO);
}

TEST_P(EveryWriter, SurvivesAPowerFailureAtEveryMoment) {
  for (const bool with_old : {true, false}) {
    expect_survives_power_loss(GetParam(), with_old, kCrashTrials, 20260);
  }
}

TEST_P(EveryWriter, SurvivesAnErrorOfEveryClose) {
  for (const bool durable : {true, false}) {
    expect_survives_failure_of_every_close(GetParam(), durable, true);
  }
}

TEST_P(EveryWriter, SurvivesAPermissionErrorOfEveryChange) {
  expect_survives_failure_of_every_change(GetParam(), false, true, EACCES);
}

TEST_P(EveryWriter, SurvivesASecondWriterAtEveryChange) {
  for (const int lock_errno : {0, EBADF, ENOLCK, ENOSYS}) {
    SCOPED_TRACE("flock fails with " + std::to_string(lock_errno));
    const FailLocks fail(lock_errno);
    for (const bool with_old : {true, false}) {
      expect_survives_second_writer(GetParam(), with_old, false);
    }
  }
}

TEST_P(EveryWriter, SurvivesACrashWithoutFileLocks) {
  const FailLocks fail(ENOLCK);
  expect_survives_kill_at_every_change(GetParam(), false, true);
}

TEST_P(EveryWriter, SavesOrRefusesIfAllLocksAreHeld) {
  const TemporaryFolder folder;
  const fs::path path = folder / GetParam().file_name;
  GetParam().make_old(path);
  bool saved = true;
  {
    const FailLocks fail(EWOULDBLOCK);
    try {
      GetParam().make_new(path, false);
    } catch (const Error& error) {
      saved = false;
      EXPECT_EQ(error.system_errno(), EBUSY) << error.what();
    }
  }
  if (GetParam().write_through) {
    EXPECT_FALSE(saved) << "another process may have it open in mode r+";
  }
  EXPECT_EQ(GetParam().which(path), saved ? Found::new_version : Found::old_version);
}

TEST_P(EveryWriter, IsNotBlockedByAForkAtAnyChange) {
  for (const bool with_old : {true, false}) {
    expect_survives_fork_at_every_change(GetParam(), with_old);
  }
}

TEST_P(EveryWriter, KeepsPrivateFilesPrivate) { expect_stays_private(GetParam()); }

TEST_P(EveryWriter, SyncsByTheDescriptorThatWrote) {
  expect_syncs_by_the_descriptor_that_wrote(GetParam());
}

class WritersOfSharedMappings : public EveryWriter {};

TEST_P(WritersOfSharedMappings, NeverReplaceATargetThatIsOpenForWriting) {
  expect_never_replaces_what_is_written_through(GetParam());
}

class WritersOfNamedFiles : public EveryWriter {};

TEST_P(WritersOfNamedFiles, KeepAForeignFileThatArrivesAtAnyChange) {
  expect_keeps_foreign_files(GetParam());
}

/// Writers whose saves make few changes of the file system. Each trial pauses each of two
/// concurrent writers before one of its changes. The trials cover every pair of these changes.
class SmallWriters : public EveryWriter {};

TEST_P(SmallWriters, SurviveEveryInterleavingOfTwo) {
  for (const int lock_errno : {0, EBADF}) {
    const FailLocks fail(lock_errno);
    for (const bool with_old : {true, false}) {
      expect_survives_second_writer(GetParam(), with_old, true);
    }
  }
}

/// The rows [begin, end) of the fields x, y and node.z. The old version has two rows, the new one
/// three.
TensorDict rows_of(std::int64_t begin, std::int64_t end) {
  NodeInfo info;
  info.batch_size = {end - begin};
  TensorDict rows(info);
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = begin; i < end; ++i) {
    x.insert(x.end(), {static_cast<float>(i), 0.5F});
    y.push_back(i * 1000);
  }
  rows.set("x", Tensor::from(std::span<const float>(x), {end - begin, 2}));
  rows.set("y", Tensor::from(std::span<const std::int64_t>(y), {end - begin}));
  TensorDict node(info);
  node.set("z", Tensor::from(std::span<const std::int64_t>(y), {end - begin}));
  rows.set("node", node);
  return rows;
}

Found which_rows(const fs::path& path) {
  const TensorDict tree = open_memmap(path, Mode::read);
  const std::int64_t count = tree.batch_size().at(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>(i);
    if (tree.at("x").data<float>()[2 * row] != static_cast<float>(i)) return Found::neither;
    if (tree.at("y").data<std::int64_t>()[row] != i * 1000) return Found::neither;
    if (tree.at("node", "z").data<std::int64_t>()[row] != i * 1000) return Found::neither;
  }
  if (count == 2) return Found::old_version;
  return count == 3 ? Found::new_version : Found::neither;
}

/// Tests an append to the folder that `make_old` makes. After a crash or an error at any change,
/// the folder has the old or the new rows, and no wrong checksums. Power failures are not tested: a
/// node may have the new rows before the root has, and the next append overwrites them.
void expect_append_survives(const std::function<void(const Path&)>& make_old) {
  const CrashCase append = {"Append", "data", make_old,
                            [](const Path& path, bool) {
                              if (which_rows(path) == Found::old_version)
                                append_memmap(path, rows_of(2, 3));
                            },
                            [](const Path& path) {
                              if (fs::exists(path / "%checksums") && !verify(path).ok()) {
                                return Found::neither;
                              }
                              return which_rows(path);
                            }};
  expect_survives_kill_at_every_change(append, false, true);
  expect_survives_failure_of_every_change(append, false, true, ENOSPC);
  expect_survives_failure_of_every_change(append, false, true, EIO);
}

TEST(AppendMemmap, SurvivesACrashAndAnErrorAtEveryChange) {
  expect_append_survives([](const Path& path) { write_memmap(rows_of(0, 2), path); });
}

TEST(AppendMemmap, LeavesNoWrongChecksumsAfterACrashOrAnErrorAtAnyChange) {
  expect_append_survives([](const Path& path) {
    save(rows_of(0, 2), path);
    EXPECT_TRUE(fs::exists(path / "%checksums"));
  });
}

template <class Wanted>
std::vector<CrashCase> cases_where(const Wanted& wanted) {
  std::vector<CrashCase> cases = crash_cases();
  std::erase_if(cases, [&](const CrashCase& crash) { return !wanted(crash); });
  return cases;
}

bool is_small(const CrashCase& crash) {
  return crash.name.starts_with("File") || crash.name.starts_with("Folder") ||
         crash.name == "Npy" || crash.name == "SafetensorsShards";
}

std::string name_of(const ::testing::TestParamInfo<CrashCase>& row) { return row.param.name; }

INSTANTIATE_TEST_SUITE_P(Small, SmallWriters, ::testing::ValuesIn(cases_where(is_small)), name_of);

INSTANTIATE_TEST_SUITE_P(Shared, WritersOfSharedMappings,
                         ::testing::ValuesIn(cases_where([](const CrashCase& crash) {
                           return static_cast<bool>(crash.write_through);
                         })),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Folders, WritersOfNamedFiles,
                         ::testing::ValuesIn(cases_where([](const CrashCase& crash) {
                           return crash.keeps_foreign_files;
                         })),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Writers, EveryWriter, ::testing::ValuesIn(crash_cases()), name_of);

}  // namespace
}  // namespace tenfold::test

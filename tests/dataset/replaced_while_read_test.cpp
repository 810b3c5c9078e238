// A reader that opens a path during a save gets the complete old version or the complete new one,
// even while files of the old one are removed.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/memmap.hpp>
#include <tenfold/snapshot.hpp>
#include <tenfold/sparse_builder.hpp>

#include "dataset/table_of.hpp"
#include "dict/dict_of.hpp"
#include "io/sample_trees.hpp"
#include "os/fs/change_observer.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

namespace tenfold::test {
namespace {

/// A kind of saved object, and the call that reads it.
struct Kept {
  const char* name;
  const char* file;
  std::function<void(const Path&, std::int64_t version)> save;
  /// The version; 1 for a call that does not read it; -1 if it is not a complete version.
  std::function<std::int64_t(const Path&)> read;
};

Tensor filled(std::int64_t version) { return ints(std::vector<std::int64_t>(3, version)); }

std::int64_t version_of(const Tensor& tensor) {
  const auto values = tensor.span<std::int64_t>();
  if (values.size() != 3 || values[1] != values[0] || values[2] != values[0]) return -1;
  return values[0];
}

/// Nodes whose kinds are in the notes, shared storage, JSON values and a stack.
TensorDict nested_tree(std::int64_t version) {
  const Tensor weight = filled(version);
  TensorDict model = node_of(NodeKind::ordered_dict);
  model.set("embed", weight);
  model.set("head", weight);
  TensorDict state = node_of(NodeKind::dict, true);
  state.set("0", filled(version));
  TensorDict list = node_of(NodeKind::list);
  for (int i = 0; i < 3; ++i) list.set(std::to_string(i), filled(version));
  TensorDict stack = node_of(NodeKind::lazy_stack);
  for (int i = 0; i < 3; ++i) {
    TensorDict member;
    member.set("x", filled(version));
    stack.set(std::to_string(i), member);
  }
  TensorDict root = node_of(NodeKind::dict);
  root.set("model", model);
  root.set("state", state);
  root.set("list", list);
  root.set("stack", stack);
  root.set("version", Value(version));
  return root;
}

std::int64_t version_of_nested(const TensorDict& root) {
  const TensorDict model = root["model"];
  const bool has_kinds = root.kind() == NodeKind::dict && model.kind() == NodeKind::ordered_dict &&
                         root["state"].info().int_keys && root["list"].kind() == NodeKind::list &&
                         root["stack"].kind() == NodeKind::lazy_stack;
  if (!has_kinds || root["list"].size() != 3 || root["stack"].size() != 3) return -1;
  if (model.at("embed").raw_data() != model.at("head").raw_data()) return -1;
  std::vector<std::int64_t> found = {version_of(root.at("state", "0")),
                                     version_of(model.at("embed"))};
  for (const char* i : {"0", "1", "2"}) {
    found.push_back(version_of(root.at("list", i)));
    found.push_back(version_of(root["stack"][i].at("x")));
  }
  const Value version = root.value("version");
  for (const std::int64_t one : found) {
    if (version != Value(one)) return -1;
  }
  return found[0];
}

TensorDict flat_tree(std::int64_t version) {
  TensorDict root = node_of(NodeKind::dict);
  for (const char* key : {"a", "b", "c"}) root.set(key, filled(version));
  return root;
}

std::int64_t version_of_flat(const TensorDict& root) {
  if (root.size() != 3 || version_of(root.at("b")) != version_of(root.at("a"))) return -1;
  return version_of(root.at("c")) == version_of(root.at("a")) ? version_of(root.at("a")) : -1;
}

/// A column of numbers, and a string column whose bytes are in a sub-folder.
TensorDict table(std::int64_t version) {
  NodeInfo info;
  info.batch_size = {2};
  info.schema =
      from_json(R"({"columns": {"id": {"dtype": "int64"}, "name": {"dtype": "string"}}})", "test");
  TensorDict tree(info);
  const std::string text = std::to_string(version);
  const auto length = static_cast<std::int64_t>(text.size());
  tree.set("id", ints({version, version}));
  tree.set("name", TensorDict::Item(unbatched(bytes_tensor(text + text))));
  tree.set("name.end", ints({length, 2 * length}));
  return tree;
}

std::int64_t version_of_table(const Dataset& rows) {
  const Batch batch = rows.rows(0, rows.size());
  const auto id = batch.at("id").span<std::int64_t>();
  const auto text = batch.at("name").span<std::uint8_t>();
  const std::string expected = std::to_string(id[0]) + std::to_string(id[1]);
  if (rows.size() != 2 || id[0] != id[1]) return -1;
  return std::string(text.begin(), text.end()) == expected ? id[0] : -1;
}

void build_dict(const Path& path, std::int64_t version) {
  MappedDictBuilder builder(path, DictKeyType::string, pair_schema(), {.durable = false},
                            DictValueForm::tensor);
  builder.append(Words(8).keys(), pairs(8 * version, 8));
  builder.commit();
}

std::int64_t version_of_dict(const MappedDict& dict) {
  if (dict.size() != 8) return -1;
  const std::int64_t first = pair_at(dict, "key0");
  for (std::int64_t i = 1; i < 8; ++i) {
    if (pair_at(dict, "key" + std::to_string(i)) != first + i) return -1;
  }
  return first / 8;
}

SparseMatrix matrix(std::int64_t version) {
  SparseBuilder builder(2, 2, DType::int64);
  builder.add(ints({0, 1}), ints({1, 0}), ints({version, version}));
  return builder.finish();
}

std::int64_t version_of_matrix(const SparseMatrix& m) {
  m.check();
  const auto first = m.at(0, 1).data<std::int64_t>()[0];
  return m.nnz() == 2 && m.at(1, 0).data<std::int64_t>()[0] == first ? first : -1;
}

void save_quickly(const TensorDict& tree, const Path& path) {
  save(tree, path, {.durable = false, .num_threads = 1});
}

/// Saves a tree whose kind is in the notes.
void save_a_snapshot(const Path& path, std::int64_t version) {
  TensorDict tree;
  tree.set("x", filled(version));
  save_snapshot(tree, path, {.durable = false, .num_threads = 1});
}

std::vector<Kept> all_kept() {
  const auto save_of = [](TensorDict (*make)(std::int64_t)) {
    return [make](const Path& path, std::int64_t version) { save_quickly(make(version), path); };
  };
  return {
      {"load of a folder", "tree", save_of(nested_tree),
       [](const Path& path) { return version_of_nested(load(path)); }},
      {"load with checksums", "tree", save_of(nested_tree),
       [](const Path& path) { return version_of_nested(load(path, {.verify = true})); }},
      {"open of a folder", "tree", save_of(flat_tree),
       [](const Path& path) { return std::int64_t{open(path).kind() == NodeKind::dict ? 1 : -1}; }},
      {"verify of a folder", "tree", save_of(nested_tree),
       [](const Path& path) { return std::int64_t{verify(path).ok() ? 1 : -1}; }},
      {"load of a file", "x.safetensors", save_of(flat_tree),
       [](const Path& path) { return version_of_flat(load(path)); }},
      {"load of shards", "x.safetensors.index.json", save_of(flat_tree),
       [](const Path& path) { return version_of_flat(load(path)); }},
      {"a data set", "tree", save_of(table),
       [](const Path& path) { return version_of_table(Dataset(path)); }},
      {"a dictionary", "tree", build_dict,
       [](const Path& path) { return version_of_dict(MappedDict(path)); }},
      {"a matrix", "tree",
       [](const Path& path, std::int64_t version) {
         matrix(version).save(path, {.durable = false, .num_threads = 1});
       },
       [](const Path& path) { return version_of_matrix(SparseMatrix(path)); }},
      {"a rank of a snapshot", "snapshot", save_a_snapshot,
       [](const Path& path) {
         return std::int64_t{open_snapshot(path, 0).kind() == NodeKind::tensordict ? 1 : -1};
       }},
      {"the metadata of a snapshot", "snapshot", save_a_snapshot,
       [](const Path& path) { return std::int64_t{snapshot_metadata(path).empty() ? -1 : 1}; }},
  };
}

/// A file system in memory if there is one, because these tests save some thousand times.
Path fast_root() {
  const Path memory = "/dev/shm";
  return std::filesystem::is_directory(memory) ? memory : Path();
}

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

/// Calls `action` once, before the read with that number on the thread that created this object.
/// While the action's save removes the old version, only `num_removed` entries are removed.
class AtRead : public os::ChangeObserver {
 public:
  AtRead(std::size_t at, std::size_t num_removed, std::function<void()> action)
      : at_(at),
        num_left_(num_removed),
        action_(std::move(action)),
        previous_(os::set_change_observer(this)) {}
  ~AtRead() override { os::set_change_observer(previous_); }
  AtRead(const AtRead&) = delete;
  AtRead& operator=(const AtRead&) = delete;

  void before_read(const std::string&) override {
    if (std::this_thread::get_id() != thread_ || is_acting_ || num_reads_++ != at_) return;
    is_acting_ = true;
    action_();
    is_acting_ = false;
  }
  void before(const os::Change& change) override {
    using Kind = os::Change::Kind;
    if (!is_acting_) return;
    if (change.kind == Kind::exchange) is_published_ = true;
    const bool removes = change.kind == Kind::remove_file || change.kind == Kind::remove_directory;
    if (!removes || !is_published_ || change.name.starts_with('.')) return;
    if (num_left_ == 0) throw Error::io(EIO, change.name, "left where it is");
    --num_left_;
  }
  void after(const os::Change&, std::uint64_t) override {}

  std::size_t num_reads() const { return num_reads_; }
  /// True if the save removed every entry of the old version, fewer than `num_removed`.
  bool removed_all() const { return num_left_ > 0; }

 private:
  const std::size_t at_;
  std::atomic<std::size_t> num_left_;
  std::function<void()> action_;
  os::ChangeObserver* previous_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::size_t num_reads_ = 0;
  std::atomic<bool> is_acting_{false};  // atomic, because the threads of a save also read these two
  std::atomic<bool> is_published_{false};
};

TEST(ReplacedWhileRead, ReturnsOneCompleteVersionDuringRemoval) {
  const Warnings warnings;  // about entries that the saves could not remove
  for (const Kept& kept : all_kept()) {
    const TemporaryFolder folder(fast_root());
    const Path path = folder / kept.file;
    kept.save(path, 1);
    std::size_t num_reads = 0;
    {
      const AtRead count(kNever, 0, {});
      ASSERT_EQ(kept.read(path), 1) << kept.name;
      num_reads = count.num_reads();
    }
    ASSERT_GT(num_reads, 0U) << kept.name;
    for (std::size_t at = 0; at < num_reads; ++at) {
      bool removed_all = false;
      for (std::size_t num_removed = 0; !removed_all; num_removed += 1 + num_removed) {
        kept.save(path, 1);
        const AtRead replace(at, num_removed, [&] { kept.save(path, 2); });
        std::int64_t found = 0;
        ASSERT_NO_THROW(found = kept.read(path))
            << kept.name << ", replaced at read " << at << " of " << num_reads << ", with "
            << num_removed << " entries removed";
        EXPECT_TRUE(found == 1 || found == 2)
            << kept.name << ", replaced at read " << at << " of " << num_reads << ", with "
            << num_removed << " entries removed: found " << found;
        removed_all = replace.removed_all();
      }
    }
  }
  for (const std::string& warning : warnings.all()) {
    EXPECT_NE(warning.find("cannot be removed"), std::string::npos) << warning;
  }
}

TEST(ReplacedWhileRead, AnOvertakenSaveSucceedsOrReportsThatTheFolderIsInUse) {
  for (const Kept& kept : all_kept()) {
    const TemporaryFolder folder(fast_root());
    const Path path = folder / kept.file;
    bool was_reached = true;
    for (std::size_t at = 0; was_reached; ++at) {
      kept.save(path, 1);
      was_reached = false;
      const AtRead overtake(at, kNever, [&] {
        was_reached = true;
        try {
          kept.save(path, 2);
        } catch (const Error& error) {
          EXPECT_EQ(error.system_errno(), EBUSY) << error.what();
        }
      });
      try {
        kept.save(path, 3);
      } catch (const Error& error) {
        EXPECT_EQ(error.system_errno(), EBUSY)
            << kept.name << ", overtaken at read " << at << ": " << error.what();
      }
      EXPECT_GE(kept.read(path), 1) << kept.name << ", overtaken at read " << at;
    }
  }
}

TEST(ReplacedWhileRead, ManyReadersNeverFailWhileWritersReplace) {
  constexpr int kSaves = 100;
  for (const Kept& kept : all_kept()) {
    const TemporaryFolder folder(fast_root());
    const Path path = folder / kept.file;
    kept.save(path, 1);
    std::atomic<int> num_saved{0};
    std::atomic<int> num_failed{0};
    const auto report = [&](const std::string& what) {
      if (num_failed.fetch_add(1) == 0) std::cerr << kept.name << ": " << what << "\n";
    };
    const auto write = [&](std::int64_t version) {
      while (num_saved < kSaves && num_failed == 0) {
        try {
          kept.save(path, version);
          ++num_saved;
        } catch (const Error& error) {
          if (error.system_errno() != EBUSY) report(error.what());
        }
      }
    };
    const auto read = [&] {
      while (num_saved < kSaves && num_failed == 0) {
        try {
          if (kept.read(path) < 1) report("a mixture of versions");
        } catch (const Error& error) {
          report(error.what());
        }
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(write, 1);
    threads.emplace_back(write, 2);
    threads.emplace_back(read);
    threads.emplace_back(read);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(num_failed, 0) << kept.name;
  }
}

TEST(ReplacedWhileRead, LaterLazyReadsReportThatTheyAreStale) {
  const TemporaryFolder folder;
  save_quickly(nested_tree(1), folder / "tree");
  const TensorDict opened = open(folder / "tree");
  save_quickly(nested_tree(2), folder / "tree");
  try {
    static_cast<void>(opened["model"].at("embed"));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.system_errno(), ESTALE);
    EXPECT_NE(std::string(error.what()).find("open it again"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tenfold::test

// Crash tests of growing data sets: a SIGKILL at every change, an error of every change, and power
// failures at every moment. The rows must be those of one commit or of the next, and no row torn. A
// circular buffer may also lose rows that were about to be overwritten.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "dataset/table_of.hpp"
#include "os/process.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {
namespace {

/// Returns rows whose values depend on the row number i: id is i, x is [i, i + 1/2], and name is a
/// string of i equal letters.
Batch rows_of(std::int64_t begin, std::int64_t end, bool with_text) {
  NodeInfo info;
  info.batch_size = {end - begin};
  info.schema = from_json(
      with_text ? R"({"columns": {"id": {"dtype": "int64"}, "x": {"dtype": "float32", "shape": [2]},
                                  "name": {"dtype": "string"}}})"
                : R"({"columns": {"id": {"dtype": "int64"},
                                  "x": {"dtype": "float32", "shape": [2]}}})",
      "test");
  TensorDict tree(info);
  std::vector<std::int64_t> ids;
  std::vector<float> x;
  std::string text;
  std::vector<std::int64_t> ends;
  for (std::int64_t i = begin; i < end; ++i) {
    ids.push_back(i);
    x.insert(x.end(), {static_cast<float>(i), static_cast<float>(i) + 0.5F});
    text.append(static_cast<std::size_t>(i), static_cast<char>('a' + i));
    ends.push_back(static_cast<std::int64_t>(text.size()));
  }
  tree.set("id", ints(ids));
  tree.set("x", Tensor::from(std::span<const float>(x), {end - begin, 2}));
  if (with_text) {
    tree.set("name", TensorDict::Item(unbatched(bytes_tensor(text))));
    tree.set("name.end", ints(ends));
  }
  return Dataset(tree).rows(0, end - begin);
}

/// The ids of all rows, or {-1} if one is torn.
std::vector<std::int64_t> whole_ids(const Path& path, bool with_text) {
  if (!verify(path).ok()) return {-1};
  const Dataset ds(path);
  const Batch batch = ds.rows(0, ds.size());
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < ds.size(); ++i) {
    const auto row = static_cast<std::size_t>(i);
    const std::int64_t id = batch.at("id").span<std::int64_t>()[row];
    const auto x = batch.at("x").span<float>().subspan(2 * row, 2);
    const bool text_fits =
        !with_text || batch.text("name", i) ==
                          std::string(static_cast<std::size_t>(id), static_cast<char>('a' + id));
    if (x[0] != static_cast<float>(id) || x[1] != x[0] + 0.5F || !text_fits) return {-1};
    ids.push_back(id);
  }
  return ids;
}

using Ids = std::vector<std::int64_t>;

Found which_appended(const Path& path) {
  const Ids ids = whole_ids(path, true);
  if (ids == Ids{0, 1}) return Found::old_version;
  return ids == Ids{0, 1, 2, 3, 4} ? Found::new_version : Found::neither;
}

CrashCase append_case(bool attached_before) {
  CrashCase crash;
  crash.name = "Append";
  crash.file_name = "rows";
  crash.make_old = [attached_before](const Path& path) {
    const Batch rows = rows_of(0, 2, true);
    std::vector<Column> columns;
    for (const BatchColumn& column : rows.columns()) columns.push_back(column.column);
    Dataset ds = create(path, Schema(columns));
    ds.append(rows);
    // flush() keeps the commit page, as after a crash of the writer; close() removes it.
    attached_before ? ds.flush() : ds.close();
  };
  crash.make_new = [](const Path& path, bool durable) {
    Dataset ds(path, Mode::write_through);
    if (which_appended(path) == Found::old_version) ds.append(rows_of(2, 5, true));
    if (durable) ds.flush();
    if (durable) ds.close();
  };
  crash.which = which_appended;
  return crash;
}

/// Returns rows of three nodes, each of which is saved as a folder. In row i, id is i, camera.gain
/// is i / 2, and camera.lens.n is i * i.
TensorDict nested_rows(std::int64_t begin, std::int64_t end) {
  NodeInfo info;
  info.batch_size = {end - begin};
  TensorDict tree(info);
  TensorDict camera(info);
  TensorDict lens(info);
  std::vector<std::int64_t> ids;
  std::vector<float> gains;
  std::vector<std::int64_t> squares;
  for (std::int64_t i = begin; i < end; ++i) {
    ids.push_back(i);
    gains.push_back(static_cast<float>(i) / 2);
    squares.push_back(i * i);
  }
  lens.set("n", ints(squares));
  camera.set("lens", lens);
  camera.set("gain", Tensor::from(std::span<const float>(gains)));
  tree.set("camera", camera);
  tree.set("id", ints(ids));
  return tree;
}

Batch nested_batch(std::int64_t begin, std::int64_t end) {
  return Dataset(nested_rows(begin, end)).rows(0, end - begin);
}

Found which_nested(const Path& path) {
  if (!verify(path).ok()) return Found::neither;
  const Dataset ds(path);
  const Batch batch = ds.rows(0, ds.size());
  const auto ids = batch.at("id").span<std::int64_t>();
  const auto gains = batch.at("camera.gain").span<float>();
  const auto squares = batch.at("camera.lens.n").span<std::int64_t>();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    const bool is_whole =
        ids[i] == id && gains[i] == static_cast<float>(id) / 2 && squares[i] == id * id;
    if (!is_whole) return Found::neither;
  }
  if (ids.size() == 2) return Found::old_version;
  return ids.size() == 5 ? Found::new_version : Found::neither;
}

CrashCase nested_case(bool attached_before) {
  CrashCase crash;
  crash.name = "Nested";
  crash.file_name = "nested";
  crash.make_old = [attached_before](const Path& path) {
    save(nested_rows(0, attached_before ? 1 : 2), path);
    if (!attached_before) return;
    Dataset ds(path, Mode::write_through);
    ds.append(nested_batch(1, 2));
    ds.flush();
  };
  crash.make_new = [](const Path& path, bool durable) {
    Dataset ds(path, Mode::write_through);
    if (which_nested(path) == Found::old_version) ds.append(nested_batch(2, 5));
    if (durable) ds.flush();
    if (durable) ds.close();
  };
  crash.which = which_nested;
  return crash;
}

Found which_in_ring(const Path& path) {
  set_warning_handler([](const std::string&) {});
  Ids ids = whole_ids(path, false);
  set_warning_handler(nullptr);
  std::sort(ids.begin(), ids.end());
  // Rows that were about to be overwritten may be lost, but never torn.
  if (ids == Ids{2, 3, 4, 5} || ids == Ids{5}) return Found::old_version;
  return ids == Ids{5, 6, 7, 8} ? Found::new_version : Found::neither;
}

CrashCase ring_case() {
  CrashCase crash;
  crash.name = "Ring";
  crash.file_name = "ring";
  crash.make_old = [](const Path& path) {
    const Batch rows = rows_of(0, 6, false);
    std::vector<Column> columns;
    for (const BatchColumn& column : rows.columns()) columns.push_back(column.column);
    Dataset ds = create(path, Schema(columns), {.capacity = 4});
    ds.append(rows);
    ds.close();
  };
  crash.make_new = [](const Path& path, bool durable) {
    Dataset ds(path, Mode::write_through);
    if (which_in_ring(path) == Found::old_version) ds.append(rows_of(6, 9, false));
    if (durable) ds.flush();
  };
  crash.which = which_in_ring;
  return crash;
}

/// Returns true if the ids are those of rows [begin, end), in any order.
bool are_rows(Ids ids, std::int64_t begin, std::int64_t end) {
  std::sort(ids.begin(), ids.end());
  Ids expected(static_cast<std::size_t>(end - begin));
  std::iota(expected.begin(), expected.end(), begin);
  return ids == expected;
}

constexpr std::int64_t kManySlots = 32;

/// Classifies a circular buffer of kManySlots slots. Before a write overwrites three slots, it
/// durably marks them and the next two (1/16 of all slots) as busy.
Found which_in_large_ring(const Path& path) {
  set_warning_handler([](const std::string&) {});
  const Ids ids = whole_ids(path, false);
  set_warning_handler(nullptr);
  // Old rows: 4 to 35, without the rows that are overwritten (4 to 6) or marked (up to 8).
  if (are_rows(ids, 4, 36) || are_rows(ids, 7, 36) || are_rows(ids, 9, 36)) {
    return Found::old_version;
  }
  // New rows: the same with rows 36 to 38, possibly without the marked rows 7 and 8.
  return are_rows(ids, 7, 39) || are_rows(ids, 9, 39) ? Found::new_version : Found::neither;
}

CrashCase large_ring_case() {
  CrashCase crash = ring_case();
  crash.name = "LargeRing";
  crash.make_old = [](const Path& path) {
    const Batch rows = rows_of(0, 36, false);
    std::vector<Column> columns;
    for (const BatchColumn& column : rows.columns()) columns.push_back(column.column);
    Dataset ds = create(path, Schema(columns), {.capacity = kManySlots});
    ds.append(rows);
    ds.close();
  };
  crash.make_new = [](const Path& path, bool durable) {
    Dataset ds(path, Mode::write_through);
    if (which_in_large_ring(path) == Found::old_version) ds.append(rows_of(36, 39, false));
    if (durable) ds.flush();
  };
  crash.which = which_in_large_ring;
  return crash;
}

/// The same case, but the path is read after a simulated reboot.
CrashCase after_a_boot(CrashCase crash) {
  const auto which = crash.which;
  crash.which = [which](const Path& path) {
    os::set_boot_id(kNextBoot);
    return which(path);
  };
  return crash;
}

class GrowthCrash : public ::testing::Test {
 protected:
  void TearDown() override { os::set_boot_id(std::nullopt); }
};

constexpr int kTrials = 48;

TEST_F(GrowthCrash, AppendSurvivesACrashAtEveryChange) {
  for (const bool attached : {false, true}) {
    for (const bool durable : {false, true}) {
      expect_survives_kill_at_every_change(append_case(attached), durable, true);
    }
  }
}

TEST_F(GrowthCrash, AppendSurvivesAnErrorOfEveryChange) {
  for (const int system_errno : {ENOSPC, EIO}) {
    expect_survives_failure_of_every_change(append_case(false), true, true, system_errno);
    expect_survives_failure_of_every_change(append_case(true), false, true, system_errno);
  }
}

TEST_F(GrowthCrash, FlushSurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(after_a_boot(append_case(false)), true, kTrials, 2026);
}

TEST_F(GrowthCrash, AppendToNestedNodesSurvivesACrashAtEveryChange) {
  for (const bool attached : {false, true}) {
    for (const bool durable : {false, true}) {
      expect_survives_kill_at_every_change(nested_case(attached), durable, true);
    }
  }
}

TEST_F(GrowthCrash, AppendToNestedNodesSurvivesAnErrorOfEveryChange) {
  expect_survives_failure_of_every_change(nested_case(false), true, true, ENOSPC);
  expect_survives_failure_of_every_change(nested_case(true), false, true, EIO);
}

TEST_F(GrowthCrash, FlushOfNestedNodesSurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(after_a_boot(nested_case(false)), true, kTrials, 2027);
}

TEST_F(GrowthCrash, CircularBufferSurvivesACrashAtEveryChange) {
  expect_survives_kill_at_every_change(ring_case(), false, true);
  expect_survives_kill_at_every_change(ring_case(), true, true);
}

TEST_F(GrowthCrash, CircularBufferSurvivesAnErrorOfEveryChange) {
  expect_survives_failure_of_every_change(ring_case(), true, true, ENOSPC);
  expect_survives_failure_of_every_change(ring_case(), false, true, EIO);
}

TEST_F(GrowthCrash, CircularBufferSurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(after_a_boot(ring_case()), true, kTrials, 11);
}

TEST_F(GrowthCrash, LargeCircularBufferLosesAtMostTheMarkedSlots) {
  expect_survives_power_loss(after_a_boot(large_ring_case()), true, kTrials, 12);
  expect_survives_kill_at_every_change(large_ring_case(), true, true);
}

}  // namespace
}  // namespace tenfold::test

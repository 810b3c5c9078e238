#include <tenfold/checkpoint_manager.hpp>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "arguments.hpp"
#include "array_in.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "checkpoint/checked_copy.hpp"
#include "checkpoint/ranks.hpp"
#include "checkpoint/restoration.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/step.hpp"
#include "io/tree.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

using Manager = CheckpointManager;

CheckpointCheck check_from(const std::string& name) {
  if (name == "full") return CheckpointCheck::full;
  if (name == "structure") return CheckpointCheck::structure;
  if (name == "none") return CheckpointCheck::none;
  throw base::invalid_argument()
      .part("verify")
      .expected("\"full\", \"structure\" or \"none\"")
      .found("\"", name, "\"");
}

BestMode best_mode_from(const std::string& name) {
  if (name == "min") return BestMode::min;
  if (name == "max") return BestMode::max;
  throw base::invalid_argument()
      .part("checkpoint manager: best_mode")
      .expected("\"min\" or \"max\"")
      .found("\"", name, "\"");
}

Manager make_manager(PathArgument directory, std::optional<std::int64_t> max_to_keep,
                     std::optional<std::int64_t> keep_every, const std::string& best,
                     const std::string& best_mode, std::int64_t best_to_keep,
                     std::optional<std::int64_t> every_steps, std::optional<double> every_seconds,
                     std::vector<std::pair<std::string, std::string>> formats, bool share_unchanged,
                     bool durable) {
  CheckpointManagerOptions options;
  options.max_to_keep = max_to_keep;
  options.keep_every = keep_every;
  options.best = best;
  options.best_mode = best_mode_from(best_mode);
  options.best_to_keep = best_to_keep;
  options.every_steps = every_steps;
  options.every_seconds = every_seconds;
  options.formats = std::move(formats);
  options.share_unchanged = share_unchanged;
  options.durable = durable;
  return Manager(path_from(directory), std::move(options));
}

/// `extra`: a node whose keys are "extra" (the user's value) and "versions" (a JSON object).
CheckpointSaveOptions save_options(std::map<std::string, double> metrics, const NodeHandle& extra,
                                   bool force, const std::vector<std::string>& constant) {
  CheckpointSaveOptions options;
  options.metrics = std::move(metrics);
  options.extra = extra.node.value("extra");
  options.versions = extra.node.value("versions");
  options.force = force;
  options.constant = {constant.begin(), constant.end()};
  return options;
}

nb::str path_text(const Path& path) { return text(path.string()); }

nb::str save_step(Manager& self, std::int64_t step, const NodeHandle& state,
                  std::map<std::string, double> metrics, const NodeHandle& extra, bool force,
                  const std::vector<std::string>& constant, ProgressArgument progress) {
  CheckpointSaveOptions options = save_options(std::move(metrics), extra, force, constant);
  return path_text(monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return self.save(step, state.node, options);
  }));
}

nb::str import_step(Manager& self, PathArgument source, std::int64_t step,
                    const NodeHandle& extra) {
  const Path from = path_from(source);
  CheckpointSaveOptions options = save_options({}, extra, false, {});
  return path_text(monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    return self.import_step(from, step, options);
  }));
}

using checkpoint::RankedSave;
using checkpoint::Restoration;

std::unique_ptr<RankedSave> begin_save(
    const Manager& self, std::int64_t step, const NodeHandle& replicated,
    std::map<std::string, double> metrics, const NodeHandle& extra, bool force,
    const std::vector<std::string>& constant, std::int64_t world_size, bool have_entries,
    std::uint64_t num_bytes, const NodeHandle& sharded, nb::list boxes) {
  const CheckpointSaveOptions options = save_options(std::move(metrics), extra, force, constant);
  checkpoint::RanksPlan plan{world_size, have_entries, num_bytes, sharded.node, {}};
  for (nb::handle of_entry : boxes) {
    plan.boxes.push_back(shard_boxes_from(nb::cast<nb::list>(of_entry)));
  }
  return without_gil(
      [&] { return std::make_unique<RankedSave>(self, step, replicated.node, options, plan); });
}

// In Python, the entries that a rank wrote are tuples, so that ranks can exchange them as JSON.
using EntryTuple = std::tuple<std::string, std::string, std::int64_t, std::string, bool,
                              std::uint64_t, std::string>;

std::vector<EntryTuple> write_rank_entries(const Manager& self, std::int64_t step,
                                           const std::string& ranks_path, std::int64_t rank,
                                           const NodeHandle& state) {
  const auto entries = monitored(nb::none(), [&](Monitor* monitor) {
    return checkpoint::write_rank_entries(self, step, ranks_path, rank, state.node, monitor);
  });
  std::vector<EntryTuple> tuples;
  for (const CheckpointEntry& entry : entries) {
    tuples.emplace_back(entry.name, entry.path, *entry.rank, entry.format, entry.is_bare,
                        entry.num_bytes, entry.checksum);
  }
  return tuples;
}

std::vector<std::string> write_shards(const Manager& self, const std::vector<std::string>& tickets,
                                      const NodeHandle& parts) {
  return monitored(nb::none(), [&](Monitor* monitor) {
    return checkpoint::write_shards(self, tickets, parts.node, monitor);
  });
}

nb::str publish_save(RankedSave& self, const std::vector<EntryTuple>& of_ranks,
                     const std::vector<std::vector<std::string>>& receipts) {
  std::vector<CheckpointEntry> entries;
  for (const auto& [name, path, rank, format, is_bare, num_bytes, checksum] : of_ranks) {
    entries.push_back({name, path, rank, format, is_bare, num_bytes, checksum});
  }
  return path_text(without_gil([&] { return self.publish(entries, receipts); }));
}

nb::list entry_digests(const NodeHandle& state) {
  nb::list all;
  for (const auto& digest : without_gil([&] { return checkpoint::entry_digests(state.node); })) {
    all.append(nb::make_tuple(text(digest.name), text(digest.structure), text(digest.values)));
  }
  return all;
}

std::unique_ptr<Restoration> find_steps(const Manager& self, std::optional<std::int64_t> step,
                                        PathArgument path, bool discard_later) {
  CheckpointRestoreOptions options;
  options.step = step;
  options.discard_later = discard_later;
  if (!path.is_none()) options.path = path_from(path);
  return without_gil([&] { return std::make_unique<Restoration>(self, options); });
}

/// (step, sequence number, size in bytes) of each candidate.
std::vector<std::tuple<std::int64_t, std::int64_t, std::uint64_t>> candidates_of(
    const Restoration& self) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::uint64_t>> all;
  for (const checkpoint::Step& step : self.candidates()) {
    std::uint64_t num_bytes = 0;
    for (const CheckpointEntry& entry : step.info.entries) num_bytes += entry.num_bytes;
    all.emplace_back(step.info.step, step.info.seq, num_bytes);
  }
  return all;
}

RestoredCheckpoint open_candidate(Restoration& self, std::size_t index, const std::string& check,
                                  std::int64_t rank, std::int64_t world_size,
                                  const std::vector<std::string>& copied,
                                  ProgressArgument progress) {
  return monitored(std::move(progress), [&](Monitor* monitor) {
    return self.open(self.candidates().at(index), check_from(check), {rank, world_size}, monitor,
                     {copied.begin(), copied.end()});
  });
}

/// (name, rank) of each entry. The rank is None for an entry that belongs to all ranks.
nb::list entries_of(const RestoredCheckpoint& self) {
  nb::list all;
  for (const CheckpointEntry& entry : self.info.entries) {
    all.append(nb::make_tuple(text(entry.name), entry.rank));
  }
  return all;
}

void continue_from(Manager& self, const RestoredCheckpoint& restored, PathArgument path,
                   bool discard_later) {
  CheckpointRestoreOptions options;
  if (!path.is_none()) options.path = path_from(path);
  options.discard_later = discard_later;
  without_gil([&] { self.continue_from(restored, options); });
}

nb::list status_of(const Manager& self) {
  nb::list all;
  for (const CheckpointStatus& step : without_gil([&] { return self.status(); })) {
    nb::list rules;
    for (const std::string& rule : step.kept_by) rules.append(text(rule));
    all.append(nb::make_tuple(step.info.step, path_text(step.path), step.info.seq,
                              step.is_in_current_lineage, step.is_held, rules));
  }
  return all;
}

nb::tuple verify_step(const Manager& self, std::int64_t step, ProgressArgument progress) {
  VerifyOptions options;
  return tuple_of(monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return self.verify(step, options);
  }));
}

nb::tuple export_step(const Manager& self, std::int64_t step, PathArgument target,
                      KeysArgument keys, std::optional<std::string> dtype,
                      ProgressArgument progress) {
  const Path to = path_from(target);
  ConvertOptions options;
  if (!keys.is_none()) options.keys = key_paths(keys);
  if (dtype) options.dtype = dtype_from(*dtype);
  const ConvertReport report = monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return self.export_step(step, to, options);
  });
  return nb::make_tuple(report.num_leaves, report.num_bytes);
}

nb::tuple estimate_of(const Manager& self, const NodeHandle& state) {
  const CheckpointEstimate estimate = without_gil([&] { return self.estimate(state.node); });
  nb::list entries;
  for (const auto& [name, num_bytes] : estimate.entries) {
    entries.append(nb::make_tuple(text(name), num_bytes));
  }
  return nb::make_tuple(entries, estimate.num_bytes, estimate.free_bytes, estimate.prunable_bytes);
}

nb::list skipped_of(const RestoredCheckpoint& self) {
  nb::list skipped;
  for (const SkippedCheckpoint& step : self.skipped) {
    skipped.append(nb::make_tuple(step.step, text(step.problem)));
  }
  return skipped;
}

/// The part of the state that `keys` selects, or all of it if None, without the keys in `exclude`.
NodeHandle selected(const RestoredCheckpoint& self, KeysArgument keys, KeysArgument exclude) {
  const Keys wanted = keys.is_none() ? Keys() : Keys(key_paths(keys));
  if (wanted.given() && wanted.paths().empty()) return {TensorDict()};
  const Keys unwanted = key_paths(exclude);
  return {without_gil([&] { return select(self.state, wanted, unwanted); })};
}

/// Reads the entry `name` of `node`, the selected part of the state, into memory. If `compares` is
/// true, verifies the checksums of the entry's blocks. Returns a node with the entry under its key,
/// or an empty node if the step does not have the entry for `rank`.
NodeHandle copied_entry(const RestoredCheckpoint& self, const NodeHandle& node,
                        const std::string& name, std::int64_t rank, bool compares) {
  return {monitored(nb::none(), [&](Monitor* monitor) {
    TensorDict copy = empty_like(node.node);
    const std::int64_t own = checkpoint::own_rank(self.info, rank);
    for (const CheckpointEntry& entry : self.info.entries) {
      if (entry.name != name || entry.rank.value_or(own) != own) continue;
      copy.set(name,
               checkpoint::copy_entry(node.node.get(name), self.path, entry, compares, 0, monitor));
    }
    return copy;
  })};
}

/// Returns a function that calls a method of a manager without the GIL.
template <class Result, class... Arguments>
auto unlocked(Result (Manager::*call)(Arguments...)) {
  return [call](Manager& self, Arguments... arguments) {
    return without_gil([&] { return (self.*call)(arguments...); });
  };
}
template <class Result, class... Arguments>
auto unlocked(Result (Manager::*call)(Arguments...) const) {
  return [call](const Manager& self, Arguments... arguments) {
    return without_gil([&] { return (self.*call)(arguments...); });
  };
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  nb::class_<CheckpointHold>(module, "CheckpointHold").def("release", &CheckpointHold::release);
  nb::class_<RestoredCheckpoint>(module, "RestoredCheckpoint")
      .def_prop_ro("step", [](const RestoredCheckpoint& self) { return self.info.step; })
      .def_prop_ro("path", [](const RestoredCheckpoint& self) { return path_text(self.path); })
      .def_prop_ro("skipped", &skipped_of, nb::sig("def skipped(self) -> list[tuple[int, str]]"))
      .def_prop_ro("world_size",
                   [](const RestoredCheckpoint& self) { return self.info.world_size; })
      .def("entries", &entries_of, nb::sig("def entries(self) -> list[tuple[str, int | None]]"))
      .def("select", &selected, "keys"_a.none(), "exclude"_a.none())
      .def("copied_entry", &copied_entry, "node"_a, "name"_a, "rank"_a, "compares"_a);
  nb::class_<RankedSave>(module, "RankedSave")
      .def("ranks_path", &RankedSave::ranks_path)
      .def(
          "write",
          [](RankedSave& self, ProgressArgument progress) {
            monitored(std::move(progress), [&](Monitor* monitor) {
              self.write(monitor);
              return true;
            });
          },
          "progress"_a.none())
      .def("tickets", &RankedSave::tickets, "rank"_a)
      .def("publish", &publish_save, "of_ranks"_a, "receipts"_a);
  nb::class_<Restoration>(module, "Restoration")
      .def("candidates", &candidates_of)
      .def("open", &open_candidate, "index"_a, "check"_a, "rank"_a, "world_size"_a, "copied"_a,
           "progress"_a.none())
      .def(
          "skip",
          [](Restoration& self, std::size_t index, const std::string& problem, bool warns) {
            const Error error(ErrorCode::corrupt, problem);
            return without_gil(
                [&] { return self.skip(self.candidates().at(index), error, warns); });
          },
          "index"_a, "problem"_a, "warns"_a)
      .def("fail", &Restoration::fail);
  module.def("entry_digests", &entry_digests, "state"_a,
             nb::sig("def entry_digests(state: Node) -> list[tuple[str, str, str]]"));
  module.def(
      "tensor_digests",
      [](const NodeHandle& state) {
        return without_gil([&] { return checkpoint::tensor_digests(state.node); });
      },
      "state"_a);
  nb::class_<checkpoint::StagingPool>(module, "StagingPool")
      .def(nb::init<>())
      .def(
          "copy",
          [](checkpoint::StagingPool& self, const NodeHandle& tree) {
            return NodeHandle{without_gil([&] { return self.copy(tree.node, 0); })};
          },
          "tree"_a, "Returns a tree with copies of all tensors.");
  nb::class_<Manager>(module, "CheckpointManager")
      .def_static("make", &make_manager, "directory"_a, "max_to_keep"_a.none(),
                  "keep_every"_a.none(), "best"_a, "best_mode"_a, "best_to_keep"_a,
                  "every_steps"_a.none(), "every_seconds"_a.none(), "formats"_a,
                  "share_unchanged"_a, "durable"_a)
      .def("directory", [](const Manager& self) { return path_text(self.directory()); })
      .def("should_save", unlocked(&Manager::should_save), "step"_a)
      .def("begin_save", unlocked(&Manager::begin_save), "step"_a)
      .def("save", &save_step, "step"_a, "state"_a, "metrics"_a, "extra"_a, "force"_a, "constant"_a,
           "progress"_a.none())
      .def(
          "set_metrics",
          [](Manager& self, std::int64_t step, const std::map<std::string, double>& metrics) {
            without_gil([&] { self.set_metrics(step, metrics); });
          },
          "step"_a, "metrics"_a)
      .def("begin_ranked_save", &begin_save, "step"_a, "replicated"_a, "metrics"_a, "extra"_a,
           "force"_a, "constant"_a, "world_size"_a, "have_entries"_a, "num_bytes"_a, "sharded"_a,
           "boxes"_a,
           nb::sig("def begin_ranked_save(self, step: int, replicated: Node, "
                   "metrics: collections.abc.Mapping[str, float], extra: Node, force: bool, "
                   "constant: collections.abc.Sequence[str], world_size: int, "
                   "have_entries: bool, num_bytes: int, sharded: Node, "
                   "boxes: list[list[tuple[int, collections.abc.Sequence[int], "
                   "collections.abc.Sequence[int], int]]]) -> RankedSave"),
           "`boxes`: for each sharded entry, a list of boxes in the form that ShardedWriter takes.")
      .def("write_rank_entries", &write_rank_entries, "step"_a, "ranks_path"_a, "rank"_a, "state"_a)
      .def("write_shards", &write_shards, "tickets"_a, "parts"_a)
      .def(
          "planned_bytes",
          [](const Manager& self, const NodeHandle& state) {
            return without_gil([&] { return checkpoint::planned_bytes(self, state.node); });
          },
          "state"_a)
      .def("find", &find_steps, "step"_a.none(), "path"_a.none(), "discard_later"_a)
      .def("continue_from", &continue_from, "restored"_a, "path"_a.none(), "discard_later"_a)
      .def("latest_step", unlocked(&Manager::latest_step))
      .def("all_steps", unlocked(&Manager::all_steps))
      .def("best_step", unlocked(&Manager::best_step))
      .def("status", &status_of,
           nb::sig("def status(self) -> list[tuple[int, str, int, bool, bool, list[str]]]"))
      .def(
          "metadata",
          [](const Manager& self, std::int64_t step) {
            return text(without_gil([&] { return self.metadata_json(step); }));
          },
          "step"_a, "The text of the step's checkpoint.json.")
      .def(
          "path",
          [](const Manager& self, std::int64_t step) {
            return path_text(without_gil([&] { return self.path(step); }));
          },
          "step"_a)
      .def("verify", &verify_step, "step"_a, "progress"_a.none(),
           nb::sig("def verify(self, step: int, progress: collections.abc.Callable[[int, int, "
                   "str], object] | None) -> "
                   "tuple[list[tuple[str, str, str, str | None, str | None, str | None]], int, "
                   "int, int, tuple[str, ...]]"))
      .def("prune", unlocked(&Manager::prune))
      .def("remove", unlocked(&Manager::remove), "step"_a)
      .def("hold", unlocked(&Manager::hold), "step"_a)
      .def("export_step", &export_step, "step"_a, "target"_a, "keys"_a.none(), "dtype"_a.none(),
           "progress"_a.none(),
           nb::sig("def export_step(self, step: int, target: str | bytes | os.PathLike[str] | "
                   "os.PathLike[bytes], keys: collections.abc.Iterable[tuple[str, ...]] | None, "
                   "dtype: str | None, progress: collections.abc.Callable[[int, int, str], object] "
                   "| None) -> tuple[int, int]"))
      .def("import_step", &import_step, "source"_a, "step"_a, "extra"_a)
      .def("estimate", &estimate_of, "state"_a,
           nb::sig("def estimate(self, state: Node) -> "
                   "tuple[list[tuple[str, int]], int, int, int]"))
      .def("wait", unlocked(&Manager::wait))
      .def("close", unlocked(&Manager::close));
}

}  // namespace tenfold::python

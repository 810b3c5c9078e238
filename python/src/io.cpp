#include <tenfold/consolidated.hpp>
#include <tenfold/diff.hpp>
#include <tenfold/io.hpp>
#include <tenfold/scan.hpp>
#include <tenfold/torch/optimizer_pairing.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arguments.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "common.hpp"
#include "core/tensor/cast.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/consolidated/write.hpp"
#include "gil.hpp"
#include "io/registry.hpp"
#include "io/selector.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

std::vector<KeyPath> key_paths(nb::handle keys) {
  std::vector<KeyPath> paths;
  if (keys.is_none()) return paths;
  for (const nb::handle key : keys) {
    KeyPath path;
    for (const nb::handle part : key) path.push_back(utf8(part));
    paths.push_back(std::move(path));
  }
  return paths;
}

nb::tuple tuple_of(const Problem& problem) {
  return nb::make_tuple(text(problem.path), text(problem.part), text(problem.what),
                        text_or_none(problem.expected), text_or_none(problem.found),
                        text_or_none(problem.remedy));
}

nb::tuple tuple_of(const VerifyReport& report) {
  nb::list problems;
  for (const Problem& problem : report.problems) problems.append(tuple_of(problem));
  nb::list unchecked;
  for (const std::string& key : report.unchecked) unchecked.append(text(key));
  return nb::make_tuple(problems, report.num_leaves, report.num_bytes, report.num_checksums,
                        nb::tuple(unchecked));
}

namespace {

std::vector<std::string> names_from(nb::handle names) {
  std::vector<std::string> listed;
  for (const nb::handle name : names) listed.push_back(utf8(name));
  return listed;
}

/// Wraps a Python callable for the engine, which calls the wrapper without holding the GIL. For
/// None (no renaming), returns an empty function.
RenameFunction rename_function(RenameArgument rename) {
  if (rename.is_none()) return {};
  // A shared pointer: std::function copies its target without the GIL, but changing a reference
  // count of Python requires the GIL.
  return [kept = keep_alive(std::move(rename))](const std::string& dotted_path) {
    const GilAcquire gil;
    const nb::handle callable(static_cast<PyObject*>(const_cast<void*>(kept.get())));
    const nb::object renamed = callable(text(dotted_path));
    if (!PyUnicode_Check(renamed.ptr())) {
      throw base::invalid_argument().part("rename").expected("a str").found(
          utf8(nb::repr(renamed)));
    }
    return utf8(renamed);
  };
}

NodeHandle open_path(PathArgument path, const std::string& mode, const std::string& format) {
  const Path where = path_from(path);
  const OpenOptions options{.mode = mode_from(mode), .format = format};
  return {without_gil([&] { return tenfold::open(where, options); })};
}

NodeHandle load_path(PathArgument path, const std::string& mode, const std::string& format,
                     KeysArgument keys, KeysArgument exclude, bool verify, bool aliases,
                     bool allow_opaque, ProgressArgument progress) {
  const Path where = path_from(path);
  LoadOptions options{.mode = mode_from(mode), .format = format};
  if (!keys.is_none()) options.keys = key_paths(keys);
  options.exclude = key_paths(exclude);
  options.verify = verify;
  options.aliases = aliases;
  options.allow_opaque = allow_opaque;
  return {monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::load(where, options);
  })};
}

void save_tree(const NodeHandle& tree, PathArgument path, const std::string& format, bool durable,
               bool checksums, int num_threads, bool overwrite, ProgressArgument progress) {
  const Path where = path_from(path);
  SaveOptions options{.format = format, .durable = durable, .checksums = checksums};
  options.num_threads = num_threads;
  options.overwrite = overwrite;
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    tenfold::save(tree.node, where, options);
  });
}

void consolidate_tree(const NodeHandle& tree, PathArgument path, int num_threads, bool locked) {
  const Path where = path_from(path);
  ConsolidateOptions options{.num_threads = num_threads, .locked = locked};
  monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    tenfold::consolidate(tree.node, where, options);
  });
}

nb::tuple open_one_file(PathArgument path) {
  const Path where = path_from(path);
  const ConsolidatedTree opened = without_gil([&] { return open_consolidated(where); });
  return nb::make_tuple(NodeHandle{opened.tree}, opened.locked);
}

/// The name of the format in which `path` would be saved.
std::string format_to_save(PathArgument path, const std::string& format) {
  return std::string(format_for_saving(path_from(path), format).name);
}

std::string probe_path(PathArgument path) {
  const Path where = path_from(path);
  return without_gil([&] { return tenfold::probe(where); });
}

nb::tuple convert_path(PathArgument source, PathArgument target, const std::string& format,
                       KeysArgument keys, KeysArgument exclude, RenameArgument rename,
                       NamesArgument renamed, std::optional<std::string> dtype,
                       std::uint64_t shard_size, bool durable, bool verify,
                       ProgressArgument progress) {
  const Path from = path_from(source);
  const Path to = path_from(target);
  ConvertOptions options;
  options.format = format;
  if (!keys.is_none()) options.keys = key_paths(keys);
  options.exclude = key_paths(exclude);
  options.shard_size_bytes = shard_size;
  options.rename = rename_function(std::move(rename));
  options.renamed = names_from(renamed);
  options.durable = durable;
  options.verify = verify;
  if (dtype) options.dtype = dtype_from(*dtype);
  const ConvertReport report = monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::convert(from, to, options);
  });
  return nb::make_tuple(report.num_leaves, report.num_bytes);
}

nb::tuple verify_path(PathArgument path, ProgressArgument progress) {
  const Path where = path_from(path);
  VerifyOptions options;
  const VerifyReport report = monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::verify(where, options);
  });
  return tuple_of(report);
}

/// Returns (number of pickles, [(global, risk, where)]).
nb::tuple scan_path(PathArgument path) {
  const Path where = path_from(path);
  const ScanReport report = without_gil([&] { return tenfold::scan(where); });
  nb::list findings;
  for (const ScanFinding& found : report.findings) {
    findings.append(
        nb::make_tuple(text(found.global), text(to_string(found.risk)), text(found.where)));
  }
  return nb::make_tuple(report.num_pickles, findings);
}

nb::list list_of(const std::vector<std::string>& names) {
  nb::list listed;
  for (const std::string& name : names) listed.append(text(name));
  return listed;
}

nb::tuple diff_trees(const NodeHandle& a, const NodeHandle& b, double rtol, double atol,
                     ProgressArgument progress) {
  DiffOptions options;
  options.rtol = rtol;
  options.atol = atol;
  const DiffReport report = monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::diff(a.node, b.node, options);
  });
  nb::list changed;
  for (const Change& change : report.changed) {
    changed.append(nb::make_tuple(text(change.key), text(to_string(change.kind)), change.max_abs,
                                  change.rel_l2, change.cosine, change.num_different,
                                  text(change.a), text(change.b)));
  }
  return nb::make_tuple(list_of(report.added), list_of(report.removed), changed, report.num_leaves,
                        report.num_bytes);
}

nb::tuple load_into_tree(const NodeHandle& target, const NodeHandle& source, bool strict, bool cast,
                         bool dry_run, RenameArgument rename, KeysArgument keys,
                         NamesArgument renamed) {
  LoadIntoOptions options;
  options.strict = strict;
  options.cast = cast;
  options.dry_run = dry_run;
  options.rename = rename_function(std::move(rename));
  if (!keys.is_none()) options.keys = key_paths(keys);
  options.renamed = names_from(renamed);
  const LoadReport report = monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::load_into(target.node, source.node, options);
  });
  nb::list mismatched;
  for (const LoadReport::Mismatch& mismatch : report.mismatched) {
    mismatched.append(
        nb::make_tuple(text(mismatch.name), text(mismatch.expected), text(mismatch.found)));
  }
  return nb::make_tuple(list_of(report.loaded), list_of(report.missing), list_of(report.unexpected),
                        mismatched);
}

void require_ok(nb::str source, NamesArgument missing, NamesArgument unexpected,
                AnyObject mismatched) {
  LoadReport report;
  report.missing = names_from(missing);
  report.unexpected = names_from(unexpected);
  for (const nb::handle found : mismatched) {
    report.mismatched.push_back(
        {utf8(found[0]), utf8(found[1]), utf8(found[2]), nb::cast<bool>(found[3])});
  }
  tenfold::require_ok(report, utf8(source));
}

nb::list paths_selected(KeysArgument paths, KeysArgument keys, KeysArgument exclude) {
  const Keys wanted = keys.is_none() ? Keys() : Keys(key_paths(keys));
  nb::list found;
  for (const KeyPath& path : selected_paths(key_paths(paths), wanted, Keys(key_paths(exclude)))) {
    found.append(nb::tuple(list_of(path)));
  }
  return found;
}

/// The names of the parameters in each group. `groups`: (size, names or None) for each group. Empty
/// if there are no groups, a group has no names, or a name occurs twice. Throws
/// Error(invalid_argument) for a group whose number of names differs from its size.
std::optional<torch_detail::GroupNames> group_names(nb::handle groups) {
  torch_detail::GroupNames names;
  for (const nb::handle group : groups) {
    if (group[1].is_none()) return std::nullopt;
    names.push_back(names_from(group[1]));
    const auto count = nb::cast<std::size_t>(group[0]);
    if (names.back().size() == count) continue;
    throw base::invalid_argument()
        .part("optimizer: param_groups.", names.size() - 1, ".param_names")
        .expected(count, " names")
        .found(names.back().size());
  }
  if (names.empty() || !torch_detail::are_unique(names)) return std::nullopt;
  return names;
}

/// Pairs the parameters of an optimizer with those of a saved state. Returns a tuple of:
///
///   whether parameters were matched by name
///   for each group of the target (the optimizer), the index of the paired group in the source (the
///     saved state), or None
///   for each parameter of the target, the index of the paired parameter in the source, or None;
///     indices count the parameters of all groups
///   names of parameters that only the target has; empty if matched by order
///   names of parameters that only the source has; empty if matched by order
///   (name, expected, found) for numbers of groups or parameters that differ; empty if matched by
///     name
///   "param_groups.<i>" for each group i of the target that keeps its options, because no group of
///     the source has the same parameters; empty if matched by order
nb::tuple pair_parameters(AnyObject targets, AnyObject sources) {
  std::vector<std::size_t> sizes;
  for (const nb::handle group : targets) sizes.push_back(nb::cast<std::size_t>(group[0]));
  std::vector<torch_detail::SourceGroup> groups;
  std::size_t next = 0;
  for (const nb::handle group : sources) {
    std::vector<std::string> numbers(nb::cast<std::size_t>(group[0]));
    for (std::string& number : numbers) number = std::to_string(next++);
    groups.push_back({TensorDict(), std::move(numbers)});
  }
  const auto target_names = group_names(targets);
  const auto source_names = group_names(sources);
  const bool by_name = target_names && source_names;
  LoadReport report;
  const torch_detail::OptimizerPairing pairing =
      by_name ? torch_detail::pair_by_name(*target_names, groups, *source_names, report)
              : torch_detail::pair_by_order(sizes, groups, report);
  nb::list paired_groups;
  nb::list parameters;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    paired_groups.append(pairing.groups[g] ? nb::object(nb::int_(*pairing.groups[g])) : nb::none());
    for (std::size_t i = 0; i < sizes[g]; ++i) {
      const auto& numbers = pairing.numbers[g];
      const bool is_paired = i < numbers.size() && !numbers[i].empty();
      parameters.append(is_paired ? nb::object(nb::int_(std::stoul(numbers[i]))) : nb::none());
    }
  }
  nb::list mismatched;
  for (const LoadReport::Mismatch& found : report.mismatched) {
    mismatched.append(nb::make_tuple(text(found.name), text(found.expected), text(found.found)));
  }
  return nb::make_tuple(by_name, paired_groups, parameters, list_of(report.missing),
                        list_of(report.unexpected), mismatched, list_of(report.ignored));
}

/// A placeholder leaf that has only a dtype and a shape. Its bytes must not be accessed.
ItemHandle shape_only(const std::string& dtype, IntsArgument lengths) {
  return {outline_leaf(dtype_from(dtype), shape_from(lengths))};
}

NodeHandle tree_of(AnyObject object, PathArgument path, bool bare) {
  return {TreeBuilder(path_from(path).string()).root(object, bare)};
}

}  // namespace

void bind_tree(nb::module_& module) {
  module.def("tree", &tree_of, "object"_a.none(), "path"_a = "", "bare"_a = false,
             "Converts Python's nested containers to a tree of the engine; tensors are shared, not "
             "copied. With `bare`, also converts a tensor or value that is in no container.");
  module.def("shape_only", &shape_only, "dtype"_a, "shape"_a,
             "A placeholder for a tensor in a dry run.");
}

void bind_io(nb::module_& module) {
  module.def("open", &open_path, "path"_a, "mode"_a, "format"_a);
  module.def("load", &load_path, "path"_a, "mode"_a, "format"_a, "keys"_a.none(),
             "exclude"_a.none(), "verify"_a, "aliases"_a, "allow_opaque"_a, "progress"_a.none());
  module.def("save", &save_tree, "tree"_a, "path"_a, "format"_a, "durable"_a, "checksums"_a,
             "num_threads"_a, "overwrite"_a, "progress"_a.none());
  module.def("consolidate", &consolidate_tree, "tree"_a, "path"_a, "num_threads"_a, "locked"_a);
  using BlockLayout = detail::formats::consolidated::BlockLayout;
  nb::class_<BlockLayout>(module, "BlockLayout")
      .def(nb::init<>())
      .def("add", &BlockLayout::add, "itemsize"_a, "size_bytes"_a,
           "Appends a tensor, and returns the offset of its first byte.")
      .def("size_bytes", &BlockLayout::size_bytes);
  module.def("open_consolidated", &open_one_file, "path"_a,
             nb::sig("def open_consolidated(path: str | bytes | os.PathLike[str] | "
                     "os.PathLike[bytes]) -> tuple[Node, bool]"),
             "Returns (tree opened with mode \"c\", whether the saved TensorDict was locked).");
  module.def("format_to_save", format_to_save, "path"_a, "format"_a);
  module.def("probe", &probe_path, "path"_a);
  module.def("convert", &convert_path, "source"_a, "target"_a, "format"_a, "keys"_a.none(),
             "exclude"_a.none(), "rename"_a.none(), "renamed"_a, "dtype"_a.none(), "shard_size"_a,
             "durable"_a, "verify"_a, "progress"_a.none(),
             nb::sig("def convert(source: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
                     "target: str | bytes | os.PathLike[str] | os.PathLike[bytes], format: str, "
                     "keys: collections.abc.Iterable[tuple[str, ...]] | None, exclude: "
                     "collections.abc.Iterable[tuple[str, ...]] | None, rename: "
                     "collections.abc.Callable[[str], str] | None, "
                     "renamed: list[str], dtype: str | None, shard_size: int, durable: bool, "
                     "verify: bool, progress: collections.abc.Callable[[int, int, str], object] | "
                     "None) -> tuple[int, int]"));
  module.def("verify", &verify_path, "path"_a, "progress"_a.none(),
             nb::sig("def verify(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
                     "progress: collections.abc.Callable[[int, int, str], object] | None) -> "
                     "tuple[list[tuple[str, str, str, str | None, str | None, str | None]], int, "
                     "int, int, tuple[str, ...]]"));
  module.def("scan", &scan_path, "path"_a,
             nb::sig("def scan(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> "
                     "tuple[int, list[tuple[str, str, str]]]"));
  module.def("diff", &diff_trees, "a"_a, "b"_a, "rtol"_a, "atol"_a, "progress"_a.none(),
             nb::sig("def diff(a: Node, b: Node, rtol: float, atol: float, "
                     "progress: collections.abc.Callable[[int, int, str], object] | None) -> "
                     "tuple[list[str], list[str], "
                     "list[tuple[str, str, float, float, float, int, str, str]], int, int]"));
  module.def(
      "load_into", &load_into_tree, "target"_a, "source"_a, "strict"_a, "cast"_a, "dry_run"_a,
      "rename"_a.none(), "keys"_a.none(), "renamed"_a,
      nb::sig("def load_into(target: Node, source: Node, strict: bool, cast: bool, dry_run: bool, "
              "rename: collections.abc.Callable[[str], str] | None, keys: "
              "collections.abc.Iterable[tuple[str, ...]] | None, renamed: list[str]) "
              "-> tuple[list[str], list[str], "
              "list[str], list[tuple[str, str, str]]]"));
  module.def(
      "can_cast",
      [](const std::string& from, const std::string& to) {
        return can_cast(dtype_from(from), dtype_from(to));
      },
      "from_dtype"_a, "to_dtype"_a,
      nb::sig("def can_cast(from_dtype: str, to_dtype: str) -> bool"));
  module.def("require_ok", &require_ok, "source"_a, "missing"_a, "unexpected"_a, "mismatched"_a,
             nb::sig("def require_ok(source: str, missing: list[str], unexpected: list[str], "
                     "mismatched: list[tuple[str, str, str, bool]]) -> None"));
  module.def("selected_paths", &paths_selected, "paths"_a, "keys"_a.none(), "exclude"_a.none(),
             nb::sig("def selected_paths(paths: list[tuple[str, ...]], keys: "
                     "collections.abc.Iterable[tuple[str, ...]] | None, exclude: "
                     "collections.abc.Iterable[tuple[str, ...]] | None) -> list[tuple[str, ...]]"));
  module.def("pair_parameters", &pair_parameters, "targets"_a, "sources"_a,
             nb::sig("def pair_parameters(targets: list[tuple[int, list[str] | None]], sources: "
                     "list[tuple[int, list[str] | None]]) -> tuple[bool, list[int | None], "
                     "list[int | None], list[str], list[str], list[tuple[str, str, str]], "
                     "list[str]]"));
}

}  // namespace tenfold::python

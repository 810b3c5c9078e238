"""Pickles refer to public modules and `tenfold._pickle` only, so that private modules may move."""

import dataclasses
import importlib
import inspect
import multiprocessing
import pathlib
import pickle
import pickletools
import pydoc
import re
import typing
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import tenfold
from tenfold.tensordict import collate as collate_trees

REPORTS = ("Report", "Problem", "Mismatch", "Change", "ScanFinding", "Promotion")
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
LIBRARIES = {"torch", "numpy", "builtins", "__builtin__", "collections", "_codecs", "copyreg"}


@tenfold.tensorclass
class Point:
    x: torch.Tensor
    name: str = ""


class OwnTree(tenfold.TensorDict):
    pass


def doubled(row):
    return {**row, "x": row["x"] * 2}


def named(data):
    """Returns the (module, name) pairs of all globals in a pickle, without unpickling it."""
    found, strings, memo = set(), [], {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            found.add(tuple(argument.split(" ", 1)))
        elif opcode.name == "STACK_GLOBAL":
            found.add((strings[-2], strings[-1]))
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else None
        elif opcode.name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = strings[-1] if strings else None
        elif opcode.name in ("BINGET", "LONG_BINGET", "GET"):
            strings.append(memo[int(argument)])
        elif "UNICODE" in opcode.name:
            strings.append(argument)
    return found


def private_names(data):
    return [
        f"{module}.{name}"
        for module, name in named(data)
        if module not in ("tenfold._pickle", __name__)
        and module.partition(".")[0] not in LIBRARIES
        and any(part.startswith("_") for part in module.split("."))
    ]


def tree():
    return tenfold.TensorDict({"x": torch.arange(6.0).view(3, 2), "n": {"y": torch.ones(3)}}, [3])


def table(path):
    tenfold.ingest([{"x": float(i), "t": "a" * i} for i in range(20)], path)
    return path


def ragged(path):
    tenfold.ingest([{"x": list(range(i))} for i in range(4)], path)
    return path


def text(path):
    path = path.with_suffix(".jsonl")
    path.write_text('{"x": 1}\n{"x": 2}\n')
    return str(path)


def saved(path):
    tenfold.save(tree(), path)
    return path


def matrix():
    return tenfold.SparseMatrix.from_torch(torch.eye(2, 4).to_sparse_csr())


def mapper(path):
    made = tenfold.SparseStateMapper(["a", "b"], matrix())
    if path is not None:
        made.save(path)
    return made


def hierarchy():
    return tenfold.HierarchicalStateMapper({"a": {"b": torch.ones(2)}, "c": torch.zeros(2)})


def iterated(rows):
    iterator = iter(rows)
    next(iterator)
    return rows


def joined(path):
    rows = tenfold.Dataset(table(path)).map(doubled)
    return tenfold.concat([rows, rows.range(0, 4)])


def mapped(path):
    made = tree()
    return made.memmap(path)


CASES = {
    "TensorDict": lambda path: tree(),
    "subclass": lambda path: OwnTree({"x": torch.ones(2)}, [2]),
    "locked": lambda path: tree().lock_(),
    "keys": lambda path: tree().keys(include_nested=True),
    "names": lambda path: tenfold.TensorDict({"x": torch.ones(2)}, [2], names=["rows"]),
    "unbatched": lambda path: tenfold.TensorDict(
        {"x": tenfold.UnbatchedTensor(torch.ones(5))}, [2]
    ),
    "opened": lambda path: tenfold.open(saved(path)),
    "opened, below": lambda path: tenfold.open(saved(path))["n"],
    "memmap": mapped,
    "memmap, below": lambda path: mapped(path)["n"],
    "memmap, a view": lambda path: mapped(path)[:2],
    "load_memmap": lambda path: (mapped(path), tenfold.TensorDict.load_memmap(path))[1],
    "lazy stack": lambda path: tenfold.lazy_stack([tree(), tree()]),
    "lazy stack, saved": lambda path: tenfold.lazy_stack([tree(), tree()]).memmap(path),
    "consolidated": lambda path: tree().consolidate(),
    "consolidated, jagged": lambda path: tenfold.TensorDict(
        {
            "x": torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 5])),
            "y": torch.ones(2),
        },
        [2],
    ).consolidate(),
    "consolidated, lazy": lambda path: tenfold.lazy_stack([tree(), tree()]).consolidate(),
    "NonTensorData": lambda path: tenfold.NonTensorData("a", batch_size=[2]),
    "NonTensorStack": lambda path: tenfold.NonTensorStack("a", "b"),
    "tensorclass": lambda path: Point(x=torch.ones(2), name="p", batch_size=[2]),
    "tensorclass, saved": lambda path: Point(x=torch.ones(2), name="p", batch_size=[2]).memmap(
        path
    ),
    "MemoryMappedTensor": lambda path: tenfold.MemoryMappedTensor.from_tensor(
        torch.arange(6), filename=path
    )[2:],
    "Opaque": lambda path: tenfold.Opaque("some.Class", {"args": (1,)}),
    "Dataset": lambda path: tenfold.Dataset(table(path)),
    "Dataset, views": lambda path: (
        tenfold.Dataset(table(path)).select(["x"]).range(1, 9).take([0, 3, 1]).map(doubled)
    ),
    "Dataset, split": lambda path: tenfold.Dataset(table(path)).split([0.5, 0.5], seed=1)[1],
    "concat": joined,
    "mix": lambda path: tenfold.mix(
        [tenfold.Dataset(table(path)), tenfold.Dataset(path).range(0, 5)], [1, 2]
    ),
    "rows": lambda path: tenfold.Dataset(table(path)).__getitems__([1, 2]),
    "rows of a function": lambda path: (
        tenfold.Dataset(table(path)).map(doubled).__getitems__([1, 2])
    ),
    "a batch with offsets": lambda path: next(
        iter(tenfold.BatchLoader(ragged(path), batch_size=2, pad="offsets"))
    )["x"],
    "Schema": lambda path: tenfold.Dataset(table(path)).schema,
    "Column": lambda path: tenfold.Column("float32", (3,)),
    "IngestReport": lambda path: (
        tenfold.Dataset(table(path)).report or tenfold.ingest([{"x": 1}, {"x": 2.5}], path).report
    ),
    "Window": lambda path: next(
        tenfold.accumulate([torch.ones(2), torch.ones(3)], steps=2),
    ),
    "IterableDataset": lambda path: tenfold.IterableDataset(table(path), shuffle=True),
    "IterableDataset, begun": lambda path: iterated(tenfold.IterableDataset(table(path))),
    "IterableDataset, text": lambda path: tenfold.IterableDataset(text(path)),
    "MappedDict": lambda path: tenfold.MappedDict.build({"a": 1.0, "b": 2.0}, path),
    "SparseMatrix": lambda path: matrix(),
    "SparseMatrix, saved": lambda path: tenfold.SparseMatrix(matrix().save(path)),
    "SparseStateMapper": lambda path: mapper(None),
    "SparseStateMapper, saved": mapper,
    "HierarchicalStateMapper": lambda path: hierarchy(),
    "CachedStateMapper": lambda path: mapper(None).cached(1 << 20),
    "StateDict": lambda path: tenfold.StateDict(epoch=3),
    "RNGState": lambda path: tenfold.RNGState(),
    "Snapshot": lambda path: tenfold.Snapshot.take(path, {"a": tenfold.StateDict(epoch=3)}),
    "SnapshotMetadata": lambda path: (
        tenfold.Snapshot.take(path, {"a": tenfold.StateDict(epoch=3)}).metadata
    ),
    "VerifyReport": lambda path: tenfold.verify(saved(path)),
    "Problem": lambda path: tenfold.Problem("a", "b", "c"),
    "Mismatch": lambda path: tenfold.Mismatch("a", "b", "c"),
    "ScanReport": lambda path: tenfold.scan(saved(path)),
    "DiffReport": lambda path: tenfold.diff(tree(), tree() + 1),
    "LoadReport": lambda path: tenfold.load_into(tree(), saved(path)),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", CASES)
def test_pickles_reference_no_private_module(case, protocol, tmp_path):
    thing = CASES[case](tmp_path / "made")
    data = pickle.dumps(thing, protocol)
    assert private_names(data) == []
    assert type(pickle.loads(data)) is type(thing)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pickles_of_anonymous_memory_reference_no_private_module(protocol):
    # Only multiprocessing's own pickler can pickle it.
    thing = tenfold.MemoryMappedTensor.from_tensor(torch.arange(6))
    data = bytes(ForkingPickler.dumps(thing, protocol))
    names = [name for name in private_names(data) if not name.startswith("multiprocessing.")]
    assert names == []
    assert multiprocessing.reduction.ForkingPickler.loads(data).tolist() == thing.tolist()


def public_things():
    exported = [name for names in tenfold._EXPORTS.values() for name in names]
    for name in [*exported, *tenfold._ERRORS]:
        yield f"tenfold.{name}", getattr(tenfold, name)
    for name in tenfold.tensordict.__all__:
        yield f"tenfold.tensordict.{name}", getattr(tenfold.tensordict, name)
    for name in tenfold.dataset.__all__:
        yield f"tenfold.dataset.{name}", getattr(tenfold.dataset, name)


def test_public_names_have_their_public_module():
    assert collate_trees is not tenfold.collate
    for place, thing in public_things():
        if place.endswith(("__version__", "NestedKey")):  # a str and a union of types
            continue
        module = place.rpartition(".")[0]
        assert thing.__module__ in ("tenfold", module), place
        assert pickle.loads(pickle.dumps(thing)) is thing
        assert private_names(pickle.dumps(thing)) == [], place


def declared_things():
    """Yields the module and name of each class and function that `set_module` decorates."""
    for file in pathlib.Path(tenfold.__file__).parent.rglob("*.py"):
        yield from re.findall(
            r'@set_module\("(.+)"\)\n(?:@.*\n)*(?:class|def) (\w+)',
            file.read_text(encoding="utf-8"),
        )


def test_the_module_given_to_set_module_has_the_class_or_function():
    for module, name in declared_things():
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_errors_round_trip_through_pickle():
    kinds = [getattr(importlib.import_module(module), name) for module, name in declared_things()]
    errors = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert {getattr(tenfold, name) for name in tenfold._ERRORS} < set(errors)
    for kind in errors:
        error = kind("what is wrong")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert again.args == error.args


def test_reports_and_named_tuples_have_type_hints():
    for place, thing in public_things():
        if place.startswith("tenfold.dataset."):
            continue
        if isinstance(thing, type) and issubclass(thing, tuple):
            assert typing.get_type_hints(thing).keys() == set(thing._fields), place
        elif dataclasses.is_dataclass(thing) and thing.__name__.endswith(REPORTS):
            names = {field.name for field in dataclasses.fields(thing)}
            assert typing.get_type_hints(thing).keys() == names, place


def test_pickled_concat_of_mapped_parts_keeps_the_function(tmp_path):
    again = pickle.loads(pickle.dumps(joined(tmp_path / "made")))
    assert again[[1, 21]]["x"].tolist() == [2, 2]


def test_help_and_source_of_public_classes_are_available():
    for place, thing in public_things():
        if isinstance(thing, type):
            assert thing.__name__ in pydoc.render_doc(thing), place
    assert inspect.getsource(tenfold.TensorDict.memmap).lstrip().startswith("def memmap(")
    assert inspect.getsource(tenfold.save).startswith('@set_module("tenfold")\ndef save(')


def test_old_pickles_of_a_node_are_read_with_all_fields():
    from tenfold import _pickle
    from tenfold._interop.node_info import NodeInfo

    fields = ("ordered_dict", {"1": 1}, (), [], "", 0, None, "cpu", '{"c": 1}', {"k": "v"})
    read = _pickle.tensordict(tenfold.TensorDict, {"1": torch.ones(2)}, (*fields, None), True)
    assert read._info() == NodeInfo(
        kind="ordered_dict", int_keys={"1": 1}, device="cpu", schema='{"c": 1}', metadata={"k": "v"}
    )
    assert read.is_locked
    assert read.to_dict() == {1: read["1"]}
    more = ("", (), False, '{"": {"version": 1}}')
    read = _pickle.tensordict(tenfold.TensorDict, {}, (*fields, more), False)
    assert read.to_dict()._metadata == {"": {"version": 1}}
    assert read._info().is_bare is False
    assert pickle.loads(pickle.dumps(read))._info() == read._info()


def test_all_fields_of_a_node_reach_the_engine():
    from tenfold import _core
    from tenfold._interop.node_info import NodeInfo

    for info in (
        NodeInfo("sparse", layout="sparse_coo", dense_shape=(2, 3), is_coalesced=True),
        NodeInfo("ordered_dict", {"1": 1, "None": None}, module_versions='{"a": 1}', is_bare=True),
        NodeInfo("tensorclass", False, (2, 1), ("t", None), "C", device="cpu"),
        NodeInfo("lazy_stack", False, stack_dim=1, stack_dim_name="t", schema='{"a": 1}'),
        NodeInfo("dict", metadata={"k": "v"}),
    ):
        made = tenfold.TensorDict()
        made._use_info(info)
        for key in info.int_keys or ():
            made._items[key] = torch.ones(1)
        assert _core.tree(made).info() == info

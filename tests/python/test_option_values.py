"""Public calls with unusual values of each option return a result or raise a clear error.

No call crashes, hangs, takes more than 4 GiB or raises an undocumented exception. A result is empty
only for an option that a case lists in `may_be_empty`. `WITHOUT_CASE` lists the public names that
are not tested here.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import multiprocessing
import resource
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import tenfold

NOT_A_VALUE = object()  # the call omits the option and must succeed

VALUES: list[Any] = [
    NOT_A_VALUE,
    None,
    True,
    0,
    -1,
    1,
    2,
    63,
    2**31,
    2**58,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**5000,
    0.0,
    0.5,
    -1.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "\0",
    "\ud800",
    "../x",
    "float32",
    b"",
    b"x",
    [],
    [0],
    [-1],
    [2**70],
    ["x"],
    [None],
    [[]],
    (),
    (1, 2),
    {},
    {"x": 1},
    {1: None},
    set(),
    range(0),
    object(),
    int,
    len,
    torch.tensor(1),
    torch.tensor([]),
    torch.tensor([[2**62]]),
    torch.float32,
]

CLEAR = (tenfold.Error, TypeError, ValueError, KeyError, IndexError, OSError)
UNCLEAR_WORDS = ("std::", "bad_cast", "nanobind", "incompatible function arguments")
MEMORY_BYTES = 4 << 30
FILE_BYTES = 64 << 20  # maximum size of a file that a call may create


class Case(NamedTuple):
    """How to call one public function."""

    make: Callable[[Path], tuple[Callable[..., Any], dict[str, Any]]]
    count: Callable[[Any], int] | None = None
    may_be_empty: tuple[str, ...] = ()  # options for which a value may select nothing


CASES: dict[str, Case] = {}


def case(
    name: str, count: Callable[[Any], int] | None = None, may_be_empty: tuple[str, ...] = ()
) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        CASES[name] = Case(make, count, may_be_empty)
        return make

    return add


ROWS = [{"x": i, "y": 0.5 * i, "s": str(i), "v": [i] * (i % 3)} for i in range(20)]


def tree(work: Path, name: str = "tree.safetensors") -> Path:
    path = work / name
    if not path.exists():
        tenfold.save({"a": torch.arange(12.0).reshape(3, 4), "b": {"c": torch.ones(2)}}, path)
    return path


def rows(work: Path) -> tenfold.Dataset:
    if not (work / "rows").exists():
        tenfold.ingest(ROWS, work / "rows")
    return tenfold.Dataset(work / "rows")


def words(work: Path, mode: Any = "r") -> Any:
    if not (work / "words").exists():
        tenfold.MappedDict.build({f"w{i}": torch.ones(2) * i for i in range(9)}, work / "words")
    return tenfold.MappedDict(work / "words", mode)


def matrix(work: Path) -> tenfold.SparseMatrix:
    if not (work / "matrix").exists():
        made = tenfold.SparseMatrix.from_coo([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (4, 3))
        made.save(work / "matrix")
    return tenfold.SparseMatrix(work / "matrix")


def matrix_of_two() -> tenfold.SparseMatrix:
    return tenfold.SparseMatrix.from_coo([0, 1], [0, 1], [1.0, 2.0], (2, 2))


def mapper() -> tenfold.SparseStateMapper:
    return tenfold.SparseStateMapper([(0,), (1,)], matrix_of_two())


new_names = itertools.count()


def new(work: Path) -> Path:
    return work / f"new-{next(new_names)}"


@case("save")
def _save(work: Path):
    return tenfold.save, {"obj": {"x": torch.ones(3)}, "path": new(work)}


@case("load", count=len, may_be_empty=("keys",))
def _load(work: Path):
    return tenfold.load, {"path": tree(work)}


@case("open", count=lambda made: len(list(made.keys())))
def _open(work: Path):
    return tenfold.open, {"path": tree(work)}


@case("convert")
def _convert(work: Path):
    return tenfold.convert, {"src": tree(work), "dst": new(work)}


@case("diff")
def _diff(work: Path):
    return tenfold.diff, {"a": tree(work), "b": tree(work)}


@case("probe")
def _probe(work: Path):
    return tenfold.probe, {"path": tree(work)}


@case("scan")
def _scan(work: Path):
    return tenfold.scan, {"path": tree(work)}


@case("verify")
def _verify(work: Path):
    return tenfold.verify, {"path": tree(work)}


@case("load_into")
def _load_into(work: Path):
    target = {"a": torch.zeros(3, 4), "b": {"c": torch.zeros(2)}}
    return tenfold.load_into, {"target": target, "source": tree(work)}


@case("Snapshot")
def _snapshot(work: Path):
    return tenfold.Snapshot, {"path": snapshot(work).path}


def snapshot(work: Path) -> tenfold.Snapshot:
    return tenfold.Snapshot.take(new(work), {"s": tenfold.StateDict(x=torch.ones(2), n=1)})


@case("Snapshot.take")
def _take(work: Path):
    state = {"s": tenfold.StateDict(x=torch.ones(2))}
    return tenfold.Snapshot.take, {"path": new(work), "app_state": state}


@case("Snapshot.async_take")
def _async_take(work: Path):
    def take(**options: Any) -> Any:
        return tenfold.Snapshot.async_take(**options).wait()

    take.__signature__ = inspect.signature(tenfold.Snapshot.async_take)  # type: ignore[attr-defined]
    state = {"s": tenfold.StateDict(x=torch.ones(2))}
    return take, {"path": new(work), "app_state": state}


@case("Snapshot.read_object")
def _read_object(work: Path):
    return snapshot(work).read_object, {"path": "0/s/x"}


@case("Snapshot.get_state_dict_for_key")
def _state_dict_for_key(work: Path):
    return snapshot(work).get_state_dict_for_key, {"key": "s"}


@case("Snapshot.restore")
def _restore(work: Path):
    state = {"s": tenfold.StateDict(x=torch.zeros(2), n=0)}
    return snapshot(work).restore, {"app_state": state}


def manager(work: Path) -> tenfold.CheckpointManager:
    made = tenfold.CheckpointManager(new(work), durable=False)
    made.save(1, {"s": tenfold.StateDict(x=torch.ones(2)), "epoch": 1}, metrics={"loss": 1.0})
    return made


@case("CheckpointManager")
def _manager(work: Path):
    def save(**options: Any) -> Any:
        with tenfold.CheckpointManager(**options) as made:
            made.save(1, {"x": torch.ones(2)})
            return made.restore()

    save.__signature__ = inspect.signature(tenfold.CheckpointManager)  # type: ignore[attr-defined]
    return save, {"directory": new(work)}


def manager_case(method: str, **arguments: Any) -> None:
    """Adds a case for a method of CheckpointManager.

    The case enters the context manager that `hold` returns, and takes one item from `follow`.
    """

    def make(work: Path) -> Any:
        call = getattr(manager(work), method)

        def run(**options: Any) -> Any:
            result = call(**options)
            if method == "hold":
                with result as path:
                    return path
            return list(itertools.islice(result, 1)) if method == "follow" else result

        run.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
        given = {key: value(work) if callable(value) else value for key, value in arguments.items()}
        return run, given

    case(f"CheckpointManager.{method}")(make)


manager_case("should_save", step=3)
manager_case("save", step=2, app_state={"epoch": 2})
manager_case("set_metrics", step=1, metrics={"loss": 0.5})
manager_case("estimate", app_state={"epoch": 2})
manager_case("preemption")
manager_case("restore")
manager_case("metadata", step=1)
manager_case("path", step=1)
manager_case("verify", step=1)
manager_case("follow", timeout=0.0)
manager_case("hold", step=1)
manager_case("delete", step=1)
manager_case("export", step=1, path=lambda work: new(work))
manager_case("import_step", path=lambda work: tree(work), step=2)


@case("ingest", count=len, may_be_empty=("source",))
def _ingest(work: Path):
    return tenfold.ingest, {"source": ROWS, "path": new(work)}


@case("infer_schema", count=len, may_be_empty=("source",))
def _infer_schema(work: Path):
    return tenfold.infer_schema, {"source": ROWS}


@case("create", may_be_empty=("num_rows", "capacity", "schema"))
def _create(work: Path):
    example = {"x": ("float32", (3,))}
    return tenfold.create, {"path": new(work), "schema": example, "num_rows": 4}


@case("create_parts", may_be_empty=("schema",))
def _create_parts(work: Path):
    return tenfold.create_parts, {"path": new(work), "schema": {"x": ("float32", (3,))}}


@case("commit_parts", may_be_empty=("parts",))
def _commit_parts(work: Path):
    path = new(work)
    tenfold.ingest(ROWS, path / "a", durable=False)
    return tenfold.commit_parts, {"path": path, "parts": ["a"]}


@case("compact")
def _compact(work: Path):
    path = new(work)
    tenfold.ingest(ROWS, path / "a", durable=False)
    tenfold.commit_parts(path).close()
    return tenfold.compact, {"path": path}


@case("concat", count=len, may_be_empty=("datasets",))
def _concat(work: Path):
    return tenfold.concat, {"datasets": [rows(work), rows(work)]}


@case("mix", count=len, may_be_empty=("datasets",))
def _mix(work: Path):
    return tenfold.mix, {"datasets": [rows(work), rows(work)], "weights": [0.5, 0.5]}


@case("collate")
def _collate(work: Path):
    return tenfold.collate, {"rows": [rows(work)[0], rows(work)[1]]}


@case("accumulate")
def _accumulate(work: Path):
    def windows(*, loader: Any, steps: Any = 2) -> int:
        return len(list(itertools.islice(tenfold.accumulate(loader, steps), 5)))

    return windows, {"loader": tenfold.BatchLoader(rows(work), 4), "steps": 2}


@case("permutation", may_be_empty=("size",))
def _permutation(work: Path):
    return tenfold.permutation, {"size": 10}


@case("permutation.__getitem__")
def _permutation_item(work: Path):
    return tenfold.permutation(10).__getitem__, {"index": 3}


def first_batches(loader: Any) -> int:
    return sum(len(b["x"]) for b in itertools.islice(iter(loader), 3))


@case(
    "BatchLoader",
    count=first_batches,
    may_be_empty=("drop_last", "columns", "transform", "world_size"),
)
def _batch_loader(work: Path):
    return tenfold.BatchLoader, {"dataset": rows(work).select(["x", "y"]), "batch_size": 4}


@case("BatchLoader.set_epoch")
def _set_epoch(work: Path):
    loader = tenfold.BatchLoader(rows(work), 4, shuffle=True)

    def set_epoch(*, epoch: Any = 1) -> int:
        loader.set_epoch(epoch)
        return len(list(loader))

    return set_epoch, {"epoch": 1}


@case("BatchLoader.load_state_dict")
def _loader_state(work: Path):
    loader = tenfold.BatchLoader(rows(work), 4, shuffle=True)
    return loader.load_state_dict, {"state": loader.state_dict()}


def members_changed(work: Path, make: Callable[[], Any]):
    """Returns a function and its valid options: the members of the state of `make()`.

    The function loads a state in which its options replace the members with these names.
    """
    state = make().state_dict()

    def load(**members: Any) -> Any:
        thing = make()
        thing.load_state_dict({**state, **members})
        for _ in itertools.islice(iter(thing), 2):
            pass

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in state]
    load.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return load, dict(state)


@case("BatchLoader: a state")
def _loader_state_members(work: Path):
    return members_changed(work, lambda: tenfold.BatchLoader(rows(work), 4, shuffle=True))


@case("IterableDataset: a state")
def _iterable_state_members(work: Path):
    return members_changed(work, lambda: tenfold.IterableDataset(rows(work), shuffle=True))


@case("IterableDataset.load_state_dict")
def _iterable_state(work: Path):
    stream = tenfold.IterableDataset(rows(work))
    return stream.load_state_dict, {"state": stream.state_dict()}


@case("IterableDataset.set_epoch")
def _iterable_epoch(work: Path):
    stream = tenfold.IterableDataset(rows(work), shuffle=True)

    def set_epoch(*, epoch: Any = 1) -> int:
        stream.set_epoch(epoch)
        return len(list(stream))

    return set_epoch, {"epoch": 1}


@case(
    "IterableDataset",
    count=lambda stream: len(list(itertools.islice(iter(stream), 3))),
    may_be_empty=("source",),
)
def _iterable(work: Path):
    return tenfold.IterableDataset, {"source": rows(work)}


@case("Dataset", count=len)
def _dataset(work: Path):
    rows(work)
    return tenfold.Dataset, {"source": work / "rows"}


@case("Dataset.__getitem__")
def _row(work: Path):
    return rows(work).__getitem__, {"index": 3}


@case("Dataset.filter", may_be_empty=("mask",))
def _filter(work: Path):
    return rows(work).filter, {"mask": torch.ones(20, dtype=torch.bool)}


@case("Dataset.map", count=len)
def _map(work: Path):
    return rows(work).map, {"function": lambda row: row}


@case("Dataset.range", may_be_empty=("start", "end"))
def _range(work: Path):
    return rows(work).range, {"start": 2, "end": 5}


@case("Dataset.select")
def _select(work: Path):
    return rows(work).select, {"columns": ["x"]}


@case("Dataset.shard", count=len)
def _shard(work: Path):
    return rows(work).shard, {"rank": 0, "world_size": 2}


@case("Dataset.rename")
def _rename(work: Path):
    return rows(work).rename, {"names": {"x": "z"}}


@case("Dataset.shuffle")
def _shuffle(work: Path):
    return rows(work).shuffle, {"seed": 3}


@case("Dataset.head", may_be_empty=("n",))
def _head(work: Path):
    return rows(work).head, {"n": 3}


@case("Dataset.save")
def _save_rows(work: Path):
    return rows(work).save, {"path": new(work)}


@case("set_framework")
def _set_framework(work: Path):
    return tenfold.set_framework, {"framework": None}


@case("Dataset.split")
def _split(work: Path):
    return rows(work).split, {"sizes": [0.5, 0.5]}


@case("Dataset.take", may_be_empty=("indices",))
def _take_rows(work: Path):
    return rows(work).take, {"indices": [1, 2]}


def growing(work: Path) -> Any:
    path = new(work)
    return tenfold.create(path, {"x": "int64"}, capacity=8)


@case("Dataset.append")
def _append(work: Path):
    return growing(work).append, {"rows": {"x": 1}}


@case("Dataset.extend")
def _extend(work: Path):
    return growing(work).extend, {"rows": [{"x": 1}]}


@case("Dataset.write")
def _write(work: Path):
    return growing(work).write, {"rows": [{"x": 1}]}


@case("Schema")
def _schema(work: Path):
    return tenfold.Schema, {"columns": {"x": rows(work).schema["x"]}}


@case("Schema.from_dict")
def _schema_dict(work: Path):
    return tenfold.Schema.from_dict, {"document": rows(work).schema.to_dict()}


@case("Schema.from_json")
def _schema_json(work: Path):
    return tenfold.Schema.from_json, {"text": rows(work).schema.to_json()}


@case("Column.from_dict")
def _column_dict(work: Path):
    return tenfold.Column.from_dict, {"members": rows(work).schema["x"].to_dict()}


@case("MappedDict", count=len)
def _mapped_dict(work: Path):
    words(work)
    return tenfold.MappedDict, {"path": work / "words"}


@case("MappedDict.build", may_be_empty=("items",))
def _build(work: Path):
    items = {"a": {"x": 1}, "b": {"x": 2}}
    return tenfold.MappedDict.build, {"items": items, "path": new(work)}


@case("MappedDict.get_many")
def _get_many(work: Path):
    return words(work).get_many, {"keys": ["w1", "nothing"]}


@case("MappedDict.rows")
def _rows_of_keys(work: Path):
    return words(work).rows, {"keys": ["w1", "w2"]}


@case("MappedDict.extend")
def _extend_words(work: Path):
    return words(work, "r+").extend, {"items": {f"n{next(new_names)}": torch.ones(2)}}


@case("MappedDict.update")
def _update_words(work: Path):
    return words(work, "r+").update, {"items": {"w1": torch.ones(2)}}


@case("MappedDict.compact")
def _compact(work: Path):
    return words(work, "r+").compact, {}


@case("SparseMatrix", count=lambda made: made.shape[0])
def _sparse(work: Path):
    matrix(work)
    return tenfold.SparseMatrix, {"source": work / "matrix"}


@case("SparseMatrix.__getitem__")
def _sparse_item(work: Path):
    return matrix(work).__getitem__, {"index": 1}


@case("SparseMatrix.from_coo")
def _from_coo(work: Path):
    return tenfold.SparseMatrix.from_coo, {
        "rows": [0, 1],
        "cols": [1, 0],
        "values": [1.0, 2.0],
        "shape": (3, 3),
        "path": new(work),
    }


@case("SparseMatrix.build")
def _sparse_build(work: Path):
    return tenfold.SparseMatrix.build, {"rows": [{0: 1.0}, {2: 2.0}], "path": new(work)}


@case("SparseMatrix.from_scipy")
def _from_scipy(work: Path):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    return tenfold.SparseMatrix.from_scipy, {"x": scipy_sparse.eye(3, format="csr")}


@case("SparseMatrix.from_torch")
def _from_torch(work: Path):
    return tenfold.SparseMatrix.from_torch, {"tensor": torch.eye(3).to_sparse_csr()}


@case("SparseMatrix.append_rows")
def _append_rows(work: Path):
    path = new(work)
    matrix(work).save(path)
    return tenfold.SparseMatrix(path, "r+").append_rows, {"rows": [{0: 1.0}]}


@case("SparseMatrix.batches", count=lambda loader: len(list(itertools.islice(loader, 2))))
def _sparse_batches(work: Path):
    return matrix(work).batches, {"batch_size": 2}


@case("SparseMatrix.rows")
def _sparse_rows(work: Path):
    return matrix(work).rows, {"indices": [0, 2]}


@case("SparseMatrix.cols")
def _sparse_cols(work: Path):
    return matrix(work).cols, {"indices": [0, 2]}


@case("SparseMatrix.sum")
def _sparse_sum(work: Path):
    return matrix(work).sum, {"axis": 0}


@case("SparseMatrix.to_layout")
def _to_layout(work: Path):
    return matrix(work).to_layout, {"layout": "csc", "path": new(work)}


@case("SparseMatrix.will_need")
def _will_need(work: Path):
    return matrix(work).will_need, {"indices": [0, 2]}


@case("SparseMatrix.save")
def _sparse_save(work: Path):
    return matrix(work).save, {"path": new(work)}


@case("SparseStateMapper")
def _sparse_mapper(work: Path):
    return tenfold.SparseStateMapper, {"keys": [(0,), (1,)], "matrix": matrix_of_two()}


@case("StateMapper.save")
def _sparse_mapper_save(work: Path):
    return mapper().save, {"path": new(work)}


@case("StateMapper.load")
def _mapper_load(work: Path):
    path = mapper().save(new(work))
    return tenfold.StateMapper.load, {"path": path}


@case("StateMapper.generate")
def _generate(work: Path):
    return mapper().generate, {"states": [(0,)]}


@case("StateMapper.key")
def _mapper_key(work: Path):
    return mapper().key, {"state": (0,)}


@case("StateMapper.cached")
def _cached(work: Path):
    return mapper().cached, {"max_bytes": 1000}


@case("CachedStateMapper")
def _cached_mapper(work: Path):
    return tenfold.CachedStateMapper, {"mapper": mapper(), "max_bytes": 1000}


@case("HierarchicalStateMapper")
def _hierarchical(work: Path):
    return tenfold.HierarchicalStateMapper, {"hierarchy": {"default": torch.eye(2)}}


@case("ModuleStateMapper")
def _module_mapper(work: Path):
    tenfold.register_mapper("linear of the tests")(torch.nn.Linear)
    sizes = {"in_features": 2, "out_features": 2}
    return tenfold.ModuleStateMapper, {"factory_name": "linear of the tests", "config": sizes}


@case("register_mapper")
def _register(work: Path):
    return tenfold.register_mapper, {"name": f"mapper{next(new_names)}"}


def folder(work: Path) -> Path:
    path = work / "folder"
    if not path.exists():
        tenfold.TensorDict({"a": torch.arange(6)}, batch_size=[6]).memmap(path)
    return path


@case("load_memmap")
def _load_memmap(work: Path):
    return tenfold.load_memmap, {"prefix": folder(work)}


@case("append_memmap")
def _append_memmap(work: Path):
    path = new(work)
    tenfold.TensorDict({"a": torch.arange(6)}, batch_size=[6]).memmap(path)
    more = tenfold.TensorDict({"a": torch.arange(2)}, batch_size=[2])
    return tenfold.append_memmap, {"prefix": path, "rows": more}


@case("is_memmap_archive")
def _is_archive(work: Path):
    return tenfold.is_memmap_archive, {"path": archive(work)}


def archive(work: Path) -> Path:
    path = work / "packed.tdz"
    if not path.exists():
        tenfold.pack_memmap(folder(work), path)
    return path


@case("pack_memmap")
def _pack(work: Path):
    return tenfold.pack_memmap, {"prefix": folder(work), "archive_path": new(work)}


@case("unpack_memmap")
def _unpack(work: Path):
    return tenfold.unpack_memmap, {"archive_path": archive(work), "prefix": new(work)}


@case("refresh_archive_checksums")
def _refresh(work: Path):
    return tenfold.refresh_archive_checksums, {"path": archive(work)}


@case("TensorDict.memmap")
def _memmap(work: Path):
    made = tenfold.TensorDict({"a": torch.arange(6)}, batch_size=[6])
    return made.memmap, {"prefix": new(work)}


@case("TensorDict.save")
def _td_save(work: Path):
    made = tenfold.TensorDict({"a": torch.arange(6)}, batch_size=[6])
    return made.save, {"prefix": new(work)}


def shown(value: Any) -> str:
    if value is NOT_A_VALUE:
        return "(left out)"
    is_long = isinstance(value, int) and value.bit_length() > 1000  # Python refuses its repr()
    return "10**5000" if is_long else repr(value)[:40]


def options_of(call: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in inspect.signature(call).parameters.values() if p.kind in kinds]


def faults_of(name: str, work: Path) -> Iterator[str]:
    """Yields the problems of one public call, for each option and value."""
    make, count, may_be_empty = CASES[name]
    call, _ = make(work)
    for option, value in itertools.product(options_of(call), VALUES):
        call, arguments = make(work)
        if value is NOT_A_VALUE:
            if option in arguments:
                continue
        else:
            arguments[option] = value
        place = f"{name}({option}={shown(value)})"
        try:
            result = call(**arguments)
            if count is None:
                continue
            found = count(result)
        except CLEAR as error:
            text = str(error)
            unclear = [word for word in UNCLEAR_WORDS if word in text]
            if not text.strip() or unclear:
                yield f"{place}: {type(error).__name__}: {text[:300]!r}"
            if value is NOT_A_VALUE:
                yield f"{place}: without the option: {type(error).__name__}: {text[:300]}"
        except BaseException as error:
            # torch raises a RuntimeError for the truth value of a tensor of 0 or several elements.
            if "Boolean value of Tensor" in str(error):
                continue
            at = traceback.extract_tb(error.__traceback__)[-1]
            yield (
                f"{place}: {type(error).__name__} is documented nowhere: {str(error)[:200]} "
                f"({Path(at.filename).name}:{at.lineno})"
            )
        else:
            if found == 0 and option not in may_be_empty:
                yield f"{place}: an empty result without an error"


def report_faults(name: str, work: Path, answer: Any) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    warnings.simplefilter("ignore")
    answer.send(list(faults_of(name, work)))


@pytest.mark.parametrize("name", CASES)
def test_unusual_option_values_succeed_or_raise_a_clear_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a subfolder, so that files written to the path "../x" are also below tmp_path.
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    # A crash, or the use of gigabytes, ends only the child.
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=report_faults, args=(name, tmp_path, there))
    child.start()
    there.close()
    try:
        faults = None
        with contextlib.suppress(EOFError):
            faults = here.recv()
        child.join()
    finally:
        child.kill()
        shutil.rmtree(tmp_path)
    assert child.exitcode == 0, f"the child ended with {child.exitcode}"
    assert faults == [], "\n" + "\n".join(faults)


# Values without meaning, which were once accepted silently.
MEANINGLESS: dict[str, Callable[[tenfold.Dataset], Any]] = {
    "accumulate: steps=1.5": lambda ds: tenfold.accumulate(tenfold.BatchLoader(ds, 4), 1.5),  # type: ignore[arg-type]
    "BatchLoader: pad of no column": lambda ds: tenfold.BatchLoader(ds, 4, pad={"typo": 0}),
    "BatchLoader: columns of one str": lambda ds: tenfold.BatchLoader(ds, 4, columns="x"),
    "IterableDataset: columns of one str": lambda ds: tenfold.IterableDataset(ds, columns="x"),
    "IterableDataset: schema with a data set": lambda ds: tenfold.IterableDataset(
        ds, schema=ds.schema
    ),
    "ingest: columns of one str": lambda ds: tenfold.ingest(ROWS, "new", columns="x"),
    "select: one str": lambda ds: ds.select("x"),
    "select: None": lambda ds: ds.select(None),  # type: ignore[arg-type]
    "map: a function of batches that drops rows": lambda ds: ds.map(
        lambda batch: {"x": batch["x"][1:]}, batched=True
    )[:],
    "concat: a path": lambda ds: tenfold.concat(["path"]),  # type: ignore[list-item]
    "concat: one data set": lambda ds: tenfold.concat(ds),
    "take: indices of two dimensions": lambda ds: ds.take(torch.tensor([[0, 1], [2, 3]])),
    "SparseStateMapper: a tensor of rows": lambda ds: tenfold.SparseStateMapper(
        torch.tensor([[0, 0], [0, 1]]), matrix_of_two()
    ),
    "SparseStateMapper: one str": lambda ds: tenfold.SparseStateMapper("ab", matrix_of_two()),
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_meaningless_option_values_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CLEAR):
        MEANINGLESS[name](rows(tmp_path))


# Public names without a case: exceptions, classes of returned objects, and calls without options or
# with options that another case tests. The functions and classes of the TensorDict API are also
# here, because other tests compare them with the tensordict package.
WITHOUT_CASE = {
    "__version__",
    "CorruptFileError",
    "Error",
    "UnsupportedError",
    "Change",
    "DiffReport",
    "LoadReport",
    "Mismatch",
    "Problem",
    "ScanFinding",
    "ScanReport",
    "VerifyReport",
    "PendingSnapshot",
    "SnapshotMetadata",
    "SnapshotEntry",
    "RNGState",
    "RngState",
    "Estimate",
    "Preemption",
    "RestoreResult",
    "SaveHandle",
    "StepStatus",
    "StateDict",
    "Opaque",
    "IngestReport",
    "Promotion",
    "LazyStackedTensorDict",
    "NonTensorData",
    "NonTensorStack",
    "TensorDictBase",
    "UnbatchedTensor",
    "NestedKey",
    "assert_allclose_td",
    "assert_close",
    "cat",
    "default_is_leaf",
    "dense_stack_tds",
    "from_any",
    "from_consolidated",
    "from_dict",
    "from_module",
    "from_modules",
    "from_namedtuple",
    "from_pytree",
    "from_struct_array",
    "from_tuple",
    "fromkeys",
    "is_leaf_nontensor",
    "is_non_tensor",
    "is_tensor_collection",
    "is_tensorclass",
    "lazy_stack",
    "maybe_dense_stack",
    "merge_tensordicts",
    "pad",
    "pad_sequence",
    "stack",
    "unravel_key",
    "unravel_key_list",
    "unravel_key_to_tuple",
    "MemmapTensor",
    "MemoryMappedTensor",
    "TensorClass",
    "tensorclass",
}


def test_every_public_call_has_a_case() -> None:
    public = {name for names in tenfold._EXPORTS.values() for name in names} - WITHOUT_CASE
    assert public == {name.partition(".")[0].partition(":")[0] for name in CASES}
    missing = []
    for name in public - {"TensorDict"}:
        thing = getattr(tenfold, name)
        for method, found in vars(thing).items() if inspect.isclass(thing) else ():
            function = getattr(found, "__func__", found)
            has_options = inspect.isfunction(function) and len(options_of(function)) > 1
            owner = "StateMapper" if issubclass(thing, tenfold.StateMapper) else name
            if owner == "StateMapper" and method == "restore":  # StateMapper.load calls it
                continue
            if method.startswith("_") or not has_options or f"{owner}.{method}" in CASES:
                continue
            missing.append(f"{name}.{method}")
    assert not missing, missing

"""The writers of tenfold and of other libraries, with one interface.

A writer saves version 1, 2, ... at its path; each replaces or extends the previous version. The
stored numbers depend on the version, so that a mixture of two versions is recognised.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

import tenfold

ROOT = Path(__file__).resolve().parents[2]
Tree = dict[str, torch.Tensor]
SMALL = (5, 300, 40)
MEDIUM = (5, 24_000, 6_000)
LARGE = (5, 120_000, 30_000)
Sizes = tuple[int, int, int]


def tree_of(version: int, sizes: Sizes = SMALL) -> Tree:
    """Returns three int64 tensors of numbers that depend on the version.

    The name of the third one alternates with the version.
    """
    names = ("a", "w", f"only{version % 2}")
    return {
        name: torch.arange(size) + (version << 32) for name, size in zip(names, sizes, strict=True)
    }


def version_of(tree: Any) -> int | None:
    """Returns the version of a loaded tree; None if it is not exactly the tree of one version."""
    tree = dict(tree)
    if "a" not in tree or tree["a"].numel() == 0:
        return None
    version = int(tree["a"].reshape(-1)[0]) >> 32
    sizes = tuple(tree[name].numel() if name in tree else -1 for name in ("a", "w"))
    third = tree.get(f"only{version % 2}")
    if set(tree) != {"a", "w", f"only{version % 2}"} or third is None:
        return None
    expected = tree_of(version, (*sizes, third.numel()))
    return version if all(torch.equal(tree[name], expected[name]) for name in expected) else None


@dataclass(frozen=True)
class Writer:
    """A way to save and load versions of a path: a row of the tables."""

    name: str
    file_name: str
    #: Saves a version at the path: (path, version, sizes, durable).
    save: Callable[[Path, int, Sizes, bool], None]
    #: Checks all numbers at the path and returns their version. 0: there is none yet; None: the
    #: numbers are of no version. Raises the errors of the library.
    found: Callable[[Path], int | None]
    #: For stores that stay open between commits: a context whose value writes the next version.
    session: Callable[[Path, bool], contextlib.AbstractContextManager[Any]] | None = None
    is_peer: bool = False
    #: For another library: loads the tree at the path.
    load: Callable[[Path], Any] | None = None
    #: Saves are durable when they return (tenfold: with durable=True).
    promises_durability: bool = False
    #: Replaces `found` if less is promised after a power failure than after SIGKILL.
    found_after_power_failure: Callable[[Path], int | None] | None = None
    #: The version after which the case `kills` starts again with an empty folder.
    last_version: int = 400

    def steps(self, path: Path, sizes: Sizes, durable: bool) -> Callable[[int], None]:
        """Returns a function that writes a version; call it with consecutive numbers."""
        if self.session is None:
            return lambda version: self.save(path, version, sizes, durable)
        context = self.session(path, durable)
        _open.append(context)  # never closed: the process is killed
        return context.__enter__()


_open: list[Any] = []


def _is_there(path: Path) -> bool:
    """Returns whether the name exists. Unlike os.path.lexists(), raises errors of the lookup."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _whole(path: Path, load: Callable[[Path], Any]) -> int | None:
    """Returns the version at the path, like Writer.found; raises if `verify` reports a problem."""
    if not _is_there(path) and not any(path.parent.glob(f".{path.name}.*")):
        return 0
    try:
        tree = load(path)
    except FileNotFoundError:
        return 0
    report = tenfold.verify(path)
    if not report.ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    return version_of(tree)


def _saving(name: str, file_name: str, **options: Any) -> Writer:
    def save(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
        tenfold.save(tree_of(version, sizes), path, durable=durable, num_threads=1, **options)

    return Writer(
        name,
        file_name,
        save,
        lambda path: _whole(path, lambda p: tenfold.load(p, verify=True)),
        promises_durability=True,
    )


# --- one tree, one file or folder ---


def _save_npy(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.save(tree_of(version, sizes)["w"], path, durable=durable)


def _found_npy(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not tenfold.verify(path).ok:
        raise tenfold.CorruptFileError("verify")
    found = tenfold.load(path, verify=True)
    version = int(found[0]) >> 32
    return version if torch.equal(found, torch.arange(len(found)) + (version << 32)) else None


def _save_shards(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    path.mkdir(exist_ok=True)
    tenfold.convert(
        _in_memory(version, sizes),
        path / "m.safetensors.index.json",
        shard_size=sizes[1] * 8,
        durable=durable,
    )


#: A folder of files to convert, in memory if possible; run.py sets it to a temporary one.
SOURCES = Path("/dev/shm")


def _in_memory(version: int, sizes: Sizes) -> Path:
    """Writes the version to a safetensors file in SOURCES, and returns its path."""
    path = SOURCES / f"{os.getpid()}-{version}.safetensors"
    tenfold.save(tree_of(version, sizes), path, durable=False)
    (SOURCES / f"{os.getpid()}-{version - 1}.safetensors").unlink(missing_ok=True)
    return path


def remove_sources(pid: int) -> None:
    """Removes the files in SOURCES of the process `pid`, which was killed."""
    for pattern in (f"{pid}-*", f".{pid}-*"):
        for path in SOURCES.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _found_shards(path: Path) -> int | None:
    index = path / "m.safetensors.index.json"
    return _whole(index, lambda p: tenfold.load(p, verify=True)) if _is_there(path) else 0


def _save_converted(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.convert(_in_memory(version, sizes), path, durable=durable)


def _pack(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    folder = SOURCES / f"{os.getpid()}-folder"
    tenfold.save(tree_of(version, sizes), folder, durable=False)
    tenfold.pack_memmap(folder, path)


def _save_memmap(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.TensorDict(tree_of(version, sizes), []).memmap(path, durable=durable)


def _found_memmap(path: Path) -> int | None:
    return _whole(path, lambda p: dict(tenfold.TensorDict.load_memmap(p).items()))


def _save_snapshot(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    state = {"state": tenfold.StateDict(tree_of(version, sizes))}
    tenfold.Snapshot.take(path, state, durable=durable, progress=False)


def _found_snapshot(path: Path) -> int | None:
    return _whole(path, lambda p: tenfold.load(p, verify=True)["state"])


def _rows(version: int, sizes: Sizes) -> dict[str, Any]:
    ids = torch.arange(sizes[1] // 8) + (version << 32)
    return {"id": ids, "x": ids[:, None] * torch.arange(1, 5)}


def _found_rows(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    batch = tenfold.Dataset(path)[:]
    version = int(batch["id"][0]) >> 32
    expected = torch.arange(len(batch["id"])) + (version << 32)
    right = torch.equal(batch["id"], expected)
    right = right and torch.equal(batch["x"], expected[:, None] * torch.arange(1, 5))
    return version if right else None


def _ingest(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.ingest(_rows(version, sizes), path, durable=durable, num_threads=1, progress=False)


def _build_dict(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    pairs = ((key, torch.arange(4) + (version << 32)) for key in range(sizes[1] // 8))
    tenfold.MappedDict.build(pairs, path)


def _found_dict(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    mapping = tenfold.MappedDict(path)
    values, found = mapping.get_many(torch.arange(len(mapping)))
    version = int(values[0, 0]) >> 32
    right = found.all() and torch.equal(
        values, (torch.arange(4) + (version << 32)).expand(len(mapping), 4)
    )
    return version if right else None


def _matrix(version: int, num_rows: int) -> torch.Tensor:
    """Returns a diagonal matrix, by torch because scipy crashes when memory runs out."""
    values = torch.arange(num_rows, dtype=torch.float64) + version * 2.0**32
    ends, columns = torch.arange(num_rows + 1), torch.arange(num_rows)
    size = (num_rows, num_rows)
    return torch.sparse_csr_tensor(ends, columns, values, size, check_invariants=False)


def _csr_parts(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


def _save_matrix(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.SparseMatrix.from_torch(_matrix(version, sizes[1] // 2)).save(path, durable=durable)


def _found_matrix(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    found = tenfold.SparseMatrix(path).to_torch()
    version = int(found.values()[0]) >> 32
    expected = _matrix(version, found.shape[0])
    pairs = zip(_csr_parts(found), _csr_parts(expected), strict=True)
    right = found.shape == expected.shape and all(torch.equal(a, b) for a, b in pairs)
    return version if right else None


def _save_mapper(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    levels = {f"k{i}": [float(version), float(i)] for i in range(sizes[1] // 100)}
    tenfold.HierarchicalStateMapper(levels).save(path, durable=durable)


def _found_mapper(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    levels = tenfold.StateMapper.load(path).hierarchy
    version = int(levels["k0"][0])
    numbers = [[float(number) for number in levels[f"k{i}"]] for i in range(len(levels))]
    return version if numbers == [[version, i] for i in range(len(levels))] else None


# --- stores that grow: version n is the result of n commits ---

ROWS = 40
CAPACITY = 10 * ROWS


def _some_rows(version: int, with_text: bool) -> dict[str, Any]:
    ids = torch.arange((version - 1) * ROWS, version * ROWS)
    rows = {"id": ids, "x": (ids[:, None] * 3 + torch.arange(100)).to(torch.int32)}
    if with_text:
        rows["text"] = [f"{i} " * (i % 9) for i in ids.tolist()]
    return rows


def _no_rows(with_text: bool) -> dict[str, Any]:
    return {name: values[:0] for name, values in _some_rows(1, with_text).items()}


_SCHEMA = {"id": "int64", "x": ("int32", (100,))}
_TEXT_SCHEMA = {**_SCHEMA, "text": "string"}


def _right_ids(ds: Any, with_text: bool) -> list[int] | None:
    batch = ds[:]
    ids = batch["id"]
    right = torch.equal(batch["x"], (ids[:, None] * 3 + torch.arange(100)).to(torch.int32))
    if with_text:
        right = right and batch["text"] == [f"{i} " * (i % 9) for i in ids.tolist()]
    return ids.tolist() if right else None


def _own_number(version: int) -> int:
    """Returns a number unique to the version and this process: two processes may extend a store."""
    return os.getpid() << 16 | version


def _appending(create: Callable[[Path, Any], Any], number_of: Callable[[int], int] = int):
    @contextlib.contextmanager
    def session(path: Path, durable: bool):
        if not _is_there(path):
            create(path, _TEXT_SCHEMA).close()
        with tenfold.Dataset(path, mode="r+") as ds:
            ds.append(_no_rows(True))  # locks it, unless it has parts

            def append(version: int) -> None:
                ds.append(_some_rows(number_of(version), True))
                if durable:
                    ds.flush()

            yield append

    return session


@contextlib.contextmanager
def _compacting(path: Path, durable: bool):
    """Appends each version; compacts the parts once there are two or more versions."""
    append = _step(_appending(tenfold.create_parts, _own_number))

    def commit(version: int) -> None:
        append(path, version, SMALL, durable)
        if version > 1 and tenfold.probe(path) == "parts":
            tenfold.compact(path, durable=durable, num_threads=1)

    yield commit


def _found_appended(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    ids = _right_ids(tenfold.Dataset(path), True)
    if ids is None or ids != list(range(len(ids))) or len(ids) % ROWS:
        return None
    return len(ids) // ROWS


@contextlib.contextmanager
def _committing(path: Path, durable: bool):
    if not _is_there(path):
        tenfold.create_parts(path, _TEXT_SCHEMA).close()

    def commit(version: int) -> None:
        part = f"part-{_own_number(version):012}"
        rows = _some_rows(_own_number(version), True)
        tenfold.ingest(rows, path / part, durable=durable, num_threads=1, progress=False)
        tenfold.commit_parts(path, [part], durable=durable)

    yield commit


def _found_numbers(path: Path) -> int | None:
    """Returns the number of versions in a data set whose rows are numbered by _own_number()."""
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    ids = _right_ids(tenfold.Dataset(path), True)
    if ids is None or len(ids) % ROWS:
        return None
    firsts = ids[::ROWS]
    right = ids == [first + row for first in firsts for row in range(ROWS)]
    return len(firsts) if right and len(set(firsts)) == len(firsts) else None


@contextlib.contextmanager
def _filling_ring(path: Path, durable: bool):
    if not _is_there(path):
        tenfold.create(path, _SCHEMA, capacity=CAPACITY)
    with tenfold.Dataset(path, mode="r+") as ds:
        ds.append(_no_rows(False))

        def append(version: int) -> None:
            ds.append(_some_rows(version, False))
            if durable:
                ds.flush()

        yield append


def _found_ring(path: Path, most_lost: int = ROWS) -> int | None:
    """Allows at most `most_lost` missing rows: a killed append loses rows that it overwrites."""
    if not _is_there(path):
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rows that a killed append overwrote
        if not (report := tenfold.verify(path)).ok:
            raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
        ids = _right_ids(tenfold.Dataset(path), False)
    if ids is None:
        return None
    newest = max(ids, default=-1) + 1
    oldest = max(0, newest - CAPACITY)
    # Only the oldest rows may be missing, because they are overwritten first.
    right = sorted(ids) == list(range(newest - len(ids), newest)) and newest % ROWS == 0
    return newest // ROWS if right and newest - len(ids) - oldest <= most_lost else None


def _found_ring_after_power_failure(path: Path) -> int | None:
    """Allows more missing rows than after SIGKILL: another 16th of the capacity.

    Before appends overwrite rows, they durably mark a 16th of the capacity at a time as lost.
    """
    return _found_ring(path, ROWS + CAPACITY // 16)


@contextlib.contextmanager
def _updating(path: Path, durable: bool):
    if not _is_there(path):
        tenfold.MappedDict.build({"last": 0}, path)
    with tenfold.MappedDict(path, "r+") as mapping:

        def update(version: int) -> None:
            # The keys already exist if their writer was killed before it set "last".
            if f"{version}-0" not in mapping:
                mapping.extend({f"{version}-{i}": i for i in range(20)})
            mapping.update({"last": version})
            if durable:
                mapping.flush()

        yield update


def _found_updated(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    mapping = tenfold.MappedDict(path)
    # The reads below may see a newer version, because another process may write.
    last = int(mapping["last"])
    names = [f"{v}-{i}" for v in range(1, last + 1) for i in range(20)]
    values, found = mapping.get_many(names)
    right = bool(found.all()) and values.tolist() == [i for _ in range(last) for i in range(20)]
    # An update adds the 20 keys of a version in one step, before it sets "last".
    whole = (len(mapping) - 1) % 20 == 0 and len(mapping) > 20 * last
    return last if right and whole else None


@contextlib.contextmanager
def _adding_matrix_rows(path: Path, durable: bool):
    if not _is_there(path):
        tenfold.SparseMatrix.build([{0: 0.0}], path, num_cols=100)
    with tenfold.SparseMatrix(path, mode="r+") as matrix:
        matrix.append_rows([])

        def append(version: int) -> None:
            first = (version - 1) * ROWS + 1
            matrix.append_rows([{r % 100: float(r)} for r in range(first, first + ROWS)])
            if durable:
                matrix.flush()

        yield append


def _found_matrix_rows(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    if not (report := tenfold.verify(path)).ok:
        raise tenfold.CorruptFileError(f"verify: {report.problems[0]}")
    found = tenfold.SparseMatrix(path).to_torch()
    rows = found.shape[0] - 1
    ends, columns, values = _csr_parts(found)
    right = (
        rows % ROWS == 0
        and torch.equal(ends, torch.arange(rows + 2))
        and torch.equal(columns, (torch.arange(rows + 1) % 100).to(columns.dtype))
        and torch.equal(values, torch.arange(rows + 1).to(values.dtype))
    )
    return rows // ROWS if right else None


def _managing(
    async_save: Any = False, share_unchanged: bool = False
) -> Callable[[Path, bool], contextlib.AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def session(path: Path, durable: bool):
        manager = tenfold.CheckpointManager(
            path,
            max_to_keep=2,
            durable=durable,
            async_save=async_save,
            share_unchanged=share_unchanged,
        )
        if manager.latest_step() is not None:
            manager.restore()

        def save(version: int) -> None:
            state: dict[str, Any] = dict(tree_of(version, LARGE))
            if async_save == "overlap":  # copies the parameters of a module in the background
                state = {"model": _module_of(state)}
            if share_unchanged:
                state["same"] = _UNCHANGED
            handle = manager.save(version, state, force=True)
            if async_save:
                handle.result()

        with manager:
            yield save

    return session


_UNCHANGED = torch.arange(MEDIUM[1])


def _module_of(tree: Tree) -> torch.nn.Module:
    return torch.nn.ParameterDict(
        {name: torch.nn.Parameter(value, requires_grad=False) for name, value in tree.items()}
    )


def _found_step(path: Path) -> int | None:
    if not _is_there(path):
        return 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        manager = tenfold.CheckpointManager(path)
        latest = manager.latest_step()
    if latest is None:
        if caught:  # a step that cannot be read
            raise tenfold.CorruptFileError(str(caught[0].message))
        return 0
    for step in manager.all_steps():
        try:
            report = manager.verify(step)
        except KeyError:  # removed since it was listed
            continue
        if not report.ok:
            raise tenfold.CorruptFileError(f"step {step}")
    restored = manager.restore()
    if restored.skipped:
        raise tenfold.CorruptFileError(f"skipped {restored.skipped}")
    tree = dict(restored.state)
    if not torch.equal(tree.pop("same", _UNCHANGED), _UNCHANGED):
        return None
    return restored.step if version_of(tree.get("model", tree)) == restored.step else None


def _step(session: Any) -> Callable[[Path, int, Sizes, bool], None]:
    """Returns a function that commits one version in a new session."""

    def save(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
        with session(path, durable) as commit:
            commit(version)

    return save


def _store(name: str, session: Any, found: Any, **more: Any) -> Writer:
    return Writer(name, "data", _step(session), found, session, promises_durability=True, **more)


def _consolidate(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
    tenfold.save(tree_of(version, sizes), path, format="consolidated", durable=durable)


def _replacing(name: str, file_name: str, save: Any, found: Any, **more: Any) -> Writer:
    return Writer(name, file_name, save, found, promises_durability=True, **more)


def tenfold_writers() -> list[Writer]:
    """Returns the writers of tenfold."""
    return [
        _saving("save, folder", "data"),
        _saving("save, .safetensors", "m.safetensors"),
        _saving("save, .pt", "m.pt"),
        _saving("save, .tdz", "m.tdz"),
        _saving("save, .npz", "m.npz"),
        _replacing("save, .npy", "m.npy", _save_npy, _found_npy),
        _replacing("save, consolidated", "m.bin", _consolidate, _saving("", "").found),
        _replacing("convert to shards", "data", _save_shards, _found_shards),
        _replacing("convert to a folder", "data", _save_converted, _saving("", "").found),
        _replacing("pack_memmap", "m.tdz", _pack, _saving("", "").found),
        _replacing("TensorDict.memmap", "data", _save_memmap, _found_memmap),
        _replacing("Snapshot.take", "data", _save_snapshot, _found_snapshot),
        _replacing("ingest", "data", _ingest, _found_rows),
        _replacing("MappedDict.build", "data", _build_dict, _found_dict),
        _replacing("SparseMatrix.save", "data", _save_matrix, _found_matrix),
        _replacing("StateMapper.save", "data", _save_mapper, _found_mapper),
        _store("Dataset.append", _appending(tenfold.create), _found_appended),
        _store(
            "Dataset.append, parts", _appending(tenfold.create_parts, _own_number), _found_numbers
        ),
        _store("commit_parts", _committing, _found_numbers),
        _store("compact", _compacting, _found_numbers, last_version=2),
        _store(
            "Dataset.append, ring",
            _filling_ring,
            _found_ring,
            found_after_power_failure=_found_ring_after_power_failure,
        ),
        _store("MappedDict.update", _updating, _found_updated),
        _store("SparseMatrix.append_rows", _adding_matrix_rows, _found_matrix_rows),
        _store("CheckpointManager", _managing(), _found_step),
        _store("CheckpointManager, async", _managing(True), _found_step),
        _store("CheckpointManager, overlap", _managing("overlap"), _found_step),
        _store("CheckpointManager, shared", _managing(share_unchanged=True), _found_step),
    ]


# --- other libraries: called as in their documentation, over their previous version ---


def _peer(name: str, file_name: str, save: Any, load: Callable[[Path], Any]) -> Writer:
    def found(path: Path) -> int | None:
        return version_of(load(path)) if _is_there(path) else 0

    def quiet(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(path, tree_of(version, sizes))

    return Writer(name, file_name, quiet, found, is_peer=True, load=load)


def _torch_replace(path: Path, tree: Tree) -> None:
    temporary = path.with_name(path.name + ".tmp")
    torch.save(tree, temporary)
    os.replace(temporary, path)


def _other_packages(name: str) -> bool:
    packages = (ROOT / ".venvs" / name).glob("lib/python*/site-packages")
    paths = [str(path) for path in packages]
    sys.path.extend(path for path in paths if path not in sys.path)
    return bool(paths)


def _numpy_save(path: Path, tree: Tree) -> None:
    numpy.savez(path, **{name: tensor.numpy() for name, tensor in tree.items()})


def _numpy_load(path: Path) -> Tree:
    with numpy.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def import_everything() -> None:
    """Imports tenfold and the other libraries, so that forked children import nothing."""
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(tenfold.__path__, "tenfold."):
        if "__main__" in module.name:
            continue
        with contextlib.suppress(ImportError):  # an adapter whose library is not installed
            importlib.import_module(module.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _matrix(1, 2)  # torch warns about its sparse tensors once per process
    importlib.import_module("torch.distributed.checkpoint")
    peers()


def peers() -> list[Writer]:
    """Returns a writer for each other library that can be imported here."""
    logging.getLogger("torchsnapshot").setLevel(logging.ERROR)
    writers = [
        _peer("torch.save", "m.pt", lambda p, t: torch.save(t, p), torch.load),
        _peer("torch.save, os.replace", "m.pt", _torch_replace, torch.load),
        _peer("numpy.savez", "m.npz", _numpy_save, _numpy_load),
    ]
    with contextlib.suppress(ImportError):
        from safetensors.torch import load_file, save_file

        one = _peer("safetensors", "m.safetensors", lambda p, t: save_file(t, p), load_file)
        writers.append(one)
    with contextlib.suppress(ImportError):
        import tensordict

        writers.append(
            _peer(
                "tensordict memmap",
                "data",
                lambda p, t: tensordict.TensorDict(t, []).memmap(p),
                lambda p: dict(tensordict.TensorDict.load_memmap(p).items()),
            )
        )
    writers.append(_peer("torch DCP", "data", _dcp_save, _dcp_load))
    with contextlib.suppress(ImportError):
        _other_packages("torchsnapshot")
        import torchsnapshot

        def take(path: Path, tree: Tree) -> None:
            torchsnapshot.Snapshot.take(str(path), {"s": torchsnapshot.StateDict(**tree)})

        def restore(path: Path) -> Tree:
            snapshot = torchsnapshot.Snapshot(str(path))
            names = [name for name in snapshot.get_manifest() if name.startswith("0/s/")]
            return {name[4:]: snapshot.read_object(name) for name in names}

        writers.append(_peer("torchsnapshot", "data", take, restore))
    with contextlib.suppress(ImportError):
        _other_packages("torch_checkpointing")
        import torch_checkpointing  # noqa: F401

        writers.append(_torch_checkpointing())
    return writers


def _dcp_save(path: Path, tree: Tree) -> None:
    from torch.distributed import checkpoint

    checkpoint.save(tree, checkpoint_id=path, no_dist=True)


def _dcp_load(path: Path) -> Tree:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import FileSystemReader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = FileSystemReader(path).read_metadata().state_dict_metadata
        tree = {
            name: torch.zeros(about.size, dtype=about.properties.dtype)
            for name, about in described.items()
        }
        checkpoint.load(tree, checkpoint_id=path, no_dist=True)
    return tree


def _torch_checkpointing() -> Writer:
    """Saves each version to a new folder, because the library replaces none; keeps the last two."""
    from torch_checkpointing import CheckpointManager
    from torch_checkpointing.config import SyncCheckpointSaverConfig
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

    def configured() -> CheckpointManager.Config:
        # Version 0.1.1 cannot save small files on ext4 with its default, direct I/O (EINVAL).
        return CheckpointManager.Config(
            save=SyncCheckpointSaverConfig(),
            storage_config=LocalFileSystemStorageConfig(use_direct_io=False),
        )

    def save(path: Path, version: int, sizes: Sizes, durable: bool) -> None:
        path.mkdir(exist_ok=True)
        manager = configured().build()
        manager.save(str(path / f"{version:08d}"), {"state": tree_of(version, sizes)})
        manager.close()
        for name in sorted(os.listdir(path)):
            if name.isdigit() and int(name) < version - 1:
                shutil.rmtree(path / name)

    def load(path: Path) -> Tree:
        newest = max(name for name in os.listdir(path) if name.isdigit())
        loaded = configured().build().load(str(path / newest), into={"state": None})
        return loaded["state"]

    def found(path: Path) -> int | None:
        steps = [name for name in os.listdir(path) if name.isdigit()] if _is_there(path) else []
        return version_of(load(path)) if steps else 0

    return Writer("torch_checkpointing", "data", save, found, is_peer=True, load=load)

"""Damaged files of many formats: one flipped bit in each byte, and each shorter length.

In formats with checksums, `verify` and `load` with `verify=True` must report the damage, unless all
loaded numbers are right, for example because the damage is in padding. Wrong numbers without an
error are only counted in three cases: in samples without checksums, in loads without `verify`, and
in loads by other libraries.
"""

from __future__ import annotations

import bisect
import hashlib
import mmap
import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from case import Options, Row, rows_of
from children import in_child
from writers import Writer, peers, tree_of

import tenfold

TINY = (5, 60, 20)
#: Sizes with which most samples have 10 MiB or more; see Sample.large.
LARGE = (5, 1_000_000, 350_000)


def digest(value: Any) -> Any:
    """Returns a digest. Values with equal types, keys, shapes and bytes have equal digests."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"a tensor of layout {value.layout}")
        data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return (str(value.dtype), tuple(value.shape), hashlib.sha256(data).hexdigest())
    if isinstance(value, dict) or hasattr(value, "items"):
        kind = type(value).__name__
        return (kind, tuple((repr(key), digest(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(digest(item) for item in value))
    return (type(value).__name__, repr(value))


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Returns the digests of the leaves by dotted name, whatever the types of the containers."""
    if isinstance(value, dict) or hasattr(value, "items"):
        pairs = ((str(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        pairs = ((str(i), item) for i, item in enumerate(value))
    else:
        return {name: digest(value)}
    leaves: dict[str, Any] = {}
    for key, item in pairs:
        leaves.update(flat(item, f"{name}.{key}".removeprefix(".")))
    return leaves


@dataclass(frozen=True)
class Sample:
    """A small file or folder of a format."""

    name: str
    make: Callable[[Path, tuple[int, int, int]], Any]  # saves it; the result is ignored
    load: Callable[[Path], Any]
    load_sure: Callable[[Path], Any] | None = None  # with verify=True; None for a compared library
    is_whole: Callable[[Path], bool] | None = None  # whether verify reports no problem
    has_checksums: bool = True
    file_name: str = "data"
    large: tuple[int, int, int] = LARGE  # sizes with which it has 10 MiB or more

    @property
    def is_peer(self) -> bool:
        return self.is_whole is None


def _verified(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def load(path: Path) -> Any:
        report = tenfold.verify(path)
        if not report.ok:
            raise tenfold.CorruptFileError(str(report.problems[0]))
        return read(path)

    return load


def _ok(path: Path) -> bool:
    return tenfold.verify(path).ok


def _state(sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Returns a tree of tensors of several dtypes, some of them in a nested dict."""
    tree: dict[str, Any] = dict(tree_of(1, sizes))
    tree["nested"] = {"half": torch.linspace(-1, 1, 7).half(), "mask": torch.tensor([True, False])}
    return tree


def _saved(name: str, file_name: str, *, flat: bool = False, **options: Any) -> Sample:
    def make(path: Path, sizes: tuple[int, int, int]) -> None:
        tree = dict(tree_of(1, sizes)) if flat else {**_state(sizes), "step": 7, "name": "maze"}
        tenfold.save(tree, path, durable=False, **options)

    return Sample(
        name,
        make,
        tenfold.load,
        lambda path: tenfold.load(path, verify=True),
        _ok,
        file_name=file_name,
    )


def _make_shards(path: Path, sizes: tuple[int, int, int]) -> None:
    source = path.with_name("source.safetensors")
    tenfold.save(_state(sizes), source, durable=False)
    path.mkdir()
    index = path / "m.safetensors.index.json"
    tenfold.convert(source, index, shard_size=sizes[1] * 8, durable=False)
    source.unlink()


def _make_dataset(path: Path, sizes: tuple[int, int, int]) -> None:
    rows = [{"id": i, "x": [i / 2, i / 3], "text": f"row {i}"} for i in range(sizes[1] // 3)]
    rows[1]["id"] = None
    tenfold.ingest(rows, path, durable=False, progress=False)


def _make_appended(path: Path, sizes: tuple[int, int, int]) -> None:
    rows = sizes[1] // 6
    with tenfold.create(path, {"id": "int64", "x": ("float32", (2,))}) as ds:
        for begin in (0, rows):
            ids = torch.arange(begin, begin + rows)
            ds.append({"id": ids, "x": ids[:, None] * torch.tensor([1.0, 0.5])})


def _make_dict(path: Path, sizes: tuple[int, int, int]) -> None:
    pairs = ((f"key {i}", torch.arange(3) + i) for i in range(sizes[1] // 4))
    tenfold.MappedDict.build(pairs, path)


def _make_matrix(path: Path, sizes: tuple[int, int, int]) -> None:
    rows = [{i % 5: float(i), 7: 0.5} for i in range(sizes[1] // 3)]
    tenfold.SparseMatrix.build(rows, path, num_cols=8)


def _make_mapper(path: Path, sizes: tuple[int, int, int]) -> None:
    levels = {f"k{i}": {"a": [float(i), 1.0]} for i in range(sizes[1] // 6)}
    tenfold.HierarchicalStateMapper(levels).save(path, durable=False)


def _matrix_of(path: Path) -> Any:
    found = tenfold.SparseMatrix(path).to_scipy().tocoo()
    return [found.shape, found.row.tolist(), found.col.tolist(), found.data.tolist()]


def _levels_of(path: Path) -> Any:
    found = tenfold.StateMapper.load(path)
    return [(f"k{i}/a", found(f"k{i}/a")) for i in range(len(found.hierarchy))]


def _make_run(path: Path, sizes: tuple[int, int, int]) -> None:
    manager = tenfold.CheckpointManager(path, durable=False)
    manager.save(3, {**_state(sizes), "lr": 0.5}, metrics={"loss": 0.25})
    manager.close()


def _restored(verify: Any) -> Callable[[Path], Any]:
    def load(path: Path) -> Any:
        result = tenfold.CheckpointManager(path).restore(verify=verify)
        return [result.step, dict(result.state)]

    return load


def _run_is_whole(path: Path) -> bool:
    manager = tenfold.CheckpointManager(path)
    return manager.latest_step() == 3 and manager.verify(3).ok


def _make_parts(path: Path, sizes: tuple[int, int, int]) -> None:
    count = sizes[1] // 6
    for begin in (0, count):
        rows = [{"id": i, "text": f"row {i}"} for i in range(begin, begin + count)]
        tenfold.ingest(rows, path / f"part-{begin}", durable=False, progress=False)
    tenfold.commit_parts(path)


def _make_ring(path: Path, sizes: tuple[int, int, int]) -> None:
    capacity = sizes[1] // 3
    with tenfold.create(path, {"id": "int64"}, capacity=capacity) as ds:
        ds.append({"id": torch.arange(capacity + 3)})


def _distributed(layout: str) -> Sample:
    from tenfold import distributed

    def make(path: Path, sizes: tuple[int, int, int]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: there is no process group
            distributed.save({**_state(sizes), "step": 7}, path, layout=layout, durable=False)

    def load_sure(path: Path) -> Any:
        return tenfold.load(path, verify=True)

    return Sample(f"DCP, layout {layout}", make, tenfold.load, load_sure, _ok)


def _make_memmap(path: Path, sizes: tuple[int, int, int]) -> None:
    tenfold.TensorDict(_state(sizes), []).memmap(path)


def samples() -> list[Sample]:
    """Returns samples of the formats that tenfold writes, and of other libraries."""

    def rows(path: Path) -> Any:
        return dict(tenfold.Dataset(path)[:])

    def pairs(path: Path) -> Any:
        return dict(tenfold.MappedDict(path).items())

    return [
        _saved("folder", "data"),
        _saved(".safetensors", "m.safetensors"),
        Sample(
            "shards",
            _make_shards,
            lambda path: tenfold.load(path / "m.safetensors.index.json"),
            lambda path: tenfold.load(path / "m.safetensors.index.json", verify=True),
            lambda path: _ok(path / "m.safetensors.index.json"),
        ),
        _saved(".pt", "m.pt"),
        _saved(".tdz", "m.tdz"),
        _saved(".npz", "m.npz", flat=True),
        _saved("consolidated", "m.bin", format="consolidated"),
        _saved("snapshot", "data", format="snapshot"),
        Sample("data set", _make_dataset, rows, _verified(rows), _ok),
        Sample(
            "data set, appended",
            _make_appended,
            rows,
            _verified(rows),
            _ok,
            large=(5, 2_200_000, 0),
        ),
        Sample("data set of parts", _make_parts, rows, _verified(rows), _ok),
        Sample("circular buffer (no checksum)", _make_ring, rows, _verified(rows), _ok, False),
        Sample("MappedDict", _make_dict, pairs, _verified(pairs), _ok),
        Sample(
            "SparseMatrix",
            _make_matrix,
            _matrix_of,
            _verified(_matrix_of),
            _ok,
            large=(5, 1_200_000, 0),
        ),
        _distributed("torch"),
        _distributed("shards"),
        Sample("StateMapper", _make_mapper, _levels_of, _verified(_levels_of), _ok),
        Sample("CheckpointManager", _make_run, _restored(False), _restored(True), _run_is_whole),
        Sample(
            ".npy (no checksum)",
            lambda path, sizes: tenfold.save(torch.arange(sizes[1]), path, durable=False),
            tenfold.load,
            lambda path: tenfold.load(path, verify=True),
            _ok,
            False,
            "m.npy",
        ),
        Sample(
            "TensorDict.memmap (no checksum)",
            _make_memmap,
            tenfold.load,
            lambda path: tenfold.load(path, verify=True),
            _ok,
            False,
        ),
        *(_of_peer(writer) for writer in peers() if writer.name != "torch.save, os.replace"),
    ]


def _of_peer(writer: Writer) -> Sample:
    return Sample(
        writer.name,
        lambda path, sizes: writer.save(path, 1, sizes, False),
        writer.load,
        file_name=writer.file_name,
    )


# --- damage ---

_REPORTED, _RIGHT, _OTHER, _MISSED = 1, 2, 3, 4
# A result is 8 * (result of load) + (result of verify); 255: the reader crashed or hung; 0: not
# tried.
COLUMNS = (
    "damages",
    "reported by verify",
    "not reported, right",
    "not reported, right in other containers",
    "missed by verify",
    "plain load: error",
    "plain load: right",
    "plain load: wrong",
    "crashed or hung",
)


def run_flips(options: Options) -> list[Row]:
    """Flips a bit in every byte of small files of the tested formats."""
    return _run(options, _flips, TINY)


def run_cuts(options: Options) -> list[Row]:
    """Truncates small files of the tested formats to every shorter length."""
    return _run(options, _cuts, TINY)


def run_many_flips(options: Options) -> list[Row]:
    """Flips random bits of large files with checksums; verify must report all wrong numbers."""
    chosen = [s for s in samples() if s.has_checksums and not s.is_peer and options.wants(s.name)]
    return rows_of(chosen, options, _flip_many)


@dataclass(frozen=True)
class Damage:
    """A change of one file."""

    file: str
    offset: int
    bit: int = -1  # -1: the file ends at the offset

    def do(self, folder: Path) -> Callable[[], None]:
        """Damages the file; returns a function that undoes it."""
        path = folder / self.file
        fd = os.open(path, os.O_RDWR)
        try:
            if self.bit >= 0:
                before = os.pread(fd, 1, self.offset)
                os.pwrite(fd, bytes([before[0] ^ (1 << self.bit)]), self.offset)
            else:
                before = os.pread(fd, 1 << 30, self.offset)
                os.ftruncate(fd, self.offset)
        finally:
            os.close(fd)

        def undo() -> None:
            fd = os.open(path, os.O_RDWR)
            os.pwrite(fd, before, self.offset)
            os.close(fd)

        return undo


def _files_in(folder: Path) -> list[tuple[str, int]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [(str(path.relative_to(folder)), path.stat().st_size) for path in paths]


def _flips(folder: Path, random: Any) -> list[Damage]:
    return [
        Damage(name, offset, random.randrange(8))
        for name, size in _files_in(folder)
        for offset in range(size)
    ]


def _cuts(folder: Path, random: Any) -> list[Damage]:
    return [Damage(name, size) for name, total in _files_in(folder) for size in range(total)]


def _run(options: Options, damages_of: Any, sizes: Any) -> list[Row]:
    chosen = [sample for sample in samples() if options.wants(sample.name)]
    if not options.with_peers:
        chosen = [sample for sample in chosen if not sample.is_peer]

    def one(sample: Sample, end: float, options: Options) -> Row:
        return _damage(sample, damages_of, sizes, end, options)

    return rows_of(chosen, options, one)


def _damage(sample: Sample, damages_of: Any, sizes: Any, end: float, options: Options) -> Row:
    row = Row(sample.name, sample.is_peer, dict.fromkeys(COLUMNS, 0))
    random = options.random(sample.name)
    with options.folder() as work:
        folder = work / "kept"
        folder.mkdir()
        path = folder / sample.file_name
        made = in_child(lambda: _made(sample, path, sizes))
        if not made.returned:
            row.problem(f"cannot be tested: {made.value}")
            row.counts["failed"] = str(made.value)[:60]
            return row
        # A copy to restore after a crash of the reader: a new sample may have other file sizes.
        original = work / "original"
        shutil.copytree(folder, original, symlinks=True)
        damages = damages_of(folder, random)
        row.counts["bytes"] = sum(size for _, size in _files_in(folder))
        limit = options.count or (40 if options.short else len(damages))
        random.shuffle(damages)
        damages = damages[:limit]
        results = mmap.mmap(-1, len(damages) + 1)
        begin = 0
        while begin < len(damages) and (time.monotonic() < end or begin == 0):
            begin, ended = _in_one_child(
                sample, path, folder, damages, results, begin, made.value, end
            )
            if not ended:  # it crashed or hung during this damage
                results[begin] = 255
                begin += 1
                shutil.rmtree(folder)
                shutil.copytree(original, folder, symlinks=True)
        for damage, result in zip(damages, results[: len(damages)], strict=True):
            _add(row, sample, damage, result)
        left = len(damages) - int(row.counts["damages"])
        if left:
            row.counts["left out"] = left
    return row


def _made(sample: Sample, path: Path, sizes: Any) -> tuple[Any, dict[str, Any]]:
    sample.make(path, sizes)
    loaded = sample.load(path)
    return digest(loaded), flat(loaded)


def _in_one_child(
    sample: Sample,
    path: Path,
    folder: Path,
    damages: list[Damage],
    results: mmap.mmap,
    begin: int,
    expected: Any,
    end: float,
) -> tuple[int, bool]:
    """Tries the damages from index `begin` on in one child.

    Returns the index of the first damage without a result, and whether the child ended normally,
    which means that it tried all damages or that the time was over.
    """
    pid = os.fork()
    if pid == 0:
        try:
            with open(os.devnull, "w") as null:
                os.dup2(null.fileno(), 2)
            warnings.simplefilter("ignore")
            for number in range(begin, len(damages)):
                signal.alarm(300)  # ends a hanging child
                undo = damages[number].do(folder)
                try:
                    results[number] = _look(sample, path, expected)
                finally:
                    undo()
                if time.monotonic() > end:
                    break
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    reached = begin
    while reached < len(damages) and results[reached]:
        reached += 1
    return reached, status == 0


def _look(sample: Sample, path: Path, expected: Any) -> int:
    def same(load: Callable[[Path], Any]) -> int:
        try:
            found = load(path)
            if digest(found) == expected[0]:
                return _RIGHT
            return _OTHER if flat(found) == expected[1] else _MISSED
        except BaseException:  # torch's CheckpointException is not an Exception
            return _REPORTED

    plain = same(sample.load)
    if sample.is_whole is None or sample.load_sure is None:
        return 8 * plain
    sure = same(sample.load_sure)
    try:
        whole = sample.is_whole(path)
    except Exception:
        whole = False
    if not whole:
        verified = _MISSED if sure == _MISSED else _REPORTED
    else:
        # If verify reports no problem, both loads must be right, and load_sure must succeed.
        bad = _MISSED in (sure, plain) or sure == _REPORTED
        verified = _MISSED if bad else max(sure, plain)
    return 8 * plain + verified


def _add(row: Row, sample: Sample, damage: Damage, result: int) -> None:
    if result == 0:
        return
    row.count("damages")
    what = f"{damage.file}: " + (
        f"bit {damage.bit} of byte {damage.offset}"
        if damage.bit >= 0
        else f"cut to {damage.offset}"
    )
    if result == 255:
        row.count("crashed or hung")
        row.problem(f"{what}: the reader died or hung")
        return
    plain, verified = divmod(result, 8)
    loads = {_REPORTED: "error", _RIGHT: "right", _OTHER: "right", _MISSED: "wrong"}
    row.count(f"plain load: {loads[plain]}")
    if sample.is_peer:
        return
    row.count(COLUMNS[verified])
    if verified == _MISSED and sample.has_checksums:
        row.problem(f"{what}: not reported by verify, or loaded wrong with verify=True")


# --- many flips in large files: _BATCH flips per process; loads only if verify misses a flip ---

COLUMNS_OF_MANY = (
    "damages",
    "reported by verify",
    "not reported, right",
    "missed by verify",
    "crashed or hung",
)
_BATCH = 500


class Bits:
    """Shared mappings of all files of a folder, in which bits are flipped."""

    def __init__(self, folder: Path) -> None:
        self._maps: list[mmap.mmap] = []
        self._ends: list[int] = []
        self._names: list[str] = []
        self.size = 0
        for name, size in _files_in(folder):
            if not size:
                continue
            with open(folder / name, "r+b") as file:
                self._maps.append(mmap.mmap(file.fileno(), size))
            self.size += size
            self._ends.append(self.size)
            self._names.append(name)

    def _place(self, offset: int) -> tuple[int, int]:
        which = bisect.bisect_right(self._ends, offset)
        return which, offset - (self._ends[which - 1] if which else 0)

    def flip(self, offset: int, bit: int) -> None:
        which, at = self._place(offset)
        self._maps[which][at] ^= 1 << bit

    def describe(self, offset: int, bit: int) -> str:
        which, at = self._place(offset)
        return f"{self._names[which]}: bit {bit} of byte {at}"


def _flip_many(sample: Sample, end: float, options: Options) -> Row:
    row = Row(sample.name, counts=dict.fromkeys(COLUMNS_OF_MANY, 0))
    random = options.random(sample.name)
    wanted = options.count or (40 if options.short else 7_500)
    with options.folder() as work:
        path = work / sample.file_name
        made = in_child(lambda: sample.make(path, sample.large))
        if not made.returned:
            row.problem(f"cannot be tested: {made.value}")
            row.counts["failed"] = str(made.value)[:60]
            return row
        size = sum(size for _, size in _files_in(work))
        row.counts["bytes"] = size
        flips = [(random.randrange(size), random.randrange(8)) for _ in range(wanted)]
        while flips and (time.monotonic() < end or not row.counts["damages"]):
            batch = flips[:_BATCH]
            # The timeout suffices to load and compare the files after every flip of the batch.
            outcome = in_child(lambda batch=batch: _flip_each(sample, path, work, batch, end), 3600)
            if not outcome.returned:
                row.count("crashed or hung")
                row.problem(f"a reader: {outcome.kind} {outcome.value} {outcome.last_words}")
                break
            results, problems = outcome.value
            for column in results:
                row.count("damages")
                row.count(column)
            for problem in problems:
                row.problem(problem)
            del flips[: len(results)]
        if flips:
            row.counts["left out"] = len(flips)
    return row


def _flip_each(
    sample: Sample, path: Path, folder: Path, flips: list[tuple[int, int]], end: float
) -> tuple[list[str], list[str]]:
    """Tries the flips until time `end`. Returns the column of each, and messages about misses."""
    warnings.simplefilter("ignore")
    assert sample.load_sure is not None
    bits = Bits(folder)
    whole = None  # digest of the undamaged content, computed when needed
    columns: list[str] = []
    problems = []
    for offset, bit in flips:
        bits.flip(offset, bit)
        try:
            column = "reported by verify"
            if _says_whole(sample, path):
                if whole is None:
                    bits.flip(offset, bit)
                    try:
                        whole = digest(sample.load(path))
                    finally:
                        bits.flip(offset, bit)
                column = "not reported, right"
                if digest(sample.load_sure(path)) != whole:
                    column = "missed by verify"
        except BaseException as error:  # verify reports no problem, but the load fails
            column = "missed by verify"
            problems.append(f"{type(error).__name__}: {error}")
        finally:
            bits.flip(offset, bit)
        if column == "missed by verify":
            problems.append(f"{bits.describe(offset, bit)}: {column}")
        columns.append(column)
        if time.monotonic() > end:
            break
    if not _says_whole(sample, path):
        problems.append("after every flip was undone, verify still reports a problem")
    return columns, problems


def _says_whole(sample: Sample, path: Path) -> bool:
    try:
        return bool(sample.is_whole and sample.is_whole(path))
    except Exception:
        return False

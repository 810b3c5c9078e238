"""Rows of a data set, or of text files, as a stream."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import weakref
from itertools import count, islice
from multiprocessing.context import get_spawning_popen
from typing import NamedTuple

from tenfold import _core
from tenfold._errors import KeyNotFoundError, UnsupportedError
from tenfold._interop.arrays import import_torch, need_torch
from tenfold._interop.frameworks import decided, using
from tenfold._options import UINT64_MAX, boolean, column_names, function, integer
from tenfold._public import set_module
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ingest.options import is_path
from tenfold.dataset._ingest.text import (
    TEXT_FORMATS,
    TextStream,
    checked_format,
    checked_separator,
    piece_order,
    text_files,
)
from tenfold.dataset._permutation import permutation
from tenfold.dataset._ragged import jagged
from tenfold.dataset._schema import Schema, as_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tenfold._interop.frameworks import Framework
    from tenfold.dataset._ingest.text import OnError


# A DataLoader recognises a stream only by its base class, torch's IterableDataset. So a numpy
# program that uses this module imports torch, if it is installed.
if TYPE_CHECKING:
    from torch.utils.data import IterableDataset as _TorchDataset

    _Base = _TorchDataset[Any]
elif (_torch := import_torch()) is not None:
    _Base = _torch.utils.data.IterableDataset
else:
    _Base = object

# Number of rows of a data set that are gathered at a time.
_CHUNK_ROWS = 256
# Number of rows in the shuffle buffer for text files, with `shuffle` but no `shuffle_buffer`.
_DEFAULT_BUFFER = 1024
# The last epoch, as in the engine; epoch 0 follows it.
_LAST_EPOCH = 2**62


@set_module("tenfold")
class IterableDataset(_Base):
    """The rows of a data set or of text files as a stream, for torch's ``DataLoader``.

    Seed and epoch determine the order of all rows. Each row is returned by one rank, and by one
    worker of its ``DataLoader``.

    >>> rows = tenfold.IterableDataset("flights", shuffle=True, seed=7)
    >>> for batch in DataLoader(rows, batch_size=256, num_workers=4):
    ...     train(batch["price"])
    >>> rows = tenfold.IterableDataset("logs/*.jsonl.gz", shuffle_buffer=10_000)

    **Epochs.** Iterating to the end in this process increments the epoch. Workers cannot do that,
    so call ``set_epoch(e)`` before each pass through a ``DataLoader`` with workers; otherwise the
    next pass has the same order.

    **Resuming.** `state_dict` records the returned rows. After `load_state_dict` the next iteration
    returns the remaining rows, each once, on any number of ranks and workers; with the same number,
    in the order of an uninterrupted iteration. (If workers skipped bad rows, it also returns some
    rows again: see `state_dict`.) With workers, `state_dict` counts the batches that the
    ``DataLoader`` returned, so it needs the loader's iterator: call it inside the loop, not after a
    ``break``. After the last batch, call ``set_epoch`` with the next epoch before `state_dict`.
    All ranks must have made the same number of steps.

    Args:
        source: A `Dataset`, or the source of one: a path, a TensorDict, or a dict of tensors. Or
            text files as for `ingest`: ``.jsonl``, ``.json``, ``.csv`` or ``.tsv``, also as
            ``.gz``, ``.zst``, ``.bz2``, ``.xz`` or in a ``.zip``, globs, or a list of them.
        columns: Names of the columns to return; None: all columns.
        shuffle: A data set is read in the shuffled order of a `BatchLoader` with the same seed and
            without `shuffle_block`. For text files, the order of the files is shuffled, and their
            rows pass through a shuffle buffer: 1,024 rows unless `shuffle_buffer` is given.
        shuffle_buffer: Number of rows that are read, shuffled and returned at a time. A data set
            with `shuffle` ignores it.
        seed: Seed of the shuffle.
        rank: Rank of this process. None: the rank in ``torch.distributed`` when the iteration
            begins, or 0 if ``torch.distributed`` is not initialised. A pickle keeps the rank for
            processes without ``torch.distributed``.
        world_size: Number of ranks. None: the world size of ``torch.distributed``, or 1 if it is
            not initialised. Pass both `rank` and `world_size`, or neither.
        schema: Schema of text files, as for `ingest`; None: inferred from all of them, which reads
            them once in the constructor.
        format: Format of text files: ``"jsonl"``, ``"ndjson"``, ``"json"``, ``"csv"`` or ``"tsv"``.
            None: by their names.
        separator: Character between the fields of CSV files, as for `ingest`.
        transform: Called with each row; its result is returned.
        on_error: Handling of bad rows: text that is not a record, or does not fit the schema.
            ``"raise"``: raise an error. ``"skip"``: omit bad rows, with one warning at the end.
            ``"collect"``: omit bad rows, and list them in `bad_rows`.
        framework: ``"torch"`` or ``"numpy"``: the type of tensors in rows. None: the framework of
            `source` if it is a `Dataset`, otherwise as for `tenfold.load`. Determined once; workers
            and pickles keep it.

    Raises:
        FileNotFoundError: For a missing file, or a glob without a match.
        KeyError: For a missing column.
        TypeError: If `columns`, `shuffle`, `format`, `separator`, `transform` or a number has
            another type.
        ValueError: For any other invalid argument, and a schema for a data set, which has its own.
            While iterating, for a record that does not fit the schema.
        UnsupportedError: If `source` is a list that contains files other than text files, or a list
            of rows.
        CorruptFileError: For a damaged file. While iterating, also for text that is not a record;
            the message names file, line and row.
    """

    def __init__(
        self,
        source: Any,
        *,
        columns: Iterable[str | tuple[str, ...]] | None = None,
        shuffle: bool = False,
        shuffle_buffer: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        schema: Any = None,
        format: str | None = None,
        separator: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        on_error: OnError = "raise",
        framework: Framework = None,
    ) -> None:
        shuffle = boolean("iterable dataset: shuffle", shuffle)
        shuffle_buffer = integer("iterable dataset: shuffle_buffer", shuffle_buffer, 0)
        seed = integer("iterable dataset: seed", seed, 0, UINT64_MAX)
        if on_error not in ("raise", "skip", "collect"):
            raise ValueError(
                'iterable dataset: on_error: expected "raise", "skip" or "collect", found '
                f"{on_error!r}"
            )
        if (rank is None) != (world_size is None):
            raise ValueError(
                "iterable dataset: expected both rank and world_size, or neither, found "
                f"rank={rank} and world_size={world_size}"
            )
        if rank is not None and world_size is not None:
            world_size = integer("iterable dataset: world_size", world_size, 1)
            rank = integer("iterable dataset: rank", rank, 0, world_size - 1)
        self._shuffle = shuffle
        self._buffer = shuffle_buffer
        self._rank, self._world_size = rank, world_size
        # The rank and number of ranks of `torch.distributed` in the process that pickled this.
        self._pickled_ranks: tuple[int, int] | None = None
        self._transform = (
            None if transform is None else function("iterable dataset: transform", transform)
        )
        self._source: Dataset | TextStream
        format = checked_format("iterable dataset: format", format, TEXT_FORMATS)
        between = checked_separator("iterable dataset: separator", separator)
        files = text_files(source, format)
        if files is not None:
            files = _core.find_text_files(files, format or "", between)
            self._schema = _chosen(
                Schema.from_json(_core.infer_files(files, 0, format or "", (), between))
                if schema is None
                else as_schema(schema),
                columns,
            )
            self._source = TextStream(
                files, self._schema, on_error, format, decided(framework), between
            )
            if shuffle and not shuffle_buffer:
                self._buffer = _DEFAULT_BUFFER
        else:
            _check_source(source, format, separator)
            if schema is not None:
                raise ValueError(
                    "iterable dataset: schema: expected None, because a data set has its own "
                    "schema, found a schema; pass a schema with text files only"
                )
            dataset = (
                source if isinstance(source, Dataset) else Dataset(source, framework=framework)
            )
            if framework is not None:
                dataset = dataset._with_framework(decided(framework))
            self._source = dataset if columns is None else dataset.select(columns)
            self._schema = self._source.schema
        self._seed = seed
        self._epoch = 0
        self._assignment = Assignment.fresh(1, 1)
        self._resumes = False
        # The newest iteration in this process, and the place (see `_rows`) of the last row that it
        # returned.
        self._newest: object = None
        self._handed_out = 0
        # The current generation (see `Workers`), and the number of calls of `load_state_dict`. A
        # worker process has copies from its start; it compares them with the values in `Workers`.
        self._generation = 0
        self._loads = 0
        self._workers = Workers()
        # After unpickling in a spawned process: the ID of this process, and the `Workers` of the
        # process that pickled the stream. If this process is a worker, the loader's process has
        # pickled the stream.
        self._parent_workers: tuple[int, Workers] | None = None
        # `_in_worker_at`, in a worker: the epoch, and the number of rows of that epoch that this
        # worker has returned. `_skipped`, after `load_state_dict` or `set_epoch` in a worker: the
        # epoch of the next iteration, and the number of rows that this iteration skips.
        self._in_worker_at = 0, 0
        self._skipped: tuple[int, int] | None = None
        self._begin_generation()
        _streams[id(self)] = self

    @property
    def schema(self) -> Schema:
        """The columns of the rows before functions of `Dataset.map` and `transform` are applied."""
        return self._schema

    @property
    def bad_rows(self) -> list[dict[str, Any]]:
        """The bad rows that ``on_error="collect"`` has collected, else [].

        Each is ``{"path", "line", "row", "column", "error", "text"}``. The list has only rows that
        this process has read, not rows that workers have read.
        """
        return self._source.bad_rows if isinstance(self._source, TextStream) else []

    # --- iteration ---

    def __iter__(self) -> Iterator[Any]:
        worker = _worker()
        rank, world_size = self._ranks()
        if worker is not None:
            # Equal in all workers of one iterator, different in the workers of another iterator.
            loader = (worker.seed - worker.id) ^ worker.num_workers
            return self._in_worker(worker.id, worker.num_workers, loader, rank, world_size)
        self._assignment = self._assignment if self._resumes else Assignment.fresh(world_size, 1)
        self._assignment = self._assignment.reassigned(world_size, 1)
        self._resumes = False
        self._handed_out = 0
        self._newest = token = object()
        # A pass of workers is newer than this iteration only if it has the generation begun here.
        self._begin_generation()
        return self._in_this_process(token, self._rows(self._assignment, self._epoch, rank, 0))

    def _in_this_process(self, token: object, rows: Iterator[tuple[int, Any]]) -> Iterator[Any]:
        for place, row in rows:
            if self._newest is token:
                self._handed_out = place
            yield row
        if self._newest is token and not self._own_workers().has_begun(self._generation):
            self.set_epoch(_after(self._epoch))

    def _in_worker(
        self, worker: int, workers: int, loader: int, rank: int, world_size: int
    ) -> Iterator[Any]:
        shared = self._workers
        if self._parent_workers is not None and self._parent_workers[0] == os.getpid():
            shared = self._parent_workers[1]
        at_start = self._generation, self._loads, self._epoch
        skipped, self._skipped = self._skipped, None
        generation, loads, epoch, is_first = shared.begin(
            worker, loader, at_start, skipped is not None
        )
        if loads != self._loads:
            # Raise the error with the first batch: an error of iter() ends a persistent worker.
            return iter(_refuse, None)
        resumes = self._resumes and is_first and generation == self._generation
        assignment = self._assignment if resumes else Assignment.fresh(world_size, workers)
        assignment = assignment.reassigned(world_size, workers)
        epoch, size = (epoch, 0) if skipped is None else skipped
        self._in_worker_at = epoch, size
        rows = self._rows(assignment, epoch, rank, worker, size)
        return self._counted(shared, worker, epoch, size, rows)

    def _counted(
        self, shared: Workers, worker: int, epoch: int, size: int, rows: Iterator[tuple[int, Any]]
    ) -> Iterator[Any]:
        for _, row in rows:
            size += 1
            self._in_worker_at = epoch, size
            yield row
        source = self._source
        num_records = None if isinstance(source, Dataset) else source.num_records
        shared.end(worker, size, num_records)

    def _ranks(self) -> tuple[int, int]:
        if self._rank is not None and self._world_size is not None:
            return self._rank, self._world_size
        return _group_ranks() or self._pickled_ranks or (0, 1)

    def _rows(
        self, assignment: Assignment, epoch: int, rank: int, worker: int, skip: int = 0
    ) -> Iterator[tuple[int, Any]]:
        """Yields the rows of this worker after the first `skip`, each as ``(place, row)``.

        Without `skip`, a place of n means the n-th row assigned to this worker, bad rows included.
        With `skip`, callers ignore the place.
        """
        numbers = assignment.numbers(rank, worker)
        if isinstance(self._source, TextStream):
            rows = self._source.rows(numbers, self._shuffle, self._buffer, self._seed, epoch)
            rows = itertools.islice(rows, skip, None)
        else:
            numbers = itertools.islice(numbers, skip, None)
            rows = _rows_of(self._source, self._order(epoch), numbers)
        if self._transform is None:
            return rows
        transform = self._transform
        return ((place, transform(row)) for place, row in rows)

    def _order(self, epoch: int) -> Callable[[int], int]:
        """Returns a function that maps an index in the epoch to the position of the row."""
        size = len(self._source) if isinstance(self._source, Dataset) else 0
        if self._shuffle:
            return permutation(size, self._seed, epoch).__getitem__
        if self._buffer < 2:
            return int
        buffer, seed = self._buffer, self._seed

        @functools.lru_cache(maxsize=2)
        def order_of(piece: int) -> permutation:
            return piece_order(min(buffer, size - piece * buffer), piece, seed, epoch)

        return lambda n: n - n % buffer + order_of(n // buffer)[n % buffer]

    # --- position ---

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, which begins at the first row of that epoch.

        In a worker of a ``DataLoader``, only the next iteration of that worker gets this epoch.

        Args:
            epoch: 0 to 2**62. The epoch and the seed determine the order of a shuffled stream.

        Raises:
            TypeError: If `epoch` is not an int.
            ValueError: If `epoch` is out of range.

        Example:
            >>> stream = IterableDataset(ds, shuffle=True, seed=7)
            >>> stream.set_epoch(3)
        """
        epoch = integer("iterable dataset: epoch", epoch, 0, _LAST_EPOCH)
        if _worker() is not None:
            self._resumes = False
            self._skipped = self._in_worker_at = epoch, 0
            return
        self._epoch = epoch
        self._assignment = Assignment.fresh(1, 1)
        self._resumes = False
        self._handed_out = 0
        self._newest = None
        self._begin_generation()

    def _begin_generation(self) -> None:
        self._generation += 1
        self._own_workers().publish(self._generation, self._loads, self._epoch)

    def _own_workers(self) -> Workers:
        """The `Workers` of this process, or of the loader's process if this is a worker.

        A forked process that is no worker, such as another rank, shares no memory with its parent.
        """
        if not self._workers.is_here() and _worker() is None:
            self._workers = Workers()
            self._workers.publish(self._generation, self._loads, self._epoch)
        return self._workers

    def state_dict(self) -> dict[str, Any]:
        """Returns ``{"seed", "epoch", "position"}``; the position counts the rows of all ranks.

        If some workers have returned more batches than others, further members list the returned
        rows beyond the position. Prefetched rows that were not returned do not count. Bad rows that
        workers skipped do not count, either: the resumed iteration returns up to as many rows a
        second time. In a worker, where torchdata's ``StatefulDataLoader`` calls this method, it
        returns the state of that worker.

        Raises:
            UnsupportedError: If the iterator of a ``DataLoader`` with workers was released, as
                after a loop, and `set_epoch` was not called since; if that iterator iterates over
                another data set that contains this one; if the loader was created with
                ``in_order=False``; or if a worker called `set_epoch` or `load_state_dict`.
        """
        if (worker := _worker()) is not None:
            epoch, handed_out = self._in_worker_at
            assigned = {
                "worker": worker.id,
                "workers": worker.num_workers,
                "ranks": self._ranks()[1],
            }
            return {"seed": self._seed, "epoch": epoch, "handed_out": handed_out, **assigned}
        epoch, assignment = self._epoch, self._assignment
        rows = len(self._source) if isinstance(self._source, Dataset) else None
        workers = self._own_workers()
        if workers.has_begun(self._generation):
            made = workers.newest_pass(self, self._generation)
            if made is None:
                raise UnsupportedError(
                    "iterable dataset: state_dict: expected an iterator of the DataLoader, which "
                    "counts the returned batches, found none: it was released in the middle of the "
                    "epoch or at its end, or iterates over another data set that contains this "
                    "one; call state_dict() within the loop or, after the last batch, call "
                    "set_epoch() first"
                )
            _, world_size = self._ranks()
            size = made.num_records if rows is None else rows
            if made.is_done:
                epoch, assignment = _after(epoch), Assignment.fresh(1, 1)
            else:
                resumed = self._resumes and not made.is_fresh
                assignment = assignment if resumed else Assignment.fresh(1, 1)
                assignment = assignment.reassigned(world_size, len(made.rows))
                assignment = assignment.advanced(made.rows, made.next_worker, size, made.dropped)
        elif self._newest is not None:
            assignment = assignment.advanced([self._handed_out], num_records=rows)
        return {"seed": self._seed, "epoch": epoch, **assignment.to_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets seed, epoch and position, so that the next iteration returns the remaining rows.

        Args:
            state: The result of `state_dict`.

        Raises:
            ValueError: If the state is invalid, or its `position` or `taken` counts rows beyond the
                end of the data set. In a worker, if the state is of another worker, or of another
                number of workers or ranks.
            UnsupportedError: With the first batch of the next iteration, if persistent workers were
                started before this call.

        Example:
            >>> stream = IterableDataset(ds)
            >>> rows = iter(stream)
            >>> first, state = next(rows), stream.state_dict()
            >>> resumed = IterableDataset(ds)
            >>> resumed.load_state_dict(state)
            >>> int(next(iter(resumed))["id"])
            1
        """
        if (worker := _worker()) is not None:
            self._load_in_worker(state, worker)
            return
        seed, epoch, assignment = (
            member(state, "seed"),
            member(state, "epoch"),
            Assignment.from_state(state),
        )
        seed = integer("iterable dataset: state: seed", seed, 0, UINT64_MAX)
        epoch = integer("iterable dataset: state: epoch", epoch, 0, _LAST_EPOCH)
        if isinstance(self._source, Dataset) and assignment.min_records() > len(self._source):
            raise ValueError(
                f"iterable dataset: state: expected at most the {len(self._source)} rows of the "
                f"data set, found {assignment.min_records()}"
            )
        self._loads += 1
        self.set_epoch(epoch)
        self._seed = seed
        self._assignment = assignment
        self._resumes = True

    def _load_in_worker(self, state: dict[str, Any], worker: Any) -> None:
        found = {name: member(state, name) for name in ("worker", "workers", "ranks")}
        expected = {"worker": worker.id, "workers": worker.num_workers, "ranks": self._ranks()[1]}
        if found != expected:
            raise ValueError(
                f"iterable dataset: state: expected the state of {expected}, found {found}"
            )
        where = "iterable dataset: state: "
        seed = integer(where + "seed", member(state, "seed"), 0, UINT64_MAX)
        epoch = integer(where + "epoch", member(state, "epoch"), 0, _LAST_EPOCH)
        size = integer(where + "handed_out", member(state, "handed_out"), 0)
        self._seed = seed
        self._skipped = epoch, size

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group, so it uses these ranks. A process with its own
        # group uses the ranks of that group.
        ranks = _group_ranks() or self._pickled_ranks
        state = self.__dict__ | {"_newest": None, "_pickled_ranks": ranks}
        # Replace objects of private classes by their states: pickles must not name such classes.
        source = self._source
        state["_source"] = source.state() if isinstance(source, TextStream) else source
        state["_assignment"] = tuple(self._assignment if self._resumes else Assignment.fresh(1, 1))
        # Only a process that is being spawned can be a worker. Other copies share no memory.
        state["_workers"] = None if get_spawning_popen() is None else self._own_workers().state()
        del state["_parent_workers"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._pickled_ranks = None
        self.__dict__.update(state)
        source = state["_source"]
        self._source = source if isinstance(source, Dataset) else TextStream.from_state(source)
        self._assignment = Assignment(*state["_assignment"])
        workers = state["_workers"]
        self._parent_workers = (
            None if workers is None else (os.getpid(), Workers.from_state(workers))
        )
        self._workers = Workers()
        self._workers.publish(self._generation, self._loads, self._epoch)
        _streams[id(self)] = self

    def __repr__(self) -> str:
        return f"IterableDataset({', '.join(self._schema)})"


# All streams of this process, by their id: a subclass may not be hashable.
_streams: weakref.WeakValueDictionary[int, IterableDataset] = weakref.WeakValueDictionary()


def _before_fork() -> None:
    """Gives the streams of this process their own `Workers`, which forked workers then share."""
    for stream in list(_streams.values()):
        stream._own_workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def _worker() -> Any:
    """The information that torch has about this ``DataLoader`` worker; None if not a worker."""
    torch = import_torch()
    return None if torch is None else torch.utils.data.get_worker_info()


def _group_ranks() -> tuple[int, int] | None:
    """The rank and number of ranks of ``torch.distributed``; None if it is not initialised."""
    torch = import_torch()
    if torch is None or not torch.distributed.is_available():
        return None
    if not torch.distributed.is_initialized():
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def _after(epoch: int) -> int:
    """The next epoch: 0 after the last epoch, so that `load_state_dict` accepts every state."""
    return 0 if epoch == _LAST_EPOCH else epoch + 1


def _check_source(source: Any, format: str | None, separator: str | None) -> None:
    """Checks a source that is not text files, before it is opened as a data set.

    Raises:
        ValueError: If `format` or `separator` is given.
        UnsupportedError: For a list or tuple of paths or of rows, and for an empty one.
    """
    for name, value in (("format", format), ("separator", separator)):
        if value is not None:
            found = repr(os.fspath(source)) if is_path(source) else f"a {type(source).__name__}"
            raise ValueError(
                f"iterable dataset: {name}: expected only with text files, found {found}"
            )
    if isinstance(source, (list, tuple)) and source and all(map(is_path, source)):
        raise UnsupportedError(
            "iterable dataset: source: expected text files, or one path of a data set, found a "
            f"{type(source).__name__} with {os.fspath(source[0])!r}; tenfold.ingest() makes a "
            "data set of files of other formats"
        )
    if isinstance(source, (list, tuple)) and not any(isinstance(item, str) for item in source):
        of = f" of {type(source[0]).__name__}" if source else ""
        raise UnsupportedError(
            "iterable dataset: source: expected a Dataset, a TensorDict, or paths, found a "
            f"{type(source).__name__}{of}; pass rows in memory to a DataLoader directly, or "
            "write them to a data set with tenfold.ingest()"
        )


def _refuse() -> object:
    raise UnsupportedError(
        "iterable dataset: load_state_dict: expected a call before the DataLoader started its "
        "workers, found persistent workers that run already; create a new DataLoader"
    )


def _rows_of(
    dataset: Dataset, order: Callable[[int], int], numbers: Iterator[int]
) -> Iterator[tuple[int, Any]]:
    size = len(dataset)
    mine = itertools.takewhile(lambda number: number < size, numbers)
    place = 0
    while chunk := [order(number) for number in itertools.islice(mine, _CHUNK_ROWS)]:
        with using(dataset._framework):
            batch = dataset._native.rows(chunk, {}, jagged)
        for row in dataset._samples(batch, len(chunk)):
            place += 1
            yield place, row


def _chosen(schema: Schema, columns: Iterable[str | tuple[str, ...]] | None) -> Schema:
    """The schema of the selected columns of text files, in the given order."""
    if columns is None:
        return schema
    chosen: dict[str, Any] = {}
    for name in column_names("iterable dataset: columns", columns):
        keys = [name] if name in schema else name.split(".")
        column: Any = schema
        for key in keys:
            if not isinstance(column, Schema) or key not in column:
                raise KeyNotFoundError(
                    f"iterable dataset: no column {name!r}: expected one of {list(schema)}"
                )
            column = column[key]
        into: Any = chosen
        for key in keys[:-1]:
            into = into.setdefault(key, {}) if isinstance(into, dict) else into
        if not isinstance(into, dict) or keys[-1] in into:
            raise ValueError(
                f"iterable dataset: columns: expected each column once, found {name!r} and the "
                "same name again or a record that contains it"
            )
        into[keys[-1]] = column
    return _schema_of(chosen)


def _schema_of(columns: dict[str, Any]) -> Schema:
    return Schema(
        {
            name: _schema_of(column) if isinstance(column, dict) else column
            for name, column in columns.items()
        }
    )


class Assignment(NamedTuple):
    """Assigns the rows of an epoch, numbered in the order of the epoch, to all ranks' workers.

    Shard ``s`` of ``S = world_size * workers`` has the numbers ``position + s + k * S``. It belongs
    to worker ``s // world_size - next_worker`` (modulo `workers`) of rank ``s % world_size``. Some
    workers may have returned more batches than others. Then the returned rows are a prefix of the
    epoch and some rows after the prefix.

    Attributes:
        position: All rows with smaller numbers were returned.
        world_size: Number of ranks.
        workers: Workers of each rank, at least 1.
        taken: For each shard, how many of its numbers from `position` on were returned.
        next_worker: ``s // world_size`` of the shards from which the next batch of each rank comes.
            In the next iteration, worker 0 gets these shards, so that the order of batches is that
            of an uninterrupted run.
        holes: Single numbers from `position` on that were returned under an earlier assignment.
    """

    position: int
    world_size: int
    workers: int
    taken: tuple[int, ...]
    next_worker: int = 0
    holes: frozenset[int] = frozenset()

    @classmethod
    def fresh(cls, world_size: int, workers: int, position: int = 0) -> Assignment:
        """An assignment in which no row from `position` on was returned."""
        return cls(position, world_size, workers, (0,) * (world_size * workers))

    def numbers(self, rank: int, worker: int) -> Iterator[int]:
        """Yields the numbers of rows that a worker has not returned yet, ascending, without end."""
        return (number for number in self._shard(self._shard_of(rank, worker)))

    def _shard_of(self, rank: int, worker: int) -> int:
        return (worker + self.next_worker) % self.workers * self.world_size + rank

    def _shard(self, shard: int) -> Iterator[int]:
        shards = len(self.taken)
        rising = count(self.position + shard + self.taken[shard] * shards, shards)
        return filter(lambda number: number not in self.holes, rising) if self.holes else rising

    def advanced(
        self,
        rows: Sequence[int],
        next_worker: int = 0,
        num_records: int | None = None,
        dropped: int = 1,
    ) -> Assignment:
        """The assignment after the workers of every rank returned more rows.

        Args:
            rows: For each worker, how many rows it returned. With `num_records`, it may exceed the
                number of rows that the worker had left.
            next_worker: The worker of each rank that returns the next batch.
            num_records: Number of records of the epoch. None: unknown; then `rows` must be exact.
            dropped: Workers return a multiple of this many rows: the batch size if incomplete
                batches are omitted, else 1.
        """
        shards = len(self.taken)
        taken = list(self.taken)
        for rank in range(self.world_size):
            for worker, wanted in enumerate(rows):
                shard = self._shard_of(rank, worker)
                if num_records is not None:
                    left = self._left(shard, num_records)
                    wanted = min(wanted, left - left % dropped)
                if self.holes and wanted > 0:
                    last = next(islice(self._shard(shard), wanted - 1, None))
                    taken[shard] = (last - self.position - shard) // shards + 1
                else:
                    taken[shard] += wanted
        return self._replace(
            taken=tuple(taken), next_worker=(self.next_worker + next_worker) % self.workers
        )._settled()

    def min_records(self) -> int:
        """A lower bound of the number of records of the epoch, without regard to `holes`."""
        most = max(self.taken)
        return self.position + ((most - 1) * len(self.taken) + 1 if most else 0)

    def _left(self, shard: int, num_records: int) -> int:
        """The number of rows that a shard has not returned yet."""
        shards = len(self.taken)
        first = self.position + shard + self.taken[shard] * shards
        numbers = range(first, num_records, shards)
        return len(numbers) - sum(hole in numbers for hole in self.holes)

    def _settled(self) -> Assignment:
        """This assignment with `position` increased until `taken` of some shard is 0."""
        shards = len(self.taken)
        whole = min(self.taken)
        position = self.position + whole * shards
        taken = tuple(number - whole for number in self.taken)
        settled = self._replace(position=position, taken=taken)
        return settled._replace(holes=frozenset(h for h in self.holes if not settled._has(h)))

    def _has(self, number: int) -> bool:
        """True if `number` was returned, according to `position` and `taken` (without `holes`)."""
        if number < self.position:
            return True
        index, shard = divmod(number - self.position, len(self.taken))
        return index < self.taken[shard]

    def reassigned(self, world_size: int, workers: int) -> Assignment:
        """Assigns the remaining rows to `world_size` ranks with `workers` workers each."""
        if (world_size, workers) == (self.world_size, self.workers):
            return self
        ahead = range(self.position, self.position + max(self.taken) * len(self.taken))
        holes = {*self.holes, *(number for number in ahead if self._has(number))}
        position = self.position
        while position in holes:
            holes.remove(position)
            position += 1
        fresh = self.fresh(world_size, workers, position)
        return fresh._replace(holes=frozenset(holes))

    # --- as JSON ---

    def to_state(self) -> dict[str, Any]:
        """``{"position": n}``; more members if rows beyond n were returned or `next_worker` > 0."""
        state: dict[str, Any] = {"position": self.position}
        if any(self.taken) or self.next_worker:
            state["world_size"] = self.world_size
            state["workers"] = self.workers
            state["taken"] = list(self.taken)
            state["next_worker"] = self.next_worker
        if self.holes:
            state["holes"] = sorted(self.holes)
        return state

    @classmethod
    def from_state(cls, state: Any) -> Assignment:
        """An assignment of the rows that remain after a state of `to_state`.

        Raises:
            ValueError: For an invalid state.
        """
        position = member(state, "position")
        if "taken" in state:
            world_size, workers = member(state, "world_size", 1), member(state, "workers", 1)
            taken = _numbers(state, "taken")
            if len(taken) != world_size * workers:
                raise ValueError(
                    f'iterable dataset: state: member "taken": expected {world_size * workers} '
                    f"numbers, one for each worker of each rank, found {len(taken)}"
                )
            assignment = cls(
                position, world_size, workers, taken, member(state, "next_worker") % workers
            )
        else:
            assignment = cls.fresh(1, 1, position)
        return assignment._replace(
            holes=frozenset(_numbers(state, "holes") if "holes" in state else ())
        )


def member(state: Any, key: str, at_least: int = 0) -> int:
    """An int member of a state. Raises ValueError if missing, not an int, or < `at_least`."""
    value: Any = state.get(key) if isinstance(state, dict) else None
    if not _is_number(value) or value < at_least:
        raise ValueError(
            f'iterable dataset: state: member "{key}": expected an int of {at_least} or more, '
            f"found {value!r}"
        )
    return int(value)


def _numbers(state: Any, key: str) -> tuple[int, ...]:
    values = state[key]
    if not isinstance(values, list) or not all(_is_number(v) and v >= 0 for v in values):
        raise ValueError(
            f'iterable dataset: state: member "{key}": expected a list of ints of 0 or more, '
            f"found {values!r}"
        )
    return tuple(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# So few that share_memory_() copies all cells with one thread: from 32 KiB on, torch copies with
# OpenMP threads, which hang in a forked process.
_MAX_WORKERS = 512
_RUNNING = -1


class Pass(NamedTuple):
    """One iteration of a ``DataLoader`` with workers.

    Attributes:
        is_fresh: True if this is not the first pass of its generation (see `Workers`): it began
            with the first row of the epoch. The first pass begins at the position that
            ``set_epoch`` or ``load_state_dict`` set, if one of them began the generation.
        is_done: True if the last batch was returned.
        rows: For each worker, the number of rows in its returned batches, as if all of them were
            full. So it may exceed the number of rows of the worker.
        next_worker: The worker that returns the next batch, if it has rows left.
        num_records: Number of records of all files, if a worker has reached the end.
        dropped: Workers return a multiple of this many rows: the batch size if incomplete batches
            are omitted, else 1.
    """

    is_fresh: bool
    is_done: bool
    rows: list[int]
    next_worker: int
    num_records: int | None = None
    dropped: int = 1


class Cell(NamedTuple):
    """The newest pass of a worker, in the memory of `Workers`.

    Members are written from the last to the first, and read from the first to the last.

    Attributes:
        generation: Generation of the pass (see `Workers`); 0 if this worker never began one.
            Negative if the worker itself set the epoch of this pass.
        pid: Process of the worker.
        passes: Number of passes that this process has begun.
        loader: A number that the workers of one iterator of a ``DataLoader`` have in common.
        is_fresh: 1 if the pass is not the first of the generation, else 0.
        rows: Number of rows that the worker returned; _RUNNING before the end of the pass.
        num_records: Number of records of all files; _RUNNING before the end of the pass, and
            always for a data set.
    """

    generation: int
    pid: int
    passes: int
    loader: int
    is_fresh: int
    rows: int
    num_records: int


class Workers:
    """Memory that the loader and its workers share: the epoch, and the progress of each worker.

    The process of the loader calls `publish`, workers call `begin` and `end`. A pass is one
    iteration of the loader (see `Pass`). A generation is the time from one ``set_epoch``,
    ``load_state_dict`` or iteration in the loader's process to the next.
    """

    def __init__(self) -> None:
        torch = import_torch()
        self._pid = os.getpid()
        self._header: Any = None
        # A `Cell` for each worker.
        self._cells: Any = None
        if torch is not None:
            size = len(Cell._fields)
            self._header = torch.zeros(3, dtype=torch.int64).share_memory_()
            self._cells = torch.zeros(_MAX_WORKERS, size, dtype=torch.int64).share_memory_()

    def state(self) -> tuple[Any, Any]:
        """Returns the shared memory, for `from_state` in another process."""
        return self._header, self._cells

    @classmethod
    def from_state(cls, state: tuple[Any, Any]) -> Workers:
        """The inverse of `state`."""
        made = cls.__new__(cls)
        made._pid = os.getpid()
        made._header, made._cells = state
        return made

    def is_here(self) -> bool:
        """True in the process that made this object, False in a process that was forked from it."""
        return self._pid == os.getpid()

    # --- the loader's process ---

    def publish(self, generation: int, loads: int, epoch: int) -> None:
        """Sets the values that workers read when they begin a pass."""
        if self._header is not None:
            self._header[0], self._header[1], self._header[2] = generation, loads, epoch

    def has_begun(self, generation: int) -> bool:
        """Whether a worker has begun a pass of this generation."""
        return self._cells is not None and bool((self._cells[:, 0].abs() == generation).any())

    def newest_pass(self, dataset: Any, generation: int) -> Pass | None:
        """The newest pass; None if the loader's iterator was released.

        Without the iterator, a finished pass looks like one that ended early: in both, the workers
        may have read all rows.

        Raises:
            UnsupportedError: If the loader returns batches in the order in which they are finished,
                or if a worker set its own epoch.
        """
        cells = [Cell(*row) for row in self._cells.tolist()]
        begun = [cell for cell in cells if abs(cell.generation) == generation]
        if any(cell.generation < 0 for cell in begun):
            raise UnsupportedError(
                "iterable dataset: state_dict: expected set_epoch() in the process of the "
                "DataLoader, found a call of set_epoch() or load_state_dict() in a worker"
            )
        first = cells[0]
        loaders = _loader_iterators(dataset)
        # A loader returns no batch before its worker 0 has begun.
        of_first = [
            each for each in loaders if first in begun and each._workers[0].pid == first.pid
        ]
        loader = next(iter(of_first or [each for each in loaders if not each._num_yielded]), None)
        if loader is None:
            return None
        if not getattr(loader, "_in_order", True):
            raise UnsupportedError(
                "iterable dataset: state_dict: expected a DataLoader that returns batches in "
                "order, found one with in_order=False"
            )
        size = getattr(loader._index_sampler, "batch_size", 1)
        batches = loader._num_yielded
        pids = [process.pid for process in loader._workers]
        # A worker that has not begun this pass still has the cell of an earlier pass, or an empty
        # one.
        cells = [
            cell
            if (cell.pid, cell.passes) == (pid, first.passes)
            else cell._replace(rows=_RUNNING, num_records=_RUNNING)
            for cell, pid in zip(cells, pids, strict=False)
        ]
        ends = [cell.rows for cell in cells]
        if loader._drop_last:
            ends = [end if end == _RUNNING else end - end % size for end in ends]
        most = [None if end == _RUNNING else -(-end // size) for end in ends]
        counts, next_worker = _in_turn(batches, most)
        rows = [size * number for number in counts]
        done = all(end != _RUNNING and end <= given for end, given in zip(ends, rows, strict=True))
        num_records = max(cell.num_records for cell in cells)
        return Pass(
            any(cell.is_fresh or cell.pid not in pids for cell in begun),
            batches > 0 and done,
            rows,
            next_worker,
            None if num_records == _RUNNING else num_records,
            size if loader._drop_last else 1,
        )

    # --- a worker's process ---

    def begin(
        self, worker: int, loader: int, at_start: tuple[int, int, int], is_own: bool
    ) -> tuple[int, int, int, bool]:
        """Begins a pass of a worker; returns ``(generation, loads, epoch, is_first)``.

        `is_first` is True if this is the first pass of the generation, of any number of workers.
        `at_start` has the values that were published when the worker started. `is_own` is True if
        the worker itself has set the epoch.
        """
        if worker >= _MAX_WORKERS:
            raise ValueError(
                f"iterable dataset: expected at most {_MAX_WORKERS} workers, found more"
            )
        cells, pid = [Cell(*row) for row in self._cells.tolist()], os.getpid()
        cell = cells[worker]
        passes = cell.passes + 1 if cell.pid == pid else 1
        # The first pass uses the values of the worker's start: the loader's process may have
        # published newer values since then.
        generation, loads, epoch = at_start if passes == 1 else self._header.tolist()
        is_first = abs(cell.generation) != generation and all(
            other.loader == loader and not other.is_fresh
            for other in cells
            if abs(other.generation) == generation
        )
        begun = Cell(
            -generation if is_own else generation,
            pid,
            passes,
            loader,
            not is_first,
            _RUNNING,
            _RUNNING,
        )
        for index, value in reversed(list(enumerate(begun))):
            self._cells[worker, index] = value
        return generation, loads, epoch, is_first

    def end(self, worker: int, rows: int, num_records: int | None) -> None:
        """Ends a pass of a worker; stores its number of rows and the number of all records."""
        records = _RUNNING if num_records is None else num_records
        self._cells[worker, Cell._fields.index("num_records")] = records
        self._cells[worker, Cell._fields.index("rows")] = rows


def _in_turn(batches: int, most: Sequence[int | None]) -> tuple[list[int], int]:
    """How many of the first `batches` batches each worker returned, and the worker of the next one.

    Workers take turns. Those that have returned all their batches are left out.

    Args:
        batches: Number of batches that a ``DataLoader`` returned.
        most: For each worker, the number of its batches; None: it has not reached its end.
    """
    counts, next_worker = [0] * len(most), 0
    while batches:
        left = {
            worker: batches if end is None else end - counts[worker]
            for worker, end in enumerate(most)
            if end is None or end > counts[worker]
        }
        rounds = min(batches // len(left), *left.values())
        for worker in left if rounds else list(left)[:batches]:
            counts[worker] += rounds or 1
            batches -= rounds or 1
            next_worker = (worker + 1) % len(most)
    return counts, next_worker


def _loader_iterators(dataset: Any) -> list[Any]:
    """The iterators of a ``DataLoader`` that iterate over `dataset`, those in use first.

    Only such an iterator counts how many prefetched batches were returned to the caller.
    """
    kind = need_torch("state_dict").utils.data.dataloader._MultiProcessingDataLoaderIter

    found = [
        item
        for item in gc.get_objects()
        if issubclass(type(item), kind) and getattr(item, "_dataset", None) is dataset
    ]
    return sorted(found, key=lambda item: bool(item._shutdown))

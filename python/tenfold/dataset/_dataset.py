"""The rows of a tree of tensors."""

from __future__ import annotations

import array
import errno
import functools
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import NamedTuple

from tenfold import _core, _pickle
from tenfold._errors import UnsupportedError, with_remedy
from tenfold._interop.arrays import is_array
from tenfold._interop.frameworks import decided, using
from tenfold._options import (
    UINT64_MAX,
    column_name,
    column_names,
    integer,
    path_argument,
    text,
)
from tenfold._options import function as callable_or_error
from tenfold._public import set_module
from tenfold.dataset._append import Growing, _validity
from tenfold.dataset._indexing import Indices, Positions, positions_of, positions_where
from tenfold.dataset._ingest.bad_rows import bad_rows_of
from tenfold.dataset._preview import preview, preview_html
from tenfold.dataset._ragged import is_jagged, jagged
from tenfold.dataset._rows import (
    RowList,
    Rows,
    Samples,
    check_rows,
    none_of,
    sample_of,
    samples_of,
    stacked,
)
from tenfold.dataset._schema import Schema, column_of_validity, validity_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from tenfold._interop.frameworks import Framework, Name
    from tenfold._io.files import Mode, PathLike, Progress
    from tenfold._reports import IngestReport

    Row = dict[str, Any]
    Transform = Callable[[Row], Any]


# The remedy in errors for sources that are not data sets.
_INGEST = "tenfold.ingest(source, path) makes a data set of text files, tables and rows"
# By Arrow type: dtypes of pandas that can represent missing values.
_NULLABLE_DTYPES = {
    "bool": "boolean",
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}
# Maximum number of rows per call of a function of `filter`.
_FILTER_ROWS = 65_536


class _Map:
    """A function of `Dataset.map`, called with a row or a batch."""

    __slots__ = ("batched", "function")

    def __init__(self, function: Transform, batched: bool) -> None:
        self.function = function
        self.batched = batched

    # Compare the functions: after unpickling, the parts of a joined data set share functions,
    # but not objects of this class.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Map) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, bool]:
        return id(self.function), self.batched


class _Joined(NamedTuple):
    """The arguments of `concat` (`weights` is None) or `mix`; unpickling repeats the call."""

    datasets: tuple[Dataset, ...]
    weights: tuple[float, ...] | None


@set_module("tenfold")
class Dataset(Growing):
    """The rows of a tree whose tensors share their first dimension, in any supported format.

    Rows of mapped tensors are read when they are accessed, so a data set may be larger than memory.
    Tensors that cannot be mapped, such as deflated entries of archives, are read into memory by the
    constructor.

    >>> ds = tenfold.Dataset("flights")
    >>> len(ds), ds.columns
    >>> ds[5]                          # a row: {"price": tensor(12.5), "origin": "LIS"}
    >>> ds[[5, 2, 999]]                # a batch: {"price": float32 [3], "origin": [str, str, str]}
    >>> ds["price"]                    # the column, mapped: float32 [len(ds)]
    >>> train, test = ds.split([0.9, 0.1], seed=0)

    Rows contain tensors ``[*shape]`` for numbers (0-d for a single number) and str or bytes for
    strings; batches contain tensors ``[B, *shape]`` and lists. A ragged column of numbers gives a
    tensor ``[length, *shape]`` in a row and a jagged ``torch.nested`` tensor in a batch (with
    numpy, a list of arrays). A ragged column of strings gives a list in a row and a list of lists
    in a batch. A missing number is NaN in float columns that are not ragged, except in the initial
    rows of `create`, which are zeros. Other nullable columns add a bool ``"<column>.valid"`` to
    rows and batches; ``ds["<column>.valid"]`` exists for every nullable column. Nested records are
    nested dicts.

    Views (`range`, `head`, `select`, `rename`, `take`, `filter`, `split`, `shuffle`, `shard`,
    `map`) copy no rows and can be combined.

    A Dataset of a path pickles as the path, and works in forked and spawned workers. A Dataset of a
    tree in memory cannot be pickled. If the path was replaced after pickling, unpickling raises
    OSError (ESTALE). On another host, or after a restart, a replacement is only detected if the new
    data set has fewer rows than a view needs.

    Args:
        source: A path, a TensorDict, or a dict of tensors.
        mode: For a path. ``"r"`` or ``"c"``: this object never changes the files. ``"r+"``: rows of
            a folder can be appended (`append`) and overwritten in place (``ds[i] = row``); mapped
            columns ``ds["x"]`` are shared mappings.
        transform: The same as ``.map(transform)``.
        framework: ``"torch"`` or ``"numpy"``, as for `tenfold.load`. Determined once; views and
            pickles keep it.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If the tree is not a table: for example, its batch_size is ``[]``, it has no
            tensors, or they differ in their first dimension.
        CorruptFileError: If the file is damaged, or the tensors do not match the schema.
        UnsupportedError: If the format of the file is unknown.
    """

    # The report of `ingest`; None for an opened data set.
    report: IngestReport | None = None

    def __init__(
        self,
        source: PathLike | Any,
        mode: Mode = "r",
        *,
        transform: Transform | None = None,
        framework: Framework = None,
    ) -> None:
        self._framework: Name = decided(framework)
        if isinstance(source, (str, os.PathLike)):
            self._path: str | None = os.path.abspath(os.fspath(source))
            try:
                self._native = _core.Dataset.open_path(self._path, text("data set: mode", mode))
            except UnsupportedError as error:
                raise with_remedy(error, _INGEST) if os.path.isfile(source) else error from None
        else:
            self._path = None
            try:
                self._native = _core.Dataset.open(_core.tree(source, "data set"))
            except ValueError as error:
                is_table = isinstance(source, Mapping) or hasattr(source, "batch_size")
                raise error if is_table else with_remedy(error, _INGEST) from None
            mode = "r"
        self._mode = mode
        self._joined: _Joined | None = None
        # For a view: the calls, except `map`, that made it from the opened or joined data set, and
        # the number of rows that this data set had at the first of these calls.
        self._steps: tuple[tuple[str, Any], ...] = ()
        self._rows: int | None = None
        self._maps: tuple[_Map, ...] = ()
        if transform is not None:
            self._maps = (_Map(callable_or_error("data set: transform", transform), False),)

    @classmethod
    def _of_native(cls, native: Any, path: str, mode: Mode) -> Dataset:
        made = object.__new__(cls)
        made._path, made._native, made._mode = path, native, mode
        made._joined = made._rows = None
        made._steps = made._maps = ()
        made._framework = decided()
        return made

    # --- properties ---

    @property
    def schema(self) -> Schema:
        """The stored columns: name -> dtype, shape of a row, ragged, nullable, unit.

        Functions of `map` do not change it.
        """
        return Schema.from_json(self._native.schema_json())

    @property
    def columns(self) -> list[str]:
        """The names of the columns, and for nested records the name of the outermost record."""
        return list(self.schema)

    @property
    def column_names(self) -> list[str]:
        """The same as `columns`, under the name that Hugging Face's data sets use."""
        return self.columns

    @property
    def num_rows(self) -> int:
        """Number of rows, ``len(self)``."""
        return len(self)

    @property
    def bad_rows(self) -> list[dict[str, Any]]:
        """The rows that ``ingest(on_error="collect")`` omitted.

        Each is a dict ``{"line", "row", "column", "error", "text"}``; unknown members are None.
        """
        return bad_rows_of(self._path)

    def __repr__(self) -> str:
        return preview(self._title(), self._native, self.schema)

    def _repr_html_(self) -> str:
        return preview_html(self._title(), self._native, self.schema)

    def _title(self) -> str:
        where = f"{self._path!r}, " if self._path else ""
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        # The functions of map() may be slow or fail, so the table shows the rows before map().
        maps = f", before {len(self._maps)} map()" if self._maps else ""
        return f"Dataset({where}{rows}{maps})"

    # --- rows ---

    def __getitem__(self, index: Any) -> Any:
        """Returns a row, a batch, or a column.

        Args:
            index: An int: a row. A slice, a list, tensor or array of ints or bools: a batch. A str,
                or a tuple of str for nested records: a column.

        Raises:
            IndexError: For an index out of range, a mask of another length, or a tuple of indices.
            KeyError: For a column that does not exist.
            TypeError: For an index of another type, and for a column if a function of `map` returns
                no dicts.
            UnsupportedError: For indices of several dimensions, if a column is ragged or has
                strings.
        """
        if isinstance(index, str):
            return self._column(column_name("column", index))
        if isinstance(index, tuple) and index and all(isinstance(key, str) for key in index):
            name = column_name("column", index)
            record, *rest = index
            if rest and name in self.schema and record in self.schema:
                # Another column has this dotted name.
                return _entry(self._column(record), ".".join(rest))
            return self._column(name)
        positions = positions_of(index, len(self))
        if isinstance(positions, int):
            return self._row(positions)
        return self._batch(positions)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Rows for a standard ``DataLoader``, gathered in one call; see `tenfold.collate`."""
        with using(self._framework):
            batch = self._native.rows(list(indices), {}, jagged)
        if any(not step.batched for step in self._maps):
            samples = self._samples(batch, len(indices))
            return Samples(samples, self._ragged, self._framework)
        batch = self._mapped(batch, len(indices))
        return (Rows if isinstance(batch, dict) else RowList)(batch, len(indices))

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), 256):
            size = min(256, len(self) - begin)
            yield from self._samples(self._range(begin, begin + size), size)

    def _samples(self, batch: Any, size: int) -> Iterator[Any]:
        """Applies all functions of `map` to a batch; returns an iterator over the rows."""
        rows: Iterator[Any] | None = None
        for step in self._maps if size else ():
            if step.batched:
                if rows is not None:
                    with using(self._framework):
                        batch = stacked(list(rows), self._ragged)
                batch = step.function(batch)
                check_rows(batch, size)
                rows = None
            else:
                rows = map(step.function, samples_of(batch, size) if rows is None else rows)
        return samples_of(batch, size) if rows is None else rows

    def _row(self, position: int, maps: tuple[_Map, ...] | None = None) -> Any:
        with using(self._framework):
            row: Any = self._native.row(position)
        for step in self._maps if maps is None else maps:
            row = step.function(row) if not step.batched else _single(step.function, row)
        return row

    def _batch(self, positions: Positions) -> Any:
        if isinstance(positions, slice):
            batch: Any = self._range(positions.start, positions.stop)
            size = positions.stop - positions.start
        else:
            with using(self._framework):
                batch = self._native.rows(positions.values, {}, jagged)
            size = len(positions.values)
            if positions.shape is not None:
                batch = {key: _reshaped(value, positions.shape) for key, value in batch.items()}
                size = positions.shape[0]
        return self._mapped(batch, size)

    def _range(self, begin: int, end: int) -> Any:
        with using(self._framework):
            return self._native.range_rows(begin, end, {}, jagged)

    def _mapped(self, batch: Any, size: int) -> Any:
        with using(self._framework):
            return self._mapped_by_all(batch, size)

    def _mapped_by_all(self, batch: Any, size: int) -> Any:
        for number, step in enumerate(self._maps):
            if step.batched:
                batch = step.function(batch)
                check_rows(batch, size)
            elif size > 0:
                rows = [step.function(row) for row in samples_of(batch, size)]
                batch = stacked(rows, self._ragged)
            elif len(self) > 0:
                # The keys that the function returns are known only by calling it on a row.
                row = self._row(0, self._maps[: number + 1])
                batch = none_of(stacked([row], self._ragged))
        return batch

    @functools.cached_property
    def _ragged(self) -> frozenset[str]:
        """Dotted names of the stored ragged columns of numbers. `map` may add other columns."""
        leaves = self.schema._leaves()
        return frozenset(name for name, c in leaves if c.ragged and not _is_text(c.dtype))

    def _column(self, name: str) -> Any:
        if self._maps:
            return self._mapped_column(name)
        column = self.select([name])
        flat = dict(column.schema._leaves())
        if set(flat) == {name} and not flat[name].ragged and not _is_text(flat[name].dtype):
            with using(self._framework):
                return self._native.column(name)
        return _entry(column._batch(slice(0, len(self))), name)

    def _mapped_column(self, name: str) -> Any:
        batch = self._batch(slice(0, len(self)))
        try:
            return _entry(batch, name)
        except KeyError:
            # In batches, NaN marks missing floats, except in ragged columns.
            of = column_of_validity(name)
            column = dict(self.schema._leaves()).get(of or "")
            if of is None or column is None or column.ragged or not column.nullable:
                raise
            if not column.dtype.startswith(("float", "bfloat")):
                raise
            values = _entry(batch, of)
            if is_jagged(values) or not hasattr(values, "ndim"):
                raise
            missing = values != values
            while missing.ndim > 1:
                missing = missing.all(-1)
            return ~missing

    # --- views ---

    def _with_framework(self, framework: Name) -> Dataset:
        """A view of the same rows that returns arrays of `framework`."""
        if framework == self._framework:
            return self
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._framework = framework
        return view

    def _view(self, step: tuple[str, Any]) -> Dataset:
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        name, arguments = step
        view._native = getattr(self._native, name)(*arguments)
        view._add_step(self, step)
        return view

    def _add_step(self, of: Dataset, step: tuple[str, Any]) -> None:
        self._steps = (*of._steps, step)
        self._rows = of._rows if of._steps else len(of)

    def range(self, start: int, end: int | None = None) -> Dataset:
        """Returns the rows ``[start, end)``; both are clamped as in a slice.

        Args:
            start: The first row; negative: from the end.
            end: The row after the last one; negative: from the end. None: all rows from `start`.

        Returns:
            Dataset: A view.

        Raises:
            TypeError: If an argument is not an int.

        Example:
            >>> len(ds.range(100, 200))
            100
        """
        begin, stop, _ = slice(start, end).indices(len(self))
        return self._view(("range", (begin, max(begin, stop))))

    def select(self, columns: Iterable[str | tuple[str, ...]]) -> Dataset:
        """Returns the selected columns, in the given order.

        ``"<column>.valid"`` selects the validity of a nullable column.

        Args:
            columns: Names of stored columns or records; ``("camera", "gain")`` or
                ``"camera.gain"`` in a nested record. The functions of `map` are applied to the
                selected columns, even if `map` was called before.

        Returns:
            Dataset: A view.

        Raises:
            KeyError: For a column that does not exist.
            TypeError: For a str instead of a list, or names of another type.
            ValueError: For a column that is selected twice.

        Example:
            >>> ds.select(["price"]).columns
            ['price']
        """
        if columns is None:
            raise TypeError("select: columns: expected a list of names, found None")
        return self._view(("select", (column_names("select: columns", columns),)))

    def take(self, indices: Any) -> Dataset:
        """Returns the rows at `indices`.

        Indices may be repeated; negative ones count from the end.

        Args:
            indices: A list, a tensor or array of ints ``[n]``, a slice, or a bool mask
                ``[len(self)]``.

        Returns:
            Dataset: A view of the selected rows.

        Raises:
            IndexError: For an index out of range, a mask of another length, a tuple, or indices of
                several dimensions.
            TypeError: For an int, or indices of another type.

        Example:
            >>> ds.take([5, 2, -1])["id"].tolist()
            [5, 2, 999]
        """
        positions = positions_of(indices, len(self), what="take: indices")
        if isinstance(positions, int):
            raise TypeError("take: indices: expected a list, tensor, array or slice, found an int")
        if isinstance(positions, slice):
            return self.range(positions.start, positions.stop)
        if positions.shape is not None:
            raise IndexError(
                f"take: indices: expected one dimension, found shape {positions.shape}"
            )
        return self._view(("take", (positions.values,)))

    def filter(self, mask: Any) -> Dataset:
        """Returns the rows where `mask` is true.

        Args:
            mask: bool ``[len(self)]``, or a function that maps a batch dict to a mask of its rows.
                `filter` calls the function for batches of consecutive rows before it returns.

        Returns:
            Dataset: A view.

        Raises:
            IndexError: If the mask has another shape.
            TypeError: If the mask is not bool.

        Example:
            >>> cheap = ds.filter(ds["price"] < 0.5)
            >>> cheap = ds.filter(lambda batch: batch["price"] < 0.5)
        """
        if not callable(mask):
            return self.take(positions_where(mask, len(self)))
        found = array.array("q")
        for begin in range(0, len(self), _FILTER_ROWS):
            end = min(begin + _FILTER_ROWS, len(self))
            where = positions_where(mask(self[begin:end]), end - begin).values
            found.extend(begin + position for position in _listed(where))
        return self.take(Indices(found))

    def split(self, sizes: Sequence[float], seed: int | None = 0) -> list[Dataset]:
        """Splits the rows into disjoint parts.

        Args:
            sizes: Fractions that sum to 1, or, if all are ints, numbers of rows that sum to
                ``len(self)``.
            seed: Seed of the shuffle, 0 to 2**64 - 1; None: contiguous rows.

        Returns:
            list[Dataset]: A view for each size.

        Raises:
            TypeError: If `sizes` is not a list of numbers, or `seed` not an int.
            ValueError: If `sizes` have the wrong sum, one is negative, or `seed` is out of range.

        Example:
            >>> train, test = ds.split([0.9, 0.1], seed=7)
            >>> len(train), len(test)
            (900, 100)
        """
        counts = _counts_of(sizes, len(self))
        if seed is not None:
            seed = integer("split: seed", seed, 0, UINT64_MAX)
        parts = self._native.split(counts, seed)
        views = []
        for index, native in enumerate(parts):
            view = object.__new__(type(self))
            view.__dict__.update(self.__dict__)
            view._native = native
            view._add_step(self, ("split", (counts, seed, index)))
            views.append(view)
        return views

    def rename(self, names: Mapping[str | tuple[str, ...], str | tuple[str, ...]]) -> Dataset:
        """Returns the rows under other column names; nothing is copied.

        Args:
            names: Old name to new name. An old name is a column (``"a.b"`` or ``("a", "b")`` in a
                nested record) or a record; a new name is one column name, or a tuple for a column
                in a record.

        Returns:
            Dataset: A view.

        Raises:
            KeyError: If an old name is neither a column nor a record.
            TypeError: If `names` is not a mapping; if an old name is neither a str nor a tuple of
                str; if a new name is neither a str nor a tuple.
            ValueError: If two columns, or a column and a record, would have the same name; if a
                column would have the name ``"<column>.valid"`` of the validity of a nullable
                column; if a new name is empty or has a key that is not a str; if `map` was called
                before `rename`.

        Example:
            >>> ds.rename({"price": "cost"}).columns
            ['cost', 'origin']
        """
        if self._maps:
            raise ValueError(
                "rename: expected a data set without map(), found one with it; rename before map()"
            )
        if not isinstance(names, Mapping):
            raise TypeError(f"rename: names: expected a dict, found {type(names).__name__}")
        pairs = []
        for old, new in names.items():
            if not isinstance(new, (str, tuple, list)):
                raise TypeError(
                    f"rename: the new name of {old!r}: expected a str or a tuple of str, found "
                    f"{new!r}"
                )
            path = [new] if isinstance(new, str) else list(new)
            if not path or not all(isinstance(key, str) and key for key in path):
                raise ValueError(f"rename: new name: expected a non-empty str, found {new!r}")
            pairs.append((column_name("rename", old), [text("rename", key) for key in path]))
        view = self._view(("rename", (pairs,)))
        _check_validity_names(view.schema, {tuple(new): old for old, new in pairs})
        return view

    def shuffle(self, seed: int) -> Dataset:
        """Returns the rows in the order of ``tenfold.permutation(len(self), seed, 0)``.

        The order is computed on access: this call takes the same time and memory for any number of
        rows.

        Args:
            seed: 0 to 2**64 - 1.

        Returns:
            Dataset: A view.

        Raises:
            TypeError: If `seed` is not an int.
            ValueError: If `seed` is out of range.

        Example:
            >>> sample = ds.shuffle(seed=7).head(1000)
        """
        return self.split([len(self)], integer("shuffle: seed", seed, 0, UINT64_MAX))[0]

    def head(self, n: int = 5) -> Dataset:
        """Returns a view of the first rows.

        Args:
            n: Maximum number of rows.

        Returns:
            Dataset: A view of n rows, or of all if there are fewer.

        Raises:
            TypeError: If `n` is not an int.
            ValueError: If `n` is negative.

        Example:
            >>> ds.head(2)["price"]
            tensor([12.5000, 99.0000])
        """
        return self.range(0, integer("head: n", n, 0))

    def shard(self, *, rank: int, world_size: int) -> Dataset:
        """Returns the contiguous part of one rank; the lengths of parts differ by at most one.

        Args:
            rank: 0 to ``world_size - 1``.
            world_size: Number of parts.

        Returns:
            Dataset: A view.

        Raises:
            TypeError: If an argument is not an int.
            ValueError: If `rank` or `world_size` is out of range.

        Example:
            >>> part = ds.shard(rank=0, world_size=4)
        """
        rank, world_size = integer("shard: rank", rank), integer("shard: world_size", world_size)
        return self._view(("shard", (rank, world_size)))

    def map(self, function: Transform, *, batched: bool = False) -> Dataset:
        """Returns a view that applies `function` to rows on access.

        Args:
            function: Maps a row dict to a row; the results are stacked into batches.
            batched: `function` maps batch dicts to batch dicts with the same number of rows.

        Returns:
            Dataset: A view. ``len`` and the creation of other views, except by `filter` with a
                function, do not call `function`.

        Raises:
            TypeError: If `function` is not callable.
            ValueError: On access, if a batched function returns another number of rows, or a
                function returns rows with different keys for one batch.

        Example:
            >>> tripled = ds.map(lambda row: {"price": row["price"] * 3})
            >>> tripled[0].keys()
            dict_keys(['price'])
        """
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._maps = (*self._maps, _Map(callable_or_error("map: function", function), batched))
        return view

    # --- conversions ---

    def save(
        self,
        path: PathLike,
        *,
        format: str | None = None,
        overwrite: bool = True,
        durable: bool = True,
        num_threads: int | None = None,
        progress: Progress = None,
    ) -> Path:
        """Writes the rows as a new data set, atomically, as `tenfold.ingest` does.

        Columns keep their types and units. If there are functions of `map`, they are applied, and
        the types of their results are inferred as by `ingest`: units are lost, and missing floats
        become NaN.

        Args:
            path: Target path. It may be the path that this data set was opened from, unless a data
                set at this path is open with mode ``"r+"``.
            format: As for `tenfold.save`. None: the suffix of `path` selects it; without a known
                suffix, a folder is written. For formats other than ``"memmap"``, the rows are
                first written to a temporary folder next to `path`.
            overwrite: If false, an existing `path` is an error.
            durable: fsync before returning.
            num_threads: Has no effect; accepted because `tenfold.save` has it.
            progress: As for `tenfold.save`.

        Returns:
            Path: `path`.

        Raises:
            FileExistsError: If `path` exists and `overwrite` is false. If a folder is to be
                written, also if `path` is a file, or a folder with files that are not part of a
                saved tree.
            IsADirectoryError: If a file is to be written, and `path` is a folder.
            OSError: If a system call failed, or a data set at `path` is open with mode ``"r+"``.
            UnsupportedError: If the format cannot store a data set, or a column of it.

        Example:
            >>> ds.filter(ds["price"] < 100).save("cheap")
            PosixPath('cheap')
        """
        from tenfold.dataset._ingest.save import save_rows

        return save_rows(
            self,
            path_argument("save(path)", path),
            format=format,
            overwrite=overwrite,
            durable=durable,
            num_threads=num_threads,
            progress=progress,
        )

    _save_rows = save  # called by `tenfold.save`

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the rows to a consumer of Arrow's C stream interface.

        pyarrow, pandas, polars and DuckDB call it to read a data set, in batches of up to 65,536
        rows. If the rows are contiguous in one folder, file or tree in memory, and not in a
        circular buffer, the arrays point into the mapped files or the tensors, and keep these
        alive. Otherwise, and for columns that are not contiguous, the rows are copied, batch by
        batch. Bools, validity and offsets are always copied. Strings are large_string, bytes
        large_binary, ragged rows large_list, rows of a fixed shape fixed_size_list, nested records
        structs; missing values are nulls.

        Args:
            requested_schema: Ignored, as the interface allows.

        Raises:
            UnsupportedError: If a dtype has no Arrow type (bfloat16, float8, float4, complex), a
                dimension of a row exceeds 2**31 - 1, a column name contains a null character, or
                the rows are mapped by functions.
        """
        return self._arrow_stream(copy=False)

    def _arrow_stream(self, copy: bool) -> object:
        if self._maps:
            raise UnsupportedError(
                "data set: Arrow reads the stored rows: expected no map(), found "
                f"{len(self._maps)}; save() the mapped rows and open them"
            )
        return self._native.arrow_stream(copy)

    def to_arrow(self) -> Any:
        """Returns a ``pyarrow.Table`` of all rows, copied into memory.

        Raises:
            ImportError: If pyarrow is not installed.
            UnsupportedError: As for `__arrow_c_stream__`.

        Example:
            >>> ds.head(1000).to_arrow().num_rows
            1000
        """
        import pyarrow

        reader = pyarrow.RecordBatchReader._import_from_c_capsule(self._arrow_stream(copy=True))
        return reader.read_all()

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame`` of all rows, copied into memory through pyarrow.

        Nullable columns of integers and bools have the nullable dtypes of pandas, such as
        ``Int64`` and ``boolean``; other columns of numbers have NumPy dtypes. A missing float is
        NaN. Records are dicts. Times are integers, as they are stored; the schema has their unit.

        Raises:
            ImportError: If pandas or pyarrow is not installed.
            UnsupportedError: As for `__arrow_c_stream__`.

        Example:
            >>> ds.select(["price", "origin"]).to_pandas().columns.tolist()
            ['price', 'origin']

            A column of times, as pandas has it:

            >>> frame["time"] = pandas.to_datetime(  # doctest: +SKIP
            ...     frame["time"], unit=ds.schema["time"].unit
            ... )
        """
        import pandas

        table = self.to_arrow()
        # By default, pyarrow converts integers with nulls to float64, and bools with nulls to
        # objects.
        nullable = [
            field.name
            for field in table.schema
            if field.nullable and str(field.type) in _NULLABLE_DTYPES
        ]
        frame = table.drop_columns(nullable).to_pandas(integer_object_nulls=True)
        if not nullable:
            return frame
        frame_of_nullable = table.select(nullable).to_pandas(
            types_mapper=lambda kind: pandas.api.types.pandas_dtype(_NULLABLE_DTYPES[str(kind)])
        )
        return pandas.concat([frame, frame_of_nullable], axis=1)[table.column_names]

    # --- pickling ---

    def __reduce__(self) -> tuple[Any, ...]:
        maps = tuple((step.function, step.batched) for step in self._maps)
        if self._joined is not None:
            return _pickle.joined_dataset, (*self._joined, self._steps, maps, self._framework)
        if self._path is None:
            raise UnsupportedError(
                "data set: it cannot be pickled: expected a data set that was opened from a path, "
                "found one over a tree in memory; save it first"
            )
        identity = self._native.identity()
        return _pickle.dataset, (
            self._path,
            self._mode,
            identity,
            self._rows,
            self._steps,
            maps,
            self._framework,
        )


def reopened(
    path: str,
    mode: Mode,
    identity: tuple[bytes, int, int, int] | None,
    rows: int | None,
    steps: _pickle.Steps,
    maps: _pickle.Maps,
    framework: Name | None = None,
) -> Dataset:
    """Opens a pickled data set or view.

    A view does not include rows that were appended after it was created, unless it was made by
    `Dataset.map` only.

    Raises:
        OSError: ESTALE, if the path was replaced since the data set was opened. On another host, or
            after a restart, replacements cannot be detected; the error is then raised if a view
            (other than one made by `map` only) was created from more rows than the data set has.
    """
    dataset = Dataset(path, mode, framework=framework)
    found: Any = dataset._native.identity()
    # Device and inode numbers cannot be compared on another host, or after a restart of the host.
    is_comparable = identity is not None and found is not None and identity[0] == found[0]
    if is_comparable and identity != found:
        raise OSError(errno.ESTALE, "it was replaced since it was opened; open it again", path)
    if rows is not None and len(dataset) < rows:
        raise OSError(
            errno.ESTALE,
            f"it was replaced since its view was made: expected at least {rows} rows, found "
            f"{len(dataset)}; open it again",
            path,
        )
    if rows is not None and len(dataset) > rows:
        dataset = dataset.range(0, rows)
    return _viewed(dataset, steps, maps)


def rejoined(
    datasets: Sequence[Dataset],
    weights: Sequence[float] | None,
    steps: _pickle.Steps,
    maps: _pickle.Maps,
    framework: Name | None = None,
) -> Dataset:
    """Rebuilds the result of `concat` or `mix` from a pickle."""
    joined = concat(datasets) if weights is None else mix(datasets, weights)
    if framework is not None:
        joined = joined._with_framework(framework)
    return _viewed(joined, steps, maps)


def _viewed(dataset: Dataset, steps: _pickle.Steps, maps: _pickle.Maps) -> Dataset:
    for name, arguments in steps:
        if name == "split":
            counts, seed, index = arguments
            dataset = dataset.split(counts, seed)[index]
        else:
            dataset = dataset._view((name, arguments))
    dataset._maps = tuple(_Map(function, batched) for function, batched in maps)
    return dataset


@set_module("tenfold")
def concat(datasets: Iterable[Dataset]) -> Dataset:
    """Concatenates data sets, without copying rows.

    Args:
        datasets: Data sets or views with the same columns.

    Returns:
        Dataset: A view of all rows. Its pickle contains the data sets.

    Raises:
        TypeError: For arguments other than data sets.
        ValueError: If there is no data set, a column differs between the data sets or some lack it
            (the message names it), or they are mapped by different functions.

    Example:
        >>> len(tenfold.concat([ds, ds.head(10)]))
        1010
    """
    parts = _parts("concat", datasets)
    native = _core.Dataset.concat([part._native for part in parts])
    return _join(native, _Joined(parts, None))


@set_module("tenfold")
def mix(datasets: Iterable[Dataset], weights: Sequence[float]) -> Dataset:
    """Interleaves the rows of several data sets, each in its own order.

    In every prefix of the result, the number of rows of each source differs from its share of the
    prefix by at most one. Shares without a common denominator up to 65,536 are first rounded to
    multiples of 1/65,536. The result ends when a source has no row left for its next turn.

    Args:
        datasets: Data sets or views with the same columns.
        weights: Shares of the sources, one for each, 0 or more; they need not sum to 1. At least
            one must be positive.

    Returns:
        Dataset: A view of the interleaved rows.

    Raises:
        TypeError: For arguments other than data sets, and for weights of a type that float()
            refuses.
        ValueError: If there is no data set, a column differs between the data sets or some lack it,
            they are mapped by different functions, or the weights are invalid.

    Example:
        >>> mixed = tenfold.mix([ds.range(0, 500), ds.range(500, 1000)], [0.8, 0.2])
    """
    weights = [float(weight) for weight in weights]
    parts = _parts("mix", datasets)
    native = _core.Dataset.mix([part._native for part in parts], weights)
    return _join(native, _Joined(parts, tuple(weights)))


def _parts(where: str, datasets: Iterable[Dataset]) -> tuple[Dataset, ...]:
    if isinstance(datasets, (Dataset, str)) or not isinstance(datasets, Iterable):
        raise TypeError(
            f"{where}: expected a list of data sets, found a single {type(datasets).__name__}"
        )
    parts = tuple(datasets)
    for part in parts:
        if not isinstance(part, Dataset):
            raise TypeError(
                f"{where}: expected data sets, found {type(part).__name__}; open a folder with "
                "tenfold.Dataset(path)"
            )
    return parts


def _join(native: Any, parts: _Joined) -> Dataset:
    maps = {dataset._maps for dataset in parts.datasets}
    if len(maps) > 1:
        raise ValueError(
            "concat or mix: expected data sets with the same functions of map(), found different "
            "ones; call map() on the result instead"
        )
    joined = object.__new__(Dataset)
    joined._native = native
    joined._path = None
    joined._mode = "r"
    joined._steps = ()
    joined._rows = None
    joined._framework = parts.datasets[0]._framework
    (joined._maps,) = maps
    # Rows that are appended to a part later are not included in the joined data set.
    fixed = {id(dataset): _fixed(dataset) for dataset in parts.datasets}
    datasets = tuple(fixed[id(dataset)] for dataset in parts.datasets)
    joined._joined = _Joined(datasets, parts.weights)
    return joined


def _fixed(dataset: Dataset) -> Dataset:
    """A view of the current rows if rows may be appended later; otherwise `dataset` itself."""
    is_fixed = dataset._steps or dataset._joined is not None or dataset._path is None
    return dataset if is_fixed else dataset.range(0, len(dataset))


def _check_validity_names(schema: Schema, renamed: dict[tuple[str, ...], str]) -> None:
    """Raises ValueError if a column got the name of the validity of a nullable column.

    Args:
        schema: The columns after `Dataset.rename`.
        renamed: New to old names.
    """
    leaves = dict(schema._by_keys())
    for keys, column in leaves.items():
        flags = _validity(keys)
        if not column.nullable or flags not in leaves:
            continue
        old, old_flags = (renamed.get(name, ".".join(name)) for name in (keys, flags))
        if old_flags != validity_name(old):
            raise ValueError(
                f'rename: column "{old_flags}": expected another name than that of the validity '
                f'of the column "{".".join(keys)}", found "{".".join(flags)}"'
            )


def _counts_of(sizes: Sequence[float], total: int) -> list[int]:
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise TypeError(
            f"split: sizes: expected a list such as [0.9, 0.1] or [{total}, 0], found {sizes!r}"
        )
    sizes = list(sizes)
    if all(isinstance(size, Integral) for size in sizes):
        return [integer("split: size", size) for size in sizes]
    if not all(isinstance(size, Real) for size in sizes):
        raise TypeError(f"split: sizes: expected numbers, found {sizes}")
    if not abs(sum(sizes) - 1) <= 1e-9 * max(len(sizes), 1):
        raise ValueError(f"split: sizes: expected fractions that sum to 1, found {sizes}")
    if min(sizes) < 0:
        raise ValueError(f"split: sizes: expected fractions of 0 or more, found {sizes}")
    counts = []
    given = 0
    share = 0.0
    for size in sizes:
        share += size
        until = round(share * total)
        counts.append(until - given)
        given = until
    counts[-1] += total - given
    return counts


def _single(function: Transform, row: Any) -> Any:
    """Applies a batched function to a single row."""
    batch = function(
        _map_leaves(row, lambda value: value[None] if hasattr(value, "shape") else [value])
    )
    check_rows(batch, 1)
    return sample_of(batch, 0)


def _map_leaves(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map_leaves(item, function) for key, item in value.items()}
    return function(value)


def _reshaped(value: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _reshaped(item, shape) for key, item in value.items()}
    if is_jagged(value) or not hasattr(value, "reshape"):
        raise UnsupportedError(
            f"data set: strings or ragged rows in a batch of shape {shape}: expected indices of "
            f"one dimension, found {len(shape)} dimensions"
        )
    return value.reshape(*shape, *value.shape[1:])


def _entry(batch: Any, name: str) -> Any:
    """Finds the column of a dotted name, which may be inside nested records.

    Raises:
        KeyError: If there is none.
        TypeError: If a function of `map` returned a tensor, array, list or tuple.
    """
    # An array of numpy may have named fields.
    is_unnamed = is_array(batch) and not getattr(batch.dtype, "names", None)
    if is_unnamed or isinstance(batch, (list, tuple)):
        raise TypeError(
            f'column "{name}": expected dicts as the results of map(), found {type(batch).__name__}'
        )
    record, _, rest = name.partition(".")
    if not rest or name in batch or record not in batch or not hasattr(batch[record], "keys"):
        return batch[name]
    return _entry(batch[record], rest)


def _listed(values: Any) -> list[int]:
    return values if isinstance(values, list) else values.tolist()


def _is_text(dtype: str) -> bool:
    return dtype in ("string", "bytes")

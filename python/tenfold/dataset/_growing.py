"""Rows that are added to a data set, and changed in it."""

from __future__ import annotations

from contextlib import contextmanager

from tenfold._closing import Closing
from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import bytes_of
from tenfold.dataset._indexing import positions_of
from tenfold.dataset._rows_in import Columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import Self

    from tenfold.dataset._schema import Schema

# Rows that `extend` commits at once, and about how many bytes: their columns are made of copies.
_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 8 << 20


class Growing(Closing):
    """The part of `Dataset` that writes. All of it needs mode ``"r+"`` and the data set itself."""

    _native: Any
    _path: str | None
    _mode: str
    _steps: tuple[Any, ...]
    _maps: tuple[Any, ...]
    _columns_in: Columns | None = None

    @property
    def schema(self) -> Schema:
        """What `Dataset` says that its columns are."""
        raise NotImplementedError

    def append(self, rows: Any) -> int:
        """Adds rows behind those there are; in a ring, over the oldest ones.

        They are one commit: whoever opens or refreshes the data set afterwards sees all of them.
        They survive the death of this process; a power loss only after `flush` or `close`. One
        process appends at a time.

        >>> ds.append({"x": torch.rand(3), "name": "Ann"})                          # a row
        >>> ds.append({"x": torch.rand(256, 3), "name": ["Ann"] * 256})             # a batch
        >>> ds.append([{"x": [1, 2, 3], "name": "Ann"}, {"x": [4, 5, 6], "name": "Bob"}])

        Args:
            rows: A dict or TensorDict whose values have the columns' row shapes (one row) or one
                more leading dimension, equal in all (a batch); or a list of row dicts. Rows of
                unequal length are 1-d in a row; in a batch a list, a jagged ``torch.nested``
                tensor, or ``{"values", "offsets"}``. None: missing, of a nullable column.

        Returns:
            int: the new ``len(self)``.

        Raises:
            ValueError: For a column that is missing, unknown or does not fit; nothing is appended.
            UnsupportedError: On a view, or a data set that was opened to read.
            OSError: If another process is appending, naming it, or the disk is full.
        """
        self._require_writer("append")
        if type(rows) is dict and (length := self._native.append_tensors(rows)) is not None:
            return int(length)
        with self._named():
            size, columns, _ = self._columns().take(rows)
        return int(self._native.append(size, columns))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What is wrong with rows is told with the data set that they are for."""
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError or self._path is None:
                raise
            raise ValueError(f"{self._path}: {error}") from None

    def write(self, rows: Any) -> int:
        """The same as `append`, as one says of a ring."""
        return self.append(rows)

    def extend(self, rows: Iterable[Any]) -> int:
        """Appends what an iterable gives: row dicts, thousands or MiB to a commit, or batches.

        Returns:
            int: the new ``len(self)``.

        Raises:
            ValueError: As `append`; the rows of earlier commits stay.
        """
        self._require_writer("extend")
        columns = self._columns()
        waiting: list[Any] = []
        num_bytes = 0
        for item in rows:
            with self._named():
                is_row = columns.is_row(item)
            if is_row:
                waiting.append(item)
                num_bytes += bytes_of(item)
            if waiting and (
                not is_row or len(waiting) == _ROWS_AT_ONCE or num_bytes >= _BYTES_AT_ONCE
            ):
                self.append(waiting)
                waiting, num_bytes = [], 0
            if not is_row:
                self.append(item)
        if waiting:
            self.append(waiting)
        return len(self)

    def __len__(self) -> int:
        return len(self._native)

    def __setitem__(self, index: Any, rows: Any) -> None:
        """Writes rows in place, through to the file: many processes may write disjoint rows.

        Not atomic: a reader, and a kill, may find a row half written. No checksum vouches for the
        data set's tensors afterwards. Columns that `rows` leaves out stay as they are.

        >>> ds[5] = {"x": torch.zeros(3)}
        >>> ds[[1, 2]] = {"x": torch.zeros(2, 3), "y": [0, 1]}

        Args:
            index: An int: `rows` is a row. A slice, list, tensor or array: `rows` is a batch, or a
                row that all of them become.
            rows: As `append` takes them.

        Raises:
            IndexError: For a row that is not there.
            ValueError: For values that do not fit, or another number of rows.
            UnsupportedError: For text and rows of unequal length; on a view, or a data set that was
                opened to read.
        """
        self._require_writer("rows in place")
        positions = positions_of(index, len(self))
        with self._named():
            size, columns, single = self._columns().take(rows, some=True)
        if isinstance(positions, int):
            if not single:
                raise ValueError(f"data set: expected one row for one index, found {size}")
            numbers: Any = [positions]
        elif isinstance(positions, slice):
            numbers = list(range(positions.start, positions.stop))
        else:
            numbers = positions.values
        if single and len(numbers) != 1:
            for number in [int(number) for number in numbers]:
                self._native.update([number], 1, columns)
            return
        self._native.update(numbers, size, columns)

    def flush(self) -> None:
        """Brings every row to the device: a power loss takes none of them any more.

        tensordict, which reads meta.json alone, sees the rows of the last flush.
        """
        self._require_writer("flush")
        self._native.flush()

    def close(self) -> None:
        """`flush`, and lets another process append. Reading goes on; twice is fine.

        Without it the rows that were appended are there all the same, but not yet durable.
        """
        if self._mode == "r+" and not self._steps and not self._maps:
            self._native.close()

    def refresh(self) -> Self:
        """Sees the rows that other processes have added since; returns itself.

        Batches and columns that were handed out before stay as they are.

        Raises:
            UnsupportedError: On a view: refresh the data set it was made of.
        """
        self._require_whole("refresh")
        self._native.refresh()
        return self

    @property
    def capacity(self) -> int | None:
        """The rows that a ring has room for; None if it is none."""
        return int(self._native.capacity()) or None

    @property
    def cursor(self) -> int:
        """The slot of a ring that the next row is written to; otherwise ``len(self)``."""
        return int(self._native.cursor())

    def _columns(self) -> Columns:
        if self._columns_in is None:
            self._columns_in = Columns(self.schema)
        return self._columns_in

    def _require_whole(self, what: str) -> None:
        if not self._steps and not self._maps:
            return
        raise UnsupportedError(
            f"data set: {what}: expected a data set as it was opened, found a view; use the one it "
            "was made of"
        )

    def _require_writer(self, what: str) -> None:
        self._require_whole(what)
        if self._mode == "r+":
            return
        raise UnsupportedError(
            f'data set: {what}: expected one opened with mode "r+", found mode "{self._mode}"; '
            'Dataset(path, mode="r+")'
        )

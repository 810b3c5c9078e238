"""Ray Data: reads data sets in row ranges, and writes them in parts from many workers.

>>> import tenfold.ray
>>> ds = tenfold.ray.read("flights", columns=["price"])
>>> tenfold.ray.write(ds.filter(lambda row: row["price"] > 0), "paid")
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Iterable, Mapping

try:
    import pyarrow as pa
    import ray.data
    from ray.data import Datasink, Datasource
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import ReadTask
    from ray.data.extensions import ArrowTensorArray
except ImportError as error:
    raise ImportError('tenfold.ray needs Ray Data: pip install "tenfold[ray]"') from error

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._options import column_names
from tenfold._paths import exists
from tenfold.dataset import Column, Dataset, Schema, commit_parts, ingest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    PathLike = str | os.PathLike[str]

__all__ = ["TenfoldDatasink", "TenfoldDatasource", "read", "write"]

_ROWS_PER_TASK = 65_536
_BLOCK_BYTES = 128 << 20


class TenfoldDatasource(Datasource):  # type: ignore[misc]
    """The rows of a data set, for `ray.data.read_datasource`.

    Each read task reads consecutive rows: at most 65,536, and no more than fit into a block of Ray
    at the average size of a row, but at least one row. The workers open the data set by its path,
    so all nodes need access to it.

    Args:
        path: Path of a data set, in any format that `tenfold.Dataset` reads.
        columns: Names of the columns to read; for nested records, only the outermost name. None:
            all columns.

    Raises:
        KeyError: For a column that does not exist.

    Example:
        >>> rows = ray.data.read_datasource(TenfoldDatasource("flights", columns=["price"]))
    """

    def __init__(self, path: PathLike, columns: Iterable[str] | None = None) -> None:
        super().__init__()
        dataset = Dataset(path, framework="numpy")
        names = column_names("tenfold.ray: columns", columns)
        self._dataset = dataset.select(names) if columns is not None else dataset
        self._path = os.path.abspath(os.fsdecode(path))
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """The name in Ray's progress bars."""
        return "Tenfold"

    def estimate_inmemory_data_size(self) -> int:
        """Total size of the columns in bytes."""
        return int(self._projected()._native.num_bytes())

    def supports_projection_pushdown(self) -> bool:
        """True: unused columns are not read. If no column is used, only one column is read."""
        return True

    def _projected(self) -> Dataset:
        names = self._get_data_columns()
        # Without columns, Ray only needs the number of rows, which one column determines.
        return (
            self._dataset
            if names is None
            else self._dataset.select(names or self._dataset.columns[:1])
        )

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        """Splits the rows into at most `parallelism` ranges, or more if these would be too large.

        Args:
            parallelism: The number of tasks that Ray requests.
            per_task_row_limit: Ray's limit of rows per task, which is passed to each `ReadTask`.
            data_context: Ray's context, whose ``target_max_block_size`` is the limit of a range in
                bytes. If the context or the limit is None, the limit is 128 MiB.

        Returns:
            list[ReadTask]: One task for each range, in the order of the rows.
        """
        dataset = self._projected()
        has_columns = self._get_data_columns() != []
        num_rows, num_bytes = len(dataset), int(dataset._native.num_bytes())
        most = getattr(data_context, "target_max_block_size", None) or _BLOCK_BYTES
        rows_of_block = most * max(num_rows, 1) // max(num_bytes, 1)
        even = -(-num_rows // max(parallelism, 1))
        step = max(1, min(_ROWS_PER_TASK, rows_of_block, even))
        schema = _blocks_of(dataset.range(0, 0), has_columns)[0].schema
        tasks = []
        for begin in range(0, num_rows, step):
            view = dataset.range(begin, begin + step)
            metadata = BlockMetadata(
                num_rows=len(view),
                size_bytes=num_bytes * len(view) // num_rows,
                exec_stats=None,
                input_files=(self._path,),
            )
            read_rows = functools.partial(_blocks_of, view, has_columns)
            tasks.append(ReadTask(read_rows, metadata, schema, per_task_row_limit))
        return tasks


def _blocks_of(view: Dataset, has_columns: bool) -> list[pa.Table]:
    """The rows as one block; without columns if `has_columns` is false.

    A column whose rows have dimensions is a tensor column of Ray, unless the column is ragged or
    nullable. All other columns are Arrow columns.
    """
    table = view.to_arrow()
    if not has_columns:
        return [table.select([])]
    for number, (name, column) in enumerate(view.schema.items()):
        if not isinstance(column, Column) or column.ragged or column.nullable:
            continue
        if column.shape:
            tensors = ArrowTensorArray.from_numpy(view[name].copy())
            table = table.set_column(number, name, tensors)
    return [table]


class TenfoldDatasink(Datasink[tuple[str, int] | None]):  # type: ignore[misc]
    """Writes blocks as parts of a data set, for `ray.data.Dataset.write_datasink`.

    Each task writes one part into a temporary folder inside the folder of the data set; the
    driver commits the parts of the tasks that succeeded, in the order of the tasks, in one step.
    The job removes the parts of failed and repeated tasks. The next `commit_parts` removes parts
    that a killed job or a failed commit left.

    Args:
        path: Folder of the data set, to which all nodes need access. If it is a data set of parts,
            the rows are appended.
        schema: The columns, as for `tenfold.ingest`. None: the columns of the blocks.

    Example:
        >>> rows.write_datasink(TenfoldDatasink("trips"))
    """

    def __init__(self, path: PathLike, *, schema: Any = None) -> None:
        self._path = os.path.abspath(os.fsdecode(path))
        self._schema = schema
        self._job = f"ray-{uuid.uuid4().hex[:16]}"
        self._lease: Any = None
        self._has_moved_parts = False
        self._creates_folder = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lease": None}

    def get_name(self) -> str:
        """The name in Ray's progress bars."""
        return "Tenfold"

    @property
    def _staging(self) -> str:
        # If the driver was killed, the next `commit_parts` recognises this name and the names that
        # `_of` returns. It removes the folder, and the parts that the job moved but did not commit.
        return os.path.join(self._path, f".{self._job}.tenfold-staging")

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Creates the folder that tasks write to.

        Args:
            schema: Ignored, because each block has its own schema.

        Raises:
            ValueError: If the path is a data set that does not consist of parts.
            OSError: If the path is a file, or a system call failed.
        """
        if not exists(os.path.join(self._path, "%parts.json")):
            _core.part_path(self._path, 0, 1)  # raises if it is a data set in one folder
        self._creates_folder = not exists(self._path)
        os.makedirs(self._path, exist_ok=True)
        name = os.path.basename(self._staging)
        self._lease = _core.Lease.acquire(self._path, f"{name}.lease")
        os.mkdir(self._staging)

    def write(self, blocks: Iterable[Any], ctx: Any) -> tuple[str, int] | None:
        """Writes one part, or nothing if the task has no rows.

        Args:
            blocks: The blocks of the task.
            ctx: Ray's context of the task, with its ``task_idx``.

        Returns:
            The name of the folder and the number of rows of the part; None without rows.

        Raises:
            ValueError, pyarrow.ArrowException: If a block cannot be cast to the columns of the
                first block, or does not fit `schema`.
            UnsupportedError: For a column of an extension type, unless its rows are tensors of one
                shape that have elements.
        """
        tables = _tables_of(blocks)
        first = next(tables, None)
        if first is None:
            return None
        # The name is unique, so a task that runs again does not write into the same folder.
        name = f"{ctx.task_idx:06}-{uuid.uuid4().hex[:8]}"
        batches = (batch for table in _chain_tables(first, tables) for batch in table.to_batches())
        reader = pa.RecordBatchReader.from_batches(first.schema, batches)
        rows = ingest(reader, os.path.join(self._staging, name), schema=self._schema)
        return name, len(rows)

    def on_write_complete(self, write_result: Any) -> None:
        """Publishes the parts of the tasks that succeeded.

        Args:
            write_result: Ray's result; ``write_returns`` lists the results of `write`, by task.

        Raises:
            ValueError: If parts, or a part and the existing data set, differ in the names or types
                of columns, or a column is nullable in a part but not in the existing data set.
            OSError: If another process is changing the data set, or a system call failed.
        """
        written = [part for part in write_result.write_returns if part is not None]
        try:
            names = sorted((name for name, _ in written), key=_task_of)
            self._agree(names)
            self._has_moved_parts = bool(names)
            for name in names:
                os.rename(
                    os.path.join(self._staging, name), os.path.join(self._path, self._of(name))
                )
            if names:
                commit_parts(self._path, [self._of(name) for name in names])
            self._has_moved_parts = False
        finally:
            self._clean()

    def on_write_failed(self, error: Exception) -> None:
        """Removes what the job has written, unless `commit_parts` failed.

        Args:
            error: The exception of the job; ignored.
        """
        self._clean()

    def _of(self, name: str) -> str:
        return f"{self._job}-{_task_of(name):06}"

    def _agree(self, names: list[str]) -> None:
        """Rewrites parts in the staging folder so that all have the same columns.

        A column becomes nullable if it is nullable in any part or in the existing data set. The
        existing data set is not rewritten.

        Raises:
            ValueError: If columns differ in more than `nullable`, or if a column that is not
                nullable in the existing data set is nullable in a part.
        """
        parts = {name: Dataset(os.path.join(self._staging, name)) for name in names}
        schemas = [dict(part.schema) for part in parts.values()]
        is_append = exists(os.path.join(self._path, "%parts.json"))
        if is_append:
            schemas.insert(0, dict(Dataset(self._path).schema))
        if all(schema == schemas[0] for schema in schemas[1:]):
            return
        wanted = functools.reduce(_union, schemas)
        if is_append:
            existing = Schema(schemas[0])._leaves()
            for (name, old), (_, new) in zip(existing, Schema(wanted)._leaves(), strict=True):
                if old != new:
                    raise ValueError(
                        f'{self._path}: column "{name}": expected a block that fits {old} of the '
                        f"data set, found {new}; remove or replace the nulls"
                    )
        for name, part in parts.items():
            if dict(part.schema) != wanted:
                ingest(part, os.path.join(self._staging, name), schema=Schema(wanted))

    def _clean(self) -> None:
        import shutil

        # If the commit failed, only the manifest shows which moved parts are in the data set. The
        # staging folder is kept, so that the next `commit_parts` finds and removes the other parts.
        if not self._has_moved_parts:
            shutil.rmtree(self._staging, ignore_errors=True)
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._creates_folder:
            with contextlib.suppress(OSError):  # it has parts
                os.rmdir(self._path)


def _task_of(name: str) -> int:
    """The number of the task that wrote the folder `name`: 7 for "000007-1f3a5b7c"."""
    return int(name.partition("-")[0])


def _union(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of both schemas; a column that is nullable in one of them is nullable.

    Raises:
        ValueError: If the schemas differ in more than `nullable`.
    """
    if list(a) != list(b):
        raise ValueError(
            "tenfold.ray: columns: expected the same in all blocks and in the data set, found "
            f"{list(a)} and {list(b)}"
        )
    made: dict[str, Any] = {}
    for name in a:
        one, two = a[name], b[name]
        if isinstance(one, Column) and isinstance(two, Column):
            nullable = one.nullable or two.nullable
            made[name] = one._replace(nullable=nullable)
            if made[name] == two._replace(nullable=nullable):
                continue
        elif isinstance(one, Mapping) and isinstance(two, Mapping):
            made[name] = Schema(_union(one, two))
            continue
        raise ValueError(
            f'tenfold.ray: column "{name}": expected one type in all blocks and in the data set, '
            f"found {one} and {two}; select the type with schema="
        )
    return made


def _chain_tables(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    for table in rest:
        yield table if table.schema == first.schema else table.cast(first.schema)


def _tables_of(blocks: Iterable[Any]) -> Iterator[pa.Table]:
    """The blocks that have rows, as tables in which tensors are lists of a fixed size."""
    for block in blocks:
        table = BlockAccessor.for_block(block).to_arrow()
        if table.num_rows == 0:
            continue
        for number, field in enumerate(table.schema):
            if isinstance(field.type, pa.BaseExtensionType):
                table = table.set_column(number, field.name, _lists_of(field, table.column(number)))
        yield table


def _lists_of(field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
    """Rows of a tensor column as nested lists of a fixed size.

    Raises:
        UnsupportedError: If the rows are not tensors of one shape, or have no elements.
    """
    if 0 in getattr(field.type, "shape", (0,)):
        raise UnsupportedError(
            f'tenfold.ray: column "{field.name}": expected numbers, strings, lists or tensors of '
            f"one shape, with elements, found {field.type}"
        )
    tensors = column.combine_chunks()
    if isinstance(tensors, pa.ChunkedArray):
        tensors = pa.concat_arrays(tensors.chunks)
    values = tensors.to_numpy_ndarray()
    lists = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, size)
    return lists


def read(path: PathLike, columns: Iterable[str] | None = None, **options: Any) -> ray.data.Dataset:
    """Opens a data set as a data set of Ray Data.

    Args:
        path: Path of a data set, in any format that `tenfold.Dataset` reads.
        columns: As for `TenfoldDatasource`.
        **options: Options of `ray.data.read_datasource`, such as ``concurrency``.

    Returns:
        ray.data.Dataset: Read lazily.

    Raises:
        KeyError: For a column that does not exist.

    Example:
        >>> rows = tenfold.ray.read("flights", columns=["price"])
    """
    return ray.data.read_datasource(TenfoldDatasource(path, columns), **options)


def write(ds: ray.data.Dataset, path: PathLike, *, schema: Any = None, **options: Any) -> Dataset:
    """Writes a data set of Ray Data to a new data set of parts, or appends to an existing one.

    Args:
        ds: The rows.
        path: Folder of the data set, as for `TenfoldDatasink`.
        schema: The columns, as for `tenfold.ingest`. None: the columns of the blocks.
        **options: Options of `ray.data.Dataset.write_datasink`, such as ``concurrency``.

    Returns:
        Dataset: The data set at `path`, opened.

    Raises:
        ValueError: If the blocks have different columns or do not fit the existing data set, if
            `path` is a data set that does not consist of parts, or if there are neither rows nor a
            data set.

    Example:
        >>> ds = tenfold.ray.write(ray.data.range(1000), "numbers")
    """
    ds.write_datasink(TenfoldDatasink(path, schema=schema), **options)
    if not exists(os.path.join(os.fspath(path), "%parts.json")):
        raise ValueError(f"{os.fsdecode(path)}: expected rows, found none: no data set was created")
    return Dataset(path)

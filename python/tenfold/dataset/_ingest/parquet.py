"""Parquet files, whose columns are decoded in groups.

The decoder of a column holds an encoded page, the decoded page and a dictionary: some MB per
column, however small the batches are. Each column of the data set is a separate file, so the
columns of a wide Parquet file need not be decoded at the same time.
"""

from __future__ import annotations

import json
from functools import partial
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tenfold.dataset._ingest.options import IngestOptions

# Memory in bytes for decoding: the maximum that is assumed for one leaf column (if its pages have
# the usual size), and the maximum of a group of several top-level columns.
_COLUMN_BYTES = 3 << 20
_GROUP_BYTES = 32 << 20
# Sizes in bytes of read buffers: the total for the columns of a group, and the minimum for each
# column, even if the total is then exceeded.
_READ_BYTES = 4 << 20
_LEAST_READ_BYTES = 64 << 10
# Maximum rows, and approximate bytes, of a record batch.
_BATCH_ROWS = 65_536
_BATCH_BYTES = 4 << 20
# Number of rows that are sampled to estimate the lengths of dictionary-encoded strings.
_FIRST_ROWS = 64


class OpenedFile(NamedTuple):
    """A file of record batches.

    Attributes:
        names: Names of all columns.
        schema: Schema of the columns in the batches.
        batches: All batches, in order.
        num_rows: Number of rows of all batches; 0 if the file does not record it.
    """

    names: list[str]
    schema: Any
    batches: Iterator[Any]
    num_rows: int = 0


class _Size(NamedTuple):
    """Estimated sizes in bytes of a column of a file.

    Attributes:
        stored: Uncompressed size in the file.
        decoding: Memory that decoding needs.
        is_shared: True if strings are dictionary-encoded, so that `stored` counts repeated ones
            once.
    """

    stored: int = 0
    decoding: int = 0
    is_shared: bool = False


class ParquetFooter:
    """The footer of a file: the schema, the row groups, and the sizes of columns.

    Raises:
        ArrowInvalid: For a file that is not a Parquet file.
        OSError: For a damaged footer.
    """

    def __init__(self, file: str) -> None:
        from pyarrow import parquet

        self._file = file
        self._metadata = parquet.read_metadata(file)
        self._schema = self._metadata.schema.to_arrow_schema()
        self._sizes = _sizes(self._metadata)

    def groups(self, options: IngestOptions) -> list[list[str] | None]:
        """Groups of columns to decode together.

        Groups of requested columns come first, then groups of other columns, each in the order of
        the file. No group has both requested and other columns, so that the other columns need not
        be decoded. Returns ``[None]``, one group of all columns, if a name has a dot or occurs
        twice, or if there are no columns.
        """
        names = self._schema.names
        # pyarrow also interprets a name with dots as a path, so it may select several columns. A
        # duplicate name also selects several columns.
        has_paths = any("." in name for name in names) or len(set(names)) < len(names)
        if has_paths or not names:
            return [None]
        wanted = wanted_of(names, options)
        groups: list[list[str] | None] = []
        is_wanted = set(wanted)
        for some in (wanted, [name for name in names if name not in is_wanted]):
            group: list[str] = []
            group_bytes = 0
            for name in some:
                size = self._sizes.get(name, _Size())
                if group and group_bytes + size.decoding > _GROUP_BYTES:
                    groups.append(group)
                    group, group_bytes = [], 0
                group.append(name)
                group_bytes += size.decoding
            if group:
                groups.append(group)
        return groups

    def open(self, names: list[str] | None, num_threads: int | None) -> OpenedFile:
        """Opens the file with these columns; None: all."""
        import pyarrow as pa

        all_names = self._schema.names
        schema = self._schema
        if names is not None:
            there = set(all_names)
            schema = pa.schema([schema.field(name) for name in names if name in there])
        batches = self._batches(names, self._sizes_of(names), num_threads != 1)
        if num_threads != 1:
            batches = _ahead(batches)
        return OpenedFile(all_names, schema, batches, self._metadata.num_rows)

    def num_bytes(self, names: list[str] | None) -> int:
        """Estimated size in bytes of the batches with these columns; None: all."""
        return sum(size.stored for size in self._sizes_of(names).values())

    def _sizes_of(self, names: list[str] | None) -> dict[str, _Size]:
        if names is None:
            return self._sizes
        return {name: self._sizes[name] for name in names if name in self._sizes}

    def _batches(
        self, names: list[str] | None, sizes: dict[str, _Size], use_threads: bool
    ) -> Iterator[Any]:
        from pyarrow import parquet

        buffer_bytes = _READ_BYTES // max(len(sizes), 1)
        opened = parquet.ParquetFile(
            self._file,
            metadata=self._metadata,
            buffer_size=max(_LEAST_READ_BYTES, min(1 << 20, buffer_bytes)),
            pre_buffer=False,
        )
        num_rows = self._metadata.num_rows
        num_bytes = sum(size.stored for size in sizes.values())
        shared = [name for name, size in sizes.items() if size.is_shared]
        if shared:
            first = next(opened.iter_batches(_FIRST_ROWS, row_groups=[0], columns=shared), None)
            if first is not None and first.num_rows > 0:
                num_bytes += first.nbytes * num_rows // first.num_rows
        rows = min(_BATCH_ROWS, _BATCH_BYTES * num_rows // max(num_bytes, 1))
        read = partial(opened.iter_batches, max(rows, 1), columns=names, use_threads=use_threads)
        read_names = set(names or ())
        types = [field.type for field in self._schema if names is None or field.name in read_names]
        if not any(map(_has_categories, types)):
            yield from read()
            return
        # Each row group has its own dictionary, and pyarrow does not unify dictionaries in lists
        # and structs, so read one row group at a time.
        for group in range(self._metadata.num_row_groups):
            yield from read(row_groups=[group])


def wanted_of(names: list[str], options: IngestOptions) -> list[str]:
    """The requested columns, and records that contain them; all if there is no request."""
    if options.columns:
        paths = [one.split(".") for one in options.columns]
        wanted = {".".join(path[: i + 1]) for path in paths for i in range(len(path))}
        return [name for name in names if name in wanted]
    if options.schema is not None:
        asked = json.loads(options.schema)["columns"]
        return [name for name in names if name in asked]
    return names


def _has_categories(kind: Any, is_nested: bool = False) -> bool:
    """True for a nested type, such as a list or struct, that contains a dictionary."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_nested
    return any(_has_categories(kind.field(i).type, True) for i in range(kind.num_fields))


def _sizes(metadata: Any) -> dict[str, _Size]:
    """The estimated size of each top-level column, by its name up to the first dot."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if not groups:
        return {}
    # Examine only the largest row group: examining all of them would take long for large files.
    largest = max(groups, key=lambda group: group.total_byte_size)
    share = sum(group.total_byte_size for group in groups) / max(largest.total_byte_size, 1)
    sizes: dict[str, _Size] = {}
    for i in range(largest.num_columns):
        column = largest.column(i)
        name = column.path_in_schema.partition(".")[0]
        before = sizes.get(name, _Size())
        size = column.total_uncompressed_size
        is_shared = column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page
        sizes[name] = _Size(
            before.stored + int(size * share),
            # The stored page and the decoded page.
            before.decoding + min(2 * size, _COLUMN_BYTES),
            before.is_shared or is_shared,
        )
    return sizes


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields the batches of an iterator; decodes each while the engine writes the previous one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "tenfold-decode") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch

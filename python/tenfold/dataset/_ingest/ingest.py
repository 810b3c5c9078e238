"""`ingest` and `infer_schema`."""

from __future__ import annotations

import os
import warnings

from tenfold import _core
from tenfold._options import INT32_MAX, boolean, column_names, integer_or_zero, path_argument, text
from tenfold._progress import Shown
from tenfold._public import set_module
from tenfold._reports import IngestReport, Promotion
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ingest.options import is_path, refuse_folders
from tenfold.dataset._ingest.text import (
    TEXT_FORMATS,
    checked_format,
    checked_separator,
    text_files,
)
from tenfold.dataset._parts import part_of
from tenfold.dataset._schema import Schema, as_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from tenfold._io.files import PathLike, Progress
    from tenfold.dataset._ingest.text import OnError

FORMATS = (*TEXT_FORMATS, "parquet", "arrow", "npy", "npz")


@set_module("tenfold")
def ingest(
    source: Any,
    path: PathLike,
    *,
    schema: Any = None,
    columns: Iterable[str | tuple[str, ...]] | None = None,
    format: str | None = None,
    na_values: Iterable[str] | None = None,
    separator: str | None = None,
    on_error: OnError = "raise",
    batch_rows: int | None = None,
    num_threads: int | None = None,
    progress: Progress = None,
    overwrite: bool = True,
    durable: bool = True,
    part: tuple[int, int] | None = None,
) -> Dataset:
    """Writes rows as a data set, in bounded memory, and replaces `path` atomically.

    Tensors, arrays, Arrow numbers and data sets keep their dtypes. Types of text files and Python
    values are inferred from the whole source: the first of bool, int64, uint64, float64, string
    that holds all values of a column without loss, and float64 for a column of nulls only. Lists of
    numbers become rows of a fixed shape if all have the same length, other lists ragged rows. Lists
    of objects, lists of lists of strings, and nested lists without a common shape become JSON
    strings. Nested objects become nested records; a missing value makes a column nullable.

    Args:
        source: Files, or globs of them, as a path or a list: JSON lines (``.jsonl``,
            ``.jsonlines``, ``.ndjson``; ``.json``: lines or one array), CSV (``.csv``), TSV
            (``.tsv``, ``.tab``), each also as ``.gz``, ``.zst``, ``.bz2``, ``.xz`` or in a
            ``.zip``; Parquet, Arrow, npy and npz files (an npz file is read into memory); text
            files and other files not in one call. Columns of several files are matched by name;
            Parquet and Arrow files need the same columns, or `columns` or `schema` selects columns
            that all of them have. Columns that only the names of folders have (``k=1/p.parquet``)
            are not read. Or an iterable of dicts, a `Dataset` or a view of one, a map-style data
            set of torch that returns dicts (convert tuples to dicts in a generator), a dict of
            columns or of npy files, a tensor or array (the column ``"value"``) or a tuple of them
            (the columns ``"0"``, ``"1"``, ...), a TensorDict, a table of pandas, polars or pyarrow
            (a LazyFrame is collected in memory), or a Hugging Face data set. A bool tensor
            ``"<column>.valid"`` is the validity of a column.
        path: Target folder. An existing saved tree is replaced when the new data set is complete.
        schema: The columns and their types: a `Schema`, the path of one as JSON, or a dict from
            column to ``dtype``, ``(dtype, shape)``, ``{"dtype", "shape", "ragged", "nullable",
            "unit"}`` or, for a nested record, a dict of columns. Other columns of the data are
            omitted and listed in the report.
        columns: Only these columns, in this order, by (dotted) names; the name of a record selects
            all of its columns. A column ``"a.b"`` takes precedence over column b of a record a;
            from Python rows, both are stored.
        format: The format of all files, regardless of their names: ``"jsonl"`` (or ``"ndjson"``),
            ``"json"``, ``"csv"``, ``"tsv"``, ``"parquet"``, ``"arrow"``, ``"npy"`` or ``"npz"``.
            None: determined for each file, for text files by the suffix, for other files by the
            first bytes or the suffix.
        na_values: For CSV and TSV: unquoted fields equal to one of these strings are missing
            values, like empty fields: ``["NA", "-"]``.
        separator: For CSV and TSV: the character between fields, such as ``";"``. None: the
            character that a first line ``sep=;`` names, otherwise a comma, for TSV a tab. If
            neither this argument nor such a line names it, a header with more semicolons, tabs,
            ``|`` or commas than separators is an error.
        on_error: Handling of bad rows, which are malformed or do not fit the schema. ``"raise"``:
            raise an error. ``"skip"``: omit bad rows, with one warning. ``"collect"``: omit bad
            rows, and list them in ``ds.bad_rows``. With ``"skip"`` and ``"collect"``, a Python row
            is also bad if it conflicts with the types of the rows before it.
        batch_rows: Greatest number of rows that each thread converts at a time. None: some MiB of
            rows.
        num_threads: Threads that parse text files; the number as for `tenfold.save`. With 1,
            Parquet files are decoded without further threads. Other sources ignore it.
        progress: As for `tenfold.save`.
        overwrite: If false, an existing `path` is an error.
        durable: fsync before returning. If false, a power failure soon afterwards may lose the data
            set and the previous one.
        part: ``(index, count)``: this call is one of `count` calls, on any hosts or processes,
            which write a data set together. `source` must be the same files or globs in all calls.
            The files are sorted by path and divided into `count` ranges; this call reads range
            `index`, from 0. A `schema` is required. `tenfold.commit_parts` then creates the data
            set from the parts.

    Returns:
        Dataset: The new data set, or with `part` the new part, with `report` and `bad_rows`.

    Raises:
        CorruptFileError: For a damaged file or, with ``on_error="raise"``, a malformed row; the
            message names file, line, row and, if known, column.
        ValueError: For a value that does not fit, a header with duplicates, a header that
            seems to have another separator, a column of the schema that no row has, no key in any
            row, two columns of the same dotted name (``"a.b"``, and ``"b"`` in the record
            ``"a"``), a nullable column whose ``"<column>.valid"`` is another column but not of
            bools, or an option that is invalid or not for this source.
        TypeError: For an option of another type, or with `part` a source other than files.
        KeyError: For one of `columns` that the data or the schema does not have.
        FileNotFoundError: For a missing source, or a glob without a match.
        IsADirectoryError: For a source that is a folder.
        FileExistsError: If `path` exists and `overwrite` is false, if it is a file or a folder with
            files that are not part of a saved tree, or if the data set has this part already.
        UnsupportedError: For sources of another kind, types that a data set cannot store, and
            sources that need pyarrow if it is not installed.

    Example:
        >>> ds = tenfold.ingest("flights-*.jsonl.gz", "flights")
        >>> len(ds), ds.columns
        (1000, ['price', 'origin'])
    """
    path_argument("ingest(source, path)", path)
    names = column_names("ingest: columns", columns)
    wanted = None if schema is None else as_schema(schema)
    if wanted is not None and not wanted:
        raise ValueError("ingest: schema: expected at least one column, found none")
    on_error = text("ingest: on_error", on_error)  # type: ignore[assignment]
    rows_per_batch = integer_or_zero("ingest: batch_rows", batch_rows)
    threads = integer_or_zero("ingest: num_threads", num_threads, INT32_MAX)
    overwrite = boolean("ingest: overwrite", overwrite)
    durable = boolean("ingest: durable", durable)
    format = checked_format("ingest: format", format, FORMATS)
    missing = column_names("ingest: na_values", na_values, "strings")
    between = checked_separator("ingest: separator", separator)
    if part is not None:
        if wanted is None:
            raise ValueError(
                "ingest: part: expected a schema, which must be equal for all parts, found none"
            )
        source, path = part_of(source, path, part)
        if not source:
            format, missing, between = None, [], ""
    files = text_files(source, format)
    if files is None:
        from tenfold.dataset._ingest.sources import ingest_source

        _refuse_csv_options("ingest", source, missing, between)
        report = ingest_source(
            source,
            path,
            format=format,
            schema=wanted,
            columns=names or None,
            on_error=on_error,
            batch_rows=batch_rows,
            num_threads=num_threads,
            progress=progress,
            overwrite=overwrite,
            durable=durable,
        )
        return _opened(path, report, on_error)
    refuse_folders(files)
    with Shown(progress) as callback:
        report = _core.ingest_files(
            files,
            path,
            None if wanted is None else wanted.to_json(),
            names,
            on_error,
            rows_per_batch,
            threads,
            overwrite,
            durable,
            callback,
            format or "",
            missing,
            between,
        )
    return _opened(path, report, on_error)


@set_module("tenfold")
def infer_schema(
    source: Any,
    *,
    format: str | None = None,
    num_threads: int | None = None,
    na_values: Iterable[str] | None = None,
    separator: str | None = None,
) -> Schema:
    """The schema that `ingest` would infer from the whole of `source`.

    Args:
        source: As for `ingest`, except for an iterator or a reader of record batches, because it
            can be read only once.
        format: As for `ingest`.
        num_threads: As for `ingest`.
        na_values: As for `ingest`.
        separator: As for `ingest`.

    Returns:
        Schema: The columns; `ingest` takes it as ``schema``.

    Raises:
        ValueError: For an iterator or a reader; for an option that is invalid or not for this
            source; for a CSV header with duplicate names, or one that seems to have another
            separator; if no row has a key. For sources other than text files, also for columns of
            different lengths, and for a value that conflicts with the types of the rows before it,
            such as an object in a column of numbers.
        TypeError: For an option of another type.
        CorruptFileError: For a damaged file. Rows of text files that are malformed, or that
            conflict with the rows before them, are ignored.
        FileNotFoundError: For a missing source.
        IsADirectoryError, UnsupportedError: As for `ingest`.

    Example:
        >>> print(tenfold.infer_schema("flights.csv"))
        price: float64
        origin: string?
    """
    threads = integer_or_zero("infer_schema: num_threads", num_threads, INT32_MAX)
    format = checked_format("infer_schema: format", format, FORMATS)
    missing = column_names("infer_schema: na_values", na_values, "strings")
    between = checked_separator("infer_schema: separator", separator)
    files = text_files(source, format)
    if files is None:
        from tenfold.dataset._ingest.sources import infer_source_schema

        _refuse_csv_options("infer_schema", source, missing, between)
        return infer_source_schema(source, format=format, num_threads=num_threads)
    refuse_folders(files)
    return Schema.from_json(_core.infer_files(files, threads, format or "", missing, between))


def _refuse_csv_options(where: str, source: Any, na_values: list[str], separator: str) -> None:
    """Raises ValueError if an option of CSV and TSV files was passed with another source."""
    for name, value in (("na_values", na_values), ("separator", separator)):
        if value:
            found = repr(os.fspath(source)) if is_path(source) else f"a {type(source).__name__}"
            raise ValueError(f"{where}: {name}: expected only with CSV or TSV files, found {found}")


def _opened(path: PathLike, report: Mapping[str, Any], on_error: str) -> Dataset:
    """Opens the written data set, and adds the report. Warns of rows that were skipped."""
    num_bad_rows = report["num_bad_rows"]
    if num_bad_rows and on_error == "skip":
        rows, them = ("1 row", "it") if num_bad_rows == 1 else (f"{num_bad_rows} rows", "them")
        warnings.warn(
            f'{os.fspath(path)}: {rows} omitted: on_error="collect" lists {them}',
            stacklevel=3,
        )
    dataset = Dataset(path)
    dataset.report = IngestReport(
        report["num_rows"],
        num_bad_rows,
        tuple(Promotion(item["column"], item["from"], item["to"]) for item in report["promotions"]),
        tuple(report["ignored"]),
    )
    return dataset

"""Ingest of JSON lines and CSV, against DuckDB, pyarrow and pandas."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
from pathlib import Path

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import torch
from harness import Contender, Goal, Result, compare, fresh

import tenfold

RECORDS = 300_000
DISTINCT = 50_000
PANDAS_SHARE = 10  # pandas gets 1 / PANDAS_SHARE of the lines, because it takes long


def _record(generator: random.Random) -> dict[str, object]:
    record: dict[str, object] = {f"n{i}": generator.randrange(1_000_000) for i in range(6)}
    record |= {f"f{i}": generator.random() * 1000 for i in range(32)}
    record["name"] = f"row {generator.randrange(100_000)}"
    return record


def write_lines(path: Path, records: int = RECORDS) -> int:
    """Writes records: 6 integers, 32 floats of about 17 digits, a string. Returns the file size."""
    generator = random.Random(7)
    lines = [json.dumps(_record(generator)) + "\n" for _ in range(DISTINCT)]
    with path.open("w") as file:
        for begin in range(0, records, DISTINCT):
            file.writelines(lines[: min(DISTINCT, records - begin)])
    return path.stat().st_size


def write_csv(path: Path) -> int:
    generator = random.Random(7)
    rows = [_record(generator) for _ in range(DISTINCT)]
    text = io.StringIO()
    for row in rows:
        text.write(",".join(str(value) for value in row.values()) + "\n")
    with path.open("w") as file:
        file.write(",".join(rows[0]) + "\n")
        for _ in range(RECORDS // DISTINCT):
            file.write(text.getvalue())
    return path.stat().st_size


class Maps:
    """Memory-mapped columns with a known number of rows, as users would write them.

    Strings are stored as bytes and end offsets.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.rows, self.done, self.last = folder, rows, 0, 0
        self.maps: dict[str, np.memmap] = {}

    def append(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_string(column.type):
                self._append_text(name, column)
                continue
            values = column.to_numpy(zero_copy_only=False)
            self._map(name, values.dtype)[self.done : self.done + len(values)] = values
        self.done += batch.num_rows

    def _map(self, name: str, dtype: np.dtype) -> np.memmap:
        if name not in self.maps:
            path = self.folder / f"{name}.memmap"
            self.maps[name] = np.memmap(path, dtype, "w+", shape=(self.rows,))
        return self.maps[name]

    def _append_text(self, name: str, column: pa.Array) -> None:
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        with (self.folder / f"{name}.memmap").open("ab") as text:
            text.write(memoryview(column.buffers()[2])[offsets[0] : offsets[-1]])
        ends = self._map(f"{name}.end", np.dtype(np.int64))
        ends[self.done : self.done + len(column)] = offsets[1:].astype(np.int64) + (
            self.last - offsets[0]
        )
        self.last = int(ends[self.done + len(column) - 1])


def pyarrow_lines(source: Path, target: Path) -> None:
    maps = Maps(target, RECORDS)
    with pyarrow.json.open_json(source) as reader:
        for batch in reader:
            maps.append(batch)


def pyarrow_csv(source: Path, target: Path) -> None:
    maps = Maps(target, RECORDS)
    with pyarrow.csv.open_csv(source) as reader:
        for batch in reader:
            maps.append(batch)


def pandas_lines(source: Path, target: Path) -> None:
    maps = Maps(target, RECORDS // PANDAS_SHARE)
    table = pa.Table.from_pandas(pandas.read_json(source, lines=True)).combine_chunks()
    for batch in table.to_batches():
        maps.append(batch)


def _duckdb(source: Path, target: Path, threads: int) -> None:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    connection.execute(
        f"COPY (SELECT * FROM read_json('{source}', format='newline_delimited')) "
        f"TO '{target}' (FORMAT parquet)"
    )


def has_duckdb() -> bool:
    try:
        import duckdb  # noqa: F401
    except ImportError:
        print("ingest_lines leaves out DuckDB: `pip install duckdb` installs it")
        return False
    return True


def ingest_lines(work: Path, repetitions: int) -> Result:
    source, few = work / "rows.jsonl", work / "few.jsonl"
    num_bytes = write_lines(source)
    write_lines(few, RECORDS // PANDAS_SHARE)
    ours, theirs, parquet = work / "ours", work / "theirs", work / "theirs.parquet"

    def tenfold_on(threads: int, durable: bool = False) -> Contender:
        return Contender(
            lambda: tenfold.ingest(
                source, ours, num_threads=threads, durable=durable, progress=False
            ),
            lambda: fresh(ours),
        )

    # Except for one contender, tenfold saves without fsync, because pyarrow and pandas do not call
    # it either.
    contenders = {
        "tenfold, 1 thread": tenfold_on(1),
        "tenfold, 2 threads": tenfold_on(2),
        "tenfold, 2 threads, durable": tenfold_on(2, durable=True),
        "pyarrow, streamed -> memmap": Contender(
            lambda: pyarrow_lines(source, theirs), lambda: fresh(theirs)
        ),
        f"pandas -> memmap, 1/{PANDAS_SHARE} of the lines": Contender(
            lambda: pandas_lines(few, theirs), lambda: fresh(theirs)
        ),
    }
    goals = [Goal("tenfold, 2 threads", "pyarrow, streamed -> memmap", 3.0)]
    if has_duckdb():
        for threads, wanted in ((1, 1.6), (2, 1.4)):
            plural = "s" if threads > 1 else ""
            name = f"DuckDB -> Parquet, {threads} thread{plural}"
            contenders[name] = Contender(
                lambda threads=threads: _duckdb(source, parquet, threads), lambda: fresh(parquet)
            )
            goals.append(Goal(f"tenfold, {threads} thread{plural}", name, wanted))
    pandas_name = f"pandas -> memmap, 1/{PANDAS_SHARE} of the lines"
    goals.append(
        Goal(
            "tenfold, 1 thread",
            pandas_name,
            10 / PANDAS_SHARE,
            text=f"tenfold, 1 thread, against pandas with 1/{PANDAS_SHARE} of the lines",
        )
    )
    return compare(
        "ingest_lines",
        f"JSON lines to columns on disk, {num_bytes / 1e6:.0f} MB, 38 numbers and a text a record",
        contenders,
        goals,
        repetitions,
    )


def ingest_csv(work: Path, repetitions: int) -> Result:
    source = work / "rows.csv"
    num_bytes = write_csv(source)
    ours, theirs = work / "ours", work / "theirs"
    return compare(
        "ingest_csv",
        f"CSV to columns on disk, {num_bytes / 1e6:.0f} MB, 38 numbers and a text a record",
        {
            "tenfold": Contender(
                lambda: tenfold.ingest(source, ours, durable=False, progress=False),
                lambda: fresh(ours),
            ),
            "pyarrow.csv -> memmap": Contender(
                lambda: pyarrow_csv(source, theirs), lambda: fresh(theirs)
            ),
        },
        [Goal("tenfold", "pyarrow.csv -> memmap", 1.2)],
        repetitions,
    )


STREAMED = 20_000


def plain_rows(source: Path) -> int:
    """Reads lines as users would: with json, and one tensor for each number."""
    count = 0
    with source.open() as lines:
        for line in lines:
            record = json.loads(line)
            row = {
                key: value if isinstance(value, str) else torch.tensor(value)
                for key, value in record.items()
            }
            count += len(row) > 0
    return count


def hugging_face_rows(source: Path) -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    stream = datasets.load_dataset("json", data_files=str(source), split="train", streaming=True)
    return sum(1 for _ in stream.with_format("torch"))


def stream_lines(work: Path, repetitions: int) -> Result:
    source = work / "rows.jsonl"
    write_lines(source, STREAMED)
    schema = tenfold.infer_schema(source)

    def rows() -> int:
        return sum(1 for _ in tenfold.IterableDataset(source, schema=schema))

    contenders = {
        "tenfold.IterableDataset": Contender(rows),
        "json and torch.tensor": Contender(lambda: plain_rows(source)),
    }
    goals = [Goal("tenfold.IterableDataset", "json and torch.tensor", 3.0)]
    if importlib.util.find_spec("datasets") is not None:
        name = "Hugging Face, streaming"
        contenders[name] = Contender(lambda: hugging_face_rows(source))
        goals.append(Goal("tenfold.IterableDataset", name, 3.0))
    result = compare(
        "stream_lines",
        f"Read {STREAMED:,} rows as tensors directly from JSON lines, "
        "38 numbers and a string per record",
        contenders,
        goals,
        repetitions,
    )
    for name, timing in result.timings.items():
        result.notes.append(f"{name}: {STREAMED / timing.minimum:,.0f} rows a second")
    return result


ALL = [ingest_lines, ingest_csv, stream_lines]

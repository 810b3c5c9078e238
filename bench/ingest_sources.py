"""Ingest of Parquet files and of dicts in memory, against pyarrow and numpy's memory maps.

    python bench/ingest_sources.py             both benchmarks, about a minute
    python bench/ingest_sources.py --rows 0.2  a fifth of the rows

Reports CPU times in addition to wall times: other work on the machine affects CPU times less.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Contender, Goal, Result, compare, fresh, fresh_folder

import tenfold

PARQUET_ROWS = 1_000_000
DICT_ROWS = 500_000
FLOATS = 38


class CpuTime:
    """The CPU seconds of all threads for each contender."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def of(self, name: str, run: Callable[[], object]) -> Callable[[], object]:
        def timed() -> object:
            before = _cpu_seconds()
            result = run()
            self.seconds.setdefault(name, []).append(_cpu_seconds() - before)
            return result

        return timed

    def notes(self, amount: float, unit: str) -> list[str]:
        return [
            f"{name}: {min(seconds):.2f} s of CPU time, {amount / min(seconds):,.3g} {unit} per "
            "CPU second"
            for name, seconds in self.seconds.items()
        ]


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _map(path: Path, name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    return np.memmap(path / f"{name}.memmap", dtype, "w+", shape=shape)


# --- Parquet ---


def write_parquet(path: Path, num_rows: int) -> int:
    """Writes rows of 38 floats, an integer and a string. Returns the decoded size in bytes."""
    generator = np.random.default_rng(7)
    columns: dict[str, Any] = {
        f"f{i}": generator.standard_normal(num_rows).astype(np.float32) for i in range(FLOATS)
    }
    columns["id"] = np.arange(num_rows)
    columns["name"] = pa.array([f"row {i % 1000}" for i in range(num_rows)])
    table = pa.table(columns)
    pq.write_table(table, path)
    return table.nbytes


def pyarrow_parquet(source: Path, target: Path) -> None:
    """Writes pyarrow's batches to memory maps, with strings as bytes and end offsets."""
    opened = pq.ParquetFile(source)
    num_rows = opened.metadata.num_rows
    maps = {
        field.name: _map(target, field.name, field.type.to_pandas_dtype(), (num_rows,))
        for field in opened.schema_arrow
        if field.type != pa.string()
    }
    ends = _map(target, "name.end", np.int64, (num_rows,))
    begin = last = 0
    with (target / "name.memmap").open("wb") as text:
        for batch in opened.iter_batches(65_536):
            end = begin + batch.num_rows
            for name, column in maps.items():
                column[begin:end] = batch.column(name).to_numpy(zero_copy_only=False)
            name = batch.column("name")
            offsets = np.frombuffer(name.buffers()[1], np.int32)[name.offset :][: len(name) + 1]
            text.write(memoryview(name.buffers()[2])[offsets[0] : offsets[-1]])
            ends[begin:end] = offsets[1:].astype(np.int64) - offsets[0] + last
            last = int(ends[end - 1])
            begin = end


def decode_only(source: Path) -> None:
    for _ in pq.ParquetFile(source).iter_batches(65_536):
        pass


def hugging_face_parquet(source: Path, cache: Path) -> None:
    """Loads into the cache of Hugging Face datasets, which stores Arrow columns on disk."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    datasets.disable_progress_bars()
    datasets.load_dataset("parquet", data_files=str(source), split="train", cache_dir=str(cache))


def has_datasets() -> bool:
    if importlib.util.find_spec("datasets") is None:
        print("ingest_parquet leaves out load_dataset: `pip install datasets` installs it")
        return False
    return True


# --- memory ---

PEAK = """
import sys, threading, tenfold, pyarrow.parquet

def anonymous():
    lines = open("/proc/self/status").read().split("\\n")
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024

def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, anonymous())

source, target, warm = sys.argv[1:]
tenfold.ingest(warm, target, progress=False)  # so that one-time imports and threads do not count
done, before = threading.Event(), anonymous()
peak = before
watcher = threading.Thread(target=watch)
watcher.start()
tenfold.ingest(source, target, progress=False)
done.set()
watcher.join()
print(peak - before)
"""


def peak_bytes(source: Path, target: Path, warm: Path) -> int:
    """Ingests `source` in a new process. Returns the bytes by which its private memory grew."""
    command = [sys.executable, "-c", PEAK, str(source), str(target), str(warm)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parquet(work: Path, num_rows: int, repetitions: int) -> Result:
    source = work / "flights.parquet"
    num_bytes = write_parquet(source, num_rows)
    ours, theirs, cache = work / "ours", work / "theirs", work / "cache"
    cpu = CpuTime()
    contenders = {
        "tenfold": Contender(
            cpu.of("tenfold", lambda: tenfold.ingest(source, ours, progress=False)),
            before=lambda: fresh(ours),
        ),
        "tenfold, not durable": Contender(
            lambda: tenfold.ingest(source, ours, durable=False, progress=False),
            before=lambda: fresh(ours),
        ),
        "pyarrow batches -> memmap": Contender(
            cpu.of("pyarrow", lambda: pyarrow_parquet(source, theirs)),
            before=lambda: fresh(theirs),
        ),
        "pyarrow, decoding alone": Contender(cpu.of("decoding alone", lambda: decode_only(source))),
    }
    goals = [Goal("tenfold, not durable", "pyarrow batches -> memmap", 1.2)]
    if has_datasets():
        contenders["Hugging Face load_dataset"] = Contender(
            lambda: hugging_face_parquet(source, cache), before=lambda: fresh(cache)
        )
        goals.append(Goal("tenfold, not durable", "Hugging Face load_dataset", 1.2))
    result = compare(
        "ingest_parquet",
        f"Parquet to columns on disk, {num_bytes / 1e6:.0f} MB of them",
        contenders,
        goals,
        repetitions,
    )
    result.notes += cpu.notes(num_bytes / 1e6, "MB")
    few = work / "few.parquet"
    write_parquet(few, 1000)
    peak = peak_bytes(source, ours, few) / 1e6
    result.notes.append(f"tenfold: {peak:.0f} MB of memory at most, beyond what the process had")
    return result


# --- dicts ---


def dicts(num_rows: int) -> list[dict[str, Any]]:
    """Returns dicts of 8 fields: four floats, two integers, a bool and a short string."""
    generator = random.Random(7)
    carriers = ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"]
    return [
        {
            "dep_delay": generator.random() * 100,
            "arr_delay": generator.random() * 100,
            "air_time": generator.random() * 500,
            "distance": generator.random() * 3000,
            "flight": generator.randrange(10_000),
            "year": 2013,
            "cancelled": generator.random() < 0.03,
            "carrier": carriers[generator.randrange(8)],
        }
        for _ in range(num_rows)
    ]


def pyarrow_dicts(rows: list[dict[str, Any]], target: Path) -> None:
    table = pa.Table.from_pylist(rows)
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if column.type == pa.string():
            (target / "carrier.memmap").write_bytes(column.buffers()[2])
            ends = np.frombuffer(column.buffers()[1], np.int32)[1:]
            _map(target, "carrier.end", np.int64, ends.shape)[:] = ends
        else:
            values = column.to_numpy(zero_copy_only=False)
            _map(target, name, values.dtype, values.shape)[:] = values


def numpy_dicts(rows: list[dict[str, Any]], target: Path) -> None:
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        _map(target, name, values.dtype, values.shape)[:] = values


def list_of_dicts(work: Path, num_rows: int, repetitions: int) -> Result:
    rows = dicts(num_rows)
    paths = [work / name for name in ("dicts", "dicts-pyarrow", "dicts-numpy")]
    cpu = CpuTime()
    result = compare(
        "ingest_dicts",
        f"{num_rows:,} dicts of 8 fields in memory to columns on disk",
        {
            "tenfold": Contender(
                cpu.of("tenfold", lambda: tenfold.ingest(rows, paths[0], progress=False)),
                before=lambda: fresh(paths[0]),
            ),
            "tenfold, not durable": Contender(
                lambda: tenfold.ingest(rows, paths[0], durable=False, progress=False),
                before=lambda: fresh(paths[0]),
            ),
            "pyarrow from_pylist -> memmap": Contender(
                cpu.of("pyarrow", lambda: pyarrow_dicts(rows, paths[1])),
                before=lambda: fresh_folder(paths[1]),
            ),
            "numpy, a list a column -> memmap": Contender(
                cpu.of("numpy", lambda: numpy_dicts(rows, paths[2])),
                before=lambda: fresh_folder(paths[2]),
            ),
        },
        # The goal is for saves that are not durable, because numpy and pyarrow do not call fsync.
        [Goal("tenfold, not durable", "pyarrow from_pylist -> memmap", 3.3)],
        repetitions,
    )
    result.notes += cpu.notes(num_rows, "rows")
    return result


def results(work: Path, share: float, repetitions: int) -> Iterator[Result]:
    yield parquet(work, int(PARQUET_ROWS * share), repetitions)
    yield list_of_dicts(work, int(DICT_ROWS * share), repetitions)


def ingest_parquet(work: Path, repetitions: int) -> Result:
    return parquet(work, PARQUET_ROWS, repetitions)


def ingest_dicts(work: Path, repetitions: int) -> Result:
    return list_of_dicts(work, DICT_ROWS, repetitions)


ALL = [ingest_parquet, ingest_dicts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for result in results(Path(folder), arguments.rows, arguments.repetitions):
            if arguments.json:
                print(json.dumps(result.to_json()), flush=True)
            else:
                print(result.markdown(), flush=True)


if __name__ == "__main__":
    main()

"""An ingest killed (SIGKILL) at a random moment leaves the complete old or complete new data set.

`TENFOLD_KILLS=1000 pytest tests/python/dataset/test_ingest_kills.py` kills a thousand times.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch

import tenfold
from forks import forked, kill_and_wait

KILLS = int(os.environ.get("TENFOLD_KILLS", "30"))
# Each source has distinct rows, which identify the source that was ingested last.
SOURCES = 3


def rows_of(number: int) -> int:
    return 3000 + 1000 * number


def write_sources(folder: Path) -> list[Path]:
    paths = [folder / f"{number}.jsonl" for number in range(SOURCES)]
    for number, path in enumerate(paths):
        lines = (
            f'{{"i": {i}, "x": {i * 0.5}, "source": {number}, "text": "{"t" * (i % 9)}"}}\n'
            for i in range(rows_of(number))
        )
        path.write_text("".join(lines))
    return paths


def ingest_forever(sources: list[Path], target: Path, start: int, report: int) -> None:
    number = start
    while True:
        source = sources[number % SOURCES]
        # Only every fourth ingest is durable: otherwise, most kills would occur during an fsync.
        # The first ingest is not durable, because the kill may come before its fsync ends.
        durable = number > start and number % 4 == 0
        tenfold.ingest(source, target, num_threads=2, durable=durable, progress=False)
        number += 1
        os.write(report, f"{number}\n".encode())


def killed_after(seconds: float, sources: list[Path], target: Path, start: int) -> int:
    """Kills a writer after `seconds`. Returns `start` plus the number of reported ingests."""
    read, write = os.pipe()
    pid = forked(lambda: ingest_forever(sources, target, start, write))
    os.close(write)
    time.sleep(seconds)
    kill_and_wait(pid)
    with os.fdopen(read) as reported:
        return int((reported.read().split() or [start])[-1])


def source_in(target: Path) -> int:
    """Returns the number of the source of the rows in the data set. Fails if a row is wrong."""
    assert tenfold.verify(target).ok
    batch = tenfold.Dataset(target)[:]
    source = int(batch["source"][0])
    size = rows_of(source)
    assert torch.equal(batch["i"], torch.arange(size))
    assert torch.equal(batch["x"], torch.arange(size) * 0.5)
    assert torch.equal(batch["source"], torch.full((size,), source))
    assert batch["text"] == ["t" * (i % 9) for i in range(size)]
    return source


@pytest.mark.timeout(120 + 2 * KILLS)
def test_sigkill_during_ingest_leaves_the_old_or_the_new_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    sources = write_sources(tmp_path)
    target = folder / "rows"
    begin = time.monotonic()
    for source in sources:
        tenfold.ingest(source, target, num_threads=2, durable=False)
    seconds = time.monotonic() - begin
    shutil.rmtree(target)
    generator = random.Random(5)
    done = 0
    for _ in range(KILLS):
        done = killed_after(generator.uniform(0, seconds), sources, target, done)
        if not target.exists():
            assert done == 0
            continue
        # The data set has the rows of the last reported source. If the kill came after the next
        # source was published and before it was reported, it has the rows of the next source.
        source = source_in(target)
        assert source in ((done - 1) % SOURCES, done % SOURCES)
        done += source == done % SOURCES
    assert done > 0
    tenfold.ingest(sources[0], target)
    assert [path.name for path in folder.iterdir()] == ["rows"]

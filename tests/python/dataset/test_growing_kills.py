"""Every row is complete after a writer is killed (SIGKILL) at random moments.

`TENFOLD_KILLS=1000 pytest tests/python/dataset/test_growing_kills.py` kills 1,000 writers of each
kind of data set.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

import tenfold
from forks import forked, kill_and_wait
from tenfold import Dataset

KILLS = int(os.environ.get("TENFOLD_KILLS", "30"))
# SIGKILLs per data set. The number is small because each check reads the whole data set.
KILLS_EACH = 20

WRITE = """
import sys, torch, tenfold
path, kind, start = sys.argv[1:]
ds = tenfold.Dataset(path, mode="r+")
i = int(start)
print("ready", flush=True)
while True:
    size = 1 + i % 7 * 40
    ids = torch.arange(i, i + size)
    rows = {"id": ids, "x": (ids[:, None] * 3 + torch.arange(500)).to(torch.int32)}
    if kind == "append":
        rows["text"] = [f"{number} " * (number % 9) for number in ids.tolist()]
    ds.append(rows)
    i += size
    print(i, flush=True)
    if i % 5 == 0 and kind == "append":
        ds.flush()
"""


def check(ds: Dataset, kind: str) -> list[int]:
    """Returns the ids of the rows. Fails if a row is torn."""
    batch = ds[:]
    ids = batch["id"]
    expected = (ids[:, None] * 3 + torch.arange(500)).to(torch.int32)
    assert torch.equal(batch["x"], expected)
    if kind == "append":
        assert batch["text"] == [f"{number} " * (number % 9) for number in ids.tolist()]
    return ids.tolist()


class Fork:
    """A writer in a forked process, because a new process takes seconds to import torch."""

    def __init__(self, path: Path, kind: str, start: int) -> None:
        read, write = os.pipe()

        def work() -> None:
            os.close(read)
            os.dup2(write, 1)
            sys.stdout = os.fdopen(1, "w")
            sys.argv = ["", str(path), kind, str(start)]
            exec(WRITE, {"__name__": "writer"})

        self.pid = forked(work)
        os.close(write)
        self.stdout = os.fdopen(read)
        assert self.stdout.readline() == "ready\n"

    def kill(self) -> list[str]:
        """Kills the writer and returns its output."""
        kill_and_wait(self.pid)
        printed = self.stdout.read().split()
        self.stdout.close()
        return printed


@pytest.mark.timeout(120 + 2 * KILLS)
@pytest.mark.parametrize("kind", ["append", "circular"])
def test_sigkill_of_the_writer_keeps_complete_rows_and_all_commits(
    tmp_path: Path, kind: str
) -> None:
    capacity = 5000
    schema = {"id": "int64", "x": ("int32", (500,))}
    generator = random.Random(5)
    path = tmp_path / "none"
    end = 0
    for kill in range(KILLS):
        if kill % KILLS_EACH == 0:
            shutil.rmtree(path, ignore_errors=True)
            path = tmp_path / f"rows-{kill}"
            end = 0
            if kind == "append":
                tenfold.create(path, {**schema, "text": "string"})
            else:
                tenfold.create(path, schema, capacity=capacity)
        # Each writer continues with the files that the previous writer left.
        writer = Fork(path, kind, end)
        time.sleep(generator.uniform(0.002, 0.08))
        printed = writer.kill()
        reported = int(printed[-1]) if printed else end
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ds = Dataset(path)
        ids = check(ds, kind)
        assert tenfold.verify(path).ok
        if kind == "append":
            # The writer may have been killed after a commit, of up to 241 rows, before its report.
            assert ids == list(range(len(ids)))
            assert reported <= len(ids) <= reported + 241
            end = len(ids)
            continue
        newest = max(ids, default=-1) + 1
        assert reported <= newest <= reported + 241
        gone = min(newest, capacity) - len(ids)
        assert (gone > 0) == bool(caught)
        # The data set has the last `capacity` rows, except rows that the writer was overwriting.
        assert set(ids) <= set(range(newest - capacity, newest))
        assert 0 <= gone <= 241
        end = newest
    assert end > 0


READ = """
import sys, torch, tenfold
path, wanted = sys.argv[1], int(sys.argv[2])
ds = tenfold.Dataset(path)
batches = lengths = 0
while batches < wanted:
    ds.refresh()
    size = len(ds)
    assert size >= lengths, (size, lengths)
    lengths = size
    if size == 0:
        continue
    batch = ds[torch.randint(0, size, (64,))]
    expected = (batch["id"][:, None] * 3 + torch.arange(500)).to(torch.int32)
    assert torch.equal(batch["x"], expected), "a torn row"
    batches += 1
print(batches, lengths)
"""


@pytest.mark.parametrize("kind", ["append", "circular"])
def test_a_reader_in_another_process_sees_only_complete_rows(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rows"
    schema = {"id": "int64", "x": ("int32", (500,))}
    ds = tenfold.create(path, schema, capacity=1000 if kind == "circular" else None)
    reader = subprocess.Popen(
        [sys.executable, "-c", READ, str(path), "200"], stdout=subprocess.PIPE, text=True
    )
    i = 0
    while reader.poll() is None:
        ids = torch.arange(i, i + 37)
        ds.append({"id": ids, "x": (ids[:, None] * 3 + torch.arange(500)).to(torch.int32)})
        i += 37
        if kind == "append" and i > 100_000:
            time.sleep(0.01)
    assert reader.returncode == 0
    batches, length = map(int, reader.stdout.read().split())
    assert batches == 200
    assert length >= 37

"""A writer killed (SIGKILL) at random moments leaves the old or the new value of every key.

`TENFOLD_KILLS=1000 pytest tests/python/mapped_dict/test_kills.py` kills a thousand writers.
"""

from __future__ import annotations

import os
import random
import time

import pytest
import torch

import tenfold
from forks import forked, kill_and_wait
from tenfold import MappedDict

KILLS = int(os.environ.get("TENFOLD_KILLS", "30"))
KEYS = 50


def write(path, start: int, told) -> None:
    """Writes until SIGKILL. Step i sets key i % KEYS to i // KEYS; every seventh step adds keys."""
    with MappedDict(path, "r+") as d:
        i = start
        while True:
            d[f"k{i % KEYS}"] = torch.full((100,), i // KEYS)
            if i % 7 == 0:
                d.extend({f"n{i}/{part}": torch.full((100,), i) for part in range(9)})
            i += 1
            os.write(told, f"{i}\n".encode())


def check(d: MappedDict, done: int) -> None:
    values, found = d.get_many([f"k{key}" for key in range(KEYS)], missing="raise")
    assert found.all()
    assert (values == values[:, :1]).all(), "a torn value"
    for key in range(KEYS):
        # Step `done` may be in progress.
        last = (done - 1 - key) // KEYS if done > key else -1
        allowed = {max(last, 0)} | ({done // KEYS} if done % KEYS == key else set())
        assert int(values[key, 0]) in allowed, (key, done)
    for i in range(0, done, 7):
        part, found = d.get_many([f"n{i}/{part}" for part in range(9)])
        assert found.all(), i
        assert (part == i).all(), i
    last, found = d.get_many([f"n{done}/{part}" for part in range(9)])
    assert found.all() or not found.any(), "only some keys of one extend()"


@pytest.mark.parametrize("seed", range(2))
def test_sigkill_of_the_writer_keeps_all_committed_values(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "d"
    MappedDict.build({f"k{key}": torch.zeros(100, dtype=torch.int64) for key in range(KEYS)}, path)
    done = 0
    reader = MappedDict(path)
    for _ in range(KILLS // 2):
        read, told = os.pipe()
        pid = forked(lambda start=done, told=told: write(path, start, told))
        os.close(told)
        with os.fdopen(read) as lines:
            first = lines.readline()
            assert first, "the writer wrote nothing"
            time.sleep(rng.random() * 0.03)
            kill_and_wait(pid)
            said = [first, *lines.read().splitlines()]
        done = max([done, *(int(line) for line in said if line.strip())])
        check(MappedDict(path), done)
        check(reader.refresh(), done)
        # The next writer repeats the interrupted step, unless that step has added its keys.
        if f"n{done}/0" in reader:
            done += 1
    with MappedDict(path, "r+") as d:
        d["k0"] = torch.full((100,), -1)
        d.compact()
    assert tenfold.verify(path).ok

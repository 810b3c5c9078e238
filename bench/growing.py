"""Data sets that grow: appends against plain writes, small appends against tensordict's memmap."""

from __future__ import annotations

import os
from pathlib import Path

import tensordict
import torch
from calls import WIDTHS, repeated
from harness import Contender, Goal, Result, compare, fresh

import tenfold


def batch_of(rows: int) -> dict[str, torch.Tensor]:
    return {name: torch.rand(rows, width) for name, width in WIDTHS.items()}


def append_large(work: Path, repetitions: int) -> Result:
    """Appends 512 MiB in batches of 8 MiB with 2 columns."""
    batch = {"x": torch.rand(2048, 1000), "y": torch.rand(2048, 24)}
    batches = 64
    path, plain = work / "append-large", work / "append-plain"

    def prepare() -> None:
        fresh(path)
        tenfold.create(path, {"x": ("float32", (1000,)), "y": ("float32", (24,))}).close()

    def append() -> None:
        ds = tenfold.Dataset(path, mode="r+")
        for _ in range(batches):
            ds.append(batch)

    def write() -> None:
        arrays = [memoryview(value.numpy()).cast("B") for value in batch.values()]
        plain.mkdir()
        files = [os.open(plain / name, os.O_WRONLY | os.O_CREAT) for name in batch]
        for _ in range(batches):
            for file, array in zip(files, arrays, strict=True):
                os.write(file, array)
        for file in files:
            os.close(file)

    return compare(
        "append_large",
        "Append 512 MiB in 64 batches, not durable",
        {
            "tenfold, ds.append": Contender(append, prepare),
            "write(2) of the same bytes": Contender(write, lambda: fresh(plain)),
        },
        [Goal("tenfold, ds.append", "write(2) of the same bytes", 0.8)],
        repetitions,
    )


def append_small(work: Path, repetitions: int) -> Result:
    """Appends 256 rows of 8 fields, 100 times."""
    rows, times = 256, 100
    batch = batch_of(rows)
    path, ring_path, theirs = work / "append", work / "ring", work / "append-td"
    ds = tenfold.create(path, {name: ("float32", (width,)) for name, width in WIDTHS.items()})
    ring = tenfold.create(
        ring_path,
        {name: ("float32", (width,)) for name, width in WIDTHS.items()},
        capacity=100_000,
    )
    upstream = tensordict.TensorDict(batch, [rows])
    ds.append(batch)
    # Fill the circular buffer, so that each measured append overwrites rows.
    for _ in range(400):
        ring.append(batch)

    result = compare(
        "append_small",
        f"Append 256 rows of 8 fields, {times} times, not durable",
        {
            "tenfold, ds.append": Contender(repeated(lambda: ds.append(batch), times)),
            "tenfold, a full circular buffer": Contender(
                repeated(lambda: ring.append(batch), times)
            ),
            "tensordict, td.memmap over one folder": Contender(
                repeated(lambda: upstream.memmap(theirs), times), lambda: fresh(theirs)
            ),
        },
        [
            Goal("tenfold, ds.append", at_most_seconds=0.2e-3 * times, text="100 appends"),
            Goal(
                "tenfold, a full circular buffer",
                at_most_seconds=0.2e-3 * times,
                text="100 writes to a circular buffer",
            ),
            Goal("tenfold, ds.append", "tensordict, td.memmap over one folder", 10),
        ],
        repetitions,
    )
    ds.close()
    ring.close()
    return result


ALL = [append_large, append_small]

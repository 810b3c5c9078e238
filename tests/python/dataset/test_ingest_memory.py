"""Peak memory of `ingest` and `extend` with large rows."""

from __future__ import annotations

import sys

import pytest

from peak_memory import PEAK_OF

PROGRAM = """
import sys, numpy as np, torch, tenfold

kind, value, folder = sys.argv[1:]
SIZE = 1 << 20

def value_of(i):
    if value == "bytes":
        return bytes([i % 256]) * SIZE
    if value == "list":
        return [float(i)] * (SIZE // 8)
    if value == "tensor":
        return torch.full((SIZE // 4,), i, dtype=torch.float32)
    # The first rows are small, the others are not.
    return bytes([i % 256]) * (SIZE if i > 5 else 1)

def rows(count):
    return ({"x": value_of(i)} for i in range(count))

def ingest(count, name):
    tenfold.ingest(rows(count), f"{folder}/{name}", durable=False)

def extend(count, name):
    shape = {"tensor": "float32", "list": "float64"}.get(value)
    column = "bytes" if shape is None else (shape, (len(value_of(0)),))
    with tenfold.create(f"{folder}/{name}", {"x": column}) as ds:
        ds.extend(rows(count))

run = {"ingest": ingest, "extend": extend}[kind]
run(20, "warm")
print(peak_of(lambda: run(300, "all")))
assert len(tenfold.Dataset(f"{folder}/all")) == 300
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("value", ["bytes", "list", "tensor", "late"])
@pytest.mark.parametrize("kind", ["ingest", "extend"])
def test_peak_memory_of_large_rows_is_bounded(tmp_path, run_python, kind, value):
    assert int(run_python(PEAK_OF + PROGRAM, kind, value, tmp_path)) < 64 << 20

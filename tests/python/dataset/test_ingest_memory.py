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
    # "late": only the first rows are small.
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("value", ["bytes", "list", "tensor", "late"])
@pytest.mark.parametrize("kind", ["ingest", "extend"])
def test_peak_memory_of_large_rows_is_bounded(tmp_path, run_python, kind, value):
    assert int(run_python(PEAK_OF + PROGRAM, kind, value, tmp_path)) < 64 << 20


SHARED = """
import sys, pyarrow as pa, tenfold

kind, file = sys.argv[1:]
SIZE, COUNT = 1 << 20, 500
if kind == "dictionary":
    column = pa.DictionaryArray.from_arrays(pa.array([0] * COUNT, pa.int8()), ["x" * SIZE])
else:
    items = pa.array([1] * (SIZE // 4), pa.int32())
    starts, sizes = (pa.array([n] * COUNT, pa.int32()) for n in (0, len(items)))
    column = pa.ListViewArray.from_arrays(starts, sizes, items)
table = pa.table({"x": column})
with pa.OSFile(file, "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
    writer.write_table(table)
print(peak_of(lambda: tenfold.infer_schema(file)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["dictionary", "list_view"])
def test_peak_memory_of_rows_that_share_a_large_value_is_bounded(tmp_path, run_python, kind):
    pytest.importorskip("pyarrow")
    assert int(run_python(PEAK_OF + SHARED, kind, tmp_path / "x.arrows")) < 200 << 20

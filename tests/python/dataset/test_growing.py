"""`append`, `extend`, `create`, circular buffers, and rows that are written in place."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import OrderedDict, deque
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from forks import exit_status, forked
from tenfold import Dataset, TensorDict

CASTS = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
SCHEMA = {
    "x": ("float32", (2,)),
    "id": torch.int64,
    "name": "string",
    "tokens": {"dtype": "int32", "ragged": True},
    "tags": {"dtype": "string", "ragged": True},
    "age": {"dtype": "int64", "nullable": True},
    "score": {"dtype": "float64", "nullable": True},
    "camera": {"gain": "float64", "raw": "bytes"},
}


def row(i: int) -> dict:
    return {
        "x": torch.tensor([i, i + 0.5]),
        "id": i,
        "name": "n" * i,
        "tokens": list(range(i)),
        "tags": ["t"] * (i % 3),
        "age": None if i % 2 else i,
        "score": None if i % 3 == 0 else i / 4,
        "camera": {"gain": float(i), "raw": bytes([i])},
    }


def assert_rows(ds: Dataset, ids: list[int]) -> None:
    assert len(ds) == len(ids)
    for position, i in enumerate(ids):
        found, expected = ds[position], row(i)
        assert found["x"].tolist() == expected["x"].tolist()
        assert found["id"] == i
        assert found["name"] == expected["name"]
        assert found["tokens"].tolist() == expected["tokens"]
        assert found["tags"] == expected["tags"]
        assert bool(found["age.valid"]) == (expected["age"] is not None)
        assert found["age"] == (expected["age"] or 0)
        score = float(found["score"])
        assert score == expected["score"] or (np.isnan(score) and expected["score"] is None)
        assert found["camera"]["gain"] == float(i)
        assert found["camera"]["raw"] == bytes([i])


def test_rows_with_all_kinds_of_columns_are_appended_singly_and_in_lists(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", SCHEMA)
    assert len(ds) == 0
    assert ds.append(row(4)) == 1
    assert ds.append([row(i) for i in range(5)]) == 6
    assert ds.append([]) == 6
    assert ds.extend(row(i) for i in range(5, 9)) == 10
    assert_rows(ds, [4, *range(9)])
    ds.close()
    ds.close()
    assert_rows(Dataset(tmp_path / "rows"), [4, *range(9)])
    assert tenfold.verify(tmp_path / "rows").ok


def test_rows_are_appended_to_all_nodes_of_a_nested_data_set(tmp_path: Path) -> None:
    tensordict = pytest.importorskip("tensordict")
    path = tmp_path / "rows"

    def rows(begin: int, end: int) -> dict:
        ids = torch.arange(begin, end)
        return {"id": ids, "camera": {"gain": ids / 2, "lens": {"n": ids * ids}}}

    def assert_is(found: dict, end: int) -> None:
        expected = rows(0, end)
        assert found["id"].tolist() == expected["id"].tolist()
        assert found["camera"]["gain"].tolist() == expected["camera"]["gain"].tolist()
        lens = found["camera"]["lens"]["n"]
        assert lens.tolist() == expected["camera"]["lens"]["n"].tolist()

    tensordict.TensorDict(rows(0, 2), batch_size=[2], lock=True).auto_batch_size_(1).memmap_(path)
    reader = Dataset(path)
    with Dataset(path, mode="r+") as ds:
        assert ds.append(rows(2, 5)) == 5
        assert ds.append({"id": 5, "camera": {"gain": 2.5, "lens": {"n": 25}}}) == 6
        extended = ({"id": i, "camera": {"gain": i / 2, "lens": {"n": i * i}}} for i in (6, 7))
        assert ds.extend(extended) == 8
        assert_is(ds[:], 8)
        assert_is(reader[:], 2)
        assert_is(reader.refresh()[:], 8)
        with pytest.raises(ValueError, match="camera"):
            ds.append({"id": 8, "camera": {"gain": 4.0}})
        assert len(ds) == 8
    loaded = tensordict.TensorDict.load_memmap(path)
    assert loaded.batch_size == loaded["camera", "lens"].batch_size == torch.Size([8])
    assert_is(loaded.to_dict(), 8)
    assert tenfold.verify(path).ok


def test_rows_read_from_a_dataset_can_be_appended(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", SCHEMA)
    ds.append([row(i) for i in range(6)])
    ds.append(ds[[5, 0, 3]])
    ds.append(ds[2])
    ds.append(ds[0:0])
    assert_rows(ds, [*range(6), 5, 0, 3, 2])
    other = tenfold.create(tmp_path / "other", ds.schema)
    other.append(ds[:])
    assert_rows(other, [*range(6), 5, 0, 3, 2])


def test_append_accepts_tensors_arrays_and_lists(tmp_path: Path) -> None:
    ds = tenfold.create(
        tmp_path / "rows",
        {
            "x": ("float32", (2,)),
            "id": "int64",
            "flag": bool,
            "t": {"dtype": "int64", "ragged": True},
        },
    )
    jagged = torch.nested.nested_tensor([torch.arange(2), torch.arange(3)], layout=torch.jagged)
    offsets = {"values": torch.arange(5), "offsets": torch.tensor([0, 2, 5])}
    lists = [[0, 1], [0, 1, 2]]
    for x, ids, flag, t in (
        (torch.rand(2, 2), torch.tensor([1, 2]), torch.tensor([True, False]), jagged),
        (np.random.rand(2, 2), np.array([1, 2], np.int8), np.array([True, False]), offsets),
        ([[1, 2], [3, 4.5]], [1, 2], [True, False], lists),
        ([torch.rand(2), torch.rand(2)], (1, 2), (True, False), [torch.arange(2), torch.arange(3)]),
    ):
        before = len(ds)
        assert ds.append({"x": x, "id": ids, "flag": flag, "t": t}) == before + 2
        batch = ds[before : before + 2]
        assert np.allclose(batch["x"], np.stack([np.asarray(part) for part in x]))
        assert batch["id"].tolist() == [1, 2]
        assert batch["flag"].tolist() == [True, False]
        assert batch["t"].offsets().diff().tolist() == [2, 3]


def test_append_accepts_tensordicts_as_rows_and_batches(tmp_path: Path) -> None:
    td = tenfold.TensorDict({"x": torch.rand(4, 3), "y": torch.arange(4)}, [4])
    ds = tenfold.create(tmp_path / "rows", td[0])
    assert ds.schema["x"] == tenfold.Column("float32", (3,))
    ds.append(td)
    ds.append(td[2])
    assert ds["y"].tolist() == [0, 1, 2, 3, 2]
    assert torch.equal(ds["x"][:4], td["x"])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float16", 70_000),
        ("float16", -7e4),
        ("float16", torch.tensor(1e6)),
        ("float16", np.float32(1e6)),
        ("bfloat16", 1e39),
        ("float32", 1e300),
        ("float32", torch.tensor(1e300, dtype=torch.float64)),
        ("complex64", 1e300),
        ("complex64", complex(0, 1e300)),
    ],
    ids=str,
)
def test_finite_numbers_beyond_the_dtype_raise(tmp_path: Path, dtype: str, value: object) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": dtype})
    number = "complex128" if isinstance(value, complex) else r"-?\d[\d.e+]*$"
    message = rf'/rows: (row \d, )?column "x": expected {dtype}, found {number}'
    for rows in ({"x": value}, {"x": [value, value]}, [{"x": 1.0}, {"x": value}]):
        with pytest.raises(ValueError, match=message):
            ds.append(rows)
    ds.append([{"x": math.inf}, {"x": math.nan}, {"x": 60_000.0}])
    with pytest.raises(ValueError, match=message):
        ds[0] = {"x": value}
    found = ds["x"].real.double().tolist()
    assert found[0] == math.inf
    assert math.isnan(found[1])


@pytest.mark.parametrize("to", CASTS, ids=str)
@pytest.mark.parametrize("source", CASTS, ids=str)
def test_numbers_are_cast_where_torch_can_cast(
    tmp_path: Path, source: torch.dtype, to: torch.dtype
) -> None:
    values = torch.tensor([[1, 0], [0, 1]]).to(source)
    ds = tenfold.create(tmp_path / "rows", {"x": (to, (2,)), "y": to})
    batch = {"x": values, "y": values[0]}
    rows = [{"x": x, "y": y} for x, y in zip(values, values[0], strict=True)]
    lists = [{"x": x.tolist(), "y": y.item()} for x, y in zip(values, values[0], strict=True)]
    for written in (batch, rows, lists, rows[0]):
        before = len(ds)
        if not torch.can_cast(source, to):
            with pytest.raises(ValueError, match=rf'column "[xy]": expected {str(to)[6:]}'):
                ds.append(written)
            continue
        ds.append(written)
        for i, row in enumerate([written] if isinstance(written, dict) else written):
            if written is not batch:
                assert torch.equal(ds["x"][before + i], torch.as_tensor(row["x"]).to(to))
    if torch.can_cast(source, to):
        assert torch.equal(ds["x"][:2], values.to(to))
        assert ds["y"].double().tolist() == [1, 0] * 3 + [1] if not to.is_complex else True


@pytest.mark.parametrize("value", [1, 1.5, True, [1], {"y": 1}, b"x"], ids=str)
def test_string_columns_accept_only_strings(tmp_path: Path, value: object) -> None:
    ds = tenfold.create(tmp_path / "rows", {"s": "string"})
    for rows in ([{"s": value}], {"s": [value]}):
        with pytest.raises(ValueError, match=r'column "s": expected (string|0 dimensions)'):
            ds.append(rows)
    assert len(ds) == 0


def test_dotted_names_of_nested_columns_are_accepted(tmp_path: Path) -> None:
    column = tenfold.Column("int64", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"r": {"x": column, "y": "int64"}})
    ds.append({"r.x": 1, "r.y": 2})
    ds.append([{"r.x": 3, "r": {"y": 4}}, {"r.x": 0, "r.x.valid": False, "r.y": 5}])
    ds.append({"r.x": [5, 0], "r.x.valid": [True, False], "r": {"y": [6, 7]}})
    assert ds["r.x"].tolist() == [1, 3, 0, 5, 0]
    assert ds["r.x.valid"].tolist() == [True, True, False, True, False]
    assert ds["r.y"].tolist() == [2, 4, 5, 6, 7]
    with pytest.raises(ValueError, match=r'column "r\.y": expected one value, found two'):
        ds.append([{"r.y": 1, "r": {"y": 1}}])
    with pytest.raises(ValueError, match='column "r": expected a dict of its columns, found list'):
        ds.append({"r": [{"x": 1, "y": 2}]})


def test_schema_of_other_objects_than_columns_is_a_type_error() -> None:
    with pytest.raises(TypeError, match='column "y": expected a Column or a Schema, found str'):
        tenfold.Schema({"y": "int64"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="column 3: expected a str as name, found int"):
        tenfold.Schema({3: tenfold.Column("int64")})  # type: ignore[dict-item]


def test_rows_accept_masked_arrays_times_and_complex_numbers(tmp_path: Path) -> None:
    ds = tenfold.create(
        tmp_path / "rows",
        {
            "m": {"dtype": "float32", "shape": [2], "nullable": True},
            "n": {"dtype": "int64", "nullable": True},
            "t": {"dtype": "int64", "unit": "us"},
            "c": "complex64",
        },
    )
    m = np.ma.array([[1, 2], [3, 4]], np.float32, mask=[[0, 0], [0, 1]])
    n = np.ma.array([1, 2], mask=[0, 1])
    moment = datetime(1970, 1, 1, 0, 0, 1)
    ds.append([{"m": m[i], "n": n[i], "t": moment, "c": 1j + i} for i in range(2)])
    ds.append({"m": m, "n": n, "t": [moment, 7], "c": np.array([1j, 1j + 1])})
    ds.append({"m": m[1], "n": n[1], "t": moment, "c": 1j})
    assert ds["m"].nan_to_num(-1).tolist() == [[1, 2], [3, -1]] * 2 + [[3, -1]]
    assert ds["n.valid"].tolist() == [True, False, True, False, False]
    assert ds["t"].tolist() == [1_000_000] * 3 + [7, 1_000_000]
    assert ds["c"].tolist() == [1j, 1j + 1, 1j, 1j + 1, 1j]


def test_floats_next_to_tensors_keep_their_precision(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": "float64"})
    ds.append([{"x": 0.1}, {"x": torch.tensor(2.0)}, {"x": 1e300}])
    assert ds["x"].tolist() == [0.1, 2.0, 1e300]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"x": [1.0, 2.0]}, r'column "id": expected int64, found null; .*nullable'),
        ({"x": [1.0, 2.0], "id": None}, r'column "id": expected int64, found null'),
        ({"x": [1.0, 2.0], "id": 1, "y": 2}, r'column "y": no such column'),
        ({"x": [1.0], "id": 1}, r'"x": expected float32\[2\], found .* of length 1'),
        ({"x": torch.ones(1), "id": 1}, r'"x": expected float32\[2\], found float32\[1\]'),
        ({"x": [1e300, 1], "id": 1}, r'"x": expected float32\[2\], found .* with 1e\+300'),
        ({"x": [1.0, 2.0], "id": 1.5}, r'column "id": expected int64, found 1\.5'),
        ({"x": [1.0, 2.0], "id": "one"}, r'column "id": expected int64'),
        ({"x": [1.0, 2.0], "id": 2**63}, r'column "id": expected int64, found 9223372036854775808'),
        ({"x": torch.rand(2, 2), "id": 1}, r'columns "id" and "x": expected one row in both'),
        ({"x": torch.rand(2, 2), "id": [1]}, r'column "id": expected 2 rows.*found 1'),
        ({"x": torch.rand(2, 2, 2), "id": 1}, r"found 3"),
        (
            [{"x": [1, 2], "id": 1}, {"x": [1, 2]}],
            r'row 1, column "id": expected int64, found no such key',
        ),
        ([{"x": [1, 2], "id": 1}, {"x": [1], "id": 1}], r'row 1, column "x"'),
        (
            [{"x": [1, 2], "id": 1}, {"id": 1, "y": 2}],
            r'row 1, column "y": no such column',
        ),
        ({"x": [[1, 2], [1]], "id": [1, 2]}, r'row 1, column "x": expected float32\[2\]'),
    ],
)
def test_mismatched_rows_raise_and_append_nothing(
    tmp_path: Path, rows: object, message: str
) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": ("float32", (2,)), "id": "int64"})
    ds.append({"x": [0, 0], "id": 0})
    with pytest.raises(ValueError, match=message):
        ds.append(rows)
    assert len(ds) == len(Dataset(tmp_path / "rows")) == 1
    with pytest.raises(ValueError, match=r'/rows: row 0, column "id": expected int64, found .one'):
        ds.append([{"x": [0, 0], "id": "one"}])
    with pytest.raises(ValueError, match=r'/rows: column "id": expected int64, found .one'):
        ds[0] = {"id": "one"}
    with pytest.raises(ValueError, match=r'/text: column "name": expected string, found 1'):
        tenfold.create(tmp_path / "text", {"name": "string"}).append({"name": 1})


def test_views_and_read_only_datasets_reject_writes(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"id": "int64"})
    ds.append({"id": [1, 2, 3]})
    read = Dataset(tmp_path / "rows")
    for refused in (
        ds.range(0, 2),
        ds.map(lambda row: row),
        ds.take([0]),
        read,
        Dataset({"id": torch.arange(3)}),
    ):
        for write in (
            lambda ds: ds.append({"id": 1}),
            lambda ds: ds.extend([{"id": 1}]),
            lambda ds: ds.write({"id": 1}),
            lambda ds: ds.flush(),
            lambda ds: ds.__setitem__(0, {"id": 1}),
        ):
            with pytest.raises(tenfold.UnsupportedError, match=r'found a view|found "r"'):
                write(refused)
    with pytest.raises(tenfold.UnsupportedError, match="found a view"):
        ds.range(0, 2).refresh()
    assert read["id"].tolist() == [1, 2, 3]


def test_an_open_reader_sees_new_rows_after_a_refresh(tmp_path: Path) -> None:
    with tenfold.create(tmp_path / "rows", {"id": "int64"}) as ds:
        ds.append({"id": torch.arange(3)})
        reader = Dataset(tmp_path / "rows")
        column = reader["id"]
        loader = tenfold.BatchLoader(reader, 2)
        ds.append({"id": torch.arange(3, 100_000)})
        assert len(reader) == 3
        assert reader.refresh() is reader
        assert len(reader) == 100_000
        assert reader[-1]["id"] == 99_999
        assert column.tolist() == [0, 1, 2]
        assert sum(len(batch["id"]) for batch in loader) == 3
        assert len(tenfold.open(tmp_path / "rows")["id"]) == 100_000


def test_rows_are_written_in_place(tmp_path: Path) -> None:
    tenfold.save({"x": torch.zeros(6, 2), "id": torch.arange(6)}, tmp_path / "rows")
    ds = Dataset(tmp_path / "rows", mode="r+")
    ds[1] = {"x": [1, 2], "id": 10}
    ds[[2, 5]] = {"x": torch.ones(2, 2)}
    ds[-1] = {"id": 50}
    ds[3:5] = {"id": [30, 40]}
    ds[torch.tensor([True, False, False, False, False, False])] = {"id": 7}
    assert ds["id"].tolist() == [7, 10, 2, 30, 40, 50]
    assert ds["x"].sum(1).tolist() == [0, 3, 2, 0, 0, 2]
    ds["id"][2] = 20
    assert Dataset(tmp_path / "rows")["id"].tolist() == [7, 10, 20, 30, 40, 50]
    assert tenfold.verify(tmp_path / "rows").ok
    with pytest.raises(IndexError):
        ds[6] = {"id": 1}
    with pytest.raises(ValueError, match="expected 2 rows, found 3"):
        ds[[0, 1]] = {"id": [1, 2, 3]}
    with pytest.raises(ValueError, match="one row for one index"):
        ds[0] = {"id": [1]}
    text = tenfold.create(tmp_path / "text", {"name": "string"})
    text.append({"name": "Ann"})
    with pytest.raises(tenfold.UnsupportedError, match="rows of variable size cannot be changed"):
        text[0] = {"name": "Bob"}


def test_a_list_of_rows_in_place_keeps_the_columns_that_no_row_has(tmp_path: Path) -> None:
    column = {"dtype": "int64", "nullable": True}
    ds = tenfold.create(tmp_path / "rows", {"a": column, "b": column, "r": {"x": column}})
    ds.append([{"a": i, "b": i, "r": {"x": i}} for i in range(3)])
    ds[[0, 1]] = [{"a": 10}, {"a": None}]
    ds[[1, 2]] = [{"r": None}, {"r": {"x": 20}}]
    assert ds["a"].tolist()[::2] == [10, 2]
    assert not ds[1]["a.valid"]
    assert ds["b"].tolist() == [0, 1, 2]
    assert not ds[1]["r"]["x.valid"]
    assert ds[2]["r"] == {"x": 20, "x.valid": True}
    with pytest.raises(ValueError, match='row 1, column "b": expected int64, as in the first row'):
        ds[[0, 1]] = [{"a": 1, "b": 2}, {"a": 3}]
    with pytest.raises(
        ValueError, match='row 1, column "b": expected no value, as in the first row'
    ):
        ds[[0, 1]] = [{"a": 1}, {"a": 3, "b": 2}]
    with pytest.raises(ValueError, match='row 1, column "c": no such column'):
        ds[[0, 1]] = [{"a": 1}, {"c": 3}]
    assert ds[0]["a"] == 10
    ds[[0, 1]] = [{"a": 1, "a.valid": False}, {"a.valid": True, "a": 30}]
    assert [bool(ds[i]["a.valid"]) for i in (0, 1)] == [False, True]


FILL = """
import sys, torch, tenfold
path, worker = sys.argv[1], int(sys.argv[2])
ds = tenfold.Dataset(path, mode="r+")
for i in range(worker, len(ds), 3):
    ds[i] = {"id": i, "x": torch.full((2,), float(i))}
ds.flush()
"""


def test_processes_write_disjoint_rows(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"id": "int64", "x": ("float32", (2,))}, num_rows=300)
    assert ds["id"].sum() == 0
    workers = [
        subprocess.Popen([sys.executable, "-c", FILL, str(tmp_path / "rows"), str(worker)])
        for worker in range(3)
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert ds["id"].tolist() == list(range(300))
    assert ds["x"][:, 1].tolist() == list(range(300))


def test_a_second_writer_gets_an_error_naming_the_first(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"id": "int64"})
    ds.append({"id": 1})
    other = Dataset(tmp_path / "rows", "r+")
    import os

    with pytest.raises(OSError, match=f"process {os.getpid()}: expected one writer at a time"):
        other.append({"id": 2})
    ds.close()
    assert other.append({"id": 2}) == 2
    with pytest.raises(tenfold.UnsupportedError, match="was closed"):
        ds.append({"id": 3})


def test_append_in_a_forked_child_raises(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"id": "int64"})
    ds.append({"id": 1})

    def append() -> None:
        with pytest.raises(tenfold.UnsupportedError, match="forked"):
            ds.append({"id": 2})

    assert exit_status(forked(append)) == 0
    assert ds.append({"id": 3}) == 2


@given(
    capacity=st.integers(1, 12),
    sizes=st.lists(st.integers(0, 30), max_size=8),
)
@settings(max_examples=25, deadline=None)
def test_circular_buffer_holds_the_last_rows(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("circular") / "buffer"
    ds = tenfold.create(path, {"id": 0, "x": torch.zeros(2)}, capacity=capacity)
    slots: dict[int, int] = {}
    written = 0
    for size in sizes:
        ids = torch.arange(written, written + size)
        ds.write({"id": ids, "x": torch.stack([ids, ids + 0.5], 1)})
        for i in range(written, written + size):
            slots[i % capacity] = i
        written += size
        assert len(ds) == min(written, capacity)
        assert ds.cursor == written % capacity
        assert ds.capacity == capacity
        expected = [slots[slot] for slot in sorted(slots)]
        for seen in (ds, Dataset(path)):
            batch = seen[:]
            assert batch["id"].tolist() == expected
            assert batch["x"][:, 1].tolist() == [i + 0.5 for i in expected]


def test_views_of_a_circular_buffer_have_no_capacity_and_cursor(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "buffer", {"id": 0, "x": 0.5}, capacity=4)
    ds.write({"id": torch.arange(6), "x": torch.zeros(6)})
    for view in (ds.select(["x"]), ds.map(lambda row: row)):
        assert (view.capacity, view.cursor) == (None, len(view))
    assert (ds.capacity, ds.cursor) == (4, 2)


def test_create_accepts_every_schema_form(tmp_path: Path) -> None:
    forms = [
        {"x": ("float32", (3,)), "n": "string"},
        OrderedDict(x=(torch.float32, [3]), n=str),
        {"x": {"dtype": "float32", "shape": 3}, "n": "string"},
        {"x": ("float32", np.int64(3)), "n": "string"},
        {"x": {"dtype": "float32", "shape": [np.int64(3)]}, "n": "string"},
        {"x": (np.float32, (3,)), "n": {"dtype": "string"}},
        {"x": (np.dtype("float32"), (3,)), "n": tenfold.Column("string")},
        {"x": torch.zeros(3), "n": "string"},
        {"x": ("f4", (3,)), "n": "str"},
        {"x": ("torch.float", (3,)), "n": tenfold.Column("string")},
        tenfold.Schema({"x": tenfold.Column("float32", (3,)), "n": tenfold.Column("string")}),
        {"columns": {"x": {"dtype": "float32", "shape": [3]}, "n": {"dtype": "string"}}},
    ]
    (tmp_path / "schema.json").write_text(tenfold.Schema.to_json(forms[-2]))
    for number, form in enumerate([*forms, tmp_path / "schema.json"]):
        ds = tenfold.create(tmp_path / str(number), form)
        assert ds.schema == forms[-2], form
    for number, row in enumerate(
        [{"x": torch.zeros(3), "n": "a text"}, {"x": np.zeros(3, np.float32), "n": "string"}]
    ):
        assert tenfold.create(tmp_path / f"row{number}", example=row).schema == forms[-2]
    example = {"f": 1.5, "i": 3, "b": True, "l": [1, 2], "t": ["a"], "r": {"y": b"1"}}
    found = tenfold.create(tmp_path / "example", example).schema
    assert str(found) == ("f: float64\ni: int64\nb: bool\nl: int64[2]\nt: string[*]\nr.y: bytes")


def test_schema_accepts_dtype_names_of_python_numpy_and_torch(tmp_path: Path) -> None:
    spellings = {
        "int": "int64",
        "float": "float64",
        "torch.float32": "float32",
        "torch.int": "int32",
        "double": "float64",
        "half": "float16",
        "i8": "int64",
        "<f4": "float32",
        "bool": "bool",
        "bfloat16": "bfloat16",
        "long": "int64",
    }
    for number, (spelling, dtype) in enumerate(spellings.items()):
        ds = tenfold.create(tmp_path / str(number), {"x": spelling, "y": (spelling, (2,))})
        assert ds.schema == tenfold.Schema(
            {"x": tenfold.Column(dtype), "y": tenfold.Column(dtype, (2,))}
        )


def test_unknown_members_of_a_column_raise(tmp_path: Path) -> None:
    schema = {"y": {"dtype": "int8", "nulable": True}}
    with pytest.raises(ValueError, match=r'"y": expected members of .*; did you mean .nullable'):
        tenfold.create(tmp_path / "c", schema)


@pytest.mark.parametrize(
    "dtype", ["flaot32", "", ">f4", "U5", "i4,f4", "datetime64[ns]", "a text", "\x02", "\n"]
)
@pytest.mark.parametrize("other", ["int", torch.zeros(2)])
def test_unknown_dtype_name_in_a_schema_raises(tmp_path: Path, dtype, other) -> None:
    hint = ".*did you mean 'float32'" if dtype == "flaot32" else ""
    message = re.escape(f'column "y": expected a dtype, found {dtype!r}') + hint
    with pytest.raises(ValueError, match=message):
        tenfold.create(tmp_path / "c", {"x": other, "y": dtype})
    with pytest.raises(ValueError, match=r'column "r\.y": expected a dtype'):
        tenfold.create(tmp_path / "c", {"r": {"y": dtype}})
    with pytest.raises(ValueError, match='column "y": expected a dtype'):
        tenfold.ingest([{"y": 1}], tmp_path / "c", schema={"y": dtype})
    assert not (tmp_path / "c").exists()


def test_create_rejects_invalid_arguments(tmp_path: Path) -> None:
    tenfold.create(tmp_path / "rows", {"id": "int64"})
    with pytest.raises(FileExistsError, match="expected nothing there"):
        tenfold.create(tmp_path / "rows", {"id": "int64"})
    for arguments in ({"num_rows": 1, "capacity": 1}, {"capacity": 0}, {"num_rows": -1}):
        with pytest.raises(ValueError, match="create: "):
            tenfold.create(tmp_path / "a", {"id": "int64"}, **arguments)
    with pytest.raises(
        tenfold.UnsupportedError, match="all slots of a circular buffer have the same size"
    ):
        tenfold.create(tmp_path / "a", {"name": "string"}, capacity=4)
    for arguments in ({}, {"schema": {"x": "int64"}, "example": {"x": 1}}):
        with pytest.raises(ValueError, match="create: schema and example: expected one of them"):
            tenfold.create(tmp_path / "a", **arguments)
    with pytest.raises(ValueError, match="create: example: expected a dict"):
        tenfold.create(tmp_path / "a", example=5)
    for schema in ({}, {"x": None}, {"x": [[1], [2, 3]]}, 5):
        with pytest.raises(ValueError, match="schema"):
            tenfold.create(tmp_path / "a", schema)
    for shape in ("3", None, -1, True, [1.5]):
        with pytest.raises(ValueError, match='column "x": member "shape'):
            tenfold.create(tmp_path / "a", {"x": {"dtype": "float32", "shape": shape}})
    assert not (tmp_path / "a").exists()


def test_grown_dataset_is_written_and_read_without_torch(tmp_path: Path, run_python) -> None:
    run_python(
        """
import sys
sys.modules["torch"] = None
import numpy as np
import tenfold
ds = tenfold.create(sys.argv[1], {"x": ("float32", (2,)), "n": "string",
                                  "t": {"dtype": "int64", "ragged": True}})
ds.append({"x": np.ones((3, 2)), "n": ["a", "b", "c"], "t": [[1], [], [2, 3]]})
ds.append({"x": [1, 2], "n": "d", "t": [4]})
ds[0] = {"x": [5, 6]}
ds[1] = {"x": np.array([7, 8])}
ds.close()
assert ds[3]["t"].tolist() == [4] and ds[2]["t"].tolist() == [2, 3]
""",
        tmp_path / "rows",
    )
    ds = Dataset(tmp_path / "rows")
    assert ds["x"].tolist() == [[5, 6], [7, 8], [1, 1], [1, 2]]
    assert ds["n"] == ["a", "b", "c", "d"]


def grown_dataset(path):
    ds = tenfold.create(path, {"x": "int64"})
    ds.append({"x": 1})
    return ds, lambda: ds["x"].tolist() == [1]


def dataset_written_in_place(path):
    tenfold.ingest([{"x": 1}], path)
    ds = Dataset(path, mode="r+")
    ds[0] = {"x": 2}
    return ds, lambda: ds["x"].tolist() == [2]


def dictionary(path):
    tenfold.MappedDict.build({"a": torch.zeros(2)}, path)
    d = tenfold.MappedDict(path, mode="r+")
    d["a"] = torch.ones(2)
    return d, lambda: d["a"].tolist() == [1, 1]


def matrix(path):
    rows = tenfold.SparseMatrix.from_torch(torch.eye(2).to_sparse_csr())
    tenfold.save(rows, path)
    m = tenfold.SparseMatrix(path, mode="r+")
    m.append_rows(rows)
    return m, lambda: m.shape == (4, 2)


@pytest.mark.parametrize("opened", [grown_dataset, dataset_written_in_place, dictionary, matrix])
def test_closed_handle_still_reads_and_allows_replacing_the_folder(tmp_path, opened):
    handle, reads_what_was_written = opened(tmp_path / "d")
    with pytest.raises(OSError, match="in use"):
        tenfold.save({"other": torch.zeros(1)}, tmp_path / "d")
    handle.close()
    assert reads_what_was_written()
    tenfold.save({"other": torch.zeros(1)}, tmp_path / "d")
    assert reads_what_was_written()


def test_str_with_a_lone_surrogate_is_refused(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"s": "string"})
    with pytest.raises(
        ValueError, match=r'column "s": expected text, found a str with a lone surrogate'
    ):
        ds.append({"s": "\ud800"})
    assert len(ds) == 0


@pytest.mark.parametrize(
    "rows",
    [
        [{"x": TensorDict({"y": torch.ones(())}, [])}],
        {"x": TensorDict({"y": torch.ones(())}, [])},
        [{"x": MappingProxyType({"y": 1})}],
        {"x": [1], "x.valid": {"a": 1}},
        [{"x": 1.5, "r": {"values": {"a": 1}, "offsets": [0, 1]}}],
        {"x": [1], "r": {"values": {"a": 1}, "offsets": [0, 1]}},
        [{"x": [MappingProxyType({"a": 1})]}],
    ],
)
def test_mappings_in_place_of_values_are_errors(tmp_path: Path, rows: Any) -> None:
    ragged = tenfold.Column("int64", ragged=True, nullable=True)
    x = tenfold.Column("int64", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"x": x, "r": ragged})
    with pytest.raises((ValueError, TypeError), match=r'"[xr]'):
        ds.append(rows)
    assert len(ds) == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"values": torch.zeros(3)}, r"""expected a dict of .* found the keys \['values'\]"""),
        ({"offsets": [0, 3]}, r"""expected a dict of .* found the keys \['offsets'\]"""),
        ({"values": [1.0], "offsets": [0, 1], "x": 1}, 'expected a dict of "values" and "offsets"'),
        ({"values": torch.zeros(3), "offsets": None}, "offsets: .*found NoneType"),
        ({"values": torch.zeros(3), "offsets": 3}, "offsets: .*found int"),
        ({"values": torch.zeros(3), "offsets": torch.tensor(3)}, "offsets: .*found Tensor"),
        ({"values": torch.zeros(3), "offsets": []}, "offsets: .*found an empty list"),
    ],
)
def test_malformed_values_and_offsets_are_errors(
    tmp_path: Path, column: dict[str, Any], message: str
) -> None:
    ragged = tenfold.Column("float32", ragged=True)
    ds = tenfold.create(tmp_path / "rows", {"r": ragged})
    for append in (ds.append, lambda rows: ds.extend([rows])):
        with pytest.raises(ValueError, match=f'rows: column "r": {message}'):
            append({"r": column})
    assert len(ds) == 0


def test_rows_accept_objects_with_an_array_and_sequences(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    ids = tenfold.Column("int64", ragged=True)
    ds = tenfold.create(tmp_path / "rows", {"x": ("float32", (2,)), "ids": ids})
    series = pd.Series([1.0, 2.0])
    ds.append({"x": series, "ids": range(3)})
    ds.append([{"x": series, "ids": deque([4])}, {"x": memoryview(b"ab"), "ids": series.index}])
    assert ds["x"].tolist() == [[1, 2], [1, 2], [97, 98]]
    assert [row.tolist() for row in ds["ids"].unbind()] == [[0, 1, 2], [4], [0, 1]]


@pytest.mark.parametrize("nested", [False, True])
def test_validity_flags_are_stored_unless_the_value_is_none(tmp_path: Path, nested: bool) -> None:
    column = tenfold.Column("float32", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"r": {"x": column}, "y": "int64"})
    nan = float("nan")
    flags = [(nan, True), (2.0, False), (nan, None), (3.0, None), (None, True), (4.0, 1)]
    rows = []
    for x, flag in flags:
        members = {"x": x} | ({} if flag is None else {"x.valid": flag})
        rows.append({"r": MappingProxyType(members) if nested else members, "y": 1})
    ds.append(rows)
    assert ds["r.x.valid"].tolist() == [True, False, False, True, False, True]
    ds.append([TensorDict({"r": {"x": torch.tensor(1.0), "x.valid": torch.tensor(True)}, "y": 2})])
    assert ds["r.x.valid"].tolist()[-1]
    with pytest.raises(ValueError, match=r'column "r\.x": expected one value, found two'):
        ds.append({"r.x": 1.0, "r": {"x": 2.0}, "y": 1})


def test_nan_without_a_validity_is_missing_also_next_to_validities(tmp_path: Path) -> None:
    column = tenfold.Column("float32", (2,), nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"x": column})
    nan = torch.full((2,), float("nan"))
    ds.append([{"x": nan}, {"x": nan, "x.valid": np.True_}, {"x": nan.tolist()}])
    assert ds["x.valid"].tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_none_in_a_batch_is_missing_whatever_its_validity(tmp_path: Path, dtype: str) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": tenfold.Column(dtype, nullable=True)})
    ds.append({"x": [None, 1, None, 2], "x.valid": torch.tensor([True, True, False, False])})
    assert ds["x.valid"].tolist() == [False, True, False, False]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_floats_of_a_batch_or_row_that_are_marked_as_missing_are_nan(
    tmp_path: Path, dtype: str
) -> None:
    column = tenfold.Column(dtype, (2,), nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"x": column})
    given = torch.ones(2, 2, dtype=getattr(torch, dtype))
    for values in (given, given.int(), [[1, 1], [1, 1]]):
        for flags in (torch.tensor([True, False]), [True, False], deque([True, False])):
            ds.append({"x": values, "x.valid": flags})
    ds[0] = {"x": given[0], "x.valid": True}
    ds.append({"x": given[0], "x.valid": False})
    assert ds["x.valid"].tolist() == [True, False] * 9 + [False]
    assert ds["x"].isnan().tolist() == [[not valid] * 2 for valid in ds["x.valid"]]
    assert given.eq(1).all()


@pytest.mark.parametrize(
    "rows",
    [
        {"r.x.valid": [True, False], "y": [1, 2]},
        {"r": {"x.valid": False}, "y": 1},
        [{"r": {"x": 1}, "y": 1}, {"r": {"x.valid": True}, "y": 1}],
    ],
)
def test_validity_without_its_column_is_an_error(tmp_path: Path, rows: Any) -> None:
    column = tenfold.Column("int64", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"r": {"x": column}, "y": "int64"})
    message = r'column "r\.x": expected a value, because "r\.x\.valid" is given, found none'
    with pytest.raises(ValueError, match=message):
        ds.append(rows)
    assert ds.append({"r": {"x": 5}, "y": 1}) == 1
    for part in ({"r.x.valid": False}, [{"r.x.valid": False}]):
        with pytest.raises(ValueError, match=message):
            ds[0:1] = part
    assert ds[0]["r"] == {"x": 5, "x.valid": True}


def test_a_record_has_no_validity_in_a_list_of_rows(tmp_path: Path) -> None:
    x = tenfold.Column("float32", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"r": {"x": x}})
    ds.append([{"r": {"x": 1.0}}, {"r": {"x": 2.0}}])
    row = {"r": {"x": 5.0}, "r.valid": False}
    for rows in ([row], [{"r.valid": False, "r.x": 5.0}]):
        with pytest.raises(ValueError, match=r'column "r\.valid": no such column'):
            ds.append(rows)
    with pytest.raises(ValueError, match=r'column "r\.valid": no such column'):
        ds[[0, 1]] = [row, row]
    assert ds["r.x"].tolist() == [1, 2]


def test_rows_may_state_that_columns_without_nulls_are_valid(tmp_path: Path) -> None:
    a = tenfold.Column("int64", nullable=True)
    source = tenfold.create(tmp_path / "source", {"a": a})
    source.append({"a": [1, 2]})
    ds = tenfold.create(tmp_path / "rows", {"a": "int64"})
    ds.extend(source[i] for i in range(2))
    ds.append([{"a": 3, "a.valid": True}])
    with pytest.raises(ValueError, match='column "a": expected int64, found null'):
        ds.append([{"a": 4, "a.valid": False}])
    assert ds["a"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "row", [{"r": {"x": 1}, "r.x.valid": False}, {"r": {"x.valid": False}, "r.x": 1}]
)
def test_a_validity_in_another_dict_than_its_value_is_an_error(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    x = tenfold.Column("int64", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"r": {"x": x}})
    with pytest.raises(ValueError, match="in the same dict; give the validity beside the value"):
        ds.append([row])
    assert len(ds) == 0


@pytest.mark.parametrize("validity", [None, 1.0, "yes", np.int64(1)])
def test_a_validity_in_a_row_must_be_a_bool(tmp_path: Path, validity: Any) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": tenfold.Column("int64", nullable=True)})
    with pytest.raises(ValueError, match=r'column "x\.valid": expected a bool'):
        ds.append([{"x": 1, "x.valid": validity}])
    assert len(ds) == 0


def test_initial_rows_of_nullable_columns_are_zeros_that_are_missing(tmp_path: Path) -> None:
    x = tenfold.Column("float32", nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"x": x, "n": x._replace(dtype="int64")}, num_rows=2)
    assert ds["x"].tolist() == ds["n"].tolist() == [0, 0]
    assert ds["x.valid"].tolist() == ds["n.valid"].tolist() == [False, False]
    ds[0] = {"x": None}
    assert ds["x"].isnan().tolist() == [True, False]


@pytest.mark.parametrize("rows", [{"x": [1.0, None]}, [{"x": [1.0, None]}]])
def test_none_in_a_row_of_a_column_that_is_not_nullable_is_an_error(
    tmp_path: Path, rows: Any
) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": ("float32", (2,))})
    message = r'"x": expected float32\[2\], found None at index 1 of a list.*NaN'
    with pytest.raises(ValueError, match=message):
        ds.append(rows)


def test_none_in_a_list_is_named_with_its_index(tmp_path: Path) -> None:
    number = tenfold.Column("int64", (2,), nullable=True)
    ds = tenfold.create(tmp_path / "rows", {"n": number, "m": ("float32", (2, 2))})
    matrix = [[1, 2], [3, 4]]
    with pytest.raises(
        ValueError, match=r'"n": expected int64\[2\], found None at index 0 of .*2$'
    ):
        ds.append({"n": [None, 1], "m": matrix})
    for bad, index in (([[1, 2], [3, None]], r"\[1, 1\]"), ([matrix[0], None], "1")):
        with pytest.raises(
            ValueError, match=rf'row 0, column "m": .* None at index {index} of a list'
        ):
            ds.append([{"n": [1, 1], "m": bad}])
    with pytest.raises(ValueError, match=r'row 1, column "n": .* None at index 1 of a list'):
        ds.append({"n": [[1, 2], [1, None]], "m": [matrix, matrix]})
    with pytest.raises(ValueError, match=r"found a list of int64 of length 3$"):
        ds.append({"n": [1, 2, 3], "m": matrix})
    rows = [{"x": [1, 2]}, {"x": [1, None]}]
    made = tenfold.ingest(rows, tmp_path / "bad", on_error="collect")
    assert "found None at index 1 of a list of int64" in made.bad_rows[0]["error"]


def test_none_is_named_only_if_it_is_an_element_of_the_column(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"f": "float64", "n": ("int64", (2,))})
    with pytest.raises(ValueError, match=r'"f": expected float64, found a list of null.* 1$'):
        ds.append([{"f": [None], "n": [1, 2]}])
    with pytest.raises(ValueError, match=r"found a list as JSON text$"):
        ds.append([{"f": 0.5, "n": [1, [[None]]]}])


def test_other_sequences_and_byte_orders_may_be_nested_in_lists(tmp_path: Path) -> None:
    expected = [[0, 1], [2, 3]]
    big = np.array([0, 1], ">i8")
    ds = tenfold.create(tmp_path / "rows", {"x": ("int64", (2, 2))})
    for i, value in enumerate(
        ([big, [2, 3]], [range(2), range(2, 4)], [deque([0, 1]), (2, 3)], [big, big + 2])
    ):
        ds.append([{"x": value}])
        ingested = tenfold.ingest([{"x": value}], tmp_path / str(i))
        assert str(ingested.schema) == "x: int64[2, 2]"
        assert ingested["x"].tolist() == [expected]
    assert ds["x"].tolist() == [expected] * 4
    with pytest.raises(ValueError, match=r'column "x": expected int64\[2, 2\]'):
        ds.append([{"x": [range(2), range(3)]}])


def test_lists_that_contain_themselves_are_refused(tmp_path: Path) -> None:
    looped: list[Any] = []
    looped += [looped, looped]
    queue: deque[Any] = deque()
    queue.append(queue)
    array = np.empty(1, object)
    array[0] = array
    ds = tenfold.create(tmp_path / "rows", {"n": ("int64", (2,)), "m": ("float64", (2, 2))})
    for row in ({"n": looped, "m": [[1, 2]] * 2}, {"n": [1, 2], "m": looped}):
        with pytest.raises(ValueError, match="found list"):
            ds.append([row])
    for value in (looped, queue, array, [queue], [array]):
        with pytest.raises(ValueError, match="expected at most 64 nested lists"):
            tenfold.ingest([{"n": value}], tmp_path / "ingested")


def test_a_row_may_have_64_lists_in_each_other(tmp_path: Path) -> None:
    value: list[Any] = ["a"]
    for _ in range(63):
        value = [value]
    assert len(tenfold.ingest([{"n": value}], tmp_path / "rows")) == 1
    with pytest.raises(ValueError, match="expected at most 64 nested lists"):
        tenfold.ingest([{"n": [value]}], tmp_path / "deeper")


def test_decimals_are_refused_by_every_way_of_writing_rows(tmp_path: Path) -> None:
    value = Decimal("1.50")
    columns = {"s": "string", "f": "float64", "l": ("float64", (1,))}
    plain = {"s": "a", "f": 0.5, "l": [0.5]}
    ds = tenfold.create(tmp_path / "rows", columns)
    ds.append(plain)
    remedy = r"found Decimal\('1\.50'\); convert it with float\(\) or str\(\)"
    for name, bad, expected in (
        ("s", value, "string"),
        ("f", value, "float64"),
        ("l", [value], r"float64\[1\]"),
    ):
        row = {**plain, name: bad}
        message = rf'column "{name}": expected {expected}, {remedy}'
        for rows in (row, [plain, row], {key: [plain[key], row[key]] for key in row}):
            with pytest.raises(ValueError, match=message) as raised:
                ds.append(rows)
            assert rows is row or "row 1, " in str(raised.value)
        with pytest.raises(ValueError, match=rf"row 1, {message}"):
            ds.extend([plain, row])
    with pytest.raises(ValueError, match=rf'column "f": expected float64, {remedy}'):
        ds[0] = {"f": value}
    with pytest.raises(ValueError, match=rf'column "f": expected float64, {remedy}'):
        tenfold.ingest([{"f": value}], tmp_path / "ingested", schema={"f": "float64"})
    assert len(ds) == 1


@pytest.mark.skipif(np.dtype("g").itemsize == 8, reason="long double is float64")
def test_long_doubles_are_refused_with_the_dtype_to_use(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": "float64"})
    value = np.longdouble(1) / 3
    message = rf'column "x": expected .*, found {value.dtype}; convert it with astype\("float64"\)'
    for rows in ({"x": value}, [{"x": value}], {"x": np.array([value])}, {"x": [value, value]}):
        with pytest.raises(ValueError, match=message):
            ds.append(rows)
    with pytest.raises(ValueError, match=r'found complex256; convert it with astype\("complex128"'):
        ds.append({"x": np.clongdouble(1)})
    assert len(ds) == 0


def test_rows_without_elements_may_be_lists(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": ("float32", (2, 0)), "y": ("int64", (0,))})
    array, row = np.zeros((2, 0), np.float32), {"x": [[], []], "y": []}
    ds.append([row, {"x": array, "y": []}, {"x": [array[0], []], "y": ()}])
    ds.append({"x": [[[], []]] * 2, "y": [[], []]})
    assert ds["x"].shape == (5, 2, 0)
    assert ds["y"].shape == (5, 0)
    with pytest.raises(ValueError, match=r'column "x": expected float32\[2, 0\]'):
        ds.append([{"x": [[]], "y": []}])


def test_arrays_may_be_nested_in_lists_at_any_depth(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": ("int64", (2, 2, 2))})
    expected = np.arange(8).reshape(2, 2, 2)
    nested = [[list(matrix) for matrix in expected], [torch.as_tensor(m) for m in expected]]
    nested += [[[row.tolist() for row in matrix] for matrix in expected], list(expected)]
    nested += [[[expected[0, 0], [2, 3]], expected[1].astype(np.int16)]]
    for value in nested:
        ds.append([{"x": value}])
        ds.append({"x": [value, value]})
    assert (ds["x"].numpy() == expected).all()
    with pytest.raises(ValueError, match=r'column "x": expected int64\[2, 2, 2\]'):
        ds.append([{"x": [[expected[0, 0]], [expected[0, 1]]]}])
    ingested = tenfold.ingest([{"x": nested[0]}, {"x": nested[0]}], tmp_path / "ingested")
    assert str(ingested.schema) == "x: int64[2, 2, 2]"
    assert (ingested["x"].numpy() == expected).all()
    floats = [{"x": [np.array([0.5, 2])]}, {"x": [np.array([1, 2])]}]
    assert tenfold.ingest(floats, tmp_path / "floats")["x"].tolist() == [[[0.5, 2]], [[1, 2]]]


def test_jagged_tensors_with_lengths_append_their_rows_only(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"ids": tenfold.Column("int64", ragged=True)})
    values, offsets = torch.arange(6), torch.tensor([0, 3, 6])
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor([1, 2]))
    ds.append({"ids": jagged})
    assert [row.tolist() for row in ds["ids"].unbind()] == [[0], [3, 4]]


def test_row_numbers_in_errors_of_extend_count_the_rows_of_batches(tmp_path: Path) -> None:
    ds = tenfold.create(tmp_path / "rows", {"x": "int64"})
    rows = [{"x": i} for i in range(5000)]
    with pytest.raises(ValueError, match='row 5003, column "x"'):
        ds.extend([*rows, {"x": torch.arange(3)}, {"x": "text"}])


def test_close_in_a_forked_child_leaves_the_rows_to_the_parent(tmp_path):
    ds = tenfold.create(tmp_path / "ds", {"id": "int64"})
    ds.append({"id": 0})
    assert exit_status(forked(ds.close)) == 0
    ds.append({"id": 1})
    ds.close()
    assert Dataset(tmp_path / "ds")[:]["id"].tolist() == [0, 1]
    assert tenfold.verify(tmp_path / "ds").ok

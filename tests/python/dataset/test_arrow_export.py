"""Libraries that read Arrow's C stream interface read a data set."""

from __future__ import annotations

import gc
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
from tenfold import Dataset

pa = pytest.importorskip("pyarrow")


def records(count: int) -> list[dict[str, Any]]:
    return [
        {
            "i": i,
            "x": None if i % 5 == 1 else (math.nan if i % 5 == 2 else i / 2),
            "n": None if i % 3 == 0 else i,
            "flag": i % 2 == 0,
            "text": "é" * (i % 4),
            "maybe": None if i % 4 == 0 else f"t{i}",
            "vector": [float(i), float(-i)],
            "tokens": list(range(i % 4)),
            "tags": [f"a{k}" for k in range(i % 3)],
            "camera": {"gain": i / 8, "lens": {"name": f"l{i}"}},
        }
        for i in range(count)
    ]


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    return tenfold.ingest(records(50), tmp_path / "d")


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Returns whether the rows are equal. NaN counts as equal to NaN."""
    return repr(found) == repr(expected)


VIEWS: dict[str, Any] = {
    "all": (lambda ds: ds, range(50)),
    "range": (lambda ds: ds.range(7, 31), range(7, 31)),
    "take": (lambda ds: ds.take([9, 2, 2, 40]), [9, 2, 2, 40]),
    "no rows": (lambda ds: ds.range(3, 3), []),
    "shuffle": (lambda ds: ds.shuffle(3), tenfold.permutation(50, 3, 0)[:].tolist()),
    "concat": (lambda ds: tenfold.concat([ds.range(0, 3), ds.range(9, 12)]), [0, 1, 2, 9, 10, 11]),
}


@pytest.mark.parametrize("view", VIEWS)
def test_columns_of_a_data_set_and_its_views_are_exported(ds: Dataset, view: str) -> None:
    of, rows = VIEWS[view]
    expected = [records(50)[i] for i in rows]
    table = pa.table(of(ds))
    table.validate(full=True)
    assert same(table.to_pylist(), expected)
    copied = of(ds).to_arrow()
    copied.validate(full=True)
    assert copied.schema == table.schema
    assert same(copied.to_pylist(), expected)
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types["text"] == "large_string"
    assert types["tokens"].startswith("large_list<")
    assert types["vector"].startswith("fixed_size_list<")
    assert types["tags"] == "large_list<item: large_string not null>"
    assert types["camera"].startswith("struct<gain: double")
    assert table.schema.field("n").nullable
    assert not table.schema.field("i").nullable


def test_exported_rows_are_ingested_again_unchanged(ds: Dataset, tmp_path: Path) -> None:
    again = tenfold.ingest(pa.table(ds), tmp_path / "again")
    assert again.schema == ds.schema
    assert same(pa.table(again).to_pylist(), records(50))


def test_exported_batches_have_65536_rows_and_share_the_mapping(tmp_path: Path) -> None:
    count = 65_536 * 2 + 5
    tenfold.save({"x": torch.arange(count), "v": torch.ones(count, 2)}, tmp_path / "d")
    ds = Dataset(tmp_path / "d")
    reader = pa.RecordBatchReader.from_stream(ds)
    batches = list(reader)
    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 5]
    column = ds["x"]
    for number, batch in enumerate(batches):
        address = batch.column("x").buffers()[1].address
        assert address == column.data_ptr() + number * 65_536 * 8
    copied = ds.to_arrow().column("x").chunk(0).buffers()[1].address
    assert not column.data_ptr() <= copied < column.data_ptr() + column.nbytes


def test_exported_arrays_outlive_the_deleted_files(ds: Dataset, tmp_path: Path) -> None:
    table = pa.table(ds)
    del ds
    for file in sorted((tmp_path / "d").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    gc.collect()
    assert same(table.to_pylist(), records(50))


def test_pandas_polars_and_duckdb_read_a_data_set(ds: Dataset) -> None:
    pytest.importorskip("pandas")
    frame = ds.to_pandas()
    assert frame["i"].tolist() == list(range(50))
    assert frame["text"].tolist() == [row["text"] for row in records(50)]
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(ds)["tokens"].to_list() == [row["tokens"] for row in records(50)]
    duckdb = pytest.importorskip("duckdb")
    rows = ds.range(0, 10)
    found = duckdb.sql("select sum(i) from rows where flag").fetchall()
    assert rows.num_rows == 10
    assert found == [(20,)]


def test_pandas_gets_nullable_integers_and_bools_unchanged(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    big = 2**53 + 1
    rows = [
        {"n": big, "i": 1, "flag": True, "x": 1.5, "text": "a", "record": {"n": big, "i": 2}},
        {"n": None, "i": 2, "flag": None, "x": None, "text": None, "record": {"n": None, "i": 3}},
    ]
    ds = tenfold.ingest(rows, tmp_path / "d")
    frame = ds.to_pandas()
    assert list(frame.columns) == list(rows[0])
    types = {name: str(frame[name].dtype) for name in ("n", "i", "flag", "x")}
    assert types == {"n": "Int64", "i": "int64", "flag": "boolean", "x": "float64"}
    assert frame["n"].tolist() == [big, pandas.NA]
    assert frame["flag"].tolist() == [True, pandas.NA]
    assert frame["record"].tolist() == [{"n": big, "i": 2}, {"n": None, "i": 3}]
    only = ds.select(["n", "flag"]).to_pandas()
    assert only["n"].tolist() == frame["n"].tolist()
    assert len(only) == 2
    assert len(ds.range(2, 2).to_pandas()) == 0
    small = {"u": tenfold.Column("uint8", nullable=True)}
    numbers = tenfold.ingest([{"u": 255}, {"u": None}], tmp_path / "u", schema=small).to_pandas()
    assert str(numbers["u"].dtype) == "UInt8"
    again = tenfold.ingest(ds.select(["n", "flag"]).to_pandas(), tmp_path / "again")
    assert again.schema == ds.select(["n", "flag"]).schema


def test_hugging_face_reads_the_table(ds: Dataset) -> None:
    datasets = pytest.importorskip("datasets")
    read = datasets.Dataset(ds.to_arrow())
    assert read[7]["camera"] == {"gain": 7 / 8, "lens": {"name": "l7"}}


def test_units_are_metadata_of_the_field(tmp_path: Path) -> None:
    times = pa.table({"t": pa.array(np.array([1, 2], "datetime64[ms]"))})
    ds = tenfold.ingest(times, tmp_path / "d")
    assert pa.table(ds).schema.field("t").metadata == {b"unit": b"ms"}
    assert tenfold.ingest(pa.table(ds), tmp_path / "again").schema == ds.schema
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(ds), tmp_path / "t.parquet")
    assert tenfold.ingest(tmp_path / "t.parquet", tmp_path / "again").schema == ds.schema


def test_a_dtype_that_arrow_lacks_raises_an_error_naming_the_column(ds: Dataset) -> None:
    rows = Dataset({"ok": torch.ones(2), "w": torch.ones(2, dtype=torch.bfloat16)})
    with pytest.raises(tenfold.UnsupportedError, match='column "w": Arrow has no such type'):
        pa.table(rows)
    assert pa.table(rows.select(["ok"])).num_rows == 2
    with pytest.raises(tenfold.UnsupportedError, match=r"expected no map\(\)"):
        pa.table(ds.map(dict))


def test_damaged_offsets_raise_an_error_from_the_stream(tmp_path: Path) -> None:
    tenfold.ingest([{"t": "abc"}, {"t": "de"}], tmp_path / "d")
    (offsets,) = (tmp_path / "d").glob("t*end.memmap")
    offsets.write_bytes(np.array([99, 5], np.int64).tobytes())
    with pytest.raises(OSError, match=r'column "t": end offset 0: expected nondecreasing offsets'):
        pa.table(Dataset(tmp_path / "d"))


def test_error_of_damaged_item_offsets_names_the_item(tmp_path: Path) -> None:
    tenfold.ingest([{"t": ["abc", "de"]}, {"t": ["f"]}], tmp_path / "d")
    dataset = Dataset(tmp_path / "d")
    assert pa.table(dataset)["t"].to_pylist() == [["abc", "de"], ["f"]]
    items = np.array([3, 5, 6], np.int64).tobytes()
    (offsets,) = (p for p in (tmp_path / "d").rglob("*.memmap") if p.read_bytes() == items)
    offsets.write_bytes(np.array([3, 2, 6], np.int64).tobytes())
    with pytest.raises(
        OSError, match=r'column "t": end offset of item 1: expected nondecreasing offsets'
    ):
        pa.table(Dataset(tmp_path / "d"))

"""Ingest of Parquet files, whose columns are decoded in groups."""

import json
import sys

import numpy as np
import pytest

import tenfold
from peak_memory import PEAK_OF
from tenfold.dataset._ingest import parquet

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(params=[1, 32 << 20], ids=["a column at a time", "together"])
def group_bytes(request, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_BYTES", request.param)


def table(num_rows=5000):
    random = np.random.default_rng(3)
    numbers = random.integers(0, 1000, num_rows)
    return pa.table(
        {
            "float": random.standard_normal(num_rows).astype(np.float32),
            "holes": pa.array(numbers, mask=numbers % 7 == 0),
            "text": pa.array([f"row {i}" for i in numbers]),
            "tokens": pa.array([list(range(i % 5)) for i in numbers]),
            "record": pa.array([{"a": int(i), "b": {"c": i / 2}} for i in numbers]),
            "flag": pa.array(numbers % 2 == 0),
        }
    )


def rows_of(dataset):
    return [dataset[i] for i in range(0, len(dataset), 97)]


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a is b or (a == b if isinstance(a, str) else np.array_equal(a, b, equal_nan=True))


@pytest.mark.parametrize("num_threads", [1, None])
def test_columns_do_not_depend_on_how_many_are_decoded_together(tmp_path, group_bytes, num_threads):
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=1700)
    pq.write_table(table(300), tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    ds = tenfold.ingest(files, tmp_path / "ds", num_threads=num_threads)
    expected = tenfold.ingest(pa.concat_tables([table(), table(300)]), tmp_path / "expected")
    assert ds.columns == expected.columns
    assert ds.schema == expected.schema
    assert len(ds) == 5300
    assert all(map(same, rows_of(ds), rows_of(expected)))
    assert tenfold.verify(tmp_path / "ds").ok
    assert tenfold.infer_schema(files) == ds.schema


def test_columns_have_the_requested_order(tmp_path, group_bytes):
    pq.write_table(table(), tmp_path / "a.parquet")
    columns = ["text", "record.b", "float"]
    ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds", columns=columns)
    assert ds.columns == ["text", "record", "float"]
    assert list(ds[0]["record"]) == ["b"]
    ds = tenfold.ingest(
        tmp_path / "a.parquet", tmp_path / "ds", schema={"flag": "int64", "float": "float64"}
    )
    assert ds.columns == ["flag", "float"]
    assert ds["float"].dtype == torch.float64
    assert sorted(ds.report.ignored) == ["holes", "record.a", "record.b.c", "text", "tokens"]


def test_columns_that_are_not_requested_are_not_decoded(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, compression="snappy", use_dictionary=False)
    column = pq.read_metadata(path).row_group(0).column(2)
    assert column.path_in_schema == "text"
    begin, size = column.data_page_offset, column.total_compressed_size
    content = bytearray(path.read_bytes())
    content[begin : begin + size] = b"\xff" * size
    path.write_bytes(content)
    with pytest.raises(tenfold.CorruptFileError, match=r"a.parquet: it cannot be read"):
        tenfold.ingest(path, tmp_path / "ds")
    wanted = [name for name in table().column_names if name != "text"]
    assert len(tenfold.ingest(path, tmp_path / "ds", columns=wanted)) == 5000


def test_bad_row_is_named_by_its_file_and_row_number_there(tmp_path, group_bytes):
    first = pa.table({"x": list(range(10)), "y": [[1]] * 10})
    second = pa.table({"x": list(range(5)), "y": [[1], [2], [None], [3], [4]]})
    pq.write_table(first, tmp_path / "a.parquet", row_group_size=4)
    pq.write_table(second, tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(ValueError, match=r'b.parquet: row 2, column "y": expected numbers'):
        tenfold.ingest(files, tmp_path / "ds")
    assert not (tmp_path / "ds").exists()
    ds = tenfold.ingest(files, tmp_path / "ds", on_error="collect")
    assert len(ds) == 14
    assert ds["x"].tolist() == [*range(10), 0, 1, 3, 4]
    (bad,) = ds.bad_rows
    assert (bad["row"], bad["column"]) == (2, "y")
    assert bad["error"].startswith(f'{files[1]}: row 2, column "y": expected numbers')
    assert '"x": 2' in bad["text"]


@pytest.mark.parametrize("on_error", ["skip", "collect"])
def test_bad_rows_are_skipped_in_columns_that_are_decoded_separately(
    tmp_path, group_bytes, on_error
):
    rows = 3000
    made = {
        "a": list(range(rows)),
        "b": [[None] if i % 1000 == 7 else [i] for i in range(rows)],
        "t": [None if i % 1000 == 8 else f"t{i}" for i in range(rows)],
        "c": [[i, None] if i % 1000 in (7, 8) else [] for i in range(rows)],
        "d": pa.array([i / 2 for i in range(rows)], pa.float32()),
    }
    pq.write_table(pa.table(made), tmp_path / "a.parquet", row_group_size=700)
    if on_error == "skip":
        with pytest.warns(UserWarning, match="6 rows omitted"):
            ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds", on_error=on_error)
    else:
        ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds", on_error=on_error)
    kept = [i for i in range(rows) if i % 1000 not in (7, 8)]
    assert ds["a"].tolist() == kept
    assert ds["d"].tolist() == [i / 2 for i in kept]
    assert ds[:]["t"] == [f"t{i}" for i in kept]
    assert [row["b"].tolist() for row in ds] == [[i] for i in kept]
    # The rows without a string are among the skipped rows.
    assert not ds.schema["t"].nullable
    assert (ds.report.num_rows, ds.report.num_bad_rows) == (len(kept), 6)
    assert tenfold.verify(tmp_path / "ds").ok
    if on_error == "skip":
        assert ds.bad_rows == []
        return
    assert [(bad["row"], bad["column"]) for bad in ds.bad_rows] == [
        (1000 * i + k, "b" if k == 7 else "c") for i in range(3) for k in (7, 8)
    ]
    assert json.loads(ds.bad_rows[3]["text"]) == {
        "a": 1008, "b": [1008], "t": None, "c": [1008, None], "d": 504.0
    }  # fmt: skip


def test_progress_expects_the_bytes_of_all_files(tmp_path, group_bytes):
    made = pa.table({"x": np.random.default_rng(0).standard_normal(10_000)})
    pq.write_table(made.slice(0, 1), tmp_path / "0.parquet")
    for i in (1, 2):
        pq.write_table(made, tmp_path / f"{i}.parquet")
    seen = []
    tenfold.ingest(
        str(tmp_path / "*.parquet"), tmp_path / "ds", progress=lambda *what: seen.append(what)
    )
    assert seen[0][1] >= 2 * made.nbytes
    assert all(done <= total for done, total, _ in seen)


def test_a_column_named_like_a_nested_field_is_refused(tmp_path, group_bytes):
    made = pa.table({"a.b": [1, 2], "a": pa.array([{"b": 3}, {"b": 4}]), "c": [5, 6]})
    pq.write_table(made, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r'column "a\.b": expected one column or record'):
        tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds")
    ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds", columns=["a.b", "c"])
    assert ds[1] == {"a.b": 2, "c": 6}


def test_file_without_rows_or_columns_becomes_an_empty_dataset(tmp_path, group_bytes):
    pq.write_table(table(0), tmp_path / "a.parquet")
    ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds")
    assert len(ds) == 0
    assert ds.columns == table().column_names
    pq.write_table(pa.table({}), tmp_path / "b.parquet")
    assert len(tenfold.ingest(tmp_path / "b.parquet", tmp_path / "none")) == 0


@pytest.mark.parametrize("row_group_size", [1, 3, 1000])
def test_categories_in_lists_and_structs_are_read_from_several_row_groups(
    tmp_path, group_bytes, row_group_size
):
    names = pa.array(["a", "b", None, "c"] * 5).dictionary_encode()
    texts = pa.array(["a", "b", "c"] * 10).dictionary_encode()
    columns = {
        "number": list(range(10)),
        "list": pa.ListArray.from_arrays(pa.array(range(0, 31, 3), pa.int32()), texts),
        "struct": pa.StructArray.from_arrays([names.slice(0, 10)], ["c"]),
        "plain": names.slice(0, 10),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=row_group_size)
    ds = tenfold.ingest(tmp_path / "a.parquet", tmp_path / "ds")
    assert str(ds.schema) == "number: int64\nlist: string[*]\nstruct.c: string?\nplain: string?"
    assert [row["list"] for row in ds] == columns["list"].to_pylist()
    assert [row["struct"]["c"] or None for row in ds] == names.slice(0, 10).to_pylist()
    assert [row["plain"] or None for row in ds] == names.slice(0, 10).to_pylist()
    assert ds["number"].tolist() == list(range(10))


PROGRAM = """
import sys, tenfold, pyarrow.parquet

warm, source, target, on_error = sys.argv[1:]
tenfold.ingest(warm, target, progress=False, on_error=on_error)
def work():
    tenfold.ingest(source, target, progress=False, durable=False, on_error=on_error)

print(peak_of(work))
"""


def wide():
    random = np.random.default_rng(1)
    columns = {f"f{i}": random.standard_normal(300_000).astype(np.float32) for i in range(150)}
    return pa.table(columns)


def repeated_texts():
    texts = [f"{i:02}" * 5000 for i in range(50)]
    return pa.table({"text": pa.array([texts[i % 50] for i in range(50_000)], pa.large_string())})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("make", [wide, repeated_texts])
def test_peak_memory_is_bounded_for_wide_files_and_long_text(tmp_path, run_python, make, on_error):
    made = make()
    if on_error == "skip":
        bad = pa.array([[None] if i % 1000 == 0 else [] for i in range(made.num_rows)])
        made = made.append_column("bad", bad.cast(pa.list_(pa.int64())))
    pq.write_table(made, tmp_path / "all.parquet", row_group_size=made.num_rows)
    pq.write_table(made.slice(0, 1), tmp_path / "one.parquet")
    paths = [tmp_path / name for name in ("one.parquet", "all.parquet", "ds")]
    peak = int(run_python(PEAK_OF + PROGRAM, *paths, on_error))
    assert peak < 128e6 < made.nbytes

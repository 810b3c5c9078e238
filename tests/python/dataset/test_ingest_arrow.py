"""Ingest of Arrow's record batches: types, slices, nulls, files, pandas, polars, datasets."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from tenfold import Column, Schema

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def columns(ds: tenfold.Dataset) -> dict[str, str]:
    return {name: str(column) for name, column in ds.schema.items()}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def values(ds: tenfold.Dataset, name: str = "x") -> list[Any]:
    """Returns the values of a column, with None for missing values."""
    return [None if not row.get(name + ".valid", True) else plain(row[name]) for row in ds]


def ingest(tmp_path, array: Any, **options: Any) -> tenfold.Dataset:
    table = array if isinstance(array, pa.Table) else pa.table({"x": array})
    return tenfold.ingest(table, tmp_path / "ds", **options)


NUMBERS = {
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_keep_their_dtype_with_and_without_nulls(tmp_path, name):
    numbers = [True, False, True] if name == "bool" else [np.float16(1), 0, 7]
    if name != "float16" and name != "bool":
        numbers = [1, 0, 7]
    ds = ingest(tmp_path, pa.array(numbers, NUMBERS[name]))
    assert columns(ds) == {"x": name}
    assert ds["x"].tolist() == numbers
    ds = ingest(tmp_path, pa.array([*numbers, None], NUMBERS[name]))
    assert columns(ds) == {"x": name + "?"}
    assert values(ds)[:3] == numbers
    last = values(ds)[3]
    assert last is None or np.isnan(last)


TEXTS = {
    "string": (pa.string(), ["a", "", "é" * 20]),
    "large_string": (pa.large_string(), ["a", "", "é" * 20]),
    "string_view": (pa.string_view(), ["a", "", "é" * 20]),
    "binary": (pa.binary(), [b"a", b"", b"\xff" * 20]),
    "large_binary": (pa.large_binary(), [b"a", b"", b"\xff" * 20]),
    "binary_view": (pa.binary_view(), [b"a", b"", b"\xff" * 20]),
    "fixed": (pa.binary(2), [b"ab", b"cd", b"\x00\xff"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_arrow_string_layout_becomes_string_or_bytes(tmp_path, name):
    kind, texts = TEXTS[name]
    array = pa.array([*texts, None, *texts], kind)
    dtype = "string" if isinstance(texts[0], str) else "bytes"
    ds = ingest(tmp_path, array)
    assert columns(ds) == {"x": dtype + "?"}
    assert values(ds) == [*texts, None, *texts]
    ds = ingest(tmp_path, array.slice(1, 2))
    assert columns(ds) == {"x": dtype}
    assert values(ds) == texts[1:]


def test_dates_times_and_durations_become_integers_with_a_unit(tmp_path):
    table = pa.table(
        {
            "day": pa.array([0, 1], pa.date32()),
            "date": pa.array([86_400_000, 0], pa.date64()),
            "time": pa.array([5, 6], pa.time32("ms")),
            "nano": pa.array([7, 8], pa.time64("ns")),
            "stamp": pa.array([1, 2], pa.timestamp("us")),
            "zone": pa.array([3, 4], pa.timestamp("s", tz="Europe/Rome")),
            "span": pa.array([-5, 6], pa.duration("ms")),
            "list": pa.array([[1], [2, 3]], pa.list_(pa.timestamp("ns"))),
        }
    )
    ds = ingest(tmp_path, table)
    assert columns(ds) == {
        "day": "int64 (days)",
        "date": "int64 (ms)",
        "time": "int64 (ms)",
        "nano": "int64 (ns)",
        "stamp": "int64 (us)",
        "zone": "int64 (s)",
        "span": "int64 (ms)",
        "list": "int64[*] (ns)",
    }
    assert ds["day"].tolist() == [0, 1]
    assert ds["span"].tolist() == [-5, 6]


def test_decimals_become_strings_with_all_digits(tmp_path):
    texts = ["123.45", "-0.01", "0.00", "99999999999999999999999999999999999.99"]
    for kind in (pa.decimal128(38, 2), pa.decimal256(60, 2)):
        ds = ingest(tmp_path, pa.array([decimal.Decimal(text) for text in texts], kind))
        assert values(ds) == texts
    assert values(
        ingest(tmp_path, pa.array([decimal.Decimal("1.2E+3")], pa.decimal128(5, -2)))
    ) == ["1200"]


LISTS = [
    (pa.list_(pa.int32()), [[1, 2], [], [3]], "int32[*]"),
    (pa.large_list(pa.float32()), [[1.5], [2.5, None]], "float32[*]"),
    (pa.list_view(pa.int16()), [[1], [2, 3], []], "int16[*]"),
    (pa.list_(pa.bool_()), [[True], [], [False, True]], "bool[*]"),
    (pa.list_(pa.float32(), 2), [[1, 2], [3, 4]], "float32[2]"),
    (pa.list_(pa.list_(pa.int8(), 2), 2), [[[1, 2], [3, 4]]] * 3, "int8[2, 2]"),
    (pa.list_(pa.list_(pa.int8(), 2)), [[[1, 2]], [], [[3, 4], [5, 6]]], "int8[*, 2]"),
    (pa.list_(pa.list_(pa.int8())), [[[1, 2]], [], [[3, 4], [5, 6]]], "int8[*, 2]"),
    (
        pa.list_(pa.list_(pa.list_(pa.bool_()))),
        [[[[True]]], [[[False]], [[True]]]],
        "bool[*, 1, 1]",
    ),
    (pa.list_(pa.string()), [["a", "é"], [], [""]], "string[*]"),
    (pa.list_(pa.string_view()), [["a" * 20], ["b"]], "string[*]"),
    (pa.list_(pa.binary()), [[b"\xff"], []], "bytes[*]"),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a", "b"], ["a"]], "string[*]"),
    (pa.list_(pa.string(), 2), [["a", "b"], ["c", "d"]], "string[*]"),
]


@pytest.mark.parametrize(("kind", "lists", "dtype"), LISTS, ids=lambda value: str(value)[:40])
def test_lists_become_fixed_shape_or_ragged_columns(tmp_path, kind, lists, dtype):
    array = pa.array(lists, kind)
    ds = ingest(tmp_path, array)
    assert columns(ds) == {"x": dtype}
    assert str(values(ds)) == str(lists).replace("None", "nan") or values(ds) == lists
    with_null = pa.array([lists[0], None, *lists[1:]], kind)
    ds = ingest(tmp_path, with_null)
    assert columns(ds) == {"x": dtype + "?"}
    ds = ingest(tmp_path, with_null.slice(2))
    assert columns(ds) == {"x": dtype}
    assert str(values(ds)) == str(lists[1:]).replace("None", "nan") or values(ds) == lists[1:]


def test_types_without_a_column_type_become_json(tmp_path):
    table = pa.table(
        {
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
            "pairs": pa.array([[(1, "x")], None], pa.map_(pa.int32(), pa.string())),
            "structs": pa.array([[{"a": 1, "b": None}], []]),
            "deep": pa.array([[[1], [2, 3]], [[]]]),
        }
    )
    ds = ingest(tmp_path, table)
    assert columns(ds) == {
        "map": "string",
        "pairs": "string?",
        "structs": "string",
        "deep": "string",
    }
    assert [p.column for p in ds.report.promotions if "JSON" in p.to] == [
        "map",
        "pairs",
        "structs",
        "deep",
    ]
    assert [json.loads(text) for text in values(ds, "map")] == [{"a": 1}, {}]
    assert json.loads(values(ds, "pairs")[0]) == [[1, "x"]]
    assert values(ds, "structs")[0] == '[{"a": 1, "b": null}]'
    assert [json.loads(text) for text in values(ds, "deep")] == [[[1], [2, 3]], [[]]]


@pytest.mark.parametrize("batch_rows", [1, 2, 10])
def test_nested_lists_of_equal_shape_are_tensors_and_otherwise_json(tmp_path, batch_rows):
    lists = [[], [[1, 2]], None, [[3, 4], [5, 6]]]
    array = pa.array(lists, pa.list_(pa.list_(pa.int16())))
    ds = ingest(tmp_path, array, batch_rows=batch_rows)
    assert columns(ds) == {"x": "int16[*, 2]?"}
    assert values(ds) == lists
    array = pa.array([*lists, [[7]]], pa.list_(pa.list_(pa.int16())))
    ds = ingest(tmp_path, array, batch_rows=batch_rows)
    assert columns(ds) == {"x": "string?"}
    found = [text and json.loads(text) for text in values(ds)]
    assert found == [*lists, [[7]]]


def test_null_structs_become_records_with_null_fields(tmp_path):
    kind = pa.struct({"a": pa.int64(), "s": pa.struct({"t": pa.string()})})
    array = pa.array([{"a": 1, "s": {"t": "x"}}, None, {"a": 3, "s": None}], kind)
    ds = ingest(tmp_path, array)
    assert str(ds.schema) == "x.a: int64?\nx.s.t: string?"
    assert [bool(row["x"]["a.valid"]) for row in ds] == [True, False, True]
    assert [row["x"]["s"]["t"] for row in ds] == ["x", "", ""]
    ds = ingest(tmp_path, array.slice(2))
    assert values(ds.select([("x", "a")]).map(lambda row: row["x"]), "a") == [3]


def test_null_columns_are_nullable_floats(tmp_path):
    ds = ingest(tmp_path, pa.nulls(3))
    assert columns(ds) == {"x": "float64?"}
    assert ds["x"].isnan().all()


def test_a_null_in_a_later_batch_makes_the_column_nullable(tmp_path):
    chunks = [pa.array([1, 2]), pa.array([3, None]), pa.array([5])]
    ds = ingest(tmp_path, pa.chunked_array(chunks))
    assert values(ds) == [1, 2, 3, None, 5]


def test_a_null_in_a_list_of_integers_is_a_bad_row(tmp_path):
    array = pa.array([[1], [2, None], [3]])
    with pytest.raises(ValueError, match=r'row 1, column "x": expected numbers in the list'):
        ingest(tmp_path, array)
    ds = ingest(tmp_path, array, on_error="collect")
    assert values(ds) == [[1], [3]]
    assert [(bad["row"], bad["text"]) for bad in ds.bad_rows] == [(1, '{"x": [2, null]}')]


def test_invalid_utf8_is_a_bad_row(tmp_path):
    bad = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer(b"a\xff")
    )
    with pytest.raises(ValueError, match=r'row 1, column "x": expected UTF-8'):
        ingest(tmp_path, bad)
    # The whole buffer is valid UTF-8, but its rows are not.
    cut = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer("é".encode())
    )
    with pytest.raises(ValueError, match=r'row 0, column "x": expected UTF-8'):
        ingest(tmp_path, cut)


def test_unsupported_arrow_types_are_refused_by_column(tmp_path):
    union = pa.UnionArray.from_dense(
        pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])]
    )
    with pytest.raises(tenfold.UnsupportedError, match=r'column "x": .*format "\+ud:0"'):
        ingest(tmp_path, union)


def test_a_schema_casts_and_rejects_values_that_do_not_fit(tmp_path):
    table = pa.table({"f": [0.5, 1e300], "i": [1, 300], "l": [[1, 2], [3, 4]], "other": [1, 2]})
    schema = Schema({"l": Column("float32", (2,)), "i": Column("int16")})
    ds = ingest(tmp_path, table, schema=schema)
    assert ds.schema == schema
    assert ds["l"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert sorted(ds.report.ignored) == ["f", "other"]
    with pytest.raises(ValueError, match=r'row 1, column "i": expected int8, found 300'):
        ingest(tmp_path, table, schema=Schema({"i": Column("int8")}))
    with pytest.raises(ValueError, match=r'row 1, column "f": expected float32, found 1e\+300'):
        ingest(tmp_path, table, schema=Schema({"f": Column("float32")}))
    with pytest.raises(ValueError, match='column "nope": the schema names it'):
        ingest(tmp_path, table, schema=Schema({"nope": Column("int8")}))
    with pytest.warns(UserWarning, match="1 row"):
        ds = ingest(tmp_path, table, schema=Schema({"i": Column("int8")}), on_error="skip")
    assert ds["i"].tolist() == [1]


def test_columns_are_selected_by_name(tmp_path):
    table = pa.table({"a": [1], "r": [{"b": 2, "c": 3}]})
    assert str(ingest(tmp_path, table, columns=["r.c"]).schema) == "r.c: int64"
    assert ingest(tmp_path, table, columns=["r", "a"]).columns == ["r", "a"]
    with pytest.raises(KeyError, match='no column "z"'):
        ingest(tmp_path, table, columns=["z"])


# --- sources ---


def tables() -> Any:
    return pa.table({"x": range(1000), "s": [f"row {i}" for i in range(1000)]})


def test_record_batch_readers_and_batches_are_read_completely(tmp_path):
    for source in (
        tables().to_reader(max_chunksize=100),
        tables().to_batches()[0],
        pa.RecordBatchReader.from_batches(tables().schema, iter(tables().to_batches(64))),
    ):
        ds = tenfold.ingest(source, tmp_path / "ds")
        assert len(ds) == 1000
        assert ds[999]["s"] == "row 999"


def test_exception_of_the_producer_is_propagated(tmp_path):
    def batches():
        yield tables().to_batches()[0]
        raise ZeroDivisionError("mine")

    reader = pa.RecordBatchReader.from_batches(tables().schema, batches())
    with pytest.raises(ZeroDivisionError, match="mine"):
        tenfold.ingest(reader, tmp_path / "ds")
    assert list(tmp_path.iterdir()) == []


def test_parquet_files_of_a_glob_are_read_in_name_order(tmp_path):
    for i in (2, 1, 10):
        pq.write_table(pa.table({"x": [i, i + 0]}), tmp_path / f"p{i}.parquet", row_group_size=1)
    ds = tenfold.ingest(str(tmp_path / "p*.parquet"), tmp_path / "ds")
    assert ds["x"].tolist() == [1, 1, 10, 10, 2, 2]
    files = [tmp_path / "p2.parquet", tmp_path / "p1.parquet"]
    assert tenfold.ingest(files, tmp_path / "ds")["x"].tolist() == [2, 2, 1, 1]
    assert str(tenfold.infer_schema(files)) == "x: int64"


def test_globs_of_parquet_files_do_not_follow_links_to_folders(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    pq.write_table(pa.table({"a": [1]}), logs / "p.parquet")
    (logs / "loop").symlink_to(logs)
    for pattern in ("**/*.parquet", "**/p.*"):
        ds = tenfold.ingest(str(logs / pattern), tmp_path / "ds")
        assert ds["a"].tolist() == [1]


def test_files_with_different_columns_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"x": ["text"]}), tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"b.parquet: column 'x': expected it, as in .*found none"):
        tenfold.ingest([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "ds")
    with pytest.raises(ValueError, match=r"c.parquet: "):
        tenfold.ingest([tmp_path / "a.parquet", tmp_path / "c.parquet"], tmp_path / "ds")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("extra", ["other", "a.b"])
def test_columns_of_several_files_are_matched_by_name(tmp_path, suffix, extra):
    def write(name, columns):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table(columns), path)
        else:
            with pa.ipc.new_file(str(path), pa.table(columns).schema) as writer:
                writer.write_table(pa.table(columns))
        return path

    first = write("first", {"x": [1, 2], "y": ["a", "b"]})
    swapped = write("swapped", {"y": ["c"], "x": [3]})
    more = write("more", {extra: [0.5], "y": ["d"], "x": [4]})
    less = write("less", {"x": [5]})
    ds = tenfold.ingest([first, swapped], tmp_path / "ds")
    assert (ds["x"].tolist(), list(ds["y"])) == ([1, 2, 3], ["a", "b", "c"])
    for files, expected in ([first, more], [1, 2, 4]), ([more, swapped, first], [4, 3, 1, 2]):
        for options in {"columns": ["x", "y"]}, {"schema": {"x": "int64", "y": "string"}}:
            ds = tenfold.ingest(files, tmp_path / "ds", **options)
            assert ds["x"].tolist() == expected
    assert tenfold.ingest([first, less], tmp_path / "ds", columns=["x"])["x"].tolist() == [1, 2, 5]
    remedy = "columns=.* or schema= selects columns that all files have"
    with pytest.raises(ValueError, match=f"more.*'{extra}': expected only columns of .*{remedy}"):
        tenfold.ingest([first, more], tmp_path / "ds")
    with pytest.raises(ValueError, match=f"less.*'y': expected it, as in .*first.*{remedy}"):
        tenfold.ingest([first, less], tmp_path / "ds", columns=["x", "y"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("y_name", ["y", "y.z"])  # with a dot, pyarrow decodes all columns
def test_other_columns_of_several_files_need_not_fit(tmp_path, suffix, y_name):
    def write(name, columns, is_nullable=True):
        path = tmp_path / f"{name}.{suffix}"
        arrays = [pa.array(values) for values in columns.values()]
        fields = [
            pa.field(column, array.type, is_nullable)
            for column, array in zip(columns, arrays, strict=True)
        ]
        table = pa.table(arrays, schema=pa.schema(fields))
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
        return path

    first = write("first", {"x": [1, 2], y_name: [3, 4]}, is_nullable=False)
    less = write("less", {"x": [5]})
    texts = write("texts", {"x": [6], y_name: ["text"]})
    nulls = write("nulls", {y_name: [7, 8], "x": [None, 9]})
    for options in {"columns": ["x"]}, {"schema": {"x": "int64"}}:
        ds = tenfold.ingest([first, less, texts], tmp_path / "ds", **options)
        assert ds["x"].tolist() == [1, 2, 5, 6]
    with pytest.warns(UserWarning, match="1 row omitted"):
        ds = tenfold.ingest([first, nulls], tmp_path / "ds", schema={"x": "int64"}, on_error="skip")
    assert ds["x"].tolist() == [1, 2, 9]
    assert ds.report.ignored == (y_name,)
    with pytest.raises(ValueError, match=rf"texts.{suffix}: .*expected the types of .*first"):
        tenfold.ingest([first, texts], tmp_path / "ds")
    with pytest.raises(ValueError, match=rf'nulls.{suffix}: row 0, column "x"'):
        tenfold.ingest([first, nulls], tmp_path / "ds", schema={"x": "int64"})


def test_other_records_of_several_files_need_not_fit(tmp_path):
    y = pa.struct([pa.field("z", pa.int64(), nullable=False)])
    first = pa.record_batch({"x": pa.array([1]), "y": pa.array([{"z": 2}], y)})
    for name, batch in {"first": first, "less": pa.record_batch({"x": pa.array([3])})}.items():
        with pa.ipc.new_file(str(tmp_path / f"{name}.arrow"), batch.schema) as writer:
            writer.write_batch(batch)
    files = [tmp_path / "first.arrow", tmp_path / "less.arrow"]
    assert tenfold.ingest(files, tmp_path / "ds", columns=["x"])["x"].tolist() == [1, 3]


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".arrows", ".data"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files_and_streams_are_distinguished_by_content(tmp_path, suffix, kind):
    path = tmp_path / f"a{suffix}"
    with pa.OSFile(str(path), "wb") as sink:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(sink, tables().schema) as writer:
            writer.write_table(tables(), max_chunksize=300)
    if suffix == ".data" and kind == "stream":
        with pytest.raises(tenfold.UnsupportedError, match="expected JSON lines, CSV"):
            tenfold.ingest(path, tmp_path / "ds")
        return
    assert len(tenfold.ingest(path, tmp_path / "ds")) == 1000


def test_damaged_files_are_refused_by_name(tmp_path):
    pq.write_table(tables(), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(tenfold.CorruptFileError, match=r"cut.parquet: it cannot be read"):
        tenfold.ingest(tmp_path / "cut.parquet", tmp_path / "ds")
    (tmp_path / "empty.parquet").write_bytes(b"")
    with pytest.raises(tenfold.CorruptFileError, match=r"empty.parquet: it cannot be read"):
        tenfold.ingest(tmp_path / "empty.parquet", tmp_path / "ds")


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.arrows"])
@pytest.mark.parametrize("is_second", [False, True])
def test_files_with_damaged_metadata_are_refused_by_name(tmp_path, name, is_second):
    path = tmp_path / name
    table = pa.table({"i": [1, 2]})
    if name == "x.parquet":
        pq.write_table(table, path)
    else:
        new = pa.ipc.new_file if name == "x.arrow" else pa.ipc.new_stream
        with new(path, table.schema) as file:
            file.write_table(table)
    shutil.copy(path, tmp_path / f"a_{name}")
    data = bytearray(path.read_bytes())
    # the lengths of metadata are at the end of a file, and at the start of a stream
    where = slice(8, 40) if name == "x.arrows" else slice(-40, -12)
    data[where] = b"\xff" * len(data[where])
    path.write_bytes(data)
    files = [tmp_path / f"a_{name}", path] if is_second else path
    with pytest.raises(tenfold.CorruptFileError, match=rf"[/\\]{name}: it cannot be read"):
        tenfold.ingest(files, tmp_path / "ds")


def test_unnamed_pandas_index_is_dropped(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"i": [1, 2], "f": [0.5, None], "s": ["a", None]}, index=[7, 9])
    ds = tenfold.ingest(frame, tmp_path / "ds")
    assert columns(ds) == {"i": "int64", "f": "float64?", "s": "string?"}
    frame.index.name = "key"
    assert "key" in tenfold.ingest(frame, tmp_path / "ds").columns
    stamps = pd.DataFrame({"t": pd.to_datetime(["2020-01-01"]), "c": pd.Categorical(["u"])})
    ds = tenfold.ingest(stamps, tmp_path / "ds")
    assert columns(ds)["c"] == "string"
    assert ds.schema["t"].unit in ("ns", "us", "s")


def test_polars_frames_keep_types_and_nulls(tmp_path):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "i": [1, None],
            "s": ["a" * 30, "é"],
            "l": [[1.0], []],
            "d": [datetime.date(1970, 1, 3)] * 2,
        }
    )
    ds = tenfold.ingest(frame, tmp_path / "ds")
    assert columns(ds) == {"i": "int64?", "s": "string", "l": "float64[*]", "d": "int64 (days)"}
    assert ds[:]["s"] == ["a" * 30, "é"]
    assert ds["d"].tolist() == [2, 2]
    assert len(tenfold.ingest(frame.lazy().filter(pl.col("i") == 1), tmp_path / "ds")) == 1
    empty = pl.DataFrame({"n": [None], "l": [[None]], "r": [{"x": None}]})
    ds = tenfold.ingest(empty, tmp_path / "ds")
    assert columns(ds) == {"n": "float64?", "l": "float64[*]", "r": "x: float64?"}
    assert ds.to_arrow()["n"].to_pylist() == [None]


def test_columns_that_arrow_cannot_describe_are_refused(tmp_path):
    pd = pytest.importorskip("pandas")
    table = pa.table({"a\0b": [1]})
    for source in (table, table.to_reader(), pd.DataFrame({"a\0b": [1]})):
        with pytest.raises(ValueError, match="expected a name without a null character"):
            tenfold.ingest(source, tmp_path / "ds")
    with pytest.raises(tenfold.UnsupportedError, match="found periods"):
        tenfold.ingest(pd.DataFrame({"p": pd.period_range("2020", periods=2)}), tmp_path / "ds")
    pl = pytest.importorskip("polars")
    with pytest.raises(tenfold.UnsupportedError, match="found Object"):
        tenfold.ingest(pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}), tmp_path / "ds")


def test_polars_series_of_structs_are_tables_and_others_are_refused(tmp_path):
    pl = pytest.importorskip("polars")
    ds = tenfold.ingest(pl.Series([{"x": 1}, {"x": 2}]), tmp_path / "ds")
    assert ds["x"].tolist() == [1, 2]
    with pytest.raises(tenfold.UnsupportedError, match="put the array into a table"):
        tenfold.ingest(pl.Series([1, 2]), tmp_path / "ds")


def test_hugging_face_datasets_apply_their_indices(tmp_path):
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"x": list(range(100)), "s": [str(i) for i in range(100)]})
    ds = tenfold.ingest(source.select(range(50, 0, -1)), tmp_path / "ds")
    assert ds["x"].tolist() == list(range(50, 0, -1))
    assert len(tenfold.ingest(source.select([]), tmp_path / "ds")) == 0
    stream = source.to_iterable_dataset()
    assert tenfold.ingest(stream, tmp_path / "ds")["x"].tolist() == list(range(100))
    with pytest.raises(ValueError, match="expected one split, found 'train'"):
        tenfold.ingest(datasets.DatasetDict(train=source), tmp_path / "ds")


# --- round trips ---

ELEMENTS: dict[Any, Any] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    pa.large_binary(): st.binary(max_size=20),
    pa.string_view(): st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}


@st.composite
def arrays(draw: Any) -> Any:
    element = draw(st.sampled_from(list(ELEMENTS)))
    form = draw(st.sampled_from(["scalar", "list", "fixed", "struct"]))
    one = ELEMENTS[element]
    kind, value = {
        "scalar": (element, one),
        "list": (pa.list_(element), st.lists(one, max_size=4)),
        "fixed": (pa.list_(element, 2), st.lists(one, min_size=2, max_size=2)),
        "struct": (pa.struct({"a": element}), st.fixed_dictionaries({"a": st.none() | one})),
    }[form]
    rows = draw(st.lists(st.none() | value, max_size=30))
    begin = draw(st.integers(0, len(rows)))
    array = pa.array(rows, kind).slice(begin)
    cut = draw(st.integers(0, len(array)))
    return pa.chunked_array([array.slice(0, cut), array.slice(cut)], kind)


@settings(max_examples=150, deadline=None)
@given(array=arrays(), batch_rows=st.integers(1, 40))
def test_ingested_rows_equal_those_of_any_arrow_array(tmp_path_factory, array, batch_rows):
    ds = tenfold.ingest(
        pa.table({"x": array}), tmp_path_factory.mktemp("arrow") / "ds", batch_rows=batch_rows
    )
    assert len(ds) == len(array)
    for row, expected in zip(ds, array.to_pylist(), strict=True):
        where, name = row, "x"
        if isinstance(expected, dict) or pa.types.is_struct(array.type):
            where, name, expected = row["x"], "a", expected and expected["a"]
        found = plain(where[name])
        if expected is None:
            is_nan = isinstance(found, float) and found != found
            is_nan_list = isinstance(found, list) and found and all(x != x for x in found)
            assert is_nan or is_nan_list or not where[name + ".valid"]
        else:
            assert found == expected

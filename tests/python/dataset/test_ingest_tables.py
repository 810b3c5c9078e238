"""`tenfold.ingest` of columns: dicts, TensorDicts, npy and npz files, structured arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensordict
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenfold


def columns(ds: tenfold.Dataset) -> dict[str, str]:
    return {name: str(column) for name, column in ds.schema.items()}


def test_a_dict_of_equally_long_columns_is_a_table(tmp_path):
    table = {
        "t": torch.arange(12, dtype=torch.float16).reshape(4, 3),
        "n": np.arange(4, dtype=np.uint16),
        "l": [1, 2.5, None, 4],
        "s": ("a", "b", "", "é"),
        "i": torch.arange(4),
        "ragged": [[1], [], [1, 2], [3]],
    }
    ds = tenfold.ingest(table, tmp_path / "ds")
    assert columns(ds) == {
        "t": "float16[3]",
        "n": "uint16",
        "l": "float64?",
        "s": "string",
        "i": "int64",
        "ragged": "int64[*]",
    }
    assert torch.equal(ds["t"], table["t"])
    assert ds[:]["s"] == ["a", "b", "", "é"]


def test_strided_and_large_columns_are_ingested_unchanged(tmp_path):
    table = {
        "wide": torch.rand(300, 100_000)[:, ::2],
        "back": np.arange(300)[::-1],
    }
    ds = tenfold.ingest(table, tmp_path / "ds")
    assert torch.equal(ds["wide"], table["wide"])
    assert ds["back"].tolist() == table["back"].tolist()


def test_columns_of_unequal_length_are_refused_with_both_lengths(tmp_path):
    with pytest.raises(ValueError, match=r"'b'.*expected 3 rows, as in column 'a', found 2"):
        tenfold.ingest({"a": [1, 2, 3], "b": torch.ones(2)}, tmp_path / "ds")


def test_mismatched_value_of_a_list_is_named_by_row(tmp_path):
    with pytest.raises(ValueError, match=r'row 2, column "a": expected int64, found a list'):
        tenfold.ingest({"a": [1, 2, [3]]}, tmp_path / "ds")
    with pytest.warns(UserWarning, match="1 row"):
        ds = tenfold.ingest(
            {"a": [1, 2, [3]], "b": torch.arange(3)}, tmp_path / "ds", on_error="skip"
        )
    assert ds["b"].tolist() == [0, 1]


def test_lists_of_dicts_in_a_table_are_records(tmp_path):
    ds = tenfold.ingest({"a": [{"x": 1}, {"x": 2}], "b": np.arange(2)}, tmp_path / "ds")
    assert str(ds.schema) == "a.x: int64\nb: int64"


def test_lists_of_dicts_fit_the_schema_inferred_from_them(tmp_path):
    table = {"a": [{"x": 1, "b": {"y": 2}}], "c": {"d": [{"e": "f"}]}, "n": np.arange(1)}
    ds = tenfold.ingest(table, tmp_path / "ds", schema=tenfold.infer_schema(table))
    assert ds[0] == {"a": {"x": 1, "b": {"y": 2}}, "c": {"d": {"e": "f"}}, "n": 0}
    with pytest.raises(ValueError, match='row 1, column "a": expected an object'):
        tenfold.ingest({"a": [{"x": 1}, 2]}, tmp_path / "ds", schema={"a": {"x": "int64"}})


@pytest.mark.parametrize("library", [tenfold, tensordict])
def test_a_tensordict_is_a_table_of_its_batch(tmp_path, library):
    td = library.TensorDict(
        {"x": torch.rand(5, 2), "n": {"y": torch.arange(5)}, "s": ["a", "b", "c", "d", "e"]},
        batch_size=[5],
    )
    ds = tenfold.ingest(td, tmp_path / "ds")
    assert len(ds) == 5
    assert torch.equal(ds["x"], td["x"])
    assert torch.equal(ds["n", "y"], td["n", "y"])
    assert ds[:]["s"] == ["a", "b", "c", "d", "e"]


def test_opened_tensordict_is_a_table(tmp_path):
    tenfold.save(tenfold.TensorDict({"x": torch.arange(7)}, [7]), tmp_path / "td")
    ds = tenfold.ingest(tenfold.open(tmp_path / "td"), tmp_path / "ds")
    assert ds["x"].tolist() == list(range(7))


def test_tensordict_without_batch_dimension_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"batch_size: .*found \[\]"):
        tenfold.ingest(tenfold.TensorDict({"x": torch.ones(3)}, []), tmp_path / "ds")


def test_npy_files_are_the_rows_of_one_column(tmp_path):
    parts = [np.random.rand(n, 2).astype(np.float32) for n in (3, 4)]
    for i, part in enumerate(parts):
        np.save(tmp_path / f"part-{i}.npy", part)
    ds = tenfold.ingest(str(tmp_path / "part-*.npy"), tmp_path / "ds")
    assert columns(ds) == {"part-0": "float32[2]"}
    assert np.array_equal(ds["part-0"].numpy(), np.concatenate(parts))
    np.save(tmp_path / "part-2.npy", np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"part-2.npy: shape of a row: expected \[2\]"):
        tenfold.ingest(str(tmp_path / "part-*.npy"), tmp_path / "ds")


@pytest.mark.parametrize("dtype", ["U", "S"])
def test_npy_files_of_strings_of_several_lengths_are_one_column(tmp_path, dtype):
    parts = [["a", "b"], ["", "abc"], [""]]
    files = [tmp_path / f"{i}.npy" for i in range(len(parts))]
    for file, part in zip(files, parts, strict=True):
        np.save(file, np.array(part, dtype))
    ds = tenfold.ingest(files, tmp_path / "ds")
    expected = [text for part in parts for text in part]
    assert ds["0"] == (expected if dtype == "U" else [text.encode() for text in expected])
    np.save(files[1], np.arange(2))
    with pytest.raises(ValueError, match=r"1.npy: dtype: .* found int64"):
        tenfold.ingest(files, tmp_path / "ds")


def test_a_dict_of_npy_files_and_an_npz_are_columns(tmp_path):
    x, y = np.arange(4), np.random.rand(4, 2)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    files = {"x": tmp_path / "x.npy", "y": str(tmp_path / "y.npy")}
    for source in (files, tmp_path / "both.npz"):
        ds = tenfold.ingest(source, tmp_path / "ds")
        assert columns(ds) == {"x": "int64", "y": "float64[2]"}
        assert np.array_equal(ds["y"].numpy(), y)


def test_the_fields_of_a_structured_dtype_are_columns(tmp_path):
    array = np.zeros(3, [("a", "<i2"), ("b", ">f4", (2,)), ("c", "U3"), ("d", [("e", "?")])])
    array["a"], array["c"] = [1, 2, 3], ["x", "yy", ""]
    array["b"] = 0.5
    np.save(tmp_path / "s.npy", array)
    for source in (array, tmp_path / "s.npy"):
        ds = tenfold.ingest(source, tmp_path / "ds")
        assert str(ds.schema) == "a: int16\nb: float32[2]\nc: string\nd.e: bool"
        assert ds[:]["c"] == ["x", "yy", ""]
        assert ds["b"].tolist() == [[0.5, 0.5]] * 3


def test_object_arrays_in_npy_files_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(tenfold.UnsupportedError, match=r"o.npy: dtype: .*pickles"):
        tenfold.ingest(tmp_path / "o.npy", tmp_path / "ds")
    np.savez(tmp_path / "o.npz", a=np.array([{}], object))
    with pytest.raises(tenfold.UnsupportedError, match=r"o.npz: dtype: .*pickles"):
        tenfold.ingest(tmp_path / "o.npz", tmp_path / "ds")


@pytest.mark.parametrize("source", [7, "nowhere-*.npy", b"bytes", object()])
def test_an_invalid_source_is_an_error(tmp_path, source):
    with pytest.raises((tenfold.UnsupportedError, FileNotFoundError)):
        tenfold.ingest(source, tmp_path / "ds")


DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


@settings(max_examples=50, deadline=None)
@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)
        )
    )
)
def test_arrays_of_any_dtype_round_trip_bit_for_bit(tmp_path_factory, array):
    folder: Path = tmp_path_factory.mktemp("array")
    ds = tenfold.ingest({"x": array}, folder / "ds")
    assert ds["x"].numpy().tobytes() == array.tobytes()
    assert ds["x"].shape == array.shape


def test_nested_dict_of_columns_becomes_records(tmp_path):
    table = {"a": {"x": torch.arange(5), "b": {"y": np.ones((5, 2), np.float32)}}, "c": ["z"] * 5}
    ds = tenfold.ingest(table, tmp_path / "ds")
    assert str(ds.schema) == "a.x: int64\na.b.y: float32[2]\nc: string"
    assert ds["a", "b", "y"].tolist() == [[1.0, 1.0]] * 5


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_columns_without_rows_keep_dtype_and_shape(tmp_path, shape):
    ds = tenfold.ingest({"x": torch.empty(shape, dtype=torch.int16)}, tmp_path / "ds")
    assert len(ds) == 0
    assert ds["x"].shape == shape
    assert ds["x"].dtype == torch.int16


def test_arrays_are_cast_to_the_schema_or_the_bad_row_is_named(tmp_path):
    schema = tenfold.Schema({"x": tenfold.Column("uint8", (2,))})
    array = np.arange(512).reshape(256, 2)
    ds = tenfold.ingest({"x": array[:100]}, tmp_path / "ds", schema=schema)
    assert ds["x"].dtype == torch.uint8
    with pytest.raises(ValueError, match=r'row 128, column "x": expected uint8\[2\]'):
        tenfold.ingest({"x": array}, tmp_path / "ds", schema=schema)


@pytest.mark.parametrize(
    "make",
    [
        lambda array, folder: array,
        lambda array, folder: torch.from_numpy(array),
        lambda array, folder: {"value": array},
        lambda array, folder: tenfold.TensorDict({"value": torch.from_numpy(array)}, [3]),
        lambda array, folder: np.save(folder / "value.npy", array) or folder / "value.npy",
        lambda array, folder: np.savez(folder / "a.npz", value=array) or folder / "a.npz",
    ],
    ids=["array", "tensor", "columns", "TensorDict", "npy", "npz"],
)
def test_rows_of_arrays_that_do_not_fit_the_schema_are_omitted(tmp_path, make):
    source = make(np.array([[1, 2], [3, 300], [5, 6]]), tmp_path)
    schema = {"value": ("uint8", 2)}
    with pytest.warns(UserWarning, match="1 row"):
        ds = tenfold.ingest(source, tmp_path / "ds", schema=schema, on_error="skip")
    assert ds["value"].tolist() == [[1, 2], [5, 6]]
    ds = tenfold.ingest(source, tmp_path / "ds", schema=schema, on_error="collect")
    assert ds["value"].tolist() == [[1, 2], [5, 6]]
    assert [(bad["row"], bad["column"]) for bad in ds.bad_rows] == [(1, "value")]


def test_rows_of_several_npy_files_that_do_not_fit_the_schema_are_omitted(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, 300]))
    np.save(tmp_path / "b.npy", np.array([2, -1, 3]))
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    ds = tenfold.ingest(files, tmp_path / "ds", schema={"a": "uint8"}, on_error="collect")
    assert ds["a"].tolist() == [1, 2, 3]
    assert [bad["row"] for bad in ds.bad_rows] == [1, 1]
    for bad, file in zip(ds.bad_rows, files, strict=True):
        assert bad["error"].startswith(f'{file}: row 1, column "a": expected uint8, found ')
    np.save(tmp_path / "a.npy", np.array([1, 255]))
    with pytest.raises(ValueError, match=r'b.npy: row 1, column "a": expected uint8, found -1'):
        tenfold.ingest(files, tmp_path / "ds", schema={"a": "uint8"})


def test_records_after_many_nulls_in_a_list_are_ingested(tmp_path):
    values = [None] * 70_000 + [{"x": 1}]
    ds = tenfold.ingest({"a": values, "b": np.arange(70_001)}, tmp_path / "ds")
    assert ds[70_000]["a"]["x"] == 1
    assert ds["b"][-1] == 70_000


def test_damaged_arrays_are_refused_by_name(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:200])
    np.savez(tmp_path / "y.npz", y=np.arange(100))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "y.npz").read_bytes()[:300])
    (tmp_path / "header.npy").write_bytes(whole.replace(b"), }", b"(, }"))
    (tmp_path / "keys.npy").write_bytes(whole.replace(b" 'shape'", b"b'shape'"))
    (tmp_path / "bytes.npy").write_bytes(b"object" * 99)
    (tmp_path / "bytes.npz").write_bytes(b"pickle" * 99)
    np.savez_compressed(tmp_path / "z.npz", y=np.arange(100))
    packed = (tmp_path / "z.npz").read_bytes()
    (tmp_path / "packed.npz").write_bytes(packed[:80] + b"\xff" * 20 + packed[100:])
    damaged = ("header.npy", "keys.npy", "bytes.npy", "bytes.npz", "packed.npz")
    for name in ("cut.npy", "cut.npz", *damaged):
        with pytest.raises(tenfold.CorruptFileError, match=rf"{name}: it cannot be read"):
            tenfold.ingest(tmp_path / name, tmp_path / "ds")


def test_masked_values_of_columns_are_null(tmp_path):
    masked = np.ma.masked_array
    columns = {
        "i": masked([1, 2, 3], mask=[False, True, False], dtype=np.int16),
        "f": masked(np.arange(3, dtype=np.float32), mask=[True, False, False]),
        "m": masked(np.arange(6, dtype=np.float32).reshape(3, 2), mask=[[1, 1], [0, 1], [0, 0]]),
        "all": masked([1, 2, 3], mask=False),
        "s": masked(["a", "b", "c"], mask=[True, False, False]),
    }
    ds = tenfold.ingest(columns, tmp_path / "ds")
    assert str(ds.schema) == "i: int16?\nf: float32?\nm: float32[2]?\nall: int64\ns: string?"
    assert ds["i.valid"].tolist() == [True, False, True]
    assert ds["f.valid"].tolist() == [False, True, True]
    assert ds["m.valid"].tolist() == [False, True, True]
    assert str(ds["m"].tolist()) == "[[nan, nan], [2.0, nan], [4.0, 5.0]]"
    assert ds["s.valid"].tolist() == [False, True, True]
    with tenfold.Dataset(tmp_path / "ds", mode="r+") as grown:
        grown.append(columns)
        grown.append({**{name: values[1] for name, values in columns.items()}, "s": None})
    ds = tenfold.Dataset(tmp_path / "ds")
    assert ds["i.valid"].tolist() == [True, False, True, True, False, True, False]
    assert str(ds["m"][3:].tolist()) == "[[nan, nan], [2.0, nan], [4.0, 5.0], [2.0, nan]]"
    assert ds["s.valid"].tolist() == [False, True, True, False, True, True, False]


def test_validity_of_another_length_is_refused(tmp_path):
    valid = torch.tensor([True, True])
    for values in (torch.arange(3.0), [1, 2, 3]):
        for columns in ({"x": values, "x.valid": valid}, {"r": {"x": values, "x.valid": valid}}):
            with pytest.raises(ValueError, match=r"x.valid.: .*expected 3 rows, .*found 2"):
                tenfold.ingest(columns, tmp_path / "ds")
    ds = tenfold.ingest({"x": torch.arange(2.0), "x.valid": valid}, tmp_path / "ds")
    assert ds.columns == ["x"]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("batch_rows", [None, 2])
def test_values_of_a_batch_that_are_marked_as_missing_are_not_read(tmp_path, on_error, batch_rows):
    valid = torch.tensor([True, False, False, True, True])
    columns = {
        "a": np.arange(5, dtype=np.int16),
        "a.valid": valid.numpy(),
        "m.valid": valid,
        "m": torch.arange(10, dtype=torch.float32).reshape(5, 2),
        "r": {"s": ["a", 1, None, "", None], "s.valid": valid},
    }
    ds = tenfold.ingest(columns, tmp_path / "ds", on_error=on_error, batch_rows=batch_rows)
    assert str(ds.schema) == "a: int16?\nm: float32[2]?\nr.s: string?"
    assert ds["a"].tolist() == [0, 0, 0, 3, 4]
    assert ds["a.valid"].tolist() == ds["m.valid"].tolist() == valid.tolist()
    assert ds["m"].nan_to_num(-1).tolist() == [[0, 1], [-1, -1], [-1, -1], [6, 7], [8, 9]]
    assert ds["r.s.valid"].tolist() == [True, False, False, True, False]


def test_a_missing_value_of_a_batch_needs_a_nullable_column(tmp_path):
    columns = {"x": torch.arange(3), "x.valid": torch.tensor([True, True, False])}
    with pytest.raises(ValueError, match='row 2, column "x": expected int64, found null'):
        tenfold.ingest(columns, tmp_path / "ds", schema={"x": "int64"})
    ds = tenfold.ingest(columns, tmp_path / "ds", schema={"x": "int64"}, on_error="skip")
    assert ds["x"].tolist() == [0, 1]
    both = {"x": "int64", "x.valid": "bool"}
    assert tenfold.ingest(columns, tmp_path / "both", schema=both)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["U1", "O", "M8[s]"])
def test_a_column_without_dimensions_is_refused(tmp_path, kind):
    with pytest.raises(ValueError, match=r"column 'x': expected at least one dimension"):
        tenfold.ingest({"x": np.zeros((), kind)}, tmp_path / "ds")


def test_ingest_with_durable_false_is_complete(tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"x": 0}\n{"x": 1}\n')
    table = pytest.importorskip("pyarrow").table({"x": [0, 1]})
    for number, source in enumerate([lines, [{"x": 0}, {"x": 1}], {"x": [0, 1]}, table]):
        ds = tenfold.ingest(source, tmp_path / str(number), durable=False)
        assert ds["x"].tolist() == [0, 1]
        assert tenfold.verify(tmp_path / str(number)).ok

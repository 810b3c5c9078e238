"""Ingest of dicts: lists, generators, types of columns, and mismatched rows."""

from __future__ import annotations

import enum
import json
import math
import re
import signal
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from tenfold import Column, Schema


def columns(ds: tenfold.Dataset) -> dict[str, str]:
    return {name: str(column) for name, column in ds.schema.items()}


def ingest(tmp_path: Path, rows: Any, **options: Any) -> tenfold.Dataset:
    return tenfold.ingest(rows, tmp_path / "ds", **options)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def test_list_of_dicts_becomes_columns_of_python_types(tmp_path):
    rows = [{"i": i, "f": i / 2, "b": i % 2 == 0, "s": f"é{i}", "y": bytes([i])} for i in range(5)]
    ds = ingest(tmp_path, rows)
    assert columns(ds) == {"i": "int64", "f": "float64", "b": "bool", "s": "string", "y": "bytes"}
    assert [{k: plain(v) for k, v in row.items()} for row in ds] == rows


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([None, True], "bool?", [False, True]),
        ([True, 3], "int64", [1, 3]),
        ([3, True], "int64", [3, 1]),
        ([1, 2.5], "float64", [1.0, 2.5]),
        ([2.5, 1], "float64", [2.5, 1.0]),
        ([True, 1, 2.5], "float64", [1.0, 1.0, 2.5]),
        ([True, 1, 2.5, "a"], "string", ["true", "1", "2.5", "a"]),
        ([1.0, 1, math.inf, "a"], "string", ["1.0", "1", "Infinity", "a"]),
        (["a", 1.0, False, 7], "string", ["a", "1.0", "false", "7"]),
        ([2**63, 1], "uint64", [2**63, 1]),
        ([1, 2**64 - 1], "uint64", [1, 2**64 - 1]),
        ([-1, 2**63], "string", ["-1", str(2**63)]),
        ([2**64], "string", [str(2**64)]),
        ([2**53 + 1, 0.5], "string", [str(2**53 + 1), "0.5"]),
        ([0.5, 2**53 + 1], "string", ["0.5", str(2**53 + 1)]),
        ([None, None], "float64?", [math.nan, math.nan]),
    ],
    ids=str,
)
def test_scalars_are_promoted_without_loss(tmp_path, values, dtype, expected):
    ds = ingest(tmp_path, [{"x": value} for value in values])
    assert columns(ds) == {"x": dtype}
    found = [plain(row["x"]) for row in ds]
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([[1, 2], [3, 4]], "int64[2]", [[1, 2], [3, 4]]),
        ([[1], [2, 3]], "int64[*]", [[1], [2, 3]]),
        ([(1.5,), (2,)], "float64[1]", [[1.5], [2.0]]),
        ([[], []], "float64[*]", [[], []]),
        ([[], [1]], "int64[*]", [[], [1]]),
        ([[1, 2], None], "int64[2]?", [[1, 2], [0, 0]]),
        ([[1, 2], None, [3]], "int64[*]?", [[1, 2], [], [3]]),
        ([[1.5, None]], "float64[2]", [[1.5, math.nan]]),
        ([[None], [1.5]], "float64[1]", [[math.nan], [1.5]]),
        ([["a", "b"], []], "string[*]", [["a", "b"], []]),
        ([[True, 2], ["a"]], "string[*]", [["true", "2"], ["a"]]),
        ([[[1, 2], [3, 4]]] * 2, "int64[2, 2]", [[[1, 2], [3, 4]]] * 2),
        ([[[1, 2]], [[3, 4], [5, 6]]], "int64[*, 2]", [[[1, 2]], [[3, 4], [5, 6]]]),
        ([[[1], [2, 3]]], "string", ["[[1], [2, 3]]"]),
        ([[1, True], [[1], [2, 3]]], "string", ["[1, true]", "[[1], [2, 3]]"]),
        ([[{"a": 1}], []], "string", ['[{"a": 1}]', "[]"]),
    ],
    ids=str,
)
def test_lists_become_fixed_shape_or_ragged_columns_or_json(tmp_path, values, dtype, expected):
    ds = ingest(tmp_path, [{"x": value} for value in values])
    assert columns(ds) == {"x": dtype}
    assert str([plain(row["x"]) for row in ds]) == str(expected)


def test_rows_with_distinct_keys_are_ingested(tmp_path):
    rows = [{f"key{i}": i} for i in range(1500)]
    ds = ingest(tmp_path, rows, durable=False)
    assert ds.columns == [f"key{i}" for i in range(1500)]
    assert (ds["key7"][7], ds["key7.valid"].sum(), ds["key1499"][1499]) == (7, 1, 1499)


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 1000])
def test_column_types_do_not_depend_on_block_boundaries(tmp_path, batch_rows):
    rows = [
        {"n": True, "l": [], "f": [1, 2], "r": None, "m": 1},
        {"n": 2, "l": [True], "f": [3, 4], "r": None, "m": None},
        {"n": None, "l": [7], "f": None, "r": {"a": 1}, "new": "x"},
        {"n": 2.5, "l": ["z"], "f": [5], "r": {"a": 2, "b": [1, 2]}, "m": 2**63},
        {"n": "text", "l": None, "f": [0.5], "r": None, "m": 0},
    ]
    ds = ingest(tmp_path, iter(rows), batch_rows=batch_rows)
    assert [plain(row["n"]) for row in ds] == ["true", "2", "", "2.5", "text"]
    assert [row["l"] for row in ds] == [[], ["true"], ["7"], ["z"], []]
    assert [plain(row["f"]) for row in ds] == [[1, 2], [3, 4], [], [5], [0.5]]
    assert [plain(row["r"]["a"]) for row in ds] == [0, 0, 1, 2, 0]
    assert [plain(row["r"]["b"]) for row in ds][3] == [1, 2]
    assert [row["new"] for row in ds] == ["", "", "x", "", ""]
    assert [plain(row["m"]) for row in ds] == [1, 0, 0, 2**63, 0]
    assert [bool(row["n.valid"]) for row in ds] == [True, True, False, True, True]
    assert {(p.column, p.to) for p in ds.report.promotions} >= {("n", "string"), ("m", "uint64")}


def test_nested_dicts_are_records_and_missing_keys_are_null(tmp_path):
    ds = ingest(tmp_path, [{"a": {"b": 1, "c": {"d": "x"}}}, {}, {"a": None}, {"a": {"b": 2}}])
    assert str(ds.schema) == "a.b: int64?\na.c.d: string?"
    assert [plain(row["a"]["b"]) for row in ds] == [1, 0, 0, 2]
    assert [bool(row["a"]["b.valid"]) for row in ds] == [True, False, False, True]


def test_tensors_and_arrays_keep_dtype_and_shape(tmp_path):
    rows = [
        {
            "t": torch.full((2, 3), i, dtype=torch.float32),
            "n": np.full(i + 1, i, np.int16),
            "s": np.float32(i),
            "h": torch.tensor(i, dtype=torch.bfloat16),
            "l": [np.arange(2.0), np.arange(2.0)],
        }
        for i in range(3)
    ]
    ds = ingest(tmp_path, rows)
    assert columns(ds) == {
        "t": "float32[2, 3]",
        "n": "int16[*]",
        "s": "float32",
        "h": "bfloat16",
        "l": "float64[2, 2]",
    }
    assert torch.equal(ds[2]["t"], rows[2]["t"])
    assert ds[2]["n"].tolist() == [2, 2, 2]
    assert ds[1]["l"].tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_subclasses_are_treated_as_their_base_types(tmp_path):
    class Color(enum.IntEnum):
        RED = 3

    rows = [OrderedDict(c=Color.RED, s=np.str_("a"), f=np.float64(0.5), m=tenfold.TensorDict(q=1))]
    ds = ingest(tmp_path, rows)
    assert str(ds.schema) == "c: int64\ns: string\nf: float64\nm.q: int64"


def test_masked_values_are_null(tmp_path):
    masked = np.ma.masked_array
    rows = [
        {
            "i": masked(1, mask=False),
            "f": masked(np.float32(1.5), mask=True),
            "l": masked(np.array([1, 2], np.float32), mask=[True, False]),
            "n": masked([1, 2], mask=True),
        },
        {
            "i": np.ma.masked,
            "f": np.float32(2.5),
            "l": masked([3, 4], dtype=np.float32),
            "n": [3, 4],
        },
    ]
    ds = ingest(tmp_path, rows)
    assert columns(ds) == {"i": "int64?", "f": "float32?", "l": "float32[2]", "n": "int64[2]?"}
    assert ds["i.valid"].tolist() == [True, False]
    assert str(ds["f"].tolist()) == "[nan, 2.5]"
    assert str(ds["l"].tolist()) == "[[nan, 2.0], [3.0, 4.0]]"
    assert ds["n.valid"].tolist() == [False, True]
    with pytest.raises(ValueError, match=r'row 0, column "x": expected .*, found null in a list'):
        ingest(tmp_path, [{"x": masked([1, 2], mask=[True, False])}])


def test_tensordicts_are_rows(tmp_path):
    rows = [tenfold.TensorDict({"x": torch.ones(3) * i}, []) for i in range(4)]
    assert torch.equal(ingest(tmp_path, rows)["x"], torch.arange(4.0)[:, None].expand(4, 3))


def test_generator_of_many_blocks_is_ingested_completely(tmp_path):
    ds = ingest(tmp_path, ({"x": i} for i in range(200_000)), batch_rows=1000)
    assert torch.equal(ds["x"], torch.arange(200_000))


def test_no_rows_make_an_empty_data_set(tmp_path):
    assert len(tenfold.ingest([], tmp_path / "none")) == 0
    ds = ingest(tmp_path, iter(()), schema=Schema({"x": Column("float32", (3,))}))
    assert len(ds) == 0
    assert columns(ds) == {"x": "float32[3]"}


def test_a_data_set_is_not_replaced_by_one_without_columns(tmp_path):
    ingest(tmp_path, [{"x": 1}])
    (tmp_path / "a.csv").touch()
    for rows in ([], iter(()), tmp_path / "a.csv"):
        with pytest.raises(ValueError, match="found no columns and no rows"):
            ingest(tmp_path, rows)
    assert ingest(tmp_path, [], schema={"x": "int64"}).columns == ["x"]


@pytest.mark.parametrize("values", [[1, True], [True, 1]])
def test_bools_that_become_integers_are_reported(tmp_path, values):
    ds = ingest(tmp_path, [{"x": value, "l": [value, 2]} for value in values])
    assert [str(promotion) for promotion in ds.report.promotions] == [
        "x: bool -> int64",
        "l: a list of bool -> a list of int64",
    ]


def test_a_record_named_columns_may_be_a_schema(tmp_path: Path) -> None:
    inner = Schema({"x": Column("float32")})
    ds = ingest(tmp_path, [{"columns": {"x": 1.0}}], schema={"columns": inner})
    assert ds.schema == Schema({"columns": inner})


def test_rows_without_any_key_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}\n{}\n{}\n")
    message = r"columns: expected a key in some .*, found none in 3"
    for rows in ([{}, {}, {}], iter([{}, {}, {}]), tmp_path / "rows.jsonl"):
        with pytest.raises(ValueError, match=message):
            ingest(tmp_path, rows)
    with pytest.raises(ValueError, match="expected a key in some row, found none in 2"):
        tenfold.infer_schema([{}, {}])
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("make", [torch.zeros, np.zeros])
@pytest.mark.parametrize("second", [(1, 2), (2,), (2, 3, 1)])
def test_arrays_ragged_in_two_dimensions_are_refused_with_their_shapes(tmp_path, make, second):
    rows = [
        {"id": 1, "x": make((2, 3))},
        {"id": 2, "x": make((4, 3))},
        {"id": 3, "x": make(second)},
    ]
    message = (
        rf'row 2, column "x": expected an array of shape \[\*, 3\], as in the rows before, found '
        rf"one of shape {re.escape(str(list(second)))}; rows may differ in their first dimension "
        "only: pad them, or store the flattened values and the shape as two columns"
    )
    by_column = {"x": [row["x"] for row in rows]}
    keyed = {str(row["id"]): row for row in rows}
    for call in (
        lambda: ingest(tmp_path, rows),
        lambda: ingest(tmp_path, iter(rows)),
        lambda: ingest(tmp_path, by_column),
        lambda: tenfold.infer_schema(rows),
        lambda: tenfold.MappedDict.build(keyed, tmp_path / "ds"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not (tmp_path / "ds").exists()
    with pytest.warns(UserWarning, match="1 row omitted"):
        ds = ingest(tmp_path, rows, on_error="skip")
    assert columns(ds)["x"] == ("float32[*, 3]" if make is torch.zeros else "float64[*, 3]")
    assert ds["id"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([[1], 2, np.float32(3)], "[[1], 2, 3.0]"),
        ([2, np.float32(3), [1]], "[2, 3.0, [1]]"),
        ([2, np.float32(3), {"y": 1}], '[2, 3.0, {"y": 1}]'),
    ],
)
def test_lists_of_lists_and_scalars_are_json_in_any_order(tmp_path, values, text):
    assert ingest(tmp_path, [{"x": values}])["x"] == [text]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, device="meta"),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        lambda: np.ones(2, np.longdouble),
        lambda: np.clongdouble(1),
    ],
    ids=["meta", "sparse", "jagged", "nested", "longdouble", "clongdouble"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_object_in_a_list_with_a_value_that_json_lacks_is_a_bad_row(tmp_path, make):
    rows = [{"x": [{"y": 1}]}, {"x": [{"y": make()}]}]
    with pytest.raises(ValueError, match=r'row 1, column "x": .* JSON can represent.*JSON lacks'):
        ingest(tmp_path, rows)
    ds = ingest(tmp_path, rows, on_error="collect")
    assert ds["x"] == ['[{"y": 1}]']
    assert [bad["row"] for bad in ds.bad_rows] == [1]


def test_an_array_after_lists_of_several_shapes_is_refused(tmp_path):
    rows = [{"x": [[1], [2, 3]]}, {"x": np.zeros((1, 2))}]
    message = r'row 1, column "x": expected a list.*JSON text, found an array of shape \[1, 2\]'
    with pytest.raises(ValueError, match=message):
        ingest(tmp_path, rows)
    rows[1]["x"] = rows[1]["x"].tolist()
    assert ingest(tmp_path, rows)["x"] == ["[[1], [2, 3]]", "[[0.0, 0.0]]"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": 1}, {"x": [1]}], r'row 1, column "x": expected int64, found a list of int64'),
        ([{"x": [1]}, {"x": 1}], r'row 1, column "x": expected a list of int64, found 1'),
        ([{"x": 1}, {"x": {"y": 1}}], r'row 1, column "x": expected int64, found an object'),
        ([{"x": {"y": 1}}, {"x": 1}], r'row 1, column "x": expected an object, found 1'),
        (
            [{"x": [1]}, {"x": [1, None]}],
            r'row 1, column "x": expected a list of int64, found null',
        ),
        ([{"x": b"a"}, {"x": "a"}], r"row 1, column \"x\": expected bytes, found 'a'"),
        ([{"x": 1}, 7], r"row 1: expected a dict, found int"),
        ([{"x": 1}, {3: 1}], r"row 1: expected keys of str, found 3"),
        ([{"x": "\ud800"}], r'row 0, column "x": .*lone surrogate'),
        ([{"x": object()}], r'row 0, column "x": .*found object'),
        ([{"x": np.float32}], r'row 0, column "x": expected a number, .*found type'),
        ([{"x": {"y": [1, b"a"]}}], r'row 0, column "x.y": expected values of one type in a list'),
    ],
)
def test_mismatched_row_is_named_and_nothing_is_written(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        ingest(tmp_path, rows)
    assert list(tmp_path.iterdir()) == []


def test_bad_rows_are_skipped_with_one_warning_and_change_no_column(tmp_path):
    rows = [{"x": 1, "y": 1}, {"x": "text", "y": [2]}, {"x": 3, "y": 3}]
    with pytest.warns(UserWarning, match="1 row") as raised:
        ds = ingest(tmp_path, rows, on_error="skip")
    assert len(raised) == 1
    assert ds["x"].tolist() == [1, 3]
    assert ds.report.num_bad_rows == 1


@pytest.mark.parametrize("on_error", ["skip", "collect"])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("é" * 40, "expected int64, found '" + "é" * 29 + "..."),
        (10**5000, "integer is too long: expected at most 4300 digits"),
    ],
    ids=["long text", "too many digits"],
)
def test_a_bad_value_that_is_cut_in_the_message_is_one_bad_row(tmp_path, on_error, value, found):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = tenfold.ingest(
            [{"x": 1}, {"x": value}], tmp_path / "ds", schema={"x": "int64"}, on_error=on_error
        )
    assert ds["x"].tolist() == [1]
    assert ds.report.num_bad_rows == 1
    if on_error == "collect":
        (line,) = (tmp_path / "ds" / "bad_rows.jsonl").read_text().splitlines()
        bad = json.loads(line)
        assert bad["row"] == 1
        assert bad["error"].startswith(found)


@pytest.mark.parametrize(
    "bad",
    [
        {"x": 10**5000},
        {"new": 1, "x": 10**5000},
        {"x": [1, 10**5000]},
        {"new": "\ud800"},
        {"new": [{"a": object()}]},
    ],
    ids=["digits", "digits after a new key", "digits in a list", "surrogate", "no JSON"],
)
def test_a_row_that_cannot_be_stored_changes_no_column(tmp_path, bad):
    for name, rows in (("first", [bad, {"x": 1}]), ("second", [{"x": 1}, bad, {"x": 2}])):
        with pytest.warns(UserWarning, match="1 row"):
            ds = tenfold.ingest(rows, tmp_path / name, on_error="skip")
        assert ds.columns == ["x"]
        assert ds["x"].tolist() == [1, 2][: len(ds)]
        assert ds.report.num_bad_rows == 1


def test_bad_rows_that_cannot_be_formatted_are_collected(tmp_path):
    class Unprintable:
        def __repr__(self):
            raise RuntimeError

    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    ds = ingest(tmp_path, [{"x": 1}, {"x": Unprintable()}, {"x": deep}], on_error="collect")
    assert ds["x"].tolist() == [1]
    lines = (tmp_path / "ds" / "bad_rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"].startswith("<dict object at") for line in lines] == [True] * 2


def test_bad_rows_show_numbers_of_numpy_as_json_numbers(tmp_path):
    bad = {"x": np.int64(256), "y": np.float32(0.5), "z": np.bool_(True), "c": np.complex64(1j)}
    ds = ingest(tmp_path, [{"x": "a"}, bad | {"l": np.longdouble(1)}], on_error="collect")
    shown = {"x": 256, "y": 0.5, "z": True, "c": repr(bad["c"]), "l": repr(np.longdouble(1))}
    assert json.loads(ds.bad_rows[0]["text"]) == shown


def test_bad_rows_are_collected_next_to_the_columns(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = ingest(tmp_path, [{"x": 1}, {"x": [7]}, 5, {"x": 2}], on_error="collect")
    assert ds["x"].tolist() == [1, 2]
    lines = (tmp_path / "ds" / "bad_rows.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["row"], first["column"], first["line"]) == (1, "x", None)
    assert json.loads(first["text"]) == {"x": [7]}
    assert "expected int64" in first["error"]
    assert (second["row"], second["column"], second["text"]) == (2, None, "5")
    assert [bad["row"] for bad in ds.bad_rows] == [1, 2]


def test_columns_are_ordered_by_first_appearance_of_their_keys(tmp_path):
    rows = [{"late": None, "x": 1, "never": None}, {"late": None, "x": 2}]
    rows += [{"late": "text", "x": 3, "new": 4.0}]
    ds = ingest(tmp_path, rows, batch_rows=1)
    assert ds.columns == ["late", "x", "never", "new"]
    assert list(ds["late"]) == ["", "", "text"]
    assert ds["x"].tolist() == [1, 2, 3]
    assert tenfold.infer_schema(rows) == ds.schema
    assert tenfold.verify(tmp_path / "ds").ok


@pytest.mark.parametrize("late", [{"y": 1}, [1, 2], [{"y": 1}], "text", None])
@pytest.mark.parametrize("source", ["list", "generator", "lines"])
def test_key_that_is_initially_null_keeps_its_column_position(tmp_path, source, late):
    rows = [{"a": None, "r": {"b": None, "c": 1}, "z": 2}] * 5
    rows += [{"a": late, "r": {"b": late, "c": 1}, "z": 2}]
    if source == "lines":
        given = tmp_path / "rows.jsonl"
        given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        given = rows if source == "list" else (row for row in rows)
    ds = ingest(tmp_path, given, batch_rows=2)
    assert ds.columns == ["a", "r", "z"]
    assert list(ds.schema["r"]) == ["b", "c"]
    assert [key for key in ds[5] if not key.endswith(".valid")] == ["a", "r", "z"]
    assert ds["r", "c"].tolist() == [1] * 6
    assert tenfold.verify(tmp_path / "ds").ok


@pytest.mark.parametrize("source", ["rows", "lines"])
def test_columns_with_any_name_are_stored_and_appended(tmp_path, source):
    names = ["shape", "device", "_type", "a/b", "..", ".", "", "x", "X", "x.end", "x.valid", "é %"]
    # The column "x" is stored as two tensors and its validity.
    row = {name: i for i, name in enumerate(names)} | {"x": "text", "x.valid": True}
    rows = [row, row | {"x": None}]
    if source == "lines":
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        rows = tmp_path / "rows.jsonl"
    ds = ingest(tmp_path, rows)
    assert ds.columns == names
    ds = tenfold.Dataset(tmp_path / "ds", "r+")
    assert ds.append(row) == 3
    ds.close()
    ds = tenfold.Dataset(tmp_path / "ds")
    assert {k: plain(v) for k, v in ds[2].items() if k in names} == row
    assert tenfold.verify(tmp_path / "ds").ok


def test_schema_sets_types_and_selects_columns(tmp_path):
    schema = Schema(
        {
            "f": Column("float32", (2,)),
            "u": Column("uint8"),
            "r": Column("int32", ragged=True),
            "s": Column("string", nullable=True),
        }
    )
    rows = [{"f": [1, 2.5], "u": 255, "r": [1, 2, 3], "s": None, "other": 1}]
    ds = ingest(tmp_path, rows, schema=schema)
    assert ds.schema == schema
    assert ds[0]["f"].tolist() == [1.0, 2.5]
    assert ds[0]["r"].tolist() == [1, 2, 3]
    assert ds.report.ignored == ("other",)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (Column("uint8"), 256, "expected uint8, found 256"),
        (Column("uint8"), -1, "expected uint8, found -1"),
        (Column("int32"), 1.5, "expected int32, found 1.5"),
        (Column("float32"), 1e39, r"expected float32, found 1e\+39"),
        (Column("float32"), "1", "expected float32, found '1'"),
        (Column("float32"), None, "expected float32, found null; .*nullable"),
        (Column("float32", (2,)), [1.0], r"expected float32\[2\], found a list of float64"),
        (Column("float32"), [1.0], "expected float32, found a list"),
        (Column("string"), b"x", "expected string, found bytes"),
    ],
    ids=str,
)
def test_value_that_does_not_match_the_schema_is_named(tmp_path, column, value, message):
    first = [0.5, 1] if column.shape else "" if column.dtype == "string" else 0
    with pytest.raises(ValueError, match='row 1, column "x": ' + message):
        ingest(
            tmp_path,
            [{"x": first}, {"x": value}],
            schema=Schema({"x": column}),
        )


def test_schema_column_missing_from_all_rows_raises(tmp_path):
    schema = Schema({"x": Column("int64"), "y": Column("int64", nullable=True)})
    with pytest.raises(ValueError, match='column "y": the schema names it'):
        ingest(tmp_path, [{"x": 1}], schema=schema)
    with pytest.raises(ValueError, match=r'row 0, column "x": .*no such key'):
        ingest(tmp_path, [{"y": 1}], schema=schema)


def test_only_requested_columns_are_inspected(tmp_path):
    rows = [{"x": 1, "bad": object(), "r": {"a": 1, "b": object()}}]
    ds = ingest(tmp_path, rows, columns=[("r", "a"), "x"])
    assert str(ds.schema) == "r.a: int64\nx: int64"
    with pytest.raises(KeyError, match='no column "nope"'):
        ingest(tmp_path, rows, columns=["x", "nope"])


def test_infer_schema_returns_the_schema_of_ingest(tmp_path):
    rows = [{"x": 1, "l": [1]}, {"x": 2.5, "l": [1, 2]}, {"l": None, "r": {"a": "s"}}]
    assert tenfold.infer_schema(rows) == ingest(tmp_path, rows).schema
    with pytest.raises(ValueError, match="read twice"):
        tenfold.infer_schema(iter(rows))


def test_exception_of_the_generator_propagates_and_keeps_the_old_dataset(tmp_path):
    ingest(tmp_path, [{"x": 1}])

    def rows():
        yield {"x": 2}
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        ingest(tmp_path, rows(), batch_rows=1)
    assert tenfold.Dataset(tmp_path / "ds")["x"].tolist() == [1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["ds"]


def test_keyboard_interrupt_aborts_an_ingest(tmp_path):
    def rows():
        for i in range(10_000_000):
            if i == 50_000:
                signal.raise_signal(signal.SIGINT)
            yield {"x": i}

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path, rows())
    assert list(tmp_path.iterdir()) == []


def test_progress_is_reported_and_can_cancel_the_ingest(tmp_path):
    seen = []
    rows = [{"x": float(i)} for i in range(100_000)]
    ingest(tmp_path, rows, progress=lambda *told: seen.append(told))
    assert seen
    assert seen[-1][0] <= seen[-1][1]
    seen.clear()
    ingest(tmp_path, iter(rows), progress=lambda *told: seen.append(told))
    assert seen[0][1] == 0  # a generator has no length

    def stop(*told):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ingest(tmp_path, rows, progress=stop)


def test_overwrite_false_keeps_an_existing_dataset(tmp_path):
    ingest(tmp_path, [{"x": 1}])
    with pytest.raises(FileExistsError):
        ingest(tmp_path, [{"x": 2}], overwrite=False)
    assert ingest(tmp_path, [{"x": 3}])["x"].tolist() == [3]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_booleans_before_integers_beyond_64_bits_keep_their_text(tmp_path):
    rows = [{"x": value} for value in (False, 2**63, -1)]
    ds = tenfold.ingest(iter(rows), tmp_path / "ds", batch_rows=1)
    assert [row["x"] for row in ds] == ["false", "9223372036854775808", "-1"]


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), SCALARS), min_size=1),
    step=st.integers(1, 5),
)
def test_scalars_round_trip_as_values_or_as_strings(tmp_path_factory, rows, step):
    path = tmp_path_factory.mktemp("rows") / "ds"
    if not any(rows):
        with pytest.raises(ValueError, match="expected a key in some row"):
            tenfold.ingest(iter(rows), path)
        return
    ds = tenfold.ingest(iter(rows), path, batch_rows=step)
    assert len(ds) == len(rows)
    for name, column in ds.schema.items():
        for row, stored in zip(rows, ds, strict=True):
            value, found = row.get(name), plain(stored[name])
            if value is None:
                assert column.nullable
                assert found != found if column.dtype == "float64" else not stored[name + ".valid"]
            elif column.dtype == "string":
                assert found == text_of(value)
            else:
                assert found == value


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_finite_number_that_overflows_is_a_bad_row(tmp_path, dtype):
    value = 70_000 if dtype == "float16" else 1e300
    values = [1.0, math.inf, value, math.nan]
    sources = [
        [{"x": value} for value in values],
        {"x": values},
        {"x": np.array(values)},
        {"x": torch.tensor(values, dtype=torch.float64)},
    ]
    if dtype == "float16":
        sources += [[{"x": 1}, {"x": 2}, {"x": 70_000}], {"x": np.array([1, 2, 70_000])}]
    for source in sources:
        with pytest.raises(ValueError, match=f'row 2, column "x": expected {dtype}'):
            tenfold.ingest(source, tmp_path / "ds", schema={"x": dtype})
    with pytest.warns(UserWarning, match="1 row omitted"):
        ds = tenfold.ingest(sources[0], tmp_path / "ds", schema={"x": dtype}, on_error="skip")
    assert str(ds["x"].tolist()) == "[1.0, inf, nan]"


@pytest.mark.parametrize("kind", ["quantized", "meta", "sparse", "of bits"])
@pytest.mark.filterwarnings("ignore:.*quantize")
def test_unsupported_kinds_of_tensors_are_refused_by_column(tmp_path: Path, kind: str) -> None:
    value = {
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        "meta": lambda: torch.ones(2, device="meta"),
        "sparse": lambda: torch.ones(2).to_sparse(),
        "of bits": lambda: torch.ones(2, dtype=torch.uint8).view(torch.bits8),
    }[kind]()
    path = tmp_path / "rows"
    calls = {
        "rows": lambda: tenfold.ingest([{"x": value}], path),
        "list": lambda: tenfold.ingest([{"x": [value]}], path),
        "value": lambda: tenfold.MappedDict.build({"a": {"x": value}}, path),
    }
    if kind != "of bits":
        number = tenfold.create(tmp_path / "grown", {"x": "float32"})
        row = tenfold.create(tmp_path / "rows of 2", {"x": ("float32", (2,))})
        calls |= {
            "columns": lambda: tenfold.ingest({"x": value}, path),
            "append": lambda: number.append({"x": value}),
            "row": lambda: row.append({"x": value}),
            "rows with a schema": lambda: row.extend([{"x": value}]),
        }
    for name, call in calls.items():
        with pytest.raises((ValueError, tenfold.UnsupportedError)) as caught:
            print(name, call())
        assert re.search(r"column ['\"]x['\"]", str(caught.value))
        assert kind in str(caught.value) or kind == "of bits"


def test_rows_may_hold_scalars_of_ml_dtypes_and_complex_columns_ints_of_any_size(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rows = [
        {"x": ml_dtypes.bfloat16(1.5), "z": 2**70},
        {"x": ml_dtypes.bfloat16(-2), "z": -(2**63)},
    ]
    schema = {"x": "bfloat16", "z": "complex128"}
    ds = tenfold.ingest(rows, tmp_path / "ds", schema=schema)
    assert ds[:]["x"].float().tolist() == [1.5, -2.0]
    assert ds[:]["z"].tolist() == [2.0**70, -(2.0**63)]


@pytest.mark.parametrize("first", [1.5, [1.5], [[1.5]]])
def test_values_that_numpy_puts_into_arrays_of_objects_are_bad_rows(tmp_path, first):
    inner, outer = np.empty((), object), np.empty((), object)
    inner[()], outer[()] = outer, inner
    rows = [{"x": first}, {"x": np.float32}, {"x": [torch.Tensor]}, {"x": inner}, {"x": [inner]}]
    with pytest.warns(UserWarning, match="4 rows"):
        assert len(ingest(tmp_path, rows, on_error="skip")) == 1


class ClearsRow:
    """A number whose conversion to an array removes all values of the row."""

    def __init__(self, row):
        self.row = row

    def __array__(self, *args, **kwargs):
        self.row.clear()
        return np.array(2.0)


def rows_that_are_cleared():
    for _ in range(50):
        row = {}
        row["x"] = [1.0, ClearsRow(row), *map(float, range(100))]
        row["y"] = {"z": 1.0}
        yield row


def test_a_row_may_change_while_it_is_read(tmp_path):
    rows = [{"x": [1.0], "y": {"z": 1.0}}] * 50
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = ingest(tmp_path, [*rows, *rows_that_are_cleared()], on_error="skip")
    assert len(ds) >= 50


def test_huge_integers_of_a_subclass_are_stored_as_digits(tmp_path):
    class Named(int):
        def __str__(self):
            return "name"

    assert ingest(tmp_path, [{"x": "a"}, {"x": Named(2**70)}])["x"] == ["a", str(2**70)]


def test_values_are_stored_alike_in_lists_and_alone(tmp_path):
    ds = ingest(tmp_path, [{"x": [bytearray(b"a"), b"b"]}, {"x": [b"c"]}])
    assert ds["x"] == [[b"a", b"b"], [b"c"]]


def test_numbers_of_numpy_after_a_string_are_stored_as_strings(tmp_path):
    values = ["a", np.int64(3), np.bool_(True), np.uint64(2**63), torch.tensor(0.5).double()]
    expected = ["a", "3", "true", str(2**63), "0.5"]
    assert ingest(tmp_path, [{"x": value} for value in values])["x"] == expected
    schema = {"x": "string"}
    assert ingest(tmp_path, {"x": np.array([1, 2])}, schema=schema)["x"] == ["1", "2"]


def test_an_array_without_len_is_a_bad_row(tmp_path):
    class Exported:
        def __dlpack__(self, **options):
            return torch.zeros(3).__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    with pytest.raises(ValueError, match='row 1, column "x": expected string, found a list'):
        ingest(tmp_path, [{"x": "a"}, {"x": Exported()}])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_a_bad_row(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    for rows in ([{"x": nested}], [{"x": [1.0]}, {"x": nested}], [{"x": [nested]}]):
        with pytest.raises(ValueError, match=r'column "x": .*found.* Tensor'):
            ingest(tmp_path, rows)


def test_a_tuple_finds_a_nested_field_beside_a_column_of_its_dotted_name(tmp_path):
    with pytest.raises(ValueError, match=r'column "a\.b": expected one column or'):
        tenfold.ingest([{"a.b": 1, "a": {"b": 2}}], tmp_path / "d")
    ds = tenfold.Dataset({"a.b": torch.tensor([1]), "a": {"b": torch.tensor([2])}})
    assert ds["a.b"].tolist() == ds.map(dict)["a.b"].tolist() == [1]
    assert ds["a", "b"].tolist() == ds.map(dict)["a", "b"].tolist() == [2]
    assert ds.select(["a.b"])["a", "b"].tolist() == [1]


def test_columns_named_like_the_validity_or_lengths_of_another_are_refused(tmp_path: Path) -> None:
    schema = {"a": Column("int64", nullable=True), "a.valid": "int64"}
    rows = [{"a": 1, "a.valid": 2}, {"a": None, "a.valid": 3}]
    for call in (
        lambda: tenfold.ingest(rows, tmp_path / "ds"),
        lambda: tenfold.ingest({"a": [1, None], "a.valid": [2, 3]}, tmp_path / "ds"),
        lambda: tenfold.create(tmp_path / "ds", schema),
    ):
        with pytest.raises(ValueError, match=r'rename "a" or "a\.valid"'):
            call()
    assert not (tmp_path / "ds").exists()
    marked = [{"a": 1, "a.valid": np.True_}, {"a": 0, "a.valid": np.False_}]
    ds = tenfold.ingest(marked, tmp_path / "marked")
    assert ds.columns == ["a"]
    assert ds["a.valid"].tolist() == [True, False]

    padded = [{"t": [1, 2], "t.length": 50}, {"t": [1], "t.length": 60}]
    ds = tenfold.ingest(padded, tmp_path / "lengths")
    with pytest.raises(ValueError, match=r'"t\.length", or select columns without it'):
        tenfold.BatchLoader(ds, 2, pad=0)
    with pytest.raises(ValueError, match=r'"t\.length": expected no other column'):
        next(iter(tenfold.BatchLoader(ds.map(dict), 2, pad=0)))
    batch = next(iter(tenfold.BatchLoader(ds, 2, columns=["t"], pad=0)))
    assert batch["t.length"].tolist() == [2, 1]

"""The promoted type of a column does not depend on the order or source of its values."""

from __future__ import annotations

import csv
import json
import re
from contextlib import nullcontext
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tenfold

SCALARS = [None, True, False, 3, -1, 2**53 + 1, 2**63, 2**63 + 1, 2**64, 0.5, "x"]
LISTS = [
    None,
    [],
    [None],
    [3, None],
    [True],
    [3],
    [-1, 2**63],
    [2**53 + 1],
    [0.5],
    ["a"],
    ["1", 1],
    [[1]],
    [[1, 2]],
    [[None]],
    [{"a": 1}],
]


def promoted(values: list[Any]) -> tuple[str, list[Any]]:
    """Returns type and values of a column of scalars, by the rules of types in docs/datasets.md."""
    some = [value for value in values if value is not None]
    mark = "?" if len(some) < len(values) or not some else ""
    kinds = {type(value) for value in some}
    integers = [value for value in some if type(value) is int]
    exact = all(abs(value) < 2**64 and int(float(value)) == value for value in integers)
    as_text = [v if isinstance(v, str) else "" if v is None else json.dumps(v) for v in values]
    if str in kinds or (float in kinds and not exact):
        return "string" + mark, as_text
    if float in kinds or not some:
        return "float64" + mark, [float("nan") if v is None else float(v) for v in values]
    numbers = [int(value or 0) for value in values]
    if integers and max(integers) < 2**63:
        return "int64" + mark, numbers
    if integers and max(integers) < 2**64 and min(integers) >= 0:
        return "uint64" + mark, numbers
    if integers:
        return "string" + mark, as_text
    return "bool" + mark, [bool(value) for value in values]


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def outcome(source: Any, path: Path, **options: Any) -> Any:
    """Returns type, values and validity of column "x", or the row that the error names."""
    try:
        ds = tenfold.ingest(source, path, durable=False, **options)
    except ValueError as error:
        return re.search(r"row \d+", str(error)).group()
    valid = ds["x.valid"].tolist() if ds.schema["x"].nullable else None
    return str(ds.schema["x"]), str([plain(row["x"]) for row in ds]), str(valid)


def as_lines(values: list[Any], path: Path) -> Path:
    path.write_text("".join(json.dumps({"x": value}) + "\n" for value in values))
    return path


@pytest.mark.parametrize("size", [1, 2, 3])
def test_scalars_are_promoted_alike_in_every_order_and_source(tmp_path, size):
    for values in combinations(SCALARS, size):
        for number, order in enumerate(map(list, permutations(values))):
            dtype, expected = promoted(order)
            rows = [{"x": value} for value in order]
            lines = as_lines(order, tmp_path / "rows.jsonl")
            sources = [(rows, {}), (iter(rows), {"batch_rows": 1}), ({"x": order}, {}), (lines, {})]
            table = tmp_path / "rows.csv"
            text = [v if isinstance(v, str) else "" if v is None else json.dumps(v) for v in order]
            with open(table, "w", newline="") as file:
                csv.writer(file).writerows([["x", "y"], *([item, 1] for item in text)])
            sources.append((table, {"columns": ["x"]}))
            if size == 3:  # to save time, each of the 6 orders uses only one of the 5 sources
                sources = [sources[number % len(sources)]]
            for source, options in sources:
                found = outcome(source, tmp_path / "ds", **options)
                assert found[:2] == (dtype, str(expected)), (order, source)


def test_longer_mixtures_of_scalars_are_promoted_alike(tmp_path):
    for values in ([True, 3, 2**63, "x"], [-1, 2**63, 1.5, True], [None, -1, 2**63, False]):
        for order in map(list, permutations(values)):
            dtype, expected = promoted(order)
            for source in ([{"x": v} for v in order], as_lines(order, tmp_path / "rows.jsonl")):
                found = outcome(source, tmp_path / "ds", batch_rows=2)
                assert found[:2] == (dtype, str(expected)), order


@pytest.mark.parametrize("size", [1, 2])
def test_lists_are_promoted_alike_in_every_order_and_source(tmp_path, size):
    for values in combinations(LISTS, size):
        for order in map(list, permutations(values)):
            expected = outcome(as_lines(order, tmp_path / "rows.jsonl"), tmp_path / "ds")
            rows = [{"x": value} for value in order]
            assert outcome(rows, tmp_path / "ds") == expected, order
            assert outcome(iter(rows), tmp_path / "ds", batch_rows=1) == expected, order
            assert outcome({"x": order}, tmp_path / "ds") == expected, order


@pytest.mark.parametrize(
    "values",
    [
        ([3, None], [0.5], [True]),
        ([None], [True], [1]),
        ([None], [1], [[1], [2, 3]]),
        (["a"], [1, None], [[1]]),
        ([-1], [2**63], [0.5, None]),
        ([-1, True], [2**63], None),
        ([-1, None], [2**63], [{}]),
        ([2**53 + 1, None], [0.5], []),
        ([True], ["true"], [[]]),
    ],
    ids=str,
)
def test_longer_mixtures_of_lists_are_promoted_alike(tmp_path, values):
    for order in map(list, permutations(values)):
        expected = outcome(as_lines(order, tmp_path / "rows.jsonl"), tmp_path / "ds")
        rows = [{"x": value} for value in order]
        for step in (1, 2, 100):
            assert outcome(iter(rows), tmp_path / "ds", batch_rows=step) == expected, order


def test_null_in_a_list_is_nan_among_floats_and_otherwise_a_bad_row(tmp_path):
    def values(rows: list[Any]) -> str:
        return str([plain(row["v"]) for row in tenfold.ingest(rows, tmp_path / "ds")])

    assert values([{"v": [3, None]}, {"v": [0.5]}]) == "[[3.0, nan], [0.5]]"
    for rows in ([[None], [True]], [[True], [None]], [[3, None], [4]], [["a"], [None]]):
        number = next(i for i, row in enumerate(rows) if None in row)
        with pytest.raises(
            ValueError, match=f'row {number}, column "v": expected a list of .*null'
        ):
            values([{"v": row} for row in rows])
    assert list(tmp_path.iterdir()) == [tmp_path / "ds"]


@pytest.mark.parametrize("on_error", ["skip", "collect"])
def test_null_in_a_list_is_checked_against_preceding_rows_if_bad_rows_are_omitted(
    tmp_path, on_error
):
    rows = [{"v": [0.5]}, {"v": [3, None]}, {"w": [1]}, {"w": [None]}]
    skips = on_error == "skip"
    with pytest.warns(UserWarning, match="1 row omitted") if skips else nullcontext():
        ds = tenfold.ingest(rows, tmp_path / "ds", on_error=on_error)
    assert ds.report.num_bad_rows == 1
    assert [bad["row"] for bad in ds.bad_rows] == ([] if skips else [3])
    assert str([plain(row["v"]) for row in ds]) == "[[0.5], [3.0, nan], []]"


SCHEMAS = [
    ("int64", 1.0, 1),
    ("uint8", 255.0, 255),
    ("int8", -128.0, -128),
    ("int64", 1.5, None),
    ("uint8", 256.0, None),
    ("uint8", -1.0, None),
    ("int64", 2.0**63, None),
    ("uint64", 2.0**63, 2**63),
    ("int64", float("nan"), None),
    ("int64", float("inf"), None),
    ("bool", 1, True),
    ("bool", 0.0, False),
    ("bool", 2, None),
    ("int64", True, 1),
    ("float64", True, 1.0),
    ("float64", 2**70, 2.0**70),
    ("float32", 3, 3.0),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), SCHEMAS, ids=str)
def test_conversion_to_a_column_does_not_depend_on_the_source(tmp_path, dtype, value, expected):
    text = json.dumps(value)
    (tmp_path / "rows.csv").write_text("x\n" + text + "\n")
    sources: dict[str, Any] = {
        "dicts": [{"x": value}],
        "columns": {"x": [value]},
        "lines": as_lines([value], tmp_path / "rows.jsonl"),
        "csv": tmp_path / "rows.csv",
    }
    if abs(value) < 2**64 or value != value or value == float("inf"):
        sources["array"] = {"x": np.array([value])}
        sources["arrow"] = pa.table({"x": [value]})
    for name, source in sources.items():
        if expected is None:
            with pytest.raises(ValueError, match=f'column "x": expected .*{dtype}'):
                tenfold.ingest(source, tmp_path / "ds", schema={"x": dtype})
        else:
            ds = tenfold.ingest(source, tmp_path / "ds", schema={"x": dtype}, durable=False)
            assert (str(ds.schema["x"]), ds["x"].tolist()) == (dtype, [expected]), name

"""The repr of a data set: its first rows as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import tenfold
from tenfold import Dataset


def test_the_repr_shows_columns_types_and_the_first_rows(tmp_path: Path) -> None:
    rows: Any = [
        {"x": i / 4, "t": "ab" * i, "v": [1.0, 2.0], "r": [7] * i, "n": None if i % 2 else i}
        for i in range(7)
    ]
    ds = tenfold.ingest(rows, tmp_path / "d")
    assert repr(ds).splitlines() == [
        f"Dataset({str(tmp_path / 'd')!r}, 7 rows)",
        "x        t           v           r             n",
        "float64  string      float64[2]  int64[*]      int64?",
        "0        ''          [1, 2]      []            0",
        "0.25     'ab'        [1, 2]      [7]           null",
        "0.5      'abab'      [1, 2]      [7, 7]        2",
        "0.75     'ababab'    [1, 2]      [7, 7, 7]     null",
        "1        'abababab'  [1, 2]      [7, 7, 7, 7]  4",
        "... and 2 more rows",
    ]


def test_one_omitted_row_or_column_is_singular() -> None:
    ds = Dataset({f"{'column' * 8}_{i}": torch.ones(6) for i in range(2)})
    assert repr(ds).splitlines()[-2:] == ["... and 1 more row", "... and 1 more column"]


def test_nested_records_are_columns_of_dotted_names(tmp_path: Path) -> None:
    ds = tenfold.ingest([{"a": {"b": {"c": 1}}, "d": "x"}], tmp_path / "d")
    assert repr(ds).splitlines()[1:] == ["a.b.c  d", "int64  string", "1      'x'"]


def test_a_column_named_like_a_nested_field_shows_its_own_values() -> None:
    ds = Dataset({"a.b": torch.arange(2), "a": {"b": torch.tensor([0.0, 0.5])}})
    assert repr(ds).splitlines()[1:] == ["a.b    a.b", "int64  float32", "0      0", "1      0.5"]


def test_wide_tables_and_long_values_are_truncated_with_a_count() -> None:
    ds = Dataset({f"column_{i:03}": torch.ones(1) for i in range(200)})
    lines = repr(ds).splitlines()
    assert max(map(len, lines)) <= 100
    shown = lines[1].count("column_")
    assert lines[-1] == f"... and {200 - shown} more columns"
    assert repr(Dataset({"x": torch.arange(10).expand(1, 10)})).endswith("[0, 1, 2, 3, ...]")


def test_repr_of_a_view_shows_its_rows() -> None:
    ds = Dataset({"x": torch.arange(10)}).take([7, 2])
    assert repr(ds).splitlines() == ["Dataset(2 rows)", "x", "int64", "7", "2"]
    assert repr(ds.range(0, 0)).splitlines() == ["Dataset(0 rows)", "x", "int64"]


def test_a_repr_calls_no_function_of_map() -> None:
    called = []
    ds = Dataset({"x": torch.arange(3)}).map(lambda row: called.append(row) or row)
    assert repr(ds).startswith("Dataset(3 rows, before 1 map())\nx\n")
    assert called == []


def test_large_values_are_shown_as_dots() -> None:
    assert repr(Dataset({"x": torch.zeros(1, 300, 300)})).splitlines()[2:] == [
        "float32[300, 300]",
        "...",
    ]


def test_repr_shows_other_columns_next_to_a_damaged_one(tmp_path: Path) -> None:
    ds = tenfold.ingest([{"t": "abc", "x": 5}], tmp_path / "d")
    (offsets,) = (tmp_path / "d").glob("t*end.memmap")
    offsets.write_bytes((99).to_bytes(8, "little"))
    lines = repr(Dataset(tmp_path / "d")).splitlines()
    assert len(ds) == 1
    assert lines[3].startswith("(CorruptFileError: ")
    assert lines[3].endswith("  5")

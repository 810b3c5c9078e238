"""Dates, times and decimals in dicts become the same columns as in Arrow tables."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenfold
from tenfold.dataset._ingest.values import time_count

UTC = dt.timezone.utc
ROME = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)


def ingest(tmp_path: Path, values: list[Any], **options: Any) -> tenfold.Dataset:
    return tenfold.ingest([{"t": value} for value in values], tmp_path / "ds", **options)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([MOMENT, dt.datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("us")),
        ([dt.datetime.max, dt.datetime.min], pa.timestamp("us")),
        ([MOMENT.replace(tzinfo=ROME), MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        ([dt.date(2024, 5, 6), dt.date(1, 1, 1)], pa.date32()),
        ([dt.time(1, 2, 3, 4), dt.time.max], pa.time64("us")),
        ([dt.timedelta(days=-1, microseconds=5)], pa.duration("us")),
        ([np.datetime64("2024-05-06T07:08:09"), np.datetime64("1900-01-01T00:00:00")], None),
        ([np.datetime64(5, "ns"), np.datetime64(-7, "ns")], None),
        ([np.timedelta64(-5, "ms")], None),
    ],
    ids=str,
)
def test_times_become_integers_with_a_unit_as_in_arrow(
    tmp_path: Path, values: list[Any], kind: Any
) -> None:
    ds = ingest(tmp_path, values)
    array = pa.array(values, kind)
    arrow = tenfold.ingest(pa.table({"t": array}), tmp_path / "arrow")
    assert ds.schema == arrow.schema
    assert ds["t"].tolist() == arrow["t"].tolist()


@pytest.mark.parametrize(
    ("value", "unit", "count"),
    [
        (np.datetime64("2024-05"), "days", 19844),
        (np.datetime64("1970-01-02T03"), "s", 27 * 3600),
        (np.timedelta64(2, "W"), "days", 14),
        (np.datetime64(3, "10ns"), "ns", 30),
    ],
    ids=str,
)
def test_other_numpy_units_become_the_next_finer_unit(
    tmp_path: Path, value: Any, unit: str, count: int
) -> None:
    ds = ingest(tmp_path, [value])
    assert str(ds.schema["t"]) == f"int64 ({unit})"
    assert ds["t"].tolist() == [count]


@pytest.mark.parametrize("unit", ["W", "D", "h", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_columns_of_numpy_times_are_as_their_rows(tmp_path: Path, kind: str, unit: str) -> None:
    array = np.array([3, -5, "NaT"], f"{kind}[{unit}]")
    rows = ingest(tmp_path, list(array))
    np.save(tmp_path / "t.npy", array)
    for source in ({"t": array}, {"t": array.astype(array.dtype.newbyteorder())}, "t.npy"):
        path = tmp_path / source if isinstance(source, str) else source
        ds = tenfold.ingest(path, tmp_path / "columns")
        assert ds.schema == rows.schema
        assert ds["t"].tolist() == rows["t"].tolist()
    matrix = tenfold.ingest({"t": array[:2].reshape(1, 2)}, tmp_path / "matrix")
    assert matrix.schema["t"].unit == rows.schema["t"].unit


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64(2**62, "m"),
        np.datetime64(10**17, "Y"),
        np.datetime64(-(2**62), "M"),
        np.timedelta64(2**62, "W"),
        np.datetime64(2**60, "25s"),
        np.array([2**62], "M8[m]"),
    ],
    ids=repr,
)
def test_a_numpy_time_beyond_int64_in_the_finer_unit_is_a_bad_row(
    tmp_path: Path, value: Any
) -> None:
    with pytest.raises(ValueError, match='row 0, column "t": expected a time that fits int64'):
        ingest(tmp_path, [value])
    column = np.stack([value, np.zeros_like(value)])
    ds = tenfold.ingest({"t": column}, tmp_path / "column", on_error="collect")
    assert [row["row"] for row in ds.bad_rows] == [0]
    assert ds["t"].flatten().tolist() == [0]


@given(st.integers(-(10**12), 10**12), st.sampled_from(["Y", "4M", "3W", "h", "5m"]))
def test_days_and_seconds_are_those_of_numpy(number: int, unit: str) -> None:
    value = np.datetime64(number, unit)
    count, name, _ = time_count(value)
    finer = {"days": "D", "s": "s"}[name]
    assert count == value.astype(f"M8[{finer}]").astype(int)


def test_pandas_timestamps_are_in_nanoseconds(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    ds = ingest(tmp_path, [pd.Timestamp("1970-01-01"), pd.NaT, pd.Timestamp(7)])
    assert str(ds.schema["t"]) == "int64 (ns)?"
    assert ds["t"].tolist() == [0, 0, 7]
    assert ds[:]["t.valid"].tolist() == [True, False, True]
    ds = ingest(tmp_path, [pd.Timestamp("1970-01-01 02:00", tz=ROME)])
    assert ds["t"].tolist() == [0]
    assert ingest(tmp_path, [pd.Timedelta(microseconds=3)])["t"].tolist() == [3000]


def test_a_time_outside_of_the_years_1_to_9999_in_utc_is_counted(tmp_path: Path) -> None:
    first = dt.datetime.min.replace(tzinfo=ROME)
    last = dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=2)))
    first_utc = dt.datetime.min.replace(tzinfo=UTC)
    ds = ingest(tmp_path, [first, first_utc, last, dt.datetime.max.replace(tzinfo=UTC)])
    hours = 2 * 3_600_000_000
    counts = ds["t"].tolist()
    assert counts[1] - counts[0] == counts[2] - counts[3] == hours


def test_none_and_nat_are_null(tmp_path: Path) -> None:
    ds = ingest(tmp_path, [None, np.datetime64("NaT"), MOMENT, None])
    assert ds[:]["t.valid"].tolist() == [False, False, True, False]


def test_lists_and_columns_of_times_are_ingested(tmp_path: Path) -> None:
    ds = ingest(tmp_path, [[dt.date(1970, 1, 2)], [], [dt.date(1970, 1, 3)] * 2])
    assert str(ds.schema["t"]) == "int64[*] (days)"
    assert [row["t"].tolist() for row in ds] == [[1], [], [2, 2]]
    days = np.array(["1970-01-05", "NaT"], "datetime64[D]")
    ds = tenfold.ingest({"x": [1, 2], "t": days}, tmp_path / "ds")
    assert str(ds.schema["t"]) == "int64 (days)?"
    assert ds["t"].tolist() == [4, 0]
    ds = ingest(tmp_path, [days[:1], days[:1]])
    assert str(ds.schema["t"]) == "int64[1] (days)"


@pytest.mark.parametrize(
    "values",
    [
        [MOMENT, MOMENT.replace(tzinfo=UTC)],
        [MOMENT, dt.date(2024, 5, 6)],
        [MOMENT, 7],
        [7, MOMENT],
        [MOMENT, True],
        [MOMENT, 0.5],
        ["text", MOMENT],
        [MOMENT, np.array([1, 2])],
        [MOMENT, np.datetime64("2024-05-06")],
        [dt.time(1, tzinfo=UTC)],
        [np.timedelta64(1, "M")],
        [MOMENT, uuid.UUID(int=7)],
    ],
    ids=str,
)
def test_a_time_mixed_with_another_type_is_a_bad_row(tmp_path: Path, values: list[Any]) -> None:
    bad = len(values) - 1
    with pytest.raises(ValueError, match=rf'row {bad}, column "t": expected .*, found '):
        ingest(tmp_path, values)
    ds = ingest(tmp_path, [*values, values[0] if bad else None], on_error="collect")
    assert [row["row"] for row in ds.bad_rows] == [bad]


def test_a_schema_sets_the_unit(tmp_path: Path) -> None:
    schema = {"t": {"dtype": "int64", "unit": "us"}}
    ds = ingest(tmp_path, [MOMENT, 7], schema=schema)
    assert ds["t"][1] == 7
    days = r"found 2024-05-06, int64 \(days\)"
    with pytest.raises(ValueError, match=rf"expected int64 \(us\), {days}"):
        ingest(tmp_path, [MOMENT.date()], schema=schema)
    with pytest.raises(ValueError, match=f"expected int64, {days}"):
        ingest(tmp_path, [MOMENT.date()], schema={"t": "int64"})


def test_decimals_become_strings_with_all_digits(tmp_path: Path) -> None:
    ds = ingest(tmp_path, [decimal.Decimal("1.50"), None, decimal.Decimal("-0.1")])
    assert str(ds.schema["t"]) == "string?"
    assert list(ds["t"]) == ["1.50", "", "-0.1"]

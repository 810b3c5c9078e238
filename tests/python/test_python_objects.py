"""The extension converts Python strings, numbers, sequences and classes.

The results are the same whether the extension is built for one version of Python or for the stable
ABI (TENFOLD_LIMITED_API).
"""

from __future__ import annotations

import collections
import datetime
from typing import Any

import numpy as np
import pytest
import torch

import tenfold


class Str(str):
    pass


class Bytes(bytes):
    pass


class Float(float):
    def __float__(self) -> float:
        raise AssertionError("the value itself is read")


class List(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise AssertionError("the items themselves are read")

    def __getitem__(self, _: Any) -> Any:
        raise AssertionError("the items themselves are read")


class Tuple(tuple):  # type: ignore[type-arg]
    __len__ = List.__len__
    __getitem__ = List.__getitem__


class Date(datetime.date):
    pass


class ClaimsToBeADate:
    __class__ = datetime.date  # type: ignore[assignment]


@pytest.fixture
def words(tmp_path):
    # Every third key is not ASCII.
    keys = [f"wörd {i} ☃" if i % 3 == 0 else f"word {i}" for i in range(1000)]
    made = tenfold.MappedDict.build({key: torch.tensor(i) for i, key in enumerate(keys)}, tmp_path)
    return keys, made


@pytest.mark.parametrize("container", [list, tuple, iter])
def test_non_ascii_keys_are_found_in_batches(words, container):
    keys, made = words
    assert made.rows(container(keys)).tolist() == list(range(1000))
    ascii_alone = [key for key in keys if key.isascii()]
    assert made.rows(container(ascii_alone)).tolist() == [i for i in range(1000) if i % 3]
    mixed = [*keys[:500], "\ud800", 3, None, "", Str(keys[1]), "a\0b", *keys[500:]]
    assert made.rows(container(mixed)).tolist() == [
        *range(500), -1, -1, -1, -1, 1, -1, *range(500, 1000)
    ]  # fmt: skip
    assert keys[3] in made
    assert Str(keys[3]) in made
    assert "\ud800" not in made
    values, found = made.get_many(container(["\ud800", *keys[:2]]))
    assert found.tolist() == [False, True, True]
    assert values.tolist() == [0, 0, 1]
    with pytest.raises(KeyError, match=r"^'nöbody'$"):
        made["nöbody"]


def test_bytes_keys_of_any_length_are_found(tmp_path):
    keys = [bytes([i]) * i for i in range(256)]
    made = tenfold.MappedDict.build({key: torch.tensor(i) for i, key in enumerate(keys)}, tmp_path)
    assert made.rows(keys).tolist() == list(range(256))
    assert made.rows([Bytes(keys[7]), "x", b"a\0b"]).tolist() == [7, -1, -1]
    with pytest.raises(TypeError, match=r"found one Bytes$"):
        made.rows(Bytes(b"x"))


def test_numpy_integer_keys_are_found(tmp_path):
    made = tenfold.MappedDict.build({i: torch.tensor(i) for i in range(10)}, tmp_path)
    keys = [np.int8(3), np.uint64(4), 5, True, np.bool_(1), np.float64(7), 1 << 70]
    assert made.rows(keys).tolist() == [3, 4, 5, -1, -1, -1, -1]


def test_subclasses_of_builtin_types_are_read_by_value(tmp_path):
    rows = [
        {"f": Float(1.5), "s": Str("é"), "l": List([1, 2]), "t": Tuple([Float(0.5)])},
        {"f": 2.5, "s": "plain", "l": [3], "t": (0.25, 0.75)},
    ]
    ds = tenfold.ingest(rows, tmp_path / "ds")
    assert [ds[i]["f"].item() for i in range(2)] == [1.5, 2.5]
    assert [ds[i]["s"] for i in range(2)] == ["é", "plain"]
    assert [ds[i]["l"].tolist() for i in range(2)] == [[1, 2], [3]]
    assert [ds[i]["t"].tolist() for i in range(2)] == [[0.5], [0.25, 0.75]]
    ds = tenfold.ingest([{"b": b"a\0b"}, {"b": bytearray(b"c\0d")}, {"b": b""}], tmp_path / "bytes")
    assert [ds[i]["b"] for i in range(3)] == [b"a\0b", b"c\0d", b""]


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        (Date(2024, 2, 29), "days"),
        (datetime.datetime(2024, 2, 29, 1, 2, 3), "us"),
        (datetime.time(1, 2, 3), "us"),
        (datetime.timedelta(days=1), "us"),
        (np.datetime64("2024-02-29"), "days"),
        (np.timedelta64(3, "s"), "s"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_time_types_have_the_expected_unit(tmp_path, time, unit):
    ds = tenfold.ingest([{"t": time}], tmp_path / "ds")
    assert ds.schema["t"].unit == unit


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "object"),
        (ClaimsToBeADate(), "ClaimsToBeADate"),
        ({1}, "set"),
        (datetime.timezone.utc, "datetime.timezone"),
        (torch.float32, "torch.dtype"),
        (collections.UserDict, "ABCMeta"),
    ],
)
def test_error_messages_name_the_class(tmp_path, value, name):
    with pytest.raises(ValueError, match=rf"found {name}$"):
        tenfold.ingest([{"x": value}], tmp_path / "ds")


def test_masked_elements_of_arrays_are_null_and_refused_in_lists(tmp_path):
    masked = np.ma.masked_array([1, 2], mask=[False, True])
    with pytest.raises(ValueError, match="found null in a list"):
        tenfold.ingest([{"x": masked}, {"x": [3, 4]}], tmp_path / "ds")

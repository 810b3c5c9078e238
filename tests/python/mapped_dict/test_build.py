"""Inputs that `build` stores as a dictionary, and inputs that it refuses, leaving no files."""

from __future__ import annotations

import collections
import gc
from decimal import Decimal

import numpy as np
import pytest
import torch

import tenfold

build = tenfold.MappedDict.build


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [("a", 1), (2, 2)],
            "item 1: key 2: expected str, the type of the dictionary's keys, found int",
        ),
        (
            [(1, 1), ("a", 2)],
            "item 1: key 'a': expected int, the type of the dictionary's keys, found str",
        ),
        (
            [(b"a", 1), ("a", 2)],
            "item 1: key 'a': expected bytes, the type of the dictionary's keys, found str",
        ),
        ([(1, 1), (True, 2)], "item 1: key: expected str, bytes or int, found bool True"),
        ([(True, 1)], "item 0: key: expected str, bytes or int, found bool True"),
        ([(1.5, 1)], "item 0: key: expected str, bytes or int, found float 1.5"),
        ([(float("nan"), 1)], "found float nan"),
        ([(None, 1)], "found NoneType None"),
        ([(2**63, 1)], "expected an int that fits int64"),
        ([("a", 1), ("b", -(2**63) - 1)], "expected int64, found -9223372036854775809"),
        ([("a", 0.5), ("b", -(2**53) - 1)], "expected float64, found -9007199254740993"),
        (
            [("a", torch.ones(3, 2)), ("b", torch.ones(2, 3))],
            r"item 1: value: expected a tensor of shape \[3, 2\].*found \[2, 3\]",
        ),
        ([("a", torch.ones(3)), ("b", torch.ones(2, 3))], r"item 1: .*found \[2, 3\]"),
        (
            [("a", 1), ("b", 2), ("a", 3)],
            'key "a": expected every key once, found it in rows 0 and 2',
        ),
        ([("a", None)], "item 0: value: .* found None"),
        ([("a", 1), ("b", None)], "item 1: value: expected int, as the first value is, found None"),
        ([("a", 1), ("b", "x")], "item 1: value: expected int, as the first value is, found str"),
        ([("a", {"x": 1}), ("b", 2)], "item 1: value: expected a dict"),
        ([("a", torch.ones(2)), ("b", {"x": 1})], "item 1: value: expected a tensor"),
        ([("a", torch.tensor(2**60 + 1)), ("b", 0.5)], "expected a tensor.*, found float"),
        ([("a", torch.ones(2)), ("b", True)], "item 1: value: expected a tensor.*, found bool"),
        (
            [("a", [[1, 2], [3]])],
            "expected a number of 64 bits.*, found a list as JSON text; .* json",
        ),
        (
            [("a", torch.ones(1, 2).long()), ("b", [3, 4])],
            r'"value": expected a list of int64\[2\]',
        ),
        (
            [("a", {"v": [{"x": 1}]})],
            r'row 0, column "v": .*found a list as JSON text; .* json.dumps',
        ),
        ([("a", {"v": [1, 2]}), ("b", {"v": [[3]]})], r"found a list of int64\[1\]"),
        ([("a", {"v": 1}), ("b", {"v": "x"})], r"""row 1, column "v": expected int64, found 'x'"""),
        ([("a", {"v": "x"}), ("b", {"v": 1})], 'row 1, column "v": expected string, found 1'),
        ([("a", {"v": 2**53 + 1}), ("b", {"v": 0.5})], "expected int64, found 0.5"),
        ([("a", {"v": 2**64})], "expected a number of 64 bits.*, found 18446744073709551616"),
        ([("a", {"v": -1}), ("b", {"v": 2**63})], "expected int64, found 9223372036854775808"),
        ([("a", {"v": ["x", 1]})], "expected a number of 64 bits.*, found a list of string"),
        ([("a", {"v": ["x", None]})], "expected a list of string, found None at index 1"),
        ([("a", 2**53 + 1), ("b", 0.5)], "row 1, .* expected int64, found 0.5"),
        ([("a", 2**70)], "a number of 64 bits.*, found 1180591620717411303424"),
        ([("a", {"key": 1})], 'entry "key": expected another name'),
        ([("a",)], "item 0: expected a pair"),
        ([3], "item 0: expected a pair"),
        ([("a", 1), 3], "item 1: expected a pair"),
        ([("\ud800", 1)], "surrogate"),
        ([("a", torch.eye(2).to_sparse())], "expected a dense tensor, found a sparse tensor"),
        (
            [("a", Decimal("1.5"))],
            r'column "value": .*found Decimal\(.1.5.\); convert it with float',
        ),
        ([("a", {"x": Decimal("1.5")})], r'row 0, column "x": .*found Decimal'),
        ([*((str(i), [1]) for i in range(1500)), ("b", [b"x"])], 'row 1500, column "value"'),
    ],
)
def test_invalid_items_raise_and_write_nothing(tmp_path, items, message):
    with pytest.raises(ValueError, match=message):
        build(items, tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_unhashable_keys_raise(tmp_path):
    with pytest.raises(TypeError, match="unhashable"):
        build([([1], 2)], tmp_path / "d")
    with pytest.raises(TypeError, match="unhashable"):
        build([("a", 2), (["b"], 2)], tmp_path / "d")


def test_exception_of_the_items_leaves_no_files(tmp_path):
    def pairs():
        for i in range(10_000):
            yield f"k{i}", torch.zeros(3)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        build(pairs(), tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [lambda: 1, lambda: torch.zeros(3), lambda: {"x": torch.zeros(3), "y": [1.0], "name": "n"}],
    ids=["scalars", "tensors", "dicts"],
)
def test_build_triggers_few_garbage_collections(tmp_path, value):
    # Garbage collections would slow down build(): a full one visits all objects of the program,
    # for example a dict with the items to store.
    pairs = ((f"k{i}", value()) for i in range(20_000))
    phases = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: phases.append(phase))
    try:
        build(pairs, tmp_path / "d")
    finally:
        gc.callbacks.pop()
    assert phases.count("start") < 10


def test_duplicates_last_keeps_the_last_value(tmp_path):
    pairs = [(f"k{i % 100}", i) for i in range(1000)]
    d = build(pairs, tmp_path / "d", duplicates="last")
    assert dict(d.items()) == dict(pairs)
    assert len(d) == 100
    assert len(d.dataset) == 100
    assert [row["value"].item() for row in d.dataset] == list(range(900, 1000))
    assert tenfold.verify(tmp_path / "d").ok
    with pytest.raises(ValueError, match='expected "error" or "last"'):
        build(pairs, tmp_path / "d", duplicates="first")


def test_build_replaces_only_mapped_dicts(tmp_path):
    old = build({"a": 1}, tmp_path / "d")
    build({"b": 2}, tmp_path / "d")
    assert old["a"] == 1
    assert list(tenfold.MappedDict(tmp_path / "d")) == ["b"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match=r"notes\.txt"):
        build({"a": 1}, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_numpy_keys_and_ordered_dicts_are_accepted(tmp_path):
    d = build({np.str_("a"): 1, np.str_("b"): 2}, tmp_path / "s")
    assert d["b"] == 2
    d = build(zip(np.arange(5), np.arange(10.0).reshape(5, 2), strict=True), tmp_path / "i")
    assert d.key_type is int
    assert d[4].tolist() == [8.0, 9.0]
    assert d[4].dtype == torch.float64
    assert build({np.longlong(7): 1.0}, tmp_path / "l")[np.longlong(7)] == 1.0
    d = build(collections.OrderedDict(a=1), tmp_path / "o")
    assert d["a"] == 1


@pytest.mark.parametrize("plain", ["red", b"red", 7])
def test_a_key_of_a_subclass_is_stored_as_its_plain_value(tmp_path, plain):
    class Key(type(plain)):
        def __str__(self):
            return "other"

        def __bytes__(self):
            return b"other"

        def __int__(self):
            return 8

    key = Key(plain)
    with build({key: 1}, tmp_path / "d") as d:
        assert list(d) == [plain]
        assert d[key] == d[plain] == 1
    other = type(plain)()
    path = build({other: 1}, tmp_path / "e")._path
    with tenfold.MappedDict(path, "r+") as d:
        d.extend({key: 2})
        d[key] = 3
        assert dict(d) == {other: 1, plain: 3}


def test_ints_and_floats_become_floats(tmp_path):
    d = build({"a": 1, "b": 2.5, "c": 2**60, "d": -(2**63)}, tmp_path / "d")
    assert dict(d.items()) == {"a": 1.0, "b": 2.5, "c": 2.0**60, "d": -(2.0**63)}


@pytest.mark.parametrize("between", [0, 2000], ids=["in one batch", "in other batches"])
def test_ints_beyond_int64_are_stored_wherever_a_float_is(tmp_path, between):
    ones = [1] * between
    for values in ([2**63, *ones, 0.5], [0.5, *ones, 2**63], [*ones, 2**63, *ones, 0.5]):
        d = build(enumerate(values), tmp_path / "d")
        assert list(d.values()) == values
    d = build(enumerate([*ones, 2**63]), tmp_path / "d")
    assert (d.schema["value"].dtype, d[between]) == ("uint64", 2**63)


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
def test_a_data_set_without_the_key_names_its_columns(tmp_path, mapped):
    ds = tenfold.ingest([{"a": 1, "b": 2}], tmp_path / "t")
    ds = ds.map(dict) if mapped else ds
    with pytest.raises(KeyError, match='no column "id": expected one of "a", "b", found "id"'):
        build((ds, "id"), tmp_path / "d")


def test_numpy_floats_and_strs_count_as_those_of_python(tmp_path):
    for values in ([np.float64(3), 1.5], [1.5, np.float64(3)], [2, np.float64(3)]):
        d = build(enumerate(values), tmp_path / "d")
        assert list(d.values()) == values
    d = build({"a": np.str_("x"), "b": "y"}, tmp_path / "s")
    assert list(d.values()) == ["x", "y"]
    with tenfold.MappedDict(tmp_path / "s", "r+") as writer:
        writer.update({"b": np.str_("z")})
    assert d["b"] == "z"
    with pytest.raises(ValueError, match=r"row 1, .* expected float64, found 9007199254740993"):
        build({"a": np.float64(3), "b": 2**53 + 1}, tmp_path / "d")
    with pytest.raises(ValueError, match=r"item 1: value: expected float, .*, found str_"):
        build({"a": np.float64(3), "b": np.str_("x")}, tmp_path / "d")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_build_keeps_dtypes(tmp_path, dtype):
    values = {i: torch.tensor([1, 0, 1]).to(dtype) for i in range(3)}
    d = build(values, tmp_path / "d")
    assert d[1].dtype == dtype
    assert torch.equal(d[1], values[1])


def test_ragged_tensors_round_trip(tmp_path):
    d = build({i: torch.arange(i) for i in range(5)}, tmp_path / "d")
    assert d[4].tolist() == [0, 1, 2, 3]
    values, _ = d.get_many([3, 99, 1])
    assert [len(part) for part in values.unbind()] == [3, 0, 1]


def test_empty_mapped_dict_can_be_read_but_not_extended(tmp_path):
    d = build({}, tmp_path / "d")
    assert len(d) == 0
    assert list(d.items()) == []
    assert "a" not in d
    _values, found = d.get_many(["a"])
    assert found.tolist() == [False]
    with tenfold.MappedDict(tmp_path / "d", "r+") as writer:
        for items in ({"a": torch.zeros(3)}, {1: torch.zeros(3)}, {"a": {"x": 1}}):
            with pytest.raises(ValueError, match="the dictionary was built without items"):
                writer.extend(items)
    assert len(d) == 0


def test_build_reports_progress(tmp_path):
    seen = []
    items = ((i, torch.zeros(64)) for i in range(200_000))
    build(items, tmp_path / "d", progress=lambda done, total, what: seen.append(what))
    assert "ingest" in seen


def test_another_data_set_or_a_missing_path_is_an_error(tmp_path):
    tenfold.ingest([{"a": 1}], tmp_path / "t")
    with pytest.raises(
        ValueError, match="expected a dictionary, found a data set without an index"
    ):
        tenfold.MappedDict(tmp_path / "t")
    with pytest.raises(FileNotFoundError):
        tenfold.MappedDict(tmp_path / "nothing")


def test_the_key_of_a_data_set_may_be_in_a_record(tmp_path):
    ds = tenfold.ingest([{"r": {"x": 7}, "y": 1.5}], tmp_path / "ds")
    d = tenfold.MappedDict.build((ds, ("r", "x")), tmp_path / "d")
    assert d[7]["y"] == 1.5


def test_a_table_with_the_name_of_its_key_column_is_refused(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame({"id": [1], "x": [2]})
    with pytest.raises(TypeError, match=r"items: expected a Dataset before .* found DataFrame"):
        tenfold.MappedDict.build((frame, "id"), tmp_path / "d")

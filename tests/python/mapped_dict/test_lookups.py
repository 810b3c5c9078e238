"""Lookups find the values of keys of every type, and nothing for other keys."""

from __future__ import annotations

import collections
import collections.abc
import json
import multiprocessing
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold


@pytest.fixture
def words(tmp_path):
    items = {f"word {i}": torch.full((4,), float(i)) for i in range(1000)}
    return tenfold.MappedDict.build(items, tmp_path / "d")


def test_lookup_returns_the_stored_tensor(words):
    assert len(words) == 1000
    assert torch.equal(words["word 7"], torch.full((4,), 7.0))
    assert words["word 7"].dtype == torch.float32
    assert "word 7" in words
    assert "word 1000" not in words
    assert words.get("nobody") is None
    assert words.get("nobody", 3) == 3
    with pytest.raises(KeyError, match=r"^'nobody'$"):
        words["nobody"]


def test_a_value_is_a_copy(words):
    words["word 7"][:] = 0
    assert words["word 7"][0] == 7.0


def test_get_many_returns_values_and_a_found_mask(words):
    values, found = words.get_many(["word 5", "x", "word 0", "word 5"])
    assert values[:, 0].tolist() == [5.0, 0.0, 0.0, 5.0]
    assert found.tolist() == [True, False, True, True]
    assert words.rows(["word 5", "x", 3, None]).tolist() == [5, -1, -1, -1]
    values, found = words.get_many([])
    assert values.shape == (0, 4)
    assert found.shape == (0,)
    values, found = words.get_many(f"word {i}" for i in range(1000))
    assert values[:, 1].tolist() == list(range(1000))


class _Str(str):
    pass


@pytest.mark.parametrize("key_type", [str, bytes])
def test_get_many_accepts_keys_of_any_length_and_type(tmp_path, key_type):
    texts = ["", "a", "caf\u00e9", "\U0001f600" * 3, "x" * 255, "x" * 256, "x" * 257, "y" * 100_000]
    texts += [f"key {i}" for i in range(700)]
    items = {text if key_type is str else text.encode(): i for i, text in enumerate(texts)}
    numbers = tenfold.MappedDict.build(items, tmp_path / "d")
    plain = [key for key in items if len(key) < 200 and (key_type is bytes or key.isascii())]
    others = ["nobody", b"nobody", 7, None, 1.5, ("a",), _Str("no key"), "\ud800"]
    given = [*items, _Str("key 5")]
    for asked in (plain, given, [*plain, *others], [*others, *given], plain[:1], plain[:129]):
        expected = [items.get(key) for key in asked]
        for keys in (asked, tuple(asked), iter(asked), collections.deque(asked)):
            values, found = numbers.get_many(keys)
            assert found.tolist() == [value is not None for value in expected]
            assert values.tolist() == [value or 0 for value in expected]
        for key in others:
            with pytest.raises(KeyError) as error:
                numbers.get_many([*plain[:3], key], "raise")
            assert error.value.args == (key,)
            with pytest.raises(KeyError) as error:
                numbers[key]
            assert error.value.args == (key,)


def _look_up_batches(words, num_batches):
    """Looks up many batches without a pause, so that the library's helper thread is in use."""
    rng = random.Random(num_batches)
    for _ in range(num_batches):
        asked = [rng.randrange(1200) for _ in range(rng.randrange(300))]
        values, found = words.get_many([f"word {i}" for i in asked])
        assert found.tolist() == [i < 1000 for i in asked]
        assert values[:, 3].tolist() == [i if i < 1000 else 0 for i in asked]


def test_consecutive_batches_also_work_in_a_forked_child(words):
    _look_up_batches(words, 300)
    child = multiprocessing.get_context("fork").Process(target=_look_up_batches, args=(words, 300))
    child.start()
    _look_up_batches(words, 300)
    child.join(60)
    assert child.exitcode == 0


def test_equals_a_mapping_of_the_same_items(words, tmp_path):
    same = {f"word {i}": torch.full((4,), float(i)) for i in reversed(range(1000))}
    assert words == same
    assert words == tenfold.MappedDict(tmp_path / "d")
    assert words != {**same, "word 5": torch.zeros(4)}
    assert words != {**same, "word 5": torch.full((4,), 5)}
    assert words != {key: value for key, value in same.items() if key != "word 5"}
    assert words != [*same]
    rows = {1: {"x": torch.ones(2), "name": "a"}, 2: {"x": torch.zeros(2), "name": "b"}}
    columns = tenfold.MappedDict.build(rows, tmp_path / "rows")
    assert columns == rows
    assert columns != {1: rows[1], 2: {**rows[2], "name": "c"}}
    with pytest.raises(TypeError, match="unhashable"):
        hash(words)


def test_missing_keys_are_named(words):
    with pytest.raises(KeyError, match="'x'"):
        words.get_many(["word 1", "x"], missing="raise")
    with pytest.raises(KeyError, match=r"7 keys are missing: 'a0', 'a1', 'a2', 'a3', 'a4', \.\.\."):
        words.get_many([f"a{i}" for i in range(7)], missing="raise")
    with pytest.raises(ValueError, match='expected "mask" or "raise"'):
        words.get_many([], missing="ignore")
    with pytest.raises(KeyError, match="2 keys are missing: 7, 8"):
        words.get_many(np.array([7, 8]), missing="raise")
    with pytest.raises(KeyError, match="2 keys are missing: 7, 9"):
        words.get_many(torch.tensor([7, 8, 9], dtype=torch.int16)[::2], missing="raise")


def test_an_array_of_no_keys_finds_none_missing(words):
    for keys in (np.array([]), torch.empty(0, dtype=torch.int64)):
        values, found = words.get_many(keys, missing="raise")
        assert values.shape == (0, 4)
        assert found.shape == (0,)


def test_get_many_accepts_packed_keys(words):
    text = b"word 5word 999no"
    packed = {
        "values": torch.frombuffer(bytearray(text), dtype=torch.uint8),
        "offsets": torch.tensor([0, 6, 14, 16]),
    }
    values, found = words.get_many(packed)
    assert values[:, 0].tolist() == [5.0, 999.0, 0.0]
    assert found.tolist() == [True, True, False]
    packed["offsets"] = torch.tensor([0, 6, 17, 16])
    with pytest.raises(ValueError, match="all from 0 to 16, none below"):
        words.get_many(packed)
    with pytest.raises(TypeError, match='"offsets": expected int64'):
        words.get_many({"values": packed["values"]})


def test_an_invalid_key_is_not_found_or_raises(words):
    assert 3 not in words
    assert None not in words
    assert b"word 3" not in words
    assert 1.5 not in words
    for bad in ([1], {}, {1}):
        with pytest.raises(TypeError, match="unhashable"):
            words[bad]
        with pytest.raises(TypeError, match="unhashable"):
            words.get_many(["word 1", bad])
    with pytest.raises(TypeError, match="found one str"):
        words.get_many("word 1")
    for bad, found in (
        (3, "one int"),
        (1.5, "one float"),
        (np.int64(3), "one int64"),
        (None, "None"),
    ):
        for call in (words.get_many, words.rows):
            with pytest.raises(TypeError, match=f"keys: expected several keys, found {found}"):
                call(bad)
    integers = torch.tensor([1, 2])
    for bad in (integers.to("meta"), integers.to_sparse()):
        for call in (words.get_many, words.rows):
            with pytest.raises(TypeError, match="keys: expected a dense tensor"):
                call(bad)
    assert "\ud800" not in words


def test_is_a_mapping_that_iterates_in_insertion_order(words):
    assert isinstance(words, collections.abc.Mapping)
    assert list(words) == list(words.keys()) == [f"word {i}" for i in range(1000)]
    assert [value[0].item() for value in words.values()] == list(range(1000))
    items = words.items()
    assert len(items) == 1000
    key, value = next(iter(items))
    assert key == "word 0"
    assert torch.equal(value, torch.zeros(4))
    assert words.keys() & {"word 1", "?"} == {"word 1"}
    with pytest.raises(TypeError, match="not reversible"):
        reversed(words)
    assert dict(words)["word 3"][0] == 3.0


def test_integer_keys_are_found_by_numpy_and_torch_integers_but_not_by_bools(tmp_path):
    d = tenfold.MappedDict.build({i * i: {"x": i} for i in range(100)}, tmp_path / "d")
    assert d.key_type is int
    assert d[49]["x"] == 7
    assert np.int64(49) in d
    assert np.uint8(49) in d
    assert True not in d
    assert np.bool_(True) not in d
    assert 2**70 not in d
    assert "49" not in d
    assert torch.tensor(49) in d
    assert d.get(np.array(49, "uint8"))["x"] == 7
    for key in (torch.tensor(49.0), torch.tensor(True), torch.tensor([49])):
        assert key not in d
    with pytest.raises(TypeError, match="unhashable"):
        d.get(np.array([49]))
    for keys in (
        [torch.tensor(49), np.array(5), 4],
        torch.tensor([49, 5, 4]),
        np.array([49, 5, 4]),
        np.array([49, 5, 4], "int16"),
    ):
        values, found = d.get_many(keys)
        assert values["x"].tolist() == [7, 0, 2]
        assert found.tolist() == [True, False, True]
    with pytest.raises(TypeError, match="expected a one-dimensional tensor of integers"):
        d.get_many(torch.tensor([1.0]))


def test_zero_dimensional_tensors_are_keys_of_new_items(tmp_path):
    d = tenfold.MappedDict.build({torch.tensor(3): 1.0, 4: 2.0}, tmp_path / "d")
    assert list(d) == [3, 4]
    with pytest.raises(ValueError, match="item 0: key: expected str, bytes or int"):
        tenfold.MappedDict.build({torch.tensor(True): 1.0}, tmp_path / "d")


def test_arrays_of_arrow_are_keys(tmp_path, words):
    pa = pytest.importorskip("pyarrow")
    for keys in (pa.array(["word 1", None]), pa.chunked_array([["word 1"], ["x"]])):
        assert words.get_many(keys)[1].tolist() == [True, False]
    ids = tenfold.MappedDict.build({3: 1.0, 4: 2.0}, tmp_path / "ids")
    for keys in (pa.array([3, 5]), pa.array([3, None]), pa.chunked_array([[3], [5]])):
        assert ids.rows(keys).tolist() == [0, -1]
    with pytest.raises(TypeError, match="keys: expected a column of Arrow, found Table"):
        ids.rows(pa.table({"id": [3]}))


def test_bytes_keys_differ_from_str_keys(tmp_path):
    d = tenfold.MappedDict.build([(b"\xff\x00", 1.5), (b"", 2.5)], tmp_path / "d")
    assert d[b"\xff\x00"] == 1.5
    assert d[b""] == 2.5
    assert "" not in d
    assert list(d) == [b"\xff\x00", b""]


@pytest.mark.parametrize(
    "values",
    [[1, -5, 2**62], [1.5, float("inf"), -0.0], [True, False, True], ["", "ä", "x" * 999]],
)
def test_scalars_round_trip_with_their_types(tmp_path, values):
    d = tenfold.MappedDict.build(zip("abc", values, strict=True), tmp_path / "d")
    for key, value in zip("abc", values, strict=True):
        assert d[key] == value
        assert type(d[key]) is type(value)
    assert list(d.values()) == values
    assert dict(d.items()) == dict(zip("abc", values, strict=True))
    many, found = d.get_many(["c", "?", "a"])
    assert list(many) == [values[2], type(values[0])(), values[0]]
    assert found.tolist() == [True, False, True]


def test_dict_values_become_columns(tmp_path):
    items = [
        (f"k{i}", {"x": torch.ones(2, 2) * i, "name": f"n{i}", "tokens": list(range(i)), "n": i})
        for i in range(10)
    ]
    d = tenfold.MappedDict.build(items, tmp_path / "d")
    row = d["k3"]
    assert row["name"] == "n3"
    assert row["tokens"].tolist() == [0, 1, 2]
    assert row["n"].shape == ()
    assert row["n"] == 3
    values, found = d.get_many(["k4", "?", "k1"])
    assert values["name"] == ["n4", "", "n1"]
    assert [len(part) for part in values["tokens"].unbind()] == [4, 0, 1]
    assert values["x"].shape == (3, 2, 2)
    assert found.tolist() == [True, False, True]
    assert [key for key, _ in d.items()] == [key for key, _ in items]
    assert [value["name"] for value in d.values()] == [f"n{i}" for i in range(10)]


def test_dataset_exposes_keys_and_values_as_columns(words, tmp_path):
    assert words.dataset.columns == ["key", "value"]
    assert words.dataset[5]["key"] == "word 5"
    assert len(tenfold.Dataset(tmp_path / "d")) == 1000
    flights = tenfold.ingest([{"id": i, "x": i / 2} for i in range(50)], tmp_path / "t")
    d = tenfold.MappedDict.build((flights, "id"), tmp_path / "e")
    assert d[30]["x"] == 15.0
    d = tenfold.MappedDict.build(flights.range(10, 20), tmp_path / "e", key="id")
    assert list(d) == list(range(10, 20))
    mapped = flights.map(lambda row: {"id": row["id"].item(), "y": row["x"] * 2})
    assert tenfold.MappedDict.build(mapped, tmp_path / "e", key="id")[3]["y"] == 3.0


def test_tensordict_opens_it_as_a_table(words, tmp_path):
    tensordict = pytest.importorskip("tensordict")
    td = tensordict.TensorDict.load_memmap(tmp_path / "d")
    assert td.batch_size == (1000,)
    assert td["value"][3].tolist() == [3.0] * 4
    assert set(tensordict.TensorDict.load_memmap(tmp_path / "d" / "%values").keys()) == {
        "key",
        "key.index",
    }


def test_archives_and_safetensors_hold_a_mapped_dict(words, tmp_path):
    for name in ("d.tdz", "d.safetensors"):
        tenfold.convert(tmp_path / "d", tmp_path / name)
        assert tenfold.MappedDict(tmp_path / name)["word 8"][0] == 8.0


def _first_value(d):
    return float(d["word 9"][0])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pickles_by_path_to_other_processes(words, method):
    assert len(pickle.dumps(words)) < 500
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_first_value, [words] * 3) == [9.0] * 3


def test_repr_shows_the_number_and_type_of_keys(words):
    assert repr(words).endswith("1,000 str keys, value: float32[4])")


def test_repr_of_an_empty_dictionary_shows_no_columns(tmp_path):
    path = str(tmp_path / "d")
    assert repr(tenfold.MappedDict.build({}, path)) == f"MappedDict({path!r}, 0 str keys)"


def test_read_only_folder_can_be_opened(words, tmp_path):
    for path in sorted((tmp_path / "d").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (tmp_path / "d").chmod(0o555)
    try:
        assert tenfold.MappedDict(tmp_path / "d")["word 2"][0] == 2.0
    finally:
        for path in [tmp_path / "d", tmp_path / "d" / "%values"]:
            path.chmod(0o755)


def test_verify_detects_an_inconsistent_index(words, tmp_path):
    assert tenfold.verify(tmp_path / "d").ok
    index = tmp_path / "d" / "%values" / "key.index.memmap"
    data = bytearray(index.read_bytes())
    slot = next(i for i in range(0, len(data), 8) if data[i : i + 8] != bytes(8))
    data[slot : slot + 8] = bytes(8)
    index.write_bytes(data)
    (tmp_path / "d" / "%checksums").unlink()  # as if it had been saved without checksums
    report = tenfold.verify(tmp_path / "d")
    assert not report.ok
    assert any("index" in problem.part or "key" in problem.part for problem in report.problems)


keys = st.one_of(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)),
    st.dictionaries(st.binary(), st.integers(0, 9)),
    st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9)),
)


@settings(max_examples=60, deadline=None)
@given(items=keys, others=st.lists(st.one_of(st.text(), st.integers(), st.binary(), st.none())))
def test_behaves_like_a_dict(tmp_path_factory, items, others):
    d = tenfold.MappedDict.build(items, tmp_path_factory.mktemp("d") / "d")
    assert len(d) == len(items)
    assert list(d.items()) == list(items.items())
    for key in [*items, *others]:
        assert (key in d) == (key in items)
        assert d.get(key) == items.get(key)
    asked = [*items, *others]
    _, found = d.get_many(asked)
    assert found.tolist() == [key in items for key in asked]


def test_metadata_records_the_mapped_dict_schema(words, tmp_path):
    notes = json.loads((tmp_path / "d" / "%notes.json").read_text())
    assert notes["schema"]["mapped_dict"] == {
        "version": 1,
        "index": "key.index",
        "values": "tensor",
    }


def test_membership_in_views_compares_whole_values(words):
    key = next(iter(words))
    assert (key, words[key].clone()) in words.items()
    assert (key, words[key] + 1) not in words.items()
    assert ("nobody", words[key]) not in words.items()
    assert key not in words.items()
    assert words[key].clone() in words.values()
    assert words[key][:1] not in words.values()

"""Keys are added and values changed while other handles and processes read."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import threading
import warnings
from enum import IntEnum

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from forks import exit_status, forked
from tenfold import MappedDict


@pytest.fixture
def path(tmp_path):
    MappedDict.build({f"k{i}": torch.full((3,), float(i)) for i in range(100)}, tmp_path / "d")
    return tmp_path / "d"


def test_assigns_existing_keys(path):
    reader = MappedDict(path)
    with MappedDict(path, "r+") as d:
        d["k7"] = torch.full((3,), 70.0)
        d["k7"] = [71.0, 71.0, 71.0]
        d.update({"k8": torch.zeros(3), "k9": torch.zeros(3)})
        assert d["k7"].tolist() == [71.0] * 3
        assert reader["k7"].tolist() == [71.0] * 3
        assert len(d) == 100
        assert reader.get_many(["k7", "k8", "k6"])[0][:, 0].tolist() == [71.0, 0.0, 6.0]
        with pytest.raises(KeyError, match="extend"):
            d["nobody"] = torch.zeros(3)
        with pytest.raises(KeyError):
            d[3] = torch.zeros(3)
        with pytest.raises(TypeError, match="del"):
            del d["k7"]
        with pytest.raises(ValueError, match="value"):
            d["k7"] = torch.zeros(4)
        with pytest.raises(ValueError):
            d["k7"] = "text"
        assert list(d) == list(reader) == [f"k{i}" for i in range(100)]
        assert [row["key"] for row in d.dataset] == list(d)
    assert tenfold.verify(path).ok
    assert list(MappedDict(path)) == [f"k{i}" for i in range(100)]
    assert MappedDict(path)["k7"].tolist() == [71.0] * 3


def test_extend_adds_new_keys_atomically(path):
    reader = MappedDict(path)
    with MappedDict(path, "r+") as d:
        d.extend({f"n{i}": torch.full((3,), float(i)) for i in range(5000)})
        assert len(d) == 5100
        assert d["n4321"][0] == 4321
        assert reader["n1"][0] == 1
        with pytest.raises(ValueError, match='"n1"'):
            d.extend({"fresh": torch.zeros(3), "n1": torch.zeros(3)})
        with pytest.raises(ValueError, match="the type of the dictionary's keys, found int"):
            d.extend([("fresh", torch.zeros(3)), (3, torch.zeros(3))])
        with pytest.raises(ValueError, match="every key once"):
            d.extend([("fresh", torch.zeros(3)), ("fresh", torch.zeros(3))])
        with pytest.raises(ValueError, match=r"item 1: key '\\ud800': .* a lone surrogate"):
            d.extend([("fresh", torch.zeros(3)), ("\ud800", torch.zeros(3))])
        assert "fresh" not in d
        d.extend([("n1", torch.ones(3)), ("x", torch.zeros(3)), ("x", torch.ones(3))], "last")
        assert d["n1"][0] == 1
        assert d["x"][0] == 1
        assert len(d) == 5101
    assert tenfold.verify(path).ok
    assert len(reader.refresh()) == 5101


FORMS = {
    "tensor": lambda i: torch.full((3,), float(i)),
    "scalar": lambda i: i,
    "text": lambda i: f"text {i} é",
    "columns": lambda i: {
        "name": f"n{i}",
        "tokens": list(range(i % 5)),
        "tags": [f"t{k}" for k in range(i % 3)],
        "maybe": None if i % 4 == 0 else i,
        "part": {"x": torch.full((2,), i)},
    },
}


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("key", [str, lambda i: f"k{i}".encode(), int], ids=["str", "bytes", "int"])
@pytest.mark.parametrize("form", FORMS)
def test_extend_spills_more_items_than_one_batch(tmp_path, form, key):
    value = FORMS[form]
    first = MappedDict.build({key(i): value(i) for i in range(1, 8)}, tmp_path / "d")
    whole = MappedDict.build({key(i): value(i) for i in range(1, 9500)}, tmp_path / "whole")
    with MappedDict(tmp_path / "d", "r+") as d:
        d.extend((key(i), value(i)) for i in range(8, 9500))
        assert list(d) == list(whole)
        for ours, expected in zip(d.values(), whole.values(), strict=True):
            assert _plain(ours) == _plain(expected)
        assert _plain(d[key(9000)]) == _plain(whole[key(9000)])
    assert len(first.refresh()) == 9499
    assert tenfold.verify(tmp_path / "d").ok
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["d", "whole"]


def test_extend_of_many_items_is_atomic(path):
    def pairs(last):
        yield from ((f"n{i}", torch.zeros(3)) for i in range(9000))
        yield last

    with MappedDict(path, "r+") as d:
        for last, what in [
            (("n5", torch.zeros(3)), "every key once"),
            (("k7", torch.zeros(3)), "expected new keys, found existing ones"),
            ((7, torch.zeros(3)), "item 9000: key 7: expected str"),
            (
                ("x", torch.zeros(4)),
                'item 9000, column "value": expected float32',
            ),
            ("x", "item 9000: expected a pair"),
        ]:
            with pytest.raises(ValueError, match=what):
                d.extend(pairs(last))
            assert len(d) == 100
        with pytest.raises(RuntimeError, match="enough"):
            d.extend(_raising(pairs(("x", torch.zeros(3)))))
        assert list(d) == [f"k{i}" for i in range(100)]
        d.extend(pairs(("k7", torch.ones(3))), duplicates="last")
        assert len(d) == 9100
        assert d["k7"].tolist() == [1.0] * 3
        assert list(d)[7] == "k7"


def test_update_of_many_items_is_atomic(path):
    with MappedDict(path, "r+") as d:
        d.extend((f"n{i}", torch.zeros(3)) for i in range(9000))

        def pairs(last):
            yield from ((f"n{i % 9000}", torch.full((3,), float(i))) for i in range(12_000))
            yield last

        with pytest.raises(KeyError, match="extend"):
            d.update(pairs(("fresh", torch.zeros(3))))
        with pytest.raises(ValueError, match='item 12000, column "value"'):
            d.update(pairs(("n0", torch.zeros(4))))
        assert d["n7"].tolist() == d["n8999"].tolist() == [0.0] * 3
        d.update(pairs(("n0", torch.ones(3))))
        assert [d[f"n{i}"][0].item() for i in (0, 7, 2999, 3000, 8999)] == [
            1,
            9007,
            11999,
            3000,
            8999,
        ]
        assert len(d) == 9100
        assert list(d)[100:103] == ["n0", "n1", "n2"]
    assert tenfold.verify(path).ok


def _raising(pairs):
    yield from pairs
    raise RuntimeError("enough")


def _own_bytes():
    """Returns the bytes of anonymous memory. Pages of files, which can be evicted, do not count."""
    status = open("/proc/self/status").read()  # noqa: SIM115
    return int(status.split("RssAnon:")[1].split()[0]) << 10


@pytest.mark.parametrize("what", ["extend", "update"])
def test_peak_memory_of_many_large_items_is_bounded(tmp_path, what):
    names = ["b"] if what == "extend" else ["b", *(f"k{i}" for i in range(1000))]
    MappedDict.build({"a": torch.zeros(4096)}, tmp_path / "d")
    most, done = 0, threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.002):
            most = max(most, _own_bytes())

    with MappedDict(tmp_path / "d", "r+") as d:
        d.extend({name: torch.zeros(4096) for name in names})
        before = _own_bytes()
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            # 393 MB of values.
            names = (f"k{i}" if what == "extend" else f"k{i % 1000}" for i in range(24_000))
            getattr(d, what)((name, torch.full((4096,), float(i))) for i, name in enumerate(names))
        finally:
            done.set()
            watcher.join()
        assert d["k23999" if what == "extend" else "k999"][7] == 23999
    assert most - before < 150 << 20


def test_len_of_a_reader_equals_the_number_of_iterated_keys(path):
    reader = MappedDict(path)
    with MappedDict(path, "r+") as d:
        d.extend({"n0": torch.zeros(3), "n1": torch.ones(3)})
        assert len(reader) == len(list(reader)) == 102
        d["k7"] = torch.zeros(3)
        d.extend({"n2": torch.zeros(3)})
        assert len(reader.dataset) == len(reader) == 103
        d.compact()
        assert len(reader) == len(list(reader)) == 103
        d.extend({"n3": torch.zeros(3)})
        assert list(reader) == list(d)
        assert len(reader) == 104
    assert len(reader) == len(list(reader)) == 104


def test_compact_drops_replaced_rows(path):
    with MappedDict(path, "r+") as d:
        for i in range(20):
            d[f"k{i}"] = torch.full((3,), -1.0)
        assert len(tenfold.Dataset(path)) == 120
        d.compact()
        assert len(tenfold.Dataset(path)) == 100
        assert d["k3"][0] == -1
        assert d["k99"][0] == 99
        assert d.rows(["k3", "k20"]).tolist() == [3, 20]
        assert list(d) == [f"k{i}" for i in range(100)]
    assert tenfold.verify(path).ok


def test_compact_after_lookups_drops_replaced_rows(path):
    with MappedDict(path, "r+") as d:
        d["k1"] = torch.zeros(3)
        d.get_many([f"k{i}" for i in range(100)])
        d.compact()
        assert d["k1"].sum() == 0
        assert len(tenfold.Dataset(path)) == 100


def test_writes_need_mode_r_plus(path, tmp_path):
    d = MappedDict(path)
    for write in (
        lambda: d.__setitem__("k1", torch.zeros(3)),
        lambda: d.extend({}),
        d.compact,
        d.flush,
    ):
        with pytest.raises(tenfold.UnsupportedError, match=r'"r\+"'):
            write()
    d.close()


def test_scalar_and_dict_values_can_be_assigned_and_added(tmp_path):
    with MappedDict(MappedDict.build({"a": 1, "b": 2}, tmp_path / "i")._path, "r+") as d:
        d["a"] = 5
        d.extend({"c": 7})
        assert dict(d.items()) == {"b": 2, "a": 5, "c": 7}
    rows = {i: {"name": "x", "tokens": [1, 2][:i], "v": torch.ones(2)} for i in (3, 1)}
    with MappedDict(MappedDict.build(rows, tmp_path / "r")._path, "r+") as d:
        d[3] = {"name": "longer", "tokens": [4], "v": torch.zeros(2)}
        d.extend({9: {"name": "", "tokens": [], "v": torch.ones(2)}})
        assert d[3]["name"] == "longer"
        assert d[3]["tokens"].tolist() == [4]
        assert d[9]["tokens"].tolist() == []
        with pytest.raises(ValueError, match="expected a dict of columns"):
            d[3] = 5
        with pytest.raises(ValueError, match='column "v"'):
            d[3] = {"name": "a", "tokens": [1]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            1.5,
            2**60 + 1,
            'item 0, column "value": expected float64, found 1152.*, which is not exact',
        ),
        (
            1.5,
            2**70,
            "found 1180591620717411303424, which is not exact in float64; round it with float",
        ),
        (1.5, 10**70, r"found 10{59}\.\.\., which is not exact in float64; round it with float"),
        (1.5, 10**400, r"found 10{59}\.\.\., which is not exact in float64$"),
        (1.5, True, 'item 0, column "value": expected float64, found True$'),
        (1, True, 'item 0, column "value": expected int64, found True$'),
        (1.5, np.int64(2**53 + 1), "found 9007199254740993, which is not exact in float64"),
        (1.5, np.uint64(2**63 + 1), "found 9223372036854775809, which is not exact in float64"),
        (1.5, IntEnum("Id", {"A": 2**53 + 1}).A, "found 9007199254740993, which is not exact"),
        (1.5, torch.tensor(2**53 + 1), "found 9007199254740993, which is not exact in float64"),
        (1.5, np.True_, "expected float64, found bool$"),
        (1, np.array(True), "expected int64, found bool$"),
        (
            1,
            np.int64(2**53 + 1).astype(object) * 2**12,
            "expected int64, found 36893488147419107328$",
        ),
    ],
)
def test_scalars_that_would_be_converted_are_refused(tmp_path, old, new, message):
    with MappedDict(MappedDict.build({"a": old}, tmp_path / "d")._path, "r+") as d:
        d["a"] = 2**60
        with pytest.raises(ValueError, match=message):
            d["a"] = new
        with pytest.raises(ValueError, match=message):
            d.extend({"b": new})
        assert dict(d) == {"a": 2**60}


def test_iterates_over_each_key_once_while_keys_are_assigned(tmp_path):
    keys = [f"k{i}" for i in range(5000)]
    MappedDict.build([(key, i) for i, key in enumerate(keys)], tmp_path / "d")
    reader = MappedDict(tmp_path / "d")
    with MappedDict(tmp_path / "d", "r+") as d:
        d.update(dict.fromkeys(keys[::3], -1))
        d.update(dict.fromkeys(keys[::6], -2))
        for walked in (d, reader):
            seen = []
            for number, key in enumerate(walked):
                seen.append(key)
                if number % 500 == 0:
                    d.update(dict.fromkeys(keys[number % 7 :: 9], -3))
            assert seen == keys
        assert [*zip(keys, [d[key] for key in keys], strict=True)] == list(d.items())


def _read_loop(path, began, stop, bad):
    warnings.simplefilter("error")
    d = MappedDict(path)
    expected = [f"k{i}" for i in range(100)]
    while not stop.is_set():
        values, found = d.get_many([f"k{i}" for i in range(100)])
        if not found.all() or not (values == values[:, :1]).all():
            bad.value += 1
        keys = list(d)
        if keys[:100] != expected or len(set(keys)) != len(keys):
            bad.value += 1
        began.release()


def test_readers_see_only_complete_values(path):
    context = multiprocessing.get_context("fork")
    began = [context.Semaphore(0) for _ in range(2)]
    stop, bad = context.Event(), context.Value("i", 0)
    readers = [
        context.Process(target=_read_loop, args=(path, of_reader, stop, bad), daemon=True)
        for of_reader in began
    ]
    for reader in readers:
        reader.start()
    assert all(of_reader.acquire(timeout=60) for of_reader in began)
    with MappedDict(path, "r+") as d:
        for round_ in range(300):
            d[f"k{round_ % 100}"] = torch.full((3,), float(round_))
            if round_ % 10 == 0:
                d.extend({f"r{round_}/{i}": torch.zeros(3) for i in range(20)})
    stop.set()
    for reader in readers:
        reader.join()
        assert reader.exitcode == 0
    assert bad.value == 0


def test_second_writer_raises(path):
    first, second = MappedDict(path, "r+"), MappedDict(path, "r+")
    first["k1"] = torch.zeros(3)
    with pytest.raises(OSError, match="process"):
        second["k1"] = torch.ones(3)
    first.close()
    second["k1"] = torch.ones(3)
    second.close()
    assert pickle.loads(pickle.dumps(second))["k1"][0] == 1


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.dictionaries(st.text("abc", max_size=3), st.integers(0, 99), min_size=1),
            st.sampled_from(["close", "compact", "flush"]),
        ),
        max_size=12,
    )
)
def test_behaves_like_a_mutable_dict(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("d") / "d"
    d = MappedDict(MappedDict.build({"a": 0}, path)._path, "r+")
    expected = {"a": 0}
    for step in steps:
        if step == "close":
            d.close()
            d = MappedDict(path, "r+")
        elif isinstance(step, str):
            getattr(d, step)()
        else:
            d.extend(step, duplicates="last")
            expected.update(step)
        assert list(d.items()) == list(expected.items())
        assert len(d) == len(expected)
    d.close()
    assert tenfold.verify(path).ok
    assert list(MappedDict(path).items()) == list(expected.items())


def test_a_forked_child_neither_writes_nor_completes_what_the_parent_wrote(path):
    new = {"new": torch.full((3,), 7.0)}
    d = MappedDict(path, "r+")
    d.update({"k1": torch.full((3,), 70.0)})

    def child():
        with pytest.raises(tenfold.UnsupportedError, match="opened before the process forked"):
            d.extend(new)
        d.close()

    assert exit_status(forked(child)) == 0
    d.extend(new)
    d.close()
    assert sorted(MappedDict(path)) == sorted(["new", *(f"k{i}" for i in range(100))])
    assert tenfold.verify(path).ok


def test_threads_look_up_keys_while_one_compacts(tmp_path):
    code = """
import sys, threading
import tenfold

def look():
    while not done.is_set():
        words.get("k5"), len(words)

tenfold.MappedDict.build({f"k{i}": i for i in range(10_000)}, sys.argv[1])
words = tenfold.MappedDict(sys.argv[1], "r+")
done = threading.Event()
thread = threading.Thread(target=look)
thread.start()
for _ in range(5):
    words.compact()
done.set()
thread.join()
"""
    # Run in another process, because a thread that waits and holds the GIL would block the tests.
    subprocess.run([sys.executable, "-c", code, tmp_path / "d"], check=True, timeout=60)

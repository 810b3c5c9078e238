"""Unsupported values and unusual dict keys in files of torch.save."""

import collections
import pathlib
import re

import numpy
import pytest
import torch
from torch_files import assert_same

import tenfold


class Config:
    def __init__(self, lr):
        self.lr = lr
        self.weight = torch.arange(3.0)


def test_the_error_of_an_object_at_the_root_has_a_remedy_that_applies(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt")
    for call in (
        lambda: tenfold.load(tmp_path / "m.pt"),
        lambda: tenfold.convert(tmp_path / "m.pt", tmp_path / "m.safetensors"),
    ):
        with pytest.raises(tenfold.UnsupportedError, match=r"root: .*save its state_dict\(\)") as e:
            call()
        assert "exclude" not in str(e.value)
    assert isinstance(tenfold.load(tmp_path / "m.pt", allow_opaque=True), tenfold.Opaque)


def test_objects_of_unknown_classes_are_opaque_and_not_constructed(tmp_path, monkeypatch):
    torch.save({"config": Config(0.5), "w": torch.ones(2), "cls": Config}, tmp_path / "m.pt")
    monkeypatch.setattr(Config, "__init__", lambda *_: pytest.fail("called"))
    with pytest.raises(
        tenfold.UnsupportedError, match=r'key "config": .*test_torch_objects.Config"'
    ):
        tenfold.load(tmp_path / "m.pt")
    assert torch.equal(tenfold.load(tmp_path / "m.pt", keys="w")["w"], torch.ones(2))
    opened = tenfold.open(tmp_path / "m.pt")
    assert torch.equal(opened["config", "state", "weight"], torch.arange(3.0))
    loaded = tenfold.load(tmp_path / "m.pt", allow_opaque=True)
    config = loaded["config"]
    assert isinstance(config, tenfold.Opaque)
    assert config.name.endswith("test_torch_objects.Config")
    assert config.state["lr"] == 0.5
    assert torch.equal(config.state["weight"], torch.arange(3.0))
    assert loaded["cls"].args is None
    assert repr(loaded["cls"]) == f"<Opaque {config.name}>"
    assert repr(config).startswith(f"<Opaque {config.name} args=() state={{'lr': 0.5")
    for target in ("folder", "m.safetensors", "again.pt"):
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.save(loaded, tmp_path / target)
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.convert(tmp_path / "m.pt", tmp_path / target)
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.save(opened, tmp_path / target)
        assert not (tmp_path / target).exists()
    with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
        opened.memmap(tmp_path / "folder")


CYCLE: list = []


CYCLE.append({"again": CYCLE})


#: Values that a tree does not support, each with a part of the error message.
UNREADABLE = {
    "array of objects": (numpy.array(["a", None], object), 'found "O8"'),
    "array of text": (numpy.array(["a", "b"]), 'found "U1"'),
    "array of bytes": (numpy.array([b"a"]), 'found "S1"'),
    "array of dates": (numpy.array(["2020-01-01"], "M8[D]"), 'found "M8"'),
    "array of records": (numpy.zeros(2, [("x", "f4")]), 'found "V4"'),
    "big-endian array": (numpy.arange(3, dtype=">i4"), "big-endian elements"),
    "masked array": (numpy.ma.array([1], mask=[True]), 'found "numpy.ma'),
    "numpy text": (numpy.str_("x"), 'found "U1"'),
    "negative integers": (torch._neg_view(torch.ones(2, dtype=torch.int64)), "a negative view"),
    "bits": (torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "expected a dtype of torch"),
    "lone surrogate": ("\ud800", "a string cannot be read"),
    "cycle": (CYCLE, "it contains itself"),
    "set of objects": ({numpy.str_("x")}, "a set with items that are not supported in a set"),
    "key of an object": ({pathlib.PurePosixPath("a"): 1, "b": 2}, "its key cannot be read"),
    "key of bytes": ({b"a": 1}, "its key cannot be read"),
    "key with a surrogate": ({"\ud800": 1}, "expected a string that is valid Unicode"),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("what", UNREADABLE)
def test_unreadable_value_does_not_affect_other_values(tmp_path, what, zipped):
    value, problem = UNREADABLE[what]
    path = tmp_path / "m.pt"
    state = {"w": torch.arange(3.0), "deep": {"list": [1, value, torch.ones(2)]}, "epoch": 7}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(tenfold.UnsupportedError, match=re.escape(problem)) as refused:
        tenfold.load(path)
    assert 'key "deep.list.1' in str(refused.value)
    assert "; to load the rest, use the option keys" in str(refused.value)
    assert set(tenfold.load(path, keys=["w", "epoch"])) == {"w", "epoch"}
    assert torch.equal(tenfold.load(path, keys=["deep.list.2"])["deep"]["list"][2], torch.ones(2))
    assert tenfold.open(path)["epoch"] == 7
    assert tenfold.verify(path).ok
    held = tenfold.load(path, allow_opaque=True)
    assert held["epoch"] == 7
    with pytest.raises(
        tenfold.UnsupportedError, match=r'key "deep.list.1.*; to omit it, use the option exclude'
    ):
        tenfold.convert(path, tmp_path / "all.safetensors")
    tenfold.convert(path, tmp_path / "some.safetensors", exclude=["deep.list.1"])
    rest = tenfold.load(tmp_path / "some.safetensors")
    assert torch.equal(rest["w"], state["w"])
    assert rest["deep"]["list"][0] == 1


ODD_KEYS = {
    "mixed": {1: torch.ones(1), "a": 2, -3: {}},
    "thresholds": {0.5: 0.9, 0.75: torch.ones(2), float("inf"): None},
    "flags": {True: 1, False: {None: torch.zeros(1)}},
    "edges": {(0, 1): torch.ones(1), ("a", (2.5, None)): 1, (): 2},
    "deep": [{"classes": collections.OrderedDict([(None, 1), ("x", {(1,): 2})])}],
    7: torch.zeros(2),
}


@pytest.mark.parametrize("zipped", [True, False])
def test_dict_keys_match_those_of_torch_load(tmp_path, zipped):
    torch.save(ODD_KEYS, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert_same(tenfold.load(tmp_path / "m.pt"), torch.load(tmp_path / "m.pt", weights_only=True))
    tenfold.save(ODD_KEYS, tmp_path / "ours.pt")
    assert_same(torch.load(tmp_path / "ours.pt", weights_only=True), ODD_KEYS)


def test_keys_with_the_same_str_are_refused_and_others_load(tmp_path):
    torch.save({"d": {1: 2, "1": 3, "x": 4}}, tmp_path / "m.pt")
    with pytest.raises(
        tenfold.UnsupportedError,
        match=r'key "d\.<str>": its key has the same string as another key',
    ):
        tenfold.load(tmp_path / "m.pt")
    assert tenfold.load(tmp_path / "m.pt", keys=["d.1", "d.x"]) == {"d": {1: 2, "x": 4}}
    item = tenfold.load(tmp_path / "m.pt", allow_opaque=True)["d"]["<str>"]
    assert item.parts == {"key": "1", "value": 3}


def test_invalid_str_is_opaque_with_its_bytes(tmp_path):
    torch.save({"t": "a\udc80"}, tmp_path / "m.pt")
    held = tenfold.load(tmp_path / "m.pt", allow_opaque=True)["t"]
    assert held.name == "str"
    assert str(*held.args) == "a\udc80"


@pytest.mark.parametrize("factory", [None, int, str, bytes, complex, frozenset, list, dict])
def test_defaultdict_of_a_builtin_class_is_a_dict(tmp_path, factory):
    torch.save({"x": collections.defaultdict(factory, a=1)}, tmp_path / "m.pt")
    assert tenfold.load(tmp_path / "m.pt") == {"x": {"a": 1}}

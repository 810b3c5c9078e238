"""Tensorclass objects in files. tenfold and tensordict read the files of each other."""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle
import warnings

import pytest
import torch
from classes import Sample, sample, table

import tenfold
from tenfold import LazyStackedTensorDict, TensorDict


def full(rows=4):
    return sample(rows, label="a", inner=sample(rows, label="b"), info={"k": [1, None]})


def assert_same_object(found, expected):
    assert type(found) is type(expected)
    assert found.batch_size == expected.batch_size
    for field in dataclasses.fields(expected):
        mine, theirs = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(theirs, torch.Tensor):
            assert torch.equal(mine, theirs), field.name
        elif tenfold.is_tensorclass(theirs):
            assert_same_object(mine, theirs)
        else:
            assert mine == theirs, field.name


@pytest.fixture(params=["folder", "saved.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


@pytest.mark.parametrize("read", [tenfold.open, tenfold.load])
def test_saved_objects_keep_their_class(path, read):
    tenfold.save(full(), path)
    assert_same_object(read(path), full())


@pytest.mark.parametrize("read", [tenfold.open, tenfold.load])
def test_objects_keep_their_class_within_trees(path, read):
    tenfold.save(TensorDict({"a": {"b": full()}}, [4]), path)
    assert_same_object(read(path)["a", "b"], full())


def test_objects_keep_their_class_within_containers(path):
    tenfold.save({"list": [full(), 1]}, path)
    assert_same_object(tenfold.load(path)["list"][0], full())


def test_opened_objects_can_be_saved_again(path, tmp_path):
    tenfold.save(full(), path)
    tenfold.save(tenfold.open(path), tmp_path / "again")
    assert_same_object(tenfold.load(tmp_path / "again"), full())


def test_opened_and_changed_objects_can_be_saved_again(path, tmp_path):
    tenfold.save(full(), path)
    opened = tenfold.open(path)
    opened.label = "new"
    opened.inner = None
    tenfold.save(opened, tmp_path / "again")
    found = tenfold.load(tmp_path / "again")
    assert (found.label, found.inner) == ("new", None)
    assert torch.equal(found.x, full().x)


def test_opened_tree_can_be_saved_as_an_object(path, tmp_path):
    tenfold.save(TensorDict({"x": torch.ones(2)}, [2]), path)
    tenfold.save(Sample.from_tensordict(tenfold.open(path)), tmp_path / "again")
    assert type(tenfold.open(tmp_path / "again")) is Sample


def test_lazy_stack_of_objects_round_trips(path):
    stack = tenfold.lazy_stack([full(2), sample(2, label="b")])
    tenfold.save(stack, path)
    found = tenfold.load(path)
    assert type(found) is Sample
    assert type(found._tensordict) is LazyStackedTensorDict
    assert_same_object(found[0], full(2))
    assert_same_object(found[1], sample(2, label="b"))


def test_opened_objects_pickle_by_path(path):
    tenfold.save({"a": full()}, path)
    text = pickle.dumps(tenfold.open(path)["a"])
    assert len(text) < 1000
    assert_same_object(pickle.loads(text), full())


# --- mapped ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["memmap", "memmap_"])
def test_mapped_objects_write_to_their_files(tmp_path, method):
    made = full()
    mapped = getattr(made, method)(tmp_path / "saved")
    assert (mapped is made) == (method == "memmap_")
    assert mapped.is_memmap()
    assert mapped.is_locked
    mapped.x[0] = 7
    mapped.inner.x[1] = 8
    found = Sample.load_memmap(tmp_path / "saved")
    assert_same_object(found, mapped)
    assert found.x[0, 0] == 7


def test_preallocated_objects_are_zero_and_keep_their_values(tmp_path):
    made = full()[0].expand(100).memmap_like(tmp_path / "saved")
    assert type(made) is Sample
    assert not made.x.any()
    assert (made.batch_size, made[99].label) == (torch.Size([100]), "a")


@pytest.mark.parametrize("method", ["save", "dumps"])
def test_save_returns_an_object_that_load_reads(tmp_path, method):
    saved = getattr(full(), method)(tmp_path / "saved")
    assert type(saved) is Sample
    assert_same_object(Sample.load(tmp_path / "saved"), full())


def test_files_can_be_loaded_into_an_object(tmp_path):
    full().memmap(tmp_path / "saved")
    made = full().zero_()
    assert made.load_memmap_(tmp_path / "saved") is made
    assert_same_object(made, full())


def test_load_memmap_returns_the_saved_class(tmp_path):
    TensorDict({"x": torch.ones(2)}, [2]).memmap(tmp_path / "tree")
    full().memmap(tmp_path / "object")
    assert type(Sample.load_memmap(tmp_path / "tree")) is TensorDict
    assert type(TensorDict.load_memmap(tmp_path / "object")) is Sample


def test_mapped_objects_pickle_by_path(tmp_path):
    mapped = full().memmap(tmp_path / "saved")
    text = pickle.dumps(mapped)
    assert len(text) < 1000
    found = pickle.loads(text)
    assert type(found._tensordict) is TensorDict
    found.inner.x.zero_()
    assert not mapped.inner.x.any()


# --- the name of the class -------------------------------------------------------------------


def rename_class(folder, name):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "_type": name}))


def test_undefined_class_warns_once_and_loads_as_a_tensordict(tmp_path):
    sample(label="a").memmap(tmp_path / "saved")
    rename_class(tmp_path / "saved", "<class 'elsewhere.Unknown'>")
    with pytest.warns(UserWarning, match=r"<class 'elsewhere\.Unknown'>: it is not defined"):
        found = tenfold.open(tmp_path / "saved")
    assert type(found) is TensorDict
    assert found["label"] == "a"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tenfold.open(tmp_path / "saved")


def test_a_file_never_causes_an_import(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    sample().memmap(tmp_path / "saved")
    rename_class(tmp_path / "saved", "<class 'never_imported.C'>")
    with pytest.warns(UserWarning, match="never_imported"):
        tenfold.load(tmp_path / "saved")


def test_class_loads_objects_saved_by_another_module(tmp_path):
    sample(label="a").memmap(tmp_path / "saved")
    rename_class(tmp_path / "saved", "<class 'an_older_module.Sample'>")
    assert_same_object(Sample.load_memmap(tmp_path / "saved"), sample(label="a"))


def test_load_uses_the_latest_definition_of_a_class(tmp_path):
    def define():
        @tenfold.tensorclass
        class Again:
            x: torch.Tensor

        return Again

    older, newer = define(), define()
    older(torch.ones(2)).memmap(tmp_path / "saved")
    assert type(TensorDict.load_memmap(tmp_path / "saved")) is newer


def test_entries_that_are_no_fields_are_refused(tmp_path):
    folder = tmp_path / "saved"
    sample().memmap(folder)
    (folder / "_tensordict" / "other.memmap").write_bytes(bytes(4))
    meta = json.loads((folder / "_tensordict" / "meta.json").read_text())
    other = {"device": "cpu", "shape": [4, 1], "dtype": "torch.uint8", "is_nested": False}
    (folder / "_tensordict" / "meta.json").write_text(json.dumps({"other": other, **meta}))
    with pytest.raises(ValueError, match=r"Sample: expected only keys that are fields.*'other'"):
        tenfold.open(folder)


# --- tensordict ------------------------------------------------------------------------------


@functools.cache  # tensordict finds classes by their names, so the class must be made only once
def upstream_class():
    """Returns the module tensordict, and a tensorclass made with it that is named like Sample."""
    upstream = pytest.importorskip("tensordict")
    body = {
        "__annotations__": {"x": torch.Tensor, "label": str, "inner": object, "info": object},
        "__module__": Sample.__module__,
        "__qualname__": Sample.__qualname__,
        "label": "none",
        "inner": None,
        "info": None,
    }
    cls = upstream.tensorclass(type("Sample", (), body))
    assert str(cls) == str(Sample)
    return upstream, cls


def theirs(cls):
    x = torch.arange(12.0).reshape(4, 3)
    inner = cls(x, label="b", batch_size=[4])
    return cls(x, label="a", inner=inner, info={"k": [1, None]}, batch_size=[4])


@pytest.mark.parametrize("read", [tenfold.open, tenfold.load, Sample.load_memmap])
def test_objects_written_by_tensordict_load_as_our_class(tmp_path, read):
    _, cls = upstream_class()
    theirs(cls).memmap(tmp_path / "saved")
    assert_same_object(read(tmp_path / "saved"), full())


@pytest.mark.parametrize("write", ["save", "memmap"])
def test_tensordict_loads_our_objects_as_its_class(tmp_path, write):
    upstream, cls = upstream_class()
    getattr(full(), write)(tmp_path / "saved")
    found = upstream.TensorDict.load_memmap(tmp_path / "saved")
    assert type(found) is cls
    assert (found == theirs(cls)).all()
    assert (found.label, found.inner.label, found.info) == ("a", "b", {"k": [1, None]})
    assert found.inner.inner is None


def test_lazy_stacks_are_interchangeable_with_tensordict(tmp_path):
    upstream, cls = upstream_class()
    upstream.lazy_stack([theirs(cls), theirs(cls)]).memmap(tmp_path / "theirs")
    found = TensorDict.load_memmap(tmp_path / "theirs")
    assert type(found) is Sample
    assert_same_object(found[1], full())
    tenfold.lazy_stack([full(), full()]).memmap(tmp_path / "ours")
    found = upstream.TensorDict.load_memmap(tmp_path / "ours")
    assert type(found) is cls
    assert (found[1] == theirs(cls)).all()


def test_names_of_files_match_those_of_tensordict(tmp_path):
    _, cls = upstream_class()
    theirs(cls).memmap(tmp_path / "theirs")
    full().memmap(tmp_path / "ours")
    names = [
        {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "theirs", tmp_path / "ours")
    ]
    assert names[0] == names[1]


def test_saved_objects_of_tensordict_load_as_our_class(path):
    _, cls = upstream_class()
    tenfold.save({"a": theirs(cls)}, path)
    assert_same_object(tenfold.load(path)["a"], full())


def test_objects_of_tensordict_in_a_tree_become_our_class():
    _, cls = upstream_class()
    assert_same_object(TensorDict({"a": theirs(cls)}, [4])["a"], full())


def test_post_init_runs_on_load_and_not_on_save(tmp_path):
    @tenfold.tensorclass
    class Counted:
        x: torch.Tensor

        def __post_init__(self):
            self.x = self.x + 1

    made = Counted(torch.zeros(2), batch_size=[2])
    stack = tenfold.lazy_stack([Counted(torch.zeros(2), batch_size=[2])])
    before = stack._tensordict.tensordicts[0]["x"].tolist()
    for name, saved in (("one", made), ("stack", stack)):
        tenfold.save(saved, tmp_path / name)
    assert (made.x.tolist(), before) == ([1, 1], [2, 2])
    assert tenfold.load(tmp_path / "one").x.tolist() == [2, 2]
    loaded = tenfold.load(tmp_path / "stack")
    assert loaded._tensordict.tensordicts[0]["x"].tolist() == [3, 3]


LOADING = {
    "load_memmap_": lambda made, path: made.load_memmap_(path),
    "load_memmap": lambda made, path: TensorDict.load_memmap(path, out=made),
}


@table(LOADING)
@pytest.mark.parametrize("is_stack", [False, True])
def test_loading_into_an_object_refuses_entries_that_are_not_fields(tmp_path, call, is_stack):
    saved = TensorDict({"x": torch.ones(4, 3), "q": torch.ones(4)}, [4])
    made = sample()
    if is_stack:
        saved, made = tenfold.lazy_stack([saved, saved]), tenfold.lazy_stack([made, sample()])
    saved.memmap(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"expected only keys that are fields.* found \['q'\]"):
        call(made, tmp_path / "saved")
    assert set(made.keys()) == {"x", "label"}
    assert made.x.sum() == sample().x.sum() * (1 + is_stack)
    made[0].clone()


def test_loading_into_a_nested_object_refuses_entries_that_are_not_fields(tmp_path):
    TensorDict({"n": {"x": torch.ones(4), "q": torch.ones(4)}}, [4]).memmap(tmp_path / "saved")
    made = TensorDict({"n": sample()}, [4])
    with pytest.raises(ValueError, match="expected only keys that are fields"):
        made.load_memmap_(tmp_path / "saved")
    assert set(made["n"].keys()) == {"x", "label"}


def test_a_mapped_object_gets_no_tensor_that_is_not_a_field(tmp_path):
    for made, key in ((sample(), "q"), (TensorDict({"n": sample()}, [4]), ("n", "q"))):
        mapped = made.memmap(tmp_path / type(made).__name__)
        with pytest.raises(AttributeError, match='no field "q"'):
            mapped.make_memmap(key, (4,))
        mapped.clone()[0].clone()

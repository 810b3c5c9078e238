"""tensordict falls back to pickle for values that are not JSON. tenfold never unpickles."""

import os
import pathlib
import pickle
import warnings

import pytest
import trees
from describe import assert_same, describe
from ours import describe_ours
from tensordict import NonTensorData, NonTensorStack, TensorDict

import tenfold


class CreatesAFile:
    """An object whose pickle creates a folder when it is loaded, as an example of hostile code."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trap(tmp_path):
    return tmp_path / "executed"


def put_trap(trap: pathlib.Path, path: pathlib.Path) -> None:
    assert path.exists(), "tensordict would not read a pickle here"
    path.write_bytes(pickle.dumps({"data": CreatesAFile(trap)}))


def test_tensordict_executes_the_trap_pickle(tmp_path, trap):
    TensorDict({"bad": NonTensorData({1, 2})}).memmap(tmp_path / "t")
    put_trap(trap, tmp_path / "t" / "bad" / "other.pickle")
    TensorDict.load_memmap(tmp_path / "t")
    assert trap.exists()


def hostile(tmp_path, trap) -> pathlib.Path:
    """Writes a folder with tensors, and with a trap in each kind of node that may have a pickle."""
    td = TensorDict(
        {
            "x": trees.numbers(3),
            "data": NonTensorData({1, 2}),
            "stack": NonTensorStack({1}, {2}, {3}),
            "n": {"y": trees.numbers(2), "deep": NonTensorData(object)},
        }
    )
    td.memmap(tmp_path / "t")
    put_trap(trap, tmp_path / "t" / "data" / "other.pickle")
    put_trap(trap, tmp_path / "t" / "n" / "deep" / "other.pickle")
    put_trap(trap, tmp_path / "t" / "stack" / "pickle.pkl")
    return tmp_path / "t"


def test_open_reads_entries_next_to_a_pickle(tmp_path, trap):
    opened = tenfold.open(hostile(tmp_path, trap))
    assert set(opened.keys()) == {"x", "data", "stack", "n"}
    assert opened["x"].tolist() == [0, 1, 2]
    assert opened["n", "y"].tolist() == [0, 1]
    assert not trap.exists()


@pytest.mark.parametrize(
    ("key", "file"),
    [("data", "other.pickle"), (("n", "deep"), "other.pickle"), ("stack", "pickle.pkl")],
)
def test_pickled_value_is_refused_by_name(key, file, tmp_path, trap):
    opened = tenfold.open(hostile(tmp_path, trap))
    with pytest.raises(tenfold.UnsupportedError, match=rf'"{file}".*nothing is ever unpickled'):
        opened[key]
    assert not trap.exists()


def test_load_of_keys_next_to_a_pickle_succeeds(tmp_path, trap):
    loaded = tenfold.load(hostile(tmp_path, trap), keys=["x", ("n", "y")])
    assert loaded["x"].tolist() == [0, 1, 2]
    assert loaded["n"]["y"].tolist() == [0, 1]
    assert not trap.exists()


def test_verify_and_convert_name_the_pickle_and_do_not_load_it(tmp_path, trap):
    path = hostile(tmp_path, trap)
    report = tenfold.verify(path)
    assert not report.ok
    assert any(
        "pickle" in problem.path + problem.part + problem.what for problem in report.problems
    )
    with pytest.raises(tenfold.UnsupportedError, match="pickle"):
        tenfold.convert(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not trap.exists()


def test_pickled_fields_of_a_tensorclass_warn(tmp_path, trap):
    trees.build("tensorclass_with_all_fields").memmap(tmp_path / "t")
    (tmp_path / "t" / "other.pickle").write_bytes(pickle.dumps({"extra": CreatesAFile(trap)}))
    with pytest.warns(UserWarning, match=r"other\.pickle.*Point"):
        found = describe_ours(tenfold.load(tmp_path / "t"))
    assert_same(found, describe(trees.build("tensorclass_with_all_fields")))
    assert not trap.exists()


def test_pickle_next_to_a_json_value_is_ignored_silently(tmp_path, trap):
    """With threads, tensordict may leave a pickle of internal data next to a JSON value."""
    TensorDict({"v": NonTensorData({"k": [1]}), "x": trees.numbers(2)}).memmap(tmp_path / "t")
    (tmp_path / "t" / "v" / "other.pickle").write_bytes(pickle.dumps(CreatesAFile(trap)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tenfold.load(tmp_path / "t")["v"] == {"k": [1]}
        assert tenfold.verify(tmp_path / "t").ok
    assert not trap.exists()


def test_unneeded_pickles_left_by_tensordict_threads_are_ignored(tmp_path):
    td = TensorDict({str(i): NonTensorData(i) for i in range(50)})
    td.memmap(tmp_path / "t", num_threads=4)
    assert list((tmp_path / "t").glob("*/other.pickle")), "tensordict wrote no pickle to ignore"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = tenfold.load(tmp_path / "t")
    assert dict(loaded.items()) == {str(i): i for i in range(50)}


def test_tenfold_saves_no_pickle_for_any_tree(save_of):
    for name in trees.TREES:
        found = [p for p in save_of(name).rglob("*") if p.name in ("other.pickle", "pickle.pkl")]
        assert all(p.is_dir() for p in found), "only folders of nodes may have these names"

import pickle

import pytest
import torch

import tenfold
from tenfold import TensorDict


def test_batch_size_that_does_not_match_the_tensors_is_refused():
    td = TensorDict({"a": torch.zeros(2, 3), "n": {"b": torch.zeros(2, 3)}}, [2])
    td.batch_size = [2, 3]
    assert td["n"].batch_size == (2, 3)
    with pytest.raises(RuntimeError, match=r'key "a": .* \[3\], found \[2, 3\]'):
        td.batch_size = [3]


def test_a_value_that_all_rows_share_follows_the_batch_size():
    td = TensorDict({"s": "x"}, [2])
    for batch_size in ([4], [], [3, 5], [3]):
        td.batch_size = batch_size
        row = td[(-1,) * len(batch_size)]
        assert row.batch_size == ()
        assert row["s"] == "x"
    td = TensorDict({"s": ["x", "y"]}, [2])
    with pytest.raises(RuntimeError, match=r'key "s": .* \[4\], found \[2\]'):
        td.batch_size = [4]


def test_the_longest_common_batch_size_is_found():
    td = TensorDict({"a": torch.zeros(2, 3, 4), "b": torch.zeros(2, 3, 5)}).auto_batch_size_()
    assert td.batch_size == (2, 3)


def test_auto_device_finds_the_common_device_or_removes_it():
    td = TensorDict({"a": torch.zeros(2), "n": {"b": torch.zeros(2)}}, [2])
    assert td.auto_device_()["n"].device == torch.device("cpu")
    td.clear_device_()["n"].auto_device_()
    td["a"] = torch.zeros(2, device="meta")
    assert td.auto_device_()["n"].device is None
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(n)}) for n in (1, 2)])
    assert stack.auto_device_()[0].device == torch.device("cpu")


def test_names_follow_the_dimensions():
    td = TensorDict({"a": torch.zeros(2, 3, 4)}, [2, 3], names=["time", None])
    assert td.transpose(0, 1).names == [None, "time"]
    assert td.unsqueeze(0).names == [None, "time", None]
    assert td[0].names == [None]
    assert td[:, [0, 2]].names == ["time", None]
    assert td.rename(time="t").names == ["t", None]
    cube = TensorDict({"a": torch.zeros(2, 3, 4, 5)}, [2, 3, 4, 5], names=["x", "y", "z", "w"])
    for position in (1, torch.tensor(1)):
        assert cube[:, [0, 2], position, [1, 2]].names == ["x", None]
    with pytest.raises(ValueError, match="expected different ones"):
        td.names = ["x", "x"]
    for names in (["x", "y"], ["x"], [["x", "y"]], [None]):
        with pytest.raises(ValueError, match="expected names or keywords, found both"):
            td.rename(*names, time="t")


def dense_tree():
    return TensorDict({"a": torch.zeros(2, 3), "s": "x"}, [2, 3], "cpu")


def stacked_tree():
    return tenfold.lazy_stack([TensorDict({"a": torch.zeros(3)}, [3], "cpu") for _ in range(2)])


@pytest.mark.parametrize(
    "write",
    [
        lambda td, path: tenfold.save(td, path),
        lambda td, path: td.save(f"{path}.tdz"),
        lambda td, path: td.save(f"{path}.safetensors"),
        lambda td, path: td.memmap(f"{path}.tdz"),
        lambda td, path: td.consolidate(path),
        lambda td, path: pickle.loads(pickle.dumps(td)),
    ],
    ids=["save", "save_tdz", "save_safetensors", "memmap_tdz", "consolidate", "pickle"],
)
@pytest.mark.parametrize("make", [dense_tree, stacked_tree])
@pytest.mark.parametrize("is_nested", [False, True])
def test_an_opened_tree_is_written_with_changed_properties(make, is_nested, write, tmp_path):
    saved = make()
    if is_nested:
        saved = TensorDict({"n": saved}, device="cpu")
    saved.save(tmp_path / "p")
    opened = tenfold.open(tmp_path / "p")
    td = opened["n"] if is_nested else opened
    td.names = ["x", "y"]
    if make is dense_tree:
        td.batch_size = [2]
    made = write(opened, str(tmp_path / "q"))
    if not isinstance(made, TensorDict | tenfold.LazyStackedTensorDict):
        made = tenfold.open(made)
    made = made["n"] if is_nested else made
    assert made.names == td.names
    assert made.batch_size == td.batch_size


def test_an_opened_tree_is_pickled_without_a_device_that_was_removed(tmp_path):
    dense_tree().save(tmp_path / "p")
    td = tenfold.open(tmp_path / "p")
    td.clear_device_()
    assert pickle.loads(pickle.dumps(td)).device is None


@pytest.mark.parametrize(
    ("index", "names"),
    [
        ((True, torch.tensor([0, 1])), ["x", "y"]),
        ((torch.tensor([0, 1]), True), ["x", "y"]),
        ((torch.tensor(True), torch.tensor([0, 1])), ["x", "y"]),
        ((slice(None), torch.tensor([0, 1]), True), ["x", "y"]),
        ((True, slice(None), torch.tensor([0, 1])), ["y", "x"]),
        ((True, True), [None, "x", "y"]),
        ((True, 0), [None, "y"]),
        (True, [None, "x", "y"]),
    ],
    ids=repr,
)
def test_a_bool_beside_index_arrays_adds_no_name(index, names):
    td = TensorDict({"a": torch.zeros(3, 4)}, [3, 4], names=["x", "y"])
    found = td[index]
    assert found.names == names
    assert found["a"].ndim == len(names)


def test_a_stack_in_a_tree_with_names_gets_them():
    td = TensorDict({}, [2], names=["x"])
    td["s"] = stacked_tree()
    assert td["s"].names == ["x", None]

import pickle

import numpy as np
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


@pytest.mark.parametrize(
    ("given", "batch_size"),
    [
        (3, (3,)),
        (np.int64(3), (3,)),
        (np.array([2, 3]), (2, 3)),
        (torch.tensor([2, 3]), (2, 3)),
        ([np.int64(2), torch.tensor(3)], (2, 3)),
        (range(2), (0, 1)),
    ],
)
def test_a_batch_size_consists_of_integers(given, batch_size):
    assert TensorDict({}, given).batch_size == batch_size


@pytest.mark.parametrize("given", [[2.7], 2.0, "ab", b"ab", True, [True], ["2"], [None]])
def test_a_batch_size_of_other_values_is_refused(given):
    with pytest.raises(ValueError, match="batch_size: expected an int or a sequence of int"):
        TensorDict({}, given)
    kind = ValueError if hasattr(given, "__iter__") else TypeError
    for td in (TensorDict({}), tenfold.lazy_stack([TensorDict({})])):
        with pytest.raises(kind, match=r"^batch_size: expected .*, found"):
            td.batch_size = given


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


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_has_the_batch_size_of_its_components(layout):
    tensor = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=layout)
    td = TensorDict({"a": tensor, "n": {"b": torch.zeros(2, 3)}})
    td.batch_size = [2]
    assert td["n"].batch_size == (2,)
    with pytest.raises(RuntimeError, match=r"begins with \[3\], found \[2\]"):
        td.batch_size = [3]
    assert TensorDict({"a": tensor, "b": torch.zeros(2, 3)}).auto_batch_size_().batch_size == (2,)


def test_auto_device_finds_the_common_device_or_removes_it():
    td = TensorDict({"a": torch.zeros(2), "n": {"b": torch.zeros(2)}}, [2])
    assert td.auto_device_()["n"].device == torch.device("cpu")
    td.clear_device_()["n"].auto_device_()
    td["a"] = torch.zeros(2, device="meta")
    assert td.auto_device_()["n"].device is None
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(n)}) for n in (1, 2)])
    assert stack.auto_device_()[0].device == torch.device("cpu")


def test_a_device_that_torch_does_not_know_is_refused():
    td = TensorDict({"a": torch.zeros(2)}, [2])
    for make in (
        lambda: TensorDict({}, [2], device="foo"),
        lambda: td.empty(device="foo"),
        lambda: td.apply(torch.neg, device="foo"),
        lambda: td.new_zeros(2, device="foo"),
    ):
        with pytest.raises(RuntimeError, match="foo"):
            make()
    assert TensorDict({}, device="cuda:1").device == torch.device("cuda:1")


@pytest.mark.parametrize("names", ["a", 3, [3], [b"a"]])
def test_names_of_other_types_are_refused(names):
    td = TensorDict({"a": torch.zeros(2)}, [2])
    for call in (
        lambda: TensorDict({}, [2], names=names),
        lambda: setattr(td, "names", names),
        lambda: td.empty(names=names),
    ):
        with pytest.raises(TypeError, match=r"names: expected .*str or None"):
            call()
    with pytest.raises(TypeError, match="names: expected a str or None, found 3"):
        td.refine_names(3)
    with pytest.raises(TypeError, match="stack_dim_name: expected a str or None, found 3"):
        tenfold.lazy_stack([td, td], stack_dim_name=3)
    assert td.names == [None]


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
    with pytest.raises(ValueError, match=r"found 'x' 2 times in \['x', 'x'\]"):
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
def test_a_bool_next_to_index_arrays_adds_no_name(index, names):
    td = TensorDict({"a": torch.zeros(3, 4)}, [3, 4], names=["x", "y"])
    found = td[index]
    assert found.names == names
    assert found["a"].ndim == len(names)


def test_a_stack_in_a_tree_with_names_gets_them():
    td = TensorDict({}, [2], names=["x"])
    td["s"] = stacked_tree()
    assert td["s"].names == ["x", None]


@tenfold.tensorclass
class Step:
    x: torch.Tensor
    label: str = "none"


def test_a_data_loader_batches_rows_without_a_collate_fn():
    td = TensorDict({"a": torch.arange(4.0), "s": ["p", "q", "r", "s"]}, [4])
    for data in (td, list(td.unbind(0)), Step(td["a"], "first", batch_size=[4])):
        batches = list(torch.utils.data.DataLoader(data, batch_size=3))
        assert [batch.batch_size for batch in batches] == [(3,), (1,)]
        assert {type(batch) for batch in batches} <= {TensorDict, Step}
    state = torch.nn.Linear(2, 2).state_dict()
    collated = torch.utils.data.default_collate([{"td": TensorDict(state), "n": 1}] * 2)
    assert collated["td"]["weight"].shape == (2, 2, 2)

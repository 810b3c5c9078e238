import numpy as np
import pytest
import torch

import tenfold
from tenfold import NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor


def tree():
    return TensorDict({"a": torch.zeros(2, 3), "b": {"c": torch.ones(2)}, "s": "text"}, [2])


def test_keys_list_children_before_their_node():
    assert tree().keys(True) == ["a", ("b", "c"), "b", "s"]
    assert tree().keys(True, True) == ["a", ("b", "c")]
    assert tree().keys(sort=True) == ["a", "b", "s"]


def test_keys_support_set_operations():
    keys = tree().keys()
    assert keys == {"a", "b", "s"}
    assert keys - {"a"} == {"b", "s"}
    assert keys & {"a", "z"} == {"a"}
    assert keys.isdisjoint({"z"})


def test_a_path_may_be_a_nested_tuple():
    assert tree()["b", ("c",)].tolist() == [1, 1]


def test_get_returns_the_value_wrapper_and_indexing_the_value():
    assert isinstance(tree().get("s"), NonTensorData)
    assert tree()["s"] == "text"


def test_missing_key_returns_the_default_or_raises_key_error():
    assert tree().get("z", 5) == 5
    assert tree().get_at("z", 0) is None
    with pytest.raises(KeyError, match='no key "z"'):
        tree()["z"]


def test_get_at_indexes_tensors_and_values():
    td = tree().set("u", UnbatchedTensor(torch.arange(5)))
    assert td.get_at("a", 0).tolist() == [0, 0, 0]
    assert td.get_at("s", 0) == "text"
    assert td.get_at("u", 4) == 4


@pytest.mark.parametrize("key", [3, (), ("a", 3)], ids=repr)
def test_key_must_be_a_str_or_a_tuple_of_str(key):
    with pytest.raises(KeyError, match="key: expected a str or a non-empty tuple of str"):
        tree().get(key)


def test_path_through_a_tensor_raises_key_and_value_error():
    for kind in (KeyError, ValueError):
        with pytest.raises(kind, match='"a" is a Tensor: expected a node'):
            tree().get(("a", "x"))


def test_pop_removes_and_returns_the_entry():
    td = tree()
    assert td.pop(("b", "c")).tolist() == [1, 1]
    assert td.pop("z", None) is None
    assert td.keys(True, True) == ["a"]
    with pytest.raises(KeyError, match='no key "z"'):
        td.pop("z")


def test_setdefault_keeps_an_existing_entry():
    td = tree()
    assert td.setdefault("a", torch.ones(2)).sum() == 0
    assert td.setdefault("new", torch.ones(2)).sum() == 2


def test_set_non_tensor_keeps_any_object():
    td = TensorDict(batch_size=[2]).set_non_tensor("x", torch.zeros(5))
    assert td["x"].shape == (5,)
    assert td.is_non_tensor("x")


def test_set_non_tensor_checks_the_number_of_values():
    td = TensorDict(batch_size=[3])
    with pytest.raises(RuntimeError, match=r'key "x": expected .* \[3\], found \[2\]'):
        td.set_non_tensor("x", NonTensorStack("a", "b"))
    td.set_non_tensor("x", NonTensorStack("a", "b", "c"))
    assert td[2]["x"] == "c"
    td.set_non_tensor("x", NonTensorData("a"))
    assert td.get("x").batch_size == (3,)


@pytest.mark.parametrize("key", ["x", ("n", "x")], ids=["key", "path"])
def test_set_checks_the_shape_and_the_lock(key):
    td = TensorDict({"x": torch.zeros(2), "n": {"x": torch.zeros(2)}}, [2])
    new = torch.ones(2, 3)
    assert td.set(key, new) is td
    assert td[key] is new
    with pytest.raises(RuntimeError, match=r'key "x": expected a shape that begins with \[2\]'):
        td.set(key, torch.ones(3, 2))
    with pytest.raises(RuntimeError, match=r'key "x": expected a shape that begins with \[2\]'):
        td.set(key, torch.ones(()))
    td.lock_()
    with pytest.raises(RuntimeError, match="locked"):
        td.set(key, new)
    moved = TensorDict({"n": {}}, device="meta")
    assert moved.set(key, new)[key].is_meta


def test_set_accepts_nested_tensors():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    td = TensorDict({"x": torch.zeros(2)}, [2])
    assert td.set("x", nested)["x"] is nested


def test_an_unbatched_tensor_is_moved_to_the_device():
    unbatched = UnbatchedTensor(torch.zeros(7))
    td = TensorDict({"a": unbatched, "n": {"b": unbatched}}, [2], device="meta")
    td["c"] = unbatched
    assert all(td[key].is_meta for key in ("a", ("n", "b"), "c"))
    assert TensorDict({"a": unbatched}, [2]).get("a") is unbatched


def test_a_node_of_unbatched_tensors_gets_the_batch_size():
    node = TensorDict({"u": UnbatchedTensor(torch.zeros(9))}, [3])
    td = TensorDict({"n": node}, [4])
    assert td["n"].batch_size == (4,)
    assert td["n", "u"].shape == (9,)
    assert node.batch_size == (3,)
    node["x"] = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r'key "n": .*key "x": .* \[4\], found \[3\]'):
        td["n"] = node


@pytest.mark.parametrize(
    ("array", "remedy"),
    [
        (np.array(["x"]), "tolist"),
        (np.array([None]), "tolist"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "tolist"),
        (np.zeros(1, dtype=[("f", "f4")]), "from_struct_array"),
    ],
)
def test_an_array_of_a_dtype_without_tensors_is_refused_by_key(array, remedy):
    with pytest.raises(TypeError, match=rf'key "a": expected .*, found one of dtype .*{remedy}'):
        TensorDict({"n": {"a": array}})


def test_int_key_error_suggests_the_str_key(tmp_path):
    tenfold.save({"state": {0: {"step": torch.ones(1)}}}, tmp_path / "saved")
    opened = tenfold.open(tmp_path / "saved")
    with pytest.raises(RuntimeError, match=r"with int keys, are str: \('state', '0'\)"):
        opened["state", 0]
    with pytest.raises(RuntimeError, match="with int keys, are str: '0'"):
        opened["state"][0]
    assert opened["state", "0"]["step"].shape == (1,)


def test_int_keys_stay_int_next_to_a_str_key(tmp_path):
    tenfold.save({1: torch.ones(1), 2: torch.ones(1)}, tmp_path / "saved")
    td = tenfold.open(tmp_path / "saved").clone()
    td["loss"] = torch.ones(1)
    assert td.to_dict().keys() == {1, 2, "loss"}


@pytest.mark.parametrize("name", ["folder", "file.pt", "file.safetensors"])
def test_int_keys_are_saved_next_to_a_str_key(tmp_path, name):
    tenfold.save({1: torch.ones(1), 2: torch.ones(1)}, tmp_path / "saved")
    td = tenfold.open(tmp_path / "saved").clone()
    td["loss"] = torch.ones(1)
    assert tenfold.load(tenfold.save(td, tmp_path / name)).keys() == {1, 2, "loss"}


def test_unflattened_entries_fit_their_node():
    td = TensorDict({"x.y": torch.zeros(3), "x": TensorDict({}, [3, 2])}, [3])
    with pytest.raises(RuntimeError, match=r'key "y": expected a shape that begins with \[3, 2\]'):
        td.unflatten_keys()


@pytest.mark.parametrize("missing", ["no", ("b", "no"), ("z", "no")])
def test_a_selection_in_place_of_a_missing_key_changes_nothing(missing):
    td = TensorDict({"b": {"c": 1, "d": 2}, "z": 1})
    for tree in (td, tenfold.lazy_stack([td.clone(), td.clone()])):
        keys = tree.keys(True)
        with pytest.raises(KeyError):
            tree.select(("b", "c"), missing, inplace=True)
        assert tree.keys(True) == keys
        tree.select(("b", "c"), missing, inplace=True, strict=False)
        assert tree.keys(True, True) == [("b", "c")]


def test_keys_of_a_stack_with_a_locked_member_are_not_flattened():
    members = [TensorDict({"b": {"c": 1}}), TensorDict({"b": {"c": 1}}).lock_()]
    with pytest.raises(RuntimeError, match="locked"):
        tenfold.lazy_stack(members).flatten_keys(inplace=True)
    assert members[0].keys() == ["b"]

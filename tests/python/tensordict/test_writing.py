import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tenfold
from tenfold import NonTensorData, TensorDict, UnbatchedTensor, tensorclass


@tensorclass
class Point:
    x: torch.Tensor


def tree():
    return TensorDict({"a": torch.zeros(2, 3), "b": {"c": torch.ones(2)}}, [2])


def test_set_inplace_keeps_the_tensor():
    td = tree()
    tensor = td["a"]
    td.set_("a", torch.ones(2, 3))
    assert td["a"] is tensor
    assert tensor.sum() == 6


def test_set_inplace_needs_an_entry_of_the_same_shape():
    with pytest.raises(KeyError, match='no key "z"'):
        tree().set_("z", torch.zeros(2))
    with pytest.raises(ValueError, match=r'key "a": expected .* \[2, 3\], found \[2, 7\]'):
        tree().set_("a", torch.zeros(2, 7))


class Copies(TorchDispatchMode):
    """Records each call of a copy operator, and the argument `non_blocking` of the call."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy" in func.__name__:
            self.made.append((func.__name__, args[2] if len(args) > 2 else False))
        return func(*args, **(kwargs or {}))

    def __enter__(self):
        self.made = []
        return super().__enter__()


@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "lazy"])
@pytest.mark.parametrize("method", ["set_", "set", "update", "update_"])
def test_tensors_of_another_device_are_copied_without_waiting(method, lazy):
    td = TensorDict({"a": torch.zeros(2, 3)}, [2], device="meta")
    if lazy:
        td = tenfold.lazy_stack(list(td.unbind(0)))
    value = torch.ones(2, 3)
    arguments = ({"a": value},) if "update" in method else ("a", value)
    options = {} if method.endswith("_") else {"inplace": True}
    with Copies() as copies:
        getattr(td, method)(*arguments, non_blocking=True, **options)
    assert copies.made == [("copy_.default", True)] * (2 if lazy else 1)


def test_update_merges_nodes():
    td = tree().update({"b": {"d": torch.zeros(2)}, ("n", "x"): torch.ones(2)})
    assert td.keys(True, True) == ["a", ("b", "c"), ("b", "d"), ("n", "x")]


@pytest.mark.parametrize("method", ["update", "update_"])
def test_a_tree_may_be_updated_by_itself_and_other_entries(method):
    td = tree()
    getattr(td, method)(td, a=torch.ones(2, 3))
    assert td["a"].sum() == 6


def test_keys_to_update_limits_the_update():
    td = tree().update(tree().apply(lambda x: x + 5), keys_to_update=[("b", "c")])
    assert td["a"].sum() == 0
    assert td["b", "c"].tolist() == [6, 6]


def test_update_at_writes_rows():
    td = tree().update_at_({"a": torch.ones(3)}, 1)
    assert td["a"].sum(1).tolist() == [0, 3]


@pytest.mark.parametrize("method", ["update_", "update_at_"])
def test_keys_to_update_may_be_nested(method):
    td = tree().set(("b", "d"), torch.ones(2))
    wanted = [("b", "c"), ("a", "x")]
    if method == "update_":
        td.update_({"a": 7, "b": {"c": [8, 1], "d": 9}}, keys_to_update=wanted)
    else:
        td.update_at_({"a": 7, "b": {"c": 8, "d": 9}}, 0, keys_to_update=wanted)
    assert td["a"].sum() == 0
    assert td["b", "c"].tolist() == [8, 1]
    assert td["b", "d"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda td: td.set_("b", None),
        lambda td: td.update_({"b": None}),
        lambda td: td.update_({"b": None}, keys_to_update=[("b", "c")]),
        lambda td: td.update_at_({"b": None}, 0),
    ],
    ids=["set_", "update_", "keys_to_update", "update_at_"],
)
@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "lazy"])
def test_none_is_not_written_into_a_node(call, lazy):
    td = tenfold.lazy_stack([tree(), tree()]) if lazy else tree()
    with pytest.raises(TypeError, match='key "b": expected a dict or a TensorDict, found NoneType'):
        call(td)


def test_set_at_indexes_an_unbatched_tensor_and_rows_have_all_of_it():
    td = tree().set("u", UnbatchedTensor(torch.zeros(5)))
    td.set_at_("u", 3, 4)
    assert td["u"].tolist() == [0, 0, 0, 0, 3]
    td.update_at_({"u": torch.ones(5)}, 0)
    assert td["u"].tolist() == [1, 1, 1, 1, 1]
    td[1] = 2
    assert td["u"].tolist() == [2, 2, 2, 2, 2]


def test_rows_can_be_assigned_from_a_tensordict_and_a_number():
    td = tree()
    td[0] = td[1].clone().fill_("a", 4.0)
    assert td["a"].sum(1).tolist() == [12, 0]
    td[1:] = 2
    assert td["b", "c"].tolist() == [1, 2]


def test_assigning_a_row_with_a_new_key_fills_zeros_elsewhere():
    td = tree()
    td[1] = td[1].clone().set("new", torch.tensor(7.0))
    assert td["new"].tolist() == [0, 7]


@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "lazy"])
def test_keys_of_assigned_rows_may_be_paths(lazy):
    td = tenfold.lazy_stack([tree(), tree()], 1) if lazy else tree()
    td[0] = {("b", "c"): 5, "b": {("d", "e"): 6}, ("n", ("m",)): 7}
    assert set(td.keys(True, True)) == {"a", ("b", "c"), ("b", "d", "e"), ("n", "m")}
    for path, expected in ((("b", "c"), 5), (("b", "d", "e"), 6), (("n", "m"), 7)):
        assert (td[path][0] == expected).all()
        assert (td[path][1] == (1 if path == ("b", "c") else 0)).all()


def test_other_keys_of_assigned_rows_are_refused_before_a_row_is_written():
    td = tree()
    with pytest.raises(KeyError, match="expected a str or a non-empty tuple of str, found 0"):
        td[0] = {"a": 1, 0: 5}
    assert td["a"].sum() == 0
    with pytest.raises(KeyError, match='"a" is a Tensor: expected a node'):
        td[0] = {("a", "x"): 5}
    assert td.keys() == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, [5, 0, 0]),
        (True, [True, False, False]),
        (np.ones((1, 2)), [[1, 1], [0, 0], [0, 0]]),
        ([[1, 2]], [[1, 2], [0, 0], [0, 0]]),
        ("text", ["text", None, None]),
        (NonTensorData("text"), ["text", None, None]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "lazy"])
def test_new_entry_of_assigned_rows_may_be_any_value(value, expected, lazy):
    td = TensorDict({"a": torch.ones(3)}, [3])
    if lazy:
        td = tenfold.lazy_stack(list(td.unbind(0)))
    td[0:1] = {"a": 7.0, "new": value}
    assert td["a"].tolist() == [7, 1, 1]
    assert td.get("new").tolist() == expected


def test_new_node_of_assigned_rows_is_added():
    td = TensorDict({"a": torch.ones(3)}, [3])
    node = TensorDict({"y": torch.ones(2, 4), "s": "text"}, [2])
    td[0] = {"new": {"x": 1, "n": node, "l": ["u", "v"]}}
    assert td["new"].batch_size == (3,)
    assert td["new", "x"].tolist() == [1, 0, 0]
    assert td["new", "n"].batch_size == (3, 2)
    assert td["new", "n", "y"].sum((1, 2)).tolist() == [8, 0, 0]
    assert td["new", "n", "s"] == [["text", "text"], [None, None], [None, None]]
    assert td["new", "l"] == [["u", "v"], None, None]
    td[1:] = {"t": Point(torch.ones(2))}
    assert isinstance(td["t"], Point)
    assert td["t"].x.tolist() == [0, 1, 1]


def test_new_unbatched_tensor_of_assigned_rows_is_added_whole():
    td = TensorDict({"a": torch.ones(3)}, [3])
    td[0] = {"u": UnbatchedTensor(torch.arange(5))}
    assert td["u"].tolist() == [0, 1, 2, 3, 4]


def test_new_rows_that_do_not_fit_are_not_added():
    td = tree()
    with pytest.raises(RuntimeError):
        td[:] = {"new": torch.ones(3)}
    assert "new" not in td


def test_fill_writes_tensors_and_refuses_plain_values():
    td = tree().set("u", UnbatchedTensor(torch.ones(5))).set(("b", "s"), "text")
    td.fill_("a", 3).fill_("u", 4).fill_("b", 5)
    assert (td["a"].sum(), td["u"].sum(), td["b", "c"].sum()) == (18, 20, 10)
    with pytest.raises(
        RuntimeError, match='key "s": expected a tensor or a node, found a NonTensorData'
    ):
        td.fill_(("b", "s"), 6)


def test_fill_writes_numpy_arrays(tmp_path):
    tenfold.save(tree(), tmp_path / "saved")
    td = tenfold.open(tmp_path / "saved", mode="r+", framework="numpy")
    td.fill_("a", 3).fill_("b", 4)
    del td
    loaded = tenfold.load(tmp_path / "saved")
    assert (loaded["a"].sum(), loaded["b"]["c"].sum()) == (18, 8)


def test_masked_fill_and_masked_select_apply_to_rows():
    mask = torch.tensor([True, False])
    assert tree().masked_fill(mask, 3)["a"].sum(1).tolist() == [9, 0]
    assert tree().masked_select(mask).batch_size == (1,)


def test_an_update_to_a_batch_size_that_a_stack_cannot_have_changes_nothing():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(2)}, [2]) for _ in range(2)])
    other = TensorDict({"a": torch.ones(3)}, [3])
    with pytest.raises(RuntimeError, match="batch_size of a lazy stack cannot be changed"):
        stack.update(other, update_batch_size=True)
    assert stack["a"].tolist() == [[0, 0], [0, 0]]
    other = TensorDict({"b": torch.ones(2, 2)}, [2, 2])
    assert stack.update(other, update_batch_size=True).keys() == ["b"]


def test_a_list_for_several_rows_has_a_value_for_each():
    td = TensorDict({"s": ["x", "y", "z"], "one": "same"}, [3])
    td[1:] = {"s": ["a", "b"], "one": ["c", "d"]}
    assert (td["s"], td["one"]) == (["x", "a", "b"], ["same", "c", "d"])
    with pytest.raises(RuntimeError, match=r"expected a list of shape \[2\], .* found .* \[3\]"):
        td[1:] = {"s": ["a", "b", "c"]}
    td[0] = {"s": ["a", "b", "c"]}
    assert td["s"] == [["a", "b", "c"], "a", "b"]


def test_arrays_in_lists_and_tuples_of_nodes_are_stacked():
    td = TensorDict({"a": [np.ones(3), np.zeros(3)], "n": [np.int64(1), np.int64(2)]}, [2])
    assert (td["a"].shape, td["n"].tolist()) == ((2, 3), [1, 2])
    nodes = (TensorDict(a=torch.ones(3)), TensorDict(a=torch.zeros(3)))
    assert TensorDict({"n": nodes}, [2])[1]["n", "a"].tolist() == [0, 0, 0]
    assert TensorDict({"n": [[nodes[0]], [nodes[1]]]}, [2, 1])["n", "a"].shape == (2, 1, 3)
    weight = torch.ones(1, requires_grad=True)
    assert TensorDict({"w": (weight * 1, weight * 2)}, [2])["w"].requires_grad


def test_lists_that_cannot_be_stacked_keep_their_items():
    td = TensorDict({"x": [[1], [2, 3]], "big": [2**70, 1], "t": ("a", None)}, [2])
    assert (td["x"], td["big"], td["t"]) == ([[1], [2, 3]], [2**70, 1], ("a", None))
    texts = [np.array(["a"]), np.array(["b"])]
    assert TensorDict({"x": texts}, [2])[1]["x"] is texts[1]
    with pytest.raises(RuntimeError, match=r'key "n": expected a list of TensorDicts only'):
        TensorDict({"n": [TensorDict(), None]}, [2])
    with pytest.raises(RuntimeError, match="from_any: expected a list of TensorDicts only"):
        tenfold.from_any([TensorDict(), None])
    stack = tenfold.lazy_stack([TensorDict(), TensorDict()])
    with pytest.raises(
        ValueError, match='key "x": expected an item for each of 2 members, found 3'
    ):
        stack["x"] = [torch.ones(1), torch.ones(2), torch.ones(3)]
    stack = tenfold.lazy_stack([TensorDict({}, [2]), TensorDict({}, [2])], 1)
    for items in (
        [[torch.ones(1), torch.ones(2)], [torch.ones(1)]],
        [torch.ones(2), torch.ones(3)],
    ):
        with pytest.raises(ValueError, match=r"lengths are the batch size \[2, 2\]"):
            stack["x"] = items


def test_a_tensor_field_that_is_cast_refuses_tensordicts():
    @tensorclass(autocast=True)
    class Cast:
        x: torch.Tensor

    with pytest.raises(TypeError, match=r'field "x": .* \(it contains a TensorDict\)'):
        Cast(x=[TensorDict(a=torch.ones(1))] * 2, batch_size=[2])

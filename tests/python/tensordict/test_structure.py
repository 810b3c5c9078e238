import pytest
import torch

import tenfold
from tenfold import TensorDict, UnbatchedTensor


def tree():
    return TensorDict({"a": 1, "b": {"c": 2, "d": {"e": 3}}})


def test_select_shares_tensors_and_accepts_paths():
    td = tree()
    part = td.select("a", ("b", "c"))
    assert part.keys(True, True) == ["a", ("b", "c")]
    assert part["a"] is td["a"]
    with pytest.raises(KeyError, match='no key "z"'):
        td.select("z")
    assert td.select("z", strict=False).is_empty()


def test_exclude_ignores_missing_keys():
    assert tree().exclude(("b", "d"), "z").keys(True, True) == ["a", ("b", "c")]


def test_bytes_without_duplicates_count_the_largest_tensor_at_an_address():
    w = torch.zeros(5)
    for entries in ({"w": w, "head": w[:1]}, {"head": w[:1], "w": w, "same": w}):
        td = TensorDict(entries)
        assert td.bytes(count_duplicates=False) == 20
        assert td.param_count(count_duplicates=False) == 5
    td = TensorDict({name: torch.zeros(3, device="meta") for name in "ab"})
    td["c"] = td["a"]
    assert td.bytes(count_duplicates=False) == 24
    assert td.bytes() == 36


def test_split_keys_returns_the_rest_last():
    first, rest = tree().split_keys(["a"])
    assert first.keys(True, True) == ["a"]
    assert rest.keys(True, True) == [("b", "c"), ("b", "d", "e")]
    first, _ = tree().split_keys(["a", "z"], default=1, strict=False)
    assert first["z"] == 1


@pytest.mark.parametrize(
    "keys",
    [["a", "z"], ["a", ("b", "z")], ["a", "a"], ["b", ("b", "c")], [("b", "c"), ("a", "x")]],
    ids=repr,
)
def test_keys_that_cannot_be_separated_leave_all_entries(keys):
    td = tree()
    with pytest.raises(KeyError):
        td.separates(*keys)
    assert td.keys(True, True) == tree().keys(True, True)


def test_separates_keeps_all_entries_if_a_node_is_locked():
    td = tree()
    td["b"].lock_()
    with pytest.raises(RuntimeError, match="locked"):
        td.separates("a", ("b", "c"))
    assert td.keys(True, True) == tree().keys(True, True)


def test_an_entry_and_its_node_can_be_separated():
    td = tree()
    node = td["b"]
    part = td.separates(("b", "c"), "b")
    assert td.keys() == ["a"]
    assert part["b"] is node
    assert part.keys(True, True) == [("b", "c"), ("b", "d", "e")]
    first, second, rest = tree().split_keys([("b", "c")], ["b"])
    assert first.keys(True, True) == [("b", "c")]
    assert second.keys(True, True) == [("b", "d", "e")]
    assert rest.keys() == ["a"]


@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "lazy"])
def test_nodes_of_an_empty_tree_have_its_batch_size_device_and_names(lazy):
    inner = TensorDict({"x": torch.zeros(3, 4), "s": "text"}, [3, 4])
    td = TensorDict({"n": {"y": torch.zeros(3)}, "inner": inner}, [3], device="cpu")
    if lazy:
        td = tenfold.lazy_stack(list(td.unbind(0)))
    made = td.empty(True, batch_size=[5, 2], device="meta", names=["time", "env"])
    assert made["n"].batch_size == (5, 2)
    assert made["inner"].batch_size == (5, 2, 4)
    assert lazy or made["inner", "s"] == "text"
    assert made.get(("inner", "s")).batch_size == (5, 2, 4)
    for node in (made, made["n"], made["inner"], made.get(("inner", "s"))):
        assert node.device == torch.device("meta")
    assert made["inner"].names == ["time", "env", None]
    assert made.keys(True) == ["n", ("inner", "s"), "inner"]
    assert td.empty(True)["inner"].batch_size == (3, 4)
    assert td.empty(True, device=None)["n"].device is None


@pytest.mark.parametrize("method", ["stack_tensors", "cat_tensors"])
def test_entries_that_cannot_be_joined_are_kept(method):
    first, second = UnbatchedTensor(torch.arange(5)), UnbatchedTensor(torch.ones(5))
    td = TensorDict({"a": first, "n": {"b": second}, "c": torch.ones(3)}, [3])
    with pytest.raises(RuntimeError, match=r'key "out": expected a shape that begins with \[3\]'):
        getattr(td, method)("a", ("n", "b"), out_key="out")
    assert td.get("a") is first
    assert td.get(("n", "b")) is second
    assert set(td.keys(True, True)) == {"a", ("n", "b"), "c"}


def test_rename_key_moves_entries_between_nodes():
    td = tree().rename_key_("a", ("b", "x"))
    assert td["b", "x"] == 1
    assert "a" not in td
    with pytest.raises(KeyError, match=r'"b\.x" exists'):
        td.rename_key_(("b", "c"), ("b", "x"), safe=True)


def test_flatten_keys_and_unflatten_keys_round_trip():
    flat = tree().flatten_keys("/")
    assert flat.keys() == ["a", "b/c", "b/d/e"]
    assert flat.unflatten_keys("/").keys(True, True) == tree().keys(True, True)
    with pytest.raises(KeyError, match=r'found two for "b\.c"'):
        tree().set("b.c", 5).flatten_keys()


def test_replace_does_not_change_the_original():
    td = tree()
    assert td.replace({"a": torch.tensor(9)})["a"] == 9
    with pytest.raises(TypeError, match="replace: expected a dict or a TensorDict, found int"):
        td.replace(3)
    assert td["a"] == 1


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_bytes_count_the_components_of_a_sparse_tensor(layout):
    tensor = torch.eye(3).to_sparse(layout=getattr(torch, layout))
    bytes_of_indices = 48 if layout == "sparse_coo" else 32 + 24
    td = TensorDict({"a": tensor, "b": tensor})
    assert td.bytes(count_duplicates=False) == bytes_of_indices + 12
    assert td.bytes() == 2 * (bytes_of_indices + 12)
    assert td.param_count(count_duplicates=False) == 9

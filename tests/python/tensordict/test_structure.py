import pytest
import torch

from tenfold import TensorDict


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


def test_split_keys_returns_the_rest_last():
    first, rest = tree().split_keys(["a"])
    assert first.keys(True, True) == ["a"]
    assert rest.keys(True, True) == [("b", "c"), ("b", "d", "e")]


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
    with pytest.raises(KeyError, match=r'found "b\.c" twice'):
        tree().set("b.c", 5).flatten_keys()


def test_replace_does_not_change_the_original():
    td = tree()
    assert td.replace({"a": torch.tensor(9)})["a"] == 9
    assert td["a"] == 1

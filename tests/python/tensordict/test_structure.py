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


def test_the_largest_tensor_at_an_address_counts():
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

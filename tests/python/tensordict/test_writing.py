import pytest
import torch

from tenfold import TensorDict


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


def test_update_merges_nodes():
    td = tree().update({"b": {"d": torch.zeros(2)}, ("n", "x"): torch.ones(2)})
    assert td.keys(True, True) == ["a", ("b", "c"), ("b", "d"), ("n", "x")]


def test_keys_to_update_limits_the_update():
    td = tree().update(tree().apply(lambda x: x + 5), keys_to_update=[("b", "c")])
    assert td["a"].sum() == 0
    assert td["b", "c"].tolist() == [6, 6]


def test_update_at_writes_rows():
    td = tree().update_at_({"a": torch.ones(3)}, 1)
    assert td["a"].sum(1).tolist() == [0, 3]


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


def test_masked_fill_and_masked_select_apply_to_rows():
    mask = torch.tensor([True, False])
    assert tree().masked_fill(mask, 3)["a"].sum(1).tolist() == [9, 0]
    assert tree().masked_select(mask).batch_size == (1,)

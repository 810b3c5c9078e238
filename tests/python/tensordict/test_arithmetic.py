import pytest
import torch

from tenfold import TensorDict, UnbatchedTensor


def tree():
    return TensorDict({"a": torch.ones(2, 3), "n": {"b": torch.full((2,), 2.0)}, "s": "x"}, [2])


def test_arithmetic_accepts_numbers_trees_and_row_tensors():
    assert (tree() + 1)["n", "b"].tolist() == [3, 3]
    assert (tree() * tree())["n", "b"].tolist() == [4, 4]
    assert (1 - tree())["a"].sum() == 0
    assert (tree() + torch.tensor([0.0, 10.0]))["a"].sum(1).tolist() == [3, 33]
    assert (tree() + 1)["s"] == "x"


def test_in_place_arithmetic_keeps_the_tensors():
    td = tree()
    tensor = td["a"]
    td += 1
    td.mul_(3)
    assert td["a"] is tensor
    assert tensor.sum() == 36


def test_arithmetic_of_trees_needs_equal_keys():
    with pytest.raises(KeyError, match="keys in tensordicts mismatch"):
        tree() + tree().exclude("a")
    assert tree().add(tree().select("a"), default="intersection").keys(True, True) == ["a"]


def test_operand_of_another_batch_size_is_refused():
    with pytest.raises(RuntimeError):
        tree() + torch.zeros(3)
    with pytest.raises(TypeError, match="expected a number, a tensor or a TensorDict, found str"):
        tree() + "x"


def test_comparisons_return_bool_trees():
    same = tree() == tree()
    assert same["a"].dtype == torch.bool
    assert same.all()
    assert not (tree() > 1)["a"].any()
    assert (tree() > 1).any(dim=0).batch_size == ()


def test_reductions_reduce_the_batch_or_all_dimensions():
    assert tree().sum()["a"] == 6
    assert tree().sum(0)["n", "b"] == 4
    assert tree().mean(dim="feature")["a"].tolist() == [1, 1]
    values, indices = tree().max(0)
    assert values["a"].tolist() == [1, 1, 1]
    assert indices["n", "b"] == 0


def test_apply_passes_the_unbatched_tensors_of_all_trees():
    td = tree().set("u", UnbatchedTensor(torch.arange(5)))
    made = td.apply(torch.add, td)
    assert made["u"].tolist() == [0, 2, 4, 6, 8]
    assert isinstance(made.get("u"), UnbatchedTensor)
    assert made["n", "b"].tolist() == [4, 4]


def test_apply_keeps_tensors_that_are_no_leaves():
    td = tree()
    made = td.apply(lambda node: node + 1, is_leaf=lambda cls: issubclass(cls, TensorDict))
    assert made["a"] is td["a"]
    assert made["n", "b"].tolist() == [3, 3]


def test_torch_functions_dispatch_to_methods():
    assert torch.exp(torch.zeros_like(tree()))["a"].sum() == 6
    assert torch.clamp(tree(), 0, 0.5)["n", "b"].tolist() == [0.5, 0.5]
    with pytest.raises(TypeError):
        torch.nn.functional.relu(tree())

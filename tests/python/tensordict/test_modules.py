import pytest
import torch

import tenfold
from tenfold import TensorDict


def test_parameters_are_shared_and_swapped():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    params = TensorDict.from_module(module)
    assert params["0", "weight"] is module[0].weight
    assert params.keys(True, True)[-1] == ("1", "num_batches_tracked")
    zeros = params.data.clone().zero_()
    with zeros.to_module(module):
        assert module[0].weight.sum() == 0
    assert module[0].weight is params["0", "weight"]


def test_gradients_flow_through_a_functional_call():
    module = torch.nn.Linear(2, 1)
    scaled = TensorDict.from_module(module).apply(lambda tensor: tensor * 2)
    with scaled.to_module(module):
        module(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad.tolist() == [[2, 2]]


def test_module_ensemble_runs_under_vmap():
    modules = [torch.nn.Linear(2, 3) for _ in range(4)]
    params = tenfold.from_modules(*modules)
    x = torch.ones(5, 2)

    def call(params, x):
        with params.to_module(modules[0]):
            return modules[0](x)

    found = torch.vmap(call, (0, None))(params, x)
    assert torch.allclose(found[2], modules[2](x))


def test_unknown_parameter_raises_key_error():
    with pytest.raises(KeyError, match='no parameter or buffer "nothing" in Linear'):
        TensorDict({"nothing": 1}).to_module(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"training": torch.zeros(1)}, 'no parameter or buffer "training" in Linear'),
        ({"nothing": {"weight": torch.zeros(1)}}, 'no submodule "nothing" in Linear'),
        ({"weight": {"x": torch.zeros(1)}}, 'no submodule "weight" in Linear'),
    ],
)
def test_an_unknown_key_leaves_the_module_unchanged(entries, message):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    before = list(module.parameters())
    weight = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    for inplace in (False, True):
        with pytest.raises(KeyError, match=message):
            TensorDict({"0": weight, "1": entries}).to_module(module, inplace=inplace)
        assert all(a is b for a, b in zip(module.parameters(), before, strict=True))
        assert before[0].abs().sum() > 0
    assert module[1].training is True


def test_a_missing_bias_can_be_replaced_again_after_it_was_restored():
    module = torch.nn.Linear(2, 3, bias=False)
    for _ in range(2):
        with TensorDict({"bias": torch.ones(3)}).to_module(module):
            assert module.bias.sum() == 3
        assert module.bias is None


def test_vmap_removes_and_restores_a_batch_dimension():
    td = TensorDict({"a": torch.zeros(2, 3, 5), "n": {"b": torch.ones(2, 3)}, "s": "x"}, [2, 3])
    seen = []

    def add(one):
        seen.append((one.batch_size, one["n"].batch_size, one["a"].shape))
        return one + 1

    for dim in (0, 1):
        made = torch.vmap(add, in_dims=dim, out_dims=dim)(td)
        assert made.batch_size == made["n"].batch_size == (2, 3)
        assert made["a"].shape == (2, 3, 5)
        assert made["s"] == "x"
    assert seen == [((3,), (3,), (3, 5)), ((2,), (2,), (2, 5))]
    assert torch.vmap(add, in_dims=1)(td).batch_size == (3, 2)


def test_a_mapped_pytree_keeps_the_batch_size_that_its_tensors_have():
    td = TensorDict({"a": torch.zeros(2, 3)}, [2])
    tree_map = torch.utils._pytree.tree_map
    assert tree_map(lambda tensor: tensor.sum(-1), td).batch_size == (2,)
    assert tree_map(lambda tensor: tensor.sum(), td).batch_size == ()
    td.names = ["rows"]
    assert tree_map(lambda tensor: tensor + 1, td).names == ["rows"]
    assert tree_map(lambda tensor: tensor.sum(), td).names == []
    other = TensorDict({"a": torch.ones(2, 1)}, [2])
    assert tree_map(torch.add, td, other)["a"].shape == (2, 3)


def test_a_mapped_pytree_may_have_strided_nested_tensors():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    td = TensorDict({"n": nested, "a": torch.ones(2, 4)}, [2])
    found = torch.utils._pytree.tree_map(lambda tensor: tensor * 2, td)
    assert found.batch_size == (2,)
    assert [part.tolist() for part in found["n"].unbind()] == [[2, 2], [2, 2, 2]]
    halves = torch.utils._pytree.tree_map(
        lambda tensor: tensor if tensor.is_nested else tensor[:, :2], td
    )
    assert halves.batch_size == (2,)

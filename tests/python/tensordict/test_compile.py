"""Operations on TensorDicts in torch.compile(fullgraph=True), which allows no graph break."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import tenfold
from tenfold import LazyStackedTensorDict, TensorDict

# Each function must return equal results with and without torch.compile. torch 2.x cannot trace a
# tensor on the right of an operator (td + tensor), but it can trace td.add(tensor).
OPERATIONS = {
    "arithmetic": lambda td: [
        td + 1,
        td * td,
        2 - td,
        -td,
        td.add(torch.ones(3)),
        td.exp(),
        td.clamp(0.5, 2),
        td.lerp(td * 2, 0.5),
        td.clone().add_(1),
    ],
    "comparisons": lambda td: [td < 2, td == td, td.where(torch.tensor([True, False, True]), -td)],
    "reductions": lambda td: [td.sum(0), td.mean()],
    "apply": lambda td: [
        td.apply(torch.sin),
        td.copy().apply(torch.sin),
        td.named_apply(lambda key, tensor: tensor + len(key)),
    ],
    "indexing": lambda td: [
        td[0],
        td[1:],
        td[[0, 2]],
        td[torch.tensor([True, False, True])],
        td[torch.tensor([2, 0])],
        td[..., None],
        [row["a"] for row in td],
        _assigned(td),
    ],
    "stacking": lambda td: [
        torch.stack([td, td]),
        tenfold.stack([td, td], 1),
        torch.cat([td, td]),
        tenfold.lazy_stack([td, td]),
    ],
    "copies": lambda td: [
        td.clone(),
        td.clone(recurse=False),
        td.to(torch.float64),
        td.to("cpu"),
        td.double().float(),
        td.detach(),
        torch.zeros_like(td),
    ],
    "entries": lambda td: [
        td["a"] + td["b", "c"].unsqueeze(-1) + td.get("a"),
        td["a"] if "a" in td and ("b", "d") not in td else None,
        td.copy().set("z", td["a"] * 2),
        td.copy().set(("x", "y"), td["a"] * 2),
        td.copy().pop("a"),
        td.copy().update({"q": td["a"]}),
        td.clone().update_(td * 2),
        sum(value.sum() for value in td.values(True, True)),
        dict(td.items(True, True)),
        td.to_dict(),
    ],
    "structure": lambda td: [td.select("a"), td.exclude("a"), td.flatten_keys(".")],
    "locking": lambda td: [td.clone().lock_(), td.clone().lock_().unlock_()],
    "construction": lambda td: [
        TensorDict({"x": td["a"] + 1, "y": {"z": td["a"]}}, [3]),
        td["a"] * td.batch_size[0] * td.ndim * td.numel(),
    ],
    "shapes": lambda td: [
        td.reshape(3, 1),
        td.view(-1),
        td.unsqueeze(0),
        td.unsqueeze(0).squeeze(0),
        td.unsqueeze(0).permute(1, 0),
        td.expand(2, 3),
        td.unbind(0),
        td.split(2),
        td.gather(0, torch.tensor([2, 0])),
    ],
}


def _assigned(td):
    made = td.clone()
    made[0] = td[1]
    return made


def batch():
    return TensorDict({"a": torch.rand(3, 4) + 0.1, "b": {"c": torch.rand(3) + 0.1}}, [3])


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="eager")


def _can_compile():
    try:
        return compiled(lambda x: x + 1)(torch.zeros(2)) is not None
    except RuntimeError:  # a Python that this torch cannot trace
        return False


pytestmark = pytest.mark.skipif(not _can_compile(), reason="torch.compile does not run here")


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, (TensorDict, LazyStackedTensorDict)):
        assert got.batch_size == expected.batch_size
        assert got.is_locked == expected.is_locked
        assert got.keys(True, True) == expected.keys(True, True)
        got, expected = dict(got.items(True, True)), dict(expected.items(True, True))
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        got, expected = list(got.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_compile_without_graph_breaks(name):
    operations, td = OPERATIONS[name], batch()
    assert_same(compiled(operations)(td), operations(td))


def test_training_step_compiles_without_graph_breaks():
    params = TensorDict.from_module(torch.nn.Linear(4, 2)).detach().clone()

    def step(params, td):
        out = td["a"] @ params["weight"].T + params["bias"]
        return (params - params * 0.1).set("loss", out.mean())

    td = batch()
    assert_same(compiled(step)(params, td), step(params, td))


def test_gradients_flow_through_a_compiled_operation():
    td = batch().apply(lambda tensor: tensor.requires_grad_())
    made = compiled(lambda td: (td * 2).sum(reduce=True))(td[:1].select("a"))
    made.backward()
    assert td["a"].grad[0].tolist() == [2, 2, 2, 2]
    assert td["a"].grad[1:].count_nonzero() == 0


def test_first_operation_of_a_process_can_be_compiled():
    program = """
import torch
from tenfold import TensorDict

td = TensorDict({"a": torch.ones(3, 4), "b": {"c": torch.ones(3)}}, [3])
for operation in (lambda td: td + 1, lambda td: td.apply(torch.sin), lambda td: td[[0]]):
    torch.compile(operation, fullgraph=True, backend="eager")(td)
print(torch.compile(lambda td: td + 1, fullgraph=True, backend="eager")(td)["b", "c"].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2.0, 2.0, 2.0]\n"

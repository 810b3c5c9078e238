"""The order and device of values in a NonTensorStack after their TensorDict was reshaped.

If values are stacked along several dimensions, tensordict nests one NonTensorStack for each. The
files store the dimension of the outermost stack as `stack_dim`. Along dimensions without a
NonTensorStack, all rows share one value.
"""

from __future__ import annotations

import json

import pytest
import tensordict as upstream
import torch
from compare import assert_same_outcome, describe, kind_of

import tenfold

TEXT = "text"


def stack_of(library, order, shape, device=None):
    """Returns a value of batch size `shape`, stacked along the dimensions in `order`.

    The first dimension in `order` is that of the outermost stack.
    """

    def make(dims):
        stacked = [dim for dim in order if dim in dims]
        if not stacked:
            return library.NonTensorData(TEXT, batch_size=[shape[d] for d in dims], device=device)
        inner = [dim for dim in dims if dim != stacked[0]]
        parts = [make(inner) for _ in range(shape[stacked[0]])]
        return library.NonTensorStack(*parts, stack_dim=dims.index(stacked[0]))

    return make(list(range(len(shape))))


def build(order, shape, device=None):
    def of(library):
        entries = {
            "x": torch.zeros(*shape, 1),
            "v": stack_of(library, order, shape, device),
            "n": {"v": stack_of(library, order, shape, device)},
        }
        return library.TensorDict(entries, batch_size=shape)

    return of


def built(value):
    """Returns the stack dimensions of a value, the outermost first.

    Each one is an index into the dimensions that remain inside the outer stacks.
    """
    dims = []
    while kind_of(value) == "NonTensorStack":
        dims.append(value.stack_dim)
        value = value.unbind(value.stack_dim)[0]
    assert kind_of(value) == "NonTensorData"
    return dims


def facts(td):
    values = [td.get("v"), td.get(("n", "v"))]
    return [
        (built(value), describe(value), tuple(value.batch_size), str(value.device))
        for value in values
    ]


ZEROS = torch.zeros
CHANGES = {
    "int": lambda td: td[0],
    "int of the second": lambda td: td[:, 0],
    "slice": lambda td: td[1:],
    "None": lambda td: td[None],
    "None behind": lambda td: td[..., None],
    "None between": lambda td: td[:, None],
    "positions": lambda td: td[[0, 1]],
    "positions of the second": lambda td: td[:, [0, 1]],
    "mask": lambda td: td[torch.tensor([True, False])],
    "positions of two dimensions": lambda td: td[torch.tensor([[0], [1]])],
    "positions in both": lambda td: td[[0, 1], [0, 1]],
    "unsqueeze 0": lambda td: td.unsqueeze(0),
    "unsqueeze 1": lambda td: td.unsqueeze(1),
    "unsqueeze -1": lambda td: td.unsqueeze(-1),
    "squeeze": lambda td: td.unsqueeze(0).squeeze(),
    "squeeze 1": lambda td: td.unsqueeze(1).squeeze(1),
    "permute": lambda td: td.permute(*reversed(range(td.ndim))),
    "transpose": lambda td: td.transpose(0, 1),
    "expand": lambda td: td.expand(2, *td.shape),
    "expand twice": lambda td: td.expand(4, 5, *td.shape),
    "expand a 1": lambda td: td.unsqueeze(0).expand(4, *td.shape),
    "reshape -1": lambda td: td.reshape(-1),
    "view -1": lambda td: td.view(-1),
    "flatten": lambda td: td.flatten(0, 1),
    "flatten of three": lambda td: td.unsqueeze(0).flatten(1, 2),
    "reshape to another": lambda td: td.reshape(3, 2),
    "reshape in front": lambda td: td.reshape(1, *td.shape),
    "reshape behind": lambda td: td.reshape(*td.shape, 1),
    "unflatten": lambda td: td.unflatten(0, (2, 1)),
    "unflatten the second": lambda td: td.unflatten(1, (3, 1)),
    "unbind": lambda td: td.unbind(0)[0],
    "unbind 1": lambda td: td.unbind(1)[1],
    "split": lambda td: td.split(1)[0],
    "split 1": lambda td: td.split(1, 1)[0],
    "chunk": lambda td: td.chunk(2)[0],
    "stack": lambda td: torch.stack([td, td]),
    "stack 1": lambda td: torch.stack([td, td], 1),
    "stack -1": lambda td: torch.stack([td, td], -1),
    "cat": lambda td: torch.cat([td, td]),
    "cat 1": lambda td: torch.cat([td, td], 1),
    "flip": lambda td: td.flip(0),
    "roll": lambda td: td.roll(1, 0),
    "repeat": lambda td: td.repeat(2, *[1] * (td.ndim - 1)),
    "repeat_interleave": lambda td: td.repeat_interleave(2, dim=0),
    "gather": lambda td: td.gather(0, ZEROS(td.shape, dtype=torch.int64)),
    "masked_select": lambda td: td.masked_select(torch.ones(td.shape, dtype=torch.bool)),
    "clone": lambda td: td.clone(),
    "to": lambda td: td.to("cpu"),
    "apply": lambda td: td.apply(lambda tensor: tensor + 1),
    "zeros_like": lambda td: torch.zeros_like(td),
    "clear_device_": lambda td: td.to("cpu").clear_device_(),
}
NEED_TWO = ("int of the second", "flatten")
BUILDS = [
    *[((2, 3), order) for order in [(), (0,), (1,), (0, 1), (1, 0)]],
    *[((2,), order) for order in [(), (0,)]],
    *[((1, 3), order) for order in [(), (0,), (1,), (0, 1)]],
]


@pytest.mark.parametrize(("shape", "order"), BUILDS, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_shape_operations_on_value_stacks_match_tensordict(change, shape, order):
    if len(shape) == 1 and not order and change in NEED_TWO:
        pytest.skip("in tensordict, the call affects dimensions beyond the batch size")
    if shape == (1, 3) and change == "squeeze" and order != (1,):
        pytest.skip("tensordict leaves one of two dimensions of length 1 to the value")
    change = CHANGES[change]

    def call(td, library):
        return facts(change(td))

    assert_same_outcome(build(order, shape), call)


@pytest.mark.parametrize("change", ["None", "expand", "reshape -1", "permute", "stack"])
def test_shape_operations_keep_the_device_of_values(change):
    change = CHANGES[change]

    def call(td, library):
        return facts(change(td))

    assert_same_outcome(build((0,), (2, 3), "cpu"), call)


@pytest.mark.parametrize("order", [(), (0,), (1, 0)], ids=str)
@pytest.mark.parametrize(
    "change", ["int", "None", "unsqueeze 1", "expand", "reshape in front", "stack"]
)
def test_values_keep_dimensions_beyond_a_reduced_batch_size(change, order):
    change = CHANGES[change]

    def call(td, library):
        td.batch_size = td.batch_size[:1]
        return facts(change(td))

    assert_same_outcome(build(order, (2, 3)), call)


LONGER = {
    "sum": lambda td: td.sum(0),
    "batch_size_that_fits": lambda td: setattr(td, "batch_size", [2, 3]),
    "auto_batch_size_": lambda td: td.auto_batch_size_(),
}


@pytest.mark.parametrize("call", LONGER.values(), ids=LONGER)
def test_value_with_a_longer_batch_size_matches_tensordict(call):
    def of(library):
        value = library.NonTensorData(TEXT, batch_size=[2, 3, 5])
        return library.TensorDict({"x": ZEROS(2, 3, 4), "v": value}, batch_size=[2])

    assert_same_outcome(of, lambda td, library: call(td))


def test_larger_batch_size_does_not_expand_a_value_stack():
    def call(td, library):
        td.batch_size = [2, 3]

    def of(library):
        return library.TensorDict({"x": ZEROS(2, 3), "v": ["a", "b"]}, batch_size=[2])

    assert_same_outcome(of, call)


@pytest.mark.parametrize("library", [upstream, tenfold])
def test_metadata_records_the_device_of_loaded_values(library, tmp_path):
    library.TensorDict({"v": TEXT, "s": ["a", "b"]}, batch_size=[2]).memmap(tmp_path / "first")
    loaded = library.TensorDict.load_memmap(tmp_path / "first")
    loaded.expand(2, 2).memmap(tmp_path / "second")

    def said(path):
        about = json.loads(path.read_text())
        return about["device"], about["stack_dim"]

    assert said(tmp_path / "first" / "s" / "meta.json") == (None, 0)
    assert said(tmp_path / "second" / "s" / "meta.json") == ("cpu", 1)
    assert said(tmp_path / "second" / "v" / "meta.json") == ("cpu", 0)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_values_set_in_a_tree_get_its_device(device):
    def of(library):
        return library.TensorDict({"x": ZEROS(2)}, batch_size=[2], device=device)

    def call(td, library):
        td.set("text", TEXT)
        td.set_non_tensor("set", 3)
        td["list"] = ["a", "b"]
        td["other"] = library.NonTensorStack("a", "b")
        td[0] = td[1]
        return [str(td.get(key).device) for key in ("text", "set", "list", "other")]

    assert_same_outcome(of, call)

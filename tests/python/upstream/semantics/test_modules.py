"""from_module and to_module: the parameters of a module as a TensorDict, and back."""

import copy

import pytest
import torch
from compare import assert_same_outcome
from fixtures import new_folder


def model():
    torch.default_generator.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False)),
    ).eval()


def tied():
    torch.default_generator.manual_seed(0)
    linear = torch.nn.Linear(3, 3)
    return torch.nn.Sequential(
        linear, torch.nn.BatchNorm1d(3), torch.nn.ReLU(), torch.nn.Sequential(linear)
    ).eval()


def outputs(module):
    return module(torch.ones(2, 3))


def zeros_in_with_block(td, module):
    with td.data.clone().zero_().to_module(module):
        inside = outputs(module)
    return [inside, outputs(module)]


def swapped(td, module):
    """Returns the outputs with zeroed parameters, and the old parameters that to_module returns."""
    before = td.data.clone().zero_().to_module(module)
    return [outputs(module), before]


def to_another_module(td, module):
    other = copy.deepcopy(module)
    for parameter in other.parameters():
        parameter.data.zero_()
    before = outputs(other)
    td.data.to_module(other)
    return [before, outputs(other)]


def written_in_place(td, module, lib):
    for parameter in td.values(True, True):
        parameter.data.zero_()
    return outputs(module)


CALLS = {
    "from_module": lambda m, lib: lib.TensorDict.from_module(m),
    "keys": lambda m, lib: list(lib.TensorDict.from_module(m).keys(True, True)),
    "flat_keys": lambda m, lib: list(lib.TensorDict.from_module(m).flatten_keys(".").keys()),
    "as_state_dict_keys": lambda m, lib: sorted(
        set(lib.TensorDict.from_module(m).flatten_keys(".").keys()) ^ set(m.state_dict())
    ),
    "locked": lambda m, lib: lib.TensorDict.from_module(m, lock=True).is_locked,
    "not_locked": lambda m, lib: lib.TensorDict.from_module(m, lock=False),
    "the_parameters_themselves": lambda m, lib: (
        lib.TensorDict.from_module(m)["0", "weight"] is m[0].weight
    ),
    "data": lambda m, lib: lib.TensorDict.from_module(m).data,
    "detach": lambda m, lib: lib.TensorDict.from_module(m).detach(),
    "clone": lambda m, lib: lib.TensorDict.from_module(m).clone(),
    "mul": lambda m, lib: lib.TensorDict.from_module(m).data * 2,
    "requires_grad": lambda m, lib: lib.TensorDict.from_module(m).requires_grad,
    "to_dict": lambda m, lib: list(lib.TensorDict.from_module(m).to_dict()),
    "zeros_in_with_block": lambda m, lib: zeros_in_with_block(lib.TensorDict.from_module(m), m),
    "swapped": lambda m, lib: swapped(lib.TensorDict.from_module(m), m),
    "written_in_place": lambda m, lib: written_in_place(lib.TensorDict.from_module(m), m, lib),
    "to_module": lambda m, lib: [
        lib.TensorDict.from_module(m).data.clone().mul_(2).to_module(m),
        outputs(m),
    ][1],
    "to_another_module": lambda m, lib: to_another_module(lib.TensorDict.from_module(m), m),
    "from_modules": lambda m, lib: lib.TensorDict.from_modules(model(), model(), as_module=False),
    "empty_module": lambda m, lib: lib.TensorDict.from_module(torch.nn.ReLU()),
    "frozen": lambda m, lib: lib.TensorDict.from_module(m.requires_grad_(False)),
    "a_part": lambda m, lib: lib.TensorDict.from_module(m[3]),
    "state_dict": lambda m, lib: lib.TensorDict(m.state_dict()).unflatten_keys("."),
    "from_module_use_state_dict": lambda m, lib: lib.TensorDict.from_module(m, use_state_dict=True),
    "to_module_use_state_dict": lambda m, lib: [
        lib.TensorDict.from_module(m).data.clone().zero_().to_module(m, use_state_dict=True),
        outputs(m),
    ][1],
    "to_module_missing_a_key": lambda m, lib: [
        lib.TensorDict({"0": {"bias": torch.zeros_like(m[0].bias)}}).to_module(m),
        outputs(m),
    ][1],
    "gradients_flow": lambda m, lib: gradients(m, lib),
}  # fmt: skip


def gradients(module, lib):
    td = lib.TensorDict.from_module(module)
    scaled = td.apply(lambda p: p * 2)
    with scaled.to_module(module):
        outputs(module).sum().backward()
    return module[0].weight.grad


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("make", [model, tied], ids=["model", "tied"])
def test_module_functions_match_tensordict(make, call):
    # build() returns None, because compare.py cannot describe modules, only results of the calls.
    holder = {}

    def build(lib):
        holder[lib.__name__] = make()

    assert_same_outcome(build, lambda _, lib: call(holder[lib.__name__], lib))


@pytest.mark.parametrize("num_threads", [0, 4])
def test_module_weights_round_trip_through_a_folder(num_threads):
    """Saves the weights of a model, loads and compares them, as a tutorial of tensordict does."""

    def call(_, lib):
        weights = lib.TensorDict.from_module(model()).data
        path = new_folder()
        on_disk = weights.memmap(path, num_threads=num_threads)
        loaded = lib.TensorDict.load_memmap(path)
        fresh = model()
        for parameter in fresh.parameters():
            parameter.data.zero_()
        with loaded.to_module(fresh):
            result = outputs(fresh)
        return [(weights == loaded).all(), on_disk.is_memmap(), sorted(loaded.keys()), result]

    assert_same_outcome(lambda lib: None, call)

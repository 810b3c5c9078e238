"""state_dict, load_state_dict, to_dict, from_dict, and copies through pickle and torch.save."""

import copy
import io
import pickle

import torch
from compare import assert_same_outcome
from fixtures import over

import tenfold

KINDS = (
    "nested_td", "deeper_nested_td", "td_with_names", "td_with_device", "locked_td",
    "td_with_non_tensor", "td_without_batch_size", "nested_stacked_td", "memmap_td",
)  # fmt: skip


def empty_like(td, lib):
    return lib.TensorDict({}, [])


def loaded(td, lib, state):
    made = empty_like(td, lib)
    made.load_state_dict(state, strict=False)
    return made


def saved(td):
    buffer = io.BytesIO()
    torch.save(td.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


CALLS = {
    "state_dict": lambda td, lib: td.state_dict(),
    "state_dict_flat": lambda td, lib: td.state_dict(flatten=True),
    "state_dict_keys": lambda td, lib: list(td.state_dict()),
    "state_dict_keep_vars": lambda td, lib: td.state_dict(keep_vars=True),
    "state_dict_prefix": lambda td, lib: list(td.state_dict(prefix="p.")),
    "load_state_dict": lambda td, lib: td.load_state_dict(td.clone().zero_().state_dict()),
    "load_state_dict_into_nothing": lambda td, lib: loaded(td, lib, td.state_dict()),
    "load_state_dict_assign": lambda td, lib: td.load_state_dict(
        td.clone().zero_().state_dict(), assign=True
    ),
    "load_state_dict_of_another": lambda td, lib: td.load_state_dict(
        lib.TensorDict({"q": torch.ones(4)}, [4]).state_dict()
    ),
    "load_state_dict_of_another_not_strict": lambda td, lib: td.load_state_dict(
        lib.TensorDict({"q": torch.ones(4)}, [4]).state_dict(), strict=False
    ),
    "load_state_dict_through_torch_save": lambda td, lib: loaded(td, lib, saved(td)),
    "to_dict": lambda td, lib: td.to_dict(),
    "to_dict_and_back": lambda td, lib: lib.TensorDict.from_dict(
        td.to_dict(), batch_size=td.batch_size
    ),
    "to_dict_types": lambda td, lib: [type(value) for value in td.to_dict().values()],
    "to_dict_convert": lambda td, lib: sorted(td.to_dict(convert_tensors=True)),
    "copy": lambda td, lib: copy.copy(td),
    "deepcopy": lambda td, lib: copy.deepcopy(td.clone()),
    "pickle": lambda td, lib: pickle.loads(pickle.dumps(td)),
    "to_tensordict": lambda td, lib: td.to_tensordict().to_dict(),
}  # fmt: skip


# tensordict tries to change the batch size of a lazy stack, and fails half-way.
NOT_STRICT = [("nested_stacked_td", "load_state_dict_of_another_not_strict")]


# If tensordict loads a non-tensor value into an empty tree, the result is an empty node. A test
# below checks that tenfold keeps the value.
LOST = [
    ("td_with_non_tensor", name)
    for name in ("load_state_dict_into_nothing", "load_state_dict_through_torch_save")
]


@over(KINDS, CALLS, skip=NOT_STRICT + LOST)
def test_state_dict_matches_tensordict(build, call):
    assert_same_outcome(build, call)


def test_values_round_trip_through_a_state_dict():
    td = tenfold.TensorDict({"n": {"text": tenfold.NonTensorData("kept", batch_size=[2])}}, [2])
    assert loaded(td, tenfold, td.state_dict())["n", "text"] == "kept"


def test_module_loads_the_dict_of_a_tensordict():
    """load_state_dict of a module accepts to_dict() of a TensorDict of either library."""

    def call(_, lib):
        torch.default_generator.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        state = lib.TensorDict(module.state_dict()).apply(torch.zeros_like)
        module.load_state_dict(state.to_dict())
        return [value for _, value in sorted(module.state_dict().items())]

    assert_same_outcome(lambda lib: None, call)

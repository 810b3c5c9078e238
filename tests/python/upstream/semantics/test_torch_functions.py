"""torch.* functions that take a TensorDict."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import over

KINDS = (
    "nested_td", "nested_tensorclass", "td_with_names", "td_with_non_tensor",
    "td_with_unbatched", "nested_stacked_td", "memmap_td",
)  # fmt: skip

CALLS = {
    "clone": lambda td, lib: torch.clone(td),
    "zeros_like": lambda td, lib: torch.zeros_like(td),
    "ones_like": lambda td, lib: torch.ones_like(td),
    "full_like": lambda td, lib: torch.full_like(td, 3.0),
    "empty_like": lambda td, lib: torch.empty_like(td).batch_size,
    "rand_like": lambda td, lib: torch.rand_like(td.float()).batch_size,
    "randn_like": lambda td, lib: torch.randn_like(td.float()).batch_size,
    "zeros_like_dtype": lambda td, lib: torch.zeros_like(td, dtype=torch.float64),
    "unbind": lambda td, lib: torch.unbind(td, 0),
    "unbind_1": lambda td, lib: torch.unbind(td, dim=1),
    "split": lambda td, lib: torch.split(td, 2),
    "split_sizes": lambda td, lib: torch.split(td, [1, 2], dim=1),
    "gather": lambda td, lib: torch.gather(td, 0, torch.zeros(2, 3, 2, 1, dtype=torch.int64)),
    "permute": lambda td, lib: torch.permute(td, (1, 0, 2, 3)),
    "squeeze": lambda td, lib: torch.squeeze(td),
    "squeeze_dim": lambda td, lib: torch.squeeze(td, -1),
    "unsqueeze": lambda td, lib: torch.unsqueeze(td, 1),
    "flatten": lambda td, lib: torch.flatten(td, 0, 1),
    "unflatten": lambda td, lib: torch.unflatten(td, 0, (2, 2)),
    "reshape": lambda td, lib: torch.reshape(td, (12, 2)),
    "where": lambda td, lib: torch.where(
        torch.ones(td.batch_size, dtype=torch.bool), td, td.clone().zero_()
    ),
    "sum": lambda td, lib: torch.sum(td),
    "sum_dim": lambda td, lib: torch.sum(td, 0),
    "mean": lambda td, lib: torch.mean(td.double(), 0),
    "var": lambda td, lib: torch.var(td.double(), dim=0),
    "std": lambda td, lib: torch.std(td.double(), dim=0),
    "clamp": lambda td, lib: torch.clamp(td, 0, 1),
    "roll": lambda td, lib: torch.roll(td, 1, 0).exclude("data"),
    "flip": lambda td, lib: torch.flip(td, [0]).exclude("data"),
    "is_tensor": lambda td, lib: torch.is_tensor(td),
    "is_tensor_collection": lambda td, lib: lib.is_tensor_collection(td),
    "is_tensorclass": lambda td, lib: lib.is_tensorclass(td),
    "no_such_function": lambda td, lib: torch.linalg.inv(td),
    "matmul": lambda td, lib: torch.matmul(td, td),
}  # fmt: skip


# tensordict raises, because the mask has more dimensions than the unbatched tensor.
NO_MASKS = [("td_with_unbatched", "where")]


@over(KINDS, CALLS, skip=NO_MASKS)
def test_torch_functions_match_tensordict(build, call):
    assert_same_outcome(build, call)


def test_data_loader_batches_match_tensordict():
    def build(lib):
        return lib.TensorDict({"x": torch.arange(10), "n": {"y": torch.arange(20).view(10, 2)}}, 10)

    def batches(td, lib):
        from torch.utils.data import DataLoader

        return list(DataLoader(td, batch_size=4, collate_fn=lambda batch: batch))

    assert_same_outcome(build, batches)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_unbind_and_stack_match_tensordict(dim):
    def build(lib):
        return lib.TensorDict({"x": torch.ones(3, 3, 3)}, [3, 3, 3])

    assert_same_outcome(build, lambda td, lib: torch.stack([t + 1 for t in td.unbind(dim)], dim))


def test_tree_map_maps_the_leaves():
    def build(lib):
        return lib.TensorDict({"x": torch.ones(3), "n": {"y": torch.zeros(3)}}, [3])

    def call(td, lib):
        from torch.utils._pytree import tree_map

        return tree_map(lambda x: x + 1, td)

    assert_same_outcome(build, call)

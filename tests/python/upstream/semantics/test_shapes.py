"""Reshaping, moving, splitting, repeating, expanding and naming batch dimensions."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import BATCH, STACKS, VARIED, numbers, over

SHAPES = {
    "expand_front": lambda td, lib: td.expand(5, *td.batch_size),
    "expand_size": lambda td, lib: td.expand(torch.Size([2, 5, *td.batch_size])),
    "expand_list": lambda td, lib: td.expand([5, *td.batch_size]),
    "expand_last": lambda td, lib: td.expand(4, 3, 2, 6),
    "expand_minus_one": lambda td, lib: td.expand(-1, -1, -1, 6),
    "expand_as": lambda td, lib: td.expand_as(td.expand(3, *td.batch_size)),
    "expand_invalid": lambda td, lib: td.expand(7, 3, 2, 1),
    "view": lambda td, lib: td.view(12, 2),
    "view_minus_one": lambda td, lib: td.view(-1),
    "view_size": lambda td, lib: td.view(torch.Size([6, 4])),
    "view_list": lambda td, lib: td.view([2, 2, 3, 2]),
    "view_same": lambda td, lib: td.view(td.batch_size),
    "view_invalid": lambda td, lib: td.view(5, 5),
    "view_two_minus_ones": lambda td, lib: td.view(-1, -1),
    "reshape": lambda td, lib: td.reshape(4, 6),
    "reshape_minus_one": lambda td, lib: td.reshape(-1),
    "reshape_size": lambda td, lib: td.reshape(torch.Size([2, -1])),
    "reshape_tuple": lambda td, lib: td.reshape((24,)),
    "reshape_permuted": lambda td, lib: td.permute(1, 0, 2, 3).reshape(-1),
    "reshape_invalid": lambda td, lib: td.reshape(7),
    "view_permuted": lambda td, lib: td.permute(1, 0, 2, 3).view(24),
    "flatten": lambda td, lib: td.flatten(),
    "flatten_some": lambda td, lib: td.flatten(0, 1),
    "flatten_negative": lambda td, lib: td.flatten(1, -1),
    "flatten_one": lambda td, lib: td.flatten(1, 1),
    "flatten_by_name": lambda td, lib: td.flatten(start_dim=1, end_dim=2),
    "unflatten": lambda td, lib: td.unflatten(0, (2, 2)),
    "unflatten_negative": lambda td, lib: td.unflatten(-1, [1, 1]),
    "unflatten_minus_one": lambda td, lib: td.unflatten(0, (2, -1)),
    "flatten_unflatten": lambda td, lib: td.flatten(0, 1).unflatten(0, (4, 3)),
    "unflatten_invalid": lambda td, lib: td.unflatten(0, (3, 2)),
    "permute": lambda td, lib: td.permute(3, 2, 1, 0),
    "permute_tuple": lambda td, lib: td.permute((1, 0, 3, 2)),
    "permute_dims": lambda td, lib: td.permute(dims=(1, 0, 3, 2)),
    "permute_negative": lambda td, lib: td.permute(0, -1, -2, 1),
    "permute_twice_the_same": lambda td, lib: td.permute(0, 0, 1, 2),
    "permute_out_of_range": lambda td, lib: td.permute(0, 1, 2, 9),
    "transpose": lambda td, lib: td.transpose(0, 1),
    "transpose_negative": lambda td, lib: td.transpose(0, -1),
    "transpose_same": lambda td, lib: td.transpose(1, 1),
    "transpose_out_of_range": lambda td, lib: td.transpose(0, 7),
    "squeeze": lambda td, lib: td.squeeze(),
    "movedim": lambda td, lib: td.movedim(0, 2),
    "movedim_two": lambda td, lib: td.movedim([0, -1], [1, 0]),
    "movedim_twice_the_same": lambda td, lib: td.movedim([0, -4], [0, 1]),
    "movedim_to_the_same": lambda td, lib: td.movedim([0, 1], [2, -2]),
    "movedim_too_few": lambda td, lib: td.movedim([0, 1], [0]),
    "movedim_out_of_range": lambda td, lib: td.movedim(0, 9),
    "squeeze_last": lambda td, lib: td.squeeze(-1),
    "squeeze_longer_dimension": lambda td, lib: td.squeeze(0),
    "squeeze_out_of_range": lambda td, lib: td.squeeze(9),
    "unsqueeze_first": lambda td, lib: td.unsqueeze(0),
    "unsqueeze_last": lambda td, lib: td.unsqueeze(-1),
    "unsqueeze_middle": lambda td, lib: td.unsqueeze(2),
    "unsqueeze_squeeze": lambda td, lib: td.unsqueeze(1).squeeze(1),
    "unsqueeze_out_of_range": lambda td, lib: td.unsqueeze(7),
    "unbind": lambda td, lib: td.unbind(0),
    "unbind_1": lambda td, lib: td.unbind(1),
    "unbind_2": lambda td, lib: td.unbind(2),
    "unbind_last": lambda td, lib: td.unbind(-1),
    "unbind_out_of_range": lambda td, lib: td.unbind(9),
    "split": lambda td, lib: td.split(2),
    "split_uneven": lambda td, lib: td.split(3, 0),
    "split_sizes": lambda td, lib: td.split([1, 3], 0),
    "split_dim_1": lambda td, lib: td.split([1, 2], dim=1),
    "split_negative_dim": lambda td, lib: td.split(1, -2),
    "split_larger_than_all": lambda td, lib: td.split(100),
    "split_wrong_sizes": lambda td, lib: td.split([1, 1], 0),
    "split_zero": lambda td, lib: td.split(0),
    "split_out_of_range": lambda td, lib: td.split(1, 9),
    "chunk": lambda td, lib: td.chunk(2),
    "chunk_uneven": lambda td, lib: td.chunk(3),
    "chunk_more_than_rows": lambda td, lib: td.chunk(7, 1),
    "chunk_dim_1": lambda td, lib: td.chunk(2, dim=1),
    "chunk_none": lambda td, lib: td.chunk(0),
    "gather": lambda td, lib: td.gather(0, torch.zeros(2, 3, 2, 1, dtype=torch.int64)),
    "gather_dim_1": lambda td, lib: td.gather(1, torch.ones(4, 2, 2, 1, dtype=torch.int64)),
    "gather_negative_dim": lambda td, lib: td.gather(-2, torch.ones(4, 3, 1, 1, dtype=torch.int64)),
    "repeat": lambda td, lib: td.repeat(2, 1, 1, 3),
    "repeat_size": lambda td, lib: td.repeat(torch.Size([1, 2, 1, 1])),
    "repeat_too_few": lambda td, lib: td.repeat(2),
    "repeat_interleave": lambda td, lib: td.repeat_interleave(2, dim=1),
}  # fmt: skip


FOUR_DIMS = (
    "nested_td", "idx_td", "nested_tensorclass", "td_with_names", "td_with_non_tensor",
    "td_with_unbatched", "memmap_td",
)  # fmt: skip


# In tensordict, the result of expand() on a locked TensorDict is locked, but that of expand_as() is
# not.
UNLOCKED = [("memmap_td", "expand_as")]


@over(FOUR_DIMS, SHAPES, skip=UNLOCKED)
def test_shape_operations_on_four_dimensions_match_tensordict(build, call):
    assert_same_outcome(build, call, memory=True)


@over(STACKS, SHAPES)
def test_shape_operations_on_a_lazy_stack_match_tensordict(build, call):
    assert_same_outcome(build, call)


ONE_DIM = {
    "expand": lambda td, lib: td.expand(5, 4),
    "view": lambda td, lib: td.view(2, 2),
    "view_same": lambda td, lib: td.view(4),
    "reshape": lambda td, lib: td.reshape(2, -1),
    "flatten": lambda td, lib: td.flatten(),
    "unflatten": lambda td, lib: td.unflatten(0, (2, 2)),
    "permute": lambda td, lib: td.permute(0),
    "squeeze": lambda td, lib: td.squeeze(),
    "unsqueeze": lambda td, lib: td.unsqueeze(0),
    "unsqueeze_last": lambda td, lib: td.unsqueeze(-1),
    "unbind": lambda td, lib: td.unbind(0),
    "split": lambda td, lib: td.split([1, 3]),
    "chunk": lambda td, lib: td.chunk(2),
    "gather": lambda td, lib: td.gather(0, torch.tensor([3, 0])),
    "repeat": lambda td, lib: td.repeat(2),
}


@over(["deeper_nested_td"], ONE_DIM)
def test_shape_operations_with_larger_child_batches_match_tensordict(build, call):
    assert_same_outcome(build, call)


NO_DIMS = {
    "expand": lambda td, lib: td.expand(3),
    "expand_two": lambda td, lib: td.expand(2, 3),
    "expand_to_no_dims": lambda td, lib: td.expand(torch.Size([])),
    "expand_as_a_number": lambda td, lib: td.expand_as(torch.tensor(0)),
    "view": lambda td, lib: td.view(1),
    "view_same": lambda td, lib: td.view(()),
    "reshape": lambda td, lib: td.reshape(1, 1),
    "squeeze": lambda td, lib: td.squeeze(),
    "unsqueeze": lambda td, lib: td.unsqueeze(0),
    "unsqueeze_last": lambda td, lib: td.unsqueeze(-1),
    "unbind": lambda td, lib: td.unbind(0),
    "split": lambda td, lib: td.split(1),
    "chunk": lambda td, lib: td.chunk(1),
    "gather": lambda td, lib: td.gather(0, torch.tensor([0])),
}


@pytest.mark.parametrize("call", NO_DIMS.values(), ids=NO_DIMS)
def test_shape_operations_without_batch_dimensions_match_tensordict(call):
    def build(lib):
        inner = lib.NonTensorData("text")
        return lib.TensorDict({"x": numbers(3), "s": torch.tensor(1.0), "n": {"text": inner}})

    assert_same_outcome(build, call)


BATCH_SIZES = {
    "smaller": lambda td, lib: setattr(td, "batch_size", [4]),
    "size": lambda td, lib: setattr(td, "batch_size", torch.Size([4, 3])),
    "tuple": lambda td, lib: setattr(td, "batch_size", (4, 3, 2)),
    "empty": lambda td, lib: setattr(td, "batch_size", []),
    "int": lambda td, lib: setattr(td, "batch_size", 4),
    "same": lambda td, lib: setattr(td, "batch_size", td.batch_size),
    "larger": lambda td, lib: setattr(td, "batch_size", [4, 3, 2, 1, 5]),
    "wrong": lambda td, lib: setattr(td, "batch_size", [3]),
    "wrong_inside": lambda td, lib: setattr(td, "batch_size", [4, 2]),
    "auto_batch_size_": lambda td, lib: td.auto_batch_size_(),
    "auto_batch_size_of_two": lambda td, lib: td.auto_batch_size_(2),
}


def nodes(*batch):
    """Returns a builder of nodes of batch size `batch`; shapes of all tensors begin with (3, 4)."""

    def build(lib):
        inner = lib.TensorDict({"d": torch.zeros(3, 4, 6)}, batch)
        node = lib.TensorDict({"c": torch.zeros(3, 4, 5), "m": inner}, batch)
        return lib.TensorDict({"a": torch.zeros(3, 4, 7), "n": node})

    return build


def value_of(batch):
    """Returns a builder of a tree with non-tensor values of batch size `batch` in both nodes."""

    def build(lib):
        values = [lib.NonTensorData("text", batch_size=batch) for _ in range(2)]
        node = lib.TensorDict({"c": torch.zeros(3, 4, 5), "v": values[0]}, batch[:1])
        return lib.TensorDict({"a": torch.zeros(3, 4, 7), "v": values[1], "n": node}, batch[:1])

    return build


def stack_below(lib):
    stack = lib.lazy_stack([lib.TensorDict({"x": torch.zeros(3, 4)}) for _ in range(2)])
    return lib.TensorDict({"a": torch.zeros(2, 3, 4), "s": stack})


@pytest.mark.parametrize("keep_compliant_size", [False, True])
@pytest.mark.parametrize("batch_dims", [None, 0, 1, 2, 3])
@pytest.mark.parametrize(
    "build",
    [nodes(), nodes(3), nodes(3, 4), stack_below, *map(value_of, [(), (3,), (3, 4), (3, 4, 5, 6)])],
)
def test_automatic_batch_sizes_match_tensordict(build, batch_dims, keep_compliant_size):
    def call(td, lib):
        return td.auto_batch_size_(batch_dims, keep_compliant_size=keep_compliant_size)

    assert_same_outcome(build, call)


@over([name for name in VARIED if name not in STACKS], BATCH_SIZES)
def test_setting_the_batch_size_matches_tensordict(build, call):
    assert_same_outcome(build, call)


NAMES = {
    "set_all": lambda td, lib: setattr(td, "names", list("abcd")),
    "set_some": lambda td, lib: setattr(td, "names", ["a", None, None, "d"]),
    "set_none": lambda td, lib: setattr(td, "names", None),
    "set_too_few": lambda td, lib: setattr(td, "names", ["a"]),
    "set_twice_the_same": lambda td, lib: setattr(td, "names", list("aabc")),
    "refine_names": lambda td, lib: td.refine_names(..., "x"),
    "rename": lambda td, lib: td.rename(*"abcd"),
    "rename_": lambda td, lib: td.rename_(*"abcd"),
    "rename_by_keyword": lambda td, lib: setattr(td, "names", list("abcd"))
    or td.rename(a="first"),
    "names_of_a_child": lambda td, lib: setattr(td, "names", list("abcd"))
    or td.set("new", lib.TensorDict({}, td.batch_size)).get("new").names,
    "transpose": lambda td, lib: setattr(td, "names", list("abcd")) or td.transpose(0, 2),
    "permute": lambda td, lib: setattr(td, "names", list("abcd")) or td.permute(3, 1, 0, 2),
    "unsqueeze": lambda td, lib: setattr(td, "names", list("abcd")) or td.unsqueeze(1),
    "squeeze": lambda td, lib: setattr(td, "names", list("abcd")) or td.squeeze(),
    "squeeze_dim": lambda td, lib: setattr(td, "names", list("abcd")) or td.squeeze(-1),
    "expand": lambda td, lib: setattr(td, "names", list("abcd")) or td.expand(2, *BATCH),
    "unbind": lambda td, lib: setattr(td, "names", list("abcd")) or td.unbind(1),
    "split": lambda td, lib: setattr(td, "names", list("abcd")) or td.split(2),
    "gather": lambda td, lib: setattr(td, "names", list("abcd"))
    or td.gather(0, torch.zeros(2, 3, 2, 1, dtype=torch.int64)),
    "flatten": lambda td, lib: setattr(td, "names", list("abcd")) or td.flatten(1, 2),
    "unflatten": lambda td, lib: setattr(td, "names", list("abcd")) or td.unflatten(0, (2, 2)),
    "view": lambda td, lib: setattr(td, "names", list("abcd")) or td.view(4, 6),
    "reshape": lambda td, lib: setattr(td, "names", list("abcd")) or td.reshape(12, 2),
    "clone": lambda td, lib: setattr(td, "names", list("abcd")) or td.clone(),
    "select": lambda td, lib: setattr(td, "names", list("abcd")) or td.select("a"),
    "sum": lambda td, lib: setattr(td, "names", list("abcd")) or td.sum(1),
    "apply": lambda td, lib: setattr(td, "names", list("abcd")) or td.apply(lambda x: x + 1),
    "add": lambda td, lib: setattr(td, "names", list("abcd")) or td + 1,
    "stack": lambda td, lib: setattr(td, "names", list("abcd")) or torch.stack([td, td], 1),
    "cat": lambda td, lib: setattr(td, "names", list("abcd")) or torch.cat([td, td], 1),
    "lazy_stack": lambda td, lib: setattr(td, "names", list("abcd")) or lib.lazy_stack([td, td], 1),
    "to_dtype": lambda td, lib: setattr(td, "names", list("abcd")) or td.to(torch.float64),
}  # fmt: skip


# The lazy stack of tensordict raises because its list of names is too short.
TOO_FEW = [("stacked_td", "set_too_few")]
# cat() and stack() of lazy stacks lose the name of the stack dimension in tensordict.
FORGOTTEN = [("stacked_td", "cat"), ("stacked_td", "stack")]


@over(["nested_td", "td_with_non_tensor", "stacked_td"], NAMES, skip=TOO_FEW + FORGOTTEN)
def test_dimension_names_match_tensordict(build, call):
    assert_same_outcome(build, call)

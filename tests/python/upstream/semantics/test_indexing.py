"""`td[index]` and `td[index] = value`: every kind of index, in and out of range."""

import numpy as np
import pytest
import torch
from compare import assert_same_outcome
from fixtures import DENSE, STACKS, VARIED, numbers, over

MASK_4 = torch.tensor([True, False, True, True])
MASK_3 = torch.tensor([False, True, True])
MASK_4_3 = torch.arange(12).reshape(4, 3) % 2 == 0

INDICES = {
    "int": 1,
    "zero": 0,
    "negative_int": -1,
    "most_negative_int": -4,
    "int_too_large": 4,
    "int_too_small": -5,
    "numpy_int": np.int64(1),
    "slice": slice(1, 3),
    "slice_all": slice(None),
    "slice_from": slice(2, None),
    "slice_to": slice(None, 2),
    "slice_with_a_step": slice(0, 4, 2),
    "slice_negative_ends": slice(-3, -1),
    "slice_beyond": slice(2, 100),
    "slice_empty": slice(3, 1),
    "slice_negative_step": slice(None, None, -1),
    "slice_zero_step": slice(None, None, 0),
    "ellipsis": ...,
    "none": None,
    "empty_tuple": (),
    "tuple_of_int": (1,),
    "ints": (1, 2),
    "all_ints": (3, 2, 1, 0),
    "too_many_ints": (0,) * 8,
    "int_too_large_in_dim_1": (0, 3),
    "slice_int": (slice(None), 1),
    "int_slice": (1, slice(0, 2)),
    "slices": (slice(1, 3), slice(None), slice(0, 1)),
    "ellipsis_int": (..., 0),
    "int_ellipsis": (0, ...),
    "int_ellipsis_int": (1, ..., 0),
    "slice_ellipsis_slice": (slice(1, 2), ..., slice(None)),
    "two_ellipses": (..., 0, ...),
    "none_int": (None, 1),
    "int_none": (1, None),
    "none_none": (None, None),
    "slice_none_int": (slice(None), None, 1),
    "ellipsis_none": (..., None),
    "none_ellipsis_none": (None, ..., None),
    "list": [0, 2],
    "list_repeated": [1, 1, 0],
    "list_negative": [-1, -4],
    "list_too_large": [0, 4],
    "list_empty": [],
    "list_of_bool": [True, False, True, False],
    "list_of_lists": [[0, 1], [2, 3]],
    "tuple_of_lists": ([0, 1], [1, 2]),
    "list_in_dim_1": (slice(None), [0, 2]),
    "int_and_list": (1, [0, 2]),
    "list_slice_list": ([0, 1], slice(None), [1, 0]),
    "range": range(2),
    "range_with_a_step": range(0, 4, 2),
    "range_negative_step": range(3, 0, -1),
    "range_in_dim_1": (slice(None), range(1, 3)),
    "tensor_0d": torch.tensor(2),
    "tensor_1d": torch.tensor([0, 3, 1]),
    "tensor_negative": torch.tensor([-1, 0]),
    "tensor_int32": torch.tensor([0, 3], dtype=torch.int32),
    "tensor_2d": torch.tensor([[0, 1], [2, 3], [0, 0]]),
    "tensor_empty": torch.empty(0, dtype=torch.int64),
    "tensor_too_large": torch.tensor([0, 9]),
    "tensor_of_floats": torch.tensor([0.0, 1.0]),
    "tensors": (torch.tensor([0, 1]), torch.tensor([2, 0])),
    "tensors_that_broadcast": (torch.tensor([[0], [1]]), torch.tensor([2, 0])),
    "tensors_that_do_not_broadcast": (torch.tensor([0, 1, 2]), torch.tensor([0, 1])),
    "tensor_slice_tensor": (torch.tensor([0, 1]), slice(None), torch.tensor([1, 0])),
    "tensor_and_int": (torch.tensor([0, 2]), 1),
    "int_and_tensor": (1, torch.tensor([0, 2, 1])),
    "tensor_none": (torch.tensor([0, 2]), None),
    "none_tensor": (None, torch.tensor([0, 2])),
    "slice_tensor": (slice(1, 3), torch.tensor([0, 2])),
    "ellipsis_tensor": (..., torch.tensor([0, 0, 0])),
    "array": np.array([0, 2]),
    "array_of_bool": np.array([True, False, False, True]),
    "array_in_dim_1": (slice(None), np.array([0, 2])),
    "mask": MASK_4,
    "mask_nothing": torch.zeros(4, dtype=torch.bool),
    "mask_2d": MASK_4_3,
    "mask_4d": torch.arange(24).reshape(4, 3, 2, 1) % 3 == 0,
    "mask_0d": torch.tensor(True),
    "mask_in_dim_1": (slice(None), MASK_3),
    "mask_int": (MASK_4, 1),
    "mask_slice": (MASK_4, slice(0, 2)),
    "mask_too_long": torch.ones(5, dtype=torch.bool),
    "mask_of_another_shape": torch.ones(4, 2, dtype=torch.bool),
    "mask_with_too_many_dims": torch.ones(4, 3, 2, 1, *[1] * 4, dtype=torch.bool),
    "float": 1.5,
    "object": object(),
}


def reads(indices):
    return {name: (lambda td, lib, i=index: td[i]) for name, index in indices.items()}


UNINDEXED = ("td", "idx_td", "td_with_device", "td_reset_bs", "locked_td", "td_with_empty_nodes")
INDEXED = [name for name in DENSE if name not in UNINDEXED]


@over(INDEXED, reads(INDICES))
def test_indexed_reads_match_tensordict(build, call):
    assert_same_outcome(build, call)


# If index tensors do not broadcast, tensordict raises another exception than torch. If there are
# index tensors before and after the stack dimension, tensordict returns a lazy stack, but tenfold
# returns a dense TensorDict.
INCONSISTENT = [
    ("nested_stacked_td", name)
    for name in ("tensors_that_do_not_broadcast", "list_slice_list", "tensor_slice_tensor")
]


@over(STACKS, reads(INDICES), skip=INCONSISTENT)
def test_indexed_reads_of_a_lazy_stack_match_tensordict(build, call):
    assert_same_outcome(build, call)


@over(["td", "memmap_td"], reads(INDICES))
def test_memory_sharing_of_indexed_reads_matches_tensordict(build, call):
    assert_same_outcome(build, call, memory=True)


WRITABLE = {
    name: INDICES[name]
    for name in (
        "int", "negative_int", "int_too_large", "slice", "slice_all", "slice_with_a_step",
        "ellipsis", "none", "ints", "too_many_ints", "slice_int", "int_ellipsis_int",
        "slice_none_int", "list", "list_repeated", "list_of_bool", "range", "tensor_1d",
        "tensor_2d", "tensors", "array", "mask", "mask_2d", "mask_in_dim_1", "mask_nothing",
    )
}  # fmt: skip


def writes():
    for name, index in WRITABLE.items():
        yield name, lambda td, lib, i=index: td.__setitem__(i, td[i].clone().zero_())


@over(["td", "deeper_nested_td", *INDEXED[2:], *STACKS], dict(writes()))
def test_indexed_writes_match_tensordict(build, call):
    assert_same_outcome(build, call)


VALUES = {
    "a_number": lambda td, lib: td.__setitem__(0, 1),
    "a_float": lambda td, lib: td.__setitem__(slice(0, 2), 2.5),
    "a_tensor": lambda td, lib: td.__setitem__(0, torch.tensor(3.0)),
    "a_dict": lambda td, lib: td.__setitem__(
        0, {key: torch.zeros_like(value) for key, value in td[0].items()}
    ),
    "a_td_that_broadcasts": lambda td, lib: td.__setitem__(slice(None), td[0].clone().zero_()),
    "a_td_of_another_batch_size": lambda td, lib: td.__setitem__(0, td[:2].clone()),
    "a_td_with_more_keys": lambda td, lib: td.__setitem__(
        0, td[0].clone().set("new", torch.ones(td[0].batch_size))
    ),
    "a_td_with_fewer_keys": lambda td, lib: td.__setitem__(0, td[0].select("a").clone().zero_()),
    "a_td_with_other_dtypes": lambda td, lib: td.__setitem__(0, td[0].select("a", "b").double()),
}


@over(["td", "nested_td", "td_with_names", "locked_td", "stacked_td"], VALUES)
def test_assignable_values_match_tensordict(build, call):
    assert_same_outcome(build, call)


ROWS = {
    "iterate": lambda td, lib: list(td),
    "iterate_0d": lambda td, lib: list(td[0]),
    "getitems": lambda td, lib: td.__getitems__([0, 1]),
    "index_twice": lambda td, lib: td[1:][0],
    "index_then_set_": lambda td, lib: td[0].set_("a", torch.zeros_like(td["a"][0])),
    "index_then_set": lambda td, lib: td[0].set("new", torch.zeros(td[0].batch_size)),
    "index_then_fill": lambda td, lib: td[1:3].zero_(),
    "copy_then_fill": lambda td, lib: td[[0, 1]].zero_(),
    "bool": lambda td, lib: bool(td),
    "get_item_of_a_row": lambda td, lib: td[0]["a"],
    "path_then_index": lambda td, lib: td[("a",)][0],
    "masked_select": lambda td, lib: td.masked_select(
        torch.ones(td.batch_size[:1], dtype=torch.bool)
    ),
    "masked_fill": lambda td, lib: td.masked_fill(torch.ones(td.batch_size, dtype=torch.bool), 2.0),
    "masked_fill_": lambda td, lib: td.masked_fill_(
        torch.ones(td.batch_size, dtype=torch.bool), 2.0
    ),
}


# tensordict raises, because the mask has more dimensions than the unbatched tensor.
NO_MASKS = [("td_with_unbatched", "masked_fill"), ("td_with_unbatched", "masked_fill_")]


@over(VARIED, ROWS, skip=NO_MASKS)
def test_row_functions_match_tensordict(build, call):
    assert_same_outcome(build, call)


@pytest.mark.parametrize("index", [0, slice(2), slice(0), [], torch.tensor([], dtype=torch.long)])
def test_indexing_without_rows_matches_tensordict(index):
    def build(lib):
        return lib.TensorDict({"x": numbers(0, 3), "n": {"y": numbers(0)}}, batch_size=[0])

    assert_same_outcome(build, lambda td, lib: td[index])


@pytest.mark.parametrize("index", [0, slice(1), None, ..., (), [0], torch.tensor([0])])
def test_indexing_without_batch_dimensions_matches_tensordict(index):
    assert_same_outcome(
        lambda lib: lib.TensorDict({"x": numbers(3), "s": "text"}), lambda td, lib: td[index]
    )


def node(lib, *_):
    inner = lib.TensorDict({"y": numbers(4, 3, 2)}, batch_size=[4, 3, 2])
    return lib.TensorDict({"x": numbers(4, 3), "n": inner}, batch_size=[4])


@pytest.mark.parametrize(
    "index",
    [1, slice(1, 3), [0, 2], None, ..., MASK_4, torch.tensor([[0, 1], [1, 0]]), (0, 0), (..., 1)],
    ids=repr,
)
def test_indexing_children_with_more_batch_dimensions_matches_tensordict(index):
    assert_same_outcome(node, lambda td, lib: td[index])


NAMED = ("int", "slice", "none", "ints", "slice_int", "ellipsis_int", "int_none", "none_none",
         "slice_none_int", "none_ellipsis_none", "list", "tensor_2d", "tensors", "tensor_and_int",
         "tensor_slice_tensor", "mask", "mask_2d", "mask_in_dim_1", "tensor_0d")  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_dimension_names_after_indexing_match_tensordict(name):
    def build(lib):
        names = ["a", "b", "c", "d"]
        return lib.TensorDict({"x": numbers(4, 3, 2, 1)}, batch_size=[4, 3, 2, 1], names=names)

    assert_same_outcome(build, lambda td, lib: td[INDICES[name]])


RAGGED = {
    "shapes": lambda lib: [lib.TensorDict({"x": numbers(2), "z": numbers(n)}) for n in (1, 2, 3)],
    "batches": lambda lib: [lib.TensorDict({"x": numbers(n, 2)}, [n]) for n in (1, 2, 3)],
    "keys": lambda lib: [lib.TensorDict({"x": numbers(2), k: numbers(2)}) for k in "aba"],
    "nested": lambda lib: [lib.TensorDict({"n": {"z": numbers(n)}}) for n in (1, 2, 3)],
}
NUMBERS = {"int": 7, "float": 2.5, "bool": True, "tensor": torch.tensor(7.0)}
ROWS = {
    "slice": slice(0, 2),
    "all": slice(None),
    "ellipsis": ...,
    "list": [2, 0],
    "mask": torch.tensor([True, False, True]),
    "no_row": torch.zeros(3, dtype=torch.bool),
    "int": 1,
}


@pytest.mark.parametrize("index", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("members", RAGGED.values(), ids=RAGGED)
def test_numbers_are_written_into_rows_of_different_shapes_as_in_tensordict(members, number, index):
    def call(stack, lib):
        stack[index] = number
        return stack.tensordicts

    assert_same_outcome(lambda lib: lib.lazy_stack(members(lib)), call)


@pytest.mark.parametrize("index", [(slice(0, 2), 0), (slice(None), [1, 0]), ([0, 2], [1, 0])])
@pytest.mark.parametrize("stack_dim", [0, 1])
def test_numbers_are_written_into_dims_of_ragged_members_as_in_tensordict(stack_dim, index):
    def build(lib):
        members = [lib.TensorDict({"z": numbers(3, n)}, [3]) for n in (1, 2, 3)]
        return lib.lazy_stack(members, stack_dim)

    def call(stack, lib):
        stack[index] = 7
        return stack.tensordicts

    assert_same_outcome(build, call)

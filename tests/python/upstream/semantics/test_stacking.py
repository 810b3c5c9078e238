"""stack, cat, lazy_stack, and calls on a LazyStackedTensorDict."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import numbers, over

PAIRS = {
    "stack": lambda td, lib: torch.stack([td, td.clone().zero_()]),
    "stack_dim_1": lambda td, lib: torch.stack([td, td.clone()], 1),
    "stack_last": lambda td, lib: torch.stack([td, td.clone()], -1),
    "stack_by_name": lambda td, lib: torch.stack((td, td.clone()), dim=0),
    "stack_of_one": lambda td, lib: torch.stack([td], 0),
    "stack_out_of_range": lambda td, lib: torch.stack([td, td], 9),
    "stack_of_the_library": lambda td, lib: lib.stack([td, td.clone()], 0),
    "stack_of_the_class": lambda td, lib: lib.TensorDict.stack([td, td.clone()], 1),
    "stack_out": lambda td, lib: torch.stack(
        [td, td.clone()], 0, out=td.expand(2, *td.batch_size).clone()
    ),
    "cat": lambda td, lib: torch.cat([td, td.clone().zero_()]),
    "cat_dim_1": lambda td, lib: torch.cat([td, td.clone()], 1),
    "cat_last": lambda td, lib: torch.cat([td, td.clone()], -1),
    "cat_of_three": lambda td, lib: torch.cat([td, td, td], dim=0),
    "cat_of_one": lambda td, lib: torch.cat([td]),
    "cat_of_unequal": lambda td, lib: torch.cat([td, td[:2]], 0),
    "cat_out_of_range": lambda td, lib: torch.cat([td, td], 9),
    "cat_of_the_class": lambda td, lib: lib.TensorDict.cat([td, td.clone()], 0),
    "cat_out": lambda td, lib: torch.cat([td, td], 0, out=torch.cat([td, td], 0).zero_()),
    "lazy_stack": lambda td, lib: lib.lazy_stack([td, td.clone().zero_()]),
    "lazy_stack_dim_1": lambda td, lib: lib.lazy_stack([td, td.clone()], 1),
    "lazy_stack_last": lambda td, lib: lib.lazy_stack([td, td.clone()], -1),
    "lazy_stack_out_of_range": lambda td, lib: lib.lazy_stack([td, td], 9),
    "lazy_stack_of_the_class": lambda td, lib: lib.LazyStackedTensorDict.lazy_stack([td, td], 0),
    "lazy_stack_constructor": lambda td, lib: lib.LazyStackedTensorDict(
        td, td.clone(), stack_dim=0
    ),
    "lazy_stack_of_one": lambda td, lib: lib.lazy_stack([td], 0),
    "lazy_stack_named": lambda td, lib: (
        lib.LazyStackedTensorDict(td, td.clone(), stack_dim=0, stack_dim_name="t").names
    ),
    "stack_then_unbind": lambda td, lib: torch.stack([td, td.clone().zero_()], 1).unbind(1),
    "lazy_stack_then_unbind": lambda td, lib: lib.lazy_stack([td, td.clone()], 1).unbind(1),
    "lazy_stack_then_stack": lambda td, lib: torch.stack(list(lib.lazy_stack([td, td], 0)), 0),
    "maybe_dense_stack": lambda td, lib: lib.LazyStackedTensorDict.maybe_dense_stack([td, td], 0),
}

KINDS = (
    "nested_td", "nested_tensorclass", "td_with_names", "locked_td", "td_with_non_tensor",
    "td_with_unbatched", "nested_stacked_td", "memmap_td",
)  # fmt: skip


# For a partly mapped stack, is_memmap() of tensordict raises an error.
MIXED = [
    ("memmap_td", name)
    for name in ("lazy_stack", "lazy_stack_dim_1", "lazy_stack_last", "lazy_stack_constructor")
]


@over(KINDS, PAIRS, skip=MIXED)
def test_stack_and_cat_match_tensordict(build, call):
    assert_same_outcome(build, call)


def two(lib):
    """Returns two TensorDicts that differ in keys and in the shape of an entry."""
    first = lib.TensorDict({"x": numbers(3), "y": numbers(3, 2), "n": {"z": numbers(3)}}, [3])
    second = lib.TensorDict({"x": numbers(3, start=3), "y": numbers(3, 4)}, [3])
    return [first, second]


UNEQUAL = {
    "stack": lambda parts, lib: torch.stack(parts),
    "cat": lambda parts, lib: torch.cat(parts),
    "lazy_stack": lambda parts, lib: lib.lazy_stack(parts),
    "lazy_stack_dim_1": lambda parts, lib: lib.lazy_stack(parts, 1),
    "maybe_dense_stack": lambda parts, lib: lib.LazyStackedTensorDict.maybe_dense_stack(parts),
    "stack_other_batch_size": lambda parts, lib: torch.stack([parts[0], parts[1][:2]]),
    "lazy_stack_other_batch_size": lambda parts, lib: lib.lazy_stack([parts[0], parts[1][:2]]),
    "stack_nothing": lambda parts, lib: torch.stack([]),
    "lazy_stack_nothing": lambda parts, lib: lib.lazy_stack([]),
}


@pytest.mark.parametrize("call", UNEQUAL.values(), ids=UNEQUAL)
def test_stack_and_cat_of_different_keys_match_tensordict(call):
    assert_same_outcome(two, call)


def ragged(lib):
    return lib.lazy_stack(two(lib), 0)


LAZY = {
    "keys": lambda td, lib: sorted(td.keys()),
    "keys_nested": lambda td, lib: sorted(td.keys(True, True), key=str),
    "get_common": lambda td, lib: td.get("x"),
    "getitem_common": lambda td, lib: td["x"],
    "get_ragged": lambda td, lib: td.get("y"),
    "get_ragged_as_list": lambda td, lib: td.get("y", as_list=True),
    "get_missing_in_one": lambda td, lib: td.get("n", None),
    "getitem_missing_in_one": lambda td, lib: td["n"],
    "contains": lambda td, lib: ["x" in td.keys(), "n" in td.keys()],  # noqa: SIM118
    "index": lambda td, lib: td[0],
    "index_slice": lambda td, lib: td[:1],
    "index_list": lambda td, lib: td[[1, 0]],
    "index_inner": lambda td, lib: td[:, 1],
    "index_mask": lambda td, lib: td[torch.tensor([True, False])],
    "index_both": lambda td, lib: td[1, 2],
    "index_none": lambda td, lib: td[None],
    "set": lambda td, lib: td.set("new", torch.ones(2, 3)),
    "set_wrong_shape": lambda td, lib: td.set("new", torch.ones(5)),
    "set_": lambda td, lib: td.set_("x", torch.ones(2, 3)),
    "setitem_row": lambda td, lib: td.__setitem__(0, td[0].clone().zero_()),
    "setitem_row_with_other_keys": lambda td, lib: td.__setitem__(0, td[1].clone()),
    "setitem_none": lambda td, lib: td.__setitem__(None, td[None].clone().zero_()),
    "update": lambda td, lib: td.update({"x": torch.ones(2, 3)}),
    "update_ragged": lambda td, lib: td.update(td.clone().zero_()),
    "update_": lambda td, lib: td.update_({"x": torch.ones(2, 3)}),
    "del": lambda td, lib: td.del_("x"),
    "pop": lambda td, lib: td.pop("x"),
    "rename": lambda td, lib: td.rename_key_("x", "z"),
    "select": lambda td, lib: td.select("x"),
    "exclude": lambda td, lib: td.exclude("y"),
    "clone": lambda td, lib: td.clone(),
    "clone_shallow": lambda td, lib: td.clone(False),
    "apply": lambda td, lib: td.apply(lambda x: x + 1),
    "add": lambda td, lib: td + 1,
    "eq": lambda td, lib: td == td.clone(),
    "eq_all": lambda td, lib: (td == td.clone()).all(),
    "to": lambda td, lib: td.to(torch.float64),
    "unbind": lambda td, lib: td.unbind(0),
    "unbind_inner": lambda td, lib: td.unbind(1),
    "split": lambda td, lib: td.split(1),
    "insert": lambda td, lib: td.insert(0, td[0].clone()),
    "insert_at_the_end": lambda td, lib: td.insert(2, td[0].clone()),
    "append": lambda td, lib: td.append(td[1].clone()),
    "append_another_batch_size": lambda td, lib: td.append(td[1][:2]),
    "lock": lambda td, lib: td.lock_(),
    "unsqueeze": lambda td, lib: td.unsqueeze(0),
    "permute": lambda td, lib: td.permute(1, 0),
    "transpose": lambda td, lib: td.transpose(0, 1),
    "expand": lambda td, lib: td.expand(4, 2, 3),
    "reshape": lambda td, lib: td.reshape(6),
    "contiguous": lambda td, lib: td.contiguous(),
    "to_dict": lambda td, lib: td.to_dict(),
    "stack_dim": lambda td, lib: [td.stack_dim, len(td.tensordicts)],
    "names": lambda td, lib: setattr(td, "names", ["a", "b"]) or td,
    "cat": lambda td, lib: torch.cat([td, td], 0),
    "flatten_keys": lambda td, lib: td.flatten_keys("."),
    "is_empty": lambda td, lib: td.is_empty(),
    "batch_size": lambda td, lib: setattr(td, "batch_size", [2]),
    "repr": lambda td, lib: repr(td),
    "zero_": lambda td, lib: td.zero_(),
}


@pytest.mark.parametrize("call", LAZY.values(), ids=LAZY)
def test_lazy_stack_of_different_members_matches_tensordict(call):
    assert_same_outcome(ragged, call)


def equal(lib):
    parts = [
        lib.TensorDict({"x": numbers(3, start=i), "n": {"y": numbers(3, 2, start=i)}}, [3])
        for i in range(2)
    ]
    return lib.lazy_stack(parts, 0)


@pytest.mark.parametrize("call", LAZY.values(), ids=LAZY)
def test_lazy_stack_of_equal_members_matches_tensordict(call):
    assert_same_outcome(equal, call)


def test_lazy_stack_of_lazy_stacks_matches_tensordict():
    def build(lib):
        return lib.lazy_stack([equal(lib), equal(lib)], 0)

    assert_same_outcome(build, lambda td, lib: [td, td["x"], td["n", "y"], td[1, 1], td[..., 0]])


def test_changed_member_is_visible_in_the_lazy_stack():
    def change(td, lib):
        td.tensordicts[0]["x"].zero_()
        td[1]["x"].fill_(5)
        return td["x"]

    assert_same_outcome(equal, change)


def test_lazy_stack_of_tensorclasses_matches_tensordict():
    from fixtures import my_class

    def build(lib):
        cls = my_class(lib)
        return lib.lazy_stack([cls(x=numbers(3, start=i), z="z", batch_size=[3]) for i in (0, 1)])

    assert_same_outcome(build, lambda tc, lib: [tc.x, tc[0], tc[:, 1].x, tc.batch_size, tc.z])

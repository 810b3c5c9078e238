"""Stacks and concatenations of tensorclass objects, compared with tensordict."""

from __future__ import annotations

import pytest
import torch
from classes import Sample, classes, plain, sample, table

import tenfold

tensordict = pytest.importorskip("tensordict")
from compare import assert_same_outcome  # noqa: E402


def two(lib):
    return [plain(lib), plain(lib).replace(label="b")]


def of_different_shapes(lib):
    cls = classes(lib).Plain
    return [cls(torch.zeros(2, n), label=str(n), batch_size=[2]) for n in (1, 3)]


CASES = {
    "stack": lambda os, lib: torch.stack(os),
    "stack_last": lambda os, lib: torch.stack(os, -1),
    "stack_of_the_library": lambda os, lib: lib.stack(os),
    "stack_of_the_class": lambda os, lib: type(os[0]).stack(os),
    "cat": lambda os, lib: torch.cat(os),
    "cat_of_the_class": lambda os, lib: type(os[0]).cat(os),
    "stack_differing_fields": lambda os, lib: torch.stack([os[0], os[1].exclude("x")]),
    "lazy_stack_then_index": lambda os, lib: [lib.lazy_stack(os)[0], lib.lazy_stack(os)[:, 1]],
    "lazy_stack_of_the_class": lambda os, lib: type(os[0]).lazy_stack(os)[1],
    "lazy_stack_fields": lambda os, lib: [lib.lazy_stack(os).x, lib.lazy_stack(os).label],
    "lazy_stack_unbind": lambda os, lib: lib.lazy_stack(os, 1).unbind(1),
    "lazy_stack_below": lambda os, lib: lib.lazy_stack([lib.TensorDict({"o": o}, [4]) for o in os])[
        "o"
    ][0],
    "maybe_dense_stack": lambda os, lib: lib.maybe_dense_stack(os),
    "stack_of_trees": lambda os, lib: torch.stack([lib.TensorDict({"o": o}, [4]) for o in os]),
}


@table(CASES)
def test_stack_and_cat_match_tensordict(call):
    assert_same_outcome(two, call)


LAZY = {
    "rows": lambda os, lib: list(lib.lazy_stack(os)),
    "values": lambda os, lib: lib.lazy_stack(os).label,
    "uneven_tensors": lambda os, lib: lib.lazy_stack(os).x,
    "uneven_tensors_as_a_list": lambda os, lib: lib.lazy_stack(os).get("x", as_list=True),
    "maybe_dense": lambda os, lib: list(lib.maybe_dense_stack(os)),
    "clone": lambda os, lib: list(lib.lazy_stack(os).clone()),
    "dense": lambda os, lib: torch.stack(os),
}


@table(LAZY)
def test_stacks_of_different_shapes_match_tensordict(call):
    assert_same_outcome(of_different_shapes, call)


def test_lazy_stack_has_the_class_and_keeps_its_members():
    members = [sample(2), sample(2, label="b")]
    stack = tenfold.lazy_stack(members)
    assert type(stack) is Sample
    assert type(stack._tensordict) is tenfold.LazyStackedTensorDict
    stack[0].x.zero_()
    assert not members[0].x.any()


def test_field_missing_in_some_members_is_a_list():
    stack = tenfold.lazy_stack([sample(2), sample(2, inner=sample(2))])
    assert stack.inner[0] is None
    assert type(stack.inner[1]) is Sample


def test_post_init_runs_on_each_member_of_a_lazy_stack():
    def rows(lib):
        cls = classes(lib).Counting
        return [row.x.tolist() for row in lib.lazy_stack([cls(torch.zeros(n)) for n in (1, 2)])]

    # `__post_init__` adds 1 three times: when the member, the stack and the row are constructed.
    assert rows(tenfold) == rows(tensordict) == [[3], [3, 3]]

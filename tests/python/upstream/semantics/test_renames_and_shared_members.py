"""Cases found by random programs: renames to a parent or descendant, members shared by stacks."""

from __future__ import annotations

import pytest
import torch
from compare import assert_same_outcome


def tree(library):
    return library.TensorDict({"n": {"i": torch.zeros(2), "k": torch.ones(2)}, "z": torch.ones(1)})


@pytest.mark.parametrize(
    ("old", "new"),
    [(("n", "i"), "n"), ("n", ("n", "j")), (("n", "i"), ("n", "i", "j")), ("z", ("n", "z"))],
    ids=str,
)
def test_rename_of_an_entry_within_its_own_path_matches_tensordict(old, new):
    assert_same_outcome(tree, lambda td, library: td.rename_key_(old, new))


def ragged(library):
    members = [
        library.TensorDict({"a": torch.zeros(3)}, batch_size=[3]),
        library.TensorDict({"a": torch.ones(3), "only": torch.arange(3) + 1}, batch_size=[3]),
    ]
    return library.lazy_stack(members, 1)


INDICES = {
    "positions": [0, 1],
    "the same twice": [0, 0],
    "two dimensions": torch.tensor([[0], [1]]),
    "mask": torch.tensor([True, False, True]),
    "of members": (slice(None), [1, 0]),
    "of both": ([0, 1], [1, 0]),
    "mask of both": torch.tensor([[True, False], [False, True], [True, True]]),
}


@pytest.mark.parametrize("index", INDICES)
def test_row_assignment_with_keys_of_some_members_matches_tensordict(index):
    where = INDICES[index]

    def call(stack, library):
        stack[where] = stack[where].clone().zero_()
        return list(stack.tensordicts)

    assert_same_outcome(ragged, call)


def test_renaming_in_a_stack_keeps_the_memory():
    assert_same_outcome(ragged, lambda stack, library: stack.rename_key_("a", "b"), memory=True)


def test_stacks_of_one_member_twice_rename_it_once():
    assert_same_outcome(ragged, lambda stack, library: stack[:, [0, 0]].rename_key_("a", "b"))


@pytest.mark.parametrize("other", [{}, {"n": {}}], ids=str)
def test_updates_of_another_batch_size_are_refused_even_if_empty(other):
    def of(library):
        return library.TensorDict({"a": torch.zeros(2, 3)}, batch_size=[2, 3])

    assert_same_outcome(of, lambda td, library: td.update(library.TensorDict(other, [3])))


LOCKS = {
    "another stack of the members": lambda stack, other: (other.lock_(), stack.is_locked),
    "unlocked by it": lambda stack, other: (other.lock_(), stack.unlock_()),
    "unlocked again": lambda stack, other: (other.lock_(), other.unlock_(), stack.is_locked),
    "members one by one": lambda stack, other: (
        [member.lock_() for member in stack.tensordicts],
        stack.is_locked,
        other.is_locked,
    ),
    "one member": lambda stack, other: (stack.tensordicts[0].lock_(), stack.is_locked),
    "set in it": lambda stack, other: (other.lock_(), stack.set("new", torch.zeros(3, 2))),
    "unbound": lambda stack, other: [part.is_locked for part in stack.lock_().unbind(0)],
    "joined": lambda stack, other: torch.cat([stack.lock_(), stack.clone()], 1).is_locked,
}


@pytest.mark.parametrize("what", LOCKS)
def test_stacks_that_share_members_share_locks(what):
    def call(stack, library):
        return LOCKS[what](stack, library.lazy_stack(list(stack.tensordicts), 0))

    assert_same_outcome(ragged, call)


def test_flatten_keys_of_nested_stacks_with_different_keys_matches_tensordict():
    def call(stack, library):
        whole = library.lazy_stack([stack, stack.clone()], 0)
        return whole.flatten_keys("|"), whole.unflatten_keys("|")

    assert_same_outcome(ragged, call)


@pytest.mark.parametrize(
    ("shape", "stack_dim", "new"),
    [((2, 3), 0, (1, 2, 3)), ((2, 1), 0, (2,)), ((4, 3), 1, (2, 2, 3)), ((8, 3), 0, (2, 2, 2, 3))],
    ids=str,
)
def test_stack_dim_of_a_reshaped_stack_matches_tensordict(shape, stack_dim, new):
    inner = [n for dim, n in enumerate(shape) if dim != stack_dim]

    def of(library):
        members = [
            library.TensorDict({"a": torch.full(inner, float(i))}, batch_size=inner)
            for i in range(shape[stack_dim])
        ]
        return library.lazy_stack(members, stack_dim)

    assert_same_outcome(of, lambda stack, library: stack.reshape(new))

"""Calls on a locked TensorDict; effects of locks on parents, children, views and stacks."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import numbers, over


def ones(td):
    return torch.ones(td.batch_size)


LOCKED = {
    "set_new": lambda td, lib: td.set("new", ones(td)),
    "set_known": lambda td, lib: td.set("a", ones(td)),
    "set_inplace": lambda td, lib: td.set("a", torch.zeros_like(td["a"]), inplace=True),
    "set_": lambda td, lib: td.set_("a", torch.zeros_like(td["a"])),
    "set_missing": lambda td, lib: td.set_("zz", ones(td)),
    "set_at_": lambda td, lib: td.set_at_("a", 0.0, 0),
    "setitem": lambda td, lib: td.__setitem__("new", ones(td)),
    "setitem_row": lambda td, lib: td.__setitem__(0, td[0].clone().zero_()),
    "del": lambda td, lib: td.__delitem__("a"),
    "pop": lambda td, lib: td.pop("a"),
    "pop_missing": lambda td, lib: td.pop("zz", None),
    "rename": lambda td, lib: td.rename_key_("a", "z"),
    "update": lambda td, lib: td.update({"a": ones(td)}),
    "update_inplace": lambda td, lib: td.update({"a": torch.zeros_like(td["a"])}, inplace=True),
    "update_": lambda td, lib: td.update_({"a": torch.zeros_like(td["a"])}),
    "update_with_nothing": lambda td, lib: td.update({}),
    "select_inplace": lambda td, lib: td.select("a", inplace=True),
    "exclude_inplace": lambda td, lib: td.exclude("a", inplace=True),
    "flatten_keys_inplace": lambda td, lib: td.flatten_keys(inplace=True),
    "setdefault_known": lambda td, lib: td.setdefault("a", ones(td)),
    "setdefault_new": lambda td, lib: td.setdefault("new", ones(td)),
    "zero_": lambda td, lib: td.zero_(),
    "fill_": lambda td, lib: td.fill_("a", 1.0),
    "apply_": lambda td, lib: td.apply_(lambda x: x.zero_()),
    "batch_size": lambda td, lib: setattr(td, "batch_size", [4]),
    "names": lambda td, lib: setattr(td, "names", list("abcd")),
    "requires_grad_": lambda td, lib: td.select("a", "b").lock_().requires_grad_(),
    "clear": lambda td, lib: td.clear(),
    "popitem": lambda td, lib: td.popitem(),
    "unlock_": lambda td, lib: td.unlock_(),
    "lock_again": lambda td, lib: td.lock_(),
    "lock_unlock_set": lambda td, lib: td.unlock_().set("new", ones(td)),
    "unlocked_within": lambda td, lib: set_within(td),
    "is_locked_setter": lambda td, lib: setattr(td, "is_locked", False),
    # results of methods
    "clone": lambda td, lib: td.clone(),
    "clone_shallow": lambda td, lib: td.clone(False),
    "copy": lambda td, lib: td.copy(),
    "select": lambda td, lib: td.select("a"),
    "exclude": lambda td, lib: td.exclude("a"),
    "flatten_keys": lambda td, lib: td.flatten_keys(),
    "index": lambda td, lib: td[0],
    "index_list": lambda td, lib: td[[0]],
    "view": lambda td, lib: td.view(-1),
    "reshape": lambda td, lib: td.reshape(-1),
    "permute": lambda td, lib: td.permute(1, 0, 2, 3),
    "expand": lambda td, lib: td.expand(2, *td.batch_size),
    "unbind": lambda td, lib: td.unbind(0),
    "split": lambda td, lib: td.split(2),
    "apply": lambda td, lib: td.apply(lambda x: x + 1),
    "add": lambda td, lib: td + 1,
    "to": lambda td, lib: td.to(torch.float64),
    "to_the_same": lambda td, lib: td.to("cpu"),
    "empty": lambda td, lib: td.empty(),
    "replace": lambda td, lib: td.replace(new=ones(td)),
    "detach": lambda td, lib: td.detach(),
    "squeeze": lambda td, lib: td.squeeze(-1),
    "unsqueeze": lambda td, lib: td.unsqueeze(0),
    "stack": lambda td, lib: torch.stack([td, td]),
    "cat": lambda td, lib: torch.cat([td, td]),
    "lazy_stack": lambda td, lib: lib.lazy_stack([td, td]),
}  # fmt: skip


def set_within(td):
    with td.unlock_() as unlocked:
        unlocked["new"] = ones(td)
    return td.is_locked


def locked(lib):
    inner = {"x": numbers(4, 3, 2, 1), "deep": {"y": numbers(4, 3, 2, 1)}}
    entries = {"a": numbers(4, 3, 2, 1), "b": numbers(4, 3, 2, 1, 2), "n": inner}
    return lib.TensorDict(entries, batch_size=[4, 3, 2, 1]).lock_()


@pytest.mark.parametrize("call", LOCKED.values(), ids=LOCKED)
def test_locked_tensordict_matches_tensordict(call):
    assert_same_outcome(locked, call)


@over(["memmap_td"], LOCKED)
def test_calls_on_a_mapped_tensordict_match_tensordict(build, call):
    assert_same_outcome(build, call)


# In tensordict, the results of these calls on a lazy stack are locked for some dimensions only.
BY_CHANCE = ("unbind", "cat")


@pytest.mark.parametrize("name", [name for name in LOCKED if name not in BY_CHANCE])
def test_locked_lazy_stack_matches_tensordict(name):
    def build(lib):
        parts = [
            lib.TensorDict({"a": numbers(4, 2, 1), "b": numbers(4, 2, 1), "n": {}}, [4, 2, 1])
            for _ in range(3)
        ]
        return lib.lazy_stack(parts, 1).lock_()

    assert_same_outcome(build, LOCKED[name])


CHILDREN = {
    "child_is_locked": lambda td, lib: [td["n"].is_locked, td["n", "deep"].is_locked],
    "unlock_a_child": lambda td, lib: td["n"].unlock_(),
    "set_in_a_child": lambda td, lib: td.set(("n", "new"), ones(td)),
    "set_in_a_child_itself": lambda td, lib: td["n"].set("new", ones(td)),
    "set_in_place_in_a_child": lambda td, lib: td.set_(("n", "x"), ones(td)),
    "del_in_a_child": lambda td, lib: td.__delitem__(("n", "x")),
    "unlock_both": lambda td, lib: td.unlock_()["n", "deep"].is_locked,
    "unlock_then_the_child": lambda td, lib: td.unlock_()["n"].set("new", ones(td)),
    "a_child_locked_alone": lambda td, lib: [td.unlock_()["n"].lock_(), td.is_locked],
    "set_next_to_a_locked_child": lambda td, lib: [
        td.unlock_()["n"].lock_(),
        td.set("new", ones(td)),
    ],
    "set_below_a_locked_child": lambda td, lib: [
        td.unlock_()["n"].lock_(),
        td.set(("n", "new"), ones(td)),
    ],
    "lock_over_a_locked_child": lambda td, lib: [td.unlock_()["n"].lock_(), td.lock_().unlock_()],
    "shared_by_two_parents": lambda td, lib: shared_by_two_parents(td, lib),
    "clone_of_a_child": lambda td, lib: td["n"].clone().set("new", ones(td)),
}


def shared_by_two_parents(td, lib):
    child = td.unlock_()["n"]
    other = lib.TensorDict({"n": child}, child.batch_size).lock_()
    return [child.is_locked, td.is_locked, other.is_locked]


@pytest.mark.parametrize("call", CHILDREN.values(), ids=CHILDREN)
def test_locking_of_children_matches_tensordict(call):
    assert_same_outcome(locked, call)


def test_child_lock_matches_tensordict_after_one_parent_is_deleted_and_the_other_unlocked():
    def build(lib):
        child = lib.TensorDict({"x": numbers(3)}, [3])
        return [lib.TensorDict({"n": child}, [3]).lock_() for _ in range(2)] + [child]

    def unlock_the_first(tds, lib):
        del tds[1]
        tds[0].unlock_()
        return tds[1].is_locked

    assert_same_outcome(build, unlock_the_first)


def test_parent_stays_locked_while_another_locked_parent_shares_its_child():
    def build(lib):
        child = lib.TensorDict({"x": numbers(3)}, [3])
        return [*(lib.TensorDict({"n": child}, [3]).lock_() for _ in range(2)), child]

    def unlock_the_first(tds, lib):
        with pytest.raises(RuntimeError):
            tds[0].unlock_()
        return [td.is_locked for td in tds]

    assert_same_outcome(build, unlock_the_first)

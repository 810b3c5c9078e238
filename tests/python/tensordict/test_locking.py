import pickle

import pytest
import torch

import tenfold
from tenfold import TensorDict

LOCKED = "Cannot modify locked TensorDict"


def tree():
    return TensorDict({"a": torch.zeros(2), "b": {"c": torch.ones(2)}}, [2])


def test_locked_tree_allows_in_place_changes_only():
    td = tree().lock_()
    for change in (
        lambda: td.set("new", torch.zeros(2)),
        lambda: td.pop("a"),
        lambda: td["b"].set("new", torch.zeros(2)),
        lambda: td.rename_key_("a", "z"),
    ):
        with pytest.raises(RuntimeError, match=LOCKED):
            change()
    td.set_("a", torch.ones(2))
    assert td["a"].sum() == 2


@pytest.mark.parametrize("locked", ["old", "new"])
def test_a_key_of_a_locked_node_is_not_renamed(locked):
    def make():
        return TensorDict({"old": {"a": torch.zeros(2)}, "new": {}}, [2])

    td, stack = make(), tenfold.lazy_stack([make(), make()])
    td[locked].lock_()
    stack[1][locked].lock_()
    for changed in (td, stack):
        with pytest.raises(RuntimeError, match=LOCKED):
            changed.rename_key_(("old", "a"), ("new", "a"))
    for node in (td, *stack.tensordicts):
        assert node.keys(True, True) == [("old", "a")]


def test_child_of_a_locked_tree_is_unlocked_only_with_its_parent():
    td = tree().lock_()
    with pytest.raises(RuntimeError, match="part of a locked TensorDict"):
        td["b"].unlock_()
    td.unlock_()
    assert not td["b"].is_locked


def test_with_block_restores_the_lock_state():
    td = tree()
    with td.lock_():
        assert td.is_locked
    with td.lock_().unlock_():
        assert not td.is_locked
    assert td.is_locked


def test_lock_of_an_outer_tree_keeps_a_tree_mapped(tmp_path):
    mapped = TensorDict({"a": torch.zeros(2), "b": {"s": "old"}, "s": "old"}, [2])
    mapped.memmap_(tmp_path / "p")
    outer = TensorDict({"m": mapped})
    outer.lock_()
    assert mapped.is_memmap()
    assert mapped["b"].is_memmap()
    assert not outer.is_memmap()
    assert mapped.saved_path == tmp_path / "p"
    mapped.set_("s", "new")
    mapped.set_(("b", "s"), "newer")
    found = TensorDict.load_memmap(tmp_path / "p")
    assert (found["s"], found["b", "s"]) == ("new", "newer")
    mapped.memmap_refresh_()
    with pytest.raises(RuntimeError, match="part of a locked TensorDict"):
        mapped.unlock_()
    outer.unlock_()
    assert not mapped.is_locked
    assert not mapped.is_memmap()
    assert not mapped["b"].is_memmap()


def opened(path):
    tree().save(path)
    return tenfold.open(path)


def loaded(path):
    tree().memmap(path)
    return TensorDict.load_memmap(path)


def consolidated(path):
    tree().consolidate(path)
    return TensorDict.from_consolidated(path).unlock_()


def stacked(path):
    tenfold.lazy_stack([tree(), tree()]).save(path)
    return tenfold.open(path)


@pytest.mark.parametrize("make", [lambda path: tree(), opened, loaded, consolidated, stacked])
def test_pickles_keep_the_lock(make, tmp_path):
    td = make(tmp_path / "p")
    assert not pickle.loads(pickle.dumps(td)).is_locked
    td.lock_()
    again = pickle.loads(pickle.dumps(td))
    assert again.is_locked
    assert again.is_memmap() == td.is_memmap()
    with pytest.raises(RuntimeError, match=LOCKED):
        again.set("new", torch.zeros(again.batch_size))
    assert td["b"].is_locked
    assert pickle.loads(pickle.dumps(td["b"])).is_locked
    assert again["b"].is_locked


def test_with_blocks_on_one_tree_may_be_nested(tmp_path):
    td = tree()
    with td.lock_():
        with td.lock_():
            pass
        assert td.is_locked
    assert not td.is_locked
    td.save(tmp_path / "p.tdz")
    with tenfold.open(tmp_path / "p.tdz", mode="r+") as found:
        found.lock_()
        found["a"].fill_(5)
    with pytest.raises(ValueError, match="closed"):
        found._disk.node  # noqa: B018
    assert tenfold.load(tmp_path / "p.tdz")["a"].tolist() == [5, 5]


def test_a_node_at_two_places_is_unlocked_with_the_outermost_tree():
    node = TensorDict({"x": 1})
    td = TensorDict({"a": node, "b": {"c": node}}).lock_()
    assert not td.unlock_().is_locked
    assert not node.is_locked
    assert not td["b"].is_locked
    outside = TensorDict({"n": node}).lock_()
    with pytest.raises(RuntimeError, match="part of a locked TensorDict"):
        td.lock_().unlock_()
    assert outside["n"].is_locked


CHANGES = {
    "set": lambda stack: stack.set("new", torch.zeros(stack.batch_size)),
    "replace": lambda stack: stack.set("a", torch.zeros(stack.batch_size)),
    "delete": lambda stack: stack.del_("a"),
    "clear": lambda stack: stack.clear(),
    "select": lambda stack: stack.select("a", inplace=True),
    "exclude": lambda stack: stack.exclude("a", inplace=True),
}
CHANGES_BELOW = {
    "set_below": lambda stack: stack.set(("n", "new"), torch.zeros(stack.batch_size)),
    "select_below": lambda stack: stack.select("a", ("n", "c"), inplace=True),
    "exclude_below": lambda stack: stack.exclude("a", ("n", "c"), inplace=True),
}


def members():
    return [TensorDict({"a": 1, "b": 2, "n": {"c": 3, "d": 4}}) for _ in range(2)]


def assert_refused(change, stack, members):
    with pytest.raises(RuntimeError, match=LOCKED):
        change(stack)
    for member in members:
        assert member.to_dict() == {"a": 1, "b": 2, "n": {"c": 3, "d": 4}}


@pytest.mark.parametrize("name", [*CHANGES, *CHANGES_BELOW])
def test_a_stack_with_a_locked_member_is_not_changed(name):
    change = {**CHANGES, **CHANGES_BELOW}[name]
    first, locked = members()
    locked.lock_()
    assert_refused(change, tenfold.lazy_stack([first, locked]), [first, locked])
    inner, outer = tenfold.lazy_stack([first, locked]), members()
    assert_refused(change, tenfold.lazy_stack([tenfold.lazy_stack(outer), inner]), [*outer, first])


@pytest.mark.parametrize("change", CHANGES_BELOW.values(), ids=CHANGES_BELOW)
def test_a_tree_with_a_locked_node_is_not_changed(change):
    first, second = members()
    second["n"].lock_()
    assert_refused(change, tenfold.lazy_stack([first, second]), [first, second])
    assert_refused(change, second, [second])

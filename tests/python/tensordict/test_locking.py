import pytest
import torch

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

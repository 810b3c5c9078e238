"""The exceptions of calls that fail, for example because of wrong keys or types."""

import pytest
import torch
from compare import assert_same_outcome, describe, text
from fixtures import new_folder, numbers

import tenfold


def base(lib):
    return lib.TensorDict({"x": numbers(4, 3), "n": {"y": numbers(4)}, "s": "text"}, [4])


REFUSED = {
    "getitem_missing": lambda td, lib: td["zz"],
    "getitem_missing_nested": lambda td, lib: td["n", "zz"],
    "getitem_below_a_tensor": lambda td, lib: td["x", "zz"],
    "getitem_out_of_range": lambda td, lib: td[4],
    "getitem_by_a_float": lambda td, lib: td[1.0],
    "getitem_too_many": lambda td, lib: td[0, 0, 0, 0],
    "get_by_an_int": lambda td, lib: td.get(0),
    "set_by_an_int": lambda td, lib: td.set(0, torch.ones(4)),
    "set_by_none": lambda td, lib: td.set(None, torch.ones(4)),
    "set_wrong_shape": lambda td, lib: td.set("new", torch.ones(3)),
    "set_wrong_shape_nested": lambda td, lib: td.set(("n", "new"), torch.ones(3)),
    "set_a_scalar": lambda td, lib: td.set("new", torch.tensor(1.0)),
    "setitem_wrong_shape": lambda td, lib: td.__setitem__("new", torch.ones(3, 4)),
    "set_below_a_tensor": lambda td, lib: td.set(("x", "y"), torch.ones(4)),
    "set__missing": lambda td, lib: td.set_("zz", torch.ones(4)),
    "set__wrong_shape": lambda td, lib: td.set_("x", torch.ones(4, 7)),
    "set__expanded": lambda td, lib: td.expand(2, 4).set_("x", torch.ones(2, 4, 3)),
    "set_at_missing": lambda td, lib: td.set_at_("zz", 1.0, 0),
    "set_at_out_of_range": lambda td, lib: td.set_at_("x", 1.0, 9),
    "update__missing": lambda td, lib: td.update_({"zz": torch.ones(4)}),
    "update_wrong_shape": lambda td, lib: td.update({"x": torch.ones(3)}),
    "update_at_out_of_range": lambda td, lib: td.update_at_({"x": torch.ones(3)}, 9),
    "pop_missing": lambda td, lib: td.pop("zz"),
    "del_missing": lambda td, lib: td.__delitem__("zz"),
    "del__missing": lambda td, lib: td.del_("zz"),
    "select_missing": lambda td, lib: td.select("zz"),
    "select_missing_nested": lambda td, lib: td.select(("n", "zz")),
    "select_by_an_int": lambda td, lib: td.select(1),
    "split_keys_missing": lambda td, lib: td.split_keys(["zz"]),
    "rename_missing": lambda td, lib: td.rename_key_("zz", "x"),
    "rename_safely_over_another": lambda td, lib: td.rename_key_("x", "n", safe=True),
    "rename_to_an_int": lambda td, lib: td.rename_key_("x", 1),
    "batch_size_wrong": lambda td, lib: setattr(td, "batch_size", [5]),
    "names_wrong_length": lambda td, lib: setattr(td, "names", ["a", "b"]),
    "device_of_nothing": lambda td, lib: td.to("nosuchdevice"),
    "view_wrong": lambda td, lib: td.view(3),
    "reshape_wrong": lambda td, lib: td.reshape(3),
    "expand_wrong": lambda td, lib: td.expand(3),
    "permute_wrong": lambda td, lib: td.permute(1),
    "unbind_wrong": lambda td, lib: td.unbind(1),
    "split_wrong": lambda td, lib: td.split([1, 1]),
    "split_negative": lambda td, lib: td.split(-1),
    "chunk_wrong": lambda td, lib: td.chunk(-1),
    "squeeze_wrong": lambda td, lib: td.squeeze(3),
    "unsqueeze_wrong": lambda td, lib: td.unsqueeze(3),
    "stack_wrong_batch_size": lambda td, lib: torch.stack([td, td[:2]]),
    "stack_wrong_keys": lambda td, lib: torch.stack([td, td.exclude("x", "n")]),
    "cat_wrong_keys": lambda td, lib: torch.cat([td, td.exclude("x")]),
    "cat_no_dims": lambda td, lib: torch.cat([td[0], td[0]]),
    "add_a_string": lambda td, lib: td + "text",
    "add_other_keys": lambda td, lib: td + td.exclude("x"),
    "eq_other_keys": lambda td, lib: td == td.exclude("x"),
    "bool": lambda td, lib: bool(td),
    "iterate_no_dims": lambda td, lib: list(td[0]),
    "flatten_keys_clash": lambda td, lib: td.set("n.y", torch.ones(4)).flatten_keys(),
    "unflatten_keys_clash": lambda td, lib: lib.TensorDict(
        {"a": numbers(2), "a.b": numbers(2)}
    ).unflatten_keys("."),
    "masked_fill_wrong_mask": lambda td, lib: td.masked_fill(torch.ones(7, dtype=torch.bool), 0),
    "masked_select_wrong_mask": lambda td, lib: td.masked_select(torch.ones(7, dtype=torch.bool)),
    "gather_out_of_range": lambda td, lib: td.gather(0, torch.tensor([9])),
    "gather_wrong_dim": lambda td, lib: td.gather(5, torch.tensor([0])),
    "setitem_row_wrong_batch_size": lambda td, lib: td.__setitem__(0, td[:2]),
    "setitem_row_out_of_range": lambda td, lib: td.__setitem__(9, td[0]),
    "locked_set": lambda td, lib: td.lock_().set("new", torch.ones(4)),
    "locked_del": lambda td, lib: td.lock_().__delitem__("x"),
    "locked_update": lambda td, lib: td.lock_().update({"new": torch.ones(4)}),
    "locked_rename": lambda td, lib: td.lock_().rename_key_("x", "y"),
    "source_of_the_wrong_type": lambda td, lib: lib.TensorDict(3),
    "batch_size_of_the_wrong_type": lambda td, lib: lib.TensorDict({}, batch_size="4"),
    "saved_path_in_memory": lambda td, lib: td.saved_path,
    "make_memmap_in_memory": lambda td, lib: td.make_memmap("new", (4,)),
    "memmap_refresh_in_memory": lambda td, lib: td.memmap_refresh_(),
    "load_memmap_of_nothing": lambda td, lib: lib.TensorDict.load_memmap(new_folder()),
    "get_at_out_of_range": lambda td, lib: td.get_at("x", 9),
    "fill_missing": lambda td, lib: td.fill_("zz", 1.0),
    "copy_of_other_keys": lambda td, lib: td.copy_({"zz": torch.ones(4)}),
    "from_dict_wrong_batch_size": lambda td, lib: lib.TensorDict.from_dict(
        {"a": numbers(2)}, batch_size=[3]
    ),
    "load_state_dict_strict": lambda td, lib: td.load_state_dict({"zz": torch.ones(4)}),
    "apply_other_keys": lambda td, lib: td.apply(lambda x, y: x, td.exclude("x")),
    "lazy_stack_other_batch_dims": lambda td, lib: lib.lazy_stack([td, td[0]]),
    "lazy_stack_of_nothing": lambda td, lib: lib.lazy_stack([]),
    "lazy_stack_set_batch_size": lambda td, lib: setattr(
        lib.lazy_stack([td, td]), "batch_size", [2]
    ),
    "unlock_a_child_of_a_locked": lambda td, lib: td.lock_()["n"].unlock_(),
}  # fmt: skip

ATTRIBUTE_ERRORS = ("saved_path_in_memory",)


@pytest.mark.parametrize("name", REFUSED)
def test_exceptions_match_those_of_tensordict(name):
    raises = AttributeError if name in ATTRIBUTE_ERRORS else None

    def call(td, lib):
        REFUSED[name](td, lib)
        pytest.fail(f"{lib.__name__} raises nothing")

    assert_same_outcome(base, call, raises=raises)


# Cases that change the TensorDict before they make the call that fails.
TWO_STEPS = {"flatten_keys_clash"}


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - TWO_STEPS))
def test_failed_calls_change_nothing(name):
    """tensordict may change its argument before a call fails; tenfold does not."""
    td = base(tenfold)
    if "locked" in name:
        td.lock_()  # so that lock_() in the call changes nothing
    before = describe(td)
    with pytest.raises(Exception):  # noqa: B017 - the test above compares them
        REFUSED[name](td, tenfold)
    assert describe(td) == before, f"{text(before)}\n{text(describe(td))}"


@pytest.mark.parametrize("missing", ["zz", ("n", "zz"), ("zz", "zz")], ids=str)
def test_a_missing_key_is_named(missing):
    with pytest.raises(KeyError, match="zz"):
        base(tenfold)[missing]


def test_a_wrong_shape_names_key_and_shapes():
    with pytest.raises(RuntimeError, match=r"new.*4.*3|4.*3.*new"):
        base(tenfold).set("new", torch.ones(3))

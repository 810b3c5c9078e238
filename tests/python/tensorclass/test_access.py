"""Fields of a tensorclass: read, set, deleted, compared, as in tensordict."""

from __future__ import annotations

import copy
import dataclasses
import types

import pytest
import torch
from classes import Sample, classes, plain, sample, table

import tenfold

pytest.importorskip("tensordict")
from compare import assert_same_outcome


def after(change):
    """Returns a function that applies `change` to an object and returns the object."""

    def call(obj, lib):
        change(obj, lib)
        return obj

    return call


READING = {
    "fields": lambda o, lib: [o.x, o.label, o.y, o.info, o.count],
    "get": lambda o, lib: [o.get("x"), o.get("label"), o.get("y"), o.get("other", 5)],
    "get_below": lambda o, lib: [o.get(("inner", "x")), o.get(("inner", "label"))],
    "get_at": lambda o, lib: [o.get_at("x", 1), o.get_at("y", 1)],
    "keys": lambda o, lib: sorted(o.keys()),
    "keys_of_leaves": lambda o, lib: sorted(map(str, o.keys(True, True))),
    "items": lambda o, lib: sorted(key for key, _ in o.items()),
    "non_tensor_items": lambda o, lib: sorted(key for key, _ in o.non_tensor_items()),
    "to_dict": lambda o, lib: o.to_dict(),
    "to_dict_without_none": lambda o, lib: o.to_dict(retain_none=False),
    "to_tensordict": lambda o, lib: o.to_tensordict(),
    "to_tensordict_with_none": lambda o, lib: o.to_tensordict(retain_none=True).select("y", "x"),
    "from_tensordict": lambda o, lib: type(o).from_tensordict(o.to_tensordict()),
    "from_tensordict_and_values": lambda o, lib: (
        type(o)
        .from_tensordict(o.select("x", as_tensordict=True), {"label": "given", "y": None})
        .label
    ),
    "from_dict": lambda o, lib: (
        type(o).from_dict(o.to_dict(), batch_size=[4]).select("x", "label", "count")
    ),
    "from_dict_with_any_batch_size": lambda o, lib: type(o).from_dict(
        {"x": torch.zeros(2, 3), "y": torch.zeros(2)}, auto_batch_size=True
    ),
    "length": lambda o, lib: len(o),
    "shape": lambda o, lib: [o.shape, o.batch_size, o.ndim, o.numel(), o.device, o.names],
    "numpy": lambda o, lib: sorted(o.numpy()),
    "copy": lambda o, lib: copy.copy(o),
    "deepcopy": lambda o, lib: copy.deepcopy(o),
    "replaced": lambda o, lib: o.replace(label="new", x=o.x + 1),
    "replaced_as_a_dataclass": lambda o, lib: dataclasses.replace(o, label="new").label,
    "selected": lambda o, lib: o.select("x", ("inner", "x")),
    "selected_as_tensordict": lambda o, lib: o.select("x", as_tensordict=True),
    "excluded": lambda o, lib: o.exclude("x", ("inner", "label")),
    "renamed": lambda o, lib: o.rename_keys({"x": "y"}),
    "state_dict": lambda o, lib: sorted(o.state_dict().items(), key=lambda pair: pair[0]),
    "state_dict_metadata": lambda o, lib: [
        (key, about["_type"], sorted(about["_non_tensor"].items(), key=str))
        for key, about in sorted(o.state_dict()._metadata.items())
    ],
    "load_state_dict": lambda o, lib: plain(lib).zero_().load_state_dict(o.state_dict()),
    "nested_state_dict": lambda o, lib: sorted(
        o.state_dict(flatten=False).items(), key=lambda pair: pair[0]
    ),
    "load_nested_state_dict": lambda o, lib: (
        plain(lib).zero_().load_state_dict(o.state_dict(flatten=False))
    ),
    "load_state_dict_of_a_tree": lambda o, lib: lib.TensorDict(
        {"o": plain(lib).zero_()}, [4]
    ).load_state_dict(lib.TensorDict({"o": o}, [4]).state_dict()),
    "is_tensorclass": lambda o, lib: [lib.is_tensorclass(o), lib.is_tensor_collection(o)],
    "by_a_key": lambda o, lib: o["x"],
    "truth": lambda o, lib: bool(o),
    "hash": lambda o, lib: hash(o),
}

WRITING = {
    "a_tensor": after(lambda o, lib: setattr(o, "x", torch.ones(4))),
    "a_number": after(lambda o, lib: setattr(o, "count", 7)),
    "a_value": after(lambda o, lib: setattr(o, "label", "new")),
    "values_of_rows": after(lambda o, lib: setattr(o, "label", list("abcd"))),
    "none": after(lambda o, lib: setattr(o, "x", None)),
    "none_again": after(lambda o, lib: setattr(o, "y", None)),
    "an_object": after(lambda o, lib: setattr(o, "inner", o.inner.clone())),
    "a_tensordict": after(
        lambda o, lib: setattr(o, "inner", lib.TensorDict({"x": torch.zeros(4)}, [4]))
    ),
    "set": lambda o, lib: o.set("x", torch.ones(4, 3)),
    "set_in_place": lambda o, lib: o.set("x", torch.ones(4, 3), inplace=True),
    "set_below": after(lambda o, lib: o.set(("inner", "x"), torch.zeros(4))),
    "set_a_value_in_place": lambda o, lib: o.set("label", "b", inplace=True),
    "set_": lambda o, lib: o.set_("x", torch.ones(4, 3)),
    "set_at_": lambda o, lib: o.set_at_("x", torch.ones(3), 1),
    "del_": lambda o, lib: o.del_("x"),
    "del_none_field": lambda o, lib: o.del_("y"),
    "del_unknown_attribute": lambda o, lib: o.del_("other"),
    "delattr": after(lambda o, lib: delattr(o, "label")),
    "update": lambda o, lib: o.update({"label": "new", "x": torch.ones(4, 3)}),
    "update_by_keywords": lambda o, lib: o.update(label="new"),
    "update_to_none": lambda o, lib: o.update({"x": None}),
    "update_a_number": lambda o, lib: o.update({"count": 9}),
    "update_below": lambda o, lib: o.update({"inner": {"x": torch.zeros(4, 2)}}),
    "update_with_another": lambda o, lib: o.update(plain(lib).zero_()),
    "update_with_a_tensordict": lambda o, lib: o.update(lib.TensorDict({"y": torch.ones(4)}, [4])),
    "update_some": lambda o, lib: o.update(
        {"x": torch.ones(4, 3), "label": "new"}, keys_to_update=["label"]
    ),
    "update_other_keys": lambda o, lib: o.update({"other": 1}),
    "update_": lambda o, lib: o.update_({"x": torch.ones(4, 3)}),
    "update_with_an_object_": lambda o, lib: o.update_(plain(lib).zero_()),
    "pop": lambda o, lib: [o.pop("x"), o.x],
    "locked": lambda o, lib: o.lock_().set("x", 1),
    "locked_attribute": lambda o, lib: setattr(o.lock_(), "x", 1),
    "temporarily_unlocked": after(lambda o, lib: write_unlocked(o.lock_())),
    "device": lambda o, lib: setattr(o, "device", "cpu"),
    "names": after(lambda o, lib: setattr(o, "names", ["rows"])),
    "batch_size": after(lambda o, lib: setattr(o.exclude("count"), "batch_size", [4])),
    "itself": lambda o, lib: setattr(o, "inner", o),
}


def write_unlocked(obj):
    with obj.unlock_() as unlocked:
        assert unlocked is obj
        obj.label = "new"


@table(READING)
def test_reads_match_tensordict(call):
    assert_same_outcome(plain, call)


@table(WRITING)
def test_writes_match_tensordict(call):
    assert_same_outcome(plain, call)


COMPARING = {
    "equal": lambda o, lib: o == o.clone(),
    "not_equal": lambda o, lib: o != o.clone(),
    "other_values": lambda o, lib: (o == o.replace(label="b")).label,
    "all": lambda o, lib: [(o == o).all(), (o != o).any()],
    "a_tensordict": lambda o, lib: (o == o.to_tensordict()).all(),
    "text": lambda o, lib: [o == "text", o != "text", o == None, o != None],  # noqa: E711
    "other_fields": lambda o, lib: o == o.exclude("x"),
    "one_dimension": lambda o, lib: (o == o).all(0),
}


@table(COMPARING)
def test_comparisons_match_tensordict(call):
    assert_same_outcome(plain, call)


def reprs(lib):
    cls = classes(lib)
    made = plain(lib)
    return [
        repr(obj)
        for obj in (
            made,
            made[0],
            made.select("x"),
            cls.Plain(torch.zeros(2), device="cpu"),
            lib.TensorDict({"a": made, "b": torch.zeros(4)}, [4]),
            cls.Hiding(torch.zeros(2), "text", 5),
            made.empty(),
            lib.lazy_stack([made.select("x"), made.select("x", "inner")]),
            lib.lazy_stack([cls.Plain(torch.zeros(n), inner=made[0]) for n in (1, 2)]),
            lib.TensorDict({"a": lib.lazy_stack([made, made])}, [2]),
        )
    ]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_repr_matches_tensordict():
    import tensordict

    assert reprs(tenfold) == reprs(tensordict)


def test_unknown_attribute_raises_and_suggests_the_nearest_field():
    made = sample()
    with pytest.raises(
        AttributeError, match=r"no attribute or field 'lable'.*did you mean 'label'"
    ):
        made.lable  # noqa: B018
    with pytest.raises(AttributeError, match=r'no field "lable".*did you mean \'label\''):
        made.lable = "a"


def test_unknown_private_attribute_raises_without_a_suggestion():
    with pytest.raises(AttributeError, match=r"^_nothing$"):
        sample()._nothing  # noqa: B018


def test_to_tensordict_shares_no_memory_and_holds_no_classes():
    made = sample(inner=sample())
    found = made.to_tensordict()
    assert type(found) is tenfold.TensorDict
    assert type(found["inner"]) is tenfold.TensorDict
    found["x"].zero_()
    assert made.x.any()


@pytest.mark.parametrize(("field", "found"), [("inner", "None"), ("x", "Tensor"), ("label", "str")])
def test_path_through_a_field_without_a_node_is_named(field, found):
    with pytest.raises(AttributeError, match=rf"Sample: path \('{field}', 'x'\): .*found {found}$"):
        sample().set((field, "x"), torch.ones(4))


def test_update_checks_the_keys_of_any_mapping():
    made = sample(label="a")
    with pytest.raises(ValueError, match=r"expected only keys that are fields.*found \['zzz'\]"):
        made.update(types.MappingProxyType({"zzz": torch.ones(4)}))
    made.update(types.MappingProxyType({"label": None, "x": torch.zeros(4, 3)}))
    assert made.label is None
    assert "label" not in made.keys()  # noqa: SIM118 - a tensorclass is not a dict
    assert made.x.sum() == 0


def test_rows_of_to_dict_have_the_fields_that_are_none():
    made = sample(2, label="a", inner=sample(2))
    rows = made.to_dict(tolist_first=True, convert_tensors=True)
    expected = {"x": [3.0, 4.0, 5.0], "label": "a", "info": None}
    assert rows[1] == {**expected, "inner": {**expected, "label": "none", "inner": None}}
    nested = Sample(torch.zeros(2, 1), batch_size=[2, 1]).to_dict(tolist_first=True)
    assert nested[1][0].keys() == {"x", "label", "inner", "info"}
    without = made.to_dict(tolist_first=True, retain_none=False)
    assert without[0].keys() == {"x", "label", "inner"}


def test_to_tensordict_copies_unbatched_tensors_and_arrays(tmp_path):
    made = sample()
    made.info = tenfold.UnbatchedTensor(torch.zeros(5))
    found = made.to_tensordict()
    assert type(found.get("info")) is tenfold.UnbatchedTensor
    made.info.fill_(1)
    assert found["info"].tolist() == [0] * 5
    made.save(tmp_path / "saved")
    tenfold.set_framework("numpy")
    try:
        found = tenfold.open(tmp_path / "saved").to_tensordict()
    finally:
        tenfold.set_framework(None)
    assert found["x"].tolist() == made.x.tolist()


def test_from_tensordict_refuses_other_values():
    with pytest.raises(RuntimeError, match="from_tensordict: expected a TensorDict, found a dict"):
        Sample.from_tensordict({"x": 1})
    with pytest.raises(
        ValueError, match=r"Sample: expected only keys that are fields.*found \['other'\]"
    ):
        Sample.from_tensordict(tenfold.TensorDict({"other": torch.zeros(2)}))
    with pytest.raises(KeyError, match=r'field "x": expected .* found one in each'):
        Sample.from_tensordict(tenfold.TensorDict({"x": torch.zeros(2)}), {"x": 1})


@pytest.mark.parametrize("below", [{}, {"inner": {"x": torch.zeros(2)}}])
@pytest.mark.parametrize("values", [None, {"label": "a"}])
def test_from_tensordict_keeps_the_lock(below, values):
    td = tenfold.TensorDict({"x": torch.ones(2), **below}, [2])
    assert not Sample.from_tensordict(td, values).is_locked
    made = Sample.from_tensordict(td.lock_(), values)
    assert made.is_locked
    assert made.label == (None if values is None else "a")
    if below:
        assert type(made.inner) is Sample
        assert made.inner.is_locked
    assert "label" not in td


def test_from_tensordict_accepts_a_tensordict_of_tensordict():
    tensordict = pytest.importorskip("tensordict")
    theirs = tensordict.TensorDict({"x": torch.ones(2)}, [2])
    assert Sample.from_tensordict(theirs).x.tolist() == [1, 1]


def test_state_of_unknown_fields_is_refused():
    state = sample().state_dict()
    state["other"] = torch.zeros(1)
    with pytest.raises(KeyError, match='key "other"'):
        sample().load_state_dict(state)


@tenfold.tensorclass
class Sub(Sample):
    more: torch.Tensor | None = None


def holding_an_object():
    """Returns a TensorDict, a Sample and a lazy stack, each with a Sample as its entry `inner`."""
    td = tenfold.TensorDict({"inner": sample()}, [4])
    return [td, sample(inner=sample()), tenfold.lazy_stack([td.clone(), td.clone()])]


NEW_ENTRIES = {
    "set": lambda o: o.set(("inner", "q"), torch.ones(4)),
    "set_non_tensor": lambda o: o.set_non_tensor(("inner", "q"), 1),
    "setdefault": lambda o: o.setdefault(("inner", "q"), torch.ones(4)),
    "create_nested": lambda o: o.create_nested(("inner", "q")),
    "rename_key_": lambda o: o.rename_key_(("inner", "x"), ("inner", "q")),
    "update": lambda o: o.update({"inner": {"q": torch.ones(o.shape)}}),
    "update_path": lambda o: o.update({("inner", "q"): torch.ones(o.shape)}),
    "update_from_a_tensordict": lambda o: o.update(
        tenfold.TensorDict({"inner": {"q": torch.ones(o.shape)}}, o.shape)
    ),
    "load_state_dict": lambda o: o.load_state_dict({"inner.q": torch.ones(o.shape)}, strict=False),
    "load_nested_state_dict": lambda o: o.load_state_dict(
        {"inner": {"q": torch.ones(o.shape)}}, strict=False, assign=True
    ),
}


@pytest.mark.parametrize("number", range(3))
@table(NEW_ENTRIES)
def test_a_nested_object_gets_no_entry_that_is_not_a_field(number, call):
    made = holding_an_object()[number]
    with pytest.raises((AttributeError, KeyError, ValueError), match="q"):
        call(made)
    assert ("inner", "q") not in made.keys(True)
    made[0].clone()


OWN_ENTRIES = {
    "set_non_tensor": lambda o: o.set_non_tensor("q", 1),
    "setdefault": lambda o: o.setdefault("q", torch.ones(4)),
    "create_nested": lambda o: o.create_nested(key="q"),
    "rename_key_": lambda o: o.rename_key_("x", "q"),
    "flatten_keys": lambda o: o.flatten_keys("_", inplace=True),
}


@table(OWN_ENTRIES)
def test_an_object_gets_no_entry_that_is_not_a_field(call):
    made = sample(inner=sample())
    with pytest.raises((AttributeError, ValueError), match=r"q|inner_x"):
        call(made)
    assert set(made.keys()) == {"x", "label", "inner"}


def test_update_checks_only_the_keys_to_update():
    made = tenfold.TensorDict({"inner": sample()}, [4])
    other = tenfold.TensorDict({"inner": {"x": torch.ones(4, 3), "q": torch.ones(4)}}, [4])
    made.update(other, keys_to_update=[("inner", "x")])
    assert made["inner"].x.sum() == 12


def test_rows_of_a_subclass_need_the_same_entries():
    made = sample()
    with pytest.raises(ValueError, match="'more'"):
        made[0] = Sub(torch.ones(3), more=torch.ones(()), batch_size=[])
    made[0] = Sub(torch.ones(3), batch_size=[])
    assert made[0].x.tolist() == [1, 1, 1]


def test_update_of_a_path_through_a_tensor_is_refused():
    made = sample()
    with pytest.raises(KeyError, match='"x" is a Tensor'):
        made.update({("x", "q"): torch.ones(4)})
    assert made.x.shape == (4, 3)


def test_update_with_a_nested_dict_creates_or_merges_an_object():
    made = sample().update({("inner", "x"): torch.ones(4)})
    assert type(made.inner) is Sample
    made.update({"inner": {"label": "a", "x": None}})
    assert (made.inner.label, made.inner.x) == ("a", None)
    made.update({"inner": {"x": torch.ones(4)}})
    assert (made.inner.label, made.inner.x.sum()) == ("a", 4)


def test_none_in_a_nested_dict_is_no_entry():
    given = {"x": torch.zeros(4, 3), "inner": {"x": torch.zeros(4), "info": None, "inner": None}}
    for made in (
        Sample.from_dict(given, batch_size=[4]),
        sample().update(given),
    ):
        assert made.inner.keys() == {"x"}
    made = tenfold.stack([Sample.from_dict(given["inner"], batch_size=[4]), made.inner])
    assert made.shape == (2, 4)


def partial_stack():
    """Returns a lazy stack of which only the first member has the field `inner`."""
    return tenfold.lazy_stack([sample(inner=sample(label="a")), sample()])


def test_fields_of_some_members_of_a_stack_are_kept():
    made = partial_stack()
    found = made.to_dict(convert_tensors=True)["inner"]
    assert (found[0]["label"], found[0]["x"], found[1]) == ("a", sample().x.tolist(), None)
    assert made.to_dict()["info"] is None
    assert "info" not in made.to_dict(retain_none=False)
    rows = made.to_dict(tolist_first=True)
    assert (rows[0][0]["inner"]["label"], rows[1][0]["inner"]) == ("a", None)
    first, second = made.to_tensordict(retain_none=True).tensordicts
    assert first["inner", "label"] == "a"
    assert "inner" not in second
    assert first["info"] is second["info"] is None
    assert [name for name, value in made.non_tensor_items() if value is None] == ["info"]
    assert "inner" not in made.state_dict()._metadata[""]["_non_tensor"]


def test_get_returns_none_for_a_field_that_is_none_despite_a_default():
    made = partial_stack()
    assert made.get("info", 7) is made.get("info", 7, as_list=True) is None
    first, second = made.get("inner", 7, as_list=True)
    assert (first.label, second) == ("a", None)
    assert made.get("other", 7, as_list=True) == 7


def test_get_at_names_a_missing_field_or_entry():
    with pytest.raises(KeyError, match="no field 'other'"):
        sample().get_at("other", 0)
    with pytest.raises(KeyError, match=r"no entry \('inner', 'other'\)"):
        sample(inner=sample()).get_at(("inner", "other"), 0)


def test_deepcopy_copies_the_values_of_fields_and_the_tensors():
    made = sample()
    made.label = {"a": [1]}
    copied = copy.deepcopy(made)
    copied.label["a"].append(2)
    assert made.label == {"a": [1]}
    assert copied.x.data_ptr() != made.x.data_ptr()
    assert torch.equal(copied.x, made.x)
    nested = tenfold.TensorDict({"o": made}, batch_size=made.batch_size)
    assert copy.deepcopy(nested)["o"].label is not made.label

import io
import pickle
import sys
from collections import defaultdict

import pytest
import torch
from torch.utils._pytree import tree_map

import tenfold
from tenfold import LazyStackedTensorDict, NonTensorStack, TensorDict, UnbatchedTensor


def tree():
    return TensorDict({"a": torch.arange(2), "b": {"c": torch.ones(2, 3)}, "s": "x"}, [2])


def test_tolist_returns_a_list_of_dicts():
    assert tree().tolist(convert_tensors=True)[1] == {"a": 1, "b": {"c": [1, 1, 1]}, "s": "x"}
    assert tree().numpy()["b"]["c"].shape == (2, 3)


def test_unbatched_tensors_are_converted_to_lists_and_refused_as_columns():
    td = tree().set("u", UnbatchedTensor(torch.arange(3)))
    assert td.to_dict(convert_tensors=True)["u"] == [0, 1, 2]
    assert td.tolist(convert_tensors=True)[1]["u"] == [0, 1, 2]
    with pytest.raises(ValueError, match=r'key "u": .* found an UnbatchedTensor; exclude it'):
        td.to_struct_array()
    assert td.exclude("u").to_struct_array().shape == (2,)


def test_rows_of_to_dict_omit_none_on_request():
    td = TensorDict({"a": torch.arange(2), "n": None}, [2])
    rows = td.to_dict(tolist_first=True, retain_none=False, convert_tensors=True)
    assert rows == [{"a": 0}, {"a": 1}]
    assert td.to_dict(tolist_first=True)[1].keys() == {"a", "n"}


def test_state_dict_has_dotted_names_and_round_trips():
    state = tree().state_dict()
    assert list(state) == ["a", "b.c"]
    other = TensorDict({"a": torch.zeros(2), "b": {"c": torch.zeros(2, 3)}, "s": "y"}, [2])
    other.load_state_dict(state)
    assert other["b", "c"].sum() == 6
    assert other["s"] == "x"
    with pytest.raises(RuntimeError, match=r"missing \['b.c'\]"):
        other.load_state_dict({"a": torch.zeros(2)})


@pytest.mark.parametrize("stacked", [False, True], ids=["dense", "lazy"])
def test_a_state_is_loaded_into_a_locked_tree(stacked):
    def make(value):
        td = TensorDict({"a": torch.zeros(2), "s": value, "b": {"t.u": value}}, [2])
        return tenfold.lazy_stack([td, td.clone()]) if stacked else td

    td = make("y").lock_()
    td.load_state_dict(make("x").state_dict())
    assert td.get_non_tensor("s") == make("x").get_non_tensor("s")
    assert td.get_non_tensor(("b", "t.u")) == make("x").get_non_tensor(("b", "t.u"))
    assert set(td.keys(True, True)) == set(make("y").keys(True, True))
    with pytest.raises(RuntimeError, match="locked"):
        td.load_state_dict(make("x").set("new", "x").state_dict())


def test_nested_state_dict_equals_that_of_tensordict_and_round_trips():
    def levels(state):
        below = {key: levels(value) for key, value in state.items() if isinstance(value, dict)}
        return (list(state), {key: about["batch_size"] for key, about in state._metadata.items()},
                below)  # fmt: skip

    td = tree().exclude("s")
    td["b", "d"] = TensorDict({"e": torch.ones(2, 5)}, [2, 5])
    state = td.state_dict(prefix="p.", flatten=False)
    assert state["p.b"]["d"]["e"].shape == (2, 5)
    state = td.state_dict(flatten=False)
    tensordict = pytest.importorskip("tensordict")
    theirs = td.to_tensordict()
    assert levels(state) == levels(theirs.state_dict(flatten=False))
    for form in (state, theirs.state_dict(flatten=False), td.state_dict()):
        for other in (td.clone().zero_(), TensorDict({}, [2])):
            other.load_state_dict(form)
            assert (other == td).all()
            assert other["b", "d"].batch_size == (2, 5)
    zeros = tensordict.TensorDict.from_dict(td.clone().zero_().to_dict(), batch_size=[2])
    assert (zeros.load_state_dict(state)["b", "c"] == 1).all()
    nested = TensorDict({"n": tree()}).state_dict(flatten=False)
    other = TensorDict({"n": tree().set_non_tensor("s", "y")})
    assert other.load_state_dict(nested)["n", "s"] == "x"


@pytest.mark.parametrize("keys", [["a.b", ("a", "b")], [("a", "b.c"), ("a", "b", "c")]])
def test_entries_with_the_same_dotted_name_are_an_error_of_state_dict(keys):
    td = TensorDict({}, [2])
    for key in keys:
        td[key] = torch.ones(2)
    for call in (td.state_dict, lambda: td.load_state_dict(td.state_dict(flatten=False))):
        with pytest.raises(KeyError, match="expected one entry"):
            call()
    td.pop(keys[1])
    assert td.state_dict().keys() == {".".join(keys[0]) if isinstance(keys[0], tuple) else "a.b"}


def test_state_with_keys_that_begin_with_underscores_round_trips():
    td = TensorDict({"__x": torch.ones(2), "b": {"__batch_size": torch.ones(2)}}, [2])
    other = td.clone().zero_()
    for flatten in (True, False):
        other.zero_().load_state_dict(td.state_dict(flatten=flatten))
        assert (other == td).all()


def test_state_dict_of_an_older_tensordict_is_loaded():
    below = {"c": torch.ones(2, 3), "__batch_size": torch.Size([2, 3]), "__device": None}
    state = {"a": torch.ones(2), "b": below, "__batch_size": torch.Size([2]), "__device": None}
    td = TensorDict({"a": torch.zeros(2), "b": {"c": torch.zeros(2, 3)}}, [2])
    td.load_state_dict(state)
    assert td["b", "c"].sum() == 6
    assert td["b"].batch_size == (2, 3)


def test_pytree_round_trips():
    pytree = [torch.ones(2), {"a": (torch.zeros(1), torch.ones(1))}]
    found = TensorDict.from_pytree(pytree).to_pytree()
    assert type(found) is list
    assert type(found[1]["a"]) is tuple
    assert found[0] is pytree[0]


@pytest.mark.parametrize(
    ("change", "batch_size"),
    [
        (lambda x: x.expand(3, *x.shape), [3]),
        (lambda x: x.expand(3, *x.shape) if x.ndim else x, []),
        (lambda x: x if x.ndim else x.expand(3), []),
        (lambda x: x * 2, []),
    ],
)
def test_tree_map_adds_a_batch_dimension_only_if_all_tensors_gain_it(change, batch_size):
    td = TensorDict({"a": torch.zeros(2), "b": torch.zeros(())})
    assert list(tree_map(change, td).batch_size) == batch_size


def test_a_defaultdict_of_a_pytree_loses_its_factory():
    found = TensorDict.from_pytree(defaultdict(int, {"a": torch.ones(1)})).to_pytree()
    assert type(found) is defaultdict
    assert found.default_factory is None
    assert found["a"].tolist() == [1]


@pytest.mark.parametrize("pytree", [{1: 2, "1": 3}, [{1: 2, "1": 3}], {"_pytree_type": 1}])
def test_keys_of_a_pytree_that_would_replace_each_other_are_refused(pytree):
    with pytest.raises(ValueError, match=r"from_pytree: .*expected .* found"):
        TensorDict.from_pytree(pytree)


def test_conversion_to_tensordict_shares_memory():
    tensordict = pytest.importorskip("tensordict")
    td = tree()
    theirs = td.to_tensordict()
    assert isinstance(theirs, tensordict.TensorDict)
    assert theirs["b", "c"].data_ptr() == td["b", "c"].data_ptr()
    assert theirs["s"] == "x"
    back = TensorDict.from_tensordict(theirs)
    assert back["a"].data_ptr() == td["a"].data_ptr()
    stack = LazyStackedTensorDict(
        TensorDict({"x": torch.ones(1)}), TensorDict({"x": torch.ones(2)})
    )
    assert len(stack.to_tensordict().tensordicts) == 2


@pytest.mark.parametrize("values", [[["x"], "y"], [[1], [2, 3]], [[1], [2]], [[], []]])
def test_conversion_to_tensordict_keeps_lists_that_are_values(tmp_path, values):
    tensordict = pytest.importorskip("tensordict")
    rows = tensordict.NonTensorStack(*map(tensordict.NonTensorData, values))
    tenfold.save(tensordict.TensorDict({"v": rows}, [2]), tmp_path / "saved")
    found = tenfold.load(tmp_path / "saved").to_tensordict().get("v")
    assert isinstance(found, tensordict.NonTensorStack)
    assert found.batch_size == (2,)
    assert found.tolist() == values
    nested = TensorDict({"v": NonTensorStack.from_list([["a"], ["b"]])}, [2]).to_tensordict()
    assert nested.get("v").batch_size == (2, 1)


def test_conversion_from_tensordict_keeps_tensors_also_on_the_meta_device():
    tensordict = pytest.importorskip("tensordict")
    theirs = tensordict.TensorDict(
        {"a": torch.empty(2, device="meta"), "s": "x", "v": tensordict.NonTensorStack("y", "z")},
        [2],
        names=["time"],
    )
    theirs["u"] = tensordict.UnbatchedTensor(torch.arange(5))
    theirs["object"] = tensordict.NonTensorData(pytest)
    theirs["stack"] = tensordict.LazyStackedTensorDict(
        *[tensordict.TensorDict({"x": torch.ones(n)}) for n in (1, 2)]
    )
    for ours in (TensorDict.from_tensordict(theirs), TensorDict({"n": theirs}, [2])["n"]):
        assert ours.batch_size == (2,)
        assert ours.names == ["time"]
        assert ours["a"] is theirs["a"]
        assert (ours["s"], ours["v"], ours["object"]) == ("x", ["y", "z"], pytest)
        assert ours["u"].tolist() == [0, 1, 2, 3, 4]
        assert isinstance(ours["stack"], LazyStackedTensorDict)
        assert ours["stack"][1]["x"] is theirs["stack"][1]["x"]


def test_to_tensordict_without_the_package_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensordict", None)
    with pytest.raises(ImportError, match="expected the package tensordict"):
        tree().to_tensordict()


def test_casts_change_the_dtype_and_clones_copy_unless_recurse_is_false():
    assert tree().double()["b", "c"].dtype == torch.float64
    assert tree().to(torch.float16)["a"].dtype == torch.float16
    td = tree()
    assert td.clone()["a"] is not td["a"]
    assert td.clone(recurse=False)["a"] is td["a"]
    assert td.bytes() == 2 * 8 + 6 * 4


def test_a_batch_size_of_one_number_is_accepted_by_to():
    assert TensorDict({"a": torch.zeros(3, 2)}).to(batch_size=3).batch_size == (3,)


def test_operands_of_the_tensordict_package_are_converted():
    tensordict = pytest.importorskip("tensordict")
    td = TensorDict({"a": torch.ones(2), "n": {"b": torch.ones(2)}}, [2])
    theirs = tensordict.TensorDict({"a": torch.zeros(2), "n": {"b": torch.zeros(2)}}, [2])
    mask = torch.tensor([True, False])

    for made in (td.where(mask, theirs), tenfold.lazy_stack([td, td]).where(mask, theirs)[1]):
        assert (made["a"].sum(), made["n", "b"].sum()) in [(1, 1), (0, 0)]
    assert (td + theirs == td).all()
    assert not (td == theirs).any()
    tenfold.assert_close(td * theirs, theirs)

    rows = td.clone()
    rows[0] = theirs[0]
    assert rows["a"].tolist() == rows["n", "b"].tolist() == [0, 1]
    stack = tenfold.lazy_stack([td, td]).clone()
    stack[0] = theirs
    assert stack["n", "b"].tolist() == [[0, 0], [1, 1]]
    assert TensorDict({"t": [theirs, td]})["t", "a"].tolist() == [[0, 0], [1, 1]]


def test_stacking_with_the_tensordict_package_names_the_conversion():
    tensordict = pytest.importorskip("tensordict")
    td, theirs = TensorDict(a=torch.ones(2)), tensordict.TensorDict(a=torch.ones(2))
    message = r"found TensorDict and tensordict.TensorDict \(convert it with .*from_tensordict\)"
    for call in (TensorDict.stack, TensorDict.cat, tenfold.lazy_stack):
        with pytest.raises(TypeError, match=message):
            call([td, theirs])
    with pytest.raises(TypeError, match=r"tensordict\.TensorDict .*from_tensordict"):
        tenfold.lazy_stack([td]).append(theirs)


def test_torch_loads_trees_with_weights_only():
    td = tree().set("l", ["p", "q"]).lock_()
    td.names = ["rows"]
    saved = {"td": td, "stack": tenfold.lazy_stack([tree(), tree().exclude("a")])}
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    found = torch.load(file, weights_only=True)
    assert found["td"]["l"] == ["p", "q"]
    assert found["td"].is_locked
    assert found["td"].names == ["rows"]
    assert (found["td"] == td).all()
    assert found["stack"][0]["a"].tolist() == [0, 1]
    file = io.BytesIO()
    torch.save(td.consolidate(), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[tenfold._pickle"):
        torch.load(file, weights_only=True)

import re

import pytest
import torch

import tenfold
from helpers import assert_same
from tenfold import TensorDict


@pytest.fixture
def saved(target):
    tree = {
        "model": {"encoder.weight": torch.arange(12.0).reshape(3, 4), "bias": torch.zeros(4)},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.1}]},
        "parts": [torch.zeros(1), (torch.ones(1), "x")],
        "step": 7,
    }
    tenfold.save(tree, target)
    return target


@pytest.fixture
def batch(target):
    td = TensorDict(
        {"obs": torch.arange(12).reshape(4, 3), "next": {"obs": torch.ones(4, 3)}, "tag": "run"},
        batch_size=[4],
    )
    tenfold.save(td, target)
    return tenfold.open(target)


def test_a_key_and_a_path_reach_the_same_tensor(saved):
    td = tenfold.open(saved)
    assert td["model", "encoder.weight"] is td["model"]["encoder.weight"]
    assert torch.equal(td["model", "encoder.weight"], torch.arange(12.0).reshape(3, 4))


def test_each_node_is_one_object(saved):
    td = tenfold.open(saved)
    assert td["model"] is td["model"]


def test_dicts_lists_and_tuples_appear_as_nodes(saved):
    td = tenfold.open(saved)
    assert isinstance(td["optimizer", "state", "0"], TensorDict)
    assert torch.equal(td["parts", "1", "0"], torch.ones(1))
    assert td["parts", "1", "1"] == "x"


def test_json_values_are_python_values(saved):
    td = tenfold.open(saved)
    assert td["step"] == 7
    assert td["optimizer", "groups"] == [{"lr": 0.1}]


def test_to_dict_restores_the_containers(saved):
    assert_same(tenfold.open(saved).to_dict(), tenfold.load(saved))


def test_a_missing_key_names_the_file_and_the_key(saved):
    with pytest.raises(KeyError, match=rf'{saved.name}.*: no key "bies"') as caught:
        tenfold.open(saved)["model", "bies"]
    assert "bias" in str(caught.value)


def test_path_below_a_tensor_raises_key_error(saved):
    with pytest.raises(
        KeyError, match=r'"model.bias" is a Tensor: expected a node with an entry "x"'
    ):
        tenfold.open(saved)["model", "bias", "x"]


def test_get_returns_the_default_for_a_missing_key(saved):
    td = tenfold.open(saved)
    assert td.get("nothing", 5) == 5
    assert td.get(("model", "nothing")) is None
    assert td.get("step", 5) == 7


def test_contains_accepts_paths(saved):
    td = tenfold.open(saved)
    assert "model" in td
    assert ("model", "bias") in td
    assert ("model", "x") not in td
    assert ("step", "x") not in td
    assert 3 not in td


def test_keys_keep_the_saved_order(saved):
    assert list(tenfold.open(saved).keys()) == ["model", "optimizer", "parts", "step"]


def test_nested_keys_read_no_tensor(saved):
    td = tenfold.open(saved)
    leaves = [("model", "encoder.weight"), ("model", "bias"), ("optimizer", "state", "0", "step")]
    leaves += [("parts", "0"), ("parts", "1", "0")]
    assert td.keys(True, True) == leaves
    everything = td.keys(include_nested=True)
    assert {"model", "step", ("parts", "1"), ("optimizer", "groups")} <= set(everything)
    assert "encoder.weight" not in td["model"]._items


def test_keys_do_not_depend_on_what_was_read(saved):
    lazy, read = tenfold.open(saved), tenfold.open(saved)
    read.to_dict()
    assert lazy.keys(True) == read.keys(True)
    assert lazy.keys(True, True) == read.keys(True, True)


def test_items_and_values_follow_keys(saved):
    td = tenfold.open(saved)
    assert [key for key, _ in td.items()] == td.keys()
    for (key, value), other in zip(td.items(True, True), td.values(True, True), strict=True):
        assert value is other
        assert td[key] is value


def test_tied_tensors_are_one_object_by_every_path(target):
    weight = torch.randn(4)
    tenfold.save({"a": {"w": weight}, "b": weight}, target)
    td = tenfold.open(target)
    assert td["b"] is td["a", "w"]


def test_a_node_can_be_saved_alone(saved, tmp_path):
    tenfold.save(tenfold.open(saved)["optimizer"], tmp_path / "part")
    assert_same(tenfold.load(tmp_path / "part"), tenfold.load(saved)["optimizer"])


def test_in_memory_changes_are_saved(saved, tmp_path):
    td = tenfold.open(saved)
    td["model", "bias"] += 1
    td["model"]["new"] = torch.ones(2)
    del td["step"]
    tenfold.save(td, tmp_path / "changed")
    found = tenfold.load(tmp_path / "changed")
    assert torch.equal(found["model"]["bias"], torch.ones(4))
    assert list(found["model"]) == ["encoder.weight", "bias", "new"]
    assert "step" not in found
    assert found["optimizer"]["state"].keys() == {0}


def test_the_file_does_not_change_with_its_tensors(saved):
    tenfold.open(saved)["model", "bias"].fill_(9)
    assert tenfold.load(saved)["model"]["bias"].sum() == 0


# --- batch dimensions


def test_batch_size_shape_ndim_and_numel_agree(batch):
    assert batch.batch_size == torch.Size([4])
    assert batch.shape == batch.size() == (4,)
    assert (batch.ndim, batch.dim(), batch.batch_dims, batch.numel()) == (1, 1, 1, 4)
    assert batch.size(0) == len(batch) == 4
    assert batch["next"].batch_size == (4,)
    assert batch.device in (None, torch.device("cpu"))  # a folder always names one
    assert batch.names == [None]


def test_len_without_batch_dimensions_is_0(saved):
    td = tenfold.open(saved)
    assert len(td) == 0
    assert td.numel() == 1


INDICES = {
    "int": 2,
    "negative": -1,
    "slice": slice(1, 3),
    "step": slice(None, None, 2),
    "list": [0, 2],
    "range": range(1, 3),
    "tensor": torch.tensor([3, 0]),
    "matrix": torch.tensor([[3, 0], [1, 1]]),
    "scalar": torch.tensor(1),
    "mask": torch.tensor([True, False, True, False]),
    "none": None,
    "ellipsis": ...,
    "both": (None, ..., slice(0, 2)),
    "empty": (),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indexing_applies_to_the_batch_dimensions_of_every_tensor(batch, index):
    whole = {"obs": torch.arange(12).reshape(4, 3), "next": torch.ones(4, 3)}
    plain = list(index) if isinstance(index, range) else index
    if index is INDICES["both"]:
        plain = (None, slice(0, 2))
    found = batch[index]
    wanted = whole["obs"] if plain is Ellipsis or plain == () else whole["obs"][plain]
    assert torch.equal(found["obs"], wanted)
    assert found["next", "obs"].shape == wanted.shape
    assert found.batch_size == found["next"].batch_size == wanted.shape[:-1]
    assert found["tag"] == "run"


def test_indices_agree_with_tensordict_for_two_batch_dimensions():
    tensordict = pytest.importorskip("tensordict")
    source = {"x": torch.arange(24).reshape(2, 3, 4), "y": torch.zeros(2, 3)}
    ours, theirs = TensorDict(source, [2, 3]), tensordict.TensorDict(source, [2, 3])
    mask = torch.tensor([[True, False, True], [False, False, True]])
    for index in [
        (0, 1),
        (..., 0),
        (slice(None), [0, 2]),
        mask,
        (None, 0),
        (0, ..., None),
        ([0, 1], [1, 2]),
    ]:
        found, wanted = ours[index], theirs[index]
        assert found.batch_size == wanted.batch_size, index
        assert torch.equal(found["x"], wanted["x"]), index
        assert torch.equal(found["y"], wanted["y"]), index


@pytest.mark.parametrize("index", [4, -5, (0, 0), (0, ..., 0), [7]], ids=str)
def test_index_outside_the_batch_raises_index_error(batch, index):
    with pytest.raises(IndexError):
        batch[index]


def test_iteration_is_over_the_first_batch_dimension(batch):
    rows = list(batch)
    assert len(rows) == 4
    assert torch.equal(rows[1]["obs"], torch.arange(3, 6))


def test_iteration_without_batch_dimensions_raises_type_error(saved):
    with pytest.raises(TypeError, match="iteration over a 0-d TensorDict"):
        iter(tenfold.open(saved))


def test_bool_of_a_tensordict_raises(batch):
    with pytest.raises(RuntimeError, match="neither true nor false"):
        bool(batch)


def test_rows_can_be_assigned(batch):
    batch[1:3] = {"obs": torch.full((2, 3), 9), "next": {"obs": torch.zeros(2, 3)}}
    assert batch["obs"].sum(1).tolist() == [3, 27, 27, 30]
    assert batch["next", "obs"].sum() == 6


# --- repr and HTML


def test_repr_matches_tensordict(target):
    tensordict = pytest.importorskip("tensordict", minversion="0.15")  # older ones differ
    source = {
        "obs": torch.zeros(3, 2),
        "next": {"reward": torch.zeros(3, dtype=torch.int64), "deep": {"b": torch.zeros(3).bool()}},
        "text": "foo",
        "half": torch.zeros(3, 1, dtype=torch.bfloat16),
    }
    theirs = repr(tensordict.TensorDict(source, [3], device="cpu"))
    tenfold.save(TensorDict(source, [3], device="cpu"), target)
    opened = tenfold.open(target)
    assert repr(TensorDict(source, [3], device="cpu")) == theirs
    assert repr(opened) == theirs
    opened.to_dict()
    assert repr(opened) == theirs


def test_a_warning_of_a_note_that_does_not_fit_names_the_file(tmp_path):
    path = tenfold.save({"d": {"a": torch.zeros(1)}}, tmp_path / "saved")
    notes = path / "%notes.json"
    notes.write_text(notes.read_text().replace('"d": {"kind": "dict"', '"d": {"kind": "list"'))
    message = re.escape(f'{notes}: node "d": kind "list" is ignored: expected keys')
    with pytest.warns(UserWarning, match=message):
        tenfold.load(path)


def test_module_versions_in_the_note_of_a_dict_are_ignored(tmp_path):
    path = tenfold.save({"d": {"a": torch.zeros(1)}}, tmp_path / "saved")
    notes = path / "%notes.json"
    dict_note = '"d": {"kind": "dict"'
    assert dict_note in notes.read_text()
    notes.write_text(notes.read_text().replace(dict_note, dict_note + ', "versions": {"": 1}'))
    found = tenfold.load(path)["d"]
    assert type(found) is dict
    assert found.keys() == {"a"}


def test_repr_reads_no_tensor(saved):
    td = tenfold.open(saved)
    assert "bias: f32[4]" in repr(td)
    assert "bias" not in td["model"]._items


def test_html_is_escaped():
    html = TensorDict({"<b>": torch.zeros(1)})._repr_html_()
    assert "&lt;b&gt;: f32[1]" in html
    assert "<b>:" not in html

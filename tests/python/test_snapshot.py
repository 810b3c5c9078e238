"""`Snapshot`, `StateDict` and `RNGState`, as programs use them."""

import json
import pathlib
import subprocess
import sys
import threading
from collections import OrderedDict

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import helpers
import tenfold
from tenfold import RNGState, Snapshot, StateDict
from tenfold.tensordict import TensorDict

GOLDEN = pathlib.Path(__file__).parents[1] / "data" / "snapshot"


def taken(tmp_path, **state):
    return Snapshot.take(tmp_path / "s", {"state": StateDict(**state)}, durable=False)


def test_restores_modules_optimizers_and_values(tmp_path):
    model, other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    Snapshot.take(tmp_path / "s", {"model": model, "progress": StateDict(epoch=3, loss=[0.5])})
    progress = StateDict(epoch=0, kept="as it was")
    Snapshot(tmp_path / "s").restore({"model": other, "progress": progress})
    assert torch.equal(model.weight, other.weight)
    assert dict(progress) == {"epoch": 3, "loss": [0.5], "kept": "as it was"}


def test_keeps_the_versions_of_layers_for_load_state_dict(tmp_path):
    class Versioned(torch.nn.Linear):
        _version = 7

        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            self.seen = metadata.get("version")
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    model = torch.nn.Sequential(Versioned(2, 2), torch.nn.BatchNorm1d(2))
    for take in (Snapshot.take, lambda *args: Snapshot.async_take(*args).wait()):
        snapshot = take(tmp_path / "s", {"model": model, "x": StateDict(a=1)})
        other = torch.nn.Sequential(Versioned(2, 2), torch.nn.BatchNorm1d(2))
        snapshot.restore({"model": other})
        assert other[0].seen == 7
        state = snapshot.get_state_dict_for_key("model")
        assert state._metadata == model.state_dict()._metadata
        assert tenfold.load(tmp_path / "s")["model"]._metadata == model.state_dict()._metadata


def test_metadata_that_json_cannot_represent_are_omitted_in_lists_too(tmp_path):
    module = OrderedDict(w=torch.ones(2))
    module._metadata = {"": {"device": torch.device("cpu")}}
    state = StateDict(d=module, l=[module], t=({"l": [module]}, 1))
    Snapshot.take(tmp_path / "s", {"x": state})
    assert repr(tenfold.load(tmp_path / "s")["x"]) == repr(state.data)
    assert state["l"][0]._metadata is module._metadata
    for cycle in ({}, []):
        cycle.append(cycle) if isinstance(cycle, list) else cycle.update(a=cycle)
        with pytest.raises(ValueError, match="it contains itself"):
            Snapshot.take(tmp_path / "c", {"x": StateDict(c=cycle)})


def test_a_tensordict_has_arrays_if_numpy_is_the_framework(tmp_path):
    entries = TensorDict({"a": torch.arange(3)}, batch_size=[3])
    snapshot = taken(tmp_path, td=entries)
    tenfold.set_framework("numpy")
    try:
        state = snapshot.get_state_dict_for_key("state")
    finally:
        tenfold.set_framework(None)
    assert isinstance(state["td"]["a"], numpy.ndarray)
    assert state["td"]["a"].tolist() == [0, 1, 2]


def test_reads_into_torch_tensors_if_numpy_is_the_framework(tmp_path):
    snapshot = taken(tmp_path, x=torch.arange(6.0), z=torch.tensor([1 + 2j, 3 - 4j]))
    tenfold.set_framework("numpy")
    try:
        into = torch.empty(6, dtype=torch.float64)
        assert snapshot.read_object("0/state/x", into, 8) is into
        conjugate = snapshot.read_object("0/state/z", torch.empty(2, dtype=torch.complex64).conj())
    finally:
        tenfold.set_framework(None)
    assert into.tolist() == [0, 1, 2, 3, 4, 5]
    assert conjugate.tolist() == [1 + 2j, 3 - 4j]
    array = numpy.zeros(6)
    snapshot.read_object("0/state/x", array, 8)
    assert array.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_field_of_a_packed_array_is_not_filled_in_place(tmp_path):
    snapshot = taken(tmp_path, x=torch.ones(2))
    field = numpy.zeros(2, [("a", "u1"), ("x", "f4")])["x"]
    with pytest.raises(tenfold.UnsupportedError, match="no multiple of the item size"):
        snapshot.read_object("0/state/x", field)
    with pytest.raises(tenfold.UnsupportedError, match="no multiple of the item size"):
        snapshot.restore({"state": StateDict(x=field)})


def test_restore_fills_matching_tensors_in_place_and_creates_others(tmp_path):
    snapshot = taken(tmp_path, a=torch.ones(3), b=[torch.ones(2)], c=torch.ones(2, 2))
    state = StateDict(a=torch.zeros(3), b=[torch.zeros(2)], c=torch.zeros(4))
    a, b, c = state["a"], state["b"][0], state["c"]
    snapshot.restore({"state": state})
    assert state["a"] is a
    assert state["b"][0] is b
    assert state["c"] is not c
    helpers.assert_same(
        dict(state), {"a": torch.ones(3), "b": [torch.ones(2)], "c": torch.ones(2, 2)}
    )
    assert c.sum() == 0


def test_reads_into_memory_mapped_and_strided_tensors(tmp_path):
    snapshot = taken(tmp_path, a=torch.arange(6.0), b=torch.arange(3))
    mapped = tenfold.MemoryMappedTensor.empty(6, filename=str(tmp_path / "a"), dtype=torch.float32)
    wide = torch.zeros(6, dtype=torch.int64)
    snapshot.restore({"state": StateDict(a=mapped, b=wide[::2])})
    assert torch.equal(torch.from_file(str(tmp_path / "a"), size=6), torch.arange(6.0))
    assert wide.tolist() == [0, 0, 1, 0, 2, 0]


def test_rng_state_is_restored_as_of_the_end_of_take(tmp_path):
    class Drawing(StateDict):
        def state_dict(self):
            torch.rand(3)
            return super().state_dict()

        def load_state_dict(self, state):
            torch.rand(5)
            super().load_state_dict(state)

    state = {"drawing": Drawing(a=1), "random": RNGState()}
    snapshot = Snapshot.take(tmp_path / "s", state)
    expected = torch.rand(4)
    snapshot.restore(state)
    assert torch.equal(torch.rand(4), expected)
    assert issubclass(tenfold.RngState, RNGState)


def test_validates_app_state_with_the_types_of_torchsnapshot(tmp_path):
    for state in ([], {"a": 3}, {"a": torch.ones(1)}, {3: StateDict()}):
        with pytest.raises(TypeError):
            Snapshot.take(tmp_path / "s", state)
    with pytest.raises(RuntimeError, match="Multiple RNGState"):
        Snapshot.take(tmp_path / "s", {"a": RNGState(), "b": RNGState()})
    for wrong in ("model/*", 3, [3]):
        with pytest.raises(TypeError, match="replicated: expected a list of globs, found "):
            Snapshot.take(tmp_path / "s", {}, replicated=wrong)
    with pytest.raises(tenfold.UnsupportedError, match="another storage"):
        Snapshot("s3://bucket/s")
    assert not (tmp_path / "s").exists()


def test_restore_changes_nothing_if_a_name_is_missing(tmp_path):
    snapshot = taken(tmp_path, a=torch.ones(3))
    state = StateDict(a=torch.zeros(3))
    with pytest.raises(KeyError, match='no state "other"'):
        snapshot.restore({"state": state, "other": StateDict()})
    assert state["a"].sum() == 0


def test_restores_the_device_in_the_state_of_older_versions_of_tensordict(tmp_path):
    class Tree(StateDict):
        device = torch.device("cpu")

        def state_dict(self):
            state = OrderedDict(self.data)
            state["__batch_size"], state["__device"] = torch.Size([2]), self.device
            return state

        def load_state_dict(self, state):
            assert state.pop("__batch_size") == torch.Size([2])
            device = state.pop("__device")
            assert device is None or device == self.device
            super().load_state_dict(state)

    for take in (Snapshot.take, lambda *args: Snapshot.async_take(*args).wait()):
        into = Tree(x=torch.zeros(2))
        take(tmp_path / "s", {"tree": Tree(x=torch.ones(2))}).restore({"tree": into})
        assert torch.equal(into["x"], torch.ones(2))


def test_async_take_saves_the_state_at_the_call(tmp_path):
    tied = torch.arange(1000.0)
    state = StateDict(a=tied, b=tied, c=[torch.ones(3)])
    pending = Snapshot.async_take(tmp_path / "s", {"state": state})
    tied.fill_(5)
    state["c"][0].fill_(5)
    snapshot = pending.wait()
    assert pending.done()
    assert torch.equal(snapshot.read_object("0/state/a"), torch.arange(1000.0))
    assert torch.equal(snapshot.read_object("0/state/c/0"), torch.ones(3))
    manifest = snapshot.get_manifest()
    assert manifest["0/state/a"].location == manifest["0/state/b"].location


def test_async_take_copies_strided_views_of_one_address(tmp_path):
    x = torch.arange(8.0)
    state = {"even": x[::2], "begin": x[:4], "one": x[:1].expand(4), "all": x}
    snapshot = Snapshot.async_take(tmp_path / "s", {"state": StateDict(**state)}).wait()
    for name, expected in state.items():
        assert snapshot.read_object(f"0/state/{name}").tolist() == expected.tolist(), name


def test_async_take_raises_errors_from_wait(tmp_path):
    (tmp_path / "file").write_text("in the way")
    pending = Snapshot.async_take(tmp_path / "file" / "s", {"state": StateDict(a=torch.ones(1))})
    with pytest.raises(OSError):
        pending.wait()
    with pytest.raises(OSError):
        pending.wait()
    assert all(thread.name != "tenfold-snapshot" for thread in threading.enumerate())


def test_read_object_returns_each_entry(tmp_path):
    snapshot = taken(
        tmp_path, a=torch.ones(8, 8), n=3, f=0.5, t="x", l=[1, {"k/y": torch.ones(2)}], v=[{"w": 1}]
    )
    assert snapshot.read_object("0/state/a", memory_budget_bytes=16).shape == (8, 8)
    assert [snapshot.read_object(f"0/state/{key}") for key in "nft"] == [3, 0.5, "x"]
    assert torch.equal(snapshot.read_object("0/state/l/1/k%2Fy"), torch.ones(2))
    helpers.assert_same(snapshot.read_object("0/state/l"), [1, {"k/y": torch.ones(2)}])
    assert snapshot.read_object("0/state/v/0") == {"w": 1}
    assert snapshot.read_object("0/state/v") == [{"w": 1}]
    for path in ("0/state/none", "1/state/a", ""):
        with pytest.raises(KeyError, match="no entry"):
            snapshot.read_object(path)
        with pytest.raises(RuntimeError):
            snapshot.read_object(path)


def test_read_object_reads_replicated_entries_for_any_rank(tmp_path):
    snapshot = Snapshot.take(
        tmp_path / "s",
        {"m": StateDict(w=torch.ones(2), n=3)},
        replicated=iter(["m/w"]),
        durable=False,
    )
    for rank in (1, 2**63, 10**20):
        assert snapshot.read_object(f"{rank}/m/w").tolist() == [1, 1]
        with pytest.raises(tenfold.UnknownPathError, match="no entry"):
            snapshot.read_object(f"{rank}/m/n")


def test_read_object_returns_every_entry_of_values_and_under_equal_names(tmp_path):
    for state in ({"v": {"w": {1: [{"x": 2}]}}}, {"v": [[1, 2]], "t": torch.ones(2)}):
        snapshot = Snapshot.take(tmp_path / "s", {"v": StateDict(state)}, durable=False)
        paths = list(snapshot.get_manifest())
        assert paths[0] == "0/v"
        for path in paths:
            expected = state
            for key in path.split("/")[2:]:
                expected = expected[int(key) if key.isdecimal() else key]
            helpers.assert_same(snapshot.read_object(path), expected)


@pytest.mark.parametrize("budget", [None, 1, 20, 1 << 20])
def test_read_object_fills_any_tensor_within_any_budget(tmp_path, budget):
    stored = torch.arange(24.0).reshape(4, 3, 2)
    snapshot = taken(tmp_path, a=stored)
    for out in (
        torch.zeros(4, 3, 2),
        torch.zeros(2, 3, 4).permute(2, 1, 0),
        torch.zeros(4, 3, 2, dtype=torch.float64),
        torch.zeros(4, 3, 2, requires_grad=True),
    ):
        assert snapshot.read_object("0/state/a", out, memory_budget_bytes=budget) is out
        assert torch.equal(out.detach().float(), stored)
    array = numpy.zeros((2, 3, 4), dtype="float32").transpose(2, 1, 0)
    assert snapshot.read_object("0/state/a", array, memory_budget_bytes=budget) is array
    assert torch.equal(torch.from_numpy(array), stored)
    with pytest.raises(ValueError, match=r"shape \(4, 3, 2\), found \(24,\)"):
        snapshot.read_object("0/state/a", torch.zeros(24))


@pytest.mark.parametrize("budget", [None, 1, 1 << 20])
def test_read_object_refuses_what_cannot_hold_the_tensor(tmp_path, budget):
    snapshot = taken(tmp_path, a=torch.tensor([1 + 2j, 3]))
    for out in (
        torch.zeros(2),
        torch.zeros(4, dtype=torch.int8)[::2],
        torch.zeros(2, dtype=torch.complex64).conj().imag,
        numpy.zeros(2, "float32"),
    ):
        with pytest.raises(ValueError, match="expected a complex tensor for complex64, found "):
            snapshot.read_object("0/state/a", out, budget)
        assert not out.any()
    with pytest.raises(TypeError, match="expected a tensor or array, found list"):
        snapshot.read_object("0/state/a", [0, 0], budget)
    wide = torch.zeros(2, dtype=torch.complex128)
    assert snapshot.read_object("0/state/a", wide, budget).tolist() == [1 + 2j, 3]


@pytest.mark.parametrize("budget", [None, 4, 1 << 20])
def test_read_object_refuses_an_expanded_tensor(tmp_path, budget):
    snapshot = taken(tmp_path, a=torch.arange(6.0).reshape(2, 3), empty=torch.ones(2, 0))
    row = numpy.zeros((1, 3), "float32")
    repeated = numpy.lib.stride_tricks.as_strided(row, (2, 3), (0, 4))
    for out in (torch.zeros(1, 3).expand(2, 3), repeated):
        with pytest.raises(ValueError, match=r'"0/state/a": .*, found an expanded one'):
            snapshot.read_object("0/state/a", out, budget)
        assert not out.any()
    assert snapshot.read_object("0/state/empty", torch.ones(1, 0).expand(2, 0), budget).numel() == 0


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_nested_tensor_is_no_target_of_a_dense_one(tmp_path, layout, is_transposed):
    snapshot = taken(tmp_path, a=torch.ones(2, 2, 3))
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(2, 3)], layout=layout)
    if is_transposed:
        nested = nested.transpose(1, 2)
    state = StateDict(a=nested)
    snapshot.restore({"state": state})
    assert torch.equal(state["a"], torch.ones(2, 2, 3))
    with pytest.raises(ValueError, match=r"shape \(2, 2, 3\), found a nested one"):
        snapshot.read_object("0/state/a", nested)
    assert not nested.values().any()


def test_a_folder_with_foreign_files_is_not_replaced(tmp_path):
    taken(tmp_path, a=torch.ones(3))
    for name in "vwxyz":
        (tmp_path / "s" / name).write_text("mine")
    with pytest.raises(ValueError, match='found "v", "w", "x" and 2 more; save to another path'):
        taken(tmp_path, a=torch.ones(3))
    assert (tmp_path / "s" / "z").read_text() == "mine"


def test_error_names_foreign_folders_without_their_files_and_omits_empty_ones(tmp_path):
    taken(tmp_path, a=torch.ones(3))
    (tmp_path / "s" / "batched" / "mine").write_text("mine")
    for name in ("data", "data/deep", "empty", "empty/deep"):
        (tmp_path / "s" / name).mkdir()
    for name in "xyz":
        (tmp_path / "s" / "data" / "deep" / name).write_text("mine")
    with pytest.raises(ValueError, match='found "batched/mine", "data"; save to another path'):
        taken(tmp_path, a=torch.ones(3))
    assert (tmp_path / "s" / "data" / "deep" / "x").read_text() == "mine"


def test_restore_fills_lazy_conjugates_in_place(tmp_path):
    stored = torch.randn(4, dtype=torch.complex64)
    snapshot = taken(tmp_path, a=stored, b=torch.ones(3))
    memory = torch.zeros(4, dtype=torch.complex64)
    state = StateDict(a=memory.conj(), b=torch.zeros(3))
    snapshot.restore({"state": state})
    assert torch.equal(state["a"], stored)
    assert torch.equal(memory, stored.conj())
    assert torch.equal(state["b"], torch.ones(3))


def test_an_expanded_lazy_conjugate_is_refused(tmp_path):
    snapshot = taken(tmp_path, a=torch.ones(2, dtype=torch.complex64), b=torch.ones(3))
    state = StateDict(b=torch.zeros(3), a=torch.zeros(1, dtype=torch.complex64).expand(2).conj())
    match = r'entry "0/state/a": .*, found an expanded one'
    with pytest.raises(ValueError, match=match):
        snapshot.restore({"state": state})
    with pytest.raises(ValueError, match=match):
        snapshot.read_object("0/state", dict(state))
    with pytest.raises(ValueError, match=match):
        snapshot.read_object("0/state/a", state["a"])
    assert not any(tensor.any() for tensor in state.values())


def test_read_object_fills_tensors_without_dimensions_or_elements_within_a_budget(tmp_path):
    snapshot = taken(tmp_path, a=torch.tensor(3.0), b=torch.zeros(0, 2))
    for name, out in (("a", torch.zeros((), dtype=torch.float64)), ("b", torch.ones(2, 0).T)):
        assert snapshot.read_object(f"0/state/{name}", out, memory_budget_bytes=1) is out
    assert snapshot.read_object("0/state/a") == 3


def test_manifest_describes_every_entry(tmp_path):
    snapshot = taken(tmp_path, a=torch.ones(3), f=0.1)
    manifest = snapshot.get_manifest()
    assert list(manifest) == ["0/state", "0/state/a", "0/state/f"]
    assert manifest["0/state"].type == "dict"
    assert manifest["0/state"].keys == ["a", "f"]
    assert manifest["0/state/a"].type == "Tensor"
    assert manifest["0/state/a"].shape == [3]
    assert manifest["0/state/f"].get_value() == 0.1
    assert (snapshot.metadata.version, snapshot.metadata.world_size) == ("0.1.0", 1)
    assert json.loads((tmp_path / "s" / ".snapshot_metadata").read_text())["world_size"] == 1


def test_replicated_entries_are_marked(tmp_path):
    state = {"state": StateDict(a=torch.ones(3), b=1)}
    snapshot = Snapshot.take(tmp_path / "s", state, replicated=["state/a"])
    assert snapshot.get_manifest()["0/state/a"].replicated
    assert not snapshot.get_manifest()["0/state/b"].replicated


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_bsc"])
def test_sparse_tensors_round_trip(tmp_path, layout):
    dense = torch.eye(4)
    sparse = {
        "sparse_coo": dense.to_sparse_coo,
        "sparse_csr": dense.to_sparse_csr,
        "sparse_bsc": lambda: dense.to_sparse_bsc((2, 2)),
    }[layout]()
    snapshot = taken(tmp_path, v=sparse)
    state = StateDict(v=None)
    snapshot.restore({"state": state})
    tenfold.save({"v": sparse}, tmp_path / "saved", format="snapshot")
    read = snapshot.read_object("0/state/v")
    for found in (state["v"], read, tenfold.load(tmp_path / "saved")["v"]):
        assert found.layout is sparse.layout
        assert torch.equal(found.to_dense(), dense)
    (state["v"]._values() if layout == "sparse_coo" else state["v"].values()).fill_(7)
    assert not torch.equal(state["v"].to_dense(), dense)
    assert torch.equal(snapshot.read_object("0/state/v").to_dense(), dense)


def test_a_sparse_tensor_without_a_name_is_refused(tmp_path):
    with pytest.raises(tenfold.UnsupportedError, match="found a tensor of layout"):
        tenfold.save(torch.eye(3).to_sparse_coo(), tmp_path / "s", format="snapshot")
    assert not (tmp_path / "s").exists()


def test_a_module_with_a_sparse_buffer_is_restored(tmp_path):
    def module():
        made = torch.nn.Linear(2, 2)
        made.register_buffer("graph", torch.zeros(3, 3).to_sparse_coo())
        return made

    first, second = module(), module()
    first.graph = torch.eye(3).to_sparse_coo()
    second.graph = torch.eye(3).to_sparse_coo() * 2
    Snapshot.take(tmp_path / "s", {"m": first}).restore({"m": second})
    assert torch.equal(second.graph.to_dense(), torch.eye(3))


def test_accepts_the_arguments_of_torchsnapshot(tmp_path):
    state = {"state": StateDict(a=torch.ones(3))}
    Snapshot.take(str(tmp_path / "s"), state, None, ["state/a"], None)
    snapshot = Snapshot(str(tmp_path / "s"), None, {})
    assert snapshot.get_manifest()["0/state/a"].replicated
    snapshot.restore(state)
    Snapshot.async_take(str(tmp_path / "s"), state, pg=None, storage_options=None).wait()
    with pytest.raises(tenfold.UnsupportedError, match=r"storage_options.*'endpoint'"):
        Snapshot.take(tmp_path / "t", state, storage_options={"endpoint": 1})


def test_restores_snapshots_written_by_torchsnapshot():
    state = StateDict(f32=torch.zeros(2, 3))
    target = state["f32"]
    Snapshot(GOLDEN / "ok-single").restore({"state": state})
    assert state["f32"] is target
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["bytes"] == b"\x00\xff"
    assert state["betas"] == (0.9, 0.999)
    assert state["none"] is None
    assert state["large"] == 2**70
    assert state["by number"] == {0: torch.zeros(1), -1: 2}
    assert isinstance(state["ordered"], OrderedDict)


def test_reads_snapshots_of_several_ranks():
    snapshot = Snapshot(GOLDEN / "ok-ranks")
    state = StateDict(table=torch.zeros(4, 6))
    snapshot.restore({"state": state})
    assert torch.equal(state["table"], torch.arange(24.0).reshape(4, 6))
    assert snapshot.read_object("1/state/own").tolist() == [1]
    assert snapshot.read_object("1/state/step") == 1
    assert tenfold.open(GOLDEN / "ok-ranks")["1", "state", "table"].shape == (4, 6)


def test_save_load_verify_and_convert_support_snapshots(tmp_path):
    tree = {"model": {"w": torch.ones(2, 3)}, "step": 3}
    path = tenfold.save(tree, tmp_path / "s", format="snapshot")
    assert tenfold.probe(path) == "snapshot"
    helpers.assert_same(tenfold.load(path, verify=True), tree)
    assert tenfold.verify(path).num_checksums == 2
    back = tenfold.convert(path, tmp_path / "m.safetensors")
    helpers.assert_same(tenfold.load(back), tree)
    with pytest.raises(tenfold.UnsupportedError, match="cannot be changed in place"):
        tenfold.open(path, mode="r+")


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
RAW = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
RAW += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TENSORS = st.builds(
    helpers.make_tensor,
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(RAW),
    st.integers(0, 9),
)
VALUES = st.integers() | st.floats(allow_nan=False) | st.booleans() | KEYS
TREES = st.recursive(
    TENSORS | VALUES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(KEYS, below, max_size=3)
        | st.dictionaries(st.integers(-9, 9), below, max_size=3)
        | st.dictionaries(KEYS, below, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_any_state_round_trips(tmp_path, state):
    path = tmp_path / "random"
    snapshot = Snapshot.take(path, {"st/ate": StateDict(state)}, durable=False)
    helpers.assert_same(snapshot.get_state_dict_for_key("st/ate"), state)
    helpers.assert_same(tenfold.load(path, verify=True), {"st/ate": state})


def test_keys_of_every_type_round_trip(tmp_path):
    t = torch.ones(2)
    state = {
        "mixed": {1: t, "a": {"b": t, -2: 3}},
        "values": {1: 2, "a": OrderedDict([("x", 1), (2, 3)])},
        "other": {0.5: t, None: {(1, "y"): t + 1, True: 4}},
        "other values": [{0.75: 0.9, None: 1}],
    }
    snapshot = taken(tmp_path, **state)
    types = {path: entry.type for path, entry in snapshot.get_manifest().items()}
    assert types["0/state/mixed"] == "dict"
    assert types["0/state/mixed/1"] in ("Tensor", "ChunkedTensor")
    assert types["0/state/other"] == "object"
    helpers.assert_same(tenfold.load(tmp_path / "s")["state"], state)
    restored = StateDict(**dict.fromkeys(state))
    snapshot.restore({"state": restored})
    helpers.assert_same(dict(restored), state)
    assert tenfold.verify(tmp_path / "s").ok
    root = {1: {"x": t}, "a": {"x": t}}
    tenfold.save(root, tmp_path / "root", format="snapshot")
    helpers.assert_same(tenfold.load(tmp_path / "root"), root)
    with pytest.raises(tenfold.UnsupportedError, match=r'root: .* found "0.5"'):
        tenfold.save({0.5: {"x": t}}, tmp_path / "no", format="snapshot")


class Unknown:
    pass


def test_objects_of_unknown_classes_are_refused_by_key_and_others_load(tmp_path):
    snapshot = taken(tmp_path, deep={"pair": (1, 2)}, w=torch.ones(2))
    location = snapshot.get_manifest()["0/state/deep/pair"].location
    torch.save(Unknown(), tmp_path / "s" / location)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "state\.deep\.pair": .*Unknown"'):
        tenfold.load(tmp_path / "s")
    assert tenfold.load(tmp_path / "s", keys=["state.w"])["state"]["w"].shape == (2,)
    held = tenfold.load(tmp_path / "s", allow_opaque=True)
    assert held["state"]["deep"]["pair"].name.endswith("test_snapshot.Unknown")
    for read in (
        lambda: snapshot.restore({"state": StateDict(deep=None)}),
        lambda: snapshot.read_object("0/state/deep/pair"),
    ):
        with pytest.raises(tenfold.UnsupportedError, match=r'"0/state/deep/pair".*Unknown"'):
            read()
    assert snapshot.read_object("0/state/w").shape == (2,)


def test_more_pickled_objects_than_the_open_file_limit_are_loaded(tmp_path):
    count = 600
    taken(tmp_path, **{f"k{i}": (torch.full((2,), i), "x") for i in range(count)})
    kinds = json.loads((tmp_path / "s" / ".snapshot_metadata").read_text())["manifest"]
    assert sum(entry["type"] == "object" for entry in kinds.values()) == count
    program = """if True:
        import resource, sys, tenfold
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
        state = tenfold.load(sys.argv[1])["state"]
        assert all(state[f"k{i}"][0].tolist() == [i, i] for i in range(int(sys.argv[2])))
        """
    subprocess.run([sys.executable, "-c", program, tmp_path / "s", str(count)], check=True)

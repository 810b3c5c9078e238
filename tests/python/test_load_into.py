import numpy as np
import pytest
import torch

import tenfold
from helpers import assert_same, rename_named_in
from tenfold import TensorDict


@pytest.fixture
def module():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


@pytest.fixture
def saved(module, target):
    return tenfold.save(module, target)


def fresh():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def test_a_module_is_filled_in_place(module, saved):
    other = fresh()
    parameters = dict(other.named_parameters())
    report = tenfold.load_into(other, saved)
    assert report.ok
    assert sorted(report.loaded) == sorted(module.state_dict())
    assert_same(dict(other.state_dict()), dict(module.state_dict()))
    assert all(parameters[name] is value for name, value in other.named_parameters())


def test_the_source_may_be_an_opened_node(module, tmp_path):
    tenfold.save({"model": module, "step": 1}, tmp_path / "run")
    other = fresh()
    assert tenfold.load_into(other, tenfold.open(tmp_path / "run")["model"]).ok
    assert_same(dict(other.state_dict()), dict(module.state_dict()))


def test_the_source_may_be_a_dict_of_tensors():
    x = torch.zeros(3)
    tenfold.load_into({"x": x}, {"x": torch.arange(3.0)})
    assert x.tolist() == [0, 1, 2]


def test_in_memory_changes_of_a_mapped_source_are_loaded(tmp_path):
    source = tenfold.open(tenfold.save({"x": torch.zeros(3)}, tmp_path / "saved"))
    source["x"] += 1
    x = torch.zeros(3)
    tenfold.load_into({"x": x}, source)
    assert x.tolist() == [1, 1, 1]


def test_strict_lists_all_mismatches_and_changes_nothing(tmp_path):
    tenfold.save({"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(1)}, tmp_path / "saved")
    target = {"a": torch.zeros(2), "b": torch.zeros(4), "d": torch.zeros(1)}
    with pytest.raises(ValueError, match="1 missing, 1 unexpected, 1 mismatched") as caught:
        tenfold.load_into(target, tmp_path / "saved")
    for part in ('"d"', '"c"', '"b": expected float32 [4], found float32 [3]'):
        assert part in str(caught.value)
    assert target["a"].sum() == 0


def test_strict_false_loads_matching_tensors_and_reports_the_rest(tmp_path):
    tenfold.save({"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(1)}, tmp_path / "saved")
    target = {"a": torch.zeros(2), "b": torch.zeros(4), "d": torch.zeros(1)}
    report = tenfold.load_into(target, tmp_path / "saved", strict=False)
    assert not report.ok
    assert report.loaded == ("a",)
    assert report.missing == ("d",)
    assert report.unexpected == ("c",)
    assert report.mismatched == (tenfold.Mismatch("b", "float32 [4]", "float32 [3]"),)
    assert (target["a"].sum(), target["b"].sum()) == (2, 0)


RENAMES = {
    "dict": {"old.w": "new.w"},
    "regex": [(r"^old\.", "new.")],
    "callable": lambda name: name.replace("old", "new"),
}


@pytest.mark.parametrize("rename", RENAMES.values(), ids=RENAMES)
def test_names_can_be_renamed(target, rename):
    tenfold.save({"old": {"w": torch.ones(2)}}, target)
    w = torch.zeros(2)
    assert tenfold.load_into({"new": {"w": w}}, target, rename=rename).loaded == ("new.w",)
    assert w.sum() == 2


def test_exception_of_rename_propagates(target):
    tenfold.save({"w": torch.ones(2)}, target)
    with pytest.raises(ZeroDivisionError):
        tenfold.load_into({"w": torch.zeros(2)}, target, rename=lambda name: 1 / 0)


def test_rename_must_return_a_str(target):
    tenfold.save({"w": torch.ones(2)}, target)
    with pytest.raises(ValueError, match="rename: expected a str, found 5"):
        tenfold.load_into({"w": torch.zeros(2)}, target, rename=lambda name: 5)

    class Surrogate:
        def __repr__(self):
            return "\ud800"

    with pytest.raises(ValueError, match="rename: expected a str, found \ud800"):
        tenfold.load_into({"w": torch.zeros(2)}, target, rename=lambda name: Surrogate())


def test_keys_select_from_the_source(target):
    tenfold.save({"a": {"x": torch.ones(2)}, "b": {"x": torch.ones(2)}}, target)
    tensors = {"a": {"x": torch.zeros(2)}, "b": {"x": torch.zeros(2)}}
    report = tenfold.load_into(tensors, target, keys=["a.*"])
    assert report.loaded == ("a.x",)
    assert tensors["b"]["x"].sum() == 0


def test_a_selected_tensor_that_the_source_lacks_is_missing(target):
    tenfold.save({"a": {"x": torch.ones(2)}}, target)
    tensors = {"a": {"x": torch.zeros(2), "y": torch.zeros(2)}}
    for keys in ("a", ["a.*"], ["*"]):
        with pytest.raises(ValueError, match=r'missing from the source \(1\): "a\.y"'):
            tenfold.load_into(tensors, target, keys=keys)


def test_the_error_names_the_prefix_of_the_selected_keys(target):
    tenfold.save({"a": {"x": torch.ones(2)}}, target)
    with pytest.raises(ValueError, match=r'without the source\'s prefix "a\."; pass a rename'):
        tenfold.load_into({"x": torch.zeros(2)}, target, keys="a")


def test_values_of_the_source_are_ignored(target):
    tenfold.save({"x": torch.ones(2), "epoch": 3}, target)
    assert tenfold.load_into({"x": torch.zeros(2)}, target).ok


def test_dtype_mismatch_needs_cast(target):
    tenfold.save({"x": torch.ones(2, dtype=torch.float64)}, target)
    x = torch.zeros(2)
    with pytest.raises(ValueError, match=r"expected float32 .* found float64 .*the option cast"):
        tenfold.load_into({"x": x}, target)
    assert tenfold.load_into({"x": x}, target, cast=True).ok
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4, 3).T,
        lambda: torch.zeros(3, 8)[:, ::2],
        lambda: torch.zeros(5, 4)[1:4],
        lambda: torch.nn.Parameter(torch.zeros(3, 4)),
        lambda: np.zeros((3, 4), np.float32),
        lambda: np.zeros((4, 3), np.float32).T,
    ],
    ids=["transposed", "strided", "rows", "parameter", "numpy", "numpy-transposed"],
)
def test_strided_targets_are_filled(target, make):
    values = torch.arange(12.0).reshape(3, 4)
    tenfold.save({"x": values}, target)
    x = make()
    tenfold.load_into({"x": x}, target)
    assert torch.equal(torch.as_tensor(x), values)


def test_a_read_only_numpy_target_is_refused(target):
    tenfold.save({"x": torch.ones(2)}, target)
    x = np.zeros(2, np.float32)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="found a read-only one"):
        tenfold.load_into({"x": x}, target)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(2, [("a", "u1"), ("x", "f4")])["x"],
        lambda: np.zeros(2, np.float32)[::-1],
        lambda: np.zeros(2, np.dtype("f4").newbyteorder()),
    ],
    ids=["packed-field", "negative-strides", "byte-order"],
)
def test_a_numpy_target_that_the_engine_cannot_write_is_refused(target, make):
    tenfold.save({"x": torch.ones(2)}, target)
    x = make()
    with pytest.raises(tenfold.UnsupportedError, match=r'"x": .*no multiple of the item size'):
        tenfold.load_into({"x": x}, target)
    assert x.sum() == 0


def test_a_nested_target_that_is_not_contiguous_is_refused():
    source = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    x = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(3, 4)]).transpose(1, 2)
    with pytest.raises(tenfold.UnsupportedError, match="found a nested one that is not contiguous"):
        tenfold.load_into({"x": x}, {"x": source})


def test_a_nested_target_on_another_device_is_refused():
    class OnCuda(torch.Tensor):
        device = torch.device("cuda")

    source = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(
        tenfold.UnsupportedError, match=r'"x": .*, found a nested one on the device'
    ):
        tenfold.load_into({"x": source.as_subclass(OnCuda)}, {"x": source})


@pytest.mark.parametrize(
    "make", [lambda: torch.eye(2).to_sparse(), lambda: torch.zeros(2, 2, device="meta")]
)
def test_a_target_without_dense_memory_is_refused(target, make):
    tenfold.save({"x": torch.ones(2, 2)}, target)
    with pytest.raises(tenfold.UnsupportedError, match='tensor "x": it cannot be written in place'):
        tenfold.load_into({"x": make()}, target)


def test_a_dtensor_is_refused_before_anything_changes(target, run_python):
    pytest.importorskip("torch.distributed.tensor")
    tenfold.save(torch.nn.Linear(3, 2), target)
    program = """
import sys
import tenfold, torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
module = torch.nn.Linear(3, 2)
module.weight = torch.nn.Parameter(distribute_tensor(torch.zeros(2, 3), mesh, [Shard(0)]))
before = module.bias.detach().clone()
for state in (module, dict(module.state_dict())):
    for strict in (True, False):
        try:
            tenfold.load_into(state, sys.argv[1], strict=strict)
        except tenfold.UnsupportedError as error:
            print(error)
assert torch.equal(module.bias, before)
distributed.destroy_process_group()
"""
    output = run_python(program, target)
    assert output.count('tensor "weight"') == output.count("found a DTensor") == 4


@pytest.mark.parametrize(
    "tensors",
    [
        {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}},
        {1: torch.zeros(1), "1": torch.zeros(1)},
        TensorDict({"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}}),
    ],
)
def test_two_tensors_of_one_name_are_refused(target, tensors):
    tenfold.save({"x": torch.ones(1)}, target)
    with pytest.raises(ValueError, match="target: two tensors are called"):
        tenfold.load_into(tensors, target, strict=False)


def test_a_tensordict_is_filled(target):
    tenfold.save({"a": {"x": torch.arange(3)}}, target)
    td = TensorDict({"a": {"x": torch.zeros(3, dtype=torch.int64)}})
    tenfold.load_into(td, target)
    assert td["a", "x"].tolist() == [0, 1, 2]


def test_a_folder_opened_for_writing_is_filled(tmp_path):
    tenfold.save({"x": torch.arange(3)}, tmp_path / "source.safetensors")
    files = TensorDict({"x": torch.zeros(3, dtype=torch.int64)}).memmap(tmp_path / "files")
    tenfold.load_into(files, tmp_path / "source.safetensors")
    assert tenfold.load(tmp_path / "files")["x"].tolist() == [0, 1, 2]


def test_last_of_the_target_names_that_share_storage_wins(target):
    tenfold.save({"b": torch.ones(1 << 20), "a": torch.zeros(1 << 20)}, target)
    memory = torch.full((1 << 20,), 5.0)
    assert sorted(tenfold.load_into({"a": memory, "b": memory}, target).loaded) == ["a", "b"]
    assert (memory == 1).all()
    tenfold.load_into({"b": memory, "a": memory}, target)
    assert (memory == 0).all()


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_tied_parameters_and_buffers_match_load_state_dict(target):
    trained, fresh, expected = Tied(), Tied(), Tied()
    trained.kept += 1
    trained.scratch += 1
    tenfold.save(trained, target)
    assert tenfold.load_into(fresh, target).ok
    expected.load_state_dict(trained.state_dict())
    assert_same(dict(fresh.state_dict()), dict(expected.state_dict()))
    assert fresh.head.weight is fresh.embed.weight
    assert fresh.scratch.sum() == 0


def test_num_batches_tracked_is_loaded(module, target):
    module.train()(torch.randn(4, 3))
    tenfold.save(module, target)
    other = fresh()
    tenfold.load_into(other, target)
    assert other[1].num_batches_tracked == 1


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model."])
def test_common_prefix_error_suggests_a_working_rename(module, target, prefix):
    tenfold.save({prefix + name: value for name, value in module.state_dict().items()}, target)
    other = fresh()
    with pytest.raises(ValueError, match="without the source's prefix") as caught:
        tenfold.load_into(other, target)
    assert tenfold.load_into(other, target, rename=rename_named_in(caught.value)).ok
    assert_same(dict(other.state_dict()), dict(module.state_dict()))


def test_wrapped_module_error_suggests_adding_the_prefix(module, saved):
    wrapped = torch.nn.DataParallel(fresh())
    with pytest.raises(ValueError, match="with the prefix") as caught:
        tenfold.load_into(wrapped, saved)
    assert tenfold.load_into(wrapped, saved, rename=rename_named_in(caught.value)).ok
    assert_same(dict(wrapped.module.state_dict()), dict(module.state_dict()))


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".pt"])
def test_error_names_the_model_inside_a_checkpoint(module, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    checkpoint = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}
    torch.save(checkpoint, path) if suffix == ".pt" else tenfold.save(checkpoint, path)
    other = fresh()
    with pytest.raises(ValueError, match=r'; select the keys "model\.\*"') as caught:
        tenfold.load_into(other, path)
    rename = rename_named_in(caught.value)
    assert tenfold.load_into(other, path, keys=["model.*"], rename=rename).ok
    assert_same(dict(other.state_dict()), dict(module.state_dict()))
    assert tenfold.load_into(fresh(), tenfold.open(path)["model"]).ok


def test_a_lazy_module_is_refused(target):
    tenfold.save(torch.nn.Linear(3, 2), target)
    with pytest.raises(tenfold.UnsupportedError, match=r'"weight": .*found an uninitialised one'):
        tenfold.load_into(torch.nn.LazyLinear(2), target)


def test_module_on_the_meta_device_is_refused_with_remedies(module, saved):
    with torch.device("meta"):
        other = fresh()
    with pytest.raises(tenfold.UnsupportedError, match="on the meta device; module"):
        tenfold.load_into(other, saved)
    other.to_empty(device="cpu")
    assert tenfold.load_into(other, saved).ok
    assert_same(dict(other.state_dict()), dict(module.state_dict()))


class WithExtraState(torch.nn.Linear):
    def get_extra_state(self):
        return torch.ones(2)

    def set_extra_state(self, state):
        raise AssertionError("not reached")


def test_extra_state_is_refused_unless_strict_is_false(target):
    module = WithExtraState(3, 2)
    tenfold.save(module.state_dict(), target)
    with pytest.raises(tenfold.UnsupportedError, match=r'"_extra_state": .*value that state_dict'):
        tenfold.load_into(module, target)
    report = tenfold.load_into(module, target, strict=False)
    assert (sorted(report.loaded), report.unexpected) == (["bias", "weight"], ("_extra_state",))


def test_state_without_tensors_is_refused(tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    path = tenfold.save(scheduler, tmp_path / "saved")
    with pytest.raises(
        tenfold.UnsupportedError, match=r"in the state of a StepLR.*load_state_dict"
    ):
        tenfold.load_into(scheduler, path)


class Averages:
    """An object that is no module but has a state_dict()."""

    def __init__(self, names):
        self.own = {name: torch.zeros(2) for name in names}
        self.own["array"] = np.zeros(2, np.float32)

    def state_dict(self):
        return {"averages": dict(self.own)}


class CopiedAverages(Averages):
    def state_dict(self):
        return {"averages": {**self.own, "w": self.own["w"].clone()}}


def test_the_tensors_of_an_object_are_filled(target):
    averages = Averages(["w", "v"])
    tenfold.save({"averages": {name: torch.ones(2) for name in averages.own}}, target)
    assert tenfold.load_into(averages, target).ok
    assert all(tensor.sum() == 2 for tensor in averages.own.values())


def test_tensors_that_state_dict_copies_are_refused_unless_strict_is_false(target):
    averages = CopiedAverages(["w", "v"])
    tenfold.save({"averages": {name: torch.ones(2) for name in averages.own}}, target)
    match = (
        r'"averages.w": .*tensor of the CopiedAverages, found a value that state_dict\(\) creates'
    )
    with pytest.raises(tenfold.UnsupportedError, match=match):
        tenfold.load_into(averages, target)
    assert averages.own["v"].sum() == 0
    report = tenfold.load_into(averages, target, strict=False)
    assert (report.loaded, report.unexpected) == (
        ("averages.v", "averages.array"),
        ("averages.w",),
    )
    assert [int(tensor.sum()) for tensor in averages.own.values()] == [0, 2, 2]


def test_an_object_without_state_is_loaded(target):
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    tenfold.save({"x": torch.ones(1)}, target)
    report = tenfold.load_into(scaler, target, strict=False)
    assert (report.loaded, report.unexpected) == ((), ("x",))


def test_an_expanded_target_is_refused(target):
    tenfold.save({"x": torch.arange(3.0)}, target)
    with pytest.raises(ValueError, match="found an expanded one"):
        tenfold.load_into({"x": torch.zeros(1).expand(3)}, target)


def test_an_expanded_lazy_conjugate_is_refused_before_anything_changes(target):
    tenfold.save({"d": torch.ones(2), "c": torch.tensor([1j, 2j])}, target)
    d, c = torch.zeros(2), torch.zeros(1, dtype=torch.complex64).expand(2).conj()
    with pytest.raises(ValueError, match=r'target: tensor "c": .*, found an expanded one'):
        tenfold.load_into({"d": d, "c": c}, target)
    assert not d.any()
    assert not c.any()
    report = tenfold.load_into({"d": d, "other": c}, target, strict=False)
    assert report.loaded == ("d",)


def test_unsupported_target_type_is_refused(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(ValueError, match=r"target: expected a module, .*, found int"):
        tenfold.load_into(3, target)


def test_autograd_detects_overwritten_values(target):
    tenfold.save({"x": torch.ones(2)}, target)
    x = torch.zeros(2, requires_grad=True)
    loss = (x * 1).square().sum() + (x**2).sum()
    tenfold.load_into({"x": x}, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class IndirectTensors:
    """Makes `load_into` fill the tensors `names` through buffers, as if on another device.

    The buffers are used in groups of at most 16 bytes; a larger buffer is a group of its own.
    """

    def __init__(self, monkeypatch, names):
        from tenfold._io import load_into

        known = load_into._is_direct
        monkeypatch.setattr(
            load_into, "_is_direct", lambda name, tensor: name not in names and known(name, tensor)
        )
        monkeypatch.setattr(load_into, "_GROUP_BYTES", 16)


@pytest.mark.parametrize("names", [{"a"}, {"a", "b", "c"}])
def test_indirect_tensors_are_filled_in_groups(target, monkeypatch, names):
    IndirectTensors(monkeypatch, names)
    tree = {"a": torch.arange(3.0), "b": torch.ones(4), "c": torch.ones(2)}
    tenfold.save(tree, target)
    tensors = {key: torch.zeros_like(value) for key, value in tree.items()}
    assert tenfold.load_into(tensors, target).loaded == ("a", "b", "c")
    assert_same(tensors, tree)


def test_indirect_tensors_are_checked_before_anything_changes(target, monkeypatch):
    IndirectTensors(monkeypatch, {"a"})
    tenfold.save({"a": torch.ones(3), "b": torch.ones(4)}, target)
    tensors = {"a": torch.zeros(2), "b": torch.zeros(4)}
    with pytest.raises(ValueError, match="1 mismatched"):
        tenfold.load_into(tensors, target)
    assert tensors["b"].sum() == 0


def test_rename_of_a_missing_name_raises(tmp_path):
    tenfold.save({"module.a": torch.ones(2)}, tmp_path / "m.safetensors")
    into = {"a": torch.zeros(2)}
    for name, match in (("zzz", 'no key "zzz"'), ("module", "whole names are renamed")):
        with pytest.raises(KeyError) as caught:
            tenfold.load_into(into, tmp_path / "m.safetensors", strict=False, rename={name: "a"})
        assert match in caught.value.args[0]
    tenfold.load_into(into, tmp_path / "m.safetensors", rename={"module.a": "a"})
    assert into["a"].sum() == 2


def test_a_report_has_no_truth_value() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"^LoadReport: .*use \.ok$"):
        bool(tenfold.load_into(model, model.state_dict()))


@pytest.mark.parametrize("group_bytes", [1, 40, 1 << 20])
def test_tensors_that_the_engine_cannot_write_are_filled_in_groups(
    tmp_path, monkeypatch, group_bytes
):
    monkeypatch.setattr("tenfold._io.load_into._GROUP_BYTES", group_bytes)
    state = {str(i): torch.randn(4, dtype=torch.complex64) for i in range(5)}
    tenfold.save({**state, "plain": torch.ones(3)}, tmp_path / "s.pt")
    target = {name: torch.zeros_like(tensor).conj() for name, tensor in state.items()}
    target["plain"] = torch.zeros(3)
    assert tenfold.load_into(target, tmp_path / "s.pt").ok
    assert all(torch.equal(target[name], tensor) for name, tensor in state.items())
    assert torch.equal(target["plain"], torch.ones(3))

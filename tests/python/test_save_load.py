import gc
import json
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch

import tenfold
from helpers import DTYPES, assert_same, make_tensor
from tenfold._interop import arrays


def round_trip(obj, target, **options):
    tenfold.save(obj, target)
    return tenfold.load(target, **options)


NOT_IN_SAFETENSORS = {torch.complex32, torch.complex128}


@pytest.mark.filterwarnings("ignore:.*tensordict 0.15.3 cannot load float8", "ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 3), (1,)], ids=str)
def test_tensors_of_every_dtype_round_trip(target, dtype, shape):
    half_a_byte = dtype == getattr(torch, "float4_e2m1fn_x2", None) and shape == ()
    if target.suffix == ".safetensors" and (dtype in NOT_IN_SAFETENSORS or half_a_byte):
        with pytest.raises(tenfold.UnsupportedError, match='key "x": '):
            tenfold.save({"x": make_tensor(shape, dtype)}, target)
        return
    assert_same(
        round_trip({"x": make_tensor(shape, dtype)}, target)["x"], make_tensor(shape, dtype)
    )


def test_save_returns_the_path(target):
    assert tenfold.save({"x": torch.zeros(1)}, str(target)) == target


def test_nested_containers_round_trip(target):
    tree = {
        "dict": {"x": torch.arange(3)},
        "ordered": OrderedDict([("b", torch.zeros(1)), ("a", 1)]),
        "list": [torch.zeros(2), None, {"y": torch.ones(1)}],
        "tuple": (torch.zeros(2), 1.5, ("deep", torch.ones(1))),
        "empty": {"tensor": torch.zeros(1), "dict": {}, "list": [], "tuple": ()},
    }
    assert_same(round_trip(tree, target), tree)


def test_json_values_round_trip(target):
    tree = {
        "tensor": torch.zeros(1),
        "none": None,
        "bool": True,
        "int": -7,
        "big": 2**80,
        "float": 0.1,
        "inf": float("-inf"),
        "nan": float("nan"),
        "text": 'quotes " and \u2603 and \x00',
        "config": {"lr": 1e-3, "betas": (0.9, 0.999), "tags": ["a", {"b": None}]},
    }
    assert_same(round_trip(tree, target), tree)


def test_int_keys_round_trip(target):
    tree = {
        "state": {0: {"step": torch.tensor(3.0)}, 10: {"step": torch.tensor(4.0)}, 2: {}},
        "values": {1: "a", -2: "b"},
    }
    assert_same(round_trip(tree, target), tree)


#: Dicts whose keys are neither all str nor all int.
KEYS = {
    "int and str": [1, "a"],
    "str and int": ["a", -1, 2**70],
    "float": [0.5, 0.75, float("inf"), 1e22, -0.0],
    "bool": [True, False],
    "none": [None],
    "tuple": [(1, 2), (), (1,), ("a'b", None, (2.5, True))],
    "all": ["x", 1, 0.5, None, (1, "y"), "", "a/b"],
}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_keys_of_every_type_round_trip(target, keys, kind):
    tree = {
        "tensors": kind((key, torch.full((2,), float(i))) for i, key in enumerate(keys)),
        "values": [{"deep": kind((key, i) for i, key in enumerate(keys))}],
        "nested": {"x": kind((key, {"y": torch.zeros(1)}) for key in keys)},
    }
    tenfold.save(tree, target)
    for loaded in (tenfold.load(target), tenfold.open(target).to_dict()):
        assert_same(loaded, tree)
        for part in (loaded["tensors"], loaded["values"][0]["deep"], loaded["nested"]["x"]):
            assert [type(key) for key in part] == [type(key) for key in keys]
            assert repr(list(part)) == repr(keys)
    assert tenfold.verify(target).ok
    assert tenfold.diff(target, target).same


def test_key_types_survive_conversion_and_partial_load(target, tmp_path):
    tree = {"t": {0.5: torch.zeros(1), None: torch.ones(1), "x": {(1, 2): 3}}, 1: torch.ones(2)}
    tenfold.save(tree, target)
    for name in ("folder", "m.safetensors", "m.pt", "m.tdz"):
        tenfold.convert(target, tmp_path / name)
        assert_same(tenfold.load(tmp_path / name), tree)
        assert tenfold.diff(target, tmp_path / name).same
    assert_same(tenfold.load(target, keys=["t.None"]), {"t": {None: torch.ones(1)}})
    assert_same(tenfold.load(target, keys=[("t", "0.5")]), {"t": {0.5: torch.zeros(1)}})
    opened = tenfold.open(target)
    assert torch.equal(opened["t", "0.5"], torch.zeros(1))
    tenfold.save(opened, tmp_path / "again")
    assert_same(tenfold.load(tmp_path / "again"), tree)


def test_diff_distinguishes_key_types(tmp_path):
    tenfold.save({"t": {0.5: torch.zeros(1)}, "v": {None: 1}}, tmp_path / "a")
    tenfold.save({"t": {"0.5": torch.zeros(1)}, "v": {"None": 1}}, tmp_path / "b.pt")
    assert [change.key for change in tenfold.diff(tmp_path / "a", tmp_path / "b.pt").changed] == [
        "t",
        "v",
    ]


@pytest.mark.parametrize("root", [[torch.zeros(1), 2], (torch.zeros(1),), {0: torch.zeros(1)}])
def test_root_list_tuple_or_dict_with_int_keys_round_trips(target, root):
    assert_same(round_trip(root, target), root)


@pytest.mark.parametrize("root", [{}, {"a": 1, "b": {"c": [1, (2,)]}}, [1, "x"]], ids=str)
def test_tree_without_tensors_round_trips(target, root):
    assert_same(round_trip(root, target), root)


def test_flat_dict_of_tensors_is_a_plain_safetensors_file(tmp_path):
    reference = pytest.importorskip("safetensors.torch")
    tree = {"a.b": torch.arange(3), "c": torch.zeros(2, 2)}
    tenfold.save(tree, tmp_path / "m.safetensors")
    assert_same(dict(sorted(reference.load_file(tmp_path / "m.safetensors").items())), tree)


def test_defaultdict_is_loaded_as_dict(target):
    tree = defaultdict(list, x=torch.zeros(1))
    assert_same(round_trip(tree, target), dict(tree))


def test_named_tuples_are_loaded_as_tuples(target):
    point = namedtuple("Point", "x y")(torch.zeros(1), 2)
    assert_same(round_trip({"point": point}, target), {"point": tuple(point)})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0)[::-2],
        np.arange(4, dtype=">i4"),
        np.array(2.5),
        np.float32(2.5),
        np.broadcast_to(np.float64(1), (3, 2)),
        np.zeros((0, 2), np.uint8),
        np.array([True, False]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_numpy_arrays_are_loaded_as_tensors_of_equal_values(target, array):
    found = round_trip({"x": array}, target)["x"]
    native = np.array(array, array.dtype.newbyteorder("="), copy=True)
    assert_same(found, torch.from_numpy(native))


def test_a_read_only_numpy_array_can_be_saved(target):
    array = np.arange(3)
    array.flags.writeable = False
    assert_same(round_trip({"x": array}, target)["x"], torch.arange(3))


def test_ml_dtypes_arrays_can_be_saved(target):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.0, -2.5], ml_dtypes.bfloat16)
    found = round_trip({"x": array}, target)["x"]
    assert_same(found, torch.tensor([1.0, -2.5], dtype=torch.bfloat16))


def test_a_dtype_that_the_installed_ml_dtypes_lacks_is_an_error_that_names_it(
    tmp_path, monkeypatch
):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tenfold.save({"x": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    monkeypatch.delattr(ml_dtypes, "bfloat16")
    with pytest.raises(tenfold.UnsupportedError, match=r"x: ml_dtypes .* has no bfloat16: .* -U"):
        tenfold.load(path, framework="numpy")


class OnlyDlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_anything_with_dlpack_can_be_saved(target):
    assert_same(round_trip({"x": OnlyDlpack(torch.arange(5))}, target)["x"], torch.arange(5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(12.0).reshape(3, 4).T,
        lambda: torch.arange(12)[::3],
        lambda: torch.ones(1).expand(5),
        lambda: torch.nn.Parameter(torch.ones(3)),
        lambda: torch.ones(3, requires_grad=True) * 2,
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        lambda: torch._neg_view(torch.tensor([1.0, -2.0], dtype=torch.bfloat16)),
        lambda: torch._neg_view(torch.tensor([1, -2])),
        lambda: torch._efficientzerotensor(4),
    ],
    ids=[
        "transposed",
        "strided",
        "expanded",
        "parameter",
        "graph",
        "conj",
        "neg",
        "bfloat16",
        "int",
        "zero",
    ],
)
def test_views_and_conjugates_are_saved_with_their_resolved_values(target, make):
    found = round_trip({"x": make()}, target)["x"]
    assert torch.equal(found, make().detach().resolve_conj().resolve_neg().clone())


def test_a_module_is_saved_as_its_state_dict(target):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    tenfold.save({"model": module}, target)
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    other.load_state_dict(tenfold.load(target)["model"])
    assert_same(dict(other.state_dict()), dict(module.state_dict()))


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    ],
    ids=["adam", "momentum", "sgd"],
)
def test_an_optimizer_continues_from_its_saved_state(target, make):
    def step(model, optimizer, seed):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    model = torch.nn.Linear(3, 2)
    optimizer = make(model.parameters())
    step(model, optimizer, 0)
    tenfold.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, target)
    other = torch.nn.Linear(3, 2)
    saved = tenfold.load(target)
    other.load_state_dict(saved["model"])
    resumed = make(other.parameters())
    resumed.load_state_dict(saved["optimizer"])
    step(model, optimizer, 1)
    step(other, resumed, 1)
    assert_same(dict(other.state_dict()), dict(model.state_dict()))


def test_optimizer_state_with_lists_of_tensors_round_trips(target):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    tenfold.save(optimizer, target)
    assert_same(tenfold.load(target), optimizer.state_dict())


def test_scheduler_state_round_trips(target):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    tenfold.save({"x": torch.zeros(1), "scheduler": scheduler}, target)
    assert_same(tenfold.load(target)["scheduler"], scheduler.state_dict())


def test_tied_tensors_are_loaded_as_one_object(target):
    weight = torch.randn(4, 3)
    found = round_trip({"embed": weight, "head": {"weight": weight}}, target)
    assert found["embed"] is found["head"]["weight"]


def test_tied_tensors_are_stored_once(target):
    weight = torch.randn(300, 1000)
    tenfold.save({"a": weight, "b": {"c": weight}}, target)
    assert tenfold.verify(target).ok
    inodes = {}
    for path in [target] if target.is_file() else target.rglob("*.memmap"):
        inodes[path.stat().st_ino] = path.stat().st_size
    assert sum(inodes.values()) < 1.5 * weight.nbytes


def test_tied_tensors_of_different_shapes_share_one_storage(tmp_path):
    weight = torch.randn(4, 3)
    found = round_trip({"a": weight, "b": weight.view(12)}, tmp_path / "folder")
    found["a"][0, 0] = 42
    assert found["b"][0] == 42


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".tdz", ".npz", ".pt"])
def test_only_pt_files_keep_the_storage_of_tensors_that_overlap(tmp_path, suffix):
    base = torch.arange(12.0).reshape(3, 4)
    for view in (base[:2], base.T, base[:, ::2]):
        found = round_trip({"a": base, "b": view}, tmp_path / f"saved{suffix}")
        assert_same(found, {"a": base, "b": view})
        storages = {tensor.untyped_storage().data_ptr() for tensor in found.values()}
        assert len(storages) == (1 if suffix == ".pt" else 2)


def test_safetensors_files_have_copies_of_tied_tensors_of_different_shapes(tmp_path):
    weight = torch.randn(4, 3)
    found = round_trip({"a": weight, "b": weight.view(12)}, tmp_path / "x.safetensors")
    assert_same(found, {"a": weight, "b": weight.view(12)})
    assert found["a"].data_ptr() != found["b"].data_ptr()


def test_a_tied_module_stays_tied(target):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(5, 3)
            self.head = torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    tenfold.save({"model": Tied().state_dict(), "step": 1}, target)
    state = tenfold.load(target)["model"]
    assert state["embed.weight"] is state["head.weight"]


def test_aliases_false_loads_tied_tensors_separately(target):
    weight = torch.randn(4, 3)
    found = round_trip({"a": weight, "b": weight}, target, aliases=False)
    found["a"].zero_()
    assert torch.equal(found["b"], weight)


def test_strided_nested_tensors_round_trip_in_a_folder(tmp_path):
    parts = [torch.arange(6.0).reshape(2, 3), torch.ones(1, 3)]
    found = round_trip({"x": torch.nested.nested_tensor(parts)}, tmp_path / "saved")["x"]
    assert_same(list(found.unbind()), parts)


def test_a_nested_tensor_may_have_no_components():
    made = arrays.nested_array(torch.zeros(0, dtype=torch.int16), [])
    assert made.is_nested
    assert made.dtype == torch.int16
    assert made.unbind() == ()


def test_a_subclass_of_parameter_is_loaded_as_a_parameter(tmp_path):
    class Special(torch.nn.Parameter):
        pass

    found = round_trip({"w": Special(torch.ones(2), requires_grad=False)}, tmp_path / "x.pt")["w"]
    assert type(found) is torch.nn.Parameter
    assert not found.requires_grad


def test_ten_thousand_leaves_round_trip(target):
    tree = {f"layer.{i}.weight": torch.full((4,), i) for i in range(10_000)}
    found = round_trip(tree, target)
    assert list(found) == list(tree)
    assert all(torch.equal(found[key], tree[key]) for key in tree)


def test_loaded_tensors_outlive_the_file(target):
    import shutil

    found = round_trip({"x": torch.arange(100_000)}, target)["x"]
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    assert torch.equal(found, torch.arange(100_000))


def test_loaded_tensors_can_be_trained_and_deep_copied(target):
    import copy

    found = round_trip({"x": torch.ones(3)}, target)["x"]
    found.requires_grad_()
    found.sum().backward()
    assert torch.equal(found.grad, torch.ones(3))
    assert torch.equal(copy.deepcopy(found.detach()), torch.ones(3))


def test_overwrite_replaces_the_file_and_old_tensors_keep_their_data(target):
    tenfold.save({"x": torch.zeros(100_000)}, target)
    old = tenfold.load(target)["x"]
    tenfold.save({"x": torch.ones(100_000)}, target)
    assert old.sum() == 0
    assert tenfold.load(target)["x"].sum() == 100_000


def test_a_tree_can_be_saved_over_the_file_it_was_loaded_from(target):
    tenfold.save({"x": torch.arange(100_000), "y": torch.zeros(3)}, target)
    tree = tenfold.load(target)
    tree["y"] += 1
    tenfold.save(tree, target)
    assert_same(tenfold.load(target), {"x": torch.arange(100_000), "y": torch.ones(3)})


@pytest.mark.parametrize("enabled", [True, False])
def test_load_restores_the_garbage_collector_state(tmp_path, enabled, monkeypatch):
    path = tmp_path / "t"
    tenfold.save({"k": torch.ones(2), "d": tenfold.TensorDict({"x": torch.ones(2)})}, path)
    was_enabled = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        tenfold.load(path)
        assert gc.isenabled() == enabled
        monkeypatch.setattr(tenfold.TensorDict, "_from_native", lambda *args: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            tenfold.load(path)
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if was_enabled else gc.disable()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_folder_whose_keys_need_the_same_file_name_is_replaced(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    tree = {"x.shape": torch.ones(2), "x": nested}  # the sizes of "x" need the file of "x.shape"
    for _ in range(2):
        tenfold.save(tree, tmp_path / "t")
    loaded = tenfold.load(tmp_path / "t")
    assert loaded["x"].unbind()[1].tolist() == [1]


@pytest.mark.parametrize(
    ("file", "member"), [("%notes.json", "version"), ("meta.json", "_format_version")]
)
def test_a_folder_of_a_newer_version_is_not_replaced(tmp_path, file, member):
    path = tenfold.save({"a": torch.ones(4)}, tmp_path / "t")
    document = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps(document | {member: 9}))
    with pytest.raises(tenfold.UnsupportedError, match="newer"):
        tenfold.save({"b": torch.ones(1)}, path)
    assert (path / "a.memmap").exists()

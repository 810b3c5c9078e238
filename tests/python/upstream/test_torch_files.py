"""Files that torch.save writes, read by tenfold as torch.load(weights_only=True) reads them."""

import collections
import io
import os
import pathlib
import re
import warnings
import zipfile

import numpy
import pytest
import torch

import tenfold
from tenfold import _arrays


def assert_same(ours, theirs, where="root"):
    """The same types, nesting, key order, dtypes, shapes and bytes."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), where
        assert ours.layout == theirs.layout, where
        if theirs.layout is not torch.strided or theirs.is_nested:
            assert str(ours) == str(theirs), where
            return
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        assert (type(ours), ours.requires_grad) == (type(theirs), theirs.requires_grad), where
        assert raw(ours) == raw(theirs), where
        return
    assert type(ours) is type(theirs), where
    assert getattr(ours, "_metadata", None) == getattr(theirs, "_metadata", None), where
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{where}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, value in enumerate(theirs):
            assert_same(ours[i], value, f"{where}.{i}")
    else:
        assert ours == theirs, where


def raw(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def roundtrip(tmp_path, obj, **options):
    path = tmp_path / "checkpoint.pt"
    torch.save(obj, path, **options)
    assert tenfold.probe(path) == "pt"
    assert tenfold.verify(path).ok
    ours = tenfold.load(path)
    assert_same(ours, torch.load(path, weights_only=True))
    return ours


def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )


def stepped(model, make, steps=2):
    optimizer = make(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3, 3, 3)).square().sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return optimizer


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, torch.tensor(0.1)),
    "lbfgs": lambda p: torch.optim.LBFGS(p, 0.1, history_size=3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_checkpoints_of_a_training_run(tmp_path, name):
    model = module()
    optimizer = stepped(model, OPTIMIZERS[name])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 3,
        "rng": torch.get_rng_state(),
    }
    ours = roundtrip(tmp_path, state)
    again = OPTIMIZERS[name](module().parameters())
    again.load_state_dict(ours["optimizer"])
    assert_same(again.state_dict(), optimizer.state_dict())


def test_a_module_loads_from_the_file(tmp_path):
    model = module()
    torch.save(model.state_dict(), tmp_path / "m.pth")
    fresh = module()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    tenfold.load_into(fresh, tmp_path / "m.pth")
    assert_same(fresh.state_dict(), model.state_dict())


def test_schedulers(tmp_path):
    optimizer = stepped(module(), OPTIMIZERS["sgd"])
    lr = torch.optim.lr_scheduler
    for scheduler in (
        lr.StepLR(optimizer, 2),
        lr.MultiStepLR(optimizer, [1, 3]),
        lr.ReduceLROnPlateau(optimizer),
        lr.OneCycleLR(optimizer, 0.1, total_steps=5),
    ):
        torch.save(scheduler.state_dict(), tmp_path / "s.pt")
        theirs = torch.load(tmp_path / "s.pt", weights_only=False)
        assert_same(tenfold.load(tmp_path / "s.pt"), theirs)


def test_views(tmp_path):
    base = torch.arange(24.0).reshape(2, 3, 4)
    ours = roundtrip(
        tmp_path,
        {
            "base": base,
            "transposed": base.transpose(0, 2),
            "slice": base[1, :, 1:3],
            "steps": base[:, ::2],
            "expanded": base[:, :1].expand(2, 5, 4),
            "permuted": base.permute(2, 0, 1)[1:],
            "zero": base[2:],
            "scalar": base[1, 2, 3],
            "channels_last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        },
    )
    assert ours["transposed"].stride() == base.transpose(0, 2).stride()
    ours["base"][1, 2, 3] = -1
    assert ours["scalar"] == -1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_layout_before_torch_1_6(tmp_path, name):
    model = module()
    weight = torch.rand(3, 2)
    state = {
        "model": model.state_dict(),
        "optimizer": stepped(model, OPTIMIZERS[name]).state_dict(),
        "views": [weight, weight.t(), weight[1:], torch.ones(2).bfloat16()],
    }
    ours = roundtrip(tmp_path, state, _use_new_zipfile_serialization=False)
    assert ours["views"][0].data_ptr() == ours["views"][1].data_ptr()


def test_ties_stay_ties(tmp_path):
    weight = torch.nn.Parameter(torch.rand(3, 2))
    ours = roundtrip(tmp_path, {"embed": weight, "head": {"weight": weight}})
    assert ours["embed"].data_ptr() == ours["head"]["weight"].data_ptr()


@pytest.mark.parametrize("name", _arrays.DTYPES)
def test_dtypes(tmp_path, name):
    dtype = getattr(torch, name)
    data = torch.arange(2 * dtype.itemsize, dtype=torch.uint8) % 2
    values = data.view(dtype)
    roundtrip(tmp_path, {"x": values, "none": values[:0], "one": values[1]})


def test_values(tmp_path):
    roundtrip(
        tmp_path,
        {
            "size": torch.Size([1, 2]),
            "values": [None, True, 2**80, -1.5, "caf\u00e9", (), {}, ("x", [1])],
            "ints": {0: "a", -5: {2**70: 1}},
            "ordered": collections.OrderedDict(b=1, a=collections.OrderedDict()),
            "torch": [torch.float8_e4m3fn, torch.device("cuda", 1), torch.sparse_csr],
            "bytes": [b"\x00\xff", bytearray(b"\x80"), bytearray()],
            "sets": [{1, "a", (2, None)}, set(), {b"x"}],
            "numbers": [1 - 2j, collections.Counter(a=2, b=1)],
        },
    )


def test_what_torch_needs_permission_for(tmp_path):
    obj = {
        "f": numpy.float64(2.5),
        "i": numpy.int32(-7),
        "a": numpy.arange(6).reshape(2, 3).T,
        "d": collections.defaultdict(list, x=[1]),
        "z": [frozenset({1}), b""],
    }
    torch.save(obj, tmp_path / "n.pt")
    ours = tenfold.load(tmp_path / "n.pt")
    assert ours["f"].dtype == torch.float64
    assert ours["f"] == 2.5
    assert ours["i"].dtype == torch.int32
    assert ours["i"] == -7
    assert torch.equal(ours["a"], torch.from_numpy(obj["a"].copy()))
    assert ours["d"] == {"x": [1]}
    assert type(ours["d"]) is dict
    assert ours["z"] == obj["z"]
    assert type(ours["z"][0]) is frozenset


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (b"abc", numpy.dtype("f8"), (5,), "C"),
            "bytes do not fit the shape: expected 40, found 3",
        ),
        ((b"abcd", numpy.dtype("f4"), (1,), "A"), 'order: expected "C" or "F"'),
        ((b"abcd", numpy.dtype("f4"), (-1,), "C"), "shape"),
        ((b"abcd", numpy.dtype(">f4"), (1,), "C"), "big-endian"),
        ((b"abcd", numpy.dtype("f4"), (1,)), "argument"),
    ],
)
def test_arrays_of_protocol_5_that_do_not_fit_are_refused(tmp_path, arguments, words):
    class Array:
        def __reduce__(self):
            return numpy.empty(0).__reduce_ex__(5)[0], arguments

    torch.save({"a": Array()}, tmp_path / "m.pt", pickle_protocol=5)
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=words):
        tenfold.load(tmp_path / "m.pt")


def test_versions_of_layers_reach_load_state_dict(tmp_path):
    model = module()
    ours = roundtrip(tmp_path, model.state_dict())
    assert ours._metadata["1"] == {"version": 2}
    for target in ("folder", "m.safetensors", "m.pt"):
        tenfold.convert(tmp_path / "checkpoint.pt", tmp_path / target)
        loaded = tenfold.load(tmp_path / target)
        assert loaded._metadata == ours._metadata, target
        assert type(loaded._metadata) is collections.OrderedDict
        tenfold.save(loaded, tmp_path / f"again-{target}")
        assert tenfold.load(tmp_path / f"again-{target}")._metadata == ours._metadata
    model.load_state_dict(ours)


def test_sparse_and_nested_tensors(tmp_path):
    dense = torch.tensor([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 5.0]])
    coo = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 4), check_invariants=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = {
            "coo": dense.to_sparse(),
            "uncoalesced": coo,
            "hybrid": torch.eye(3).reshape(3, 3, 1).to_sparse(2),
            "csr": dense.to_sparse_csr(),
            "batched": torch.stack([dense, dense]).to_sparse_csr(),
            "csc": dense.to_sparse_csc(),
            "bsr": dense.to_sparse_bsr((2, 2)),
            "bsc": dense.to_sparse_bsc((2, 1)),
            "empty": torch.zeros(3, 0).to_sparse(),
            "x": [dense],
        }
        ours = roundtrip(tmp_path, tree)
        for target in ("folder", "m.pt", "m.tdz", "m.td"):
            form = "consolidated" if target == "m.td" else None
            tenfold.convert(tmp_path / "checkpoint.pt", tmp_path / target, format=form)
            assert_same(tenfold.load(tmp_path / target), ours)
            assert tenfold.verify(tmp_path / target).ok
            tenfold.save(ours, tmp_path / f"again-{target}", format=form)
            assert_same(tenfold.load(tmp_path / f"again-{target}"), ours)
            assert_same(tenfold.open(tmp_path / target).to_dict(), dict(ours))
        torch.load(tmp_path / "m.pt", weights_only=True)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "coo": format "safetensors" cannot'):
        tenfold.convert(tmp_path / "checkpoint.pt", tmp_path / "m.safetensors")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "coo": format "safetensors" cannot'):
        tenfold.save(ours, tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


def test_indices_of_sparse_tensors_are_checked_before_torch_sees_them(tmp_path):
    def hostile(tensor, part, value):
        getattr(tensor, part)()[..., -1] = value
        return tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "indices: expected 0 to 2, found 3": hostile(torch.eye(3).to_sparse(), "_indices", 3),
            "indices: expected 0 to 2, found -1": hostile(torch.eye(3).to_sparse(), "_indices", -1),
            "crow_indices: expected 3 last, found 9": hostile(
                torch.eye(3).to_sparse_csr(), "crow_indices", 9
            ),
            "col_indices: expected 0 to 2, found 7": hostile(
                torch.eye(3).to_sparse_csr(), "col_indices", 7
            ),
            "row_indices: expected 0 to 2, found 8": hostile(
                torch.eye(3).to_sparse_csc(), "row_indices", 8
            ),
        }
    for message, tensor in made.items():
        torch.save({"a": {"s": tensor}}, tmp_path / "m.pt")
        with pytest.raises(tenfold.CorruptFileError, match=f'key "a.s": sparse tensor: {message}'):
            tenfold.load(tmp_path / "m.pt")


class Config:
    def __init__(self, lr):
        self.lr = lr
        self.weight = torch.arange(3.0)


def test_objects_of_other_classes_are_shown_and_not_made(tmp_path, monkeypatch):
    torch.save({"config": Config(0.5), "w": torch.ones(2), "cls": Config}, tmp_path / "m.pt")
    monkeypatch.setattr(Config, "__init__", lambda *_: pytest.fail("called"))
    with pytest.raises(tenfold.UnsupportedError, match=r'key "config": .*test_torch_files.Config"'):
        tenfold.load(tmp_path / "m.pt")
    assert torch.equal(tenfold.load(tmp_path / "m.pt", keys="w")["w"], torch.ones(2))
    opened = tenfold.open(tmp_path / "m.pt")
    assert torch.equal(opened["config", "state", "weight"], torch.arange(3.0))
    loaded = tenfold.load(tmp_path / "m.pt", allow_opaque=True)
    config = loaded["config"]
    assert isinstance(config, tenfold.Opaque)
    assert config.name.endswith("test_torch_files.Config")
    assert config.state["lr"] == 0.5
    assert torch.equal(config.state["weight"], torch.arange(3.0))
    assert loaded["cls"].args is None
    assert repr(loaded["cls"]) == f"<Opaque {config.name}>"
    assert repr(config).startswith(f"<Opaque {config.name} args=() state={{'lr': 0.5")
    for target in ("folder", "m.safetensors", "again.pt"):
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.save(loaded, tmp_path / target)
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.convert(tmp_path / "m.pt", tmp_path / target)
        with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
            tenfold.save(opened, tmp_path / target)
        assert not (tmp_path / target).exists()
    with pytest.raises(tenfold.UnsupportedError, match='key "config": '):
        opened.memmap(tmp_path / "folder")


CYCLE: list = []
CYCLE.append({"again": CYCLE})

#: What a tree cannot hold, and a part of the message that says so.
UNREADABLE = {
    "array of objects": (numpy.array(["a", None], object), 'found "O8"'),
    "array of text": (numpy.array(["a", "b"]), 'found "U1"'),
    "array of bytes": (numpy.array([b"a"]), 'found "S1"'),
    "array of dates": (numpy.array(["2020-01-01"], "M8[D]"), 'found "M8"'),
    "array of records": (numpy.zeros(2, [("x", "f4")]), 'found "V4"'),
    "big-endian array": (numpy.arange(3, dtype=">i4"), "big-endian elements"),
    "masked array": (numpy.ma.array([1], mask=[True]), 'found "numpy.ma'),
    "numpy text": (numpy.str_("x"), 'found "U1"'),
    "conjugate view": (torch.ones(2, dtype=torch.complex64).conj(), 'one marked "conj"'),
    "negative view": (torch._neg_view(torch.ones(2)), 'one marked "neg"'),
    "bits": (torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "expected a dtype of torch"),
    "lone surrogate": ("\ud800", "text cannot be read"),
    "cycle": (CYCLE, "it lies in itself"),
    "set of objects": ({numpy.str_("x")}, "a set of what a set cannot hold"),
    "key of an object": ({pathlib.PurePosixPath("a"): 1, "b": 2}, "its key cannot be read"),
    "key of bytes": ({b"a": 1}, "its key cannot be read"),
    "key with a surrogate": ({"\ud800": 1}, "its key cannot be read"),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("what", UNREADABLE)
def test_one_value_that_cannot_be_read_keeps_no_other_away(tmp_path, what, zipped):
    value, problem = UNREADABLE[what]
    path = tmp_path / "m.pt"
    state = {"w": torch.arange(3.0), "deep": {"list": [1, value, torch.ones(2)]}, "epoch": 7}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(tenfold.UnsupportedError, match=re.escape(problem)) as refused:
        tenfold.load(path)
    assert 'key "deep.list.1' in str(refused.value)
    assert "; the option keys loads the rest" in str(refused.value)
    assert set(tenfold.load(path, keys=["w", "epoch"])) == {"w", "epoch"}
    assert torch.equal(tenfold.load(path, keys=["deep.list.2"])["deep"]["list"][2], torch.ones(2))
    assert "epoch" in repr(tenfold.open(path)) or tenfold.open(path)["epoch"] == 7
    assert tenfold.verify(path).ok
    held = tenfold.load(path, allow_opaque=True)
    assert held["epoch"] == 7
    with pytest.raises(tenfold.UnsupportedError, match=r'key "deep.list.1.*; exclude= leaves it'):
        tenfold.convert(path, tmp_path / "all.safetensors")
    tenfold.convert(path, tmp_path / "some.safetensors", exclude=["deep.list.1"])
    rest = tenfold.load(tmp_path / "some.safetensors")
    assert torch.equal(rest["w"], state["w"])
    assert rest["deep"]["list"][0] == 1


ODD_KEYS = {
    "mixed": {1: torch.ones(1), "a": 2, -3: {}},
    "thresholds": {0.5: 0.9, 0.75: torch.ones(2), float("inf"): None},
    "flags": {True: 1, False: {None: torch.zeros(1)}},
    "edges": {(0, 1): torch.ones(1), ("a", (2.5, None)): 1, (): 2},
    "deep": [{"classes": collections.OrderedDict([(None, 1), ("x", {(1,): 2})])}],
    7: torch.zeros(2),
}


@pytest.mark.parametrize("zipped", [True, False])
def test_keys_of_dicts_are_those_that_torch_loads(tmp_path, zipped):
    torch.save(ODD_KEYS, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert_same(tenfold.load(tmp_path / "m.pt"), torch.load(tmp_path / "m.pt", weights_only=True))
    tenfold.save(ODD_KEYS, tmp_path / "ours.pt")
    assert_same(torch.load(tmp_path / "ours.pt", weights_only=True), ODD_KEYS)


def test_a_key_with_the_text_of_another_keeps_no_other_away(tmp_path):
    torch.save({"d": {1: 2, "1": 3, "x": 4}}, tmp_path / "m.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "d\.<str>": its key is written as'):
        tenfold.load(tmp_path / "m.pt")
    assert tenfold.load(tmp_path / "m.pt", keys=["d.1", "d.x"]) == {"d": {1: 2, "x": 4}}
    item = tenfold.load(tmp_path / "m.pt", allow_opaque=True)["d"]["<str>"]
    assert item.parts == {"key": "1", "value": 3}


def test_text_that_cannot_be_read_is_shown_by_its_bytes(tmp_path):
    torch.save({"t": "a\udc80"}, tmp_path / "m.pt")
    held = tenfold.load(tmp_path / "m.pt", allow_opaque=True)["t"]
    assert held.name == "str"
    assert str(*held.args) == "a\udc80"


def test_quantized_tensors_are_refused_by_name(tmp_path):
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8)
    torch.save({"q": quantized, "x": torch.ones(1)}, tmp_path / "m.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "q": a quantized .*_rebuild_qtensor"'):
        tenfold.load(tmp_path / "m.pt")
    held = tenfold.load(tmp_path / "m.pt", allow_opaque=True)
    assert held["q"].name == "torch._utils._rebuild_qtensor"


def test_tensors_of_the_meta_device_are_made_again_and_not_saved(tmp_path):
    meta = torch.empty(2, 3, dtype=torch.float16, device="meta").t()
    tree = {"a": [meta], "p": torch.nn.Parameter(meta, requires_grad=False), "x": torch.ones(1)}
    torch.save(tree, tmp_path / "m.pt")
    for loaded in (tenfold.load(tmp_path / "m.pt"), tenfold.open(tmp_path / "m.pt").to_dict()):
        for made in (loaded["a"][0], loaded["p"]):
            assert made.device.type == "meta"
            assert (made.dtype, made.shape) == (meta.dtype, meta.shape)
            assert made.stride() == meta.stride()
        assert type(loaded["a"][0]) is torch.Tensor
        assert type(loaded["p"]) is torch.nn.Parameter
        assert not loaded["p"].requires_grad
    assert tenfold.verify(tmp_path / "m.pt").ok
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.0": a tensor on the meta device'):
        tenfold.convert(tmp_path / "m.pt", tmp_path / "folder")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.0": a tensor on the meta device'):
        tenfold.save(tenfold.open(tmp_path / "m.pt"), tmp_path / "folder")


@pytest.mark.filterwarnings("error")
def test_jagged_tensors_are_read(tmp_path):
    rows = [torch.arange(2.0), torch.arange(3.0)]
    wide = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(1, 4)], layout=torch.jagged)
    tree = {
        "rows": torch.nested.nested_tensor(rows, layout=torch.jagged),
        "wide": wide,
        "turned": wide.transpose(1, 2),
        "holes": torch.nested.narrow(
            torch.arange(20.0).reshape(4, 5),
            1,
            torch.tensor([0, 1, 2, 0]),
            torch.tensor([2, 3, 1, 5]),
            layout=torch.jagged,
        ),
    }
    torch.save(tree, tmp_path / "m.pt")
    tenfold.convert(tmp_path / "m.pt", tmp_path / "folder")
    for name in ("m.pt", "folder"):
        loaded = tenfold.load(tmp_path / name)
        for key, expected in tree.items():
            found = loaded[key]
            assert found.layout is torch.jagged, key
            assert found.dtype == expected.dtype
            assert found._ragged_idx == expected._ragged_idx
            assert torch.equal(found.values(), expected.values())
            assert torch.equal(found.offsets(), expected.offsets())
            assert (found.lengths() is None) == (expected.lengths() is None)


def test_averaged_models_and_scalers_load(tmp_path):
    model = module()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedulers = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3, 3]),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5),
        torch.optim.swa_utils.SWALR(optimizer, 0.05),
    ]
    scaler = torch.amp.GradScaler("cpu")
    ours = roundtrip(
        tmp_path,
        {
            "ema": averaged.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in schedulers],
            "scaler": scaler.state_dict(),
        },
    )
    torch.optim.swa_utils.AveragedModel(module()).load_state_dict(ours["ema"])
    for scheduler, state in zip(schedulers, ours["schedulers"], strict=True):
        scheduler.load_state_dict(state)
    torch.amp.GradScaler("cpu").load_state_dict(ours["scaler"])
    assert type(schedulers[0].milestones) is collections.Counter


def test_verify_on_load_reads_every_checksum(tmp_path):
    torch.save({"x": torch.arange(1000)}, tmp_path / "m.pt")
    data = bytearray((tmp_path / "m.pt").read_bytes())
    data[data.index(torch.arange(1000).numpy().tobytes()) + 4000] ^= 1
    (tmp_path / "m.pt").write_bytes(data)
    tenfold.load(tmp_path / "m.pt")
    with pytest.raises(tenfold.CorruptFileError, match=r"m/data/0: .*expected CRC-32"):
        tenfold.load(tmp_path / "m.pt", verify=True)


def test_one_tensor_is_named_after_the_file(tmp_path):
    torch.save(torch.arange(3), tmp_path / "x.pt")
    assert tenfold.load(tmp_path / "x.pt")["x"].tolist() == [0, 1, 2]


def test_the_root_folder_has_any_name(tmp_path):
    for name in ("x.pt", "\u96ea.pt", "a b.c.bin"):
        torch.save({"x": torch.arange(3)}, tmp_path / name)
        assert tenfold.load(tmp_path / name)["x"].tolist() == [0, 1, 2]
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3)}, buffer)
    (tmp_path / "buffer").write_bytes(buffer.getvalue())
    assert tenfold.load(tmp_path / "buffer")["x"].tolist() == [0, 1, 2]


def test_opening_reads_no_tensor_and_writing_changes_no_file(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.zeros(1000), "y": torch.ones(3, 2)}, path)
    before = path.read_bytes()
    opened = tenfold.open(path)
    opened["x"].fill_(7)
    assert path.read_bytes() == before
    with pytest.raises(tenfold.UnsupportedError, match="cannot be written through"):
        tenfold.open(path, mode="r+")


def test_conversion_to_safetensors_and_folders(tmp_path):
    model = module()
    torch.save({"model": model.state_dict(), "t": torch.rand(3, 2).t()}, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    for target in ("m.safetensors", "folder"):
        tenfold.convert(tmp_path / "m.pt", tmp_path / target)
        assert_same(tenfold.load(tmp_path / target), theirs)


def test_nothing_of_the_file_is_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"a": [torch.ones(1), Evil()]}, tmp_path / "evil.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.1": .*mkdir"; nothing was impor'):
        tenfold.load(tmp_path / "evil.pt")
    assert not (tmp_path / "executed").exists()


def test_damage_is_told(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.arange(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("x/data/0").header_offset + 500
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    report = tenfold.verify(path)
    assert [problem.part for problem in report.problems] == ["x/data/0"]
    path.write_bytes(data[:-40])
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.load(path)


def of_autograd():
    tied = torch.nn.Parameter(torch.arange(4.0))
    return {
        "prompt": torch.nn.Parameter(torch.ones(2, 3)),
        "frozen": torch.nn.Parameter(torch.arange(3), requires_grad=False),
        "tied": [tied, tied],
        "plain over it": tied.detach(),
        "leaf": torch.ones(2, dtype=torch.complex64, requires_grad=True),
        "plain": torch.zeros(2),
    }


def assert_same_grads(found, expected):
    for key, value in expected.items():
        pairs = zip(found[key], value, strict=True) if key == "tied" else [(found[key], value)]
        for one, other in pairs:
            assert type(one) is type(other), key
            assert one.requires_grad == other.requires_grad, key
            assert one.is_leaf
            assert torch.equal(one, other), key
    one, other = found["tied"]
    assert one.data_ptr() == other.data_ptr() == found["plain over it"].data_ptr()


@pytest.mark.parametrize("legacy", [False, True])
def test_parameters_are_parameters_again(tmp_path, legacy):
    torch.save(of_autograd(), tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    expected = torch.load(tmp_path / "a.pt", weights_only=True)
    found = tenfold.load(tmp_path / "a.pt")
    assert_same_grads(found, expected)
    assert found["tied"][0] is found["tied"][1]
    assert_same_grads(tenfold.open(tmp_path / "a.pt").to_dict(), expected)
    tenfold.convert(tmp_path / "a.pt", tmp_path / "b.pt")
    tenfold.save(of_autograd(), tmp_path / "c.pt")
    for path in (tmp_path / "b.pt", tmp_path / "c.pt"):
        assert_same_grads(torch.load(path, weights_only=True, mmap=True), of_autograd())


def test_a_gradient_of_integers_is_refused(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt", pickle_protocol=2)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        for name, record in records.items():
            if name.endswith("data.pkl"):
                # The only False of the pickle is requires_grad.
                assert record.count(b"\x89") == 1
                record = record.replace(b"\x89", b"\x88").replace(b"FloatStorage", b"IntStorage")
            archive.writestr(name, record)
    with pytest.raises(tenfold.CorruptFileError, match=r"requires_grad.*found int32"):
        tenfold.load(tmp_path / "b.pt")

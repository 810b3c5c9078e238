"""Files that torch.save writes, read by tenfold as torch.load(weights_only=True) reads them."""

import collections
import io
import os
import zipfile

import pytest
import torch
from torch_files import assert_same, roundtrip

import tenfold
from tenfold._interop import arrays


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
def test_training_checkpoints_are_read_as_by_torch(tmp_path, name):
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


def test_load_into_fills_a_module_from_a_torch_file(tmp_path):
    model = module()
    torch.save(model.state_dict(), tmp_path / "m.pth")
    fresh = module()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    tenfold.load_into(fresh, tmp_path / "m.pth")
    assert_same(fresh.state_dict(), model.state_dict())


def test_scheduler_states_are_read_as_by_torch(tmp_path):
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


def test_views_are_read_as_by_torch(tmp_path):
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
def test_legacy_files_are_read_as_by_torch(tmp_path, name):
    model = module()
    weight = torch.rand(3, 2)
    state = {
        "model": model.state_dict(),
        "optimizer": stepped(model, OPTIMIZERS[name]).state_dict(),
        "views": [weight, weight.t(), weight[1:], torch.ones(2).bfloat16()],
    }
    ours = roundtrip(tmp_path, state, _use_new_zipfile_serialization=False)
    assert ours["views"][0].data_ptr() == ours["views"][1].data_ptr()


def test_shared_storage_stays_shared(tmp_path):
    weight = torch.nn.Parameter(torch.rand(3, 2))
    ours = roundtrip(tmp_path, {"embed": weight, "head": {"weight": weight}})
    assert ours["embed"].data_ptr() == ours["head"]["weight"].data_ptr()


@pytest.mark.parametrize("name", sorted(arrays.DTYPES))
def test_every_dtype_is_read_as_by_torch(tmp_path, name):
    dtype = getattr(torch, name)
    data = torch.arange(2 * dtype.itemsize, dtype=torch.uint8) % 2
    values = data.view(dtype)
    roundtrip(tmp_path, {"x": values, "none": values[:0], "one": values[1]})


def test_plain_values_are_read_as_by_torch(tmp_path):
    roundtrip(
        tmp_path,
        {
            "size": torch.Size([1, 2]),
            "values": [None, True, 2**80, -1.5, "caf\u00e9", (), {}, ("x", [1])],
            "ints": {0: "a", -5: {2**70: 1}},
            "ordered": collections.OrderedDict(b=1, a=collections.OrderedDict()),
            "torch": [torch.float8_e4m3fn, torch.device("cuda", 1), torch.sparse_csr],
            "no tensor here": [torch.bits8, torch.int4, torch.quint8, torch.per_channel_affine],
            "bytes": [b"\x00\xff", bytearray(b"\x80"), bytearray()],
            "sets": [{1, "a", (2, None)}, set(), {b"x"}],
            "numbers": [1 - 2j, collections.Counter(a=2, b=1)],
        },
    )


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


@pytest.mark.parametrize("entry", ["data.pkl", "data/0", "data/1", "data/2"])
def test_load_with_verify_detects_a_flipped_bit_in_any_entry(tmp_path, entry):
    path = tmp_path / "m.pt"
    torch.save({f"key{i}": torch.full((1000,), i) for i in range(3)}, path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        begin = data.index(archive.read(f"m/{entry}"))
        size = archive.getinfo(f"m/{entry}").file_size
    data[data.index(b"key1") if entry == "data.pkl" else begin + size // 2] ^= 1
    path.write_bytes(data)
    if entry != "data.pkl":  # its CRC-32 is checked in any case
        tenfold.load(path)
    with pytest.raises(tenfold.CorruptFileError, match=f'"m/{entry}": .*expected CRC-32'):
        tenfold.load(path, verify=True)


def test_bare_tensor_is_loaded_and_opened_by_its_file_name(tmp_path):
    torch.save(torch.arange(3), tmp_path / "x.pt")
    assert tenfold.load(tmp_path / "x.pt").tolist() == [0, 1, 2]
    assert tenfold.open(tmp_path / "x.pt")["x"].tolist() == [0, 1, 2]


def test_root_folder_of_the_archive_may_have_any_name(tmp_path):
    for name in ("x.pt", "\u96ea.pt", "a b.c.bin"):
        torch.save({"x": torch.arange(3)}, tmp_path / name)
        assert tenfold.load(tmp_path / name)["x"].tolist() == [0, 1, 2]
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3)}, buffer)
    (tmp_path / "buffer").write_bytes(buffer.getvalue())
    assert tenfold.load(tmp_path / "buffer")["x"].tolist() == [0, 1, 2]


def test_in_memory_writes_do_not_change_the_file(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.zeros(1000), "y": torch.ones(3, 2)}, path)
    before = path.read_bytes()
    opened = tenfold.open(path)
    opened["x"].fill_(7)
    assert path.read_bytes() == before
    with pytest.raises(tenfold.UnsupportedError, match="cannot be changed in place"):
        tenfold.open(path, mode="r+")


def test_converts_to_safetensors_and_folders(tmp_path):
    model = module()
    torch.save({"model": model.state_dict(), "t": torch.rand(3, 2).t()}, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    for target in ("m.safetensors", "folder"):
        tenfold.convert(tmp_path / "m.pt", tmp_path / target)
        assert_same(tenfold.load(tmp_path / target), theirs)


def test_pickled_code_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"a": [torch.ones(1), Evil()]}, tmp_path / "evil.pt")
    with pytest.raises(
        tenfold.UnsupportedError, match=r'key "a\.1": .*mkdir"; no module was imported'
    ):
        tenfold.load(tmp_path / "evil.pt")
    assert not (tmp_path / "executed").exists()


def test_damage_raises_corrupt_file_error(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.arange(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("x/data/0").header_offset + 500
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    report = tenfold.verify(path)
    assert [problem.part for problem in report.problems] == ['entry "x/data/0"']
    path.write_bytes(data[:-40])
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.load(path)


def test_deflated_files_above_1_gib_load_by_key(tmp_path):
    tensors = {f"t{i}": torch.full((70 << 20,), i, dtype=torch.uint8) for i in range(16)}
    for tensor in tensors.values():
        tensor[:4096] = torch.randint(256, (4096,))
    torch.save(tensors, tmp_path / "stored.pt")
    path = tmp_path / "m.pt"
    with (
        zipfile.ZipFile(tmp_path / "stored.pt") as stored,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as deflated,
    ):
        for name in stored.namelist():
            deflated.writestr(name, stored.read(name))
    (tmp_path / "stored.pt").unlink()
    loaded = tenfold.load(path, keys=["t3", "t11"])
    assert set(loaded) == {"t3", "t11"}
    assert all(torch.equal(value, tensors[key]) for key, value in loaded.items())
    assert tenfold.verify(path).ok
    data = bytearray(path.read_bytes())
    data[data.index(b"data/5") + 2000] ^= 1
    path.write_bytes(data)
    assert [problem.part for problem in tenfold.verify(path).problems] == ['entry "stored/data/5"']
    with pytest.raises(tenfold.CorruptFileError, match="data/5"):
        tenfold.load(path, keys=["t5"])

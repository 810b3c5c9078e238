import pytest
import torch

import tenfold
from helpers import assert_same

TREE = {
    "model": {
        "encoder.weight": torch.ones(2),
        "encoder.bias": torch.zeros(2),
        "head": torch.ones(1),
    },
    "list": [torch.zeros(1), torch.ones(1)],
    "step": 7,
}


@pytest.fixture
def saved(target):
    return tenfold.save(TREE, target)


def names(tree, path=()):
    if not isinstance(tree, (dict, list)):
        return [".".join(map(str, path))]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [name for key, value in items for name in names(value, (*path, key))]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["model.head"], ["model.head"]),
        ("model.head", ["model.head"]),
        ([("model", "encoder.bias")], ["model.encoder.bias"]),
        (["model.encoder.*"], ["model.encoder.weight", "model.encoder.bias"]),
        (["*.head", "step"], ["model.head", "step"]),
        (["list.1"], ["list.1"]),
        (("model",), ["model.encoder.weight", "model.encoder.bias", "model.head"]),
        (None, names(TREE)),
    ],
    ids=str,
)
def test_keys_select_leaves(saved, keys, found):
    assert names(tenfold.load(saved, keys=keys)) == found


def test_unknown_key_raises_key_error(saved):
    with pytest.raises(KeyError, match=r'"model.haed"'):
        tenfold.load(saved, keys=["model.haed"])


def test_empty_tuple_as_key_is_refused(saved):
    with pytest.raises(ValueError, match="found an empty tuple"):
        tenfold.load(saved, keys=[()])


def test_unselected_leaves_are_not_opened(tmp_path):
    path = tenfold.save(TREE, tmp_path / "saved")
    (path / "model" / "head.memmap").unlink()
    assert names(tenfold.load(path, keys=["list.*"])) == ["list.0", "list.1"]
    with pytest.raises((OSError, tenfold.Error)):
        tenfold.load(path)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_private_modes_do_not_change_the_file(saved, mode):
    tenfold.load(saved, mode=mode)["model"]["head"].fill_(9)
    assert_same(tenfold.load(saved), TREE)


def test_writes_reach_the_file_in_mode_r_plus(tmp_path):
    path = tenfold.save({"x": torch.zeros(100_000), "y": torch.zeros(2)}, tmp_path / "saved")
    tree = tenfold.load(path, mode="r+")
    tree["x"][5] = 1
    tree["y"][1] = 2
    found = tenfold.load(path)
    assert (found["x"][5], found["y"][1]) == (1, 2)


def test_an_unknown_mode_is_refused(saved):
    with pytest.raises(
        ValueError, match='mode: unknown mode: expected "r", "c" or "r\\+", found "w"'
    ):
        tenfold.load(saved, mode="w")


def test_map_location_moves_every_tensor(saved):
    found = tenfold.load(saved, map_location="meta")
    assert all(tensor.is_meta for tensor in [*found["model"].values(), *found["list"]])
    assert found["step"] == 7


def test_map_location_moves_unbatched_tensors(target):
    td = tenfold.TensorDict({"n": {"x": torch.ones(2)}}, [2])
    td["text"] = tenfold.UnbatchedTensor(torch.arange(5))
    td["n", "text"] = tenfold.UnbatchedTensor(torch.arange(7))
    tenfold.save(td, target)
    found = tenfold.load(target, map_location="meta")
    assert found["text"].is_meta
    assert found["n", "text"].is_meta
    assert found["n", "text"].shape == (7,)


def test_map_location_cpu_loads_the_same_tree(saved):
    assert_same(tenfold.load(saved, map_location="cpu"), TREE)


def test_map_location_cpu_copies_nothing(tmp_path):
    path = tenfold.save({"x": torch.zeros(3)}, tmp_path / "saved")
    tenfold.load(path, mode="r+", map_location="cpu")["x"].fill_(1)
    assert tenfold.load(path)["x"].tolist() == [1, 1, 1]


def test_map_location_keeps_shared_storage(target):
    weight = torch.ones(3)
    tenfold.save({"a": weight, "b": weight}, target)
    found = tenfold.load(target, map_location="meta")
    assert found["a"] is found["b"]


def test_unknown_format_is_refused(saved):
    with pytest.raises(ValueError, match='format "nonsense": no such format'):
        tenfold.load(saved, format="nonsense")


def test_format_is_detected_from_content(tmp_path):
    tenfold.save(TREE, tmp_path / "x.bin.1", format="safetensors")
    assert tenfold.probe(tmp_path / "x.bin.1") == "safetensors"
    assert_same(tenfold.load(tmp_path / "x.bin.1"), TREE)


def test_verify_on_load_detects_a_flipped_bit(target):
    tenfold.save({"x": torch.zeros(1000)}, target)
    data_file = target / "x.memmap" if target.is_dir() else target
    data = bytearray(data_file.read_bytes())
    data[data.index(bytes(3000)) + 2000] ^= 1
    data_file.write_bytes(data)
    tenfold.load(target)
    with pytest.raises(tenfold.CorruptFileError, match=r"checksum|CRC-32"):
        tenfold.load(target, verify=True)


def test_verify_checks_only_the_selected_keys(target):
    tenfold.save({"a": torch.zeros(1000), "b": torch.ones(1000)}, target)
    data_file = target / "b.memmap" if target.is_dir() else target
    data = bytearray(data_file.read_bytes())
    data[data.index(torch.ones(1000).numpy().tobytes()) + 2002] ^= 1
    data_file.write_bytes(data)
    assert tenfold.load(target, keys="a", verify=True)["a"].sum() == 0
    for keys in ("b", None):
        with pytest.raises(tenfold.CorruptFileError):
            tenfold.load(target, keys=keys, verify=True)


@pytest.mark.parametrize("options", [{"durable": False}, {"checksums": False}, {"num_threads": 1}])
def test_save_options_do_not_change_the_loaded_tree(target, options):
    tenfold.save(TREE, target, **options)
    assert_same(tenfold.load(target), TREE)


def test_checksums_false_writes_no_checksums(target):
    if target.suffix == ".pt":
        pytest.skip("a .pt file always has checksums: the CRC-32s of the zip archive")
    tenfold.save(TREE, target, checksums=False)
    assert tenfold.verify(target).num_checksums == 0


def test_empty_keys_load_nothing_and_none_loads_all(target):
    tenfold.save({"a": torch.ones(2), "b": 1}, target)
    assert tenfold.load(target, keys=[]) == {}
    assert set(tenfold.load(target, keys=None)) == {"a", "b"}
    into = {"a": torch.zeros(2)}
    assert tenfold.load_into(into, target, keys=[]).loaded == ()
    assert into["a"].sum() == 0

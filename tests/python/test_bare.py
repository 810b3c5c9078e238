"""A tensor, array or value that is saved without a container is loaded without one."""

import collections
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import tenfold

OF_TENSORS = ["x", "x.tdz", "x.safetensors", "x.safetensors.index.json", "x.pt", "x.npz", "x.npy"]
OF_VALUES = ["x", "x.tdz", "x.safetensors", "x.pt"]
TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3),
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "view": torch.arange(12).reshape(3, 4).T[::2],
    "bool": torch.tensor([True, False]),
}
VALUES = [
    7,
    2**70,
    -0.5,
    math.inf,
    "text",
    "caf\u00e9",
    "",
    True,
    None,
    b"\x00\xff",
    {1, 2},
    1 - 2j,
    {(1, 2), (3, 4)},
    collections.Counter(a=1),
]


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("which", TENSORS)
def test_bare_tensor_round_trips(tmp_path, name, which):
    tensor = TENSORS[which]
    tenfold.save(tensor, tmp_path / name)
    loaded = tenfold.load(tmp_path / name)
    assert type(loaded) is torch.Tensor
    assert loaded.dtype == tensor.dtype
    assert torch.equal(loaded, tensor)
    assert torch.equal(tenfold.load(tmp_path / name, verify=True), tensor)
    assert tenfold.verify(tmp_path / name).ok


@pytest.mark.parametrize("name", OF_VALUES)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_bare_value_round_trips(tmp_path, name, value):
    tenfold.save(value, tmp_path / name)
    loaded = tenfold.load(tmp_path / name)
    assert type(loaded) is type(value)
    assert loaded == value


@pytest.mark.parametrize("name", OF_VALUES)
def test_bare_list_of_nontensordata_round_trips(tmp_path, name):
    tenfold.save(tenfold.NonTensorData([1, [2]]), tmp_path / name)
    assert tenfold.load(tmp_path / name) == [1, [2]]


@pytest.mark.parametrize("name", OF_VALUES)
@pytest.mark.parametrize("tree", [[1, "a"], (), {}, {"a": 1}, {"value": 3}, [], [None]], ids=repr)
def test_containers_of_values_keep_their_type(tmp_path, name, tree):
    tenfold.save(tree, tmp_path / name)
    assert tenfold.load(tmp_path / name) == tree


@pytest.mark.parametrize("name", OF_TENSORS)
def test_bare_array_round_trips(tmp_path, name):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tenfold.save(array, tmp_path / name)
    loaded = tenfold.load(tmp_path / name, framework="numpy")
    assert type(loaded) is np.ndarray
    assert loaded.dtype == array.dtype
    assert np.array_equal(loaded, array)


def test_bare_npy_files_are_interchangeable_with_numpy(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    tenfold.save(array, tmp_path / "x.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), array)
    tenfold.save(array, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as found:
        assert found.files == ["arr_0"]
        assert np.array_equal(found["arr_0"], array)
    np.save(tmp_path / "y.npy", array)
    assert np.array_equal(tenfold.load(tmp_path / "y.npy", framework="numpy"), array)
    # As with np.load, an archive that numpy.savez wrote is loaded as a mapping, even of one array.
    np.savez(tmp_path / "y.npz", array)
    found = tenfold.load(tmp_path / "y.npz", framework="numpy")
    assert list(found) == ["arr_0"]
    assert np.array_equal(found["arr_0"], array)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_bare_values_saved_by_torch_are_loaded(tmp_path, zipped):
    def of_torch(obj):
        torch.save(obj, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        return tenfold.load(tmp_path / "x.pt")

    assert torch.equal(of_torch(torch.arange(3)), torch.arange(3))
    assert of_torch(7) == 7
    assert of_torch("text") == "text"
    assert of_torch(None) is None
    parameter = of_torch(torch.nn.Parameter(torch.ones(2)))
    assert type(parameter) is torch.nn.Parameter
    assert of_torch([7]) == [7]
    assert of_torch(collections.OrderedDict(a=1)) == collections.OrderedDict(a=1)
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(of_torch(sparse).to_dense(), sparse.to_dense())


def test_torch_loads_bare_values(tmp_path):
    for value in (torch.arange(3), 7, "text", None, 2.5, True):
        tenfold.save(value, tmp_path / "x.pt")
        for mapped in (True, False):
            found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mapped)
            assert type(found) is type(value)
            assert torch.equal(found, value) if torch.is_tensor(value) else found == value


def test_tensordict_and_safetensors_read_a_bare_tensor_by_key(tmp_path):
    tenfold.save(torch.arange(3), tmp_path / "x")
    tenfold.save(torch.arange(3), tmp_path / "x.safetensors")
    found = tenfold.TensorDict.load_memmap(tmp_path / "x")
    assert torch.equal(found["value"], torch.arange(3))
    reader = pytest.importorskip("safetensors.torch")
    assert list(reader.load_file(tmp_path / "x.safetensors")) == ["value"]
    package = pytest.importorskip("tensordict")
    assert torch.equal(package.TensorDict.load_memmap(tmp_path / "x")["value"], torch.arange(3))


@pytest.mark.parametrize("name", OF_TENSORS)
def test_opened_bare_tensor_is_found_by_its_file_name(tmp_path, name):
    tenfold.save(torch.arange(3), tmp_path / name)
    opened = tenfold.open(tmp_path / name)
    (key,) = opened.keys()
    assert key == ("arr_0" if name == "x.npz" else "value")
    stem = (tmp_path / name).stem
    assert torch.equal(opened[stem], torch.arange(3))
    assert opened.get(stem) is opened[key]
    assert stem in opened
    assert list(opened.keys()) == [key]
    assert "y" not in opened
    with pytest.raises(KeyError):
        opened["y"]
    again = pickle.loads(pickle.dumps(opened))
    assert torch.equal(again[stem], torch.arange(3))
    tenfold.save(opened, tmp_path / "again")
    assert torch.equal(tenfold.load(tmp_path / "again"), torch.arange(3))


def test_bare_tensor_with_added_entries_is_a_tree(tmp_path):
    tenfold.save(torch.arange(3), tmp_path / "x.npy")
    opened = tenfold.open(tmp_path / "x.npy")
    opened["b"] = torch.ones(2)
    assert set(opened.keys()) == {"value", "b"}
    tenfold.save(opened, tmp_path / "y")
    assert set(tenfold.load(tmp_path / "y")) == {"value", "b"}
    inside = {"inside": tenfold.open(tmp_path / "x.npy")}
    tenfold.save(inside, tmp_path / "z")
    assert list(tenfold.load(tmp_path / "z")["inside"]) == ["value"]


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("keys", [["value"], "x", ["*"], [], [("value",)]], ids=repr)
def test_load_of_a_bare_value_refuses_keys(tmp_path, name, keys):
    tenfold.save(torch.arange(3), tmp_path / name)
    with pytest.raises(KeyError, match="it holds one value, which has no name: expected no keys"):
        tenfold.load(tmp_path / name, keys=keys)


@pytest.mark.parametrize("name", ["x.json", "x"])
def test_formats_without_bare_values_refuse_them(tmp_path, name):
    for format in ("consolidated", "snapshot"):
        with pytest.raises(tenfold.UnsupportedError, match="cannot hold a value without a name"):
            tenfold.save(torch.ones(2), tmp_path / name, format=format)
    assert not list(tmp_path.iterdir())


def test_unsupported_bare_value_names_the_root(tmp_path):
    with pytest.raises(tenfold.UnsupportedError, match=r"x\.pt: root: .*found object"):
        tenfold.save(object(), tmp_path / "x.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r"x\.npz: root: .*found a JSON value"):
        tenfold.save(7, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


def test_diff_compares_bare_values(tmp_path):
    for name in OF_TENSORS:
        tenfold.save(torch.arange(3), tmp_path / name)
    for name in OF_TENSORS:
        assert tenfold.diff(tmp_path / name, tmp_path / "x.npz").same
        assert tenfold.diff(tmp_path / name, torch.arange(3)).same
        (change,) = tenfold.diff(torch.arange(3) + 1, tmp_path / name).changed
        assert (change.key, change.max_abs) == ("value", 1)
    assert tenfold.diff(7, 7).same
    assert not tenfold.diff(7, 8).same
    assert not tenfold.diff(torch.arange(3), {"value": torch.arange(3)}).same


def test_load_into_fills_a_bare_tensor(tmp_path):
    for name in OF_TENSORS:
        tenfold.save(torch.arange(3.0), tmp_path / name)
        target = torch.zeros(3)
        assert tenfold.load_into(target, tmp_path / name).loaded == ("value",)
        assert torch.equal(target, torch.arange(3.0))
    array = np.zeros(3)
    assert tenfold.load_into(array, torch.ones(3), cast=True).ok
    assert array.sum() == 3
    with pytest.raises(ValueError, match=r'"value": expected float32 \[2\], found float32 \[3\]'):
        tenfold.load_into(torch.zeros(2), tmp_path / "x.npy")


def test_convert_keeps_a_bare_tensor(tmp_path):
    tenfold.save(torch.arange(3.0), tmp_path / "first.npy")
    for name in OF_TENSORS:
        tenfold.convert(tmp_path / "first.npy", tmp_path / name)
        assert torch.equal(tenfold.load(tmp_path / name), torch.arange(3.0))
        tenfold.convert(tmp_path / name, tmp_path / "back.npy", dtype="float16")
        assert np.load(tmp_path / "back.npy").dtype == np.float16
    tenfold.convert(tmp_path / "x.npz", tmp_path / "named.pt", rename={"value": "w"})
    assert list(torch.load(tmp_path / "named.pt", weights_only=True)) == ["w"]
    tenfold.convert(tmp_path / "named.pt", tmp_path / "w.npy")
    assert np.array_equal(np.load(tmp_path / "w.npy"), np.arange(3.0))
    with pytest.raises(tenfold.UnsupportedError, match="cannot hold a value without a name"):
        tenfold.convert(tmp_path / "x.npy", tmp_path / "s", format="snapshot")


def test_mode_r_plus_writes_a_bare_tensor(tmp_path):
    tenfold.save(torch.zeros(3), tmp_path / "x.npy")
    tenfold.load(tmp_path / "x.npy", mode="r+").fill_(5)
    assert np.load(tmp_path / "x.npy").tolist() == [5, 5, 5]
    tenfold.save(torch.zeros(3), tmp_path / "x")
    opened = tenfold.open(tmp_path / "x", mode="r+")
    opened["x"].fill_(5)
    assert tenfold.load(tmp_path / "x").tolist() == [5, 5, 5]


def test_command_line_shows_the_file_name_of_a_bare_tensor(tmp_path):
    def shown(*arguments):
        command = [sys.executable, "-m", "tenfold", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        return done.stdout

    tenfold.save(torch.arange(3.0), tmp_path / "weights.npz")
    for command in (["ls"], ["ls", "--json"], ["stat"], ["tree"], ["head", "weights"]):
        text = shown(command[0], "weights.npz", *command[1:]).replace("weights.npz", "")
        assert "weights" in text, command
        assert "arr_0" not in text, command
    shown("convert", "weights.npz", "named.pt", "--rename", "value=w")
    assert list(tenfold.load(tmp_path / "named.pt")) == ["w"]

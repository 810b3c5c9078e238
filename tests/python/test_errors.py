import errno
import os
import pickle

import pytest
import torch

import tenfold


def test_own_errors_are_value_errors():
    assert issubclass(tenfold.CorruptFileError, (tenfold.Error, ValueError))
    assert issubclass(tenfold.UnsupportedError, (tenfold.Error, ValueError))


@pytest.mark.parametrize("call", [tenfold.open, tenfold.load, tenfold.probe, tenfold.verify])
def test_a_missing_path_is_file_not_found(call, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        call(tmp_path / "nothing")


def test_the_text_of_a_key_error_is_its_message(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(KeyError) as caught:
        tenfold.open(target)["y"]
    assert str(caught.value) == caught.value.args[0]


def test_a_key_error_can_be_pickled(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(KeyError) as caught:
        tenfold.open(target)["y"]
    copied = pickle.loads(pickle.dumps(caught.value))
    assert str(copied) == str(caught.value)


def test_a_file_in_the_way_is_file_exists(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(FileExistsError) as caught:
        tenfold.save({"x": torch.ones(1)}, target, overwrite=False)
    assert caught.value.errno == errno.EEXIST
    assert os.fspath(caught.value.filename) == str(target)
    assert str(caught.value).count(str(target)) == 1
    assert tenfold.load(target)["x"] == 0


def test_a_parent_that_is_a_file_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file"):
        tenfold.save({"x": torch.zeros(1)}, tmp_path / "file" / "x.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission_is_permission_error(tmp_path):
    path = tenfold.save({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    path.chmod(0)
    with pytest.raises(PermissionError):
        tenfold.load(path)


def test_garbage_is_unsupported(tmp_path):
    path = tmp_path / "garbage"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(tenfold.UnsupportedError, match="garbage"):
        tenfold.open(path)


def test_a_truncated_file_is_corrupt(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "x.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tenfold.CorruptFileError, match=r"x.safetensors"):
        tenfold.open(path)["x"]


def test_a_short_leaf_is_corrupt(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "saved")
    os.truncate(path / "x.memmap", 399)
    with pytest.raises(tenfold.CorruptFileError, match="400 bytes, found 399"):
        tenfold.load(path)


@pytest.mark.parametrize("name", ["s\u00e4ve", "with space", "\U0001f600", "a\nb", "caf\udce9"])
def test_paths_of_any_name_work(tmp_path, name):
    path = tmp_path / name
    tenfold.save({"x": torch.ones(1)}, path)
    assert tenfold.load(path)["x"] == 1
    assert tenfold.load(os.fsencode(path))["x"] == 1


@pytest.mark.parametrize(
    "key", ["", "a/b", "..", "a.b", "\u00e4", "\U0001f600", "%41", "shape", "a\x00b"]
)
def test_keys_of_any_text_come_back(target, key):
    tree = {key: torch.arange(2), "node": {key: {"y": torch.ones(1)}}}
    tenfold.save(tree, target)
    found = tenfold.load(target)
    assert list(found) == [key, "node"]
    assert torch.equal(found[key], torch.arange(2))
    assert found["node"][key]["y"] == 1

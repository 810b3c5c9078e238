"""Reads sharded checkpoints with `pytorch_model.bin.index.json`, as transformers writes them."""

import json

import pytest
import torch

import tenfold
from helpers import assert_same


@pytest.fixture
def index(tmp_path):
    """Returns the path of an index of two shards, and the saved module.

    Each shard is an OrderedDict with the attribute `_metadata`, like a result of state_dict().
    """
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = module.state_dict()
    names = list(state)
    shards = {"pytorch_model-00001-of-00002.bin": names[:3]}
    shards["pytorch_model-00002-of-00002.bin"] = names[3:]
    for shard, inside in shards.items():
        part = module.state_dict()
        for name in names:
            if name not in inside:
                del part[name]
        torch.save(part, tmp_path / shard)
    path = tmp_path / "pytorch_model.bin.index.json"
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path, module


def test_index_loads_as_the_state_dict_of_the_module(index):
    path, module = index
    assert tenfold.probe(path) == "pt"
    loaded = tenfold.load(path)
    assert_same(dict(loaded), dict(module.state_dict()))
    fresh = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.fill_(9.0)
    assert tenfold.load_into(fresh, path).ok
    assert_same(dict(fresh.state_dict()), dict(module.state_dict()))
    assert tenfold.verify(path).ok
    only = tenfold.load(path, keys=["0.*"])
    assert list(only) == ["0.weight", "0.bias"]
    tenfold.convert(path, path.parent / "m.safetensors")
    assert_same(dict(tenfold.load(path.parent / "m.safetensors")), dict(module.state_dict()))
    assert tenfold.diff(path, path.parent / "m.safetensors").same


def test_error_for_the_folder_suggests_the_index(index):
    path, _ = index
    with pytest.raises(tenfold.UnsupportedError, match="did you mean") as caught:
        tenfold.open(path.parent)
    assert str(path) in str(caught.value)


def test_damage_in_a_shard_is_reported(index):
    path, _ = index
    shard = path.parent / "pytorch_model-00002-of-00002.bin"
    bytes_ = bytearray(shard.read_bytes())
    bytes_[-200] ^= 1
    shard.write_bytes(bytes_)
    report = tenfold.verify(path)
    assert not report.ok
    shard.unlink()
    with pytest.raises(tenfold.CorruptFileError, match=r'shard .*00002.bin": missing'):
        tenfold.load(path)

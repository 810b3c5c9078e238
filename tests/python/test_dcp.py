"""Folders that the installed torch.distributed.checkpoint writes."""

import math
import sys

import pytest
import torch

import tenfold
from helpers import DTYPES, assert_same, make_tensor

dcp = pytest.importorskip("torch.distributed.checkpoint")
pytestmark = pytest.mark.filterwarnings("ignore")


def saved(state, path, **writer):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, **writer), no_dist=True)
    return path


def test_checkpoint_saved_by_torch_is_loaded(tmp_path):
    state = {
        "model": {"a.b": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0, 3)},
        "list": [torch.ones(2), {"x": torch.ones(1), "lr": 0.1}, None],
        "text": "step",
        "nan": math.nan,
        "numbers": [1, 2.5, True],
        "pair": (torch.ones(2), 3),
    }
    path = saved(state, tmp_path / "ckpt")
    assert tenfold.probe(path) == "dcp"
    assert_same(tenfold.load(path), state)
    assert tenfold.verify(path).ok
    assert tenfold.diff(path, state).same


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_loaded(tmp_path, dtype):
    state = {"x": make_tensor((3, 5), dtype)}
    assert_same(tenfold.load(saved(state, tmp_path / "ckpt")), state)


def test_model_and_optimizer_state_round_trips(tmp_path):
    def trained():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        return model, optimizer

    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model, optimizer = trained()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    path = saved({"model": model_state, "optim": optimizer_state}, tmp_path / "ckpt")
    found = tenfold.load(path)
    other, other_optimizer = trained()
    torch.nn.init.zeros_(other.weight)
    set_state_dict(
        other,
        other_optimizer,
        model_state_dict=found["model"],
        optim_state_dict=found["optim"],
    )
    assert torch.equal(other.weight, model.weight)
    state = optimizer.state[model.weight]
    assert torch.equal(other_optimizer.state[other.weight]["exp_avg"], state["exp_avg"])


def test_large_tensors_in_separate_files_are_mapped(tmp_path):
    state = {"a": torch.arange(300_000.0), "b": torch.arange(300_000)}
    path = saved(state, tmp_path / "ckpt", single_file_per_rank=False)
    tree = tenfold.open(path)
    assert torch.equal(tree["a"], state["a"])
    with open("/proc/self/maps") as maps:
        assert str(path / "__0_0.distcp") in maps.read()
    tree["a"][0] = 7.0  # a private page
    assert torch.equal(tenfold.load(path)["a"], state["a"])


def test_unaligned_tensors_are_read(tmp_path):
    state = {f"t{i}": torch.arange(100_000 + i) for i in range(3)}
    assert_same(tenfold.load(saved(state, tmp_path / "ckpt")), state)


def test_keys_select_what_is_read(tmp_path):
    state = {"a": {"x": torch.ones(2), "y": torch.ones(3)}, "b": torch.ones(4)}
    path = saved(state, tmp_path / "ckpt", single_file_per_rank=False)
    (path / "__0_2.distcp").unlink()
    assert_same(tenfold.load(path, keys=["a.*"]), {"a": state["a"]})


@pytest.mark.parametrize("target", ["folder", "file.safetensors"])
def test_converts_to_a_folder_and_a_safetensors_file(tmp_path, target):
    state = {"model": {"w": torch.randn(40, 30)}, "epoch": 3}
    path = saved(state, tmp_path / "ckpt")
    tenfold.convert(path, tmp_path / target)
    assert_same(tenfold.load(tmp_path / target), state)


def test_load_into_fills_a_module(tmp_path):
    model, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    path = saved({"model": model.state_dict()}, tmp_path / "ckpt")
    assert tenfold.load_into(other, tenfold.open(path)["model"]).ok
    assert torch.equal(other.weight, model.weight)


class Unknown:
    pass


def test_objects_of_unknown_classes_are_refused_by_key_and_others_load(tmp_path):
    state = {"w": torch.ones(2), "deep": {"object": Unknown()}, "list": [1, Unknown()]}
    path = saved(state, tmp_path / "ckpt")
    assert torch.equal(tenfold.open(path)["w"], torch.ones(2))
    with pytest.raises(tenfold.UnsupportedError, match=r'key "deep\.object": .*Unknown"'):
        tenfold.load(path)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "deep\.object": .*Unknown"'):
        tenfold.convert(path, tmp_path / "folder")
    assert_same(tenfold.load(path, keys=["w"]), {"w": torch.ones(2)})
    held = tenfold.load(path, allow_opaque=True)
    assert held["deep"]["object"].name.endswith("test_dcp.Unknown")
    assert held["list"][0] == 1
    assert tenfold.verify(path).ok


def test_damaged_objects_are_named_by_key(tmp_path):
    path = saved({"w": torch.ones(2), "text": "x" * 100}, tmp_path / "ckpt")
    (data,) = path.glob("*.distcp")
    data.write_bytes(data.read_bytes().replace(b"x" * 100, b"y" * 100))
    with pytest.raises(tenfold.CorruptFileError, match=r'key "text": .*CRC-32'):
        tenfold.load(path, keys=["text"])


def test_verify_compares_every_chunk_with_the_metadata(tmp_path):
    import pickle

    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

    path = saved({"w": torch.zeros(2, 4), "other": torch.ones(4, 2)}, tmp_path / "ckpt")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    places = {index.fqn: info for index, info in metadata.storage_data.items()}
    entry = metadata.state_dict_metadata["w"]
    entry.size = torch.Size([4, 4])
    entry.chunks.append(ChunkStorageMetadata(torch.Size([2, 0]), torch.Size([2, 4])))
    metadata.storage_data[MetadataIndex("w", torch.Size([2, 0]))] = places["other"]
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(tenfold.CorruptFileError, match=r"expected float32 \[2, 4\]"):
        tenfold.load(path, keys=["w"])
    (problem,) = tenfold.verify(path).problems
    assert 'key "w"' in problem.part
    assert problem.expected == "float32 [2, 4]"
    assert problem.found == "float32 [4, 2]"


def test_metadata_is_not_executed(tmp_path, monkeypatch):
    import os
    import pickle

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "hacked"),)

    path = saved({"w": torch.ones(2)}, tmp_path / "ckpt")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    metadata.storage_meta = Evil()
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    monkeypatch.delitem(sys.modules, "torch.distributed.checkpoint.metadata")
    assert_same(tenfold.load(path), {"w": torch.ones(2)})
    assert not (tmp_path / "hacked").exists()
    assert "torch.distributed.checkpoint.metadata" not in sys.modules


def test_metadata_of_older_versions_is_read(tmp_path):
    import pickle

    path = saved({"a": {"b": torch.ones(2)}, "n": 1}, tmp_path / "ckpt")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    del metadata.__dict__["storage_meta"], metadata.__dict__["version"]
    for info in metadata.storage_data.values():
        info.__dict__.pop("transform_descriptors", None)
    (path / ".metadata").write_bytes(pickle.dumps(metadata, protocol=2))
    assert_same(tenfold.load(path), {"a": {"b": torch.ones(2)}, "n": 1})


def test_safetensors_shards_are_loaded(tmp_path):
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    state = {"b.w": torch.arange(6.0).reshape(2, 3), "a": torch.ones(3, dtype=torch.bfloat16)}
    writer = HuggingFaceStorageWriter(str(tmp_path / "ckpt"), save_distributed=True)
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert tenfold.probe(tmp_path / "ckpt") == "dcp"
    assert_same(tenfold.load(tmp_path / "ckpt"), dict(sorted(state.items())))
    assert tenfold.verify(tmp_path / "ckpt").ok


def test_numpy_arrays_are_loaded_as_tensors(tmp_path):
    numpy = pytest.importorskip("numpy")
    state = {"w": torch.ones(2), "array": numpy.arange(3.0)}
    path = saved(state, tmp_path / "ckpt")
    tenfold.convert(path, tmp_path / "folder", dtype=torch.float32)
    expected = {"w": torch.ones(2), "array": torch.arange(3.0)}
    assert_same(tenfold.load(tmp_path / "folder"), expected)


# --- compressed by torch's ZStandard ---


@pytest.fixture
def compressed(tmp_path):
    """Returns a function that saves a state with each item compressed by Zstandard."""
    pytest.importorskip("zstandard")
    from torch.distributed.checkpoint._extension import ZStandard

    return lambda state, **writer: saved(
        state, tmp_path / "ckpt", _extensions=[ZStandard()], **writer
    )


@pytest.mark.parametrize("single_file_per_rank", [True, False])
def test_compressed_items_are_loaded(tmp_path, compressed, single_file_per_rank):
    torch.manual_seed(0)
    state = {
        "model": {"zeros": torch.zeros(500, 1000), "noise": torch.randn(300, 333)},
        "columns": torch.arange(60_000).reshape(300, 200).t(),
        "empty": torch.zeros(0, 3),
        "step": 7,
        "pair": (torch.ones(2), "x"),
    }
    path = compressed(state, single_file_per_rank=single_file_per_rank)
    assert sum(file.stat().st_size for file in path.iterdir()) < 1_000_000
    assert_same(tenfold.load(path), state)
    report = tenfold.verify(path)
    assert report.ok, report.problems
    assert report.num_checksums > 0
    assert tenfold.diff(path, state).same
    tenfold.convert(path, tmp_path / "m.safetensors")
    assert_same(tenfold.load(tmp_path / "m.safetensors"), state)


def test_more_compressed_items_than_the_cache_holds_are_loaded(compressed):
    state = {f"w{i}": torch.full((20_000,), float(i)) for i in range(30)}
    assert_same(tenfold.load(compressed(state)), state)


def test_damaged_compressed_item_raises_corrupt_file_error(compressed):
    path = compressed({"w": torch.randn(1000)})
    (file,) = path.glob("*.distcp")
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    with pytest.raises(tenfold.CorruptFileError, match="item at byte 0"):
        tenfold.load(path)
    assert not tenfold.verify(path).ok
    file.write_bytes(whole[:middle])
    with pytest.raises(tenfold.CorruptFileError, match="reaches past the end of the file"):
        tenfold.load(path)


def test_truncated_or_oversized_compressed_stream_raises(tmp_path, compressed):
    import pickle

    zstandard = pytest.importorskip("zstandard")
    path = compressed({"w": torch.randn(1000)})
    (file,) = path.glob("*.distcp")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    (info,) = metadata.storage_data.values()

    def replaced(data):
        file.write_bytes(data)
        info.length = len(data)
        (path / ".metadata").write_bytes(pickle.dumps(metadata))
        with pytest.raises(tenfold.CorruptFileError) as refused:
            tenfold.load(path)
        return str(refused.value)

    whole = file.read_bytes()
    assert "expected more compressed bytes" in replaced(whole[:-20])
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    assert len(bomb) < 5000
    assert "it decompresses to too much" in replaced(bomb)
    other = zstandard.ZstdCompressor().compress(b"text")
    assert "not an archive of torch.save" in replaced(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda w, m: setattr(w, "size", torch.Size([3, 2])),
        lambda w, m: setattr(w.properties, "dtype", torch.float64),
        lambda w, m: m.planner_data.update(w=("other", "w")),
    ],
    ids=["shape", "dtype", "path"],
)
def test_ranks_that_disagree_are_refused(tmp_path, change):
    import pickle

    path = saved({"w": torch.arange(6.0).reshape(2, 3), "o": {"n": 5}}, tmp_path / "ckpt")
    first, second = path / "__0.metadata", path / "__1.metadata"
    (path / ".metadata").rename(first)
    second.write_bytes(first.read_bytes())
    assert_same(tenfold.load(path)["w"], torch.arange(6.0).reshape(2, 3))
    metadata = pickle.loads(second.read_bytes())
    change(metadata.state_dict_metadata["w"], metadata)
    second.write_bytes(pickle.dumps(metadata))
    words = (
        'key "w": the ranks disagree: expected the same kind, dtype, shape and path, '
        "found different ones"
    )
    with pytest.raises(tenfold.CorruptFileError, match=words):
        tenfold.load(path)

#!/usr/bin/env python3
"""Writes the folders of this folder with torch.distributed.checkpoint (torch 2.13.0, zstandard).

golden.txt describes what torch itself loads from each folder, in the notation of `text_of` in
tests/formats/safetensors/support.hpp. The description of `ranks` is that of `sharded`, because both
have the same content. The tests use each bad/<name>.metadata as `.metadata` with the data of
`sharded`. expected.txt has a line for each: its name, the kind of error, and a part of the message.

Usage: generate.py
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.default_planner import (
    DefaultSavePlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

HERE = Path(__file__).parent
WORLD_SIZE = 2


def has_tensor(value) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(has_tensor, value))
    return isinstance(value, torch.Tensor)


def text_of(value, indent="") -> str:
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    text = f"{indent}{type(value).__name__} [] ()  \n"
    for key, item in entries:
        text += f"{indent}  {key}: "
        if isinstance(item, torch.Tensor):
            data = item.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            lengths = "".join(f"{n}," for n in item.shape)
            text += f"{str(item.dtype).removeprefix('torch.')} [{lengths}] {data.hex()}\n"
        elif has_tensor(item):
            text += "\n" + text_of(item, indent + "  ")
        else:
            text += json.dumps(item) + "\n"
    return text


def loaded(reader) -> dict:
    """The whole state dict as torch rebuilds it (what dcp_to_torch_save does)."""
    state: dict = {}
    _load_state_dict(
        state,
        storage_reader=reader,
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    return state


def plain_state():
    everything = torch.arange(64, dtype=torch.uint8)
    dtypes = [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.complex64]
    return {
        "model": {
            "layer.weight": torch.arange(6.0).reshape(2, 3),
            "columns": torch.arange(6.0).reshape(2, 3).t(),
            "image": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
            "scalar": torch.tensor(3),
            "empty": torch.zeros(0, 4),
        },
        "dtypes": [(everything % 2 if d == torch.bool else everything).view(d) for d in dtypes],
        "optimizer": {
            "state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2, 3)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0], "foreach": None}],
        },
        "pair": (torch.ones(2), "in one object"),
        "epoch": 7,
        "name": "plain",
    }


def save_plain(folder):
    dcp.save(plain_state(), checkpoint_id=folder, no_dist=True)


def save_zstd(folder):
    """Saves each item as a Zstandard stream."""
    from torch.distributed.checkpoint._extension import ZStandard

    state = plain_state()
    state["model"]["long"] = torch.arange(300) % 7
    writer = dcp.FileSystemWriter(folder, _extensions=[ZStandard()])
    dcp.save(state, storage_writer=writer, no_dist=True)


def save_flat(folder):
    """Saves without nesting, that is without planner_data, and one file for each tensor."""
    dcp.save(
        {"a.b": torch.arange(40.0), "c": torch.ones(3)},
        storage_writer=dcp.FileSystemWriter(folder, single_file_per_rank=False),
        planner=DefaultSavePlanner(flatten_state_dict=False),
        no_dist=True,
    )


def sharded_state(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def sharded(tensor, placement):
        return distribute_tensor(tensor, mesh, [placement])

    return {
        "model": {
            "rows": sharded(torch.arange(15.0).reshape(5, 3), Shard(0)),
            "columns": sharded(torch.arange(24, dtype=torch.int32).reshape(4, 6), Shard(1)),
            "uneven": sharded(torch.arange(1.0), Shard(0)),  # nothing on the second rank
            "replicated": sharded(torch.ones(2, 2, dtype=torch.bfloat16), Replicate()),
            "plain": torch.full((3,), 2.0),
        },
        "step": 3,
    }


def fsdp_state(mesh):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optim": optimizer_state}


def on_each_rank(rank, parent):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29877", RANK=str(rank))
    os.environ["WORLD_SIZE"] = str(WORLD_SIZE)
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (WORLD_SIZE,))
    dcp.save(sharded_state(mesh), checkpoint_id=parent / "sharded")
    dcp.save(fsdp_state(mesh), checkpoint_id=parent / "fsdp")
    dcp.save(sharded_state(mesh), checkpoint_id=parent / "ranks", use_collectives=False)
    weights = {f"model.{key}": value for key, value in sharded_state(mesh)["model"].items()}
    dcp.save(weights, storage_writer=HuggingFaceStorageWriter(parent / "hf", save_distributed=True))
    dist.barrier()
    dist.destroy_process_group()


# --- metadata that is damaged or hostile ---

WEIGHT = "model.rows"
CORRUPT, UNSUPPORTED = "corrupt", "unsupported"


class Evil:
    def __reduce__(self):
        return os.system, ("touch hacked",)


def stored(metadata, name=WEIGHT):
    """Returns index and storage location of the first chunk of a tensor."""
    return next(item for item in metadata.storage_data.items() if item[0].fqn == name)


def store(metadata, name=WEIGHT, **changes):
    index, info = stored(metadata, name)
    fields = {**vars(info), **changes}
    metadata.storage_data[index] = _StorageInfo(**fields)


def bad_metadata(good) -> dict:
    """Returns a dict: name -> (metadata or bytes, kind of error, part of the message)."""
    cases = {}

    def case(name, kind, message):
        def add(change):
            metadata = copy.deepcopy(good)
            changed = change(metadata)
            cases[name] = (metadata if changed is None else changed, kind, message)

        return add

    def entry(metadata, name=WEIGHT):
        return metadata.state_dict_metadata[name]

    gaps = f'key "{WEIGHT}": its pieces do not make up the tensor'

    case("hole", CORRUPT, gaps)(lambda m: entry(m).chunks.pop() and None)
    case("overlap", CORRUPT, gaps)(lambda m: entry(m).chunks.append(entry(m).chunks[0]))
    case("larger", CORRUPT, gaps)(lambda m: setattr(entry(m), "size", torch.Size([6, 3])))
    case("smaller", CORRUPT, "a piece of it does not fit")(
        lambda m: setattr(entry(m), "size", torch.Size([4, 3]))
    )
    case("no-chunks", CORRUPT, gaps)(lambda m: entry(m).chunks.clear())
    case("rank", CORRUPT, "a piece of it does not fit")(
        lambda m: setattr(entry(m), "size", torch.Size([15]))
    )
    case("huge", CORRUPT, "size: too large")(
        lambda m: setattr(entry(m), "size", torch.Size([2**62, 2**62]))
    )
    case("huge-piece", CORRUPT, "its item is too small: expected at least")(
        lambda m: setattr(entry(m), "chunks", [ChunkStorageMetadata((0, 0), (2**40, 3))])
    )
    case("negative", CORRUPT, "offsets of a chunk: expected an integer from 0, found -1")(
        lambda m: entry(m).chunks.append(ChunkStorageMetadata((-1, 0), (1, 3)))
    )
    case("sizes-text", CORRUPT, "size: expected a torch.Size, tuple or list, found text")(
        lambda m: setattr(entry(m), "size", "5, 3")
    )
    case("unstored", CORRUPT, "it is stored nowhere")(
        lambda m: m.storage_data.pop(stored(m)[0]) and None
    )
    case("unstored-object", CORRUPT, 'key "step": object: it is stored nowhere')(
        lambda m: m.storage_data.pop(stored(m, "step")[0]) and None
    )
    case("short", CORRUPT, "its item is too small")(lambda m: store(m, length=10))
    case("beyond", CORRUPT, "it reaches past the end of the file")(lambda m: store(m, offset=10**6))
    case("beyond-63", CORRUPT, "it reaches past the end of the file")(
        lambda m: store(m, offset=2**63 - 1, length=2**63 - 1)
    )
    case("no-archive", CORRUPT, "__0_0.distcp: item at byte")(lambda m: store(m, offset=1))
    case("other-dtype", CORRUPT, "not as in the metadata: expected int32")(
        lambda m: setattr(entry(m), "properties", TensorProperties(torch.int32))
    )
    case("other-item", CORRUPT, "not as in the metadata")(
        lambda m: store(m, **vars(stored(m, "model.plain")[1]))
    )
    case("item-of-object", CORRUPT, "found a JSON value")(
        lambda m: store(m, **vars(stored(m, "step")[1]))
    )
    for name, path in {
        "up": "../x.distcp",
        "absolute": "/etc/passwd",
        "dots": "..",
        "empty": "",
        "zero": "a\0b",
    }.items():
        case(f"path-{name}", CORRUPT, "relative_path: expected the name of a file")(
            lambda m, path=path: store(m, relative_path=path)
        )
    case("missing-file", CORRUPT, "__7_0.distcp: missing")(
        lambda m: store(m, relative_path="__7_0.distcp")
    )
    for name, descriptors in {
        "extension": ["stream.zstd"],
        "extension-version": ["stream.zstd/2"],
        "extension-other": ["my.cipher/1"],
        "extension-two": ["stream.zstd/1", "stream.zstd/1"],
    }.items():
        case(
            name, UNSUPPORTED, 'expected plain bytes or "stream.zstd/1", found "' + descriptors[0]
        )(lambda m, descriptors=descriptors: store(m, transform_descriptors=descriptors))
    case("extension-of-plain-bytes", CORRUPT, "expected zstd data, found damaged or other data")(
        lambda m: store(m, transform_descriptors=["stream.zstd/1"])
    )

    def enlarge(m):
        store(m, transform_descriptors=["stream.zstd/1"])
        entry(m).size = torch.Size([2**50, 3])
        entry(m).chunks[0] = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2**50, 3]))

    case("extension-size-huge", CORRUPT, "its item is too small: expected at least")(enlarge)
    case(
        "dtype",
        UNSUPPORTED,
        'expected a supported one, such as "torch.float32", found "torch.quint8"',
    )(lambda m: setattr(entry(m), "properties", TensorProperties(torch.quint8)))
    case("layout", UNSUPPORTED, 'expected "torch.strided"')(
        lambda m: setattr(entry(m), "properties", TensorProperties(layout=torch.sparse_coo))
    )
    case("path-through-entry", CORRUPT, "its path leads through another entry")(
        lambda m: m.planner_data.update({"step": ("model", "plain", "x")})
    )
    case("path-twice", CORRUPT, "its path is that of another entry")(
        lambda m: m.planner_data.update({"step": ("model", "plain")})
    )
    case("path-over-node", CORRUPT, "its path is that of another entry")(
        lambda m: m.planner_data.update({"step": ("model",)})
    )
    case("path-mixed", CORRUPT, "its path contradicts that of another entry")(
        lambda m: m.planner_data.update({"step": ("model", 0)})
    )
    case("path-none", CORRUPT, "planner_data: expected 1 to 512 keys, found 0")(
        lambda m: m.planner_data.update({"step": ()})
    )
    case("path-deep", CORRUPT, "planner_data: expected 1 to 512 keys, found 600")(
        lambda m: m.planner_data.update({"step": ("x",) * 600})
    )
    case("path-far", CORRUPT, "too many missing items")(
        lambda m: m.planner_data.update({WEIGHT: ("list", 2**62)})
    )
    case("entry-class", UNSUPPORTED, "neither tensor nor object")(
        lambda m: m.state_dict_metadata.update({"step": Evil()})
    )
    case("storage-class", UNSUPPORTED, "stored by another writer")(
        lambda m: m.storage_data.update({stored(m)[0]: Evil()})
    )
    case("index-class", CORRUPT, 'expected keys of "MetadataIndex"')(
        lambda m: m.storage_data.update({"x": stored(m)[1]})
    )
    case("object-as-tensor", CORRUPT, "object: it is stored nowhere")(
        lambda m: m.state_dict_metadata.update({WEIGHT: BytesStorageMetadata()})
    )
    case("name", CORRUPT, "name: expected a string, found an integer")(
        lambda m: m.state_dict_metadata.update({3: BytesStorageMetadata()})
    )
    case("index-offset", CORRUPT, "offset: expected a torch.Size")(
        lambda m: m.storage_data.update({index_with_text(): stored(m)[1]})
    )
    case("root", UNSUPPORTED, 'expected an object of "Metadata", found a dict')(lambda m: {})
    case("root-evil", UNSUPPORTED, '"posix.system"')(lambda m: Evil())
    case("cut", CORRUPT, ".metadata: ")(lambda m: pickle.dumps(m)[:200])
    case("zeros", CORRUPT, ".metadata: ")(lambda m: bytes(100))
    case("nothing", CORRUPT, ".metadata: ")(lambda m: b"")
    return cases


def index_with_text() -> MetadataIndex:
    index = MetadataIndex("x")
    object.__setattr__(index, "offset", "0")
    return index


def write_bad() -> None:
    shutil.rmtree("bad", ignore_errors=True)
    Path("bad").mkdir()
    good = pickle.loads(Path("sharded/.metadata").read_bytes())
    lines = []
    for name, (metadata, kind, message) in bad_metadata(good).items():
        data = metadata if isinstance(metadata, bytes) else pickle.dumps(metadata, protocol=4)
        Path("bad", name + ".metadata").write_bytes(data)
        lines.append(f"{name} {kind} {message}\n")
    Path("expected.txt").write_text("".join(lines))


def main() -> None:
    os.chdir(HERE)  # .metadata keeps the path that it was saved under
    for name in ("plain", "flat", "zstd", "sharded", "fsdp", "ranks", "hf"):
        shutil.rmtree(name, ignore_errors=True)
    save_plain("plain")
    save_zstd("zstd")
    save_flat("flat")
    mp.spawn(on_each_rank, (Path(),), nprocs=WORLD_SIZE)
    golden = {
        name: text_of(loaded(dcp.FileSystemReader(name)))
        for name in ("plain", "flat", "zstd", "sharded", "fsdp")
    }
    golden["ranks"] = golden["sharded"]
    golden["hf"] = text_of(loaded(HuggingFaceStorageReader("hf")))
    Path("golden.txt").write_text("".join(f"== {name}\n{golden[name]}" for name in golden))
    write_bad()


if __name__ == "__main__":
    main()

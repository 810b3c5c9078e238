#!/usr/bin/env python3
"""Writes the snapshots of this folder with torchsnapshot (0.1.0, torch 2.13).

Usage: pip install torchsnapshot==0.1.0, then: python generate.py [NAME ...], without names all.
Names of slabs are random, so each run writes other files.

"dtensors" is written by the last commit of torchsnapshot's repository (pytorch/torchsnapshot,
df45917, also called 0.1.0), because the package 0.1.0 does not support DTensors.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import OrderedDict
from pathlib import Path

HERE = Path(__file__).resolve().parent


def values():
    """Returns the values that tests/formats/snapshot/golden_test.cpp expects."""
    import torch

    return {
        "u8": torch.arange(7, dtype=torch.uint8),
        "f32": torch.arange(6.0).reshape(2, 3),
        "f64": torch.arange(3, dtype=torch.float64),
        "bf16": torch.ones(2, dtype=torch.bfloat16),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(5),
        "complex": torch.tensor([1 + 2j, 3 - 4j]),
        "we/ird%k": torch.tensor([1.0]),
        "": torch.tensor([2.0]),
        "int": 3,
        "large": 2**70,
        "float": 0.1,
        "text": "adam\n",
        "yes": True,
        "none": None,
        "betas": (0.9, 0.999),
        "list": [1, torch.ones(2), "x"],
        "by number": {0: torch.zeros(1), -1: 2},
        "ordered": OrderedDict(b=1, a=2),
        "bytes": b"\x00\xff",
    }


def single(folder: Path) -> None:
    from torchsnapshot import Snapshot, StateDict

    Snapshot.take(str(folder), {"state": StateDict(**values())})


def files(folder: Path) -> None:
    """Takes a snapshot without slabs, and in chunks of 32 bytes."""
    import torch
    from torchsnapshot import Snapshot, StateDict
    from torchsnapshot.knobs import override_max_chunk_size_bytes, override_is_batching_disabled

    with override_is_batching_disabled(True), override_max_chunk_size_bytes(32):
        state = StateDict(big=torch.arange(20, dtype=torch.int64).reshape(10, 2), w=torch.ones(3))
        Snapshot.take(str(folder), {"state": state})


def yaml(folder: Path) -> None:
    """Takes a snapshot with YAML metadata, as versions before 0.1 wrote it."""
    import json

    from yaml import dump

    single(folder)
    metadata = folder / ".snapshot_metadata"
    metadata.write_text(dump(json.loads(metadata.read_text()), sort_keys=False))


def quantized(folder: Path) -> None:
    import torch
    from torchsnapshot import Snapshot, StateDict

    q = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8)
    Snapshot.take(str(folder), {"state": StateDict(q=q, w=torch.ones(2))})


def rank(number: int, folder: str, port: int, table_of: object) -> None:
    import torch
    import torch.distributed as dist
    from torchsnapshot import Snapshot, StateDict

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=number, world_size=2)
    table = table_of(torch.arange(24.0).reshape(4, 6))
    state = StateDict(table=table, shared=torch.arange(3.0), own=torch.tensor([number]), step=number)
    Snapshot.take(folder, {"state": state}, replicated=["state/shared"])
    dist.destroy_process_group()


def sharded_table(whole):
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    spec = ChunkShardingSpec(dim=1, placements=["rank:0/cpu", "rank:1/cpu"])
    table = sharded_tensor.empty(spec, 4, 6)
    for shard in table.local_shards():
        begin, size = shard.metadata.shard_offsets[1], shard.metadata.shard_sizes[1]
        shard.tensor.copy_(whole[:, begin : begin + size])
    return table


def table_of_dtensor(whole):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(whole, init_device_mesh("cpu", (2,)), [Shard(1)])


def ranks(folder: Path) -> None:
    import torch.multiprocessing as mp

    mp.spawn(rank, args=(str(folder), 29531, sharded_table), nprocs=2)


def dtensors(folder: Path) -> None:
    import torch.multiprocessing as mp

    mp.spawn(rank, args=(str(folder), 29531, table_of_dtensor), nprocs=2)


def main(names: list[str]) -> None:
    for make in (single, files, yaml, quantized, ranks, dtensors):
        if names and make.__name__ not in names:
            continue
        folder = HERE / f"ok-{make.__name__}"
        shutil.rmtree(folder, ignore_errors=True)
        make(folder)
        print(folder.name, sum(1 for _ in folder.rglob("*")))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Saves and loads with two ranks: torch's storage classes, and plain writes of the same bytes.

    python bench/distributed.py [--tensors 20000] [--gigabytes 1.5] [--rounds 3] [--folder DIR]

Contenders are interleaved in rotating order; reports medians of the slower rank. Everything is
durable. This is a separate program: bench/run.py does not run it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import tenfold.distributed
from tenfold.distributed import SavePlanner, StorageReader, StorageWriter

RANKS = 2
WRITE_BYTES = 8 << 20


def small_state(count: int, mesh: Any) -> dict[str, Any]:
    """Tensors of 1 KiB, half of each on each rank."""
    local = torch.rand(128)
    return {
        f"layer.{i}": DTensor.from_local(local.clone(), mesh, [Shard(0)], run_check=False)
        for i in range(count)
    }


def large_state(num_bytes: int, mesh: Any) -> dict[str, Any]:
    """Twelve matrices of float32, split by rows."""
    rows = max(1, num_bytes // 12 // 4096 // 4 // RANKS)
    return {
        f"layer.{i}": DTensor.from_local(
            torch.full((rows, 4096), float(i)), mesh, [Shard(0)], run_check=False
        )
        for i in range(12)
    }


def write_plainly(state: dict[str, Any], path: Path) -> None:
    """Writes the bytes of this rank to one file shared by both, with pwrite and fsync."""
    rank = dist.get_rank()
    total = sum(tensor.to_local().nbytes for tensor in state.values())
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    at = rank * total
    for tensor in state.values():
        view = memoryview(tensor.to_local().numpy()).cast("B")
        for begin in range(0, len(view), WRITE_BYTES):
            at += os.pwrite(descriptor, view[begin : begin + WRITE_BYTES], at)
    os.fsync(descriptor)
    os.close(descriptor)


def timed(call: Callable[[], object]) -> float:
    """Seconds until all ranks are done."""
    dist.barrier()
    begin = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - begin


def remove(path: Path) -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    dist.barrier()


def take_turns(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds[name].append(contenders[name]())
    return {name: statistics.median(found) for name, found in seconds.items()}


def saving(state: dict[str, Any], folder: Path) -> dict[str, Callable[[], float]]:
    path = folder / "new.safetensors"

    def ours() -> float:
        remove(path)
        return timed(lambda: tenfold.distributed.save(state, path))

    def our_writer() -> float:
        remove(path)
        writer, made = StorageWriter(path), SavePlanner()
        return timed(lambda: dcp.save(state, storage_writer=writer, planner=made))

    def theirs() -> float:
        remove(folder / "new")
        return timed(lambda: dcp.save(state, storage_writer=FileSystemWriter(folder / "new")))

    return {
        "tenfold.distributed.save": ours,
        "dcp.save, StorageWriter, SavePlanner": our_writer,
        "dcp.save, FileSystemWriter": theirs,
    }


def loading(state: dict[str, Any], folder: Path) -> dict[str, Callable[[], float]]:
    path = folder / "new.safetensors"
    return {
        "tenfold.distributed.load": lambda: timed(lambda: tenfold.distributed.load(state, path)),
        "dcp.load, StorageReader": lambda: timed(
            lambda: dcp.load(state, storage_reader=StorageReader(path))
        ),
        "dcp.load, FileSystemReader": lambda: timed(
            lambda: dcp.load(state, storage_reader=FileSystemReader(folder / "new"))
        ),
    }


def rank_main(rank: int, arguments: argparse.Namespace, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    found: dict[str, dict[str, float]] = {}
    if arguments.tensors:
        state = small_state(arguments.tensors, mesh)
        what = f"{arguments.tensors} tensors of 1 KiB"
        found[f"save {what}"] = take_turns(saving(state, folder), arguments.rounds)
        found[f"load {what}"] = take_turns(loading(state, folder), arguments.rounds)
    if arguments.gigabytes:
        state = large_state(int(arguments.gigabytes * 1e9), mesh)

        def plainly() -> float:
            remove(folder / "plain")
            return timed(lambda: write_plainly(state, folder / "plain"))

        what = f"{arguments.gigabytes} GB"
        contenders = {**saving(state, folder), "pwrite of 2 processes": plainly}
        found[f"save {what}"] = take_turns(contenders, arguments.rounds)
        found[f"load {what}"] = take_turns(loading(state, folder), arguments.rounds)
    if rank == 0:
        print(json.dumps(found, indent=2))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=20_000, help="small tensors; 0: none")
    parser.add_argument("--gigabytes", type=float, default=1.5, help="large ones; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to be measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        context = multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=rank_main, args=(rank, arguments, Path(folder)))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main()

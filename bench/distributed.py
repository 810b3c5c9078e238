"""Saves and loads with two ranks, against torch's storage classes and plain writes.

    python bench/distributed.py [--tensors 20000] [--gigabytes 1.5] [--rounds 3] [--folder DIR]

Measures with two ranks:

- saves and loads of small and of large tensors,
- loads of a checkpoint that four ranks saved,
- saves of one file with whole tensors. tenfold writes it directly; torch writes a file per rank,
  and then consolidates these files.

Contenders are interleaved in rotating order. A time ends when the slower rank is done; the tables
show medians. All contenders make their result durable. bench/run.py does not run this program.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from harness import Goal, Result, Timing
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import tenfold.distributed
from tenfold.distributed import SavePlanner, StorageReader, StorageWriter

RANKS = 2
SAVING_RANKS = 4  # number of ranks that save the checkpoint of `measure_resharded`
WRITE_BYTES = 8 << 20


def small_state(count: int, mesh: Any) -> dict[str, Any]:
    """Returns tensors of 1 KiB, half of each tensor on each rank."""
    local = torch.rand(128)
    return {
        f"layer.{i}": DTensor.from_local(local.clone(), mesh, [Shard(0)], run_check=False)
        for i in range(count)
    }


def large_state(num_bytes: int, mesh: Any) -> dict[str, Any]:
    """Returns 12 float32 matrices, split by rows.

    The value of an element is its row index plus the number of its matrix.
    """
    all_rows = max(1, num_bytes // 12 // 4096 // 4 // SAVING_RANKS) * SAVING_RANKS
    rows = all_rows // mesh.size()
    numbers = torch.arange(mesh.get_rank() * rows, (mesh.get_rank() + 1) * rows)
    return {
        f"layer.{i}": DTensor.from_local(
            (numbers + i).float().unsqueeze(1).repeat(1, 4096), mesh, [Shard(0)], run_check=False
        )
        for i in range(12)
    }


def write_plainly(state: dict[str, Any], path: Path) -> None:
    """Writes the bytes of this rank to one file shared by both ranks, with pwrite and fsync."""
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
    """Calls `call` on all ranks at once. Returns the seconds until the last rank is done."""
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


def take_turns(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    timings = {name: Timing() for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            timings[name].seconds.append(contenders[name]())
    return timings


def compare(
    title: str, contenders: dict[str, Callable[[], float]], goals: list[Goal], rounds: int
) -> None:
    timings = take_turns(contenders, rounds)
    if dist.get_rank() == 0:
        print(Result("distributed", title, timings, goals).markdown(), flush=True)


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


def resharded(state: dict[str, Any], folder: Path) -> dict[str, Callable[[], float]]:
    """Like `loading`, but zeroes the tensors before each load and checks the loaded values."""
    right = {name: tensor.to_local().clone() for name, tensor in state.items()}

    def checked(load: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            for tensor in state.values():
                tensor.to_local().zero_()
            seconds = load()
            assert all(torch.equal(state[name].to_local(), right[name]) for name in right)
            return seconds

        return run

    return {name: checked(load) for name, load in loading(state, folder).items()}


def sync_files(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def whole_files(state: dict[str, Any], folder: Path) -> dict[str, Callable[[], float]]:
    """Returns contenders that save whole tensors in one file, which a single process can read."""
    path, shards, whole = folder / "new.safetensors", folder / "shards", folder / "whole"

    def ours() -> float:
        remove(path)
        return timed(lambda: tenfold.distributed.save(state, path))

    def save_and_consolidate() -> None:
        writer = HuggingFaceStorageWriter(str(shards), save_distributed=True)
        dcp.save(state, storage_writer=writer)
        if dist.get_rank() == 0:
            whole.mkdir()
            numbers = dict.fromkeys(state, 1)
            consolidate_safetensors_files(str(shards), str(whole), numbers, os.cpu_count() or 1)
            sync_files(whole)

    def theirs() -> float:
        remove(shards)
        remove(whole)
        return timed(save_and_consolidate)

    return {
        "tenfold.distributed.save": ours,
        "dcp.save, HuggingFaceStorageWriter, then consolidate_safetensors_files": theirs,
    }


def measure_saves_and_loads(arguments: argparse.Namespace, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (RANKS,))
    ours, theirs = "tenfold.distributed.{}", "dcp.{}, FileSystem{}"
    save = ours.format("save"), theirs.format("save", "Writer")
    load = ours.format("load"), theirs.format("load", "Reader")
    rounds = arguments.rounds
    if arguments.tensors:
        state = small_state(arguments.tensors, mesh)
        what = f"{arguments.tensors:,} tensors of 1 KiB"
        compare(f"Save {what}", saving(state, folder), [Goal(*save, 5.0)], rounds)
        compare(f"Load {what}", loading(state, folder), [Goal(*load, 7.0)], rounds)
    if arguments.gigabytes:
        state = large_state(int(arguments.gigabytes * 1e9), mesh)

        def plainly() -> float:
            remove(folder / "plain")
            return timed(lambda: write_plainly(state, folder / "plain"))

        what = f"{arguments.gigabytes} GB, {len(state)} tensors"
        pwrite = f"pwrite of {RANKS} processes"
        contenders = {**saving(state, folder), pwrite: plainly}
        compare(f"Save {what}", contenders, [Goal(save[0], pwrite, 0.9)], rounds)
        compare(f"Load {what}", loading(state, folder), [], rounds)
        for name in ("plain", "new"):
            remove(folder / name)
        one_file = whole_files(state, folder)
        goals = [Goal(*one_file, 2.0)]
        compare(f"Save {what}, as one file of whole tensors", one_file, goals, rounds)
        for name in ("shards", "whole"):
            remove(folder / name)


def save_for_others(arguments: argparse.Namespace, folder: Path) -> None:
    """Saves the checkpoints that `measure_resharded` loads."""
    state = large_state(int(arguments.gigabytes * 1e9), init_device_mesh("cpu", (SAVING_RANKS,)))
    for save in saving(state, folder).values():
        save()


def measure_resharded(arguments: argparse.Namespace, folder: Path) -> None:
    state = large_state(int(arguments.gigabytes * 1e9), init_device_mesh("cpu", (RANKS,)))
    what = f"{arguments.gigabytes} GB, {len(state)} tensors, saved by {SAVING_RANKS} ranks"
    compare(
        f"Load {what}, with {RANKS}",
        resharded(state, folder),
        [Goal("tenfold.distributed.load", "dcp.load, FileSystemReader", 1.5)],
        arguments.rounds,
    )


def rank_main(
    rank: int,
    size: int,
    work: Callable[[argparse.Namespace, Path], None],
    arguments: argparse.Namespace,
    folder: Path,
) -> None:
    torch.set_num_threads(1)
    group = f"file://{folder}/group-of-{work.__name__}"
    dist.init_process_group("gloo", init_method=group, rank=rank, world_size=size)
    work(arguments, folder)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tensors", type=int, default=20_000, help="number of small tensors; 0: none"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=1.5, help="total size of the large tensors; 0: none"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    arguments = parser.parse_args()
    works = [(RANKS, measure_saves_and_loads)]
    if arguments.gigabytes:
        works += [(SAVING_RANKS, save_for_others), (RANKS, measure_resharded)]
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for size, work in works:
            ranks = [
                context.Process(target=rank_main, args=(rank, size, work, arguments, Path(folder)))
                for rank in range(size)
            ]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            if any(process.exitcode for process in ranks):
                sys.exit(f"{work.__name__}: a rank failed")


if __name__ == "__main__":
    main()

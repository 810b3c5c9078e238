"""The checks that test_distributed.py runs: process groups save and load checkpoints.

Usage: worlds.py FOLDER [PART OF A CHECK'S NAME]

This process imports torch once, and forks the ranks of each process group. It prints a JSON object
that maps the name of each check to the traceback of its failure, or to null.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import datetime
import errno
import io
import itertools
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import tenfold
import tenfold.distributed
from tenfold.distributed import SavePlanner, StorageReader, StorageWriter

# Timeouts of process groups. A group in which a rank may die has the short timeout.
TIMEOUT = datetime.timedelta(seconds=90)
SHORT_TIMEOUT = datetime.timedelta(seconds=20)
FORK = multiprocessing.get_context("fork")


def _rank_main(
    rank: int,
    size: int,
    port_file: str,
    timeout: datetime.timedelta,
    function: Any,
    pipe: Any,
) -> None:
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{port_file}", rank=rank, world_size=size, timeout=timeout
        )
        function(rank, size)
        if timeout == TIMEOUT:  # else it would wait for the rank that died
            dist.destroy_process_group()
        pipe.send(None)
    except BaseException:
        pipe.send(f"rank {rank}: {traceback.format_exc()}")
    finally:
        pipe.close()
        os._exit(0)  # a failed rank does not wait for others


def in_world(size: int, function: Callable[[int, int], None], dying: int | None = None) -> None:
    """Runs `function` on all ranks of a new group; fails if a rank raises, hangs or dies.

    Args:
        size: Number of ranks.
        function: Called with rank and size.
        dying: A rank that may die without a failure of this function.
    """
    timeout = TIMEOUT if dying is None else SHORT_TIMEOUT
    port_file = f"{sys.argv[1]}/group-{time.monotonic_ns()}"
    ranks = []
    for rank in range(size):
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(
            target=_rank_main, args=(rank, size, port_file, timeout, function, there), daemon=False
        )
        process.start()
        there.close()
        ranks.append((process, here))
    failures = []
    for rank, (process, pipe) in enumerate(ranks):
        try:
            said = pipe.recv() if pipe.poll(PATIENCE) else f"rank {rank}: hangs"
        except EOFError:
            said = None if rank == dying else f"rank {rank}: died"
        if said is not None:
            failures.append(said)
        process.join(10)
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
    assert not failures, "\n".join(failures)


def failure_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> CheckpointException:
    """Returns the CheckpointException that a call raises. Fails if the call succeeds."""
    try:
        call(*args, **kwargs)
    except CheckpointException as error:  # a BaseException
        return error
    raise AssertionError("expected it to fail")


def numbered(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float32).reshape(shape) % 97
    if dtype == torch.bool:
        return values % 2 == 0
    if dtype.is_complex:
        return torch.complex(values, -values).to(dtype)
    return values.to(dtype)


# Whole tensors by name, and the placements of those that are saved and loaded as DTensors.
WHOLE = {
    "rows": numbered(torch.float32, 7, 5),
    "columns": numbered(torch.bfloat16, 6, 8),
    "few": numbered(torch.int64, 2, 3),  # some ranks have no part of it
    "long": numbered(torch.uint8, 300_001),
    "cube": numbered(torch.float16, 5, 4, 3),
    "copy": numbered(torch.float64, 4, 4),
    "scalar": numbered(torch.float32),
    "empty": numbered(torch.float32, 0, 4),
    "eighths": numbered(torch.float8_e4m3fn, 9, 4),
    "complex": numbered(torch.complex64, 3, 4),
    "plain": numbered(torch.int32, 3),
    "flags": numbered(torch.bool, 11),
    "a.b/c": numbered(torch.int16, 5, 3),
}
SAVED: dict[str, list[Any]] = {
    "rows": [Shard(0)],
    "columns": [Shard(1)],
    "few": [Shard(0)],
    "long": [Shard(0)],
    "cube": [Shard(1)],
    "copy": [Replicate()],
    "scalar": [Replicate()],
    "empty": [Shard(0)],
    "eighths": [Shard(0)],
    "complex": [Shard(1)],
    "flags": [Shard(0)],
    "a.b/c": [Shard(0)],
}
LOADED: dict[str, list[Any]] = {
    "rows": [Shard(1)],
    "columns": [Shard(0)],
    "few": [Replicate()],
    "long": [Shard(0)],
    "cube": [Shard(2)],
    "copy": [Shard(1)],
    "scalar": [Replicate()],
    "empty": [Shard(1)],
    "eighths": [Shard(1)],
    "complex": [Shard(0)],
    "flags": [Replicate()],
    "a.b/c": [Shard(1)],
}


def spread(tensor: torch.Tensor, mesh: Any, placements: list[Any]) -> DTensor:
    """Distributes a tensor without communication, because gloo does not support every dtype.

    Every rank passes the whole tensor, and keeps its own part; a rank outside the mesh has none.
    """
    coordinate = mesh.get_coordinate()
    local = tensor if coordinate else tensor.new_empty(0)
    for dim, placement in enumerate(placements if coordinate else ()):
        if isinstance(placement, Shard):
            parts = placement._split_tensor(local, mesh.size(dim), with_padding=False)[0]
            local = parts[coordinate[dim]]
    return DTensor.from_local(
        local.contiguous(),
        mesh,
        placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def state_of(size: int, how: dict[str, list[Any]], fill: bool = True) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (size,))
    state: dict[str, Any] = {}
    for name, whole in WHOLE.items():
        tensor = whole.clone() if fill else torch.zeros_like(whole)
        state[name] = spread(tensor, mesh, how[name]) if name in how else tensor
    return state


def expect_loaded(state: dict[str, Any], size: int, how: dict[str, list[Any]]) -> None:
    right = state_of(size, how)
    for name, expected in right.items():
        found = state[name]
        if isinstance(expected, DTensor):
            expected, found = expected.to_local(), found.to_local()
        assert found.dtype == expected.dtype, name
        assert torch.equal(
            found.float() if found.dtype.itemsize == 1 else found,
            expected.float() if expected.dtype.itemsize == 1 else expected,
        ), name


def values_of(rank: int) -> dict[str, Any]:
    return {"step": 7, "names": ["a", "b"], "lr": 0.5, "none": None, "rate": {"x": [1, 2.5, "c"]}}


FOLDER = Path(sys.argv[1])
# The sizes of the process groups that save and load, and how often a rank is killed at random.
WORLDS = tuple(map(int, os.environ.get("TENFOLD_WORLDS", "1,2,3").split(",")))
NUM_KILLS = int(os.environ.get("TENFOLD_KILLS", "3"))
# If set, checks with a dying rank test every phase of a save in every layout, else a sample.
EVERY_FAULT = "TENFOLD_EVERY_FAULT" in os.environ
# Seconds until a rank counts as hung. A background process imports torch again, which can take
# minutes if the machine is busy and the process has a low priority.
PATIENCE = 1200 if EVERY_FAULT else 180
LAYOUTS = ("safetensors", "index", "folder", "shards", "torch")
SUFFIXES = {"safetensors": ".safetensors", "index": ".safetensors.index.json"}


def path_in(folder: str, layout: str) -> Path:
    """Returns the path of a checkpoint; its parent folder has no other checkpoint."""
    return FOLDER / f"{folder}-{layout}" / f"m{SUFFIXES.get(layout, '')}"


def saved_path(size: int, layout: str) -> Path:
    return path_in(f"world-{size}", layout)


def layout_of(layout: str) -> str:
    """Returns the writer's argument `layout`: "plain" for the first three of LAYOUTS."""
    return layout if layout in ("shards", "torch") else "plain"


def writer_of(path: Path, layout: str) -> StorageWriter:
    size = 200 if layout == "index" else None
    return StorageWriter(path, layout=layout_of(layout), durable=False, shard_size=size)


def shards_of(path: Path) -> set[str]:
    """Returns the files that an index names, or an empty set if `path` is not an index."""
    if not path.name.endswith(SUFFIXES["index"]):
        return set()
    return set(json.loads(path.read_text())["weight_map"].values())


def save_every_layout(rank: int, size: int) -> None:
    for layout in LAYOUTS:
        state = {"model": state_of(size, SAVED), **values_of(rank)}
        dcp.save(state, storage_writer=writer_of(saved_path(size, layout), layout))


def check_every_world_size_loads_checkpoints_of_every_other() -> None:
    def load(rank: int, size: int) -> None:
        for saved in WORLDS:
            for layout in LAYOUTS:
                state = {
                    "model": state_of(size, LOADED, fill=False),
                    "step": 0,
                    "names": [],
                    "lr": 0.0,
                    "none": 1,
                    "rate": {"x": []},
                }
                reader = StorageReader(saved_path(saved, layout), verify=layout != "safetensors")
                dcp.load(state, storage_reader=reader)
                expect_loaded(state["model"], size, LOADED)
                assert {key: state[key] for key in values_of(0)} == values_of(0)

    for size in WORLDS:
        in_world(size, save_every_layout)
        for layout in LAYOUTS:
            path = saved_path(size, layout)
            assert tenfold.verify(path).ok
            loaded = tenfold.load(path)
            assert {key: loaded[key] for key in values_of(0)} == values_of(0)
            for name, whole in WHOLE.items():
                expect_equal(loaded["model"][name], whole)
    for size in WORLDS:
        in_world(size, load)


def check_torch_reads_its_layouts() -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    def load(rank: int, size: int) -> None:
        whole = state_of(size, LOADED, fill=False)
        path = saved_path(2, "shards")
        tensors = {f"model.{name}": tensor for name, tensor in whole.items()}
        dcp.load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
        expect_loaded(whole, size, LOADED)
        state = {
            "model": state_of(size, LOADED, fill=False),
            **dict.fromkeys(values_of(0), 0),
            "names": [],
            "rate": {"x": []},
        }
        reader = dcp.FileSystemReader(saved_path(2, "torch"))
        dcp.load(state, storage_reader=reader)
        expect_loaded(state["model"], size, LOADED)
        assert {key: state[key] for key in values_of(0)} == values_of(0)

    in_world(2, save_every_layout)
    for size in (1, 3):
        in_world(size, load)


def expect_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.contiguous().flatten().view(torch.uint8).tolist() == (
        expected.contiguous().flatten().view(torch.uint8).tolist()
    )


def check_a_mesh_of_two_dimensions() -> None:
    path = FOLDER / "mesh.safetensors"
    whole = numbered(torch.float32, 10, 7)

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2))
        state = {
            "grid": spread(whole, mesh, [Shard(0), Shard(1)]),
            "both": spread(whole, mesh, [Shard(0), Shard(0)]),
            "half": spread(whole, mesh, [Replicate(), Shard(1)]),
        }
        tenfold.distributed.save(state, path, durable=False)

    def load(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        state = {name: spread(torch.zeros(10, 7), mesh, [Shard(1)]) for name in ("grid", "both")}
        tenfold.distributed.load(state, path, verify=True)
        for tensor in state.values():
            assert torch.equal(tensor.to_local(), spread(whole, mesh, [Shard(1)]).to_local())

    in_world(4, save)
    in_world(3, load)
    assert tenfold.verify(path).ok
    from safetensors.torch import load_file

    for tensor in load_file(path).values():
        assert torch.equal(tensor, whole)


def strided(whole: torch.Tensor, size: int, has_gaps: bool) -> DTensor:
    """Returns `whole`, split in dimension 0 as by fully_shard after tensor parallelism.

    Each rank has adjacent rows, unless `has_gaps`.
    """
    cut = [_StridedShard(0, split_factor=2), Replicate() if has_gaps else Shard(0)]
    mesh = init_device_mesh("cpu", (size // 2, 2))
    found = distribute_tensor(torch.arange(len(whole)), mesh, cut).to_local()
    assert bool((found.diff() == 1).all()) != has_gaps
    return DTensor.from_local(
        whole[found], mesh, cut, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def check_strided_shards() -> None:
    path = FOLDER / "strided.safetensors"
    whole = numbered(torch.float32, 8, 3)

    def both(rank: int, size: int) -> None:
        state = {"w": strided(whole, size, has_gaps=False)}
        tenfold.distributed.save(state, path, durable=False)
        into = {"w": strided(torch.zeros(8, 3), size, has_gaps=False)}
        tenfold.distributed.load(into, path)
        assert torch.equal(into["w"].to_local(), state["w"].to_local())
        gaps = {"w": strided(torch.zeros(8, 3), size, has_gaps=True)}
        for call in (tenfold.distributed.load, tenfold.distributed.save):
            error = failure_of(call, gaps, path)
            assert all(
                isinstance(failure[0], tenfold.UnsupportedError)
                for failure in error.failures.values()
            ), error
            assert 'tensor "w": placements' in str(error), error
            assert "found one with gaps in dimension 0" in str(error), error
        assert not gaps["w"].to_local().any()

    in_world(4, both)
    assert torch.equal(tenfold.load(path)["w"], whole)


def make_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(10, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(4)
    for _ in range(2):
        model(torch.randn(4, 10)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def check_fully_sharded_training() -> None:
    path = FOLDER / "fsdp"

    def save(rank: int, size: int) -> None:
        model = make_model()
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9))
        train(model, optimizer)
        states = get_state_dict(model, optimizer)
        dcp.save({"model": states[0], "optim": states[1]}, storage_writer=StorageWriter(path))

    def load(rank: int, size: int) -> None:
        model = make_model()
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
        states = get_state_dict(model, optimizer)
        state = {"model": states[0], "optim": states[1]}
        dcp.load(state, storage_reader=StorageReader(path, verify=True))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )
        assert optimizer.param_groups[0]["lr"] == 0.01
        assert tuple(optimizer.param_groups[0]["betas"]) == (0.8, 0.9)
        alone = make_model()
        trained = torch.optim.AdamW(alone.parameters(), lr=0.01, betas=(0.8, 0.9))
        train(alone, trained)
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours.full_tensor(), theirs)  # type: ignore[attr-defined]
            moments = optimizer.state[ours]["exp_avg"].full_tensor()
            torch.testing.assert_close(moments, trained.state[theirs]["exp_avg"])

    in_world(2, save)
    in_world(3, load)
    # A plain checkpoint: one process loads it into an unsharded model.
    make_model().load_state_dict(tenfold.load(path)["model"])


def check_containers_survive_with_our_planner() -> None:
    state: dict[Any, Any] = {
        "ordered": OrderedDict([("b", torch.ones(2)), ("a", torch.zeros(1))]),
        "pair": (torch.arange(3), "text", [torch.arange(2)]),
        "by_number": {0: {"step": torch.tensor(1.0), "name": "x"}, 10: {"step": torch.tensor(2.0)}},
        "empty": {},
        "list": [{}, torch.ones(1), []],
        "value": (1, 2),
    }

    def save(rank: int, size: int) -> None:
        for layout in ("c.safetensors", "c.safetensors.index.json", "c", "shards", "torch"):
            tenfold.distributed.save(
                dict(state), FOLDER / layout, layout=layout_of(layout), durable=False
            )
            if rank == 0:
                found = tenfold.load(FOLDER / layout)
                assert repr(found) == repr(state), (found, state)
            dist.barrier()
            into: dict[Any, Any] = {
                "ordered": OrderedDict([("b", torch.zeros(2)), ("a", torch.ones(1))]),
                "pair": None,
                "by_number": {
                    0: {"step": torch.tensor(0.0), "name": ""},
                    10: {"step": torch.tensor(0.0)},
                },
                "list": [{}, torch.zeros(1), [1]],
                "value": None,
            }
            tenfold.distributed.load(into, FOLDER / layout)
            into["empty"] = {}
            assert repr({key: into[key] for key in state}) == repr(state), into

    in_world(2, save)


def check_values_of_all_ranks_are_sent_with_the_plan() -> None:
    path = FOLDER / "values.safetensors"

    class Recording(StorageWriter):
        """Checks that the write results of the ranks contain no values."""

        def finish(self, metadata: Any, results: Any) -> None:
            for result in (result for of_rank in results for result in of_rank):
                assert result.storage_data[1] == {}, result.storage_data[1]
            super().finish(metadata, results)

    def save(rank: int, size: int) -> None:
        for number, is_caching in enumerate((False, True, True)):
            state = {
                **values_of(rank),
                f"of-{rank}": {"long": "x" * (1000 + 20_000 * number), "rank": rank},
                "w": torch.full((3,), number),
            }
            planner = SavePlanner(enable_plan_caching=is_caching)
            dcp.save(state, storage_writer=Recording(path, durable=False), planner=planner)
            if rank == 0:
                loaded = tenfold.load(path, verify=True)
                assert {key: loaded[key] for key in values_of(0)} == values_of(0)
                for other in range(size):
                    expected = {"long": state["of-0"]["long"], "rank": other}
                    assert loaded[f"of-{other}"] == expected
                content = path.read_bytes()
                header = content[8 : 8 + int.from_bytes(content[:8], "little")]
                assert len(header) - len(header.rstrip(b" ")) < 64
            dist.barrier()

    in_world(2, save)


def check_long_values_are_sent_only_if_the_coordinator_lacks_them() -> None:
    shared, own = ["x" * 1_000_000, 1.5], ["y" * 100_000]

    class Measuring(StorageWriter):
        """Checks that plans have no long values, and results only values that rank 0 lacks."""

        def prepare_global_plan(self, plans: Any) -> Any:
            made = super().prepare_global_plan(plans)
            assert all(len(pickle.dumps(plan)) < 50_000 for plan in (*plans, *made))
            return made

        def finish(self, metadata: Any, results: Any) -> None:
            values = [result.storage_data[1] for of_rank in results for result in of_rank]
            assert values == [{}] + [{f"of-{rank}": own} for rank in range(1, len(results))]
            super().finish(metadata, results)

    def save(rank: int, size: int) -> None:
        for layout, is_caching in itertools.product(LAYOUTS, (False, True)):
            path = path_in(f"long-{size}-{is_caching}", layout)
            state = {"shared": shared, f"of-{rank}": own, "w": torch.arange(5), "step": 7}
            writer = Measuring(path, layout=layout_of(layout), durable=False)
            planner = SavePlanner(enable_plan_caching=is_caching)
            dcp.save(state, storage_writer=writer, planner=planner)
            if rank == 0:
                loaded = tenfold.load(path, verify=True)
                assert loaded.pop("w").tolist() == [0, 1, 2, 3, 4]
                values = {f"of-{other}": own for other in range(size)}
                assert loaded == {"shared": shared, "step": 7, **values}
            if rank == 0 and layout == "safetensors":
                content = path.read_bytes()
                header = content[8 : 8 + int.from_bytes(content[:8], "little")]
                reserved = 4 * 100_000 * (size - 1)  # for the values that were not sent
                assert len(header) > 1_100_000 + reserved, len(header)
            dist.barrier()

    for size in (1, 3):
        in_world(size, save)


def check_tuples_with_tensors_of_all_ranks() -> None:
    def state_with_tuples(rank: int, size: int) -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (size,))
        return {
            "w": spread(numbered(torch.float32, 6, 4), mesh, [Shard(0)]),
            "shared": (numbered(torch.int64, 5), "x"),
            f"of-{rank}": (numbered(torch.float64, 4) + rank, [rank]),
            "step": 7,
        }

    def save(rank: int, size: int) -> None:
        for layout in LAYOUTS[:3]:
            path = path_in(f"tuples-{size}", layout)
            if rank == 0:
                path.parent.mkdir()
            dist.barrier()
            dcp.save(state_with_tuples(rank, size), storage_writer=writer_of(path, layout))
            if rank == 0:
                found = set(os.listdir(path.parent))
                assert found == {path.name, *shards_of(path)}, found
                loaded = tenfold.load(path, verify=True)
                expect_equal(loaded["w"], numbered(torch.float32, 6, 4))
                for other in range(size):
                    expect_equal(loaded[f"of-{other}"][0], numbered(torch.float64, 4) + other)
                    assert loaded[f"of-{other}"][1] == [other]
            dist.barrier()
            mesh = init_device_mesh("cpu", (size,))
            into = {
                "w": spread(torch.zeros(6, 4), mesh, [Shard(1)]),
                "shared": None,
                f"of-{rank}": None,
            }
            dcp.load(into, storage_reader=StorageReader(path, verify=True))
            expected = state_with_tuples(rank, size)
            for key in ("shared", f"of-{rank}"):
                assert repr(into[key]) == repr(expected[key])

    for size in (1, 2):
        in_world(size, save)


def check_asynchronous_saves() -> None:
    kinds = (AsyncCheckpointerType.THREAD, *AsyncCheckpointerType)

    def path_of(layout: str, number: int) -> Path:
        return path_in(f"async-{number}", layout)

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        whole = numbered(torch.float32, 8, 4)
        for layout in LAYOUTS:
            writer = StorageWriter(layout=layout_of(layout))
            for number, kind in enumerate(kinds):
                # Not spread(): it may return a view, which torch's stager does not copy.
                tensor = distribute_tensor(whole + number, mesh, [Shard(0)])
                planner = SavePlanner() if layout in ("folder", "torch") else None
                future = dcp.async_save(
                    {"w": tensor, "number": number},
                    checkpoint_id=path_of(layout, number),
                    storage_writer=writer,
                    planner=planner,
                    async_checkpointer_type=kind,
                )
                assert not isinstance(future, tuple)
                future.result()

    in_world(2, save)
    for layout in LAYOUTS:
        for number in range(len(kinds)):
            loaded = tenfold.load(path_of(layout, number), verify=True)
            assert torch.equal(loaded["w"], numbered(torch.float32, 8, 4) + number), layout
            assert loaded["number"] == number


def check_plan_caching_writes_each_save_to_its_own_path() -> None:
    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        for number, name in enumerate(["cached", "cached", "other", "cached"]):
            whole = numbered(torch.float32, 8, 4) + number
            state = {"w": spread(whole, mesh, [Shard(0)]), "number": number}
            dcp.save(
                state,
                storage_writer=StorageWriter(FOLDER / f"{name}.safetensors", durable=False),
                planner=SavePlanner(enable_plan_caching=True),
            )
            if rank == 0:
                loaded = tenfold.load(FOLDER / f"{name}.safetensors", verify=True)
                assert torch.equal(loaded["w"], whole)
                assert loaded["number"] == number
            dist.barrier()
        error = failure_of(
            dcp.save,
            {"w": torch.ones(3)},
            storage_writer=StorageWriter(FOLDER / "refused.safetensors"),
            planner=dcp.DefaultSavePlanner(enable_plan_caching=True),
        )
        assert "tenfold.distributed.SavePlanner" in str(error)

    in_world(2, save)
    assert not (FOLDER / "refused.safetensors").exists()


def old_and_new(
    layout: str, folder: str = "old"
) -> tuple[Path, dict[str, Any], Callable[[int], dict[str, Any]]]:
    path = path_in(folder, layout)
    path.parent.mkdir(exist_ok=True)
    dcp.save(
        {"w": torch.zeros(6, 4), "version": 1}, storage_writer=writer_of(path, layout), no_dist=True
    )

    def state(size: int) -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (size,))
        return {"w": spread(numbered(torch.float32, 6, 4), mesh, [Shard(0)]), "version": 2}

    return path, {"w": torch.zeros(6, 4), "version": 1}, state


def expect_new(path: Path, layout: str, state: Callable[[int], dict[str, Any]]) -> None:
    """Checks that the next save succeeds and removes the leftover files."""

    def save(rank: int, size: int) -> None:
        dcp.save(state(size), storage_writer=writer_of(path, layout))

    in_world(2, save)
    assert tenfold.load(path, verify=True)["version"] == 2
    found = set(os.listdir(path.parent))
    assert found == {path.name, *shards_of(path)}, found


def expect_after(
    phase: str, path: Path, layout: str, state: Callable[[int], dict[str, Any]]
) -> None:
    """Checks that a complete version is left, and that the next save works.

    The complete version is the new one if `phase` is "after publishing", else the old one.
    """
    assert tenfold.verify(path).ok
    assert tenfold.load(path)["version"] == (2 if phase == "after publishing" else 1), phase
    expect_new(path, layout, state)


class DyingWriter(StorageWriter):
    """A writer that, if `dies`, ends its process in `phase` of a save."""

    def __init__(self, path: Path, layout: str, phase: str, dies: bool) -> None:
        super().__init__(path, layout=layout_of(layout), durable=False)
        self._phase = phase
        self._dies = dies

    def _end(self, phase: str) -> None:
        if self._dies and self._phase == phase:
            os._exit(9)

    def prepare_local_plan(self, plan: Any) -> Any:
        self._end("plan")
        return super().prepare_local_plan(plan)

    def prepare_global_plan(self, plans: Any) -> Any:
        made = super().prepare_global_plan(plans)
        self._end("laid out")
        return made

    def write_data(self, plan: Any, planner: Any) -> Any:
        self._end("before writing")
        written = super().write_data(plan, planner)
        self._end("after writing")
        return written

    def finish(self, metadata: Any, results: Any) -> None:
        self._end("before publishing")
        super().finish(metadata, results)
        self._end("after publishing")


# (phase in which a rank dies, number of that rank), for two ranks.
PHASES = (
    ("plan", 0),
    ("plan", 1),
    ("laid out", 0),
    ("before writing", 0),
    ("before writing", 1),
    ("after writing", 0),
    ("after writing", 1),
    ("before publishing", 0),
    ("after publishing", 0),
)


ALL_FAULTS = [(*phase, layout) for phase in PHASES for layout in LAYOUTS]


def check_a_rank_that_dies_leaves_a_whole_version() -> None:
    some = [(*phase, layout) for phase, layout in zip(PHASES, itertools.cycle(LAYOUTS))]
    for phase, who, layout in ALL_FAULTS if EVERY_FAULT else some:
        path, _, state = old_and_new(layout)

        def save(
            rank: int,
            size: int,
            phase: str = phase,
            who: int = who,
            path: Path = path,
            layout: str = layout,
            state: Any = state,
        ) -> None:
            try:
                writer = DyingWriter(path, layout, phase, rank == who)
                dcp.save(state(size), storage_writer=writer)
            except (CheckpointException, RuntimeError, dist.DistError):
                return
            raise AssertionError("the save succeeded although a rank died")

        in_world(2, save, dying=who)
        expect_after(phase, path, layout, state)


def saved_in_another_process(writer: StorageWriter, state: dict[str, Any]) -> None:
    """Saves in a background process, which torch starts for each rank, and waits for it."""
    # torch's stager does not copy views.
    copies = {
        key: distribute_tensor(value.full_tensor(), value.device_mesh, value.placements)
        if isinstance(value, DTensor)
        else value
        for key, value in state.items()
    }
    future = dcp.async_save(
        copies, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.PROCESS
    )
    assert not isinstance(future, tuple)
    future.result(timeout=PATIENCE * 2 / 3)


def check_a_background_process_that_dies_leaves_a_whole_version() -> None:
    some = [("before writing", 1, "shards"), ("after writing", 0, "torch")]
    for phase, who, layout in ALL_FAULTS if EVERY_FAULT else some:
        path, _, state = old_and_new(layout)

        def save(
            rank: int,
            size: int,
            phase: str = phase,
            who: int = who,
            path: Path = path,
            layout: str = layout,
            state: Any = state,
        ) -> None:
            writer = DyingWriter(path, layout, phase, rank == who)
            try:
                saved_in_another_process(writer, state(size))
            except (CheckpointException, RuntimeError, dist.DistError) as error:
                failure = error
            else:
                raise AssertionError("the save succeeded although a rank died")
            assert not isinstance(failure, TimeoutError), failure
            assert rank != who or "process is dead" in str(failure), failure

        in_world(2, save)
        expect_after(phase, path, layout, state)


def check_sigkill_of_a_rank_leaves_a_complete_version() -> None:
    chance = random.Random(os.environ.get("TENFOLD_SEED", "7"))
    for number in range(NUM_KILLS):
        layout = LAYOUTS[number % len(LAYOUTS)]
        path, _, state = old_and_new(layout)
        who = chance.randrange(2)
        seconds = chance.uniform(0, 0.1)

        def save(
            rank: int,
            size: int,
            path: Path = path,
            layout: str = layout,
            state: Any = state,
            who: int = who,
            seconds: float = seconds,
        ) -> None:
            made = state(size)
            dist.barrier()
            if rank == who:
                timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
                timer.start()
            try:
                for _ in range(1000):  # until the SIGKILL
                    dcp.save(made, storage_writer=writer_of(path, layout))
            except (CheckpointException, RuntimeError, dist.DistError):
                return
            raise AssertionError("a thousand saves finished before the SIGKILL")

        in_world(2, save, dying=who)
        assert tenfold.load(path, verify=True)["version"] in (1, 2)
        expect_new(path, layout, state)


class FullDiskWriter(StorageWriter):
    """A writer that, if `is_full`, cannot write more than 16 bytes to a file."""

    def __init__(self, path: Path, layout: str, is_full: bool) -> None:
        super().__init__(path, layout=layout_of(layout), durable=False)
        self._is_full = is_full

    def write_data(self, plan: Any, planner: Any) -> Any:
        if not self._is_full:
            return super().write_data(plan, planner)
        # Python ignores SIGXFSZ, so a write past the limit fails with EFBIG.
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        try:
            return super().write_data(plan, planner)
        finally:
            everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_FSIZE, everything)


def check_full_disk_on_one_rank_keeps_the_old_version() -> None:
    # A process keeps the unpublished files of a failed save until it begins the next save, so each
    # case has a folder of its own.
    cases = {
        (layout, folder): old_and_new(layout, folder)
        for layout in LAYOUTS
        for folder in ("full", "background")
    }

    def save(rank: int, size: int) -> None:
        for (layout, folder), (path, _, state) in cases.items():
            writer = FullDiskWriter(path, layout, rank == 1)
            error = (
                failure_of(dcp.save, state(size), storage_writer=writer)
                if folder == "full"
                else failure_of(saved_in_another_process, writer, state(size))
            )
            assert list(error.failures) == [1], error.failures
            assert isinstance(error.failures[1][0], OSError)
            assert error.failures[1][0].errno == errno.EFBIG

    in_world(2, save)
    for (layout, _), (path, _, state) in cases.items():
        expect_after("before publishing", path, layout, state)


class ElsewhereWriter(StorageWriter):
    """A writer that, if `is_elsewhere`, does not find the staging folder of the coordinator."""

    def __init__(self, path: Path, layout: str, is_elsewhere: bool) -> None:
        super().__init__(path, layout=layout_of(layout), durable=False)
        self._is_elsewhere = is_elsewhere

    def write_data(self, plan: Any, planner: Any) -> Any:
        if self._is_elsewhere:
            ticket = json.loads(plan.storage_data)
            staging = Path(base64.b64decode(ticket["staging"]).decode())
            elsewhere = f"{staging.parent}-elsewhere/{staging.name}"
            ticket["staging"] = base64.b64encode(elsewhere.encode()).decode()
            plan = dataclasses.replace(plan, storage_data=json.dumps(ticket))
        return super().write_data(plan, planner)


def check_a_rank_without_the_shared_folder_is_named_on_all_ranks() -> None:
    cases = {layout: old_and_new(layout, "unshared") for layout in LAYOUTS}

    def save(rank: int, size: int) -> None:
        for layout, (path, _, state) in cases.items():
            writer = ElsewhereWriter(path, layout, rank == 1)
            error = failure_of(dcp.save, state(size), storage_writer=writer)
            assert list(error.failures) == [1], error.failures
            failure = error.failures[1][0]
            assert isinstance(failure, OSError), failure
            assert "rank 1 on host" in str(failure), failure
            assert f"{path.parent}-elsewhere" in str(failure), failure
            assert "all ranks must use the same shared folder" in str(failure), failure

    in_world(2, save)
    for layout, (path, _, state) in cases.items():
        expect_after("before publishing", path, layout, state)


def check_flipped_bit_raises_corrupt_file_error() -> None:
    path = FOLDER / "flipped.safetensors"

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        state = {
            name: spread(numbered(torch.float32, 64, 6), mesh, [Shard(1)]) for name in ("a", "b")
        }
        dcp.save(state, storage_writer=StorageWriter(path, durable=False))

    in_world(2, save)
    bytes_ = bytearray(path.read_bytes())
    bytes_[-5] ^= 4  # within the data of "b"
    path.unlink()
    path.write_bytes(bytes_)

    def load(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        whole = {"a": spread(torch.zeros(64, 6), mesh, [Shard(0)])}
        dcp.load(whole, storage_reader=StorageReader(path, verify=True))
        damaged = {"b": spread(torch.zeros(64, 6), mesh, [Shard(0)])}
        error = failure_of(dcp.load, damaged, storage_reader=StorageReader(path, verify=True))
        assert any(
            isinstance(failure[0], tenfold.CorruptFileError) and 'tensor "b"' in str(failure[0])
            for failure in error.failures.values()
        ), error.failures

    in_world(2, load)


def check_wrong_shards_are_refused_by_name_and_rank() -> None:
    path = FOLDER / "wrong.safetensors"

    class NotChecked(SavePlanner):
        """Makes plans with wrong shards; like some custom planners, lacks torch's checks."""

        def create_global_plan(self, all_plans: Any) -> Any:
            from torch.distributed.checkpoint.default_planner import create_default_global_save_plan

            plans, metadata = create_default_global_save_plan(all_plans)
            changed = []
            for rank, plan in enumerate(plans):
                items = [item for item in plan.items if not (self.hole and rank == 1)]
                if self.overlap and rank == 1:
                    data = items[0].tensor_data
                    chunk = dataclasses.replace(data.chunk, offsets=torch.Size([2, 0]))
                    data = dataclasses.replace(data, chunk=chunk)
                    items = [dataclasses.replace(items[0], tensor_data=data)]
                changed.append(dataclasses.replace(plan, items=items))
            return changed, metadata

        hole = False
        overlap = False

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        for wrong, said in (
            ("hole", "elements are in no box"),
            (
                "overlap",
                "at [0, 0] of shape [3, 4] of rank 0 and at [2, 0] of shape [3, 4] of rank 1",
            ),
        ):
            planner = NotChecked()
            setattr(planner, wrong, True)
            state = {"w": spread(numbered(torch.float32, 6, 4), mesh, [Shard(0)])}
            error = failure_of(dcp.save, state, storage_writer=StorageWriter(path), planner=planner)
            assert 'tensor "w"' in str(error), error
            assert said in str(error), error

    in_world(2, save)
    assert not path.exists()


def check_another_path_on_one_rank_is_refused() -> None:
    cases = {layout: old_and_new(layout, "another") for layout in LAYOUTS}
    cached = FOLDER / "another-cached"

    def path_of(rank: int, path: Path) -> Path:
        return path if rank == 0 else path.with_name(f"other-{path.name}")

    def expect_both(error: CheckpointException, path: Path) -> None:
        said = f"{str(path)!r} on rank 0, {str(path_of(1, path))!r} on rank 1"
        assert f"path: expected the same value on all ranks, found {said}" in str(error), error

    def save(rank: int, size: int) -> None:
        for layout, (path, _, state) in cases.items():
            for planner in (None, SavePlanner()):
                writer = writer_of(path_of(rank, path), layout)
                error = failure_of(dcp.save, state(size), storage_writer=writer, planner=planner)
                expect_both(error, path)
        state = cases["folder"][2]
        caching = SavePlanner(enable_plan_caching=True)
        dcp.save(state(size), storage_writer=writer_of(cached, "folder"), planner=caching)
        error = failure_of(
            dcp.save,
            state(size),
            storage_writer=writer_of(path_of(rank, cached), "folder"),
            planner=SavePlanner(enable_plan_caching=True),
        )
        expect_both(error, cached)
        # A relative path is another folder on each rank if their working directories differ.
        os.chdir(FOLDER if rank == 0 else FOLDER.parent)
        writer = writer_of(Path(cached.name), "folder")
        error = failure_of(dcp.save, state(size), storage_writer=writer)
        assert str(FOLDER.parent / cached.name) in str(error), error

    def load(rank: int, size: int) -> None:
        path = cases["safetensors"][0]
        if rank == 1:
            tenfold.save({"w": torch.ones(6, 4)}, path_of(rank, path))
        dist.barrier()
        for verify in (False, True):
            into = {"w": torch.full((6, 4), 5.0)}
            reader = StorageReader(path_of(rank, path), verify=verify)
            expect_both(failure_of(dcp.load, into, storage_reader=reader), path)
            assert torch.equal(into["w"], torch.full((6, 4), 5.0))
            dcp.load(into, storage_reader=StorageReader(path, verify=verify and rank == 0))
            assert not into["w"].any()
        dist.barrier()
        path_of(1, path).unlink(missing_ok=True)

    in_world(2, save)
    assert tenfold.load(cached, verify=True)["version"] == 2
    in_world(2, load)
    for layout, (path, _, state) in cases.items():
        expect_after("before publishing", path, layout, state)


class Evil:
    """An object whose pickle creates a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (FOLDER / "was_executed",))


def check_object_on_one_rank_is_refused_on_all_ranks() -> None:
    cases = {layout: old_and_new(layout, "object") for layout in LAYOUTS}

    def save(rank: int, size: int) -> None:
        for layout, (path, _, state) in cases.items():
            for planner in (None, SavePlanner()):
                value = {"bad": Evil()} if rank == 1 else {}
                error = failure_of(
                    dcp.save,
                    {**state(size), **value},
                    storage_writer=writer_of(path, layout),
                    planner=planner,
                )
                assert list(error.failures) == [1], error
                assert isinstance(error.failures[1][0], tenfold.UnsupportedError), error
                assert 'key "bad": ' in str(error), error

    in_world(2, save)
    assert not (FOLDER / "was_executed").exists()
    for layout, (path, _, state) in cases.items():
        expect_after("before publishing", path, layout, state)


def check_objects_that_differ_between_ranks_are_stored_once() -> None:
    paths = [FOLDER / "objects", FOLDER / "objects.safetensors.index.json"]

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        for path, is_caching in itertools.product(paths, (False, True)):
            state = {
                "w": spread(numbered(torch.float32, 6, 4), mesh, [Shard(0)]),
                "args": argparse.Namespace(rank=rank, text="x" * 1000 * rank),
                "pair": (torch.arange(3), "text"),
                "long": "x" * 10_000,
                **({"only": argparse.Namespace()} if rank == 1 else {}),
            }
            writer = StorageWriter(path, allow_opaque=True, durable=False, num_threads=2)
            planner = SavePlanner(enable_plan_caching=is_caching)
            dcp.save(state, storage_writer=writer, planner=planner)
            if rank == 0:
                expect_objects(path)
            dist.barrier()

    def expect_objects(path: Path) -> None:
        found = tenfold.load(path, verify=True)
        expect_equal(found["w"], numbered(torch.float32, 6, 4))
        assert repr(found["pair"]) == repr((torch.arange(3), "text"))
        assert found["long"] == "x" * 10_000
        args, only = (
            torch.load(io.BytesIO(found[name].numpy().tobytes()), weights_only=False)
            for name in ("args", "only")
        )
        assert args.text == "x" * 1000 * args.rank
        assert only == argparse.Namespace()

    in_world(2, save)


def check_checkpoint_of_a_newer_version_is_refused_on_all_ranks() -> None:
    # By layout: the file with the format version ("" if the checkpoint is one file), and the bytes
    # that state the version.
    versions = {
        "safetensors": ("", rb"\"version\": 1, \"nodes\""),
        "folder": ("%notes.json", b'"version": 1'),
        "shards": ("metadata.json", b'"version":1'),
        "torch": ("metadata.json", b'"version":1'),
    }
    paths = {}
    for layout, (name, version) in versions.items():
        paths[layout], _, state = old_and_new(layout, "newer")
        expect_new(paths[layout], layout, state)
        file = paths[layout] / name
        content = file.read_bytes()
        assert content.count(version) == 1, content
        file.unlink()  # instead of writing into a file that may be mapped
        file.write_bytes(content.replace(version, version.replace(b"1", b"2")))

    def load(rank: int, size: int) -> None:
        for path in paths.values():
            into = {"w": torch.zeros(6, 4)}
            error = failure_of(dcp.load, into, storage_reader=StorageReader(path))
            assert list(error.failures) == [0, 1], error
            assert all("newer" in str(failure[0]) for failure in error.failures.values()), error
            assert not into["w"].any()

    in_world(2, load)


class DyingReader(StorageReader):
    """A reader that, if `dies`, ends its process in `phase` of a load."""

    def __init__(self, path: Path, phase: str, dies: bool) -> None:
        super().__init__(path)
        self._phase = phase
        self._dies = dies

    def read_metadata(self) -> Any:
        if self._dies and self._phase == "metadata":
            os._exit(9)
        return super().read_metadata()

    def read_data(self, plan: Any, planner: Any) -> Any:
        if self._dies and self._phase == "data":
            os._exit(9)
        return super().read_data(plan, planner)


def check_rank_that_dies_during_a_load_raises_on_the_others() -> None:
    path, _, state = old_and_new("safetensors", "reading")
    for phase, who in itertools.product(("metadata", "data"), (0, 1)):

        def load(rank: int, size: int, phase: str = phase, who: int = who) -> None:
            reader = DyingReader(path, phase, rank == who)
            try:
                dcp.load(state(size), storage_reader=reader)
            except (CheckpointException, RuntimeError, dist.DistError):
                return
            raise AssertionError("the load succeeded although a rank died")

        in_world(2, load, dying=who)
        assert tenfold.load(path, verify=True)["version"] == 1


def check_other_tensors_under_one_name_are_refused() -> None:
    path = FOLDER / "differing.safetensors"

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        sharded = spread(numbered(torch.float32, 6, 4 + rank), mesh, [Shard(0)])
        for tensor in (torch.ones(2 + rank), sharded, 1 if rank else torch.ones(2)):
            error = failure_of(
                dcp.save, {"w": tensor}, storage_writer=StorageWriter(path), planner=SavePlanner()
            )
            assert "'w': it differs between ranks" in str(error), error
        wider = torch.ones(2, dtype=torch.float64 if rank else torch.float32)
        for planner in (SavePlanner(enable_plan_caching=True), dcp.DefaultSavePlanner()):
            for tensor in (torch.ones(2 + rank), wider):
                error = failure_of(
                    dcp.save, {"w": tensor}, storage_writer=StorageWriter(path), planner=planner
                )
                assert "'w': it differs between ranks" in str(error), error
        # On rank 0, the second save uses the cached plan of the first.
        planner = SavePlanner(enable_plan_caching=True)
        cached = path.with_name("cached-first.safetensors")
        dcp.save({"w": torch.ones(2)}, storage_writer=StorageWriter(cached), planner=planner)
        error = failure_of(
            dcp.save, {"w": wider}, storage_writer=StorageWriter(path), planner=planner
        )
        assert "'w': it differs between ranks" in str(error), error

    in_world(2, save)
    assert not path.exists()


def check_other_containers_under_one_name_are_refused() -> None:
    path = FOLDER / "containers"

    def save(rank: int, size: int) -> None:
        for other in ({"1": 6}, {"1": torch.ones(2)}, {"k": torch.ones(2)}):
            state = {"a": other if rank else [torch.ones(2)]}
            error = failure_of(tenfold.distributed.save, state, path)
            assert "'a': it differs between ranks: expected a list" in str(error), error

    in_world(2, save)
    assert not path.exists()


def main(names: dict[str, Any]) -> None:
    """Runs the functions ``check_...`` in `names`, the globals of a program; prints the results."""
    results: dict[str, str | None] = {}
    for name, check in list(names.items()):
        if not name.startswith("check_") or (len(sys.argv) > 2 and sys.argv[2] not in name):
            continue
        begin = time.monotonic()
        try:
            check()
            results[name] = None
        except BaseException:
            results[name] = traceback.format_exc()
        print(f"{name}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main(globals())

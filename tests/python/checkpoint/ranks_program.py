"""Functions that test_ranks.py and test_sharded_entries.py run on every rank of a gloo group.

Usage: python ranks_program.py STORE RANK SIZE

Each line of stdin is a call, the JSON array ["folder", "function", arguments...]. The program runs
the function and prints its result as one line of JSON.
"""

import contextlib
import functools
import gc
import json
import os
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import tenfold
from tenfold import _ranks

TIMEOUT = timedelta(seconds=240)  # of process groups; shorter than the timeout of a test, 600 s


def training(seed=0):
    """Returns a state that is the same on all ranks, except for the random number generators."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    torch.manual_seed(100 + dist.get_rank())
    return {"model": model, "optimizer": optimizer, "rng": tenfold.RngState(), "epoch": seed}


def save(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run", format={"optimizer": "memmap"})
    handle = manager.save(3, state, metrics={"loss": 0.5})
    return {"path": str(handle.result()), "draws": torch.rand(3).tolist()}


def save_async(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run", async_save=True)
    for step in range(1, 4):
        state["epoch"] = step
        manager.save(step, state)
        torch.rand(rank + 1)
    manager.close()
    return {"steps": manager.all_steps()}


def save_overlapped(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run", async_save="overlap")
    for step in range(1, 4):
        handle = manager.save(step, state)
        with manager.lock():
            state["optimizer"].step()
    manager.wait()
    return {"steps": manager.all_steps(), "staged": handle.staged.done()}


def save_within_the_lock(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run", async_save="overlap")
    with manager.lock() if rank == 1 else contextlib.nullcontext():
        manager.save(1, {"w": torch.zeros(2)})


def restore(folder, rank):
    state = training(seed=7)
    manager = tenfold.CheckpointManager(folder / "run")
    result = manager.restore(state)
    return {
        "step": result.step,
        "epoch": state["epoch"],
        "weight": state["model"].weight.tolist(),
        "draws": torch.rand(3).tolist(),
        "skipped": result.skipped,
    }


def restore_checked_as_copied(folder, rank):
    from tenfold.checkpoint import _restoring

    limit, _restoring.FULL_CHECK_BYTES = _restoring.FULL_CHECK_BYTES, 0
    try:
        return restore(folder, rank)
    finally:
        _restoring.FULL_CHECK_BYTES = limit


def restore_nothing(folder, rank):
    manager = tenfold.CheckpointManager(folder / "none")
    assert manager.restore(training(), missing_ok=True).step is None
    manager.restore(training())


def save_per_rank(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run", per_rank="queue*")
    manager.save(1, {"queue": {"seen": rank, "w": torch.full((rank + 1,), 1.0)}, "epoch": 1})
    return {}


def restore_per_rank(folder, rank):
    state = {"queue": None, "epoch": None}
    tenfold.CheckpointManager(folder / "run").restore(state)
    return {"seen": state["queue"]["seen"], "w": state["queue"]["w"].tolist()}


def restore_per_rank_if_there(folder, rank):
    state = {"queue": "own", "epoch": None}
    report = tenfold.CheckpointManager(folder / "run").restore(state, strict=False).report
    queue = state["queue"]
    return {"queue": queue if queue == "own" else queue["seen"], "missing": report.missing}


def state_of_each(folder, rank):
    found = tenfold.CheckpointManager(folder / "run").restore().state
    return {"names": sorted(found), "seen": found.get("queue", {}).get("seen")}


def other_shape(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"fine": torch.zeros(2), "ema": torch.zeros(2 + rank)})


def other_names(folder, rank):
    tenfold.CheckpointManager(folder / "run").save(1, {"a": 1, f"b{rank}": 2})


def other_step(folder, rank):
    tenfold.CheckpointManager(folder / "run").save(1 + rank, {"a": 1})


def other_options(folder, rank):
    tenfold.CheckpointManager(folder / "run", max_to_keep=1 + rank)


def wrong_option_on_one_rank(folder, rank):
    best_mode = "low" if rank == 1 else "min"
    tenfold.CheckpointManager(folder / "run", best_mode=best_mode)


def other_loader(folder, rank):
    ds = tenfold.Dataset(folder / "data")
    loader = tenfold.BatchLoader(ds, 4, rank=rank, world_size=2, shuffle=True, seed=1)
    batches = iter(loader)
    next(batches)
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"loader": loader})
    if rank == 1:
        next(batches)
    manager.save(2, {"loader": loader})


def other_parameters(folder, rank):
    state = training()
    with torch.no_grad():
        state["model"].bias.add_(rank)
    manager = tenfold.CheckpointManager(folder / "run")
    for step in (1, 2):
        state["epoch"] = step * (1 + rank)
        manager.save(step, state, metrics={"loss": 1.0})
    return {}


def unsupported_on_one_rank(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"epoch": 1})
    manager.save(2, {"epoch": 2, "x": object() if rank == 1 else 0})


class Failing:
    """Wraps the native manager: the method `name` raises `error`, and all others work."""

    def __init__(self, native, name, error):
        self._native, self._name, self._error = native, name, error

    def __getattr__(self, name):
        if name == self._name:
            raise self._error
        return getattr(self._native, name)


def failing_write(folder, rank, **options):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run", **options)
    manager.save(1, state)
    manager.wait()
    native = manager._native
    if rank == 1:
        manager._native = Failing(native, "write_rank_entries", OSError(28, "No space left"))
    handle = None
    try:
        handle = manager.save(2, state)
        manager.wait()
    except OSError as error:
        found = [error.errno, str(error)]
    else:
        found = [handle.exception().errno, str(handle.exception())]
    manager._native = native
    dist.barrier()
    hidden = [name for name in os.listdir(folder / "run") if "tenfold-0" in name]
    dist.barrier()
    manager.save(3, state)
    manager.close()
    return {"error": found, "steps": manager.all_steps(), "hidden": hidden}


def failing_write_async(folder, rank):
    return failing_write(folder, rank, async_save=True)


def failing_write_warned(folder, rank):
    return failing_write(folder, rank, on_error="warn")


def failing_begin(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run", retries=1)
    if rank == 0:
        native = manager._native
        manager._native = Failing(native, "begin_ranked_save", OSError(5, "server"))
    manager.save(1, state)


def refusing_object(folder, rank):
    class Refuses:
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state):
            if rank == 1:
                raise ValueError("no")

    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"epoch": 1, "refuses": Refuses()})
    manager.restore({"epoch": None, "refuses": Refuses()})


def narrow_on_one_rank(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, state)
    wrong = {**state, "model": torch.nn.Linear(3, 2 + rank)}
    before = wrong["model"].weight.clone()
    try:
        manager.restore(wrong)
    finally:
        assert torch.equal(wrong["model"].weight, before)


def two_directories(folder, rank):
    manager = tenfold.CheckpointManager(folder / f"run{rank}")
    manager.save(1, training())


def different_calls(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run")
    if rank == 0:
        manager.save(1, {"epoch": 1})
    else:
        manager.restore({"epoch": 1})


def stop_of_one_rank(folder, rank):
    import signal

    manager = tenfold.CheckpointManager(folder / "run", every_seconds=3600)
    found = []
    with manager.preemption() as stop:
        for step in range(4):
            if step == 2 and rank == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            found.append(bool(stop))
    due = []
    for step in range(3):
        if rank == 1 and step == 1:
            manager._native = Due(manager._native)
        due.append(manager.should_save(step))
    return {"stops": found, "signal": stop.signal, "due": due}


class Due:
    def __init__(self, native):
        self._native = native

    def should_save(self, step):
        return True


def end_of_one_rank(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, state)
    if rank == 1:
        os._exit(9)
    try:
        manager.save(2, state)
    finally:
        with contextlib.suppress(RuntimeError):
            manager.save(3, state)


def standing_still(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"epoch": 1})
    # Set after the first save, because a group may need more than 2 s to connect on a busy machine.
    _ranks._TIMEOUT = timedelta(seconds=2)
    for ranks in (manager._ranks, manager._writing_ranks):
        distributed_c10d._set_pg_timeout(_ranks._TIMEOUT, ranks._group)
    raised = folder / "raised"
    if rank == 1:
        while not raised.exists():
            time.sleep(0.01)
        os._exit(0)
    try:
        manager.save(2, {"epoch": 2})
    finally:
        raised.touch()


def sharded_training(seed=0):
    """Returns a state with an untrained sharded model and its optimizer, equal on all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return {"model": model, "optimizer": optimizer, "rng": tenfold.RngState(), "epoch": seed}


def sharded_step(state):
    torch.manual_seed(3)
    state["optimizer"].zero_grad()
    state["model"](torch.randn(4, 3)).square().sum().backward()
    state["optimizer"].step()


def whole(state):
    """Returns the full tensors of a model and of its optimizer as lists, by name."""
    found = dict(state["model"].state_dict())
    for number, of_parameter in state["optimizer"].state_dict()["state"].items():
        found.update({f"{number}.{name}": value for name, value in of_parameter.items()})
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).tolist()
        for name, value in found.items()
    }


def save_sharded(folder, rank, **options):
    state = sharded_training()
    sharded_step(state)
    manager = tenfold.CheckpointManager(folder / "run", **options)
    manager.save(1, state)
    sharded_step(state)
    saved = []
    for step in (2, 3):
        state["epoch"] = step
        saved.append(whole(state))
        manager.save(step, state)
        with manager.lock():
            sharded_step(state)
    manager.close()
    return {"saved": saved, "last": whole(state)}


def save_sharded_memmap(folder, rank):
    return save_sharded(folder, rank, format="memmap")


def save_sharded_async(folder, rank):
    return save_sharded(folder, rank, async_save=True)


def save_sharded_overlapped(folder, rank):
    return save_sharded(folder, rank, async_save="overlap")


def restore_sharded(folder, rank):
    state = sharded_training(seed=7)
    result = tenfold.CheckpointManager(folder / "run").restore(state)
    restored = whole(state)
    sharded_step(state)
    return {
        "step": result.step,
        "epoch": state["epoch"],
        "restored": restored,
        "next": whole(state),
        "skipped": result.skipped,
    }


def change_outside_of_the_lock(folder, rank):
    state = sharded_training()
    sharded_step(state)
    manager = tenfold.CheckpointManager(folder / "run", async_save="overlap")
    real = manager._copied
    stepped = threading.Event()

    def late(trees):
        stepped.wait()
        return real(trees)

    manager._copied = late
    manager.save(1, state)
    sharded_step(state)
    stepped.set()
    manager.wait()


class Spread:
    """A state of DTensors with several placements, and of values that differ between ranks."""

    def __init__(self, rank, fill=None):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        size = dist.get_world_size()
        mesh = init_device_mesh("cpu", (size,))

        def spread(tensor, placement):
            if fill is not None:
                tensor = torch.full_like(tensor, fill)
            local = tensor
            if isinstance(placement, Shard):
                local = placement._split_tensor(tensor, size, with_padding=False)[0][rank]
            return DTensor.from_local(
                local.contiguous(),
                mesh,
                [placement],
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )

        self.state = {
            "columns": spread(torch.arange(20.0).reshape(4, 5).half(), Shard(1)),
            "few": spread(torch.arange(2), Shard(0)),
            "copies": spread(torch.arange(3.0), Replicate()),
            "scalar": spread(torch.tensor(4.0), Replicate()),
            "empty": spread(torch.zeros(0, 2), Shard(0)),
            "odd.name/x": [spread(torch.arange(7), Shard(0)), {"deep": (1, "two")}],
            "plain": torch.arange(3) + rank,
            "value": rank,
        }

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def save_spread(folder, rank):
    tenfold.CheckpointManager(folder / "run").save(1, {"any": Spread(rank)})


def restore_spread(folder, rank):
    target = Spread(rank, fill=0)
    tenfold.CheckpointManager(folder / "run").restore({"any": target})
    odd = target.state["odd.name/x"]
    tensors = {**target.state, "odd.name/x": odd[0]}
    return {
        "tensors": {
            name: value.full_tensor().tolist()
            for name, value in tensors.items()
            if hasattr(value, "full_tensor")
        },
        "plain": target.state["plain"].tolist(),
        "values": [target.state["value"], repr(odd[1])],
    }


def sharded_as_pt(folder, rank):
    tenfold.CheckpointManager(folder / "run", format="pt").save(1, sharded_training())


def sharded_per_rank(folder, rank):
    tenfold.CheckpointManager(folder / "run", per_rank="model").save(1, sharded_training())


def sharded_on_one_rank(folder, rank):
    model = sharded_training()["model"]
    value = model if rank == 0 else torch.nn.Linear(3, 5)
    tenfold.CheckpointManager(folder / "run").save(1, {"model": value})


def partial_sums(folder, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    tenfold.CheckpointManager(folder / "run").save(1, {"sums": {"w": tensor}})


def strided(has_gaps):
    """Returns a DTensor of 0 to 7. Rank 0 of two has 0, 1, 4 and 5 if `has_gaps`, else 0 to 3."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    placement = _StridedShard(0, split_factor=2 if has_gaps else 1)
    return distribute_tensor(torch.arange(8.0), init_device_mesh("cpu", (2,)), [placement])


def strided_with_gaps(folder, rank):
    tenfold.CheckpointManager(folder / "run").save(1, {"gaps": {"w": strided(True)}})


def restore_strided(folder, rank):
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, {"state": {"w": strided(False)}})
    app_state = {"state": {"w": strided(False).zero_()}}
    manager.restore(app_state)
    found = app_state["state"]["w"].full_tensor().tolist()
    try:
        manager.restore({"state": {"w": strided(True)}})
    except tenfold.UnsupportedError as error:
        return {"found": found, "said": str(error)}


def failing_shards(folder, rank):
    state = sharded_training()
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, state)
    native = manager._native
    if rank == 1:
        manager._native = Failing(native, "write_shards", OSError(28, "No space left"))
    try:
        manager.save(2, state)
    except OSError as error:
        found = [error.errno, str(error)]
    manager._native = native
    dist.barrier()
    hidden = [name for name in os.listdir(folder / "run") if "tenfold-0" in name]
    dist.barrier()
    manager.save(3, state)
    return {"error": found, "steps": manager.all_steps(), "hidden": hidden}


class Ending:
    """Wraps the native manager; ends the process in `phase`, such as "before publish"."""

    def __init__(self, native, phase):
        self._native, self._phase = native, phase

    def __getattr__(self, name):
        call = getattr(self._native, name)

        @functools.wraps(call)
        def ending(*args, **kwargs):
            if self._phase == f"before {name}":
                os._exit(9)
            found = call(*args, **kwargs)
            if self._phase == f"after {name}":
                os._exit(9)
            return Ending(found, self._phase) if name == "begin_ranked_save" else found

        return ending


def end_in_a_save(folder, rank, phase, who):
    state = sharded_training()
    manager = tenfold.CheckpointManager(folder / "run")
    manager.save(1, state)
    if rank == who:
        manager._native = Ending(manager._native, phase)
    manager.save(2, state)


def retention(folder, rank):
    state = training()
    manager = tenfold.CheckpointManager(
        folder / "run", max_to_keep=2, share_unchanged=True, format="memmap"
    )
    for step in range(1, 5):
        manager.save(step, state, force=True)
    manager.close()
    return {"steps": manager.all_steps()}


def answer(folder, name, rank, *arguments):
    """Calls the function `name`. Returns its result, error and warnings."""
    found = {}
    error_found = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = globals()[name](folder, rank, *arguments) or {}
        except Exception as error:
            error_found = [type(error).__name__, str(error)]
    return {
        **found,
        "raised": error_found,
        "warnings": [str(warning.message) for warning in caught],
    }


def destroy_groups_of_managers():
    """Destroys the process groups that managers created: their threads wake 100 times a second."""
    gc.collect()
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def main():
    store, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    _ranks._TIMEOUT = TIMEOUT
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=TIMEOUT
    )
    for line in sys.stdin:
        folder, name, *arguments = json.loads(line)
        destroy_groups_of_managers()  # all ranks have completed the previous function
        print(json.dumps(answer(Path(folder), name, rank, *arguments)), flush=True)
    os._exit(0)  # a process group whose other ranks have ended cannot be destroyed


if __name__ == "__main__":
    main()

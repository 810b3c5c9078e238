"""CheckpointManager: stalls, durable saves, sharing, restoring, listing, training during a save.

The state consists of the parameters of GPT-2 small and the state of Adam: 592 tensors, 1.5 GB.
`run.py --width 128` uses a smaller model.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import trees
from harness import Contender, Goal, Result, compare, fresh, warm_memory
from saving import raw_one
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import tenfold

# Width of the model; set by run.py.
WIDTH = 768
NUM_STEPS = 1000
NUM_CALLS = 10_000
UNCHANGED = 0.9
BESIDE_REPETITIONS = 3  # few, because each repetition waits for three saves of the whole state

Tree = dict[str, torch.Tensor]


def state() -> Tree:
    return trees.gpt2_with_adam(WIDTH)


def num_bytes(tree: Tree) -> int:
    return sum(tensor.nbytes for tensor in tree.values())


def size_of(tree: Tree) -> str:
    return f"{len(tree)} tensors, {num_bytes(tree) / 1e9:.2g} GB"


def saves(manager: tenfold.CheckpointManager, tree: Tree) -> Callable[[], object]:
    """Returns a function that saves the state as the next step."""
    steps = itertools.count(1)

    def run() -> object:
        return manager.save(next(steps), {"state": tree}, force=True)

    return run


def memcpy_into(tree: Tree) -> Callable[[], None]:
    """Returns a function that copies every tensor with one thread. It causes no page faults."""
    copies = {key: torch.empty_like(tensor).fill_(0) for key, tensor in tree.items()}
    pairs = [
        (copies[key].data_ptr(), tensor.data_ptr(), tensor.nbytes) for key, tensor in tree.items()
    ]

    def run() -> None:
        for target, source, size in pairs:
            ctypes.memmove(target, source, size)
        _ = copies, tree  # keeps them alive

    return run


def quiet(work: Callable[[], object]) -> Callable[[], object]:
    """Wraps `work` to hide the warnings that the state has not changed: nothing is trained."""

    def run() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()

    return run


def checkpoint_stall(work: Path, repetitions: int) -> Result:
    tree = state()
    manager = tenfold.CheckpointManager(work / "run", max_to_keep=1, async_save=True, durable=False)
    ours = "tenfold, until save returns"
    result = compare(
        "checkpoint_stall",
        f"How long a save in the background holds up a training: {size_of(tree)}",
        {
            ours: Contender(quiet(saves(manager, tree)), after=lambda handle: handle.result()),
            "memcpy of the state, one thread": Contender(memcpy_into(tree)),
        },
        [Goal(ours, "memcpy of the state, one thread", 1 / 1.3)],
        repetitions,
    )
    manager.close()
    return result


def durable_file(tree: Tree, path: Path) -> Callable[[], None]:
    """Returns a function that saves with safetensors, then calls fsync for file and folder."""

    def run() -> None:
        safetensors.torch.save_file(tree, path)
        for name, flags in ((path, os.O_RDONLY), (path.parent, os.O_DIRECTORY)):
            opened = os.open(name, flags)
            os.fsync(opened)
            os.close(opened)

    return run


def dcp_save(tree: Tree, path: Path) -> Callable[[], object]:
    def run() -> object:
        writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True)
        return dcp.save(tree, storage_writer=writer, no_dist=True)

    return quiet(run)


def checkpoint_durable(work: Path, repetitions: int) -> Result:
    tree = state()
    manager = tenfold.CheckpointManager(work / "run", max_to_keep=1)
    raw, one, theirs = work / "raw", work / "one.safetensors", work / "dcp"
    size = num_bytes(tree)
    result = compare(
        "checkpoint_durable",
        f"A durable save of a step, checksums included: {size_of(tree)}",
        {
            "tenfold": Contender(
                quiet(saves(manager, tree)), lambda: warm_memory(work / "run", size)
            ),
            "pwrite + fsync, one file": Contender(
                raw_one(tree, raw, sync=True), lambda: fresh(raw, size)
            ),
            "safetensors + fsync": Contender(durable_file(tree, one), lambda: fresh(one, size)),
            "torch.distributed.checkpoint": Contender(
                dcp_save(tree, theirs), lambda: fresh(theirs, size)
            ),
        },
        [
            Goal("tenfold", "pwrite + fsync, one file", 0.9),
            Goal("tenfold", "safetensors + fsync", 1.0),
            Goal("tenfold", "torch.distributed.checkpoint", 1.0),
        ],
        repetitions,
    )
    manager.close()
    return result


def last_layers(tree: Tree) -> list[str]:
    """Returns the names of the tensors that change if all layers but the last ones are frozen.

    They have at least a tenth of the bytes, and are at least a tenth of the tensors.
    """
    changing: list[str] = []
    for number in reversed(range(12)):
        changing += [name for name in tree if f".h.{number}." in name]
        size = sum(tree[name].nbytes for name in changing)
        is_enough_bytes = size >= num_bytes(tree) * (1 - UNCHANGED)
        if is_enough_bytes and len(changing) >= len(tree) * (1 - UNCHANGED):
            break
    return changing


def smallest_tensors(tree: Tree) -> list[str]:
    """Returns the names of the smallest tensors, which together have a tenth of all bytes."""
    changing: list[str] = []
    for name in sorted(tree, key=lambda name: tree[name].nbytes):
        if sum(tree[key].nbytes for key in changing) >= num_bytes(tree) * (1 - UNCHANGED):
            break
        changing.append(name)
    return changing


def share(
    work: Path,
    repetitions: int,
    name: str,
    title: str,
    choose: Callable[[Tree], list[str]],
    goals: list[Goal],
) -> Result:
    tree = state()
    changing = choose(tree)

    def saver(folder: Path, shares: bool) -> Contender:
        manager = tenfold.CheckpointManager(
            folder, max_to_keep=2, format="memmap", share_unchanged=shares
        )
        save = quiet(saves(manager, tree))
        save()

        def change() -> None:
            for key in changing:
                tree[key].add_(1)
            manager.wait()
            warm_memory(folder, num_bytes(tree))
            # Otherwise the journal of the file system would write the removals of earlier steps
            # during the timed save.
            os.sync()

        return Contender(save, change)

    result = compare(
        name,
        f"A durable save of a folder in which {title}: {size_of(tree)}",
        {
            "tenfold, share_unchanged": saver(work / "shared", True),
            "tenfold, the whole state": saver(work / "whole", False),
        },
        goals,
        repetitions,
    )
    part = sum(tree[key].nbytes for key in changing) / num_bytes(tree)
    result.notes.append(f"{len(changing)} tensors changed, {part:.0%} of the bytes.")
    return result


def checkpoint_share(work: Path, repetitions: int) -> Result:
    title = f"{UNCHANGED:.0%} did not change"
    goals = [Goal("tenfold, share_unchanged", "tenfold, the whole state", 3.0)]
    return share(work, repetitions, "checkpoint_share", title, last_layers, goals)


def checkpoint_share_small(work: Path, repetitions: int) -> Result:
    """Measures a case where sharing saves little: five of six files must be created and synced."""
    title = "only the smallest tensors changed"
    return share(work, repetitions, "checkpoint_share_small", title, smallest_tensors, [])


def checkpoint_restore(work: Path, repetitions: int) -> Result:
    tree = state()
    manager = tenfold.CheckpointManager(work / "run", durable=False)
    manager.save(1, {"state": tree})
    file = manager.path(1) / "state.safetensors"

    def new_memory() -> memoryview:
        # numpy allocates huge pages, torch does not.
        return memoryview(np.empty(file.stat().st_size, np.uint8))

    memory = new_memory()

    def read(into: memoryview) -> memoryview:
        with file.open("rb", buffering=0) as opened:
            done = 0
            while done < len(into):
                done += opened.readinto(into[done:])
        return into

    def restore(**options: str) -> object:
        app_state = {"state": None}
        manager.restore(app_state, **options)
        return app_state

    ours = "tenfold, checksums compared"
    return compare(
        "checkpoint_restore",
        f"Restore a cached step into memory: {size_of(tree)}",
        {
            ours: Contender(restore),
            "tenfold, structure only": Contender(lambda: restore(verify="structure")),
            "safetensors, mapped": Contender(lambda: safetensors.torch.load_file(file)),
            "safetensors, copied": Contender(
                lambda: {k: t.clone() for k, t in safetensors.torch.load_file(file).items()}
            ),
            "read into existing memory": Contender(lambda: read(memory)),
            "read into new memory": Contender(lambda: read(new_memory())),
        },
        [
            Goal(ours, "read into new memory", 0.9),
            Goal("tenfold, structure only", "read into new memory", 0.9),
        ],
        repetitions,
    )


def checkpoint_list(work: Path, repetitions: int) -> Result:
    manager = tenfold.CheckpointManager(work / "run", durable=False)
    for step in range(NUM_STEPS):
        manager.save(step, {"epoch": step}, metrics={"loss": 1.0})

    def look() -> list[os.stat_result]:
        with os.scandir(work / "run") as entries:
            names = [entry.path for entry in entries if entry.name.startswith("step_")]
        return [os.lstat(f"{name}/checkpoint.json") for name in names]

    return compare(
        "checkpoint_list",
        f"List {NUM_STEPS:,} steps that the manager has saved",
        {
            "tenfold, all_steps": Contender(manager.all_steps, twice=True),
            "tenfold, latest_step": Contender(manager.latest_step, twice=True),
            "scandir, and lstat of each document": Contender(look, twice=True),
        },
        [Goal("tenfold, all_steps", at_most_seconds=10e-3)],
        repetitions,
    )


def checkpoint_should_save(work: Path, repetitions: int) -> Result:
    manager = tenfold.CheckpointManager(work / "run", every_steps=1 << 40, every_seconds=1e9)

    def ask() -> None:
        for step in range(NUM_CALLS):
            manager.should_save(step)

    name = f"tenfold, {NUM_CALLS:,} calls of should_save"
    return compare(
        "checkpoint_should_save",
        "Ask whether to save",
        {name: Contender(ask, twice=True)},
        [Goal(name, at_most_seconds=NUM_CALLS * 1e-6, text="a microsecond a call")],
        repetitions,
    )


def training_step() -> Callable[[], None]:
    """Returns a training step of a small network: forward, backward and AdamW."""
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(64, 512)

    def run() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return run


@contextlib.contextmanager
def group_of_one(work: Path) -> Iterator[None]:
    """Creates a process group of this process only. AsyncCheckpointerType.PROCESS needs a group."""
    store = torch.distributed.FileStore(str(work / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def checkpoint_beside(work: Path, repetitions: int) -> Result:
    """Times training steps on one thread during a save in the background."""
    tree = state()
    step = training_step()
    manager = tenfold.CheckpointManager(work / "run", max_to_keep=1, async_save=True)
    save = quiet(saves(manager, tree))
    theirs = work / "dcp"
    threads = torch.get_num_threads()
    num_steps = 60
    repetitions = min(repetitions, BESIDE_REPETITIONS)

    def beside(start: Callable[[], object]) -> Contender:
        running: list[object] = []

        def before() -> None:
            torch.set_num_threads(1)
            os.environ["TENFOLD_NUM_THREADS"] = "1"
            warm_memory(work / "run")
            running.append(start())

        def train() -> None:
            for _ in range(num_steps):
                step()

        def after(_: object) -> None:
            handle = running.pop()
            if handle is not None:
                handle.result()
            del os.environ["TENFOLD_NUM_THREADS"]
            torch.set_num_threads(threads)

        return Contender(train, before, after=after)

    def dcp_of(kind: AsyncCheckpointerType) -> Callable[[], object]:
        def start() -> object:
            shutil.rmtree(theirs, ignore_errors=True)
            return dcp.async_save(
                tree,
                storage_writer=dcp.FileSystemWriter(theirs, sync_files=True),
                async_checkpointer_type=kind,
            )

        return quiet(start)

    ours = "tenfold, async_save"
    thread, process = (f"torch.distributed.checkpoint, {kind}" for kind in ("THREAD", "PROCESS"))
    with group_of_one(work):
        result = compare(
            "checkpoint_beside",
            f"{num_steps} training steps on one thread while a save is written in the background: "
            f"{size_of(tree)}",
            {
                ours: beside(save),
                thread: beside(dcp_of(AsyncCheckpointerType.THREAD)),
                process: beside(dcp_of(AsyncCheckpointerType.PROCESS)),
                "no save": beside(lambda: None),
            },
            [Goal(ours, thread, 1.0), Goal(ours, process, 1.0)],
            repetitions,
        )
    manager.close()
    return result


ALL = [
    checkpoint_stall,
    checkpoint_durable,
    checkpoint_share,
    checkpoint_share_small,
    checkpoint_restore,
    checkpoint_list,
    checkpoint_should_save,
    checkpoint_beside,
]

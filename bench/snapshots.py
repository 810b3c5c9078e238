"""Taking snapshots, and restoring them into existing tensors, against torchsnapshot.

`make deps` installs torchsnapshot in .venvs/torchsnapshot. This program appends that environment to
sys.path.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
import trees
from harness import ROOT, Contender, Goal, Result, compare, fresh, memory_note

import tenfold

OURS, THEIRS = "tenfold", "torchsnapshot"


def upstream():
    """Imports torchsnapshot. Prints a message and returns None if the package is missing."""
    packages = (ROOT / ".venvs" / "torchsnapshot").glob("lib/python*/site-packages")
    sys.path.extend(str(path) for path in packages)
    try:
        import torchsnapshot
    except ImportError:
        print("snapshots are left out: torchsnapshot cannot be imported; `make deps` installs it")
        return None
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    return torchsnapshot


def take(name: str, title: str, tree: dict, work: Path, repetitions: int) -> Result | None:
    theirs = upstream()
    if theirs is None:
        return None
    ours_at, theirs_at = work / "ours", work / "theirs"
    ours_state = {"state": tenfold.StateDict(tree)}
    theirs_state = {"state": theirs.StateDict(tree)}
    return compare(
        name,
        title,
        {
            OURS: Contender(
                lambda: tenfold.Snapshot.take(ours_at, ours_state, durable=False, progress=False),
                lambda: fresh(ours_at),
            ),
            THEIRS: Contender(
                lambda: theirs.Snapshot.take(str(theirs_at), theirs_state),
                lambda: fresh(theirs_at),
            ),
        },
        [Goal(OURS, THEIRS, 4.0)],
        repetitions,
    )


def restore(name: str, title: str, tree: dict, work: Path, repetitions: int) -> Result | None:
    theirs = upstream()
    if theirs is None:
        return None
    ours_at, theirs_at = work / "ours", work / "theirs"
    tenfold.Snapshot.take(ours_at, {"state": tenfold.StateDict(tree)}, durable=False)
    theirs.Snapshot.take(str(theirs_at), {"state": theirs.StateDict(tree)})
    target = {key: torch.zeros_like(tensor) for key, tensor in tree.items()}
    return compare(
        name,
        title,
        {
            OURS: Contender(
                lambda: tenfold.Snapshot(ours_at).restore({"state": tenfold.StateDict(target)})
            ),
            f"{OURS}, from torchsnapshot's snapshot": Contender(
                lambda: tenfold.Snapshot(theirs_at).restore({"state": tenfold.StateDict(target)})
            ),
            THEIRS: Contender(
                lambda: theirs.Snapshot(str(theirs_at)).restore({"state": theirs.StateDict(target)})
            ),
        },
        [Goal(OURS, THEIRS, 4.0)],
        repetitions,
    )


PREPARE_READING = """
import tenfold, torch
snapshot = tenfold.Snapshot(sys.argv[1])
paths = [path for path, entry in snapshot.get_manifest().items() if "ensor" in entry.type]
target = torch.ones_like(snapshot.read_object(paths[0]))
snapshot.read_object(paths[1], memory_budget_bytes=1 << 20)
"""


def snapshot_take(work: Path, repetitions: int) -> Result | None:
    title = "Take a snapshot of 8 x 64 MiB to a new path, not durable"
    return take("snapshot_take", title, trees.large(), work, repetitions)


def snapshot_take_many(work: Path, repetitions: int) -> Result | None:
    title = "Take a snapshot of 2,000 x 16 KiB"
    return take("snapshot_take_many", title, trees.many(), work, repetitions)


BUDGET_MIB = 16


def snapshot_restore(work: Path, repetitions: int) -> Result | None:
    title = "Restore 8 x 64 MiB into tensors that exist"
    result = restore("snapshot_restore", title, trees.large(), work, repetitions)
    if result is None:
        return None
    for folder, writer in (("ours", OURS), ("theirs", THEIRS)):
        note = memory_note(
            f"Memory in which {OURS} reads 64 MiB of a snapshot of {writer} into a tensor, with a "
            f"budget of {BUDGET_MIB} MiB",
            BUDGET_MIB,
            PREPARE_READING,
            f"snapshot.read_object(paths[0], target, memory_budget_bytes={BUDGET_MIB << 20})",
            work / folder,
        )
        result.notes.append(note)
    return result


def snapshot_restore_many(work: Path, repetitions: int) -> Result | None:
    title = "Restore 2,000 x 16 KiB into tensors that exist"
    return restore("snapshot_restore_many", title, trees.many(), work, repetitions)


ALL = [snapshot_take, snapshot_take_many, snapshot_restore, snapshot_restore_many]

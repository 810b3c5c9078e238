"""Snapshots of training state in folders, with the interface of torchsnapshot.

>>> from tenfold.snapshot import Snapshot, StateDict
>>> snapshot = Snapshot.take("run/snapshot", {"model": model, "progress": StateDict(epoch=3)})
"""

from __future__ import annotations

from tenfold._io.snapshot import (
    PendingSnapshot,
    RNGState,
    Snapshot,
    SnapshotEntry,
    SnapshotMetadata,
    StateDict,
)

__all__ = [
    "PendingSnapshot",
    "RNGState",
    "Snapshot",
    "SnapshotEntry",
    "SnapshotMetadata",
    "StateDict",
]

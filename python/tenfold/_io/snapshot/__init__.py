"""Snapshots: states of programs in folders, as torchsnapshot writes and reads them."""

from __future__ import annotations

from tenfold._io.snapshot.manifest import SnapshotEntry, SnapshotMetadata
from tenfold._io.snapshot.snapshot import PendingSnapshot, Snapshot
from tenfold._io.snapshot.states import RNGState, StateDict

__all__ = [
    "PendingSnapshot",
    "RNGState",
    "Snapshot",
    "SnapshotEntry",
    "SnapshotMetadata",
    "StateDict",
]

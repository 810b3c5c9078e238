"""Results of the methods of CheckpointManager."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tenfold._reports import LoadReport


@set_module("tenfold")
@dataclass(frozen=True)
class RestoreResult:
    """The result of `CheckpointManager.restore`. ``int(result)`` is the step.

    Attributes:
        step: The step that was restored; None if the directory has no step and `missing_ok` is set.
        path: The folder of the step, or None.
        report: The loaded, missing, unexpected and mismatched names. For a module, these are the
            dotted names of its tensors. For other entries, and for entries that are missing or
            unexpected as a whole, they are the names of the entries. Empty without an `app_state`.
        skipped: Damaged steps with higher numbers, as pairs of step and problem, highest first.
        metadata: As returned by `CheckpointManager.metadata`; empty if there is no step.
        state: If no `app_state` was given: the entries. Their tensors are mapped from the files,
            as by `tenfold.load`. None with an `app_state`, or if there is no step.
    """

    step: int | None
    path: Path | None
    report: LoadReport
    skipped: tuple[tuple[int, str], ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = field(default=None, repr=False)  # its tensors may be many

    def __int__(self) -> int:
        if self.step is None:
            raise ValueError("restore: expected a restored step, found a directory without steps")
        return self.step


@set_module("tenfold")
@dataclass(frozen=True)
class Estimate:
    """The disk space that a save needs, and the space that is available.

    Attributes:
        entries: Bytes of the tensors of each entry, or of its JSON file. Tensors of an entry that
            share the same bytes count once, except in entries with DTensors.
        num_bytes: Sum of `entries`.
        free_bytes: Free space of the file system; 0 if unknown.
        prunable_bytes: Size of the steps that no rule keeps now.
    """

    entries: dict[str, int]
    num_bytes: int
    free_bytes: int
    prunable_bytes: int


@set_module("tenfold")
@dataclass(frozen=True)
class StepStatus:
    """A step and the rules that keep it.

    Attributes:
        step: The number of the step.
        path: The folder of the step.
        seq: The number of the save that wrote the step; each save in the directory increases it.
        in_current_lineage: True if the step belongs to the current lineage: the newest save, and
            the earlier saves that it continues.
        held: True if a process holds the step (`CheckpointManager.hold`).
        kept_by: The rules that keep the step. If empty, the next pruning removes the step.
    """

    step: int
    path: Path
    seq: int
    in_current_lineage: bool
    held: bool
    kept_by: tuple[str, ...]

"""Writes the entries of a save, by one process or by all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold._ranks import Ranks
    from tenfold.checkpoint._live_tensors import LiveTensors

    # The trees of the engine that this process writes, each a tree or None: the replicated entries,
    # the per-rank entries of this rank, and the parts of sharded entries that this rank has.
    Trees = tuple[Any, Any, Any]


@dataclass
class SaveRequest:
    """The checked arguments of a save, and the state as trees that share the program's tensors.

    Attributes:
        step: The number of the step.
        path: Final path of the step's folder.
        metrics: Numbers by name.
        more: Further members of ``checkpoint.json``, as a node of the engine.
        force: If true, replace an existing step without a warning.
        constant: Entries that cause no warning if they are unchanged since the last save.
        trees: The trees that this process writes.
        live: With ``async_save="overlap"`` and without ``block=True``: the tensors that are copied
            in the background. Otherwise None.
        has_own: True if there are per-rank entries.
        message: The message to the other ranks.
        num_bytes_of_ranks: Total size of the per-rank entries of all ranks.
        outlines: On rank 0: a tree with dtypes and shapes of the sharded entries. None on other
            ranks, and if there are no sharded entries.
        boxes: For each sharded entry, for each part of a tensor: the position of the tensor among
            the tensors of the entry, the offsets and sizes of the part, and the rank that has it.
    """

    step: int
    path: Path
    metrics: dict[str, float]
    more: Any
    force: bool
    constant: list[str]
    trees: Trees
    live: LiveTensors | None
    has_own: bool
    message: dict[str, Any]
    outlines: Any
    num_bytes_of_ranks: int = 0
    boxes: list[list[tuple[int, list[int], list[int], int]]] = field(default_factory=list)


def write_step(native: Any, ranks: Ranks, request: SaveRequest, stage: Callable[[], Trees]) -> str:
    """Writes a step and publishes it.

    Args:
        native: The engine's manager.
        ranks: The ranks, all of which call this function. If one fails to write, no step is
            published, and all raise an error.
        request: The arguments and the state of the save.
        stage: Returns the trees that are written.

    Returns:
        The step's folder.
    """
    arguments = (request.metrics, request.more, request.force, request.constant)
    if ranks.is_alone:
        path: str = native.save(request.step, stage()[0], *arguments, None)
        return path
    trees: Trees = (None, None, None)
    save: Any = None  # stays None on ranks other than 0

    def begin() -> dict[str, Any]:
        nonlocal trees, save
        trees = stage()
        if ranks.rank != 0:
            return {}
        save = native.begin_ranked_save(
            request.step,
            trees[0],
            *arguments,
            ranks.size,
            request.has_own,
            request.num_bytes_of_ranks,
            request.outlines or _core.tree({}, ""),
            request.boxes,
        )
        tickets = [save.tickets(rank) for rank in range(ranks.size)] if request.boxes else []
        return {"ranks": save.ranks_path(), "tickets": tickets}

    def write() -> dict[str, Any]:
        place = begun[0]
        done: dict[str, Any] = {"entries": [], "receipts": []}
        if save is not None:
            save.write(None)
        if request.has_own:
            done["entries"] = native.write_rank_entries(
                request.step, place["ranks"], ranks.rank, trees[1]
            )
        if request.boxes:
            done["receipts"] = native.write_shards(place["tickets"][ranks.rank], trees[2])
        return done

    def publish() -> str | None:
        if save is None:
            return None
        published: str = save.publish(
            [tuple(entry) for done in written for entry in done["entries"]],
            [done["receipts"] for done in written],
        )
        return published

    try:
        _, begun = ranks.run("save: begin", begin, lambda place: place)
        _, written = ranks.run("save: write", write, lambda done: done)
        _, published = ranks.run("save: publish", publish, lambda path: path)
    finally:
        # The traceback of an error keeps this frame alive. Release the save now, so that the hidden
        # folder is removed.
        save = None
        trees = (None, None, None)
    # Rank 0 may be on another host, which has mounted the directory at another path.
    return str(Path(native.directory()) / Path(published[0]).name)

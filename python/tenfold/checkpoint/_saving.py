"""What a save writes, and how: by one process, or by all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold._ranks import Ranks
    from tenfold.checkpoint._overlap import LiveTensors

    # What this process writes for all ranks, and for itself: the engine's trees, or None.
    Trees = tuple[Any, Any]


@dataclass
class SaveRequest:
    """A save, checked, with its state as trees over the tensors of the training.

    Attributes:
        step: Its number.
        path: The folder that it will have.
        metrics: By name.
        more: The engine's node with what else the document gets.
        force: No warning if the step exists.
        constant: Entries that may stay as they are.
        trees: What this process writes.
        live: Tensors that are copied later; None.
        has_own: Each rank has entries of its own.
        message: What the other ranks are told.
        num_bytes_of_ranks: Of the entries that ranks have for themselves, together.
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
    num_bytes_of_ranks: int = 0


def write_step(native: Any, ranks: Ranks, request: SaveRequest, stage: Callable[[], Trees]) -> str:
    """Writes a step and publishes it.

    Args:
        native: The engine's manager.
        ranks: Collective: if one of them fails, no step appears, and all raise.
        request: What is saved.
        stage: Gives the trees that are written.

    Returns:
        The step's folder.
    """
    arguments = (request.metrics, request.more, request.force, request.constant)
    if ranks.is_alone:
        path: str = native.save(request.step, stage()[0], *arguments, None)
        return path
    trees: Trees = (None, None)
    save: Any = None  # of rank 0

    def begin() -> str | None:
        nonlocal trees, save
        trees = stage()
        if ranks.rank != 0:
            return None
        save = native.begin_ranked_save(
            request.step,
            trees[0],
            *arguments,
            ranks.size,
            request.has_own,
            request.num_bytes_of_ranks,
        )
        begun: str = save.ranks_path()
        return begun

    def write() -> list[Any]:
        if save is not None:
            save.write(None)
        if not request.has_own:
            return []
        written: list[Any] = native.write_rank_entries(request.step, begun[0], ranks.rank, trees[1])
        return written

    def publish() -> str | None:
        if save is None:
            return None
        published: str = save.publish([tuple(entry) for entries in written for entry in entries])
        return published

    try:
        _, begun = ranks.run("save: begin", begin, lambda path: path)
        _, written = ranks.run("save: write", write, lambda entries: entries)
        _, published = ranks.run("save: publish", publish, lambda path: path)
    finally:
        # An error keeps this frame: without it the hidden folder would stay as long.
        save = None
        trees = (None, None)
    # Another host may have the directory at another place.
    return str(Path(native.directory()) / Path(published[0]).name)

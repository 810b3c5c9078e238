"""How a source reaches the engine."""

from __future__ import annotations

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenfold._progress import Callback


class Way(NamedTuple):
    """How a source is passed to the engine, with the options."""

    path: str | None
    where: str
    schema: str | None
    columns: list[str]
    on_error: str
    batch_rows: int
    overwrite: bool
    durable: bool
    progress: Callback | None


def is_path(source: object) -> bool:
    """True for what names files."""
    return isinstance(source, (str, os.PathLike))

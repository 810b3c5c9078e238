"""Saves a node of the engine, and opens a path, in any format."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._interop.frameworks import decided
from tenfold._options import INT32_MAX, boolean, integer_or_zero, path_argument, text, text_or_empty
from tenfold.tensordict._node import Opened
from tenfold.tensordict._protocol import dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tenfold._interop.frameworks import Framework
    from tenfold.tensordict._dense import TensorDict

    Progress = Callable[[int, int, str], object] | bool | None


def save_node(
    node: Any,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    durable: bool = True,
    checksums: bool = True,
    num_threads: int | None = None,
    overwrite: bool = True,
    progress: Progress = None,
) -> Path:
    """Implements `tenfold.save` for a tree of the engine."""
    from pathlib import Path

    from tenfold._progress import Shown

    with Shown(progress) as callback:
        _core.save(
            node,
            os.fspath(path),
            text_or_empty("save: format", format),
            boolean("save: durable", durable),
            boolean("save: checksums", checksums),
            integer_or_zero("save: num_threads", num_threads, INT32_MAX),
            boolean("save: overwrite", overwrite),
            callback,
        )
    return Path(os.fsdecode(path))


def open_tree(
    path: str | os.PathLike[str],
    mode: str = "r",
    format: str | None = None,
    framework: Framework = None,
) -> TensorDict:
    """Implements `tenfold.open`."""
    path_argument("open(path)", path)
    opened = Opened(
        os.fsdecode(path), mode, format or "", keeps_parts=True, framework=decided(framework)
    )
    native = _core.open(
        os.fspath(path), text("open: mode", mode), text_or_empty("open: format", format)
    )
    made: TensorDict = dense()._from_native(native, opened)
    return made

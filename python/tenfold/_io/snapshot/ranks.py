"""Snapshots of several ranks: their states, and the collective calls that write them."""

from __future__ import annotations

import glob
import sys
import weakref
from collections import OrderedDict
from typing import NamedTuple

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.sharded import has_classes, shards_of
from tenfold._options import boolean
from tenfold._progress import Shown
from tenfold._ranks import Ranks, distributed_module, join

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Collection
    from typing import Any

    from tenfold._io.files import Progress

    # A sharded tensor, as the engine expects it: (path of keys, dtype, shape of the whole tensor,
    # offsets of the local parts, mesh).
    Described = tuple[tuple[str, ...], str, tuple[int, ...], list[tuple[int, ...]], Any]


class Groups(NamedTuple):
    """Communication between the ranks of a process group.

    Attributes:
        calls: For calls by the program: `take`, `restore`, and `async_take` until it returns.
        background: For the background threads of `async_take`.
        threads: The most recent thread that uses `background`; the next such thread waits for it.
            Empty if there is none.
    """

    calls: Ranks
    background: Ranks
    threads: list[threading.Thread]


_known: list[tuple[weakref.ref[Any], Groups]] = []


def groups_of(pg: Any) -> Groups:
    """Returns the `Groups` of a process group (None: the default group).

    If the group has several ranks, its `Groups` are created at the first call, which is collective:
    it creates two gloo groups. For a single rank, each call creates a new object. A collective call
    in these groups raises an error on all ranks if it fails on one rank, or if a rank does not
    reply before a timeout.
    """
    distributed = distributed_module()
    key = pg if pg is not None or distributed is None else distributed.group.WORLD
    _known[:] = [(reference, groups) for reference, groups in _known if reference() is not None]
    for reference, groups in _known:
        if reference() is key:
            return groups
    calls, background = join("snapshot", 2, pg)
    groups = Groups(calls, background, [])
    if not groups.calls.is_alone:
        _known.append((weakref.ref(key), groups))
    return groups


def globs_of_ddp(app_state: dict[str, Any], escape: Any) -> list[str]:
    """Globs that match the paths of the entries that DistributedDataParallel replicates."""
    module = sys.modules.get("torch.nn.parallel")
    found = []
    for key, value in app_state.items():
        if module is None or not isinstance(value, module.DistributedDataParallel):
            continue
        top = glob.escape(escape(key))
        ignored = set(getattr(value, "parameters_to_ignore", ()))
        if not ignored:
            found.append(f"{top}/*")
            continue
        names = [name for name, _ in (*value.named_parameters(), *value.named_buffers())]
        found += [
            f"{top}/{glob.escape(escape(name))}"
            for name in names
            if name not in ignored and name.removeprefix("module.") not in ignored
        ]
    return found


class Separated:
    """States in which sharded tensors are replaced by their local parts.

    Attributes:
        states: The states by name. Each sharded tensor in nested dicts, OrderedDicts and lists is
            replaced by the list of its local parts. A DTensor that is replicated on all ranks is
            replaced by its local tensor instead.
        shards: Descriptions, for the engine, of the sharded tensors that were replaced by lists.
        replicated: Paths of DTensors that are replicated on all ranks, as globs.
        outside: Paths of the DTensors whose mesh does not contain this rank.

    Args:
        outside: The union of the attributes `outside` of all ranks. A DTensor at such a path does
            not count as replicated, because at least one rank does not have it.
    """

    def __init__(self, states: dict[str, Any], escape: Any, outside: Collection[str] = ()) -> None:
        self.shards: list[Described] = []
        self.replicated: list[str] = []
        self.outside: list[str] = []
        self._escape = escape
        self._outside_of_any = outside
        # Few programs have sharded tensors. Traverse the states only if a class of sharded tensors
        # is imported.
        self.states: dict[str, Any] = self._walk(states, ()) if has_classes() else states

    def _walk(self, value: Any, keys: tuple[str, ...], above: tuple[int, ...] = ()) -> Any:
        kind = type(value)
        if kind in (dict, OrderedDict, list):
            if id(value) in above:
                return value  # the engine refuses a container that contains itself
            above = (*above, id(value))
        if kind in (dict, OrderedDict):
            made = kind(
                (key, self._walk(item, (*keys, str(key)), above)) for key, item in value.items()
            )
            if kind is OrderedDict and hasattr(value, "_metadata"):
                made._metadata = value._metadata  # type: ignore[attr-defined]
            return made
        if kind is list:
            return [self._walk(item, (*keys, str(i)), above) for i, item in enumerate(value)]
        if kind.__module__ == "torch":
            return value  # a plain tensor, a torch.Size, ...: no sharded tensor
        where = f'snapshot: key "{".".join(keys)}": DTensor'
        shards = shards_of(value, where)
        if shards is None:
            return value
        path = "/".join(glob.escape(self._escape(key)) for key in keys)
        parts, offsets = shards.parts, shards.offsets
        if not parts:
            self.outside.append(path)
            if not shards.shape:
                raise UnsupportedError(
                    f"{where}: expected all ranks in the mesh of a tensor without dimensions, "
                    f"found {value.device_mesh}; pass pg=, a process group of the ranks in this "
                    "mesh"
                )
            # The engine expects at least one part.
            offsets = [(0,) * len(shards.shape)]
            parts = [sys.modules["torch"].empty(offsets[0], dtype=value.dtype, device="cpu")]
        elif shards.is_replicated and path not in self._outside_of_any:
            self.replicated.append(path)
            return parts[0]
        dtype = arrays.dtype_name(parts[0].dtype)
        self.shards.append((keys, dtype, shards.shape, offsets, shards.mesh))
        return parts


def write(
    ranks: Ranks,
    path: str,
    tree: Any,
    separated: Separated,
    globs: list[str],
    durable: bool,
    progress: Progress,
) -> None:
    """Writes the snapshot of all ranks, and publishes it when all ranks have written their part."""
    durable = boolean("snapshot: durable", durable)
    globs = [*globs, *separated.replicated]
    with Shown(progress) as callback:
        if ranks.is_alone and not separated.shards:
            _core.save_snapshot(tree, path, durable, globs, callback)
            return
        parts: list[_core.SnapshotPart] = []
        writers: list[_core.SnapshotWriter] = []  # stays empty on ranks other than 0

        def outline() -> str:
            parts.append(_core.SnapshotPart(tree, ranks.rank, ranks.size, separated.shards, globs))
            return parts[0].outline()

        def begin() -> str | None:
            if ranks.rank != 0:
                return None
            writers.append(_core.SnapshotWriter(path, outlines, durable))
            return writers[0].ticket()

        def publish() -> None:
            if writers:
                writers[0].publish(receipts)

        try:
            _, outlines = ranks.run("take: plan", outline, lambda text: text)
            _, tickets = ranks.run("take: begin to write", begin, lambda text: text)
            _, receipts = ranks.run(
                "take: write", lambda: parts[0].write(tickets[0], callback), lambda text: text
            )
            ranks.run("take: publish", publish)
        finally:
            # The traceback of an error keeps this frame alive. Release the writers now, so that the
            # hidden folder is removed.
            writers.clear()
            parts.clear()

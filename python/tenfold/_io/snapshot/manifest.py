"""The manifest of a snapshot: its entries by their paths."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace

from tenfold import _core
from tenfold._errors import KeyNotFoundError
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@set_module("tenfold")
class UnknownPathError(KeyNotFoundError, RuntimeError):
    """Raised for a path, or the name of a state, that a snapshot lacks.

    It is a RuntimeError, too, as in torchsnapshot.
    """


@set_module("tenfold")
class SnapshotMetadata:
    """The index of a snapshot.

    Attributes:
        version: Version of torchsnapshot that wrote it; ``"0.1.0"`` if tenfold did.
        world_size: The number of processes that wrote it.
        manifest: A dict from path to entry, as returned by `Snapshot.get_manifest`.
    """

    def __init__(self, version: str, world_size: int, manifest: dict[str, SnapshotEntry]) -> None:
        self.version = version
        self.world_size = world_size
        self.manifest = manifest


@set_module("tenfold")
class SnapshotEntry(SimpleNamespace):
    """One entry of the manifest: ``type`` and the fields of this type (``shape``, ...)."""

    def get_value(self) -> Any:
        """Returns the value of an entry of type int, str, bool, bytes or float."""
        return primitive(vars(self))


def entry_of(fields: dict[str, Any]) -> SnapshotEntry:
    made = dict(fields)
    for name in ("chunks", "shards"):
        if name in made:
            made[name] = [
                SnapshotEntry(**{**piece, "tensor": SnapshotEntry(**piece["tensor"])})
                for piece in made[name]
            ]
    return SnapshotEntry(**made)


PRIMITIVES = ("int", "str", "bool", "bytes", "float")


def primitive(fields: dict[str, Any]) -> Any:
    """Decodes the value of an entry whose type is one of `PRIMITIVES`."""
    kind, text = fields["type"], fields["serialized_value"]
    if kind == "int":
        return int(text)
    if kind == "bool":
        return text == "True"
    if kind == "bytes":
        return base64.b64decode(text, validate=True)
    if kind == "float":
        import struct

        return struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    return text


def escape(key: object) -> str:
    """Encodes a key as a component of a path in the manifest."""
    return str(key).replace("%", "%25").replace("/", "%2F")


SHARDED = ("ShardedTensor", "DTensor")


def find_entry(manifest: dict[str, dict[str, Any]], path: str) -> dict[str, Any] | None:
    """Returns the fields of the entry at `path`, which begins with a rank; None if not found.

    If the rank has no entry at this path, returns rank 0's entry if that is replicated or sharded,
    else the sharded entry of any rank.
    """
    own = manifest.get(path)
    if own is not None:
        return own
    rank, _, logical = path.partition("/")
    if not rank.isdecimal() or not logical:
        return None
    first = manifest.get(f"0/{logical}")
    if first is not None and (first.get("replicated") or first["type"] in SHARDED):
        return first
    others = (
        fields
        for other, fields in manifest.items()
        if fields["type"] in SHARDED and other.partition("/")[2] == logical
    )
    return next(others, None)


def read_manifest(path: Any) -> dict[str, Any]:
    """Reads and checks the manifest: ``{"version", "world_size", "manifest": {path: fields}}``."""
    document: dict[str, Any] = json.loads(_core.snapshot_metadata(path))
    return document


def key_of(node: Any, piece: str) -> str:
    """Returns the key of `node` that `escape` encodes as `piece`."""
    keys: list[str] = node.keys()
    for key in keys:
        if escape(key) == piece:
            return key
    raise UnknownPathError(f'no entry "{piece}": expected one of {keys}')


def within(value: Any, pieces: list[str]) -> Any:
    """Returns the part of a JSON value at the path of keys `pieces`, each encoded by `escape`."""
    for piece in pieces:
        if isinstance(value, dict):
            value = next(below for key, below in value.items() if escape(key) == piece)
        else:
            value = value[int(piece)]
    return value

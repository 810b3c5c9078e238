"""`Snapshot`: an application's state in a folder, as torchsnapshot writes and reads it."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import warnings
from collections import OrderedDict, UserDict
from types import SimpleNamespace
from typing import Any

from tenfold import _core
from tenfold._errors import CorruptFileError, KeyNotFoundError, UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import need_torch, numpy_module
from tenfold._interop.objects import Opaque
from tenfold._interop.sharded import shards_of
from tenfold._io.load_into import _bare, _is_direct, _note_writes
from tenfold._io.snapshot_ranks import Groups, Separated, globs_of_ddp, groups_of, write
from tenfold._options import text
from tenfold._public import set_module
from tenfold._ranks import Ranks, rank_of
from tenfold.tensordict._node import own_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from tenfold._io.files import PathLike, Progress

    class Stateful(Protocol):
        """A module, an optimizer, a scheduler: any object that saves and loads its state."""

        def state_dict(self) -> Any: ...
        def load_state_dict(self, state_dict: Any) -> Any: ...


@set_module("tenfold")
class UnknownPathError(KeyNotFoundError, RuntimeError):
    """A path that the manifest lacks: torchsnapshot raises RuntimeError for it."""


@set_module("tenfold")
class SnapshotMetadata:
    """The index of a snapshot.

    Attributes:
        version: Version of torchsnapshot that wrote it.
        world_size: The number of processes that wrote it.
        manifest: Path to entry, as `Snapshot.get_manifest` gives it.
    """

    def __init__(self, version: str, world_size: int, manifest: dict[str, SnapshotEntry]) -> None:
        self.version = version
        self.world_size = world_size
        self.manifest = manifest


@set_module("tenfold")
class Snapshot:
    """A snapshot that exists: the state of modules, optimizers and values under one folder.

    In a process group all ranks take it together, and all restore it together, on any number of
    ranks.

    Args:
        path: The folder.
        pg: The process group whose rank this process restores as; None: the default one, or this
            process alone if there is none.
        storage_options: Accepted as None or ``{}``: folders have none.

    Example:
        >>> snapshot = tenfold.Snapshot.take("run/snapshot", {"model": model, "optim": optimizer})
        >>> snapshot.restore({"model": model, "optim": optimizer})
        >>> snapshot.read_object("0/model/weight").shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        path: PathLike,
        pg: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        _refuse_options(storage_options)
        self.path: str = _local(path)
        self.pg = pg
        self._document: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r})"

    @classmethod
    def take(
        cls,
        path: PathLike,
        app_state: dict[str, Stateful],
        pg: Any = None,
        replicated: Sequence[str] | None = None,
        storage_options: dict[str, Any] | None = None,
        *,
        durable: bool = True,
        progress: Progress = None,
    ) -> Snapshot:
        """Saves the state of everything in `app_state`.

        The folder holds, at every moment, the old snapshot or the new one, whole. Tensors are
        written from where they are; those that share their bytes are stored once.

        Collective if the group has several ranks: the snapshot appears when all have written, and
        if one of them fails, all raise. Each rank has its own entries. Replicated ones are written
        once, the work spread over the ranks. Of a DTensor or ShardedTensor each rank writes its
        part.

        Args:
            path: The folder, that of rank 0. An existing snapshot is replaced.
            app_state: Names and objects with ``state_dict()`` and ``load_state_dict()``.
            pg: The process group of all ranks that call this. None: the default one.
            replicated: Globs over paths (``"model/**"``): entries that are the same on all ranks,
                of which any number of ranks may restore. What DistributedDataParallel keeps the
                same, and DTensors that no mesh dimension cuts, are replicated without.
            storage_options: Accepted as None or ``{}``: folders have none.
            durable: Return only when the data is on the device.
            progress: As for `save`.

        Returns:
            Snapshot: The one at `path`.

        Raises:
            TypeError: If something in `app_state` has no state.
            RuntimeError: If there is more than one `RNGState`; if a rank has ended, or does not
                answer.
            ValueError: If a replicated entry has another dtype, shape or value on some ranks, or
                shards overlap or leave elements out.
            UnsupportedError: If something cannot be stored; the message names its key. Nothing has
                been written.
            OSError: If a system call failed. An existing snapshot is unchanged.

        Example:
            >>> snapshot = tenfold.Snapshot.take("run/snapshot", {"model": model})
        """
        groups = groups_of(pg)
        where, globs, states = _request(groups, path, app_state, replicated, storage_options)
        tree, _ = groups.calls.run("take: tree", lambda: _core.tree(states.states, where))
        write(groups.calls, where, tree, states, globs, durable, progress)
        return cls(where, pg)

    @classmethod
    def async_take(
        cls,
        path: PathLike,
        app_state: dict[str, Stateful],
        pg: Any = None,
        replicated: Sequence[str] | None = None,
        storage_options: dict[str, Any] | None = None,
        *,
        durable: bool = True,
    ) -> PendingSnapshot:
        """Copies the tensors, and writes as `take` does in the background.

        When it returns, the state is copied: later changes of the tensors are not in the snapshot.
            The copy takes as much memory as the state.

        Args:
            path: As for `take`.
            app_state: As there.
            pg: As there.
            replicated: As there.
            storage_options: As there.
            durable: As there.

        Returns:
            PendingSnapshot: ``wait()`` gives the snapshot, or raises what went wrong.

        Raises:
            TypeError, RuntimeError, UnsupportedError: As for `take`. What goes wrong in the
                background is raised by ``wait()``.

        Example:
            >>> pending = tenfold.Snapshot.async_take("run/snapshot", {"model": model})
            >>> snapshot = pending.wait()
        """
        groups = groups_of(pg)
        where, globs, states = _request(groups, path, app_state, replicated, storage_options)

        def copied() -> Any:
            shared = _core.tree(states.states, where)
            copies = shared.to_containers("r", _core.Tied(), _copy, lambda node, keys: node)
            states.states = {}
            return _core.tree(copies, where)

        tree, _ = groups.calls.run("async_take: copy", copied)
        return PendingSnapshot(
            where,
            lambda: write(groups.background, where, tree, states, globs, durable, False),
            pg,
            groups.threads,
        )

    def restore(self, app_state: dict[str, Stateful], strict: bool = True) -> None:
        """Gives everything in `app_state` its state back.

        Tensors of equal dtype and shape are read into in place, straight from the files: besides
        them no memory is needed that grows with their size.

        Args:
            app_state: As for `take`; it may name less than the snapshot holds.
            strict: Handed to modules' ``load_state_dict``.

        Raises:
            TypeError, RuntimeError: As for `take`.
            KeyError: If the snapshot lacks one of the names; if this rank is none of those that
                took it, and an entry is neither replicated nor sharded. Nothing has changed.
            CorruptFileError: If the bytes break the promises of the format.

        Example:
            >>> tenfold.Snapshot.take("run/snapshot", {"model": model}).restore({"model": model})
        """
        ranks = groups_of(self.pg).calls

        def begin() -> tuple[int, Any]:
            _check(app_state)
            rank, node = self._rank_node(ranks.rank)
            missing = [key for key in app_state if key not in node]
            if missing:
                raise UnknownPathError(
                    f'{self.path}: no state "{missing[0]}": expected one of {node.keys()}'
                )
            if ranks.rank >= self._metadata()["world_size"]:
                for key in app_state:
                    _require_shared(node, key)
            return rank, node

        (rank, node), sent = ranks.run(
            "restore: begin",
            begin,
            lambda _: [[key, isinstance(value, RNGState)] for key, value in app_state.items()],
        )
        # State dicts may be collective: all ranks come to them in one order. Random numbers are
        # last, so that restoring others draws none.
        is_random: dict[str, bool] = {}
        for key, random in (pair for pairs in sent for pair in pairs):
            is_random[key] = is_random.get(key, False) or random
        for key in sorted(is_random, key=lambda key: is_random[key]):
            ranks.run(
                f"restore: {key}",
                lambda key=key: (  # type: ignore[misc]
                    self._restore_one(node, rank, key, app_state[key], strict)
                    if key in app_state
                    else None
                ),
            )

    def read_object(
        self, path: str, obj_out: Any = None, memory_budget_bytes: int | None = None
    ) -> Any:
        """Reads one entry.

        Args:
            path: As `get_manifest` lists it: ``"0/model/weight"``, the rank first.
            obj_out: A tensor that is filled; None: a new one.
            memory_budget_bytes: Most memory besides the tensor itself.

        Returns:
            `obj_out`, a new tensor of the entry's dtype and shape, or the value or containers.

        Raises:
            KeyError: If the manifest has no such path; it is a RuntimeError, too.
            ValueError: If `obj_out` has another shape, or a dtype that numbers would be lost in.

        Example:
            >>> snapshot = tenfold.Snapshot.take("run/snapshot", {"model": model})
            >>> bias = snapshot.read_object("0/model/encoder.bias")
        """
        manifest = self._metadata()["manifest"]
        fields = find_entry(manifest, text("snapshot: path", path))
        if fields is None:
            raise UnknownPathError(
                f'{self.path}: no entry "{path}": expected a path that get_manifest() lists'
            )
        if fields["type"] in PRIMITIVES:
            return primitive(fields)
        rank, *pieces = path.split("/")
        if not pieces:
            return self._rank_state(rank)
        _, node = self._rank_node(int(rank))
        for piece in pieces[:-1]:
            node = node.describe(_key_of(node, piece))[1]
            if not hasattr(node, "keys"):  # a JSON value: it contains no tensor
                return _within(node, pieces[pieces.index(piece) + 1 :])
        key = _key_of(node, pieces[-1])
        described = node.describe(key)
        if described[0] != "tensor":
            reader = StateReader(manifest)
            value = reader.entry(node, key, path, obj_out)
            reader.read()
            return value
        if shards_of(obj_out) is not None:
            reader = StateReader(manifest)
            reader.tensor(node.item(key), path, described[1], described[2], obj_out)
            reader.read()
            return obj_out
        return _read_tensor(
            node.item(key), path, described[1], described[2], obj_out, memory_budget_bytes
        )

    def get_manifest(self) -> dict[str, SnapshotEntry]:
        """Path to entry, each with its ``type`` and the members that go with it."""
        return {path: entry_of(fields) for path, fields in self._metadata()["manifest"].items()}

    def get_state_dict_for_key(self, key: str) -> Any:
        """The state that `app_state` had under that key, in new tensors.

        Args:
            key: A name in `app_state` when it was taken.

        Returns:
            The state, as ``state_dict()`` gave it then.

        Raises:
            KeyError: If there is no such name; it is a RuntimeError, too.

        Example:
            >>> snapshot = tenfold.Snapshot.take("run/snapshot", {"model": model})
            >>> list(snapshot.get_state_dict_for_key("model"))
            ['encoder.weight', 'encoder.bias']
        """
        rank, node = self._rank_node()
        if text("snapshot: key", key) not in node:
            raise UnknownPathError(f'{self.path}: no state "{key}": expected one of {node.keys()}')
        return self._state(node, rank, key, None)

    @property
    def metadata(self) -> SnapshotMetadata:
        """Version, world size and manifest."""
        document = self._metadata()
        return SnapshotMetadata(document["version"], document["world_size"], self.get_manifest())

    # --- options ---

    def _metadata(self) -> dict[str, Any]:
        if self._document is None:
            self._document = read_manifest(self.path)
        return self._document

    def _rank_node(self, rank: int | None = None) -> tuple[int, Any]:
        """The rank whose entries this process sees, and the engine's node of them."""
        if rank is None:
            rank = rank_of(self.pg)
        node = _core.open_snapshot(self.path, rank)
        # One that took no part sees the containers of rank 0.
        return (rank if rank < self._metadata()["world_size"] else 0), node

    def _rank_state(self, rank: str) -> dict[str, Any]:
        number, node = self._rank_node(int(rank))
        keys: list[str] = node.keys()
        return {key: self._state(node, number, key, None) for key in keys}

    def _state(self, node: Any, rank: int, key: str, target: Any) -> Any:
        reader = StateReader(self._metadata()["manifest"])
        state = reader.entry(node, key, f"{rank}/{escape(key)}", target)
        reader.read()
        return state

    def _restore_one(self, node: Any, rank: int, key: str, stateful: Any, strict: bool) -> None:
        current = stateful.state_dict()
        state = self._state(node, rank, key, current)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(stateful, torch.nn.Module):
            stateful.load_state_dict(state, strict=strict)
            return
        # tensordict stores this next to the entries, and needs it to distinguish "a.b" from ("a",
        # "b").
        metadata = getattr(current, "_metadata", None)
        if metadata is not None and type(state) is OrderedDict:
            state._metadata = metadata  # type: ignore[attr-defined]
        stateful.load_state_dict(state)


@set_module("tenfold")
class PendingSnapshot:
    """A snapshot that is being written in the background."""

    def __init__(
        self, path: str, work: Any, pg: Any = None, threads: list[threading.Thread] | None = None
    ) -> None:
        self.path = path
        self.pg = pg
        self._work: Any = work
        self._error: BaseException | None = None
        self._before = list(threads or ())
        self._thread = threading.Thread(target=self._run, name="tenfold-snapshot")
        if threads is not None:
            threads[:] = [self._thread]
        self._thread.start()

    def _run(self) -> None:
        try:
            # All ranks write their snapshots in one order.
            for thread in self._before:
                thread.join()
            self._before.clear()
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._work = None  # the copies are no longer needed

    def wait(self) -> Snapshot:
        """Waits until it is written.

        Raises:
            Exception: The exception of `Snapshot.take`; then there is no new snapshot.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return Snapshot(self.path, self.pg)

    def done(self) -> bool:
        """True when `wait` would not wait."""
        return not self._thread.is_alive()


def _local(path: PathLike) -> str:
    text = os.fsdecode(path)
    if text.startswith("fs://"):
        return text[len("fs://") :]
    if "://" in text:
        raise UnsupportedError(
            f"{text}: expected a folder of this machine, found an address of another storage"
        )
    return text


def _globs(replicated: Sequence[str] | None) -> list[str]:
    if replicated is None:
        return []
    if isinstance(replicated, str) or not all(isinstance(glob, str) for glob in replicated):
        raise TypeError(f"replicated: expected a list of globs, found {replicated!r}")
    return list(replicated)


def _check(app_state: Any) -> None:
    if not isinstance(app_state, dict):
        raise TypeError(f"app_state: expected a dict, found {type(app_state).__name__}")
    for key, value in app_state.items():
        if not isinstance(key, str):
            raise TypeError(f"app_state: expected names that are str, found {key!r}")
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(value, method, None)):
                raise TypeError(
                    f"Expected Stateful in app_state for key {key}, got {type(value)}: it has no "
                    f"{method}(); tenfold.StateDict holds loose values"
                )
    random = [key for key, value in app_state.items() if isinstance(value, RNGState)]
    if len(random) > 1:
        raise RuntimeError(f"Multiple RNGState objects in app state: {random}")


def _request(
    groups: Groups,
    path: PathLike,
    app_state: dict[str, Stateful],
    replicated: Sequence[str] | None,
    storage_options: dict[str, Any] | None,
) -> tuple[str, list[str], Separated]:
    """Checks the arguments of all ranks: the path of rank 0, globs and the states of this rank."""
    ranks = groups.calls

    def begin() -> tuple[str, list[str]]:
        _refuse_options(storage_options)
        where = _local(path)
        globs = _globs(replicated)
        _check(app_state)
        return where, globs + globs_of_ddp(app_state, escape)

    (where, globs), sent = ranks.run(
        "take", begin, lambda result: {"path": result[0], "keys": list(app_state)}
    )
    if sent[0]["path"] != where:
        warnings.warn(
            f"{where}: rank {ranks.rank}: expected the path of rank 0, found another; "
            f"the snapshot is {sent[0]['path']}",
            stacklevel=3,
        )
    keys = {key: None for message in sent for key in message["keys"]}
    states = _states(ranks, app_state, list(keys))
    separated, _ = ranks.run("take: states", lambda: Separated(states, escape))
    return sent[0]["path"], globs, separated


def _states(ranks: Ranks, app_state: dict[str, Stateful], keys: list[str]) -> dict[str, Any]:
    """The state of everything, with torch's random numbers from before the call.

    Args:
        ranks: State dicts may be collective: all ranks come to them in one order.
        app_state: Of this rank.
        keys: Of all ranks.
    """
    random = {key: value for key, value in app_state.items() if isinstance(value, RNGState)}
    states = {key: value.state_dict() for key, value in random.items()}

    def state_of(key: str) -> None:
        if key in app_state and key not in random:
            states[key] = _plain(app_state[key].state_dict())

    first = {key: states[key] for key in random}
    for key in keys:
        ranks.run(f"take: state of {key}", lambda key=key: state_of(key))  # type: ignore[misc]
    for key, value in random.items():
        value.load_state_dict(first[key])
    return {key: states[key] for key in app_state}


def _plain(state: Any) -> Any:
    """The state with tensordict's member "__device" as text, from which it makes a device again."""
    if type(state) not in (dict, OrderedDict):
        return state
    made = type(state)(
        (key, str(value) if key == "__device" and value is not None else _plain(value))
        for key, value in state.items()
    )
    if type(state) is OrderedDict and _is_json(getattr(state, "_metadata", None)):
        # Versions of the module's layers.
        made._metadata = state._metadata  # type: ignore[attr-defined]
    return made


def _is_json(metadata: Any) -> bool:
    """False for what tensordict attaches, which `restore` takes from the target."""
    import json

    try:
        return metadata is not None and json.loads(json.dumps(metadata)) == metadata
    except (TypeError, ValueError):
        return False


def _copy(tensor: Any) -> Any:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _refuse_options(storage_options: dict[str, Any] | None) -> None:
    if storage_options:
        raise UnsupportedError(
            "snapshot: storage_options: expected none, as a folder has none, found "
            f"{sorted(storage_options)}"
        )


def _require_shared(node: Any, key: str) -> None:
    """Raises KeyError for an entry of a single rank."""
    try:
        kind, *fields = node.describe(key)
    except KeyNotFoundError:
        raise
    except (UnsupportedError, CorruptFileError):
        return  # an error when it is read
    if kind == "node":
        keys: list[str] = fields[0].keys()
        for below in keys:
            _require_shared(fields[0], below)


def _key_of(node: Any, piece: str) -> str:
    """The key of `node` that a path writes like this."""
    keys: list[str] = node.keys()
    for key in keys:
        if escape(key) == piece:
            return key
    raise UnknownPathError(f'no entry "{piece}" below: expected one of {keys}')


def _within(value: Any, pieces: list[str]) -> Any:
    """The entry inside a JSON value."""
    for piece in pieces:
        if isinstance(value, dict):
            value = next(below for key, below in value.items() if escape(key) == piece)
        else:
            value = value[int(piece)]
    return value


def _read_tensor(
    item: Any, path: str, dtype: str, shape: tuple[int, ...], obj_out: Any, budget: int | None
) -> Any:
    if not arrays.is_array(obj_out):
        made = empty(dtype, shape)
        fill([(item, made)])
        return made
    if tuple(obj_out.shape) != tuple(shape):
        raise ValueError(
            f'obj_out: entry "{path}": expected a tensor of shape {tuple(shape)}, found '
            f"{tuple(obj_out.shape)}"
        )
    same_dtype = arrays.dtype_name(obj_out.dtype) == dtype
    direct = _is_direct(path, obj_out)
    if direct and same_dtype and _is_contiguous(obj_out):
        fill([(item, obj_out)])
    elif direct and budget is None:
        fill([(item, obj_out)], cast=not same_dtype)
    else:
        fill_within(item, obj_out, dtype, (64 << 20) if budget is None else max(1, budget))
    _note_writes({path: obj_out}, [path])
    return obj_out


def _is_contiguous(tensor: Any) -> bool:
    if hasattr(tensor, "is_contiguous"):
        return bool(tensor.is_contiguous())
    return bool(tensor.flags.c_contiguous)


# Host memory for tensors of another device at a time, unless the budget is smaller.
_GROUP_BYTES = 64 << 20


@set_module("tenfold")
class SnapshotEntry(SimpleNamespace):
    """One entry of the manifest: ``type`` and the members that go with it (``shape``, ...)."""

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
    """The value that an entry of a plain type holds in itself."""
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
    """A key as a path of the manifest has it."""
    return str(key).replace("%", "%25").replace("/", "%2F")


SHARDED = ("ShardedTensor", "DTensor")


def find_entry(manifest: dict[str, dict[str, Any]], path: str) -> dict[str, Any] | None:
    """The fields of an entry as a rank sees it: its own, a replicated or a sharded one."""
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


class StateReader:
    """Rebuilds the state below one node, reading into the tensors of `target` where they fit.

    Tensors are only noted while the containers are built; `read` fills all of them at once.
    """

    def __init__(self, manifest: dict[str, dict[str, Any]]) -> None:
        self._manifest = manifest
        self._sharded = {
            path.partition("/")[2] for path, fields in manifest.items() if fields["type"] in SHARDED
        }
        self._jobs: list[tuple[Any, Any]] = []  # (engine's item, tensor)
        # (engine's item, offsets, part of a sharded tensor, stored dtype)
        self._boxes: list[tuple[Any, tuple[int, ...], Any, str]] = []

    def entry(self, node: Any, key: str, path: str, target: Any) -> Any:
        """Returns the manifest entry for an entry of `node`; `path` is its path in the manifest."""
        try:
            described = node.describe(key)
        except UnsupportedError:
            fields = find_entry(self._manifest, path)
            if fields is None or fields["type"] not in PRIMITIVES:
                raise
            return primitive(fields)
        if described[0] == "value":
            return described[1]
        if described[0] == "tensor":
            return self.tensor(node.item(key), path, described[1], described[2], target)
        return self.container(described[1], path, target)

    def container(self, node: Any, path: str, target: Any) -> Any:
        kind, int_keys, *_ = node.info()
        if kind in ("tensordict", "tensorclass", "lazy_stack"):
            return _tensordict(node)
        if kind == "sparse":
            return _sparse(node)
        if kind == "opaque":
            return _meta_tensor(node, path)
        made: list[tuple[Any, Any]] = []
        for position, key in enumerate(node.keys()):
            own: Any = position if kind in ("list", "tuple") else own_key(int_keys, key)
            child = _child(target, own)
            below_path = f"{path}/{escape(key)}"
            if child is None and self._is_of_others(below_path):
                continue  # a part of a tensor that this rank does not have or request
            below = self.entry(node, key, below_path, child)
            made.append((own, below))
        if kind == "list":
            return [value for _, value in made]
        if kind == "tuple":
            return tuple(value for _, value in made)
        return _ordered(made, node) if kind == "ordered_dict" else dict(made)

    def _is_of_others(self, path: str) -> bool:
        """True for a sharded tensor of which this rank had no part."""
        return path not in self._manifest and path.partition("/")[2] in self._sharded

    def tensor(self, item: Any, path: str, dtype: str, shape: tuple[int, ...], target: Any) -> Any:
        shards = shards_of(target)
        if shards is not None:
            if shards.shape != tuple(shape):
                raise ValueError(
                    f'entry "{path}": expected a sharded tensor of shape {tuple(shape)}, found '
                    f"{shards.shape}"
                )
            for part, offsets in zip(shards.parts, shards.offsets, strict=True):
                if part.numel():
                    self._boxes.append((item, offsets, part.detach(), dtype))
            return target
        fits = (
            arrays.is_array(target)
            and tuple(target.shape) == tuple(shape)
            and arrays.dtype_name(target.dtype) == dtype
        )
        into = target if fits else empty(dtype, shape)
        self._jobs.append((item, into))
        return into

    def read(self) -> None:
        """Fills the tensors that were noted, without a second copy of any in main memory."""
        direct = [job for job in self._jobs if _is_direct("tensor", job[1])]
        others = [job for job in self._jobs if not _is_direct("tensor", job[1])]
        fill(direct)
        while others:
            group: list[tuple[Any, Any]] = []
            size = 0
            while others and (not group or size + others[0][1].nbytes <= _GROUP_BYTES):
                group.append(others.pop(0))
                size += group[-1][1].nbytes
            hosts = [(item, empty_like(tensor)) for item, tensor in group]
            fill(hosts)
            for (_, host), (_, tensor) in zip(hosts, group, strict=False):
                tensor.detach().copy_(host)
        self._read_boxes()
        _note_writes(
            {str(i): tensor for i, (_, tensor) in enumerate(self._jobs)},
            [str(i) for i in range(len(self._jobs))],
        )
        self._jobs.clear()

    def _read_boxes(self) -> None:
        """Fills the parts of sharded tensors, straight where the engine can write into them."""
        group: list[tuple[Any, tuple[int, ...], Any, Any]] = []  # with the tensor that is read into
        size = 0
        for item, offsets, part, dtype in self._boxes:
            is_direct = _is_direct("tensor", part) and arrays.dtype_name(part.dtype) == dtype
            into = part if is_direct else empty(dtype, tuple(part.shape))
            group.append((item, offsets, part, into))
            size += 0 if is_direct else into.nbytes
            if size > _GROUP_BYTES:
                _fill_boxes(group)
                group, size = [], 0
        _fill_boxes(group)
        self._boxes.clear()


def _fill_boxes(boxes: list[tuple[Any, tuple[int, ...], Any, Any]]) -> None:
    if not boxes:
        return
    target = _core.tree({str(i): _bare(into) for i, (*_, into) in enumerate(boxes)})
    _core.read_boxes([item for item, *_ in boxes], [box[1] for box in boxes], target)
    for _, _, part, into in boxes:
        if into is not part:
            part.copy_(into)
    parts = {str(i): part for i, (_, _, part, _) in enumerate(boxes)}
    _note_writes(parts, list(parts))


def fill(jobs: list[tuple[Any, Any]], *, cast: bool = False) -> None:
    """Reads each of the engine's items into its tensor, on all threads."""
    if jobs:
        target = _core.tree({str(i): _bare(tensor) for i, (_, tensor) in enumerate(jobs)})
        _core.fill_tensors([item for item, _ in jobs], target, cast, None)


def fill_within(item: Any, tensor: Any, dtype: str, budget_bytes: int) -> None:
    """The same for one tensor that cannot be read straight, with so much memory besides."""
    _fill_tile(item, tensor.detach(), dtype, 0, budget_bytes)


def _fill_tile(item: Any, tensor: Any, dtype: str, offset: int, budget_bytes: int) -> int:
    """Fills `tensor` from a byte offset of the item; returns the end offset."""
    stored = empty(dtype, ()).element_size()
    size = tensor.numel() * stored
    if tensor.numel() == 0:
        return offset
    if tensor.dim() == 0 or size <= budget_bytes:
        tile = empty(dtype, tuple(tensor.shape))
        _core.read_bytes(item, offset, _core.tree({"0": tile}))
        tensor.copy_(tile)
        return int(offset + size)
    rows = max(1, budget_bytes // (size // tensor.shape[0]))
    for row in range(0, tensor.shape[0], rows):
        part = tensor[row : row + rows]
        part = part[0] if rows == 1 else part
        offset = _fill_tile(item, part, dtype, offset, budget_bytes)
    return offset


def empty(dtype: str, shape: tuple[int, ...]) -> Any:
    """A new torch tensor, or a numpy array if torch is not installed."""
    torch = arrays.torch_or_none()
    if torch is not None:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    numpy = numpy_module()

    return numpy.empty(tuple(shape), dtype=arrays.numpy_dtype(dtype, "snapshot"))


def empty_like(tensor: Any) -> Any:
    torch = arrays.imported_torch()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _ordered(made: list[tuple[Any, Any]], node: Any) -> OrderedDict[Any, Any]:
    """With the versions of a module's layers, which its ``load_state_dict`` looks for."""
    state = OrderedDict(made)
    *_, more = node.info()
    if more is not None and more[3] is not None:
        state._metadata = OrderedDict(json.loads(more[3]))  # type: ignore[attr-defined]
    return state


def _tensordict(node: Any) -> Any:
    """Copies the TensorDict or tensorclass of a node into memory."""
    from tenfold.tensordict import TensorDict

    made: Any = TensorDict._from_native(node, None)
    made._replace_arrays(lambda tensor: tensor.clone())
    return made


def _sparse(node: Any) -> Any:
    """Copies a sparse tensor into memory; its component tensors without torch."""
    made = _contained(node)
    return made if isinstance(made, dict) else made.clone()


def _contained(node: Any) -> Any:
    return node.to_containers("r", _core.Tied(), None, lambda native, keys: native)


def _meta_tensor(node: Any, path: str) -> Any:
    """The only opaque node that can be made: the others are objects of unknown classes."""
    made = _contained(node)
    if isinstance(made, Opaque):
        raise UnsupportedError(
            f'snapshot: entry "{path}": it is no tensor, value or container of them: found an '
            f'object of "{made.name}"; tenfold.load(path, allow_opaque=True) shows what it was '
            "made of"
        )
    return made


def _child(target: Any, key: Any) -> Any:
    if isinstance(target, dict):
        return target.get(key)
    if isinstance(target, (list, tuple)) and isinstance(key, int) and key < len(target):
        return target[key]
    return None


def read_manifest(path: Any) -> dict[str, Any]:
    """``{"version", "world_size", "manifest": {path: fields}}``, checked."""
    document: dict[str, Any] = json.loads(_core.snapshot_metadata(path))
    return document


@set_module("tenfold")
class StateDict(UserDict[Any, Any]):
    """A dict that is its own state, for loose values in an `app_state`.

    Example:
        >>> progress = tenfold.StateDict(epoch=3, losses=[0.5, 0.25])
        >>> tenfold.Snapshot.take("run/snapshot", {"progress": progress})
        Snapshot('run/snapshot')
    """

    def state_dict(self) -> dict[Any, Any]:
        """The dict itself, not a copy."""
        return self.data

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        """Takes over the entries of `state_dict`; others stay."""
        self.data.update(state_dict)


@set_module("tenfold")
class RNGState:
    """The state of torch's random numbers on the CPU.

    In an `app_state` it is taken before and restored after everything else, so that a restore
    continues the same random sequence.
    """

    def state_dict(self) -> dict[str, Any]:
        """``{"rng_state": tensor}``, uint8 of one dimension."""
        torch = need_torch("snapshot")

        return {"rng_state": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the state of torch's generator."""
        torch = need_torch("snapshot")

        torch.set_rng_state(state_dict["rng_state"])

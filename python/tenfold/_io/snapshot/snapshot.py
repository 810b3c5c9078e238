"""`Snapshot`: an application's state in a folder, as torchsnapshot writes and reads it."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from tenfold import _core
from tenfold._errors import CorruptFileError, KeyNotFoundError, UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.sharded import shards_of
from tenfold._io.snapshot.manifest import (
    PRIMITIVES,
    SnapshotEntry,
    SnapshotMetadata,
    UnknownPathError,
    entry_of,
    escape,
    find_entry,
    key_of,
    primitive,
    read_manifest,
    within,
)
from tenfold._io.snapshot.ranks import Groups, Separated, globs_of_ddp, groups_of, write
from tenfold._io.snapshot.reader import StateReader, read_tensor
from tenfold._io.snapshot.states import RNGState, check, states_of
from tenfold._options import path_argument, text
from tenfold._public import set_module
from tenfold._ranks import rank_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenfold._io.files import PathLike, Progress
    from tenfold._io.snapshot.states import Stateful


@set_module("tenfold")
class Snapshot:
    """A snapshot on disk: the state of modules, optimizers and values in one folder.

    In a process group, all ranks take a snapshot together, and restore it together. More or fewer
    ranks can restore it; the additional ranks can restore replicated and sharded entries only.

    Args:
        path: The folder.
        pg: The process group whose ranks restore together. None: the default one, or this process
            alone if there is none.
        storage_options: Must be None or ``{}``: folders have no options.

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

        The folder is replaced as by `tenfold.save`: a crash leaves the complete old snapshot or the
        complete new one. Dense torch tensors on the CPU, except lazy conjugates and negatives, are
        written without a copy in memory. Tensors that share storage are stored once.

        Collective if the group has several ranks: the snapshot appears when all have written, and
        if one of them fails, all raise. Each rank has its own entries. Replicated entries are
        written once, distributed over the ranks. Each part of a DTensor or ShardedTensor is written
        by one of the ranks that have it.

        Args:
            path: The folder. An existing snapshot is replaced. If the ranks pass different paths,
                that of rank 0 is used, and ranks with another path warn.
            app_state: Names and objects with ``state_dict()`` and ``load_state_dict()``.
            pg: The process group of all ranks that call this. None: the default one, or this
                process alone if there is none.
            replicated: Globs over paths without the rank (``"model/**"``) of entries that are the
                same on all ranks, which any number of ranks may restore. Parameters and buffers
                that DistributedDataParallel replicates, and DTensors that no mesh dimension shards,
                need not be named.
            storage_options: Must be None or ``{}``: folders have no options.
            durable: fsync before returning.
            progress: As for `save`.

        Returns:
            Snapshot: The snapshot at `path`.

        Raises:
            TypeError: If `app_state` is not a dict with str keys, an object in it has no
                ``state_dict()`` or ``load_state_dict()``, or `replicated` is not a list of str.
            RuntimeError: If there is more than one `RNGState`, or a rank has ended or does not
                answer.
            ValueError: If the folder has files that do not belong to a snapshot; if a replicated
                entry has another dtype, shape or value on some ranks; or if shards overlap or omit
                elements.
            UnsupportedError: If an entry cannot be stored (the message names its key), `path` is an
                address such as ``"s3://..."``, or there are storage options. Nothing has been
                written.
            OSError: If a system call failed. The previous version is unchanged, unless the last
                fsync failed.

        Example:
            >>> Snapshot.take("run/snapshot", {"model": model, "optimizer": optimizer})
            Snapshot('run/snapshot')
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
        """Takes a snapshot in the background, from a copy of the state.

        Copies the state to main memory before it returns, so later changes of the tensors are not
        in the snapshot. The copy takes as much memory as the state. Until it is complete, tensors
        of other devices than the CPU take twice their size in main memory.

        Args:
            path: As for `take`.
            app_state: As for `take`.
            pg: As for `take`.
            replicated: As for `take`.
            storage_options: As for `take`.
            durable: fsync before the snapshot is done, thus before ``wait()`` returns.

        Returns:
            PendingSnapshot: ``wait()`` returns the snapshot, or raises the exception of the save.

        Raises:
            TypeError, RuntimeError, UnsupportedError: As for `take`, if the error occurs before or
                during the copy. ``wait()`` raises later errors.

        Example:
            >>> pending = Snapshot.async_take("run/snapshot", {"model": model})
            >>> pending.wait()
            Snapshot('run/snapshot')
        """
        groups = groups_of(pg)
        where, globs, states = _request(groups, path, app_state, replicated, storage_options)

        def copied() -> Any:
            shared = _core.tree(states.states, where)
            copies = shared.to_containers("r", _core.Tied(), arrays.copied, lambda node, keys: node)
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
        """Restores the state of every object in `app_state`.

        A dense tensor that an object's ``state_dict()`` returns in a dict, list or tuple is filled
        in place if the saved tensor has the same dtype and shape. Tensors on the CPU are filled
        directly from the files. Tensors on other devices, and lazy conjugates and negatives, are
        filled through host memory, in groups of at most 64 MiB or a single larger tensor. The local
        parts of a DTensor or ShardedTensor are filled in place, too. Other tensors are created
        anew. ``load_state_dict()`` then sets the state.

        Args:
            app_state: As for `take`; it may have fewer entries than the snapshot.
            strict: Passed to modules' ``load_state_dict``.

        Raises:
            TypeError, RuntimeError: As for `take`.
            KeyError: If the snapshot lacks a key of `app_state`, or an entry belongs to other ranks
                only, because it is neither replicated nor sharded. No state has been changed.
            ValueError: If a DTensor or ShardedTensor has another shape than the saved tensor, or is
                real although the saved tensor is complex; or if a tensor to fill is read-only or
                expanded.
            UnsupportedError: If an entry is not supported, such as an object of an unknown class,
                or a tensor cannot be filled in place.
            CorruptFileError: If the bytes violate the format.
            FileNotFoundError, OSError: If the folder does not exist, or a system call failed.
            Exception: The exception of a ``state_dict()`` or ``load_state_dict()``.

        Example:
            >>> _ = Snapshot.take("run/snapshot", {"model": model})
            >>> Snapshot("run/snapshot").restore({"model": model})
        """
        ranks = groups_of(self.pg).calls

        def begin() -> tuple[int, Any]:
            check(app_state)
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
        # state_dict() may be collective, so all ranks restore the objects in the same order. Random
        # states are restored last, because restoring other objects may draw random numbers.
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
            path: A path that `get_manifest` lists: ``"0/model/weight"``, the rank first. The rank
                of a replicated or sharded entry may be any rank.
            obj_out: A tensor to fill, or for a container a container of tensors to fill, as in
                `restore`. None: new tensors. Ignored for values and sparse tensors.
            memory_budget_bytes: Maximum size of temporary memory for filling a tensor. None:
                64 MiB. Ignored for containers, and if `obj_out` is a DTensor or ShardedTensor.

        Returns:
            For a dense tensor: `obj_out`, or a new tensor of the entry's dtype and shape if
            `obj_out` is None. For other entries: the value or containers.

        Raises:
            KeyError: If the manifest has no such path; the exception is a RuntimeError, too.
            TypeError: If the entry is a dense tensor, and `obj_out` is neither None nor a tensor.
            ValueError: If `obj_out` has another shape, or is read-only or expanded, or if the entry
                is complex and `obj_out` is real.
            UnsupportedError: If the entry is not supported, such as an object of an unknown class,
                or `obj_out` cannot be filled in place.
            CorruptFileError: If the bytes violate the format.
            FileNotFoundError, OSError: If the folder does not exist, or a system call failed.

        Example:
            >>> snapshot = Snapshot.take("run/snapshot", {"model": model})
            >>> snapshot.read_object("0/model/encoder.bias").shape
            torch.Size([384])
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
        for position, piece in enumerate(pieces[:-1], 1):
            kind, node, *_ = node.describe(key_of(node, piece))
            if kind == "value":  # JSON: it contains no tensor
                return within(node, pieces[position:])
        key = key_of(node, pieces[-1])
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
        return read_tensor(
            node.item(key), path, described[1], described[2], obj_out, memory_budget_bytes
        )

    def get_manifest(self) -> dict[str, SnapshotEntry]:
        """Returns a dict from the path of each entry to the entry, a `SnapshotEntry`."""
        return {path: entry_of(fields) for path, fields in self._metadata()["manifest"].items()}

    def get_state_dict_for_key(self, key: str) -> Any:
        """Reads the saved state of one key of `app_state` into new tensors.

        Args:
            key: A key of `app_state`.

        Returns:
            The state dict, with the saved containers and values. A DTensor or ShardedTensor becomes
            one plain tensor with the elements of all shards.

        Raises:
            KeyError: If the snapshot has no such key for this rank, or an entry belongs to other
                ranks only. For a missing key, the exception is a RuntimeError, too.
            UnsupportedError: If an entry is not supported, such as an object of an unknown class.
            CorruptFileError: If the bytes violate the format.
            FileNotFoundError, OSError: If the folder does not exist, or a system call failed.

        Example:
            >>> snapshot = Snapshot.take("run/snapshot", {"model": model})
            >>> [*snapshot.get_state_dict_for_key("model")]
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

    def _metadata(self) -> dict[str, Any]:
        if self._document is None:
            self._document = read_manifest(self.path)
        return self._document

    def _rank_node(self, rank: int | None = None) -> tuple[int, Any]:
        """The rank whose entries this process reads, and the engine's node of these entries."""
        if rank is None:
            rank = rank_of(self.pg)
        world_size = self._metadata()["world_size"]
        # All ranks from `world_size` on read the same entries, so the engine needs no greater rank,
        # which int64 might not hold.
        node = _core.open_snapshot(self.path, min(rank, world_size))
        # A rank that did not exist when the snapshot was taken reads the containers of rank 0.
        return (rank if rank < world_size else 0), node

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
        # tensordict needs `_metadata` of its state dict to distinguish "a.b" from ("a", "b").
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
            # All ranks must write their snapshots in the same order.
            for thread in self._before:
                thread.join()
            self._before.clear()
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._work = None  # the copies are no longer needed

    def wait(self) -> Snapshot:
        """Waits until the snapshot is written, and returns it.

        Raises:
            Exception: The exception that writing the snapshot raised, as for `Snapshot.take`.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return Snapshot(self.path, self.pg)

    def done(self) -> bool:
        """True if `wait` would return or raise immediately."""
        return not self._thread.is_alive()


def _local(path: PathLike) -> str:
    text = os.fsdecode(path_argument("Snapshot(path)", path))
    if text.startswith("fs://"):
        return text[len("fs://") :]
    if "://" in text:
        raise UnsupportedError(
            f"{text}: expected the path of a local folder, found the URL of another storage"
        )
    return text


def _globs(replicated: Sequence[str] | None) -> list[str]:
    if replicated is None:
        return []
    is_list = isinstance(replicated, Iterable) and not isinstance(replicated, str)
    globs = list(replicated) if is_list else []
    if not is_list or not all(isinstance(glob, str) for glob in globs):
        raise TypeError(f"replicated: expected a list of globs, found {replicated!r}")
    return globs


def _request(
    groups: Groups,
    path: PathLike,
    app_state: dict[str, Stateful],
    replicated: Sequence[str] | None,
    storage_options: dict[str, Any] | None,
) -> tuple[str, list[str], Separated]:
    """Checks the arguments. Returns rank 0's path, and the globs and states of this rank."""
    ranks = groups.calls

    def begin() -> tuple[str, list[str]]:
        _refuse_options(storage_options)
        where = _local(path)
        globs = _globs(replicated)
        check(app_state)
        return where, globs + globs_of_ddp(app_state, escape)

    (where, globs), sent = ranks.run(
        "take", begin, lambda result: {"path": result[0], "keys": list(app_state)}
    )
    if sent[0]["path"] != where:
        warnings.warn(
            f"{where}: rank {ranks.rank}: expected the path of rank 0, found another path; "
            f"all ranks write to {sent[0]['path']}",
            stacklevel=3,
        )
    keys = {key: None for message in sent for key in message["keys"]}
    states = states_of(ranks, app_state, list(keys))
    separated, outsides = ranks.run(
        "take: states", lambda: Separated(states, escape), lambda made: made.outside
    )
    outside = set().union(*outsides)
    if outside:
        separated, _ = ranks.run("take: states", lambda: Separated(states, escape, outside))
    return sent[0]["path"], globs, separated


def _refuse_options(storage_options: dict[str, Any] | None) -> None:
    if storage_options:
        raise UnsupportedError(
            "snapshot: storage_options: expected none, because folders have no options, found "
            f"{sorted(storage_options)}"
        )


def _require_shared(node: Any, key: str) -> None:
    """Raises KeyNotFoundError if `key`, or an entry below it, belongs to other ranks only."""
    try:
        kind, *said = node.describe(key)
    except KeyNotFoundError:
        raise
    except (UnsupportedError, CorruptFileError):
        return  # reading the entry raises the error again
    if kind == "node":
        keys: list[str] = said[0].keys()
        for below in keys:
            _require_shared(said[0], below)

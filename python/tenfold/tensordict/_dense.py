"""`TensorDict`: a dict of entries, or a node of the engine that reads them on access."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from tenfold import _core, _pickle
from tenfold._errors import CorruptFileError, Error, KeyNotFoundError, with_remedy
from tenfold._interop import arrays
from tenfold._interop.node_info import NodeInfo
from tenfold._public import set_module
from tenfold.tensordict import _convert
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    KINDS,
    LEAF,
    TENSORCLASS,
    TENSORS,
    VALUE,
    WRAPPED,
    batch_size_of,
    device_name,
    node_of,
    read_entry,
    rewrapped,
)
from tenfold.tensordict._files.memmap import is_written
from tenfold.tensordict._node import (
    ON_DISK,
    PLAIN,
    Disk,
    Opened,
    own_key,
    with_class,
)
from tenfold.tensordict._ops.locking import check_unlocked, lock
from tenfold.tensordict._protocol import register_classes, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, overload

    from typing_extensions import Self

    from tenfold._interop.frameworks import Name
    from tenfold.tensordict._node import Opened
    from tenfold.tensordict._protocol import Index, Key


def _is_tensor(node: TensorDict, opened: Opened | None) -> bool:
    """True if `node` must be converted to the sparse or jagged tensor whose components it holds.

    `open` does not convert sparse tensors, because that would read all their indices.
    """
    if type(node) is not TensorDict or node._node_info.kind != "sparse":
        return False
    return opened is None or not opened.keeps_parts or node._node_info.layout == "jagged"


@set_module("tenfold")
class TensorDict(TensorDictBase):
    """A node of a tree: ordered keys, each naming a tensor, a value or another node.

    The shapes of all tensors of a node, and of the nodes below, begin with `batch_size`, except
    that of an UnbatchedTensor. An index that is not a key indexes the batch dimensions.

    Args:
        source: The entries; nested dicts become nodes.
        batch_size: Leading dimensions that all tensors share. Default: [], also for a `source` that
            has a batch size.
        device: The device to which tensors are moved; None: they are not moved.
        names: A name, or None, for each batch dimension.
        non_blocking: Ignored: copies between devices are synchronous.
        lock: Lock the TensorDict after its entries are set.
        **kwargs: The entries, instead of `source`.

    Raises:
        RuntimeError: If the shape of a tensor does not begin with `batch_size`, or torch does not
            know `device`.
        ValueError: If `source` is neither a mapping nor a TensorDict, or combined with keywords; if
            `batch_size` is neither an int nor a sequence of int; if the number of `names` is not
            the number of batch dimensions, or a name occurs twice.
        KeyError: If a key is neither a str nor a tuple of str.
        TypeError: If a name is neither a str nor None; if torch has no dtype for a numpy array,
            such as an array of str.

    Example:
        >>> td = TensorDict({"obs": torch.zeros(4, 3), "next": {"obs": torch.ones(4, 3)}}, [4])
        >>> td["next", "obs"].shape, td[1:3].batch_size
        (torch.Size([4, 3]), torch.Size([2]))
    """

    __slots__ = (
        "__weakref__",
        "_batch_size",
        "_consolidated",
        "_device",
        "_disk",
        "_entered",
        "_items",
        "_locked",
        "_names",
        "_node_info",
        "_undo",
    )

    def __init__(
        self,
        source: Mapping[str, Any] | TensorDictBase | None = None,
        batch_size: Any = None,
        device: Any = None,
        names: Any = None,
        non_blocking: bool | None = None,
        lock: bool = False,
        **kwargs: Any,
    ) -> None:
        if source is not None and kwargs:
            raise ValueError(
                f"TensorDict: expected a source or keywords, found both; keywords: {sorted(kwargs)}"
            )
        source = kwargs if source is None else source
        self._reset(batch_size_of(batch_size), device_name(device))
        if names is not None:
            self.names = names
        if not isinstance(source, Mapping) and node_of(source) is None:
            raise ValueError(
                "source: expected a dict or a TensorDict, found " + type(source).__name__
            )
        for key, value in source.items():
            self.set(key, value)
        if lock:
            self.lock_()

    def _reset(self, batch_size: tuple[int, ...], device: Any = None) -> None:
        self._batch_size = batch_size
        self._device = device
        self._disk: Disk | None = None
        self._items: dict[str, Any] = {}
        self._locked = False
        self._names: tuple[str | None, ...] | None = None
        self._node_info = PLAIN

    @classmethod
    def _made(cls, items: dict[str, Any], batch_size: tuple[int, ...], device: Any) -> TensorDict:
        """Creates a node in memory over the dict `items` itself, whose entries are not checked."""
        self = cls.__new__(cls)
        self._batch_size = batch_size
        self._device = device
        self._disk = None
        self._items = items
        self._locked = False
        self._names = None
        self._node_info = PLAIN
        return self

    @classmethod
    def _from_native(
        cls, native: Any, opened: Opened | None, keys_above: tuple[str, ...] = ()
    ) -> Any:
        """Creates a TensorDict, lazy stack or tensorclass over a node of the engine.

        The entries are read on access.
        """
        info = native.info()
        if info.kind == "lazy_stack":
            return stacked()._from_disk(native, info, opened, keys_above)
        self = cls.__new__(cls)
        self._use_info(info)
        self._disk = Disk(native, opened, keys_above)
        self._items = {}
        self._locked = False
        return with_class(self) if info.kind == "tensorclass" else self

    def _use_info(self, info: NodeInfo) -> None:
        self._batch_size = info.batch_size
        self._names = info.names or None
        self._device = info.device or None
        self._node_info = info

    def _info(self) -> NodeInfo:
        names = tuple(self._names or ())
        if names and len(names) != len(self._batch_size):
            raise ValueError(  # no reader would accept them
                f"names: expected one for each of {len(self._batch_size)} batch dimensions, "
                f"found {list(names)}; assign other names"
            )
        return self._node_info._replace(
            batch_size=tuple(self._batch_size),
            names=names,
            device=str(self._device or ""),
        )

    def _like(self, items: dict[str, Any], batch_size: tuple[int, ...]) -> TensorDict:
        """Creates a node in memory with the device and kind of this node.

        The new node has no names, schema or metadata.
        """
        made = self._made(items, batch_size, self._device)
        if self._node_info is not PLAIN:
            made._node_info = self._node_info._replace(schema=None, metadata={})
        return made

    def _with_entries(self, items: dict[str, Any]) -> TensorDict:
        made = self._like(items, self._batch_size)
        made._names = self._names
        return made

    # --- entries on disk -------------------------------------------------------------------------

    @property
    def _opened(self) -> Opened | None:
        return None if self._disk is None else self._disk.opened

    def _child(self, key: str, native: Any) -> TensorDict:
        disk = self._disk
        assert disk is not None
        child: TensorDict = TensorDict._from_native(native, disk.opened, (*disk.keys_above, key))
        if self._locked:
            lock(child, self)
        return child

    def _adopted(self, key: str, value: Any, mark: Any) -> Any:
        """Creates the entry for a value that the engine returned."""
        if isinstance(value, _core.Node):
            child = self._child(key, value)
            return self._tensor_of(value, child) if _is_tensor(child, self._opened) else child
        return read_entry(value, mark, self)

    def _tensor_of(self, native: Any, child: TensorDict) -> Any:
        """Makes one sparse or jagged tensor from its components in `native`.

        Returns `child` if the components are numpy arrays.
        """
        disk = self._disk
        assert disk is not None
        made = native.to_containers(disk.mode, disk.tied(), None, lambda node, keys: node)
        return child if isinstance(made, dict) else made

    def _fetch(self, key: str) -> Any:
        """Reads one entry of the engine's node. Raises KeyNotFoundError if there is none."""
        disk = self._disk
        if disk is not None and self._is_on_disk(key):
            return self._entry(self._key_list()[0])
        if disk is None or (disk.whole and key not in self._items):
            keys = ", ".join(repr(known) for known in self._items)
            error = KeyNotFoundError(f'no key "{key}": expected one of [{keys}]')
            raise self._with_nested_key(error, key)
        try:
            value, mark = disk.node.get(key, disk.mode, disk.tied())
        except KeyNotFoundError as error:
            raise self._with_nested_key(error, key) from None
        value = self._items[key] = self._adopted(key, value, mark)
        return value

    def _with_nested_key(self, error: KeyNotFoundError, key: str) -> KeyNotFoundError:
        """The error for a missing key.

        If `key` has a dot and the part before the first dot is a key of this node, the message
        contains the tuple to use instead.
        """
        path = tuple(key.split("."))
        if len(path) == 1 or path[0] not in self._key_list():
            return error
        return with_remedy(error, f"a nested key is a tuple: {path}")

    def _is_on_disk(self, key: str) -> bool:
        """True if the file has one unnamed entry (`is_bare`), and `key` is the stem of its name."""
        opened = self._opened
        if opened is None or not self._node_info.is_bare:
            return False
        keys = self._key_list()
        stem, _ = os.path.splitext(os.path.basename(opened.path))
        return len(keys) == 1 and key not in keys and key == stem

    def _entries(self) -> dict[str, Any]:
        disk = self._disk
        return self._items if disk is None else self._fill(disk)

    def _fill(self, disk: Disk) -> dict[str, Any]:
        """Returns all entries; if some are not loaded, one call of the engine reads them."""
        kept = self._items
        if disk.whole and not any(value is ON_DISK for value in kept.values()):
            return kept
        fetched, marks = disk.node.fill(disk.mode, disk.tied())
        if disk.whole:
            for key, value in kept.items():
                if value is ON_DISK:
                    kept[key] = self._adopted(key, fetched[key], marks.get(key))
            return kept
        for key, value in fetched.items():
            fetched[key] = kept[key] if key in kept else self._adopted(key, value, marks.get(key))
        self._items = fetched
        disk.whole = True
        return self._items

    def _own(self) -> dict[str, Any]:
        """Returns the dict of entries for a change. Raises RuntimeError if the node is locked."""
        if self._locked:
            check_unlocked(self)
        self._mark_changed()
        return self._items

    def _mark_changed(self) -> None:
        disk = self._disk
        if disk is None:
            return
        if not disk.whole:
            keys, fetched = disk.node.keys(), self._items
            self._items = {key: fetched.get(key, ON_DISK) for key in keys}
            disk.whole = True
        disk.changed = True
        if disk.opened is not None:
            disk.opened.changed = True

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: str) -> Any: ...
        @overload
        def __getitem__(self, key: tuple[str, ...]) -> Any: ...
        @overload
        def __getitem__(self, key: Index) -> Self: ...

    def __getitem__(self, key: Any) -> Any:
        # A fast path for loaded entries, without a call for each key of a path.
        if type(key) is str:
            value = self._items.get(key, ON_DISK)
            if value is ON_DISK:
                value = self._fetch(key)
            return value._unwrapped() if type(value) in WRAPPED else value
        if type(key) is tuple and key:
            found: Any = self
            for part in key:
                if type(part) is not str or type(found) is not TensorDict:
                    break
                found = found._items.get(part, ON_DISK)
            else:
                if found is not ON_DISK:
                    return found._unwrapped() if type(found) in WRAPPED else found
        return super().__getitem__(key)

    def set(
        self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False
    ) -> Self:
        # The common cases first: a tensor that fits, and a path through loaded nodes.
        if type(item) in TENSORS and type(key) is str and not inplace:
            batch_size = self._batch_size
            if not (self._locked or self._disk or self._device) and (
                not batch_size or _begins_with(item, batch_size)
            ):
                self._items[key] = item
                return self
        elif type(key) is tuple and len(key) > 1 and type(key[0]) is str:
            child = self._items.get(key[0])
            if type(child) is TensorDict:
                below = key[1] if len(key) == 2 else key[1:]
                child.set(below, item, inplace, non_blocking=non_blocking)
                return self
        return super().set(key, item, inplace, non_blocking=non_blocking)

    # --- primitives ------------------------------------------------------------------------------

    def _entry(self, key: str) -> Any:
        value = self._items.get(key, ON_DISK)
        return self._fetch(key) if value is ON_DISK else value

    def _put(self, key: str, entry: Any) -> None:
        self._own()[key] = entry

    def _put_locked(self, key: str, entry: Any) -> None:
        if self._locked and is_written(self, key, entry):
            self._items[key] = entry
            return
        locked, self._locked = self._locked, False
        try:
            self._own()[key] = entry
        finally:
            self._locked = locked

    def _remove(self, key: str) -> None:
        del self._own()[key]

    def _held(self) -> Any:
        return [entry for entry in self._items.values() if entry is not ON_DISK]

    def _has(self, key: str) -> bool:
        disk = self._disk
        if key in self._items:
            return True
        return disk is not None and (self._is_on_disk(key) if disk.whole else key in disk.node)

    def _key_list(self) -> list[str]:
        disk = self._disk
        return list(self._items) if disk is None or disk.whole else list(disk.node.keys())

    def _kinds(self, *, shows_damaged: bool = False) -> Iterator[tuple[str, str, Any]]:
        disk = self._disk
        described = {} if disk is None else _described(disk.node, shows_damaged)
        for key in self._key_list():
            value = self._items.get(key, ON_DISK)
            if value is ON_DISK:
                kind, *rest = described[key]
                if kind == "node":
                    value = self._items[key] = self._adopted(key, rest[0], None)
                    node = node_of(value)
                    yield key, "tensor" if node is None else "node", node
                else:
                    yield key, str(kind), tuple(rest)
            elif KINDS[type(value)] == LEAF:
                yield key, "tensor", None
            elif KINDS[type(value)] == VALUE:
                is_value = getattr(value, "_is_non_tensor", False)
                yield key, "value" if is_value else "tensor", None
            else:
                yield key, "node", node_of(value)

    def _each(
        self,
        change: Callable[[Any], Any],
        batch_size: tuple[int, ...],
        names: tuple[str | None, ...] | None = None,
    ) -> TensorDict:
        items = {
            key: value._through(change, batch_size) if type(value) in WRAPPED else change(value)
            for key, value in self._entries().items()
        }
        made = self._like(items, batch_size)
        made._names = names
        return made

    def _valued(self, change: Callable[[Any], Any]) -> TensorDict:
        items: dict[str, Any] = {}
        for key, value in self._entries().items():
            kind = KINDS[type(value)]
            if kind == LEAF:
                items[key] = change(value)
            elif kind == TENSORCLASS:
                items[key] = rewrapped(value, value._tensordict._valued(change))
            else:
                items[key] = value._valued(change)
        return self._with_entries(items)

    def _in_place(self, change: Callable[[Any], Any]) -> TensorDict:
        for value in self._entries().values():
            kind = KINDS[type(value)]
            if kind == LEAF:
                change(value)
            elif kind == VALUE:
                value._valued(change)
            else:
                node_of(value)._in_place(change)
        return self

    def _replace_arrays(self, replace: Callable[[Any], Any]) -> None:
        """Replaces every tensor here and below by `replace(tensor)`."""
        items = self._entries()
        for key, value in items.items():
            kind = KINDS[type(value)]
            if kind == LEAF:
                items[key] = replace(value)
            elif kind == VALUE:
                items[key] = value._valued(replace)
            else:
                node_of(value)._replace_arrays(replace)

    def _as_container(self, entries: dict[Any, Any]) -> Any:
        info = self._node_info
        kind = info.kind
        if kind == "tensordict":
            return entries
        if kind == "list":
            return list(entries.values())
        if kind == "tuple":
            return tuple(entries.values())
        if kind in ("sparse", "opaque"):
            from tenfold._interop import objects

            if kind == "opaque":
                return objects.opaque(info.class_name, entries)
            return objects.sparse(info.layout, info.dense_shape, info.is_coalesced, entries)
        int_keys = info.int_keys
        if int_keys:
            entries = {own_key(int_keys, key): value for key, value in entries.items()}
        if kind == "ordered_dict":
            from collections import OrderedDict

            made = OrderedDict(entries)
            if info.module_versions is not None:
                import json

                versions = json.loads(info.module_versions)
                made._metadata = OrderedDict(versions)  # type: ignore[attr-defined]
            return made
        return entries

    # --- copies and files ------------------------------------------------------------------------

    def _simplified(self) -> tuple[Any, ...]:
        disk = self._disk
        if disk is not None and not disk.changed:
            # Use the entries that Python has loaded, because they may have been written to.
            held = self._items.items()
            return (
                "native",
                disk.node,
                {key: value for key, value in held if value is not ON_DISK},
            )
        keys = self._key_list()
        values = [
            disk.node.item(key) if disk is not None and value is ON_DISK else value
            for key, value in self._items.items()
        ]
        return ("node", self._info(), keys, values)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        disk = self._disk
        opened = None if disk is None else disk.opened
        if disk is not None and opened is not None and not opened.changed:
            above = (disk.keys_above, opened.framework, bool(self._locked))
            return _pickle.opened_tree, (*opened.place(), *above)
        if getattr(self, "_consolidated", None) is not None and self.is_consolidated():
            from tenfold.tensordict._files import consolidated

            return consolidated.reduced(self)
        state = (type(self), dict(self._entries()), tuple(self._info()))
        return _pickle.tensordict, (*state, bool(self._locked))

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorDict:
        from copy import deepcopy

        return rebuilt(type(self), deepcopy(dict(self._entries()), memo), self._info())


def _begins_with(tensor: Any, batch_size: tuple[int, ...]) -> bool:
    try:
        return bool(tensor.shape[: len(batch_size)] == batch_size)
    except RuntimeError:
        return False  # a nested tensor has no shape


def rebuilt(
    cls: type[TensorDict], items: dict[str, Any], info: NodeInfo, locked: bool = False
) -> TensorDict:
    """Creates a node in memory from the entries and info of a pickled or copied node."""
    made = cls._made(items, (), None)
    made._use_info(info)
    if locked:
        lock(made, None)
    return made


def reopen(
    path: str,
    mode: str,
    format: str,
    keeps_parts: bool,
    identity: tuple[int, int] | None,
    keys: tuple[str, ...],
    framework: Name | None,
    locked: bool,
) -> Any:
    """Opens the file or folder of a pickled TensorDict again; returns its node at `keys`.

    Raises OSError if the file at `path`, or the meta.json of the folder, was replaced since that
    TensorDict was opened.
    """
    opened = Opened(path, mode, format, keeps_parts, framework)
    if opened.identity is not None and opened.identity != identity:
        problem = "it was replaced or changed since it was opened; open it again"
        raise OSError(errno.ESTALE, problem, path)
    node: Any = TensorDict._from_native(_core.open(path, mode, format), opened)
    for key in keys:
        node = node_of(node)
        members = getattr(node, "tensordicts", None)
        node = node._entry(key) if members is None else members[int(key)]
    node = node_of(node)  # a pickled tensorclass consists of its class and this node
    if locked:
        lock(node, None)
    return node


register_classes(dense=TensorDict)
arrays.on_torch(_convert.register)  # lets torch traverse TensorDicts as pytrees


def _described(node: Any, shows_damaged: bool) -> dict[str, tuple[Any, ...]]:
    """The descriptions of all entries of the engine's node."""
    try:
        return dict(node.describe_all())
    except (Error, OSError):
        if not shows_damaged:
            raise
    keys: list[str] = node.keys()
    return {key: _description(node, key) for key in keys}


def _description(node: Any, key: str) -> tuple[Any, ...]:
    try:
        found: tuple[Any, ...] = node.describe(key)
    except CorruptFileError as error:
        return ("damaged", str(error))
    except (Error, OSError) as error:
        return ("refused", str(error))
    return found

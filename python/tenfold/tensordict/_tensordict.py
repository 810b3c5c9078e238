"""`TensorDict`: nested keys, batch indexing, and what is still on disk until it is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from tenfold import _arrays, _core
from tenfold._errors import KeyNotFoundError, UnsupportedError
from tenfold.tensordict import _indexing, _repr
from tenfold.tensordict._entry import as_entry, batch_size_of
from tenfold.tensordict._opened import Opened, reopen
from tenfold.tensordict._saving import Marked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Key = str | tuple[str, ...]

# Stands in a node's dict for an entry that is still on disk.
_ON_DISK = object()


class TensorDict:
    """A node of a tree: ordered keys, each naming a tensor, a JSON value or another node.

    All tensors of a node, and of the nodes below, begin with the dimensions `batch_size`; indexing
    with anything but keys indexes those dimensions of every tensor.

    Args:
        source: The entries; nested dicts become nodes.
        batch_size: Leading dimensions that all tensors share. Default: none.
        device: Where tensors are moved to; None leaves them where they are.

    Example:
        >>> td = TensorDict({"obs": torch.zeros(4, 3), "next": {"obs": torch.ones(4, 3)}}, [4])
        >>> td["next", "obs"].shape, td[1:3].batch_size
        (torch.Size([4, 3]), torch.Size([2]))
    """

    __slots__ = (
        "__weakref__",
        "_batch_size",
        "_changed",
        "_class_name",
        "_device",
        "_int_keys",
        "_items",
        "_keys_above",
        "_kind",
        "_marks",
        "_metadata",
        "_names",
        "_native",
        "_opened",
        "_schema",
        "_stack_dim",
        "_stack_dim_name",
        "_whole",
    )

    def __init__(
        self,
        source: Mapping[str, Any] | TensorDict | None = None,
        batch_size: Any = None,
        device: Any = None,
    ) -> None:
        if batch_size is None and isinstance(source, TensorDict):
            batch_size = source.batch_size
        self._reset("tensordict", batch_size_of(batch_size), device)
        if source is None:
            return
        if not isinstance(source, (Mapping, TensorDict)):
            raise ValueError(
                "source: expected a dict or a TensorDict, found " + type(source).__name__
            )
        for key, value in source.items():
            self.set(key, value)

    def _reset(self, kind: str, batch_size: tuple[int, ...], device: Any = None) -> None:
        self._native: Any = None  # the engine's node, or None in memory
        self._opened: Opened | None = None
        self._keys_above: tuple[str, ...] = ()
        self._items: dict[str, Any] = {}
        self._whole = True  # _items holds every key, in order
        self._changed = False  # the engine's node no longer says which entries there are
        self._marks: dict[str, Any] = {}
        self._kind = kind
        self._int_keys = False
        self._batch_size = batch_size
        self._names: list[str | None] = []
        self._class_name = ""
        self._stack_dim = 0
        self._stack_dim_name: str | None = None
        self._device = "" if device is None else str(device)
        self._schema: str | None = None  # JSON text
        self._metadata: dict[str, str] = {}

    @classmethod
    def _from_native(
        cls, native: Any, opened: Opened | None, keys_above: tuple[str, ...] = ()
    ) -> TensorDict:
        """A node of the engine, whose entries are fetched when they are asked for."""
        self = cls.__new__(cls)
        self._native = native
        self._opened = opened
        self._keys_above = keys_above
        self._items = {}
        self._whole = False
        self._changed = False
        self._marks = {}
        (
            self._kind,
            self._int_keys,
            self._batch_size,
            self._names,
            self._class_name,
            self._stack_dim,
            self._stack_dim_name,
            self._device,
            self._schema,
            self._metadata,
        ) = native.info()
        return self

    def _like(self, batch_size: tuple[int, ...]) -> TensorDict:
        """An empty node in memory that is otherwise as this one."""
        made = type(self).__new__(type(self))
        made._reset(self._kind, batch_size)
        made._int_keys = self._int_keys
        made._class_name = self._class_name
        made._stack_dim = self._stack_dim
        made._stack_dim_name = self._stack_dim_name
        made._device = self._device
        return made

    def _info(self) -> tuple[Any, ...]:
        return (
            self._kind,
            self._int_keys,
            self._batch_size,
            self._names,
            self._class_name,
            self._stack_dim,
            self._stack_dim_name,
            self._device,
            self._schema,
            self._metadata,
        )

    # --- entries -------------------------------------------------------------------------------

    def _mode(self) -> str:
        return "r" if self._opened is None else self._opened.mode

    def _tied(self) -> Any:
        return _core.Tied() if self._opened is None else self._opened.tied

    def _child(self, key: str, native: Any) -> TensorDict:
        return TensorDict._from_native(native, self._opened, (*self._keys_above, key))

    def _fetch(self, key: str) -> Any:
        """Reads one entry of the engine's node."""
        value, mark = self._native.get(key, self._mode(), self._tied())
        if isinstance(value, _core.Node):
            value = self._child(key, value)
        if mark is not None:
            self._marks[key] = mark
        self._items[key] = value
        return value

    def _fill(self) -> dict[str, Any]:
        """All entries, those still on disk by one call of the engine."""
        if self._native is None:
            return self._items
        fetched, marks = self._native.fill(self._mode(), self._tied())
        kept = self._items
        if self._whole:
            for key, value in kept.items():
                if value is _ON_DISK:
                    kept[key] = self._adopted(key, fetched[key], marks)
        else:
            for key, value in fetched.items():
                fetched[key] = kept[key] if key in kept else self._adopted(key, value, marks)
            self._items = fetched
        self._whole = True
        return self._items

    def _adopted(self, key: str, value: Any, marks: dict[str, Any]) -> Any:
        if key in marks:
            self._marks[key] = marks[key]
        return self._child(key, value) if isinstance(value, _core.Node) else value

    def _replace_arrays(self, replace: Callable[[Any], Any]) -> None:
        """Puts `replace(tensor)` in the place of every tensor."""
        items = self._fill()
        for key, value in items.items():
            if isinstance(value, TensorDict):
                value._replace_arrays(replace)
            elif _arrays.is_array(value):
                items[key] = replace(value)

    def _own(self) -> dict[str, Any]:
        """The dict of entries, about to be changed."""
        if not self._whole:
            fetched = self._items
            self._items = {key: fetched.get(key, _ON_DISK) for key in self._names_of_entries()}
            self._whole = True
        self._changed = True
        if self._opened is not None:
            self._opened.changed = True
        return self._items

    def _entry(self, key: str) -> Any:
        value = self._items.get(key, _ON_DISK)
        if value is not _ON_DISK:
            return value
        if self._native is not None and (not self._whole or key in self._items):
            return self._fetch(key)
        keys = ", ".join(repr(known) for known in self._items)
        raise KeyNotFoundError(f'no key "{key}": expected one of [{keys}]')

    def _walk(self, path: tuple[str, ...]) -> Any:
        value: Any = self
        for depth, key in enumerate(path):
            if not isinstance(value, TensorDict):
                above = ".".join(path[:depth])
                raise KeyNotFoundError(
                    f'"{above}" is a {type(value).__name__}: expected a node with an entry "{key}"'
                )
            value = value._entry(key)
        return value

    def get(self, key: Key, default: Any = None) -> Any:
        """The entry of a key or of a path of keys; `default` if there is none."""
        try:
            return self._walk(_path(key))
        except KeyError:
            return default

    def set(self, key: Key, value: Any) -> TensorDict:
        """Adds an entry, or replaces it; nodes on the way are made. Returns this TensorDict.

        Numbers and lists of numbers become tensors, dicts become nodes, str and None stay values.

        Raises:
            RuntimeError: If the shape of a tensor does not begin with the batch size.
        """
        path = _path(key)
        if len(path) > 1:
            child = self.get(path[0])
            if not isinstance(child, TensorDict):
                child = TensorDict(batch_size=self._batch_size, device=self._device or None)
                self._put(path[0], child)
            child.set(path[1:], value)
            return self
        self._put(path[0], value)
        return self

    def _put(self, key: str, value: Any) -> None:
        entry, mark = as_entry(key, value, self._batch_size, self._device)
        items = self._own()
        items[key] = entry
        self._marks.pop(key, None)
        if mark is not None:
            self._marks[key] = mark

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return self._entry(key)
        if _is_path(key):
            return self._walk(key)
        return self._indexed(_indexing.normalized(key, len(self._batch_size)))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, str) or _is_path(key):
            self.set(key, value)
            return
        index = _indexing.normalized(key, len(self._batch_size))
        for name, entry in self._fill().items():
            if isinstance(entry, TensorDict) or (
                _arrays.is_array(entry) and self._marks.get(name) != "unbatched"
            ):
                entry[index] = value[name]

    def __delitem__(self, key: Key) -> None:
        path = _path(key)
        node = self._walk(path[:-1])
        node._entry(path[-1])
        del node._own()[path[-1]]
        node._marks.pop(path[-1], None)

    def __contains__(self, key: object) -> bool:
        if not (isinstance(key, str) or _is_path(key)):
            return False
        *above, last = _path(key)
        try:
            node = self._walk(tuple(above))
        except KeyError:
            return False
        return isinstance(node, TensorDict) and node._has(last)

    def _has(self, key: str) -> bool:
        return key in self._items or (not self._whole and key in self._native)

    def _names_of_entries(self) -> list[str]:
        return list(self._items) if self._whole else self._native.keys()

    # --- views of the entries --------------------------------------------------------------------

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """Keys in order; `include_nested`: also paths of keys; `leaves_only`: of tensors."""
        if not include_nested and not leaves_only:
            return self._names_of_entries()
        found: list[Any] = []
        for key, kind, child in self._kinds():
            if kind == "node" and include_nested:
                found.extend((key, *_path(below)) for below in child.keys(True, leaves_only))
            if kind == "tensor" or not leaves_only:
                found.append(key)
        return found

    def values(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """The entries of `keys(...)`."""
        return [value for _, value in self.items(include_nested, leaves_only)]

    def items(
        self, include_nested: bool = False, leaves_only: bool = False
    ) -> list[tuple[Any, Any]]:
        """Pairs of key and entry, as `keys(...)` and `values(...)`."""
        entries = self._fill()
        if not include_nested and not leaves_only:
            return list(entries.items())
        return [(key, self._walk(_path(key))) for key in self.keys(include_nested, leaves_only)]

    def _kinds(self) -> Iterator[tuple[str, str, Any]]:
        """(key, "tensor" | "value" | "node", node or description), reading no tensor."""
        described = {} if self._native is None else dict(self._native.describe_all())
        for key in self._names_of_entries():
            value = self._items.get(key, _ON_DISK)
            if value is _ON_DISK:
                kind, *rest = described[key]
                if kind == "node":
                    value = self._items[key] = self._child(key, rest[0])
                    yield key, "node", value
                else:
                    yield key, str(kind), tuple(rest)
            elif isinstance(value, TensorDict):
                yield key, "node", value
            else:
                yield key, "tensor" if _arrays.is_array(value) else "value", None

    # --- batch dimensions ------------------------------------------------------------------------

    @property
    def batch_size(self) -> Any:
        """The leading dimensions that all tensors share."""
        return _arrays.batch_shape(self._batch_size)

    @property
    def shape(self) -> Any:
        """The batch size."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    @property
    def ndim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def dim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def size(self, dim: int | None = None) -> Any:
        """The batch size, or one of its dimensions."""
        return self.batch_size if dim is None else self._batch_size[dim]

    def numel(self) -> int:
        """The number of rows: the product of the batch size, at least 1."""
        count = 1
        for length in self._batch_size:
            count *= length
        return max(1, count)

    @property
    def names(self) -> list[str | None]:
        """A name, or None, for each batch dimension."""
        return list(self._names) or [None] * len(self._batch_size)

    @property
    def device(self) -> Any:
        """The device that the tensors were said to be on; None if nobody said."""
        if not self._device:
            return None
        torch = _arrays.torch_or_none()
        return self._device if torch is None else torch.device(self._device)

    def __len__(self) -> int:
        return self._batch_size[0] if self._batch_size else 0

    def __bool__(self) -> bool:
        raise RuntimeError(
            "a TensorDict is neither true nor false: expected len(td.keys()) or td.is_empty()"
        )

    def __iter__(self) -> Iterator[TensorDict]:
        if not self._batch_size:
            raise TypeError(
                "iteration over a 0-d TensorDict: expected a batch dimension, found batch_size []; "
                "use keys(), values() or items()"
            )
        return (self[row] for row in range(self._batch_size[0]))

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the columns of a data set mean, a JSON value of the root; None if nothing is said.

        It is stored with the tree (a folder's notes) and changes nothing about its entries.
        """
        return None if self._schema is None else json.loads(self._schema)

    @schema.setter
    def schema(self, schema: dict[str, Any] | None) -> None:
        self._schema = None if schema is None else json.dumps(schema)
        self._own()

    @property
    def metadata(self) -> dict[str, str]:
        """What people put into safetensors' ``__metadata__``; a folder keeps it in its notes.

        Of a root; assign a dict of str to change it.
        """
        return dict(self._metadata)

    @metadata.setter
    def metadata(self, metadata: Mapping[str, str]) -> None:
        for key, text in metadata.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise TypeError(f"metadata: expected str to str, found {key!r}: {text!r}")
        self._metadata = dict(metadata)
        self._own()

    def is_empty(self) -> bool:
        """True if there is no tensor in it or below."""
        return not self.keys(True, True)

    def _indexed(self, index: tuple[Any, ...]) -> TensorDict:
        return self._indexed_rows(index, self._batch_size)

    def _indexed_rows(self, index: tuple[Any, ...], batch_size: tuple[int, ...]) -> TensorDict:
        """This node for an index of `batch_size`, the batch size of the node that was indexed."""
        below = self._batch_size[len(batch_size) :]
        made = self._like(_indexing.indexed_shape(batch_size, index) + below)
        if self._names:
            made._names = _indexing.indexed_names(self._names, index, len(self._batch_size))
        for key, value in self._fill().items():
            mark = self._marks.get(key)
            if isinstance(value, TensorDict):
                value = value._indexed_rows(index, batch_size)
            elif _arrays.is_array(value):
                value = value if mark == "unbatched" else value[index]
            elif mark is not None:
                if mark != 0:
                    raise UnsupportedError(
                        f'key "{key}": a stack of values can be indexed along dimension 0 only: '
                        f"expected stack_dim 0, found {mark}"
                    )
                value = _indexing.indexed_stack(value, batch_size, index)
                mark = mark if isinstance(value, list) else None
            made._items[key] = value
            if mark is not None:
                made._marks[key] = mark
        return made

    # --- files -----------------------------------------------------------------------------------

    def is_memmap(self) -> bool:
        """True for a node of an opened file in which nothing was set or deleted."""
        return self._opened is not None and not self._opened.changed

    @property
    def saved_path(self) -> Path:
        """The file, or the node's own folder, that this was opened from."""
        from pathlib import Path

        if self._opened is None:
            raise AttributeError("this TensorDict is in memory: it has no saved path")
        path = Path(self._opened.path)
        return path.joinpath(*self._keys_above) if path.is_dir() else path

    def save(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """`tenfold.save` of this tree."""
        from tenfold import _io

        return _io.save(self, path, **options)

    def memmap(self, prefix: str | os.PathLike[str], *, num_threads: int = 0) -> TensorDict:
        """Writes exactly the files that tensordict's `memmap` writes; returns them, opened "r+".

        No checksums, no notes, not forced to the device: `save` does all that. The folder appears
        whole, or not at all.

        Raises:
            UnsupportedError: If tensordict could not hold the tree; the message names the key.
        """
        node = _core.memmap(_core.tree(self, os.fsdecode(prefix)), prefix, num_threads)
        return TensorDict._from_native(node, Opened(os.fsdecode(prefix), "r+", "memmap"))

    def memmap_like(self, prefix: str | os.PathLike[str]) -> TensorDict:
        """The same tree with zeros for tensors, in files that are preallocated, opened "r+"."""
        node = _core.memmap_like(_core.tree(self, os.fsdecode(prefix)), prefix)
        return TensorDict._from_native(node, Opened(os.fsdecode(prefix), "r+", "memmap"))

    def flush(self) -> None:
        """Writes what was changed through mode "r+" to the device (fdatasync)."""
        if self._mode() != "r+":
            raise ValueError(
                f'flush: nothing is written through: expected mode "r+", found "{self._mode()}"'
            )
        self._native.flush()

    def to_dict(self) -> Any:
        """The tree as plain containers: a dict, or the list or tuple that a node was saved from."""
        entries: dict[Any, Any] = {
            key: value.to_dict() if isinstance(value, TensorDict) else value
            for key, value in self._fill().items()
        }
        if self._kind in ("list", "lazy_stack"):
            return list(entries.values())
        if self._kind == "tuple":
            return tuple(entries.values())
        if self._int_keys:
            entries = {int(key): value for key, value in entries.items()}
        if self._kind == "ordered_dict":
            from collections import OrderedDict

            return OrderedDict(entries)
        return entries

    def _simplified(self) -> tuple[Any, ...]:
        """What `tenfold._simplify.simplify` answers for this node."""
        if self._native is not None and not self._changed:
            overrides = {key: self._marked(key, value) for key, value in self._touched()}
            return ("native", self._native, overrides)
        keys = self._names_of_entries()
        values = []
        for key in keys:
            value = self._items.get(key, _ON_DISK)
            on_disk = value is _ON_DISK
            values.append(self._native.item(key) if on_disk else self._marked(key, value))
        return ("node", self._info(), keys, values)

    def _touched(self) -> Iterator[tuple[str, Any]]:
        """What Python holds of it already and may have written into."""
        return ((key, value) for key, value in self._items.items() if value is not _ON_DISK)

    def _marked(self, key: str, value: Any) -> Any:
        return Marked(value, self._marks[key]) if key in self._marks else value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        opened = self._opened
        if opened is not None and not opened.changed:
            return reopen, (
                opened.path,
                opened.mode,
                opened.format,
                opened.identity,
                self._keys_above,
            )
        return _rebuilt, (dict(self._fill()), self._marks, self._info())

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorDict:
        from copy import deepcopy

        return _rebuilt(deepcopy(dict(self._fill()), memo), dict(self._marks), self._info())

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _repr.html(self)


def _rebuilt(items: dict[str, Any], marks: dict[str, Any], info: tuple[Any, ...]) -> TensorDict:
    made = TensorDict.__new__(TensorDict)
    made._reset(info[0], tuple(info[2]), info[7] or None)
    made._int_keys, made._names, made._class_name = info[1], list(info[3]), info[4]
    made._stack_dim, made._stack_dim_name, made._schema = info[5], info[6], info[8]
    made._metadata = dict(info[9])
    made._items = items
    made._marks = marks
    return made


def _is_path(key: object) -> bool:
    return isinstance(key, tuple) and bool(key) and all(isinstance(part, str) for part in key)


def _path(key: Any) -> tuple[str, ...]:
    if isinstance(key, str):
        return (key,)
    if _is_path(key):
        return tuple(key)
    raise TypeError(f"key: expected a str or a tuple of str, found {key!r}")

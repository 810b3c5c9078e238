"""`LazyStackedTensorDict`: TensorDicts side by side, stacked when an entry is asked for."""

from __future__ import annotations

from tenfold import _pickle
from tenfold._errors import KeyNotFoundError
from tenfold._public import set_module
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    LEAF,
    NODE,
    TENSORCLASS,
    VALUE,
    class_kind,
    node_of,
    rewrapped,
)
from tenfold.tensordict._lazy_members import LazyMemberMethods
from tenfold.tensordict._lazy_shape import LazyShapeMethods
from tenfold.tensordict._node import PLAIN, Disk, NodeInfo
from tenfold.tensordict._tensorclass import registry
from tenfold.tensordict._torch import need_torch
from tenfold.tensordict._values import NonTensorData, NonTensorStack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tenfold.tensordict._opened import Opened


@set_module("tenfold")
class LazyStackedTensorDict(LazyMemberMethods, LazyShapeMethods, TensorDictBase):
    """A stack of TensorDicts that keeps its members, whose keys and shapes may differ.

    Entries are stacked when they are read; what is written is taken apart. Its keys are those that
    all members have. A folder holds each member in a sub-folder of its own: ``0/``, ``1/``, ...

    Args:
        *tensordicts: The members, of one batch size.
        stack_dim: The new batch dimension.
        stack_dim_name: Its name.

    Raises:
        RuntimeError: If there is no member, or their numbers of batch dimensions differ.

    Example:
        >>> stack = LazyStackedTensorDict(*[TensorDict({"a": torch.zeros(n)}) for n in (1, 2)])
        >>> stack.batch_size, stack[1]["a"].shape
        (torch.Size([2]), torch.Size([2]))
    """

    __slots__ = (
        "__weakref__",
        "_consolidated",
        "_dim_name",
        "_disk",
        "_kind",
        "_locked",
        "_read",
        "_undo",
        "stack_dim",
    )

    def __init__(
        self, *tensordicts: Any, stack_dim: int = 0, stack_dim_name: str | None = None
    ) -> None:
        if not tensordicts:
            raise RuntimeError("lazy stack: expected at least one TensorDict, found none")
        ndims = sorted({len(member.batch_size) for member in tensordicts})
        if len(ndims) > 1:
            raise RuntimeError(
                f"lazy stack: expected members of one number of batch dimensions, found {ndims}"
            )
        at = stack_dim + ndims[0] + 1 if stack_dim < 0 else stack_dim
        if not 0 <= at <= ndims[0]:
            raise RuntimeError(
                f"lazy stack: expected a stack_dim from {-ndims[0] - 1} to {ndims[0]}, "
                f"found {stack_dim}"
            )
        self._use(list(tensordicts), at, stack_dim_name)

    def _use(self, members: list[Any] | None, stack_dim: int, name: str | None) -> None:
        self._read: list[Any] | None = members
        self.stack_dim = stack_dim
        self._dim_name = name
        self._locked = False
        self._disk: Disk | None = None
        self._kind = PLAIN

    @classmethod
    def _of(cls, members: list[Any], stack_dim: int, name: str | None = None) -> Any:
        """A stack of members that fit."""
        self = cls.__new__(cls)
        self._use(members, stack_dim, name)
        return self

    @classmethod
    def _from_disk(
        cls, native: Any, info: Any, opened: Opened | None, keys_above: tuple[str, ...]
    ) -> Any:
        self = cls.__new__(cls)
        self._use(None, info.stack_dim, info.stack_dim_name)
        self._disk = Disk(native, opened, keys_above)
        self._kind = PLAIN._replace(schema=info.schema, metadata=info.metadata)
        return registry.opened_stack(self)

    # --- members ---------------------------------------------------------------------------------

    @property
    def tensordicts(self) -> list[Any]:
        """The members. Do not change the list: use `insert` and `append`."""
        if self._read is None:
            self._read = self._read_members()
        return self._read

    def _read_members(self) -> list[Any]:
        from tenfold.tensordict._dense import TensorDict

        disk = self._disk
        assert disk is not None
        nodes, _ = disk.node.fill(disk.mode, disk.tied())
        members = []
        for key, native in nodes.items():
            above = (*disk.keys_above, key)
            member = TensorDict._from_native(native, disk.opened, above)
            if self._locked:
                node_of(member)._lock(self)
            members.append(member)
        return members

    def _nodes(self) -> list[Any]:
        """The members, of tensorclasses what they wrap."""
        return [node_of(member) for member in self.tensordicts]

    def _held(self) -> Any:
        return self._read or ()

    @property
    def is_locked(self) -> bool:
        """True if it was locked, or all members are; assign to change it."""
        if self._locked:
            return True
        return bool(self._read) and all(node.is_locked for node in self._nodes())

    @is_locked.setter
    def is_locked(self, locked: bool) -> None:
        self.lock_() if locked else self.unlock_()

    @property
    def _items(self) -> dict[str, Any]:
        """The members by the names of their folders, as far as they were read."""
        return {str(i): member for i, member in enumerate(self._read or ())}

    def _map(self, change: Callable[[Any], Any]) -> Any:
        """A stack of `change(member)`."""
        members = [rewrapped(m, change(node_of(m))) for m in self.tensordicts]
        return LazyStackedTensorDict._of(members, self.stack_dim, self._dim_name)

    def insert(self, index: int, tensordict: Any) -> None:
        """Makes a TensorDict the member at `index`.

        Raises:
            TypeError: If it is no TensorDict.
            ValueError: If its batch size differs.
            RuntimeError: If the stack is locked.
        """
        self._check_unlocked()
        if node_of(tensordict) is None:
            raise TypeError(f"insert: expected a TensorDict, found {type(tensordict).__name__}")
        members = self.tensordicts
        if members and tuple(tensordict.batch_size) != tuple(members[0].batch_size):
            raise ValueError(
                f"insert: expected batch_size {list(members[0].batch_size)}, "
                f"found {list(tensordict.batch_size)}"
            )
        members.insert(index, tensordict)
        self._mark_changed()

    def append(self, tensordict: Any) -> None:
        """Makes a TensorDict the last member. Errors as those of `insert`."""
        self.insert(len(self.tensordicts), tensordict)

    def extend(self, tensordicts: Any) -> None:
        """Makes each of them a member. Errors as those of `insert`."""
        for member in tensordicts:
            self.append(member)

    def _mark_changed(self) -> None:
        if self._disk is not None:
            self._disk.changed = True
            if self._disk.opened is not None:
                self._disk.opened.changed = True

    @property
    def _opened(self) -> Opened | None:
        return None if self._disk is None else self._disk.opened

    def _own(self) -> None:
        self._check_unlocked()
        self._mark_changed()

    # --- what TensorDict has in slots ------------------------------------------------------------

    @property
    def _batch_size(self) -> tuple[int, ...]:  # type: ignore[override]
        members = self.tensordicts
        if not members:
            return (0,)
        inner = tuple(node_of(members[0])._batch_size)
        if inner and any(node_of(member)._batch_size != inner for member in members):
            sizes = [node_of(member)._batch_size for member in members]
            inner = tuple(n[0] if len(set(n)) == 1 else -1 for n in zip(*sizes, strict=True))
        return (*inner[: self.stack_dim], len(members), *inner[self.stack_dim :])

    @property
    def batch_size(self) -> Any:
        """The batch size of the members with the length of the stack; -1 where they differ.

        Raises:
            RuntimeError: On assignment of another one: the members would not follow.
        """
        from tenfold._interop import arrays

        return arrays.batch_shape(self._batch_size)

    @batch_size.setter
    def batch_size(self, batch_size: Any) -> None:
        if tuple(batch_size) != tuple(self._batch_size):
            raise RuntimeError(
                f"batch_size: expected {list(self._batch_size)}, that of a lazy stack cannot be "
                f"changed, found {list(batch_size)}; make it dense first: contiguous()"
            )

    def _change_batch_size(self, new: tuple[int, ...]) -> None:
        if len(new) <= self.stack_dim:
            raise RuntimeError(
                f"batch_size: expected one that has the stack dimension {self.stack_dim}, "
                f"found {list(new)}"
            )
        inner = (*new[: self.stack_dim], *new[self.stack_dim + 1 :])
        for node in self._nodes():
            node._change_batch_size(inner)

    def _check_batch_size(self, new: tuple[int, ...]) -> None:
        dim = self.stack_dim
        if len(new) > dim and new[dim] != len(self.tensordicts):
            raise RuntimeError(
                f"batch_size: expected {len(self.tensordicts)} in dimension {dim}, found {new[dim]}"
            )
        for node in self._nodes():
            node._check_batch_size((*new[:dim], *new[dim + 1 :]))

    @property
    def _device(self) -> Any:
        found = {str(node._device) if node._device else "" for node in self._nodes()}
        return (found.pop() or None) if len(found) == 1 else None

    @property
    def _names(self) -> Any:  # type: ignore[override]
        members = self.tensordicts
        inner = node_of(members[0])._names if members else None
        if inner is None:
            if self._dim_name is None:
                return None
            inner = (None,) * node_of(members[0]).ndim if members else ()
        return (*inner[: self.stack_dim], self._dim_name, *inner[self.stack_dim :])

    def _set_names(self, names: tuple[str | None, ...] | None) -> None:
        dim = self.stack_dim
        self._dim_name = None if names is None else names[dim]
        inner = None if names is None else (*names[:dim], *names[dim + 1 :])
        if inner is not None and not any(inner):
            inner = None
        for node in self._nodes():
            node._set_names(inner)

    # --- primitives ------------------------------------------------------------------------------

    def _key_list(self) -> list[str]:
        nodes = self._nodes()
        if not nodes:
            return []
        others = [set(node._key_list()) for node in nodes[1:]]
        return [key for key in nodes[0]._key_list() if all(key in other for other in others)]

    def _has(self, key: str) -> bool:
        return bool(self.tensordicts) and all(node._has(key) for node in self._nodes())

    def _entry(self, key: str) -> Any:
        entries = [node._entry(key) for node in self._nodes() if node._has(key)]
        if not entries or len(entries) < len(self.tensordicts):
            known = ", ".join(repr(one) for one in self._key_list())
            raise KeyNotFoundError(f'no key "{key}" in all members: expected one of [{known}]')
        return self._stacked(key, entries)

    def _stacked(self, key: str, entries: list[Any]) -> Any:
        kinds = {class_kind(type(entry)) for entry in entries}
        kind = class_kind(type(entries[0]))
        if kind == LEAF and len(kinds) == 1:
            torch = need_torch("lazy stack")
            try:
                return torch.stack(entries, self.stack_dim)
            except RuntimeError as error:
                shapes = [list(entry.shape) for entry in entries]
                if all(shape == shapes[0] for shape in shapes):
                    raise
                raise RuntimeError(
                    f'lazy stack: key "{key}": expected tensors of one shape, found {shapes}; '
                    "read them with get(key, as_list=True)"
                ) from error
        if kinds <= {NODE, TENSORCLASS}:
            sizes = {tuple(node_of(entry)._batch_size) for entry in entries}
            if len(sizes) == 1:
                made = LazyStackedTensorDict._of(entries, self.stack_dim, self._dim_name)
                return registry.stacked(made)
        if all(isinstance(entry, (NonTensorData, NonTensorStack)) for entry in entries):
            return NonTensorStack(*entries, stack_dim=self.stack_dim)
        if kind == VALUE and len(kinds) == 1:
            return entries[0]
        raise RuntimeError(
            f'lazy stack: key "{key}": expected entries of one kind, found '
            f"{sorted({type(entry).__name__ for entry in entries})}"
        )

    def _entries(self) -> dict[str, Any]:
        return {key: self._entry(key) for key in self._key_list()}

    def _kinds(self) -> Iterator[tuple[str, str, Any]]:
        for key in self._key_list():
            entry = node_of(self.tensordicts[0])._entry(key)
            kind = class_kind(type(entry))
            if kind in (NODE, TENSORCLASS):
                yield key, "node", node_of(self._entry(key))
            else:
                is_value = getattr(entry, "_is_non_tensor", False)
                yield key, "value" if is_value else "tensor", None

    def _put(self, key: str, entry: Any) -> None:
        self._check_unlocked()
        self._mark_changed()
        for node, part in zip(self._nodes(), self._parts(entry), strict=True):
            node._put(key, part)

    def _put_anyway(self, key: str, entry: Any) -> None:
        for node, part in zip(self._nodes(), self._parts(entry), strict=True):
            node._put_anyway(key, part)

    def _parts(self, entry: Any) -> Any:
        """What each member has of an entry."""
        if class_kind(type(entry)) == VALUE:
            inner = node_of(self.tensordicts[0])._batch_size
            count = len(self.tensordicts)
            return entry._parted_entry(lambda value: value.unbind(self.stack_dim), [inner] * count)
        return entry.unbind(self.stack_dim)

    def _remove(self, key: str) -> None:
        self._check_unlocked()
        self._mark_changed()
        for node in self._nodes():
            if node._has(key):
                node._remove(key)

    def _overwrite(self, key: str, item: Any, non_blocking: bool) -> None:
        from tenfold.tensordict._entries import as_entry

        self._entry_somewhere(key)
        entry = as_entry(key, item, self)
        for node, part in zip(self._nodes(), self._parts(entry), strict=True):
            node._overwrite(key, part, non_blocking)

    def _entry_somewhere(self, key: str) -> None:
        if not self._has(key):
            raise KeyNotFoundError(f'no key "{key}" in all members')

    def _overwrite_at(self, key: str, value: Any, index: Any) -> None:
        entries = [node._entry(key) for node in self._nodes()]
        if class_kind(type(entries[0])) == LEAF:
            self._overwrite_rows(key, value, index)
            return
        whole = self._entry(key)
        if class_kind(type(whole)) in (NODE, TENSORCLASS):
            whole[index] = value
            return
        if isinstance(whole, (NonTensorData, NonTensorStack)):
            self._put_anyway(key, whole._with_rows(index, value))
            return

    def _overwrite_rows(self, key: str, value: Any, index: Any) -> None:
        """Rows of an entry that is a tensor in every member."""
        from tenfold.tensordict._ops.indexing import normalized

        parts = normalized(index, len(self._batch_size))
        dim = self.stack_dim
        before = all(type(part) in (int, slice) for part in parts[:dim])
        if len(parts) > dim and before and type(parts[dim]) is int:
            inner = (*parts[:dim], *parts[dim + 1 :])
            self._nodes()[parts[dim]]._overwrite_at(key, value, inner or ...)
            return
        whole = self._entry(key)
        whole[index] = value
        for node, part in zip(self._nodes(), self._parts(whole), strict=True):
            node._overwrite(key, part, False)

    def _with_entries(self, items: dict[str, Any]) -> Any:
        from tenfold.tensordict._dense import TensorDict

        made = TensorDict._made(items, self._batch_size, self._device)
        made._names = self._names
        return made

    def _each(self, change: Callable[[Any], Any], batch_size: Any, names: Any = None) -> Any:
        from tenfold.tensordict._dense import TensorDict

        items = {}
        for key, entry in self._entries().items():
            kind = class_kind(type(entry))
            items[key] = entry._through(change, batch_size) if kind == VALUE else change(entry)
        made = TensorDict._made(items, tuple(batch_size), self._device)
        made._names = names
        return made

    def _valued(self, change: Callable[[Any], Any]) -> Any:
        return self._map(lambda node: node._valued(change))

    def _in_place(self, change: Callable[[Any], Any]) -> Any:
        for node in self._nodes():
            node._in_place(change)
        return self

    def _replace_arrays(self, replace: Callable[[Any], Any]) -> None:
        for node in self._nodes():
            node._replace_arrays(replace)

    # --- copies and files ------------------------------------------------------------------------

    def _info(self) -> Any:
        kind = self._kind
        dims = (self.stack_dim, self._dim_name)
        device = str(self._device or "")
        return NodeInfo(
            "lazy_stack", False, (), [], "", *dims, device, kind.schema, kind.metadata, None
        )

    def _simplified(self) -> tuple[Any, ...]:
        disk = self._disk
        if disk is not None and not disk.changed:
            held = self._read or []
            return ("native", disk.node, {str(i): member for i, member in enumerate(held)})
        members = self.tensordicts
        return ("node", self._info(), [str(i) for i in range(len(members))], list(members))

    def __reduce__(self) -> tuple[Any, ...]:
        disk = self._disk
        opened = None if disk is None else disk.opened
        if disk is not None and opened is not None and not opened.changed:
            return _pickle.opened_tree, (*opened.place(), disk.keys_above)
        if getattr(self, "_consolidated", None) is not None and self.is_consolidated():
            from tenfold.tensordict._files import consolidating

            return consolidating.reduced(self)
        state = (self.tensordicts, self.stack_dim, self._dim_name)
        return _pickle.lazy_stack, (*state, bool(self._locked))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        from copy import deepcopy

        return rebuilt(deepcopy(self.tensordicts, memo), self.stack_dim, self._dim_name)


def rebuilt(members: list[Any], stack_dim: int, name: str | None, locked: bool = False) -> Any:
    """A stack that was pickled or copied."""
    made = LazyStackedTensorDict._of(members, stack_dim, name)
    if locked:
        made._lock(None)
    return made

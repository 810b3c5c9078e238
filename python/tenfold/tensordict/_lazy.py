"""`LazyStackedTensorDict`: several TensorDicts that are stacked on access."""

from __future__ import annotations

from tenfold import _pickle
from tenfold._errors import CorruptFileError, KeyNotFoundError
from tenfold._interop.arrays import is_array, need_torch, tensor
from tenfold._public import set_module
from tenfold.tensordict import _lazy_rows
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    LEAF,
    NODE,
    NOTHING,
    TENSORCLASS,
    VALUE,
    as_entry,
    as_own,
    called,
    class_kind,
    list_entry,
    node_of,
    path_of,
    rewrapped,
    type_name,
    written,
)
from tenfold.tensordict._node import PLAIN, Disk, opened_stack, stack_with_class
from tenfold.tensordict._ops import mapping, shape
from tenfold.tensordict._ops.locking import check_members_unlocked, check_unlocked, lock
from tenfold.tensordict._ops.pointwise import parts_of
from tenfold.tensordict._protocol import dense, register_classes
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from typing_extensions import Self

    from tenfold._interop.node_info import NodeInfo
    from tenfold.tensordict._node import Opened


@set_module("tenfold")
class LazyStackedTensorDict(TensorDictBase):
    """A stack of TensorDicts that keeps its members, whose keys and shapes may differ.

    Entries are stacked when they are read, and unbound when they are written. The keys of the stack
    are those that all members have.

    Args:
        *tensordicts: The members, with the same number of batch dimensions.
        stack_dim: The new batch dimension.
        stack_dim_name: The name of the new dimension.

    Raises:
        RuntimeError: If there is no member, if their numbers of batch dimensions differ, or if
            `stack_dim` is out of range.
        TypeError: If a member is not a TensorDict, or `stack_dim_name` is neither a str nor None.

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
        "_entered",
        "_locked",
        "_node_info",
        "_read",
        "_undo",
        "stack_dim",
    )

    def __init__(
        self, *tensordicts: Any, stack_dim: int = 0, stack_dim_name: str | None = None
    ) -> None:
        if not tensordicts:
            raise RuntimeError("lazy stack: expected at least one TensorDict, found none")
        for kind, member in {type(member): member for member in tensordicts}.items():
            if node_of(member) is None:
                raise TypeError(f"lazy stack: expected TensorDicts, found a {kind.__name__}")
        ndims = sorted({len(member.batch_size) for member in tensordicts})
        if len(ndims) > 1:
            raise RuntimeError(
                "lazy stack: expected members with the same number of batch dimensions, "
                f"found {ndims}"
            )
        at = stack_dim + ndims[0] + 1 if stack_dim < 0 else stack_dim
        if not 0 <= at <= ndims[0]:
            raise RuntimeError(
                f"lazy stack: expected a stack_dim from {-ndims[0] - 1} to {ndims[0]}, "
                f"found {stack_dim}"
            )
        shape.check_name(stack_dim_name, "stack_dim_name")
        self._use(list(tensordicts), at, stack_dim_name)

    def _use(self, members: list[Any] | None, stack_dim: int, name: str | None) -> None:
        self._read: list[Any] | None = members
        self.stack_dim: int = stack_dim
        self._dim_name = name
        self._locked = False
        self._disk: Disk | None = None
        self._node_info = PLAIN

    @classmethod
    def _of(cls, members: list[Any], stack_dim: int, name: str | None = None) -> Self:
        """Creates a stack without checks of the members."""
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
        self._node_info = info
        return opened_stack(self)

    # --- members ---------------------------------------------------------------------------------

    @property
    def tensordicts(self) -> list[Any]:
        """The members. Do not change the list: use `insert` and `append`."""
        if self._read is None:
            self._read = self._read_members()
        return self._read

    def _read_members(self) -> list[Any]:
        disk = self._disk
        assert disk is not None
        nodes, _ = disk.node.fill(disk.mode, disk.tied())
        members = []
        for key, native in nodes.items():
            above = (*disk.keys_above, key)
            member = dense()._from_native(native, disk.opened, above)
            if self._locked:
                lock(node_of(member), self)
            members.append(member)
        found = [node_of(member) for member in members]
        ndims = {len(node._batch_size) for node in found if not isinstance(node, type(self))}
        if len(ndims) > 1:
            path = "" if disk.opened is None else f"{disk.opened.path}: "
            key = f'key "{".".join(disk.keys_above)}": ' if disk.keys_above else ""
            raise CorruptFileError(
                f"{path}{key}lazy stack: expected members with the same number of batch "
                f"dimensions, found {sorted(ndims)}"
            )
        return members

    def _nodes(self) -> list[Any]:
        """The members; for tensorclasses, their TensorDicts."""
        return [node_of(member) for member in self.tensordicts]

    def _held(self) -> Any:
        return self._read or ()

    @property
    def is_locked(self) -> bool:
        """True if the stack or every member was locked. Assignment locks or unlocks the stack."""
        if self._locked:
            return True
        return bool(self._read) and all(node.is_locked for node in self._nodes())

    @is_locked.setter
    def is_locked(self, locked: bool) -> None:
        self.lock_() if locked else self.unlock_()

    @property
    def _items(self) -> dict[str, Any]:
        """The members that Python has loaded, under the keys "0", "1", ..."""
        return {str(i): member for i, member in enumerate(self._read or ())}

    def _map(self, change: Callable[[Any], Any]) -> Self:
        """A stack of the results of `change`, called with the node of each member."""
        members = [rewrapped(m, change(node_of(m))) for m in self.tensordicts]
        return type(self)._of(members, self.stack_dim, self._dim_name)

    def insert(self, index: int, tensordict: Any) -> None:
        """Inserts a TensorDict at `index`.

        Args:
            index: The position, as for ``list.insert``.
            tensordict: A TensorDict with the batch size of the first member.

        Raises:
            TypeError: If `tensordict` is not a TensorDict.
            ValueError: If `tensordict` has another batch size than the first member.
            RuntimeError: If the stack is locked.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.insert(0, td)
            >>> len(stack)
            3
        """
        check_unlocked(self)
        if node_of(tensordict) is None:
            raise TypeError(f"insert: expected a TensorDict, found {type_name(tensordict)}")
        members = self.tensordicts
        if members and tuple(tensordict.batch_size) != tuple(members[0].batch_size):
            raise ValueError(
                f"insert: expected batch_size {list(members[0].batch_size)}, "
                f"found {list(tensordict.batch_size)}"
            )
        members.insert(index, tensordict)
        self._mark_changed()

    def append(self, tensordict: Any) -> None:
        """Appends a TensorDict.

        Args:
            tensordict: A TensorDict with the batch size of the first member.

        Raises:
            TypeError: If `tensordict` is not a TensorDict.
            ValueError: If `tensordict` has another batch size than the first member.
            RuntimeError: If the stack is locked.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.append(td)
            >>> len(stack)
            3
        """
        self.insert(len(self.tensordicts), tensordict)

    def extend(self, tensordicts: Any) -> None:
        """Appends several TensorDicts. If one cannot be appended, the previous ones stay appended.

        Args:
            tensordicts: TensorDicts with the batch size of the first member.

        Raises:
            TypeError: If an item is not a TensorDict.
            ValueError: If an item has another batch size than the first member.
            RuntimeError: If the stack is locked.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.extend([td, td])
            >>> len(stack)
            4
        """
        for member in list(tensordicts):
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
        check_unlocked(self)
        self._mark_changed()

    # --- attributes that are slots in TensorDict -----------------------------------------------

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
        """The batch size of the members, with the number of members inserted at `stack_dim`.

        A length that differs between members is -1.

        Raises:
            RuntimeError: If another batch size is assigned.
            TypeError: On assignment of a number.
            ValueError: On assignment of a str, or of a sequence with other items than int.
        """
        from tenfold._interop import arrays

        return arrays.batch_shape(self._batch_size)

    @batch_size.setter
    def batch_size(self, batch_size: Any) -> None:
        new = shape.assigned_batch_size(batch_size)
        if new != self._batch_size:
            raise RuntimeError(
                f"batch_size of a lazy stack cannot be changed: expected {list(self._batch_size)}, "
                f"found {list(new)}; call contiguous() to get a dense TensorDict"
            )

    def _change_batch_size(self, new: tuple[int, ...]) -> None:
        if len(new) <= self.stack_dim:
            raise RuntimeError(
                f"batch_size: expected one that includes the stack dimension {self.stack_dim}, "
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
    def _device(self) -> Any:  # type: ignore[override]
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
        name = None if names is None else names[dim]
        if name != self._dim_name:
            self._dim_name = name
            self._mark_changed()
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
            raise self._no_key(key)
        return self._stacked(key, entries)

    def _no_key(self, key: str) -> KeyNotFoundError:
        known = ", ".join(repr(one) for one in self._key_list())
        return KeyNotFoundError(f'no key "{key}" that all members have: expected one of [{known}]')

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
                    f'lazy stack: key "{key}": expected tensors of the same shape, found {shapes}; '
                    "read them with get(key, as_list=True)"
                ) from error
        is_nodes = kinds <= {NODE, TENSORCLASS}
        if is_nodes and len({len(node_of(entry)._batch_size) for entry in entries}) == 1:
            made = LazyStackedTensorDict._of(entries, self.stack_dim, self._dim_name)
            return stack_with_class(made)
        if all(isinstance(entry, (NonTensorData, NonTensorStack)) for entry in entries):
            return NonTensorStack(*entries, stack_dim=self.stack_dim)
        if all(type(entry) is UnbatchedTensor for entry in entries):
            return entries[0]
        raise RuntimeError(
            f'lazy stack: key "{key}": expected entries of the same kind, with the same number of '
            f"batch dimensions, found {sorted({type(entry).__name__ for entry in entries})}"
        )

    def _entries(self) -> dict[str, Any]:
        return {key: self._entry(key) for key in self._key_list()}

    def _kinds(self, *, shows_damaged: bool = False) -> Iterator[tuple[str, str, Any]]:
        keys = self._key_list()
        kinds = {}
        if keys:  # else there may be no member
            found = self._nodes()[0]._kinds(shows_damaged=shows_damaged)
            kinds = {key: (kind, about) for key, kind, about in found}
        for key in keys:
            kind, about = kinds[key]
            if kind == "node":
                yield key, kind, node_of(self._entry(key))
            else:
                yield key, kind, about if kind in ("damaged", "refused") else None

    def _put(self, key: str, entry: Any) -> None:
        check_members_unlocked(self)
        self._mark_changed()
        for node, part in zip(self._nodes(), self._parts(entry), strict=True):
            node._put(key, part)

    def _put_list(self, key: str, items: list[Any]) -> None:
        """Converts a list to one entry for each member, and sets the entries."""
        parts = zip(self._nodes(), self._list_parts(key, items), strict=True)
        entries = [(node, as_entry(key, part, node)) for node, part in parts]
        check_members_unlocked(self)
        self._mark_changed()
        for node, entry in entries:
            node._put(key, entry)

    def _list_parts(self, key: str, items: list[Any]) -> Any:
        """Splits a list into one value for each member; tensors may differ in shape."""
        entry = list_entry(f'key "{key}"', items)
        if type(entry) is NonTensorStack and all(
            is_array(item) or isinstance(item, list) for item in items
        ):
            try:
                parts = _unbound_list(items, self.stack_dim)
            except (TypeError, ValueError):
                raise ValueError(
                    f'key "{key}": expected nested lists whose lengths are the batch size '
                    f"{list(self._batch_size)}, found other items or lengths"
                ) from None
            if len(parts) != len(self.tensordicts):
                raise ValueError(
                    f'key "{key}": expected an item for each of {len(self.tensordicts)} members, '
                    f"found {len(parts)}"
                )
            return parts
        return self._parts(mapping.entry_to_copy(key, entry, self))

    def _put_locked(self, key: str, entry: Any) -> None:
        for node, part in zip(self._nodes(), self._parts(entry), strict=True):
            node._put_locked(key, part)

    def _parts(self, entry: Any) -> Any:
        """Splits an entry into one part for each member."""
        if class_kind(type(entry)) == VALUE:
            inner = node_of(self.tensordicts[0])._batch_size
            count = len(self.tensordicts)
            return entry._parted_entry(lambda value: value.unbind(self.stack_dim), [inner] * count)
        return called("unbind", self.stack_dim)(entry)

    def _remove(self, key: str) -> None:
        check_members_unlocked(self)
        self._mark_changed()
        for node in self._nodes():
            if node._has(key):
                node._remove(key)

    def _overwrite(self, key: str, item: Any, non_blocking: bool) -> None:
        self._require_entry(key)
        if isinstance(item, list):
            parts = self._list_parts(key, item)
        else:
            parts = self._parts(mapping.entry_to_copy(key, item, self))
        for node, part in zip(self._nodes(), parts, strict=True):
            node._overwrite(key, part, non_blocking)

    def _require_entry(self, key: str) -> None:
        if not self._has(key):
            raise self._no_key(key)

    def _overwrite_at(self, key: str, value: Any, index: Any) -> None:
        entries = [node._entry(key) for node in self._nodes()]
        if class_kind(type(entries[0])) == LEAF:
            self._overwrite_rows(key, value, index)
            return
        whole = self._entry(key)
        if class_kind(type(whole)) in (NODE, TENSORCLASS):
            whole[index] = value
        elif isinstance(whole, (NonTensorData, NonTensorStack)):
            self._put_locked(key, whole._with_rows(index, value))
        else:  # an UnbatchedTensor has no rows: the members at `index` get the whole value
            for node in _lazy_rows.indexed_nodes(self, index):
                node._overwrite_at(key, value, ...)

    def _overwrite_rows(self, key: str, value: Any, index: Any) -> None:
        """Writes rows of a tensor."""
        from tenfold.tensordict._index import normalized

        if _lazy_rows.is_number(value):
            _lazy_rows.write_number(self, key, value, index)
            return
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

    def _like(self, items: dict[str, Any], batch_size: tuple[int, ...]) -> Any:
        return dense()._made(items, batch_size, self._device)

    def _with_entries(self, items: dict[str, Any]) -> Any:
        made = self._like(items, self._batch_size)
        made._names = self._names
        return made

    def _each(self, change: Callable[[Any], Any], batch_size: Any, names: Any = None) -> Any:
        items = {}
        for key, entry in self._entries().items():
            kind = class_kind(type(entry))
            items[key] = entry._through(change, batch_size) if kind == VALUE else change(entry)
        made = self._like(items, tuple(batch_size))
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

    # --- methods that involve every member -------------------------------------------------------

    def get(self, key: Any, default: Any = None, **how: Any) -> Any:
        """Returns the stacked entries of the members; `default` if a member lacks the entry.

        Args:
            key: A str or a tuple of str.
            default: Returned if a member lacks the entry.
            **how: For tensors whose shapes differ: ``as_list=True``; or ``as_nested_tensor=True``,
                with ``layout``; or ``as_padded_tensor=True``, with ``padding_value`` and
                ``padding_side`` as for torch's ``pad_sequence``.

        Returns:
            A tensor, a stack of nodes or values, or `default`; with ``as_list``, a list of the
            members' entries, with a list in place of each member that is a stack.

        Raises:
            RuntimeError: If no option is given, and shapes differ, or one member has a tensor and
                another member a node or value. With ``as_nested_tensor`` or ``as_padded_tensor``,
                if the entry of a member is not a tensor.
            KeyError: If `key` is neither a str nor a tuple of str, or a path leads through a
                tensor or a plain value.

        Example:
            >>> stack = tenfold.lazy_stack([TensorDict({"x": torch.ones(n)}) for n in (1, 2)])
            >>> stack.get("x", as_padded_tensor=True)
            tensor([[1., 0.],
                    [1., 1.]])
        """
        if not any(how.get(name) for name in ("as_list", "as_nested_tensor", "as_padded_tensor")):
            return super().get(key, default)
        lists = {"as_list": True} if how.get("as_list") else {}
        values = [
            member.get(key, **(lists if isinstance(node, LazyStackedTensorDict) else {}))
            for member, node in zip(self.tensordicts, self._nodes(), strict=True)
        ]
        if any(value is None for value in values):
            return default
        if lists:
            return values
        torch = need_torch("get")
        if not all(is_array(value) for value in values):
            raise RuntimeError(
                f"get: key {key!r}: expected a tensor in each member, "
                f"found {sorted({type(value).__name__ for value in values})}; pass as_list=True"
            )
        if how.get("as_nested_tensor"):
            return torch.nested.nested_tensor(values, layout=how.get("layout", torch.jagged))
        pad_sequence = need_torch("pad_sequence").nn.utils.rnn.pad_sequence

        return pad_sequence(
            values,
            batch_first=True,
            padding_value=how.get("padding_value", 0.0),
            padding_side=how.get("padding_side", "right"),
        )

    def update(self, input_dict_or_td: Any = None, *args: Any, **options: Any) -> Self:
        """Sets every entry of a dict or TensorDict, like `TensorDict.update`.

        Args:
            input_dict_or_td: A dict or TensorDict. The members of a stack of the same length and
                stack dimension update the members of this stack.
            *args: Arguments of `TensorDict.update`.
            **options: Options of `TensorDict.update`.

        Returns:
            This stack.

        Raises:
            RuntimeError, KeyError, ValueError, AttributeError, TypeError: As for
                `TensorDict.update`.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.update({"a": torch.ones(2, 3)})["a"].sum()
            tensor(6.)
        """
        other = self._like_stack(input_dict_or_td)
        if other is None:
            return super().update(input_dict_or_td, *args, **options)
        for mine, theirs in zip(self._nodes(), other, strict=True):
            mine.update(theirs, *args, **options)
        return self

    def update_(self, input_dict_or_td: Any = None, *args: Any, **options: Any) -> Self:
        """Writes every entry into the existing tensors; see `TensorDict.update_`.

        Args:
            input_dict_or_td: A dict or TensorDict. The members of a stack of the same length and
                stack dimension update the members of this stack.
            *args: Arguments of `TensorDict.update_`.
            **options: Options of `TensorDict.update_`.

        Returns:
            This stack.

        Raises:
            KeyError, RuntimeError, TypeError: As for `TensorDict.update_`.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.update_({"a": torch.ones(2, 3)})["a"].sum()
            tensor(6.)
        """
        other = self._like_stack(input_dict_or_td)
        if other is None:
            return super().update_(input_dict_or_td, *args, **options)
        for mine, theirs in zip(self._nodes(), other, strict=True):
            mine.update_(theirs, *args, **options)
        return self

    def _like_stack(self, other: Any) -> Any:
        """The members of another stack of the same length and stack dimension, else None."""
        node = node_of(other)
        is_like = isinstance(node, LazyStackedTensorDict) and node.stack_dim == self.stack_dim
        if node is self or not is_like or len(node.tensordicts) != len(self.tensordicts):
            return None
        return node.tensordicts

    def clone(self, recurse: bool = True, **kwargs: Any) -> Self:
        """Returns a stack of clones of the members.

        Args:
            recurse: Copy the tensors; if false, only the nodes are new and tensors are shared.
            **kwargs: Options of ``torch.clone``: ``memory_format=``.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.clone(recurse=False)[0]["a"] is td["a"]
            True
        """
        return self._map(lambda node: node.clone(recurse, **kwargs))

    def _selected(self, wanted: Any, inplace: bool, strict: bool) -> Any:
        if strict:
            for key in wanted:
                self._require_entry(key)
        if inplace:
            for node in self._nodes():
                node._selected(wanted, True, strict)
            return self
        return self._map(lambda node: node._selected(wanted, False, strict))

    def _excluded(self, unwanted: Any, inplace: bool) -> Any:
        if inplace:
            for node in self._nodes():
                node._excluded(unwanted, True)
            return self
        return self._map(lambda node: node._excluded(unwanted, False))

    def empty(self, recurse: bool = False, **options: Any) -> Any:
        """Returns a stack of empty members; with options, an empty TensorDict.

        Args:
            recurse: Keep the nodes below, without tensors, and the values that are not tensors.
            **options: Options of `TensorDict.empty`: ``batch_size``, ``device``, ``names``.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.empty().batch_size
            torch.Size([2, 3])
        """
        if options:
            return self.empty(recurse)._dense().empty(recurse, **options)
        return self._map(lambda node: node.empty(recurse))

    def _fill_entry(self, key: str, value: Any) -> None:
        self._require_entry(key)
        for node in self._nodes():
            node._fill_entry(key, value)

    def masked_fill_(self, mask: Any, value: Any) -> Self:
        """Fills the rows where a mask is true with one value.

        Args:
            mask: A bool tensor, whose dimensions are the first batch dimensions.
            value: A number.

        Returns:
            This stack.

        Raises:
            RuntimeError: If the mask is not bool, or does not broadcast to these dimensions.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.masked_fill_(torch.tensor([True, False]), 7)["a"][:, 0]
            tensor([7., 0.])
        """
        for node, part in zip(self._nodes(), _mask_parts(mask, self), strict=True):
            node.masked_fill_(part, value)
        return self

    def rename_key_(self, old_key: Any, new_key: Any, safe: bool = False) -> Self:
        """Renames a key in every member.

        Args:
            old_key: A key that exists in all members.
            new_key: The new key; nodes on the path are created.
            safe: If true, refuse to replace an entry at `new_key`.

        Returns:
            This stack.

        Raises:
            KeyError: If a member lacks `old_key`; if `safe` is true and a member has an entry at
                `new_key` that is not the entry at `old_key`; if `new_key` leads through a tensor or
                a plain value in a member. No member has changed.
            RuntimeError: If this stack, a member, or a node of one of the keys is locked. No member
                has changed.
            TypeError: If `new_key` is neither a str nor a tuple.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.rename_key_("a", "x").keys()
            ['b', 'x']
        """
        if not isinstance(new_key, (str, tuple)) or old_key not in self:
            return super().rename_key_(old_key, new_key, safe)
        # One TensorDict may be a member several times, as in stack[[0, 0]].
        nodes = list({id(node): node for node in self._nodes()}.values())
        check_unlocked(self)
        for node in nodes:  # before the first one changes
            mapping.check_rename(node, path_of(old_key), path_of(new_key), safe)
        self._mark_changed()
        for node in nodes:
            node.rename_key_(old_key, new_key, safe)
        return self

    def _refuse_exclusive_keys(self, what: str) -> None:
        keys = set(self._key_list())
        found = {key for node in self._nodes() for key in node._key_list()}
        if found != keys:
            raise RuntimeError(
                f"{what}: expected the same keys in all members, found {sorted(found - keys)} in "
                "only some"
            )

    def flatten_keys(
        self, separator: str = ".", inplace: bool = False, is_leaf: Any = None
    ) -> Self:
        """Returns a stack whose members are flattened: ``("b", "c")`` becomes ``"b.c"``.

        Args:
            separator: The string between the keys of a path.
            inplace: Change the members of this stack instead.
            is_leaf: Called with a node's class; returns whether the node is kept.

        Raises:
            RuntimeError: If the members have different top-level keys, or `inplace` is true and a
                member is locked.
            KeyError: If two entries would have the same key.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.flatten_keys().keys()
            ['a', 'b.c']
        """
        self._refuse_exclusive_keys("flatten_keys")
        return self._rekeyed("flatten_keys", inplace, separator, is_leaf=is_leaf)

    def unflatten_keys(self, separator: str = ".", inplace: bool = False) -> Self:
        """Returns a stack whose members are nested: ``"b.c"`` becomes ``("b", "c")``.

        Args:
            separator: The string between the keys of a path.
            inplace: Change the members of this stack instead.

        Raises:
            RuntimeError: If the members have different top-level keys, or `inplace` is true and a
                member is locked.
            KeyError: If two entries would have the same key, or a path would lead through a tensor
                or a plain value.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.flatten_keys().unflatten_keys().keys()
            ['a', 'b']
        """
        self._refuse_exclusive_keys("unflatten_keys")
        return self._rekeyed("unflatten_keys", inplace, separator)

    def _rekeyed(self, method: str, inplace: bool, separator: str, **options: Any) -> Self:
        """Calls `method` on every member, even if members of nested stacks have different keys."""

        def change(node: Any) -> Any:
            if isinstance(node, LazyStackedTensorDict):
                return node._rekeyed(method, inplace, separator, **options)
            return getattr(node, method)(separator, inplace=inplace, **options)

        if not inplace:
            return self._map(change)
        for node in self._nodes():
            check_unlocked(node)
        for node in self._nodes():
            change(node)
        return self

    def filter_non_tensor_data(self) -> Self:
        """Returns a stack of the members without their plain values; nodes and tensors are kept."""
        return self._map(lambda node: node.filter_non_tensor_data())

    def filter_empty_(self) -> Self:
        """Deletes empty nodes of the members, at all levels. Returns this stack."""
        for node in self._nodes():
            node.filter_empty_()
        return self

    def _tensors(self) -> Any:
        for node in self._nodes():
            yield from node._tensors()

    def _every(self, method: str, dim: int | None) -> Any:
        if dim is not None:
            return super()._every(method, dim)
        found = (getattr(node, method)() for node in self._nodes())
        return all(found) if method == "all" else any(found)

    def where(
        self, condition: Any, other: Any, *, out: Any = None, pad: Any = None,
        update_batch_size: bool = False,
    ) -> Self:  # fmt: skip
        """Selects rows of the members where a condition is true, else rows of `other`.

        Args:
            condition: A bool tensor of the first batch dimensions.
            other: A TensorDict, a number, or a tensor, which is broadcast with each stacked tensor
                from the last dimension on, as in ``torch.where``.
            out: A TensorDict to write the result into.
            pad: Value used in place of a tensor that only the stack or only `other` lacks;
                converted to the dtype of the tensor that exists.
            update_batch_size: Ignored: `out` keeps its batch size.

        Returns:
            A stack of the results; `out` if it is given.

        Raises:
            KeyError: If the stack or `other` lacks an entry and no `pad` is given; if `out` lacks
                an entry of the result.
            RuntimeError: If the condition does not broadcast to the first batch dimensions, or
                `other` does not broadcast with a stacked tensor; if torch cannot cast a result to
                the dtype of its tensor in `out`.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.where(torch.tensor([True, False]), 5)["a"][:, 0]
            tensor([0., 5.])
        """
        conditions = _mask_parts(condition, self)
        parts = zip(self.tensordicts, conditions, parts_of(as_own(other), self), strict=True)
        members = [rewrapped(m, node_of(m).where(c, o, pad=pad)) for m, c, o in parts]
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        return made if out is None else written(out, made)

    def _set_device(self, device: str) -> None:
        for node in self._nodes():
            node._set_device(device)

    def clear_device_(self) -> Self:
        """Removes the device of all members. Returns this stack."""
        for node in self._nodes():
            node.clear_device_()
        return self

    def _run(
        self, plan: Any, others: Any, above: Any, batch_size: Any, device: Any, names: Any
    ) -> Any:
        """Runs `plan` on each member, with the parts of `others` that correspond to it.

        If a batch size is given, and the plan is not in place, runs it on the stacked entries.
        """
        if batch_size is not None and not plan.inplace:
            return plan.run(self._dense(), others, above, batch_size, device, names)
        parts = [_unbound(other, self) for other in others]
        results = []
        for i, node in enumerate(self._nodes()):
            theirs = [part[i] for part in parts]
            results.append(node._run(plan, theirs, above, None, device, NOTHING))
        if all(result is None for result in results):
            return None
        if plan.inplace:
            return self
        members = []
        for member, result in zip(self.tensordicts, results, strict=True):
            if result is None:  # keep an empty member, so that the number of rows is the same
                result = node_of(member).empty(device=device)
            members.append(rewrapped(member, result))
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        if names is not NOTHING:
            made.names = names
        return made

    def _dense(self) -> Any:
        """The entries that all members have, stacked, as a TensorDict."""
        return self._with_entries(self._entries())

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Any:
        """Returns a dense TensorDict of the entries that all members have, stacked.

        Args:
            canonical: Ignored: the stacked tensors are always new and contiguous.
            inplace: Ignored: the result is always a new TensorDict.

        Raises:
            RuntimeError: If the members' tensors under a key differ in shape, the members' entries
                under a key differ in kind, or the members differ in a batch length.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> type(stack.contiguous()).__name__
            'TensorDict'
        """
        made = self._dense()
        for dim in range(len(self._batch_size)):
            shape.refuse_ragged(self, dim, "contiguous")
        items = {
            key: entry.contiguous() if class_kind(type(entry)) != VALUE else entry
            for key, entry in made._items.items()
        }
        return self._with_entries(items)

    def densify(self, layout: Any = None) -> Any:
        """Returns a TensorDict of the entries that all members have, stacked.

        Tensors of different shapes become a nested tensor. Nodes below are converted, too.

        Args:
            layout: The layout of nested tensors; None: ``torch.jagged``.

        Raises:
            RuntimeError: If the members' entries under a key differ in kind, or their tensors in
                the number of dimensions; with ``torch.jagged``, if they differ in the lengths of
                several dimensions.

        Example:
            >>> stack = tenfold.lazy_stack([TensorDict({"x": torch.ones(n)}) for n in (1, 2)])
            >>> stack.densify()["x"].is_nested
            True
        """
        torch = need_torch("densify")
        items = {}
        for key in self._key_list():
            entries = [node._entry(key) for node in self._nodes()]
            shapes = {tuple(getattr(entry, "shape", ())) for entry in entries}
            if len(shapes) > 1 and all(class_kind(type(entry)) == LEAF for entry in entries):
                items[key] = torch.nested.nested_tensor(entries, layout=layout or torch.jagged)
                continue
            entry = self._entry(key)
            node = node_of(entry)
            items[key] = entry if node is None else rewrapped(entry, node.densify(layout))
        return self._with_entries(items)

    def _combined(self, op: Any, *operands: Any) -> Any:
        parts = zip(self.tensordicts, *[_unbound(one, self) for one in operands], strict=True)
        members = [rewrapped(m, node_of(m)._combined(op, *theirs)) for m, *theirs in parts]
        return type(self)._of(members, self.stack_dim, self._dim_name)

    def _operand_pairs(self, other: Any) -> list[tuple[Any, Any]]:
        pairs = zip(self._nodes(), _unbound(other, self), strict=True)
        return [pair for node, part in pairs for pair in node._operand_pairs(part)]

    def _merged(self, op: Any, other: Any, default: Any, above: Any) -> Any:
        pairs = zip(self.tensordicts, _unbound(other, self), strict=True)
        members = [rewrapped(m, node_of(m)._merged(op, o, default, above)) for m, o in pairs]
        return type(self)._of(members, self.stack_dim, self._dim_name)

    def _compared_with(self, op: Any, other: Any) -> Any:
        pairs = zip(self.tensordicts, _unbound(other, self), strict=True)
        members = [rewrapped(m, node_of(m)._compared_with(op, part)) for m, part in pairs]
        return type(self)._of(members, self.stack_dim)

    # --- batch dimensions ------------------------------------------------------------------------

    def _rows(self, index: Any) -> Any:
        return _lazy_rows.rows(self, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Sets an entry, or writes rows into the indexed members.

        See `TensorDictBase.__setitem__`.
        """
        _lazy_rows.assign(self, key, value)

    def unbind(self, dim: int) -> tuple[Self, ...]:
        """Returns the members if `dim` is the stack dimension, else a stack per position of `dim`.

        Args:
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            IndexError: If the dimension does not exist.
            RuntimeError: If the members differ in the length of the dimension.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.unbind(0)[0]["a"] is td["a"]
            True
        """
        return _lazy_rows.unbind(self, dim)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Returns consecutive parts of a batch dimension, as stacks.

        A part without rows along the stack dimension is a dense TensorDict.

        Args:
            split_size: Rows per part, the last may have fewer; or a list of row counts.
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            RuntimeError: If the sizes of a list do not add up to the length of `dim`, or one is
                negative; if the members differ in the length of `dim`.
            ValueError: If `split_size` is not positive.
            IndexError: If the dimension does not exist.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> [part.batch_size for part in stack.split(1)]
            [torch.Size([1, 3]), torch.Size([1, 3])]
        """
        return _lazy_rows.split(self, split_size, dim)

    def unsqueeze(self, dim: int) -> Self:
        """Returns a stack with a new batch dimension of length 1.

        Args:
            dim: The position of the new dimension: 0 is the front, -1 the end.

        Raises:
            RuntimeError: If `dim` is out of range.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.unsqueeze(0).batch_size
            torch.Size([1, 2, 3])
        """
        return _lazy_rows.unsqueeze(self, dim)

    def squeeze(self, dim: int | None = None) -> Any:
        """Removes batch dimensions of length 1.

        Args:
            dim: The dimension to remove; if its length is not 1, none is removed. None: all
                dimensions of length 1.

        Returns:
            A stack; this stack if no dimension is removed; the only member, without the other
            removed dimensions, if the stack dimension is removed.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> tenfold.lazy_stack([td]).squeeze(0).batch_size
            torch.Size([3])
        """
        return _lazy_rows.squeeze(self, dim)

    def permute(self, *order: int | Sequence[int], dims: Sequence[int] | None = None) -> Self:
        """Returns a stack with the batch dimensions in another order.

        Args:
            *order: All batch dimensions, in the new order.
            dims: The order as one sequence instead.

        Raises:
            ValueError: If a dimension is missing, occurs twice or does not exist.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.permute(1, 0).batch_size
            torch.Size([3, 2])
        """
        return _lazy_rows.permute(self, shape.sizes(order, dims))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Returns a stack with two batch dimensions swapped.

        Args:
            dim0: A batch dimension.
            dim1: The batch dimension to swap it with.

        Raises:
            ValueError: If a dimension does not exist.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.transpose(0, 1).batch_size
            torch.Size([3, 2])
        """
        return _lazy_rows.transpose(self, dim0, dim1)

    def flatten(
        self, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
    ) -> Self:
        """Merges batch dimensions into one, along which the result is stacked.

        Args:
            start_dim: The first dimension that is merged; None: 0.
            end_dim: The last dimension that is merged; None: -1.
            inplace: Not supported: an error if true.

        Returns:
            A stack along the merged dimension; this stack if only one dimension is merged; a dense
            TensorDict if a merged dimension has length 0.

        Raises:
            ValueError: If `end_dim` is before `start_dim`, or `inplace` is true.
            IndexError: If a dimension does not exist.
            RuntimeError: If the members differ in the length of a merged dimension, unless the
                stack dimension is merged, too, and comes before it.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.flatten().batch_size
            torch.Size([6])
        """
        made: Self = _lazy_rows.flatten(self, start_dim, end_dim, inplace=inplace)
        return made

    def unflatten(
        self, dim: int, unflattened_size: Sequence[int], *, inplace: bool = False
    ) -> Self:
        """Splits one batch dimension into several.

        Args:
            dim: The batch dimension; a negative one counts from the end.
            unflattened_size: The new lengths; one may be -1.
            inplace: Not supported: an error if true.

        Returns:
            A stack with more batch dimensions; this stack if there is only one new length; a dense
            TensorDict if a new length is 0.

        Raises:
            RuntimeError: If the product of the lengths is not the length of `dim`, or the members
                differ in the length of `dim`.
            IndexError: If `dim` does not exist.
            ValueError: If `inplace` is true.

        Example:
            >>> tenfold.lazy_stack([td] * 4).unflatten(0, [2, 2]).batch_size
            torch.Size([2, 2, 3])
        """
        made: Self = _lazy_rows.unflatten(self, dim, unflattened_size, inplace=inplace)
        return made

    def repeat(self, *repeats: Any, inplace: bool = False) -> Self:
        """Repeats all rows; along the stack dimension, the members are repeated.

        Args:
            *repeats: A number for each batch dimension, or one sequence of these numbers.
            inplace: Not supported: an error if true.

        Returns:
            A stack with the rows repeated; a dense TensorDict if the number for the stack dimension
            is 0.

        Raises:
            ValueError: If the number of `repeats` is not the number of batch dimensions, or
                `inplace` is true.
            RuntimeError: If a number is negative.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.repeat(2, 1).batch_size
            torch.Size([4, 3])
        """
        made: Self = _lazy_rows.repeat(self, *repeats, inplace=inplace)
        return made

    def masked_select(self, mask: Any, *, inplace: bool = False) -> Any:
        """Returns a dense TensorDict of the rows where a mask is true.

        Args:
            mask: A bool tensor of the first batch dimensions.
            inplace: Not supported: an error if true.

        Raises:
            IndexError: If the shape of `mask` is not that of the first batch dimensions.
            RuntimeError: As for `contiguous`.
            ValueError: If `inplace` is true.

        Example:
            >>> stack = tenfold.lazy_stack([td, td.clone()])
            >>> stack.masked_select(torch.tensor([True, False])).batch_size
            torch.Size([1, 3])
        """
        return self._dense().masked_select(mask, inplace=inplace)

    def is_contiguous(self) -> bool:
        """Returns False, because each member has separate tensors."""
        return False

    def _reshaped(self, wanted: tuple[Any, ...], method: str) -> Any:
        return _lazy_rows.reshaped(self, wanted, method)

    def _expanded(self, wanted: tuple[int, ...], *, shared_below: bool = False) -> Any:
        return _lazy_rows.expanded(self, wanted, shared_below=shared_below)

    def _chosen(self, rows: Any, at: int) -> Any:
        return _lazy_rows.chosen(self, rows, at)

    @classmethod
    def _joined(cls, stacks: list[Any], dim: int) -> Any:
        return _lazy_rows.joined(stacks, dim)

    # --- copies and files ------------------------------------------------------------------------

    def _info(self) -> NodeInfo:
        return self._node_info._replace(
            kind="lazy_stack",
            stack_dim=self.stack_dim,
            stack_dim_name=self._dim_name,
            device=str(self._device or ""),
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
            above = (disk.keys_above, opened.framework, bool(self._locked))
            return _pickle.opened_tree, (*opened.place(), *above)
        if getattr(self, "_consolidated", None) is not None and self.is_consolidated():
            from tenfold.tensordict._files import consolidated

            return consolidated.reduced(self)
        state = (self.tensordicts, self.stack_dim, self._dim_name)
        return _pickle.lazy_stack, (*state, bool(self._locked))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        from copy import deepcopy

        return rebuilt(deepcopy(self.tensordicts, memo), self.stack_dim, self._dim_name)


def _unbound_list(items: list[Any], dim: int) -> list[Any]:
    """Removes the dimension `dim` of nested lists; returns a list for each index of it."""
    if dim == 0:
        return items
    if not all(isinstance(item, list) for item in items):
        raise TypeError("expected nested lists")
    rows = [_unbound_list(item, dim - 1) for item in items]
    return [list(column) for column in zip(*rows, strict=True)]


def _unbound(other: Any, stack: Any) -> Any:
    """The operands for the members of a stack: one part of `other` for each member.

    If `other` has no dimension that corresponds to the stack dimension, each member gets all of it.
    """
    count = len(stack.tensordicts)
    node = node_of(other)
    if node is not None:
        if node._batch_size[stack.stack_dim : stack.stack_dim + 1] == (count,):
            return [node_of(part) for part in node.unbind(stack.stack_dim)]
        return [node] * count
    if getattr(other, "ndim", 0):
        return other.expand(stack._batch_size).unbind(stack.stack_dim)
    return [other] * count


def _mask_parts(mask: Any, stack: Any) -> list[Any]:
    """The parts of a mask of the first batch dimensions, one for each member of a stack.

    If these dimensions do not include the stack dimension, each member gets the whole mask.
    """
    mask = tensor(mask, "mask")
    if mask.ndim <= stack.stack_dim:
        return [mask] * len(stack.tensordicts)
    size = stack._batch_size
    return list(mask.expand((*size, *mask.shape[len(size) :])[: mask.ndim]).unbind(stack.stack_dim))


def rebuilt(members: list[Any], stack_dim: int, name: str | None, locked: bool = False) -> Any:
    """Creates a stack from its pickled or copied members."""
    made = LazyStackedTensorDict._of(members, stack_dim, name)
    if locked:
        lock(made, None)
    return made


register_classes(stacked=LazyStackedTensorDict)

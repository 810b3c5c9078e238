"""Writing into what a TensorDict holds already: the tensors stay, their values change."""

from __future__ import annotations

from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.tensordict._entries import LEAF, as_entry, class_kind, node_of, unwrapped
from tenfold.tensordict._keys import path_of
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from tenfold.tensordict._protocol import Key


class WritingMethods(Primitives):
    """`update`, `set_`, `set_at_`, `update_`, `update_at_`, `fill_`, `zero_`, `copy_`, ..."""

    __slots__ = ()

    def set_(self, key: Key, item: Any, *, non_blocking: bool = False) -> Any:
        """Writes `item` into the tensor that is there. Returns this TensorDict.

        Allowed on a locked TensorDict: its entries stay.

        Raises:
            KeyError: If there is no such key.
            RuntimeError: If the shape does not fit.
        """
        path = path_of(key)
        node = node_of(self._walk(path[:-1]))
        if node is None:
            self._walk(path)
        node._overwrite(path[-1], item, non_blocking)
        return self

    def _overwrite(self, key: str, item: Any, non_blocking: bool) -> None:
        there = self._entry(key)
        node = node_of(there)
        if node is not None:
            node.update_(item, non_blocking=non_blocking)
            return
        entry = as_entry(key, item, self)
        if isinstance(there, (NonTensorData, NonTensorStack)):
            self._put_anyway(key, entry)
            return
        if isinstance(there, UnbatchedTensor):
            there = there.data
        if isinstance(entry, UnbatchedTensor):
            entry = entry.data
        if isinstance(entry, (NonTensorData, NonTensorStack)) or node_of(entry) is not None:
            raise RuntimeError(
                f'set_: key "{key}": expected a tensor, found a {type(entry).__name__}'
            )
        if arrays.torch_or_none() is None:
            there[...] = entry
        elif there is not entry:
            try:
                there.copy_(entry, non_blocking=non_blocking)
            except RuntimeError as error:
                if there.shape == entry.shape:
                    raise InplaceWriteError(f'key "{key}": {error}') from error
                raise InplaceWriteError(
                    f'key "{key}": expected a tensor that fits the shape {list(there.shape)}, '
                    f"found {list(entry.shape)}"
                ) from error

    def set_at_(self, key: Key, value: Any, index: Any, *, non_blocking: bool = False) -> Any:
        """``td[key][index] = value``, into the tensor that is there. Returns this TensorDict.

        Raises:
            KeyError: If there is no such key.
        """
        path = path_of(key)
        node = node_of(self._walk(path[:-1]))
        if node is None:
            self._walk(path)
        node._overwrite_at(path[-1], value, index)
        return self

    def _overwrite_at(self, key: str, value: Any, index: Any) -> None:
        there = self._entry(key)
        if isinstance(there, (NonTensorData, NonTensorStack)):
            self._put_anyway(key, there._with_rows(index, value))
            return
        if isinstance(there, UnbatchedTensor):
            # It has no rows: whatever the index, all of it is meant.
            there.data.copy_(unwrapped(value))
            return
        if class_kind(type(there)) == LEAF:
            value = unwrapped(value)
            torch = arrays.torch_or_none()
            if torch is not None and not isinstance(
                value, (torch.Tensor, bool, int, float, complex)
            ):
                value = torch.as_tensor(value, device=there.device)
        there[index] = value

    def update(
        self,
        input_dict_or_td: Any = None,
        clone: bool = False,
        inplace: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
        is_leaf: Callable[[type], bool] | None = None,
        update_batch_size: bool = False,
        ignore_lock: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Sets every entry of a dict or TensorDict; nodes are merged. Returns this TensorDict.

        Args:
            input_dict_or_td: The entries; keys may be paths.
            clone: Copy the tensors first.
            inplace: Write into tensors that are there.
            non_blocking: Of copies between devices.
            keys_to_update: Only these keys.
            is_leaf: Which classes of entries replace a node rather than being merged into it.
            update_batch_size: Take over the batch size of the other TensorDict.
            ignore_lock: Change it even if it is locked.
            **kwargs: More entries.

        Raises:
            RuntimeError: If a shape does not fit, or this TensorDict is locked.

        Example:
            >>> TensorDict({"a": {"b": 1}}).update({"a": {"c": 2}}).keys(True, True)
            [('a', 'b'), ('a', 'c')]
        """
        if input_dict_or_td is self:
            return self
        if not inplace and not ignore_lock:
            self._check_unlocked()
        if update_batch_size and node_of(input_dict_or_td) is not None:
            self.clear()
            self.batch_size = node_of(input_dict_or_td).batch_size
        self._check_rows_of(input_dict_or_td)
        wanted = None if keys_to_update is None else _paths(keys_to_update)
        for key, value in _pairs(input_dict_or_td, kwargs):
            path = path_of(key)
            if wanted is not None and not any(_overlap(path, one) for one in wanted):
                continue
            below = None
            if wanted is not None and not any(path[: len(one)] == one for one in wanted):
                below = [one[len(path) :] for one in wanted if one[: len(path)] == path]
            self._update_one(path, value, clone, inplace, non_blocking, below, is_leaf)
        return self

    def _check_rows_of(self, other: Any) -> None:
        """Refuses a TensorDict of other rows, whatever is in it."""
        node = node_of(other)
        if node is None:
            return
        shared = min(len(node._batch_size), len(self._batch_size))
        if tuple(node._batch_size[:shared]) != tuple(self._batch_size[:shared]):
            raise RuntimeError(
                f"update: expected a TensorDict of batch_size {list(self._batch_size)}, "
                f"found {list(node._batch_size)}; update_batch_size=True takes it over"
            )

    def _update_one(
        self,
        path: tuple[str, ...],
        value: Any,
        clone: bool,
        inplace: bool,
        non_blocking: bool,
        below: Any,
        is_leaf: Any,
    ) -> None:
        if len(path) > 1:
            node = self._node_for(path)
            node._update_one(path[-1:], value, clone, inplace, non_blocking, below, is_leaf)
            return
        key = path[0]
        is_tree = isinstance(value, dict) or node_of(value) is not None
        if is_leaf is not None and is_leaf(type(value)):
            is_tree = False
        if is_tree:
            there = node_of(self._entry(key)) if self._has(key) else None
            if there is not None or below is not None:
                if there is None:
                    there = self._new_child()
                    self._put(key, there)
                there.update(
                    value,
                    clone=clone,
                    inplace=inplace,
                    non_blocking=non_blocking,
                    keys_to_update=below,
                    is_leaf=is_leaf,
                )
                return
        if clone and hasattr(value, "clone"):
            value = value.clone()
        if inplace and self._has(key):
            self._overwrite(key, value, non_blocking)
        else:
            self._put_value(key, value)

    def update_(
        self,
        input_dict_or_td: Any = None,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Writes the entries of a dict or TensorDict into the tensors that are there.

        Returns this TensorDict; it may be locked.

        Raises:
            KeyError: If there is no such key.
            RuntimeError: If a shape does not fit.
        """
        if input_dict_or_td is self:
            return self
        wanted = None if keys_to_update is None else _paths(keys_to_update)
        for key, value in _pairs(input_dict_or_td, kwargs):
            path = path_of(key)
            if wanted is None or any(path[: len(one)] == one for one in wanted):
                self.set_(path, value, non_blocking=non_blocking)
                continue
            below = [one[len(path) :] for one in wanted if one[: len(path)] == path]
            if below:
                node_of(self._walk(path)).update_(value, keys_to_update=below)
        return self

    def update_at_(
        self,
        input_dict_or_td: Any,
        idx: Any,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
    ) -> Any:
        """``td[key][idx] = value`` for every entry of a dict or TensorDict. Returns this one.

        Raises:
            KeyError: If there is no such key.
        """
        wanted = None if keys_to_update is None else _paths(keys_to_update)
        for key, value in _pairs(input_dict_or_td, {}):
            path = path_of(key)
            if wanted is not None and not any(path[: len(one)] == one for one in wanted):
                continue
            node = node_of(self._walk(path))
            if node is not None:
                node.update_at_(value, idx)
            else:
                self.set_at_(path, value, idx)
        return self

    def copy_(self, tensordict: Any, non_blocking: bool = False) -> Any:
        """Writes the values of another TensorDict into this one's tensors: `update_`."""
        return self.update_(tensordict, non_blocking=non_blocking)

    def copy_at_(self, tensordict: Any, idx: Any, non_blocking: bool = False) -> Any:
        """Writes the values of another TensorDict into rows of this one: `update_at_`."""
        return self.update_at_(tensordict, idx, non_blocking=non_blocking)

    def fill_(self, key: Key, value: Any) -> Any:
        """Fills the tensor of a key, or all tensors of a node, with one value. Returns this one.

        Raises:
            KeyError: If there is no such key.
        """
        path = path_of(key)
        node = node_of(self._walk(path[:-1]))
        if node is None:
            self._walk(path)
        node._fill_entry(path[-1], value)
        return self

    def _fill_entry(self, key: str, value: Any) -> None:
        entry = self._entry(key)
        node = node_of(entry)
        if node is not None:
            node._in_place(lambda tensor: tensor.fill_(value))
        else:
            unwrapped(entry).fill_(value)

    def zero_(self) -> Any:
        """Fills every tensor with 0. Returns this TensorDict."""
        return self._in_place(lambda tensor: tensor.zero_())

    def masked_fill_(self, mask: Any, value: Any) -> Any:
        """Fills the rows where `mask`, a bool tensor of at most the batch's dimensions, is true.

        Returns this TensorDict.
        """
        for entry in self._entries().values():
            node = node_of(entry)
            if node is not None:
                node.masked_fill_(mask, value)
            elif class_kind(type(entry)) == LEAF:
                entry.masked_fill_(_expanded_right(mask, entry), value)
        return self

    def masked_fill(self, mask: Any, value: Any) -> Any:
        """A copy in which the rows where `mask` is true are filled with `value`."""
        return self.clone().masked_fill_(mask, value)


@set_module("tenfold")
class InplaceWriteError(RuntimeError, ValueError):
    """A value does not fit the tensor that it was to be written into."""


def _expanded_right(mask: Any, tensor: Any) -> Any:
    """`mask` with the dimensions of `tensor` that it lacks, on the right."""
    return mask.reshape((*mask.shape, *[1] * (tensor.ndim - mask.ndim))).expand(tensor.shape)


def _pairs(source: Any, more: dict[str, Any]) -> Any:
    """The entries of a dict or a TensorDict, and of keyword arguments."""
    if source is not None:
        if not hasattr(source, "items"):
            raise TypeError(
                f"update: expected a dict or a TensorDict, found {type(source).__name__}"
            )
        yield from list(source.items())
    yield from more.items()


def _paths(keys: Any) -> list[tuple[str, ...]]:
    if isinstance(keys, (str, tuple)) and not (
        isinstance(keys, tuple) and any(isinstance(key, tuple) for key in keys)
    ):
        return [path_of(keys)] if isinstance(keys, str) else [path_of(key) for key in keys]
    return [path_of(key) for key in keys]


def _overlap(path: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    shorter = min(len(path), len(wanted))
    return path[:shorter] == wanted[:shorter]

"""Implements `TensorDict.apply`, which calls a function for every tensor."""

from __future__ import annotations

from tenfold.tensordict._entries import (
    NOTHING,
    VALUE,
    class_kind,
    device_name,
    node_of,
    rewrapped,
    unwrapped,
)
from tenfold.tensordict._ops.mapping import is_tensor_class, put_value
from tenfold.tensordict._values import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def applied(
    td: Any, plan: Any, batch_size: Any, device: Any, names: Any, propagate_lock: bool, out: Any
) -> Any:
    made = td._run(plan, plan.others, (), batch_size, device, names)
    if made is None:
        return None
    if out is not None:
        return out.update_(made)
    if propagate_lock and td.is_locked:
        made.lock_()
    return made


class Plan:
    """The arguments of one call of `apply`, and its recursion over the nodes."""

    __slots__ = (
        "call_on_nested", "default", "filter_empty", "fn", "inplace", "is_leaf", "named",
        "nested_keys", "others",
    )  # fmt: skip

    def __init__(
        self, fn: Any, others: Any, named: bool, nested_keys: bool, default: Any,
        filter_empty: bool | None, inplace: bool, call_on_nested: bool, is_leaf: Any,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.others = others
        self.named = named
        self.nested_keys = nested_keys
        self.default = default
        self.filter_empty = filter_empty
        self.inplace = inplace
        self.call_on_nested = call_on_nested
        self.is_leaf = is_leaf

    def run(
        self, td: Any, others: Any, above: tuple[str, ...], batch_size: Any, device: Any, names: Any
    ) -> Any:
        """The result for one node; None if `filter_empty` removes it. With `inplace`, `td`."""
        items: dict[str, Any] = {}
        any_result = any_leaf = False
        nodes = [node_of(other) for other in others]
        for key, entry in td._entries().items():
            theirs = [
                self._of_other(node, key, other) for node, other in zip(nodes, others, strict=True)
            ]
            is_tensor = is_tensor_class(type(entry))
            is_value = class_kind(type(entry)) == VALUE and not is_tensor
            if self.is_leaf is not None:
                as_leaf = self.is_leaf(type(entry))
            else:
                as_leaf = is_tensor or (self.call_on_nested and not is_value)
            if as_leaf:
                any_leaf = True
                if type(entry) is UnbatchedTensor:
                    result = self._call((*above, key), entry.data, *map(unwrapped, theirs))
                    result = None if result is None else UnbatchedTensor(result)
                else:
                    result = self._call((*above, key), entry, *theirs)
                any_result = any_result or result is not None
            elif is_tensor or is_value:
                result = entry
                if is_value and batch_size is not None:
                    result = entry._resized(tuple(batch_size))
                any_result = True
                if self.inplace:
                    continue
            else:
                node = node_of(entry)
                below = node._run(self, theirs, (*above, key), batch_size, device, names)
                any_leaf = any_leaf or below is None
                any_result = any_result or below is not None
                if self.inplace:
                    continue
                result = None if below is None else rewrapped(entry, below)
            if result is not None:
                items[key] = result
        if not any_result and (self.filter_empty or (self.filter_empty is None and any_leaf)):
            return None if not self.inplace else td
        return self._made(td, items, batch_size, device, names)

    def _made(
        self, td: Any, items: dict[str, Any], batch_size: Any, device: Any, names: Any
    ) -> Any:
        if self.inplace:
            for key, value in items.items():
                there = td._entry(key)
                node = node_of(there)
                if node is None:
                    td._overwrite(key, value, False)
                elif node is not node_of(value):
                    node.update(value, inplace=True)
            return td
        made = td._with_entries({})
        if batch_size is not None:
            made._batch_size = tuple(batch_size)
            made._names = None
        if device is not NOTHING:
            made._device = device_name(device)
        if names is not NOTHING:
            made.names = names
        for key, value in items.items():
            put_value(made, key, value)
        return made

    def _of_other(self, node: Any, key: str, other: Any) -> Any:
        if node is None or not node._has(key):
            if self.default is NOTHING:
                if node is None:
                    raise TypeError(
                        f'apply: others: expected a TensorDict with the key "{key}", found '
                        f"{type(other).__name__}"
                    )
                node._entry(key)  # raises
            return self.default
        return node._entry(key)

    def _call(self, path: tuple[str, ...], *values: Any) -> Any:
        if not self.named:
            return self.fn(*values)
        key = path if self.nested_keys and len(path) != 1 else path[-1]
        return self.fn(key, *values)

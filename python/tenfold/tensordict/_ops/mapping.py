"""A TensorDict as a mapping: keys and paths of keys, and what they name."""

from __future__ import annotations

from tenfold._errors import KeyNotFoundError
from tenfold._public import set_module
from tenfold.tensordict._entries import (
    LEAF,
    NODE,
    TENSORCLASS,
    as_entry,
    class_kind,
    node_of,
    unwrapped,
)
from tenfold.tensordict._keys import NOTHING, Keys, is_path, path_of
from tenfold.tensordict._protocol import Primitives, dense
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold.tensordict._protocol import Key


class MappingMethods(Primitives):
    """`keys`, `items`, `values`, `get`, `set`, `pop`, `in`, `del`."""

    __slots__ = ()

    def _walk(self, path: tuple[str, ...]) -> Any:
        """The entry of a path of keys."""
        value: Any = self
        for depth, key in enumerate(path):
            node = value if isinstance(value, MappingMethods) else node_of(value)
            if node is None:
                above = ".".join(path[:depth])
                raise KeyThroughLeafError(
                    f'"{above}" is a {type(value).__name__}: expected a node with an entry "{key}"'
                )
            value = node._entry(key)
        return value

    def get(self, key: Key, default: Any = None) -> Any:
        """The entry of a key or of a path of keys; `default` if there is none.

        A value that is no tensor comes as its NonTensorData or NonTensorStack; ``td[key]`` gives
        the value itself.

        Raises:
            KeyError: If `key` is neither a str nor a tuple of str, or leads through a tensor.

        Example:
            >>> TensorDict({"a": {"b": torch.tensor(1)}}).get(("a", "b"))
            tensor(1)
        """
        try:
            return self._walk(path_of(key))
        except KeyThroughLeafError:
            raise
        except KeyError:
            if not (isinstance(key, str) or is_path(key)):
                raise
            return default

    def get_at(self, key: Key, index: Any, default: Any = None) -> Any:
        """``td[key][index]``; `default` where there is no such key."""
        entry = self.get(key, NOTHING)
        if entry is NOTHING:
            return default
        found = entry[index]
        return found.data if type(found) is NonTensorData else found

    def get_non_tensor(self, key: Key, default: Any = NOTHING) -> Any:
        """The value of a key: the text, number or object itself.

        Raises:
            KeyError: If there is no such key and no default.
        """
        if default is not NOTHING and key not in self:
            return default
        return unwrapped(self._walk(path_of(key)))

    def is_non_tensor(self, key: Key) -> bool:
        """True if the entry of a key is a value that is no tensor."""
        return isinstance(self._walk(path_of(key)), (NonTensorData, NonTensorStack))

    def get_item_shape(self, key: Key) -> Any:
        """The shape of the entry of a key."""
        return self._walk(path_of(key)).shape

    def entry_class(self, key: Key) -> type:
        """The class of the entry of a key."""
        return type(self._walk(path_of(key)))

    def set(self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False) -> Any:
        """Adds an entry, or replaces it; nodes on the way are made. Returns this TensorDict.

        Numbers and lists of numbers become tensors, dicts become nodes, str and None stay values.

        Args:
            key: A str or a tuple of str.
            item: What to store.
            inplace: Write into the tensor that is there, if there is one, as `set_`.
            non_blocking: Of copies between devices.

        Raises:
            RuntimeError: If the shape of a tensor does not begin with the batch size, or this
                TensorDict is locked.
        """
        path = path_of(key)
        if inplace and path in self:
            return self.set_(path, item, non_blocking=non_blocking)
        self._node_for(path)._put_value(path[-1], item)
        return self

    def _node_for(self, path: tuple[str, ...]) -> Any:
        """The node of `path` without its last key; nodes on the way are made."""
        node: Any = self
        for depth, key in enumerate(path[:-1]):
            if node._has(key):
                entry = node._entry(key)
                child = node_of(entry)
                if child is None:
                    above = ".".join(path[: depth + 1])
                    raise KeyThroughLeafError(
                        f'"{above}" is a {type(entry).__name__}: expected a node for an entry '
                        f'"{path[depth + 1]}"'
                    )
            else:
                node._put(key, node._new_child())
                child = node_of(node._entry(key))  # of a stack: a stack of what its members got
            node = child
        return node

    def _new_child(self) -> Any:
        child = dense()._made({}, self._batch_size, self._device)
        child._names = self._names
        return child

    def _put_value(self, key: str, value: Any) -> None:
        self._put(key, as_entry(key, value, self))

    def set_non_tensor(self, key: Key, value: Any) -> Any:
        """Stores any value, even a tensor, as one that every row shares. Returns this TensorDict.

        Example:
            >>> TensorDict(batch_size=[2]).set_non_tensor("ids", [1, 2])["ids"]
            [1, 2]
        """
        path = path_of(key)
        node = self._node_for(path)
        if not isinstance(value, (NonTensorData, NonTensorStack)):
            value = NonTensorData(value, node._batch_size, node.device)
        node._put(path[-1], value)
        return self

    def setdefault(self, key: Key, default: Any, inplace: bool = False) -> Any:
        """The entry of a key; if there is none, `default` becomes it."""
        if key not in self:
            self.set(key, default, inplace=inplace)
        return self.get(key)

    def create_nested(self, key: Key) -> Any:
        """Makes an empty node, of this batch size, for a key. Returns this TensorDict."""
        return self.set(key, self._new_child())

    def pop(self, key: Key, default: Any = NOTHING) -> Any:
        """Deletes an entry and returns it, as `get` would.

        Raises:
            KeyError: If there is no such key and no default.
            RuntimeError: If this TensorDict is locked.
        """
        path = path_of(key)
        try:
            found = self._walk(path)
        except KeyThroughLeafError:
            raise
        except KeyError:
            if default is NOTHING:
                raise
            return default
        self._check_unlocked()
        self.del_(path)
        return found

    def popitem(self) -> tuple[str, Any]:
        """Deletes the last entry and returns its key and the entry.

        Raises:
            KeyError: If there is none.
        """
        keys = self._key_list()
        if not keys:
            raise KeyNotFoundError("popitem: expected an entry, found an empty TensorDict")
        return keys[-1], self.pop(keys[-1])

    def del_(self, key: Key) -> Any:
        """Deletes an entry. Returns this TensorDict.

        Raises:
            KeyError: If there is no such key.
            RuntimeError: If this TensorDict is locked.
        """
        path = path_of(key)
        above = self._walk(path[:-1])
        node = node_of(above)
        if node is None:
            self._walk(path)
        node._check_unlocked()
        node._entry(path[-1])
        node._remove(path[-1])
        return self

    def __delitem__(self, key: Key) -> Any:
        return self.del_(key)

    def __contains__(self, key: object) -> bool:
        if not (isinstance(key, str) or is_path(key)):
            return False
        *above, last = path_of(key)
        try:
            node = node_of(self._walk(tuple(above)))
        except KeyError:
            return False
        return node is not None and node._has(last)

    # --- views of the entries --------------------------------------------------------------------

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> Keys:
        """The keys in order.

        Args:
            include_nested: Also paths of keys, as tuples, each node's before the node's own.
            leaves_only: Without nodes and values.
            is_leaf: Which classes of entries are leaves; None: those of tensors.
            sort: In alphabetical order.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": 2}}).keys(True, True)
            ['a', ('b', 'c')]
        """
        if not include_nested and not leaves_only:
            found = Keys(self._key_list())
        elif is_leaf is not None:
            found = Keys(key for key, _ in self._pairs(include_nested, leaves_only, is_leaf))
        else:
            found = Keys(self._lazy_keys(include_nested, leaves_only))
        if sort:
            found.sort(key=lambda key: key if isinstance(key, str) else ".".join(key))
        return found

    def _lazy_keys(self, include_nested: bool, leaves_only: bool) -> Any:
        for key, kind, child in self._kinds():
            if kind == "node" and include_nested:
                for below in child._lazy_keys(True, leaves_only):
                    yield (key, below) if type(below) is str else (key, *below)
            if kind == "tensor" or not leaves_only:
                yield key

    def _pairs(
        self, include_nested: bool, leaves_only: bool, is_leaf: Callable[[type], bool]
    ) -> Any:
        for key, entry in self._entries().items():
            cls = type(entry)
            leaf = is_leaf(cls)
            if leaf or not leaves_only:
                yield key, entry
            if include_nested and not leaf and class_kind(cls) in (NODE, TENSORCLASS):
                for below, value in node_of(entry)._pairs(True, leaves_only, is_leaf):
                    yield ((key, below) if type(below) is str else (key, *below)), value

    def _tensors(self) -> Any:
        """Every tensor here and below."""
        for entry in self._entries().values():
            node = node_of(entry)
            if node is not None:
                yield from node._tensors()
            elif class_kind(type(entry)) == LEAF or type(entry) is UnbatchedTensor:
                yield unwrapped(entry)

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> list[Any]:
        """The entries of `keys(...)`, as `get` gives them."""
        return [value for _, value in self.items(include_nested, leaves_only, is_leaf, sort=sort)]

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
        *,
        sort: bool = False,
    ) -> list[tuple[Any, Any]]:
        """Pairs of key and entry, as `keys(...)` and `values(...)`."""
        if not include_nested and not leaves_only:
            found = list(self._entries().items())
        else:
            found = list(self._pairs(include_nested, leaves_only, is_leaf or is_tensor_class))
        if sort:
            found.sort(key=lambda pair: pair[0] if type(pair[0]) is str else ".".join(pair[0]))
        return found

    def non_tensor_items(self, include_nested: bool = False) -> list[tuple[Any, Any]]:
        """Pairs of key and value of the entries that are no tensors."""
        return [
            (key, value)
            for key, value in self.items(include_nested)
            if isinstance(value, (NonTensorData, NonTensorStack))
        ]

    @property
    def sorted_keys(self) -> list[str]:
        """The keys in alphabetical order."""
        return sorted(self._key_list())

    @property
    def depth(self) -> int:
        """How many nodes lie between this one and the deepest entry."""
        depths = [node_of(v).depth + 1 for v in self._entries().values() if node_of(v) is not None]
        return max(depths, default=0)

    def is_empty(self) -> bool:
        """True if there is no entry in it or below but empty nodes."""
        return all(kind == "node" and child.is_empty() for _, kind, child in self._kinds())

    def __len__(self) -> int:
        return self._batch_size[0] if self._batch_size else 0


@set_module("tenfold")
class KeyThroughLeafError(KeyNotFoundError, ValueError):
    """A path of keys goes on below a tensor."""


def is_tensor_class(cls: type) -> bool:
    """True for classes of tensors: what `keys(leaves_only=True)` takes for leaves."""
    return class_kind(cls) == LEAF or cls is UnbatchedTensor

"""`TensorDictBase`: the methods that TensorDict and LazyStackedTensorDict share."""

from __future__ import annotations

from tenfold._interop.frameworks import decided, using
from tenfold._public import set_module
from tenfold.tensordict import _convert, _repr
from tenfold.tensordict._entries import NOTHING, called
from tenfold.tensordict._files import consolidated, folder, grow, memmap
from tenfold.tensordict._ops import apply, indexing, join, torch_functions
from tenfold.tensordict._ops import locking as _locking
from tenfold.tensordict._ops import mapping as _mapping
from tenfold.tensordict._ops import shape as _shape
from tenfold.tensordict._tensor_like import TensorLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Literal, TypeVar, overload

    import numpy as np
    import torch
    from typing_extensions import Self

    from tenfold._interop.frameworks import Framework
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._entries import Keys
    from tenfold.tensordict._lazy import LazyStackedTensorDict
    from tenfold.tensordict._protocol import BatchSize, Device, Index, Key

    Default = TypeVar("Default")
    Item = TypeVar("Item")
    PathLike = str | os.PathLike[str]
    IsLeaf = Callable[[type], bool]


@set_module("tenfold")
class TensorDictBase(TensorLike):
    """A tree of tensors: the methods that TensorDict and LazyStackedTensorDict share.

    An entry is a tensor, a node (a nested TensorDict, lazy stack or tensorclass), or a plain value
    (any other object, such as a str).

    Create a `TensorDict`, or stack several with `stack` or `lazy_stack`. Methods whose names end in
    ``_`` change this TensorDict and return it (`memmap_` can return a future of it). `set`,
    `update`, `pop` and other methods of dicts change it, too. Other methods change it only if their
    description says so.

    Operations of tensors, such as `reshape` and `sum`, are in `TensorLike`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _repr.html(self)

    # --- entries by key or index -----------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: str) -> Any: ...
        @overload
        def __getitem__(self, key: tuple[str, ...]) -> Any: ...
        @overload
        def __getitem__(self, key: Index) -> Self: ...

    def __getitem__(self, key: Any) -> Any:
        """Returns the entry of a key or path of keys, or the rows that an index selects.

        A key returns a tensor, a node or a plain value. Any other index (int, slice, list, bool or
        int tensor, ``...``, None, or a tuple of these) selects rows along the batch dimensions of
        every tensor except unbatched ones.

        Raises:
            KeyError: If there is no such key.
            IndexError: If the index has too many dimensions or is out of bounds.
            RuntimeError: If the index consumes a dimension but the batch size is [], or if it
                contains several ``...``; if the members of a lazy stack have entries of different
                shapes or kinds under the key.

        Example:
            >>> td = TensorDict({"a": {"b": torch.arange(3)}}, [3])
            >>> td["a", "b"], td[1:]["a"]["b"]
            (tensor([0, 1, 2]), tensor([1, 2]))
        """
        return indexing.item(self, key)

    def __getitems__(self, index: Any) -> Self:
        """Returns the rows at a list of positions. torch's DataLoader calls this method."""
        return self._rows(index)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Sets the entry of a key, or writes `value` into the rows of an index.

        Args:
            key: A key or path of keys, as for `set`; or an index of the batch dimensions.
            value: For an index: a TensorDict or dict of rows, whose shapes broadcast to the indexed
                rows, and whose keys may be paths; or a number or tensor that is written into every
                entry. An entry that only `value` has is added; its other rows are zeros, or None
                for plain values.

        Raises:
            RuntimeError: If a shape does not fit; if this TensorDict is locked, and the assignment
                sets the entry of a key or would add an entry; as for `__getitem__`.
            KeyError: As for `set`.
            IndexError: As for `__getitem__`.
        """
        indexing.assign(self, key, value)

    if TYPE_CHECKING:

        @overload
        def get(self, key: Key) -> Any | None: ...
        @overload
        def get(self, key: Key, default: Default) -> Any | Default: ...

    def get(self, key: Key, default: Any = None) -> Any:
        """Returns the entry of a key or path of keys, or `default` if it does not exist.

        A plain value is returned in its NonTensorData or NonTensorStack, and an unbatched tensor in
        its UnbatchedTensor; ``td[key]`` returns the value or tensor itself.

        Args:
            key: A str or a tuple of str.
            default: Returned if the key does not exist.

        Raises:
            KeyError: If `key` is neither a str nor a tuple of str, or a path leads through a
                tensor or a plain value.

        Example:
            >>> TensorDict({"a": {"b": torch.tensor(1)}}).get(("a", "b"))
            tensor(1)
        """
        return _mapping.get(self, key, default)

    def get_at(self, key: Key, index: Any, default: Any = None) -> Any:
        """Returns ``td.get(key)[index]``, or `default` if the key does not exist.

        If the result is a NonTensorData, its value is returned. The tensor in an UnbatchedTensor
        is indexed.

        Args:
            key: A str or a tuple of str.
            index: An index of a tensor, or of the batch dimensions of a node or a plain value.
            default: Returned if the key does not exist.

        Raises:
            KeyError: As for `get`.
            IndexError, RuntimeError: As for `__getitem__`.

        Example:
            >>> td.get_at("a", 0), td.get_at("x", 0, default=None)
            (tensor(0.), None)
        """
        return _mapping.get_at(self, key, index, default)

    def get_non_tensor(self, key: Key, default: Any = NOTHING) -> Any:
        """Returns the plain value (string, number, object) of an entry.

        A tensor or a node is returned unchanged.

        Args:
            key: A str or a tuple of str.
            default: Returned if the key does not exist.

        Raises:
            KeyError: If the key does not exist and no default is given.

        Example:
            >>> TensorDict({"name": "run"}).get_non_tensor("name")
            'run'
        """
        return _mapping.get_non_tensor(self, key, default)

    def is_non_tensor(self, key: Key) -> bool:
        """Returns True if the entry of a key is a plain value: neither a tensor nor a node.

        Args:
            key: A str or a tuple of str.

        Raises:
            KeyError: If the key does not exist.

        Example:
            >>> TensorDict({"name": "run"}).is_non_tensor("name")
            True
        """
        return _mapping.is_non_tensor(self, key)

    def get_item_shape(self, key: Key) -> torch.Size:
        """Returns the shape of a tensor, or the batch size of a node or a plain value.

        Args:
            key: A str or a tuple of str.

        Raises:
            KeyError: If the key does not exist.

        Example:
            >>> td.get_item_shape(("b", "c"))
            torch.Size([3])
        """
        return _mapping.get_item_shape(self, key)

    def entry_class(self, key: Key) -> type:
        """Returns the class of the entry of a key, as `get` returns it.

        Args:
            key: A str or a tuple of str.

        Raises:
            KeyError: If the key does not exist.

        Example:
            >>> td.entry_class("a").__name__
            'Tensor'
        """
        return _mapping.entry_class(self, key)

    def set(
        self, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False
    ) -> Self:
        """Adds or replaces an entry and returns this TensorDict; creates nodes on the path.

        A bool, int or float, and arrays become tensors; dicts become nodes. Lists and tuples of
        numbers, of arrays of one shape or of TensorDicts are stacked. Other lists become a
        NonTensorStack with one value for each item. Other objects, such as str, single complex
        numbers, None and other tuples, stay plain values.

        Args:
            key: A str or a tuple of str.
            item: The value to store.
            inplace: If true and the key exists, write into its tensor, as `set_` does.
            non_blocking: With `inplace`: passed to ``Tensor.copy_``.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If the shape of `item` does not begin with the batch size; if a list
                contains TensorDicts that cannot be stacked; if this TensorDict is locked and the
                entry is not written in place; with `inplace`, as for `set_`.
            KeyError: If `key` is neither a str nor a tuple of str, or a path leads through a
                tensor or a plain value.
            AttributeError: If a path leads to a field that an object of a tensorclass lacks.
            TypeError: If `item` is an array whose dtype torch lacks.

        Example:
            >>> td.set(("b", "d"), torch.ones(3))["b", "d"]
            tensor([1., 1., 1.])
        """
        return _mapping.put(self, key, item, inplace, non_blocking=non_blocking)

    def set_non_tensor(self, key: Key, value: Any) -> Self:
        """Stores any object, even a tensor, as a value shared by all rows.

        Args:
            key: A str or a tuple of str.
            value: Any object. A NonTensorStack contains a value for each row.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If this TensorDict is locked; if the batch size of a NonTensorStack does
                not begin with that of this TensorDict.
            KeyError: If a path leads through a tensor or a plain value.

        Example:
            >>> TensorDict(batch_size=[2]).set_non_tensor("ids", [1, 2])["ids"]
            [1, 2]
        """
        return _mapping.set_non_tensor(self, key, value)

    def setdefault(self, key: Key, default: Any, inplace: bool = False) -> Any:
        """Returns the entry of a key as `get` does; stores `default` first if there is none.

        Args:
            key: A str or a tuple of str.
            default: The value to store if the key does not exist.
            inplace: Ignored: an entry that exists is never changed.

        Raises:
            RuntimeError: If the key does not exist, and this TensorDict is locked or the shape of
                `default` does not begin with the batch size.
            KeyError: As for `set`.

        Example:
            >>> td.setdefault("x", torch.ones(3))
            tensor([1., 1., 1.])
        """
        return _mapping.setdefault(self, key, default, inplace)

    def create_nested(self, key: Key) -> Self:
        """Stores an empty node under a key; replaces an existing entry.

        The new node has the batch size of the node that contains it.

        Args:
            key: A str or a tuple of str; nodes on the path are created, too.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If this TensorDict is locked.
            KeyError: If a path leads through a tensor or a plain value.

        Example:
            >>> td.create_nested(("x", "y"))["x", "y"].batch_size
            torch.Size([3])
        """
        return _mapping.create_nested(self, key)

    def pop(self, key: Key, default: Any = NOTHING) -> Any:
        """Deletes an entry and returns it as `get` would.

        Args:
            key: A str or a tuple of str.
            default: Returned if the key does not exist.

        Returns:
            The entry, or `default`.

        Raises:
            KeyError: If the key does not exist and no default is given, or a path leads through a
                tensor or a plain value.
            RuntimeError: If the key exists and this TensorDict is locked.

        Example:
            >>> td.pop("a")
            tensor([0., 0., 0.])
        """
        return _mapping.pop(self, key, default)

    def popitem(self) -> tuple[str, Any]:
        """Deletes the last entry and returns its key and the entry.

        Raises:
            KeyError: If there are no entries.
            RuntimeError: If this TensorDict is locked.
        """
        return _mapping.popitem(self)

    def del_(self, key: Key) -> Self:
        """Deletes an entry.

        Args:
            key: A str or a tuple of str.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the key does not exist.
            RuntimeError: If this TensorDict is locked.

        Example:
            >>> "a" in td.del_("a")
            False
        """
        return _mapping.del_(self, key)

    def __delitem__(self, key: Key) -> Self:
        return self.del_(key)

    def __contains__(self, key: object) -> bool:
        return _mapping.contains(self, key)

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> Keys:
        """Returns the keys in insertion order, as a list that also compares and combines as a set.

        Args:
            include_nested: Also return the paths of keys below nodes, as tuples, before the key of
                the node; with `is_leaf` or `sort`, after it.
            leaves_only: Omit entries that are not leaves.
            is_leaf: Called with an entry's class; returns whether the entry is a leaf, below which
                no keys are returned. Default: tensors are leaves, nodes and plain values are not.
            sort: Sort the keys alphabetically.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": 2}}).keys(True, True)
            ['a', ('b', 'c')]
        """
        return _mapping.keys(self, include_nested, leaves_only, is_leaf, sort=sort)

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> list[Any]:
        """Returns the entries in the order of `items`, each as `get` returns it.

        Args:
            include_nested: Also return the entries below nodes, after the node itself.
            leaves_only: Omit entries that are not leaves.
            is_leaf: Called with an entry's class; returns whether the entry is a leaf; see `keys`.
            sort: Sort the keys alphabetically.

        Example:
            >>> [tensor.shape for tensor in td.values(True, True)]
            [torch.Size([3]), torch.Size([3])]
        """
        return [value for _, value in self.items(include_nested, leaves_only, is_leaf, sort=sort)]

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        is_leaf: IsLeaf | None = None,
        *,
        sort: bool = False,
    ) -> list[tuple[Any, Any]]:
        """Returns pairs of key and entry, each entry as `get` returns it.

        Args:
            include_nested: Also return the entries below nodes, after the node itself; their keys
                are tuples.
            leaves_only: Omit entries that are not leaves.
            is_leaf: Called with an entry's class; returns whether the entry is a leaf; see `keys`.
            sort: Sort the keys alphabetically.

        Example:
            >>> [(key, tensor.shape) for key, tensor in td.items(True, True)]
            [('a', torch.Size([3])), (('b', 'c'), torch.Size([3]))]
        """
        return _mapping.items(self, include_nested, leaves_only, is_leaf, sort=sort)

    def non_tensor_items(self, include_nested: bool = False) -> Sequence[tuple[Any, Any]]:
        """Returns pairs of key and NonTensorData or NonTensorStack, for all plain values.

        Args:
            include_nested: Also return the entries below nodes; their keys are tuples.

        Example:
            >>> TensorDict({"a": torch.zeros(3), "name": "run"}).non_tensor_items()[0][0]
            'name'
        """
        return _mapping.non_tensor_items(self, include_nested)

    @property
    def sorted_keys(self) -> list[str]:
        """The keys in alphabetical order."""
        return sorted(self._key_list())

    @property
    def depth(self) -> int:
        """The number of levels of nodes below this one."""
        return _mapping.depth(self)

    def is_empty(self) -> bool:
        """Returns True if the tree contains neither tensors nor plain values."""
        return all(kind == "node" and child.is_empty() for _, kind, child in self._kinds())

    def __len__(self) -> int:
        return self._batch_size[0] if self._batch_size else 0

    def __bool__(self) -> bool:
        raise RuntimeError(
            "a TensorDict is neither true nor false: expected len(td.keys()) or td.is_empty()"
        )

    def __iter__(self) -> Iterator[Self]:
        return _shape.rows_of(self)

    # --- writing into the tensors that exist -----------------------------------------------------

    def set_(self, key: Key, item: Any, *, non_blocking: bool = False) -> Self:
        """Writes `item` into the tensor of a key; replaces a plain value.

        Allowed on a locked TensorDict.

        Args:
            key: A str or a tuple of str.
            item: If the entry is a tensor: a tensor whose shape begins with the batch size and
                broadcasts to the shape of the entry. If it is a node: a dict or TensorDict, as for
                `update_`. If it is a plain value: any item that `set` accepts.
            non_blocking: Passed to ``Tensor.copy_``.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the key does not exist.
            RuntimeError: If the shape does not fit, or `item` is a plain value or a node and the
                entry is a tensor.
            TypeError: If the entry is a node, and `item` is neither a dict nor a TensorDict.

        Example:
            >>> td.set_("a", torch.ones(3))["a"]
            tensor([1., 1., 1.])
        """
        return _mapping.set_(self, key, item, non_blocking=non_blocking)

    def set_at_(self, key: Key, value: Any, index: Any, *, non_blocking: bool = False) -> Self:
        """Writes `value` into rows of the tensor of a key: ``td[key][index] = value``.

        Args:
            key: A str or a tuple of str.
            value: A tensor or number that broadcasts to the rows. For a plain value, any object;
                for a node, as for ``td[index] = value``.
            index: An index of the tensor, or of the batch dimensions of a node or a plain value.
                For an UnbatchedTensor in a lazy stack: an index of the stack; `value` is written
                into the whole tensor of each member that it selects.
            non_blocking: Ignored: copies are synchronous.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the key does not exist.
            IndexError, RuntimeError, TypeError: As for ``tensor[index] = value``.

        Example:
            >>> td.set_at_("a", 5, 0)["a"]
            tensor([5., 0., 0.])
        """
        return _mapping.set_at_(self, key, value, index, non_blocking=non_blocking)

    def update(
        self, input_dict_or_td: Mapping[Any, Any] | TensorDictBase | Any = None,
        clone: bool = False, inplace: bool = False, *, non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None, is_leaf: IsLeaf | None = None,
        update_batch_size: bool = False, ignore_lock: bool = False, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Sets every entry of a dict or TensorDict; merges nodes.

        Args:
            input_dict_or_td: The entries; keys may be paths.
            clone: Copy the tensors first.
            inplace: Write into the tensors of keys that exist.
            non_blocking: With `inplace`: passed to ``Tensor.copy_``.
            keys_to_update: Set only these keys.
            is_leaf: Called with the class of a new value; returns whether the value replaces an
                existing node instead of being merged into it.
            update_batch_size: First delete all entries, and set the batch size to that of
                `input_dict_or_td`. Ignored for a dict.
            ignore_lock: Ignored: the lock is respected in any case.
            **kwargs: More entries.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If a shape or batch size does not fit; or if this TensorDict is locked
                and `inplace` is false or a key is new.
            KeyError: If a path leads through a tensor or a plain value.
            ValueError: If a nested dict or TensorDict has a key that is not a field of the
                tensorclass object that it is merged into.
            AttributeError: If a path leads to a field that an object of a tensorclass lacks.
            TypeError: If `input_dict_or_td` is neither a dict nor a TensorDict nor None.

        Example:
            >>> TensorDict({"a": {"b": 1}}).update({"a": {"c": 2}}).keys(True, True)
            [('a', 'b'), ('a', 'c')]
        """
        return _mapping.update(
            self,
            input_dict_or_td,
            clone,
            inplace,
            non_blocking,
            keys_to_update,
            is_leaf,
            update_batch_size,
            ignore_lock,
            kwargs,
        )

    def update_(
        self,
        input_dict_or_td: Mapping[Any, Any] | TensorDictBase | Any = None,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Writes the entries of a dict or TensorDict into the tensors that exist.

        Allowed on a locked TensorDict.

        Args:
            input_dict_or_td: The entries; keys may be paths.
            clone: Ignored: the values are always copied.
            non_blocking: Passed to ``Tensor.copy_``.
            keys_to_update: Write only these keys.
            **kwargs: More entries.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If a key does not exist.
            RuntimeError: As for `set_`.
            TypeError: As for `update`.

        Example:
            >>> td.update_({"a": torch.ones(3)})["a"]
            tensor([1., 1., 1.])
        """
        return _mapping.update_(self, input_dict_or_td, non_blocking, keys_to_update, kwargs)

    def update_at_(
        self,
        input_dict_or_td: Mapping[Any, Any] | TensorDictBase,
        idx: Any,
        clone: bool = False,
        *,
        non_blocking: bool = False,
        keys_to_update: Iterable[Key] | None = None,
    ) -> Self:
        """Writes entries into rows: ``td[key][idx] = value`` for every entry.

        Args:
            input_dict_or_td: The entries; keys may be paths.
            idx: An index of the batch dimensions.
            clone: Ignored: the values are always copied.
            non_blocking: Ignored: copies are synchronous.
            keys_to_update: Write only these keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If a key does not exist.
            IndexError, RuntimeError: As for `set_at_`.
            TypeError: As for `update`.

        Example:
            >>> td.update_at_({"a": 5}, 0)["a"]
            tensor([5., 0., 0.])
        """
        return _mapping.update_at_(self, input_dict_or_td, idx, keys_to_update)

    def copy_(self, tensordict: Any, non_blocking: bool = False) -> Self:
        """Writes the values of another TensorDict into these tensors, like `update_`.

        Args:
            tensordict: A TensorDict or dict with keys of this one; see `update_`.
            non_blocking: Passed to ``Tensor.copy_``.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If this TensorDict lacks a key.
            RuntimeError, TypeError: As for `update_`.

        Example:
            >>> td.copy_({"a": torch.ones(3)})["a"]
            tensor([1., 1., 1.])
        """
        return self.update_(tensordict, non_blocking=non_blocking)

    def copy_at_(self, tensordict: Any, idx: Any, non_blocking: bool = False) -> Self:
        """Writes the values of another TensorDict into rows of this one, like `update_at_`.

        Args:
            tensordict: A TensorDict or dict with keys of this one.
            idx: An index of the batch dimensions.
            non_blocking: Ignored: copies are synchronous.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If this TensorDict lacks a key.
            IndexError, RuntimeError, TypeError: As for `update_at_`.

        Example:
            >>> td.copy_at_({"a": 5}, 0)["a"]
            tensor([5., 0., 0.])
        """
        return self.update_at_(tensordict, idx, non_blocking=non_blocking)

    def fill_(self, key: Key, value: Any) -> Self:
        """Fills the tensor of a key, or all tensors of a node, with one value.

        Args:
            key: A str or a tuple of str.
            value: A number.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the key does not exist.
            RuntimeError: If the entry is a plain value.

        Example:
            >>> td.fill_("b", 7)["b", "c"]
            tensor([7., 7., 7.])
        """
        return _mapping.fill_(self, key, value)

    def zero_(self) -> Self:
        """Fills every tensor with zeros."""
        return self._in_place(called("zero_"))

    def masked_fill_(self, mask: torch.Tensor, value: Any) -> Self:
        """Fills the rows where a mask is true with one value.

        Args:
            mask: A bool tensor, whose dimensions are the first batch dimensions.
            value: A number.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If the mask is not bool, or does not broadcast to these dimensions.

        Example:
            >>> td.masked_fill_(torch.tensor([True, False, True]), 7)["a"]
            tensor([7., 0., 7.])
        """
        return _mapping.masked_fill_(self, mask, value)

    def masked_fill(self, mask: torch.Tensor, value: Any) -> Self:
        """Returns a copy with the rows where a mask is true filled; see `masked_fill_`.

        Args:
            mask: A bool tensor, whose dimensions are the first batch dimensions.
            value: A number.

        Raises:
            RuntimeError: If the mask is not bool, or does not broadcast to these dimensions.

        Example:
            >>> td.masked_fill(torch.tensor([True, False, True]), 7)["a"]
            tensor([7., 0., 7.])
        """
        return self.clone().masked_fill_(mask, value)

    # --- which entries exist, and under which keys -----------------------------------------------

    def select(
        self, *keys: Key, inplace: bool = False, strict: bool = True, as_tensordict: bool = False
    ) -> Self:
        """Returns a TensorDict of the given entries only, which are shared, not copied.

        Args:
            *keys: Keys or paths of keys.
            inplace: Delete the other entries of this TensorDict instead.
            strict: If false, ignore keys that do not exist.
            as_tensordict: Accepted for compatibility with tensorclasses.

        Raises:
            KeyError: If `strict` and a key does not exist.
            RuntimeError: If an argument is neither a str nor a tuple, or if `inplace` and this
                TensorDict is locked.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": 2, "d": 3}}).select("a", ("b", "c")).keys(True, True)
            ['a', ('b', 'c')]
        """
        return _mapping.select(self, *keys, inplace=inplace, strict=strict)

    def exclude(self, *keys: Key, inplace: bool = False) -> Self:
        """Returns a TensorDict of all entries except the given ones.

        Args:
            *keys: Keys or paths of keys; those that do not exist are ignored.
            inplace: Delete these entries from this TensorDict instead.

        Raises:
            KeyError: If a key is neither a str nor a tuple of str.
            RuntimeError: If `inplace` and this TensorDict is locked.

        Example:
            >>> td.exclude("a", ("b", "c")).keys(True)
            ['b']
        """
        return _mapping.exclude(self, *keys, inplace=inplace)

    def split_keys(
        self, *key_sets: Iterable[Key] | Mapping[Key, Key], inplace: bool = False,
        default: Any = NOTHING, strict: bool = True, reproduce_struct: bool = False,
    ) -> tuple[Self, ...]:  # fmt: skip
        """Returns one TensorDict for each set of keys, and one of the remaining entries.

        Args:
            *key_sets: Each a list of keys, or a dict from key to new key.
            inplace: Delete the selected entries from this TensorDict, which then is the last item
                of the result.
            default: Value of a key that does not exist. None: such a key is ignored.
            strict: If false, and without a default, ignore keys that do not exist.
            reproduce_struct: Give each TensorDict all nodes, even empty ones, and all plain values.
                If false, the remaining entries contain no empty nodes.

        Raises:
            KeyError: If `strict`, no default is given, and a key does not exist or was already
                selected; if a path leads through a tensor or a plain value.
            RuntimeError: If `inplace` and this TensorDict is locked.

        Example:
            >>> first, rest = td.split_keys(["a"])
            >>> first.keys(True), rest.keys(True)
            (['a'], [('b', 'c'), 'b'])
        """
        return _mapping.split_keys(self, key_sets, inplace, default, strict, reproduce_struct)

    def separates(
        self,
        *keys: Key,
        default: Any = NOTHING,
        strict: bool = True,
        filter_empty: bool = True,
    ) -> Self:
        """Moves entries out of this TensorDict and returns them as a new one.

        Args:
            *keys: Keys or paths of keys.
            default: Value of a key that does not exist. None: such a key is ignored.
            strict: If false, and without a default, ignore keys that do not exist.
            filter_empty: Ignored: empty nodes of this TensorDict, except tensorclasses, are
                removed in any case.

        Returns:
            A TensorDict of the moved entries.

        Raises:
            KeyError: As for `split_keys`.
            RuntimeError: If this TensorDict is locked.

        Example:
            >>> td.separates("a").keys(), td.keys()
            (['a'], ['b'])
        """
        return _mapping.separates(self, *keys, default=default, strict=strict)

    def filter_empty_(self) -> Self:
        """Deletes the nodes that contain neither tensors nor plain values, at all levels.

        Tensorclasses are kept unchanged.

        Raises:
            RuntimeError: If there is such a node and this TensorDict is locked.
        """
        return _mapping.filter_empty_(self)

    def filter_non_tensor_data(self) -> Self:
        """Returns a TensorDict without the plain values; nodes and tensors are kept."""
        return _mapping.filter_non_tensor_data(self)

    def rename_key_(self, old_key: Key, new_key: Key, safe: bool = False) -> Self:
        """Moves an entry to another key.

        Args:
            old_key: A key that exists.
            new_key: The new key; nodes on the path are created.
            safe: If true, an existing entry at `new_key` is an error.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If `old_key` does not exist, or `safe` and `new_key` is another key that
                exists; if a path leads through a tensor or a plain value.
            RuntimeError: If this TensorDict or the node of one of the keys is locked, or the shape
                of the entry does not begin with the batch size of its new node.
            TypeError: If `new_key` is neither a str nor a tuple.

        Example:
            >>> td.rename_key_("a", ("b", "a")).keys(True, True)
            [('b', 'c'), ('b', 'a')]
        """
        return _mapping.rename_key_(self, old_key, new_key, safe)

    def rename_keys(self, mapping: Mapping[Key, Key], *, strict: bool = True) -> Self:
        """Returns a TensorDict with entries under new keys, over the same tensors.

        Args:
            mapping: New key by old key.
            strict: If false, ignore old keys that do not exist.

        Raises:
            KeyError: If `strict` and an old key does not exist; if a path leads through a tensor
                or a plain value.

        Example:
            >>> td.rename_keys({"a": "x"}).keys()
            ['b', 'x']
        """
        return _mapping.rename_keys(self, mapping, strict=strict)

    def flatten_keys(
        self, separator: str = ".", inplace: bool = False, is_leaf: IsLeaf | None = None
    ) -> Self:
        """Returns a TensorDict without nodes: ``{"a": {"b": t}}`` becomes ``{"a.b": t}``.

        Args:
            separator: The string between the keys of a path.
            inplace: Change this TensorDict instead.
            is_leaf: Called with a node's class; returns whether the node is kept.

        Raises:
            KeyError: If two entries would have the same key.
            RuntimeError: If `inplace` and this TensorDict is locked.

        Example:
            >>> td.flatten_keys().keys()
            ['a', 'b.c']
        """
        return _mapping.flatten_keys(self, separator, inplace, is_leaf)

    def unflatten_keys(self, separator: str = ".", inplace: bool = False) -> Self:
        """Returns a TensorDict with nodes: ``{"a.b": t}`` becomes ``{"a": {"b": t}}``.

        The keys in nodes below do not change.

        Args:
            separator: The string between the keys of a path.
            inplace: Change this TensorDict instead.

        Raises:
            KeyError: If a path leads through a tensor or a plain value, or two entries would have
                the same key.
            RuntimeError: If `inplace` and this TensorDict is locked.

        Example:
            >>> TensorDict({"a.b": 1}).unflatten_keys().keys(True)
            [('a', 'b'), 'a']
        """
        return _mapping.unflatten_keys(self, separator, inplace)

    def empty(
        self,
        recurse: bool = False,
        *,
        batch_size: BatchSize | None = None,
        device: Device | None = NOTHING,
        names: Sequence[str | None] | None = NOTHING,
    ) -> Self:
        """Returns a TensorDict without entries, of the same batch size, device and names.

        Args:
            recurse: Keep the nodes below, emptied too, and the plain values.
            batch_size: Another batch size; the batch sizes of the nodes below then begin with it.
            device: Another device, or None; also for the nodes below.
            names: Other names of the dimensions, or None; also for the nodes below.

        Raises:
            ValueError: If the number of `names` is not the number of batch dimensions.

        Example:
            >>> td.empty().batch_size
            torch.Size([3])
        """
        return _mapping.empty(self, recurse, batch_size=batch_size, device=device, names=names)

    def clear(self) -> Self:
        """Deletes all entries.

        Raises:
            RuntimeError: If this TensorDict is locked.
        """
        return _mapping.clear(self)

    def copy(self) -> Self:
        """Returns new nodes over the same tensors: ``clone(recurse=False)``."""
        return self.clone(recurse=False)

    def replace(self, *args: Any, **kwargs: Any) -> Self:
        """Returns a shallow copy (same tensors), to which `update` has added the given entries.

        If no entries are given, returns this TensorDict itself.

        Args:
            *args: At most one dict or TensorDict of entries.
            **kwargs: Entries by key.

        Raises:
            TypeError: If the argument is neither a dict nor a TensorDict.
            ValueError: For more than one dict.
            KeyError, RuntimeError: As for `update`.

        Example:
            >>> td.replace(a=torch.ones(3))["a"]
            tensor([1., 1., 1.])
        """
        return _mapping.replace(self, *args, **kwargs)

    # --- functions applied to every tensor -------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def apply(
            self, fn: Callable[..., Any], *others: Any, batch_size: BatchSize | None = ...,
            device: Device | None = ..., names: Sequence[str | None] | None = ...,
            inplace: bool = ..., default: Any = ..., filter_empty: Literal[False],
            propagate_lock: bool = ..., call_on_nested: bool = ...,
            is_leaf: IsLeaf | None = ..., out: TensorDictBase | None = ...,
        ) -> Self: ...  # fmt: skip
        @overload
        def apply(
            self, fn: Callable[..., Any], *others: Any, batch_size: BatchSize | None = ...,
            device: Device | None = ..., names: Sequence[str | None] | None = ...,
            inplace: bool = ..., default: Any = ..., filter_empty: bool | None = ...,
            propagate_lock: bool = ..., call_on_nested: bool = ...,
            is_leaf: IsLeaf | None = ..., out: TensorDictBase | None = ...,
        ) -> Self | Any: ...  # fmt: skip

    def apply(
        self, fn: Callable[..., Any], *others: Any, batch_size: BatchSize | None = None,
        device: Device | None = NOTHING, names: Sequence[str | None] | None = NOTHING,
        inplace: bool = False, default: Any = NOTHING, filter_empty: bool | None = None,
        propagate_lock: bool = False, call_on_nested: bool = False,
        is_leaf: IsLeaf | None = None, out: TensorDictBase | None = None,
    ) -> Any:  # fmt: skip
        """Calls a function with each tensor and returns a TensorDict of the results.

        Args:
            fn: Called with each tensor, and the tensors under the same key of `others`.
            *others: TensorDicts with the same keys.
            batch_size: Batch size of the result and its nodes. Default: those of this TensorDict.
            device: Device of the result, to which tensors are moved. None: the result has no
                device, and no tensor is moved. Default: the device of this TensorDict.
            names: Names of the dimensions. Default: those of this TensorDict, unless `batch_size`
                is given.
            inplace: Write the results into the tensors of this TensorDict. `batch_size`, `device`
                and `names` are ignored.
            default: Value used for keys missing from `others`. Default: a missing key is an error.
            filter_empty: True: remove nodes without results. None: remove nodes for whose entries
                `fn` returned only None. False: keep all nodes.
            propagate_lock: Lock the result if this TensorDict is locked.
            call_on_nested: Call `fn` with nodes instead of the tensors below.
            is_leaf: Called with an entry's class; returns whether to call `fn` with the entry. If
                not, a tensor is kept unchanged. Overrides `call_on_nested`.
            out: A TensorDict to write the results into.

        Returns:
            A TensorDict of the results and the values that are not tensors, without the entries
            for which `fn` returned None. None if `filter_empty` removes the root of the result.
            With `inplace`, this TensorDict, in which such entries remain; with `out`, `out`.

        Raises:
            KeyError: If a key is missing from `others` and no `default` is given.
            TypeError: If one of `others` is not a TensorDict and no `default` is given.
            RuntimeError: If the shape of a result does not begin with the batch size.

        Example:
            >>> TensorDict({"a": torch.tensor(1)}).apply(lambda tensor: tensor + 1)["a"]
            tensor(2)
        """
        plan = apply.Plan(
            fn, others, False, False, default, filter_empty, inplace, call_on_nested, is_leaf
        )
        return apply.applied(self, plan, batch_size, device, names, propagate_lock, out)

    def named_apply(
        self, fn: Callable[..., Any], *others: Any, nested_keys: bool = False,
        batch_size: BatchSize | None = None, device: Device | None = NOTHING,
        names: Sequence[str | None] | None = NOTHING, inplace: bool = False,
        default: Any = NOTHING, filter_empty: bool | None = None, propagate_lock: bool = False,
        call_on_nested: bool = False, is_leaf: IsLeaf | None = None,
        out: TensorDictBase | None = None,
    ) -> Self | Any:  # fmt: skip
        """Does the same as `apply`, but calls the function with the key as first argument.

        Args:
            fn: Called with the key and the tensors.
            *others: As for `apply`.
            nested_keys: Pass the whole path of keys, a tuple below the root, instead of its last
                key.
            batch_size: As for `apply`.
            device: As for `apply`.
            names: As for `apply`.
            inplace: As for `apply`.
            default: Value used for keys missing from `others`. Default: a missing key is an error.
            filter_empty: As for `apply`.
            propagate_lock: Lock the result if this TensorDict is locked.
            call_on_nested: Call `fn` with nodes instead of the tensors below.
            is_leaf: As for `apply`.
            out: A TensorDict to write the results into.

        Returns:
            As for `apply`.

        Raises:
            KeyError, TypeError, RuntimeError: As for `apply`.

        Example:
            >>> td.named_apply(lambda key, tensor: tensor + len(key), nested_keys=True)["b", "c"]
            tensor([3., 3., 3.])
        """
        plan = apply.Plan(
            fn, others, True, nested_keys, default, filter_empty, inplace, call_on_nested, is_leaf
        )
        return apply.applied(self, plan, batch_size, device, names, propagate_lock, out)

    def apply_(self, fn: Callable[..., Any], *others: Any, **kwargs: Any) -> Self:
        """Writes the results of a function into the tensors: `apply` with ``inplace=True``.

        Args:
            fn: Called with each tensor, and the tensors under the same key of `others`.
            *others: TensorDicts with the same keys.
            **kwargs: Options of `apply`.

        Returns:
            This TensorDict.

        Raises:
            KeyError, TypeError, RuntimeError: As for `apply`.

        Example:
            >>> td.apply_(torch.neg)["b", "c"]
            tensor([-1., -1., -1.])
        """
        self.apply(fn, *others, inplace=True, **kwargs)
        return self

    # --- padding, stacking and concatenating -----------------------------------------------------

    def pad(
        self, pad_size: Sequence[int], value: float = 0.0, inplace: bool = False, safe: bool = True
    ) -> Self:
        """Adds rows before and after batch dimensions; see `tenfold.pad`.

        Args:
            pad_size: Rows before and after each batch dimension, the first dimension first.
            value: The value of tensors in new rows; plain values are None there.
            inplace: Not supported: an error if true.
            safe: Ignored.

        Returns:
            A TensorDict with more rows.

        Raises:
            ValueError: If `inplace`.
            RuntimeError: If `pad_size` has an odd length, or is too long.

        Example:
            >>> td.pad([1, 0], value=7.0)["a"]
            tensor([7., 0., 0., 0.])
        """
        made: Self = join.padded(self, pad_size, value, inplace)
        return made

    @classmethod
    def stack(cls, input: Iterable[Item], dim: int = 0, *, out: Any = None) -> Item:
        """Stacks TensorDicts along a new dimension, like `tenfold.stack`.

        Args:
            input: TensorDicts with the same batch size and keys. If one is a lazy stack, so is the
                result.
            dim: The new batch dimension.
            out: A TensorDict to write the result into.

        Returns:
            A TensorDict with one batch dimension more; `out` if it is given.

        Raises:
            RuntimeError, TypeError, IndexError: As for `tenfold.stack`.

        Example:
            >>> TensorDict.stack([td, td]).batch_size
            torch.Size([2, 3])
        """
        return join.stack(input, dim, out=out)

    @classmethod
    def lazy_stack(
        cls, input: Iterable[Item], dim: int = 0, *, out: Any = None, **kwargs: Any
    ) -> Any:
        """Stacks TensorDicts without copying, like `tenfold.lazy_stack`.

        Args:
            input: TensorDicts with the same number of batch dimensions; keys and shapes may differ.
            dim: The new batch dimension.
            out: A TensorDict to write the result into.
            **kwargs: Options of `tenfold.lazy_stack`.

        Returns:
            A `LazyStackedTensorDict` over the inputs, wrapped in a tensorclass if all inputs are of
            that class; `out` if it is given.

        Raises:
            RuntimeError: If `input` is empty, the numbers of batch dimensions differ, or `dim` is
                out of range.

        Example:
            >>> TensorDict.lazy_stack([td, td]).batch_size
            torch.Size([2, 3])
        """
        return join.lazy_stack(input, dim, out=out, **kwargs)

    @classmethod
    def maybe_dense_stack(
        cls, input: Iterable[Item], dim: int = 0, *, out: Any = None, **kwargs: Any
    ) -> Any:
        """Stacks densely if keys and shapes allow it, like `tenfold.maybe_dense_stack`.

        Args:
            input: TensorDicts with the same number of batch dimensions; keys and shapes may differ.
            dim: The new batch dimension.
            out: A TensorDict to write the result into.
            **kwargs: Options of `tenfold.lazy_stack`.

        Returns:
            A TensorDict if keys and shapes allow it and no input is a lazy stack, otherwise a
            `LazyStackedTensorDict`; `out` if it is given.

        Raises:
            RuntimeError: If `input` is empty, or the numbers of batch dimensions differ.
            IndexError: If `dim` is out of range.

        Example:
            >>> type(TensorDict.maybe_dense_stack([td, td])).__name__
            'TensorDict'
        """
        return join.maybe_dense_stack(input, dim, out=out, **kwargs)

    @classmethod
    def cat(cls, input: Iterable[Item], dim: int = 0, *, out: Any = None) -> Item:
        """Concatenates TensorDicts along a batch dimension, like `tenfold.cat`.

        Args:
            input: TensorDicts with the same keys, whose batch sizes may differ along `dim` only.
            dim: The batch dimension; a negative one counts from the end.
            out: A TensorDict to write the result into.

        Returns:
            A TensorDict with the rows of all inputs; `out` if it is given.

        Raises:
            RuntimeError: If `input` is empty, shapes do not fit, there is no such batch dimension,
                or torch cannot cast a result to the dtype of its tensor in `out`.
            KeyError: If keys differ.

        Example:
            >>> TensorDict.cat([td, td]).batch_size
            torch.Size([6])
        """
        return join.cat(input, dim, out=out)

    def to_lazystack(self, dim: int = 0) -> LazyStackedTensorDict:
        """Returns a lazy stack of the rows along a batch dimension.

        Args:
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            IndexError: If the dimension does not exist.
            RuntimeError: If its length is 0.

        Example:
            >>> len(td.to_lazystack().tensordicts)
            3
        """
        made: LazyStackedTensorDict = join.lazy_stack(self.unbind(dim), dim)
        return made

    def stack_tensors(
        self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False
    ) -> Self:
        """Replaces several entries by one, their stack. If that fails, all entries are kept.

        Args:
            *keys: Keys of tensors with equal shapes.
            out_key: The key of the result.
            dim: The new dimension.
            keep_entries: Do not delete the entries.

        Returns:
            This TensorDict, with the new entry.

        Raises:
            KeyError: If a key does not exist.
            RuntimeError: If shapes differ, the shape of the result does not begin with the batch
                size, or this TensorDict is locked.
            TypeError: If an entry is a plain value.
            IndexError: If `dim` is out of range.

        Example:
            >>> flat = TensorDict({"x": torch.zeros(3), "y": torch.ones(3)}, [3])
            >>> flat.stack_tensors("x", "y", out_key="xy", dim=1)["xy"].shape
            torch.Size([3, 2])
        """
        return join.gathered(self, "stack", keys, out_key, dim, keep_entries)

    def cat_tensors(
        self, *keys: Key, out_key: Key, dim: int = 0, keep_entries: bool = False
    ) -> Self:
        """Replaces several entries by their concatenation. If that fails, all entries are kept.

        Args:
            *keys: The entries; their shapes may differ along `dim` only.
            out_key: The key of the result.
            dim: The dimension along which they are concatenated.
            keep_entries: Do not delete the entries.

        Returns:
            This TensorDict, with the new entry.

        Raises:
            KeyError: If a key does not exist.
            RuntimeError: If shapes do not fit, the shape of the result does not begin with the
                batch size, or this TensorDict is locked.
            TypeError: If an entry is a plain value.
            IndexError: If `dim` is out of range.

        Example:
            >>> flat = TensorDict({"x": torch.zeros(3, 1), "y": torch.ones(3, 2)}, [3])
            >>> flat.cat_tensors("x", "y", out_key="xy", dim=1)["xy"].shape
            torch.Size([3, 3])
        """
        return join.gathered(self, "cat", keys, out_key, dim, keep_entries)

    def stack_from_tensordict(
        self, dim: int = 0, *, sorted: bool | Sequence[Key] | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Stacks all tensors, those of nodes included, into one. Plain values are omitted.

        Args:
            dim: The new dimension.
            sorted: True: sorted by key; False or None: in the order of the entries; or a list of
                the keys to use, in this order.
            out: A tensor to write the result into.

        Returns:
            torch.Tensor: The new tensor; `out` if it is given.

        Raises:
            RuntimeError: If shapes differ.
            TypeError: If `sorted` has the key of a plain value, or keys of both nodes and tensors.
            KeyError: If a key in `sorted` does not exist.
            IndexError: If `dim` is out of range.

        Example:
            >>> TensorDict({"x": torch.zeros(3), "y": torch.ones(3)}).stack_from_tensordict(1).shape
            torch.Size([3, 2])
        """
        return join.as_one_tensor(self, "stack", dim, sorted, out)

    def cat_from_tensordict(
        self, dim: int = 0, *, sorted: bool | Sequence[Key] | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Concatenates all tensors, those of nodes included. Plain values are omitted.

        Args:
            dim: The dimension along which they are concatenated.
            sorted: True: sorted by key; False or None: in the order of the entries; or a list of
                the keys to use, in this order.
            out: A tensor to write the result into.

        Returns:
            torch.Tensor: The new tensor; `out` if it is given.

        Raises:
            RuntimeError: If shapes do not fit.
            TypeError: If `sorted` has the key of a plain value, or keys of both nodes and tensors.
            KeyError: If a key in `sorted` does not exist.
            IndexError: If `dim` is out of range.

        Example:
            >>> TensorDict({"x": torch.zeros(3), "y": torch.ones(3)}).cat_from_tensordict().shape
            torch.Size([6])
        """
        return join.as_one_tensor(self, "cat", dim, sorted, out)

    # --- conversions -----------------------------------------------------------------------------

    def to_dict(
        self, *, retain_none: bool = True, convert_tensors: bool = False, tolist_first: bool = False
    ) -> Any:
        """Returns the tree as plain containers: dicts, or the container type that was saved.

        Args:
            retain_none: If false, omit entries that are None.
            convert_tensors: Convert tensors to numbers and lists of numbers.
            tolist_first: Convert this TensorDict and its nodes to lists of rows, as `tolist` does,
                if they have batch dimensions.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": "text"}}).to_dict()
            {'a': tensor(1), 'b': {'c': 'text'}}
        """
        return _convert.to_dict(self, retain_none, convert_tensors, tolist_first)

    def tolist(
        self,
        *,
        convert_nodes: bool = True,
        convert_tensors: bool = False,
        tolist_first: bool = False,
        as_linked_list: bool = False,
    ) -> Any:
        """Returns dicts in nested lists, one level of lists per batch dimension.

        Args:
            convert_nodes: If false, return TensorDicts instead of dicts.
            convert_tensors: Convert tensors to numbers and lists of numbers.
            tolist_first: Also convert nodes that have more batch dimensions than this TensorDict to
                lists.
            as_linked_list: Ignored: the lists are plain lists.

        Example:
            >>> TensorDict({"a": torch.arange(2)}, [2]).tolist(convert_tensors=True)
            [{'a': 0}, {'a': 1}]
        """
        return _convert.tolist(self, convert_nodes, convert_tensors, tolist_first)

    def numpy(self) -> dict[str, Any]:
        """Returns the tree as dicts of NumPy arrays; plain values are kept.

        The arrays share the memory of the tensors, except those of lazy stacks, which are copies.

        Raises:
            RuntimeError, TypeError: As for ``Tensor.numpy``, for example if a tensor requires grad,
                is not on the CPU, or has a dtype that NumPy lacks, such as bfloat16.
        """
        return _convert.numpy(self)

    @classmethod
    def from_dict(
        cls, input_dict: Mapping[Any, Any], *, auto_batch_size: bool | None = None,
        batch_size: BatchSize | None = None, device: Device | None = None,
        batch_dims: int | None = None, names: Sequence[str | None] | None = None,
    ) -> TensorDict:  # fmt: skip
        """Creates a TensorDict from nested dicts.

        Args:
            input_dict: The entries. Named tuples and dataclass objects are converted as dicts of
                their fields, other tuples as dicts with the keys "0", "1", ...
            auto_batch_size: Infer the longest batch size that all tensors share.
            batch_size: The batch size.
            device: Move tensors to this device.
            batch_dims: Infer the batch size, with at most this many dimensions.
            names: Names of the batch dimensions.

        Returns:
            TensorDict: The tree. Its batch size is [] unless an option sets it.

        Raises:
            ValueError: If `batch_size` is given with `batch_dims` or `auto_batch_size`; if the
                number of `names` is not the number of batch dimensions.
            RuntimeError: If the shape of a tensor does not begin with `batch_size`.
            KeyError: If a key is neither a str nor a tuple of str.

        Example:
            >>> TensorDict.from_dict({"a": torch.zeros(2, 3)}, auto_batch_size=True).batch_size
            torch.Size([2, 3])
        """
        return _convert.from_dict(
            input_dict, auto_batch_size, batch_size, device, batch_dims, names
        )

    def from_dict_instance(self, input_dict: Mapping[Any, Any], **options: Any) -> TensorDict:
        """Creates a TensorDict from nested dicts, like `from_dict`.

        Args:
            input_dict: The entries.
            **options: Options of `from_dict`: ``batch_size``, ``device``, ``auto_batch_size``,
                ``batch_dims``, ``names``.

        Returns:
            TensorDict: The tree.

        Raises:
            ValueError, RuntimeError, KeyError: As for `from_dict`.

        Example:
            >>> td.from_dict_instance({"a": {"b": torch.zeros(3)}})["a", "b"]
            tensor([0., 0., 0.])
        """
        return self.from_dict(input_dict, **options)

    @classmethod
    def from_any(
        cls,
        obj: Any,
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Device | None = None,
        batch_size: BatchSize | None = None,
    ) -> Any:
        """Creates a TensorDict from a dict, named tuple, tuple or dataclass object.

        Args:
            obj: The object. A list becomes a tensor, a node or a NonTensorStack, as an entry does;
                TensorDicts, tensorclasses and other objects are returned unchanged.
            auto_batch_size: Infer the longest batch size that all tensors share.
            batch_dims: Infer the batch size, with at most this many dimensions.
            device: Move tensors to this device.
            batch_size: The batch size.

        Returns:
            A TensorDict, the result for a list, or `obj`.

        Raises:
            ValueError, RuntimeError, KeyError: As for `from_dict`.

        Example:
            >>> TensorDict.from_any({"a": {"b": torch.ones(3)}})["a", "b"]
            tensor([1., 1., 1.])
        """
        return _convert.from_any(obj, auto_batch_size, batch_dims, device, batch_size)

    @classmethod
    def from_dataclass(
        cls,
        dataclass: Any,
        *,
        batch_size: BatchSize | None = None,
        device: Device | None = None,
        auto_batch_size: bool | None = None,
        batch_dims: int | None = None,
        names: Sequence[str | None] | None = None,
    ) -> TensorDict:
        """Creates a TensorDict from the fields of a dataclass object.

        Args:
            dataclass: The object.
            batch_size: This and the following arguments: as for `from_dict`.
            device: Move tensors to this device.
            auto_batch_size: Infer the batch size.
            batch_dims: Infer the batch size, but with at most this many dimensions.
            names: Names of the batch dimensions.

        Returns:
            TensorDict: An entry for each field.

        Raises:
            TypeError: If `dataclass` is not an instance of a dataclass.

        Example:
            >>> import dataclasses
            >>> Point = dataclasses.make_dataclass("Point", ["x", "y"])
            >>> TensorDict.from_dataclass(Point(torch.zeros(3), torch.ones(3)))["y"]
            tensor([1., 1., 1.])
        """
        return _convert.from_dataclass(
            dataclass,
            batch_size=batch_size,
            device=device,
            auto_batch_size=auto_batch_size,
            batch_dims=batch_dims,
            names=names,
        )

    @classmethod
    def from_namedtuple(cls, named_tuple: Any, **options: Any) -> TensorDict:
        """Creates a TensorDict from the fields of a named tuple.

        Args:
            named_tuple: The named tuple, or the result of a function such as ``torch.max``.
            **options: Options of `from_dict`: ``batch_size``, ``device``, ``auto_batch_size``,
                ``batch_dims``, ``names``.

        Returns:
            TensorDict: An entry for each field.

        Raises:
            AttributeError: If `named_tuple` is not a named tuple.

        Example:
            >>> from collections import namedtuple
            >>> Point = namedtuple("Point", ["x", "y"])
            >>> TensorDict.from_namedtuple(Point(torch.zeros(3), torch.ones(3)))["y"]
            tensor([1., 1., 1.])
        """
        return _convert.from_namedtuple(named_tuple, **options)

    @classmethod
    def from_tuple(cls, obj: tuple[Any, ...], **options: Any) -> TensorDict:
        """Creates a TensorDict from a tuple, under the keys "0", "1", ...; see `from_dict`.

        Args:
            obj: The tuple.
            **options: Options of `from_dict`: ``batch_size``, ``device``, ``auto_batch_size``,
                ``batch_dims``, ``names``.

        Returns:
            TensorDict: An entry for each item.

        Example:
            >>> TensorDict.from_tuple((torch.zeros(3), torch.ones(3)))["1"]
            tensor([1., 1., 1.])
        """
        return _convert.from_tuple(obj, **options)

    @classmethod
    def from_struct_array(
        cls,
        struct_array: np.ndarray[Any, Any],
        *,
        batch_size: BatchSize | None = None,
        device: Device | None = None,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
    ) -> TensorDict:
        """Creates a TensorDict from the fields of a NumPy structured array.

        The tensors share the array's memory, with these exceptions: `device` is another device than
        the CPU, the array is read-only, or the field has a non-native byte order, a negative
        stride, or a stride that is not a multiple of the item size. Strings become plain values.

        Args:
            struct_array: The array; fields may be structured themselves.
            batch_size: Default: the shape of the array, unless it is inferred.
            device: Move the tensors to this device.
            auto_batch_size: Infer the batch size, as for `from_dict`.
            batch_dims: Infer the batch size, but with at most this many dimensions.

        Returns:
            TensorDict: An entry for each field.

        Raises:
            TypeError: If `struct_array` has no named fields, or torch lacks the dtype of a field.
            RuntimeError: If the shape of a field does not begin with `batch_size`.
            ValueError: If `batch_size` is given with `batch_dims` or a true `auto_batch_size`.

        Example:
            >>> array = numpy.zeros(3, [("a", "f4"), ("b", "i8", (2,))])
            >>> TensorDict.from_struct_array(array)["b"].shape
            torch.Size([3, 2])
        """
        return _convert.from_struct_array(
            struct_array,
            batch_size=batch_size,
            device=device,
            auto_batch_size=auto_batch_size,
            batch_dims=batch_dims,
        )

    def to_struct_array(self) -> np.ndarray[Any, Any]:
        """Returns copies of the entries as a NumPy structured array, whose shape is the batch size.

        Raises:
            ValueError: If an entry is an UnbatchedTensor.
            TypeError, RuntimeError: If NumPy lacks the dtype or layout of an entry.

        Example:
            >>> TensorDict({"a": torch.zeros(3, 2)}, [3]).to_struct_array().dtype
            dtype([('a', '<f4', (2,))])
        """
        return _convert.to_struct_array(self)

    @classmethod
    def from_schema(
        cls,
        schema: Mapping[str, tuple[Any, Any]],
        *,
        batch_size: BatchSize | None = None,
        storage: Literal["memmap", "shared"] | None = None,
        device: Device | None = None,
        **kwargs: Any,
    ) -> TensorDict:
        """Creates a TensorDict of zeros.

        Args:
            schema: For each key, a pair: the shape of the tensor without the batch dimensions, and
                its dtype.
            batch_size: The batch size.
            storage: None: in memory; "memmap": in sparse files, as `memmap_like` creates them;
                "shared": in memory that processes share.
            device: Device of the tensors, unless they are mapped.
            **kwargs: Options of `memmap_like`: ``prefix=`` and others. Ignored unless `storage` is
                "memmap".

        Returns:
            TensorDict: Zeros; with "memmap" the result of `memmap_like`, with "shared" locked.

        Raises:
            ValueError: If `storage` has another value.

        Example:
            >>> TensorDict.from_schema({"obs": ([3], torch.float32)}, batch_size=[4])["obs"].shape
            torch.Size([4, 3])
        """
        return _convert.from_schema(
            schema, batch_size=batch_size, storage=storage, device=device, **kwargs
        )

    @classmethod
    def fromkeys(cls, keys: Iterable[str], value: Any = 0) -> TensorDict:
        """Creates a TensorDict with one value for every key.

        Args:
            keys: The keys.
            value: The value of each: a number, tensor or plain value.

        Returns:
            TensorDict: With batch size [].

        Example:
            >>> TensorDict.fromkeys(["a", "b"], 1.5)["b"]
            tensor(1.5000)
        """
        return _convert.fromkeys(keys, value)

    @classmethod
    def from_pytree(
        cls,
        pytree: Any,
        *,
        batch_size: BatchSize | None = None,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
    ) -> Any:
        """Creates a TensorDict from nested lists, tuples and dicts; `to_pytree` restores these.

        Keys of dicts become str, numbers become tensors.

        Args:
            pytree: The containers; other objects are returned unchanged.
            batch_size: The batch size.
            auto_batch_size: Infer the longest batch size that all tensors share.
            batch_dims: Infer the batch size, with at most this many dimensions.

        Returns:
            A TensorDict; for other objects, `pytree`.

        Raises:
            ValueError: If two keys of a dict are equal as str, or one is "_pytree_type".
            RuntimeError: If the shape of a tensor does not begin with `batch_size`.

        Example:
            >>> TensorDict.from_pytree([torch.zeros(3), {"a": torch.ones(3)}]).to_pytree()
            [tensor([0., 0., 0.]), {'a': tensor([1., 1., 1.])}]
        """
        return _convert.from_pytree(pytree, batch_size, auto_batch_size, batch_dims)

    def to_pytree(self) -> Any:
        """Returns containers like those given to `from_pytree`, with str as keys of dicts.

        Returns this TensorDict itself if `from_pytree` did not create it.
        """
        return _convert.to_pytree(self)

    def to_namedtuple(self, dest_cls: Any = None) -> Any:
        """Returns a named tuple of the entries; nodes become named tuples, too.

        Args:
            dest_cls: The class of the result. Default: a new class "GenericDict". Nodes below
                always get a new class.

        Raises:
            ValueError: If a key is not a valid name of a field.
            TypeError: If the fields of `dest_cls` are not the keys.

        Example:
            >>> td.to_namedtuple().b.c
            tensor([1., 1., 1.])
        """
        return _convert.to_namedtuple(self, dest_cls)

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """Returns a TensorDict of the tensordict package over the same memory.

        Args:
            retain_none: If false, omit entries that are None.

        Raises:
            ImportError: If tensordict cannot be imported.

        Example:
            >>> td.to_tensordict().batch_size
            torch.Size([3])
        """
        return _convert.to_tensordict(self, retain_none=retain_none)

    @classmethod
    def from_tensordict(cls, tensordict: Any) -> Any:
        """Converts a TensorDict of the tensordict package; the tensors are shared.

        Args:
            tensordict: A TensorDict, lazy stack or tensorclass of the tensordict package.

        Returns:
            TensorDictBase: A TensorDict, lazy stack or tensorclass of tenfold.

        Raises:
            ImportError: If tensordict cannot be imported.
            TypeError: If `tensordict` is not a tree of that package.

        Example:
            >>> TensorDict.from_tensordict(td.to_tensordict())["a"]
            tensor([0., 0., 0.])
        """
        return _convert.from_tensordict(tensordict)

    def state_dict(
        self,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
        flatten: bool = True,
    ) -> Any:
        """Returns the tensors by dotted names, as ``Module.state_dict`` does.

        The attribute ``_metadata`` holds batch sizes, devices and values that are not tensors.

        Args:
            destination: An OrderedDict to add the tensors to.
            prefix: Added in front of every name.
            keep_vars: Keep the tensors attached to the autograd graph.
            flatten: If false, nodes become nested OrderedDicts, each with a ``_metadata``.

        Raises:
            KeyError: If two entries have the same dotted name, such as ``"a.b"`` and
                ``("a", "b")``.

        Example:
            >>> [*td.state_dict()]
            ['a', 'b.c']
        """
        return _convert.state_dict(self, destination, prefix, keep_vars, flatten)

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        assign: bool = False,
        from_flatten: bool | None = None,
    ) -> Self:
        """Loads the result of `state_dict`; an empty TensorDict gets all entries of `state_dict`.

        Args:
            state_dict: Tensors by dotted names, or nested.
            strict: If false, missing tensors are ignored, and unexpected ones are added. Missing
                and unexpected plain values never are an error.
            assign: Replace the tensors instead of copying into them.
            from_flatten: Ignored: flat and nested forms are both recognised.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If `strict` is true, this TensorDict has tensors, and the names of tensors
                differ; if a shape or batch size does not fit; if this TensorDict is locked, and
                `assign` is true or an entry is new.
            KeyError: If two tensors, or two plain values, have the same dotted name, or a name
                leads to a field that an object of a tensorclass lacks.

        Example:
            >>> td.load_state_dict({"a": torch.ones(3), "b.c": torch.ones(3)})["a"]
            tensor([1., 1., 1.])
        """
        return _convert.load_state_dict(self, state_dict, strict, assign, from_flatten)

    # --- modules ---------------------------------------------------------------------------------

    @classmethod
    def from_module(
        cls,
        module: torch.nn.Module,
        as_module: bool = False,
        lock: bool = False,
        use_state_dict: bool = False,
        filter_empty: bool = True,
    ) -> TensorDict:
        """Returns the parameters and buffers of a module, with a node for each submodule.

        The tensors are the module's own; with `use_state_dict`, they are detached from the autograd
        graph.

        Args:
            module: The module.
            as_module: Not supported: there is no TensorDictParams.
            lock: Lock the result.
            use_state_dict: Use ``module.state_dict()``, with its hooks, and nest its names.
            filter_empty: Omit submodules without parameters and buffers. They are always omitted
                with `use_state_dict`.

        Raises:
            NotImplementedError: If `as_module`.
            TypeError: If `module` is not a ``torch.nn.Module``.

        Example:
            >>> TensorDict.from_module(torch.nn.Linear(2, 3))["weight"].shape
            torch.Size([3, 2])
        """
        return _convert.from_module(module, as_module, lock, use_state_dict, filter_empty)

    @classmethod
    def from_modules(
        cls,
        *modules: torch.nn.Module,
        as_module: bool = False,
        lock: bool = True,
        use_state_dict: bool = False,
        lazy_stack: bool = False,
        expand_identical: bool = False,
    ) -> Self:
        """Stacks parameters and buffers of modules of one architecture, for ``torch.vmap``.

        Args:
            *modules: The modules.
            as_module: Not supported: there is no TensorDictParams.
            lock: Lock the result.
            use_state_dict: As for `from_module`.
            lazy_stack: Return a lazy stack of the results of `from_module`, without copies.
            expand_identical: Expand tensors that all modules share instead of copying them.

        Returns:
            A TensorDict, or with `lazy_stack` a LazyStackedTensorDict, with a batch dimension of
            the number of modules; locked if `lock`.

        Raises:
            NotImplementedError: If `as_module`.
            RuntimeError: If the architectures differ and `lazy_stack` is false; if there is no
                module.
            TypeError: As for `from_module`.

        Example:
            >>> layers = [torch.nn.Linear(2, 3) for _ in range(4)]
            >>> TensorDict.from_modules(*layers)["weight"].shape
            torch.Size([4, 3, 2])
        """
        made: Self = _convert.from_modules(
            modules, as_module, lock, use_state_dict, lazy_stack, expand_identical
        )
        return made

    def to_module(
        self,
        module: torch.nn.Module,
        *,
        inplace: bool | None = None,
        return_swap: bool = True,
        swap_dest: TensorDictBase | None = None,
        use_state_dict: bool = False,
        non_blocking: bool = False,
        preserve_module_state: bool = True,
        memo: Any = None,
    ) -> Self | Any:
        """Sets the parameters and buffers of a module to these tensors.

        As a context manager, restores the previous tensors at the end of the block.

        Args:
            module: A module with these parameters and buffers.
            inplace: Copy the values into the module's tensors instead of replacing them.
            return_swap: Return the tensors that the module had before.
            swap_dest: A TensorDict to put those tensors into.
            use_state_dict: Use ``module.load_state_dict``, with its hooks.
            non_blocking: With `inplace`: passed to ``Tensor.copy_``.
            preserve_module_state: Ignored: the module's other attributes are never changed.
            memo: Accepted for compatibility.

        Returns:
            A TensorDict of the tensors that the module had before, or with `inplace` or
            `use_state_dict` copies of them; `swap_dest` if it is given; None unless `return_swap`.

        Raises:
            KeyError: If the module has no parameter, buffer or submodule of a key; the module is
                unchanged.
            RuntimeError: With `use_state_dict`, if keys or shapes differ from those of the module;
                with `inplace`, if a shape does not fit.

        Example:
            >>> with params.to_module(module):
            ...     module(x)
        """
        return _convert.to_module(
            self, module, inplace, return_swap, swap_dest, use_state_dict, non_blocking
        )

    # --- locking and shared memory ---------------------------------------------------------------

    @property
    def is_locked(self) -> bool:
        """True if entries can be neither added, replaced nor deleted. It can be assigned.

        In-place methods, such as `set_`, still write into tensors and replace plain values.
        """
        return bool(self._locked)

    @is_locked.setter
    def is_locked(self, locked: bool) -> None:
        self.lock_() if locked else self.unlock_()

    def lock_(self) -> Self:
        """Locks this node and all nodes below.

        As a context manager, unlocks them at the end of the block, unless this node was locked
        before.

        Example:
            >>> with td.lock_():
            ...     td.set("new", torch.zeros(3))
            Traceback (most recent call last):
            RuntimeError: Cannot modify locked TensorDict. ...
        """
        return _locking.lock_(self)

    def unlock_(self) -> Self:
        """Unlocks this node and all nodes below.

        As a context manager, locks them at the end of the block if this node was locked before.

        Raises:
            RuntimeError: If another locked TensorDict contains this node, or a node below it.
        """
        return _locking.unlock_(self)

    def __enter__(self) -> Self:
        return _locking.enter(self)

    def __exit__(self, *error: object) -> None:
        _locking.leave(self)

    def share_memory_(self) -> Self:
        """Moves every tensor to memory that child processes share, and locks this TensorDict.

        Values that are not tensors are copied to each process.

        Raises:
            RuntimeError: If `is_memmap` is true.
        """
        return _convert.share_memory_(self)

    def is_shared(self) -> bool:
        """True if this TensorDict is locked and ``Tensor.is_shared`` is true for every tensor."""
        return self.is_locked and all(tensor.is_shared() for tensor in self._tensors())

    # --- memory-mapped files ---------------------------------------------------------------------
    # For folders and anonymous memory, `memmap*` and `load_memmap` return MemoryMappedTensors,
    # unless the framework is numpy. Archives, `tenfold.open` and `tenfold.load` return plain
    # tensors. Writing into a mapped tensor changes its file in mode "r+" only.

    def memmap_(
        self, prefix: PathLike | None = None, copy_existing: bool = False, *,
        num_threads: int = 0, return_early: bool = False, share_non_tensor: bool = False,
        existsok: bool = True, robust_key: bool | None = True, atomic: bool | None = None,
        durable: bool = False,
    ) -> Self:  # fmt: skip
        """Writes every tensor to a file and maps it into this TensorDict.

        This TensorDict is locked afterwards, and its device is the CPU. The tensordict package can
        open the files, too.

        Args:
            prefix: The folder. None: the folder from which the tree is mapped in mode "r+",
                otherwise anonymous memory that processes share.
            copy_existing: Copy tensors that are mapped from another file than their file in
                `prefix`, or from only a part of their file in `prefix`. If false, such a tensor is
                an error, which prevents copying a large file by accident. Anonymous memory always
                gets copies.
            num_threads: Number of threads that write, at most 256. 0: ``TENFOLD_NUM_THREADS``, or
                the number of cores, at most 8.
            return_early: With `num_threads` above 1: return a future at once. Its ``result()``
                returns the TensorDict, or raises the error.
            share_non_tensor: Ignored; the first call in a process with true warns.
            existsok: If false, an existing file of a tensor is an error.
            robust_key: If false, use keys as file names unchanged, as tensordict before 0.14 did.
            atomic: How an existing folder is replaced. None: as a whole by one rename, unless
                tensors of this TensorDict are mapped from it: then only new tensors and metadata
                are written, each by one rename. True: as a whole in any case. False: its files are
                overwritten in place, and no tensor is removed. With None and True, a new or empty
                folder is created by one rename.
            durable: fsync before returning.

        Returns:
            This TensorDict, or a future of it.

        Raises:
            RuntimeError: If a tensor is mapped from another file, and `copy_existing` is false or,
                with ``atomic=False``, this call would overwrite that file; if a file exists and
                `existsok` is false; if a folder to be replaced has entries that no metadata names;
                if a folder that is not replaced as a whole has a symlink in place of a file to be
                written; if `robust_key` is false and a key is not a valid file name.
            ValueError: If a key is too long for a file name.
            UnsupportedError: If JSON cannot store a plain value, or a file cannot store a tensor,
                such as one that is quantized or on the meta device; the message names the key.
            OSError: If a system call failed. The old tree is unchanged if the whole folder was to
                be replaced.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
            >>> td.memmap_("saved")["b", "c"].filename
            '/data/saved/b/c.memmap'
        """
        common = (num_threads, return_early, share_non_tensor, robust_key, atomic, durable)
        made: Self = memmap.write_tree(
            self, prefix, copy_existing, common, existsok=existsok, in_place=True
        )
        return made

    def memmap(
        self, prefix: PathLike | None = None, copy_existing: bool = False, *,
        num_threads: int = 0, return_early: bool = False, share_non_tensor: bool = False,
        existsok: bool = True, robust_key: bool | None = True, archive: bool | None = None,
        compression: str | None = None, atomic: bool | None = None, durable: bool = False,
    ) -> Self:  # fmt: skip
        """Writes every tensor to a file and returns a TensorDict that maps the files.

        This TensorDict does not change. Tensors that are already mapped from their file in
        `prefix` are the same objects in both TensorDicts, unless `atomic` is true.

        Args:
            prefix: The folder, or a ``.tdz`` file. None: as for `memmap_`.
            copy_existing: As for `memmap_`. An archive always gets copies.
            num_threads: Number of threads that write, at most 256. 0: ``TENFOLD_NUM_THREADS``, or
                the number of cores, at most 8.
            return_early: With `num_threads` above 1: return a future at once.
            share_non_tensor: Ignored; the first call in a process with true warns.
            existsok: If false, an existing file of a tensor or an existing archive is an error.
            robust_key: If false, use keys as file names unchanged.
            archive: Write one file, a ``.tdz``, instead of a folder. Default: true if `prefix`
                ends in ``.tdz``.
            compression: For archives: None or ``"deflate"``.
            atomic: How an existing folder is replaced; as for `memmap_`.
            durable: fsync before returning.

        Returns:
            A locked TensorDict over the files, or a future of it. An archive is opened as by
            `load_memmap`, not locked.

        Raises:
            ValueError: If `compression` is unknown or given without an archive; if an archive has
                no `prefix`, or `prefix` is a folder; as for `memmap_`.
            RuntimeError, UnsupportedError, OSError: As for `memmap_`.

        Example:
            >>> files = td.memmap("saved")
            >>> files["a"][0] = 5
            >>> TensorDict.load_memmap("saved")["a"]
            MemoryMappedTensor([5., 0., 0.])
        """
        common = (num_threads, return_early, share_non_tensor, robust_key, atomic, durable)
        made: Self = memmap.write_tree(
            self,
            prefix,
            copy_existing,
            common,
            existsok=existsok,
            as_archive=memmap.is_archive(prefix, archive, compression),
            compression=compression,
        )
        return made

    def memmap_like(
        self, prefix: PathLike | None = None, copy_existing: bool = False, *,
        existsok: bool = True, num_threads: int = 0, return_early: bool = False,
        share_non_tensor: bool = False, robust_key: bool | None = True,
        archive: bool | None = None, atomic: bool | None = None, durable: bool = False,
    ) -> Self:  # fmt: skip
        """Creates files of zeros for tensors of the same shapes and dtypes.

        No tensor is read, and new files are sparse: they take no disk space until they are written
        to. So expanding one example creates a data set that may exceed memory. Values that are not
        tensors are copied.

        In a folder, existing files keep their content with ``atomic=False``. With ``atomic=None``,
        only tensors of this TensorDict that are mapped from their file in `prefix` keep it. With
        ``atomic=True``, all tensors are zeros.

        Args:
            prefix: The folder, or a ``.tdz`` file. None: anonymous memory that processes share.
            copy_existing: Ignored: nothing is copied.
            existsok: If false, an existing file of a tensor or an existing archive is an error.
            num_threads: Number of threads that create files, at most 256. 0:
                ``TENFOLD_NUM_THREADS``, or the number of cores, at most 8.
            return_early: With `num_threads` above 1: return a future at once.
            share_non_tensor: Ignored; the first call in a process with true warns.
            robust_key: If false, use keys as file names unchanged.
            archive: Write one file, a ``.tdz``. Default: true if `prefix` ends in ``.tdz``.
            atomic: How an existing folder is replaced; as for `memmap_`.
            durable: fsync before returning.

        Returns:
            A locked TensorDict over the files, or a future of it. For an archive, it is not locked.

        Raises:
            ValueError: If an archive has no `prefix`, or `prefix` is a folder; as for `memmap_`.
            RuntimeError, UnsupportedError, OSError: As for `memmap_`.

        Example:
            >>> datum = TensorDict({"image": torch.zeros(3, 64, 64, dtype=torch.uint8)})
            >>> data = datum.expand(1_000_000).memmap_like("images")
            >>> data["image"].shape
            torch.Size([1000000, 3, 64, 64])
        """
        common = (num_threads, return_early, share_non_tensor, robust_key, atomic, durable)
        made: Self = memmap.write_tree(
            self,
            prefix,
            True,
            common,
            existsok=existsok,
            zeros=True,
            as_archive=memmap.is_archive(prefix, archive, None),
        )
        return made

    def save(
        self, prefix: PathLike, copy_existing: bool = False, *, num_threads: int = 0,
        return_early: bool = False, share_non_tensor: bool = False,
        robust_key: bool | None = True, archive: bool | None = None,
        compression: str | None = None, atomic: bool | None = None, durable: bool = True,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Saves the tree with `tenfold.save`: by default durable and with checksums, in any format.

        There is one exception: `save` writes a folder like `memmap`, without checksums, if tensors
        are already mapped from `prefix` in mode "r+", or if `atomic` or `robust_key` is False. The
        exception does not apply to archives and to calls with `options`.

        Args:
            prefix: The folder or file. Its suffix, or ``format=``, selects the format.
            copy_existing: Copy tensors that are mapped from another file than their file in
                `prefix`, or from only a part of their file in `prefix`. If false, such a tensor is
                an error. An archive always gets copies.
            num_threads: Number of threads that write, at most 256. 0: ``TENFOLD_NUM_THREADS``, or
                the number of cores, at most 8.
            return_early: With `num_threads` above 1: return a future at once.
            share_non_tensor: Ignored; the first call in a process with true warns.
            robust_key: If false, use keys as file names unchanged; ignored for archives and with
                `options`.
            archive: Write one file, a ``.tdz``. Default: true if `prefix` ends in ``.tdz``. False:
                write a folder for such a `prefix`, unless ``format=`` is given.
            compression: For archives: None or ``"deflate"``.
            atomic: As for `memmap_`, if `save` writes like `memmap`. Otherwise the path is replaced
                as a whole.
            durable: fsync before returning.
            **options: Options of `tenfold.save`: `format`, `checksums`, `overwrite`, `progress`.

        Returns:
            The saved tree, opened, or a future of it. The tree of a folder is locked. Writes into
            the tree do not reach the files, because their checksums would become wrong. But if
            `save` wrote like `memmap`, the tree is a shared mapping, as `memmap` returns it.

        Raises:
            ValueError: If `compression` is unknown, or given without an archive or with `options`.
            RuntimeError, UnsupportedError, OSError: As for `memmap_` and `tenfold.save`.

        Example:
            >>> td.save("run/ckpt").saved_path
            PosixPath('/data/run/ckpt')
        """
        common = (num_threads, return_early, share_non_tensor, robust_key, atomic, durable)
        as_archive = memmap.is_archive(prefix, archive, compression)
        made: Self = memmap.save(
            self, prefix, copy_existing, common, as_archive, compression, options
        )
        return made

    dumps = save

    @classmethod
    def load_memmap(
        cls, prefix: PathLike, device: Device | None = None, non_blocking: bool = False, *,
        out: TensorDictBase | None = None, robust_key: bool | None = True,
        subpath: str | tuple[str, ...] | None = None,
        mode: Literal["r", "c", "r+"] | None = None, num_threads: int = 0,
        allow_pickle: bool | None = None, framework: Framework = None,
    ) -> Self:  # fmt: skip
        """Opens a folder or archive of tenfold or tensordict as a tree of tensors mapped from it.

        This call maps at least the first 4,096 tensors; the others are mapped on access. A damaged
        or short file raises an error when its tensor is accessed or, if tensors are copied to
        another device, during this call.

        Args:
            prefix: The folder, or a ``.tdz`` file.
            device: Copy tensors to this device. ``"meta"``: create tensors without data, without
                opening a file. None or the CPU: tensors stay mapped.
            non_blocking: As for ``Tensor.to``.
            out: A TensorDict to put the entries into; its other entries are removed.
            robust_key: Ignored: encoded and unencoded file names are both read.
            subpath: Only the node of this path: keys joined with "/", or a tuple of them.
            mode: ``"r"``, ``"c"``: changes stay in memory. ``"r+"``: writing into a tensor writes
                into its file; opening a folder removes the checksums of its tensors. None: ``"r+"``
                for a folder whose ``meta.json`` this user may write to, else ``"c"``; for an
                archive ``"r"``.
            num_threads: Ignored, because mapping is fast.
            allow_pickle: Must be None or False: nothing is ever unpickled.
            framework: ``"torch"`` or ``"numpy"``: the type of arrays, as for `tenfold.load`.

        Returns:
            An unlocked TensorDict; `out` if it is given. For a folder in mode "r+", `memmap_`
            without arguments locks it, so that `is_memmap` is true.

        Raises:
            FileNotFoundError: If `prefix` does not exist, or is a folder without ``meta.json``.
            CorruptFileError: If metadata is damaged; if tensors are copied to another device, also
                if a file is damaged or too short.
            ValueError: If `prefix` is a file of another format, `subpath` names no node, `mode` or
                `framework` is invalid, or `device` is not that of `out`.
            RuntimeError: If `out` is locked; if the batch size of the tree does not begin with the
                batch size of `out`; if only one of the two is a lazy stack; if both are lazy stacks
                and differ in the stack_dim or the number of members.
            UnsupportedError: If `allow_pickle` is true, or `device` is meta and the tree contains a
                nested tensor of strided layout.

        Example:
            >>> TensorDict.load_memmap("saved", mode="r")["b", "c"]
            MemoryMappedTensor([1., 1., 1.])
        """
        folder.check_pickle(allow_pickle)
        is_moved = device is not None and str(device) != "cpu"
        with using(None if framework is None else decided(framework, needs_torch=is_moved)):
            made: Self = memmap.load(prefix, device, non_blocking, out, subpath, mode)
        return made

    @classmethod
    def load(cls, prefix: PathLike, *arguments: Any, **options: Any) -> Self:
        """Opens the tree in a folder or archive, like `load_memmap`.

        Args:
            prefix: The folder, or a ``.tdz`` file.
            *arguments: Arguments of `load_memmap`.
            **options: Options of `load_memmap`.

        Returns:
            As for `load_memmap`.

        Raises:
            FileNotFoundError, CorruptFileError, ValueError, RuntimeError, UnsupportedError: As for
                `load_memmap`.

        Example:
            >>> _ = td.memmap("files")
            >>> TensorDict.load("files")["b", "c"]
            MemoryMappedTensor([1., 1., 1.])
        """
        return cls.load_memmap(prefix, *arguments, **options)

    def load_memmap_(
        self,
        prefix: PathLike,
        robust_key: bool | None = True,
        *,
        allow_pickle: bool | None = None,
        mode: Literal["r", "c", "r+"] | None = None,
    ) -> Self:
        """Replaces the entries of this TensorDict by those in a folder or archive.

        Nodes with the same path remain the same objects. A node keeps its batch size and names if
        the new entries fit, and otherwise gets those in the folder. If this TensorDict has another
        device than the CPU, the tensors are copied to it. If `is_memmap` was true, it is true again
        for a folder whose ``meta.json`` this user may write to, unless `mode` is given. Otherwise
        this TensorDict is unlocked.

        Args:
            prefix: The folder, or a ``.tdz`` file.
            robust_key: Ignored: encoded and unencoded file names are both read.
            allow_pickle: None or False; nothing is ever unpickled.
            mode: As for `load_memmap`.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If this TensorDict is locked and `is_memmap` is false; if only one of this
                TensorDict and the tree in `prefix` is a lazy stack.
            ValueError: If an entry is not a field of the tensorclass object that it is loaded into;
                and as for `load_memmap`.
            FileNotFoundError, CorruptFileError, UnsupportedError: As for `load_memmap`.

        Example:
            >>> _ = td.memmap("files")
            >>> td.empty().load_memmap_("files")["b", "c"]
            MemoryMappedTensor([1., 1., 1.])
        """
        folder.check_pickle(allow_pickle)
        made: Self = memmap.load_into(self, prefix, mode)
        return made

    def memmap_refresh_(self, *, allow_pickle: bool | None = None) -> Self:
        """Reads the metadata of the folder again, with changes that other processes made.

        After `append_memmap`, the batch size has the new rows.

        Args:
            allow_pickle: None or False; nothing is ever unpickled.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If `is_memmap` is false, or the tree is not mapped from a folder in mode
                "r+".
            UnsupportedError: If `allow_pickle` is true.

        Example:
            >>> files = td.memmap("files")
            >>> _ = TensorDict.load_memmap("files").memmap_().make_memmap("new", [3])
            >>> files.memmap_refresh_().keys()
            ['a', 'b', 'new']
        """
        return memmap.refresh(self, allow_pickle)

    def make_memmap(
        self,
        key: Key,
        shape: Sequence[int] | torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        robust_key: bool | None = True,
    ) -> Any:
        """Adds a tensor of zeros to a memory-mapped tree that is locked.

        Other processes see the tensor after `memmap_refresh_`.

        Args:
            key: Key of the tensor, or a path of keys; nodes on the path are created.
            shape: Shape of the tensor; an int64 tensor ``[n, k]`` of sizes creates a nested tensor.
            dtype: Default: torch's default dtype.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: If the tree is not the result of `memmap`, `memmap_` or `memmap_like` in a
                folder or without a prefix, or of `save` in a folder; if it is a lazy stack; if the
                key or its file exists; if `shape` does not begin with the batch size; if
                `robust_key` is false and a key is not a valid file name.
            KeyError: If a path leads through a tensor or a plain value.
            ValueError: If the folder cannot have such an entry, for example because the name of its
                file would be too long.

        Example:
            >>> files.make_memmap(("b", "d"), (3, 2), dtype=torch.int64).sum()
            tensor(0)
        """
        return grow.make_from_shape(self, key, shape, dtype, robust_key)

    def make_memmap_from_tensor(
        self, key: Key, tensor: torch.Tensor, *, copy_data: bool = True, existsok: bool = True,
        robust_key: bool | None = True,
    ) -> Any:  # fmt: skip
        """Adds an entry with the shape, dtype and values of a tensor, like `make_memmap`.

        Args:
            key: As for `make_memmap`.
            tensor: The tensor to copy.
            copy_data: If false, only its shape and dtype are used; a new file contains zeros.
            existsok: Reuse an existing file that belongs to no entry.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: As for `make_memmap`; an existing file is an error only if `existsok` is
                false.
            NotImplementedError: If data is copied, and `tensor` is sparse or on the device meta.
            KeyError, ValueError: As for `make_memmap`.

        Example:
            >>> files = td.memmap("files")
            >>> files.make_memmap_from_tensor("new", torch.arange(3))
            MemoryMappedTensor([0, 1, 2])
        """
        return grow.make_from_tensor(self, key, tensor, copy_data, existsok, robust_key)

    def make_memmap_from_storage(
        self, key: Key, storage: torch.UntypedStorage, shape: Sequence[int], *,
        dtype: torch.dtype | None = None, robust_key: bool | None = True,
    ) -> Any:  # fmt: skip
        """Adds an entry over a storage that torch mapped from the entry's file.

        Args:
            key: As for `make_memmap`.
            storage: The result of ``torch.UntypedStorage.from_file``.
            shape: As for `make_memmap`.
            dtype: Default: torch's default dtype.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: As for `make_memmap`, except that the file may exist; if `shape` does not
                fit the storage; if the tree has a folder, and the storage is not mapped or is
                mapped from another file.
            KeyError, ValueError: As for `make_memmap`.

        Example:
            >>> files = td.memmap("files")
            >>> storage = torch.UntypedStorage.from_file("files/new.memmap", True, 12)
            >>> files.make_memmap_from_storage("new", storage, [3]).shape
            torch.Size([3])
        """
        return grow.make_from_storage(self, key, storage, shape, dtype, robust_key)

    def is_memmap(self) -> bool:
        """Returns whether this node counts as memory-mapped.

        True for results of `memmap*` and `save` in folders or anonymous memory, and their nodes,
        while they are locked. Also true, locked or not, for trees that `tenfold.open`,
        `tenfold.load` or `from_consolidated` returned, until something other than tensor values
        changes.
        """
        return memmap.is_memmap(self)

    @property
    def saved_path(self) -> Path | None:
        """The file or folder to which this node was written, or from which it was opened.

        None for anonymous memory.

        Raises:
            AttributeError: If `is_memmap` is false.
        """
        return memmap.saved_path(self)

    def flush(self) -> None:
        """Waits until data written into mapped files is fsynced.

        Raises:
            ValueError: If the tree is in memory, or was opened in mode "r" or "c". The locked
                results of `memmap*` without a prefix and of `save` to a folder are exceptions: they
                have no writes to wait for.
        """
        memmap.flush(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return memmap.reduced(self)

    def consolidate(
        self, filename: PathLike | None = None, *, num_threads: int | None = 0,
        device: Device | None = None, non_blocking: bool = False, inplace: bool = False,
        return_early: bool = False, use_buffer: bool = False, share_memory: bool = False,
        pin_memory: bool = False, metadata: bool = False,
    ) -> Self:  # fmt: skip
        """Copies all tensors into one block of memory; the result's tensors are views of it.

        Such a tree is pickled, sent and copied to another device as one block. It is locked;
        unlocking it ends the consolidation.

        A tree that is consolidated already is returned itself, with a warning if an argument
        requests another file, device or shared memory. If `filename` is the file of the tree, and
        batch sizes or names have changed since it was written, it is rewritten. With `pin_memory`,
        a block in memory that is not pinned is copied into pinned memory, unless `filename`,
        `inplace` or another device is given.

        Args:
            filename: A file for the block, in tensordict's format, which is created atomically.
                Writing into the tensors of the result writes into the file.
            num_threads: Number of threads that copy. 0: for a block in memory, only the calling
                thread; for a file, ``TENFOLD_NUM_THREADS``, or the number of cores, at most 8.
            device: Device of a block in memory. Default: the device of the tree, or the CPU if the
                tree has none.
            non_blocking: As for ``Tensor.to``.
            inplace: Replace the tensors of this TensorDict by the views, and return it.
            return_early: With `num_threads` above 1: return a future at once, whose ``result()`` is
                the TensorDict.
            use_buffer: With `filename`: write the file, but keep the block in memory, so that
                writes into the result do not reach the file.
            share_memory: Use memory that processes share; ignored on a CUDA device, and with a file
                that is mapped.
            pin_memory: Use pinned memory; ignored with a file that is mapped.
            metadata: Ignored: the structure of the tree is always stored with the block.

        Returns:
            A new TensorDict, or a future of it. This TensorDict with `inplace`, or if it is
            consolidated already.

        Raises:
            RuntimeError: If `filename` is given with a `device` other than the CPU.
            NotImplementedError: If a tensor is unbatched, or nested but not jagged; if
                `return_early` is given with `use_buffer` or `non_blocking`.
            UnsupportedError: If a tensor is sparse or quantized, or on the meta device and the
                result is not; if `filename` is given and tensordict could not read the tree back.
                The message names the key. Nothing has been written.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
            >>> one = td.consolidate("one.bin")
            >>> one["a"].untyped_storage().data_ptr() == one["b", "c"].untyped_storage().data_ptr()
            True
            >>> TensorDict.from_consolidated("one.bin")["b", "c"]
            tensor([1., 1., 1.])
        """
        made: Self = consolidated.consolidate(
            self,
            filename,
            num_threads=num_threads,
            device=device,
            non_blocking=non_blocking,
            inplace=inplace,
            return_early=return_early,
            use_buffer=use_buffer,
            share_memory=share_memory,
            pin_memory=pin_memory,
        )
        return made

    @classmethod
    def from_consolidated(cls, filename: PathLike) -> Self:
        """Opens the tree in a file that `consolidate` of tenfold or tensordict wrote.

        The tensors are private views of the file: writing into them does not change the file. The
        tree is locked if the saved tree was locked.

        Args:
            filename: The file.

        Returns:
            A TensorDict whose tensors are views of the file.

        Raises:
            FileNotFoundError: If the file does not exist.
            CorruptFileError: If the file is damaged, or has another format.

        Example:
            >>> _ = TensorDict({"a": torch.zeros(3)}, [3]).consolidate("one.bin")
            >>> TensorDict.from_consolidated("one.bin").is_consolidated()
            True
        """
        made: Self = consolidated.from_consolidated(filename)
        return made

    def is_consolidated(self) -> bool:
        """Returns whether the tensors are views of the block that `consolidate` created.

        False after the tree was unlocked or an entry was replaced; in-place writes do not matter.
        True for trees of `from_consolidated`, even unlocked, until something other than tensor
        values changes.
        """
        return consolidated.is_consolidated(self)

    # --- the root --------------------------------------------------------------------------------

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of a data set, stored as JSON with the root; or None. It can be assigned.

        Raises:
            RuntimeError: On assignment, if this TensorDict is locked.
            TypeError: On assignment, if the schema is neither None nor a dict of JSON values.
        """
        return _convert.schema(self)

    @schema.setter
    def schema(self, schema: dict[str, Any] | None) -> None:
        _convert.set_schema(self, schema)

    @property
    def metadata(self) -> dict[str, str]:
        """The user's metadata, stored with the root, like safetensors' ``__metadata__``.

        It can be assigned.

        Raises:
            TypeError: On assignment, if a key or value is not a str.
            RuntimeError: On assignment, if this TensorDict is locked.
        """
        return dict(self._node_info.metadata)

    @metadata.setter
    def metadata(self, metadata: Mapping[str, str]) -> None:
        _convert.set_metadata(self, metadata)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return torch_functions.call(func, args, kwargs)

    # --- hooks; a lazy stack overrides most of them, to call them on its members -----------------

    def _rows(self, index: Any) -> Self:
        """Selects rows by an index of the batch dimensions."""
        return indexing.rows(self, index)

    def _tensors(self) -> Iterator[Any]:
        """Yields every tensor of this node and of nodes below."""
        return _mapping.tensors(self)

    def _overwrite(self, key: str, item: Any, non_blocking: bool) -> None:
        _mapping.overwrite(self, key, item, non_blocking)

    def _overwrite_at(self, key: str, value: Any, index: Any) -> None:
        _mapping.overwrite_at(self, key, value, index)

    def _fill_entry(self, key: str, value: Any) -> None:
        _mapping.fill_entry(self, key, value)

    def _selected(self, wanted: Any, inplace: bool, strict: bool) -> Self:
        return _mapping.selected(self, wanted, inplace, strict)

    def _excluded(self, unwanted: Any, inplace: bool) -> Self:
        return _mapping.excluded(self, unwanted, inplace)

    def _run(
        self, plan: Any, others: Any, above: Any, batch_size: Any, device: Any, names: Any
    ) -> Any:
        return plan.run(self, others, above, batch_size, device, names)

    def _as_container(self, entries: dict[Any, Any]) -> Any:
        return entries

    def _add_state(
        self, state: Any, metadata: Any, prefix: str, keep_vars: bool, flatten: bool
    ) -> None:
        _convert.add_state(self, state, metadata, prefix, keep_vars, flatten)

    def _moved_in_one_copy(self, device: Any, non_blocking: bool) -> Self:
        """Copies a consolidated tree to another device, as one block of memory."""
        made: Self = consolidated.moved(self, device, non_blocking)
        return made

    def _as_view(self, made: Self, index: Any = ...) -> Self:
        """Marks the view `made` as memory-mapped if this TensorDict is and `index` allows it.

        `index` allows it if each part of it is None, ``...``, an int, or a slice from 0 on.
        """
        return memmap.as_view(self, made, index)

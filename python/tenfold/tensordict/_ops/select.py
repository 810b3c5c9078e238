"""Rows chosen between two TensorDicts, new tensors of the same keys, padding."""

from __future__ import annotations

from tenfold._errors import KeyNotFoundError
from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import (
    LEAF,
    VALUE,
    class_kind,
    node_of,
    rewrapped,
    tree_or,
    unwrapped,
)
from tenfold.tensordict._keys import NOTHING
from tenfold.tensordict._ops.join import cat, lazy_stack, maybe_dense_stack, pad, stack
from tenfold.tensordict._ops.pointwise import _aligned
from tenfold.tensordict._protocol import Primitives, dense
from tenfold.tensordict._values import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SelectionMethods(Primitives):
    """`where`, `new_zeros`, `new_ones`, `new_empty`, `new_full`, `pad`, `stack`, `cat`, ..."""

    __slots__ = ()

    def where(
        self,
        condition: Any,
        other: Any,
        *,
        out: Any = None,
        pad: Any = None,
        update_batch_size: bool = False,
    ) -> Any:
        """The rows of this one where `condition` is true, else those of `other`.

        Args:
            condition: A bool tensor of at most the batch's dimensions.
            other: A TensorDict, a tensor or a number.
            out: A TensorDict that the result is written into.
            pad: What stands for an entry that one of them lacks.
            update_batch_size: Accepted; `out` keeps its batch size.

        Raises:
            KeyError: If one lacks an entry and there is no `pad`.
        """
        torch = need_torch("where")
        made = self._where(torch, condition, tree_or(other), pad)
        return made if out is None else out.update_(made)

    def _where(self, torch: Any, condition: Any, other: Any, pad: Any) -> Any:
        is_tree = isinstance(other, Primitives)
        mine = self._entries()
        theirs = other._entries() if is_tree else None
        items: dict[str, Any] = {}
        for key, entry in mine.items():
            if theirs is not None and key not in theirs and pad is None:
                raise KeyNotFoundError(f'where: no key "{key}" in the other one, and no pad value')
            value = other if theirs is None else theirs.get(key, pad)
            kind = class_kind(type(entry))
            if kind == LEAF:
                items[key] = torch.where(_aligned(condition, entry), entry, unwrapped(value))
            elif type(entry) is UnbatchedTensor or kind == VALUE:
                items[key] = entry
            else:
                node = node_of(entry)._where(torch, condition, tree_or(value), pad)
                items[key] = rewrapped(entry, node)
        for key, entry in (theirs or {}).items():
            if key in mine:
                continue
            if pad is None:
                raise KeyNotFoundError(f'where: no key "{key}" in the first one, and no pad value')
            if class_kind(type(entry)) == LEAF:
                filled = torch.full_like(entry, pad)
                items[key] = torch.where(_aligned(condition, entry), filled, entry)
            else:
                items[key] = entry
        return self._with_entries(items)

    def _new(self, method: str, size: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """`method(tensor, size + what lies beyond the batch)` for every tensor."""
        if len(size) == 1 and not isinstance(size[0], int):
            size = tuple(size[0])
        device = options.pop("device", NOTHING)
        options = {key: value for key, value in options.items() if value is not None}
        options.pop("empty_lazy", None)
        if device is not NOTHING and device is not None:
            options["device"] = device
        ndim = len(self._batch_size)
        fill = options.pop("fill_value", NOTHING)

        def change(entry: Any) -> Any:
            shape = (*size, *entry.shape[ndim:])
            if node_of(entry) is not None:
                more = {} if fill is NOTHING else {"fill_value": fill}
                return node_of(entry)._new(method, shape, {**options, **more})
            args = () if fill is NOTHING else (fill,)
            return getattr(entry, method)(shape, *args, **options)

        items = {}
        for key, entry in self._entries().items():
            if type(entry) is UnbatchedTensor:
                items[key] = entry
            elif class_kind(type(entry)) == VALUE:
                items[key] = entry._resized(tuple(size))
            else:
                items[key] = change(entry)
        made = self._like(items, tuple(size))
        if device is not NOTHING:
            made._device = None if device is None else str(device)
        return made

    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Zeros for every tensor, with another batch size; options as ``Tensor.new_zeros``."""
        return self._new("new_zeros", size, options)

    def new_ones(self, *size: Any, **options: Any) -> Any:
        """Ones for every tensor, with another batch size; options as ``Tensor.new_ones``."""
        return self._new("new_ones", size, options)

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Tensors of any values, with another batch size; options as ``Tensor.new_empty``."""
        return self._new("new_empty", size, options)

    def new_full(self, size: Any, fill_value: Any, **options: Any) -> Any:
        """One value for every tensor, with another batch size; options as ``Tensor.new_full``."""
        if isinstance(size, int):
            size = (size,)
        return self._new("new_full", tuple(size), {"fill_value": fill_value, **options})

    def new_tensor(self, data: Any, **options: Any) -> Any:
        """`data` for every tensor, in its dtype; the shape of `data` is the batch size.

        Args:
            data: A tensor, list or number; or a TensorDict, of the same keys.
            **options: Of ``Tensor.new_tensor``.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": torch.zeros(3, dtype=torch.int64)}, [3])
            >>> td.new_tensor([1, 2])["a"]
            tensor([1., 2.])
        """
        torch = need_torch("new_tensor")
        other = node_of(data)
        if other is None and not isinstance(data, torch.Tensor):
            data = torch.as_tensor(data)
        shape = tuple(data.shape if other is None else other._batch_size)
        items = {}
        for key, entry in self._entries().items():
            theirs = data if other is None else other._entry(key)
            if node_of(entry) is not None:
                items[key] = rewrapped(entry, node_of(entry).new_tensor(theirs, **options))
            elif class_kind(type(entry)) == VALUE:
                items[key] = entry._resized(shape) if hasattr(entry, "_resized") else entry
            else:
                items[key] = _copied(entry, theirs.detach(), options)
        made = self._like(items, shape)
        made._names = None
        device = options.get("device", getattr(data, "device", None))
        made._device = None if device is None else str(device)
        return made

    def data_ptr(self, *, storage: bool = False) -> Any:
        """The address of every tensor's data, as a TensorDict of batch size [].

        The members of a lazy stack are nodes "0", "1", ...

        Args:
            storage: Of the whole storage rather than of the first element: views share it.
        """
        torch = need_torch("data_ptr")
        made = dense()({}, device="cpu")
        members = getattr(self, "tensordicts", None)
        entries = self._entries() if members is None else dict(_numbered(members))
        for key, entry in entries.items():
            node = node_of(entry)
            if node is not None:
                made.set(key, node.data_ptr(storage=storage))
            elif class_kind(type(entry)) == LEAF:
                owner = entry.untyped_storage() if storage else entry
                made.set(key, torch.tensor(owner.data_ptr()))
        return made

    def to_padded_tensor(self, padding: float = 0.0) -> Any:
        """Dense tensors in the place of nested ones, whose parts get the same length.

        Args:
            padding: What they are filled up with.
        """
        torch = need_torch("to_padded_tensor")

        def change(tensor: Any) -> Any:
            return torch.nested.to_padded_tensor(tensor, padding) if tensor.is_nested else tensor

        return self._valued(change)

    def pad(
        self, pad_size: Any, value: float = 0.0, inplace: bool = False, safe: bool = True
    ) -> Any:
        """More rows in front of and behind batch dimensions: `tenfold.pad`."""
        if inplace:
            raise ValueError("pad: expected inplace=False, found True")
        return pad(self, pad_size, value)

    @classmethod
    def stack(cls, input: Any, dim: int = 0, *, out: Any = None) -> Any:
        """`tenfold.stack`."""
        return stack(input, dim, out=out)

    @classmethod
    def lazy_stack(cls, input: Any, dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
        """`tenfold.lazy_stack`."""
        return lazy_stack(input, dim, out=out, **kwargs)

    @classmethod
    def maybe_dense_stack(cls, input: Any, dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
        """`tenfold.maybe_dense_stack`."""
        return maybe_dense_stack(input, dim, out=out, **kwargs)

    @classmethod
    def cat(cls, input: Any, dim: int = 0, *, out: Any = None) -> Any:
        """`tenfold.cat`."""
        return cat(input, dim, out=out)

    def to_lazystack(self, dim: int = 0) -> Any:
        """A lazy stack of the rows along a batch dimension."""
        return lazy_stack(self.unbind(dim), dim)

    def stack_tensors(
        self, *keys: Any, out_key: Any, dim: int = 0, keep_entries: bool = False
    ) -> Any:
        """Stacks entries of this TensorDict into one of another key. Returns this TensorDict."""
        torch = need_torch("stack_tensors")
        return self._gathered(torch.stack, keys, out_key, dim, keep_entries)

    def cat_tensors(
        self, *keys: Any, out_key: Any, dim: int = 0, keep_entries: bool = False
    ) -> Any:
        """Concatenates entries of this TensorDict into one. Returns this TensorDict."""
        torch = need_torch("cat_tensors")
        return self._gathered(torch.cat, keys, out_key, dim, keep_entries)

    def _gathered(self, join: Any, keys: Any, out_key: Any, dim: int, keep_entries: bool) -> Any:
        tensors = [self[key] for key in keys]
        if not keep_entries:
            for key in keys:
                self.del_(key)
        return self.set(out_key, join(tensors, dim))

    def stack_from_tensordict(self, dim: int = 0, *, sorted: Any = None, out: Any = None) -> Any:
        """All entries as one tensor, stacked in their order, or in that of their keys if sorted."""
        torch = need_torch("stack_from_tensordict")
        return torch.stack(self._in_order(sorted), dim, out=out)

    def cat_from_tensordict(self, dim: int = 0, *, sorted: Any = None, out: Any = None) -> Any:
        """All entries as one tensor, concatenated; see `stack_from_tensordict`."""
        torch = need_torch("cat_from_tensordict")
        return torch.cat(self._in_order(sorted), dim, out=out)

    def _in_order(self, order: Any) -> list[Any]:
        keys = self.sorted_keys if order is None or order is True else order or self._key_list()
        return [self[key] for key in keys]


def _copied(like: Any, given: Any, options: dict[str, Any]) -> Any:
    made = given.to(options.get("dtype") or like.dtype, copy=True)
    if options.get("device") is not None:
        made = made.to(options["device"])
    if options.get("pin_memory"):
        made = made.pin_memory()
    return made.requires_grad_(options.get("requires_grad", False))


def _numbered(members: Any) -> Any:
    return [(str(i), member) for i, member in enumerate(members)]

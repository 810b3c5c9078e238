"""What a lazy stack does member by member."""

from __future__ import annotations

from tenfold.tensordict._entries import LEAF, VALUE, class_kind, node_of, rewrapped
from tenfold.tensordict._keys import NOTHING
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._torch import need_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LazyMemberMethods(Primitives):
    """`get`, `clone`, `apply`, arithmetic, comparisons, ... of a stack."""

    __slots__ = ()

    if TYPE_CHECKING:
        stack_dim: int

        @property
        def tensordicts(self) -> list[Any]: ...

        @classmethod
        def _of(cls, members: list[Any], stack_dim: int, name: str | None = None) -> Any: ...

    def get(self, key: Any, default: Any = None, **how: Any) -> Any:
        """The entries of the members, stacked; `default` where a member has none.

        Args:
            key: A str or a tuple of str.
            default: What is returned where a member has no such entry.
            **how: ``as_list=True``, ``as_nested_tensor=True`` or ``as_padded_tensor=True`` (with
                ``padding_value``, ``padding_side`` as of torch's nested tensors), for tensors whose
                shapes differ.

        Raises:
            RuntimeError: If shapes differ and nothing says how to give them.
        """
        if not any(how.get(name) for name in ("as_list", "as_nested_tensor", "as_padded_tensor")):
            return super().get(key, default)  # type: ignore[misc]
        values = [member.get(key) for member in self.tensordicts]
        if any(value is None for value in values):
            return default
        if how.get("as_list"):
            return values
        torch = need_torch("get")
        if how.get("as_nested_tensor"):
            return torch.nested.nested_tensor(values, layout=how.get("layout", torch.jagged))
        from torch.nn.utils.rnn import pad_sequence

        return pad_sequence(
            values,
            batch_first=True,
            padding_value=how.get("padding_value", 0.0),
            padding_side=how.get("padding_side", "right"),
        )

    def update(self, input_dict_or_td: Any = None, *args: Any, **options: Any) -> Any:
        """Sets every entry; of a stack like this one, member by member. See `TensorDict.update`."""
        other = self._like_stack(input_dict_or_td)
        if other is None:
            return super().update(input_dict_or_td, *args, **options)  # type: ignore[misc]
        for mine, theirs in zip(self._nodes(), other, strict=True):
            mine.update(theirs, *args, **options)
        return self

    def update_(self, input_dict_or_td: Any = None, *args: Any, **options: Any) -> Any:
        """Writes every entry into the tensors that are there; see `TensorDict.update_`."""
        other = self._like_stack(input_dict_or_td)
        if other is None:
            return super().update_(input_dict_or_td, *args, **options)  # type: ignore[misc]
        for mine, theirs in zip(self._nodes(), other, strict=True):
            mine.update_(theirs, *args, **options)
        return self

    def _like_stack(self, other: Any) -> Any:
        """The members of another stack of as many along the same dimension, else None."""
        node = node_of(other)
        is_like = isinstance(node, LazyMemberMethods) and node.stack_dim == self.stack_dim
        if node is self or not is_like or len(node.tensordicts) != len(self.tensordicts):
            return None
        return node.tensordicts

    def clone(self, recurse: bool = True, **kwargs: Any) -> Any:
        """A stack of clones of the members."""
        return self._map(lambda node: node.clone(recurse, **kwargs))

    def _selected(self, wanted: Any, inplace: bool, strict: bool) -> Any:
        if strict:
            for key in wanted:
                self._entry_somewhere(key)
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
        """A stack of members without entries; see `TensorDict.empty`."""
        if options:
            return self._with_entries({}).empty(recurse, **options)
        return self._map(lambda node: node.empty(recurse))

    def _fill_entry(self, key: str, value: Any) -> None:
        self._entry_somewhere(key)
        for node in self._nodes():
            node._fill_entry(key, value)

    def masked_fill_(self, mask: Any, value: Any) -> Any:
        """Fills the rows where `mask` is true; see `TensorDict.masked_fill_`."""
        parts = [mask] * len(self.tensordicts)
        if mask.ndim > self.stack_dim:
            parts = list(mask.unbind(self.stack_dim))
        for node, part in zip(self._nodes(), parts, strict=True):
            node.masked_fill_(part, value)
        return self

    def rename_key_(self, old_key: Any, new_key: Any, safe: bool = False) -> Any:
        """Gives an entry another key in every member; see `TensorDict.rename_key_`."""
        named = isinstance(new_key, (str, tuple)) and old_key in self
        if not named or (safe and new_key in self):
            return super().rename_key_(old_key, new_key, safe)  # type: ignore[misc]
        self._check_unlocked()
        self._mark_changed()
        # A TensorDict may be several members: stack[[0, 0]].
        for node in {id(node): node for node in self._nodes()}.values():
            node.rename_key_(old_key, new_key, safe)
        return self

    def _refuse_exclusive_keys(self, what: str) -> None:
        keys = set(self._key_list())
        if any(set(node._key_list()) != keys for node in self._nodes()):
            raise RuntimeError(f"{what}: expected the same keys in all members, found others")

    def flatten_keys(self, separator: str = ".", inplace: bool = False, is_leaf: Any = None) -> Any:
        """The members without nodes; see `TensorDict.flatten_keys`."""
        self._refuse_exclusive_keys("flatten_keys")
        return self._rekeyed("flatten_keys", inplace, separator, is_leaf=is_leaf)

    def unflatten_keys(self, separator: str = ".", inplace: bool = False) -> Any:
        """The members with nodes; see `TensorDict.unflatten_keys`."""
        self._refuse_exclusive_keys("unflatten_keys")
        return self._rekeyed("unflatten_keys", inplace, separator)

    def _rekeyed(self, method: str, inplace: bool, separator: str, **options: Any) -> Any:
        """The members after `method`; those of stacks in this stack may have keys of their own."""

        def change(node: Any) -> Any:
            if isinstance(node, LazyMemberMethods):
                return node._rekeyed(method, inplace, separator, **options)
            return getattr(node, method)(separator, inplace=inplace, **options)

        if not inplace:
            return self._map(change)
        for node in self._nodes():
            change(node)
        return self

    def filter_non_tensor_data(self) -> Any:
        """The members' tensors only."""
        return self._map(lambda node: node.filter_non_tensor_data())

    def filter_empty_(self) -> Any:
        """Deletes nodes of the members in which there is nothing. Returns this stack."""
        for node in self._nodes():
            node.filter_empty_()
        return self

    def _tensors(self) -> Any:
        for node in self._nodes():
            yield from node._tensors()

    def _every(self, method: str, dim: int | None) -> Any:
        if dim is not None:
            return super()._every(method, dim)  # type: ignore[misc]
        found = (getattr(node, method)() for node in self._nodes())
        return all(found) if method == "all" else any(found)

    def where(
        self, condition: Any, other: Any, *, out: Any = None, pad: Any = None,
        update_batch_size: bool = False,
    ) -> Any:  # fmt: skip
        """The rows of the members where `condition` is true; see `TensorDict.where`."""
        conditions = [condition] * len(self.tensordicts)
        if condition.ndim > self.stack_dim:
            conditions = list(condition.unbind(self.stack_dim))
        parts = zip(self.tensordicts, conditions, _unbound(other, self), strict=True)
        members = [rewrapped(m, node_of(m).where(c, o, pad=pad)) for m, c, o in parts]
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        return made if out is None else out.update_(made)

    def _set_device(self, device: str) -> None:
        for node in self._nodes():
            node._set_device(device)

    def clear_device_(self) -> Any:
        """Forgets the device of all members. Returns this stack."""
        for node in self._nodes():
            node.clear_device_()
        return self

    def _applied(
        self, plan: Any, batch_size: Any, device: Any, names: Any, propagate_lock: bool, out: Any
    ) -> Any:
        made = self._run(plan, plan.others, (), batch_size, device, names)
        if made is None:
            return None
        if out is not None:
            return out.update_(made)
        if propagate_lock and self.is_locked:
            made.lock_()
        return made

    def _run(
        self, plan: Any, others: Any, above: Any, batch_size: Any, device: Any, names: Any
    ) -> Any:
        """`apply`, to each member and its part of the others."""
        parts = [_unbound(other, self) for other in others]
        inner = None
        if batch_size is not None:
            if self.stack_dim >= len(batch_size):
                return plan.run(self._dense(), others, above, batch_size, device, names)
            inner = (*batch_size[: self.stack_dim], *batch_size[self.stack_dim + 1 :])
        members = []
        for i, member in enumerate(self.tensordicts):
            theirs = [part[i] for part in parts]
            made = plan.run(node_of(member), theirs, above, inner, device, NOTHING)
            members.append(None if made is None else rewrapped(member, made))
        if all(member is None for member in members):
            return None
        if plan.inplace:
            return self
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        if names is not NOTHING:
            made.names = names
        return made

    def _dense(self) -> Any:
        """The entries that all members have, stacked, as a TensorDict."""
        return self._with_entries(self._entries())

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Any:
        """A dense TensorDict of the stacked entries.

        Raises:
            RuntimeError: If the shapes of the members' tensors differ.
        """
        made = self._dense()
        items = {
            key: entry.contiguous() if class_kind(type(entry)) != VALUE else entry
            for key, entry in made._items.items()
        }
        return self._with_entries(items)

    def densify(self, layout: Any = None) -> Any:
        """A TensorDict in which tensors of different shapes are nested tensors."""
        torch = need_torch("densify")
        items = {}
        for key in self._key_list():
            entries = [node._entry(key) for node in self._nodes()]
            shapes = {tuple(getattr(entry, "shape", ())) for entry in entries}
            if class_kind(type(entries[0])) == LEAF and len(shapes) > 1:
                items[key] = torch.nested.nested_tensor(entries, layout=layout or torch.jagged)
            else:
                items[key] = self._entry(key)
        return self._with_entries(items)

    def _binary(self, op: Any, other: Any, default: Any = None) -> Any:
        parts = _unbound(other, self)
        pairs = zip(self.tensordicts, parts, strict=True)
        members = [rewrapped(m, node_of(m)._binary(op, part, default)) for m, part in pairs]
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        return self._locked_as_this(made)

    def _ternary(self, op: Any, first: Any, second: Any) -> Any:
        parts = zip(self.tensordicts, _unbound(first, self), _unbound(second, self), strict=True)
        members = [rewrapped(m, node_of(m)._ternary(op, a, b)) for m, a, b in parts]
        made = type(self)._of(members, self.stack_dim, self._dim_name)
        return self._locked_as_this(made)

    def _merged(self, op: Any, other: Any, default: Any, above: Any) -> Any:
        return self._binary(op, other, default)

    def _binary_(self, op: Any, other: Any) -> Any:
        for node, part in zip(self._nodes(), _unbound(other, self), strict=True):
            node._binary_(op, part)
        return self

    def _compared(self, op: Any, other: Any) -> Any:
        from tenfold.tensordict._dense import TensorDict

        torch = need_torch("comparison")
        if isinstance(other, dict):
            other = TensorDict(other, self._batch_size)
        if node_of(other) is None and not isinstance(other, (torch.Tensor, bool, int, float)):
            return super()._compared(op, other)  # type: ignore[misc]
        parts = _unbound(other, self)
        pairs = zip(self.tensordicts, parts, strict=True)
        members = [rewrapped(m, node_of(m)._compared(op, part)) for m, part in pairs]
        return type(self)._of(members, self.stack_dim, self._dim_name)


def _unbound(other: Any, stack: Any) -> Any:
    """What of an operand belongs to each member of a stack."""
    count = len(stack.tensordicts)
    node = node_of(other)
    if node is not None:
        if tuple(node._batch_size) == tuple(stack._batch_size):
            return node.unbind(stack.stack_dim)
        return [other] * count
    if getattr(other, "ndim", 0):
        return other.expand(stack._batch_size).unbind(stack.stack_dim)
    return [other] * count

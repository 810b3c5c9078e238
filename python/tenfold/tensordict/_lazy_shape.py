"""Batch dimensions of a lazy stack, which stays one wherever its members can follow."""

from __future__ import annotations

from tenfold._interop.arrays import dim_in, need_torch, probe
from tenfold.tensordict._entries import node_of, rewrapped
from tenfold.tensordict._keys import is_path
from tenfold.tensordict._lazy_index import IndexPlan, without_masks
from tenfold.tensordict._ops.indexing import indexed_shape, normalized
from tenfold.tensordict._ops.shape import sizes, two_dims
from tenfold.tensordict._protocol import Primitives, stacked
from tenfold.tensordict._values import flattened_dims

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LazyShapeMethods(Primitives):
    """`unbind`, indexing, `unsqueeze`, `permute`, `expand`, ... of a stack."""

    __slots__ = ()

    if TYPE_CHECKING:
        stack_dim: int

        @property
        def tensordicts(self) -> list[Any]: ...

        @classmethod
        def _of(cls, members: list[Any], stack_dim: int, name: str | None = None) -> Any: ...

        _dim_name: str | None
        _nodes: Any
        _dense: Any

    def _restacked(self, members: list[Any], stack_dim: int, *, named: bool = True) -> Any:
        name = self._dim_name if named else None
        return self._locked_as_this(stacked()._of(members, stack_dim, name))

    def unbind(self, dim: int) -> tuple[Any, ...]:
        """The members, along the stack dimension; else a stack for each place along `dim`."""
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise IndexError(
                f"unbind: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
            )
        if at == self.stack_dim:
            return tuple(self.tensordicts)
        inner = at if at < self.stack_dim else at - 1
        below = self.stack_dim - 1 if at < self.stack_dim else self.stack_dim
        parts = [member.unbind(inner) for member in self.tensordicts]
        return tuple(self._of(list(group), below) for group in zip(*parts, strict=True))

    def split(self, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
        """Consecutive parts of a batch dimension, as stacks; see `TensorDict.split`."""
        at = dim_in(dim, len(self._batch_size), "split")
        if at != self.stack_dim:
            inner = at if at < self.stack_dim else at - 1
            parts = [member.split(split_size, inner) for member in self.tensordicts]
            return tuple(
                self._restacked(list(group), self.stack_dim) for group in zip(*parts, strict=True)
            )
        positions = need_torch("split").arange(len(self.tensordicts))
        if isinstance(split_size, int) and split_size <= 0:
            raise ValueError(f"split: expected a size over 0, found {split_size}")
        groups = [group.tolist() for group in positions.split(split_size)]
        return tuple(self._restacked([self.tensordicts[i] for i in group], at) for group in groups)

    def unsqueeze(self, *args: Any, **kwargs: Any) -> Any:
        """A new batch dimension of length 1; see `TensorDict.unsqueeze`."""
        dim = args[0] if args else kwargs["dim"]
        ndim = len(self._batch_size)
        at = dim + ndim + 1 if dim < 0 else dim
        if not 0 <= at <= ndim:
            raise RuntimeError(f"unsqueeze: expected a dim from {-ndim - 1} to {ndim}, found {dim}")
        inner = at if at <= self.stack_dim else at - 1
        below = self.stack_dim + 1 if at <= self.stack_dim else self.stack_dim
        return self._restacked([member.unsqueeze(inner) for member in self.tensordicts], below)

    def squeeze(self, *args: Any, **kwargs: Any) -> Any:
        """Without batch dimensions of length 1; see `TensorDict.squeeze`."""
        if not args and kwargs.get("dim") is None:
            made = self
            for dim in reversed(range(len(self._batch_size))):
                if self._batch_size[dim] == 1:
                    made = made.squeeze(dim)
            return made
        dim = args[0] if args else kwargs["dim"]
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise IndexError(f"squeeze: expected a dim from {-ndim} to {ndim - 1}, found {dim}")
        if self._batch_size[at] != 1:
            return self
        if at == self.stack_dim:
            return self.tensordicts[0]
        inner = at if at < self.stack_dim else at - 1
        below = self.stack_dim - 1 if at < self.stack_dim else self.stack_dim
        return self._restacked([member.squeeze(inner) for member in self.tensordicts], below)

    def permute(self, *args: Any, **kwargs: Any) -> Any:
        """The batch dimensions in another order; see `TensorDict.permute`."""
        if not args and "dims" in kwargs:
            args = (kwargs["dims"],)
        dims = tuple(args[0]) if len(args) == 1 and not isinstance(args[0], int) else args
        ndim = len(self._batch_size)
        order = [dim + ndim if dim < 0 else dim for dim in dims]
        if sorted(order) != list(range(ndim)):
            raise ValueError(
                f"permute: expected each of {ndim} batch dimensions once, found {list(dims)}"
            )
        if order == list(range(ndim)):
            return self
        below = order.index(self.stack_dim)
        inner = [dim if dim < self.stack_dim else dim - 1 for dim in order if dim != self.stack_dim]
        members = [member.permute(*inner) if inner else member for member in self.tensordicts]
        return self._restacked(members, below)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two batch dimensions exchanged; see `TensorDict.transpose`."""
        ndim = len(self._batch_size)
        order = list(range(ndim))
        first, second = two_dims(dim0, dim1, ndim)
        order[first], order[second] = order[second], order[first]
        return self.permute(*order)

    def _rows(self, index: Any) -> Any:
        """Members and their rows for an index of the batch dimensions."""
        batch_size = tuple(self._batch_size)
        if -1 in batch_size:
            batch_size = tuple(max(length, 0) for length in batch_size)
        parts = () if index is Ellipsis else normalized(index, len(batch_size))
        if not parts:
            return self._restacked(list(self.tensordicts), self.stack_dim)
        if -1 not in self._batch_size:
            indexed_shape(batch_size, parts)  # raises what torch raises
        return self._rows_of(without_masks(parts))

    def _rows_of(self, parts: tuple[Any, ...]) -> Any:
        plan = IndexPlan(parts, self.stack_dim)
        chosen = plan.at_stack
        if type(chosen) is int:
            member = self.tensordicts[chosen]
            return member[plan.inner] if plan.inner else member
        if type(chosen) is slice:
            if plan.moves:
                return self._dense()._rows(parts)
            members = self.tensordicts[chosen]
            if plan.inner:
                members = [member[plan.inner] for member in members]
            return self._restacked(members, plan.place) if members else self._dense()._rows(parts)
        # Arrays reach over the stack dimension: each place of theirs is a member of the result.
        found = [self._rows_of(one) for one in plan.each_place()]
        if not found:
            return self._dense()._rows(parts)
        return self._restacked(found, plan.place, named=plan.is_alone)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Rows of one member go to it, whatever the others have; see `TensorDict.__setitem__`."""
        if isinstance(key, str) or is_path(key) or -1 in self._batch_size:
            super().__setitem__(key, value)
            return
        parts = normalized(key, len(self._batch_size))
        shape = indexed_shape(self._batch_size, parts)  # raises what torch raises
        parts = without_masks(parts)
        plan = IndexPlan(parts, self.stack_dim)
        node = node_of(value)
        if type(plan.at_stack) is not int:
            if node is not None and tuple(node._batch_size) == shape and not plan.moves:
                self._assign_parts(plan, node)
            else:
                super().__setitem__(key, value)
            return
        member = self._nodes()[plan.at_stack]
        if plan.inner or not (isinstance(value, dict) or node is not None):
            member[plan.inner or ...] = value
        else:
            member.update(value, inplace=True)

    def _assign_parts(self, plan: IndexPlan, node: Any) -> None:
        """To each member its rows, so that no key has to be in all of them."""
        rows = node.unbind(plan.place)
        if type(plan.at_stack) is slice:
            for member, part in zip(self._nodes()[plan.at_stack], rows, strict=True):
                member[plan.inner or ...] = part
            return
        for place, part in zip(plan.each_place(), rows, strict=True):
            self[place] = part

    def flatten(
        self, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
    ) -> Any:
        """Batch dimensions as one, along which the result is stacked."""
        ndim = len(self._batch_size)
        start = dim_in(0 if start_dim is None else start_dim, ndim, "flatten")
        end = dim_in(-1 if end_dim is None else end_dim, ndim, "flatten")
        if inplace or end < start:
            raise ValueError(
                f"flatten: expected inplace=False and an end_dim from {start}, found {end}"
            )
        if start == end:
            return self
        parts: list[Any] = [self]
        for _ in range(start, end + 1):
            parts = [piece for part in parts for piece in part.unbind(start)]
        return self._restacked(parts, start, named=False)

    def unflatten(self, dim: int, unflattened_size: Any, *, inplace: bool = False) -> Any:
        """One batch dimension as several; the last cut, before the last of them, is outermost."""
        at = dim_in(dim, len(self._batch_size), "unflatten")
        rows = probe(self._batch_size, "unflatten")
        lengths = tuple(unflattened_size)
        lengths = tuple(rows.unflatten(at, lengths).shape)[at : at + len(lengths)]
        if inplace:
            raise ValueError("unflatten: expected inplace=False, found True")
        if len(lengths) == 1:
            return self
        made = self
        for dim, count in enumerate(lengths[:-1], at):
            parts = made.split(made._batch_size[dim] // count, dim)
            made = self._restacked(list(parts), dim, named=False)
        return made

    def _reshaped(self, wanted: tuple[Any, ...], method: str) -> Any:
        old = tuple(self._batch_size)
        new = tuple(probe(old, method).reshape(wanted).shape)
        if new == old:
            return self
        found = flattened_dims(old, new)
        if found is not None:
            return self.flatten(*found)
        found = flattened_dims(new, old)
        if found is not None:
            first, last = found
            if first <= last:
                return self.unflatten(first, new[first : last + 1])
            gone = len(old) - len(new)
            if set(old[first : first + gone]) == {1}:
                made = self
                for _ in range(gone):
                    made = made.unbind(first)[0]
                return self._locked_as_this(made)
        if method == "view":
            raise RuntimeError("view: expected a dense TensorDict, found a lazy stack; reshape it")
        return self._dense()._reshaped(wanted, method)

    def expand(self, *args: Any, **kwargs: Any) -> Any:
        """A view with dimensions repeated, dense if it can be; see `TensorDict.expand`."""
        return self._expanded(sizes(args, kwargs, "shape"))

    def _expanded(self, wanted: tuple[int, ...], *, shared_below: bool = False) -> Any:
        from tenfold.tensordict._ops.join import maybe_dense_stack

        new = tuple(probe(self._batch_size, "expand").expand(*wanted).shape)
        at = self.stack_dim + len(new) - len(self._batch_size)
        members = self.tensordicts
        if len(members) != new[at]:
            members = [members[0]] * new[at]
        inner = (*new[:at], *new[at + 1 :])
        expanded = [rewrapped(member, node_of(member)._expanded(inner)) for member in members]
        made = maybe_dense_stack(expanded, at)
        if self._names is not None:
            made._set_names((*[None] * (len(new) - len(self._batch_size)), *self._names))
        return made

    def repeat(self, *repeats: Any, inplace: bool = False) -> Any:
        """Copies of all rows; along the stack dimension, of the members."""
        if len(repeats) == 1 and not isinstance(repeats[0], int):
            repeats = tuple(repeats[0])
        ndim = len(self._batch_size)
        if inplace or len(repeats) != ndim:
            raise ValueError(
                f"repeat: expected {ndim} numbers, one for each batch dimension, "
                f"found {len(repeats)}"
            )
        at = self.stack_dim
        inner = (*repeats[:at], *repeats[at + 1 :])
        members = [member.repeat(*inner) for _ in range(repeats[at]) for member in self.tensordicts]
        return self._restacked(members, at)

    def _chosen(self, rows: Any, at: int) -> Any:
        if at == self.stack_dim:
            members = [self.tensordicts[i].clone() for i in rows.tolist()]
            return self._restacked(members, at)
        inner = at if at < self.stack_dim else at - 1
        return self._restacked(
            [node._chosen(rows, inner) for node in self._nodes()], self.stack_dim
        )

    def masked_select(self, mask: Any, *, inplace: bool = False) -> Any:
        """A dense TensorDict of the rows where `mask` is true."""
        return self._dense().masked_select(mask, inplace=inplace)

    def is_contiguous(self) -> bool:
        """False: the tensors of a stack lie apart."""
        return False

    @classmethod
    def _joined(cls, stacks: list[Any], dim: int) -> Any:
        """`cat` of stacks."""
        first = stacks[0]
        at = first.stack_dim
        if dim == at:
            members = [member for stack in stacks for member in stack.tensordicts]
            return cls._of(members, at, first._dim_name)
        from tenfold.tensordict._ops.join import cat

        inner = dim if dim < at else dim - 1
        groups = zip(*[stack.unbind(at) for stack in stacks], strict=True)
        return cls._of([cat(list(group), inner) for group in groups], at, first._dim_name)

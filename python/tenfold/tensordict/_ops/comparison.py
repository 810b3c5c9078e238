"""Comparisons of TensorDicts, which give TensorDicts of bools; and `all`, `any` of them."""

from __future__ import annotations

import operator

from tenfold.tensordict._entries import LEAF, VALUE, class_kind, node_of, unwrapped
from tenfold.tensordict._ops.pointwise import _aligned, _check_same_keys
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._torch import need_torch
from tenfold.tensordict._unbatched import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_EQUALITIES = frozenset([operator.eq, operator.ne])


class ComparisonMethods(Primitives):
    """``==``, ``!=``, ``<``, ..., ``&``, ``|``, ``^``, `all`, `any`."""

    __slots__ = ()

    def _compared(self, op: Callable[[Any, Any], Any], other: Any) -> Any:
        torch = need_torch("comparison")
        node = node_of(other)
        if node is None and isinstance(other, dict):
            node = self._with_entries({})
            for key, value in other.items():
                node._put_value(key, value)
        if node is None:
            if not isinstance(other, (torch.Tensor, bool, int, float, complex)):
                return NotImplemented
            items = {
                key: _compared_entry(op, entry, other, each=True)
                for key, entry in self._entries().items()
            }
        else:
            mine, theirs = self._entries(), node._entries()
            _check_same_keys(mine, theirs, ())
            items = {
                key: _compared_entry(op, entry, theirs[key], each=False)
                for key, entry in mine.items()
            }
        made = self._with_entries(items)
        made._names = None
        return made

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(operator.ge, other)

    def __and__(self, other: Any) -> Any:
        return self._compared(operator.and_, other).filter_empty_()

    def __or__(self, other: Any) -> Any:
        return self._compared(operator.or_, other)

    def __xor__(self, other: Any) -> Any:
        return self._compared(operator.xor, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __hash__(self) -> int:
        return id(self)

    def all(self, dim: int | None = None) -> Any:
        """Whether all values are true: one bool, or a TensorDict without the batch dimension `dim`.

        Raises:
            RuntimeError: If there is no such batch dimension.
        """
        return self._every("all", dim)

    def any(self, dim: int | None = None) -> Any:
        """Whether any value is true: one bool, or a TensorDict without the batch dimension `dim`.

        Raises:
            RuntimeError: If there is no such batch dimension.
        """
        return self._every("any", dim)

    def _every(self, method: str, dim: int | None) -> Any:
        need_torch(method)
        if dim is None:
            found = (bool(getattr(e, method)()) for e in self._entries().values() if _counts(e))
            return all(found) if method == "all" else any(found)
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise RuntimeError(
                f"{method}: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
            )
        new = (*self._batch_size[:at], *self._batch_size[at + 1 :])
        return self._each(lambda value: getattr(value, method)(dim=at), new, None)


def _counts(entry: Any) -> bool:
    return class_kind(type(entry)) != VALUE


def _compared_entry(op: Any, entry: Any, other: Any, *, each: bool) -> Any:
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, _aligned(other, entry) if each else unwrapped(other))
    if type(entry) is UnbatchedTensor:
        return UnbatchedTensor(op(entry.data, unwrapped(other)))
    if kind == VALUE:
        return op(entry, other) if op in _EQUALITIES else entry
    return entry._compared(op, other)

"""Arithmetic on every tensor of a TensorDict: torch's functions of one, two or three tensors."""

from __future__ import annotations

import operator

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
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._values import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: Functions of one tensor that have an in-place form, `<name>_`.
UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
#: Functions of one tensor that have none.
TESTS = ["isfinite", "isnan", "isneginf", "isposinf", "isreal"]
#: Functions of two, with their in-place form unless it is in `_NO_INPLACE`.
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "clamp_max",
    "clamp_min",
    "bitwise_and",
    "logical_and",
]
_NO_INPLACE = frozenset(["bitwise_and", "logical_and"])


class ArithmeticMethods(Primitives):
    """`add`, `exp`, `clamp`, `lerp`, ... and the operators.

    Numbers and tensors of at most the batch's dimensions go to every tensor; of another TensorDict
    the entry of the same key.
    """

    __slots__ = ()

    def _binary(self, op: Callable[..., Any], other: Any, default: Any = None) -> Any:
        node = node_of(other)
        if node is None:
            other = self._operand(other)
            return self._computed(lambda tensor: op(tensor, _aligned(other, tensor)))
        mine, theirs = self._broadcast(node)
        return self._locked_as_this(mine._merged(op, theirs, default, ()).filter_empty_())

    def _broadcast(self, other: Any) -> tuple[Any, Any]:
        """This node and another one, expanded to one batch size; one without rows goes to all.

        Raises RuntimeError if the batch sizes do not broadcast.
        """
        mine, theirs = tuple(self._batch_size), tuple(other._batch_size)
        if mine == theirs or not theirs:
            return self, other
        wanted = tuple(need_torch("arithmetic").broadcast_shapes(mine, theirs))
        return (
            self if mine == wanted else self.expand(*wanted),
            other if theirs == wanted else other.expand(*wanted),
        )

    def _computed(self, change: Callable[[Any], Any]) -> Any:
        """A result of arithmetic: without empty nodes, and locked if this one is."""
        return self._locked_as_this(self._valued(change).filter_empty_())

    def _operand(self, other: Any) -> Any:
        """A number, or a tensor that broadcasts against the batch."""
        torch = need_torch("arithmetic")
        if isinstance(other, torch.Tensor):
            if other.ndim:
                torch.broadcast_shapes(other.shape, self._batch_size)
            return other
        if isinstance(other, (bool, int, float, complex)):
            return other
        if hasattr(other, "__array__"):
            return self._operand(torch.as_tensor(other))
        raise TypeError(
            f"arithmetic: expected a number, a tensor or a TensorDict, found {type(other).__name__}"
        )

    def _merged(
        self, op: Callable[..., Any], other: Any, default: Any, above: tuple[str, ...]
    ) -> Any:
        mine, theirs = self._entries(), other._entries()
        if default is None:
            _check_same_keys(mine, theirs, above)
        items: dict[str, Any] = {}
        for key, entry in mine.items():
            if key not in theirs:
                if default is not None and default != "intersection":
                    items[key] = _with_default(op, entry, default, first=True)
                continue
            items[key] = _combined(op, entry, theirs[key], default, (*above, key))
        if default is not None and default != "intersection":
            for key, entry in theirs.items():
                if key not in mine:
                    items[key] = _with_default(op, entry, default, first=False)
        return self._with_entries(items)

    def _binary_(self, op: Callable[..., Any], other: Any) -> Any:
        """In place: `op(tensor, other)` writes into the tensor."""
        node = node_of(other)
        if node is None:
            other = self._operand(other)
            return self._in_place(lambda tensor: op(tensor, _aligned(other, tensor)))
        mine, theirs = self._entries(), node._entries()
        _check_same_keys(mine, theirs, ())
        for key, entry in mine.items():
            kind = class_kind(type(entry))
            if kind == LEAF:
                op(entry, unwrapped(theirs[key]))
            elif type(entry) is UnbatchedTensor:
                op(entry.data, unwrapped(theirs[key]))
            elif kind != VALUE:
                node_of(entry)._binary_(op, theirs[key])
        return self

    def clamp(self, min: Any = None, max: Any = None, *, out: Any = None) -> Any:
        """Every value between two bounds: numbers, tensors or TensorDicts.

        Raises:
            ValueError: If there is no bound at all.
        """
        if min is None and max is None:
            raise ValueError("clamp: expected min or max, found neither")
        if out is not None:
            return out.update_(self.clamp(min, max))
        torch = need_torch("clamp")
        if node_of(min) is None and node_of(max) is None:
            low, high = (None if one is None else self._operand(one) for one in (min, max))
            return self._valued(
                lambda tensor: torch.clamp(tensor, _aligned(low, tensor), _aligned(high, tensor))
            )
        made = self if min is None else self.clamp_min(min)
        return made if max is None else made.clamp_max(max)

    def rsub(self, other: Any, *, alpha: float | None = None, default: Any = None) -> Any:
        """``other - td * alpha``."""
        scale = 1 if alpha is None else alpha
        return self._binary(lambda a, b: b - a * scale, other, default)

    def mod(self, other: Any) -> Any:
        """The remainder of a division, of the sign of `other`."""
        torch = need_torch("mod")
        return self._binary(torch.remainder, other)

    def _ternary(self, op: Callable[..., Any], first: Any, second: Any) -> Any:
        one, two = node_of(first), node_of(second)

        def run(td: Any, one: Any, two: Any) -> Any:
            items = {}
            for key, entry in td._entries().items():
                a = one._entry(key) if isinstance(one, Primitives) else one
                b = two._entry(key) if isinstance(two, Primitives) else two
                kind = class_kind(type(entry))
                if kind == LEAF:
                    items[key] = op(entry, _aligned(a, entry), _aligned(b, entry))
                elif type(entry) is UnbatchedTensor:
                    items[key] = UnbatchedTensor(op(entry.data, unwrapped(a), unwrapped(b)))
                elif kind == VALUE:
                    items[key] = entry
                else:
                    made = run(node_of(entry), tree_or(a), tree_or(b))
                    items[key] = rewrapped(entry, made)
            return td._with_entries(items)

        made = run(self, first if one is None else one, second if two is None else two)
        return self._locked_as_this(made.filter_empty_())

    def addcmul(self, other1: Any, other2: Any, *, value: float = 1) -> Any:
        """``td + value * other1 * other2``."""
        torch = need_torch("addcmul")
        return self._ternary(lambda x, a, b: torch.addcmul(x, a, b, value=value), other1, other2)

    def addcmul_(self, other1: Any, other2: Any, *, value: float = 1) -> Any:
        """`addcmul` into these tensors. Returns this TensorDict."""
        return self.update_(self.addcmul(other1, other2, value=value))

    def addcdiv(self, other1: Any, other2: Any, value: float = 1) -> Any:
        """``td + value * other1 / other2``."""
        torch = need_torch("addcdiv")
        return self._ternary(lambda x, a, b: torch.addcdiv(x, a, b, value=value), other1, other2)

    def addcdiv_(self, other1: Any, other2: Any, *, value: float = 1) -> Any:
        """`addcdiv` into these tensors. Returns this TensorDict."""
        return self.update_(self.addcdiv(other1, other2, value=value))

    def lerp(self, end: Any, weight: Any) -> Any:
        """``td + weight * (end - td)``."""
        torch = need_torch("lerp")

        def op(x: Any, a: Any, b: Any) -> Any:
            a = a if isinstance(a, torch.Tensor) else torch.as_tensor(a, dtype=x.dtype)
            return torch.lerp(x, a, b)

        return self._ternary(op, end, weight)

    def lerp_(self, end: Any, weight: Any) -> Any:
        """`lerp` into these tensors. Returns this TensorDict."""
        return self.update_(self.lerp(end, weight))

    # --- operators -------------------------------------------------------------------------------

    def __neg__(self) -> Any:
        return self.neg()

    def __abs__(self) -> Any:
        return self.abs()

    def __invert__(self) -> Any:
        return self._valued(lambda tensor: ~tensor)

    def __rsub__(self, other: Any) -> Any:
        return self.rsub(other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary(lambda a, b: b / a, other)

    def __rpow__(self, other: Any) -> Any:
        raise NotImplementedError("rpow: expected a TensorDict on the left of **, found another")

    def __mod__(self, other: Any) -> Any:
        return self.mod(other)

    def __isub__(self, other: Any) -> Any:
        return self.sub_(other)

    def __ipow__(self, other: Any) -> Any:
        return self.pow_(other)

    def __hash__(self) -> int:
        return id(self)


def _aligned(other: Any, tensor: Any) -> Any:
    """`other`, which has at most the batch's dimensions, with those that `tensor` has beyond."""
    ndim = getattr(other, "ndim", 0)
    if not ndim or ndim >= tensor.ndim:
        return other
    return other.reshape(*other.shape, *[1] * (tensor.ndim - ndim))


def _check_same_keys(mine: Any, theirs: Any, above: tuple[str, ...]) -> None:
    if mine.keys() == theirs.keys():
        return
    missing = [key for key in mine if key not in theirs and not _is_empty_node(mine[key])]
    missing += [key for key in theirs if key not in mine and not _is_empty_node(theirs[key])]
    if not missing:
        return
    name = ".".join((*above, missing[0]))
    raise KeyNotFoundError(
        f'keys in tensordicts mismatch: expected the same keys, found "{name}" in one only'
    )


def _is_empty_node(entry: Any) -> bool:
    node = node_of(entry)
    return node is not None and node.is_empty()


def _with_default(op: Any, entry: Any, default: Any, *, first: bool) -> Any:
    torch = need_torch("arithmetic")
    node = node_of(entry)
    if node is not None:
        items = {k: _with_default(op, e, default, first=first) for k, e in node._entries().items()}
        return rewrapped(entry, node._with_entries(items))
    if class_kind(type(entry)) == VALUE:
        return entry
    other = torch.as_tensor(default, dtype=entry.dtype, device=entry.device)
    return op(entry, other) if first else op(other, entry)


def _combined(op: Any, entry: Any, other: Any, default: Any, path: tuple[str, ...]) -> Any:
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, unwrapped(other))
    if type(entry) is UnbatchedTensor:
        return UnbatchedTensor(op(entry.data, unwrapped(other)))
    if kind == VALUE:
        return entry
    node, other_node = node_of(entry), node_of(other)
    if other_node is None:
        raise KeyNotFoundError(f'"{".".join(path)}": expected a node in both, found a tensor')
    return rewrapped(entry, node._merged(op, other_node, default, path))


def _unary_method(name: str) -> Any:
    def method(self: Any) -> Any:
        return self._locked_as_this(self._valued(getattr(need_torch(name), name)))

    return _documented(method, name, f"``torch.{name}`` of every tensor.")


def _unary_method_(name: str) -> Any:
    def method(self: Any) -> Any:
        change = getattr(need_torch(name).Tensor, f"{name}_")
        return self._in_place(change)

    text = f"``torch.{name}`` of every tensor, into it. Returns this TensorDict."
    return _documented(method, f"{name}_", text)


def _binary_method(name: str) -> Any:
    if name in ("add", "sub"):

        def method(self: Any, other: Any, *, alpha: Any = None, default: Any = None) -> Any:
            op = getattr(need_torch(name), name)
            if alpha is None:
                return self._binary(op, other, default)
            return self._binary(lambda a, b: op(a, b, alpha=alpha), other, default)

    else:

        def method(self: Any, other: Any, *, default: Any = None) -> Any:  # type: ignore[misc]
            torch = need_torch(name)
            op = getattr(torch, name)
            if name in ("maximum", "minimum", "bitwise_and", "logical_and"):
                return self._binary(lambda a, b: op(a, _tensor(torch, b, a)), other, default)
            return self._binary(op, other, default)

    text = f"``torch.{name}`` of every tensor and a number, a tensor, or another TensorDict's."
    return _documented(method, name, text)


def _tensor(torch: Any, other: Any, like: Any) -> Any:
    """A number as a tensor, for functions that take no numbers."""
    if isinstance(other, torch.Tensor):
        return other
    return torch.as_tensor(other, device=like.device)


def _binary_method_(name: str) -> Any:
    if name in ("add", "sub"):

        def method(self: Any, other: Any, *, alpha: Any = None) -> Any:
            op = getattr(need_torch(name).Tensor, f"{name}_")
            if alpha is None:
                return self._binary_(op, other)
            return self._binary_(lambda a, b: op(a, b, alpha=alpha), other)

    elif name in ("maximum", "minimum"):

        def method(self: Any, other: Any) -> Any:  # type: ignore[misc]
            torch = need_torch(name)
            op = getattr(torch, name)
            return self._binary_(lambda a, b: a.copy_(op(a, _tensor(torch, b, a))), other)

    else:

        def method(self: Any, other: Any) -> Any:  # type: ignore[misc]
            return self._binary_(getattr(need_torch(name).Tensor, f"{name}_"), other)

    text = f"``torch.{name}`` of every tensor and `other`, into it. Returns this TensorDict."
    return _documented(method, f"{name}_", text)


def _documented(method: Any, name: str, text: str) -> Any:
    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = text
    return method


for _name in (*UNARY, *TESTS):
    setattr(ArithmeticMethods, _name, _unary_method(_name))
for _name in UNARY:
    setattr(ArithmeticMethods, f"{_name}_", _unary_method_(_name))
for _name in BINARY:
    setattr(ArithmeticMethods, _name, _binary_method(_name))
    if _name not in _NO_INPLACE:
        setattr(ArithmeticMethods, f"{_name}_", _binary_method_(_name))
for _operator, _name in [("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"),
                         ("pow", "pow")]:  # fmt: skip
    setattr(ArithmeticMethods, f"__{_operator}__", ArithmeticMethods.__dict__[_name])
    setattr(ArithmeticMethods, f"__i{_operator}__", ArithmeticMethods.__dict__[f"{_name}_"])
for _operator in ("add", "mul"):
    setattr(ArithmeticMethods, f"__r{_operator}__", ArithmeticMethods.__dict__[_operator])


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

"""Copies of a TensorDict: elsewhere, of another dtype, cut off from the graph."""

from __future__ import annotations

from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import node_of, rewrapped
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Methods that cast every tensor, and the dtype they cast to.
CASTS = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "complex128": "complex128",
    "complex32": "complex32",
    "complex64": "complex64",
    "double": "float64",
    "float": "float32",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "half": "float16",
    "int": "int32",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int8": "int8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "uint8": "uint8",
}


class CastMethods(Primitives):
    """`clone`, `to`, `cpu`, `float`, `contiguous`, `detach`, `requires_grad_`, `grad`, ..."""

    __slots__ = ()

    def clone(self, recurse: bool = True, **kwargs: Any) -> Any:
        """A copy.

        Args:
            recurse: Copy the tensors; if false, only the nodes, and the tensors are shared.
            **kwargs: Of ``torch.clone``.
        """
        if recurse:
            if not kwargs:
                return self._valued(_cloned)
            return self._valued(lambda tensor: tensor.clone(**kwargs))
        items = {}
        for key, entry in self._entries().items():
            node = node_of(entry)
            items[key] = entry if node is None else rewrapped(entry, node.clone(recurse=False))
        return self._with_entries(items)

    def __copy__(self) -> Any:
        return self.clone(recurse=False)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """A TensorDict on another device or of another dtype; this one if nothing changes.

        Args:
            *args: A device, a dtype, both, or a tensor or TensorDict to be like.
            **kwargs: ``device``, ``dtype``, ``non_blocking``, or a ``batch_size`` to have.

        Example:
            >>> TensorDict({"a": torch.tensor(1)}).to(torch.float64)["a"].dtype
            torch.float64
        """
        torch = need_torch("to")
        device, dtype, batch_size, non_blocking = _parsed_to(torch, args, kwargs)
        made = self
        if dtype is not None or (device is not None and str(device) != str(self._device)):
            made = made._moved(device, dtype, non_blocking)
        if batch_size is not None and tuple(batch_size) != tuple(self._batch_size):
            made = made.clone(recurse=False)
            made.batch_size = batch_size
        return made

    def _moved(self, device: Any, dtype: Any, non_blocking: bool) -> Any:
        whole = device is not None and dtype is None
        if whole and getattr(self, "_consolidated", None) is not None and self.is_consolidated():
            from tenfold.tensordict._files import consolidated

            return consolidated.moved(self, device, non_blocking)

        def change(tensor: Any) -> Any:
            return tensor.to(device=device, dtype=dtype, non_blocking=non_blocking)

        made = self._valued(change)
        if device is not None:
            made._set_device(str(device))
        return self._locked_as_this(made)

    def _set_device(self, device: str) -> None:
        """Says that all tensors of a new tree are on a device."""
        self._device = device
        for key, entry in list(self._entries().items()):
            node = node_of(entry)
            if node is not None:
                node._set_device(device)
            elif hasattr(entry, "_on"):
                self._put_anyway(key, entry._on(self.device))

    def cpu(self, **kwargs: Any) -> Any:
        """`to` the main memory."""
        return self.to("cpu", **kwargs)

    def cuda(self, device: Any = None, **kwargs: Any) -> Any:
        """`to` a GPU."""
        if device is None or isinstance(device, int):
            device = "cuda" if device is None else f"cuda:{device}"
        return self.to(device, **kwargs)

    def type(self, dst_type: Any, *, cast_filter: Callable[[Any], bool] | None = None) -> Any:
        """Every tensor, or those for which `cast_filter` is true, as another dtype."""
        need_torch("type")

        def change(tensor: Any) -> Any:
            if cast_filter is not None and not cast_filter(tensor):
                return tensor
            return tensor.to(dst_type)

        return self._valued(change)

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Any:
        """A TensorDict of contiguous tensors, copied where they are not.

        Args:
            canonical: Accepted; strides are always those of a new tensor.
            inplace: Put them into this TensorDict.
        """
        made = self._valued(lambda tensor: tensor.contiguous())
        return self.update(made) if inplace else made

    def detach(self) -> Any:
        """The same memory, cut off from the graph of gradients."""
        return self._locked_as_this(self._valued(lambda tensor: tensor.detach()))

    def detach_(self) -> Any:
        """Cuts the tensors off from the graph of gradients. Returns this TensorDict."""
        return self._in_place(lambda tensor: tensor.detach_())

    @property
    def data(self) -> Any:
        """A TensorDict of the ``data`` of every tensor."""
        return self._locked_as_this(self._valued(lambda tensor: tensor.data))

    @property
    def grad(self) -> Any:
        """A TensorDict of the gradients; None if there is none."""
        return self.apply(lambda tensor: tensor.grad, filter_empty=None)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Says whether gradients are wanted, of every tensor. Returns this TensorDict."""
        return self._in_place(lambda tensor: tensor.requires_grad_(requires_grad))

    @property
    def requires_grad(self) -> bool:
        """True if a gradient is wanted of any tensor."""
        return any(tensor.requires_grad for tensor in self._tensors())

    def zero_grad(self, set_to_none: bool = True) -> Any:
        """Forgets the gradients, or fills them with 0. Returns this TensorDict."""
        for tensor in self._tensors():
            if tensor.grad is not None:
                if set_to_none:
                    tensor.grad = None
                else:
                    tensor.grad.zero_()
        return self

    def pin_memory(self, num_threads: int | None = None, inplace: bool = False) -> Any:
        """A copy in memory that a GPU can read."""
        made = self._valued(lambda tensor: tensor.pin_memory())
        return self.update(made) if inplace else made

    @property
    def dtype(self) -> Any:
        """The dtype of all tensors; None if they differ or there is none."""
        found = {tensor.dtype for tensor in self._tensors()}
        return found.pop() if len(found) == 1 else None

    def is_floating_point(self) -> bool:
        """True if every tensor is of a floating-point dtype."""
        return all(tensor.is_floating_point() for tensor in self._tensors())

    def bytes(self, *, count_duplicates: bool = True) -> int:
        """The bytes of all tensors; `count_duplicates`: those that are there twice, twice."""
        tensors = list(self._tensors())
        if not count_duplicates:
            tensors = list({tensor.data_ptr(): tensor for tensor in tensors}.values())
        return sum(tensor.nbytes for tensor in tensors)

    def param_count(self, *, count_duplicates: bool = True) -> int:
        """The number of values of all tensors."""
        tensors = list(self._tensors())
        if not count_duplicates:
            tensors = list({tensor.data_ptr(): tensor for tensor in tensors}.values())
        return sum(tensor.numel() for tensor in tensors)


def _cloned(tensor: Any) -> Any:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _parsed_to(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(device, dtype, batch_size, non_blocking) of the arguments of `to`."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    batch_size = kwargs.pop("batch_size", None)
    non_blocking = bool(kwargs.pop("non_blocking", False))
    other = kwargs.pop("other", None)
    for name in ("non_blocking_pin", "num_threads", "inplace"):
        kwargs.pop(name, None)
    if kwargs:
        raise TypeError(f"to: expected a device or a dtype, found {sorted(kwargs)}")
    for arg in args:
        if isinstance(arg, torch.dtype):
            dtype = arg
        elif isinstance(arg, bool):
            non_blocking = arg
        elif isinstance(arg, torch.Size):
            batch_size = arg
        elif isinstance(arg, (str, int, torch.device)):
            device = torch.device(arg)
        elif arg is not None:
            other = arg
    if other is not None:
        device = other.device
        if isinstance(other, torch.Tensor):
            dtype = other.dtype
        else:
            batch_size, dtype = other.batch_size, other.dtype
    return (None if device is None else torch.device(device)), dtype, batch_size, non_blocking


def _cast_method(name: str) -> Any:
    def method(self: Any, *, cast_filter: Callable[[Any], bool] | None = None) -> Any:
        made = self.type(getattr(need_torch(name), CASTS[name]), cast_filter=cast_filter)
        return self._locked_as_this(made)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"Every tensor, or those for which `cast_filter` is true, as {CASTS[name]}."
    return method


for _name in CASTS:
    setattr(CastMethods, _name, _cast_method(_name))

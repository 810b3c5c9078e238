"""Device, dtype, copies and gradients of the tensors of a TensorDict."""

from __future__ import annotations

from tenfold._interop import arrays
from tenfold._interop.arrays import dtype_name, need_torch, numpy_dtype, tensor_of, torch_of
from tenfold._interop.objects import sparse_parts
from tenfold.tensordict._entries import (
    LEAF,
    NOTHING,
    VALUE,
    batch_size_of,
    called,
    class_kind,
    device_name,
    node_of,
    rewrapped,
)
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._protocol import dense
from tenfold.tensordict._values import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._protocol import Like

#: Methods that cast every tensor to one dtype.
CASTS = frozenset(
    [
        "bfloat16", "bool", "complex128", "complex32", "complex64", "double", "float", "float16",
        "float32", "float64", "half", "int", "int16", "int32", "int64", "int8", "uint16", "uint32",
        "uint64", "uint8",
    ]
)  # fmt: skip


def clone(td: Like, recurse: bool = True, **kwargs: Any) -> Like:
    if recurse:
        if not kwargs:
            return td._valued(cloned)
        return td._valued(lambda tensor: tensor.clone(**kwargs))
    items = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        items[key] = entry if node is None else rewrapped(entry, node.clone(recurse=False))
    return td._with_entries(items)


def to(td: Any, *args: Any, **kwargs: Any) -> Any:
    torch = need_torch("to")
    device, dtype, batch_size, non_blocking = _parsed_to(torch, args, kwargs)
    made = td
    if dtype is not None or (device is not None and str(device) != str(td._device)):
        made = _moved(made, device, dtype, non_blocking)
    if batch_size is not None and batch_size_of(batch_size) != tuple(td._batch_size):
        made = made.clone(recurse=False)
        made.batch_size = batch_size_of(batch_size)
    return made


def _moved(td: Like, device: Any, dtype: Any, non_blocking: bool) -> Like:
    if (
        device is not None
        and dtype is None
        and getattr(td, "_consolidated", None) is not None
        and td.is_consolidated()
    ):
        return td._moved_in_one_copy(device, non_blocking)

    def change(tensor: Any) -> Any:
        if torch_of(tensor) is None:  # a numpy array, which becomes a tensor on another device
            if device is None or device.type == "cpu":
                return (
                    tensor if dtype is None else tensor.astype(numpy_dtype(dtype_name(dtype), "to"))
                )
            tensor = tensor_of(tensor)
        return tensor.to(device=device, dtype=dtype, non_blocking=non_blocking)

    made = td._valued(change)
    if device is not None:
        made._set_device(str(device))
    return locked_as(td, made)


def set_device(td: Any, device: str) -> None:
    """Records that all tensors, here and below, are on a device."""
    if td._device != device:
        td._device = device
        td._mark_changed()
    for key, entry in list(td._entries().items()):
        node = node_of(entry)
        if node is not None:
            node._set_device(device)
        elif hasattr(entry, "_on"):
            td._put_locked(key, entry._on(td.device))


def cuda(td: Like, device: Any = None, **kwargs: Any) -> Like:
    if device is None or isinstance(device, int):
        device = "cuda" if device is None else f"cuda:{device}"
    return td.to(device, **kwargs)


def cast(td: Like, dst_type: Any, *, cast_filter: Callable[[Any], bool] | None = None) -> Like:
    need_torch("type")

    def change(tensor: Any) -> Any:
        if cast_filter is not None and not cast_filter(tensor):
            return tensor
        return tensor.to(dst_type)

    return td._valued(change)


def cast_to(td: Like, dtype: str, cast_filter: Callable[[Any], bool] | None) -> Like:
    made = td.type(getattr(need_torch("cast"), dtype), cast_filter=cast_filter)
    return locked_as(td, made)


def contiguous(td: Like, inplace: bool) -> Like:
    made = td._valued(called("contiguous"))
    return td.update(made) if inplace else made


def pin_memory(td: Like, inplace: bool) -> Like:
    made = td._valued(called("pin_memory"))
    return td.update(made) if inplace else made


def dtype(td: Any) -> torch.dtype | None:
    found: set[torch.dtype] = {tensor.dtype for tensor in td._tensors()}
    return found.pop() if len(found) == 1 else None


def counted(td: Any, count_duplicates: bool) -> list[Any]:
    """All tensors. Unless `count_duplicates`, only the largest of those with the same address."""
    if count_duplicates:
        return list(td._tensors())
    largest: dict[int, Any] = {}
    for tensor in td._tensors():
        memory = _components(tensor)[-1]
        address = memory.data_ptr() if hasattr(memory, "data_ptr") else memory.ctypes.data
        place = address or id(tensor)  # 0: a tensor without elements, or on "meta"
        if place not in largest or num_bytes(largest[place]) < num_bytes(tensor):
            largest[place] = tensor
    return list(largest.values())


def num_bytes(tensor: Any) -> int:
    """The size of a tensor, or of the components of a sparse tensor, in bytes."""
    return sum(part.nbytes for part in _components(tensor))


def _components(tensor: Any) -> list[Any]:
    """The index tensors and the values of a sparse tensor; for any other, the tensor itself."""
    if str(getattr(tensor, "layout", "")).startswith("torch.sparse_"):
        return list(sparse_parts(tensor)[3].values())
    return [tensor]


def num_elements(tensor: Any) -> int:
    """The number of elements of a tensor or NumPy array."""
    return int(tensor.numel() if hasattr(tensor, "numel") else tensor.size)


def detach(td: Like) -> Like:
    return locked_as(td, td._valued(called("detach")))


def data(td: Like) -> Like:
    return locked_as(td, td._valued(lambda tensor: tensor.data))


def zero_grad(td: Like, set_to_none: bool = True) -> Like:
    for tensor in td._tensors():
        if arrays.tensor(tensor, "zero_grad").grad is not None:
            if set_to_none:
                tensor.grad = None
            else:
                tensor.grad.zero_()
    return td


def cloned(tensor: Any) -> Any:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _parsed_to(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Returns (device, dtype, batch_size, non_blocking) from the arguments of `to`."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    batch_size = kwargs.pop("batch_size", None)
    non_blocking = bool(kwargs.pop("non_blocking", False))
    other = kwargs.pop("other", None)
    for name in ("non_blocking_pin", "num_threads", "inplace"):
        kwargs.pop(name, None)
    if kwargs:
        raise TypeError(f"to: unexpected keyword arguments {sorted(kwargs)}")
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


def new(td: Like, method: str, size: tuple[Any, ...], options: dict[str, Any]) -> Like:
    """Calls `method` of every tensor except unbatched ones; `size` replaces the batch size."""
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    device = options.pop("device", NOTHING)
    options = {key: value for key, value in options.items() if value is not None}
    options.pop("empty_lazy", None)
    if device is not NOTHING and device is not None:
        options["device"] = device
    ndim = len(td._batch_size)
    fill = options.pop("fill_value", NOTHING)

    def change(entry: Any) -> Any:
        shape = (*size, *entry.shape[ndim:])
        if node_of(entry) is not None:
            more = {} if fill is NOTHING else {"fill_value": fill}
            return rewrapped(entry, new(node_of(entry), method, shape, {**options, **more}))
        args = () if fill is NOTHING else (fill,)
        return called(method, shape, *args, **options)(entry)

    items: dict[str, Any] = {}
    for key, entry in td._entries().items():
        if type(entry) is UnbatchedTensor:
            items[key] = entry
        elif class_kind(type(entry)) == VALUE:
            items[key] = entry._resized(tuple(size))
        else:
            items[key] = change(entry)
    made = td._like(items, tuple(size))
    if device is not NOTHING:
        made._device = device_name(device)
    return made


def new_full(td: Like, size: Any, fill_value: Any, options: dict[str, Any]) -> Like:
    if isinstance(size, int):
        size = (size,)
    return new(td, "new_full", tuple(size), {"fill_value": fill_value, **options})


def new_tensor(td: Like, data: Any, **options: Any) -> Like:
    torch = need_torch("new_tensor")
    other = node_of(data)
    if other is None and not isinstance(data, torch.Tensor):
        data = torch.as_tensor(data)
    shape = tuple(data.shape if other is None else other._batch_size)
    items = {}
    for key, entry in td._entries().items():
        theirs = data if other is None else other._entry(key)
        if node_of(entry) is not None:
            items[key] = rewrapped(entry, node_of(entry).new_tensor(theirs, **options))
        elif class_kind(type(entry)) == VALUE:
            items[key] = entry._resized(shape) if hasattr(entry, "_resized") else entry
        else:
            items[key] = _copied(entry, theirs.detach(), options)
    made = td._like(items, shape)
    made._names = None
    device = options.get("device", getattr(data, "device", None))
    made._device = device_name(device)
    return made


def data_ptr(td: Any, *, storage: bool = False) -> TensorDictBase:
    torch = need_torch("data_ptr")
    made: TensorDictBase = dense()({}, device="cpu")
    members = getattr(td, "tensordicts", None)
    entries = td._entries() if members is None else dict(_numbered(members))
    for key, entry in entries.items():
        node = node_of(entry)
        if node is not None:
            made.set(key, node.data_ptr(storage=storage))
        elif class_kind(type(entry)) == LEAF:
            owner = entry.untyped_storage() if storage else entry
            made.set(key, torch.tensor(owner.data_ptr()))
    return made


def to_padded_tensor(td: Like, padding: float = 0.0) -> Like:
    torch = need_torch("to_padded_tensor")

    def change(tensor: Any) -> Any:
        return torch.nested.to_padded_tensor(tensor, padding) if tensor.is_nested else tensor

    return td._valued(change)


def _copied(like: Any, given: Any, options: dict[str, Any]) -> Any:
    made = given.to(options.get("dtype") or like.dtype, copy=True)
    if options.get("device") is not None:
        made = made.to(options["device"])
    if options.get("pin_memory"):
        made = made.pin_memory()
    return made.requires_grad_(options.get("requires_grad", False))


def _numbered(members: Any) -> Any:
    return [(str(i), member) for i, member in enumerate(members)]

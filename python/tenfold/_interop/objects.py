"""Says in simple terms what the engine's binding does not know itself (python/src/tree_in.hpp).

The binding walks dicts, lists, tuples, JSON values and plain torch tensors. Whatever else it meets
comes here, together with `where`, the beginning of a message about it (`path: key "a.b"`), and
`memo`, a dict of this one conversion.
"""

from __future__ import annotations

import enum
import sys

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.special import Opaque, sparse_parts, special_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def simplify(obj: Any, where: str, memo: dict[Any, Any]) -> tuple[Any, ...]:
    """The answer for one object, a tuple as TreeBuilder's comment lists them."""
    from tenfold.tensordict import _saving

    cls = type(obj)
    if (answer := _saving.simplify(obj)) is not None:
        return answer
    if cls.__module__ == "tenfold" and cls.__qualname__ == "SparseMatrix":
        return ("native", obj._native.tree(), {})  # as the sparse tensor that it is
    if (special := special_of(obj)) is not None:
        return ("special", *special)
    torch = sys.modules.get("torch")
    if _is_upstream(cls):
        from tenfold._interop import tensordict_package

        answer = tensordict_package.simplify(obj, where)
        if answer is not None:
            return answer
    if torch is not None and isinstance(obj, torch.Tensor):
        return _torch_tensor(torch, obj, where, memo)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, (numpy.ndarray, numpy.generic)):
        answer = _numpy_array(numpy, obj, where)
        if answer is not None:
            return answer
    if isinstance(obj, enum.Enum):
        raise _refusal(where, obj, "store its value")
    if not isinstance(obj, type) and callable(getattr(obj, "state_dict", None)):
        return ("again", obj.state_dict())
    bases: tuple[Any, ...] = (str, int, float, list)
    for base in bases:
        if isinstance(obj, base):
            return ("again", base(obj))
    if isinstance(obj, tuple):  # torch.Size, named tuples
        return ("again", tuple(obj))
    if isinstance(obj, dict):
        from collections import OrderedDict

        ordered = isinstance(obj, OrderedDict)
        return ("again", OrderedDict(obj) if ordered else dict(obj))
    if hasattr(cls, "__dlpack__"):
        return _dlpack_array(obj, where)
    kinds: tuple[Any, ...] = (bytes, bytearray, complex, set, frozenset)
    for kind in kinds:
        if isinstance(obj, kind):
            return ("again", kind(obj))
    if isinstance(obj, memoryview):
        raise _refusal(where, obj, "store bytes, or a tensor of uint8")
    if isinstance(obj, Opaque):
        raise UnsupportedError(
            f"{where}: it cannot be stored: expected a tensor, a JSON value or a container of "
            f"them, found {obj.name!r}, which was read as an Opaque"
        )
    raise _refusal(where, obj)


def _refusal(where: str, obj: object, remedy: str = "") -> UnsupportedError:
    cls = type(obj)
    name = cls.__qualname__
    if cls.__module__ != "builtins":
        name = f"{cls.__module__}.{name}"
    message = (
        f"{where}: it cannot be stored: expected a tensor, an array, a JSON value, a container of "
        f"them or an object with state_dict(), found {name}"
    )
    return UnsupportedError(message + (f"; {remedy}" if remedy else ""))


def _refused_tensor(where: str, what: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(
        f"{where}: it cannot be stored: expected a dense tensor, found {what}; {remedy}"
    )


def _is_upstream(cls: type) -> bool:
    """True for tensordict's classes, tensorclasses included; nothing is imported."""
    if getattr(cls, "_is_tensorclass", False):
        return True
    return any(base.__module__.partition(".")[0] == "tensordict" for base in cls.__mro__)


def _torch_tensor(torch: Any, tensor: Any, where: str, memo: dict[Any, Any]) -> tuple[Any, ...]:
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise _refused_tensor(
            where, f"a {type(tensor).__name__}", "run the module once, so that it gets its shape"
        )
    if tensor.is_nested and tensor.layout is torch.strided:
        return _nested_tensor(torch, tensor)
    if tensor.layout in _sparse_layouts(torch):
        return _sparse_tensor(tensor)
    if tensor.layout is not torch.strided:
        raise _refused_tensor(
            where, f"a tensor of layout {tensor.layout}", "store it with to_dense(), or its parts"
        )
    if tensor.is_quantized:
        raise _refused_tensor(where, "a quantized tensor", "store int_repr() and its parameters")
    if tensor.is_meta:
        raise _refused_tensor(where, "a tensor on the meta device", "it has no bytes")
    plain_dispatch = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
    if type(tensor).__torch_dispatch__ not in plain_dispatch:  # it stands for other tensors
        cls = type(tensor)
        raise _refused_tensor(where, f"a {cls.__module__}.{cls.__qualname__}", "store its parts")
    name = arrays.dtype_name(tensor.dtype)
    if name not in arrays.DTYPES:
        raise _refused_tensor(where, f"dtype {name}", "convert it first")
    plain = _plain(torch, tensor, memo)
    if plain.numel() and plain.data_ptr() == 0:
        raise _refused_tensor(where, "a storage without bytes", "it was released")
    return (
        "memory",
        plain.data_ptr(),
        name,
        tuple(plain.shape),
        plain.stride(),
        True,
        plain,
    )


def _plain(torch: Any, tensor: Any, memo: dict[Any, Any]) -> Any:
    """The tensor itself without subclass and graph, or a copy of it in main memory."""
    with torch.no_grad():
        plain = tensor.as_subclass(torch.Tensor).detach()
        if plain.device.type == "cpu" and not plain.is_conj() and not plain.is_neg():
            return plain.clone() if plain._is_zerotensor() else plain
        # Tied tensors are copied once, and so stay tied.
        bits = (plain.is_conj(), plain.is_neg())
        shape = (plain.dtype, plain.shape, plain.stride())
        key = (str(plain.device), plain.data_ptr(), shape, bits)
        if plain.data_ptr() == 0 or key not in memo:
            # The original too, so that its address is not given to another one meanwhile.
            memo[key] = (plain.cpu().resolve_conj().resolve_neg(), plain)
        return memo[key][0]


def _sparse_layouts(torch: Any) -> tuple[Any, ...]:
    names = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
    return tuple(getattr(torch, name) for name in names)


def _sparse_tensor(tensor: Any) -> tuple[Any, ...]:
    from tenfold.tensordict._node import NodeInfo

    layout, shape, is_coalesced, parts = sparse_parts(tensor.detach())
    more = (layout, shape, is_coalesced, None)
    info = NodeInfo("sparse", False, (), [], "", 0, None, "", None, {}, more)
    return ("node", info, list(parts), tuple(parts.values()))


def _nested_tensor(torch: Any, tensor: Any) -> tuple[Any, ...]:
    plain = tensor.detach().cpu()
    if not plain.is_contiguous():
        plain = plain.clone(memory_format=torch.contiguous_format)
    return ("nested", plain.values(), plain._nested_tensor_size())


def _numpy_array(numpy: Any, obj: Any, where: str) -> tuple[Any, ...] | None:
    if isinstance(obj, numpy.str_):
        return ("again", str(obj))
    if isinstance(obj, numpy.bytes_):
        return None
    if isinstance(obj, numpy.ma.MaskedArray):
        raise _refusal(where, obj, "store its data and its mask")
    array = numpy.asarray(obj)
    name = arrays.dtype_name(array.dtype)
    if name not in arrays.DTYPES:
        raise UnsupportedError(
            f"{where}: it cannot be stored: expected numbers or bool, found an array of dtype "
            f"{array.dtype}"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    size = array.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        array = numpy.array(array, order="C")
    return (
        "memory",
        array.__array_interface__["data"][0],
        name,
        array.shape,
        tuple(stride // size for stride in array.strides),
        array.flags.writeable,
        array,
    )


def _dlpack_array(obj: Any, where: str) -> tuple[Any, ...]:
    device = obj.__dlpack_device__()
    if device[0] != 1:
        raise _refusal(where, obj, "copy it to main memory first")
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        capsule = obj.__dlpack__()
    return ("capsule", capsule)

"""Converts objects that the engine's binding does not convert itself, in both directions.

To store an object, the binding (python/src/tree_in.hpp) calls `simplify`; to load one, it calls
`special`, `sparse` or `opaque`.

The binding converts dict, OrderedDict, list, tuple, JSON values (no subclasses of these) and plain
torch tensors. It passes other objects to `simplify`, with the argument `memo`: a dict that exists
while one tree is converted.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter

from tenfold import _core
from tenfold._interop import arrays, tensordict_package
from tenfold._interop.arrays import torch_or_none
from tenfold._interop.node_info import NodeInfo
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: See `register_trees`, which is called when tenfold.tensordict is imported. Before the import,
#: there are no objects of its classes.
_simplified_tree: Callable[[Any], tuple[Any, ...] | None] | None = None


def register_trees(simplified: Callable[[Any], tuple[Any, ...] | None]) -> None:
    """Sets a function with which `simplify` describes objects of tenfold.tensordict.

    The function returns None for objects that it does not describe, such as tensors.
    """
    global _simplified_tree
    _simplified_tree = simplified


def simplify(obj: Any, memo: dict[Any, Any]) -> tuple[Any, ...]:
    """Describes one object as a tuple; python/src/tree_in.hpp lists the tuples (TreeBuilder)."""
    cls = type(obj)
    if cls is _core.Item:
        return ("item", obj)
    if _simplified_tree is not None and (answer := _simplified_tree(obj)) is not None:
        return answer
    if cls.__module__ == "tenfold" and cls.__qualname__ == "SparseMatrix":
        return ("native", obj._native.tree(), {})  # stored as a sparse tensor
    if (special := special_of(obj)) is not None:
        return ("special", *special)
    torch = sys.modules.get("torch")
    if _is_upstream(cls):
        answer = tensordict_package.simplify(obj)
        if answer is not None:
            return answer
    if torch is not None and isinstance(obj, torch.Tensor):
        return _torch_tensor(torch, obj, memo)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, (numpy.ndarray, numpy.generic)):
        answer = _numpy_array(numpy, obj)
        if answer is not None:
            return answer
    if isinstance(obj, enum.Enum):
        return _refused(obj, "store its value")
    if not isinstance(obj, type) and callable(getattr(obj, "state_dict", None)):
        return ("again", obj.state_dict())
    bases: tuple[Any, ...] = (str, int, float, list)
    for base in bases:
        if isinstance(obj, base):
            return ("again", base(obj))
    if isinstance(obj, tuple):  # a named tuple
        return ("again", tuple(obj))
    if isinstance(obj, dict):
        from collections import OrderedDict

        ordered = isinstance(obj, OrderedDict)
        return ("again", OrderedDict(obj) if ordered else dict(obj))
    if hasattr(cls, "__dlpack__"):
        return _dlpack_array(obj)
    kinds: tuple[Any, ...] = (bytes, bytearray, complex, set, frozenset)
    for kind in kinds:
        if isinstance(obj, kind):
            return ("again", kind(obj))
    if isinstance(obj, memoryview):
        return _refused(obj, "store bytes, or a tensor of uint8")
    if isinstance(obj, Opaque):
        expected = "a tensor, a JSON value or a container of them"
        return ("refused", expected, f"an Opaque for {obj.name!r}", "")
    return _refused(obj)


def _refused(obj: object, remedy: str = "") -> tuple[str, str, str, str]:
    cls = type(obj)
    name = cls.__qualname__
    if cls.__module__ != "builtins":
        name = f"{cls.__module__}.{name}"
    expected = (
        "a tensor, an array, a JSON value, a container of them or an object with state_dict()"
    )
    return ("refused", expected, name, remedy)


def _refused_tensor(what: str, remedy: str = "") -> tuple[str, str, str, str]:
    return ("refused", "a dense tensor", what, remedy)


def _is_upstream(cls: type) -> bool:
    """True for tensordict's classes and tensorclasses. Does not import the package."""
    if getattr(cls, "_is_tensorclass", False):
        return True
    return any(base.__module__.partition(".")[0] == "tensordict" for base in cls.__mro__)


def _torch_tensor(torch: Any, tensor: Any, memo: dict[Any, Any]) -> tuple[Any, ...]:
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return _refused_tensor(
            f"a {type(tensor).__name__}", "run the module once, so that the tensor gets its shape"
        )
    if tensor.is_nested and tensor.layout is torch.strided:
        return _nested_tensor(torch, tensor)
    if tensor.layout in _sparse_layouts(torch):
        return _sparse_tensor(tensor)
    if tensor.layout is not torch.strided:
        return _refused_tensor(
            f"a tensor of layout {tensor.layout}", "store it with to_dense(), or its parts"
        )
    if tensor.is_quantized:
        return _refused_tensor("a quantized tensor", "store int_repr() and its parameters")
    if tensor.is_meta:
        return _refused_tensor("a tensor on the meta device, which has no bytes")
    plain_dispatch = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
    if type(tensor).__torch_dispatch__ not in plain_dispatch:  # it represents other tensors
        cls = type(tensor)
        return _refused_tensor(f"a {cls.__module__}.{cls.__qualname__}", "store its parts")
    name = arrays.dtype_name(tensor.dtype)
    if name not in arrays.DTYPES:
        return ("refused", "a dtype that files can store", f"dtype {name}", "convert it first")
    plain = _plain(torch, tensor, memo)
    if plain.numel() and plain.data_ptr() == 0:
        return _refused_tensor("a tensor whose storage has no bytes")
    size = plain.untyped_storage().nbytes()
    end = plain.storage_offset() + arrays.extent(plain.shape, plain.stride())
    if plain.numel() and size < end * plain.element_size():
        return _refused_tensor(f"a tensor whose storage has only {size} bytes")
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
    """Returns a plain tensor without autograd graph, in main memory.

    The result shares the memory of `tensor` if possible. Otherwise it is a copy, for example if
    `tensor` is on another device or is a lazy conjugate.
    """
    with torch.no_grad():
        plain = tensor.as_subclass(torch.Tensor).detach()
        if plain.device.type == "cpu" and not plain.is_conj() and not plain.is_neg():
            return plain.clone() if plain._is_zerotensor() else plain
        # Copy tensors with the same memory, dtype, shape and strides once: they share the copy.
        bits = (plain.is_conj(), plain.is_neg())
        shape = (plain.dtype, plain.shape, plain.stride())
        key = (str(plain.device), plain.data_ptr(), shape, bits)
        if plain.data_ptr() == 0 or key not in memo:
            # Keep the original too: its address is part of `key`, and a later tensor must not get
            # the same address.
            memo[key] = (plain.cpu().resolve_conj().resolve_neg(), plain)
        return memo[key][0]


def _sparse_layouts(torch: Any) -> tuple[Any, ...]:
    names = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
    return tuple(getattr(torch, name) for name in names)


def _sparse_tensor(tensor: Any) -> tuple[Any, ...]:
    layout, shape, is_coalesced, parts = sparse_parts(tensor.detach())
    info = NodeInfo(kind="sparse", layout=layout, dense_shape=shape, is_coalesced=is_coalesced)
    return ("node", info, list(parts), tuple(parts.values()))


def _nested_tensor(torch: Any, tensor: Any) -> tuple[Any, ...]:
    plain = tensor.detach().cpu()
    if not plain.is_contiguous():
        plain = plain.clone(memory_format=torch.contiguous_format)
    return ("nested", plain.values(), plain._nested_tensor_size())


def _numpy_array(numpy: Any, obj: Any) -> tuple[Any, ...] | None:
    if isinstance(obj, numpy.str_):
        return ("again", str(obj))
    if isinstance(obj, numpy.bytes_):
        return None
    if isinstance(obj, numpy.ma.MaskedArray):
        return _refused(obj, "store its data and its mask")
    array = numpy.asarray(obj)
    name = arrays.dtype_name(array.dtype)
    if name not in arrays.DTYPES:
        return ("refused", "numbers or bool", f"an array of dtype {array.dtype}", "")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not arrays.has_element_strides(array):
        array = numpy.array(array, order="C")
    return (
        "memory",
        array.__array_interface__["data"][0],
        name,
        array.shape,
        tuple(stride // array.itemsize for stride in array.strides),
        array.flags.writeable,
        array,
    )


def _dlpack_array(obj: Any) -> tuple[Any, ...]:
    device = obj.__dlpack_device__()
    if device[0] != 1:
        return _refused(obj, "copy it to main memory first")
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        capsule = obj.__dlpack__()
    return ("capsule", capsule)


# Looked up by exact class, because a Counter, for example, is a dict, too.
_OF_CLASS = {
    bytes: "bytes",
    bytearray: "bytearray",
    complex: "complex",
    set: "set",
    frozenset: "frozenset",
    Counter: "Counter",
}


def special(name: str, text: Any, items: list[Any]) -> Any:
    """Creates an extended scalar (`tenfold::Value::Special`).

    If `torch_or_none` returns None, a torch.Size becomes a tuple, and a dtype, device, layout or
    qscheme becomes the str `text`. With torch, a dtype, device, layout or qscheme that this version
    of torch lacks becomes `text`, too.
    """
    if name in ("bytes", "bytearray"):
        return text if name == "bytes" else bytearray(text)
    if name == "complex":
        return complex(*items)
    if name in ("set", "frozenset"):
        return set(items) if name == "set" else frozenset(items)
    if name == "Counter":
        return Counter(items[0])
    torch = torch_or_none()
    if name == "torch.Size":
        return tuple(items) if torch is None else torch.Size(items)
    if torch is None:
        return text
    if name == "torch.device":
        try:
            return torch.device(text)
        except RuntimeError:  # a name that this version of torch does not have
            return text
    # Not getattr(torch, ...): if the attribute is missing, torch may import a module of that name.
    found = vars(torch).get(text.removeprefix("torch."))
    wanted = getattr(torch, name.removeprefix("torch."))  # dtype, layout or qscheme
    return found if isinstance(found, wanted) else text


@set_module("tenfold")
class Opaque:
    """A placeholder for an object that a pickle creates by an unsupported call.

    `tenfold.load(path, allow_opaque=True)` also returns placeholders for pickled values, and for
    entries of a trainer's folder, that cannot be read. Creating a placeholder imports and calls
    nothing that the pickle names.

    Attributes:
        name: The class or function, ``"module.Class"``; if there is none, a description such as
            ``"persistent id"`` or ``"refused entry"``.
        args: The arguments of the call, usually a tuple; None if the pickle has none, for example
            if it only names a class.
        state: The state that the pickle sets on the object, usually a dict of attributes, or None.
        parts: The pickled content: ``args``, ``state``, ``kwargs``, ``items`` (appended items),
            ``entries`` (alternating keys and values), ``callable`` (a callable without a name),
            ``parameter`` (``requires_grad`` of a Parameter on the meta device), ``key`` and
            ``value`` (an entry of a dict whose key cannot be read). For a file in a trainer's
            folder: its ``bytes``, a uint8 tensor.

    Example:
        >>> tenfold.load("run.pt", allow_opaque=True)["config"]
        <Opaque my.project.Config args=() state={'lr': 0.1}>
    """

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: dict[str, Any]) -> None:
        self.name: str = name
        self.parts: dict[str, Any] = parts

    @property
    def args(self) -> Any:
        """The arguments of the call that would create the object; None if the pickle has none."""
        return self.parts.get("args")

    @property
    def state(self) -> Any:
        """The state that the pickle sets on the object, usually a dict of attributes, or None."""
        return self.parts.get("state")

    def __repr__(self) -> str:
        shown = " ".join(f"{key}={value!r}" for key, value in self.parts.items())
        return f"<Opaque {self.name}{' ' if shown else ''}{shown}>"


def opaque(name: str, parts: dict[str, Any]) -> Opaque:
    """Creates an Opaque, or a tensor on the meta device. Called by the engine's binding."""
    made = _meta_tensor(parts) if name == _META_TENSOR else None
    return Opaque(name, parts) if made is None else made


_META_TENSOR = "torch._utils._rebuild_meta_tensor_no_storage"


def _meta_tensor(parts: dict[str, Any]) -> Any:
    """Creates a meta tensor; None if the framework is numpy or torch rejects the arguments."""
    torch = torch_or_none()
    if torch is None:
        return None
    try:
        dtype, shape, strides, requires_grad = parts["args"]
        made = torch.empty_strided(
            shape, strides, dtype=dtype, device="meta", requires_grad=requires_grad
        )
        if "parameter" in parts:
            made = torch.nn.Parameter(made, requires_grad=parts["parameter"])
        return made
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None


def sparse(layout: str, shape: Any, is_coalesced: bool, parts: dict[str, Any]) -> Any:
    """Creates a sparse or jagged torch tensor from its components.

    torch checks the invariants of sparse tensors, but not of jagged tensors. Returns `parts` if
    they are numpy arrays.
    """
    torch = arrays.torch_of(parts.get("values"))
    if torch is None:
        return parts
    if layout == "jagged":
        return torch.nested.nested_tensor_from_jagged(
            parts["values"],
            parts["offsets"],
            parts.get("lengths"),
            jagged_dim=list(shape).index(-1),
        )
    if layout == "sparse_coo":
        return torch.sparse_coo_tensor(
            parts["indices"],
            parts["values"],
            shape,
            is_coalesced=is_coalesced or None,
            check_invariants=True,
        )
    by_row = layout in ("sparse_csr", "sparse_bsr")
    compressed = parts["crow_indices" if by_row else "ccol_indices"]
    plain = parts["col_indices" if by_row else "row_indices"]
    # torch requires that both index tensors have the same dtype, and that this dtype can represent
    # the lengths in `shape`.
    if compressed.dtype != plain.dtype or max(shape) > torch.iinfo(torch.int32).max:
        compressed, plain = compressed.long(), plain.long()
    return torch.sparse_compressed_tensor(
        compressed,
        plain,
        parts["values"],
        shape,
        layout=getattr(torch, layout),
        check_invariants=True,
    )


def sparse_parts(tensor: Any) -> tuple[str, tuple[int, ...], bool, dict[str, Any]]:
    """Layout, shape, is_coalesced and components of a sparse or jagged tensor of torch.

    The shape of a jagged tensor has -1 for the ragged dimension.
    """
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "jagged":
        # In tensor.shape, the ragged length is a symbolic integer, not a number.
        shape = (tensor.offsets().numel() - 1, *tensor.values().shape)
        ragged = tensor._ragged_idx
        parts = {"values": tensor.values(), "offsets": tensor.offsets()}
        if tensor.lengths() is not None:
            parts["lengths"] = tensor.lengths()
        return layout, (*shape[:ragged], -1, *shape[ragged + 1 :]), False, parts
    shape = tuple(int(length) for length in tensor.shape)
    if layout == "sparse_coo":
        # Not indices(): it requires a coalesced tensor, and coalescing would change the components.
        parts = {"indices": tensor._indices(), "values": tensor._values()}
        return layout, shape, bool(tensor.is_coalesced()), parts
    by_row = layout in ("sparse_csr", "sparse_bsr")
    names = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
    parts = {name: getattr(tensor, name)() for name in names}
    return layout, shape, False, {**parts, "values": tensor.values()}


def special_of(obj: Any) -> tuple[str, bytes | str, list[Any]] | None:
    """Returns (name, text, items) of an extended scalar; None for any other class or a subclass."""
    cls = type(obj)
    name = _OF_CLASS.get(cls)
    if name is None:
        return _special_of_torch(obj)
    if name in ("bytes", "bytearray"):
        return name, bytes(obj), []
    if name == "complex":
        return name, "", [obj.real, obj.imag]
    if name == "Counter":
        return name, "", [dict(obj)]
    return name, "", _in_order(obj)


def _special_of_torch(obj: Any) -> tuple[str, str, list[Any]] | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for name in ("dtype", "device", "layout", "qscheme"):
        if type(obj) is getattr(torch, name):
            return f"torch.{name}", str(obj), []
    if type(obj) is torch.Size:
        return "torch.Size", "", [int(length) for length in obj]
    return None


def _in_order(items: Any) -> list[Any]:
    """Sorts the items if ``<`` compares them: the order in a set of str differs between runs."""
    try:
        return sorted(items, key=_sort_key)
    except (TypeError, RecursionError):
        return list(items)


def _sort_key(item: Any) -> Any:
    """Replaces frozensets by their sorted items, because ``<`` of frozensets tests for subsets."""
    if isinstance(item, frozenset):
        return sorted(map(_sort_key, item))
    return tuple(map(_sort_key, item)) if type(item) is tuple else item

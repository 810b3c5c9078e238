"""Imports torch and numpy on demand, and creates the arrays that the engine cannot create."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tenfold._errors import UnsupportedError
from tenfold._interop.frameworks import decided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeGuard


# The dtypes of the engine, by their names in torch.
DTYPES = frozenset(
    [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    ]
)
_ML_DTYPES = frozenset(
    [
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ]
)

_torch: Any = False  # False: import_torch was not called yet; None: no torch
_waiting: list[Callable[[Any], None]] = []  # functions to call with torch once it is imported


def on_torch(call: Callable[[Any], None]) -> None:
    """Calls `call(torch)` now if torch is imported, else when `import_torch` imports it."""
    if imported_torch() is not None:
        call(import_torch())
    else:
        _waiting.append(call)


def torch_or_none() -> Any:
    """The torch module, imported if necessary; None if new arrays are to be numpy arrays.

    They are numpy arrays if `frameworks.decided` selects numpy, or if torch cannot be imported.
    """
    if _torch and _torch.compiler.is_compiling():
        return _torch  # `decided` calls the engine, which dynamo cannot trace
    return import_torch() if decided() == "torch" else None


def imported_torch() -> Any:
    """The torch module if imported, else None; without it, no value can be a torch tensor."""
    return sys.modules.get("torch")


def torch_of(value: object) -> Any:
    """The torch module if `value` is a torch tensor, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def is_module(value: Any) -> bool:
    torch = imported_torch()
    return torch is not None and isinstance(value, torch.nn.Module)


def is_optimizer(value: Any) -> bool:
    optim = sys.modules.get("torch.optim")
    return optim is not None and isinstance(value, optim.Optimizer)


def tensors_in(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, array) for each torch or numpy array in nested dicts, lists, tuples."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from tensors_in(value, (*path, str(key)))
    elif isinstance(state, (list, tuple)):
        for position, value in enumerate(state):
            yield from tensors_in(value, (*path, str(position)))
    elif is_array(state):
        yield ".".join(path), state


def import_torch() -> Any:
    """The torch module, imported if necessary; None if it cannot be imported."""
    global _torch
    if _torch is False:
        try:
            import torch
        except ImportError:
            _torch = None
        else:
            _torch = torch
            for call in _waiting:
                call(torch)
    return _torch


def is_array(value: object) -> TypeGuard[Any]:
    """True for torch tensors and numpy arrays, without importing either."""
    for module, class_name in (("torch", "Tensor"), ("numpy", "ndarray")):
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(value, getattr(loaded, class_name)):
            return True
    return False


def copied(array: Any) -> Any:
    """A copy of a torch tensor or numpy array."""
    return array.clone() if hasattr(array, "clone") else array.copy()


def has_element_strides(array: Any) -> bool:
    """True if all strides of a numpy array are multiples of its item size, and none is negative."""
    size = array.itemsize or 1
    return all(stride >= 0 and stride % size == 0 for stride in array.strides)


def is_numpy_number(value: Any) -> bool:
    """True for a scalar of one of numpy's own number types or bool, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc"


def without_elements(tensor: Any) -> str:
    """Describes a quantized, meta or unstrided (sparse, ...) tensor; "" for any other value.

    The description ends with a remedy, except that of a meta tensor.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return ""
    if tensor.is_quantized:
        return "a quantized tensor; dequantize() it"
    if tensor.is_meta:
        return "a tensor on the meta device, which has no elements"
    if not tensor.is_nested and tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        kind = "sparse tensor" if layout.startswith("sparse") else f"tensor of layout {layout}"
        return f"a {kind}; to_dense() makes a dense one"
    return ""


def not_dense(tensor: Any) -> str:
    """Like `without_elements`, but also describes nested tensors."""
    if torch_of(tensor) is not None and tensor.is_nested:
        return "a nested tensor; torch.nested.to_padded_tensor() makes a dense one"
    return without_elements(tensor)


def bytes_of(value: Any) -> int:
    """Approximate size in bytes of a row's value: a tensor, number, str, or containers of these."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple)):
        is_flat = not value or isinstance(value[0], (bool, int, float))
        return 8 * len(value) if is_flat else sum(map(bytes_of, value))
    if isinstance(value, Mapping) or (hasattr(value, "batch_size") and hasattr(value, "keys")):
        # Iterating a TensorDict would yield rows, not keys.
        return sum(bytes_of(value[key]) for key in value.keys())  # noqa: SIM118
    try:
        size = getattr(value, "nbytes", 8)
    except RuntimeError:  # a sparse tensor
        return 8
    return size if isinstance(size, int) else 8


def has_mask(value: Any) -> bool:
    """True for a numpy masked array with at least one masked element."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or type(value) is numpy.ndarray:
        return False
    return isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.getmaskarray(value).any())


def unmasked_row(value: Any) -> Any:
    """Converts the value of one row, an array with masked elements, to a value without a mask.

    Returns None if all elements are masked. Otherwise masked floats become NaN; arrays of other
    dtypes become nested lists with None for masked elements.
    """
    if value.ndim == 0 or value.mask.all():
        return None
    return value.filled(float("nan")) if value.dtype.kind == "f" else value.tolist()


def unmasked_rows(values: Any) -> list[Any]:
    """Converts each row of a masked array as `unmasked_row` does."""
    if values.ndim == 1:
        pairs = zip(values.data, values.mask, strict=True)
        return [None if is_masked else value for value, is_masked in pairs]
    return [unmasked_row(row) if has_mask(row) else row.data for row in values]


def dtype_name(dtype: object) -> str:
    """Returns the name of a dtype of torch or numpy, such as ``"float32"``; accepts a name, too."""
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = getattr(dtype, "name", None) or str(dtype)
    return name.removeprefix("torch.").rstrip("_")


def numpy_dtype(name: str, where: str) -> Any:
    """The dtype `name` of numpy or ml_dtypes. Raises UnsupportedError if neither provides it."""
    import numpy as np

    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError(
                f"{where}: numpy has no {name}: expected the package ml_dtypes, found none; "
                "pip install ml_dtypes, or use torch"
            ) from None
        kind = getattr(ml_dtypes, name, None)
        if kind is None:
            raise UnsupportedError(
                f"{where}: ml_dtypes {ml_dtypes.__version__} has no {name}: expected a newer "
                "ml_dtypes; pip install -U ml_dtypes, or use torch"
            )
        return np.dtype(kind)
    if name in ("complex32", "float4_e2m1fn_x2"):
        raise UnsupportedError(
            f'{where}: numpy has no {name}: expected torch; use the framework "torch", which needs '
            "the package torch"
        )
    return np.dtype(name)


def numpy_array(memory: Any, dtype: str, shape: Any, strides: Any, offset: int, where: str) -> Any:
    """Creates a numpy array that is a view of `memory`, or a new array if `shape` contains 0.

    The array is writable if `memory` is writable.
    """
    import numpy as np

    kind = numpy_dtype(dtype, where)
    if 0 in shape:
        array = np.empty(shape, kind)
        array.flags.writeable = not memoryview(memory).readonly
        return array
    return np.ndarray(shape, kind, memory, offset, strides)


def nested_array(values: Any, shapes: list[tuple[int, ...]]) -> Any:
    """A strided nested tensor that views the 1-d `values`; for numpy, a list of its components."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        parts = []
        begin = 0
        for shape in shapes:
            size = _product(shape)
            parts.append(values[begin : begin + size].reshape(shape))
            begin += size
        return parts
    import warnings

    # torch crashes on a nested tensor without components if `sizes` has any columns.
    width = len(shapes[0]) if shapes else 0
    sizes = torch.tensor(shapes, dtype=torch.int64).reshape(len(shapes), width)
    lengths = sizes.prod(1)
    strides = torch.ones_like(sizes)
    for dim in range(sizes.shape[1] - 2, -1, -1):
        strides[:, dim] = strides[:, dim + 1] * sizes[:, dim + 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that nested tensors are a prototype
        return torch._nested_view_from_buffer(
            values, sizes, strides, torch.cumsum(lengths, 0) - lengths
        )


def tied_to(
    first: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], begin: int = 0
) -> Any:
    """Returns a view of the memory of `first` with the given dtype, shape and strides.

    Returns `first` itself if it already has them and `begin` is 0. A torch view begins at byte
    `begin` of `first`; the result is None if the view would be misaligned or exceed the storage, or
    if torch lacks the dtype.
    For numpy, `begin` must be 0; a view other than `first` exists only if it and `first` are
    C-contiguous and have the same size in bytes; else the result is None.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        wanted = getattr(torch, dtype, None)
        if wanted is None:
            return None  # the engine then creates the tensor, and its error names the leaf
        is_first = first.dtype == wanted and first.shape == shape and first.stride() == strides
        if is_first and begin == 0:
            return first
        offset, rest = divmod(first.storage_offset() * first.itemsize + begin, wanted.itemsize)
        end = (offset + extent(shape, strides)) * wanted.itemsize
        if rest or first.untyped_storage().nbytes() < end:
            return None
        with torch.no_grad():
            view = torch.empty(0, dtype=wanted, device=first.device)
            return view.set_(first.untyped_storage(), offset, shape, strides)
    kind = numpy_dtype(dtype, dtype)
    steps = tuple(stride * kind.itemsize for stride in strides)
    if first.dtype == kind and first.shape == shape and first.strides == steps:
        return first
    if first.nbytes != _product(shape) * kind.itemsize or not first.flags.c_contiguous:
        return None
    if any(
        stride != _product(shape[dim + 1 :]) for dim, stride in enumerate(strides) if shape[dim] > 1
    ):
        return None
    return first.reshape(-1).view(kind).reshape(shape)


def viewed_as(tensor: Any, dtype: str, where: str) -> Any:
    """Views the bytes of `tensor` as `dtype`. Raises UnsupportedError if torch lacks the dtype."""
    torch = sys.modules["torch"]
    wanted = getattr(torch, dtype, None)
    if wanted is None:
        raise UnsupportedError(
            f"{where}: torch {torch.__version__} has no {dtype}: expected a newer torch; "
            "pip install -U torch"
        )
    return tensor.view(wanted)


def with_grad(tensor: Any, requires_grad: bool, is_parameter: bool) -> Any:
    """Returns `tensor` if it has the given settings, else a new tensor that shares its memory."""
    torch = sys.modules["torch"]
    wanted = torch.nn.Parameter if is_parameter else torch.Tensor
    if type(tensor) is wanted and tensor.requires_grad == requires_grad:
        return tensor
    if is_parameter:
        return torch.nn.Parameter(tensor.detach(), requires_grad)
    return tensor.detach().requires_grad_(requires_grad)


def tensor_of(array: Any) -> Any:
    """A torch tensor over the memory of a numpy array; a copy if torch cannot view that memory.

    torch views neither scalars and read-only arrays nor another byte order, nor strides that are
    negative or not a multiple of the item size.
    """
    torch = sys.modules["torch"]
    is_viewed = array.flags.writeable and array.dtype.isnative and has_element_strides(array)
    if not is_viewed:
        array = numpy_module().array(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def make_array(value: Any) -> Any:
    """Converts a number, a nested list or an array to a torch tensor or numpy array."""
    torch = torch_or_none()
    if torch is not None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return tensor_of(value)
        if hasattr(value, "__dlpack__"):
            return torch.from_dlpack(value)
        try:
            return torch.tensor(value)
        except RuntimeError as error:  # not a number
            raise TypeError(f"expected numbers: {error}") from None
    import numpy as np

    array = np.asarray(value)
    if array.dtype == np.float64 and not (is_array(value) or is_numpy_number(value)):
        return array.astype(np.float32)  # torch's default for Python floats
    return array


def batch_shape(lengths: tuple[int, ...]) -> Any:
    """`lengths` as torch.Size if torch is imported, else as a tuple; both compare equal."""
    torch = sys.modules.get("torch")
    return lengths if torch is None else torch.Size(lengths)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Length of the memory from the first to the last element, both included, in elements."""
    if 0 in shape:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))


def _product(lengths: tuple[int, ...]) -> int:
    size = 1
    for length in lengths:
        size *= length
    return size


def numpy_module() -> Any:
    """The numpy module."""
    import numpy

    return numpy


def need_torch(what: str) -> Any:
    """The torch module.

    Raises:
        ImportError: If torch cannot be imported; the message begins with `what`.
    """
    torch = import_torch()
    if torch is None:
        raise ImportError(f"{what}: expected the package torch, which cannot be imported")
    return torch


def tensor(value: Any, what: str) -> Any:
    """Returns `value` unless it is a numpy array, which lacks the methods of tensors.

    Raises:
        ImportError: If `value` is a numpy array and torch cannot be imported; the message begins
            with `what`.
        TypeError: If `value` is a numpy array, and torch can be imported.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        need_torch(what)
        raise TypeError(
            f"{what}: expected torch tensors, found a numpy array; use framework='torch'"
        )
    return value


def probe(batch_size: tuple[int, ...], what: str) -> Any:
    """A meta tensor of shape `batch_size`, on which torch can check the arguments of methods."""
    torch = need_torch(what)
    return torch.empty(batch_size, device="meta", dtype=torch.bool)


def dim_in(dim: int, ndim: int, what: str, error: type[Exception] = IndexError) -> int:
    """Converts a dimension, which may be negative, to an index from 0 to ``ndim - 1``.

    Raises:
        TypeError: If `dim` is not a number.
        Exception: An instance of `error`, if `dim` is out of range.
    """
    try:
        at = dim + ndim if dim < 0 else dim
    except TypeError:
        raise TypeError(f"{what}: expected a batch dimension, an int, found {dim!r}") from None
    if not 0 <= at < ndim:
        dims = f" from {-ndim} to {ndim - 1}" if ndim else ", which batch_size [] does not have"
        raise error(f"{what}: expected a batch dimension{dims}, found {dim}")
    return at

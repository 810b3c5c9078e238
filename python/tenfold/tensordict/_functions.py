"""Functions that create TensorDicts, and predicates for leaves."""

from __future__ import annotations

from tenfold._interop import objects
from tenfold._public import set_module
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._dense import TensorDict
from tenfold.tensordict._entries import NODE, TENSORCLASS, class_kind
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@set_module("tenfold")
def from_module(module: Any, as_module: bool = False, lock: bool = True, **options: Any) -> Any:
    """`TensorDict.from_module`, locked unless `lock` is false."""
    return TensorDict.from_module(module, as_module, lock, **options)


@set_module("tenfold")
def from_modules(*modules: Any, **options: Any) -> Any:
    """`TensorDict.from_modules`."""
    return TensorDict.from_modules(*modules, **options)


@set_module("tenfold")
def from_dict(d: Any, **options: Any) -> Any:
    """`TensorDict.from_dict`."""
    return TensorDict.from_dict(d, **options)


@set_module("tenfold")
def from_any(obj: Any, **options: Any) -> Any:
    """`TensorDict.from_any`."""
    return TensorDict.from_any(obj, **options)


@set_module("tenfold")
def from_pytree(pytree: Any, **options: Any) -> Any:
    """`TensorDict.from_pytree`."""
    return TensorDict.from_pytree(pytree, **options)


@set_module("tenfold")
def from_namedtuple(named_tuple: Any, **options: Any) -> Any:
    """`TensorDict.from_namedtuple`."""
    return TensorDict.from_namedtuple(named_tuple, **options)


@set_module("tenfold")
def from_tuple(obj: Any, **options: Any) -> Any:
    """`TensorDict.from_tuple`."""
    return TensorDict.from_tuple(obj, **options)


@set_module("tenfold")
def from_struct_array(struct_array: Any, **options: Any) -> Any:
    """`TensorDict.from_struct_array`."""
    return TensorDict.from_struct_array(struct_array, **options)


@set_module("tenfold")
def fromkeys(keys: Any, value: Any = 0) -> Any:
    """`TensorDict.fromkeys`."""
    return TensorDict.fromkeys(keys, value)


@set_module("tenfold")
def load_memmap(prefix: Any, *args: Any, **options: Any) -> Any:
    """Opens a folder or archive of `TensorDict.memmap`, whose arguments it takes.

    Args:
        prefix: The folder or ``.tdz`` archive.
        *args: As for `TensorDict.load_memmap`.
        **options: As there.

    Returns:
        TensorDict: A TensorDict, or an object of the tensorclass, over the mapped files. Writes
            reach the files.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError: As `tenfold.load`.
        ValueError: For a file of another format.

    Example:
        >>> files = td.memmap("rollout")
        >>> tenfold.load_memmap("rollout")["a"].shape
        torch.Size([3])
    """
    return TensorDict.load_memmap(prefix, *args, **options)


@set_module("tenfold")
def is_leaf_nontensor(cls: type) -> bool:
    """For ``keys(is_leaf=...)``: tensors are leaves, and values that are not tensors, too."""
    return class_kind(cls) not in (NODE, TENSORCLASS)


@set_module("tenfold")
def default_is_leaf(cls: type) -> bool:
    """For ``keys(is_leaf=...)``: tensors are leaves."""
    return class_kind(cls) not in (NODE, TENSORCLASS) and not getattr(cls, "_is_non_tensor", False)


def simplify(obj: Any) -> tuple[Any, ...] | None:
    """The result of `tenfold._interop.objects.simplify` for a TensorDict or an entry of one."""
    if isinstance(obj, (TensorDictBase, NonTensorData, NonTensorStack, UnbatchedTensor)):
        return obj._simplified()
    if class_kind(type(obj)) == TENSORCLASS:
        return tuple(obj._simplified())
    return None


objects.register_trees(simplify)

"""Trees of tensors in Python: `TensorDict`, in memory or over an opened file."""

from __future__ import annotations

from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._dense import TensorDict
from tenfold.tensordict._functions import (
    default_is_leaf,
    from_any,
    from_consolidated,
    from_dict,
    from_module,
    from_modules,
    from_namedtuple,
    from_pytree,
    from_struct_array,
    from_tuple,
    fromkeys,
    is_leaf_nontensor,
    load_memmap,
)
from tenfold.tensordict._lazy import LazyStackedTensorDict
from tenfold.tensordict._ops.join import (
    assert_close,
    cat,
    collate,
    dense_stack_tds,
    is_tensor_collection,
    is_tensorclass,
    lazy_stack,
    maybe_dense_stack,
    merge_tensordicts,
    pad,
    pad_sequence,
    stack,
    unravel_key,
    unravel_key_list,
    unravel_key_to_tuple,
)
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor, is_non_tensor

#: The name of `assert_close` in older versions of tensordict.
assert_allclose_td = assert_close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from tenfold.tensordict._files.archive import (
        is_memmap_archive,
        pack_memmap,
        refresh_archive_checksums,
        unpack_memmap,
    )
    from tenfold.tensordict._files.grow import append_memmap
    from tenfold.tensordict._files.mapped_tensor import MemmapTensor, MemoryMappedTensor
    from tenfold.tensordict._tensorclass.decorator import TensorClass, tensorclass

    #: The type of keys: a str, or a tuple of them for an entry of a nested node.
    NestedKey: TypeAlias = str | tuple[str, ...]
else:
    NestedKey = str | tuple  # for isinstance(), which takes no tuple[str, ...]

# Imported on access. MemoryMappedTensor is a subclass of torch.Tensor, so its module imports torch.
_LATE = {
    "MemmapTensor": "tenfold.tensordict._files.mapped_tensor",
    "MemoryMappedTensor": "tenfold.tensordict._files.mapped_tensor",
    "TensorClass": "tenfold.tensordict._tensorclass.decorator",
    "append_memmap": "tenfold.tensordict._files.grow",
    "is_memmap_archive": "tenfold.tensordict._files.archive",
    "pack_memmap": "tenfold.tensordict._files.archive",
    "refresh_archive_checksums": "tenfold.tensordict._files.archive",
    "tensorclass": "tenfold.tensordict._tensorclass.decorator",
    "unpack_memmap": "tenfold.tensordict._files.archive",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATE[name]), name)


__all__ = [
    "LazyStackedTensorDict",
    "MemmapTensor",
    "MemoryMappedTensor",
    "NestedKey",
    "NonTensorData",
    "NonTensorStack",
    "TensorClass",
    "TensorDict",
    "TensorDictBase",
    "UnbatchedTensor",
    "append_memmap",
    "assert_allclose_td",
    "assert_close",
    "cat",
    "collate",
    "default_is_leaf",
    "dense_stack_tds",
    "from_any",
    "from_consolidated",
    "from_dict",
    "from_module",
    "from_modules",
    "from_namedtuple",
    "from_pytree",
    "from_struct_array",
    "from_tuple",
    "fromkeys",
    "is_leaf_nontensor",
    "is_memmap_archive",
    "is_non_tensor",
    "is_tensor_collection",
    "is_tensorclass",
    "lazy_stack",
    "load_memmap",
    "maybe_dense_stack",
    "merge_tensordicts",
    "pack_memmap",
    "pad",
    "pad_sequence",
    "refresh_archive_checksums",
    "stack",
    "tensorclass",
    "unpack_memmap",
    "unravel_key",
    "unravel_key_list",
    "unravel_key_to_tuple",
]
